// The objects behind rdma-core's public structures.
//
// Model. Each object derives from the public structure that applications see, so that a pointer to one is a pointer to
// the other; what the application may read stands in the base, the rest behind it. The functions of the ABI, one file
// per noun beside this one and in the folders below, check arguments, ask for injected faults, and leave the work to
// datapath/rdma.
//
// Life cycle. As in rdma-core: the application destroys what it created, users before what they use; what is still in
// use gives EBUSY. A context that is closed over living objects stops its queues and goes with the last of them.
//
// Errors: as each function's manual page says; creators NULL and errno, most others a positive errno (and errno).
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <system_error>
#include <vector>

#include "datapath/ports/lookout.hpp"
#include "datapath/rdma/completion/completion_queue.hpp"
#include "datapath/rdma/completion/event_queue.hpp"
#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/ethernet/raw_packet_qp.hpp"
#include "datapath/rdma/ethernet/rss.hpp"
#include "datapath/rdma/memory/device_memory.hpp"
#include "datapath/verbs/wqe/receive_poster.hpp"

namespace ovsdr::soft {

struct Qp;
struct RdmaQp;
struct Srq;
struct Wq;
struct Xrcd;
class CqExposure;
namespace devx {
class DoorbellPage;
}

/// An open device.
struct Pd;

struct Context : verbs_context {
    Context(ibv_device* device, DeviceState& device_state);

    [[nodiscard]] static Context& of(ibv_context* context) noexcept {
        auto* const start = reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context);
        return *static_cast<Context*>(reinterpret_cast<verbs_context*>(start));
    }

    DeviceState& state;
    EventQueue<ibv_async_event> events;

    /// The port of a LAG for the next queue pair: one after the other, as mlx5_ib chooses. 0: there is no LAG.
    [[nodiscard]] unsigned next_lag_port();

    /// The application's handle and each PD, CQ, channel and DEVX object hold the context; the last to let go deletes
    /// it.
    void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
    void let_go() noexcept {
        if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

    void add(Qp& qp);
    void remove(Qp& qp);
    void add(Wq& wq);
    void remove(Wq& wq);
    /// Takes over a PD that the application has given up while objects know it.
    void keep(std::unique_ptr<Pd> pd);
    /// The page on which an application rings the queues that it was shown (rings.hpp). Made on first use.
    [[nodiscard]] devx::DoorbellPage& doorbell_page();
    /// Moves every QP and WQ to RESET: no packet touches the application's memory any more.
    void stop();

private:
    ~Context();
    void vport_changed(VportId vport, VportChange change);

    std::mutex mutex_;
    std::set<Qp*> qps_;
    std::set<Wq*> wqs_;
    std::vector<std::unique_ptr<Pd>> given_up_;
    std::unique_ptr<devx::DoorbellPage> doorbell_page_;
    std::uint64_t listener_;
    std::atomic<unsigned> holders_{1};
    std::atomic<unsigned> lag_ports_given_{0};
};

/// A thread domain: a hint that its objects are used by one thread at a time, which our locks do not need.
struct Td : ibv_td {
    [[nodiscard]] static Td& of(ibv_td* td) noexcept { return *static_cast<Td*>(td); }
    std::atomic<unsigned> users{0};
};

/// A PD, an imported one, or a parent domain made of one: all stand for a ProtectionDomain, whose identity queues
/// and memory are compared by.
struct Pd : ibv_pd {
    explicit Pd(std::shared_ptr<ProtectionDomain> stands_for) : protection(std::move(stands_for)) {}
    [[nodiscard]] static Pd& of(ibv_pd* pd) noexcept { return *static_cast<Pd*>(pd); }
    [[nodiscard]] static const Pd& of(const ibv_pd* pd) noexcept { return *static_cast<const Pd*>(pd); }
    /// What a queue's or region's `domain` is.
    [[nodiscard]] const void* domain() const noexcept { return protection->identity; }
    /// Where the memory of queues of this domain comes from: a parent domain's allocator, or empty.
    [[nodiscard]] QueueAllocator allocator(std::uint64_t resource_type);

    const std::shared_ptr<ProtectionDomain> protection;
    std::uint32_t number;  ///< pdn
    std::atomic<unsigned> users{0};
    // Of a parent domain.
    Pd* parent_of = nullptr;
    Td* thread_domain = nullptr;
    decltype(ibv_parent_domain_init_attr::alloc) allocate = nullptr;
    decltype(ibv_parent_domain_init_attr::free) release = nullptr;
    void* allocator_context = nullptr;
};

struct Mr : ibv_mr {
    [[nodiscard]] static Mr& of(ibv_mr* mr) noexcept { return *static_cast<Mr*>(mr); }
    enum class Kind : std::uint8_t { memory, device_memory, null } kind = Kind::memory;
    unsigned access;
    std::shared_ptr<DeviceMemory> device_memory;  ///< held by it
};

struct Channel : ibv_comp_channel {
    [[nodiscard]] static Channel& of(ibv_comp_channel* channel) noexcept { return *static_cast<Channel*>(channel); }
    EventQueue<struct Cq*> events;
    std::shared_ptr<Lookout> lookout = std::make_shared<Lookout>(events.fd());
};

struct Cq : ibv_cq_ex {
    [[nodiscard]] static Cq& of(ibv_cq* cq) noexcept { return of(reinterpret_cast<ibv_cq_ex*>(cq)); }
    [[nodiscard]] static Cq& of(ibv_cq_ex* cq) noexcept { return *static_cast<Cq*>(cq); }
    [[nodiscard]] ibv_cq* base() noexcept { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(this)); }
    /// Takes completions, after a look at the ports where there are none (lookout.hpp); returns how many.
    [[nodiscard]] int take(std::span<Completion> completions) noexcept;

