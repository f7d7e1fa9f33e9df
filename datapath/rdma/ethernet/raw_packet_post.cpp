// The application's side of a raw packet QP: posting and states.
#include <array>
#include <cerrno>
#include <cstring>

#include "datapath/rdma/ethernet/raw_packet_qp.hpp"

namespace ovsdr::soft {

namespace {

/// What ibv_modify_qp(3) lets a raw packet QP do: required and optional attributes beside the state itself.
struct Transition {
    ibv_qp_state from, to;
    int required, optional;
};

constexpr std::array transitions{
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PORT, 0},
    Transition{IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PORT},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR, 0, 0},
    Transition{IBV_QPS_RTR, IBV_QPS_RTS, 0, IBV_QP_RATE_LIMIT},
    Transition{IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_RATE_LIMIT},
    Transition{IBV_QPS_RTS, IBV_QPS_SQD, 0, 0},
    Transition{IBV_QPS_SQD, IBV_QPS_RTS, 0, 0},
    Transition{IBV_QPS_SQD, IBV_QPS_SQD, 0, 0},
};

[[nodiscard]] bool may_move(ibv_qp_state from, ibv_qp_state to, int mask) {
    const int attributes = mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return attributes == 0;
    for (const Transition& allowed : transitions) {
        if (allowed.from != from || allowed.to != to) continue;
        return (attributes & allowed.required) == allowed.required &&
               (attributes & ~(allowed.required | allowed.optional)) == 0;
    }
    return false;
}

}  // namespace

int RawPacketQp::modify(const ibv_qp_attr& attr, int mask, unsigned ports) {
    std::lock_guard guard(modify_mutex_);
    const ibv_qp_state from = mask & IBV_QP_CUR_STATE ? attr.cur_qp_state : state();
    const ibv_qp_state to = mask & IBV_QP_STATE ? attr.qp_state : from;
    if (from != state() || !may_move(from, to, mask)) return EINVAL;
    if ((mask & IBV_QP_PORT) && (attr.port_num == 0 || attr.port_num > ports)) return EINVAL;
    if (to == IBV_QPS_RESET) {
        reset();
    } else if (to == IBV_QPS_ERR) {
        state_.store(IBV_QPS_ERR, std::memory_order_seq_cst);
        fail();
        lift_limits();
    } else {
        ibv_qp_state expected = from;  // A worker may have moved the QP to ERR meanwhile; that stands.
        if (!state_.compare_exchange_strong(expected, to)) return EINVAL;
        if (to == IBV_QPS_INIT) may_receive_ = true;
        if (to == IBV_QPS_RTR) receiver_.open();
        if (to == IBV_QPS_RTS) start_sending();
    }
    return 0;
}

void RawPacketQp::start_sending() {
    may_send_ = true;
    if (!sending_ && limited_) {
        spec_.device.add_service(worker(), {&RawPacketQp::run, &RawPacketQp::deadline, this});
    } else if (!sending_) {
        spec_.device.add_send_source(SendSource{&RawPacketQp::poll, this, spec_.sqn});
    }
    sending_ = true;
    spec_.device.ring_doorbell(spec_.sqn);
}

void RawPacketQp::stop_sending() noexcept {
    if (sending_ && limited_) {
        spec_.device.remove_service(worker(), this);
    } else if (sending_) {
        spec_.device.remove_send_source(spec_.sqn);
    }
    sending_ = false;
}

/// Under modify_mutex_.
template <typename Change>
void RawPacketQp::change_limit(Change change) {
    const bool was_sending = sending_;
    bool limited = false;
    {
        const std::lock_guard guard(execute_mutex_);
        change(limit_);
        limited = limit_.limits();
    }
    if (limited != limited_) {
        stop_sending();
        limited_ = limited;
    }
    if (was_sending) start_sending();
}

void RawPacketQp::lift_limits() {
    change_limit([](SendLimit& limit) {
        limit.set_rate(0);
        limit.leave();
    });
}

void RawPacketQp::limit_rate(std::uint32_t kilobits) {
    const std::lock_guard guard(modify_mutex_);
    change_limit([&](SendLimit& limit) { limit.set_rate(kilobits); });
}

