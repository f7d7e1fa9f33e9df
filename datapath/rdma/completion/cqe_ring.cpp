#include "datapath/rdma/completion/cqe_ring.hpp"

#include <endian.h>

#include <cstring>

#include "datapath/rdma/roce/memory_copy.hpp"

namespace ovsdr::soft {

namespace {

struct StatusSyndrome {
    ibv_wc_status status;
    std::uint8_t syndrome;
};
constexpr StatusSyndrome syndromes[] = {
    {IBV_WC_LOC_LEN_ERR, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR},
    {IBV_WC_LOC_QP_OP_ERR, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR},
    {IBV_WC_LOC_PROT_ERR, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR},
    {IBV_WC_WR_FLUSH_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR},
    {IBV_WC_MW_BIND_ERR, MLX5_CQE_SYNDROME_MW_BIND_ERR},
    {IBV_WC_BAD_RESP_ERR, MLX5_CQE_SYNDROME_BAD_RESP_ERR},
    {IBV_WC_LOC_ACCESS_ERR, MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR},
    {IBV_WC_REM_INV_REQ_ERR, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR},
    {IBV_WC_REM_ACCESS_ERR, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR},
    {IBV_WC_REM_OP_ERR, MLX5_CQE_SYNDROME_REMOTE_OP_ERR},
    {IBV_WC_RETRY_EXC_ERR, MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR},
    {IBV_WC_RNR_RETRY_EXC_ERR, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR},
    {IBV_WC_REM_ABORT_ERR, MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR},
};

// Where mlx5dv.h has no name.
constexpr std::size_t tunnel_offset = 0, rx_hash_offset = 12, rx_hash_type_offset = 16;

template <typename Value>
void put(mlx5_cqe64& entry, std::size_t offset, Value value) {
    std::memcpy(reinterpret_cast<std::byte*>(&entry) + offset, &value, sizeof value);
}

[[nodiscard]] std::uint8_t syndrome_of(ibv_wc_status status) {
    for (const StatusSyndrome& known : syndromes) {
        if (known.status == status) return known.syndrome;
    }
    return MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR;
}

[[nodiscard]] bool is_response(ibv_wc_opcode opcode) {
    return opcode & IBV_WC_RECV;
}

[[nodiscard]] std::uint8_t work_opcode(ibv_wc_opcode opcode) {
    switch (opcode) {
        case IBV_WC_SEND:
            return MLX5_OPCODE_SEND;
        case IBV_WC_RDMA_WRITE:
            return MLX5_OPCODE_RDMA_WRITE;
        case IBV_WC_RDMA_READ:
            return MLX5_OPCODE_RDMA_READ;
        case IBV_WC_COMP_SWAP:
            return MLX5_OPCODE_ATOMIC_CS;
        case IBV_WC_FETCH_ADD:
            return MLX5_OPCODE_ATOMIC_FA;
        case IBV_WC_TSO:
            return MLX5_OPCODE_TSO;
        case IBV_WC_DRIVER3:
            return roce::MemoryCopy::opcode;
        default:
            return MLX5_OPCODE_UMR;
    }
}

/// The CQE's own opcode.
[[nodiscard]] std::uint8_t kind_of(const Completion& completion) {
    const bool response = is_response(completion.opcode);
    if (completion.status != IBV_WC_SUCCESS) return response ? MLX5_CQE_RESP_ERR : MLX5_CQE_REQ_ERR;
    if (!response) return MLX5_CQE_REQ;
    if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) return MLX5_CQE_RESP_WR_IMM;
    if (completion.wc_flags & IBV_WC_WITH_INV) return MLX5_CQE_RESP_SEND_INV;
    return completion.wc_flags & IBV_WC_WITH_IMM ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_SEND;
}

/// The word behind the timestamp: opcode and queue of a requester, flow tag or queue of a receiver.
[[nodiscard]] std::uint32_t last_word(const Completion& completion) {
    if (is_response(completion.opcode)) return completion.headers ? completion.flow_tag : completion.qp_num;
    const bool known = completion.entry_opcode != 0xff;
    const std::uint32_t opcode = known ? completion.entry_opcode : work_opcode(completion.opcode);
    return opcode << 24 | completion.qp_num;
}

[[nodiscard]] mlx5_cqe64 entry_of(const Completion& completion) {
    mlx5_cqe64 entry{};
    const bool inverse = completion.wc_flags & IBV_WC_WITH_INV;
    const bool grh = completion.wc_flags & IBV_WC_GRH;
    constexpr unsigned grh_present = 1;
    constexpr unsigned service_level = 0xf;
    entry.flags_rqpn = htobe32((grh ? grh_present << 28 : 0) | (completion.sl & service_level) << 24 |
                               (completion.src_qp & 0xffffff));
    entry.imm_inval_pkey = inverse ? htobe32(completion.imm_data) : completion.imm_data;
    entry.byte_cnt = htobe32(completion.byte_len);
    entry.timestamp = htobe64(completion.timestamp);
    entry.sop_drop_qpn = htobe32(last_word(completion));
    entry.srqn_uidx = htobe32(completion.user_index);
    if (completion.headers != 0) {
        put(entry, tunnel_offset, completion.tunnel);
        put(entry, rx_hash_offset, htobe32(completion.rx_hash));
        put(entry, rx_hash_type_offset, completion.rx_hash_type);
        entry.hds_ip_ext = static_cast<std::uint8_t>(completion.headers >> 8);
        entry.l4_hdr_type_etc = static_cast<std::uint8_t>(completion.headers);
        entry.vlan_info = htobe16(completion.cvlan);
    }
    entry.wqe_counter = htobe16(completion.wqe_counter);
    if (completion.status != IBV_WC_SUCCESS) {
        auto& error = reinterpret_cast<mlx5_err_cqe&>(entry);
        error.vendor_err_synd = static_cast<std::uint8_t>(completion.vendor_err);
        error.syndrome = syndrome_of(completion.status);
    }
    return entry;
}

}  // namespace

