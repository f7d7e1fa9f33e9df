// The functions of the provider.
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "tests/unit/offload/fake_objects.hpp"
#include "tests/unit/offload/fake_provider.hpp"

namespace ovsdr::test {
namespace {

template <typename T>
T* make(const char* kind, std::vector<FakeObject*> needs) {
    const NoMemoryFaults exempt;
    auto* object = new T;
    object->kind = kind;
    for (FakeObject* needed : needs) ++needed->users;
    object->needs = std::move(needs);
    fake_state().objects.insert(object);
    return object;
}

/// With errno `code`, when the test says so.
bool refused(bool FakeState::*refuses, int code) {
    std::lock_guard lock(fake_state().mutex);
    if (fake_state().*refuses) errno = code;
    return fake_state().*refuses;
}

template <typename T>
int destroy(T* object) {
    const NoMemoryFaults exempt;
    FakeState& now = fake_state();
    std::lock_guard lock(now.mutex);
    if (now.objects.count(object) == 0) {
        now.violations.push_back("destroyed twice");
        return EINVAL;
    }
    if (object->users != 0) {
        now.violations.push_back(object->kind + " destroyed while in use");
        return EBUSY;
    }
    if constexpr (std::is_same_v<T, mlx5dv_dr_rule>) {
        FakeOrder::destroying(*object);
        FakeProvider::note_locked("destroy " + text_of_rule(*object));
        auto& rules = static_cast<mlx5dv_dr_matcher*>(object->needs[0])->rules;
        auto place = rules.lower_bound(object->match);
        while (place->second != object) ++place;
        rules.erase(place);
    }
    if constexpr (std::is_same_v<T, mlx5dv_dr_table>) FakeOrder::destroying(*object);
    for (FakeObject* needed : object->needs) --needed->users;
    now.objects.erase(object);
    delete object;
    return 0;
}

mlx5dv_dr_action* action(const char* call, std::string text, std::vector<FakeObject*> needs = {}) {
    std::lock_guard lock(fake_state().mutex);
    if (fails_locked(call)) return nullptr;
    const NoMemoryFaults exempt;
    auto* made = make<mlx5dv_dr_action>("action", std::move(needs));
    made->text = std::move(text);
    for (FakeObject* needed : made->needs) {
        if (needed->kind == "table") made->leads_to.push_back(static_cast<mlx5dv_dr_table*>(needed));
        if (needed->kind == "action") {
            const auto& further = static_cast<mlx5dv_dr_action*>(needed)->leads_to;
            made->leads_to.insert(made->leads_to.end(), further.begin(), further.end());
        }
    }
    return made;
}

/// Of ours, that these commands write into reg_c_1; 0: none. PRM set_action_in.
std::uint32_t mark_of(std::span<const __be64> commands) {
    constexpr std::uint64_t set_reg_c_1 = 0x1052;
    constexpr std::uint32_t ours = 0xD5;
    for (const __be64 each : commands) {
        const std::uint64_t command = be64toh(each);
        const auto data = static_cast<std::uint32_t>(command);
        if (command >> 48 == set_reg_c_1 && data >> 24 == ours) return data;
    }
    return 0;
}

void put_bits(void* structure, unsigned bit_offset, unsigned bits, std::uint32_t value) {
    auto* bytes = static_cast<std::uint8_t*>(structure);
    for (unsigned i = 0; i < bits; ++i) {
        const unsigned bit = bit_offset + i;
        const auto one = static_cast<std::uint8_t>(0x80 >> (bit % 8));
        bytes[bit / 8] =
            static_cast<std::uint8_t>((value >> (bits - 1 - i)) & 1 ? bytes[bit / 8] | one : bytes[bit / 8] & ~one);
    }
}

std::uint32_t get_bits(const void* structure, unsigned bit_offset, unsigned bits) {
    const auto* bytes = static_cast<const std::uint8_t*>(structure);
    std::uint32_t value = 0;
    for (unsigned i = 0; i < bits; ++i) {
        const unsigned bit = bit_offset + i;
        value = value << 1 | ((bytes[bit / 8] >> (7 - bit % 8)) & 1U);
    }
    return value;
}

ibv_device fake_device{};
ibv_device* fake_list[] = {&fake_device, nullptr};
constexpr std::uint16_t fake_vports[] = {0, 1, 2, 3, 4, 0xFFFF};

}  // namespace
}  // namespace ovsdr::test

