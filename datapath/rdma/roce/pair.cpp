// A queue pair: what comes to it and what leaves it. Its states are in pair_states.cpp.
#include "datapath/rdma/roce/pair.hpp"

#include <cerrno>
#include <cstring>
#include <system_error>

#include "datapath/rdma/device_state.hpp"
#include "datapath/steering/steering.hpp"

namespace ovsdr::soft::roce {

namespace {

[[nodiscard]] ServiceType service_of(ibv_qp_type type) {
    switch (type) {
        case IBV_QPT_RC: return ServiceType::rc;
        case IBV_QPT_UC: return ServiceType::uc;
        case IBV_QPT_UD: return ServiceType::ud;
        case IBV_QPT_XRC_SEND:
        case IBV_QPT_XRC_RECV: return ServiceType::xrc;
        default: throw std::system_error(EOPNOTSUPP, std::generic_category(), "queue pair type");
    }
}

}  // namespace

std::unique_ptr<QueuePair> QueuePair::create(const QueuePairSpec& spec) {
    return std::make_unique<Pair>(spec, spec.state.transport());
}

Pair::Pair(const QueuePairSpec& spec, Transport& transport)
    : spec_(spec),
      engine_(transport.engine_of(spec.qpn)),
      service_(service_of(spec.type)),
      mtu_(transport.largest_mtu()),
      requester_(*this),
      responder_(*this) {
    attr_.qp_state = IBV_QPS_RESET;
    // The kernel's own rule in switchdev mode: what the manager's queues send goes to the wire.
    spec_.state.device().steering().cotenant_send_rule(spec_.sqn, uplink_vport);
    const Engine::Control control(engine_);
    engine_.add(*this);
}

Pair::~Pair() {
    {
        const Engine::Control control(engine_);
        engine_.remove(*this);
        responder_.reset();
    }
    spec_.state.device().steering().remove_cotenant_send_rule(spec_.sqn);
}

void Pair::ring_send() noexcept {
    engine_.ring(*this);
}

void Pair::ring_receive() noexcept {
    // Only a failed queue has something to do at once: flush. See fail() for the other half of this.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (state() == IBV_QPS_ERR) engine_.ring(*this);
}

bool Pair::has_posts() const noexcept {
    const ibv_qp_state now = state();
    if (now == IBV_QPS_ERR) return requester_.has_posts() || responder_.has_posts();
    return (now == IBV_QPS_RTS || now == IBV_QPS_SQE) && requester_.posted() != seen_;
}

void Pair::doorbell() noexcept {
    seen_ = requester_.posted();
    switch (state()) {
        case IBV_QPS_ERR:
            requester_.flush();
            responder_.flush();
            break;
        case IBV_QPS_SQE: requester_.flush(); break;
        default: requester_.wake(); break;
    }
}

void Pair::send_queue_failed() noexcept {
    if (is_reliable()) return fail();
    state_.store(IBV_QPS_SQE, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    requester_.flush();
}

void Pair::fail() noexcept {
    if (state() == IBV_QPS_RESET) return;
    state_.store(IBV_QPS_ERR, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    requester_.flush();
    responder_.flush();
    if (spec_.srq == nullptr || last_entry_reported_) return;
    last_entry_reported_ = true;
    event(IBV_EVENT_QP_LAST_WQE_REACHED);
}

void Pair::drained() noexcept {
    if (drain_reported_) return;
    drain_reported_ = true;
    event(IBV_EVENT_SQ_DRAINED);
}

void Pair::stop_sending() noexcept {
    ibv_qp_state running = IBV_QPS_RTS;
    if (state_.compare_exchange_strong(running, IBV_QPS_SQD)) drain_reported_ = false;
}

std::optional<std::uint64_t> Pair::drained_at() const {
    auto& self = const_cast<Pair&>(*this);
    const Engine::Control control(self.engine_);
    if (state() != IBV_QPS_SQD || !requester_.idle()) return std::nullopt;
    return requester_.taken();
}

bool Pair::is_from_peer(const Arrival& arrival) const noexcept {
    return std::memcmp(&arrival.source, &peer_gid_, sizeof peer_gid_) == 0 &&
           std::memcmp(&arrival.destination, &own_gid_, sizeof own_gid_) == 0;
}

void Pair::receive(const Arrival& arrival, std::uint64_t now) noexcept {
    const ibv_qp_state state = this->state();
    if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_ERR) return;
    if (arrival.service != service_) return;
    if ((be16toh(arrival.bth.pkey) & 0x7fff) != (default_pkey & 0x7fff)) return;
    if (!is_datagram() && !is_from_peer(arrival)) return;
    if (state == IBV_QPS_RTR && !established_ && !is_datagram()) {
        established_ = true;
        event(IBV_EVENT_COMM_EST);
    }
    const bool sends = spec_.type != IBV_QPT_XRC_RECV;
    switch (arrival.operation.kind) {
        case Kind::acknowledge:
            if (sends) requester_.acknowledge(arrival, now);
            break;
        case Kind::read_response:
            if (sends) requester_.read_response(arrival, now);
            break;
        case Kind::atomic_acknowledge:
            if (sends) requester_.atomic_acknowledge(arrival, now);
            break;
        default:
            if (spec_.type == IBV_QPT_XRC_SEND) break;
            if (is_datagram()) {
                responder_.datagram(arrival);
            } else if (is_reliable()) {
                responder_.request(arrival);
            } else {
                responder_.unreliable_request(arrival);
            }
    }
}

unsigned Pair::send(const Outlet& outlet, unsigned budget, std::uint64_t now) noexcept {
    if (state() == IBV_QPS_RESET) return 0;
    Burst burst(transport(), outlet, spec_.sqn, budget);
    responder_.send(burst);
    if (!responder_.ready()) requester_.send(burst, now);
    return burst.sent();
}

void Pair::timer(std::uint64_t now) noexcept {
    requester_.timer(now);
}

}  // namespace ovsdr::soft::roce
