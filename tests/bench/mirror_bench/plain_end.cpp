#include "plain_end.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <stdexcept>

#include "offload/mirror/connection.hpp"

namespace ovsdr::bench {
namespace {

// As in offload/mirror/connection.cpp.
constexpr std::uint8_t ib_port = 1;
constexpr std::uint16_t mkey_entries = 4;
constexpr std::uint32_t inline_size = 256;
constexpr int completions_at_once = 32;
constexpr std::uint32_t first_psn = 0x1234;

void check_call(int code, const char* call) {
    if (code != 0) fail(code, call);
}

}  // namespace

PlainEnd::PlainEnd(const EndSpec& spec, bool by_mkey) : spec_(spec), by_mkey_(by_mkey) {
    find_address();
    create_queues();
    create_keys();
}

void PlainEnd::find_address() {
    ibv_port_attr port{};
    check_call(ibv_query_port(spec_.device->context(), ib_port, &port), "ibv_query_port");
    const auto index = mirror::gid_index_of(*spec_.device, {});
    if (!index) throw std::runtime_error(index.error().what);
    gid_index_ = static_cast<std::uint8_t>(*index);
    ibv_gid gid{};
    check_call(ibv_query_gid(spec_.device->context(), ib_port, *index, &gid), "ibv_query_gid");
    std::copy(std::begin(gid.raw), std::end(gid.raw), local_.gid.begin());
    local_.mtu = port.active_mtu;
    local_.psn = first_psn;
}

void PlainEnd::create_queues() {
    const std::uint32_t requests = 2u * spec_.geometry.slots, receives = 2u * spec_.geometry.slots;
    ibv_context* const context = spec_.device->context();
    cq_.reset(ibv_create_cq(context, static_cast<int>(requests + receives), nullptr, nullptr, 0));
    if (cq_ == nullptr) fail(errno, "ibv_create_cq");
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = attributes.recv_cq = cq_.get();
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {requests, receives, 1, 1, inline_size};
    attributes.pd = spec_.device->pd();
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    mlx5dv_qp_init_attr mlx5{};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
    qp_.reset(mlx5dv_create_qp(context, &attributes, &mlx5));
    if (qp_ == nullptr) fail(errno, "mlx5dv_create_qp");
    ex_ = ibv_qp_to_qp_ex(qp_.get());
    mlx5_ = mlx5dv_qp_ex_from_ibv_qp_ex(ex_);
    completions_.resize(completions_at_once);
    local_.qpn = qp_->qp_num;
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_INIT;
    state.port_num = ib_port;
    state.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    check_call(ibv_modify_qp(qp_.get(), &state,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
               "ibv_modify_qp(INIT)");
}

void PlainEnd::create_keys() {
    constexpr unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    mlx5dv_mkey_init_attr attributes{spec_.device->pd(), MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, mkey_entries};
    for (std::uint16_t slot = 0; slot < spec_.geometry.slots; ++slot) {
        std::byte* const bytes = spec_.memory.data() + slot * EndSpec::stride_of(spec_.slot_size);
        regions_.emplace_back(ibv_reg_mr_iova(spec_.device->pd(), bytes, spec_.slot_size, 0, access));
        if (regions_.back() == nullptr) fail(errno, "ibv_reg_mr_iova");
        if (!by_mkey_) continue;
        mkeys_.emplace_back(mlx5dv_create_mkey(&attributes));
        if (mkeys_.back() == nullptr) fail(errno, "mlx5dv_create_mkey");
    }
}

void PlainEnd::connect(const mirror::Endpoint& peer) {
    ibv_qp_attr state{};
    state.qp_state = IBV_QPS_RTR;
    state.path_mtu = std::min(local_.mtu, peer.mtu);
    state.dest_qp_num = peer.qpn;
    state.rq_psn = peer.psn;
    state.min_rnr_timer = 12;
    state.ah_attr.is_global = 1;
    state.ah_attr.port_num = ib_port;
    state.ah_attr.grh.sgid_index = gid_index_;
    state.ah_attr.grh.hop_limit = 64;
    std::copy(peer.gid.begin(), peer.gid.end(), state.ah_attr.grh.dgid.raw);
    check_call(ibv_modify_qp(qp_.get(), &state,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
               "ibv_modify_qp(RTR)");
    state = {};
    state.qp_state = IBV_QPS_RTS;
    state.sq_psn = local_.psn;
    state.timeout = 14;
    state.retry_cnt = state.rnr_retry = 7;
    check_call(ibv_modify_qp(qp_.get(), &state,
                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                 IBV_QP_MAX_QP_RD_ATOMIC),
               "ibv_modify_qp(RTS)");
}

/// One MKEY, in a batch that has been started.
void PlainEnd::configure(std::uint16_t slot, unsigned access) {
    mlx5dv_mkey_conf_attr attributes{};
    mlx5dv_wr_mkey_configure(mlx5_, mkeys_[slot].get(), 2, &attributes);
    mlx5dv_wr_set_mkey_access_flags(mlx5_, access);
    const ibv_sge whole{0, static_cast<std::uint32_t>(spec_.slot_size), regions_[slot]->lkey};
    mlx5dv_wr_set_mkey_layout_list(mlx5_, 1, &whole);
}

void PlainEnd::post_write(std::uint16_t slot, std::uint32_t peer_key) {
    ibv_wr_start(ex_);
    ex_->wr_id = slot;
    if (by_mkey_) {
        ex_->wr_flags = IBV_SEND_INLINE;
        configure(slot, 0);
    }
    ex_->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write_imm(ex_, peer_key, 0, htonl(slot));
    ibv_wr_set_sge(ex_, by_mkey_ ? mkeys_[slot]->lkey : regions_[slot]->lkey, 0,
                   static_cast<std::uint32_t>(spec_.slot_size));
    check_call(ibv_wr_complete(ex_), "ibv_wr_complete(write)");
}

bool PlainEnd::post_open(std::uint16_t first, std::size_t length) {
    if (!by_mkey_) return false;
    ibv_wr_start(ex_);
    for (std::size_t i = 0; i < length; ++i) {
        ex_->wr_id = first + i;
        ex_->wr_flags = IBV_SEND_INLINE | (i + 1 == length ? IBV_SEND_SIGNALED : 0);
        configure(static_cast<std::uint16_t>(first + i), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    }
    check_call(ibv_wr_complete(ex_), "ibv_wr_complete(configuration)");
    return true;
}

void PlainEnd::post_receives(std::size_t length) {
    for (; length > 0; --length) {
        ibv_recv_wr request{}, *bad = nullptr;
        check_call(ibv_post_recv(qp_.get(), &request, &bad), "ibv_post_recv");
    }
}

std::span<const ibv_wc> PlainEnd::poll() {
    const int length = ibv_poll_cq(cq_.get(), completions_at_once, completions_.data());
    if (length < 0) fail(-length, "ibv_poll_cq");
    return std::span<const ibv_wc>(completions_).first(static_cast<std::size_t>(length));
}

}  // namespace ovsdr::bench