using namespace ovsdr::test;
extern "C" {
ibv_device** ibv_get_device_list(int* length) {
    *length = 1;
    std::strcpy(fake_device.name, "fake_0");
    return fake_list;
}
void ibv_free_device_list(ibv_device**) {}
const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr*) {
    std::lock_guard lock(fake_state().mutex);
    if (fails_locked("mlx5dv_open_device")) return nullptr;
    ++fake_state().contexts;
    auto* extended = new verbs_context{};
    ibv_context* context = &extended->context;
    context->device = device;
    if (FakeProvider::prepare_context != nullptr) FakeProvider::prepare_context(*extended);
    return context;
}

int ibv_close_device(ibv_context* context) {
    std::lock_guard lock(fake_state().mutex);
    FakeState& now = fake_state();
    if (!now.objects.empty() || now.pds != 0) now.violations.push_back("device closed while in use");
    --now.contexts;
    delete reinterpret_cast<verbs_context*>(reinterpret_cast<std::uint8_t*>(context) -
                                            offsetof(verbs_context, context));
    return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
    std::lock_guard lock(fake_state().mutex);
    if (fails_locked("ibv_alloc_pd")) return nullptr;
    ++fake_state().pds;
    return new ibv_pd{context, 0};
}

int ibv_dealloc_pd(ibv_pd* pd) {
    std::lock_guard lock(fake_state().mutex);
    --fake_state().pds;
    delete pd;
    return 0;
}

int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
    *attributes = {};
    attributes->phys_port_cnt = FakeProvider::has_eswitch ? std::size(fake_vports) : 1;
    return 0;
}

int _mlx5dv_query_port(ibv_context*, uint32_t port, mlx5dv_port* info, size_t) {
    if (port == 0 || port > std::size(fake_vports)) return EINVAL;
    info->flags = FakeProvider::has_eswitch ? MLX5DV_QUERY_PORT_VPORT | MLX5DV_QUERY_PORT_VPORT_REG_C0 : 0;
    info->vport = port == 1 ? FakeProvider::manager_vport : fake_vports[port - 1];
    info->reg_c0 = {port << 16, 0xFFFF0000};
    return 0;
}

int mlx5dv_devx_general_cmd(ibv_context*, const void* in, size_t, void* out, size_t) {
    std::lock_guard lock(fake_state().mutex);
    if (fails_locked("mlx5dv_devx_general_cmd")) return errno;
    const std::uint32_t opcode = get_bits(in, 0, 16);
    if (opcode >= 0x750 && opcode <= 0x755) return 0;   // of vports: there are all, as they are asked to be
    if (opcode != 0x100) return EINVAL;
    auto* capability = static_cast<std::uint8_t*>(out) + 16;
    switch (get_bits(in, 48, 16) >> 1) {
        case 0:
            put_bits(capability, 423, 1, FakeProvider::has_eswitch ? 1 : 0);
            put_bits(capability, 784, 8, fake_state().counter_bulks);
            put_bits(capability, 1024 + 32 - 0x24 % 32 - 1, 1, fake_state().has_meters);
            put_bits(capability, 1092, 4, fake_state().steering_format);
            // ICMP and ICMPv6: the first format's needs a parser that firmware does not have as it is shipped.
            put_bits(capability, 1344, 32, fake_state().steering_format == 0 ? 0 : 0x300);
            break;
        case 8:
            put_bits(capability, 28, 1, 1);
            put_bits(capability, 0x1400 + 16, 1, 1);   // ft_field_support_2_esw_fdb.tunnel_header_0_1
            break;
        case 9:
            put_bits(capability, 96, 1, FakeProvider::manager_vport != 0);
            put_bits(capability, 112, 16, FakeProvider::manager_vport);
            break;
        default: break;
    }
    return 0;
}

