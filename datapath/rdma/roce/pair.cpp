// A queue pair: what comes to it and what leaves it. Its states are in pair_states.cpp.
#include "datapath/rdma/roce/pair.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "datapath/rdma/device_state.hpp"
#include "datapath/steering/steering.hpp"

namespace ovsdr::soft::roce {

namespace {

[[nodiscard]] ServiceType service_of(const QueuePairSpec& spec) {
    if (spec.type == IBV_QPT_DRIVER && spec.dc) return ServiceType::dc;
    switch (spec.type) {
        case IBV_QPT_RC: return ServiceType::rc;
        case IBV_QPT_UC: return ServiceType::uc;
        case IBV_QPT_UD: return ServiceType::ud;
        case IBV_QPT_XRC_SEND:
        case IBV_QPT_XRC_RECV: return ServiceType::xrc;
        default: throw std::system_error(EOPNOTSUPP, std::generic_category(), "queue pair type");
    }
}

[[nodiscard]] bool is_held(const std::unique_ptr<SendLimit>& limit) noexcept {
    return limit && limit->held_until() != 0;
}

}  // namespace

std::unique_ptr<QueuePair> QueuePair::create(const QueuePairSpec& spec) {
    return std::make_unique<Pair>(spec, spec.state.transport());
}

Pair::Pair(const QueuePairSpec& spec, Transport& transport)
    : spec_(spec),
      engine_(transport.engine_of(spec.qpn)),
      service_(service_of(spec)),
      mtu_(transport.largest_mtu()),
      rendezvous_(spec_.srq != nullptr && spec_.srq->tags() != nullptr ? std::make_unique<Rendezvous>(spec_) : nullptr),
      requester_(*this, rendezvous_ ? rendezvous_->spec() : spec_),
      responder_(*this, peer_) {
    if (spec_.is_dc(MLX5DV_DCTYPE_DCI)) initiator_ = std::make_unique<DcInitiator>(*this, requester_);
    if (spec_.is_dc(MLX5DV_DCTYPE_DCT)) target_ = std::make_unique<DcTarget>(*this);
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
        if (target_) target_->reset();
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
            flush();
            break;
        case IBV_QPS_SQE: requester_.flush(); break;
        default: start_sending(); break;
    }
}

void Pair::start_sending() noexcept {
    if (initiator_) return initiator_->wake();
    requester_.wake();
}

void Pair::flush() noexcept {
    if (initiator_) {
        initiator_->flush();
    } else {
        requester_.flush();
    }
    responder_.flush();
}

