#include "tests/connectx/entries/forwarder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {

namespace {

constexpr unsigned most_depth = 16;
/// SET_FLOW_TABLE_ENTRY's action bits.
constexpr std::uint16_t action_forward = 4, action_count = 8;
enum DestinationType : std::uint8_t { to_vport = 0, to_table = 1 };

/// CREATE_GENERAL_OBJECT of a GENEVE_TLV_OPT.
constexpr std::uint16_t geneve_tlv_option = 0x0b;
constexpr Bits option_class{16 * 8 + 96, 16}, option_type{16 * 8 + 112, 8}, option_length{16 * 8 + 123, 5};
constexpr std::size_t option_object_size = 16 + 64;   ///< bytes

/// The device has one at most.
std::optional<GeneveOption> geneve_option_of(const Device& device) {
    std::optional<GeneveOption> found;
    for (const DevxObject& object : device.devx_objects()) {
        if (object.general_type != geneve_tlv_option) continue;
        if (found || object.command.size() < option_object_size) {
            throw Stopped("two GENEVE_TLV_OPT objects, or one whose command is too short");
        }
        const std::uint8_t* command = object.command.data();
        found = {static_cast<std::uint16_t>(get(command, option_class)),
                 static_cast<std::uint8_t>(get(command, option_type)),
                 static_cast<std::uint8_t>(get(command, option_length))};
    }
    return found;
}

/// CREATE_GENERAL_OBJECT of a definer.
constexpr std::uint16_t match_definer = 0x18;
constexpr Bits definer_format{16 * 8 + 144, 16};
constexpr std::size_t definer_control = 16 + 64, definer_mask = 16 + 96, definer_size = 32;   ///< bytes

std::map<std::uint32_t, Definer> definers_of(const Device& device) {
    std::map<std::uint32_t, Definer> definers;
    for (const DevxObject& object : device.devx_objects()) {
        if (object.general_type != match_definer) continue;
        if (object.command.size() < definer_mask + definer_size) throw Stopped("a definer's command that is too short");
        const std::uint8_t* command = object.command.data();
        const auto is_set = [](std::uint8_t byte) { return byte != 0; };
        if (std::any_of(command + definer_control, command + definer_mask, is_set)) {
            throw Stopped("a definer that chooses its words, or has more than 32 bytes");
        }
        definers[object.id] = {static_cast<std::uint16_t>(get(command, definer_format)),
                               Vector::load(command + definer_mask, definer_size)};
    }
    return definers;
}

/// CREATE_GENERAL_OBJECT of a FLOW_SAMPLER.
constexpr std::uint16_t flow_sampler = 0x20;
constexpr Bits sample_ratio{16 * 8 + 96, 32}, sample_table{16 * 8 + 136, 24}, default_table{16 * 8 + 168, 24};
constexpr std::size_t sampler_size = 16 + 40;   ///< bytes

/// CREATE_GENERAL_OBJECT of a FLOW_METER.
constexpr std::uint16_t flow_meter = 0xa;
constexpr Bits meter_is_active{16 * 8 + 64, 1}, meter_register{16 * 8 + 68, 4}, meter_next_table{16 * 8 + 104, 24};
constexpr std::size_t flow_meter_size = 16 + 128;   ///< bytes

using MeterPacket = std::function<std::optional<Colour>(MeterName, std::size_t)>;

EntryMemory memory_of(const Device& device, const std::map<std::uint32_t, Definer>& definers, MeterPacket meter) {
    return {device.steering_format(),
            [&device](std::uint64_t address, std::size_t size) { return device.icm(address, size); },
            device.modify_header_base(),
            [&definers](std::uint32_t id) {
                const auto found = definers.find(id);
                return found == definers.end() ? nullptr : &found->second;
            },
            device.modify_pattern_base(),
            [&device](std::uint32_t id) { return device.argument(id); },
            [&device](std::uint32_t id) -> std::optional<std::vector<std::uint8_t>> {
                constexpr std::uint8_t l2_to_l2_tunnel = 2;
                auto reformat = device.reformat(id);
                if (!reformat || reformat->type != l2_to_l2_tunnel) return std::nullopt;
                return std::move(reformat->data);
            },
            geneve_option_of(device), std::move(meter)};
}

}  // namespace

