#include "datapath/ports/worker.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <rte_cycles.h>
#include <rte_lcore.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <utility>

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;

// Long enough that a peer's answer finds the worker awake, short enough to cost nothing while a switch is idle.
constexpr auto idle_spin = 30us;

constexpr std::chrono::nanoseconds first_nap = 20us;
constexpr std::chrono::nanoseconds longest_nap = 500us;
// With a socket for each port the time only bounds the damage of an event that the kernel did not report.
constexpr std::chrono::nanoseconds nap_with_sockets = 100ms;

// How often threads send in a worker's place without a pause before it is woken.
constexpr unsigned most_times_in_a_row = 8, most_times_of_a_deputy = 64;

// Of a deputy that has found nothing: several queues ask one after the other.
constexpr auto pause_between_looks = 20us;

// Of this thread: some worker's, its own or another one's.
thread_local bool has_a_turn = false;

std::uint64_t cycles_of(std::chrono::microseconds time) noexcept {
    return rte_get_tsc_hz() / std::chrono::microseconds(1s).count() * static_cast<std::uint64_t>(time.count());
}

/// What a thread must not be disturbed by while it has a worker's turn: signals whose handlers may never return, and
/// cancellation. Faults must come: guarded_copy.hpp.
class LikeAWorker {
public:
    LikeAWorker() noexcept {
        sigset_t all_but_faults;
        sigfillset(&all_but_faults);
        for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&all_but_faults, fault);
        (void)pthread_sigmask(SIG_SETMASK, &all_but_faults, &signals_);
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellable_);
        has_a_turn = true;
    }
    ~LikeAWorker() {
        has_a_turn = false;
        (void)pthread_setcancelstate(cancellable_, nullptr);
        (void)pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
    }
    LikeAWorker(const LikeAWorker&) = delete;
    LikeAWorker& operator=(const LikeAWorker&) = delete;

private:
    sigset_t signals_;
    int cancellable_ = 0;
};

/// Whoever has a worker's turn takes buffers from the worker's caches and gives them back there: the pools' rings hold
/// those that were used longest ago.
class CachesOf {
public:
    explicit CachesOf(unsigned lcore) noexcept : mine_(std::exchange(RTE_PER_LCORE(_lcore_id), lcore)) {}
    ~CachesOf() { RTE_PER_LCORE(_lcore_id) = mine_; }
    CachesOf(const CachesOf&) = delete;
    CachesOf& operator=(const CachesOf&) = delete;

private:
    const unsigned mine_;
};

void add(std::atomic<std::uint64_t>& counter, std::uint64_t value) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

std::uint64_t steady_now() noexcept {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / 1ns);
}

// Linux's struct sched_attr, of which the C library knows nothing (sched_setattr(2)).
struct SchedulingAttributes {
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;  // ns
};

// A worker that wakes must not wait until whoever computes on its CPU has used up a slice of 3 ms or more. Since Linux
// 6.12 a thread that asks for short slices may interrupt one with longer ones; older kernels ignore the wish.
// Returns false where the operator has chosen another policy.
bool ask_for_short_slices() noexcept {
    constexpr std::chrono::nanoseconds slice = 100us;
    SchedulingAttributes attributes{};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return true;
    if (attributes.policy != SCHED_OTHER) return false;
    attributes.runtime = slice.count();
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
    return true;
}

void settle_on(std::optional<unsigned> cpu) {
    if (!cpu) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(*cpu, &set);
    (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // a CPU that is not there: run where there is one
}

}  // namespace

Worker::Worker(unsigned index, std::vector<Steering*> steerings, std::optional<unsigned> cpu, bool alone)
    : index_(index), steerings_(std::move(steerings)), cpu_(cpu), alone_(alone) {}

Worker::~Worker() {
    stop();
}

void Worker::start() {
    const std::lock_guard lock(mutex_);
    running_ = true;
    plan_changed_.store(true, std::memory_order_relaxed);
    try {
        thread_ = std::thread([this] { run(); });
    } catch (...) {
        running_ = false;
        throw;
    }
}

void Worker::stop() noexcept {
    if (!thread_.joinable()) return;
    stop_.store(true, std::memory_order_seq_cst);
    sleeper_.ring();
    thread_.join();
}

