#include "tests/unit/offload/slowpath/fake_verbs.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/unit/offload/fake_provider.hpp"

namespace ovsdr::test {
namespace {

/// Serves as both kinds of completion queue: an ibv_cq is how an ibv_cq_ex begins.
struct FakeCq {
    ibv_cq_ex cq{};
    FakeQueue* queue = nullptr;
};

struct FakeTable {
    ibv_rwq_ind_table table{};
    std::vector<FakeQueue*> queues;
};
struct FakeSpread {
    ibv_qp qp{};
    std::vector<FakeQueue*> queues;
};

struct State {
    std::vector<FakeSpread*> spreads;
    int alive = 0;
    unsigned calls = 0, fail_at = 0;
    std::uint32_t next_number = 0x1234;
    bool armed = false;
    std::vector<FakeQueue*> queues;
    std::deque<ibv_cq*> wake_ups;
    std::map<ibv_cq*, unsigned> acknowledged;
    unsigned looks = 0;
};
State now;

bool fails() {
    if (++now.calls != now.fail_at) return false;
    errno = ENOMEM;
    return true;
}

template <typename T>
T* make() {
    const NoMemoryFaults exempt;
    if (fails()) return nullptr;
    ++now.alive;
    return new T{};
}

/// One thread makes queues while others send.
std::mutex queues_mutex;

void add(FakeQueue* queue) {
    const std::lock_guard guard(queues_mutex);
    now.queues.push_back(queue);
}
void remove(FakeQueue* queue) {
    const std::lock_guard guard(queues_mutex);
    std::erase(now.queues, queue);
}
FakeQueue& queue_of(const ibv_qp* qp) {
    const std::lock_guard guard(queues_mutex);
    return **std::ranges::find_if(now.queues, [qp](const FakeQueue* queue) { return &queue->qp == qp; });
}
FakeQueue& queue_of(const ibv_wq* wq) {
    const std::lock_guard guard(queues_mutex);
    return **std::ranges::find_if(now.queues, [wq](const FakeQueue* queue) { return &queue->wq == wq; });
}
FakeCq& fake_of(void* cq) { return *static_cast<FakeCq*>(cq); }

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr*) {
    FakeQueue* const queue = fake_of(cq).queue;
    if (queue != nullptr && queue->on_receive) queue->on_receive();
    if (queue == nullptr || queue->received.empty()) return ENOENT;
    cq->wr_id = queue->received.front().id;
    cq->status = queue->received.front().status;
    return 0;
}
/// end_poll() takes the one that was looked at; next_poll() that found none leaves nothing to take.
int next_poll(ibv_cq_ex* cq) {
    fake_of(cq).queue->received.pop_front();
    return start_poll(cq, nullptr);
}
void end_poll(ibv_cq_ex* cq) {
    auto& received = fake_of(cq).queue->received;
    if (!received.empty()) received.pop_front();
}

template <typename Object>
int post_receive(Object* object, ibv_recv_wr* request, ibv_recv_wr** refused) {
    const NoMemoryFaults exempt;
    if (fails()) {
        *refused = request;
        return ENOMEM;
    }
    FakeQueue& queue = queue_of(object);
    for (; request != nullptr; request = request->next) queue.receives.push_back({*request->sg_list, request->wr_id});
    if (queue.failed) queue.fail();
    return 0;
}

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** refused) {
    FakeQueue& queue = queue_of(qp);
    if (queue.on_post) queue.on_post();
    for (unsigned n = 1; request != nullptr; request = request->next, ++n) {
        if (n == queue.refuse_send_at) {
            *refused = request;
            queue.refuse_send_at = 0;
            if (queue.executes) queue.execute();
            return ENOMEM;
        }
        queue.sends.push_back(*request);
        // The list is the caller's; the bytes stay in the queue's buffers.
        queue.sends.back().sg_list = new ibv_sge(*request->sg_list);
    }
    if (queue.executes || queue.failed) queue.execute();
    return 0;
}

int poll_sends(ibv_cq* cq, int length, ibv_wc* out) {
    FakeQueue* queue = fake_of(cq).queue;
    int taken = 0;
    while (queue != nullptr && taken < length && !queue->send_completions.empty()) {
        out[taken++] = queue->send_completions.front();
        queue->send_completions.pop_front();
    }
    return taken;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
    EXPECT_NE(attributes->wc_flags & IBV_WC_EX_WITH_FLOW_TAG, 0U);
    auto* made = make<FakeCq>();
    if (made == nullptr) return nullptr;
    made->cq.context = context;
    made->cq.start_poll = start_poll;
    made->cq.next_poll = next_poll;
    made->cq.end_poll = end_poll;
    made->cq.read_byte_len = [](ibv_cq_ex* cq) { return fake_of(cq).queue->received.front().size; };
    made->cq.read_flow_tag = [](ibv_cq_ex* cq) { return fake_of(cq).queue->received.front().tag; };
    return &made->cq;
}

ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attributes) {
    const NoMemoryFaults exempt;
    auto* queue = make<FakeQueue>();
    if (queue == nullptr) return nullptr;
    queue->is_wq = true;
    queue->wq.context = context;
    queue->wq.cq = attributes->cq;
    queue->wq.post_recv = post_receive<ibv_wq>;
    fake_of(attributes->cq).queue = queue;
    add(queue);
    return &queue->wq;
}
int modify_wq(ibv_wq*, ibv_wq_attr* attributes) {
    EXPECT_EQ(attributes->wq_state, IBV_WQS_RDY);
    return fails() ? ENOMEM : 0;
}
int destroy_wq(ibv_wq* wq) {
    const NoMemoryFaults exempt;
    FakeQueue& queue = queue_of(wq);
    fake_of(wq->cq).queue = nullptr;
    remove(&queue);
    delete &queue;
    return --now.alive, 0;
}

