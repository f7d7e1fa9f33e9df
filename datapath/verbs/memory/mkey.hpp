// The library's half of MKEYs: the handle behind mlx5dv_mkey, and the work request that configures one.
//
// Model. A MkeyRequest collects what mlx5dv_wr_mkey_configure() and its setters say, in segments of a UMR work queue
// entry, and is complete when as many setters as announced were called; whoever owns the queue then posts
// payload() behind a control segment whose immediate is key(). Each function gives the errno that libmlx5 would defer
// to ibv_wr_complete(); after one the request is void.
//
// Signature attributes are remembered in the handle, as in libmlx5: what was set stays until it is set anew or reset.
// The state moves when a request is built, not when it is executed: a batch that fails leaves it unknown (NOTES of
// mlx5dv_wr_set_mkey_sig_block(3)).
//
// Threads: a handle and a request by one at a time, under the queue's lock.
// Source: mlx5dv_wr_mkey_configure(3), mlx5dv_wr_set_mkey_sig_block(3), rdma-core 44 providers/mlx5/qp.c.
#pragma once

#include <infiniband/mlx5dv.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "datapath/rdma/mkey/mkey.hpp"
#include "datapath/rdma/mkey/umr_format.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

/// What the library knows about an MKEY's signature attributes.
enum class SignatureState : std::uint8_t {
    none,     ///< or reset
    updated,  ///< by the request that is being built
    set,      ///< by an earlier request
};

struct MkeyHandle : mlx5dv_mkey {
    MkeyHandle(ibv_pd* of, const Mkey::Spec& spec) : pd(of), device(spec) {}
    [[nodiscard]] static MkeyHandle& of(mlx5dv_mkey* mkey) noexcept { return *static_cast<MkeyHandle*>(mkey); }

    ibv_pd* pd;
    Mkey device;
    bool exceeds_signatures = false;  ///< the layout that was set last has more bytes than a signature can cover
    SignatureState signature_state = SignatureState::none;
};

class MkeyRequest {
public:
    /// Bytes. An entry has 63 octowords at most, and these come in whole units of 4, its control segment among them.
    static constexpr std::size_t max_size = 59 * umr::octoword;

    /// `max_inline` bytes of inline data fit the queue's entries, which limits layouts and signatures.
    /// EOPNOTSUPP: not IBV_SEND_INLINE, an unknown conf_flag, or a comp_mask.
    [[nodiscard]] int begin(MkeyHandle& mkey, unsigned setters, const mlx5dv_mkey_conf_attr& attr, unsigned wr_flags,
                            std::uint32_t max_inline) noexcept;

    // Setters, after begin(). EINVAL: called twice, or arguments that libmlx5 refuses; ENOMEM: more than an entry or
    // the MKEY holds.
    [[nodiscard]] int set_access_flags(std::uint32_t access) noexcept;
    [[nodiscard]] int set_layout(std::span<const ibv_sge> list) noexcept;
    /// EINVAL too for pieces or strides past 65535 bytes: the device's format has 16 bits, which libmlx5 overruns.
    [[nodiscard]] int set_layout(std::uint32_t repeat, std::span<const mlx5dv_mr_interleaved> parts) noexcept;
    [[nodiscard]] int set_signature(const mlx5dv_sig_block_attr& attr) noexcept;

    /// All announced setters were called.
    [[nodiscard]] bool complete() const noexcept { return setters_left_ == 0; }
    /// Of a complete request: writes what is left. ENOMEM: the signature does not fit behind the layout.
    /// EINVAL: copy_mask between domains that differ, or more bytes than a signature can cover.
    [[nodiscard]] int finish() noexcept;

    [[nodiscard]] std::uint32_t key() const noexcept { return key_; }
    [[nodiscard]] std::span<const std::byte> payload() const noexcept { return std::span(bytes_).first(size_); }

private:
    [[nodiscard]] mlx5_wqe_umr_ctrl_seg& control() noexcept {
        return *reinterpret_cast<mlx5_wqe_umr_ctrl_seg*>(bytes_.data());
    }
    [[nodiscard]] mlx5_wqe_mkey_context_seg& context() noexcept {
        return *reinterpret_cast<mlx5_wqe_mkey_context_seg*>(bytes_.data() + sizeof(mlx5_wqe_umr_ctrl_seg));
    }
    template <typename Segment>
    void append(const Segment& segment) noexcept;
    void pad_layout(std::uint64_t length) noexcept;
    [[nodiscard]] int check_layout(std::size_t entries, std::size_t head) const noexcept;
    [[nodiscard]] int append_signature() noexcept;

    MkeyHandle* mkey_ = nullptr;
    unsigned setters_left_{};
    std::size_t room_{};  // bytes of layout and signature
    std::uint32_t key_{};
    bool has_layout_ = false;
    std::optional<std::uint8_t> copy_mask_;  // where the application says which
    signature::Attributes attributes_;
    std::size_t size_{};
    alignas(16) std::array<std::byte, max_size> bytes_;
};

/// The domain that the application describes; false for one that the device does not have.
[[nodiscard]] bool translate(const mlx5dv_sig_block_domain* from, signature::Domain& to) noexcept;

/// The parts of the input domain's field that the output domain takes over when nobody says otherwise.
[[nodiscard]] std::uint8_t default_copy_mask(const signature::Domain& memory, const signature::Domain& wire) noexcept;

}  // namespace ovsdr::soft
