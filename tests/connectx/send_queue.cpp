#include "tests/connectx/send_queue.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/connectx/host_memory.hpp"

namespace ovsdr::connectx {
namespace {

constexpr std::size_t block_size = 64, unit_size = 16;
constexpr std::uint32_t inline_length_mask = 0x3FF;
constexpr unsigned update_argument = 1;   // opcode modifier of FLOW_TBL_ACCESS
constexpr std::size_t argument_size = 64;

// ACCESS_ASO: a control segment with the object's number as immediate, an ASO control segment, the object's bytes.
constexpr std::uint8_t access_aso = 0x2d, aso_of_flow_meters = 2, masks_bytes = 1 << 6, both_always = 0x11;
constexpr std::size_t aso_at = 16, aso_mask_mode_at = aso_at + 12, aso_conditions_at = aso_at + 13,
                      aso_mask_at = aso_at + 40, aso_data_at = 64, aso_object_size = 64;

template <class T>
T read_at(std::span<const std::uint8_t> bytes, std::size_t offset) {
    T value{};
    if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

struct RequestName {
    std::uint8_t opcode;
    std::string_view name;
};
constexpr RequestName request_names[] = {{MLX5_OPCODE_RDMA_WRITE, "REQUEST:RDMA_WRITE"},
                                         {MLX5_OPCODE_RDMA_READ, "REQUEST:RDMA_READ"},
                                         {MLX5_OPCODE_SEND, "REQUEST:SEND"},
                                         {MLX5_OPCODE_FLOW_TBL_ACCESS, "REQUEST:FLOW_TBL_ACCESS"},
                                         {access_aso, "REQUEST:ACCESS_ASO"}};

std::string_view name_of(std::uint8_t opcode) {
    const auto* known = std::ranges::find(request_names, opcode, &RequestName::opcode);
    return known == std::end(request_names) ? "REQUEST:?" : known->name;
}

}   // namespace

struct SendQueue::Request {
    std::array<std::uint8_t, block_size * unit_size> copy;   ///< as it stands in the ring, straightened
    std::size_t size;                                        ///< bytes
    std::uint8_t opcode, modifier;
    std::uint32_t immediate;
    bool signaled;