void Pair::send_queue_failed(Requester& requester) noexcept {
    if (initiator_) return initiator_->stream_failed(requester);
    if (is_reliable()) return fail();
    state_.store(IBV_QPS_SQE, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    requester_.flush();
}

void Pair::fail() noexcept {
    state_.store(IBV_QPS_ERR, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    flush();
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

void Pair::poll_doorbells() {
    const Engine::Control control(engine_);
    engine_.poll(*this);
    engine_.wake();
}

std::optional<std::uint64_t> Pair::drained_at() const {
    auto& self = const_cast<Pair&>(*this);
    const Engine::Control control(self.engine_);
    if (state() != IBV_QPS_SQD || !requester_.idle()) return std::nullopt;
    return requester_.taken();
}

void Pair::receive(const Arrival& arrival, std::uint64_t now) noexcept {
    const ibv_qp_state state = this->state();
    if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_ERR) return;
    if (arrival.service != service_) return;
    if ((be16toh(arrival.bth.pkey) & 0x7fff) != (default_pkey & 0x7fff)) return;
    if (service_ == ServiceType::dc) return receive_dc(arrival, now);
    if (!is_datagram() && !peer_.has_sent(arrival)) return;
    if (state == IBV_QPS_RTR && !established_ && !is_datagram()) {
        established_ = true;
        event(IBV_EVENT_COMM_EST);
    }
    if (!arrival.operation.is_request()) {
        receive_answer(requester_, arrival, now);
    } else if (spec_.type == IBV_QPT_XRC_SEND) {
        return;
    } else if (is_datagram()) {
        responder_.datagram(arrival);
    } else if (is_reliable()) {
        responder_.request(arrival);
    } else {
        responder_.unreliable_request(arrival);
    }
}

void Pair::receive_answer(Requester& requester, const Arrival& arrival, std::uint64_t now) noexcept {
    switch (arrival.operation.kind) {
        case Kind::acknowledge: return requester.acknowledge(arrival, now);
        case Kind::read_response: return requester.read_response(arrival, now);
        case Kind::atomic_acknowledge: return requester.atomic_acknowledge(arrival, now);
        default: break;  // a request: not for an initiator
    }
}

/// Requests are for a target, answers for one of an initiator's streams.
void Pair::receive_dc(const Arrival& arrival, std::uint64_t now) noexcept {
    if (target_) {
        if (peer_.is_for(arrival)) target_->receive(arrival, now);
        return;
    }
    __be32 number = 0;
    std::memcpy(&number, arrival.extensions, sizeof number);
    Requester* const stream = initiator_->stream(be32toh(number) & mask24);
    if (stream != nullptr && stream->peer().has_sent(arrival)) receive_answer(*stream, arrival, now);
}

unsigned Pair::send(const Outlet& outlet, unsigned budget, std::uint64_t now) noexcept {
    Burst burst(transport(), outlet, spec_.sqn, budget);
    if (target_) {
        target_->send(burst);
    } else if (initiator_) {
        initiator_->send(burst, now);
    } else {
        send_answers(burst, now);
        if (!responder_.ready() || is_held(answers_limit_)) send_requests(burst, now);
    }
    return burst.sent();
}

/// false: not before limit.held_until().
bool Pair::admit(SendLimit& limit, Burst& burst, std::uint64_t now) noexcept {
    const std::uint64_t allowed = limit.begin(now);
    burst.allow(allowed);
    if (allowed == 0) engine_.arm(*this, limit.held_until());
    return allowed != 0;
}

void Pair::send_answers(Burst& burst, std::uint64_t now) noexcept {
    if (!answers_limit_) return responder_.send(burst);
    if (!responder_.ready() || !admit(*answers_limit_, burst, now)) return;
    responder_.send(burst);
    answers_limit_->end(burst.size(), now, responder_.ready());
}

void Pair::send_requests(Burst& burst, std::uint64_t now) noexcept {
    if (!requests_limit_) {
        burst.allow(RateLimit::unlimited);
        return requester_.send(burst, now);
    }
    const bool was_held = is_held(requests_limit_);
    if (!requester_.ready() || !admit(*requests_limit_, burst, now)) return;
    requester_.send(burst, now);
    requests_limit_->end(burst.size(), now, requester_.ready());
    // Time in which nothing may be sent is nobody's silence.
    if (was_held || burst.size() != 0) requester_.restart_timer(now);
}

bool Pair::ready() const noexcept {
    if (target_) return target_->ready();
    if (initiator_) return initiator_->ready();
    return (responder_.ready() && !is_held(answers_limit_)) || (requester_.ready() && !is_held(requests_limit_));
}

std::uint64_t Pair::deadline() const noexcept {
    if (initiator_) return initiator_->deadline();
    const std::uint64_t requests = is_held(requests_limit_) ? requests_limit_->held_until() : requester_.deadline();
    return is_held(answers_limit_) ? std::min(requests, answers_limit_->held_until()) : requests;
}

/// The engine lets the pair send afterwards.
void Pair::timer(std::uint64_t now) noexcept {
    if (initiator_) return initiator_->timer(now);
    if (answers_limit_) answers_limit_->release(now);
    if (!is_held(requests_limit_)) return requester_.timer(now);
    requests_limit_->release(now);
    if (!is_held(requests_limit_)) requester_.restart_timer(now);
}

int Pair::schedule(Scheduler::Element* requests, Scheduler::Element* answers) {
    const auto limit_under = [this](Scheduler::Element* leaf) {
        std::unique_ptr<SendLimit> limit;
        if (leaf == nullptr) return limit;
        limit = std::make_unique<SendLimit>();
        limit->hang_on(spec_.state.scheduler(), *leaf);
        return limit;
    };
    auto requests_limit = limit_under(requests), answers_limit = limit_under(answers);
    const Engine::Control control(engine_);
    if (state() != IBV_QPS_INIT && state() != IBV_QPS_RTS) return EINVAL;
    std::swap(requests_limit_, requests_limit);
    std::swap(answers_limit_, answers_limit);
    engine_.schedule(*this);
    engine_.wake();
    return 0;
}

int Pair::reset_stream(std::uint16_t stream) {
    const Engine::Control control(engine_);
    if (!initiator_ || state() != IBV_QPS_RTS) return EINVAL;
    return initiator_->reset_stream(stream);
}

}  // namespace ovsdr::soft::roce
