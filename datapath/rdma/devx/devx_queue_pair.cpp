// CREATE_QP and the commands that modify a QP: RC, UC and UD queue pairs whose rings the application fills and rings.
//
// The receive ring stands first in the UMEM, the send ring behind it. Doorbell records are looked at again and again:
// polled_doorbell.hpp. No SRQ; Ethernet queues are SQ and RQ, see devx_work_queues.cpp.
#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "datapath/rdma/completion/completion_queue.hpp"
#include "datapath/rdma/devx/devx_layout.hpp"
#include "datapath/rdma/devx/devx_resource.hpp"
#include "datapath/rdma/lag_affinity.hpp"
#include "datapath/rdma/memory/devx_memory.hpp"
#include "datapath/rdma/roce/queue_pair.hpp"

namespace ovsdr::soft::devx {

using prm::Field;
using prm::Opcode;
using prm::Status;

namespace {

// CREATE_QP's and the modifications' input, and QUERY_QP's output.
constexpr std::uint32_t qpc = 192;
constexpr Field qp_service{qpc + 8, 8}, qp_pd{qpc + 40, 24}, qp_mtu{qpc + 64, 3}, qp_log_rq_size{qpc + 73, 4},
    qp_log_rq_stride{qpc + 77, 3}, qp_no_sq{qpc + 80, 1}, qp_log_sq_size{qpc + 81, 4}, qp_remote{qpc + 168, 24},
    qp_log_sra_max{qpc + 904, 3}, qp_retry_count{qpc + 909, 3}, qp_rnr_retry{qpc + 912, 3},
    qp_next_send_psn{qpc + 968, 24}, qp_cqn_send{qpc + 1000, 24}, qp_log_rra_max{qpc + 1160, 3}, qp_rre{qpc + 1168, 1},
    qp_rwe{qpc + 1169, 1}, qp_rae{qpc + 1170, 1}, qp_min_rnr{qpc + 1187, 5}, qp_next_receive_psn{qpc + 1192, 24},
    qp_cqn_receive{qpc + 1256, 24}, qp_dbr_offset{qpc + 1280, 64}, qp_q_key{qpc + 1344, 32}, qp_rq_type{qpc + 1381, 3},
    qp_user_index{qpc + 136, 24},
    qp_dbr_umem_valid{qpc + 1667, 1}, qp_dbr_umem{qpc + 1824, 32}, qp_umem_offset{2048, 64}, qp_umem{2112, 32},
    qp_umem_valid{2144, 1}, qp_optional{128, 32};
constexpr Field qp_timestamp_format{qpc + 88, 2};
// What the device does not have, each by its name in the device's reference. (block_lb_mc is nothing to refuse: these
// queue pairs are members of no multicast group.)
constexpr std::array absent{
    Field{qpc + 18, 1},    // isolate_vl_tc
    Field{qpc + 24, 4},    // offload_type
    Field{qpc + 28, 2},    // end_padding_mode
    Field{qpc + 32, 1},    // wq_signature
    Field{qpc + 34, 1},    // atomic_like_write_en
    Field{qpc + 37, 1},    // drain_sigerr
    Field{qpc + 90, 1},    // data_in_order
    Field{qpc + 91, 1},    // rlky
    Field{qpc + 92, 4},    // ulp_stateless_offload_mode
    Field{qpc + 96, 8},    // counter_set_id
    Field{qpc + 1032, 24}, // deth_sqpn
    Field{qpc + 1172, 6},  // page_offset: rings begin where their UMEM's offset says
    Field{qpc + 1181, 1},  // cd_slave_receive
    Field{qpc + 1182, 1},  // cd_slave_send
    Field{qpc + 1183, 1},  // cd_master
    Field{qpc + 1584, 8},  // cs_req: small answers in CQEs
    Field{qpc + 1592, 8},  // cs_res: small messages in CQEs
};
// The primary address path.
constexpr std::uint32_t ads = qpc + 192;
constexpr Field path_ack_timeout{ads + 64, 5}, path_source{ads + 72, 8}, path_hop_limit{ads + 88, 8},
    path_class{ads + 100, 8}, path_flow_label{ads + 108, 20}, path_gid_high{ads + 128, 64}, path_gid_low{ads + 192, 64},
    path_udp_source{ads + 272, 16}, path_service_level{ads + 292, 4}, path_port{ads + 296, 8};
constexpr Field state_out{qpc, 4};  // QUERY_QP: the context stands behind 24 bytes too
constexpr Field qp_lag_port{qpc + 4, 4};  // lag_tx_port_affinity
constexpr std::uint32_t change_lag_port = 1u << 15;  // of RTS2RTS_QP's optional parameters

[[nodiscard]] std::uint32_t word(Input in, Field field) {
    return static_cast<std::uint32_t>(prm::get(in, field));
}

struct Move {
    Opcode opcode;
    ibv_qp_state from, to;
};
constexpr std::array moves{Move{static_cast<Opcode>(0x502), IBV_QPS_RESET, IBV_QPS_INIT},
                           Move{static_cast<Opcode>(0x503), IBV_QPS_INIT, IBV_QPS_RTR},
                           Move{static_cast<Opcode>(0x504), IBV_QPS_RTR, IBV_QPS_RTS},
                           Move{static_cast<Opcode>(0x505), IBV_QPS_RTS, IBV_QPS_RTS},
                           Move{static_cast<Opcode>(0x507), IBV_QPS_ERR, IBV_QPS_ERR},
                           Move{static_cast<Opcode>(0x50a), IBV_QPS_RESET, IBV_QPS_RESET},
                           Move{static_cast<Opcode>(0x50c), IBV_QPS_SQD, IBV_QPS_RTS}};
/// nullptr: no such command.
[[nodiscard]] const Move* move_of(Opcode opcode) noexcept {
    const auto* const move =
        std::find_if(moves.begin(), moves.end(), [&](const Move& m) { return m.opcode == opcode; });
    return move == moves.end() ? nullptr : move;
}

/// Whether the context's choice of a port of the LAG can be made; 0 is none.
[[nodiscard]] bool lag_port_is_there(DeviceState& state, Input in) {
    const std::uint32_t port = word(in, qp_lag_port);
    return port == 0 || (state.device().has_lag() && port <= lag_ports);
}

void read_path(Input in, ibv_ah_attr& path) {
    path.is_global = 1;
    path.port_num = static_cast<std::uint8_t>(word(in, path_port));
    path.sl = static_cast<std::uint8_t>(word(in, path_service_level));
    path.grh.sgid_index = static_cast<std::uint8_t>(word(in, path_source));
    path.grh.hop_limit = static_cast<std::uint8_t>(word(in, path_hop_limit));
    path.grh.traffic_class = static_cast<std::uint8_t>(word(in, path_class));
    path.grh.flow_label = word(in, path_flow_label);
    path.grh.dgid.global.subnet_prefix = htobe64(prm::get(in, path_gid_high));
    path.grh.dgid.global.interface_id = htobe64(prm::get(in, path_gid_low));
}

class DevxQp final : public Resource {
public:
    DevxQp(DeviceState& state, roce::QueuePairSpec spec, std::shared_ptr<ProtectionDomain> protection,
           unsigned lag_port)
        : Resource(spec.qpn),
          state_(state),
          protection_(std::move(protection)),
          type_(spec.type),
          affinity_(std::in_place, state.device().steering(), spec.sqn) {
        affinity_->set(lag_port);
        spec.event = [](ibv_event_type) {};
        send_queue_ = spec.send_queue;
        receive_queue_ = spec.receive_queue;
        device_ = roce::QueuePair::create(spec);
        send_queue_->hold();
        receive_queue_->hold();
    }
    ~DevxQp() override {
        device_.reset();
        affinity_.reset();
        send_queue_->release();
        receive_queue_->release();
        state_.queue_numbers().give_back(number());
    }

