#include "datapath/rdma/roce/memory_copy.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace ovsdr::soft::roce {

namespace {

struct Entry {
    mlx5_wqe_ctrl_seg control;
    MemoryCopy::Metadata metadata;
    mlx5_wqe_data_seg from, to;
};
static_assert(sizeof(Entry) == 64);

[[nodiscard]] ibv_sge piece_of(const mlx5_wqe_data_seg& segment) noexcept {
    return {be64toh(segment.addr), be32toh(segment.byte_count), be32toh(segment.lkey)};
}

}  // namespace

ibv_wc_status MemoryCopy::begin(const Transfer::Spec& memory, std::span<const std::byte> bytes) noexcept {
    Entry entry;
    if (bytes.size() != sizeof entry) return IBV_WC_LOC_QP_OP_ERR;
    std::memcpy(&entry, bytes.data(), sizeof entry);
    const ibv_sge from = piece_of(entry.from), to = piece_of(entry.to);
    if (be32toh(entry.control.opmod_idx_opcode) >> 24 != dma || from.length != to.length) return IBV_WC_LOC_QP_OP_ERR;
    // No bytes stand for 2^31, which is too many as well.
    if (from.length == 0 || from.length > most) return IBV_WC_LOC_LEN_ERR;
    Transfer::Spec written = memory;
    written.access = IBV_ACCESS_LOCAL_WRITE;
    const ibv_sge metadata{be64toh(entry.metadata.address), metadata_size, be32toh(entry.metadata.key)};
    Transfer::Fault fault = to_.begin(written, {&metadata, 1});
    if (fault == Transfer::Fault::none) fault = to_.begin(written, {&to, 1});
    if (fault == Transfer::Fault::none) fault = from_.begin(memory, {&from, 1});
    if (fault != Transfer::Fault::none) return IBV_WC_LOC_PROT_ERR;
    done_ = 0;
    left_ = from.length;
    return IBV_WC_SUCCESS;
}

ibv_wc_status MemoryCopy::advance(const Transfer::Spec& memory, std::span<const std::byte> entry) noexcept {
    if (left_ == 0) {
        if (const ibv_wc_status status = begin(memory, entry); status != IBV_WC_SUCCESS) return status;
    }
    alignas(64) std::array<std::byte, 8192> held;  // stays in the first-level cache
    for (std::uint64_t end = done_ + std::min<std::uint64_t>(left_, slice); done_ != end;) {
        const std::span<std::byte> part{held.data(), std::min<std::uint64_t>(held.size(), end - done_)};
        Transfer::Fault fault = from_.gather(done_, part);
        if (fault == Transfer::Fault::none) fault = to_.scatter(done_, part);
        if (fault != Transfer::Fault::none) {
            left_ = 0;
            return IBV_WC_LOC_PROT_ERR;
        }
        done_ += part.size();
        left_ -= part.size();
    }
    return IBV_WC_SUCCESS;
}

}  // namespace ovsdr::soft::roce
