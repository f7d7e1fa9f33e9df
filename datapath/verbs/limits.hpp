// How much of everything a device has, as ConnectX reports it where the soft NIC can hold it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace ovsdr::soft::limits {

inline constexpr int qps = 1 << 17;
inline constexpr int reads = 16;  ///< reads and atomics of a queue pair that wait for their answer
inline constexpr int cqs = 1 << 24;
inline constexpr int pds = 1 << 23;
inline constexpr int completions = (1 << 22) - 1;  ///< entries of a CQ
inline constexpr int work_requests = 1 << 15;      ///< of a send or receive queue
inline constexpr int send_sges = 30;
inline constexpr int receive_sges = 32;
inline constexpr unsigned log_indirection_table = 11;
inline constexpr int shared_receives = (1 << 15) - 1;  ///< requests in an SRQ
inline constexpr int shared_receive_sges = 31;
inline constexpr int srqs = 1 << 23;

/// What reliable transports can do with memory that is paged on demand (enum ibv_odp_transport_cap_bits): everything.
inline constexpr std::uint32_t odp_reliable = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE |
                                              IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;

}  // namespace ovsdr::soft::limits
