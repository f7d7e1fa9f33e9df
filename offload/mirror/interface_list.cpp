#include "offload/mirror/interface_list.hpp"

#include <algorithm>

namespace ovsdr::mirror {
namespace {

bool can_be_told(const std::string& name) noexcept {
    const auto is_printable = [](char character) { return character >= ' ' && character <= '~'; };
    return !name.empty() && name.size() <= longest_name && std::ranges::all_of(name, is_printable);
}

}  // namespace

InterfaceList::InterfaceList(const PortNames& names, std::uint32_t snap_length)
    : names_(names), snap_length_(snap_length), interfaces_{{"other", snap_length}} {
    read(true);
}

/// A port without a place of its own is remembered, too, until names change.
std::uint32_t InterfaceList::look_up(dr::OdpPort port) {
    if (seen_ != names_.version()) read(false);
    if (!places_.contains(port.value)) read(true);
    return places_.try_emplace(port.value, other).first->second;
}

/// Finds the places of all ports; those without one get one if the list is to grow.
void InterfaceList::read(bool grow) {
    seen_ = names_.version();   // first: what changes meanwhile is read again
    places_.clear();
    for (const auto& [port, name] : names_.all()) {
        if (!can_be_told(name)) continue;
        auto known = std::ranges::find(interfaces_.begin() + 1, interfaces_.end(), name, &MirrorInterface::name);
        if (known == interfaces_.end()) {
            if (!grow || interfaces_.size() == most_interfaces) continue;
            known = interfaces_.insert(known, {name, snap_length_});
        }
        places_.emplace(port.value, static_cast<std::uint32_t>(known - interfaces_.begin()));
    }
}

}  // namespace ovsdr::mirror
