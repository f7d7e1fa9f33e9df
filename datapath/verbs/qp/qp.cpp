// Queue pairs: the functions of the ABI, and raw packet QPs. RDMA queue pairs are in qp_rdma*.cpp, RSS in rss.cpp.
#include <cstring>

#include "datapath/control/fault.hpp"
#include "datapath/steering/steering.hpp"
#include "datapath/verbs/limits.hpp"
#include "datapath/verbs/objects.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"
#include "datapath/verbs/wqe/qp_layout.hpp"

namespace ovsdr::soft {

namespace {

/// There is no PCI to pad for; a source QPN is IPoIB's, and datagram queues'.
[[nodiscard]] int check_flags(std::uint32_t flags) {
    constexpr std::uint32_t offered =
        IBV_QP_CREATE_SCATTER_FCS | IBV_QP_CREATE_CVLAN_STRIPPING | IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
    if (flags & ~(offered | IBV_QP_CREATE_PCI_WRITE_END_PADDING)) return EINVAL;
    return flags & ~offered ? EOPNOTSUPP : 0;
}

[[nodiscard]] int check(const ibv_qp_init_attr_ex& attr) {
    constexpr std::uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    constexpr std::uint32_t others = IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    if (attr.comp_mask & ~(known | others)) return EINVAL;
    if ((attr.comp_mask & others) || attr.srq) return EOPNOTSUPP;
    if (const int error = check_flags(attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? attr.create_flags : 0)) {
        return error;
    }
    if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (attr.send_ops_flags & ~raw_packet_operations)) {
        return EOPNOTSUPP;
    }
    if (!(attr.comp_mask & IBV_QP_INIT_ATTR_PD) || !attr.pd || !attr.send_cq || !attr.recv_cq) return EINVAL;
    return attr.cap.max_send_wr || attr.cap.max_recv_wr ? 0 : EINVAL;
}

[[nodiscard]] std::unique_ptr<RawPacketQp> make_raw(const ibv_qp_init_attr_ex& attr, const ibv_qp_cap& cap) {
    DeviceState& state = Context::of(attr.pd->context).state;
    NumberPool& numbers = state.queue_numbers();
    const std::uint32_t flags = attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? attr.create_flags : 0;
    const bool segments = attr.comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    return std::make_unique<RawPacketQp>(
        RawPacketQpSpec{.device = state.device(),
                        .memory = state.memory(),
                        .mempool = state.mempool(),
                        .domain = Pd::of(attr.pd).domain(),
                        .send_queue = *Cq::of(attr.send_cq).queue,
                        .receive_queue = *Cq::of(attr.recv_cq).queue,
                        .cap = cap,
                        .all_signaled = attr.sq_sig_all != 0,
                        .qpn = numbers.take(),
                        .sqn = numbers.take(),
                        .rqn = numbers.take(),
                        .tirn = numbers.take(),
                        .tisn = numbers.take(),
                        .max_tso_header = segments ? attr.max_tso_header : std::uint16_t{0},
                        .block_own_multicasts = (flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0,
                        .receive = {.strip_cvlan = (flags & IBV_QP_CREATE_CVLAN_STRIPPING) != 0,
                                    .scatter_fcs = (flags & IBV_QP_CREATE_SCATTER_FCS) != 0},
                        .allocate = Pd::of(attr.pd).allocator(MLX5DV_RES_TYPE_QP)});
}

[[nodiscard]] ibv_qp* create(ibv_context* context, ibv_qp_init_attr_ex& attr, const char* call) noexcept {
    int error = injected_fault(call);
    const bool spreads = attr.comp_mask & (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH);
    if (!error && spreads) return create_rss_qp(context, attr);
    if (!error && is_rdma(attr.qp_type)) return create_rdma_qp(context, attr, nullptr);
    QpLayout layout;
    if (!error) error = check(attr);
    if (!error) error = lay_out(attr, 0, layout);
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&] {
        auto qp = std::make_unique<Qp>();
        qp->raw = make_raw(attr, layout.granted({}));
        attr.cap = layout.granted(attr.cap);
        ibv_qp& base = qp->qp_base;
        base.context = context;
        base.qp_context = attr.qp_context;
        base.pd = attr.pd;
        base.send_cq = attr.send_cq;
        base.recv_cq = attr.recv_cq;
        base.qp_num = base.handle = qp->raw->spec().qpn;
        base.state = IBV_QPS_RESET;
        base.qp_type = attr.qp_type;
        pthread_mutex_init(&base.mutex, nullptr);
        pthread_cond_init(&base.cond, nullptr);
        std::memcpy(&qp->created_with, &attr, sizeof qp->created_with);
        if (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) set_send_operations(*qp);
        DeviceState& state = Context::of(context).state;
        state.add_receive_queue(qp->raw->spec().rqn, qp->raw->receiver());
        Context::of(context).add(*qp);
        Pd::of(attr.pd).users.fetch_add(1);
        return qp.release()->base();
    });
}

/// The kernel's own rule in switchdev mode: what a QP of an IB port sends goes to that port's vport. The manager's own
/// port has no such rule.
void set_cotenant_rule(Qp& qp) {
    DeviceState& state = Context::of(qp.qp_base.context).state;
    const auto vport = state.vport_of(qp.port);
    const std::uint32_t sqn = qp.raw->spec().sqn;
    state.device().steering().remove_cotenant_send_rule(sqn);
    if (vport && *vport != manager_vport) state.device().steering().cotenant_send_rule(sqn, *vport);
}

