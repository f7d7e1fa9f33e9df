#include "offload/slowpath/port_queue.hpp"

#include <infiniband/mlx5dv.h>

#include <bit>
#include <optional>
#include <vector>

#include "offload/slowpath/receive_ring.hpp"
#include "offload/slowpath/send_ring.hpp"
#include "offload/slowpath/spread.hpp"

namespace ovsdr::slowpath {

namespace {

constexpr unsigned min_length = 2 * batch_length, max_length = 1 << 15;
constexpr unsigned min_frame_size = 64, max_frame_size = 1 << 16;

class RawPacketQueue final : public PortQueue {
public:
    /// Once; an error leaves a queue that is good for nothing.
    Result<void> create_objects(const PortQueueSpec& spec) {
        auto made = create_receive_rings(spec);
        if (made) made = create_send_ring(spec);
        if (made) made = create_queue_pair(spec);
        if (made) made = start_queue_pair(spec.ib_port);
        if (made && spread_over_several()) made = create_spread(spec);
        if (made) made = sends_->start(qp_.get());
        for (ReceiveRing& ring : rings_) {
            if (made) made = ring.start(spread_over_several() ? nullptr : qp_.get());
        }
        return made;
    }

    unsigned receive_queues() const noexcept override { return static_cast<unsigned>(rings_.size()); }
    ibv_qp* qp() const noexcept override { return spread_ ? spread_->to_first() : qp_.get(); }
    std::span<const dr::QueuePairFor> by_kind() const noexcept override {
        return spread_ ? spread_->by_kind() : std::span<const dr::QueuePairFor>();
    }
    std::uint32_t sqn() const noexcept override { return sqn_; }

    int receive_fd(unsigned queue) const noexcept override { return rings_[queue].channel()->fd; }
    std::span<const Frame> receive(unsigned queue) noexcept override {
        const std::span<const Frame> frames = rings_[queue].receive();
        // Nobody is woken by the sends of several rings: whoever finds nothing in the first looks after them.
        if (frames.empty() && queue == 0 && spread_over_several()) sends_->reap();
        return frames;
    }
    bool arm(unsigned queue) noexcept override {
        ReceiveRing& ring = rings_[queue];
        if (ring.drain_wake_ups(sends_->cq())) sends_->reap();
        return ring.arm();
    }

    bool found_empty(unsigned queue) const noexcept override { return rings_[queue].found_empty(); }

    unsigned transmit(std::span<const std::span<const std::uint8_t>> frames) noexcept override {
        return sends_->transmit(frames);
    }
    std::size_t sends_under_way() const noexcept override { return sends_->under_way(); }

    bool failed() const noexcept override { return failure_.any(); }
    std::string failure() const override {
        // The receiver may have seen the flush before anybody has asked for the send that caused it.
        if (failed()) sends_->reap();
        return failure_.text();
    }

    QueueStats stats() const noexcept override {
        QueueStats sum = sends_->stats();
        for (const ReceiveRing& ring : rings_) {
            sum.received += ring.received();
            sum.receive_errors += ring.errors();
        }
        return sum;
    }

private:
    [[nodiscard]] bool spread_over_several() const noexcept { return rings_.size() > 1; }

    Result<void> create_receive_rings(const PortQueueSpec& spec) {
        rings_.reserve(spec.receive_queues);
        for (unsigned i = 0; i < spec.receive_queues; ++i) {
            auto ring = ReceiveRing::create(spec, failure_);
            if (!ring) return tl::unexpected(std::move(ring.error()));
            rings_.push_back(std::move(*ring));
        }
        return {};
    }

    /// A send that fails wakes whoever waits for the only ring. Several rings have threads that look all the time.
    Result<void> create_send_ring(const PortQueueSpec& spec) {
        auto ring = SendRing::create(spec, spread_over_several() ? nullptr : rings_[0].channel(), failure_);
        if (!ring) return tl::unexpected(std::move(ring.error()));
        sends_ = std::move(*ring);
        return {};
    }