void Worker::change(const std::function<void(WorkerPlan&)>& edit) {
    std::unique_lock lock(mutex_);
    auto plan = std::make_shared<WorkerPlan>(*plan_);
    edit(*plan);
    const std::shared_ptr<const WorkerPlan> old = std::exchange(plan_, std::move(plan));
    const std::uint64_t version = ++version_;
    if (!running_) return;
    plan_changed_.store(true, std::memory_order_release);
    sleeper_.ring();
    adopted_.wait(lock, [&] { return adopted_version_ >= version || !running_; });
}

std::size_t Worker::port_count() const {
    const std::lock_guard lock(mutex_);
    return plan_->ports.size();
}

Worker::Statistics Worker::statistics() const noexcept {
    return {.busy_cycles = busy_cycles_.load(std::memory_order_relaxed),
            .other_cycles = other_cycles_.load(std::memory_order_relaxed),
            .idle_cycles = idle_cycles_.load(std::memory_order_relaxed),
            .asleep_cycles = asleep_cycles_.load(std::memory_order_relaxed),
            .sleeps = sleeps_.load(std::memory_order_relaxed)};
}

void Worker::adopt_plan() {
    deputy_.dismiss();
    plan_changed_.store(false, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    current_ = plan_;
    adopted_version_ = version_;
    std::vector<WakeSource> sources;
    port_of_source_.clear();
    all_ports_wake_ = true;
    for (const PolledPort& polled : current_->ports) {
        const auto& wakes = polled.port->receive_queues()[polled.queue].wake_sources;
        sources.insert(sources.end(), wakes.begin(), wakes.end());
        port_of_source_.resize(sources.size(), static_cast<unsigned>(&polled - current_->ports.data()));
        all_ports_wake_ &= !wakes.empty();
    }
    sleeper_.watch(sources);
    adopted_.notify_all();
}

unsigned Worker::poll_queue(const PolledQueue& queue) noexcept {
    rte_mbuf* packets[poll_length];
    const unsigned length = queue.source.poll(queue.source.self, packets, poll_length);
    if (length == 0) return 0;
    std::uint64_t bytes = 0;
    for (unsigned i = 0; i < length; ++i) bytes += packets[i]->pkt_len;
    queue.manager->count_sent(index_, length, bytes);
    lanes_[queue.device]->from_queue(queue.source.sqn, packets, length);
    return length;
}

void Worker::posted(unsigned device, std::uint32_t sqn) noexcept {
    if (!has_a_turn && sleeper_.asleep() && send_in_place(device, sqn)) return;
    sleeper_.ring();
}

/// False where the worker is to be woken.
bool Worker::send_in_place(unsigned device, std::uint32_t sqn) noexcept {
    const LikeAWorker like_a_worker;
    const std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn || current_ == nullptr || !may_be_stood_in_for() || is_posted_to_over_and_over()) return false;
    const auto queue = std::ranges::find_if(current_->queues, [&](const PolledQueue& polled) {
        return polled.device == device && polled.source.sqn == sqn;
    });
    if (queue == current_->queues.end()) return false;  // the worker has not taken it over yet
    const CachesOf worker(lcore_);
    Lane& lane = *lanes_[device];
    lane.online();
    // What is poll_length or more, and what there is no memory for now, is the worker's.
    const unsigned length = poll_queue(*queue);
    const bool all = length > 0 && length < poll_length && poll_queue(*queue) == 0;
    lane.flush();
    lane.offline();
    return all;
}

// Not where packets may be for a service, nor where the worker only naps, since an answer is to find it awake.
bool Worker::may_be_stood_in_for() const noexcept {
    return alone_ && yields_ && current_->services.empty() && all_ports_wake_ && !sleeper_.lost_sockets();
}

// Nor for somebody who posts over and over: two do more than one, and in batches.
bool Worker::is_posted_to_over_and_over() noexcept {
    const std::uint64_t now = rte_rdtsc();
    const bool soon = now - std::exchange(stood_in_for_, now) < cycles_of(idle_spin);
    times_in_a_row_ = soon ? times_in_a_row_ + 1 : 0;
    if (times_in_a_row_ < (deputy_.appointed() ? most_times_of_a_deputy : most_times_in_a_row)) return false;
    times_in_a_row_ = 0;
    return true;
}

