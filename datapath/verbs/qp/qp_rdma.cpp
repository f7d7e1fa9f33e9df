// RDMA queue pairs: what can be created, states, destruction.
#include "datapath/verbs/qp/qp_dc.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "datapath/verbs/memory/mkey.hpp"
#include "datapath/verbs/qp/srq.hpp"
#include "datapath/verbs/qp/xrc.hpp"

namespace ovsdr::soft {

std::unique_ptr<roce::QueuePair> (*make_queue_pair)(const roce::QueuePairSpec&) = &roce::QueuePair::create;

namespace {

constexpr std::size_t page = 4096;

struct OperationsOfType {
    ibv_qp_type type;
    std::uint64_t verbs, mlx5;
};
constexpr std::uint64_t unreliable_operations =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
constexpr std::uint64_t reliable_operations = unreliable_operations | IBV_QP_EX_WITH_RDMA_READ |
                                              IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
constexpr std::uint64_t mkey_operations = MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST |
                                          MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_RAW_WQE;
constexpr std::array operations_of_types{
    OperationsOfType{IBV_QPT_RC, reliable_operations, mkey_operations | MLX5DV_QP_EX_WITH_MEMCPY},
    OperationsOfType{IBV_QPT_UC, unreliable_operations, MLX5DV_QP_EX_WITH_RAW_WQE},
    OperationsOfType{IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM, MLX5DV_QP_EX_WITH_RAW_WQE},
    OperationsOfType{IBV_QPT_XRC_SEND, reliable_operations, MLX5DV_QP_EX_WITH_RAW_WQE},
    OperationsOfType{IBV_QPT_DRIVER, reliable_operations, MLX5DV_QP_EX_WITH_RAW_WQE}};

[[nodiscard]] std::uint64_t mlx5_operations_of(const mlx5dv_qp_init_attr* mlx5) {
    return mlx5 && (mlx5->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) ? mlx5->send_ops_flags : 0;
}

/// Which operations the type has: those of others are EOPNOTSUPP.
[[nodiscard]] int check_operations(const Profile& profile, const ibv_qp_init_attr_ex& attr,
                                   const mlx5dv_qp_init_attr* mlx5) {
    const std::uint64_t verbs = attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS ? attr.send_ops_flags : 0;
    const bool asked = (attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) ||
                       (mlx5 && (mlx5->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS));
    if (!asked) return 0;
    const auto* const allowed = std::find_if(operations_of_types.begin(), operations_of_types.end(),
                                             [&](const OperationsOfType& of) { return of.type == attr.qp_type; });
    if (allowed == operations_of_types.end()) return EOPNOTSUPP;
    if ((mlx5_operations_of(mlx5) & MLX5DV_QP_EX_WITH_MEMCPY) && !roce::MemoryCopy::there_is(profile)) {
        return EOPNOTSUPP;
    }
    return (verbs & ~allowed->verbs) || (mlx5_operations_of(mlx5) & ~allowed->mlx5) ? EOPNOTSUPP : 0;
}

/// Creation flags, in the kernel's order: connected types have none, those of raw packets are raw packets' only. A
/// source QPN is IPoIB's, and padding is of what is written over PCI: neither is there. Loopback of multicasts is
/// blocked by the transport.
[[nodiscard]] int check_flags(const ibv_qp_init_attr_ex& attr) {
    if (!(attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS)) return 0;
    constexpr std::uint32_t unsupported = IBV_QP_CREATE_SCATTER_FCS | IBV_QP_CREATE_CVLAN_STRIPPING |
                                          IBV_QP_CREATE_SOURCE_QPN | IBV_QP_CREATE_PCI_WRITE_END_PADDING;
    const std::uint32_t flags = attr.create_flags;
    constexpr std::uint32_t of_raw_packets = IBV_QP_CREATE_SCATTER_FCS | IBV_QP_CREATE_CVLAN_STRIPPING;
    if (flags & ~(unsupported | IBV_QP_CREATE_BLOCK_SELF_MCAST_LB)) return EINVAL;
    const bool has_flags = attr.qp_type == IBV_QPT_UD || attr.qp_type == IBV_QPT_DRIVER;
    if (flags != 0 && !has_flags) return EINVAL;
    if ((flags & of_raw_packets) && attr.qp_type == IBV_QPT_UD) return EINVAL;
    return flags & unsupported ? EOPNOTSUPP : 0;
}

/// mlx5's own attributes, in the order in which libmlx5 and the kernel look at them.
[[nodiscard]] int check_mlx5(const ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr* mlx5) {
    constexpr std::uint64_t known = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DC |
                                    MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    constexpr std::uint32_t scatter =
        MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
    if (!mlx5) return attr.qp_type == IBV_QPT_DRIVER ? EINVAL : 0;
    if (mlx5->comp_mask & ~known) return EINVAL;
    if ((mlx5->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC) && attr.qp_type != IBV_QPT_DRIVER) return EINVAL;
    if (!(mlx5->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS)) return 0;
    const std::uint32_t flags = mlx5->create_flags & ~std::uint32_t{MLX5DV_QP_CREATE_SIG_PIPELINING};
    // Whether small data comes in the CQE is the device's choice, and this one's is never.
    return (flags & ~scatter) || (flags & scatter) == scatter ? EINVAL : 0;
}

[[nodiscard]] int check_objects(const ibv_qp_init_attr_ex& attr) {
    const bool has_pd = (attr.comp_mask & IBV_QP_INIT_ATTR_PD) && attr.pd;
    if (attr.qp_type == IBV_QPT_XRC_RECV) {
        if (attr.srq && Srq::of(attr.srq).type != IBV_SRQT_XRC) return EINVAL;
        return (attr.comp_mask & IBV_QP_INIT_ATTR_XRCD) && attr.xrcd ? 0 : EINVAL;
    }
    if (!has_pd || !attr.send_cq) return EINVAL;
    if (attr.qp_type == IBV_QPT_XRC_SEND) return attr.srq ? EINVAL : 0;
    if (!attr.recv_cq) return EINVAL;
    if (!attr.srq || Srq::of(attr.srq).type == IBV_SRQT_BASIC) return 0;
    // An SRQ that matches tags takes the send queue too, for what it fetches.
    const bool matches = Srq::of(attr.srq).type == IBV_SRQT_TM && attr.qp_type == IBV_QPT_RC;
    return matches && attr.cap.max_send_wr == 0 ? 0 : EINVAL;
}

[[nodiscard]] int check(ibv_context* context, const ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr* mlx5) {
    constexpr std::uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                    IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    constexpr std::array types{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_DRIVER};
    if (attr.comp_mask & ~known) return EINVAL;  // TSO and RSS too: they are raw packets'.
    if (std::find(types.begin(), types.end(), attr.qp_type) == types.end()) return EINVAL;
    int error = check_mlx5(attr, mlx5);
    DeviceState& state = Context::of(context).state;
    if (!error && attr.qp_type == IBV_QPT_DRIVER) error = check_dc(dci_streams_of(state), attr, mlx5);
    if (!error) error = check_operations(state.device().profile(), attr, mlx5);
    if (!error) error = check_flags(attr);
    return error ? error : check_objects(attr);
}

/// Zeroed pages: a parent domain's, or huge ones where the environment says so, as libmlx5 reads it ("HUGE",
/// "PREFER_HUGE"), or any.
[[nodiscard]] QueueMemory allocate_pages(const QueueAllocator& allocate, std::size_t size) {
    constexpr std::size_t huge_page = 2u << 20;
    const char* const type = std::getenv("MLX_QP_ALLOC_TYPE");
    const std::string_view wanted = type ? type : "";
    const std::size_t rounded = (size + page - 1) / page * page;
    if (!allocate && (wanted == "HUGE" || wanted == "PREFER_HUGE")) {
        const std::size_t mapped = (size + huge_page - 1) / huge_page * huge_page;
        void* const huge =
            mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
        if (huge != MAP_FAILED) {
            return {static_cast<std::byte*>(huge), [mapped](std::byte* pages) { munmap(pages, mapped); }};
        }
        if (wanted == "HUGE") throw std::bad_alloc();
    }
    QueueMemory pages;
    if (allocate) {
        pages = allocate(rounded);
    } else {
        pages = {static_cast<std::byte*>(std::aligned_alloc(page, rounded)),
                 [](std::byte* taken) { std::free(taken); }};
    }
    if (!pages) throw std::bad_alloc();
    std::memset(pages.get(), 0, rounded);
    return pages;
}

/// Rings and doorbells of the layout.
void open_rings(RdmaQp& qp, bool all_signaled, const QueueAllocator& allocate) {
    const QpLayout& layout = qp.layout;
    const std::size_t receive_size = std::size_t{layout.receive_entries} * layout.stride;
    const std::size_t send_size = std::size_t{layout.blocks} * roce::basic_block_size;
    if (receive_size + send_size) qp.rings = allocate_pages(allocate, receive_size + send_size);
    qp.receive.open({.length = layout.receive_entries, .stride = layout.stride, .max_sges = layout.receive_sges},
                    qp.rings.get(), &qp.doorbells.receive);
    qp.send.open({.qpn = qp.number,
                  .blocks = layout.blocks,
                  .max_entries = layout.send_entries,
                  .max_sges = layout.send_sges,
                  .max_inline = layout.max_inline,
                  .all_signaled = all_signaled},
                 qp.rings.get() + receive_size, &qp.doorbells.send);
}

[[nodiscard]] bool is_pipelined(const mlx5dv_qp_init_attr* mlx5) {
    return mlx5 && (mlx5->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) &&
           (mlx5->create_flags & MLX5DV_QP_CREATE_SIG_PIPELINING);
}

[[nodiscard]] std::shared_ptr<RdmaQp> make(ibv_context* context, const ibv_qp_init_attr_ex& attr,
                                           const mlx5dv_qp_init_attr* mlx5, const QpLayout& layout) {
    const bool is_target = attr.qp_type == IBV_QPT_XRC_RECV;
    const bool receives = !is_target && attr.qp_type != IBV_QPT_XRC_SEND;
    auto qp = std::make_shared<RdmaQp>();
    qp->state = &Context::of(context).state;
    qp->number = qp->state->queue_numbers().take();
    qp->lag_affinity.emplace(qp->state->device().steering(), qp->number);
    qp->layout = layout;
    open_rings(*qp, attr.sq_sig_all != 0,
               is_target ? QueueAllocator{} : Pd::of(attr.pd).allocator(MLX5DV_RES_TYPE_QP));
    if (!is_target) qp->send_queue = Cq::of(attr.send_cq).queue.get();
    if (receives) qp->receive_queue = Cq::of(attr.recv_cq).queue.get();
    if (receives && attr.srq) qp->srq = &Srq::of(attr.srq);
    if (is_target) qp->xrc_domain = Xrcd::of(attr.xrcd).shared;
    const bool flags = attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS;
    RdmaQp* const self = qp.get();
    qp->device = make_queue_pair({.state = *qp->state,
                                  .type = attr.qp_type,
                                  .domain = is_target ? nullptr : Pd::of(attr.pd).domain(),
                                  .domain_number = is_target ? 0 : Pd::of(attr.pd).number,
                                  .qpn = qp->number,
                                  .sqn = qp->number,
                                  .send_queue = qp->send_queue,
                                  .receive_queue = qp->receive_queue,
                                  .srq = qp->srq ? qp->srq->queue.get() : nullptr,
                                  .send = qp->send.ring(),
                                  .receive = qp->receive.ring(),
                                  .create_flags = flags ? attr.create_flags : 0,
                                  .xrc_domain = qp->xrc_domain.get(),
                                  .dc = dc_of(attr, mlx5),
                                  .stops_at_signature_errors = is_pipelined(mlx5),
                                  .event = [self](ibv_event_type type) { self->report(type); }});
    if (qp->send_queue) qp->send_queue->hold();
    if (qp->receive_queue) qp->receive_queue->hold();
    if (qp->srq) qp->srq->queue->hold();
    return qp;
}

void forget_completions(RdmaQp& qp) {
    if (qp.send_queue) qp.send_queue->forget(qp.number);
    if (qp.receive_queue && qp.receive_queue != qp.send_queue) qp.receive_queue->forget(qp.number);
}

}  // namespace

CopyMetadata::CopyMetadata(MemoryTable& memory, const void* domain)
    : memory_(memory),
      region_{reinterpret_cast<std::uint64_t>(bytes_.data()), bytes_.size(), bytes_.data(), IBV_ACCESS_LOCAL_WRITE,
              domain} {
    if (memory_.add(region_) != 0) throw std::bad_alloc();
}

RdmaQp::RdmaQp() = default;

RdmaQp::~RdmaQp() {
    if (!device) {
        if (number) state->queue_numbers().give_back(number);
        return;
    }
    device.reset();
    lag_affinity.reset();
    // Completions that nobody took would free slots of rings that are gone.
    forget_completions(*this);
    if (send_queue) send_queue->release();
    if (receive_queue) receive_queue->release();
    if (srq) srq->queue->release();
    state->queue_numbers().give_back(number);
}

void RdmaQp::add(Qp& handle) {
    std::lock_guard guard(mutex_);
    handles_.push_back(&handle);
}

void RdmaQp::remove(Qp& handle) {
    std::lock_guard guard(mutex_);
    std::erase(handles_, &handle);
}

void RdmaQp::report(ibv_event_type type) {
    std::lock_guard guard(mutex_);
    for (Qp* const handle : handles_) {
        ibv_async_event event{};
        event.element.qp = handle->base();
        event.event_type = type;
        Context::of(handle->qp_base.context).events.push(event);
    }
}

ibv_qp* create_rdma_qp(ibv_context* context, ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr* mlx5) {
    QpLayout layout;
    int error = check(context, attr, mlx5);
    const auto dc = error ? std::nullopt : dc_of(attr, mlx5);
    const bool has_rings = attr.qp_type != IBV_QPT_XRC_RECV && !(dc && dc->end == MLX5DV_DCTYPE_DCT);
    if (!error && has_rings) error = lay_out(attr, mlx5_operations_of(mlx5), layout);
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&] {
        auto qp = std::make_unique<Qp>();
        qp->rdma = make(context, attr, mlx5, layout);
        if (has_rings) attr.cap = layout.granted(attr.cap);
        const bool is_target = attr.qp_type == IBV_QPT_XRC_RECV;
        init_handle(*qp, context, attr.qp_type, attr.qp_context);
        ibv_qp& base = qp->qp_base;
        base.pd = is_target ? nullptr : attr.pd;
        base.send_cq = is_target ? nullptr : attr.send_cq;
        base.recv_cq = qp->rdma->receive_queue ? attr.recv_cq : nullptr;
        base.srq = qp->rdma->srq ? attr.srq : nullptr;
        std::memcpy(&qp->created_with, &attr, sizeof qp->created_with);
        qp->has_send_ops = attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        if (qp->has_send_ops || mlx5_operations_of(mlx5)) set_rdma_operations(*qp, mlx5_operations_of(mlx5));
        if (mlx5_operations_of(mlx5) & MLX5DV_QP_EX_WITH_MEMCPY) set_copy_operation(*qp);
        if (qp->rdma->is_dc(MLX5DV_DCTYPE_DCT)) base.qp_num = 0;  // until it goes to RTR
        if (base.pd) Pd::of(base.pd).users.fetch_add(1);
        if (is_target) {
            qp->xrcd = &Xrcd::of(attr.xrcd);
            qp->xrcd->users.fetch_add(1);
            qp->xrcd->add_target(qp->rdma);
        }
        return qp.release()->base();
    });
}

