#include "datapath/ports/placement.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

namespace ovsdr::soft {

unsigned choose_worker(std::span<const WorkerLoad> workers) noexcept {
    const auto rank = [](const WorkerLoad& worker) {
        return std::tuple(worker.siblings, std::lround(worker.busy * 10), worker.queues);
    };
    const auto best = std::min_element(workers.begin(), workers.end(),
                                       [&](const auto& left, const auto& right) { return rank(left) < rank(right); });
    return static_cast<unsigned>(best - workers.begin());
}

void Rebalancer::pass_a_period(std::span<const double> busy) {
    saturated_periods_.resize(busy.size());
    for (std::size_t i = 0; i < busy.size(); ++i) {
        saturated_periods_[i] = busy[i] >= saturated ? saturated_periods_[i] + 1 : 0;
    }
    if (settling_ > 0) --settling_;
    for (auto item = stays_.begin(); item != stays_.end();) {
        item = --item->second == 0 ? stays_.erase(item) : std::next(item);
    }
}

std::optional<QueueMove> Rebalancer::consider(std::span<const double> busy, std::span<const QueueShare> queues) {
    pass_a_period(busy);
    if (settling_ > 0 || busy.size() < 2) return std::nullopt;
    const auto to = static_cast<unsigned>(std::min_element(busy.begin(), busy.end()) - busy.begin());
    std::optional<QueueMove> best;
    double best_gain = 0;
    for (std::size_t i = 0; i < queues.size(); ++i) {
        const QueueShare& queue = queues[i];
        if (queue.worker == to || saturated_periods_[queue.worker] < saturated_for || stays_.contains(queue.id)) {
            continue;
        }
        const double there = busy[to] + queue.share, here = busy[queue.worker] - queue.share;
        const double gain = busy[queue.worker] - std::max(there, here);
        if (there > filled || gain < least_gain || gain <= best_gain) continue;
        best_gain = gain;
        best = {.queue = i, .to = to};
    }
    if (!best) return std::nullopt;
    settling_ = settling;
    moved(queues[best->queue].id);
    std::fill(saturated_periods_.begin(), saturated_periods_.end(), 0);
    return best;
}

}  // namespace ovsdr::soft