void Worker::woke(const std::shared_ptr<Lookout>& lookout) noexcept {
    if (has_a_turn && alone_) deputy_.woke(lookout);
}

bool Worker::receive_in_place() noexcept {
    std::array<unsigned, 8> places;
    if (has_a_turn || !sleeper_.asleep()) return false;
    const std::uint64_t now = rte_rdtsc();
    if (now < Lookout::in_vain_until) return false;
    const unsigned length = sleeper_.readable(places);
    Lookout::in_vain_until = length == 0 ? now + cycles_of(pause_between_looks) : 0;
    if (length == 0) return false;
    const LikeAWorker like_a_worker;
    const std::unique_lock turn(turn_, std::try_to_lock);
    if (!turn || current_ == nullptr || !deputy_.appointed()) return false;
    const CachesOf worker(lcore_);
    const std::uint64_t delivered = VportPath::delivered, begin = rte_rdtsc();
    for (const auto& lane : lanes_) lane->online();
    unsigned received = 0;
    for (const unsigned place : std::span(places).first(length)) {
        if (place >= port_of_source_.size()) continue;  // of another plan
        const PolledPort& port = current_->ports[port_of_source_[place]];
        received += port.path->receive(index_, port.queue, *lanes_[port.device]);
    }
    for (const auto& lane : lanes_) {
        lane->flush();
        lane->offline();
    }
    add(busy_cycles_, rte_rdtsc() - begin);
    if (!deputy_.took_turn(received, VportPath::delivered != delivered)) sleeper_.ring();
    return received > 0;
}

unsigned Worker::serve(const PolledService& polled, std::uint64_t now) noexcept {
    struct Way {
        Lane& lane;
        VportPath& manager;
        unsigned worker;
    } way{*lanes_[polled.device], *polled.manager, index_};
    const Outlet outlet{[](void* self, std::uint32_t sqn, rte_mbuf** packets, unsigned length) noexcept {
                            const Way& to = *static_cast<const Way*>(self);
                            std::uint64_t bytes = 0;
                            for (unsigned i = 0; i < length; ++i) bytes += packets[i]->pkt_len;
                            to.manager.count_sent(to.worker, length, bytes);
                            to.lane.from_queue(sqn, packets, length);
                        },
                        &way};
    return polled.service.run(polled.service.self, outlet, now);
}

// `begin`: about now, in cycles.
unsigned Worker::pass(std::uint64_t begin) noexcept {
    const auto charge = [&begin](std::atomic<std::uint64_t>& cycles) {
        const std::uint64_t now = rte_rdtsc();
        add(cycles, now - begin);
        begin = now;
    };
    unsigned work = 0, others = 0;
    received_ = 0;
    for (const PolledPort& port : current_->ports) {
        const unsigned received = port.path->receive(index_, port.queue, *lanes_[port.device]);
        if (received == 0) continue;
        charge(port.load->cycles);
        work += received;
    }
    received_ = work;
    for (const PolledQueue& queue : current_->queues) others += poll_queue(queue);
    if (!current_->services.empty()) {
        for (const auto& lane : lanes_) lane->flush();  // what has come for them is theirs in this turn
        const std::uint64_t now = steady_now();
        for (const PolledService& service : current_->services) others += serve(service, now);
    }
    if (others > 0) charge(other_cycles_);
    for (const auto& lane : lanes_) {
        lane->flush();
        lane->quiescent();
    }
    return work + others;
}

std::chrono::nanoseconds Worker::until_next_service() const noexcept {
    if (current_->services.empty()) return nap_with_sockets;
    const std::uint64_t now = steady_now();
    std::uint64_t next = Service::never;
    for (const PolledService& polled : current_->services) {
        next = std::min(next, polled.service.deadline(polled.service.self, now));
    }
    if (next <= now) return 0ns;
    return std::min<std::chrono::nanoseconds>(nap_with_sockets, std::chrono::nanoseconds(
        static_cast<std::int64_t>(std::min<std::uint64_t>(next - now, nap_with_sockets.count()))));
}