/// A queue that went without a rule has its way in the flow caches too, and its number may get a rule next, which is
/// new to steering: it forgets nothing for it.
void forget_way_of(Steering& steering, std::uint32_t sqn) {
    steering.remove_cotenant_send_rule(sqn);
    steering.forget_cached(manager_vport);
}

}  // namespace

int modify_raw_qp(Qp& qp, const ibv_qp_attr& attr, int mask) {
    ibv_qp& base = qp.qp_base;
    DeviceState& state = Context::of(base.context).state;
    RateTable::Hold rate;
    if ((mask & IBV_QP_RATE_LIMIT) && attr.rate_limit) {
        if (const int error = state.rates().take(attr.rate_limit, false, rate)) return error;
    }
    const ibv_qp_state before = qp.raw->state();
    if (const int error = qp.raw->modify(attr, mask, state.ports())) return error;
    base.state = qp.raw->state();
    if (before == IBV_QPS_RESET && base.state == IBV_QPS_INIT) {
        const unsigned port = Context::of(base.context).next_lag_port();  // a turn, with or without a send queue
        if (qp.raw->spec().cap.max_send_wr != 0) qp.raw->lag_affinity().set(port);
    }
    if (mask & IBV_QP_PORT) {
        qp.port = attr.port_num;
        set_cotenant_rule(qp);
    }
    if (mask & IBV_QP_RATE_LIMIT) qp.raw->limit_rate(attr.rate_limit);
    const bool stopped = base.state == IBV_QPS_RESET || base.state == IBV_QPS_ERR;
    if ((mask & IBV_QP_RATE_LIMIT) || stopped) qp.rate = std::move(rate);
    if (base.state == IBV_QPS_RESET) {
        qp.port = 0;
        forget_way_of(state.device().steering(), qp.raw->spec().sqn);
    }
    return 0;
}

ibv_qp* create_qp_ex_op(ibv_context* context, ibv_qp_init_attr_ex* attr) {
    return create(context, *attr, "ibv_create_qp_ex");
}

int post_send_op(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad) {
    int error = injected_fault("ibv_post_send");
    if (!error && Qp::of(qp).rss) error = EINVAL;  // It has no queue.
    if (error) {
        *bad = first;
        return failed(error);
    }
    return Qp::of(qp).rdma ? post_rdma_send(Qp::of(qp), first, bad) : Qp::of(qp).raw->post_send(first, bad);
}

int post_recv_op(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad) {
    int error = injected_fault("ibv_post_recv");
    if (!error && Qp::of(qp).rss) error = EINVAL;
    if (error) {
        *bad = first;
        return failed(error);
    }
    if (Qp::of(qp).rdma) return post_rdma_receive(Qp::of(qp), first, bad);
    if (!Qp::of(qp).raw->may_receive() && first) {
        *bad = first;
        return failed(EINVAL);
    }
    return Qp::of(qp).raw->receiver().post(first, bad);
}

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
    ibv_qp_init_attr_ex full{};
    std::memcpy(&full, attr, sizeof *attr);
    full.comp_mask = IBV_QP_INIT_ATTR_PD;
    full.pd = pd;
    ibv_qp* const qp = create(pd->context, full, "ibv_create_qp");
    if (qp) attr->cap = full.cap;
    return qp;
}

int ibv_modify_qp(ibv_qp* base, ibv_qp_attr* attr, int mask) {
    if (const int error = injected_fault("ibv_modify_qp")) return failed(error);
    Qp& qp = Qp::of(base);
    if (qp.rss) return failed(EOPNOTSUPP);
    if (qp.rdma) {
        const int error = modify_rdma_qp(qp, *attr, mask);
        return error ? failed(error) : 0;
    }
    const int error = modify_raw_qp(qp, *attr, mask);
    return error ? failed(error) : 0;
}

int ibv_query_qp(ibv_qp* base, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
    if (const int error = injected_fault("ibv_query_qp")) return failed(error);
    Qp& qp = Qp::of(base);
    if (qp.rss) return failed(EOPNOTSUPP);
    if (qp.rdma) {
        const int error = query_rdma_qp(qp, *attr, mask, *init_attr);
        return error ? failed(error) : 0;
    }
    *attr = ibv_qp_attr{};
    base->state = qp.raw->state();
    attr->qp_state = attr->cur_qp_state = base->state;
    attr->port_num = qp.port;
    attr->cap = qp.created_with.cap;
    *init_attr = qp.created_with;
    return 0;
}

int ibv_destroy_qp(ibv_qp* base) {
    if (const int error = injected_fault("ibv_destroy_qp")) return failed(error);
    Qp& qp = Qp::of(base);
    if (qp.rss || qp.rdma) {
        const int error = qp.rss ? destroy_rss_qp(qp) : destroy_rdma_qp(qp);
        return error ? failed(error) : 0;
    }
    DeviceState& state = Context::of(base->context).state;
    const RawPacketQpSpec spec = qp.raw->spec();
    if (!state.remove_receive_queue(spec.rqn)) return failed(EBUSY);
    Context::of(base->context).remove(qp);
    Pd::of(base->pd).users.fetch_sub(1);
    pthread_mutex_destroy(&base->mutex);
    pthread_cond_destroy(&base->cond);
    delete &qp;
    forget_way_of(state.device().steering(), spec.sqn);
    for (const std::uint32_t number : {spec.qpn, spec.sqn, spec.rqn, spec.tirn, spec.tisn}) {
        state.queue_numbers().give_back(number);
    }
    return 0;
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* base) {
    Qp& qp = Qp::of(base);
    return qp.has_send_ops ? &qp : nullptr;
}

/// No QP promises that a message's bytes arrive in memory in order.
int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) {
    return 0;
}

}  // extern "C"
