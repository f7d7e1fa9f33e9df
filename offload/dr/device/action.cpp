#include "offload/dr/device/action.hpp"

#include <endian.h>

#include <bit>
#include <cerrno>
#include <vector>

#include "offload/dr/device/leak.hpp"
#include "offload/dr/device/prm.hpp"

namespace ovsdr::dr {

Action::Action(Key, mlx5dv_dr_action* action, std::shared_ptr<void> holds) noexcept
    : action_(action), holds_(std::move(holds)) {}

Action::~Action() { destroyed([this] { return mlx5dv_dr_action_destroy(action_); }); }

Result<ActionRef> Action::wrap(mlx5dv_dr_action* action, StaticName call, std::shared_ptr<void> holds) {
    if (action == nullptr) return tl::unexpected(failure(errno, call));
    try {
        return std::make_shared<Action>(Key{}, action, std::move(holds));
    } catch (...) {
        destroyed([action] { return mlx5dv_dr_action_destroy(action); });
        throw;
    }
}

Result<ActionRef> Action::drop() noexcept {
    return wrap(mlx5dv_dr_action_create_drop(), "mlx5dv_dr_action_create_drop");
}

Result<ActionRef> Action::default_miss() noexcept {
    return wrap(mlx5dv_dr_action_create_default_miss(), "mlx5dv_dr_action_create_default_miss");
}

Result<ActionRef> Action::tag(std::uint32_t tag) noexcept {
    return wrap(mlx5dv_dr_action_create_tag(tag), "mlx5dv_dr_action_create_tag");
}

Result<ActionRef> Action::to_queue_pair(ibv_qp* queue_pair) {
    return wrap(mlx5dv_dr_action_create_dest_ibv_qp(queue_pair), "mlx5dv_dr_action_create_dest_ibv_qp");
}

Result<ActionRef> Action::to_table(std::shared_ptr<Table> table, std::shared_ptr<void> holds) noexcept {
    mlx5dv_dr_action* action = mlx5dv_dr_action_create_dest_table(table->get());
    if (holds == nullptr) holds = std::move(table);
    return wrap(action, "mlx5dv_dr_action_create_dest_table", std::move(holds));
}

Result<ActionRef> Action::to_vport(std::shared_ptr<Domain> domain, VportId vport) {
    mlx5dv_dr_action* action = mlx5dv_dr_action_create_dest_vport(domain->get(), vport.value);
    return wrap(action, "mlx5dv_dr_action_create_dest_vport", std::move(domain));
}

Result<ActionRef> Action::to_all(std::shared_ptr<Domain> domain, std::span<const ActionRef> destinations) noexcept {
    std::vector<mlx5dv_dr_action_dest_attr> attributes(destinations.size());
    std::vector<mlx5dv_dr_action_dest_attr*> pointers;
    for (std::size_t i = 0; i < destinations.size(); ++i) {
        attributes[i].type = MLX5DV_DR_ACTION_DEST;
        attributes[i].dest = destinations[i]->get();
        pointers.push_back(&attributes[i]);
    }
    mlx5dv_dr_action* action = mlx5dv_dr_action_create_dest_array(domain->get(), pointers.size(), pointers.data());
    struct Holds {
        std::shared_ptr<Domain> domain;
        std::vector<ActionRef> destinations;
    };
    return wrap(action, "mlx5dv_dr_action_create_dest_array",
                std::make_shared<Holds>(Holds{std::move(domain), {destinations.begin(), destinations.end()}}));
}

Result<ActionRef> Action::pop_vlan() noexcept {
    return wrap(mlx5dv_dr_action_create_pop_vlan(), "mlx5dv_dr_action_create_pop_vlan");
}

Result<ActionRef> Action::push_vlan(std::shared_ptr<Domain> domain, std::uint16_t tpid, std::uint16_t tci) noexcept {
    const std::uint32_t header = static_cast<std::uint32_t>(tpid) << 16 | tci;
    mlx5dv_dr_action* action = mlx5dv_dr_action_create_push_vlan(domain->get(), htobe32(header));
    return wrap(action, "mlx5dv_dr_action_create_push_vlan", std::move(domain));
}

namespace {

/// One command for each run of mask bits.
void append_sets(std::vector<__be64>& commands, const HeaderWrite& write) {
    // PRM set_action_in; a length of 0 stands for 32 bits.
    constexpr prm::Field action_type{0, 4}, field{4, 12}, offset{19, 5}, length{27, 5}, data{32, 32};
    constexpr std::uint32_t set = 1;
    for (std::uint32_t left = write.mask; left != 0;) {
        const auto first = static_cast<unsigned>(std::countr_zero(left));
        const auto bits = static_cast<unsigned>(std::countr_one(left >> first));
        alignas(8) __be64 command = 0;
        prm::set(&command, action_type, set);
        prm::set(&command, field, static_cast<std::uint32_t>(write.field));
        prm::set(&command, offset, first);
        prm::set(&command, length, bits % 32);
        prm::set(&command, data, (write.value >> first) & prm::ones(bits));
        commands.push_back(command);
        left &= ~(prm::ones(bits) << first);
    }
}

}  // namespace

Result<ActionRef> Action::modify_header(std::shared_ptr<Domain> domain, std::span<const HeaderWrite> writes) {
    std::vector<__be64> commands;
    for (const HeaderWrite& write : writes) append_sets(commands, write);
    mlx5dv_dr_action* action = mlx5dv_dr_action_create_modify_header(
        domain->get(), 0, commands.size() * sizeof commands[0], commands.data());
    return wrap(action, "mlx5dv_dr_action_create_modify_header", std::move(domain));
}

Result<ActionRef> Action::encapsulate(std::shared_ptr<Domain> domain, std::span<const std::uint8_t> header) {
    std::vector<std::uint8_t> data(header.begin(), header.end());   // the provider's parameter is not const
    mlx5dv_dr_action* action = mlx5dv_dr_action_create_packet_reformat(
        domain->get(), 0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL, data.size(), data.data());
    return wrap(action, "mlx5dv_dr_action_create_packet_reformat", std::move(domain));
}

Result<ActionRef> Action::decapsulate(std::shared_ptr<Domain> domain) {
    mlx5dv_dr_action* action = mlx5dv_dr_action_create_packet_reformat(
        domain->get(), 0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2, 0, nullptr);
    return wrap(action, "mlx5dv_dr_action_create_packet_reformat", std::move(domain));
}

Result<ActionRef> Action::sample(std::uint32_t one_of, Next next) {
    auto copy = default_miss();
    if (!copy) return copy;
    struct Holds {
        Next next;
        ActionRef copy;
    };
    const auto holds = std::make_shared<Holds>(Holds{std::move(next), std::move(*copy)});
    mlx5dv_dr_action* copies[] = {holds->copy->get()};
    mlx5dv_dr_flow_sampler_attr attributes{};
    attributes.sample_ratio = one_of;
    attributes.default_next_table = holds->next.table->get();
    attributes.num_sample_actions = std::size(copies);
    attributes.sample_actions = copies;
    return wrap(mlx5dv_dr_action_create_flow_sampler(&attributes), "mlx5dv_dr_action_create_flow_sampler", holds);
}

Result<ActionRef> Action::colour(std::shared_ptr<Domain> domain, std::shared_ptr<meter::Meter> meter,
                                 std::uint8_t reg_c) {
    mlx5dv_dr_action* action = mlx5dv_dr_action_create_aso(domain->get(), meter->bulk(), meter->offset(),
                                                           MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_GREEN, reg_c);
    struct Holds {
        std::shared_ptr<Domain> domain;
        std::shared_ptr<meter::Meter> meter;
    };
    return wrap(action, "mlx5dv_dr_action_create_aso",
                std::make_shared<Holds>(Holds{std::move(domain), std::move(meter)}));
}

Result<ActionRef> Action::police(std::shared_ptr<Table> next, const meter::Parameters& parameters, std::uint8_t reg_c) {
    meter::Parameters copy = parameters;   // the provider's parameter is not const
    mlx5dv_dr_flow_meter_attr attributes{.next_table = next->get(),
                                         .active = 1,
                                         .reg_c_index = reg_c,
                                         .flow_meter_parameter_sz = copy.size(),
                                         .flow_meter_parameter = copy.data()};
    return wrap(mlx5dv_dr_action_create_flow_meter(&attributes), "mlx5dv_dr_action_create_flow_meter", std::move(next));
}

Result<void> Action::change_meter(meter::Parameters parameters, MeterChange change) noexcept {
    mlx5dv_dr_flow_meter_attr attributes{};
    attributes.flow_meter_parameter_sz = parameters.size();
    attributes.flow_meter_parameter = parameters.data();
    const int code = mlx5dv_dr_action_modify_flow_meter(action_, &attributes,
                                                        htobe64(static_cast<std::uint64_t>(change)));
    if (code != 0) return tl::unexpected(failure(code, "mlx5dv_dr_action_modify_flow_meter"));
    return {};
}

}  // namespace ovsdr::dr