    bool takes(Opcode opcode) const noexcept override { return opcode == Opcode::query_qp || move_of(opcode); }
    Status execute(Opcode opcode, Input in, Output out) override {
        return opcode == Opcode::query_qp ? query(out) : modify(*move_of(opcode), in);
    }

private:
    Status modify(const Move& move, Input in) {
        const bool changes =
            word(in, qp_optional) == change_lag_port && move.from == IBV_QPS_RTS && state_.device().has_lag();
        if (word(in, qp_optional) != 0 && !changes) return Status::bad_param;  // No other one is implemented.
        const bool sets_port = changes || move.to == IBV_QPS_INIT;
        if (sets_port && !lag_port_is_there(state_, in)) return Status::bad_param;
        ibv_qp_attr attr{};
        attr.qp_state = move.to;
        int mask = IBV_QP_STATE;
        if (move.to == IBV_QPS_INIT) mask |= read_init(in, attr);
        if (move.to == IBV_QPS_RTR) mask |= read_rtr(in, attr);
        if (move.from == IBV_QPS_RTR) mask |= read_rts(in, attr);
        if (device_->modify(attr, mask) != 0) return Status::bad_param;
        if (sets_port || move.to == IBV_QPS_RESET) affinity_->set(sets_port ? word(in, qp_lag_port) : 0);
        if (move.to == IBV_QPS_RTR) udp_source_ = static_cast<std::uint16_t>(word(in, path_udp_source));
        const bool runs = move.from == IBV_QPS_RTR && type_ != IBV_QPT_UD && udp_source_ != 0;
        return runs && device_->set_udp_source_port(udp_source_) != 0 ? Status::bad_param : Status::ok;
    }