mlx5dv_devx_obj* mlx5dv_devx_obj_create(ibv_context*, const void* in, size_t, void* out, size_t) {
    std::lock_guard lock(fake_state().mutex);
    if (fails_locked("mlx5dv_devx_obj_create")) return nullptr;
    if (fake_state().refuse_bulks) {
        errno = ENOSPC;
        return nullptr;
    }
    auto* object = make<mlx5dv_devx_obj>("devx", {});
    if (fake_state().created != nullptr) fake_state().created(in);
    const std::uint32_t units = get_bits(in, 120, 8);
    object->length = units == 0 ? 1 : 128 * units;
    object->first_id = fake_state().next_counter;
    fake_state().next_counter += object->length;
    put_bits(out, 64, 32, object->first_id);
    return object;
}

int mlx5dv_devx_obj_query(mlx5dv_devx_obj* object, const void* in, size_t, void* out, size_t size) {
    std::lock_guard lock(fake_state().mutex);
    ++fake_state().queries;
    const NoMemoryFaults exempt;
    if (fails_locked("mlx5dv_devx_obj_query")) return errno;
    const std::uint32_t length = std::max(1U, get_bits(in, 208, 16));
    if (get_bits(in, 224, 32) != object->first_id || length > object->length || size < 16 + 16 * length) {
        fake_state().violations.push_back("a counter query that the device would refuse");
        return EINVAL;
    }
    for (std::uint32_t i = 0; i < length; ++i) {
        const auto& [packets, bytes] = fake_state().counters[object->first_id + i];
        const std::uint64_t words[] = {htobe64(packets), htobe64(bytes)};
        std::memcpy(static_cast<std::uint8_t*>(out) + 16 + 16 * i, words, sizeof words);
    }
    return 0;
}

int mlx5dv_devx_obj_destroy(mlx5dv_devx_obj* object) { return destroy(object); }

mlx5dv_dr_domain* mlx5dv_dr_domain_create(ibv_context*, mlx5dv_dr_domain_type type) {
    std::lock_guard lock(fake_state().mutex);
    if (fails_locked("mlx5dv_dr_domain_create")) return nullptr;
    auto* domain = make<mlx5dv_dr_domain>("domain", {});
    constexpr const char* names[] = {"NIC_RX", "NIC_TX", "FDB"};
    domain->text = names[type];
    return domain;
}
int mlx5dv_dr_domain_destroy(mlx5dv_dr_domain* domain) { return destroy(domain); }
int mlx5dv_dr_domain_sync(mlx5dv_dr_domain* domain, uint32_t flags) {
    if (FakeProvider::in_sync != nullptr) FakeProvider::in_sync();
    const NoMemoryFaults exempt;
    std::lock_guard lock(fake_state().mutex);
    ++fake_state().syncs;
    FakeProvider::note_locked((flags & MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW ? "drain " : "write ") + domain->text);
    const bool fails = fails_locked("mlx5dv_dr_domain_sync");
    FakeOrder::synced(*domain, flags & MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW, !fails);
    return fails ? errno : 0;
}

mlx5dv_dr_table* mlx5dv_dr_table_create(mlx5dv_dr_domain* domain, uint32_t level) {
    std::lock_guard lock(fake_state().mutex);
    if (fails_locked("mlx5dv_dr_table_create")) return nullptr;
    if (level != 0 && domain->text == "NIC_RX" && !FakeProvider::has_nic_rx_tables) {
        errno = EOPNOTSUPP;
        return nullptr;
    }
    auto* table = make<mlx5dv_dr_table>("table", {domain});
    table->text = domain->text + " level " + std::to_string(level);
    table->level = level;
    return table;
}
int mlx5dv_dr_table_destroy(mlx5dv_dr_table* table) { return destroy(table); }

