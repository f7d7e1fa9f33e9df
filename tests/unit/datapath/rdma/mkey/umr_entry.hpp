// UMR work queue entries written segment by segment: what an application that builds its own entries would post.
#pragma once

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cstring>
#include <vector>

#include "datapath/rdma/mkey/umr_format.hpp"

namespace ovsdr::soft::test {

struct UmrEntry {
    std::uint32_t key = 0;
    std::uint8_t flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
    std::uint64_t mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
    mlx5_wqe_mkey_context_seg context{};
    std::vector<std::byte> layout;  ///< padded to 64 bytes
    std::vector<std::byte> bsf;

    explicit UmrEntry(std::uint32_t of) : key(of) { context.qpn_mkey = htobe32(0xFFFFFF00 | (of & 0xFF)); }

    template <typename Segment>
    static void append(std::vector<std::byte>& to, const Segment& segment) {
        const auto* const bytes = reinterpret_cast<const std::byte*>(&segment);
        to.insert(to.end(), bytes, bytes + sizeof segment);
    }

    UmrEntry& access(unsigned allowed) {
        mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
                MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;
        context.access_flags = static_cast<std::uint8_t>(
            (allowed & IBV_ACCESS_LOCAL_WRITE ? 1 << 3 : 0) | (allowed & IBV_ACCESS_REMOTE_READ ? 1 << 4 : 0) |
            (allowed & IBV_ACCESS_REMOTE_WRITE ? 1 << 5 : 0) | (allowed & IBV_ACCESS_REMOTE_ATOMIC ? 1 << 6 : 0));
        return *this;
    }
    UmrEntry& length(std::uint64_t bytes) {
        mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN;
        context.len = htobe64(bytes);
        return *this;
    }
    UmrEntry& list(const std::vector<ibv_sge>& sges) {
        std::uint64_t total = 0;
        for (const ibv_sge& sge : sges) {
            append(layout, mlx5_wqe_umr_klm_seg{htobe32(sge.length), htobe32(sge.lkey), htobe64(sge.addr)});
            total += sge.length;
        }
        layout.resize((layout.size() + 63) / 64 * 64);
        return length(total);
    }
    UmrEntry& interleaved(std::uint32_t repeat, const std::vector<mlx5dv_mr_interleaved>& parts) {
        std::uint32_t period = 0;
        for (const auto& part : parts) period += part.bytes_count;
        struct {
            __be32 byte_count, op, repeat_count;
            __be16 reserved, num_ent;
        } const block{htobe32(period), htobe32(0x400), htobe32(repeat), 0,
                      htobe16(static_cast<std::uint16_t>(parts.size()))};
        append(layout, block);
        for (const auto& part : parts) {
            append(layout,
                   mlx5_wqe_umr_repeat_ent_seg{htobe16(static_cast<std::uint16_t>(part.bytes_count + part.bytes_skip)),
                                               htobe16(static_cast<std::uint16_t>(part.bytes_count)),
                                               htobe32(part.lkey), htobe64(part.addr)});
        }
        layout.resize((layout.size() + 63) / 64 * 64);
        return length(std::uint64_t{period} * repeat);
    }
    UmrEntry& signature(const signature::Attributes& attributes, bool same_structure = false) {
        mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE;
        context.flags_pd = htobe32(1u << 30);
        append(bsf, umr::encode(attributes, same_structure));
        return *this;
    }
    UmrEntry& no_signature() {
        mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE;
        return *this;
    }

    [[nodiscard]] std::vector<std::byte> bytes() const {
        mlx5_wqe_ctrl_seg control{};
        control.imm = htobe32(key);
        mlx5_wqe_umr_ctrl_seg umr{};
        umr.flags = flags;
        umr.klm_octowords = htobe16(static_cast<std::uint16_t>(layout.size() / 16));
        umr.bsf_octowords = htobe16(static_cast<std::uint16_t>(bsf.size() / 16));
        umr.mkey_mask = htobe64(mask);
        std::vector<std::byte> entry;
        append(entry, control);
        append(entry, umr);
        append(entry, context);
        entry.insert(entry.end(), layout.begin(), layout.end());
        entry.insert(entry.end(), bsf.begin(), bsf.end());
        return entry;
    }
};

}  // namespace ovsdr::soft::test
