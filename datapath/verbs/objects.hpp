// The objects behind rdma-core's public structures.
//
// Model. Each object derives from the public structure that applications see, so that a pointer to one is a pointer to
// the other; what the application may read stands in the base, the rest behind it. The functions of the ABI, one file
// per noun beside this one, check arguments, ask for injected faults, and leave the work to datapath/rdma.
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

#include "datapath/rdma/completion_queue.hpp"
#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/event_queue.hpp"
#include "datapath/rdma/raw_packet_qp.hpp"

namespace ovsdr::soft {

struct Qp;
struct Wq;

/// An open device.
struct Context : verbs_context {
    Context(ibv_device* device, DeviceState& device_state);

    [[nodiscard]] static Context& of(ibv_context* context) noexcept {
        auto* const start = reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context);
        return *static_cast<Context*>(reinterpret_cast<verbs_context*>(start));
    }

    DeviceState& state;
    EventQueue<ibv_async_event> events;

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
    /// Moves every QP and WQ to RESET: no packet touches the application's memory any more.
    void stop();

private:
    ~Context();
    void vport_changed(VportId vport, VportChange change);

    std::mutex mutex_;
    std::set<Qp*> qps_;
    std::set<Wq*> wqs_;
    std::uint64_t listener_;
    std::atomic<unsigned> holders_{1};
};

struct Pd : ibv_pd {
    [[nodiscard]] static Pd& of(ibv_pd* pd) noexcept { return *static_cast<Pd*>(pd); }
    std::uint32_t number;  ///< pdn
    std::atomic<unsigned> users{0};
};

struct Mr : ibv_mr {
    [[nodiscard]] static Mr& of(ibv_mr* mr) noexcept { return *static_cast<Mr*>(mr); }
    unsigned access;
};

struct Channel : ibv_comp_channel {
    [[nodiscard]] static Channel& of(ibv_comp_channel* channel) noexcept { return *static_cast<Channel*>(channel); }
    EventQueue<struct Cq*> events;
};

struct Cq : ibv_cq_ex {
    [[nodiscard]] static Cq& of(ibv_cq* cq) noexcept { return of(reinterpret_cast<ibv_cq_ex*>(cq)); }
    [[nodiscard]] static Cq& of(ibv_cq_ex* cq) noexcept { return *static_cast<Cq*>(cq); }
    [[nodiscard]] ibv_cq* base() noexcept { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(this)); }

    std::uint32_t number;  ///< cqn
    std::unique_ptr<CompletionQueue> queue;
    std::atomic<std::uint32_t> comp_events{0};   ///< taken by ibv_get_cq_event()
    std::atomic<std::uint32_t> async_events{0};  ///< taken by ibv_get_async_event()
    Completion current;                          ///< between ibv_start_poll() and ibv_end_poll()
};

struct Qp : ibv_qp_ex {
    [[nodiscard]] static Qp& of(ibv_qp* qp) noexcept { return of(reinterpret_cast<ibv_qp_ex*>(qp)); }
    [[nodiscard]] static Qp& of(ibv_qp_ex* qp) noexcept { return *static_cast<Qp*>(qp); }
    [[nodiscard]] ibv_qp* base() noexcept { return &qp_base; }

    std::unique_ptr<RawPacketQp> raw;
    mlx5dv_qp_ex mlx5;              ///< no operation of it applies to raw packet QPs
    ibv_qp_init_attr created_with;  ///< caps as granted
    std::uint8_t port = 0;          ///< IB port, 0 before INIT
    bool has_send_ops = false;
    std::atomic<std::uint32_t> async_events{0};
    // Between ibv_wr_start() and ibv_wr_complete().
    unsigned staged = 0;
    bool open_request = false;  ///< an operation was begun whose data is not yet set
    int batch_error = 0;
};

/// A receive queue of its own, for TIRs to lead to.
struct Wq : ibv_wq {
    [[nodiscard]] static Wq& of(ibv_wq* wq) noexcept { return *static_cast<Wq*>(wq); }
    std::unique_ptr<ReceiveQueue> queue;
};

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

// Operations that contexts offer through tables of function pointers, one file per noun.
int query_device_op(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                    std::size_t size);
int query_port_op(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t size);
ibv_cq_ex* create_cq_ex_op(ibv_context* context, ibv_cq_init_attr_ex* attr);
int poll_cq_op(ibv_cq* cq, int length, ibv_wc* completions);
int req_notify_cq_op(ibv_cq* cq, int solicited_only);
ibv_qp* create_qp_ex_op(ibv_context* context, ibv_qp_init_attr_ex* attr);
ibv_wq* create_wq_op(ibv_context* context, ibv_wq_init_attr* attr);
int modify_wq_op(ibv_wq* wq, ibv_wq_attr* attr);
int destroy_wq_op(ibv_wq* wq);
int post_send_op(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad);
int post_recv_op(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad);

/// Fills the readers of an extended CQ that `wc_flags` asks for.
void set_cq_readers(Cq& cq, std::uint64_t wc_flags);
/// Fills the operations of an extended QP.
void set_send_operations(Qp& qp, std::uint64_t operations);
/// Operations that raw packet QPs have, of enum ibv_qp_create_send_ops_flags.
inline constexpr std::uint64_t raw_packet_operations = IBV_QP_EX_WITH_SEND;

}  // namespace ovsdr::soft
