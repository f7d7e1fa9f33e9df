#include "offload/dr/device/caps.hpp"

#include <array>
#include <cerrno>
#include <initializer_list>
#include <vector>

#include "offload/dr/device/action.hpp"
#include "offload/dr/device/matcher.hpp"
#include "offload/dr/device/prm.hpp"
#include "offload/dr/device/table.hpp"

namespace ovsdr::dr {

namespace {

constexpr std::uint16_t query_hca_cap = 0x100;
constexpr std::uint16_t current = 1;
constexpr std::uint16_t general = 0x0 << 1, esw_tables = 0x8 << 1, esw = 0x9 << 1;

constexpr std::size_t capability_offset = 16;   ///< bytes
constexpr std::size_t capability_size = 4096;

constexpr prm::Field opcode{0, 16}, op_mod{48, 16};

// In cmd_hca_cap.
constexpr prm::Field eswitch_manager{423, 1}, flow_counter_bulk_alloc{784, 8}, steering_format_version{1092, 4},
    flex_parser_protocols{1344, 32}, general_objects_above_31{1024, 32};
constexpr std::uint32_t flow_meter_aso = 1U << (0x24 - 32);
constexpr std::uint32_t parses_icmp_v4 = 1U << 8, parses_icmp_v6 = 1U << 9;
// In e_switch_cap.
constexpr prm::Field manager_vport_valid{96, 1}, manager_vport_number{112, 16},
    max_encap_header_size{54, 10};
// In flow_table_eswitch_cap: ft_field_support_2_esw_fdb.
constexpr prm::Field tunnel_header_0_1{0x1400 + 16, 1};

using Capability = std::vector<std::uint8_t>;

Result<Capability> query(const Device& device, std::uint16_t capability) noexcept {
    std::array<std::uint8_t, 16> in{};
    prm::set(in.data(), opcode, query_hca_cap);
    prm::set(in.data(), op_mod, capability | current);
    std::vector<std::uint8_t> out(capability_offset + capability_size);
    if (auto done = device.command("QUERY_HCA_CAP", in, out); !done) return tl::unexpected(std::move(done.error()));
    out.erase(out.begin(), out.begin() + capability_offset);
    return out;
}

/// Tables above the root are what everything here stands on.
Result<std::shared_ptr<Table>> try_table(const std::shared_ptr<Device>& device) noexcept {
    auto domain = Domain::create(device, DomainType::fdb);
    if (!domain) return tl::unexpected(std::move(domain.error()));
    return Table::create(std::move(*domain), 1);
}

/// A device that refuses says so with one of these; anything else (memory, a command that timed out) says nothing about
/// what it can do.
bool is_refusal(const Error& error) noexcept {
    return error.code == EOPNOTSUPP || error.code == EINVAL || error.code == EREMOTEIO || error.code == ENOSYS;
}

/// Whether one copy of a packet may go on in a table while another leaves.
Result<bool> try_copy_to_table(const std::shared_ptr<Table>& table, VportId vport) noexcept {
    auto to_table = Action::to_table(table);
    if (!to_table) return tl::unexpected(std::move(to_table.error()));
    auto to_vport = Action::to_vport(table->domain(), vport);
    if (!to_vport && is_refusal(to_vport.error())) return false;
    if (!to_vport) return tl::unexpected(std::move(to_vport.error()));
    const ActionRef destinations[] = {*to_vport, *to_table};
    auto copies = Action::to_all(table->domain(), destinations);
    if (copies) return true;
    if (is_refusal(copies.error())) return false;
    return tl::unexpected(std::move(copies.error()));
}

/// ConnectX-5 would also have to be told what reg_c_0 was, which rules that serve several vports do not know.
Result<bool> try_sampler(const std::shared_ptr<Table>& table) noexcept {
    auto next = Table::create(table->domain(), table->level() + 1);
    if (!next) return tl::unexpected(std::move(next.error()));
    auto sampler = Action::sample(2, {*next, nullptr});
    if (sampler) return true;
    if (is_refusal(sampler.error())) return false;
    return tl::unexpected(std::move(sampler.error()));
}

/// Whether there are tables behind the root of NIC_RX.
Result<bool> try_landing(const std::shared_ptr<Device>& device) noexcept {
    auto domain = Domain::create(device, DomainType::nic_rx);
    if (!domain) return tl::unexpected(std::move(domain.error()));
    auto table = Table::create(std::move(*domain), 1);
    if (table) return true;
    if (is_refusal(table.error())) return false;
    return tl::unexpected(std::move(table.error()));
}

/// Whether a matcher may name these fields whole.
Result<bool> try_match(const std::shared_ptr<Table>& table, std::initializer_list<prm::Field> fields) noexcept {
    MatchParam mask;
    for (const prm::Field field : fields) mask.set(field, prm::ones(field.bits));
    auto matcher = MatcherSet::create(table)->acquire({mask, 0});
    if (matcher) return true;
    if (is_refusal(matcher.error())) return false;
    return tl::unexpected(std::move(matcher.error()));
}

Result<bool> try_decapsulation(const std::shared_ptr<Table>& table) noexcept {
    auto action = Action::decapsulate(table->domain());
    if (action) return true;
    if (is_refusal(action.error())) return false;
    return tl::unexpected(std::move(action.error()));
}

Result<bool> try_write(const std::shared_ptr<Table>& table, HeaderWrite write) noexcept {
    auto action = Action::modify_header(table->domain(), std::array{write});
    if (action) return true;
    if (is_refusal(action.error())) return false;
    return tl::unexpected(std::move(action.error()));
}

/// Whether the device has meters of the kind before ASO, which lead to a table of their own.
Result<bool> try_legacy_meter(const std::shared_ptr<Table>& table) noexcept {
    constexpr std::uint8_t colour_register = 5;
    auto action = Action::police(table, *meter::parameters_of({.rate = 1000, .burst = 1000}), colour_register);
    if (action) return true;
    if (is_refusal(action.error())) return false;
    return tl::unexpected(std::move(action.error()));
}

/// libmlx5 makes such a matcher for every device. Older firmware does not know the question.
Result<bool> matches_tunnel_header(const Device& device) noexcept {
    auto tables = query(device, esw_tables);
    if (tables) return prm::get(tables->data(), tunnel_header_0_1) != 0;
    if (is_refusal(tables.error())) return false;
    return tl::unexpected(std::move(tables.error()));
}

/// What the device knows of tunnels.
Result<void> probe_tunnels(const Device& device, const std::shared_ptr<Table>& table, DeviceCaps& caps) noexcept {
    struct Trial {
        bool& able;
        Result<bool> found;
    };
    Trial trials[] = {
        {caps.decapsulates, try_decapsulation(table)},
        {caps.geneve, try_match(table, {field::geneve_vni})},
        {caps.geneve_option, try_match(table, {field::geneve_vni, field::geneve_tlv_option_0_data})},
        {caps.tells_geneve_option, try_match(table, {field::geneve_vni, field::geneve_tlv_option_0_exist})},
        {caps.tunnel_header, matches_tunnel_header(device)},
    };
    for (Trial& trial : trials) {
        if (!trial.found) return tl::unexpected(std::move(trial.found.error()));
        trial.able = *trial.found;
    }
    return {};
}

/// What the FDB can do.
Result<void> probe_eswitch(const std::shared_ptr<Device>& device, DeviceCaps& caps) noexcept {
    // Older firmware does not know this one; then the manager's vport is 0, as on every host.
    auto eswitch = query(*device, esw);
    if (!eswitch && !is_refusal(eswitch.error())) return tl::unexpected(std::move(eswitch.error()));
    if (eswitch && prm::get(eswitch->data(), manager_vport_valid) != 0) {
        caps.manager_vport.value = static_cast<std::uint16_t>(prm::get(eswitch->data(), manager_vport_number));
    }
    if (eswitch) {
        const std::uint32_t size = prm::get(eswitch->data(), max_encap_header_size);
        if (size != 0) caps.max_tunnel_header = static_cast<std::uint16_t>(size);
    }
    auto table = try_table(device);
    if (!table) return tl::unexpected(std::move(table.error()));
    auto copies = try_copy_to_table(*table, caps.manager_vport);
    if (!copies) return tl::unexpected(std::move(copies.error()));
    caps.copies_to_table = *copies;
    auto samples = try_sampler(*table);
    if (!samples) return tl::unexpected(std::move(samples.error()));
    caps.samples = *samples;
    auto writes_ecn = try_write(*table, {HeaderField::ip_ecn, 0, 3});
    if (!writes_ecn) return tl::unexpected(std::move(writes_ecn.error()));
    caps.writes_ecn = *writes_ecn;
    if (caps.steering_format == 0) {
        auto legacy_meters = try_legacy_meter(*table);
        if (!legacy_meters) return tl::unexpected(std::move(legacy_meters.error()));
        caps.meters = caps.meters_end_rules = *legacy_meters;
    }
    auto tunnels = probe_tunnels(*device, *table, caps);
    if (!tunnels) return tl::unexpected(std::move(tunnels.error()));
    return {};
}

}  // namespace

Result<DeviceCaps> probe_caps(const std::shared_ptr<Device>& device) noexcept {
    auto base = query(*device, general);
    if (!base) return tl::unexpected(std::move(base.error()));
    DeviceCaps caps;
    caps.manages_eswitch = prm::get(base->data(), eswitch_manager) != 0;
    caps.steering_format = static_cast<std::uint8_t>(prm::get(base->data(), steering_format_version));
    const std::uint32_t protocols = prm::get(base->data(), flex_parser_protocols);
    // From ConnectX-6 Dx on ICMP needs no parser profile (rdma-core's dr_matcher.c asks the same).
    const bool parses_icmp = caps.steering_format >= 1;
    caps.icmp_v4 = parses_icmp || (protocols & parses_icmp_v4) != 0;
    caps.icmp_v6 = parses_icmp || (protocols & parses_icmp_v6) != 0;
    caps.meters = caps.steering_format >= 1 && (prm::get(base->data(), general_objects_above_31) & flow_meter_aso) != 0;
    caps.counter_bulks = static_cast<std::uint8_t>(prm::get(base->data(), flow_counter_bulk_alloc));
    if (caps.manages_eswitch) {
        if (auto asked = probe_eswitch(device, caps); !asked) return tl::unexpected(std::move(asked.error()));
    }
    auto landing = try_landing(device);
    if (!landing) return tl::unexpected(std::move(landing.error()));
    caps.recirculates = *landing;
    return caps;
}

}  // namespace ovsdr::dr
