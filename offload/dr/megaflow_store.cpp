#include "offload/dr/megaflow_store.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "offload/dr/software.hpp"

namespace ovsdr::dr {

namespace {

std::string_view bytes_of(const ovsdr_flow_fields& fields) noexcept {
    return {reinterpret_cast<const char*>(&fields), sizeof fields};
}

/// Of all bits. No word waits for the one before: each megaflow's fields are hashed more than once.
std::size_t hash_of(const ovsdr_flow_fields& fields) noexcept {
    static_assert(sizeof fields % sizeof(std::uint64_t) == 0);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&fields);
    std::uint64_t hash = 0;
    for (std::size_t at = 0; at < sizeof fields; at += sizeof hash) {
        std::uint64_t word;
        std::memcpy(&word, bytes + at, sizeof word);
        const std::uint64_t mixed = (word + (at + 1) * 0xD6E8FEB86659FD93ULL) * 0x9E3779B97F4A7C15ULL;
        hash += mixed ^ mixed >> 32;
    }
    return hash ^ hash >> 29;
}

/// Whole: it has no padding.
std::string_view bytes_of(const ovsdr_tunnel_fields& fields) noexcept {
    static_assert(std::has_unique_object_representations_v<ovsdr_tunnel_fields>);
    return {reinterpret_cast<const char*>(&fields), sizeof fields};
}

/// Whole; empty: there is none.
std::string_view bytes_of(const std::optional<MegaflowParts::Tunnel>& tunnel) noexcept {
    static_assert(std::has_unique_object_representations_v<MegaflowParts::Tunnel>);
    return tunnel ? std::string_view(reinterpret_cast<const char*>(&*tunnel), sizeof *tunnel) : std::string_view();
}

bool same_names(const ovsdr_names& left, const ovsdr_names& right) noexcept {
    return left.bits == right.bits && left.names == right.names;
}

/// Whole: the bytes of value and mask behind the field are zero, and there are no others.
std::string_view bytes_of(const ovsdr_set& set) noexcept {
    static_assert(std::has_unique_object_representations_v<ovsdr_set>);
    return {reinterpret_cast<const char*>(&set), sizeof set};
}

std::span<const ovsdr_action> given_actions(const ovsdr_megaflow& megaflow) noexcept {
    return {megaflow.actions, std::min<std::size_t>(megaflow.n_actions, OVSDR_MAX_ACTIONS)};
}

/// What the action points at: a tunnel's header, software's actions. Of most it is empty.
std::string_view payload_of(const ovsdr_action& action) noexcept {
    const auto text = [](const std::uint8_t* bytes, std::size_t size) {
        return std::string_view(reinterpret_cast<const char*>(bytes), size);
    };
    if (action.type == OVSDR_ACTION_TUNNEL_PUSH) return text(action.tunnel_push.header, action.tunnel_push.header_size);
    if (action.type == OVSDR_ACTION_SOFTWARE) return text(action.software.actions, action.software.actions_size);
    return {};
}

/// Where it points; nothing where it has no payload.
const std::uint8_t** payload_pointer(ovsdr_action& action) noexcept {
    if (action.type == OVSDR_ACTION_TUNNEL_PUSH) return &action.tunnel_push.header;
    if (action.type == OVSDR_ACTION_SOFTWARE) return &action.software.actions;
    return nullptr;
}

/// Of one as it is given. Differs where same() does not hold, mostly.
std::uint64_t bits_of(const ovsdr_action& action) noexcept {
    const auto type = static_cast<std::uint64_t>(action.type) << 48;
    switch (action.type) {
        case OVSDR_ACTION_OUTPUT: return type ^ action.output;
        case OVSDR_ACTION_PUSH_VLAN:
            return type ^ (std::uint64_t{action.push_vlan.be_tpid} << 16) ^ action.push_vlan.be_tci;
        case OVSDR_ACTION_SET: return type ^ std::hash<std::string_view>{}(bytes_of(action.set));
        case OVSDR_ACTION_TUNNEL_PUSH:
            return type ^ (std::uint64_t{action.tunnel_push.header_size} << 32) ^
                   (std::uint64_t{action.tunnel_push.udp_source_first} << 16) ^ action.tunnel_push.udp_source_end ^
                   (std::uint64_t{action.tunnel_push.out_port} << 8) ^
                   std::hash<std::string_view>{}(payload_of(action));
        case OVSDR_ACTION_TUNNEL_POP: return type ^ action.tunnel_port;
        case OVSDR_ACTION_RECIRC: return type ^ action.recirc_id;
        case OVSDR_ACTION_METER: return type ^ action.meter;
        case OVSDR_ACTION_SOFTWARE:
            return type ^ action.software.one_of ^ (std::uint64_t{action.software.metered_from} << 32) ^
                   action.software.meter ^ (std::uint64_t{action.software.cut_at} << 16) ^
                   (std::uint64_t{action.software.output} << 40) ^ std::hash<std::string_view>{}(payload_of(action));
        case OVSDR_ACTION_POP_VLAN:
        case OVSDR_ACTION_COPY_BEGIN:
        case OVSDR_ACTION_COPY_END: return type;
        case OVSDR_ACTION_UNSUPPORTED: return type ^ reinterpret_cast<std::uintptr_t>(action.unsupported);
    }
    return type;
}

/// But for what actions point at.
bool same(const ovsdr_tunnel_push& left, const ovsdr_tunnel_push& right) noexcept {
    return left.header_size == right.header_size && left.udp_source_first == right.udp_source_first &&
           left.udp_source_end == right.udp_source_end && left.out_port == right.out_port;
}

bool same(const ovsdr_action& left, const ovsdr_action& right) noexcept {
    if (left.type != right.type) return false;
    switch (left.type) {
        case OVSDR_ACTION_OUTPUT: return left.output == right.output;
        case OVSDR_ACTION_PUSH_VLAN:
            return left.push_vlan.be_tpid == right.push_vlan.be_tpid && left.push_vlan.be_tci == right.push_vlan.be_tci;
        case OVSDR_ACTION_SET: return bytes_of(left.set) == bytes_of(right.set);
        case OVSDR_ACTION_TUNNEL_PUSH: return same(left.tunnel_push, right.tunnel_push);
        case OVSDR_ACTION_TUNNEL_POP: return left.tunnel_port == right.tunnel_port;
        case OVSDR_ACTION_RECIRC: return left.recirc_id == right.recirc_id;
        case OVSDR_ACTION_METER: return left.meter == right.meter;
        case OVSDR_ACTION_SOFTWARE:
            return left.software.one_of == right.software.one_of &&
                   left.software.actions_size == right.software.actions_size &&
                   left.software.metered_from == right.software.metered_from &&
                   left.software.meter == right.software.meter &&
                   left.software.cut_at == right.software.cut_at && left.software.output == right.software.output &&
                   left.software.name == right.software.name && left.software.sampler == right.software.sampler;
        case OVSDR_ACTION_POP_VLAN:
        case OVSDR_ACTION_COPY_BEGIN:
        case OVSDR_ACTION_COPY_END: return true;
        case OVSDR_ACTION_UNSUPPORTED: return left.unsupported == right.unsupported;
    }
    return false;
}

bool equal(std::span<const ovsdr_action> left, std::span<const ovsdr_action> right) noexcept {
    return std::ranges::equal(left, right, [](const auto& one, const auto& other) { return same(one, other); });
}

/// Without the values that are only matched. ICMP's type and code, which have the ports' place, are no such values.
ovsdr_flow_fields shape_of(const ovsdr_flow_fields& key) noexcept {
    constexpr std::uint8_t proto_tcp = 6, proto_udp = 17;
    ovsdr_flow_fields shape = key;
    const auto clear = [](auto& field) { std::memset(&field, 0, sizeof field); };
    clear(shape.eth_dst);
    clear(shape.eth_src);
    clear(shape.src);
    clear(shape.dst);
    if (key.ip_proto == proto_tcp || key.ip_proto == proto_udp) shape.be_tp_src = shape.be_tp_dst = 0;
    return shape;
}

bool of_one_shape(const ovsdr_flow_fields& left, const ovsdr_flow_fields& right) noexcept {
    const ovsdr_flow_fields left_shape = shape_of(left), right_shape = shape_of(right);
    return bytes_of(left_shape) == bytes_of(right_shape);
}

std::size_t hash_of_shape(const ovsdr_flow_fields& key, std::size_t mask_hash, std::size_t actions_hash) noexcept {
    return hash_of(shape_of(key)) ^ mask_hash * 3 ^ actions_hash * 5;
}

/// Without a tunnel's.
std::size_t hash_of_mask(const ovsdr_flow_fields& mask, const ovsdr_names& unsupported) noexcept {
    return hash_of(mask) ^ unsupported.bits;
}

bool has_tunnel_fields(const ovsdr_megaflow& megaflow) noexcept {
    const ovsdr_tunnel_fields none{};
    return bytes_of(megaflow.tunnel_key) != bytes_of(none) || bytes_of(megaflow.tunnel_mask) != bytes_of(none);
}

std::string_view bytes_of(const std::vector<std::uint8_t>& bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The payloads of `given` are those in `payloads`, one behind the other.
bool same_payloads(std::span<const ovsdr_action> given, const std::vector<std::uint8_t>& payloads) noexcept {
    std::string_view left = bytes_of(payloads);
    for (const ovsdr_action& action : given) {
        const std::string_view payload = payload_of(action);
        if (!left.starts_with(payload)) return false;
        left.remove_prefix(payload.size());
    }
    return left.empty();
}

}  // namespace

MegaflowParts::Wildcards MegaflowParts::wildcards_of(const ovsdr_megaflow& megaflow) noexcept {
    Wildcards wildcards{megaflow.mask, megaflow.unsupported_match};
    if (has_tunnel_fields(megaflow)) wildcards.tunnel = Tunnel{megaflow.tunnel_key, megaflow.tunnel_mask};
    return wildcards;
}

MegaflowParts::Actions MegaflowParts::actions_of(const ovsdr_megaflow& megaflow) {
    const auto given = given_actions(megaflow);
    Actions actions{megaflow.n_actions, {given.begin(), given.end()}};
    for (ovsdr_action& action : actions.kept) {
        actions.tunnels |= action.type == OVSDR_ACTION_TUNNEL_PUSH || action.type == OVSDR_ACTION_TUNNEL_POP;
        const std::string_view payload = payload_of(action);
        actions.payloads.insert(actions.payloads.end(), payload.begin(), payload.end());
        if (const std::uint8_t** pointer = payload_pointer(action)) *pointer = nullptr;
    }
    return actions;
}

std::size_t MegaflowParts::Hash::operator()(const Wildcards& mask) const noexcept {
    const std::size_t hash = hash_of_mask(mask.fields, mask.unsupported);
    return mask.tunnel ? hash ^ std::hash<std::string_view>{}(bytes_of(mask.tunnel)) : hash;
}

std::size_t MegaflowParts::Hash::operator()(const ovsdr_megaflow& megaflow) const noexcept {
    std::uint64_t hash = megaflow.n_actions;
    for (const ovsdr_action& action : given_actions(megaflow)) hash = (hash ^ bits_of(action)) * 0x9E3779B97F4A7C15ULL;
    return hash ^ hash >> 32;
}

bool MegaflowParts::Equal::operator()(const Wildcards& left, const Wildcards& right) const noexcept {
    return bytes_of(left.fields) == bytes_of(right.fields) && same_names(left.unsupported, right.unsupported) &&
           bytes_of(left.tunnel) == bytes_of(right.tunnel);
}

bool MegaflowParts::Equal::operator()(const Actions& left, const ovsdr_megaflow& right) const noexcept {
    const auto given = given_actions(right);
    return left.length == right.n_actions && equal(left.kept, given) && same_payloads(given, left.payloads);
}

StoredMegaflow::StoredMegaflow(const ovsdr_megaflow& megaflow, MegaflowParts& parts)
    : mask_(parts.share(MegaflowParts::wildcards_of(megaflow))), key_(megaflow.key) {
    actions_ = parts.share_actions(megaflow);
}

ovsdr_megaflow StoredMegaflow::restore() const noexcept {
    ovsdr_megaflow megaflow{};
    megaflow.key = key_;
    megaflow.mask = mask_->fields;
    megaflow.unsupported_match = mask_->unsupported;
    if (mask_->tunnel) {
        megaflow.tunnel_key = mask_->tunnel->key;
        megaflow.tunnel_mask = mask_->tunnel->mask;
    }
    megaflow.n_actions = actions_->length;
    std::ranges::copy(actions_->kept, megaflow.actions);
    const std::uint8_t* payload = actions_->payloads.data();
    for (std::size_t i = 0; i < actions_->kept.size(); ++i) {
        const std::uint8_t** pointer = payload_pointer(megaflow.actions[i]);
        if (pointer == nullptr) continue;
        *pointer = payload;
        payload += payload_of(megaflow.actions[i]).size();
    }
    return megaflow;
}

bool StoredMegaflow::has_shape_of(const StoredMegaflow& other) const noexcept {
    return mask_ == other.mask_ && actions_ == other.actions_ && of_one_shape(key_, other.key_);
}

bool StoredMegaflow::has_shape_of(const ovsdr_megaflow& given) const noexcept {
    return of_one_shape(key_, given.key) && bytes_of(mask_->fields) == bytes_of(given.mask) &&
           same_names(mask_->unsupported, given.unsupported_match) && !has_tunnel_fields(given) &&
           MegaflowParts::Equal{}(*actions_, given);
}

std::size_t StoredMegaflow::shape_hash() const noexcept {
    return hash_of_shape(key_, mask_.hash(), actions_.hash());
}

std::size_t StoredMegaflow::shape_hash(const ovsdr_megaflow& given) noexcept {
    return hash_of_shape(given.key, hash_of_mask(given.mask, given.unsupported_match), MegaflowParts::Hash{}(given));
}

void PortList::add(OdpPort port) noexcept {
    const auto end = ports_.begin() + size_;
    if (std::find(ports_.begin(), end, port) == end) ports_[size_++] = port;
}

PortList StoredMegaflow::ports() const noexcept {
    PortList ports;
    ports.add(in_port());
    for (const ovsdr_action& action : actions_->kept) {
        if (action.type == OVSDR_ACTION_OUTPUT) ports.add(OdpPort{action.output});
        if (action.type == OVSDR_ACTION_TUNNEL_POP) ports.add(OdpPort{action.tunnel_port});
        const bool cuts = action.type == OVSDR_ACTION_SOFTWARE && action.software.cut_at != 0;
        if (cuts) ports.add(OdpPort{action.software.output});
    }
    return ports;
}

bool StoredMegaflow::has_meter() const noexcept {
    return std::ranges::any_of(actions_->kept, [](const ovsdr_action& action) { return meter_of(action).has_value(); });
}

bool StoredMegaflow::meets(std::uint32_t number) const noexcept {
    return std::ranges::any_of(actions_->kept,
                               [number](const ovsdr_action& action) { return meter_of(action) == number; });
}

std::set<std::uint32_t> StoredMegaflow::meters() const {
    std::set<std::uint32_t> numbers;
    for (const ovsdr_action& action : actions_->kept) {
        if (const auto number = meter_of(action)) numbers.insert(*number);
    }
    return numbers;
}

bool StoredMegaflow::has_software() const noexcept {
    return std::ranges::count(actions_->kept, OVSDR_ACTION_SOFTWARE, &ovsdr_action::type) != 0;
}

bool StoredMegaflow::has_tunnel() const noexcept {
    return mask_->tunnel || std::ranges::any_of(actions_->kept, [](const ovsdr_action& action) {
               return action.type == OVSDR_ACTION_TUNNEL_PUSH || action.type == OVSDR_ACTION_TUNNEL_POP;
           });
}

bool StoredMegaflow::recirculates() const noexcept {
    return std::ranges::count(actions_->kept, OVSDR_ACTION_RECIRC, &ovsdr_action::type) != 0;
}

bool StoredMegaflow::mentions_any(std::span<const OdpPort> wanted) const noexcept {
    const PortList mentioned = ports();
    for (std::uint32_t i = 0; i < mentioned.size(); ++i) {
        if (std::ranges::find(wanted, mentioned[i]) != wanted.end()) return true;
    }
    return false;
}

}  // namespace ovsdr::dr