int RawPacketQp::schedule(Scheduler& scheduler, Scheduler::Element* leaf) {
    const std::lock_guard guard(modify_mutex_);
    if (state() != IBV_QPS_RTS) return EOPNOTSUPP;
    change_limit([&](SendLimit& limit) { leaf ? limit.hang_on(scheduler, *leaf) : limit.leave(); });
    return 0;
}

void RawPacketQp::reset() {
    state_.store(IBV_QPS_RESET, std::memory_order_seq_cst);
    may_send_ = may_receive_ = false;
    stop_sending();
    lift_limits();
    {
        std::scoped_lock guard(post_mutex_, execute_mutex_);
        spec_.send_queue.forget(spec_.qpn);
        send_.reset();
        segment_ = {};
    }
    receiver_.reset();
}

int RawPacketQp::stage(unsigned ahead, std::uint64_t wr_id, unsigned flags, const Payload& payload) noexcept {
    if (payload.mss) {
        constexpr std::size_t ethernet_header = 14;
        const bool fits = payload.header.size() >= ethernet_header && payload.header.size() <= spec_.max_tso_header;
        if (!fits || !payload.inline_bufs.empty()) return EINVAL;
    }
    if (payload.sges.size() > spec_.cap.max_send_sge) return ENOMEM;
    WorkQueue::Request* const request = send_.room(ahead);
    if (!request) return ENOMEM;
    request->wr_id = wr_id;
    request->signaled = spec_.all_signaled || (flags & IBV_SEND_SIGNALED);
    request->solicited = flags & IBV_SEND_SOLICITED;
    request->checksums = flags & IBV_SEND_IP_CSUM;
    request->mss = payload.mss;
    request->header_size = static_cast<std::uint16_t>(payload.header.size());
    std::copy(payload.header.begin(), payload.header.end(), request->inline_room());
    request->inline_size = 0;
    request->sge_length = static_cast<std::uint32_t>(payload.sges.size());
    std::copy(payload.sges.begin(), payload.sges.end(), request->sge_room());
    for (const ibv_data_buf& buffer : payload.inline_bufs) {
        if (buffer.length > spec_.cap.max_inline_data - request->inline_size) return ENOMEM;
        std::memcpy(request->inline_room() + request->inline_size, buffer.addr, buffer.length);
        request->inline_size += static_cast<std::uint32_t>(buffer.length);
    }
    return 0;
}

void RawPacketQp::publish_send(unsigned count) {
    if (count == 0) return;
    send_.publish(count);
    if (state() == IBV_QPS_ERR) flush_send();
}

int RawPacketQp::post_send(ibv_send_wr* first, ibv_send_wr** bad) {
    const int error = publish_all(first, bad);
    ring_doorbell();
    return error;
}

int RawPacketQp::publish_all(ibv_send_wr* first, ibv_send_wr** bad) {
    const std::lock_guard guard(post_mutex_);
    unsigned staged = 0;
    int error = 0;
    ibv_send_wr* request = first;
    for (; request; request = request->next) {
        const bool segments = request->opcode == IBV_WR_TSO;
        if (!may_send() || request->num_sge < 0) error = ENOMEM;
        if (request->opcode != IBV_WR_SEND && !segments) error = EINVAL;
        if (segments && ((request->send_flags & IBV_SEND_INLINE) || !request->tso.mss)) error = EINVAL;
        std::array<ibv_data_buf, 64> pieces;
        Payload payload{{request->sg_list, static_cast<std::size_t>(request->num_sge)}, {}};
        if (segments) {
            payload.header = {static_cast<const std::byte*>(request->tso.hdr), request->tso.hdr_sz};
            payload.mss = request->tso.mss;
        }
        if (!error && (request->send_flags & IBV_SEND_INLINE)) {
            if (payload.sges.size() > spec_.cap.max_send_sge) error = ENOMEM;
            for (std::size_t i = 0; !error && i < payload.sges.size(); ++i) {
                pieces[i] = {reinterpret_cast<void*>(payload.sges[i].addr), payload.sges[i].length};
            }
            payload = Payload{{}, {pieces.data(), error ? 0 : payload.sges.size()}};
        }
        if (!error) error = stage(staged, request->wr_id, request->send_flags, payload);
        if (error) break;
        ++staged;
    }
    if (error) *bad = request;
    publish_send(staged);
    return error;
}

}  // namespace ovsdr::soft
