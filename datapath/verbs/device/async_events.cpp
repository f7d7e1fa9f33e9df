// Asynchronous events of contexts: of CQs, queue pairs, SRQs and ports. Whoever destroys an object waits until each
// event of it that the application has taken is acknowledged; those that it has not taken are forgotten.
//
// Source: ibv_get_async_event(3).
#include "datapath/verbs/objects.hpp"
#include "datapath/verbs/qp/srq.hpp"

namespace ovsdr::soft {

namespace {

enum class Subject { port, cq, qp, srq };

[[nodiscard]] Subject subject_of(ibv_event_type type) {
    switch (type) {
        case IBV_EVENT_CQ_ERR:
            return Subject::cq;
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            return Subject::qp;
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            return Subject::srq;
        default:
            return Subject::port;
    }
}

void count_taken(const ibv_async_event& event) {
    switch (subject_of(event.event_type)) {
        case Subject::cq:
            Cq::of(event.element.cq).async_events.fetch_add(1);
            break;
        case Subject::qp:
            Qp::of(event.element.qp).async_events.fetch_add(1);
            break;
        case Subject::srq:
            Srq::of(event.element.srq).async_events.fetch_add(1);
            break;
        case Subject::port:
            break;
    }
}

/// QPs and SRQs count what is acknowledged in the same way; CQs count two kinds of events.
template <typename Base>
void acknowledge(Base& object, std::uint32_t& completed) {
    pthread_mutex_lock(&object.mutex);
    ++completed;
    pthread_cond_signal(&object.cond);
    pthread_mutex_unlock(&object.mutex);
}

template <typename Base>
void await(Base& object, const std::atomic<std::uint32_t>& taken) {
    pthread_mutex_lock(&object.mutex);
    while (object.events_completed != taken.load()) pthread_cond_wait(&object.cond, &object.mutex);
    pthread_mutex_unlock(&object.mutex);
}

}  // namespace

void forget_events(Context& context, Qp& qp) {
    context.events.remove_if([&](const ibv_async_event& event) {
        return subject_of(event.event_type) == Subject::qp && event.element.qp == qp.base();
    });
    await(qp.qp_base, qp.async_events);
}

void forget_events(Context& context, Srq& srq) {
    context.events.remove_if([&](const ibv_async_event& event) {
        return subject_of(event.event_type) == Subject::srq && event.element.srq == &srq;
    });
    await(srq, srq.async_events);
}

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    const int error = Context::of(context).events.pop(*event, count_taken);
    if (error == 0) return 0;
    errno = error;
    return -1;
}

void ibv_ack_async_event(ibv_async_event* event) {
    switch (subject_of(event->event_type)) {
        case Subject::cq:
            return acknowledge(*event->element.cq, event->element.cq->async_events_completed);
        case Subject::qp:
            return acknowledge(*event->element.qp, event->element.qp->events_completed);
        case Subject::srq:
            return acknowledge(*event->element.srq, event->element.srq->events_completed);
        case Subject::port:
            return;
    }
}

}  // extern "C"
