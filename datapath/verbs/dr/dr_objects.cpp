// mlx5dv_dr_domain_*, _table_*, _matcher_*, _rule_*: see mlx5dv_dr_flow(3).
#include "datapath/ports/nic.hpp"
#include "datapath/rdma/dr_seam.hpp"
#include "datapath/steering/plain_function.hpp"
#include "datapath/verbs/dr/dr_handle.hpp"

using namespace ovsdr::soft;

namespace {

/// No larger hint fits the device's memory for steering.
constexpr unsigned max_log_rules = 23;

[[nodiscard]] DomainType domain_type(mlx5dv_dr_domain_type type) noexcept {
    switch (type) {
        case MLX5DV_DR_DOMAIN_TYPE_NIC_RX: return DomainType::nic_rx;
        case MLX5DV_DR_DOMAIN_TYPE_NIC_TX: return DomainType::nic_tx;
        default: return DomainType::fdb;
    }
}

/// An FDB where there is no eSwitch is not.
[[nodiscard]] bool is_usable(Domain& domain) noexcept {
    return domain.type() != DomainType::fdb || !is_plain_function(domain.steering());
}

[[nodiscard]] int layout_error(const Matcher& matcher, const mlx5dv_dr_matcher_layout& layout) noexcept {
    constexpr std::uint32_t known = MLX5DV_DR_MATCHER_LAYOUT_RESIZABLE | MLX5DV_DR_MATCHER_LAYOUT_NUM_RULE;
    if (!matcher.mask().definer || (layout.flags & ~known) != 0) return ENOTSUP;
    const bool hint = (layout.flags & MLX5DV_DR_MATCHER_LAYOUT_NUM_RULE) != 0;
    return hint && layout.log_num_of_rules_hint > max_log_rules ? ENOTSUP : 0;
}

[[nodiscard]] int set_layout(Matcher& matcher, const mlx5dv_dr_matcher_layout& layout) noexcept {
    Matcher::Layout wanted{.rules = {}, .resizable = (layout.flags & MLX5DV_DR_MATCHER_LAYOUT_RESIZABLE) != 0};
    if ((layout.flags & MLX5DV_DR_MATCHER_LAYOUT_NUM_RULE) != 0) {
        wanted.rules = std::size_t{1} << layout.log_num_of_rules_hint;
    }
    try {
        matcher.set_layout(wanted);
    } catch (const std::bad_alloc&) {
        return ENOTSUP;
    }
    return 0;
}

/// libmlx5 asks the device for the vport that a rule's source is, and has of an absent one what the kernel makes of a
/// firmware's refusal. A value that is wrong otherwise is Rule::create()'s to refuse, and root rules are the kernel's.
[[nodiscard]] int source_error(const Matcher& matcher, std::span<const std::uint8_t> value) {
    const MatchMask& mask = matcher.mask();
    if (mask.root || load_be16(mask.given.bytes() + key_offset::source_port) == 0) return 0;
    constexpr std::size_t place = 70;
    if (value.size() < place + 2) return 0;
    const VportId source{load_be16(value.data() + place)};
    const Device& device = device_of(static_cast<ibv_context*>(matcher.table().domain().owner()));
    if (source == uplink_vport || device.has(source)) return 0;
    Key key;
    return make_value(mask, value, key) == 0 ? EREMOTEIO : 0;
}

}  // namespace

