#include "datapath/rdma/roce/engine.hpp"

#include <fmt/format.h>
#include <rte_errno.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <new>
#include <optional>
#include <thread>

#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/roce/pair.hpp"
#include "datapath/rdma/roce/transport.hpp"

namespace ovsdr::soft::roce {

namespace {

constexpr unsigned frames_length = 64;
constexpr unsigned received_in_turn = 128;
/// No more than is received in a turn: what an engine of the same kind sends, another one can take.
constexpr unsigned sent_in_turn = 128;
constexpr unsigned pairs_in_turn = 16;

[[nodiscard]] rte_ring* make_ring(unsigned length) {
    static std::atomic<unsigned> next{0};
    rte_ring* const ring =
        rte_ring_create(fmt::format("roce-{}", next++).c_str(), length, SOCKET_ID_ANY, RING_F_SC_DEQ);
    if (ring == nullptr) throw std::bad_alloc();
    return ring;
}

void free_ring(rte_ring* ring) noexcept {
    void* packet = nullptr;
    while (rte_ring_sc_dequeue(ring, &packet) == 0) rte_pktmbuf_free(static_cast<rte_mbuf*>(packet));
    rte_ring_free(ring);
}

}  // namespace

Engine::Engine(Transport& transport, unsigned worker, std::uint32_t own_sqn)
    : transport_(transport), worker_(worker), own_sqn_(own_sqn), inbox_(make_ring(inbox_length)),
      frames_(make_ring(frames_length)) {
    transport_.state().device().add_service(
        worker_, {.run = [](void* self, const Outlet& outlet,
                            std::uint64_t now) noexcept { return static_cast<Engine*>(self)->run(outlet, now); },
                  .deadline = [](void* self, std::uint64_t now) noexcept {
                      return static_cast<Engine*>(self)->deadline(now);
                  },
                  .self = this});
}

Engine::~Engine() {
    transport_.state().device().remove_service(worker_, this);
    free_ring(inbox_);
    free_ring(frames_);
}

void Engine::add(Pair& pair) {
    pairs_.emplace(pair.spec().qpn, &pair);
    timers_.reserve(timers_.size() + 2 * pairs_.size());  // so that arming seldom allocates
    if (pair.spec().polled) poll(pair);
}

void Engine::poll(Pair& pair) {
    if (std::find(polled_.begin(), polled_.end(), &pair) != polled_.end()) return;
    polled_.push_back(&pair);
    has_polled_.store(true, std::memory_order_relaxed);
    look_closely();
}

void Engine::remove(Pair& pair) noexcept {
    (void)answer_doorbells();  // it may have rung
    pairs_.erase(pair.spec().qpn);
    std::erase(polled_, &pair);
    has_polled_.store(!polled_.empty(), std::memory_order_relaxed);
    Pair** link = &first_active_;
    last_active_ = nullptr;
    while (*link != nullptr) {
        if (*link == &pair) {
            *link = pair.next_active_;
            continue;
        }
        last_active_ = *link;
        link = &(*link)->next_active_;
    }
    has_active_.store(first_active_ != nullptr, std::memory_order_relaxed);
}

void Engine::schedule(Pair& pair) noexcept {
    if (pair.is_active_) return;
    pair.is_active_ = true;
    pair.next_active_ = nullptr;
    (last_active_ != nullptr ? last_active_->next_active_ : first_active_) = &pair;
    last_active_ = &pair;
    has_active_.store(true, std::memory_order_relaxed);
}

void Engine::arm(Pair& pair, std::uint64_t deadline) noexcept {
    if (deadline >= pair.timer_queued_) return;
    pair.timer_queued_ = deadline;
    timers_.push_back({deadline, pair.spec().qpn});
    std::push_heap(timers_.begin(), timers_.end(), std::greater<>());
    next_timer_.store(timers_.front().deadline, std::memory_order_relaxed);
}

bool Engine::post(rte_mbuf* packet) noexcept {
    return rte_ring_mp_enqueue(inbox_, packet) == 0;
}

void Engine::wake() noexcept {
    transport_.state().device().ring_worker(worker_);
}

void Engine::ring(Pair& pair) noexcept {
    if (pair.is_rung_.exchange(true, std::memory_order_seq_cst)) return;
    Pair* head = rung_.load(std::memory_order_relaxed);
    do {
        pair.next_rung_ = head;
    } while (!rung_.compare_exchange_weak(head, &pair, std::memory_order_release, std::memory_order_relaxed));
    wake();
}

void Engine::post_frame(rte_mbuf* frame) noexcept {
    if (rte_ring_mp_enqueue(frames_, frame) != 0) {
        rte_pktmbuf_free(frame);
        return;
    }
    wake();
}

bool Engine::idle(std::uint64_t now) const noexcept {
    return rung_.load(std::memory_order_acquire) == nullptr && rte_ring_empty(inbox_) != 0 &&
           rte_ring_empty(frames_) != 0 && !has_active_.load(std::memory_order_relaxed) &&
           !has_polled_.load(std::memory_order_relaxed) && next_timer_.load(std::memory_order_relaxed) > now;
}

void Engine::settle() noexcept {
    constexpr std::chrono::microseconds longest(1'000'000), step(20);
    const auto last = std::chrono::steady_clock::now() + longest;
    for (std::optional<unsigned> begin; std::chrono::steady_clock::now() < last; std::this_thread::sleep_for(step)) {
        const Control control(*this);
        if (!begin) begin = turns_;
        const bool pending = rung_.load(std::memory_order_acquire) != nullptr || first_active_ != nullptr;
        if (!pending || turns_ - *begin >= 2) return;
    }
}

unsigned Engine::run(const Outlet& outlet, std::uint64_t now) noexcept {
    if (idle(now)) return 0;
    if (waiting_.load(std::memory_order_relaxed) != 0) {
        std::this_thread::yield();
        return 1;
    }
    const std::lock_guard guard(mutex_);
    ++turns_;
    unsigned work = send_frames(outlet) + answer_doorbells() + look_at_polled(now);
    work += run_timers(now);
    work += receive(now);
    work += send(outlet, now);
    has_active_.store(first_active_ != nullptr, std::memory_order_relaxed);
    return work + (first_active_ != nullptr);
}

std::uint64_t Engine::deadline(std::uint64_t now) noexcept {
    const std::uint64_t timer = next_timer_.load(std::memory_order_relaxed);
    if (!has_polled_.load(std::memory_order_relaxed)) return timer;
    const std::lock_guard guard(mutex_);
    return std::min(timer, polled_doorbells_.next_look(now));
}

unsigned Engine::answer_doorbells() noexcept {
    unsigned count = 0;
    Pair* pair = rung_.exchange(nullptr, std::memory_order_acquire);
    while (pair != nullptr) {
        Pair* const next = pair->next_rung_;
        // Before the doorbell record is read: who posts after that rings again.
        pair->is_rung_.store(false, std::memory_order_seq_cst);
        pair->doorbell();
        schedule(*pair);
        ++count;
        pair = next;
    }
    return count;
}

unsigned Engine::look_at_polled(std::uint64_t now) noexcept {
    unsigned found = 0;
    for (Pair* pair : polled_) {
        if (!pair->has_posts()) continue;
        ++found;
        pair->doorbell();
        schedule(*pair);
    }
    if (found != 0) polled_doorbells_.found(now);
    return found;
}

unsigned Engine::run_timers(std::uint64_t now) noexcept {
    unsigned count = 0;
    while (!timers_.empty() && timers_.front().deadline <= now) {
        const Timer timer = timers_.front();
        std::pop_heap(timers_.begin(), timers_.end(), std::greater<>());
        timers_.pop_back();
        Pair* const pair = find(timer.qpn);
        if (pair == nullptr || pair->timer_queued_ != timer.deadline) continue;  // out of date
        pair->timer_queued_ = Service::never;
        if (pair->deadline() <= now) {
            pair->timer(now);
            schedule(*pair);
            ++count;
        }
        if (pair->deadline() != Service::never) arm(*pair, pair->deadline());
    }
    next_timer_.store(timers_.empty() ? Service::never : timers_.front().deadline, std::memory_order_relaxed);
    return count;
}

unsigned Engine::receive(std::uint64_t now) noexcept {
    rte_mbuf* packets[received_in_turn];
    const unsigned length =
        rte_ring_sc_dequeue_burst(inbox_, reinterpret_cast<void**>(packets), received_in_turn, nullptr);
    Pair* pair = nullptr;
    for (unsigned i = 0; i < length; ++i) {
        Arrival arrival;
        if (!read_frame(rte_pktmbuf_mtod(packets[i], const std::byte*), rte_pktmbuf_data_len(packets[i]), arrival)) {
            continue;  // cannot be: whoever posted it has read it, or made it
        }
        if (pair == nullptr || pair->spec().qpn != arrival.qpn) pair = find(arrival.qpn);
        if (pair == nullptr) continue;
        pair->receive(arrival, now);
        if (pair->ready()) schedule(*pair);
    }
    if (length != 0) rte_pktmbuf_free_bulk(packets, length);
    return length;
}

unsigned Engine::send(const Outlet& outlet, std::uint64_t now) noexcept {
    unsigned count = 0;
    for (unsigned i = 0; i < pairs_in_turn && count < sent_in_turn && first_active_ != nullptr; ++i) {
        Pair& pair = *first_active_;
        first_active_ = pair.next_active_;
        if (first_active_ == nullptr) last_active_ = nullptr;
        pair.is_active_ = false;
        const unsigned sent = pair.send(outlet, poll_length, now);
        if (pair.ready()) schedule(pair);
        // One that sent nothing and is not done has copied memory, or wants buffers: either is a batch's worth.
        count += sent == 0 && pair.ready() ? poll_length : sent;
    }
    return count;
}

unsigned Engine::send_frames(const Outlet& outlet) noexcept {
    rte_mbuf* packets[poll_length];
    const unsigned length =
        rte_ring_sc_dequeue_burst(frames_, reinterpret_cast<void**>(packets), poll_length, nullptr);
    if (length != 0) outlet.send(outlet.self, own_sqn_, packets, length);
    return length;
}

}  // namespace ovsdr::soft::roce
