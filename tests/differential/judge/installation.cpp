#include <infiniband/verbs.h>

#include <stdexcept>
#include <variant>

#include "offload/dr/device/ib_port.hpp"
#include "tests/differential/judge/judges.hpp"

namespace ovsdr::differential {

namespace {

dr::Ufid ufid_of(std::size_t number) { return {0x6d656761, number}; }

template <typename T>
T checked(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().what);
    return std::move(*result);
}

}  // namespace

Installation::Installation() : eswitch_(checked(dr::Eswitch::open("mlx5_0"))) {
    for (const PortNumber& port : ports) {
        const dr::VportId vport{port.vport};
        const dr::IbPort ib_port = checked(dr::find_ib_port(eswitch_->context(), vport));
        queues_.push_back(checked(slowpath::PortQueue::create(
            {.context = eswitch_->context(), .pd = eswitch_->pd(), .ib_port = ib_port.number})));
        const auto attached = eswitch_->attach_port({dr::OdpPort{port.odp}, vport, "port" + std::to_string(port.odp),
                                                     queues_.back()->qp(), queues_.back()->sqn()});
        if (!attached) throw std::runtime_error(attached.error().what);
    }
}

Installation::~Installation() {
    for (const PortNumber& port : ports) eswitch_->detach_port(dr::VportId{port.vport});
    queues_.clear();
}

void Installation::put(const std::vector<ovsdr_megaflow>& megaflows, Verdict& verdict) {
    verdict.megaflows.resize(megaflows.size());
    for (std::size_t i = 0; i < megaflows.size(); ++i) {
        const dr::PutOutcome outcome = eswitch_->put(ufid_of(i), megaflows[i]);
        if (const auto* error = std::get_if<Error>(&outcome)) throw std::runtime_error(error->what);
        verdict.megaflows[i].installed = std::holds_alternative<std::monostate>(outcome);
    }
}

void Installation::remove(Verdict& verdict) {
    std::vector<dr::Eswitch::Deletion> deletions;
    for (std::size_t i = 0; i < verdict.megaflows.size(); ++i) deletions.push_back({ufid_of(i)});
    eswitch_->del(deletions);
    for (std::size_t i = 0; i < deletions.size(); ++i) {
        if (!deletions[i].last) continue;
        verdict.megaflows[i].packets = deletions[i].last->packets;
        verdict.megaflows[i].bytes = deletions[i].last->bytes;
    }
}

std::uint32_t Installation::port_of_queue(std::uint32_t queue_pair) const {
    for (std::size_t i = 0; i < queues_.size(); ++i) {
        if (queues_[i]->qp()->qp_num == queue_pair) return ports[i].odp;
    }
    return 0;
}

}  // namespace ovsdr::differential
