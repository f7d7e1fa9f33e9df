#include "datapath/ports/soft_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "datapath/ports/identity.hpp"
#include "datapath/steering/plain_function.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint16_t default_mtu = 1500;

void add(VportCounters& sum, const VportCounters& counters) noexcept {
    for (const auto member :
         {&VportCounters::received_packets, &VportCounters::received_bytes, &VportCounters::sent_packets,
          &VportCounters::sent_bytes, &VportCounters::receive_drops, &VportCounters::send_drops,
          &VportCounters::oversize, &VportCounters::down, &VportCounters::overruns}) {
        sum.*member += counters.*member;
    }
}

}  // namespace

SoftDevice::SoftDevice(const DeviceConfig& config, unsigned index, unsigned worker_count,
                       std::function<void()> wake_control)
    : name_(config.name),
      index_(index),
      worker_count_(worker_count),
      guid_(derived_guid(config.name)),
      is_function_(!config.eswitch),
      profile_(with_flex_parser_profile(*config.profile, config.flex_parser_profile)),
      steering_(profile_),
      listeners_(wake_control),
      wake_control_(std::move(wake_control)) {
    room_of(steering_).limit(config.limits);
    if (is_function_) make_plain_function(steering_);
    Vport manager;
    manager.info = {.id = manager_vport,
                    .name = is_function_ ? "function" : "manager",
                    .mtu = default_mtu,
                    .admin_up = true,
                    .link_up = true};
    const MacAddress mac = config.mac.value_or(derived_mac(guid_, manager_vport));
    std::copy(mac.begin(), mac.end(), manager.info.mac);
    add_link(manager, "");
    manager_path_ = manager.links[0].path.get();
    vports_.emplace(manager_vport, std::move(manager));
}

SoftDevice::~SoftDevice() = default;

void SoftDevice::connect(Workers& workers, PacketMemory memory) noexcept {
    workers_ = &workers;
    memory_ = memory;
}

