#include "datapath/ports/soft_device.hpp"

#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>

#include "datapath/ports/identity.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint16_t default_mtu = 1500;

// 0 for ports without an interface, those that make their own among them.
unsigned interface_index(const VportInfo& info) noexcept {
    const Driver* driver = driver_of(info.dpdk);
    if (driver == nullptr || driver->backing != Backing::interface) return 0;
    const std::string interface(dpdk_argument(info.dpdk, "iface"));
    return if_nametoindex(interface.c_str());
}

}  // namespace

SoftDevice::SoftDevice(const DeviceConfig& config, unsigned index, unsigned worker_count,
                       std::function<void()> wake_control)
    : name_(config.name),
      index_(index),
      worker_count_(worker_count),
      guid_(derived_guid(config.name)),
      profile_(with_flex_parser_profile(*config.profile, config.flex_parser_profile)),
      steering_(profile_),
      listeners_(wake_control),
      wake_control_(std::move(wake_control)) {
    Vport manager;
    manager.info = {.id = manager_vport, .name = "manager", .mtu = default_mtu, .admin_up = true, .link_up = true};
    const MacAddress mac = config.mac.value_or(derived_mac(guid_, manager_vport));
    std::copy(mac.begin(), mac.end(), manager.info.mac);
    manager.path = std::make_unique<VportPath>(manager_vport, worker_count);
    manager_path_ = manager.path.get();
    vports_.emplace(manager_vport, std::move(manager));
}

SoftDevice::~SoftDevice() = default;

void SoftDevice::connect(Workers& workers, PacketMemory memory) noexcept {
    workers_ = &workers;
    memory_ = memory;
}

int SoftDevice::add_vport(const PortConfig& config, bool must_work, std::string& error) {
    const std::lock_guard change(change_mutex_);
    Vport vport;
    vport.info = {.id = config.vport,
                  .name = config.name,
                  .dpdk = config.dpdk,
                  .mtu = config.mtu.value_or(default_mtu),
                  .admin_up = true,
                  .roce_addresses = config.roce_addresses};
    const MacAddress mac = config.mac.value_or(derived_mac(guid_, config.vport));
    std::copy(mac.begin(), mac.end(), vport.info.mac);
    vport.wanted_mtu = config.mtu;
    vport.path = std::make_unique<VportPath>(config.vport, worker_count_);
    vport.path->set_admin_up(true);
    if (config.vport == uplink_vport && watch_lacp_) vport.path->watch_slow_protocols();
    if (int result = steering_.attach(config.vport, vport.path->sink())) {
        error = fmt::format("vport {} cannot be attached to {}: {}", config.vport.value, name_,
                            result == EEXIST ? "the vport is there already" : "there are as many as are possible");
        return result;
    }
    Vport* added = nullptr;
    {
        const std::lock_guard lock(mutex_);
        added = &vports_.emplace(config.vport, std::move(vport)).first->second;
    }
    if (open_port(*added) != 0 && must_work) {
        error = added->info.error;
        steering_.detach(config.vport);
        const std::lock_guard lock(mutex_);
        vports_.erase(config.vport);
        return EIO;
    }
    listeners_.post(config.vport, VportChange::added);
    return 0;
}

int SoftDevice::remove_vport(VportId id) {
    const std::lock_guard change(change_mutex_);
    Vport* vport = find(id);
    if (vport == nullptr || id == manager_vport) return ENOENT;
    close_port(*vport);
    steering_.detach(id);
    {
        const std::lock_guard lock(mutex_);
        vports_.erase(id);
    }
    listeners_.post(id, VportChange::removed);
    return 0;
}