void init_handle(Qp& qp, ibv_context* context, ibv_qp_type type, void* qp_context) {
    ibv_qp& base = qp.qp_base;
    base.context = context;
    base.qp_context = qp_context;
    base.qp_num = base.handle = qp.rdma->number;
    base.state = qp.rdma->device->state();
    base.qp_type = type;
    pthread_mutex_init(&base.mutex, nullptr);
    pthread_cond_init(&base.cond, nullptr);
    Context::of(context).add(qp);
    qp.rdma->add(qp);
}

int modify_rdma_qp(Qp& qp, const ibv_qp_attr& attr, int mask) {
    RdmaQp& rdma = *qp.rdma;
    const ibv_qp_state before = rdma.device->state();
    if (const int error = rdma.device->modify(attr, mask)) return error;
    qp.qp_base.state = rdma.device->state();
    if (!(mask & IBV_QP_STATE)) return 0;
    switch (attr.qp_state) {
        case IBV_QPS_RESET:
            rdma.may_send = rdma.may_receive = false;
            rdma.send.reset();
            rdma.receive.reset();
            forget_completions(rdma);
            rdma.lag_affinity->set(0);
            break;
        case IBV_QPS_INIT:
            rdma.may_receive = true;
            if (before == IBV_QPS_RESET) rdma.lag_affinity->set(Context::of(qp.qp_base.context).next_lag_port());
            break;
        case IBV_QPS_RTR:
            qp.qp_base.qp_num = rdma.number;
            break;
        case IBV_QPS_RTS:
            rdma.may_send = true;
            break;
        default:
            break;
    }
    return 0;
}

