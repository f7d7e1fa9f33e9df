#include "offload/dr/megaflow_store.hpp"

#include <algorithm>
#include <string_view>
#include <type_traits>

namespace ovsdr::dr {

namespace {

std::string_view bytes_of(const ovsdr_flow_fields& fields) noexcept {
    return {reinterpret_cast<const char*>(&fields), sizeof fields};
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

/// Differs where same() does not hold, mostly.
std::uint64_t bits_of(const ovsdr_action& action) noexcept {
    const auto type = static_cast<std::uint64_t>(action.type) << 48;
    switch (action.type) {
        case OVSDR_ACTION_OUTPUT: return type ^ action.output;
        case OVSDR_ACTION_PUSH_VLAN:
            return type ^ (std::uint64_t{action.push_vlan.be_tpid} << 16) ^ action.push_vlan.be_tci;
        case OVSDR_ACTION_SET: return type ^ std::hash<std::string_view>{}(bytes_of(action.set));
        case OVSDR_ACTION_RECIRC: return type ^ action.recirc_id;
        case OVSDR_ACTION_POP_VLAN:
        case OVSDR_ACTION_COPY_BEGIN:
        case OVSDR_ACTION_COPY_END: return type;
        case OVSDR_ACTION_UNSUPPORTED: return type ^ reinterpret_cast<std::uintptr_t>(action.unsupported);
    }
    return type;
}

bool same(const ovsdr_action& left, const ovsdr_action& right) noexcept {
    if (left.type != right.type) return false;
    switch (left.type) {
        case OVSDR_ACTION_OUTPUT: return left.output == right.output;
        case OVSDR_ACTION_PUSH_VLAN:
            return left.push_vlan.be_tpid == right.push_vlan.be_tpid && left.push_vlan.be_tci == right.push_vlan.be_tci;
        case OVSDR_ACTION_SET: return bytes_of(left.set) == bytes_of(right.set);
        case OVSDR_ACTION_RECIRC: return left.recirc_id == right.recirc_id;
        case OVSDR_ACTION_POP_VLAN:
        case OVSDR_ACTION_COPY_BEGIN:
        case OVSDR_ACTION_COPY_END: return true;
        case OVSDR_ACTION_UNSUPPORTED: return left.unsupported == right.unsupported;
    }
    return false;
}

}  // namespace

std::size_t MegaflowParts::Hash::operator()(const Wildcards& mask) const noexcept {
    return std::hash<std::string_view>{}(bytes_of(mask.fields)) ^ std::hash<std::uint64_t>{}(mask.unsupported.bits);
}

std::size_t MegaflowParts::Hash::operator()(const Actions& actions) const noexcept {
    std::uint64_t hash = actions.length;
    for (const ovsdr_action& action : actions.kept) hash = (hash ^ bits_of(action)) * 0x9E3779B97F4A7C15ULL;
    return hash ^ hash >> 32;
}

bool MegaflowParts::Equal::operator()(const Wildcards& left, const Wildcards& right) const noexcept {
    return bytes_of(left.fields) == bytes_of(right.fields) && same_names(left.unsupported, right.unsupported);
}

bool MegaflowParts::Equal::operator()(const Actions& left, const Actions& right) const noexcept {
    return left.length == right.length && std::ranges::equal(left.kept, right.kept, same);
}

StoredMegaflow::StoredMegaflow(const ovsdr_megaflow& megaflow, MegaflowParts& parts)
    : mask_(parts.share(MegaflowParts::Wildcards{megaflow.mask, megaflow.unsupported_match})), key_(megaflow.key) {
    const auto given = given_actions(megaflow);
    actions_ = parts.share(MegaflowParts::Actions{megaflow.n_actions, {given.begin(), given.end()}});
}

ovsdr_megaflow StoredMegaflow::restore() const noexcept {
    ovsdr_megaflow megaflow{};
    megaflow.key = key_;
    megaflow.mask = mask_->fields;
    megaflow.unsupported_match = mask_->unsupported;
    megaflow.n_actions = actions_->length;
    std::ranges::copy(actions_->kept, megaflow.actions);
    return megaflow;
}

bool StoredMegaflow::is(const ovsdr_megaflow& megaflow) const noexcept {
    return mask_ != nullptr && bytes_of(key_) == bytes_of(megaflow.key) &&
           bytes_of(mask_->fields) == bytes_of(megaflow.mask) &&
           same_names(mask_->unsupported, megaflow.unsupported_match) && actions_->length == megaflow.n_actions &&
           std::ranges::equal(actions_->kept, given_actions(megaflow), same);
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
    }
    return ports;
}

bool StoredMegaflow::mentions_any(std::span<const OdpPort> wanted) const noexcept {
    const PortList mentioned = ports();
    for (std::uint32_t i = 0; i < mentioned.size(); ++i) {
        if (std::ranges::find(wanted, mentioned[i]) != wanted.end()) return true;
    }
    return false;
}

}  // namespace ovsdr::dr
