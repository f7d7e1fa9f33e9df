#include "tests/differential/judge/port_queues.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "offload/dr/device/ib_port.hpp"
#include "tests/differential/judge/frames.hpp"
#include "tests/differential/judge/megaflows.hpp"

namespace ovsdr::differential {

namespace {

/// One protocol of a version, then the version; and a version of which one protocol only has a queue.
constexpr IpKind kinds[] = {{4, protocol_tcp}, {4, 0}, {6, protocol_udp}};

constexpr unsigned most_tries = 100;   ///< a device may be full for a moment (device_faults.hpp)

std::unique_ptr<slowpath::PortQueue> make_queue(const dr::Eswitch& eswitch, dr::VportId vport) {
    const auto ib_port = dr::find_ib_port(eswitch.context(), vport);
    if (!ib_port) throw std::runtime_error(ib_port.error().what);
    std::string why;
    for (unsigned nth = 0; nth < most_tries; ++nth) {
        auto queue = slowpath::PortQueue::create(
            {.context = eswitch.context(), .pd = eswitch.pd(), .ib_port = ib_port->number});
        if (queue) return std::move(*queue);
        why = std::move(queue.error().what);
    }
    throw std::runtime_error(why);
}

}  // namespace

PortQueues::PortQueues(const dr::Eswitch& eswitch, dr::VportId vport, bool has_kinds) {
    queues_.push_back(make_queue(eswitch, vport));
    if (!has_kinds) return;
    for (const auto& [version, protocol] : kinds) {
        queues_.push_back(make_queue(eswitch, vport));
        by_kind_.push_back({queues_.back()->qp(), version, protocol});
    }
}

bool PortQueues::has(std::uint32_t queue_pair) const {
    return std::ranges::any_of(queues_, [&](const auto& queue) { return queue->qp()->qp_num == queue_pair; });
}

void PortQueues::check_kind(std::uint32_t queue_pair, const std::vector<std::uint8_t>& frame) const {
    const auto kind = ip_kind_of(frame);
    if (!kind) return;
    const auto takes = [&](const dr::QueuePairFor& queue) {
        return queue.ip_version == kind->version &&
               (queue.ip_protocol == 0 || queue.ip_protocol == kind->protocol);
    };
    const auto wanted = std::ranges::find_if(by_kind_, takes);
    const ibv_qp* const queue = wanted == by_kind_.end() ? queues_.front()->qp() : wanted->qp;
    if (queue->qp_num == queue_pair) return;
    throw std::runtime_error(fmt::format("a packet came up at the queue for others: {:02x}", fmt::join(frame, "")));
}

}  // namespace ovsdr::differential
