// Address handles. A datagram's own address handle is what its sender looks like to the receiver.
//
// Source: ibv_create_ah(3), ibv_create_ah_from_wc(3), IBTA annex A17 (a GRH of RoCE v2 over IPv4 has the IPv4 header in
// its last 20 bytes).
#include "datapath/verbs/ah.hpp"

#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/roce/address.hpp"
#include "datapath/rdma/roce/gid_table.hpp"
#include "datapath/verbs/objects.hpp"

using namespace ovsdr::soft;

namespace {

/// The IPv4 header in a GRH's last 20 bytes.
struct Ipv4 {
    std::uint8_t version_words;
    std::uint8_t tos;
    __be16 total_length, identification, fragment;
    std::uint8_t ttl, protocol;
    __be16 checksum;
    std::uint8_t source[4], destination[4];
};
static_assert(sizeof(Ipv4) == 20);

[[nodiscard]] bool has_good_checksum(const Ipv4& header) {
    std::uint16_t words[sizeof header / 2];
    std::memcpy(words, &header, sizeof header);
    std::uint32_t sum = 0;
    for (const std::uint16_t word : words) sum += word;
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return sum == 0xffff;
}

[[nodiscard]] ibv_gid mapped(const std::uint8_t (&address)[4]) {
    ibv_gid gid{};
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, address, sizeof address);
    return gid;
}

/// The GID table's index of one of our own addresses, -1 for another's.
[[nodiscard]] int index_of(DeviceState& state, unsigned port, const ibv_gid& gid) {
    for (unsigned index = 0; const auto entry = roce::gid_entry(state, port, index); ++index) {
        if (std::memcmp(&entry->gid, &gid, sizeof gid) == 0) return static_cast<int>(index);
    }
    return -1;
}

/// EPROTONOSUPPORT: neither an IPv6 nor an IPv4 header.
[[nodiscard]] int reverse(DeviceState& state, unsigned port, const ibv_grh& grh, ibv_global_route& route) {
    Ipv4 ipv4;
    std::memcpy(&ipv4, reinterpret_cast<const std::byte*>(&grh) + sizeof grh - sizeof ipv4, sizeof ipv4);
    const std::uint32_t flow = be32toh(grh.version_tclass_flow);
    // Only an IPv4 header has a checksum that is right; what stands before it is not defined.
    const bool is_ipv4 = ipv4.version_words == 0x45 && has_good_checksum(ipv4);
    if (!is_ipv4 && flow >> 28 != 6) return EPROTONOSUPPORT;
    const ibv_gid own = is_ipv4 ? mapped(ipv4.destination) : grh.dgid;
    const int index = index_of(state, port, own);
    if (index < 0) return ENOENT;
    route.sgid_index = static_cast<std::uint8_t>(index);
    route.dgid = is_ipv4 ? mapped(ipv4.source) : grh.sgid;
    route.hop_limit = is_ipv4 ? ipv4.ttl : grh.hop_limit;
    route.traffic_class = is_ipv4 ? ipv4.tos : static_cast<std::uint8_t>(flow >> 20);
    route.flow_label = is_ipv4 ? 0 : flow & 0xfffff;
    return 0;
}

}  // namespace

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
    if (const int error = injected_fault("ibv_create_ah")) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_ah* {
        auto ah = std::make_unique<Ah>();
        ah->vector = mlx5_wqe_av{};
        if (const int error = roce::resolve(Context::of(pd->context).state, *attr, ah->vector)) {
            errno = error;
            return nullptr;
        }
        ah->context = pd->context;
        ah->pd = pd;
        ah->handle = 0;
        Pd::of(pd).users.fetch_add(1);
        return ah.release();
    });
}

int ibv_destroy_ah(ibv_ah* ah) {
    if (const int error = injected_fault("ibv_destroy_ah")) return failed(error);
    Pd::of(ah->pd).users.fetch_sub(1);
    delete &Ah::of(ah);
    return 0;
}

int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* wc, ibv_grh* grh, ibv_ah_attr* attr) {
    *attr = ibv_ah_attr{};
    attr->dlid = wc->slid;
    attr->sl = wc->sl;
    attr->src_path_bits = wc->dlid_path_bits;
    attr->port_num = port;
    if (!(wc->wc_flags & IBV_WC_GRH)) return 0;
    attr->is_global = 1;
    const int error = reverse(Context::of(context).state, port, *grh, attr->grh);
    if (!error) return 0;
    errno = error;
    return -1;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, std::uint8_t port) {
    ibv_ah_attr attr;
    return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) == 0 ? ibv_create_ah(pd, &attr) : nullptr;
}

/// The MAC behind an address, and the VLAN of its source. A negative errno.
int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr, std::uint8_t mac[ETHERNET_LL_SIZE],
                                std::uint16_t* vlan) {
    constexpr std::uint16_t no_vlan = 0xffff;
    mlx5_wqe_av vector{};
    if (const int error = roce::resolve(Context::of(context).state, *attr, vector)) return -failed(error);
    std::copy_n(vector.rmac, ETHERNET_LL_SIZE, mac);
    const auto source = roce::gid_entry(Context::of(context).state, attr->port_num, attr->grh.sgid_index);
    if (vlan) *vlan = source && source->vlan ? source->vlan : no_vlan;
    return 0;
}

}  // extern "C"
