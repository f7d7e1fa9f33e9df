#include "datapath/rdma/roce/gid_table.hpp"

#include <cstring>

namespace ovsdr::soft::roce {

std::vector<GidEntry> gid_entries(DeviceState& state) {
    std::vector<GidEntry> entries;
    VportInfo manager{}, uplink{};
    if (state.device().query(manager_vport, manager) != 0) return entries;
    // The modified EUI-64 of the MAC behind fe80::/64 (RFC 4291, appendix A).
    const std::uint8_t* const mac = manager.mac;
    const std::uint8_t link_local[16] = {
        0xfe,   0x80,   0,    0,    0,      0,      0,     0, static_cast<std::uint8_t>(mac[0] ^ 2),
        mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
    GidEntry entry{.gid = {}, .prefix = 64, .vlan = 0};
    std::memcpy(entry.gid.raw, link_local, sizeof link_local);
    entries.push_back(entry);
    if (state.device().query(uplink_vport, uplink) != 0) return entries;
    for (const RoceAddress& address : uplink.roce_addresses) {
        std::memcpy(entry.gid.raw, address.address, sizeof address.address);
        entry.prefix = address.prefix;
        entry.vlan = address.vlan;
        entries.push_back(entry);
    }
    return entries;
}

std::optional<GidEntry> gid_entry(DeviceState& state, unsigned port, unsigned index) {
    if (port != roce_port) return std::nullopt;
    const std::vector<GidEntry> entries = gid_entries(state);
    return index < entries.size() ? std::optional(entries[index]) : std::nullopt;
}

}  // namespace ovsdr::soft::roce