Forwarder::Forwarder(Device& device)
    : device_(device),
      definers_(definers_of(device)),
      walker_(memory_of(device, definers_, [this](MeterName name, std::size_t size) { return meter(name, size); }),
              [this](std::uint32_t counter, std::size_t bytes) { count(counter, bytes); }),
      fdb_(device, TableType::fdb),
      nic_rx_(device, TableType::nic_rx) {
    for (const Table& table : device.tables()) tables_.emplace(table.id, table);
    for (TableEntry& entry : device.table_entries()) arrays_[entry.table_id].push_back(std::move(entry));
    for (const Vport& vport : device.vports()) vports_.emplace(vport.number, vport);
    for (const DevxObject& object : device.devx_objects()) {
        if (object.general_type != flow_meter) continue;
        if (object.command.size() < flow_meter_size) throw Stopped("a meter's command that is too short");
        const std::uint8_t* command = object.command.data();
        if (get(command, meter_is_active) == 0) throw Stopped("a meter that is not active");
        policers_[object.id] = {get(command, meter_register), get(command, meter_next_table)};
    }
    for (const DevxObject& object : device.devx_objects()) {
        if (object.general_type != flow_sampler) continue;
        if (object.command.size() < sampler_size) throw Stopped("a sampler's command that is too short");
        const std::uint8_t* command = object.command.data();
        const auto field = [&](Bits bits) { return static_cast<std::uint32_t>(get(command, bits)); };
        const std::uint32_t ratio = field(sample_ratio);
        // Not all begin alike, or many samplers of few packets would take too few in all.
        samplers_[object.id] = {ratio, field(sample_table), field(default_table), ratio == 0 ? 0 : object.id % ratio};
    }
}

void Forwarder::count(std::uint32_t counter, std::size_t bytes) {
    if (!device_.count(counter, {1, bytes})) throw Stopped(fmt::format("counter {:#x}, which is not there", counter));
}

void Forwarder::deliver(Delivery::Kind kind, std::uint32_t number, Packet packet) {
    delivered_.push_back({kind, number, std::move(packet)});
}

const Vport& Forwarder::vport(std::uint32_t number) const {
    const auto found = vports_.find(number);
    if (found == vports_.end()) throw Stopped(fmt::format("vport {}, which is not there", number));
    return found->second;
}

std::vector<Delivery> Forwarder::from_port(std::uint16_t vport, Frame frame, std::uint32_t queue) {
    return forward(vport, queue, frame);
}

std::vector<Delivery> Forwarder::from_queue(std::uint32_t queue, Frame frame) {
    return forward(manager_vport, queue, frame);
}

std::vector<Delivery> Forwarder::forward(std::uint16_t number, std::uint32_t queue, Frame frame) {
    const Vport& source = vport(number);
    Packet packet{.bytes = {frame.begin(), frame.end()},
                  .side = number == wire_vport ? Side::rx : Side::tx,
                  .gvmi = number == wire_vport ? std::uint16_t{0} : source.vhca_id,
                  .queue = queue};
    packet.reg_c[0] = source.register_value;
    delivered_.clear();
    depth_ = 0;
    const auto rules = fdb_.find(packet, number);
    if (rules.empty()) deliver(Delivery::Kind::kernel, 0, std::move(packet));
    apply(rules, packet, source);
    return std::exchange(delivered_, {});
}

void Forwarder::apply(const std::vector<const RootRule*>& rules, const Packet& packet, const Vport& source) {
    for (const RootRule* rule : rules) {
        if (!rule->actions.empty()) throw Stopped("a root rule with a modify-header list or a reformat");
        if (rule->default_miss) throw Stopped("a root rule with a default miss");
        if (rule->drop + rule->queue_pair.has_value() + rule->tir.has_value() + rule->table.has_value() > 1) {
            throw Stopped("a root rule with two destinations");
        }
        Packet copy = packet;
        for (const std::uint32_t counter : rule->counters) count(counter, copy.bytes.size());
        if (rule->tag) copy.flow_tag = *rule->tag;
        if (rule->drop) {
            deliver(Delivery::Kind::dropped, 0, std::move(copy));
        } else if (rule->queue_pair) {
            deliver(Delivery::Kind::queue_pair, *rule->queue_pair, std::move(copy));
        } else if (rule->tir) {
            deliver(Delivery::Kind::tir, *rule->tir, std::move(copy));
        } else if (rule->table) {
            go_to_table(*rule->table, std::move(copy), source);
        } else {
            throw Stopped("a root rule that leads nowhere");
        }
    }
}

void Forwarder::go_to_table(std::uint32_t id, Packet packet, const Vport& source) {
    const auto found = tables_.find(id);
    if (found == tables_.end()) throw Stopped(fmt::format("table {}, which is not there", id));
    const Table& table = found->second;
    if (!table.sw_owner) return copy_to_all(table, packet, source);
    const std::uint64_t root = table.icm[static_cast<std::size_t>(packet.side)];
    const std::uint64_t end = walker_.run(root, packet);
    go_to_address(end, table.type, std::move(packet), source);
}

