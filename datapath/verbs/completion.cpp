// Completion channels and completion queues.
#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/limits.hpp"
#include "datapath/verbs/objects.hpp"
#include "datapath/verbs/rings.hpp"

namespace ovsdr::soft {

namespace {

constexpr std::uint64_t supported_wc_flags = std::uint64_t{IBV_WC_STANDARD_FLAGS} |
                                             IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_FLOW_TAG |
                                             IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK |
                                             IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_TM_INFO;

[[nodiscard]] int check(const Context& context, const ibv_cq_init_attr_ex& attr) {
    if (attr.cqe == 0 || attr.cqe > static_cast<unsigned>(limits::completions)) return EINVAL;
    if (attr.comp_vector >= static_cast<unsigned>(context.context.num_comp_vectors)) return EINVAL;
    constexpr unsigned known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    if (attr.comp_mask & ~known) return EINVAL;
    if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) && !(attr.parent_domain && Pd::of(attr.parent_domain).parent_of)) {
        return EINVAL;
    }
    if (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) {
        constexpr unsigned flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN | IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
        if (attr.flags & ~flags) return EINVAL;
    }
    return attr.wc_flags & ~supported_wc_flags ? EOPNOTSUPP : 0;
}

/// Bytes of a CQE: mlx5's attribute, or the environment's word, or 64. 0: neither 64 nor 128.
[[nodiscard]] std::uint32_t cqe_size_of(const mlx5dv_cq_init_attr* mlx5) {
    const char* const environment = std::getenv("MLX5_CQE_SIZE");
    std::uint32_t size = 64;
    if (mlx5 && (mlx5->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE)) {
        size = mlx5->cqe_size;
    } else if (environment) {
        size = static_cast<std::uint32_t>(std::atoi(environment));
    }
    return size == 64 || size == 128 ? size : 0;
}

/// Compression and padding of CQEs spare PCI transactions: a device may compress, and this one has nothing to gain from
/// it, so that only the requests' form is looked at. Source: mlx5dv_create_cq(3).
[[nodiscard]] int check_mlx5(const mlx5dv_cq_init_attr* mlx5) {
    constexpr std::uint64_t known = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE | MLX5DV_CQ_INIT_ATTR_MASK_FLAGS |
                                    MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
    const std::uint32_t size = cqe_size_of(mlx5);
    if (size == 0) return EINVAL;
    if (!mlx5) return 0;
    if (mlx5->comp_mask & ~known) return EINVAL;
    if (mlx5->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE) {
        const unsigned format = mlx5->cqe_comp_res_format;
        if (!std::has_single_bit(format) || (format & ~cqe_compression_formats)) return EINVAL;
    }
    if (!(mlx5->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_FLAGS)) return 0;
    const unsigned flags = mlx5->flags;
    if (flags & ~unsigned{MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD}) return EINVAL;
    return flags && size != 128 ? EINVAL : 0;
}

void notify(Cq& cq) {
    if (!cq.channel) return;
    Channel& channel = Channel::of(cq.channel);
    Context::of(cq.context).state.device().woke(channel.lookout);   // first: behind the event the channel may go
    channel.events.push(&cq);
}

void report_overrun(Cq& cq) {
    ibv_async_event event{};
    event.element.cq = cq.base();
    event.event_type = IBV_EVENT_CQ_ERR;
    Context::of(cq.context).events.push(event);
}

