#include "endpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace ovsdr::bench {
namespace {

constexpr std::uint8_t port = 1;
constexpr unsigned window = 32;  ///< messages under way
constexpr std::uint32_t first_psn = 0x1234;

template <typename T>
T* checked(T* object, const char* call) {
    if (object == nullptr) throw std::system_error(errno, std::generic_category(), call);
    return object;
}

void check(int error, const char* call) {
    if (error != 0) throw std::system_error(error, std::generic_category(), call);
}

ibv_context* open_first() {
    int length = 0;
    ibv_device** list = checked(ibv_get_device_list(&length), "ibv_get_device_list");
    ibv_context* context = length > 0 ? ibv_open_device(list[0]) : nullptr;
    ibv_free_device_list(list);
    return checked(context, "ibv_open_device");
}

/// An IPv4 address that the configuration gave: its GID is ::ffff:a.b.c.d.
bool is_ipv4(const ibv_gid& gid) {
    constexpr std::array<std::uint8_t, 12> prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::equal(prefix.begin(), prefix.end(), gid.raw);
}

}  // namespace

Endpoint::Endpoint(std::size_t size) : buffer_(size), context_(open_first()) {
    pd_.reset(checked(ibv_alloc_pd(context_.get()), "ibv_alloc_pd"));
    cq_.reset(checked(ibv_create_cq(context_.get(), 2 * window, nullptr, nullptr, 0), "ibv_create_cq"));
    mr_.reset(checked(ibv_reg_mr(pd_.get(), buffer_.data(), size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
                      "ibv_reg_mr"));
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq_.get();
    attr.cap = {.max_send_wr = window, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    attr.qp_type = IBV_QPT_RC;
    qp_.reset(checked(ibv_create_qp(pd_.get(), &attr), "ibv_create_qp"));
    ibv_port_attr ports{};
    check(ibv_query_port(context_.get(), port, &ports), "ibv_query_port");
    for (gid_index_ = 0; gid_index_ < ports.gid_tbl_len; ++gid_index_) {
        if (ibv_query_gid(context_.get(), port, gid_index_, &gid_) == 0 && is_ipv4(gid_)) return;
    }
    throw std::runtime_error("the device has no IPv4 GID: its configuration needs roce_address");
}

Address Endpoint::address() const {
    return {qp_->qp_num, first_psn, gid_, reinterpret_cast<std::uint64_t>(buffer_.data()), mr_->rkey};
}

void Endpoint::connect(const Address& peer) {
    peer_ = peer;
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = port;
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    check(ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
          "INIT");
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = peer.qpn;
    attr.rq_psn = peer.psn;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = port;
    attr.ah_attr.grh.dgid = peer.gid;
    attr.ah_attr.grh.hop_limit = 64;
    attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
    check(ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          "RTR");
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = 7;
    attr.sq_psn = first_psn;
    attr.max_rd_atomic = 1;
    check(ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
          "RTS");
}

void Endpoint::post(std::size_t message_size) {
    ibv_sge sge{reinterpret_cast<std::uint64_t>(buffer_.data()), static_cast<std::uint32_t>(message_size), mr_->lkey};
    ibv_send_wr request{};
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {peer_.buffer, peer_.rkey};
    ibv_send_wr* bad = nullptr;
    check(ibv_post_send(qp_.get(), &request, &bad), "ibv_post_send");
}

unsigned Endpoint::reap() {
    std::array<ibv_wc, window> completions;
    const int taken = ibv_poll_cq(cq_.get(), window, completions.data());
    if (taken < 0) throw std::runtime_error("ibv_poll_cq");
    for (int i = 0; i < taken; ++i) {
        if (completions[i].status != IBV_WC_SUCCESS) {
            throw std::runtime_error(fmt::format("a write failed: {}", ibv_wc_status_str(completions[i].status)));
        }
    }
    return static_cast<unsigned>(taken);
}

double Endpoint::write(std::size_t message_size, std::chrono::duration<double> duration) {
    using clock = std::chrono::steady_clock;
    const auto begin = clock::now();
    unsigned under_way = 0;
    std::uint64_t done = 0;
    const auto progress = [&] {
        const unsigned taken = reap();
        under_way -= taken;
        done += taken;
    };
    while (clock::now() - begin < duration) {
        while (under_way < window) {
            post(message_size);
            ++under_way;
        }
        progress();
    }
    while (under_way != 0) progress();
    const std::chrono::duration<double> took = clock::now() - begin;
    return static_cast<double>(done) * static_cast<double>(message_size) / took.count();
}

void Endpoint::fill(std::uint8_t value) noexcept { std::fill(buffer_.begin(), buffer_.end(), value); }

}  // namespace ovsdr::bench