    std::uint32_t number;  ///< cqn
    Pd* domain = nullptr;  ///< the parent domain whose allocator its ring is from
    std::uint32_t cqe_size = 64;  ///< bytes, as mlx5dv_create_cq() asked for
    std::unique_ptr<CompletionQueue> queue;
    /// Whether an empty queue is worth a look at the ports (lookout.hpp). Not before somebody has asked to be woken,
    /// nor right behind that: such a look is for what came before, and a packet at a port wakes as well.
    enum class Look : std::uint8_t { no, after_this, yes };
    std::atomic<Look> look{Look::no};
    std::atomic<bool> may_owe_event{false};  ///< a look has added completions without one
    /// Behind a poll: what it has left of these is worth an event.
    void settle_event() noexcept;
    std::unique_ptr<CqExposure> exposure;  ///< once its ring was shown
    Cq();
    ~Cq();
    std::atomic<std::uint32_t> comp_events{0};   ///< taken by ibv_get_cq_event()
    std::atomic<std::uint32_t> async_events{0};  ///< taken by ibv_get_async_event()
    Completion current;                          ///< between ibv_start_poll() and ibv_end_poll()
};

struct Qp : ibv_qp_ex {
    [[nodiscard]] static Qp& of(ibv_qp* qp) noexcept { return of(reinterpret_cast<ibv_qp_ex*>(qp)); }
    [[nodiscard]] static Qp& of(ibv_qp_ex* qp) noexcept { return *static_cast<Qp*>(qp); }
    [[nodiscard]] static Qp& of(mlx5dv_qp_ex* qp) noexcept { return static_cast<Mlx5*>(qp)->owner; }
    [[nodiscard]] ibv_qp* base() noexcept { return &qp_base; }

    std::unique_ptr<RawPacketQp> raw;
    std::unique_ptr<RssReceiver> rss;      ///< in place of queues of its own, with the table that it spreads over
    struct IndirectionTable* table = nullptr;
    std::shared_ptr<RdmaQp> rdma;   ///< RC, UC, UD, XRC
    Xrcd* xrcd = nullptr;           ///< of an XRC target's handle
    RateTable::Hold rate;           ///< of a raw packet queue that is paced
    struct Mlx5 : mlx5dv_qp_ex {
        explicit Mlx5(Qp& qp) : mlx5dv_qp_ex{}, owner(qp) {}
        Qp& owner;
    } mlx5{*this};
    ibv_qp_init_attr created_with;  ///< caps as granted
    std::uint8_t port = 0;          ///< IB port, 0 before INIT
    bool has_send_ops = false;
    std::atomic<std::uint32_t> async_events{0};
    // Between ibv_wr_start() and ibv_wr_complete().
    unsigned staged = 0;
    bool open_request = false;  ///< an operation was begun whose data is not yet set
    int batch_error = 0;
    std::vector<std::byte> tso_header;  ///< of the open request, if it is to be segmented
    std::uint16_t tso_mss = 0;
};

/// A receive queue of its own, for TIRs to lead to.
struct Wq : ibv_wq {
    [[nodiscard]] static Wq& of(ibv_wq* wq) noexcept { return *static_cast<Wq*>(wq); }
    QueueMemory ring;
    alignas(64) std::array<std::atomic<__be32>, 2> doorbells{};  ///< MLX5_RCV_DBR, and one that is not used
    ReceivePoster poster;
    std::unique_ptr<ReceiveQueue> queue;

    /// To RESET; what was posted is forgotten.
    void reset() {
        queue->reset();
        poster.reset();
    }
};

struct IndirectionTable : ibv_rwq_ind_table {
    [[nodiscard]] static IndirectionTable& of(ibv_rwq_ind_table* table) noexcept {
        return *static_cast<IndirectionTable*>(table);
    }
    std::vector<ReceiveQueue*> queues;  ///< held
    std::atomic<unsigned> users{0};
};

/// After a queue pair or an SRQ is gone: its events that nobody has taken go too, those that were taken are waited for.
void forget_events(Context& context, Qp& qp);
void forget_events(Context& context, Srq& srq);

/// Sets errno and returns it.
inline int failed(int error) noexcept {
    return errno = error;
}