extern "C" {

mlx5dv_dr_domain* mlx5dv_dr_domain_create(ibv_context* context, mlx5dv_dr_domain_type type) {
    return create_object<Domain>("mlx5dv_dr_domain_create", [=](std::unique_ptr<Domain>& domain) {
        if (type > MLX5DV_DR_DOMAIN_TYPE_FDB) return EINVAL;
        domain = std::make_unique<Domain>(device_of(context).steering(), domain_type(type), context);
        return 0;
    });
}

int mlx5dv_dr_domain_destroy(mlx5dv_dr_domain* domain) {
    return destroy_object("mlx5dv_dr_domain_destroy", from(domain));
}

int mlx5dv_dr_domain_sync(mlx5dv_dr_domain* domain, uint32_t flags) {
    constexpr uint32_t known = MLX5DV_DR_DOMAIN_SYNC_FLAGS_SW | MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW |
                               MLX5DV_DR_DOMAIN_SYNC_FLAGS_MEM;
    int error = injected_fault("mlx5dv_dr_domain_sync");
    if (error == 0 && ((flags & ~known) != 0 || !is_usable(*from(domain)))) error = EOPNOTSUPP;
    if (error != 0) return errno = error;
    // Rules are in place when they are created; what there is to wait for are the lanes.
    if ((flags & MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW) != 0) from(domain)->steering().synchronize();
    if ((flags & MLX5DV_DR_DOMAIN_SYNC_FLAGS_MEM) != 0) from(domain)->free_cached_memory();
    return 0;
}

void mlx5dv_dr_domain_set_reclaim_device_memory(mlx5dv_dr_domain* domain, bool enable) {
    from(domain)->reclaim_memory(enable);
}

void mlx5dv_dr_domain_allow_duplicate_rules(mlx5dv_dr_domain* domain, bool allow) {
    from(domain)->allow_duplicates(allow);
}

mlx5dv_dr_table* mlx5dv_dr_table_create(mlx5dv_dr_domain* domain, uint32_t level) {
    return create_object<Table>("mlx5dv_dr_table_create", [=](std::unique_ptr<Table>& table) {
        if (level != 0 && !is_usable(*from(domain))) return EOPNOTSUPP;
        table = std::make_unique<Table>(*from(domain), level);
        return 0;
    });
}

int mlx5dv_dr_table_destroy(mlx5dv_dr_table* table) { return destroy_object("mlx5dv_dr_table_destroy", from(table)); }

mlx5dv_dr_matcher* mlx5dv_dr_matcher_create(mlx5dv_dr_table* table, uint16_t priority, uint8_t match_criteria_enable,
                                            mlx5dv_flow_match_parameters* mask) {
    return create_object<Matcher>("mlx5dv_dr_matcher_create", [=](std::unique_ptr<Matcher>& matcher) {
        if (!is_usable(from(table)->domain())) return EINVAL;   // the kernel, of the root table
        return Matcher::create(*from(table), priority, match_criteria_enable, bytes_of(mask), matcher);
    });
}

int mlx5dv_dr_matcher_destroy(mlx5dv_dr_matcher* matcher) {
    return destroy_object("mlx5dv_dr_matcher_destroy", from(matcher));
}

/// ENOTSUP, as in libmlx5, also where there is no memory for the hint.
int mlx5dv_dr_matcher_set_layout(mlx5dv_dr_matcher* matcher, mlx5dv_dr_matcher_layout* layout) {
    int error = injected_fault("mlx5dv_dr_matcher_set_layout");
    if (error == 0) error = layout_error(*from(matcher), *layout);
    if (error == 0) error = set_layout(*from(matcher), *layout);
    if (error != 0) errno = error;
    return error;
}

mlx5dv_dr_rule* mlx5dv_dr_rule_create(mlx5dv_dr_matcher* matcher, mlx5dv_flow_match_parameters* value,
                                      size_t num_actions, mlx5dv_dr_action* actions[]) {
    return create_object<Rule>("mlx5dv_dr_rule_create", [=](std::unique_ptr<Rule>& rule) {
        const std::span<Action* const> list{reinterpret_cast<Action**>(actions), num_actions};
        if (const int error = source_error(*from(matcher), bytes_of(value)); error != 0) return error;
        return Rule::create(*from(matcher), bytes_of(value), list, rule);
    });
}

int mlx5dv_dr_rule_destroy(mlx5dv_dr_rule* rule) {
    if (const int error = injected_fault("mlx5dv_dr_rule_destroy"); error != 0) return error;
    delete from(rule);
    return 0;
}

}  // extern "C"
