// By which port of an uplink in LAG queue pairs send: what mlx5_ib gives them when they go to INIT, and what they
// choose.
// Source: mlx5dv_query_qp_lag_port(3), mlx5dv_modify_qp_lag_port(3); libmlx5 and mlx5_ib, whose errors these are.
#include "datapath/control/fault.hpp"
#include "datapath/verbs/objects.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"

using namespace ovsdr::soft;

namespace {

[[nodiscard]] Device& device_of(Qp& qp) {
    return Context::of(qp.qp_base.context).state.device();
}

/// Those whose requests leave by a port. (XRC's and DC's targets only answer.)
[[nodiscard]] bool sends(Qp& qp) {
    if (qp.qp_base.qp_type == IBV_QPT_DRIVER) return qp.rdma->is_dc(MLX5DV_DCTYPE_DCI);
    return qp.qp_base.qp_type != IBV_QPT_XRC_RECV;
}

/// EOPNOTSUPP: it has no port, be it for want of a LAG, by its type or in RESET. EINVAL: a raw packet QP without a send
/// queue.
[[nodiscard]] int find_affinity(Qp& qp, LagAffinity*& affinity) {
    if (!device_of(qp).has_lag() || !sends(qp)) return EOPNOTSUPP;
    if (!qp.rdma && (qp.rss || qp.raw->spec().cap.max_send_wr == 0)) return EINVAL;
    affinity = qp.rdma ? &*qp.rdma->lag_affinity : &qp.raw->lag_affinity();
    return affinity->port() == 0 ? EOPNOTSUPP : 0;
}

/// RDMA queue pairs change ports in RTS, XRC's never; raw packet QPs in any state.
[[nodiscard]] bool may_change(const Qp& qp) {
    if (qp.raw) return true;
    return qp.qp_base.qp_type != IBV_QPT_XRC_SEND && qp.qp_base.state == IBV_QPS_RTS;
}

}  // namespace

unsigned Context::next_lag_port() {
    return state.device().has_lag() ? ++lag_ports_given_ % lag_ports + 1 : 0;
}

extern "C" {

int mlx5dv_query_qp_lag_port(ibv_qp* base, std::uint8_t* port, std::uint8_t* active_port) {
    if (const int error = injected_fault("mlx5dv_query_qp_lag_port")) return failed(error);
    Qp& qp = Qp::of(base);
    LagAffinity* affinity = nullptr;
    if (const int error = find_affinity(qp, affinity)) return failed(error);
    *port = static_cast<std::uint8_t>(affinity->port());
    *active_port = static_cast<std::uint8_t>(device_of(qp).active_lag_port(*port));
    return 0;
}

/// Port 0 is no port: packets then leave by their hash, and there is nothing to query or to change until the next INIT.
int mlx5dv_modify_qp_lag_port(ibv_qp* base, std::uint8_t port) {
    if (const int error = injected_fault("mlx5dv_modify_qp_lag_port")) return failed(error);
    Qp& qp = Qp::of(base);
    LagAffinity* affinity = nullptr;
    if (const int error = find_affinity(qp, affinity)) return failed(error);
    if (!may_change(qp)) return failed(EOPNOTSUPP);
    if (port > lag_ports) return failed(EINVAL);
    try {
        affinity->set(port);
    } catch (const std::bad_alloc&) {
        return failed(ENOMEM);
    }
    return 0;
}

}  // extern "C"
