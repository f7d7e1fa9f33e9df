// A device's ports: opened, closed, looked at, and how a vport is told of what happens to its one or two.
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "datapath/ports/pci_function.hpp"
#include "datapath/ports/soft_device.hpp"

namespace ovsdr::soft {
namespace {

// What cannot be opened, though nothing that is seen has changed, is tried again so often: a try resets a PCI device.
constexpr auto time_between_tries = std::chrono::seconds(10);

// 0 for ports without an interface or a device, those that make their own among them. Of a device, a number that is
// another one when another driver of the kernel's has it.
unsigned interface_index(const std::string& dpdk) noexcept {
    const Driver* driver = driver_of(dpdk);
    if (driver == nullptr) return 0;
    if (driver->backing == Backing::device) return pci_state(dpdk.substr(0, dpdk.find(',')));
    if (driver->backing != Backing::interface) return 0;
    const std::string interface(dpdk_argument(dpdk, "iface"));
    return if_nametoindex(interface.c_str());
}

}  // namespace

void SoftDevice::add_link(Vport& vport, const std::string& dpdk) {
    Link& link = vport.links.emplace_back();
    link.dpdk = dpdk;
    link.path = std::make_unique<VportPath>(vport.info.id, worker_count_, [this] { port_changed(); });
    link.path->set_admin_up(true);
    if (vport.info.id == uplink_vport && watch_lacp_) link.path->watch_slow_protocols();
}

int SoftDevice::attach(Vport& vport) {
    const VportId id = vport.info.id;
    if (!vport.lag) return steering_.attach(id, vport.links[0].path->sink());
    if (const int result = steering_.attach(id, vport.lag->by_hash())) return result;
    for (unsigned port = 1; port <= lag_ports; ++port) {
        const int result = steering_.attach_lag_port(port, vport.lag->by_port(port), vport.lag->strictly_by_port(port));
        if (result == 0) continue;
        steering_.detach(id);
        return result;
    }
    return 0;
}

// change_mutex_ is held.
int SoftDevice::open_port(Vport& vport, Link& link) {
    std::string error;
    link.interface_index = interface_index(link.dpdk);
    link.tried = std::chrono::steady_clock::now();
    PortSpec spec{.arguments = link.dpdk,
                  .mtu = vport.wanted_mtu,
                  .memory = memory_,
                  .roce = !vport.info.roce_addresses.empty(),
                  .workers = worker_count_,
                  .changed = [this] { port_changed(); },
                  .synchronize = [this] { steering_.synchronize(); }};
    std::copy(std::begin(vport.info.mac), std::end(vport.info.mac), spec.mac.begin());
    auto port = Port::open(spec, error);
    bool has_other_mac = false;
    {
        const std::lock_guard lock(mutex_);
        link.error = error;
        link.port = std::move(port);
        link.up = link.port && link.port->link_up();
        tell_links(vport);
        if (!link.port) return EIO;
        // A device's own address, where nobody wants another.
        if (const auto own = link.port->mac(); own && vport.has_derived_mac && &link == &vport.links.front()) {
            has_other_mac = !std::equal(own->begin(), own->end(), vport.info.mac);
            std::copy(own->begin(), own->end(), vport.info.mac);
        }
        std::uint16_t mtu = link.port->mtu();
        for (const Link& other : vport.links) {
            if (other.port) mtu = std::min(mtu, other.port->mtu());
        }
        vport.info.mtu = vport.wanted_mtu.value_or(mtu);
        for (const Link& each : vport.links) each.path->set_mtu(vport.info.mtu);
    }
    link.path->set_link_up(link.up);
    link.path->bind(link.port.get());
    place_queues(link);
    if (has_other_mac) {
        listeners_.post(vport.info.id, VportChange::mac);
        if (itself(manager_vport) == vport.info.id) listeners_.post(manager_vport, VportChange::mac);
    }
    return 0;
}

// The same. EIO if any does not open.
int SoftDevice::open_ports(Vport& vport) {
    int result = 0;
    for (Link& link : vport.links) {
        if (const int error = open_port(vport, link)) result = error;
    }
    return result;
}

// mutex_ is held.
void SoftDevice::tell_links(Vport& vport) {
    VportInfo& info = vport.info;
    info.link_up = false;
    info.error.clear();
    info.lag.clear();
    for (const Link& link : vport.links) {
        if (link.port && !info.link_up) info.speed = link.port->speed();
        info.link_up |= link.up;
        info.error += (info.error.empty() || link.error.empty() ? "" : "; ") + link.error;
        if (vport.lag) info.lag.push_back({.dpdk = link.dpdk, .link_up = link.up});
    }
}

// change_mutex_ is held.
void SoftDevice::close_port(Vport& vport, Link& link) noexcept {
    if (!link.port) return;
    remove_queues(link);
    link.path->bind(nullptr);
    steering_.synchronize();
    std::unique_ptr<Port> port;
    {
        const std::lock_guard lock(mutex_);
        link.past_overruns += link.port->overruns();
        link.past_refused.packets += link.port->refused().packets;
        link.past_refused.bytes += link.port->refused().bytes;
        port = std::move(link.port);
        link.up = false;
        tell_links(vport);
    }
    link.path->set_link_up(false);
}

void SoftDevice::close_ports(Vport& vport) noexcept {
    for (Link& link : vport.links) close_port(vport, link);
}

void SoftDevice::close_ports(const std::function<void()>& closed) noexcept {
    const std::lock_guard change(change_mutex_);
    for (auto& [id, vport] : vports_) {
        for (Link& link : vport.links) {
            close_port(vport, link);
            closed();
        }
    }
}

// An interface of the port's name that was not there before, or is another one than the port was opened on; a device
// that is bound otherwise than before; a port that lost what it had made, or could not make it.
bool SoftDevice::can_be_opened(const Link& link) const {
    const auto is_to_be_tried = [&link] { return std::chrono::steady_clock::now() - link.tried > time_between_tries; };
    if (driver_of(link.dpdk)->backing == Backing::interface) {
        const unsigned index = interface_index(link.dpdk);
        if (index == 0) return false;
        return index != link.interface_index || (link.port ? link.port->lost() : is_to_be_tried());
    }
    if (driver_of(link.dpdk)->backing == Backing::device) {
        if (interface_index(link.dpdk) != link.interface_index) return true;
        return link.port ? link.port->lost() : is_to_be_tried();
    }
    return link.port ? link.port->lost() : driver_of(link.dpdk)->backing != Backing::nothing;
}

// From any thread. A worker that sleeps may have to ask the port's peer again to be woken.
void SoftDevice::port_changed() noexcept {
    port_event_.store(true);
    for (const auto& worker : *workers_) worker->ring_doorbell();
    wake_control_();
}

void SoftDevice::watch(std::vector<pollfd>& polled) {
    const std::lock_guard change(change_mutex_);
    for (const auto& [id, vport] : vports_) {
        for (const Link& link : vport.links) {
            if (link.port) link.port->watch(polled);
        }
    }
}

void SoftDevice::check_links() {
    const std::lock_guard change(change_mutex_);
    for (auto& [id, vport] : vports_) check_links(id, vport, &SoftDevice::check_link);
}

void SoftDevice::check_lag() {
    const std::lock_guard change(change_mutex_);
    for (auto& [id, vport] : vports_) {
        if (vport.lag) check_links(id, vport, &SoftDevice::see_whether_up);
    }
}

// change_mutex_ is held.
void SoftDevice::check_links(VportId id, Vport& vport, void (SoftDevice::*check)(Vport&, Link&)) {
    const bool before = vport.info.link_up;  // written only under change_mutex_
    for (Link& link : vport.links) {
        if (!link.dpdk.empty()) (this->*check)(vport, link);
    }
    if (vport.info.link_up != before) listeners_.post(id, VportChange::link);
}

// change_mutex_ is held.
void SoftDevice::check_link(Vport& vport, Link& link) {
    if (can_be_opened(link)) {
        close_port(vport, link);
        (void)open_port(vport, link);  // on failure the vport says why
    }
    if (link.port) link.port->serve();
    see_whether_up(vport, link);
}

// change_mutex_ is held.
void SoftDevice::see_whether_up(Vport& vport, Link& link) {
    const bool now = link.port && link.port->link_up();
    if (now != link.up) {
        const std::lock_guard lock(mutex_);
        link.up = now;
        tell_links(vport);
    }
    link.path->set_link_up(now);
}

// change_mutex_ is held. A port whose buffers are too small is opened anew.
int SoftDevice::change_mtu(Vport& vport, Link& link, std::uint16_t mtu) {
    if (!link.port) return 0;
    if (link.port->fits(mtu) || mtu > link.port->largest_mtu()) return link.port->set_mtu(mtu);
    const std::optional<std::uint16_t> before = std::exchange(vport.wanted_mtu, mtu);
    close_port(vport, link);
    if (open_port(vport, link) == 0) return 0;
    vport.wanted_mtu = before;
    (void)open_port(vport, link);
    return EINVAL;
}

}  // namespace ovsdr::soft
