#include "offload/dr/megaflow_store.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace ovsdr::dr {

namespace {

std::string_view bytes_of(const ovsdr_flow_fields& fields) noexcept {
    return {reinterpret_cast<const char*>(&fields), sizeof fields};
}

bool same_names(const ovsdr_names& left, const ovsdr_names& right) noexcept {
    return left.bits == right.bits && left.names == right.names;
}

std::uint32_t kept_actions(std::uint32_t n_actions) noexcept {
    return std::min<std::uint32_t>(n_actions, OVSDR_MAX_ACTIONS);
}

bool same(const ovsdr_action& left, const ovsdr_action& right) noexcept {
    if (left.type != right.type) return false;
    switch (left.type) {
        case OVSDR_ACTION_OUTPUT: return left.output == right.output;
        case OVSDR_ACTION_PUSH_VLAN:
            return left.push_vlan.be_tpid == right.push_vlan.be_tpid && left.push_vlan.be_tci == right.push_vlan.be_tci;
        case OVSDR_ACTION_POP_VLAN: return true;
        case OVSDR_ACTION_UNSUPPORTED: return left.unsupported == right.unsupported;
    }
    return false;
}

}  // namespace

std::size_t MaskPool::Hash::operator()(const Wildcards& mask) const noexcept {
    return std::hash<std::string_view>{}(bytes_of(mask.fields)) ^ std::hash<std::uint64_t>{}(mask.unsupported.bits);
}

bool MaskPool::Equal::operator()(const Wildcards& left, const Wildcards& right) const noexcept {
    return bytes_of(left.fields) == bytes_of(right.fields) && same_names(left.unsupported, right.unsupported);
}

MaskPool::Mask MaskPool::share(const Wildcards& mask) {
    std::lock_guard lock(mutex_);
    std::weak_ptr<const Wildcards>& known = masks_[mask];
    if (Mask shared = known.lock()) return shared;
    auto made = std::make_shared<const Wildcards>(mask);
    known = made;
    if (masks_.size() >= prune_at_) {
        std::erase_if(masks_, [](const auto& entry) { return entry.second.expired(); });
        prune_at_ = 2 * masks_.size() + 1024;
    }
    return made;
}

StoredMegaflow::StoredMegaflow(const ovsdr_megaflow& megaflow, MaskPool& masks)
    : key_(megaflow.key),
      mask_(masks.share({megaflow.mask, megaflow.unsupported_match})),
      n_actions_(megaflow.n_actions) {
    const std::uint32_t kept = kept_actions(n_actions_);
    if (kept == 0) return;
    actions_ = std::make_unique<ovsdr_action[]>(kept);
    std::copy_n(megaflow.actions, kept, actions_.get());
}

ovsdr_megaflow StoredMegaflow::restore() const noexcept {
    ovsdr_megaflow megaflow{};
    megaflow.key = key_;
    megaflow.mask = mask_->fields;
    megaflow.unsupported_match = mask_->unsupported;
    megaflow.n_actions = n_actions_;
    std::copy_n(actions_.get(), kept_actions(n_actions_), megaflow.actions);
    return megaflow;
}

bool StoredMegaflow::is(const ovsdr_megaflow& megaflow) const noexcept {
    return mask_ != nullptr && bytes_of(key_) == bytes_of(megaflow.key) &&
           bytes_of(mask_->fields) == bytes_of(megaflow.mask) &&
           same_names(mask_->unsupported, megaflow.unsupported_match) && n_actions_ == megaflow.n_actions &&
           std::equal(actions_.get(), actions_.get() + kept_actions(n_actions_), megaflow.actions, same);
}

void PortList::add(OdpPort port) noexcept {
    const auto end = ports_.begin() + size_;
    if (std::find(ports_.begin(), end, port) == end) ports_[size_++] = port;
}

PortList StoredMegaflow::ports() const noexcept {
    PortList ports;
    ports.add(in_port());
    const std::uint32_t kept = kept_actions(n_actions_);
    for (std::uint32_t i = 0; i < kept; ++i) {
        if (actions_[i].type == OVSDR_ACTION_OUTPUT) ports.add(OdpPort{actions_[i].output});
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