int query_rdma_qp(Qp& qp, ibv_qp_attr& attr, int mask, ibv_qp_init_attr& init_attr) {
    constexpr int of_target = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV |
                              IBV_QP_PATH_MTU | IBV_QP_PKEY_INDEX;
    if (qp.rdma->is_dc(MLX5DV_DCTYPE_DCT) && ((mask & ~of_target) || qp.rdma->device->state() != IBV_QPS_RTR)) {
        return EINVAL;
    }
    attr = ibv_qp_attr{};
    qp.rdma->device->query(attr);
    attr.qp_state = attr.cur_qp_state = qp.qp_base.state = qp.rdma->device->state();
    attr.cap = qp.created_with.cap;
    init_attr = qp.created_with;
    return 0;
}

int destroy_rdma_qp(Qp& qp) {
    {
        const std::lock_guard guard(qp.rdma->groups_mutex);
        if (!qp.rdma->groups.empty()) return EBUSY;
    }
    Context& context = Context::of(qp.qp_base.context);
    context.remove(qp);
    qp.rdma->remove(qp);
    qp.rdma.reset();
    forget_events(context, qp);
    if (qp.qp_base.pd) Pd::of(qp.qp_base.pd).users.fetch_sub(1);
    if (qp.xrcd) qp.xrcd->users.fetch_sub(1);
    pthread_mutex_destroy(&qp.qp_base.mutex);
    pthread_cond_destroy(&qp.qp_base.cond);
    delete &qp;
    return 0;
}

}  // namespace ovsdr::soft
