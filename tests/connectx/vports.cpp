#include "tests/connectx/vports.hpp"

#include <cerrno>
#include <string>

#include "tests/connectx/address_plan.hpp"
#include "tests/connectx/layouts.hpp"
#include "tests/connectx/profile.hpp"
#include "tests/connectx/refused.hpp"
#include "tests/connectx/vport_feed.hpp"

namespace ovsdr::connectx {
namespace {

constexpr std::uint16_t wire = 0xFFFF, manager = 0;
constexpr std::uint16_t op_mod_uplink = 2;   // of the vport state commands
constexpr std::uint8_t down = 0, up = 1;
constexpr std::uint16_t frame_overhead = 22;   // Ethernet header, a VLAN tag, and the FCS

std::uint16_t vhca_of(std::uint16_t vport) {
    return vport == wire ? 0 : static_cast<std::uint16_t>(manager_vhca + vport);
}

}   // namespace

Vports::Vports(unsigned vfs) : vfs_(vfs) {
    constexpr std::uint64_t first_mac = 0x02'00'00'00'00'01;
    for (unsigned vport = 0; vport <= vfs; ++vport) {
        states_[static_cast<std::uint16_t>(vport)].settings.mac = first_mac + vport;
    }
    states_[wire].settings.mac = first_mac + wire;
}

Vport Vports::described(std::uint16_t number) const {
    // Software must not take the register's value for the vport's number.
    const std::uint32_t port = number == wire ? 1U : 2U + number;
    return {number, vhca_of(number), port << 16, 0xFFFF'0000};
}

bool Vports::has(std::uint32_t number) const {
    const auto found = number > UINT16_MAX ? states_.end() : states_.find(static_cast<std::uint16_t>(number));
    return found != states_.end() && found->second.present;
}

Vport Vports::of_ib_port(std::uint32_t port) const {
    if (port == 0 || port > ib_ports()) throw Refused{EINVAL, "no IB port " + std::to_string(port)};
    const std::uint16_t number = port == 1 ? wire : static_cast<std::uint16_t>(port - 2);
    if (!has(number)) throw Refused{EOPNOTSUPP, "vport " + std::to_string(number) + " is gone: no representor"};
    return described(number);
}

std::vector<Vport> Vports::all() const {
    std::vector<Vport> present;
    for (const auto& [number, state] : states_) {
        if (state.present) present.push_back(described(number));
    }
    return present;
}

void Vports::set_present(std::uint16_t number, bool present) {
    if (const auto found = states_.find(number); found != states_.end()) found->second.present = present;
}

void Vports::configure(std::uint16_t number, VportSettings settings) {
    if (const auto found = states_.find(number); found != states_.end()) found->second.settings = settings;
}

VportSettings Vports::current(std::uint16_t number) const {
    return fed_vport(number).value_or(states_.at(number).settings);
}

std::uint16_t Vports::named(std::span<const std::uint8_t> in) const {
    using namespace layout;
    auto number = static_cast<std::uint16_t>(get(in, vport_command_in::vport_number));
    if (get(in, vport_command_in::other_vport) == 0) number = manager;
    // The wire is no function: it has neither context nor capabilities.
    if (!has(number) || number == wire) throw BadStatus{BadStatus::bad_parameter, "no vport " + std::to_string(number)};
    return number;
}

void Vports::query_hca_cap(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) const {
    using namespace layout;
    // function_id stands where vport commands have the vport, other_function where they have other_vport.
    (void)named(in);
    const auto number = static_cast<std::uint16_t>(get(in, query_hca_cap_in::function_id));
    set(out, query_hca_cap_out::capability / cmd_hca_cap::vhca_id, vhca_of(number));
}

void Vports::query_eswitch_context(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) const {
    using namespace layout;
    (void)named(in);
    const bool other = get(in, query_esw_vport_context_in::other_vport) != 0;
    const auto number = other ? static_cast<std::uint32_t>(get(in, query_esw_vport_context_in::vport_number)) : manager;
    constexpr Field context = query_esw_vport_context_out::esw_vport_context;
    set(out, context / esw_vport_context::sw_steering_vport_icm_address_rx,
        address_plan::of(address_plan::vport_rx, number));
    set(out, context / esw_vport_context::sw_steering_vport_icm_address_tx,
        address_plan::of(address_plan::vport_tx, number));
}

void Vports::query_nic_context(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) const {
    using namespace layout;
    const VportSettings settings = current(named(in));
    constexpr Field context = query_nic_vport_context_out::nic_vport_context;
    set(out, context / nic_vport_context::roce_en, 1);
    set(out, context / nic_vport_context::mtu, settings.mtu + frame_overhead);
    set(out, context / nic_vport_context::permanent_address_47_32, settings.mac >> 32);
    set(out, context / nic_vport_context::permanent_address_31_0, settings.mac);
}

void Vports::query_state(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) const {
    using namespace layout;
    const std::uint16_t number = get(in, command_in::op_mod) == op_mod_uplink ? wire : named(in);
    // A link is up as long as nobody sets the vport down.
    const std::uint8_t now = current(number).up ? up : down;
    set(out, vport_state::admin_state, now);
    set(out, vport_state::state, now);
}

void Vports::query_counter(std::span<const std::uint8_t> in) const {
    (void)named(in);
}

}   // namespace ovsdr::connectx
