// The library's half of an RDMA queue pair (RC, UC, UD, XRC, DC): rings in memory, what libmlx5 checks, what it keeps.
//
// Model. An RdmaQp is shared by the ibv_qp handles that stand for it: the one that created it and, for an XRC target,
// those of ibv_open_qp(). Its rings are allocated here and filled by WqeBuilder and ReceivePoster; the device's half
// (roce::QueuePair) executes them. Posting is refused, as libmlx5 does it, to a queue that was not yet moved to a
// state in which it could take requests (receive: INIT; send: RTS).
//
// Threads: as the functions of the ABI that use it.
// Source: ibv_create_qp_ex(3), ibv_open_qp(3), mlx5dv_create_qp(3).
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "datapath/rdma/lag_affinity.hpp"
#include "datapath/rdma/memory/queue_memory.hpp"
#include "datapath/rdma/roce/memory_copy.hpp"
#include "datapath/rdma/roce/queue_pair.hpp"
#include "datapath/verbs/objects.hpp"
#include "datapath/verbs/wqe/qp_layout.hpp"
#include "datapath/verbs/wqe/receive_poster.hpp"
#include "datapath/verbs/wqe/wqe_builder.hpp"

namespace ovsdr::soft {

class MkeyRequest;
struct XrcDomain;

/// The metadata of a queue's memory copies, registered for its domain as libmlx5 does it.
class CopyMetadata {
public:
    /// Throws std::bad_alloc.
    CopyMetadata(MemoryTable& memory, const void* domain);
    ~CopyMetadata() { memory_.remove(region_.key); }
    CopyMetadata(const CopyMetadata&) = delete;
    CopyMetadata& operator=(const CopyMetadata&) = delete;
    [[nodiscard]] const MemoryRegion& region() const noexcept { return region_; }

private:
    MemoryTable& memory_;
    alignas(64) std::array<std::byte, roce::MemoryCopy::metadata_size> bytes_{};
    MemoryRegion region_;
};

struct RdmaQp {
    RdmaQp();
    RdmaQp(const RdmaQp&) = delete;
    RdmaQp& operator=(const RdmaQp&) = delete;
    ~RdmaQp();

    DeviceState* state = nullptr;
    std::uint32_t number = 0;
    QpLayout layout;
    QueueMemory rings;                              ///< the receive ring, then the send ring
    struct alignas(64) Doorbells {
        std::atomic<__be32> receive{0}, send{0};    ///< MLX5_RCV_DBR, MLX5_SND_DBR
    } doorbells;
    WqeBuilder send;
    ReceivePoster receive;
    std::atomic<bool> may_send{false}, may_receive{false};
    CompletionQueue* send_queue = nullptr;
    CompletionQueue* receive_queue = nullptr;
    Srq* srq = nullptr;
    std::shared_ptr<XrcDomain> xrc_domain;          ///< of a target
    std::unique_ptr<CopyMetadata> copy_metadata;    ///< of queues that copy memory
    std::unique_ptr<MkeyRequest> mkey_request;      ///< of queues with MKEY operations; under the send lock
    std::unique_ptr<roce::QueuePair> device;
    std::optional<LagAffinity> lag_affinity;
    std::mutex groups_mutex;
    std::vector<ibv_gid> groups;                    ///< multicast groups that a datagram queue is in

    [[nodiscard]] bool is_dc(mlx5dv_dc_type end) const noexcept { return device->spec().is_dc(end); }

    /// Handles that stand for the queue pair: events come to each.
    void add(Qp& handle);
    void remove(Qp& handle);
    void report(ibv_event_type type);

private:
    std::mutex mutex_;
    std::vector<Qp*> handles_;
};

/// Makes the device's half; a test puts one of its own in its place.
extern std::unique_ptr<roce::QueuePair> (*make_queue_pair)(const roce::QueuePairSpec&);

[[nodiscard]] inline bool is_rdma(ibv_qp_type type) noexcept {
    return type != IBV_QPT_RAW_PACKET;
}

/// A handle's ABI part, for create_rdma_qp() and ibv_open_qp().
void init_handle(Qp& qp, ibv_context* context, ibv_qp_type type, void* qp_context);

/// nullptr and errno. `mlx5` may be nullptr.
[[nodiscard]] ibv_qp* create_rdma_qp(ibv_context* context, ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr* mlx5);
[[nodiscard]] int modify_rdma_qp(Qp& qp, const ibv_qp_attr& attr, int mask);
/// EINVAL: a DCT, outside RTR or for an attribute that it does not have (`mask`).
[[nodiscard]] int query_rdma_qp(Qp& qp, ibv_qp_attr& attr, int mask, ibv_qp_init_attr& init_attr);
/// EBUSY in a multicast group.
[[nodiscard]] int destroy_rdma_qp(Qp& qp);

[[nodiscard]] int post_rdma_send(Qp& qp, ibv_send_wr* first, ibv_send_wr** bad);
[[nodiscard]] int post_rdma_receive(Qp& qp, ibv_recv_wr* first, ibv_recv_wr** bad);

/// Entries with that wr_id which the device has not begun complete without effect; returns how many there are, -EINVAL
/// where the queue is not drained (SQD). Source: mlx5dv_qp_cancel_posted_send_wrs(3).
[[nodiscard]] int cancel_rdma_sends(Qp& qp, std::uint64_t wr_id);

/// Fill the operations of an extended QP.
void set_rdma_operations(Qp& qp, std::uint64_t mlx5_operations);
void set_mkey_operations(Qp& qp);
void set_copy_operation(Qp& qp);

}  // namespace ovsdr::soft
