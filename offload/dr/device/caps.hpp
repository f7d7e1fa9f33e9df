// What a device can do, as far as the compiler and the tables must know: the profile, found by asking.
//
// Model. DEVX QUERY_HCA_CAP tells the steering format (which generation), the flex parser's protocols, who manages the
// eSwitch, the counter bulks to be had, whether a tunnel's header can be matched. What no bit tells is tried with trial
// objects: tables above the root, an array that copies to a table, a sampler.
//
// Threads: DeviceCaps is a value. Source: PRM QUERY_HCA_CAP, cmd_hca_cap, e_switch_cap; rdma-core's caps query.
#pragma once

#include <cstdint>

#include "offload/dr/device/device.hpp"
#include "offload/dr/result.hpp"

namespace ovsdr::dr {

struct DeviceCaps {
    bool manages_eswitch = true;           ///< else a plain function: of the rest NIC_RX and NIC_TX are told
    std::uint8_t steering_format = 1;      ///< 0 ConnectX-5, 1 ConnectX-6 Dx, 2 ConnectX-7
    bool icmp_v4 = true;                   ///< the flex parser yields ICMP type and code
    bool icmp_v6 = true;
    bool copies_to_table = true;           ///< an FDB dest_array may name a table
    bool recirculates = true;              ///< NIC_RX has tables behind its root, to tell where a packet missed
    bool writes_ecn = true;                ///< modify_header knows the IP header's ECN bits
    std::uint16_t max_tunnel_header = 128; ///< bytes that a reformat puts in front of a packet
    bool decapsulates = true;              ///< takes a tunnel's headers off what the wire brings
    bool geneve = true;                    ///< its parser reads Geneve headers
    bool geneve_option = true;             ///< and one option of a word in them, of a class and type that one chooses
    bool tells_geneve_option = true;       ///< and says whether that is there
    bool tunnel_header = true;             ///< the first words of a tunnel's header are matched as they are
    bool samples = true;                   ///< copies one of several packets and lets them go on in a table
    bool meters = true;                    ///< it has some: ASO meters, or the first format's legacy ones
    bool meters_end_rules = false;         ///< legacy: a rule ends in one, and they take bytes only
    std::uint8_t counter_bulks = 0;        ///< bit n: a bulk of 128 << n counters can be had; 0: single counters only
    VportId manager_vport{0};              ///< the eSwitch manager's vport

    /// Generations before ConnectX-6 Dx neither pop a tag off what vports send nor put a tag or a tunnel's header in
    /// front of what the wire brings.
    [[nodiscard]] bool pops_from_vports() const noexcept { return steering_format >= 1; }
    [[nodiscard]] bool pushes_from_wire() const noexcept { return steering_format >= 1; }
    [[nodiscard]] bool encapsulates_from_wire() const noexcept { return steering_format >= 1; }
    /// Whether it compares the words of such a tunnel's header. ConnectX-5 is known to have those of VXLAN (DPDK's
    /// net_mlx5 matches them there), later ones those of all.
    [[nodiscard]] bool matches_header_of(TunnelKind kind) const noexcept {
        return tunnel_header && (steering_format >= 1 || kind == TunnelKind::vxlan);
    }
    /// Bytes of packets from the wire are counted after a tag of theirs has been popped.
    [[nodiscard]] bool counts_after_pop() const noexcept { return steering_format >= 1; }
    /// Likewise after a tunnel's headers have been taken off, by the same rule.
    [[nodiscard]] bool counts_after_decapsulation() const noexcept { return steering_format >= 1; }
    /// Of two tags that a rule pushes its counter counts the first: libmlx5 puts it into the entry of the second push.
    /// Source: what libmlx5 writes, as tests/differential executes it.
    [[nodiscard]] bool counts_after_push(bool from_wire) const noexcept { return from_wire == (steering_format >= 1); }
    /// A tunnel's header counts as one more of them: the counter is in its entry. No header is counted itself. Source:
    /// what libmlx5 writes, tests/unit/connectx/encapsulation_test.cpp.
    [[nodiscard]] bool counts_before_tunnel(bool from_wire) const noexcept { return !from_wire; }
    friend bool operator==(const DeviceCaps&, const DeviceCaps&) = default;
};

/// Makes trial objects in a trial domain.
[[nodiscard]] Result<DeviceCaps> probe_caps(const std::shared_ptr<Device>& device) noexcept;

}  // namespace ovsdr::dr
