#include "datapath/rdma/devx_queues.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <mutex>

#include "datapath/rdma/completion_queue.hpp"
#include "datapath/rdma/cqe_ring.hpp"
#include "datapath/rdma/devx_memory.hpp"
#include "datapath/rdma/roce/queue_pair.hpp"

namespace ovsdr::soft::devx {

using prm::Field;
using prm::Opcode;
using prm::Status;

namespace {

// CREATE_CQ's input, bits.
constexpr std::uint32_t cqc = 128;
constexpr Field cq_dbr_umem_valid{cqc + 6, 1}, cq_cqe_size{cqc + 8, 3}, cq_overrun_ignore{cqc + 14, 1},
    cq_compression{cqc + 17, 1}, cq_dbr_umem{cqc + 32, 32}, cq_log_size{cqc + 99, 5}, cq_dbr_offset{cqc + 448, 64},
    cq_umem_offset{640, 64}, cq_umem{704, 32}, cq_umem_valid{736, 1};
// CREATE_QP's and the modifications' input, and QUERY_QP's output.
constexpr std::uint32_t qpc = 192;
constexpr Field qp_service{qpc + 8, 8}, qp_pd{qpc + 40, 24}, qp_mtu{qpc + 64, 3}, qp_log_rq_size{qpc + 73, 4},
    qp_log_rq_stride{qpc + 77, 3}, qp_no_sq{qpc + 80, 1}, qp_log_sq_size{qpc + 81, 4}, qp_remote{qpc + 168, 24},
    qp_log_sra_max{qpc + 904, 3}, qp_retry_count{qpc + 909, 3}, qp_rnr_retry{qpc + 912, 3},
    qp_next_send_psn{qpc + 968, 24}, qp_cqn_send{qpc + 1000, 24}, qp_log_rra_max{qpc + 1160, 3}, qp_rre{qpc + 1168, 1},
    qp_rwe{qpc + 1169, 1}, qp_rae{qpc + 1170, 1}, qp_min_rnr{qpc + 1187, 5}, qp_next_receive_psn{qpc + 1192, 24},
    qp_cqn_receive{qpc + 1256, 24}, qp_dbr_offset{qpc + 1280, 64}, qp_q_key{qpc + 1344, 32}, qp_rq_type{qpc + 1381, 3},
    qp_dbr_umem_valid{qpc + 1667, 1}, qp_dbr_umem{qpc + 1824, 32}, qp_umem_offset{2048, 64}, qp_umem{2112, 32},
    qp_umem_valid{2144, 1}, qp_optional{128, 32};
// The primary address path.
constexpr std::uint32_t ads = qpc + 192;
constexpr Field path_ack_timeout{ads + 64, 5}, path_source{ads + 72, 8}, path_hop_limit{ads + 88, 8},
    path_class{ads + 100, 8}, path_flow_label{ads + 108, 20}, path_gid_high{ads + 128, 64}, path_gid_low{ads + 192, 64},
    path_udp_source{ads + 272, 16}, path_service_level{ads + 292, 4}, path_port{ads + 296, 8};
constexpr Field number_out{72, 24};
constexpr Field state_out{qpc, 4};  // QUERY_QP: the context stands behind 24 bytes too

[[nodiscard]] std::uint32_t word(Input in, Field field) {
    return static_cast<std::uint32_t>(prm::get(in, field));
}

/// Completion queues by number, for those who name them.
struct Queues {
    std::mutex mutex;
    std::map<std::uint32_t, CompletionQueue*> by_number;
};
[[nodiscard]] Queues& queues() {
    static auto* const all = new Queues;
    return *all;
}

/// The CQEs are written where completions are added: the queue is always armed, and its event takes out what is in it.
class DevxCq final : public Queue {
public:
    DevxCq(DeviceState& state, std::uint32_t number, const CqeRing::Spec& spec)
        : state_(state),
          number_(number),
          ring_(spec),
          queue_(2u << spec.log_length, true, {.completion = [this] { write(); }, .overrun = {}}) {
        queue_.arm(false);
        std::lock_guard guard(queues().mutex);
        queues().by_number[number_] = &queue_;
    }
    ~DevxCq() override {
        {
            std::lock_guard guard(queues().mutex);
            queues().by_number.erase(number_);
        }
        state_.cq_numbers().give_back(number_);
    }
    bool busy() const noexcept override { return queue_.held(); }

private:
    void write() noexcept {
        std::lock_guard guard(mutex_);
        std::array<Completion, batch> taken;
        for (int length = 1; length != 0;) {
            // Armed before it is looked into: what comes after the look has an event of its own.
            queue_.arm(false);
            length = queue_.take(taken);
            for (int i = 0; i < length && !broken_; ++i) broken_ = !ring_.write(taken[static_cast<std::size_t>(i)]);
        }
    }