ibv_rwq_ind_table* create_table(ibv_context* context, ibv_rwq_ind_table_init_attr* attributes) {
    const NoMemoryFaults exempt;
    auto* table = make<FakeTable>();
    if (table == nullptr) return nullptr;
    table->table.context = context;
    for (unsigned i = 0; i < 1U << attributes->log_ind_tbl_size; ++i) {
        table->queues.push_back(&queue_of(attributes->ind_tbl[i]));
    }
    return &table->table;
}
int destroy_table(ibv_rwq_ind_table* table) {
    delete reinterpret_cast<FakeTable*>(table);
    return --now.alive, 0;
}

ibv_qp* create_spread(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
    const NoMemoryFaults exempt;
    if ((attributes->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE) == 0) {
        return ibv_create_qp(attributes->pd, reinterpret_cast<ibv_qp_init_attr*>(attributes));
    }
    auto* spread = make<FakeSpread>();
    if (spread == nullptr) return nullptr;
    spread->qp.context = context;
    spread->qp.qp_num = now.next_number++;
    spread->queues = reinterpret_cast<FakeTable*>(attributes->rwq_ind_tbl)->queues;
    EXPECT_EQ(attributes->rx_hash_conf.rx_hash_fields_mask == 0, spread->queues.size() == 1);
    now.spreads.push_back(spread);
    return &spread->qp;
}

}  // namespace

bool FakeQueue::deliver(const Bytes& bytes, std::uint32_t tag, ibv_wc_status status) {
    if (receives.empty()) return false;
    std::memcpy(reinterpret_cast<void*>(receives.front().buffer.addr), bytes.data(), bytes.size());
    received.push_back({receives.front().id, status, static_cast<std::uint32_t>(bytes.size()), tag});
    receives.pop_front();
    if (status != IBV_WC_SUCCESS) fail();
    return true;
}

void FakeQueue::fail(ibv_wc_status status) {
    failed = status == IBV_WC_WR_FLUSH_ERR;
    next_send = status;
    if (!failed) return;
    for (const Receive& receive : receives) received.push_back({receive.id, IBV_WC_WR_FLUSH_ERR, 0, 0});
    receives.clear();
    execute();
}

void FakeQueue::execute(std::size_t length) {
    for (; length > 0 && !sends.empty(); --length) {
        const ibv_send_wr request = sends.front();
        sends.pop_front();
        ibv_wc completion{};
        completion.wr_id = request.wr_id;
        completion.status = failed ? IBV_WC_WR_FLUSH_ERR : std::exchange(next_send, IBV_WC_SUCCESS);
        const bool good = completion.status == IBV_WC_SUCCESS;
        const auto* data = reinterpret_cast<const std::uint8_t*>(request.sg_list->addr);
        if (good) sent.emplace_back(data, data + request.sg_list->length);
        delete request.sg_list;
        if (!good || (request.send_flags & IBV_SEND_SIGNALED)) send_completions.push_back(completion);
        if (!good && !failed) fail();
    }
}

void FakeVerbs::reset() {
    EXPECT_TRUE(now.queues.empty());
    now = {};
}
void FakeVerbs::fail_call(unsigned n) {
    now.calls = 0;
    now.fail_at = n;
}
bool FakeVerbs::failed() { return now.fail_at != 0 && now.calls >= now.fail_at; }
int FakeVerbs::alive() { return now.alive; }
std::vector<FakeQueue*> FakeVerbs::queues() { return now.queues; }
std::vector<FakeQueue*> FakeVerbs::spread_of(std::uint32_t qp_num) {
    for (const FakeSpread* spread : now.spreads) {
        if (spread->qp.qp_num == qp_num) return spread->queues;
    }
    return {};
}
bool FakeVerbs::armed() { return now.armed; }
void FakeVerbs::wake(ibv_cq* cq) {
    const std::lock_guard guard(queues_mutex);
    now.wake_ups.push_back(cq);
}
std::size_t FakeVerbs::wake_ups() {
    const std::lock_guard guard(queues_mutex);
    return now.wake_ups.size();
}
unsigned FakeVerbs::acknowledged(ibv_cq* cq) {
    const std::lock_guard guard(queues_mutex);
    return now.acknowledged[cq];
}
unsigned FakeVerbs::looks_for_wake_ups() {
    const std::lock_guard guard(queues_mutex);
    return now.looks;
}