int SoftDevice::add_vport(const PortConfig& config, bool must_work, std::string& error) {
    if (is_function_ && config.vport != uplink_vport) {
        error = fmt::format("{} is a plain function: it has no vport {}", name_, config.vport.value);
        return EINVAL;
    }
    const std::lock_guard change(change_mutex_);
    Vport vport;
    vport.info = {.id = config.vport,
                  .name = config.name,
                  .dpdk = config.lag_dpdk.empty() ? config.dpdk : "",
                  .mtu = config.mtu.value_or(default_mtu),
                  .admin_up = true,
                  .roce_addresses = config.roce_addresses};
    const MacAddress mac = config.mac.value_or(derived_mac(guid_, config.vport));
    std::copy(mac.begin(), mac.end(), vport.info.mac);
    vport.has_derived_mac = !config.mac;
    vport.wanted_mtu = config.mtu;
    add_link(vport, config.dpdk);
    if (!config.lag_dpdk.empty()) {
        add_link(vport, config.lag_dpdk);
        vport.lag = std::make_unique<Lag>(*vport.links[0].path, *vport.links[1].path);
    }
    if (int result = attach(vport)) {
        error = fmt::format("vport {} cannot be attached to {}: {}", config.vport.value, name_,
                            result == EEXIST ? "the vport is there already" : "there are as many as are possible");
        return result;
    }
    Vport* added = nullptr;
    {
        const std::lock_guard lock(mutex_);
        added = &vports_.emplace(config.vport, std::move(vport)).first->second;
    }
    if (open_ports(*added) != 0 && must_work) {
        error = added->info.error;
        close_ports(*added);
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
    close_ports(*vport);
    steering_.detach(id);
    {
        const std::lock_guard lock(mutex_);
        vports_.erase(id);
    }
    listeners_.post(id, VportChange::removed);
    return 0;
}

std::uint64_t SoftDevice::lacp_frames() const {
    const std::lock_guard lock(mutex_);
    const Vport* uplink = find(uplink_vport);
    std::uint64_t frames = 0;
    if (uplink == nullptr) return frames;
    for (const Link& link : uplink->links) frames += link.path->slow_protocol_frames();
    return frames;
}

bool SoftDevice::has_lag() const {
    const std::lock_guard lock(mutex_);
    const Vport* uplink = find(uplink_vport);
    return uplink != nullptr && uplink->lag;
}

unsigned SoftDevice::active_lag_port(unsigned port) const {
    const std::lock_guard lock(mutex_);
    const Vport* uplink = find(uplink_vport);
    return uplink != nullptr && uplink->lag ? uplink->lag->active_port(port) : port;
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
    const Vport* vport = find(itself(id));
    if (vport == nullptr) return ENOENT;
    info = vport->info;
    info.id = id;
    return 0;
}

bool SoftDevice::has(VportId id) const {
    const std::lock_guard lock(mutex_);
    return find(id) != nullptr;
}

VportCounters SoftDevice::Link::counters() const noexcept {
    VportCounters counters = path->counters();
    counters.overruns = past_overruns + (port ? port->overruns() : 0);
    const Port::Refused now = port ? port->refused() : Port::Refused{};
    counters.receive_drops += past_refused.packets + now.packets;
    counters.received_packets -= past_refused.packets + now.packets;
    counters.received_bytes -= past_refused.bytes + now.bytes;
    return counters;
}

namespace {

/// A plain function has sent what its wire's owner has received.
VportCounters from_the_other_end(const VportCounters& wire) {
    VportCounters counters{};
    counters.received_packets = wire.sent_packets;
    counters.received_bytes = wire.sent_bytes;
    counters.sent_packets = wire.received_packets;
    counters.sent_bytes = wire.received_bytes;
    counters.receive_drops = wire.send_drops + wire.overruns;
    counters.send_drops = wire.receive_drops + wire.oversize;
    counters.down = wire.down;
    return counters;
}

}  // namespace

int SoftDevice::counters(VportId id, VportCounters& counters) const {
    const std::lock_guard lock(mutex_);
    const Vport* vport = find(itself(id));
    if (vport == nullptr) return ENOENT;
    counters = {};
    for (const Link& link : vport->links) add(counters, link.counters());
    if (itself(id) != id) counters = from_the_other_end(counters);
    return 0;
}

int SoftDevice::lag_counters(unsigned port, VportCounters& counters) const {
    const std::lock_guard lock(mutex_);
    const Vport* uplink = find(uplink_vport);
    if (uplink == nullptr || !uplink->lag || port == 0 || port > lag_ports) return ENOENT;
    counters = uplink->links[port - 1].counters();
    return 0;
}

int SoftDevice::set_mac(VportId id, const std::uint8_t (&mac)[6]) {
    const bool zero = std::all_of(std::begin(mac), std::end(mac), [](std::uint8_t byte) { return byte == 0; });
    if (zero || (mac[0] & 1) != 0) return EINVAL;
    {
        const std::lock_guard lock(mutex_);
        Vport* vport = find(itself(id));
        if (vport == nullptr) return ENOENT;
        vport->has_derived_mac = false;
        if (std::equal(std::begin(mac), std::end(mac), vport->info.mac)) return 0;
        std::copy(std::begin(mac), std::end(mac), vport->info.mac);
    }
    listeners_.post(id, VportChange::mac);
    return 0;
}

int SoftDevice::set_mtu(VportId id, std::uint16_t mtu) {
    if (mtu < min_mtu || mtu > max_mtu) return EINVAL;
    const std::lock_guard change(change_mutex_);
    Vport* vport = find(itself(id));
    if (vport == nullptr) return ENOENT;
    const std::uint16_t before = vport->info.mtu;
    if (before == mtu) return 0;
    const std::optional<std::uint16_t> wanted_before = vport->wanted_mtu;
    int result = 0;
    std::size_t changed = 0;
    while (result == 0 && changed < vport->links.size()) result = change_mtu(*vport, vport->links[changed++], mtu);
    if (result != 0) {  // all of them or none
        for (--changed; changed-- > 0;) (void)change_mtu(*vport, vport->links[changed], before);
    }
    vport->wanted_mtu = result == 0 ? mtu : wanted_before;
    {
        const std::lock_guard lock(mutex_);
        vport->info.mtu = result == 0 ? mtu : before;
    }
    for (const Link& link : vport->links) link.path->set_mtu(vport->info.mtu);
    if (result != 0) return result;
    listeners_.post(id, VportChange::mtu);
    return 0;
}

int SoftDevice::set_admin_state(VportId id, bool up) {
    {
        const std::lock_guard lock(mutex_);
        Vport* vport = find(itself(id));
        if (vport == nullptr) return ENOENT;
        if (vport->info.admin_up == up) return 0;
        vport->info.admin_up = up;
        for (const Link& link : vport->links) link.path->set_admin_up(up);
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
    worker_of(sqn).posted(index_, sqn);
}

void SoftDevice::woke(const std::shared_ptr<Lookout>& lookout) noexcept {
    workers_->front()->woke(lookout);
}

bool SoftDevice::look_out() noexcept {
    return workers_->front()->look_out();
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
