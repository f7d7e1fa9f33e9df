// What a host leaves to its NIC, done when the packet enters the eSwitch: checksums are filled in, and TCP and UDP
// packets that are longer than the MTU are cut.
//
// Beside such a frame comes virtio's header (tap, packet socket), which says where the checksum is and how long the
// segments are to be. What enters the eSwitch is what would be on a wire: rules, counters, meters, captures, tunnels
// and queue pairs see whole packets. Where they leave to a host again, joined.hpp puts them together.
//
// Each segment has the frame's headers: lengths and checksums are its own, IPv4's identification goes up by one, TCP's
// sequence number by the bytes before, FIN and PSH are in the last one only, CWR in the first where the header says so
// (ECN). A long frame whose checksum is not to be made is one that a NIC has joined. A frame inside of tunnels (VXLAN
// on any port, Geneve, GRE, IP in IP …) is cut so that each segment has the outer headers, which fit it.
//
// Threads: an object belongs to one thread. Source: virtio 1.2, 5.1.6.2; Linux, include/uapi/linux/virtio_net.h.
#pragma once


#include <array>
#include <cstdint>
#include <span>

struct rte_mbuf;

namespace ovsdr::soft {

/// As virtio's struct virtio_net_hdr, whose header is none for C++. In the host's byte order.
struct VirtioHeader {
    static constexpr std::uint8_t needs_checksum = 1;                            ///< flags
    static constexpr std::uint8_t gso_none = 0, gso_tcp4 = 1, gso_tcp6 = 4, gso_udp = 5, ecn = 0x80;  ///< gso_type

    std::uint8_t flags, gso_type;
    std::uint16_t hdr_len;
    std::uint16_t gso_size;                 ///< bytes of payload in a segment
    std::uint16_t csum_start, csum_offset;  ///< from where on to sum up; the field, from there
};
static_assert(sizeof(VirtioHeader) == 10);

/// The longest that a host makes: IP's limit behind Ethernet with two VLAN tags.
inline constexpr std::uint32_t most_unfinished = 65535 + 14 + 2 * 4;

/// Fills in the checksum of a frame that is not to be cut, as `says` asks. A frame that does not have what the header
/// speaks of stays as it is.
void finish_checksum(std::span<std::uint8_t> frame, const VirtioHeader& says) noexcept;

class Unfinished {
public:
    [[nodiscard]] static bool is_long(const VirtioHeader& says) noexcept {
        return says.gso_type != VirtioHeader::gso_none;
    }

    /// Begins to cut a frame that is_long(), which stays where it is until more() is false. `room`: of a segment. False
    /// for what cannot be cut: it is no whole TCP or UDP packet, or a segment would be too large.
    [[nodiscard]] bool begin(std::span<const std::uint8_t> frame, const VirtioHeader& says,
                             std::uint32_t room) noexcept;

    /// There is another segment.
    [[nodiscard]] bool more() const noexcept { return next_ < frame_.size(); }

    /// Writes it into an empty packet.
    void next(rte_mbuf* packet) noexcept;

    /// What is left is lost.
    void give_up() noexcept { next_ = static_cast<std::uint32_t>(frame_.size()); }

private:
    /// A header whose length, identification or checksum a segment has of its own.
    struct Layer {
        enum class Kind : std::uint8_t { ipv4, ipv6, udp, gre } kind;
        std::uint16_t at;
    };
    [[nodiscard]] bool find_layers(std::uint8_t protocol) noexcept;
    [[nodiscard]] bool add(Layer::Kind kind, std::uint32_t at) noexcept;
    [[nodiscard]] std::uint64_t sum_addresses() const noexcept;
    void write_lengths(std::uint8_t* segment, std::uint32_t size) const noexcept;
    void write_transport(std::uint8_t* segment, std::uint32_t size) const noexcept;
    void write_outer_checksums(std::uint8_t* segment, std::uint32_t size) const noexcept;

    std::span<const std::uint8_t> frame_;
    std::array<Layer, 8> layers_;  ///< from the outermost on
    unsigned layer_count_ = 0;
    bool tcp_ = false;
    bool careful_ = false;                ///< CWR is the first one's
    bool right_ = false;                  ///< the segments' checksums will be
    std::uint64_t pseudo_ = 0;            ///< the pseudo-header's sum, but for the length
    std::uint16_t l4_ = 0, headers_ = 0;  ///< where the one to be cut begins, and its payload
    std::uint32_t segment_ = 0;           ///< bytes of payload in each but the last
    std::uint32_t next_ = 0;              ///< where the next one's payload begins
    std::uint32_t number_ = 0;
};

}  // namespace ovsdr::soft