void FakeVerbs::prepare_context(verbs_context& extended) {
    extended.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    extended.sz = sizeof extended;
    extended.create_cq_ex = create_cq_ex;
    extended.create_qp_ex = create_spread;
    extended.create_wq = create_wq;
    extended.modify_wq = modify_wq;
    extended.destroy_wq = destroy_wq;
    extended.create_rwq_ind_table = create_table;
    extended.destroy_rwq_ind_table = destroy_table;
    ibv_context_ops& ops = extended.context.ops;
    ops.req_notify_cq = [](ibv_cq*, int solicited_only) {
        if (solicited_only == 0) now.armed = true;
        return 0;
    };
    ops.post_recv = post_receive<ibv_qp>;
    ops.post_send = post_send;
    ops.poll_cq = poll_sends;
}

}  // namespace ovsdr::test

using namespace ovsdr::test;

extern "C" {

#undef ibv_reg_mr
ibv_mr* ibv_reg_mr(ibv_pd*, void*, size_t, int) { return make<ibv_mr>(); }
ibv_mr* ibv_reg_mr_iova2(ibv_pd*, void*, size_t, uint64_t, unsigned) { return make<ibv_mr>(); }
int ibv_dereg_mr(ibv_mr* region) {
    delete region;
    return --now.alive, 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context*) {
    auto* channel = make<ibv_comp_channel>();
    if (channel != nullptr) channel->fd = eventfd(0, EFD_NONBLOCK);
    return channel;
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
    close(channel->fd);
    delete channel;
    return --now.alive, 0;
}
int ibv_get_cq_event(ibv_comp_channel*, ibv_cq** cq, void** context) {
    const std::lock_guard guard(queues_mutex);
    ++now.looks;
    errno = EAGAIN;
    if (now.wake_ups.empty()) return -1;
    *cq = now.wake_ups.front();
    *context = nullptr;
    now.wake_ups.pop_front();
    return 0;
}
void ibv_ack_cq_events(ibv_cq* cq, unsigned length) {
    const NoMemoryFaults exempt;
    const std::lock_guard guard(queues_mutex);
    now.acknowledged[cq] += length;
}

ibv_cq* ibv_create_cq(ibv_context* context, int, void*, ibv_comp_channel*, int) {
    auto* made = make<FakeCq>();
    if (made == nullptr) return nullptr;
    made->cq.context = context;
    return ibv_cq_ex_to_cq(&made->cq);
}
int ibv_destroy_cq(ibv_cq* cq) {
    delete &fake_of(cq);
    return --now.alive, 0;
}

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
    const NoMemoryFaults exempt;
    EXPECT_EQ(attributes->qp_type, IBV_QPT_RAW_PACKET);
    auto* queue = make<FakeQueue>();
    if (queue == nullptr) return nullptr;
    queue->sqn = now.next_number++;
    queue->qp.context = pd->context;
    queue->qp.qp_num = queue->sqn;
    fake_of(attributes->send_cq).queue = queue;
    if (attributes->cap.max_recv_wr != 0) fake_of(attributes->recv_cq).queue = queue;
    queue->qp.send_cq = attributes->send_cq;
    queue->qp.recv_cq = attributes->recv_cq;
    add(queue);
    if (FakeVerbs::note != nullptr) FakeVerbs::note("create", queue->sqn);
    return &queue->qp;
}
int ibv_destroy_qp(ibv_qp* qp) {
    const NoMemoryFaults exempt;
    const auto spread = std::ranges::find_if(now.spreads, [qp](const FakeSpread* known) { return &known->qp == qp; });
    if (spread != now.spreads.end()) {
        delete *spread;
        now.spreads.erase(spread);
        return --now.alive, 0;
    }
    FakeQueue& queue = queue_of(qp);
    if (FakeVerbs::note != nullptr) FakeVerbs::note("destroy", queue.sqn);
    fake_of(qp->send_cq).queue = nullptr;
    if (fake_of(qp->recv_cq).queue == &queue) fake_of(qp->recv_cq).queue = nullptr;
    for (const ibv_send_wr& request : queue.sends) delete request.sg_list;
    remove(&queue);
    delete &queue;
    return --now.alive, 0;
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
    if (fails()) return ENOMEM;
    if ((mask & IBV_QP_PORT) != 0) queue_of(qp).ib_port = attributes->port_num;
    return 0;
}

int mlx5dv_init_obj(mlx5dv_obj* object, uint64_t) {
    object->qp.out->sqn = queue_of(object->qp.in).sqn;
    return 0;
}

}  // extern "C"