void Forwarder::go_to_address(std::uint64_t address, TableType type, Packet packet, const Vport& source) {
    using Kind = AddressOwner::Kind;
    const AddressOwner owner = device_.owner_of(address);
    const bool rx = packet.side == Side::rx;
    if (owner.kind == Kind::drop) return deliver(Delivery::Kind::dropped, 0, std::move(packet));
    if (type == TableType::fdb && owner.kind == (rx ? Kind::vport_rx : Kind::vport_tx)) {
        return go_to_vport(owner.number, std::move(packet), source);
    }
    if (type == TableType::nic_rx && owner.kind == Kind::queue_pair) {
        return deliver(Delivery::Kind::queue_pair, owner.number, std::move(packet));
    }
    if (type == TableType::nic_rx && owner.kind == Kind::tir) {
        return deliver(Delivery::Kind::tir, owner.number, std::move(packet));
    }
    if (owner.kind == Kind::table && owner.side == static_cast<std::uint8_t>(packet.side)) {
        const auto found = tables_.find(owner.number);
        if (found != tables_.end()) return copy_to_all(found->second, packet, source);
    }
    if (owner.kind == Kind::sampler && owner.side == static_cast<std::uint8_t>(packet.side)) {
        return sample(owner.number, packet, source);
    }
    if (owner.kind == Kind::flow_meter && owner.side == static_cast<std::uint8_t>(packet.side)) {
        return police(owner.number, std::move(packet), source);
    }
    throw Stopped(fmt::format("address {:#x} at the end of steering on the {} side (kind {}, number {})", address,
                              rx ? "RX" : "TX", static_cast<int>(owner.kind), owner.number));
}

void Forwarder::go_to_vport(std::uint32_t number, Packet packet, const Vport& source) {
    (void)vport(number);
    if (number != manager_vport) {
        if (number == source.number) throw Stopped(fmt::format("a packet back to vport {}, its source", number));
        return deliver(Delivery::Kind::vport, number, std::move(packet));
    }
    packet.side = Side::rx;
    packet.looped_back = source.number != wire_vport;
    packet.reg_c = {(packet.reg_c[0] & ~source.register_mask) | (source.register_value & source.register_mask),
                    packet.reg_c[1]};
    packet.reg_a = packet.reg_b = 0;
    const auto rules = nic_rx_.find(packet, source.number);
    if (rules.empty()) return deliver(Delivery::Kind::kernel, 0, std::move(packet));
    apply(rules, packet, source);
}

void Forwarder::sample(std::uint32_t id, const Packet& packet, const Vport& source) {
    const auto found = samplers_.find(id);
    if (found == samplers_.end()) throw Stopped(fmt::format("sampler {}, which is not there", id));
    Sampler& sampler = found->second;
    if (sampler.ratio == 0) throw Stopped("a sampler of one in 0");
    if (++depth_ > most_depth) throw Stopped("tables within tables without end");
    if (++sampler.met % sampler.ratio == 0) go_to_table(sampler.sample_table, packet, source);
    go_to_table(sampler.next_table, packet, source);
    --depth_;
}

std::optional<Colour> Forwarder::meter(MeterName name, std::size_t size) {
    auto parameters = device_.meter(name);
    if (!parameters) return std::nullopt;
    const Colour colour = entries::meter(*parameters, size);
    (void)device_.set_meter(name, *parameters);
    return colour;
}

void Forwarder::police(std::uint32_t id, Packet packet, const Vport& source) {
    const auto found = policers_.find(id);
    const auto colour = meter({false, id, false}, packet.bytes.size());
    if (found == policers_.end() || !colour) throw Stopped(fmt::format("meter {}, which is not there", id));
    if (++depth_ > most_depth) throw Stopped("tables within tables without end");
    std::uint32_t& to = packet.reg_c.at(found->second.colour_register);
    to = (to & ~0xFFU) | static_cast<std::uint32_t>(*colour);
    go_to_table(found->second.next_table, std::move(packet), source);
    --depth_;
}

void Forwarder::copy_to_all(const Table& table, const Packet& packet, const Vport& source) {
    if (++depth_ > most_depth) throw Stopped("tables within tables without end");
    const auto found = arrays_.find(table.id);
    if (found == arrays_.end() || found->second.size() != 1) {
        throw Stopped(fmt::format("firmware's table {} with {} entries", table.id,
                                  found == arrays_.end() ? 0 : found->second.size()));
    }
    const TableEntry& entry = found->second.front();
    if ((entry.action | action_count) != (action_forward | action_count)) {
        throw Stopped(fmt::format("action {:#x} of firmware's table {}", entry.action, table.id));
    }
    if (entry.destinations.empty() || entry.flow_tag != 0 || table.type != TableType::fdb) {
        throw Stopped(fmt::format("firmware's table {} without a destination, with a flow tag or outside of the FDB",
                                  table.id));
    }
    for (const std::uint32_t counter : entry.counters) count(counter, packet.bytes.size());
    for (const Destination& destination : entry.destinations) {
        if (destination.reformat_id) throw Stopped("a reformat of one copy");
        switch (destination.type) {
            case to_vport: go_to_vport(destination.id, packet, source); break;
            case to_table: go_to_table(destination.id, packet, source); break;
            default:
                throw Stopped(fmt::format("destination type {} of firmware's table {}", destination.type, table.id));
        }
    }
    --depth_;
}

}  // namespace ovsdr::connectx::entries
