// A device's receive queues: which worker polls each.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "datapath/ports/placement.hpp"
#include "datapath/ports/soft_device.hpp"

namespace ovsdr::soft {
namespace {

// What a worker has sent is in the kernel's hands, or a guest's, but need not have arrived: what another worker sends
// behind it by another queue must not overtake it. Short enough for what comes in meanwhile to wait in the queue.
constexpr auto until_it_has_arrived = std::chrono::microseconds(200);

}  // namespace

// change_mutex_ is held. Not mutex_: a worker that is waited for may be waiting for whoever waits for that.
void SoftDevice::place_queues(Link& link) {
    std::vector<WorkerLoad> loads;
    for (const auto& worker : *workers_) {
        loads.push_back({.busy = worker->load(), .queues = static_cast<unsigned>(worker->port_count())});
    }
    for (unsigned queue = 0; queue < link.port->receive_queues().size(); ++queue) {
        const unsigned chosen = choose_worker(loads);
        ++loads[chosen].queues;
        ++loads[chosen].siblings;
        const auto load = std::make_shared<QueueLoad>();
        {
            const std::lock_guard lock(mutex_);
            link.places.push_back({.worker = chosen, .load = load});
        }
        (*workers_)[chosen]->change([&](WorkerPlan& plan) {
            plan.ports.push_back({.path = link.path.get(),
                                  .device = index_,
                                  .port = link.port.get(),
                                  .queue = queue,
                                  .load = load.get()});
        });
    }
}

// change_mutex_ is held.
void SoftDevice::remove_queues(Link& link) noexcept {
    for (const Place& place : link.places) {
        (*workers_)[place.worker]->change([&](WorkerPlan& plan) {
            std::erase_if(plan.ports, [&](const PolledPort& port) { return port.path == link.path.get(); });
        });
    }
    const std::lock_guard lock(mutex_);
    link.places.clear();
}

std::vector<PlacedQueue> SoftDevice::placed_queues() const {
    const std::lock_guard lock(mutex_);
    std::vector<PlacedQueue> queues;
    for (const auto& [id, vport] : vports_) {
        for (unsigned port = 0; port < vport.links.size(); ++port) {
            const std::vector<Place>& places = vport.links[port].places;
            for (unsigned queue = 0; queue < places.size(); ++queue) {
                queues.push_back({.vport = id,
                                  .port = port,
                                  .queue = queue,
                                  .worker = places[queue].worker,
                                  .load = places[queue].load});
            }
        }
    }
    return queues;
}

int SoftDevice::move_queue(VportId id, unsigned port, unsigned queue, unsigned worker) {
    const std::lock_guard change(change_mutex_);
    Vport* const vport = find(id);
    if (vport == nullptr || port >= vport->links.size() || worker >= workers_->size()) return ENOENT;
    Link& link = vport->links[port];
    if (queue >= link.places.size()) return ENOENT;
    Place& place = link.places[queue];
    if (place.worker == worker) return 0;
    const PolledPort moved{
        .path = link.path.get(), .device = index_, .port = link.port.get(), .queue = queue, .load = place.load.get()};
    // Once change() has returned, all that the worker has received has been sent.
    (*workers_)[place.worker]->change([&](WorkerPlan& plan) {
        std::erase_if(plan.ports,
                      [&](const PolledPort& polled) { return polled.path == moved.path && polled.queue == queue; });
    });
    std::this_thread::sleep_for(until_it_has_arrived);
    (*workers_)[worker]->change([&](WorkerPlan& plan) { plan.ports.push_back(moved); });
    const std::lock_guard lock(mutex_);
    place.worker = worker;
    return 0;
}

}  // namespace ovsdr::soft