// Sleeps unless there is something to do after all; `nap` grows with each sleep in vain.
bool Worker::rest(std::chrono::nanoseconds& nap) noexcept {
    sleeper_.prepare();
    for (const PolledPort& polled : current_->ports) polled.port->arm(polled.queue);
    if (plan_changed_.load(std::memory_order_relaxed) || stop_.load(std::memory_order_relaxed) ||
        pass(rte_rdtsc()) > 0) {
        sleeper_.cancel();
        disarm_ports();
        return false;
    }
    const std::uint64_t begin = rte_rdtsc();
    for (const auto& lane : lanes_) lane->offline();
    const bool wakes = all_ports_wake_ && !sleeper_.lost_sockets();
    const std::chrono::nanoseconds time = std::min(wakes ? nap_with_sockets : nap, until_next_service());
    rang_ = false;
    deputy_.forget_woken();
    if (deputy_.appointed()) {
        sleep_behind_deputy();
    } else {
        turn_.unlock();
        sleeper_.sleep(time);
        turn_.lock();
    }
    times_in_a_row_ = 0;
    for (const auto& lane : lanes_) lane->online();
    disarm_ports();
    nap = std::min(nap * 2, longest_nap);
    add(asleep_cycles_, rte_rdtsc() - begin);
    add(sleeps_, 1);
    return true;
}

// The deputy looks after the ports. The worker only sees to it that nothing waits for long.
void Worker::sleep_behind_deputy() noexcept {
    for (bool first = true;; first = false) {
        const std::chrono::nanoseconds time = deputy_.begin_nap(first);
        turn_.unlock();
        rang_ = sleeper_.nap(time);
        turn_.lock();
        if (!deputy_.end_nap(rang_)) break;
    }
    sleeper_.cancel();
}

void Worker::disarm_ports() noexcept {
    for (const PolledPort& polled : current_->ports) polled.port->disarm(polled.queue);
}

void Worker::run() {
    (void)pthread_setname_np(pthread_self(), fmt::format("softnic-{}", index_).c_str());
    settle_on(cpu_);
    const bool ordinary = ask_for_short_slices();
    (void)prctl(PR_SET_TIMERSLACK, 1000);  // ns; the default of 50 µs would lengthen every nap
    (void)rte_thread_register();           // for the mempools' caches; without it they are only slower
    std::unique_lock turn(turn_);
    lcore_ = rte_lcore_id();
    has_a_turn = true;
    yields_ = ordinary;
    for (Steering* steering : steerings_) lanes_.push_back(std::make_unique<Lane>(*steering, index_));
    for (const auto& lane : lanes_) lane->online();

    const std::uint64_t spin_cycles = cycles_of(idle_spin);
    std::chrono::nanoseconds nap = first_nap;
    std::uint64_t last = rte_rdtsc();
    std::uint64_t last_work = last;
    std::uint64_t delivered = 0;  // when the worker woke
    bool woke = false;
    while (!stop_.load(std::memory_order_relaxed)) {
        if (plan_changed_.load(std::memory_order_acquire)) adopt_plan();
        const unsigned work = pass(last);
        const std::uint64_t now = rte_rdtsc();
        add(work > 0 ? busy_cycles_ : idle_cycles_, now - last);
        last = now;
        if (woke) sleeper_.woke_for(work > 0);
        if (received_ > 0 && (woke || deputy_.appointed())) {
            deputy_.worker_passed({.received = received_,
                                   .forwarded = VportPath::delivered != delivered,
                                   .slept = woke,
                                   .rang = rang_,
                                   .may_be_stood_in_for = may_be_stood_in_for()});
        }
        if (work > 0) {
            last_work = now;
            nap = first_nap;
            woke = false;
        } else if (woke || now - last_work > spin_cycles) {
            woke = rest(nap);
            last = rte_rdtsc();
            delivered = VportPath::delivered;
            if (!woke) last_work = last;
        }
    }

    deputy_.dismiss();
    for (const auto& lane : lanes_) lane->offline();
    lanes_.clear();
    rte_thread_unregister();
    const std::lock_guard lock(mutex_);
    running_ = false;
    current_.reset();
    turn.unlock();
    adopted_.notify_all();
}

}  // namespace ovsdr::soft
