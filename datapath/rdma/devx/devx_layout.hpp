// Where the fields of queue contexts stand in DEVX commands; see prm.hpp. Each namespace is one structure, its offsets
// counted from the structure's begin.
// Source: PRM, SQ, RQ, WQ, TIS, TIR and RQ table contexts, as DPDK documents them (mlx5_prm.h).
#pragma once

#include "datapath/rdma/prm.hpp"

namespace ovsdr::soft::prm {

inline constexpr Field number_out{72, 24};   ///< of what was made
inline constexpr Field number_in{72, 24};    ///< what a modification or a query is about
inline constexpr Field state_in{64, 4};      ///< MODIFY_SQ, MODIFY_RQ: the present state
inline constexpr Field modify_bitmask{128, 64};
inline constexpr std::uint32_t queue_context = 256;  ///< bit offset of SQ, RQ, TIS, TIR, RQT contexts in all commands
inline constexpr std::uint32_t queue_mailbox = 272;  ///< bytes of such a command at least

namespace wq {
inline constexpr Field type{0, 4}, signature{4, 1}, end_padding{5, 2}, pd{72, 24}, log_stride{268, 4}, log_size{283, 5},
    doorbell_umem_valid{288, 1}, umem_valid{289, 1}, doorbell_offset{128, 64}, doorbell_umem{320, 32}, umem{352, 32},
    umem_offset{384, 64};
inline constexpr std::uint64_t cyclic = 1;
}  // namespace wq

namespace sqc {
inline constexpr Field reserved_lkey{0, 1}, flush_in_error{3, 1}, multi_packet{4, 1}, min_inline{5, 3}, state{8, 4},
    reg_umr{12, 1}, allow_swp{13, 1}, hairpin{14, 1}, timestamp_format{26, 2}, user_index{40, 24}, cqn{72, 24},
    rate_limit{240, 16}, tis_count{256, 16}, tisn{360, 24};
inline constexpr std::uint32_t wq = 384;
inline constexpr std::uint64_t modify_rate_limit = 1u << 0;
}  // namespace sqc

namespace rqc {
inline constexpr Field delay_drop{1, 1}, scatter_fcs{2, 1}, keep_vlan{3, 1}, memory_type{4, 4}, state{8, 4},
    flush_in_error{13, 1}, hairpin{14, 1}, timestamp_format{26, 2}, user_index{40, 24}, cqn{72, 24},
    counter_set_id{96, 8};
inline constexpr std::uint32_t wq = 384;
inline constexpr std::uint64_t modify_keep_vlan = 1u << 1, modify_scatter_fcs = 1u << 2;
}  // namespace rqc

/// Free-running, or what the device does by default, which is that. There is no real-time clock.
[[nodiscard]] constexpr bool has_timestamps(std::uint64_t format) noexcept {
    return format <= 1;
}

/// Of SQs and RQs.
enum QueueState : std::uint8_t { queue_reset = 0, queue_ready = 1, queue_error = 3 };

namespace tisc {
inline constexpr std::uint32_t size = 160;  ///< bytes
inline constexpr Field strict_lag{0, 1}, lag_port{4, 4}, transport_domain{296, 24}, underlay_qpn{328, 24};
inline constexpr std::uint64_t modify_strict_lag = 1u << 1, modify_lag_port = 1u << 2;
}  // namespace tisc

namespace tirc {
inline constexpr Field disp_type{32, 4}, lro{148, 4}, inline_rqn{232, 24}, symmetric{256, 1}, tunneled{258, 1},
    rqtn{264, 24}, hash_function{288, 4}, self_lb_block{294, 2}, transport_domain{296, 24};
inline constexpr std::uint32_t outer = 640, inner = 672;                        ///< bit offsets of what is hashed:
inline constexpr Field l3_is_v6{0, 1}, l4_is_udp{1, 1}, selected{2, 30};
inline constexpr std::uint32_t key = 320;  ///< bit offset of 40 bytes
inline constexpr std::uint64_t direct = 0, indirect = 1;
inline constexpr std::uint64_t no_hash = 0, toeplitz = 2;
inline constexpr std::uint64_t source = 1, destination = 2, source_port = 4, destination_port = 8, ipsec_spi = 16;
}  // namespace tirc

namespace q_counter {
inline constexpr Field clear{192, 1}, number{248, 8}, out_of_buffer{384, 32};
inline constexpr std::uint32_t out_size = 256;  ///< bytes
inline constexpr unsigned most = 128;           ///< sets; numbers have 8 bits
}  // namespace q_counter

/// CREATE_MKEY's memory key entry, from bit 128 of the command on, and what stands behind it.
namespace mkc {
inline constexpr std::uint32_t begin = 128;
inline constexpr Field free{1, 1}, access_mode_high{3, 3}, umr{16, 1}, atomic{17, 1}, remote_write{18, 1},
    remote_read{19, 1}, local_write{20, 1}, access_mode{22, 2}, tag{56, 8}, whole_space{96, 1}, signature{97, 1},
    remote_invalidate{103, 1}, pd{104, 24}, start_address{128, 64}, length{192, 64}, crypto{483, 2};
inline constexpr std::uint64_t list_of_keys = 2;        ///< access_mode: KLM
inline constexpr Field list_length{768, 32};            ///< in the command: octwords, an entry each
inline constexpr std::size_t list = 272, entry = 16;    ///< bytes in the command, and of {size, key, address}
}  // namespace mkc

namespace rqtc {
inline constexpr Field list_type{165, 3}, max_size{176, 16}, actual_size{208, 16};
inline constexpr std::uint32_t list = 1920;  ///< bit offset of RQ numbers, 32 bits each
inline constexpr std::uint32_t most = 2048;  ///< queues
inline constexpr std::uint64_t modify_list = 1;
}  // namespace rqtc

}  // namespace ovsdr::soft::prm