// change_mutex_ is held.
int SoftDevice::open_port(Vport& vport) {
    std::string error;
    vport.interface_index = interface_index(vport.info);
    PortSpec spec{.arguments = vport.info.dpdk,
                  .mtu = vport.wanted_mtu,
                  .memory = memory_,
                  .uplink = vport.info.id == uplink_vport,
                  .changed = [this] { port_changed(); },
                  .synchronize = [this] { steering_.synchronize(); }};
    std::copy(std::begin(vport.info.mac), std::end(vport.info.mac), spec.mac.begin());
    auto port = Port::open(spec, error);
    const std::lock_guard lock(mutex_);
    vport.info.error = error;
    if (!port) {
        vport.info.link_up = false;
        return EIO;
    }
    vport.port = std::move(port);
    vport.info.mtu = vport.wanted_mtu.value_or(vport.port->mtu());
    vport.info.link_up = vport.port->link_up();
    vport.info.speed = vport.port->speed();
    vport.path->set_mtu(vport.info.mtu);
    vport.path->set_link_up(vport.info.link_up);
    vport.path->bind(vport.port.get());
    const auto& worker = *std::min_element(workers_->begin(), workers_->end(), [](const auto& left, const auto& right) {
        return left->port_count() < right->port_count();
    });
    vport.worker = worker.get();
    worker->change([&](WorkerPlan& plan) { plan.ports.push_back({vport.path.get(), index_, vport.port.get()}); });
    return 0;
}

// change_mutex_ is held.
void SoftDevice::close_port(Vport& vport) noexcept {
    if (!vport.port) return;
    vport.worker->change([&](WorkerPlan& plan) {
        std::erase_if(plan.ports, [&](const PolledPort& port) { return port.path == vport.path.get(); });
    });
    vport.path->bind(nullptr);
    steering_.synchronize();
    std::unique_ptr<Port> port;
    {
        const std::lock_guard lock(mutex_);
        port = std::move(vport.port);
        vport.info.link_up = false;
    }
    vport.path->set_link_up(false);
}

void SoftDevice::close_ports() noexcept {
    const std::lock_guard change(change_mutex_);
    for (auto& [id, vport] : vports_) close_port(vport);
}

// An interface of the port's name that was not there before, or is another one than the port was opened on; a port that
// lost what it had made, or could not make it.
bool SoftDevice::can_be_opened(const Vport& vport) const {
    if (driver_of(vport.info.dpdk)->backing == Backing::interface) {
        const unsigned index = interface_index(vport.info);
        return index != 0 && index != vport.interface_index;
    }
    return vport.port ? vport.port->lost() : driver_of(vport.info.dpdk)->backing != Backing::nothing;
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
        if (vport.port) vport.port->watch(polled);
    }
}

void SoftDevice::check_links() {
    const std::lock_guard change(change_mutex_);
    for (auto& [id, vport] : vports_) {
        if (vport.info.dpdk.empty()) continue;
        const bool before = vport.info.link_up;  // written only under change_mutex_
        if (can_be_opened(vport)) {
            close_port(vport);
            (void)open_port(vport);  // on failure the vport says why
        }
        if (vport.port) vport.port->serve();
        const bool now = vport.port && vport.port->link_up();
        {
            const std::lock_guard lock(mutex_);
            vport.info.link_up = now;
            if (vport.port && now != before) vport.info.speed = vport.port->speed();
        }
        vport.path->set_link_up(now);
        if (now != before) listeners_.post(id, VportChange::link);
    }
}

std::uint64_t SoftDevice::lacp_frames() const {
    const std::lock_guard lock(mutex_);
    const Vport* uplink = find(uplink_vport);
    return uplink == nullptr ? 0 : uplink->path->slow_protocol_frames();
}

SoftDevice::Vport* SoftDevice::find(VportId id) noexcept {
    const auto found = vports_.find(id);
    return found == vports_.end() ? nullptr : &found->second;
}

const SoftDevice::Vport* SoftDevice::find(VportId id) const noexcept {
    const auto found = vports_.find(id);
    return found == vports_.end() ? nullptr : &found->second;
}

std::vector<VportInfo> SoftDevice::vports() const {
    const std::lock_guard lock(mutex_);
    std::vector<VportInfo> infos;
    for (const auto& [id, vport] : vports_) infos.push_back(vport.info);
    return infos;
}