mlx5dv_dr_matcher* mlx5dv_dr_matcher_create(mlx5dv_dr_table* table, uint16_t priority, uint8_t,
                                            mlx5dv_flow_match_parameters* mask) {
    std::lock_guard lock(fake_state().mutex);
    const NoMemoryFaults exempt;
    if (fails_locked("mlx5dv_dr_matcher_create")) return nullptr;
    auto* matcher = make<mlx5dv_dr_matcher>("matcher", {table});
    matcher->priority = priority;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(mask->match_buf);
    matcher->match.assign(bytes, bytes + mask->match_sz);
    return matcher;
}
int mlx5dv_dr_matcher_destroy(mlx5dv_dr_matcher* matcher) { return destroy(matcher); }

mlx5dv_dr_rule* mlx5dv_dr_rule_create(mlx5dv_dr_matcher* matcher, mlx5dv_flow_match_parameters* value, size_t length,
                                      mlx5dv_dr_action* actions[]) {
    std::lock_guard lock(fake_state().mutex);
    const NoMemoryFaults exempt;
    if (fails_locked("mlx5dv_dr_rule_create")) return nullptr;
    if (fake_state().room == 0) {
        ++fake_state().refused;
        errno = ENOSPC;
        return nullptr;
    }
    if (fake_state().room != UINT_MAX) --fake_state().room;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(value->match_buf);
    const std::vector<std::uint8_t> match(bytes, bytes + value->match_sz);
    for (std::size_t i = 0; i < match.size(); ++i) {
        const bool outside = i >= matcher->match.size() || (match[i] & ~matcher->match[i]) != 0;
        if (outside) fake_state().violations.push_back("a value outside its mask");
    }
    if (fake_state().refuse_duplicates && matcher->rules.contains(match)) {
        errno = EEXIST;
        return nullptr;
    }
    std::vector<FakeObject*> needs{matcher};
    needs.insert(needs.end(), actions, actions + length);
    auto* rule = make<mlx5dv_dr_rule>("rule", std::move(needs));
    rule->match = match;
    for (size_t i = 0; i < length; ++i) rule->actions.push_back(actions[i]->text);
    matcher->rules.emplace(match, rule);
    FakeProvider::note_locked("create " + text_of_rule(*rule));
    FakeOrder::created(*rule);
    return rule;
}
int mlx5dv_dr_rule_destroy(mlx5dv_dr_rule* rule) {
    {
        std::lock_guard lock(fake_state().mutex);
        const auto& of = fake_state().kept_rules;
        if (of && (of->empty() || std::ranges::count(rule->actions, *of) != 0)) {
            // Known until the process ends, with all that it needs: nothing of it is a leak.
            static auto& kept = *new std::vector<const mlx5dv_dr_rule*>;
            kept.push_back(rule);
            return EIO;
        }
        if (fake_state().count_at_destroy != 0 && !rule->actions.empty() && rule->actions[0].starts_with("count ")) {
            auto& counter = fake_state().counters[static_cast<std::uint32_t>(std::stoul(rule->actions[0].substr(6)))];
            counter.first += fake_state().count_at_destroy;
            counter.second += 100 * fake_state().count_at_destroy;
            ++fake_state().destroyed_rules;
        }
    }
    return destroy(rule);
}
int mlx5dv_dr_action_destroy(mlx5dv_dr_action* action) { return destroy(action); }
mlx5dv_dr_action* mlx5dv_dr_action_create_drop() { return action("drop", "drop"); }
mlx5dv_dr_action* mlx5dv_dr_action_create_default_miss() { return action("default_miss", "default_miss"); }
mlx5dv_dr_action* mlx5dv_dr_action_create_tag(uint32_t tag) { return action("tag", "tag " + std::to_string(tag)); }
mlx5dv_dr_action* mlx5dv_dr_action_create_dest_ibv_qp(ibv_qp* qp) {
    return action("dest_ibv_qp", "dest_qp " + std::to_string(qp->qp_num));
}
mlx5dv_dr_action* mlx5dv_dr_action_create_dest_table(mlx5dv_dr_table* table) {
    return action("dest_table", "dest_table " + std::to_string(table->level), {table});
}
mlx5dv_dr_action* mlx5dv_dr_action_create_dest_vport(mlx5dv_dr_domain* domain, uint32_t vport) {
    return action("dest_vport", "dest_vport " + std::to_string(vport), {domain});
}
mlx5dv_dr_action* mlx5dv_dr_action_create_dest_array(mlx5dv_dr_domain* domain, size_t length,
                                                     mlx5dv_dr_action_dest_attr* destinations[]) {
    std::vector<FakeObject*> needs{domain};
    std::string text;
    if (refused(&FakeState::refuse_arrays, ENOSPC)) return nullptr;
    for (size_t i = 0; i < length; ++i) needs.push_back(destinations[i]->dest);
    for (const FakeObject* each : std::span(needs).subspan(1)) text += (text.empty() ? "" : ", ") + each->text;
    return action("dest_array", "dest_array [" + text + "]", std::move(needs));
}
mlx5dv_dr_action* mlx5dv_dr_action_create_aso(mlx5dv_dr_domain* domain, mlx5dv_devx_obj* object, uint32_t offset,
                                              uint32_t, uint8_t) {
    return action("mlx5dv_dr_action_create_aso", "meter " + std::to_string(offset), {domain, object});
}
void keep_parameters(const mlx5dv_dr_flow_meter_attr& meter) {
    const auto* const bytes = static_cast<const std::uint8_t*>(meter.flow_meter_parameter);
    FakeProvider::meter_parameters.assign(bytes, bytes + meter.flow_meter_parameter_sz);
}
mlx5dv_dr_action* mlx5dv_dr_action_create_flow_meter(mlx5dv_dr_flow_meter_attr* meter) {
    keep_parameters(*meter);
    return action("mlx5dv_dr_action_create_flow_meter", "meter to " + std::to_string(meter->next_table->level),
                  {meter->next_table});
}
int mlx5dv_dr_action_modify_flow_meter(mlx5dv_dr_action*, mlx5dv_dr_flow_meter_attr* meter, __be64 fields) {
    keep_parameters(*meter);
    FakeProvider::note("change meter " + std::to_string(be64toh(fields)));
    return FakeProvider::fails_now("mlx5dv_dr_action_modify_flow_meter") ? errno : 0;
}
mlx5dv_dr_action* mlx5dv_dr_action_create_flow_sampler(mlx5dv_dr_flow_sampler_attr* of) {
    const std::string text = "sample 1 of " + std::to_string(of->sample_ratio);
    return action("flow_sampler", text, {of->default_next_table, *of->sample_actions});
}
mlx5dv_dr_action* mlx5dv_dr_action_create_pop_vlan() { return action("pop_vlan", "pop_vlan"); }
mlx5dv_dr_action* mlx5dv_dr_action_create_push_vlan(mlx5dv_dr_domain* domain, __be32 header) {
    return action("push_vlan", "push_vlan " + std::to_string(be32toh(header)), {domain});
}
mlx5dv_dr_action* mlx5dv_dr_action_create_modify_header(mlx5dv_dr_domain* domain, uint32_t, size_t size,
                                                        __be64 commands[]) {
    auto* made = action("modify_header", "modify_header", {domain});
    if (made != nullptr) made->mark = mark_of(std::span(commands, size / sizeof commands[0]));
    return made;
}
mlx5dv_dr_action* mlx5dv_dr_action_create_packet_reformat(
    mlx5dv_dr_domain* domain, uint32_t, mlx5dv_flow_action_packet_reformat_type type, size_t size, void*) {
    if (refused(&FakeState::refuse_reformats, ENOMEM)) return nullptr;
    const std::string what = std::to_string(type) + " of " + std::to_string(size);
    return action("packet_reformat", "packet_reformat " + what, {domain});
}
mlx5dv_dr_action* mlx5dv_dr_action_create_flow_counter(mlx5dv_devx_obj* object, uint32_t offset) {
    return action("flow_counter", "count " + std::to_string(object->first_id + offset), {object});
}

}  // extern "C"
