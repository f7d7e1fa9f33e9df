#include "offload/slowpath/port_queue.hpp"

#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "offload/slowpath/verbs_owner.hpp"

namespace ovsdr::slowpath {

namespace {

Error failure_of(int code, const char* call) {
    const int positive = code == 0 ? EIO : code < 0 ? -code : code;
    return Error{positive, std::string(call) + ": " + std::strerror(positive)};
}

/// Receive buffers, then transmit buffers, in one mapping and one memory region.
class Buffers {
public:
    static Result<Buffers> create(ibv_pd* pd, std::size_t length, std::size_t frame_size) {
        const std::size_t size = length * frame_size;
        void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return tl::unexpected(failure_of(errno, "mmap of slow-path buffers"));
        Buffers buffers(static_cast<std::uint8_t*>(memory), size, frame_size);
        buffers.region_ = ibv_reg_mr(pd, memory, size, IBV_ACCESS_LOCAL_WRITE);
        if (buffers.region_ == nullptr) return tl::unexpected(failure_of(errno, "ibv_reg_mr"));
        return buffers;
    }

    Buffers(Buffers&& other) noexcept
        : memory_(std::exchange(other.memory_, nullptr)), size_(other.size_), frame_size_(other.frame_size_),
          region_(std::exchange(other.region_, nullptr)) {}
    Buffers& operator=(Buffers&&) = delete;
    ~Buffers() {
        if (memory_ == nullptr) return;
        // Memory that the device knows must not go.
        if (region_ != nullptr && !dr::destroyed([this] { return ibv_dereg_mr(region_); })) return;
        munmap(memory_, size_);
    }

    [[nodiscard]] std::uint8_t* frame(std::size_t index) const noexcept { return memory_ + index * frame_size_; }
    [[nodiscard]] ibv_sge element(std::size_t index, std::size_t size) const noexcept {
        return {reinterpret_cast<std::uintptr_t>(frame(index)), static_cast<std::uint32_t>(size), region_->lkey};
    }
    [[nodiscard]] std::size_t frame_size() const noexcept { return frame_size_; }

private:
    Buffers(std::uint8_t* memory, std::size_t size, std::size_t frame_size) noexcept
        : memory_(memory), size_(size), frame_size_(frame_size) {}

    std::uint8_t* memory_;
    std::size_t size_;
    std::size_t frame_size_;
    ibv_mr* region_ = nullptr;
};

/// Verbs objects of a queue, in the order in which they depend on each other.
struct Objects {
    Owner<ibv_comp_channel> channel;
    Owner<ibv_cq_ex> receive_cq;
    Owner<ibv_cq> send_cq;
    Owner<ibv_qp> qp;
    std::uint32_t sqn = 0;
};

constexpr unsigned min_length = 2 * batch_length, max_length = 1 << 15;
constexpr unsigned min_frame_size = 64, max_frame_size = 1 << 16;

class RawPacketQueue final : public PortQueue {
public:
    RawPacketQueue(const PortQueueSpec& spec, Buffers buffers, Objects objects)
        : receive_length_(spec.receive_length),
          transmit_length_(spec.transmit_length),
          buffers_(std::move(buffers)),
          objects_(std::move(objects)) {
        returned_.reserve(batch_length);
    }

    /// Gives the device all receive buffers, and asks to be woken when a send fails. Once, before anything else.
    Result<void> start() {
        if (const int code = ibv_req_notify_cq(objects_.send_cq.get(), 1); code != 0) {
            return tl::unexpected(failure_of(code, "ibv_req_notify_cq"));
        }
        for (unsigned first = 0; first < receive_length_; first += batch_length) {
            for (unsigned i = 0; i < batch_length; ++i) returned_.push_back(first + i);
            if (const int code = post_returned(); code != 0) return tl::unexpected(failure_of(code, "ibv_post_recv"));
        }
        return {};
    }

    ibv_qp* qp() const noexcept override { return objects_.qp.get(); }
    std::uint32_t sqn() const noexcept override { return objects_.sqn; }
    int receive_fd() const noexcept override { return objects_.channel->fd; }

    std::span<const Frame> receive() noexcept override {
        if (!looked_ahead_) poll_receive();
        looked_ahead_ = false;
        return {frames_.data(), frame_length_};
    }

