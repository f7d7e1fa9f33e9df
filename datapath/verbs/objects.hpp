// The objects behind rdma-core's public structures.
//
// Model. Each object derives from the public structure that applications see, so that a pointer to one is a pointer to
// the other; what the application may read stands in the base, the rest behind it. The functions of the ABI, one file per
// noun beside this one, check arguments, ask for injected faults, and leave the work to datapath/rdma.
//
// Life cycle. As in rdma-core: the application destroys what it created, users before what they use; what is still in
// use gives EBUSY. A context that is closed over living objects stops its queues and stays in memory.
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

/// An open device.
struct Context : verbs_context {
    Context(ibv_device* device, DeviceState& device_state);
    ~Context();

    [[nodiscard]] static Context& of(ibv_context* context) noexcept {
        auto* const start = reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context);
        return *static_cast<Context*>(reinterpret_cast<verbs_context*>(start));
    }

    DeviceState& state;
    EventQueue<ibv_async_event> events;
    std::atomic<unsigned> children{0};   ///< PDs, CQs, channels, DEVX objects that are alive

    void add(Qp& qp);
    void remove(Qp& qp);
    /// Moves every QP to RESET: no packet touches the application's memory any more.
    void stop();

private:
    void vport_changed(VportId vport, VportChange change);

    std::mutex mutex_;
    std::set<Qp*> qps_;
    std::uint64_t listener_;
};

struct Pd : ibv_pd {
    [[nodiscard]] static Pd& of(ibv_pd* pd) noexcept { return *static_cast<Pd*>(pd); }
    std::uint32_t number;                ///< pdn
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

    std::uint32_t number;                ///< cqn
    std::unique_ptr<CompletionQueue> queue;
    std::atomic<std::uint32_t> comp_events{0};    ///< taken by ibv_get_cq_event()
    std::atomic<std::uint32_t> async_events{0};   ///< taken by ibv_get_async_event()
    Completion current;                  ///< between ibv_start_poll() and ibv_end_poll()
};

struct Qp : ibv_qp_ex {
    [[nodiscard]] static Qp& of(ibv_qp* qp) noexcept { return of(reinterpret_cast<ibv_qp_ex*>(qp)); }
    [[nodiscard]] static Qp& of(ibv_qp_ex* qp) noexcept { return *static_cast<Qp*>(qp); }
    [[nodiscard]] ibv_qp* base() noexcept { return &qp_base; }

    std::unique_ptr<RawPacketQp> raw;
    mlx5dv_qp_ex mlx5;                   ///< no operation of it applies to raw packet QPs
    ibv_qp_init_attr created_with;       ///< caps as granted
    std::uint8_t port = 0;               ///< IB port, 0 before INIT
    bool has_send_ops = false;
    std::atomic<std::uint32_t> async_events{0};
    // Between ibv_wr_start() and ibv_wr_complete().
    unsigned staged = 0;
    bool open_request = false;           ///< an operation was begun whose data is not yet set
    int batch_error = 0;
};

/// Sets errno and returns it.
inline int failed(int error) noexcept { return errno = error; }

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
int query_device_op(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr, std::size_t size);
int query_port_op(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t size);
ibv_cq_ex* create_cq_ex_op(ibv_context* context, ibv_cq_init_attr_ex* attr);
int poll_cq_op(ibv_cq* cq, int length, ibv_wc* completions);
int req_notify_cq_op(ibv_cq* cq, int solicited_only);
ibv_qp* create_qp_ex_op(ibv_context* context, ibv_qp_init_attr_ex* attr);
int post_send_op(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** bad);
int post_recv_op(ibv_qp* qp, ibv_recv_wr* first, ibv_recv_wr** bad);

/// Fills the readers of an extended CQ that `wc_flags` asks for.
void set_cq_readers(Cq& cq, std::uint64_t wc_flags);
/// Fills the operations of an extended QP.
void set_send_operations(Qp& qp, std::uint64_t operations);
/// Operations that raw packet QPs have, of enum ibv_qp_create_send_ops_flags.
inline constexpr std::uint64_t raw_packet_operations = IBV_QP_EX_WITH_SEND;

}  // namespace ovsdr::soft