/// Runs a creator's body; nullptr and errno for what it throws.
template <typename Body>
auto created(Body body) noexcept -> decltype(body()) {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        errno = ENOMEM;
    } catch (const std::system_error& error) {
        errno = error.code().value();
    }
    return nullptr;
}

/// Opens `device` for `state`. Used by ibv_open_device() and by tests that bring their own device.
[[nodiscard]] ibv_context* open_context(ibv_device* device, DeviceState& state) noexcept;

/// Another context of `device` if `descriptor` is of its command file; takes the descriptor over. NULL otherwise.
[[nodiscard]] ibv_context* import_context(ibv_device* device, int descriptor) noexcept;

// Operations that contexts offer through tables of function pointers, one file per noun.
int query_device_op(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    std::size_t size);
int query_rt_values_op(ibv_context* context, ibv_values_ex* values);
int query_port_op(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t size);
ibv_cq_ex* create_cq_ex_op(ibv_context* context, ibv_cq_init_attr_ex* attr);
/// mlx5dv_create_cq(); `mlx5` may be nullptr.
ibv_cq_ex* create_mlx5_cq(ibv_context* context, const ibv_cq_init_attr_ex& attr, const mlx5dv_cq_init_attr* mlx5);
inline constexpr unsigned cqe_compression_formats =
    MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM | MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX;
int poll_cq_op(ibv_cq* cq, int length, ibv_wc* completions);
int req_notify_cq_op(ibv_cq* cq, int solicited_only);
ibv_qp* create_qp_ex_op(ibv_context* context, ibv_qp_init_attr_ex* attr);
ibv_wq* create_wq_op(ibv_context* context, ibv_wq_init_attr* attr);
ibv_rwq_ind_table* create_rwq_ind_table_op(ibv_context* context, ibv_rwq_ind_table_init_attr* attr);
int destroy_rwq_ind_table_op(ibv_rwq_ind_table* table);
/// QPs with an indirection table.
[[nodiscard]] ibv_qp* create_rss_qp(ibv_context* context, ibv_qp_init_attr_ex& attr) noexcept;
[[nodiscard]] int destroy_rss_qp(Qp& qp);
ibv_td* alloc_td_op(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td_op(ibv_td* td);
ibv_pd* alloc_parent_domain_op(ibv_context* context, ibv_parent_domain_init_attr* attr);
ibv_dm* alloc_dm_op(ibv_context* context, ibv_alloc_dm_attr* attr);
int free_dm_op(ibv_dm* dm);
ibv_mr* reg_dm_mr_op(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t size, unsigned access);
ibv_mr* alloc_null_mr_op(ibv_pd* pd);
int advise_mr_op(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list, std::uint32_t length);
ibv_mw* alloc_mw_op(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw_op(ibv_mw* mw);
int bind_mw_op(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
int modify_wq_op(ibv_wq* wq, ibv_wq_attr* attr);
int destroy_wq_op(ibv_wq* wq);
ibv_flow* create_flow_op(ibv_qp* qp, ibv_flow_attr* attr);
int destroy_flow_op(ibv_flow* flow);
ibv_flow_action* create_flow_action_esp_op(ibv_context* context, ibv_flow_action_esp_attr* attr);
int modify_flow_action_esp_op(ibv_flow_action* action, ibv_flow_action_esp_attr* attr);
int destroy_flow_action_op(ibv_flow_action* action);
ibv_counters* create_counters_op(ibv_context* context, ibv_counters_init_attr* attr);
int destroy_counters_op(ibv_counters* counters);
int attach_counters_point_flow_op(ibv_counters* counters, ibv_counter_attach_attr* attr, ibv_flow* flow);
int read_counters_op(ibv_counters* counters, std::uint64_t* values, std::uint32_t length, std::uint32_t flags);
int modify_qp_rate_limit_op(ibv_qp* qp, ibv_qp_rate_limit_attr* attr);
/// Of a raw packet QP. A positive errno.
[[nodiscard]] int modify_raw_qp(Qp& qp, const ibv_qp_attr& attr, int mask);
int post_send_op(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad);
int post_recv_op(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad);

/// Makes the pages present, and writable where the device may write, as the kernel does when it pins them: whoever
/// registers what is not there learns it now (EFAULT), and no worker of the NIC runs into it. Pages are not pinned:
/// memory that is unmapped while registered is the application's mistake (guarded_copy.hpp).
[[nodiscard]] bool populate(const void* address, std::size_t size, unsigned access);
/// Registers `region` (its key is set) for `pd`. NULL and errno.
[[nodiscard]] ibv_mr* add_region(ibv_pd* pd, MemoryRegion region, void* address, Mr::Kind kind) noexcept;

/// Fills the readers of an extended CQ that `wc_flags` asks for.
void set_cq_readers(Cq& cq, std::uint64_t wc_flags);
/// Fills the operations of an extended raw packet QP: all, whichever were asked for, as libmlx5 does.
void set_send_operations(Qp& qp);
/// Operations that raw packet QPs have, of enum ibv_qp_create_send_ops_flags.
inline constexpr std::uint64_t raw_packet_operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;

}  // namespace ovsdr::soft
