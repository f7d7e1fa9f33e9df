#include "datapath/ports/balancer.hpp"

#include <rte_cycles.h>

#include <algorithm>

namespace ovsdr::soft {

Balancer::Balancer(const std::vector<std::unique_ptr<SoftDevice>>& devices, const SoftDevice::Workers& workers,
                   bool moves)
    : devices_(devices), workers_(workers), moves_(moves), before_(workers.size()) {}

Balancer::Clock::time_point Balancer::tick(Clock::time_point now) {
    if (now >= next_) {
        measure_and_move();
        next_ = now + period;
    }
    return next_;
}

// What a worker does at the end of a pass, above all sending, is done for all that it has received: each queue bears as
// much of it as it has of the rest.
void Balancer::measure_and_move() {
    const std::uint64_t now = rte_rdtsc();
    const auto passed = static_cast<double>(now - std::exchange(measured_, now));
    std::vector<double> busy(workers_.size()), charged(workers_.size());
    for (std::size_t i = 0; i < workers_.size(); ++i) {
        const Worker::Statistics statistics = workers_[i]->statistics();
        const Worker::Statistics before = std::exchange(before_[i], statistics);
        busy[i] = std::min(1.0, static_cast<double>(statistics.busy_cycles - before.busy_cycles) / passed);
        charged[i] = static_cast<double>(statistics.other_cycles - before.other_cycles) / passed;
        workers_[i]->set_load(busy[i]);
    }
    struct Place {
        SoftDevice* device;
        PlacedQueue queue;
    };
    std::vector<Place> places;
    std::vector<QueueShare> shares;
    std::map<const QueueLoad*, std::uint64_t> cycles;
    for (const auto& device : devices_) {
        for (const PlacedQueue& queue : device->placed_queues()) {
            const std::uint64_t all = queue.load->cycles.load(std::memory_order_relaxed);
            const auto before = cycles_.find(queue.load.get());
            const bool is_new = before == cycles_.end() || all < before->second;  // at the place of one that has gone
            const double share = static_cast<double>(is_new ? 0 : all - before->second) / passed;
            cycles[queue.load.get()] = all;
            charged[queue.worker] += share;
            places.push_back({&*device, queue});
            shares.push_back({.id = queue.load.get(), .worker = queue.worker, .share = share});
        }
    }
    cycles_ = std::move(cycles);
    for (std::size_t i = 0; i < shares.size(); ++i) {
        QueueShare& each = shares[i];
        if (charged[each.worker] > 0) each.share *= busy[each.worker] / charged[each.worker];
        places[i].queue.load->share.store(each.share, std::memory_order_relaxed);
    }
    if (!moves_) return;
    if (const auto move = rebalancer_.consider(busy, shares)) {
        const Place& place = places[move->queue];
        (void)place.device->move_queue(place.queue.vport, place.queue.port, place.queue.queue, move->to);
    }
}

}  // namespace ovsdr::soft
