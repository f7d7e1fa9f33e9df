#include "datapath/rdma/roce/rendezvous.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cstring>

namespace ovsdr::soft::roce {

namespace {

constexpr std::uint8_t signaled = MLX5_WQE_CTRL_CQ_UPDATE;
constexpr std::uint8_t behind_reads = 2 << 5;  // Fence::reads

template <typename Segment>
std::byte* put(std::byte* to, const Segment& segment) noexcept {
    std::memcpy(to, &segment, sizeof segment);
    return to + sizeof segment;
}

}  // namespace

Rendezvous::Rendezvous(const QueuePairSpec& spec)
    : spec_(spec), tags_(*spec.srq->tags()), ring_(std::size_t{ring_length} * basic_block_size) {
    spec_.domain = spec.srq->spec().domain;
    spec_.send_queue = nullptr;
    spec_.send = {.base = ring_.data(), .length = ring_length, .doorbell = &doorbell_};
}

std::byte* Rendezvous::next_block() noexcept {
    return ring_.data() + (posted_++ & (ring_length - 1)) * basic_block_size;
}

void Rendezvous::begin(const TagMatch& match, const RendezvousHeader& header) noexcept {
    const std::uint32_t size = be32toh(header.where.len);
    jobs_[(posted_ & (ring_length - 1)) / 2] = {match, size};
    mlx5_wqe_ctrl_seg control{};
    const auto index = static_cast<std::uint16_t>(posted_);
    const unsigned read_units = size != 0 ? 3 : 2;  // a piece of no bytes would stand for 2^31
    mlx5dv_set_ctrl_seg(&control, index, MLX5_OPCODE_RDMA_READ, 0, spec_.qpn, signaled,
                        static_cast<std::uint8_t>(read_units), 0, 0);
    std::byte* at = put(next_block(), control);
    at = put(at, mlx5_wqe_raddr_seg{header.where.va, header.where.rkey, 0});
    put(at, mlx5_wqe_data_seg{htobe32(size), htobe32(match.buffer.lkey), htobe64(match.buffer.addr)});

    RendezvousHeader told = header;
    told.tag.opcode = IBV_TMH_FIN;
    mlx5dv_set_ctrl_seg(&control, static_cast<std::uint16_t>(index + 1), MLX5_OPCODE_SEND, 0, spec_.qpn,
                        signaled | behind_reads, 4, 0, 0);
    at = put(next_block(), control);
    at = put(at, htobe32(static_cast<std::uint32_t>(sizeof told) | MLX5_INLINE_SEG));
    put(at, told);
    doorbell_.store(htobe32(static_cast<std::uint32_t>(posted_ & 0xffff)), std::memory_order_release);
}

void Rendezvous::completed(std::uint64_t block, ibv_wc_status status) noexcept {
    const bool is_read = block % 2 == 0;
    if (!is_read) {
        freed_ = block + 1;
        return;
    }
    next_read_ = block + 2;
    const Job& job = jobs_[(block & (ring_length - 1)) / 2];
    const bool done = status == IBV_WC_SUCCESS;
    Completion completion{
        .wr_id = job.match.recv_wr_id,
        .status = done ? IBV_WC_SUCCESS : IBV_WC_TM_RNDV_INCOMPLETE,
        .opcode = IBV_WC_TM_RECV,
        .byte_len = done ? job.size : 0,
        .qp_num = spec_.qpn,
        .wc_flags = unsigned{IBV_WC_TM_DATA_VALID} | (done ? 0U : unsigned{IBV_WC_TM_MATCH})};
    tags_.ends_use(job.match, completion);
    spec_.srq->spec().completions->add({&completion, 1});
}

void Rendezvous::reset() noexcept {
    for (; next_read_ < posted_; next_read_ += 2) tags_.forget(jobs_[(next_read_ & (ring_length - 1)) / 2].match);
    posted_ = freed_ = next_read_ = 0;
    doorbell_.store(0, std::memory_order_relaxed);
}

}  // namespace ovsdr::soft::roce