[[nodiscard]] Cq* create(ibv_context* context, const ibv_cq_init_attr_ex& attr, const char* call,
                         const mlx5dv_cq_init_attr* mlx5 = nullptr, bool is_extended = true) noexcept {
    int error = injected_fault(call);
    if (!error) error = check(Context::of(context), attr);
    if (!error) error = check_mlx5(mlx5);
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&] {
        auto cq = std::make_unique<Cq>();
        Cq* const self = cq.get();
        const bool timestamps =
            attr.wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
        Pd* const domain = attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? &Pd::of(attr.parent_domain) : nullptr;
        // One more than asked for, as libmlx5's rings have it; cqe says what that comes to.
        cq->queue = std::make_unique<CompletionQueue>(
            attr.cqe + 1, timestamps,
            CompletionQueue::Notifier{[self] { notify(*self); }, [self] { report_overrun(*self); }},
            domain ? domain->allocator(MLX5DV_RES_TYPE_CQ) : QueueAllocator{},
            (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr.flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN));
        cq->domain = domain;
        if (domain) domain->users.fetch_add(1);
        cq->context = context;
        cq->channel = attr.channel;
        cq->cq_context = attr.cq_context;
        cq->cqe = static_cast<int>(cq->queue->length()) - 1;
        cq->number = cq->handle = Context::of(context).state.cq_numbers().take();
        cq->cqe_size = cqe_size_of(mlx5);
        pthread_mutex_init(&cq->mutex, nullptr);
        pthread_cond_init(&cq->cond, nullptr);
        if (is_extended) set_cq_readers(*cq, attr.wc_flags);
        if (attr.channel) __atomic_add_fetch(&attr.channel->refcnt, 1, __ATOMIC_RELAXED);
        Context::of(context).hold();
        return cq.release();
    });
}

/// Waits until the application has acknowledged every event of the CQ that it was given.
void await_acknowledgements(Cq& cq) {
    pthread_mutex_lock(&cq.mutex);
    while (cq.comp_events_completed != cq.comp_events.load() || cq.async_events_completed != cq.async_events.load()) {
        pthread_cond_wait(&cq.cond, &cq.mutex);
    }
    pthread_mutex_unlock(&cq.mutex);
}

}  // namespace

ibv_cq_ex* create_cq_ex_op(ibv_context* context, ibv_cq_init_attr_ex* attr) {
    return create(context, *attr, "ibv_create_cq_ex");
}

ibv_cq_ex* create_mlx5_cq(ibv_context* context, const ibv_cq_init_attr_ex& attr, const mlx5dv_cq_init_attr* mlx5) {
    return create(context, attr, "mlx5dv_create_cq", mlx5);
}

int poll_cq_op(ibv_cq* base, int length, ibv_wc* completions) {
    if (const int error = injected_fault("ibv_poll_cq")) return -failed(error);
    constexpr int chunk = 16;
    Cq& cq = Cq::of(base);
    Completion taken[chunk];
    int total = 0;
    while (total < length) {
        const int wanted = std::min(chunk, length - total);
        const int got = cq.take({taken, static_cast<std::size_t>(wanted)});
        for (int i = 0; i < got; ++i) {
            const Completion& from = taken[i];
            ibv_wc& to = completions[total++];
            to = ibv_wc{};
            to.wr_id = from.wr_id;
            to.status = from.status;
            to.opcode = from.opcode;
            to.vendor_err = from.vendor_err;
            to.byte_len = from.byte_len;
            to.qp_num = from.qp_num;
            to.wc_flags = from.wc_flags;
            to.imm_data = from.imm_data;
            to.src_qp = from.src_qp;
            to.sl = from.sl;
        }
        if (got < wanted) break;
    }
    cq.settle_event();
    return total;
}

int req_notify_cq_op(ibv_cq* cq, int solicited_only) {
    if (const int error = injected_fault("ibv_req_notify_cq")) return failed(error);
    if (cq->channel) {
        Channel::of(cq->channel).lookout->about_to_wait();
        Cq::of(cq).look.store(Cq::Look::after_this, std::memory_order_relaxed);
    }
    Cq::of(cq).queue->arm(solicited_only != 0);
    return 0;
}

int Cq::take(std::span<Completion> completions) noexcept {
    const int taken = queue->take(completions);
    const Look now = look.load(std::memory_order_relaxed);
    if (now == Look::no) return taken;
    if (taken != 0) {
        Lookout::in_vain_until = 0;
        return taken;
    }
    if (now == Look::after_this) {
        look.store(Look::yes, std::memory_order_relaxed);
        return 0;
    }
    Channel::of(channel).lookout->looks();
    const CompletionQueue::LookedInto looked(*queue);
    if (!Context::of(context).state.device().look_out()) return 0;
    may_owe_event.store(true, std::memory_order_relaxed);
    return queue->take(completions);
}

