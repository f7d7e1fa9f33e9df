#include "datapath/rdma/roce/address.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "datapath/rdma/roce/gid_table.hpp"
#include "datapath/rdma/roce/multicast.hpp"
#include "datapath/rdma/roce/transport.hpp"

namespace ovsdr::soft::roce {

namespace {

[[nodiscard]] bool is_link_local(const ibv_gid& gid) noexcept {
    return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

/// The MAC that an address made of its modified EUI-64 carries.
[[nodiscard]] Mac link_local_mac(const ibv_gid& gid) noexcept {
    const std::uint8_t* const raw = gid.raw;
    return {static_cast<std::uint8_t>(raw[8] ^ 2), raw[9], raw[10], raw[13], raw[14], raw[15]};
}

[[nodiscard]] bool on_link(const ibv_gid& address, const GidEntry& source) noexcept {
    for (unsigned bit = 0; bit < source.prefix; ++bit) {
        const unsigned mask = 0x80u >> bit % 8;
        if ((address.raw[bit / 8] ^ source.gid.raw[bit / 8]) & mask) return false;
    }
    return true;
}

[[nodiscard]] int find_mac(Transport& transport, const ibv_gid& destination, const GidEntry& source, Mac& mac) {
    const Addresses& own = transport.addresses();
    if (own.holds(destination, source.vlan)) {
        mac = own.mac;
    } else if (is_multicast(destination)) {
        mac = multicast_mac(destination);
    } else if (is_link_local(destination)) {
        mac = link_local_mac(destination);
    } else {
        if (!on_link(destination, source)) return EHOSTUNREACH;
        return transport.neighbours().resolve(destination, source, mac);
    }
    return 0;
}

}  // namespace

int resolve(DeviceState& state, const ibv_ah_attr& attr, mlx5_wqe_av& vector) {
    constexpr std::uint32_t grh_present = 1u << 30;
    Transport& transport = state.transport();
    const Addresses& own = transport.addresses();
    const ibv_global_route& route = attr.grh;
    if (!attr.is_global || attr.port_num != roce_port || route.sgid_index >= own.gids.size()) return EINVAL;
    const GidEntry& source = own.gids[route.sgid_index];
    constexpr ibv_gid zero{};
    if (std::memcmp(&route.dgid, &zero, sizeof zero) == 0 || is_ipv4(route.dgid) != is_ipv4(source.gid)) return EINVAL;
    Mac mac{};
    if (const int error = find_mac(transport, route.dgid, source, mac)) return error;
    vector = {};
    vector.stat_rate_sl = static_cast<std::uint8_t>(attr.static_rate << 4 | (attr.sl & 7) << 1);
    const std::uint32_t label = route.flow_label & 0xfffff;
    vector.rlid = htobe16(udp_source_port(label));
    std::copy(mac.begin(), mac.end(), vector.rmac);
    vector.tclass = route.traffic_class;
    vector.hop_limit = route.hop_limit != 0 ? route.hop_limit : default_hop_limit;
    vector.grh_gid_fl = htobe32(grh_present | static_cast<std::uint32_t>(route.sgid_index) << 20 | label);
    std::memcpy(vector.rgid, route.dgid.raw, sizeof vector.rgid);
    return 0;
}

}  // namespace ovsdr::soft::roce
