// Commands on vports: state, MAC and MTU, counters, eSwitch context.
#include <optional>

#include "datapath/rdma/devx/devx.hpp"
#include "datapath/steering/plain_function.hpp"

namespace ovsdr::soft::devx {

using prm::Opcode;
using prm::Status;

namespace {

/// The vport that a command is about; nothing where there is no such vport.
[[nodiscard]] std::optional<VportInfo> target(DeviceState& state, Opcode opcode, Input in) {
    VportId vport = manager_vport;
    if (prm::get(in, prm::other_vport) && is_plain_function(state.device().steering())) return std::nullopt;
    if (prm::get(in, prm::other_vport)) vport = VportId{static_cast<std::uint16_t>(prm::get(in, prm::vport_number))};
    const bool of_state = opcode == Opcode::query_vport_state || opcode == Opcode::modify_vport_state;
    if (of_state && prm::get(in, prm::op_mod) == prm::vport_state::uplink) vport = uplink_vport;
    VportInfo info;
    if (state.device().query(vport, info) != 0) return std::nullopt;
    return info;
}

[[nodiscard]] std::uint64_t mac_value(const std::uint8_t (&mac)[6]) {
    std::uint64_t value = 0;
    for (const std::uint8_t byte : mac) value = value << 8 | byte;
    return value;
}

void query_state(const VportInfo& vport, Output out) {
    prm::set(out, prm::vport_state::admin_state, vport.admin_up ? prm::vport_state::up : prm::vport_state::down);
    prm::set(out, prm::vport_state::state, vport.admin_up && vport.link_up);
}

[[nodiscard]] Status modify_state(Device& device, const VportInfo& vport, Input in) {
    switch (prm::get(in, prm::vport_state::admin_state)) {
        case prm::vport_state::down:
            return device.set_admin_state(vport.id, false) == 0 ? Status::ok : Status::bad_param;
        case prm::vport_state::up:
        case prm::vport_state::follow:  // A vport's link is its port's: what "follow" asks for is what "up" does.
            return device.set_admin_state(vport.id, true) == 0 ? Status::ok : Status::bad_param;
        default:
            return Status::bad_param;
    }
}

void query_context(Device& device, const VportInfo& vport, Output out) {
    namespace context = prm::nic_vport_context;
    const auto put = [&](prm::Field field, std::uint64_t value) {
        prm::set(out, prm::within(context::in_query_out, field), value);
    };
    put(context::mtu, vport.mtu + context::mtu_overhead);
    put(context::system_image_guid, device.guid());
    put(context::node_guid, device.guid());
    put(context::port_guid, device.guid() ^ vport.id.value);
    put(context::permanent_address, mac_value(vport.mac));
}

[[nodiscard]] Status modify_context(Device& device, const VportInfo& vport, Input in) {
    namespace context = prm::nic_vport_context;
    const auto select = prm::get(in, context::field_select);
    constexpr std::uint32_t known = context::select_mtu | context::select_permanent_address;
    if (select == 0 || (select & ~std::uint64_t{known})) return Status::bad_param;
    const auto field = [&](prm::Field f) { return prm::get(in, prm::within(context::in_modify_in, f)); };
    const auto mtu = static_cast<std::uint32_t>(field(context::mtu));
    if ((select & context::select_mtu) && mtu <= context::mtu_overhead) return Status::bad_param;
    // The MTU first: it is what can be refused, and nothing shall have changed then.
    if (select & context::select_mtu) {
        const auto payload = static_cast<std::uint16_t>(mtu - context::mtu_overhead);
        if (device.set_mtu(vport.id, payload) != 0) return Status::bad_param;
    }
    if (select & context::select_permanent_address) {
        std::uint8_t mac[6];
        const std::uint64_t value = field(context::permanent_address);
        for (unsigned i = 0; i < 6; ++i) mac[i] = static_cast<std::uint8_t>(value >> (40 - 8 * i));
        if (device.set_mac(vport.id, mac) != 0) return Status::bad_param;
    }
    return Status::ok;
}

[[nodiscard]] Status query_counters(Device& device, const VportInfo& vport, Input in, Output out) {
    namespace counter = prm::vport_counter;
    if (prm::get(in, counter::clear)) return Status::bad_param;
    VportCounters counters{};
    if (device.counters(vport.id, counters) != 0) return Status::bad_res;
    const auto put = [&](std::uint32_t offset, std::uint64_t packets, std::uint64_t octets) {
        prm::set(out, {offset, 64}, packets);
        prm::set(out, {offset + 64, 64}, octets);
    };
    put(counter::received_errors, counters.receive_drops + counters.oversize, 0);
    put(counter::transmit_errors, counters.send_drops + counters.overruns, 0);
    put(counter::received_eth_unicast, counters.received_packets, counters.received_bytes);
    put(counter::transmitted_eth_unicast, counters.sent_packets, counters.sent_bytes);
    return Status::ok;
}

}  // namespace

Status vport_command(DeviceState& state, Opcode opcode, Input in, Output out) {
    const std::optional<VportInfo> vport = target(state, opcode, in);
    if (!vport) return Status::bad_res;
    Device& device = state.device();
    switch (opcode) {
        case Opcode::query_vport_state:
            query_state(*vport, out);
            return Status::ok;
        case Opcode::modify_vport_state:
            return modify_state(device, *vport, in);
        case Opcode::query_nic_vport_context:
            query_context(device, *vport, out);
            return Status::ok;
        case Opcode::modify_nic_vport_context:
            return modify_context(device, *vport, in);
        case Opcode::query_vport_counter:
            return query_counters(device, *vport, in, out);
        case Opcode::query_esw_vport_context:
            return Status::ok;  // No VLAN stripping or insertion, no ICM: all its fields are 0.
        default:
            return Status::bad_op;
    }
}

}  // namespace ovsdr::soft::devx
