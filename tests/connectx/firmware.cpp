#include "tests/connectx/firmware.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tests/connectx/address_plan.hpp"
#include "tests/connectx/counter_feed.hpp"
#include "tests/connectx/firmware_tables.hpp"
#include "tests/connectx/refused.hpp"

namespace ovsdr::connectx {
namespace {

constexpr std::uint16_t opcode_of(Bytes command) {
    return command.size() < 2 ? 0 : static_cast<std::uint16_t>(command[0] << 8 | command[1]);
}

/// Ids have 24 bits in steering entries and commands; 0 is none. Argument ids are 32 bits in work requests.
constexpr std::uint32_t last_id = 0xFFFFFF;

/// What the kernel keeps to when it reads counters of its own, in number and first id.
constexpr std::uint64_t counters_at_once = 4;

/// Spaces begin at different numbers, so that an id of the wrong kind is found out.
constexpr std::uint32_t first_id_of(std::size_t kind) {
    return 0x100 + static_cast<std::uint32_t>(kind) * 0x1000;
}

}   // namespace

const Creation* creation_of(Bytes command) {
    const std::uint16_t opcode = opcode_of(command);
    if (opcode == CREATE_GENERAL_OBJECT && command.size() < layout::general_obj_in_cmd_hdr::size) return nullptr;
    const auto type = opcode == CREATE_GENERAL_OBJECT ? get(command, layout::general_obj_in_cmd_hdr::obj_type) : 0;
    for (const Creation& creation : creations) {
        if (creation.opcode == opcode && creation.general_type == type) return &creation;
    }
    return nullptr;
}

/// A steering entry has 8 bits for a definer's id, and a number below these for those that are no objects.
constexpr std::uint32_t first_definer = 0x20, last_definer = 0xFF;

Firmware::Firmware(const Profile& profile, const HostMemory& host)
    : profile_(profile), host_(host), vports_(profile.vfs) {
    for (std::size_t kind = 0; kind < object_kinds; ++kind) kinds_.push_back({IdSpace(first_id_of(kind), last_id), {}});
    kinds_[static_cast<std::size_t>(ObjectKind::match_definer)].ids = IdSpace(first_definer, last_definer);
}

std::string Firmware::name_of(Bytes command) {
    if (const Creation* creation = creation_of(command)) return creation->label;
    const std::uint16_t opcode = opcode_of(command);
    for (const CommandName& known : command_names) {
        if (known.opcode == opcode) return known.name;
    }
    return fmt::format("{:#x}", opcode);
}

bool Firmware::is_name(std::string_view name) {
    return std::any_of(std::begin(command_names), std::end(command_names),
                       [&](const auto& row) { return row.name == name; }) ||
           std::any_of(std::begin(creations), std::end(creations), [&](const auto& row) { return row.label == name; });
}

bool Firmware::is_open_to_all(Bytes command) {
    const std::uint16_t opcode = opcode_of(command);
    return (opcode >= general_first && opcode <= general_last) ||
           std::find(std::begin(open_to_all), std::end(open_to_all), opcode) != std::end(open_to_all);
}

bool Firmware::is_named(const FirmwareObject& object, Bytes command) {
    const std::uint16_t opcode = opcode_of(command);
    const auto* naming = std::find_if(std::begin(namings), std::end(namings),
                                      [&](const Naming& row) { return row.opcode == opcode; });
    if (naming == std::end(namings)) return true;
    const bool is_general = opcode == QUERY_GENERAL_OBJECT || opcode == MODIFY_GENERAL_OBJECT;
    if (is_general && get(command, layout::general_obj_in_cmd_hdr::obj_type) != object.general_type) return false;
    return get(command, naming->id) == object.name.id;
}

void Firmware::query_hca_cap(Bytes in, WritableBytes out) const {
    using namespace layout;
    const auto group = static_cast<CapabilityGroup>(get(in, query_hca_cap_in::op_mod) >> 1);
    if (get(in, query_hca_cap_in::other_function) != 0) {
        if (group != CapabilityGroup::general)
            throw NotEmulated{"QUERY_HCA_CAP of another function, but for its general capabilities"};
        return vports_.query_hca_cap(in, out);
    }
    if (!is_known(group)) throw NotEmulated{fmt::format("QUERY_HCA_CAP of group {:#x}", static_cast<unsigned>(group))};
    for (const Capability& capability : profile_.capabilities) {
        if (capability.group == group) set(out, query_hca_cap_out::capability / capability.field, capability.value);
    }
}

void Firmware::general(Bytes in, WritableBytes out) {
    switch (opcode_of(in)) {
        case QUERY_HCA_CAP:
            return query_hca_cap(in, out);
        case QUERY_ESW_VPORT_CONTEXT:
            return vports_.query_eswitch_context(in, out);
        case QUERY_NIC_VPORT_CONTEXT:
            return vports_.query_nic_context(in, out);
        case QUERY_VPORT_STATE:
            return vports_.query_state(in, out);
        case QUERY_VPORT_COUNTER:
            return vports_.query_counter(in);
        case QUERY_ESW_FUNCTIONS:   // no embedded CPU: its fields stay 0
        case QUERY_ROCE_ADDRESS:    // no GID
        case SYNC_STEERING:
            return;   // nothing is cached
        default:
            throw NotEmulated{"command " + name_of(in)};
    }
}

FirmwareObject* Firmware::find(ObjectName name) {
    auto& objects = kinds_[static_cast<std::size_t>(name.kind)].objects;
    const auto after = objects.upper_bound(name.id);
    if (after == objects.begin()) return nullptr;
    const auto& [first, object] = *std::prev(after);
    return name.id - first < object->id_length ? object.get() : nullptr;
}

const std::map<std::uint32_t, std::unique_ptr<FirmwareObject>>& Firmware::all(ObjectKind kind) const {
    return kinds_[static_cast<std::size_t>(kind)].objects;
}

FirmwareObject& Firmware::existing(ObjectName name) {
    if (FirmwareObject* object = find(name)) return *object;
    throw BadStatus{BadStatus::bad_resource,
                    fmt::format("no object {:#x} of kind {}", name.id, static_cast<unsigned>(name.kind))};
}

void Firmware::query_table(const FirmwareObject& object, WritableBytes out) const {
    using namespace layout;
    const Table table = table_of(object);
    set(out, query_flow_table_out::flow_table_context / flow_table_context::sw_owner_icm_root_0, table.icm[0]);
    set(out, query_flow_table_out::flow_table_context / flow_table_context::sw_owner_icm_root_1, table.icm[1]);
}

void Firmware::query_counters(const FirmwareObject& object, Bytes in, WritableBytes out) const {
    using namespace layout;
    if (get(in, query_flow_counter_in::clear) != 0) throw NotEmulated{"QUERY_FLOW_COUNTER with clear"};
    const auto first = static_cast<std::uint32_t>(get(in, query_flow_counter_in::flow_counter_id));
    const std::uint64_t several = get(in, query_flow_counter_in::num_of_counters);
    if (several % counters_at_once != 0) throw BadStatus{BadStatus::bad_parameter, "counters are read by fours"};
    const std::uint64_t length = std::max<std::uint64_t>(1, several);
    const std::uint64_t offset = first - object.name.id;
    if (offset + length > object.id_length) throw BadStatus{BadStatus::bad_parameter, "counters behind the bulk's end"};
    const Count fed = fed_count();
    for (std::uint64_t i = 0; i < length; ++i) {
        const auto counted = object.counts.find(static_cast<std::uint32_t>(offset + i));
        const Count count = counted == object.counts.end() ? Count{} : counted->second;
        const Field at{
            static_cast<std::uint32_t>(query_flow_counter_out::flow_statistics.offset + i * traffic_counter::size * 8),
            0};
        set(out, at / traffic_counter::packets, count.packets + fed.packets);
        set(out, at / traffic_counter::octets, count.bytes + fed.bytes);
    }
}

void Firmware::query(const FirmwareObject& object, Bytes in, WritableBytes out) {
    using namespace layout;
    const std::uint16_t opcode = opcode_of(in);
    const auto sides = [&](std::uint64_t base, Field rx, Field tx) {
        set(out, rx, address_plan::of(base, object.name.id, 0));
        set(out, tx, address_plan::of(base, object.name.id, 1));
    };
    if (opcode == QUERY_FLOW_TABLE && object.name.kind == ObjectKind::flow_table) return query_table(object, out);
    if (opcode == QUERY_FLOW_COUNTER && object.name.kind == ObjectKind::counter) return query_counters(object, in, out);
    if (opcode == QUERY_GENERAL_OBJECT && object.name.kind == ObjectKind::flow_meter) {
        return sides(address_plan::flow_meter, query_flow_meter_out::obj / flow_meter::sw_steering_icm_address_rx,
                     query_flow_meter_out::obj / flow_meter::sw_steering_icm_address_tx);
    }
    if (opcode == QUERY_GENERAL_OBJECT && object.name.kind == ObjectKind::sampler) {
        return sides(address_plan::sampler, query_flow_sampler_out::obj / flow_sampler::sw_steering_icm_address_rx,
                     query_flow_sampler_out::obj / flow_sampler::sw_steering_icm_address_tx);
    }
    if (opcode == QUERY_GENERAL_OBJECT && object.name.kind == ObjectKind::geneve_option) {
        constexpr Field asked = query_geneve_tlv_option_out::option, given = create_geneve_tlv_option_in::option;
        for (const Field field : {geneve_tlv_option::option_class, geneve_tlv_option::option_type,
                                  geneve_tlv_option::option_data_length}) {
            set(out, asked / field, get(object.command, given / field));
        }
        return;
    }
    throw NotEmulated{fmt::format("{} of {}", name_of(in), object.label)};
}

/// The object holds what it was told. Who makes packets meet it keeps its tokens there, too (device.hpp).
void Firmware::modify_meter(FirmwareObject& object, Bytes in) {
    using namespace layout;
    constexpr Field meter = create_flow_meter_in::meter;
    constexpr std::uint64_t activity = 1;
    struct Part {
        std::uint64_t bit;
        std::uint32_t offset;   // in the parameters; exponent and mantissa
    };
    constexpr Part parts[] = {{1 << 1, 64}, {1 << 2, 80}, {1 << 3, 128}, {1 << 4, 144}};   // cbs, cir, ebs, eir
    std::uint64_t select = get(in, meter / flow_meter::modify_field_select);
    if ((select & activity) != 0) set(object.command, meter / flow_meter::active, get(in, meter / flow_meter::active));
    select &= ~activity;
    for (const Part& part : parts) {
        if ((select & part.bit) == 0) continue;
        const Field field{(meter / flow_meter::flow_meter_params).offset + part.offset, 16};
        set(object.command, field, get(in, field));
        select &= ~part.bit;
    }
    if (select != 0) throw NotEmulated{fmt::format("{} with modify_field_select {:#x}", object.label, select)};
}

void Firmware::modify(FirmwareObject& object, Bytes in) {
    using State = SendQueue::State;
    struct Transition {
        Opcode opcode;
        State from, to;
    };
    constexpr Transition transitions[] = {{RST2INIT_QP, State::reset, State::init},
                                          {INIT2RTR_QP, State::init, State::ready_to_receive},
                                          {RTR2RTS_QP, State::ready_to_receive, State::ready_to_send}};
    const std::uint16_t opcode = opcode_of(in);
    for (const Transition& transition : transitions) {
        if (transition.opcode != opcode || object.send_queue == nullptr) continue;
        if (object.send_queue->state() != transition.from) {
            throw BadStatus{BadStatus::bad_resource_state,
                            "a queue pair is not in the state that the command begins in"};
        }
        object.send_queue->set_state(transition.to);
        return;
    }
    if (opcode == MODIFY_SQ && object.name.kind == ObjectKind::send_queue) return modify_send_queue(object, in);
    if (opcode == MODIFY_GENERAL_OBJECT && object.name.kind == ObjectKind::flow_meter) return modify_meter(object, in);
    throw NotEmulated{fmt::format("{} of {}", name_of(in), object.label)};
}

void Firmware::destroy(ObjectName name) {
    FirmwareObject& object = existing(name);
    if (object.users != 0) {
        throw BadStatus{BadStatus::bad_resource_state, fmt::format("{} {:#x} is in use", object.label, name.id)};
    }
    for (const ObjectName used : object.uses) release(used);
    Kind& kind = kinds_[static_cast<std::size_t>(name.kind)];
    kind.ids.release(name.id);
    kind.objects.erase(name.id);
}

}   // namespace ovsdr::connectx