    static constexpr std::size_t batch = 16;
    DeviceState& state_;
    const std::uint32_t number_;
    std::mutex mutex_;
    CqeRing ring_;
    bool broken_ = false;  ///< overrun: nothing more is written
    CompletionQueue queue_;
};

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
constexpr auto query_qp = static_cast<Opcode>(0x50b);

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

class DevxQp final : public Queue {
public:
    DevxQp(DeviceState& state, roce::QueuePairSpec spec, std::shared_ptr<ProtectionDomain> protection)
        : state_(state), protection_(std::move(protection)), type_(spec.type), number_(spec.qpn) {
        spec.event = [](ibv_event_type) {};
        send_queue_ = spec.send_queue;
        receive_queue_ = spec.receive_queue;
        device_ = roce::QueuePair::create(spec);
        send_queue_->hold();
        receive_queue_->hold();
    }
    ~DevxQp() override {
        device_.reset();
        send_queue_->release();
        receive_queue_->release();
        state_.queue_numbers().give_back(number_);
    }

    Status modify(Opcode opcode, Input in) override {
        const auto* const move = std::find_if(moves.begin(), moves.end(), [&](const Move& m) { return m.opcode == opcode; });
        if (move == moves.end()) return Status::bad_op;
        if (word(in, qp_optional) != 0) return Status::bad_param;  // No optional parameter is implemented.
        ibv_qp_attr attr{};
        attr.qp_state = move->to;
        int mask = IBV_QP_STATE;
        if (move->to == IBV_QPS_INIT) mask |= read_init(in, attr);
        if (move->to == IBV_QPS_RTR) mask |= read_rtr(in, attr);
        if (move->from == IBV_QPS_RTR) mask |= read_rts(in, attr);
        if (device_->modify(attr, mask) != 0) return Status::bad_param;
        if (move->to == IBV_QPS_RTR) udp_source_ = static_cast<std::uint16_t>(word(in, path_udp_source));
        const bool runs = move->from == IBV_QPS_RTR && type_ != IBV_QPT_UD && udp_source_ != 0;
        return runs && device_->set_udp_source_port(udp_source_) != 0 ? Status::bad_param : Status::ok;
    }