void Cq::settle_event() noexcept {
    if (!may_owe_event.load(std::memory_order_relaxed)) return;
    may_owe_event.store(false, std::memory_order_relaxed);
    queue->notify_of_rest();
}

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
    if (const int error = injected_fault("ibv_create_comp_channel")) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_comp_channel* {
        auto channel = std::make_unique<Channel>();
        channel->context = context;
        channel->fd = channel->lookout->fd();
        channel->refcnt = 0;
        Context::of(context).hold();
        return channel.release();
    });
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
    if (const int error = injected_fault("ibv_destroy_comp_channel")) return failed(error);
    if (__atomic_load_n(&channel->refcnt, __ATOMIC_ACQUIRE)) return failed(EBUSY);
    Context::of(channel->context).let_go();
    Channel::of(channel).lookout->end();
    delete &Channel::of(channel);
    return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int length, void* cq_context, ibv_comp_channel* channel, int comp_vector) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = length > 0 ? static_cast<std::uint32_t>(length) : 0;
    attr.cq_context = cq_context;
    attr.channel = channel;
    attr.comp_vector = static_cast<std::uint32_t>(comp_vector);
    Cq* const cq = create(context, attr, "ibv_create_cq", nullptr, false);
    return cq ? cq->base() : nullptr;
}

int ibv_resize_cq(ibv_cq* base, int length) {
    if (const int error = injected_fault("ibv_resize_cq")) return failed(error);
    if (length <= 0 || length > limits::completions) return failed(EINVAL);
    Cq& cq = Cq::of(base);
    // A command comes to the device behind the doorbells that rang before it: a queue that shrinks is as full as they
    // make it.
    if (static_cast<unsigned>(length) < cq.queue->length() - 1) Context::of(base->context).state.answer_doorbells();
    try {
        if (const int error = cq.queue->resize(static_cast<unsigned>(length) + 1)) return failed(error);
        if (cq.exposure) cq.exposure->show();
    } catch (const std::bad_alloc&) {
        return failed(ENOMEM);
    }
    base->cqe = static_cast<int>(cq.queue->length()) - 1;
    return 0;
}

int ibv_destroy_cq(ibv_cq* base) {
    if (const int error = injected_fault("ibv_destroy_cq")) return failed(error);
    Cq& cq = Cq::of(base);
    if (cq.queue->held()) return failed(EBUSY);
    Context& context = Context::of(base->context);
    if (base->channel) Channel::of(base->channel).events.remove_if([&](const Cq* waiting) { return waiting == &cq; });
    context.events.remove_if(
        [&](const ibv_async_event& event) { return event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == base; });
    await_acknowledgements(cq);
    if (base->channel) __atomic_sub_fetch(&base->channel->refcnt, 1, __ATOMIC_RELEASE);
    context.state.cq_numbers().give_back(cq.number);
    context.let_go();
    pthread_mutex_destroy(&base->mutex);
    pthread_cond_destroy(&base->cond);
    Pd* const domain = cq.domain;
    delete &cq;
    if (domain) domain->users.fetch_sub(1);
    return 0;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
    Cq* source = nullptr;
    int error = injected_fault("ibv_get_cq_event");
    if (!error) {
        const auto take = [](Cq* taken) { taken->comp_events.fetch_add(1); };
        EventQueue<Cq*>& events = Channel::of(channel).events;
        error = events.pop(source, take, false);
        // The descriptor may have been readable since a packet waits at a port.
        if (error == EAGAIN && Context::of(channel->context).state.device().look_out()) {
            error = events.pop(source, take, false);
        }
        if (error == EAGAIN) {
            const int flags = fcntl(channel->fd, F_GETFL);
            if (flags >= 0 && (flags & O_NONBLOCK) == 0) {
                error = events.pop(source, take);
            } else {
                Channel::of(channel).lookout->found_nothing();
            }
        }
    }
    if (error) {
        errno = error;
        return -1;
    }
    *cq = source->base();
    *cq_context = source->cq_context;
    return 0;
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned length) {
    pthread_mutex_lock(&cq->mutex);
    cq->comp_events_completed += length;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

}  // extern "C"
