// Packet reformats: a tunnel's headers put before a packet, or taken away.
//
// L2 to L2 tunnel: `data` (Ethernet, IP, and what follows) goes before the whole frame. L2 to L3 tunnel: it takes the
// place of the Ethernet header and its tags. As hardware does, the packet's own lengths go into it: IPv4's total length
// and header checksum, IPv6's payload length, UDP's length; UDP's checksum becomes 0. All else stays as given
// (identification, ports, GRE and its checksum if it has one).
//
// L2 tunnel to L2: what remains is the inner frame. L3 tunnel to L2: what remains is the inner IP packet behind the
// given Ethernet header. A packet that carries no such thing is dropped as malformed: it cannot be made what the rule
// promised.
//
// Errors: EINVAL for data that the device takes no object of: none or more than max_size bytes, not in whole 16-bit
// words, for an L3 tunnel's end neither 14 nor 18 bytes. Threads: immutable; apply() is the lane's worker's.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "datapath/steering/program.hpp"

namespace ovsdr::soft {

class Reformat {
public:
    enum class Kind : std::uint8_t { encap_l2, encap_l3, decap_l2, decap_l3 };

    /// The longest header that the device inserts.
    static constexpr std::size_t max_size = 128;

    /// `opens_gtpu`: whether the device's parser sees what GTP-U carries.
    [[nodiscard]] static int create(Kind kind, std::span<const std::uint8_t> data, bool opens_gtpu,
                                    std::shared_ptr<const Reformat>& reformat);

    [[nodiscard]] Kind kind() const noexcept { return kind_; }

    /// Takes a writable packet and gives it back, or frees it and gives nullptr and the reason.
    [[nodiscard]] rte_mbuf* apply(rte_mbuf* packet, DropReason& reason) const noexcept;

private:
    Reformat(Kind kind, std::span<const std::uint8_t> data, bool opens_gtpu);
    [[nodiscard]] rte_mbuf* remove(rte_mbuf* packet, DropReason& reason) const noexcept;
    [[nodiscard]] rte_mbuf* insert(rte_mbuf* packet, DropReason& reason) const noexcept;
    void write_lengths(std::uint8_t* frame, std::uint32_t size) const noexcept;

    Kind kind_;
    bool opens_gtpu_;
    std::vector<std::uint8_t> data_;
    std::uint16_t l3_ = 0;   ///< where data_ has them; 0 = not
    std::uint16_t udp_ = 0;
    std::uint8_t l3_version_ = 0;
};

}  // namespace ovsdr::soft
