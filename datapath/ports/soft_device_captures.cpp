// A device's captures: which paths they look at, from their start until they or their vport go.
#include <algorithm>
#include <cerrno>

#include "datapath/ports/soft_device.hpp"

namespace ovsdr::soft {

// change_mutex_ is held. Returns when no worker uses the list of before.
void SoftDevice::replace_captures(Link& link, std::vector<CaptureList::Item> items) {
    auto list = items.empty() ? nullptr : std::make_unique<CaptureList>(std::move(items));
    link.path->set_captures(list.get());
    steering_.synchronize();
    link.captures = std::move(list);
}

int SoftDevice::add_capture(VportId id, Capture& capture) {
    const std::lock_guard change(change_mutex_);
    Vport* vport = find(id);
    if (vport == nullptr) return ENOENT;
    if (id == manager_vport) return EOPNOTSUPP;
    for (unsigned interface = 0; interface < vport->links.size(); ++interface) {
        Link& link = vport->links[interface];
        auto items = link.captures ? link.captures->items() : std::vector<CaptureList::Item>();
        items.push_back({&capture, interface});
        replace_captures(link, std::move(items));
    }
    return 0;
}

bool SoftDevice::has_capture(VportId id, const Capture& capture) {
    const std::lock_guard change(change_mutex_);
    const Vport* vport = find(id);
    if (vport == nullptr) return false;
    const auto& list = vport->links[0].captures;
    return list && std::ranges::any_of(list->items(), [&](const auto& item) { return item.capture == &capture; });
}

void SoftDevice::remove_capture(VportId id, const Capture& capture) {
    const std::lock_guard change(change_mutex_);
    Vport* vport = find(id);
    if (vport == nullptr) return;
    for (Link& link : vport->links) {
        if (!link.captures) continue;
        auto items = link.captures->items();
        if (std::erase_if(items, [&](const auto& item) { return item.capture == &capture; }) > 0) {
            replace_captures(link, std::move(items));
        }
    }
}

}  // namespace ovsdr::soft
