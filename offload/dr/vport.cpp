#include "offload/dr/vport.hpp"

#include <fmt/format.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstring>

#include "offload/dr/device/device.hpp"
#include "offload/dr/device/prm.hpp"
#include "offload/dr/nic/plain_function.hpp"

namespace ovsdr::dr {

namespace {

constexpr std::uint16_t query_vport_state = 0x750, modify_vport_state = 0x751, query_nic_vport_context = 0x754,
                        modify_nic_vport_context = 0x755, query_vport_counter = 0x770;
constexpr std::uint16_t op_mod_own_vport = 0, op_mod_esw_vport = 1, op_mod_uplink = 2;

constexpr prm::Field opcode{0, 16}, op_mod{48, 16}, other_vport{64, 1}, vport_number{80, 16};
constexpr prm::Field admin_state{120, 4}, state{124, 4};   // of the vport state commands, in and out
constexpr std::uint32_t down = 0, up = 1;

// In modify_nic_vport_context_in.
constexpr prm::Field field_select_mtu{121, 1}, field_select_permanent_address{124, 1};
constexpr std::uint16_t context_in_query = 128, context_in_modify = 2048;                // bits
constexpr std::uint16_t context_mtu = 0x130, context_mac_47_32 = 0x7b0, context_mac_31_0 = 0x7c0;
constexpr std::size_t context_size = 256, query_context_out_size = 16 + context_size,
                      modify_context_in_size = 256 + context_size;

/// The context's MTU is the hardware's: payload, Ethernet header, one tag, FCS.
constexpr std::uint16_t frame_overhead = 22;

constexpr std::size_t counter_out_size = 528;
/// Byte offsets of {packets, octets} in query_vport_counter_out.
constexpr unsigned received_errors = 16, transmit_errors = 32;
constexpr unsigned received_ethernet[] = {112, 144, 176}, transmitted_ethernet[] = {128, 160, 192};

prm::Field field_of(std::uint16_t base, std::uint16_t offset, std::uint8_t bits) {
    return {static_cast<std::uint16_t>(base + offset), bits};
}

template <std::size_t size>
std::array<std::uint8_t, size> command_for(std::uint16_t operation, VportId vport) {
    std::array<std::uint8_t, size> in{};
    prm::set(in.data(), opcode, operation);
    prm::set(in.data(), other_vport, 1);
    prm::set(in.data(), vport_number, vport.value);
    return in;
}

Result<void> run_once(Eswitch& eswitch, StaticName call, VportId vport, std::span<const std::uint8_t> in,
                      std::span<std::uint8_t> out) {
    const int code = mlx5dv_devx_general_cmd(eswitch.context(), in.data(), in.size(), out.data(), out.size());
    if (code == 0) return {};
    return tl::unexpected(devx_failure(code < 0 && errno != 0 ? errno : code, call, out,
                                       "vport " + std::to_string(vport.value)));
}

/// Silicon has no vport context of the uplink: where it refuses one, the function's own and the physical port's are
/// meant.
Result<void> run(Eswitch& eswitch, StaticName call, VportId vport, std::span<std::uint8_t> in,
                 std::span<std::uint8_t> out) {
    if (eswitch.plain_function() != nullptr && vport == VportId{0}) {
        prm::set(in.data(), other_vport, 0);
        prm::set(in.data(), op_mod, op_mod_own_vport);
    }
    auto done = run_once(eswitch, call, vport, in, out);
    if (done || vport != uplink_vport || done.error().code != EREMOTEIO) return done;
    prm::set(in.data(), other_vport, 0);
    prm::set(in.data(), vport_number, 0);
    if (prm::get(in.data(), op_mod) == op_mod_esw_vport) prm::set(in.data(), op_mod, op_mod_uplink);
    return run_once(eswitch, call, vport, in, out);
}

struct Setting {
    StaticName call;
    const char* name;
    const char* instead;   ///< what an operator does under Linux
};
// A VF's MTU is its owner's; that of its representor is another.
constexpr Setting mac_setting{"MODIFY_NIC_VPORT_CONTEXT", "the MAC address",
                              "set it with devlink port function set PORT hw_addr ADDRESS"},
    mtu_setting{"MODIFY_NIC_VPORT_CONTEXT", "the MTU", "its owner sets it with ip link set INTERFACE mtu MTU"},
    admin_setting{"MODIFY_VPORT_STATE", "the state", "set it on the representor with ip link set REPRESENTOR up|down"};

/// A kernel that does not pass a command on answers EINVAL for the device, whose own refusal is EREMOTEIO.
Result<void> modify(Eswitch& eswitch, const Setting& setting, VportId vport, std::span<std::uint8_t> in) {
    std::array<std::uint8_t, 16> out{};
    auto done = run(eswitch, setting.call, vport, in, out);
    if (done || done.error().code != EINVAL) return done;
    return tl::unexpected(Error{EOPNOTSUPP,
                                fmt::format("the kernel does not let {} of vport {} of {} be set by DEVX; {}",
                                            setting.name, vport.value, eswitch.device(), setting.instead),
                                setting.call});
}

/// Devices differ in how they refuse a query of a vport that they do not have; the rest of the query is right.
Error query_failure(const Eswitch& eswitch, VportId vport, Error&& cause, std::span<const std::uint8_t> out) {
    const std::uint32_t status = prm::get(out.data(), prm::status);
    if (cause.code != EREMOTEIO || (status != prm::bad_parameter && status != prm::bad_resource)) {
        return std::move(cause);
    }
    return {ENOENT, std::string(eswitch.device()) + " has no vport " + std::to_string(vport.value)};
}

struct Sum {
    std::uint64_t packets = 0, bytes = 0;
};

Sum sum_of(std::span<const std::uint8_t> out, std::span<const unsigned> places) {
    Sum sum;
    for (const unsigned place : places) {
        sum.packets += prm::get64(out.data(), place);
        sum.bytes += prm::get64(out.data(), place + 8);
    }
    return sum;
}

}  // namespace

Result<VportState> query_vport(Eswitch& eswitch, VportId vport) noexcept {
    auto context_in = command_for<16>(query_nic_vport_context, vport);
    std::array<std::uint8_t, query_context_out_size> context{};
    if (auto done = run(eswitch, "QUERY_NIC_VPORT_CONTEXT", vport, context_in, context); !done) {
        return tl::unexpected(query_failure(eswitch, vport, std::move(done.error()), context));
    }
    auto state_in = command_for<16>(query_vport_state, vport);
    prm::set(state_in.data(), op_mod, op_mod_esw_vport);
    std::array<std::uint8_t, 16> states{};
    if (auto done = run(eswitch, "QUERY_VPORT_STATE", vport, state_in, states); !done) {
        return tl::unexpected(query_failure(eswitch, vport, std::move(done.error()), states));
    }

    VportState result{};
    const std::uint32_t high = prm::get(context.data(), field_of(context_in_query, context_mac_47_32, 16));
    const std::uint32_t low = prm::get(context.data(), field_of(context_in_query, context_mac_31_0, 32));
    for (unsigned i = 0; i < 2; ++i) result.mac[i] = static_cast<std::uint8_t>(high >> (8 - 8 * i));
    for (unsigned i = 0; i < 4; ++i) result.mac[2 + i] = static_cast<std::uint8_t>(low >> (24 - 8 * i));
    const std::uint32_t mtu = prm::get(context.data(), field_of(context_in_query, context_mtu, 16));
    result.mtu = static_cast<std::uint16_t>(mtu > frame_overhead ? mtu - frame_overhead : 0);
    result.admin_up = prm::get(states.data(), admin_state) != down;
    result.link_up = prm::get(states.data(), state) == up;
    if (PlainFunction* const function = eswitch.plain_function()) result.admin_up = function->is_up();
    return result;
}

Result<VportStats> query_vport_stats(Eswitch& eswitch, VportId vport) noexcept {
    auto in = command_for<32>(query_vport_counter, vport);
    std::array<std::uint8_t, counter_out_size> out{};
    if (auto done = run(eswitch, "QUERY_VPORT_COUNTER", vport, in, out); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    const Sum received = sum_of(out, received_ethernet), sent = sum_of(out, transmitted_ethernet);
    return VportStats{received.packets,
                      received.bytes,
                      sent.packets,
                      sent.bytes,
                      prm::get64(out.data(), received_errors),
                      prm::get64(out.data(), transmit_errors)};
}

Result<void> set_vport_mac(Eswitch& eswitch, VportId vport, const std::array<std::uint8_t, 6>& mac) noexcept {
    auto in = command_for<modify_context_in_size>(modify_nic_vport_context, vport);
    prm::set(in.data(), field_select_permanent_address, 1);
    const auto byte = [&mac](unsigned i) { return static_cast<std::uint32_t>(mac[i]); };
    prm::set(in.data(), field_of(context_in_modify, context_mac_47_32, 16), byte(0) << 8 | byte(1));
    prm::set(in.data(), field_of(context_in_modify, context_mac_31_0, 32),
             byte(2) << 24 | byte(3) << 16 | byte(4) << 8 | byte(5));
    return modify(eswitch, mac_setting, vport, in);
}

Result<void> set_vport_mtu(Eswitch& eswitch, VportId vport, std::uint16_t mtu) noexcept {
    if (mtu > UINT16_MAX - frame_overhead) return tl::unexpected(failure(EINVAL, "MTU", std::to_string(mtu)));
    auto in = command_for<modify_context_in_size>(modify_nic_vport_context, vport);
    prm::set(in.data(), field_select_mtu, 1);
    prm::set(in.data(), field_of(context_in_modify, context_mtu, 16), static_cast<std::uint32_t>(mtu) + frame_overhead);
    return modify(eswitch, mtu_setting, vport, in);
}

Result<void> set_vport_admin_state(Eswitch& eswitch, VportId vport, bool up_wanted) noexcept {
    if (PlainFunction* const function = eswitch.plain_function()) return function->set_up(up_wanted);
    auto in = command_for<16>(modify_vport_state, vport);
    prm::set(in.data(), op_mod, op_mod_esw_vport);
    prm::set(in.data(), admin_state, up_wanted ? up : down);
    return modify(eswitch, admin_setting, vport, in);
}

}  // namespace ovsdr::dr
