// Builds a send queue's work queue entries, in mlx5's formats, in the queue's own ring.
//
// Model. A batch is a run of entries that the device learns of together: start(), any number of entries, then publish()
// or abort(). An entry is begun with begin(), grows segment by segment with append(), and is closed with end(), which
// writes it into the ring: until then it stands in one piece in the builder, so that nobody who fills segments has to
// think of the ring's end, and a reference to a segment is good until end().
//
// Setters. An operation whose data comes by later calls (ibv_wr_set_sge(), mlx5dv_wr_set_mkey_*()) says how many of
// them it waits for: expect(n). Each of them ends with setter_done(), the last of which closes the entry.
//
// Errors. The first error of a batch stays (fail()); begin() and everything after it does nothing from then on, and
// publish() is refused: as libmlx5 defers errors to ibv_wr_complete(). append() past the size of an entry fails the
// batch and hands out a segment that goes nowhere.
//
// Room. An entry occupies its basic blocks until a completion at or after it is taken (Completion::freed). The queue is
// full (ENOMEM) with max_entries outstanding, or when the ring's blocks do not suffice.
//
// Threads: start() takes the queue's lock, publish() and abort() give it back. The device reads what was published.
// Source: ibv_wr_post(3), PRM (work queue entries) as mlx5dv.h has it.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>

#include "datapath/rdma/roce/queue_pair.hpp"

namespace ovsdr::soft {

/// What an entry is, apart from its segments.
struct WqeOperation {
    std::uint8_t opcode;            ///< MLX5_OPCODE_*
    std::uint8_t opmod = 0;
    __be32 immediate = 0;           ///< the control segment's imm: immediate data, a key
    std::uint32_t completes_as = 0; ///< enum ibv_wc_opcode where the opcode does not tell (UMR, SET_PSV, ...)
    bool fences_next = false;       ///< the next entry waits for this one (initiator small fence)
};

class WqeBuilder {
public:
    static constexpr std::size_t max_entry_size = 63 * 16;  ///< bytes: a control segment counts in 6 bits of 16 bytes

    struct Shape {
        std::uint32_t qpn = 0;
        std::uint32_t blocks = 0;       ///< of the ring, a power of two; 0: no send queue
        std::uint32_t max_entries = 0;  ///< max_send_wr as granted
        std::uint32_t max_sges = 0;
        std::uint32_t max_inline = 0;   ///< bytes of inline data, or of a layout, in an entry
        bool all_signaled = false;
    };

    WqeBuilder() = default;
    WqeBuilder(const WqeBuilder&) = delete;
    WqeBuilder& operator=(const WqeBuilder&) = delete;

    /// `ring` (shape.blocks basic blocks) and `doorbell` outlive the builder. Throws std::bad_alloc.
    void open(const Shape& shape, std::byte* ring, std::atomic<__be32>* doorbell);

    [[nodiscard]] const Shape& shape() const noexcept { return shape_; }

    void start();
    /// Gives the entries to the device and unlocks. The batch's error, and then nothing is posted; EINVAL where an
    /// entry waits for setters. `any`: there is something to ring for.
    [[nodiscard]] int publish(bool& any) noexcept;
    void abort() noexcept;

    /// An entry with its control segment. false: the batch has failed (ENOMEM full), or another entry is open (EINVAL).
    bool begin(const WqeOperation& operation, std::uint64_t wr_id, unsigned send_flags) noexcept;

    /// The next segment of the open entry, zeroed.
    template <typename Segment>
    Segment& append() noexcept {
        static_assert(sizeof(Segment) % 16 == 0 && std::is_trivially_copyable_v<Segment>);
        return *reinterpret_cast<Segment*>(append_bytes(sizeof(Segment)).data());
    }
    /// `size` bytes of the open entry, zeroed; the next segment begins at the next multiple of 16.
    std::span<std::byte> append_bytes(std::size_t size) noexcept;
    void append_data(const ibv_sge& sge) noexcept;

    /// The open entry's control segment.
    [[nodiscard]] mlx5_wqe_ctrl_seg& control() noexcept { return *reinterpret_cast<mlx5_wqe_ctrl_seg*>(entry_.data()); }
    [[nodiscard]] std::size_t entry_size() const noexcept { return size_; }
    /// The open entry is of that opcode.
    [[nodiscard]] bool is_open(std::uint8_t opcode) noexcept {
        return open_ && static_cast<std::uint8_t>(be32toh(control().opmod_idx_opcode)) == opcode;
    }

    /// false: no entry is open, which fails the batch with EINVAL.
    [[nodiscard]] bool expects_setter() noexcept;
    void expect(unsigned setters) noexcept { setters_ = setters; }
    void setter_done() noexcept {
        if (open_ && setters_ && --setters_ == 0) end();
    }

    void end() noexcept;

    /// An entry that the application made: its control segment's size counts, its index is filled in.
    void copy_raw(const void* entry, std::uint64_t wr_id) noexcept;

    void fail(int error) noexcept {
        if (!error_) error_ = error;
        open_ = false;
    }
    [[nodiscard]] int error() const noexcept { return error_; }
    /// The batch goes on without the entry that failed: what was closed before it stands. For ibv_post_send().
    void forgive() noexcept {
        error_ = 0;
        open_ = false;
    }

    /// Makes NOPs of the entries with that wr_id which were published from block `from` on, and says how many. They
    /// complete as what they were. The device must not be executing them (SQD).
    [[nodiscard]] unsigned cancel(std::uint64_t from, std::uint64_t wr_id) noexcept;

    /// After the queue went to RESET.
    void reset() noexcept;

    /// What the device half needs to know.
    [[nodiscard]] roce::SendRing ring() noexcept;
    [[nodiscard]] std::uint32_t posted_blocks() const noexcept { return static_cast<std::uint32_t>(published_.block); }

private:
    struct Position {
        std::uint64_t block = 0;  ///< basic blocks since RESET
        std::uint64_t entry = 0;
        std::uint8_t fence = 0;   ///< of the next entry
    };

    [[nodiscard]] bool has_room(std::uint64_t blocks) const noexcept;
    void write(std::span<const std::byte> entry) noexcept;

    Shape shape_;
    std::byte* ring_ = nullptr;
    std::atomic<__be32>* doorbell_ = nullptr;
    std::unique_ptr<std::uint64_t[]> wr_ids_;        ///< by an entry's first block
    std::unique_ptr<std::uint32_t[]> completes_as_;  ///< by an entry's first block
    std::unique_ptr<std::uint64_t[]> entries_;       ///< number of the entry that begins at a block
    alignas(64) std::atomic<std::uint64_t> freed_{0};

    alignas(64) std::mutex mutex_;
    Position published_, staged_;
    int error_ = 0;
    bool open_ = false;
    unsigned setters_ = 0;
    bool fences_next_ = false;
    std::size_t size_ = 0;  ///< bytes of the open entry
    std::uint64_t wr_id_ = 0;
    alignas(64) std::array<std::byte, max_entry_size> entry_;
    alignas(16) std::array<std::byte, max_entry_size> nowhere_;
};

}  // namespace ovsdr::soft
