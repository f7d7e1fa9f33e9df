// A queue pair's states: which transitions there are, what they require, what they do.
//
// Source: ibv_modify_qp(3); the tables are those of the kernel's ib_modify_qp_is_ok(), which libmlx5's devices are
// behind, and for DC those of mlx5_ib's modify_dci_qp_is_ok() and mlx5_ib_modify_dct(). Alternate paths are
// InfiniBand's: they are not in the tables, as the kernel refuses them for RoCE.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/roce/address.hpp"
#include "datapath/rdma/roce/pair.hpp"

namespace ovsdr::soft::roce {

namespace {

struct Transition {
    ibv_qp_state from, to;
    int required, optional;
};
using Transitions = std::array<Transition, 9>;

constexpr int rtr_connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int rtr_responder = rtr_connected | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int rts_requester =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int init_connected = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int init_datagram = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;

/// What the connected types have in common, with what each requires for RTR and RTS and may set later.
constexpr Transitions connected(int rtr, int rts, int later, int drained) {
    const int path = IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
    const int running = IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE | later;
    return {{{IBV_QPS_RESET, IBV_QPS_INIT, init_connected, 0},
             {IBV_QPS_INIT, IBV_QPS_INIT, 0, init_connected},
             {IBV_QPS_INIT, IBV_QPS_RTR, rtr, path},
             {IBV_QPS_RTR, IBV_QPS_RTS, rts, running},
             {IBV_QPS_RTS, IBV_QPS_RTS, 0, running},
             {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
             {IBV_QPS_SQD, IBV_QPS_RTS, 0, running},
             {IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_AV | path | IBV_QP_PATH_MIG_STATE | drained},
             {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS}}};
}

constexpr Transitions rc = connected(rtr_responder, rts_requester, IBV_QP_MIN_RNR_TIMER,
                                     IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
constexpr Transitions uc = connected(rtr_connected, IBV_QP_SQ_PSN, 0, 0);
constexpr Transitions xrc_send = connected(
    rtr_connected, rts_requester, 0,
    IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
constexpr Transitions xrc_receive = connected(rtr_responder, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, IBV_QP_MIN_RNR_TIMER,
                                              IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC |
                                                  IBV_QP_MIN_RNR_TIMER);
constexpr Transitions ud{{{IBV_QPS_RESET, IBV_QPS_INIT, init_datagram, 0},
                          {IBV_QPS_INIT, IBV_QPS_INIT, 0, init_datagram},
                          {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
                          {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_QKEY},
                          {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_QKEY},
                          {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
                          {IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_QKEY},
                          {IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
                          {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_QKEY}}};

constexpr Transitions dc_initiator{
    {{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0},
     {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT},
     {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV},
     {IBV_QPS_RTR, IBV_QPS_RTS, rts_requester, IBV_QP_MIN_RNR_TIMER},
     {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_MIN_RNR_TIMER},
     {IBV_QPS_INIT, IBV_QPS_ERR, 0, 0},
     {IBV_QPS_RTR, IBV_QPS_ERR, 0, 0},
     {IBV_QPS_RTS, IBV_QPS_ERR, 0, 0},
     {IBV_QPS_ERR, IBV_QPS_ERR, 0, 0}}};
// A target goes this way once, and then there is only its destruction.
constexpr std::array dc_target{
    Transition{IBV_QPS_RESET, IBV_QPS_INIT, init_connected, 0},
    Transition{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, 0}};

[[nodiscard]] std::span<const Transition> transitions_of(const QueuePairSpec& spec) noexcept {
    if (spec.is_dc(MLX5DV_DCTYPE_DCT)) return dc_target;
    switch (spec.type) {
        case IBV_QPT_DRIVER: return dc_initiator;
        case IBV_QPT_UD: return ud;
        case IBV_QPT_UC: return uc;
        case IBV_QPT_XRC_SEND: return xrc_send;
        case IBV_QPT_XRC_RECV: return xrc_receive;
        default: return rc;
    }
}

[[nodiscard]] bool may_move(const QueuePairSpec& spec, ibv_qp_state from, ibv_qp_state to, int mask) noexcept {
    const int attributes = mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
    const std::span<const Transition> transitions = transitions_of(spec);
    if (spec.dc) {
        // The state must be named, and the current one must not.
        if ((mask & (IBV_QP_STATE | IBV_QP_CUR_STATE)) != IBV_QP_STATE) return false;
        if (to == IBV_QPS_RESET) return spec.dc->end == MLX5DV_DCTYPE_DCI && attributes == 0;
    } else if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) {
        return attributes == 0;
    }
    return std::any_of(transitions.begin(), transitions.end(), [&](const Transition& allowed) {
        return allowed.from == from && allowed.to == to && (attributes & allowed.required) == allowed.required &&
               (attributes & ~(allowed.required | allowed.optional)) == 0;
    });
}

[[nodiscard]] bool values_fit(const ibv_qp_attr& attr, int mask) noexcept {
    constexpr unsigned retries = 7, timers = 31;
    const auto bad = [mask](int bit, bool wrong) { return (mask & bit) && wrong; };
    // Applications give a queue the flags of its regions: paging on demand is the memory's affair.
    constexpr unsigned known_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND;
    return !(bad(IBV_QP_PORT, attr.port_num != roce_port) || bad(IBV_QP_PKEY_INDEX, attr.pkey_index != 0) ||
             bad(IBV_QP_ACCESS_FLAGS, attr.qp_access_flags & ~known_access) ||
             bad(IBV_QP_PATH_MTU, attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096) ||
             bad(IBV_QP_TIMEOUT, attr.timeout > timers) || bad(IBV_QP_RETRY_CNT, attr.retry_cnt > retries) ||
             bad(IBV_QP_RNR_RETRY, attr.rnr_retry > retries) ||
             bad(IBV_QP_MIN_RNR_TIMER, attr.min_rnr_timer > timers) ||
             bad(IBV_QP_MAX_QP_RD_ATOMIC, attr.max_rd_atomic > Responder::most_reads) ||
             bad(IBV_QP_MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic > Responder::most_reads) ||
             bad(IBV_QP_PATH_MIG_STATE, attr.path_mig_state != IBV_MIG_MIGRATED));
}

}  // namespace

int Pair::modify(const ibv_qp_attr& attr, int mask) {
    const std::lock_guard one_at_a_time(modify_mutex_);
    const auto expected_from = [&] { return mask & IBV_QP_CUR_STATE ? attr.cur_qp_state : state(); };
    const ibv_qp_state from = expected_from();
    const ibv_qp_state to = mask & IBV_QP_STATE ? attr.qp_state : from;
    if (from != state() || !may_move(spec_, from, to, mask) || !values_fit(attr, mask)) return EINVAL;
    mlx5_wqe_av vector{};
    if ((mask & IBV_QP_AV) && spec_.dc) {
        // Destinations are the entries'; here is only where we are.
        if (!attr.ah_attr.is_global || attr.ah_attr.grh.sgid_index >= transport().addresses().gids.size()) {
            return EINVAL;
        }
    } else if (mask & IBV_QP_AV) {
        // May wait for the neighbour: without the engine's lock.
        if (const int error = resolve(spec_.state, attr.ah_attr, vector)) return error;
    }
    const Engine::Control control(engine_);
    // A worker may have moved the queue to ERR or SQE meanwhile; that stands.
    if (to != IBV_QPS_RESET && to != IBV_QPS_ERR && state() != from) return EINVAL;
    set(attr, mask);
    if ((mask & IBV_QP_AV) && !spec_.dc) set_path(vector);
    enter(from, to);
    return 0;
}

void Pair::set(const ibv_qp_attr& attr, int mask) noexcept {
    if (mask & IBV_QP_PORT) attr_.port_num = attr.port_num;
    if (mask & IBV_QP_ACCESS_FLAGS) attr_.qp_access_flags = attr.qp_access_flags;
    if (mask & IBV_QP_QKEY) attr_.qkey = attr.qkey;
    if (mask & IBV_QP_AV) attr_.ah_attr = attr.ah_attr;
    if (mask & IBV_QP_AV) peer_.set_own(transport().addresses().gids[attr.ah_attr.grh.sgid_index]);
    if (mask & IBV_QP_PATH_MTU) {
        attr_.path_mtu = attr.path_mtu;
        mtu_ = 128u << attr.path_mtu;
    }
    if (mask & IBV_QP_DEST_QPN) peer_.qpn = attr_.dest_qp_num = attr.dest_qp_num & mask24;
    if (mask & IBV_QP_RQ_PSN) attr_.rq_psn = attr.rq_psn & mask24;
    if (mask & IBV_QP_SQ_PSN) attr_.sq_psn = attr.sq_psn & mask24;
    if (mask & IBV_QP_TIMEOUT) attr_.timeout = attr.timeout;
    if (mask & IBV_QP_RETRY_CNT) attr_.retry_cnt = attr.retry_cnt;
    if (mask & IBV_QP_RNR_RETRY) attr_.rnr_retry = attr.rnr_retry;
    if (mask & IBV_QP_MIN_RNR_TIMER) attr_.min_rnr_timer = attr.min_rnr_timer;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC) attr_.max_rd_atomic = attr.max_rd_atomic;
    if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) attr_.max_dest_rd_atomic = attr.max_dest_rd_atomic;
    if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) attr_.en_sqd_async_notify = attr.en_sqd_async_notify;
}

void Pair::set_path(const mlx5_wqe_av& vector) noexcept {
    const Addresses& own = transport().addresses();
    const std::uint32_t grh = be32toh(vector.grh_gid_fl);
    std::memcpy(peer_.gid.raw, vector.rgid, sizeof peer_.gid.raw);
    const std::uint32_t label = grh & 0xfffff;
    PathSpec path{.source_mac = own.mac,
                  .source = peer_.own_gid,
                  .destination = peer_.gid,
                  .traffic_class = vector.tclass,
                  .hop_limit = vector.hop_limit,
                  .flow_label = label,
                  .udp_source = label != 0 ? be16toh(vector.rlid)
                                           : udp_source_port(flow_label_of(spec_.qpn, attr_.dest_qp_num)),
                  .local = own.holds(peer_.gid, peer_.own_vlan),
                  .vlan = peer_.own_vlan,
                  .priority = priority_of(vector)};
    std::copy(std::begin(vector.rmac), std::end(vector.rmac), path.destination_mac.begin());
    peer_.path = make_path(path);
}

int Pair::set_udp_source_port(std::uint16_t port) {
    const std::lock_guard one_at_a_time(modify_mutex_);
    const Engine::Control control(engine_);
    if (state() != IBV_QPS_RTS) return EINVAL;
    peer_.path.set_udp_source(port);
    return 0;
}

void Pair::enter(ibv_qp_state from, ibv_qp_state to) noexcept {
    if (to == IBV_QPS_ERR) return from == IBV_QPS_RESET ? state_.store(IBV_QPS_ERR) : fail();
    if (to == IBV_QPS_RESET) {
        state_.store(IBV_QPS_RESET, std::memory_order_seq_cst);
        attr_ = {};
        established_ = last_entry_reported_ = false;
        mtu_ = transport().largest_mtu();
        next_block_ = 0;
        requester_.reset();
        if (initiator_) initiator_->reset();
        if (rendezvous_) rendezvous_->reset();
        responder_.reset();
        if (target_) target_->reset();
        requests_limit_.reset();
        answers_limit_.reset();
        return;
    }
    state_.store(to, std::memory_order_seq_cst);
    if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) responder_.start(attr_.rq_psn);
    if (from == IBV_QPS_INIT && to == IBV_QPS_RTR && target_) attr_.max_dest_rd_atomic = Responder::most_reads;
    if (from == IBV_QPS_RTR && to == IBV_QPS_RTS) {
        initiator_ ? initiator_->start(attr_.sq_psn) : requester_.start(attr_.sq_psn);
    }
    if (to == IBV_QPS_SQD && from != IBV_QPS_SQD) drain_reported_ = attr_.en_sqd_async_notify == 0;
    if (to == IBV_QPS_RTS || to == IBV_QPS_SQD) {
        start_sending();
        if (spec_.polled) engine_.look_closely();
        engine_.schedule(*this);
        engine_.wake();
    }
}

void Pair::stop() noexcept {
    const Engine::Control control(engine_);
    enter(state(), IBV_QPS_RESET);
}

void Pair::query(ibv_qp_attr& attr) const {
    auto& self = const_cast<Pair&>(*this);
    const Engine::Control control(self.engine_);
    const ibv_qp_cap cap = attr.cap;
    attr = attr_;
    attr.cap = cap;
    attr.qp_state = attr.cur_qp_state = state();
    attr.sq_draining = state() == IBV_QPS_SQD && !requester_.idle();
    attr.path_mig_state = IBV_MIG_MIGRATED;
    if (state() == IBV_QPS_RESET || state() == IBV_QPS_INIT) return;
    attr.rq_psn = responder_.expected_psn();
    if (state() != IBV_QPS_RTR) attr.sq_psn = requester_.next_psn();
}

}  // namespace ovsdr::soft::roce