CqeRing::CqeRing(const Spec& spec) noexcept : spec_(spec) {
    constexpr auto invalid = static_cast<std::uint8_t>(MLX5_CQE_INVALID << 4 | 1);
    for (std::size_t i = 1; i <= std::size_t{1} << spec_.log_length; ++i) {
        spec_.base[i * spec_.entry_size - 1] = std::byte{invalid};
    }
}

std::uint32_t CqeRing::behind(std::uint32_t produced) const noexcept {
    const std::uint32_t consumed = be32toh(spec_.doorbell->load(std::memory_order_acquire));
    return (produced - consumed) & ((2u << spec_.log_length) - 1);
}

bool CqeRing::write(const Completion& completion) noexcept {
    if (!spec_.ignore_overrun && behind(produced_) >= 1u << spec_.log_length) return false;
    put(produced_++, completion);
    return true;
}

void CqeRing::put(std::uint32_t index, const Completion& completion) noexcept {
    const std::uint32_t length = 1u << spec_.log_length;
    std::byte* const at =
        spec_.base + (index & (length - 1)) * spec_.entry_size + spec_.entry_size - sizeof(mlx5_cqe64);
    mlx5_cqe64 entry = entry_of(completion);
    std::memcpy(at, &entry, offsetof(mlx5_cqe64, op_own));
    const unsigned owner = index >> spec_.log_length & 1;
    const unsigned solicited = completion.solicited ? 2 : 0;
    const auto last = static_cast<std::uint8_t>(kind_of(completion) << 4 | solicited | owner);
    // The owner bit hands the entry over: what stands before it must be there first.
    std::atomic_ref<std::uint8_t>(*reinterpret_cast<std::uint8_t*>(at + offsetof(mlx5_cqe64, op_own)))
        .store(last, std::memory_order_release);
}

}  // namespace ovsdr::soft