    Status query(Output out) const {
        // The device's numbers of the states, by enum ibv_qp_state.
        constexpr std::array<std::uint8_t, 7> states{0, 1, 2, 3, 7, 4, 6};
        prm::set(out, state_out, states[device_->state()]);
        prm::set(out, qp_lag_port, affinity_->port());
        return Status::ok;
    }
    [[nodiscard]] int read_init(Input in, ibv_qp_attr& attr) const {
        attr.port_num = static_cast<std::uint8_t>(word(in, path_port));
        attr.qkey = word(in, qp_q_key);
        if (word(in, qp_rre)) attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ;
        if (word(in, qp_rwe)) attr.qp_access_flags |= IBV_ACCESS_REMOTE_WRITE;
        if (word(in, qp_rae)) attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
        return IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type_ == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    }
    [[nodiscard]] int read_rtr(Input in, ibv_qp_attr& attr) const {
        if (type_ == IBV_QPT_UD) return 0;
        read_path(in, attr.ah_attr);
        attr.path_mtu = static_cast<ibv_mtu>(word(in, qp_mtu));
        attr.dest_qp_num = word(in, qp_remote);
        attr.rq_psn = word(in, qp_next_receive_psn);
        attr.max_dest_rd_atomic = static_cast<std::uint8_t>(1u << word(in, qp_log_rra_max));
        attr.min_rnr_timer = static_cast<std::uint8_t>(word(in, qp_min_rnr));
        const int reliable = type_ == IBV_QPT_RC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
        return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | reliable;
    }
    [[nodiscard]] int read_rts(Input in, ibv_qp_attr& attr) const {
        attr.sq_psn = word(in, qp_next_send_psn);
        attr.timeout = static_cast<std::uint8_t>(word(in, path_ack_timeout));
        attr.retry_cnt = static_cast<std::uint8_t>(word(in, qp_retry_count));
        attr.rnr_retry = static_cast<std::uint8_t>(word(in, qp_rnr_retry));
        attr.max_rd_atomic = static_cast<std::uint8_t>(1u << word(in, qp_log_sra_max));
        const int reliable = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        return IBV_QP_SQ_PSN | (type_ == IBV_QPT_RC ? reliable : 0);
    }

