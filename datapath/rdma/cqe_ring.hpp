// Completions as CQEs in the application's memory, for a queue that the application polls itself.
//
// Model. 64-byte entries (struct mlx5_cqe64, or mlx5_err_cqe) in a ring of a power of two; in one of 128 bytes each, the
// second half has the CQE. An entry's owner bit is the wrap count's lowest bit; entries begin as invalid. The doorbell
// record's first word has the consumer's counter (24 bits): the ring is full when it is a ring's length behind.
//
// A requester's CQE names the opcode of its work queue entry. Completions know what kind of operation it was, so that a
// SEND with immediate data reads as a SEND; applications look into their own entry for that.
//
// Threads: write() under the completion queue's lock. Source: PRM, completion queue entries; mlx5dv.h.
#pragma once

#include <infiniband/mlx5dv.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "datapath/rdma/completion_queue.hpp"

namespace ovsdr::soft {

class CqeRing {
public:
    struct Spec {
        std::byte* base;
        unsigned log_length;
        unsigned entry_size;                  ///< bytes: 64 or 128
        const std::atomic<__be32>* doorbell;  ///< consumer counter, then the arm word
        bool ignore_overrun;
    };

    /// Makes every entry invalid.
    explicit CqeRing(const Spec& spec) noexcept;

    /// false: the ring is full.
    [[nodiscard]] bool write(const Completion& completion) noexcept;

private:
    const Spec spec_;
    std::uint32_t produced_ = 0;
};

}  // namespace ovsdr::soft