    [[nodiscard]] std::span<const std::uint8_t> bytes() const { return {copy.data(), size}; }
};

bool SendQueue::is_request_name(std::string_view name) {
    return std::ranges::find(request_names, name, &RequestName::name) != std::end(request_names);
}

void SendQueue::set_state(State state) {
    state_ = state;
    if (state == State::reset) consumer_ = 0;
}

SendQueue::Request SendQueue::take() const {
    Request request;
    const std::size_t ring_size = std::size_t{spec_.length} * block_size;
    const std::size_t start = std::size_t{consumer_ & (spec_.length - 1)} * block_size;
    const auto control = read_at<mlx5_wqe_ctrl_seg>({spec_.ring + start, block_size}, 0);
    request.size = (be32toh(control.qpn_ds) & 0x3F) * unit_size;
    const std::size_t straight = std::min(request.size, ring_size - start);
    std::memcpy(request.copy.data(), spec_.ring + start, straight);
    std::memcpy(request.copy.data() + straight, spec_.ring, request.size - straight);
    request.opcode = static_cast<std::uint8_t>(be32toh(control.opmod_idx_opcode));
    request.modifier = static_cast<std::uint8_t>(be32toh(control.opmod_idx_opcode) >> 24);
    request.immediate = be32toh(control.imm);
    request.signaled = (control.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
    return request;
}

std::uint8_t SendQueue::access(const Request& request, RequestTargets& targets, Figures& figures) const {
    const auto remote = read_at<mlx5_wqe_raddr_seg>(request.bytes(), sizeof(mlx5_wqe_ctrl_seg));
    constexpr std::size_t data_at = sizeof(mlx5_wqe_ctrl_seg) + sizeof(mlx5_wqe_raddr_seg);
    const auto data = read_at<mlx5_wqe_data_seg>(request.bytes(), data_at);
    const std::uint32_t first = be32toh(data.byte_count);
    const bool is_inline = (first & MLX5_INLINE_SEG) != 0;
    const std::uint32_t size = is_inline ? first & inline_length_mask : first;
    const bool writes = request.opcode == MLX5_OPCODE_RDMA_WRITE;
    if (!is_inline && data_at + sizeof data != request.size) {
        targets.note("a work request that scatters or gathers");
        return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    }
    std::uint8_t* far = targets.memory({.key = be32toh(remote.rkey),
                                        .address = be64toh(remote.raddr),
                                        .size = size,
                                        .access = writes ? MemoryKey::remote_write : MemoryKey::remote_read,
                                        .protection_domain = spec_.protection_domain});
    if (far == nullptr) return MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
    if (is_inline) {
        if (!writes || data_at + sizeof first + size > request.size) return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
        std::memcpy(far, request.copy.data() + data_at + sizeof first, size);
    } else {
        std::uint8_t* near = targets.memory({.key = be32toh(data.lkey),
                                             .address = be64toh(data.addr),
                                             .size = size,
                                             .access = writes ? MemoryKey::local_read : MemoryKey::local_write,
                                             .protection_domain = spec_.protection_domain});
        if (near == nullptr) return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
        std::memmove(writes ? far : near, writes ? near : far, size);
    }
    if (writes && targets.is_icm(be32toh(remote.rkey))) figures.icm_bytes += size;
    return 0;
}

std::uint8_t SendQueue::store_argument(const Request& request, RequestTargets& targets) {
    // Control, 48 reserved bytes of a flow update segment, the argument.
    constexpr std::size_t at = 64;
    std::uint8_t* argument = targets.argument(request.immediate);
    if (argument == nullptr) return MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
    if (request.modifier != update_argument || at + argument_size > request.size)
        return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    std::memcpy(argument, request.copy.data() + at, argument_size);
    return 0;
}

std::uint8_t SendQueue::send(const Request& request, RequestTargets& targets, Figures& figures) const {
    const auto ethernet = read_at<mlx5_wqe_eth_seg>(request.bytes(), sizeof(mlx5_wqe_ctrl_seg));
    const std::size_t header = be16toh(ethernet.inline_hdr_sz);
    std::uint64_t size = header;
    // The inline header begins in the Ethernet segment's last two bytes; what follows is aligned to 16.
    const std::size_t start = sizeof(mlx5_wqe_ctrl_seg) + offsetof(mlx5_wqe_eth_seg, inline_hdr_start) +
                              std::max<std::size_t>(header, sizeof ethernet.inline_hdr_start);
    for (std::size_t at = (start + unit_size - 1) / unit_size * unit_size; at < request.size;
         at += sizeof(mlx5_wqe_data_seg)) {
        const auto data = read_at<mlx5_wqe_data_seg>(request.bytes(), at);
        const std::uint32_t length = be32toh(data.byte_count);
        if ((length & MLX5_INLINE_SEG) != 0) {
            size += length & inline_length_mask;
            break;   // inline data is the last
        }
        const MemoryRange range{.key = be32toh(data.lkey),
                                .address = be64toh(data.addr),
                                .size = length,
                                .access = MemoryKey::local_read,
                                .protection_domain = spec_.protection_domain};
        if (targets.memory(range) == nullptr) return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
        size += length;
    }
    ++figures.frames;
    figures.frame_bytes += size;
    return 0;
}

/// It writes whatever the object holds; conditions and what reads the object are for others to emulate.
std::uint8_t SendQueue::write_meters(const Request& request, RequestTargets& targets) const {
    const auto bytes = request.bytes();
    const bool is_write = bytes.size() == aso_data_at + aso_object_size && request.modifier == aso_of_flow_meters &&
                          read_at<std::uint64_t>(bytes, aso_at) == 0 && bytes[aso_mask_mode_at] == masks_bytes &&
                          bytes[aso_conditions_at] == both_always;
    if (!is_write) {
        targets.note("ACCESS_ASO that does not just write a flow meter");
        return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
    }
    std::uint8_t* const object = targets.aso_meters(request.immediate, spec_.protection_domain);
    if (object == nullptr) return MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
    const std::uint64_t mask = be64toh(read_at<std::uint64_t>(bytes, aso_mask_at));
    for (std::size_t i = 0; i < aso_object_size; ++i) {
        if ((mask >> (aso_object_size - 1 - i) & 1) != 0) object[i] = bytes[aso_data_at + i];
    }
    return 0;
}

std::uint8_t SendQueue::carry_out(const Request& request, RequestTargets& targets, Figures& figures) const {
    const bool raw = spec_.service == Service::raw_packet, loopback = spec_.service == Service::loopback;
    if (targets.must_fail(name_of(request.opcode))) return MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
    if (loopback && (request.opcode == MLX5_OPCODE_RDMA_WRITE || request.opcode == MLX5_OPCODE_RDMA_READ)) {
        return access(request, targets, figures);
    }
    if (loopback && request.opcode == MLX5_OPCODE_FLOW_TBL_ACCESS) return store_argument(request, targets);
    if (raw && request.opcode == MLX5_OPCODE_SEND) return send(request, targets, figures);
    if (spec_.service == Service::aso && request.opcode == access_aso) return write_meters(request, targets);
    targets.note("work request opcode " + std::to_string(request.opcode) +
                 (raw        ? " on a raw packet queue"
                  : loopback ? " on an RC queue"
                             : " on a queue for ASO objects"));
    return MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR;
}

void SendQueue::run(CompletionQueue& completions, RequestTargets& targets, Figures& figures) {
    if (spec_.length == 0 || (state_ != State::ready_to_send && state_ != State::error)) return;
    const auto posted = static_cast<std::uint16_t>(be32toh(std::atomic_ref(*spec_.doorbell_record).load()));
    while (consumer_ != posted) {
        const Request request = take();
        std::uint8_t syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
        if (state_ != State::error) {
            syndrome = carry_out(request, targets, figures);
            ++figures.requests;
        }
        if (syndrome != 0) state_ = State::error;
        if ((request.signaled || syndrome != 0) && !completions.complete({.queue_pair = number_,
                                                                          .user_index = spec_.user_index,
                                                                          .request = consumer_,
                                                                          .opcode = request.opcode,
                                                                          .syndrome = syndrome})) {
            targets.note("a completion queue is full: completion lost");
        }
        const std::size_t blocks = std::max<std::size_t>(1, (request.size + block_size - 1) / block_size);
        consumer_ = static_cast<std::uint16_t>(consumer_ + blocks);
    }
}

}   // namespace ovsdr::connectx
