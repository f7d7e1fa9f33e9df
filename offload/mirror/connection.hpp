// A reliable connection between the rings of two ends, and the MKEYs that protect what goes over it. Both ends use it:
// the switch writes, the collector is written to.
//
// Model. An RC queue pair with one completion queue and a channel to sleep on, and one signature MKEY per slot, made
// once. A slot's MKEY is configured for each segment by a work request of the same queue pair; what uses it may be
// posted at once behind it. Memory is plain: segments without fields. A collector that keeps the fields gets them into
// memory of their own: the MKEY's layout takes a block and its field by turns from two places, so that blocks stay
// together.
//
// Life cycle. create(), connect() once, then requests until one fails; then it is good for nothing and another one is
// made. Destroyed with requests under way, it takes them back: memory may go afterwards.
//
// Threads: one at a time.
// Source: mlx5dv_wr_mkey_configure(3), mlx5dv_wr_set_mkey_sig_block(3), ibv_wr_post(3), mlx5dv_mkey_check(3).
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "offload/dr/device/device.hpp"
#include "offload/mirror/verbs_owner.hpp"
#include "offload/mirror/wire/handshake.hpp"

namespace ovsdr::mirror {

/// Which address of the device a connection uses. index -1: the first that is RoCEv2 and not link-local; the first
/// RoCEv2 one where there is no such.
struct PortAddress {
    std::uint32_t ib_port = 1;
    int gid_index = -1;
};

/// The GID that such an address is. EADDRNOTAVAIL: the port has none.
[[nodiscard]] Result<int> gid_index_of(const dr::Device& device, const PortAddress& address) noexcept;

/// A slot's memory: `data` segment_size bytes; `fields`, where they are kept, blocks() fields.
struct SlotMemory {
    std::uint64_t data;
    std::uint32_t data_key;
    std::uint64_t fields = 0;
    std::uint32_t fields_key = 0;
};

class Connection {
public:
    /// Writes, or sleeps for writes, of all slots at a time.
    [[nodiscard]] static Result<std::unique_ptr<Connection>> create(std::shared_ptr<dr::Device> device,
                                                                    const PortAddress& address,
                                                                    const Geometry& geometry) noexcept;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// What the peer is told.
    [[nodiscard]] const Endpoint& local() const noexcept { return local_; }
    /// To RTR and RTS, with the smaller path MTU of the two.
    [[nodiscard]] Result<void> connect(const Endpoint& peer) noexcept;

    /// Posts a segment: configures the slot's MKEY over its first `blocks` blocks with fields on the wire, and writes
    /// them to the peer's key, with the sequence number's lower 32 bits as immediate value. Completes as `sequence`.
    [[nodiscard]] Result<void> post_write(std::uint64_t sequence, const SlotMemory& memory, std::uint32_t blocks,
                                          std::uint16_t application_tag, std::uint32_t peer_key) noexcept;

    /// Configures the MKEYs of slots that segments first..first+length-1 lie in, so that the peer may write them: each
    /// block and tag is checked on arrival. Completes as `sequence` of the last, with opcode IBV_WC_DRIVER1.
    [[nodiscard]] Result<void> post_open(std::uint64_t first, std::span<const SlotMemory> memories,
                                         std::uint16_t application_tag) noexcept;
    /// Room for another `length` segments to arrive.
    [[nodiscard]] Result<void> post_receives(std::uint32_t length) noexcept;
    /// What the peer writes to.
    [[nodiscard]] std::uint32_t key_of(std::uint16_t slot) const noexcept { return mkeys_[slot]->rkey; }

    /// The first error since the MKEY was asked last, and forgets it.
    [[nodiscard]] Result<mlx5dv_mkey_err> check(std::uint16_t slot) noexcept;

    /// What has completed, valid until the next call. A failed request is an entry with another status.
    [[nodiscard]] Result<std::span<const ibv_wc>> poll() noexcept;
    /// Readable when something completes after arm().
    [[nodiscard]] int fd() const noexcept { return channel_->fd; }
    [[nodiscard]] Result<void> arm() noexcept;
    void drain_wake_ups() noexcept;

private:
    Connection(std::shared_ptr<dr::Device> device, const Geometry& geometry) noexcept
        : device_(std::move(device)), geometry_(geometry) {}
    [[nodiscard]] Result<void> find_address(const PortAddress& address);
    [[nodiscard]] Result<void> create_queues();
    [[nodiscard]] Result<void> create_mkeys();
    void configure(std::uint64_t sequence, const SlotMemory& memory, std::uint32_t blocks,
                   std::uint16_t application_tag, bool to_be_written) noexcept;

    const std::shared_ptr<dr::Device> device_;
    const Geometry geometry_;
    std::uint8_t ib_port_ = 1;
    std::uint8_t gid_index_ = 0;
    Endpoint local_{};
    // In the reverse of the order in which they go: no MKEY while the queue pair may use it.
    Owner<ibv_comp_channel> channel_;
    Owner<ibv_cq> cq_;
    std::vector<Owner<mlx5dv_mkey>> mkeys_;   ///< of slots
    Owner<ibv_qp> qp_;
    ibv_qp_ex* ex_ = nullptr;
    mlx5dv_qp_ex* mlx5_ = nullptr;
    std::vector<ibv_wc> completions_;
};

}  // namespace ovsdr::mirror