    Status query(Opcode opcode, Output out) override {
        if (opcode != query_qp) return Status::bad_op;
        // The device's numbers of the states, by enum ibv_qp_state.
        constexpr std::array<std::uint8_t, 7> states{0, 1, 2, 3, 7, 4, 6};
        prm::set(out, state_out, states[device_->state()]);
        return Status::ok;
    }

private:
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
    const std::uint32_t number_;
    std::uint16_t udp_source_ = 0;
    CompletionQueue* send_queue_;
    CompletionQueue* receive_queue_;
    std::unique_ptr<roce::QueuePair> device_;
};

/// A doorbell record of two words.
[[nodiscard]] std::atomic<__be32>* doorbell_of(Input in, Field valid, Field umem, Field offset) {
    if (!word(in, valid)) return nullptr;
    return reinterpret_cast<std::atomic<__be32>*>(
        Registry::instance().find(word(in, umem), prm::get(in, offset), 2 * sizeof(__be32)));
}

/// Fills the rings of a queue pair; false where the UMEM does not hold them.
[[nodiscard]] bool place_rings(Input in, roce::QueuePairSpec& spec) {
    constexpr std::uint32_t zero_size_receive = 3;
    const bool receives = word(in, qp_rq_type) != zero_size_receive;
    const std::uint32_t stride = 16u << word(in, qp_log_rq_stride);
    const std::uint32_t entries = receives ? 1u << word(in, qp_log_rq_size) : 0;
    const std::uint32_t blocks = word(in, qp_no_sq) ? 0 : 1u << word(in, qp_log_sq_size);
    const std::size_t receive_size = std::size_t{entries} * stride;
    const std::size_t size = receive_size + std::size_t{blocks} * roce::basic_block_size;
    std::byte* const base = word(in, qp_umem_valid)
                                ? Registry::instance().find(word(in, qp_umem), prm::get(in, qp_umem_offset), size)
                                : nullptr;
    const auto* const doorbells = doorbell_of(in, qp_dbr_umem_valid, qp_dbr_umem, qp_dbr_offset);
    if (!base || !doorbells) return false;
    spec.receive = {.base = base, .length = entries, .stride = stride, .doorbell = doorbells + MLX5_RCV_DBR};
    spec.send = {.base = base + receive_size, .length = blocks, .doorbell = doorbells + MLX5_SND_DBR};
    return true;
}

}  // namespace

bool modifies_qp(Opcode opcode) noexcept {
    return std::any_of(moves.begin(), moves.end(), [&](const Move& move) { return move.opcode == opcode; });
}

Status create_cq(DeviceState& state, Input in, Output out, std::unique_ptr<Queue>& queue, std::uint32_t& number) {
    constexpr std::uint32_t size_64 = 0, size_128 = 1, most_log_length = 22;
    const std::uint32_t kind = word(in, cq_cqe_size);
    const std::uint32_t log_length = word(in, cq_log_size);
    if (kind > size_128 || log_length > most_log_length || word(in, cq_compression)) return Status::bad_param;
    const std::uint32_t entry_size = kind == size_64 ? 64 : 128;
    auto* const doorbell = doorbell_of(in, cq_dbr_umem_valid, cq_dbr_umem, cq_dbr_offset);
    std::byte* const base = word(in, cq_umem_valid)
                                ? Registry::instance().find(word(in, cq_umem), prm::get(in, cq_umem_offset),
                                                            std::size_t{entry_size} << log_length)
                                : nullptr;
    if (!base || !doorbell) return Status::bad_param;
    number = state.cq_numbers().take();
    queue = std::make_unique<DevxCq>(state, number,
                                     CqeRing::Spec{.base = base,
                                                   .log_length = log_length,
                                                   .entry_size = entry_size,
                                                   .doorbell = doorbell,
                                                   .ignore_overrun = word(in, cq_overrun_ignore) != 0});
    prm::set(out, number_out, number);
    return Status::ok;
}

Status create_qp(DeviceState& state, Input in, Output out, std::unique_ptr<Queue>& queue, std::uint32_t& number) {
    constexpr std::array types{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
    const std::uint32_t service = word(in, qp_service);
    const std::uint32_t domain = word(in, qp_pd);
    roce::QueuePairSpec spec{.state = state};
    if (service >= types.size() || !place_rings(in, spec)) return Status::bad_param;
    spec.type = types[service];
    const auto protection = state.protection_domains().find(domain);
    spec.domain = protection ? protection->identity : nullptr;
    spec.domain_number = domain;
    if (!spec.domain) return Status::bad_res;
    {
        std::lock_guard guard(queues().mutex);
        const auto find = [&](Field field) {
            const auto found = queues().by_number.find(word(in, field));
            return found == queues().by_number.end() ? nullptr : found->second;
        };
        spec.send_queue = find(qp_cqn_send);
        spec.receive_queue = find(qp_cqn_receive);
    }
    if (!spec.send_queue || !spec.receive_queue) return Status::bad_res;
    number = spec.qpn = spec.sqn = state.queue_numbers().take();
    spec.polled = true;
    queue = std::make_unique<DevxQp>(state, spec, protection);
    prm::set(out, number_out, number);
    return Status::ok;
}

}  // namespace ovsdr::soft::devx