    Result<void> create_queue_pair(const PortQueueSpec& spec) {
        ibv_qp_init_attr_ex attributes{};
        attributes.send_cq = sends_->cq();
        attributes.recv_cq = rings_[0].cq();
        const std::uint32_t receives = spread_over_several() ? 0 : spec.receive_length;
        attributes.cap = {spec.transmit_length, receives, 1, receives != 0 ? 1U : 0U, 0};
        attributes.qp_type = IBV_QPT_RAW_PACKET;
        attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
        attributes.pd = spec.pd;
        qp_.reset(ibv_create_qp_ex(spec.context, &attributes));
        if (qp_ == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_qp_ex(raw packet)"));
        return {};
    }

    Result<void> start_queue_pair(std::uint32_t ib_port) {
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_INIT;
        attributes.port_num = static_cast<std::uint8_t>(ib_port);
        int code = ibv_modify_qp(qp_.get(), &attributes, IBV_QP_STATE | IBV_QP_PORT);
        for (const ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
            if (code != 0) break;
            attributes = {};
            attributes.qp_state = state;
            code = ibv_modify_qp(qp_.get(), &attributes, IBV_QP_STATE);
        }
        if (code != 0) return tl::unexpected(failure_of(code, "ibv_modify_qp(raw packet)"));

        mlx5dv_qp provider{};
        provider.comp_mask = MLX5DV_QP_MASK_RAW_QP_HANDLES;
        mlx5dv_obj object{};
        object.qp.in = qp_.get();
        object.qp.out = &provider;
        if (const int error = mlx5dv_init_obj(&object, MLX5DV_OBJ_QP); error != 0) {
            return tl::unexpected(failure_of(error, "mlx5dv_init_obj"));
        }
        if ((provider.comp_mask & MLX5DV_QP_MASK_RAW_QP_HANDLES) == 0) {
            return tl::unexpected(
                Error{EOPNOTSUPP, "mlx5dv_init_obj: the device does not tell a raw packet QP's SQ number"});
        }
        sqn_ = provider.sqn;
        return {};
    }

    Result<void> create_spread(const PortQueueSpec& spec) {
        std::vector<ibv_wq*> queues;
        for (ReceiveRing& ring : rings_) {
            if (auto made = ring.make_wq(spec); !made) return made;
            queues.push_back(ring.wq());
        }
        auto spread = Spread::create(spec, queues);
        if (!spread) return tl::unexpected(std::move(spread.error()));
        spread_.emplace(std::move(*spread));
        return {};
    }

    // In the order in which they depend on each other.
    QueueFailure failure_;
    std::vector<ReceiveRing> rings_;
    std::unique_ptr<SendRing> sends_;
    Owner<ibv_qp> qp_;
    std::optional<Spread> spread_;
    std::uint32_t sqn_ = 0;
};

Result<void> check(const PortQueueSpec& spec) {
    // ibv_modify_qp() has 8 bits for it.
    if (spec.ib_port == 0 || spec.ib_port > UINT8_MAX) {
        return tl::unexpected(Error{EINVAL, "IB port " + std::to_string(spec.ib_port) + " can have no raw packet QP"});
    }
    const auto fits = [](unsigned length) {
        return std::has_single_bit(length) && length >= min_length && length <= max_length;
    };
    if (!fits(spec.receive_length) || !fits(spec.transmit_length)) {
        return tl::unexpected(Error{EINVAL, "slow-path queue lengths must be powers of two from 64 to 32768"});
    }
    if (spec.frame_size < min_frame_size || spec.frame_size > max_frame_size) {
        return tl::unexpected(Error{EINVAL, "slow-path frame size must be from 64 to 65536 bytes"});
    }
    if (spec.receive_queues == 0 || spec.receive_queues > max_receive_queues) {
        return tl::unexpected(Error{EINVAL, "a port has from 1 to " + std::to_string(max_receive_queues) +
                                                " receive queues in the slow path"});
    }
    return {};
}

}  // namespace

Result<std::unique_ptr<PortQueue>> PortQueue::create(const PortQueueSpec& spec) noexcept try {
    if (auto right = check(spec); !right) return tl::unexpected(std::move(right.error()));
    auto queue = std::make_unique<RawPacketQueue>();
    if (auto made = queue->create_objects(spec); !made) return tl::unexpected(std::move(made.error()));
    return queue;
} catch (const std::bad_alloc&) {
    return tl::unexpected(Error{ENOMEM, "out of memory"});
}

}  // namespace ovsdr::slowpath
