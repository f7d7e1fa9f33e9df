// How much of a RoCE packet's payload fits into an Ethernet link's MTU.
//
// Source: the kernel's iboe_get_mtu(), by which every RoCE device reports active_mtu.
#pragma once

#include <infiniband/verbs.h>

namespace ovsdr::soft::roce {

/// The largest of InfiniBand's MTUs that fits into `ethernet_mtu` bytes with the longest headers that a packet has:
/// IPv6 (or GRH), UDP, BTH, XRC, atomic, ICRC. 256 where none does.
[[nodiscard]] constexpr ibv_mtu link_mtu(unsigned ethernet_mtu) noexcept {
    constexpr unsigned headers = 40 + 8 + 12 + 4 + 28 + 4;
    for (const ibv_mtu mtu : {IBV_MTU_4096, IBV_MTU_2048, IBV_MTU_1024, IBV_MTU_512}) {
        if (ethernet_mtu >= (128u << mtu) + headers) return mtu;
    }
    return IBV_MTU_256;
}

}  // namespace ovsdr::soft::roce
