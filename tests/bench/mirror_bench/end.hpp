// One end of the way that a mirror's segments take from ring to ring: with a signature, or the same without.
//
// Model. `signature` is offload/mirror's own Connection. `mkey` does the same work requests by MKEYs without signature:
// one per slot, configured anew for each segment. `region` writes from and to registered memory with no MKEY at all,
// and nothing is configured. Each end has a slot's bytes at address 0 of the slot's key, so that any two kinds work
// together; a slot without signature opposite one with it has blocks and fields in memory, as they are on the wire.
// So that such memory stays right, a slot always takes the segment of its own number: the tags are the same each time.
//
// Life cycle. connect() each with the other's local(), post_open() and post_receives(), then segments.
// Threads: one. Errors: exceptions that name the call.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "offload/dr/device/device.hpp"
#include "offload/mirror/wire/handshake.hpp"

namespace ovsdr::bench {

enum class EndKind : std::uint8_t { region, mkey, signature };

struct EndSpec {
    std::shared_ptr<dr::Device> device;
    mirror::Geometry geometry;
    std::span<std::byte> memory;   ///< of slots, page-aligned each; the caller's, outlives the end
    std::size_t slot_size;         ///< bytes of a slot, all of which are written: with fields or without

    /// From one slot to the next. Without fields it is Geometry's.
    [[nodiscard]] static std::size_t stride_of(std::size_t size) noexcept { return (size + 4095) / 4096 * 4096; }
};

class End {
public:
    [[nodiscard]] static std::unique_ptr<End> create(EndKind kind, const EndSpec& spec);
    virtual ~End() = default;

    [[nodiscard]] virtual const mirror::Endpoint& local() const noexcept = 0;
    virtual void connect(const mirror::Endpoint& peer) = 0;
    /// Writes a whole slot to the peer's key, with its number as immediate value. Completes as `slot`.
    virtual void post_write(std::uint16_t slot, std::uint32_t peer_key) = 0;
    /// Slots first..first+length-1 take what comes. True: once there is a completion as the last of them, with opcode
    /// IBV_WC_DRIVER1; false: already.
    [[nodiscard]] virtual bool post_open(std::uint16_t first, std::size_t length) = 0;
    virtual void post_receives(std::size_t length) = 0;
    [[nodiscard]] virtual std::uint32_t key_of(std::uint16_t slot) const noexcept = 0;
    /// Throws when the MKEY has found a wrong block.
    virtual void check(std::uint16_t slot) = 0;
    /// Valid until the next call.
    [[nodiscard]] virtual std::span<const ibv_wc> poll() = 0;
};

inline constexpr std::uint16_t application_tag = 0x5a5a;

/// Throws what failed. `code`: a positive errno.
[[noreturn]] void fail(int code, std::string_view call);

}  // namespace ovsdr::bench