    DeviceState& state_;
    const std::shared_ptr<ProtectionDomain> protection_;
    const ibv_qp_type type_;
    std::uint16_t udp_source_ = 0;
    std::optional<LagAffinity> affinity_;
    CompletionQueue* send_queue_;
    CompletionQueue* receive_queue_;
    std::unique_ptr<roce::QueuePair> device_;
};

/// What a queue pair's rings stand in.
struct Rings {
    Buffer base;
    DoorbellRecord doorbells;
};

/// Fills the rings of a queue pair; empty where the UMEM does not hold them, or where an SRQ is asked for.
[[nodiscard]] Rings place_rings(Input in, roce::QueuePairSpec& spec) {
    constexpr std::uint32_t own_receives = 0, no_receives = 3;
    const std::uint32_t kind = word(in, qp_rq_type);
    const bool receives = kind == own_receives;
    if (!receives && kind != no_receives) return {};
    const std::uint32_t stride = 16u << word(in, qp_log_rq_stride);
    const std::uint32_t entries = receives ? 1u << word(in, qp_log_rq_size) : 0;
    const std::uint32_t blocks = word(in, qp_no_sq) ? 0 : 1u << word(in, qp_log_sq_size);
    const std::size_t receive_size = std::size_t{entries} * stride;
    const std::size_t size = receive_size + std::size_t{blocks} * roce::basic_block_size;
    Umems& umems = spec.state.umems();
    Rings rings{find_buffer(umems, in, qp_umem_valid, qp_umem, qp_umem_offset, size, Use::read),
                find_doorbell(umems, in, qp_dbr_umem_valid, qp_dbr_umem, qp_dbr_offset)};
    if (!rings.base || !rings.doorbells) return {};
    std::byte* const base = rings.base.get();
    const auto* const doorbells = rings.doorbells.get();
    spec.receive = {.base = base, .length = entries, .stride = stride, .doorbell = doorbells + MLX5_RCV_DBR};
    spec.send = {.base = base + receive_size, .length = blocks, .doorbell = doorbells + MLX5_SND_DBR};
    return rings;
}

}  // namespace

Status create_qp(DeviceState& state, Input in, std::unique_ptr<Resource>& made) {
    constexpr std::array types{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
    const std::uint32_t service = word(in, qp_service);
    const std::uint32_t domain = word(in, qp_pd);
    roce::QueuePairSpec spec{.state = state};
    if (std::any_of(absent.begin(), absent.end(), [&](Field which) { return word(in, which) != 0; })) {
        return Status::bad_param;
    }
    if (!prm::has_timestamps(word(in, qp_timestamp_format))) return Status::bad_param;
    const Rings rings = place_rings(in, spec);
    if (service >= types.size() || !rings.base || !lag_port_is_there(state, in)) return Status::bad_param;
    spec.type = types[service];
    const auto protection = state.protection_domains().find(domain);
    spec.domain = protection ? protection->identity : nullptr;
    spec.domain_number = domain;
    if (!spec.domain) return Status::bad_res;
    spec.send_queue = hold_completion_queue(state, word(in, qp_cqn_send));
    spec.receive_queue = hold_completion_queue(state, word(in, qp_cqn_receive));
    const bool found = spec.send_queue && spec.receive_queue;
    if (found) {
        spec.qpn = spec.sqn = state.queue_numbers().take();
        spec.user_index = word(in, qp_user_index);
        spec.polled = true;
        made = std::make_unique<DevxQp>(state, spec, protection, word(in, qp_lag_port));
        made->stand_on(rings.base);
        made->stand_on(rings.doorbells);
    }
    if (spec.send_queue) spec.send_queue->release();
    if (spec.receive_queue) spec.receive_queue->release();
    return found ? Status::ok : Status::bad_res;
}

}  // namespace ovsdr::soft::devx
