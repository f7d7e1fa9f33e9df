#include "tests/conformance/libmlx5_questions/action_set.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>

#include "tests/conformance/libmlx5_questions/answers.hpp"

namespace ovsdr::oracle {
namespace {

constexpr std::uint16_t uplink = 0xffff;
constexpr std::uint32_t vlan_5 = 0x81000005;

/// An Ethernet, IPv4 and UDP header and VXLAN's: what a tunnel puts in front.
constexpr std::array<std::uint8_t, 50> vxlan_headers = [] {
    std::array<std::uint8_t, 50> bytes{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45};
    bytes[23] = 17;
    bytes[36] = 0x12;
    bytes[37] = 0xb5;
    bytes[42] = 8;
    return bytes;
}();
constexpr std::size_t ethernet_size = 14;

}  // namespace

__be64 EditCommand::encoded() const noexcept {
    return htobe64(std::uint64_t{operation} << 60 | std::uint64_t{field} << 48 | std::uint64_t{offset} << 40 |
                   std::uint64_t{length} << 32 | data);
}

Stage::Stage(const Session& session, mlx5dv_dr_domain_type domain_type, unsigned level)
    : type(domain_type),
      domain(session.domain(domain_type)),
      table(mlx5dv_dr_table_create(domain.get(), level)),
      next(mlx5dv_dr_table_create(domain.get(), level + 1)) {}

mlx5dv_dr_action* create_array(mlx5dv_dr_domain* domain, mlx5dv_dr_action* first, mlx5dv_dr_action* second) {
    if (first == nullptr || second == nullptr) return nullptr;
    mlx5dv_dr_action_dest_attr one{}, two{};
    one.type = two.type = MLX5DV_DR_ACTION_DEST;
    one.dest = first;
    two.dest = second;
    mlx5dv_dr_action_dest_attr* both[] = {&one, &two};
    return mlx5dv_dr_action_create_dest_array(domain, 2, both);
}

ActionSet::ActionSet(const Session& session, const Stage& stage, bool root) {
    const std::uint32_t flags = root ? MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL : 0;
    errno = 0;
    make_plain(session, stage, flags);
    make_reformats(stage.domain.get(), flags);
    make_destinations(session, stage);
    make_stateful(session, stage);
    errno = 0;
    keep(mlx5dv_dr_action_create_dest_ib_port(stage.domain.get(), 2));
}

void ActionSet::keep(mlx5dv_dr_action* action) {
    made_.push_back(outcome(action));
    actions_.emplace_back(action);
    errno = 0;
}

void ActionSet::make_plain(const Session& session, const Stage& stage, std::uint32_t flags) {
    keep(mlx5dv_dr_action_create_drop());
    keep(mlx5dv_dr_action_create_tag(0x1234));
    keep(mlx5dv_dr_action_create_default_miss());
    keep(mlx5dv_dr_action_create_flow_counter(session.counter.get(), 0));
    __be64 edit = EditCommand{.field = edit_field_smac}.encoded();
    keep(mlx5dv_dr_action_create_modify_header(stage.domain.get(), flags, sizeof edit, &edit));
    keep(mlx5dv_dr_action_create_push_vlan(stage.domain.get(), htobe32(vlan_5)));
    keep(mlx5dv_dr_action_create_pop_vlan());
}

void ActionSet::make_reformats(mlx5dv_dr_domain* domain, std::uint32_t flags) {
    std::array<std::uint8_t, vxlan_headers.size()> headers = vxlan_headers;
    keep(mlx5dv_dr_action_create_packet_reformat(domain, flags, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2,
                                                 0, nullptr));
    keep(mlx5dv_dr_action_create_packet_reformat(domain, flags, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2,
                                                 ethernet_size, headers.data()));
    keep(mlx5dv_dr_action_create_packet_reformat(domain, flags, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL,
                                                 headers.size(), headers.data()));
    keep(mlx5dv_dr_action_create_packet_reformat(domain, flags, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL,
                                                 headers.size(), headers.data()));
}

void ActionSet::make_destinations(const Session& session, const Stage& stage) {
    keep(mlx5dv_dr_action_create_dest_table(stage.next.get()));
    keep(mlx5dv_dr_action_create_dest_vport(stage.domain.get(), 1));
    mlx5dv_dr_action* vport = actions_.back().get();
    keep(mlx5dv_dr_action_create_dest_vport(stage.domain.get(), uplink));
    const std::string vports = made_.back();
    mlx5dv_dr_action* array = create_array(stage.domain.get(), vport, actions_.back().get());
    keep(array);
    if (array == nullptr && vports != "ok") made_.back() = vports;
    keep(mlx5dv_dr_action_create_dest_ibv_qp(session.queue.get()));
}

void ActionSet::make_stateful(const Session& session, const Stage& stage) {
    struct Aso {
        mlx5dv_devx_obj* object;
        std::uint32_t flags;
        std::uint8_t reg_c;
    };
    for (const Aso& aso : {Aso{session.first_hit.get(), MLX5DV_DR_ACTION_FLAGS_ASO_FIRST_HIT_SET, 1},
                           Aso{session.flow_meter.get(), MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_GREEN, 3},
                           Aso{session.connections.get(), MLX5DV_DR_ACTION_FLAGS_ASO_CT_DIRECTION_INITIATOR, 5}}) {
        errno = aso.object == nullptr ? EOPNOTSUPP : 0;
        keep(aso.object == nullptr
                 ? nullptr
                 : mlx5dv_dr_action_create_aso(stage.domain.get(), aso.object, 0, aso.flags, aso.reg_c));
    }
    std::array<std::uint8_t, 28> parameters{};
    parameters[3] = 1;
    mlx5dv_dr_flow_meter_attr meter{stage.next.get(), 1, 2, parameters.size(), parameters.data()};
    keep(mlx5dv_dr_action_create_flow_meter(&meter));
    const bool fdb = stage.type == MLX5DV_DR_DOMAIN_TYPE_FDB;
    parts_.emplace_back(fdb ? mlx5dv_dr_action_create_dest_vport(stage.domain.get(), 1)
                            : mlx5dv_dr_action_create_dest_ibv_qp(session.queue.get()));
    mlx5dv_dr_action* sampled[] = {parts_.back().get()};
    mlx5dv_dr_flow_sampler_attr sampler{.sample_ratio = 4,
                                        .default_next_table = stage.next.get(),
                                        .num_sample_actions = 1,
                                        .sample_actions = sampled,
                                        .action = EditCommand{.field = edit_field_reg_c_0}.encoded()};
    keep(mlx5dv_dr_action_create_flow_sampler(&sampler));
}

}  // namespace ovsdr::oracle