int SoftDevice::query(VportId id, VportInfo& info) const {
    const std::lock_guard lock(mutex_);
    const Vport* vport = find(id);
    if (vport == nullptr) return ENOENT;
    info = vport->info;
    return 0;
}

int SoftDevice::counters(VportId id, VportCounters& counters) const {
    const std::lock_guard lock(mutex_);
    const Vport* vport = find(id);
    if (vport == nullptr) return ENOENT;
    counters = vport->path->counters();
    return 0;
}

int SoftDevice::set_mac(VportId id, const std::uint8_t (&mac)[6]) {
    const bool zero = std::all_of(std::begin(mac), std::end(mac), [](std::uint8_t byte) { return byte == 0; });
    if (zero || (mac[0] & 1) != 0) return EINVAL;
    {
        const std::lock_guard lock(mutex_);
        Vport* vport = find(id);
        if (vport == nullptr) return ENOENT;
        if (std::equal(std::begin(mac), std::end(mac), vport->info.mac)) return 0;
        std::copy(std::begin(mac), std::end(mac), vport->info.mac);
    }
    listeners_.post(id, VportChange::mac);
    return 0;
}

int SoftDevice::set_mtu(VportId id, std::uint16_t mtu) {
    if (mtu < min_mtu || mtu > max_mtu) return EINVAL;
    const std::lock_guard change(change_mutex_);
    Vport* vport = find(id);
    if (vport == nullptr) return ENOENT;
    if (vport->info.mtu == mtu) return 0;
    const bool reopen = vport->port && !vport->port->fits(mtu) && mtu <= vport->port->driver().largest_mtu;
    if (vport->port && !reopen) {
        if (int result = vport->port->set_mtu(mtu)) return result;
    }
    const std::optional<std::uint16_t> before = std::exchange(vport->wanted_mtu, mtu);
    if (reopen) {
        close_port(*vport);
        if (open_port(*vport) != 0) {
            vport->wanted_mtu = before;
            (void)open_port(*vport);
            return EINVAL;
        }
    }
    {
        const std::lock_guard lock(mutex_);
        vport->info.mtu = mtu;
    }
    vport->path->set_mtu(mtu);
    listeners_.post(id, VportChange::mtu);
    return 0;
}

int SoftDevice::set_admin_state(VportId id, bool up) {
    {
        const std::lock_guard lock(mutex_);
        Vport* vport = find(id);
        if (vport == nullptr) return ENOENT;
        if (vport->info.admin_up == up) return 0;
        vport->info.admin_up = up;
        vport->path->set_admin_up(up);
    }
    listeners_.post(id, VportChange::link);
    return 0;
}

std::uint64_t SoftDevice::add_listener(std::function<void(VportId, VportChange)> listener) {
    return listeners_.add(std::move(listener));
}

void SoftDevice::add_send_source(const SendSource& source) {
    worker_of(source.sqn).change([&](WorkerPlan& plan) {
        plan.queues.push_back({.source = source, .device = index_, .manager = manager_path_});
    });
}

void SoftDevice::remove_send_source(std::uint32_t sqn) noexcept {
    worker_of(sqn).change([&](WorkerPlan& plan) {
        std::erase_if(plan.queues,
                      [&](const PolledQueue& queue) { return queue.device == index_ && queue.source.sqn == sqn; });
    });
}

void SoftDevice::ring_doorbell(std::uint32_t sqn) noexcept {
    worker_of(sqn).ring_doorbell();
}

void SoftDevice::add_service(unsigned worker, const Service& service) {
    (*workers_)[worker]->change([&](WorkerPlan& plan) {
        plan.services.push_back({.service = service, .device = index_, .manager = manager_path_});
    });
}

void SoftDevice::remove_service(unsigned worker, void* self) noexcept {
    (*workers_)[worker]->change([&](WorkerPlan& plan) {
        std::erase_if(plan.services, [&](const PolledService& polled) { return polled.service.self == self; });
    });
}

void SoftDevice::ring_worker(unsigned worker) noexcept {
    (*workers_)[worker]->ring_doorbell();
}

}  // namespace ovsdr::soft
