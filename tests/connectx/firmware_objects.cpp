// How firmware's objects are made: what a creating command must bring, and what the object shows of it.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/connectx/address_plan.hpp"
#include "tests/connectx/firmware.hpp"
#include "tests/connectx/firmware_tables.hpp"
#include "tests/connectx/refused.hpp"

namespace ovsdr::connectx {
namespace {

constexpr std::uint32_t counters_per_bulk = 128;   // of each bit of flow_counter_bulk
constexpr std::uint8_t to_vport = 0, to_table = 1, to_tir = 2;   // destination types
constexpr std::uint16_t forward = 4, count = 8;                  // actions
constexpr std::size_t reformat_data_at = layout::alloc_packet_reformat_context_in::packet_reformat_context.byte() +
                                         layout::packet_reformat_context_in::reformat_data.byte();

/// `range` begins and ends with a byte. Throws NotEmulated.
void check_zero(Bytes command, Field range, const char* what) {
    for (std::uint32_t at = 0; at < range.width; at += 8) {
        if (get(command, {range.offset + at, 8}) != 0) throw NotEmulated{what};
    }
}

bool has_range(ObjectKind kind) {
    return kind == ObjectKind::aso_flow_meter || kind == ObjectKind::aso_first_hit ||
           kind == ObjectKind::aso_connection || kind == ObjectKind::modify_argument;
}

std::uint32_t id_length_of(const Creation& creation, Bytes in) {
    using namespace layout;
    if (creation.kind == ObjectKind::counter) {
        const auto bulk = static_cast<std::uint32_t>(get(in, alloc_flow_counter_in::flow_counter_bulk));
        if ((bulk & (bulk - 1)) != 0)
            throw BadStatus{BadStatus::bad_parameter, "more than one bit of flow_counter_bulk"};
        return bulk == 0 ? 1 : bulk * counters_per_bulk;
    }
    if (creation.opcode != CREATE_GENERAL_OBJECT) return 1;
    constexpr std::uint64_t most_aso = 20;
    const std::uint64_t most = creation.kind == ObjectKind::modify_argument ? log_modify_arguments : most_aso;
    const std::uint64_t log = get(in, general_obj_in_cmd_hdr::log_obj_range);
    if (log != 0 && !has_range(creation.kind))
        throw BadStatus{BadStatus::bad_parameter, std::string("a range of ") + creation.label};
    if (log > most) throw BadStatus{BadStatus::no_resources, fmt::format("2^{} objects at once", log)};
    return 1U << log;
}

}   // namespace

void Firmware::use(FirmwareObject& user, ObjectName used) {
    hold(used);
    user.uses.push_back(used);
}

std::uint64_t Firmware::claimed(Field field) const {
    const auto claim =
        std::find_if(profile_.capabilities.begin(), profile_.capabilities.end(), [&](const Capability& one) {
            return one.group == CapabilityGroup::general && one.field.offset == field.offset;
        });
    return claim == profile_.capabilities.end() ? 0 : claim->value;
}

FirmwareObject& Firmware::create(Bytes in, WritableBytes out) {
    const Creation* creation = creation_of(in);
    if (creation == nullptr) throw NotEmulated{"command " + name_of(in)};
    if (in.size() < creation->input_size) throw BadStatus{BadStatus::bad_input_length, "the command is too short"};
    if (creation->general_type != 0) {
        if ((claimed(layout::cmd_hca_cap::general_obj_types) >> creation->general_type & 1U) == 0) {
            throw BadStatus{BadStatus::bad_parameter, std::string(creation->label) + " on " + profile_.name};
        }
    }
    Kind& kind = kinds_[static_cast<std::size_t>(creation->kind)];
    const std::uint32_t length = id_length_of(*creation, in);
    const std::uint32_t id = kind.ids.allocate(length);
    auto made = std::make_unique<FirmwareObject>();
    FirmwareObject& object = *made;
    object.name = {creation->kind, id};
    object.label = creation->label;
    object.opcode = creation->opcode;
    object.general_type = creation->general_type;
    object.id_length = length;
    object.command.assign(in.begin(), in.end());
    kind.objects.emplace(id, std::move(made));
    try {
        if (creation->id.width != 0) set(out, creation->id, id);
        complete(object, out);
    } catch (...) {
        destroy(object.name);
        throw;
    }
    return object;
}

void Firmware::complete(FirmwareObject& object, WritableBytes out) {
    using namespace layout;
    const Bytes in = object.command;
    switch (object.name.kind) {
        case ObjectKind::flow_table: {
            constexpr Field miss = create_flow_table_in::flow_table_context / flow_table_context::table_miss_action;
            if (get(in, miss) != 0) throw NotEmulated{"a flow table with a miss action of its own"};
            return;
        }
        case ObjectKind::match_definer: {
            const std::uint64_t format = get(in, create_definer_in::definer / definer::format_id);
            if (format >= 64 || (claimed(cmd_hca_cap::match_definer_format_supported) >> format & 1U) == 0)
                throw BadStatus{BadStatus::bad_parameter, fmt::format("definers of format {}", format)};
            return;
        }
        case ObjectKind::geneve_option:
            return complete_geneve_option(object);
        case ObjectKind::flow_group: {
            check_zero(in, create_flow_group_in::indices_and_match, "a flow group that does not match everything");
            const ObjectName table{ObjectKind::flow_table,
                                   static_cast<std::uint32_t>(get(in, create_flow_group_in::table_id))};
            return use(object, table);
        }
        case ObjectKind::flow_entry:
            return complete_entry(object);
        case ObjectKind::tir: {
            const std::uint64_t address = address_plan::of(address_plan::tir, object.name.id);
            set(out, create_tir_out::icm_address_39_32, address >> 32);
            set(out, create_tir_out::icm_address_31_0, address);
            return;
        }
        case ObjectKind::queue_pair:
            return complete_queue_pair(object);
        case ObjectKind::completion_queue:
            return complete_completion_queue(object);
        case ObjectKind::send_queue:
            return complete_send_queue(object);
        case ObjectKind::sampler: {
            constexpr Field sampler = create_flow_sampler_in::sampler;
            for (const Field table : {flow_sampler::sample_table_id, flow_sampler::default_table_id}) {
                use(object, {ObjectKind::flow_table, static_cast<std::uint32_t>(get(in, sampler / table))});
            }
            return;
        }
        case ObjectKind::flow_meter: {
            constexpr Field table = create_flow_meter_in::meter / flow_meter::destination_table_id;
            return use(object, {ObjectKind::flow_table, static_cast<std::uint32_t>(get(in, table))});
        }
        case ObjectKind::reformat: {
            constexpr Field size = alloc_packet_reformat_context_in::packet_reformat_context /
                                   packet_reformat_context_in::reformat_data_size;
            if (reformat_data_at + get(in, size) > in.size())
                throw BadStatus{BadStatus::bad_input_length, "the header is cut off"};
            return;
        }
        default:
            return;
    }
}

/// The flexible parser finds one option, of one length. Samples by offset are for parsers that are set up otherwise.
void Firmware::complete_geneve_option(const FirmwareObject& object) const {
    using namespace layout;
    constexpr Field option = create_geneve_tlv_option_in::option;
    check_zero(object.command, option / geneve_tlv_option::sampling, "a GENEVE_TLV_OPT with samples");
    if (get(object.command, option / geneve_tlv_option::option_data_length) != geneve_option_length)
        throw BadStatus{BadStatus::bad_parameter, "a GENEVE_TLV_OPT of another length than one word"};
    if (get(object.command, option / geneve_tlv_option::geneve_option_fte_index) >= most_geneve_options)
        throw BadStatus{BadStatus::bad_parameter, "a GENEVE_TLV_OPT of another index than 0"};
    if (all(ObjectKind::geneve_option).size() > most_geneve_options)
        throw BadStatus{BadStatus::exceeds_limit, "more than one GENEVE_TLV_OPT"};
}

/// What an entry leads to. The kernel's TIRs are numbers only.
void Firmware::use_destination(FirmwareObject& entry, const Destination& destination) {
    switch (destination.type) {
        case to_vport:
            if (vports_.has(destination.id)) return;
            throw BadStatus{BadStatus::bad_parameter, fmt::format("no vport {}", destination.id)};
        case to_table:
            return use(entry, {ObjectKind::flow_table, destination.id});
        case to_tir:
            if (find({ObjectKind::tir, destination.id}) == nullptr && numbers(ObjectKind::tir).has(destination.id))
                return;
            return use(entry, {ObjectKind::tir, destination.id});
        default:
            throw NotEmulated{fmt::format("a destination of type {}", destination.type)};
    }
}

void Firmware::complete_entry(FirmwareObject& object) {
    using namespace layout;
    const Bytes in = object.command;
    if (get(in, set_fte_in::op_mod) != 0) throw Refused{EINVAL, "a changing command creates nothing"};
    const TableEntry entry = entry_of(object);
    if ((entry.action & ~(forward | count)) != 0)
        throw NotEmulated{fmt::format("a flow table entry with action {:#x}", entry.action)};
    constexpr const char* more = "a flow table entry with more than destinations, counters and a tag";
    check_zero(in, set_fte_in::flow_context / flow_context::push_vlan, more);
    check_zero(in, set_fte_in::flow_context / flow_context::edits_and_match, more);
    use(object, {ObjectKind::flow_table, entry.table_id});
    use(object, {ObjectKind::flow_group, entry.group_id});
    if (existing({ObjectKind::flow_group, entry.group_id}).uses.front().id != entry.table_id)
        throw BadStatus{BadStatus::bad_resource, "the group is of another table"};
    for (const Destination& destination : entry.destinations) {
        use_destination(object, destination);
        if (destination.reformat_id) use(object, {ObjectKind::reformat, *destination.reformat_id});
    }
    for (const std::uint32_t counter : entry.counters) {
        const FirmwareObject& bulk = existing({ObjectKind::counter, counter});
        use(object, bulk.name);
    }
}

ObjectName Firmware::take_kernel_table(TableType type, std::uint16_t priority) {
    for (KernelTable& table : kernel_tables_) {
        if (table.type != type || table.priority != priority) continue;
        ++table.anchors;
        return table.name;
    }
    std::array<std::uint8_t, layout::create_flow_table_in::size> in{};
    std::array<std::uint8_t, layout::create_flow_table_out::size> out{};
    set(in, layout::command_in::opcode, CREATE_FLOW_TABLE);
    set(in, layout::create_flow_table_in::table_type, static_cast<std::uint64_t>(type));
    const ObjectName name = create(in, out).name;
    kernel_tables_.push_back({type, priority, name, 1});
    return name;
}

void Firmware::return_kernel_table(ObjectName name) {
    const auto table = std::find_if(kernel_tables_.begin(), kernel_tables_.end(),
                                    [&](const KernelTable& each) { return each.name.id == name.id; });
    if (table->anchors == 1) {
        destroy(name);   // may throw: then the anchor stays
        kernel_tables_.erase(table);
    } else {
        --table->anchors;
    }
}

Table table_of(const FirmwareObject& object) {
    using namespace layout;
    constexpr Field context = create_flow_table_in::flow_table_context;
    const auto value = [&](Field field) { return get(object.command, context / field); };
    Table table{
        .id = object.name.id,
        .type = static_cast<TableType>(get(object.command, create_flow_table_in::table_type)),
        .level = static_cast<std::uint8_t>(value(flow_table_context::level)),
        .sw_owner = value(flow_table_context::sw_owner) != 0,
        .termination = value(flow_table_context::termination_table) != 0,
        .reformat_enabled = value(flow_table_context::reformat_en) != 0,
        .icm = {value(flow_table_context::sw_owner_icm_root_0), value(flow_table_context::sw_owner_icm_root_1)}};
    if (!table.sw_owner) {
        table.icm = {address_plan::of(address_plan::table, table.id, 0),
                     address_plan::of(address_plan::table, table.id, 1)};
    }
    return table;
}

TableEntry entry_of(const FirmwareObject& object) {
    using namespace layout;
    const Bytes in = object.command;
    constexpr Field context = set_fte_in::flow_context;
    const auto value = [&](Field field) { return static_cast<std::uint32_t>(get(in, context / field)); };
    TableEntry entry{.table_id = static_cast<std::uint32_t>(get(in, set_fte_in::table_id)),
                     .group_id = value(flow_context::group_id),
                     .flow_index = static_cast<std::uint32_t>(get(in, set_fte_in::flow_index)),
                     .action = static_cast<std::uint16_t>(value(flow_context::action)),
                     .flow_tag = value(flow_context::flow_tag)};
    const bool extended = value(flow_context::extended_destination) != 0;
    const auto step = static_cast<std::uint32_t>((extended ? extended_dest_format::size : dest_format::size) * 8);
    // Destinations, then counters, in slots of one size, behind the command's fixed part.
    Field slot{static_cast<std::uint32_t>(set_fte_in::size * 8), 0};
    for (std::uint32_t i = value(flow_context::destination_list_size); i > 0; --i, slot.offset += step) {
        Destination destination{.type = static_cast<std::uint8_t>(get(in, slot / dest_format::destination_type)),
                                .id = static_cast<std::uint32_t>(get(in, slot / dest_format::destination_id))};
        if (extended && get(in, slot / dest_format::packet_reformat) != 0) {
            destination.reformat_id =
                static_cast<std::uint32_t>(get(in, slot / extended_dest_format::packet_reformat_id));
        }
        entry.destinations.push_back(destination);
    }
    for (std::uint32_t i = value(flow_context::flow_counter_list_size); i > 0; --i, slot.offset += step) {
        entry.counters.push_back(static_cast<std::uint32_t>(get(in, slot / flow_counter_list::flow_counter_id)));
    }
    return entry;
}

Reformat reformat_of(const FirmwareObject& object) {
    using namespace layout;
    constexpr Field context = alloc_packet_reformat_context_in::packet_reformat_context;
    const auto size = get(object.command, context / packet_reformat_context_in::reformat_data_size);
    const auto begin = object.command.begin() + static_cast<std::ptrdiff_t>(reformat_data_at);
    return {static_cast<std::uint8_t>(get(object.command, context / packet_reformat_context_in::reformat_type)),
            {begin, begin + static_cast<std::ptrdiff_t>(size)}};
}

}   // namespace ovsdr::connectx