    bool arm() noexcept override {
        if (looked_ahead_) return false;   // frames of the last arm() that nobody has seen
        ibv_cq* cq = ibv_cq_ex_to_cq(objects_.receive_cq.get());
        if (drain_wake_ups()) {
            std::lock_guard lock(transmit_mutex_);
            reap();
        }
        if (ibv_req_notify_cq(cq, 0) != 0) return false;
        // What came between the last look and the request gives no wake-up: look once more.
        poll_receive();
        looked_ahead_ = frame_length_ != 0;
        return !looked_ahead_;
    }

    unsigned transmit(std::span<const std::span<const std::uint8_t>> frames) noexcept override {
        std::lock_guard lock(transmit_mutex_);
        std::array<std::span<const std::uint8_t>, batch_length> batch;
        unsigned taken = 0;
        for (std::size_t next = 0; next < frames.size() && !failed();) {
            std::size_t length = 0;
            for (; next < frames.size() && length < batch.size(); ++next) {
                if (frames[next].size() <= buffers_.frame_size()) batch[length++] = frames[next];
            }
            const unsigned done = send_batch({batch.data(), length});
            taken += done;
            if (done < length) break;   // no room: the rest would find none either
        }
        (failed() ? transmit_stats_.send_errors : transmit_stats_.send_drops) += frames.size() - taken;
        return taken;
    }

    std::size_t sends_under_way() const noexcept override {
        std::lock_guard lock(transmit_mutex_);
        reap();
        return in_flight();
    }

    bool failed() const noexcept override { return failure_.load(std::memory_order_relaxed) != 0; }

    std::string failure() const override {
        if (failed()) {
            // The receiver may have seen the flush before anybody has asked for the send that caused it.
            std::lock_guard lock(transmit_mutex_);
            reap();
        }
        const unsigned code = failure_.load(std::memory_order_relaxed);
        if (code == 0) return {};
        const auto status = static_cast<ibv_wc_status>(code & ~sending);
        return std::string(code & sending ? "sending: " : "receiving: ") + ibv_wc_status_str(status);
    }

    QueueStats stats() const noexcept override {
        std::lock_guard lock(transmit_mutex_);
        reap();
        QueueStats sum = transmit_stats_;
        sum.received = __atomic_load_n(&received_, __ATOMIC_RELAXED);
        sum.receive_errors = __atomic_load_n(&receive_errors_, __ATOMIC_RELAXED);
        return sum;
    }

private:
    /// Posts the buffers in `returned_`; errno of the call, with what could not be posted still in `returned_`.
    int post_returned() noexcept {
        if (returned_.empty()) return 0;
        std::array<ibv_recv_wr, batch_length> requests;
        std::array<ibv_sge, batch_length> elements;
        for (std::size_t i = 0; i < returned_.size(); ++i) {
            elements[i] = buffers_.element(returned_[i], buffers_.frame_size());
            requests[i] =
                ibv_recv_wr{returned_[i], i + 1 < returned_.size() ? &requests[i + 1] : nullptr, &elements[i], 1};
        }
        ibv_recv_wr* refused = nullptr;
        const int code = ibv_post_recv(objects_.qp.get(), requests.data(), &refused);
        if (code == 0) {
            returned_.clear();
        } else {
            const auto posted = refused != nullptr ? refused - requests.data() : 0;
            returned_.erase(returned_.begin(), returned_.begin() + posted);
        }
        return code;
    }

    /// A flush is what follows; the first failure that is none is the cause.
    void note_failure(ibv_wc_status status, unsigned side) const noexcept {
        unsigned known = failure_.load(std::memory_order_relaxed);
        while (known == 0 || ((known & ~sending) == IBV_WC_WR_FLUSH_ERR && status != IBV_WC_WR_FLUSH_ERR)) {
            if (failure_.compare_exchange_weak(known, status | side, std::memory_order_relaxed)) return;
        }
    }

    /// Fills `frames_`; the buffers of the frames before go back to the device first, unless it would only flush them.
    void poll_receive() noexcept {
        frame_length_ = 0;
        if (failed()) {
            returned_.clear();
        } else {
            post_returned();
        }
        if (returned_.size() == batch_length) return;   // the device takes none back: nothing more can be held
        ibv_cq_ex* cq = objects_.receive_cq.get();
        ibv_poll_cq_attr attributes{};
        if (ibv_start_poll(cq, &attributes) != 0) return;
        std::uint64_t errors = 0;
        do {
            if (cq->status != IBV_WC_SUCCESS) {
                note_failure(cq->status, 0);
                errors += cq->status != IBV_WC_WR_FLUSH_ERR;   // a flushed buffer is no frame
                continue;
            }
            const auto buffer = static_cast<std::uint32_t>(cq->wr_id);
            returned_.push_back(buffer);
            frames_[frame_length_++] = {buffers_.frame(buffer), ibv_wc_read_byte_len(cq), ibv_wc_read_flow_tag(cq)};
        } while (returned_.size() < batch_length && ibv_next_poll(cq) == 0);
        ibv_end_poll(cq);
        __atomic_fetch_add(&received_, frame_length_, __ATOMIC_RELAXED);
        __atomic_fetch_add(&receive_errors_, errors, __ATOMIC_RELAXED);
    }

