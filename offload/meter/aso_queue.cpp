#include "offload/meter/aso_queue.hpp"

#include <endian.h>
#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <new>
#include <thread>

#include "offload/dr/device/leak.hpp"
#include "offload/dr/device/prm.hpp"

namespace ovsdr::meter {

namespace {

namespace prm = dr::prm;
using dr::destroyed;
using dr::devx_failure;
using dr::failure;

constexpr unsigned block_size = 64, log_block_size = 6, log_length = 4, length = 1 << log_length;   // of both rings
constexpr std::size_t page_size = 4096;
constexpr std::size_t command_size = 272, answer_size = 16;   // bytes; of MODIFY_SQ's too

constexpr std::uint32_t create_cq = 0x400, create_sq = 0x904, modify_sq = 0x905;
constexpr prm::Field opcode{0, 16}, object_number{72, 24};    // the latter in answers, and in MODIFY_SQ

// In CREATE_CQ: the context begins at bit 128.
constexpr std::uint16_t cqc = 128;
constexpr prm::Field cq_record_in_umem{cqc + 6, 1}, cq_record_umem{cqc + 32, 32}, cq_log_length{cqc + 99, 5},
    cq_doorbell_page{cqc + 104, 24}, cq_event_queue{cqc + 184, 8}, cq_record_offset{cqc + 448 + 32, 32},
    cq_ring_offset{640 + 32, 32}, cq_ring_umem{704, 32}, cq_ring_in_umem{736, 1};

// In CREATE_SQ and MODIFY_SQ: the context begins at bit 256, its ring's at 384 of that.
constexpr std::uint16_t sqc = 256, wq = sqc + 384;
constexpr prm::Field state_before{64, 4}, sq_state{sqc + 8, 4}, sq_completions{sqc + 72, 24};
constexpr prm::Field wq_type{wq, 4}, wq_pd{wq + 72, 24}, wq_doorbell_page{wq + 104, 24},
    wq_record_offset{wq + 128 + 32, 32}, wq_log_stride{wq + 268, 4}, wq_log_length{wq + 283, 5},
    wq_record_in_umem{wq + 288, 1}, wq_ring_in_umem{wq + 289, 1}, wq_record_umem{wq + 320, 32},
    wq_ring_umem{wq + 352, 32}, wq_ring_offset{wq + 384 + 32, 32};
constexpr std::uint32_t cyclic = 1, reset = 0, ready = 1;

// ACCESS_ASO: a control segment, an ASO control segment of 48 bytes, the object.
constexpr std::uint8_t access_aso = 0x2d, of_flow_meter = 2;
constexpr unsigned request_blocks = 2;
constexpr std::size_t control_size = 16, request_size = request_blocks * block_size;
constexpr std::size_t at_mask_mode = control_size + 12, at_conditions = control_size + 13,
                      at_mask = control_size + 40, at_object = 64;
constexpr std::uint8_t mask_by_bytes = 1 << 6, both_always = 0x11;

constexpr std::chrono::seconds patience{2};

using Command = std::array<std::uint8_t, command_size>;

Command command_of(std::uint32_t code) noexcept {
    Command command{};
    prm::set(command.data(), opcode, code);
    return command;
}

/// Makes an object and gives its number.
Result<std::uint32_t> make(ibv_context* context, const Command& in, StaticName name, mlx5dv_devx_obj*& object) {
    std::array<std::uint8_t, answer_size> out{};
    object = mlx5dv_devx_obj_create(context, in.data(), in.size(), out.data(), out.size());
    if (object == nullptr) return tl::unexpected(devx_failure(errno, name, out));
    return prm::get(out.data(), object_number);
}

}  // namespace

Result<std::uint32_t> number_of(ibv_pd* pd) noexcept {
    mlx5dv_obj asked{};
    mlx5dv_pd told{};
    asked.pd.in = pd;
    asked.pd.out = &told;
    if (const int code = mlx5dv_init_obj(&asked, MLX5DV_OBJ_PD); code != 0) {
        return tl::unexpected(failure(code, "mlx5dv_init_obj"));
    }
    return told.pdn;
}

/// What the device reads and writes.
struct alignas(page_size) AsoQueue::Page {
    std::array<mlx5_cqe64, length> completions;
    std::array<std::array<std::uint8_t, block_size>, length> requests;
    struct alignas(block_size) Record {
        __be32 words[2];
    };
    Record of_completions, of_requests;
};

Result<std::unique_ptr<AsoQueue>> AsoQueue::create(std::shared_ptr<dr::Device> device) {
    std::unique_ptr<AsoQueue> queue(new AsoQueue(std::move(device)));
    Result<void> made = queue->make_memory();
    if (made) made = queue->make_completion_queue();
    if (made) made = queue->make_send_queue();
    if (!made) return tl::unexpected(std::move(made.error()));
    return queue;
}

AsoQueue::~AsoQueue() {
    bool gone = true;
    if (queue_ != nullptr) gone = destroyed([this] { return mlx5dv_devx_obj_destroy(queue_); });
    if (completions_ != nullptr) {
        gone = destroyed([this] { return mlx5dv_devx_obj_destroy(completions_); }) && gone;
    }
    if (doorbell_ != nullptr) mlx5dv_devx_free_uar(doorbell_);
    if (umem_ != nullptr) gone = destroyed([this] { return mlx5dv_devx_umem_dereg(umem_); }) && gone;
    if (gone) delete page_;   // a queue that the device kept may still write there
}

Result<void> AsoQueue::make_memory() {
    static_assert(sizeof(Page) == page_size);
    page_ = new Page{};
    // As if the ring had been filled the time before.
    for (mlx5_cqe64& completion : page_->completions) completion.op_own = MLX5_CQE_INVALID << 4 | 1;
    umem_ = mlx5dv_devx_umem_reg(device_->context(), page_, sizeof *page_, IBV_ACCESS_LOCAL_WRITE);
    if (umem_ == nullptr) return tl::unexpected(failure(errno, "mlx5dv_devx_umem_reg"));
    doorbell_ = mlx5dv_devx_alloc_uar(device_->context(), MLX5DV_UAR_ALLOC_TYPE_NC);
    // Older kernels have write-combining pages only.
    if (doorbell_ == nullptr) doorbell_ = mlx5dv_devx_alloc_uar(device_->context(), MLX5DV_UAR_ALLOC_TYPE_BF);
    if (doorbell_ == nullptr) return tl::unexpected(failure(errno, "mlx5dv_devx_alloc_uar"));
    return {};
}

Result<void> AsoQueue::make_completion_queue() {
    std::uint32_t events = 0;
    if (const int code = mlx5dv_devx_query_eqn(device_->context(), 0, &events); code != 0) {
        return tl::unexpected(failure(code, "mlx5dv_devx_query_eqn"));
    }
    Command in = command_of(create_cq);
    prm::set(in.data(), cq_record_in_umem, 1);
    prm::set(in.data(), cq_record_umem, umem_->umem_id);
    prm::set(in.data(), cq_record_offset, offsetof(Page, of_completions));
    prm::set(in.data(), cq_log_length, log_length);
    prm::set(in.data(), cq_doorbell_page, doorbell_->page_id);
    prm::set(in.data(), cq_event_queue, events);
    prm::set(in.data(), cq_ring_in_umem, 1);
    prm::set(in.data(), cq_ring_umem, umem_->umem_id);
    prm::set(in.data(), cq_ring_offset, offsetof(Page, completions));
    auto number = make(device_->context(), in, "CREATE_CQ", completions_);
    if (!number) return tl::unexpected(std::move(number.error()));
    completions_number_ = *number;
    return {};
}

Result<void> AsoQueue::make_send_queue() {
    auto pd = number_of(device_->pd());
    if (!pd) return tl::unexpected(std::move(pd.error()));
    Command in = command_of(create_sq);
    prm::set(in.data(), sq_completions, completions_number_);
    prm::set(in.data(), wq_type, cyclic);
    prm::set(in.data(), wq_pd, *pd);
    prm::set(in.data(), wq_doorbell_page, doorbell_->page_id);
    prm::set(in.data(), wq_log_stride, log_block_size);
    prm::set(in.data(), wq_log_length, log_length);
    prm::set(in.data(), wq_record_in_umem, 1);
    prm::set(in.data(), wq_record_umem, umem_->umem_id);
    prm::set(in.data(), wq_record_offset, offsetof(Page, of_requests));
    prm::set(in.data(), wq_ring_in_umem, 1);
    prm::set(in.data(), wq_ring_umem, umem_->umem_id);
    prm::set(in.data(), wq_ring_offset, offsetof(Page, requests));
    auto number = make(device_->context(), in, "CREATE_SQ", queue_);
    if (!number) return tl::unexpected(std::move(number.error()));
    queue_number_ = *number;

    in = command_of(modify_sq);
    prm::set(in.data(), state_before, reset);
    prm::set(in.data(), object_number, queue_number_);
    prm::set(in.data(), sq_state, ready);
    std::array<std::uint8_t, answer_size> out{};
    const int code = mlx5dv_devx_obj_modify(queue_, in.data(), in.size(), out.data(), out.size());
    if (code != 0) return tl::unexpected(devx_failure(code < 0 ? errno : code, "MODIFY_SQ", out));
    return {};
}

Result<void> AsoQueue::write(std::uint32_t number, const Image& image, std::uint64_t bytes) noexcept {
    std::array<std::uint8_t, request_size> request{};
    mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg*>(request.data()), posted_, access_aso, of_flow_meter,
                        queue_number_, MLX5_WQE_CTRL_CQ_UPDATE, request_size / control_size, 0, htobe32(number));
    request[at_mask_mode] = mask_by_bytes;
    request[at_conditions] = both_always;
    const std::uint64_t mask = htobe64(bytes);
    std::memcpy(&request[at_mask], &mask, sizeof mask);
    std::memcpy(&request[at_object], image.data(), image.size());
    std::uint64_t bell = 0;
    std::memcpy(&bell, request.data(), sizeof bell);
    for (unsigned block = 0; block < request_blocks; ++block) {
        std::memcpy(page_->requests[posted_++ % length].data(), request.data() + block * block_size, block_size);
    }
    // The device sees the request before its record, and that before the doorbell.
    std::atomic_ref(page_->of_requests.words[MLX5_SND_DBR]).store(htobe32(posted_), std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    *static_cast<volatile std::uint64_t*>(doorbell_->reg_addr) = bell;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    auto done = wait();
    if (!done) broken_ = true;
    return done;
}

Result<void> AsoQueue::wait() noexcept {
    using Clock = std::chrono::steady_clock;
    mlx5_cqe64& completion = page_->completions[completed_ % length];
    const std::atomic_ref<std::uint8_t> state(completion.op_own);
    const std::uint8_t turn = completed_ / length & 1;
    const auto end = Clock::now() + patience;
    std::uint8_t now = state.load(std::memory_order_acquire);
    while ((now & MLX5_CQE_OWNER_MASK) != turn || now >> 4 == MLX5_CQE_INVALID) {
        if (Clock::now() > end) return tl::unexpected(failure(ETIMEDOUT, "ACCESS_ASO"));
        std::this_thread::sleep_for(std::chrono::microseconds(20));
        now = state.load(std::memory_order_acquire);
    }
    ++completed_;
    const std::uint8_t failed = reinterpret_cast<const mlx5_err_cqe&>(completion).syndrome;
    std::atomic_ref(page_->of_completions.words[0]).store(htobe32(completed_ & 0xFFFFFF), std::memory_order_release);
    if (now >> 4 == MLX5_CQE_REQ) return {};
    return tl::unexpected(Error{EIO, fmt::format("ACCESS_ASO: the device refuses it (syndrome {:#x})", failed),
                                "ACCESS_ASO"});
}

}  // namespace ovsdr::meter
