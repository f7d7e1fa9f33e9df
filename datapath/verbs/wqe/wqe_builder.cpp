#include "datapath/verbs/wqe/wqe_builder.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>

#include "datapath/rdma/roce/work_entry.hpp"

namespace ovsdr::soft {

namespace {

constexpr std::size_t octoword = 16;

[[nodiscard]] constexpr std::size_t padded(std::size_t size) {
    return (size + octoword - 1) / octoword * octoword;
}

[[nodiscard]] constexpr std::uint64_t blocks_of(std::size_t size) {
    return (size + roce::basic_block_size - 1) / roce::basic_block_size;
}

}  // namespace

void WqeBuilder::open(const Shape& shape, std::byte* ring, std::atomic<__be32>* doorbell) {
    wr_ids_ = std::make_unique<std::uint64_t[]>(shape.blocks);
    completes_as_ = std::make_unique<std::uint32_t[]>(shape.blocks);
    entries_ = std::make_unique<std::uint64_t[]>(shape.blocks);
    shape_ = shape;
    ring_ = ring;
    doorbell_ = doorbell;
}

roce::SendRing WqeBuilder::ring() noexcept {
    return {.base = ring_, .length = shape_.blocks, .doorbell = doorbell_, .wr_ids = wr_ids_.get(), .freed = &freed_,
            .completes_as = completes_as_.get()};
}

void WqeBuilder::start() {
    mutex_.lock();
    staged_ = published_;
    error_ = 0;
    open_ = false;
}

int WqeBuilder::publish(bool& any) noexcept {
    int error = error_;
    if (!error && open_) error = EINVAL;
    any = !error && staged_.entry != published_.entry;
    if (!error) published_ = staged_;
    if (any) doorbell_->store(htobe32(static_cast<std::uint32_t>(staged_.block & 0xffff)), std::memory_order_release);
    mutex_.unlock();
    return error;
}

void WqeBuilder::abort() noexcept {
    open_ = false;
    mutex_.unlock();
}

unsigned WqeBuilder::cancel(std::uint64_t from, std::uint64_t wr_id) noexcept {
    std::lock_guard guard(mutex_);
    unsigned cancelled = 0;
    for (std::uint64_t block = from; block < published_.block;) {
        const std::uint64_t slot = block & (shape_.blocks - 1);
        auto& segment = *reinterpret_cast<mlx5_wqe_ctrl_seg*>(ring_ + slot * roce::basic_block_size);
        const std::uint32_t word = be32toh(segment.opmod_idx_opcode);
        if (wr_ids_[slot] == wr_id) {
            ++cancelled;
            // The opcode told how it completes, where completes_as_ does not.
            const auto opcode = static_cast<std::uint8_t>(word);
            if (completes_as_[slot] == 0) completes_as_[slot] = roce::completion_opcode(opcode);
            segment.opmod_idx_opcode = htobe32((word & 0x00ffff00) | MLX5_OPCODE_NOP);
        }
        block += std::max<std::uint64_t>(1, blocks_of((be32toh(segment.qpn_ds) & 0x3f) * octoword));
    }
    return cancelled;
}

void WqeBuilder::reset() noexcept {
    std::lock_guard guard(mutex_);
    published_ = staged_ = Position{};
    freed_.store(0, std::memory_order_relaxed);
    if (doorbell_) doorbell_->store(0, std::memory_order_release);
}

bool WqeBuilder::has_room(std::uint64_t blocks) const noexcept {
    const std::uint64_t freed = freed_.load(std::memory_order_acquire);
    if (staged_.block + blocks - freed > shape_.blocks) return false;
    // The oldest entry that is not free begins where the freed blocks end.
    if (freed == staged_.block) return shape_.max_entries != 0;
    const std::uint64_t oldest = entries_[freed & (shape_.blocks - 1)];
    return staged_.entry - oldest < shape_.max_entries;
}

bool WqeBuilder::begin(const WqeOperation& operation, std::uint64_t wr_id, unsigned send_flags) noexcept {
    if (error_) return false;
    if (open_ || !has_room(1)) {
        fail(open_ ? EINVAL : ENOMEM);
        return false;
    }
    open_ = true;
    setters_ = 0;
    size_ = 0;
    wr_id_ = wr_id;
    fences_next_ = operation.fences_next;
    completes_as_[staged_.block & (shape_.blocks - 1)] = operation.completes_as;
    auto& segment = append<mlx5_wqe_ctrl_seg>();
    segment.opmod_idx_opcode = htobe32(std::uint32_t{operation.opmod} << 24 | operation.opcode);
    segment.imm = operation.immediate;
    const bool signaled = shape_.all_signaled || (send_flags & IBV_SEND_SIGNALED);
    segment.fm_ce_se = static_cast<std::uint8_t>(
        (send_flags & IBV_SEND_FENCE ? std::uint8_t{MLX5_WQE_CTRL_FENCE} : staged_.fence) |
        (signaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0) | (send_flags & IBV_SEND_SOLICITED ? MLX5_WQE_CTRL_SOLICITED : 0));
    return true;
}

std::span<std::byte> WqeBuilder::append_bytes(std::size_t size) noexcept {
    const std::size_t room = padded(size);
    if (!open_ || size_ + room > max_entry_size) {
        fail(open_ ? ENOMEM : EINVAL);
        return {nowhere_.data(), std::min(size, nowhere_.size())};
    }
    std::byte* const start = entry_.data() + size_;
    std::memset(start, 0, room);
    size_ += room;
    return {start, size};
}

void WqeBuilder::append_data(const ibv_sge& sge) noexcept {
    auto& segment = append<mlx5_wqe_data_seg>();
    segment.byte_count = htobe32(sge.length);
    segment.lkey = htobe32(sge.lkey);
    segment.addr = htobe64(sge.addr);
}

bool WqeBuilder::expects_setter() noexcept {
    if (error_) return false;
    if (open_ && setters_) return true;
    fail(EINVAL);
    return false;
}

void WqeBuilder::end() noexcept {
    if (!open_) return;
    if (!has_room(blocks_of(size_))) return fail(ENOMEM);
    auto& segment = control();
    segment.opmod_idx_opcode |= htobe32(static_cast<std::uint32_t>(staged_.block & 0xffff) << 8);
    segment.qpn_ds = htobe32(shape_.qpn << 8 | static_cast<std::uint32_t>(size_ / octoword));
    write({entry_.data(), size_});
}

void WqeBuilder::copy_raw(const void* entry, std::uint64_t wr_id) noexcept {
    if (error_) return;
    mlx5_wqe_ctrl_seg segment;
    std::memcpy(&segment, entry, sizeof segment);
    const std::size_t size = (be32toh(segment.qpn_ds) & 0x3f) * octoword;
    if (open_ || size < sizeof segment) return fail(EINVAL);
    if (!has_room(blocks_of(size))) return fail(ENOMEM);
    std::memcpy(entry_.data(), entry, size);
    control().opmod_idx_opcode = htobe32((be32toh(segment.opmod_idx_opcode) & 0xff0000ff) |
                                         static_cast<std::uint32_t>(staged_.block & 0xffff) << 8);
    completes_as_[staged_.block & (shape_.blocks - 1)] = IBV_WC_DRIVER2;
    wr_id_ = wr_id;
    fences_next_ = false;
    write({entry_.data(), size});
}

/// Into the ring, around its end if need be; the entry is staged.
void WqeBuilder::write(std::span<const std::byte> entry) noexcept {
    const std::uint64_t first = staged_.block & (shape_.blocks - 1);
    const std::size_t to_end = (shape_.blocks - first) * roce::basic_block_size;
    const std::size_t straight = std::min(entry.size(), to_end);
    std::memcpy(ring_ + first * roce::basic_block_size, entry.data(), straight);
    std::memcpy(ring_, entry.data() + straight, entry.size() - straight);
    wr_ids_[first] = wr_id_;
    entries_[first] = staged_.entry++;
    staged_.block += blocks_of(entry.size());
    staged_.fence = fences_next_ ? std::uint8_t{MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE} : std::uint8_t{0};
    open_ = false;
}

}  // namespace ovsdr::soft