    /// True: a send has failed.
    bool drain_wake_ups() noexcept {
        ibv_cq* cq = nullptr;
        void* context = nullptr;
        unsigned receives = 0, sends = 0;
        while (ibv_get_cq_event(objects_.channel.get(), &cq, &context) == 0) {
            ++(cq == objects_.send_cq.get() ? sends : receives);
        }
        if (receives != 0) ibv_ack_cq_events(ibv_cq_ex_to_cq(objects_.receive_cq.get()), receives);
        if (sends != 0) ibv_ack_cq_events(objects_.send_cq.get(), sends);
        return sends != 0;
    }

    [[nodiscard]] std::size_t in_flight() const noexcept { return static_cast<std::size_t>(posted_ - completed_); }

    /// At most batch_length frames that fit a buffer, as far as there is room; one completion for all of them.
    unsigned send_batch(std::span<const std::span<const std::uint8_t>> frames) noexcept {
        if (transmit_length_ - in_flight() < frames.size()) reap();
        const std::size_t length = std::min<std::size_t>(frames.size(), transmit_length_ - in_flight());
        if (length == 0) return 0;
        std::array<ibv_send_wr, batch_length> requests{};
        std::array<ibv_sge, batch_length> elements;
        for (std::size_t i = 0; i < length; ++i) {
            const std::size_t buffer = receive_length_ + (posted_ + i) % transmit_length_;
            std::memcpy(buffers_.frame(buffer), frames[i].data(), frames[i].size());
            elements[i] = buffers_.element(buffer, frames[i].size());
            requests[i].sg_list = &elements[i];
            requests[i].num_sge = 1;
            requests[i].opcode = IBV_WR_SEND;
            requests[i].wr_id = posted_ + i + 1;
            requests[i].next = i + 1 < length ? &requests[i + 1] : nullptr;
            // By number too: batches that were taken in part have no last one, and a ring full of those would never
            // empty.
            if (requests[i].wr_id % batch_length == 0) requests[i].send_flags = IBV_SEND_SIGNALED;
        }
        requests[length - 1].send_flags = IBV_SEND_SIGNALED;
        ibv_send_wr* refused = nullptr;
        const int code = ibv_post_send(objects_.qp.get(), requests.data(), &refused);
        const std::size_t taken = code == 0            ? length
                                  : refused == nullptr ? 0
                                                       : static_cast<std::size_t>(refused - requests.data());
        posted_ += taken;
        return static_cast<unsigned>(taken);
    }

    void reap() const noexcept {
        std::array<ibv_wc, batch_length> completions;
        int length;
        while ((length = ibv_poll_cq(objects_.send_cq.get(), batch_length, completions.data())) > 0) {
            for (int i = 0; i < length; ++i) credit(completions[i]);
        }
    }

    void credit(const ibv_wc& completion) const noexcept {
        if (completion.status != IBV_WC_SUCCESS) note_failure(completion.status, sending);
        const std::uint64_t covered = completion.wr_id - completed_;
        if (covered == 0 || covered > in_flight()) return;   // of nothing that is under way
        const std::uint64_t lost = completion.status == IBV_WC_SUCCESS        ? 0
                                   : completion.status == IBV_WC_WR_FLUSH_ERR ? covered
                                                                              : 1;
        transmit_stats_.sent += covered - lost;
        transmit_stats_.send_errors += lost;
        completed_ = completion.wr_id;
    }

    static constexpr unsigned sending = 1U << 16;   ///< in `failure_`, beside the ibv_wc_status

    unsigned receive_length_, transmit_length_;
    Buffers buffers_;      // gone after the QP that uses them
    Objects objects_;

    std::array<Frame, batch_length> frames_;
    std::size_t frame_length_ = 0;
    std::vector<std::uint32_t> returned_;   ///< buffers of the frames that were given out last
    bool looked_ahead_ = false;             ///< arm() has frames for the next receive()
    std::uint64_t received_ = 0, receive_errors_ = 0;

    mutable std::atomic<unsigned> failure_{0};

    // Whoever asks for figures takes completions, so these change behind const.
    mutable std::mutex transmit_mutex_;
    std::uint64_t posted_ = 0;              ///< sends taken by the device
    mutable std::uint64_t completed_ = 0;   ///< of those, what completions have told of
    mutable QueueStats transmit_stats_;
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
    return {};
}

Result<void> create_completion_queues(const PortQueueSpec& spec, Objects& objects) {
    objects.channel.reset(ibv_create_comp_channel(spec.context));
    if (objects.channel == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_comp_channel"));
    const int flags = fcntl(objects.channel->fd, F_GETFL);
    if (flags < 0 || fcntl(objects.channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        return tl::unexpected(failure_of(errno, "fcntl of the completion channel"));
    }
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = spec.receive_length;
    attributes.channel = objects.channel.get();
    attributes.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_FLOW_TAG;
    objects.receive_cq.reset(ibv_create_cq_ex(spec.context, &attributes));
    if (objects.receive_cq == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_cq_ex"));
    objects.send_cq.reset(
        ibv_create_cq(spec.context, static_cast<int>(spec.transmit_length), nullptr, objects.channel.get(), 0));
    if (objects.send_cq == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_cq"));
    return {};
}

Result<void> create_queue_pair(const PortQueueSpec& spec, Objects& objects) {
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = objects.send_cq.get();
    attributes.recv_cq = ibv_cq_ex_to_cq(objects.receive_cq.get());
    attributes.cap = {spec.transmit_length, spec.receive_length, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RAW_PACKET;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.pd = spec.pd;
    objects.qp.reset(ibv_create_qp_ex(spec.context, &attributes));
    if (objects.qp == nullptr) return tl::unexpected(failure_of(errno, "ibv_create_qp_ex(raw packet)"));
    return {};
}

Result<void> start_queue_pair(Objects& objects, std::uint32_t ib_port) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = static_cast<std::uint8_t>(ib_port);
    int code = ibv_modify_qp(objects.qp.get(), &attributes, IBV_QP_STATE | IBV_QP_PORT);
    for (const ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
        if (code != 0) break;
        attributes = {};
        attributes.qp_state = state;
        code = ibv_modify_qp(objects.qp.get(), &attributes, IBV_QP_STATE);
    }
    if (code != 0) return tl::unexpected(failure_of(code, "ibv_modify_qp(raw packet)"));

    mlx5dv_qp provider{};
    provider.comp_mask = MLX5DV_QP_MASK_RAW_QP_HANDLES;
    mlx5dv_obj object{};
    object.qp.in = objects.qp.get();
    object.qp.out = &provider;
    if (const int error = mlx5dv_init_obj(&object, MLX5DV_OBJ_QP); error != 0) {
        return tl::unexpected(failure_of(error, "mlx5dv_init_obj"));
    }
    if ((provider.comp_mask & MLX5DV_QP_MASK_RAW_QP_HANDLES) == 0) {
        return tl::unexpected(
            Error{EOPNOTSUPP, "mlx5dv_init_obj: the device does not tell a raw packet QP's SQ number"});
    }
    objects.sqn = provider.sqn;
    return {};
}

}  // namespace

Result<std::unique_ptr<PortQueue>> PortQueue::create(const PortQueueSpec& spec) noexcept try {
    Objects objects;
    auto made = check(spec);
    if (!made) return tl::unexpected(std::move(made.error()));
    auto buffers = Buffers::create(spec.pd, spec.receive_length + spec.transmit_length, spec.frame_size);
    if (!buffers) return tl::unexpected(std::move(buffers.error()));
    made = create_completion_queues(spec, objects);
    if (made) made = create_queue_pair(spec, objects);
    if (made) made = start_queue_pair(objects, spec.ib_port);
    if (!made) return tl::unexpected(std::move(made.error()));
    auto queue = std::make_unique<RawPacketQueue>(spec, std::move(*buffers), std::move(objects));
    if (auto started = queue->start(); !started) return tl::unexpected(std::move(started.error()));
    return queue;
} catch (const std::bad_alloc&) {
    return tl::unexpected(Error{ENOMEM, "out of memory"});
}

}  // namespace ovsdr::slowpath
