#include "offload/mirror/mirror.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "offload/mirror/service_filter.hpp"

namespace ovsdr::mirror {
namespace {

using namespace std::chrono_literals;

// Half of what a segment may wait until it is sealed.
constexpr auto between_ticks = 50ms;

std::uint64_t now_ns() noexcept {
    return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() / 1ns);
}

/// The next number of SplitMix64 (Steele, Lea, Flood, 2014).
std::uint64_t next_random(std::uint64_t& state) noexcept {
    std::uint64_t value = state += 0x9E3779B97F4A7C15;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
}

/// A copy comes up whole where OVS would have cut the packet.
std::span<const std::byte> kept_of(const slowpath::Frame& frame, const dr::SoftwareWork& work) noexcept {
    const std::uint32_t size = work.cut_at == 0 ? frame.size : std::min(frame.size, work.cut_at);
    return std::as_bytes(std::span(frame.data, size));
}

}  // namespace

Result<std::unique_ptr<Session>> Session::create(SenderSpec spec, const PortNames& names) noexcept try {
    InterfaceList interfaces(names, spec.snap_length);
    spec.interfaces = interfaces.all();
    std::unique_ptr<Session> made(new Session(std::move(interfaces)));
    auto sender = Sender::create(std::move(spec));
    if (!sender) return tl::unexpected(std::move(sender.error()));
    made->sender_ = std::move(*sender);
    return made;
} catch (const std::bad_alloc&) {
    return tl::unexpected(Error{ENOMEM, "out of memory"});
}

/// The sender knows a longer list before it gets the first frame of it.
std::uint32_t Session::interface_of(dr::OdpPort port) noexcept try {
    const std::size_t before = interfaces_.all().size();
    const std::uint32_t place = interfaces_.place_of(port);
    if (interfaces_.all().size() != before) (void)sender_->set_interfaces(interfaces_.all());   // it can be told
    return place;
} catch (const std::bad_alloc&) {
    return InterfaceList::other;
}

bool Session::append(std::span<const std::byte> frame, std::size_t original_size, dr::OdpPort in_port,
                     std::uint64_t time) noexcept {
    return sender_->append({.interface = interface_of(in_port),
                            .time = time,
                            .bytes = frame,
                            .original_size = static_cast<std::uint32_t>(original_size),
                            .direction = pcapng::Direction::inbound});
}

Result<std::unique_ptr<Mirror>> Mirror::start(std::unique_ptr<Session> session, dr::MirrorSteering steering) noexcept
    try {
    std::unique_ptr<Mirror> made(new Mirror(std::move(session), std::move(steering)));
    made->wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (made->wake_fd_ < 0) return tl::unexpected(failure_of(errno, "eventfd"));
    if (getrandom(&made->random_, sizeof made->random_, 0) != sizeof made->random_) {
        return tl::unexpected(failure_of(errno, "getrandom"));
    }
    made->thread_ = std::thread([mirror = made.get()] { mirror->run(); });
    return made;
} catch (const std::bad_alloc&) {
    return tl::unexpected(Error{ENOMEM, "out of memory"});
} catch (const std::system_error& error) {
    return tl::unexpected(Error{error.code().value(), error.what()});
}

Mirror::~Mirror() {
    stop_receiving();
    if (wake_fd_ >= 0) close(wake_fd_);
}

void Mirror::stop_receiving() noexcept {
    stopping_ = true;
    wake();
    const std::lock_guard guard(join_mutex_);
    if (thread_.joinable()) thread_.join();
}

void Mirror::wake() const noexcept {
    const std::uint64_t one = 1;
    // A full counter means that the thread has been told already.
    [[maybe_unused]] const auto written = write(wake_fd_, &one, sizeof one);
}

void Mirror::look_later(Source& source, slowpath::CopyQueue::Clock::time_point when) const noexcept {
    source.look_again = when;
    wake();
}

std::shared_ptr<Session> Mirror::replace(std::unique_ptr<Session> session) noexcept {
    const std::lock_guard guard(mutex_);
    return std::exchange(session_, std::move(session));
}

void Mirror::add_undelivered(const SegmentRing::Left& left) noexcept {
    {
        const std::lock_guard guard(mutex_);
        counts_.undelivered += left.frames;
        if (!ending_) session_->sender().drop(left.frames + left.dropped);
    }
    wake();   // there is something to seal
}

void Mirror::steer(dr::MirrorSteering steering) {
    const std::lock_guard guard(mutex_);
    std::swap(steering_, steering);
}

slowpath::CopyQueue::Tended Mirror::Source::tend() noexcept {
    const auto tended = queue->tend();
    tend_again.reset();
    if (tended.again_in_ms >= 0) tend_again = Clock::now() + std::chrono::milliseconds(tended.again_in_ms);
    return tended;
}

bool Mirror::Source::tends_again() const noexcept { return tend_again && Clock::now() >= *tend_again; }

std::shared_ptr<Mirror::Source> Mirror::add(std::shared_ptr<slowpath::CopyQueue> queue) {
    auto source = std::make_shared<Source>(std::move(queue));
    {
        const std::lock_guard guard(sources_mutex_);
        sources_.push_back(source);
        ++version_;
    }
    wake();
    return source;
}

void Mirror::remove(Source& source) noexcept {
    source.queue->stop();
    source.leaving = true;
    wake();
}

bool Mirror::is_own(std::span<const std::byte> frame) noexcept {
    if (!own_.has(frame)) return false;
    ++counts_.own;
    return true;
}

bool Mirror::is_wanted(std::span<const std::byte> frame) noexcept {
    if (steering_.one_of > 1 && next_random(random_) % steering_.one_of != 0) {
        ++counts_.software_passed_over;
        return false;
    }
    if (passes(steering_.services, frame)) return true;
    ++counts_.software_filtered;
    return false;
}

void Mirror::append(std::span<const std::byte> frame, std::size_t original_size, dr::OdpPort in_port,
                    std::uint64_t time) noexcept {
    if (ending_ || !session_->append(frame, original_size, in_port, time)) {
        ++counts_.dropped;
        return;
    }
    ++counts_.taken;
    counts_.taken_bytes += original_size;
}

void Mirror::send(std::span<const SoftwareFrame> frames) noexcept {
    const std::uint64_t time = now_ns();
    bool wakes = false;
    {
        const std::lock_guard guard(mutex_);
        counts_.software += frames.size();
        for (const SoftwareFrame& frame : frames) {
            if (is_own(frame.bytes)) continue;
            if (is_wanted(frame.bytes)) append(frame.bytes, frame.bytes.size(), frame.in_port, time);
        }
        wakes = !ticks_ && !ending_ && session_->sender().has_unsealed();
        if (wakes) ticks_ = true;
    }
    if (wakes) wake();
}

void Mirror::take(Source& source, std::span<const slowpath::Frame> frames) noexcept {
    const std::uint64_t time = now_ns();
    const dr::Eswitch& eswitch = source.queue->eswitch();
    std::shared_ptr<const dr::InstalledWork> work;
    std::optional<std::uint32_t> tag;   // of `work`: most frames of a batch are of one megaflow
    const std::lock_guard guard(mutex_);
    for (const slowpath::Frame& frame : frames) {
        if (tag != frame.tag) {
            work = eswitch.work_of(frame.tag);
            tag = frame.tag;
        }
        if (work == nullptr) {
            ++source.without_work;
            continue;
        }
        work->count();
        if (is_own(std::as_bytes(std::span(frame.data, frame.size)))) continue;
        append(kept_of(frame, *work), frame.size, work->in_port, time);
    }
}

void Mirror::look_for_sources() {
    const unsigned version = version_;
    if (std::exchange(seen_, version) == version) return;
    const std::lock_guard guard(sources_mutex_);
    received_from_ = sources_;
}

/// True: there was something.
bool Mirror::receive() noexcept {
    bool something = false;
    for (const auto& source : received_from_) {
        const bool leaving = source->leaving;   // first: what came before is there now
        const auto frames = source->queue->receive();
        if (!frames.empty()) {
            take(*source, frames);
            something = true;
        } else if (source->queue->asks_for_tending() || source->tends_again()) {
            (void)source->tend();
            something = true;
        } else if (leaving) {
            const std::lock_guard guard(sources_mutex_);
            std::erase(sources_, source);
            ++version_;
            something = true;
        }
    }
    return something;
}

/// True: something waits for the next time.
bool Mirror::tick() noexcept {
    const auto now = Clock::now();
    const std::lock_guard guard(mutex_);
    if (ending_) return ticks_ = false;
    if (now >= next_tick_) {
        session_->sender().tick();
        next_tick_ = now + between_ticks;
    }
    return ticks_ = session_->sender().has_unsealed();
}

void Mirror::sleep(bool something_is_unsealed) noexcept {
    int timeout = something_is_unsealed ? static_cast<int>(between_ticks / 1ms) : -1;
    std::vector<pollfd> polled{{wake_fd_, POLLIN, 0}};
    const auto sooner = [&](int again) {
        if (again >= 0) timeout = timeout < 0 ? std::max(1, again) : std::min(timeout, std::max(1, again));
    };
    for (const auto& source : received_from_) {
        // What takes long keeps the other devices' copies waiting in their queues for as long.
        const auto tended = source->tend();
        if (source->leaving || tended.for_receiver || !source->queue->arm()) return;
        polled.push_back({source->queue->receive_fd(), POLLIN, 0});
        sooner(tended.again_in_ms);
        const auto when = source->look_again.load();
        const auto left = when - slowpath::CopyQueue::Clock::now();
        // The time may have come since the last look.
        const bool looked = source->queue->emptied().at >= when;
        if (left > left.zero() || !looked) {
            sooner(static_cast<int>(std::max(std::chrono::ceil<std::chrono::milliseconds>(left), 10ms) / 1ms));
        }
    }
    poll(polled.data(), polled.size(), timeout);
    std::uint64_t count;
    [[maybe_unused]] const auto size = read(wake_fd_, &count, sizeof count);
}

/// Of the queues that it receives from, one has been stopped and is not empty yet.
bool Mirror::has_leaving() const noexcept {
    return std::ranges::any_of(received_from_, [](const auto& source) { return source->leaving.load(); });
}

void Mirror::run() noexcept {
    // What a queue holds, and the one that it replaces.
    constexpr unsigned most_passes =
        2 * slowpath::CopyQueue::most_of(dr::CopyKind::first_mirror) / slowpath::batch_length;
    for (unsigned passes = 0;;) {
        const bool stopping = stopping_;
        look_for_sources();
        const bool something = receive();
        const bool unsealed = tick();
        if (stopping && ++passes > most_passes && !has_leaving()) return;
        if (something) continue;
        if (stopping) return;
        sleep(unsealed);
    }
}

bool Mirror::finish(std::chrono::milliseconds within) {
    const std::lock_guard alone(finish_mutex_);
    const auto session = [this] {
        const std::lock_guard guard(mutex_);
        ending_ = true;
        return session_;
    }();
    return session->sender().finish(within);
}

SegmentRing::Left Mirror::abandon() noexcept {
    const std::lock_guard alone(finish_mutex_);
    if (std::exchange(abandoned_, true)) return {};
    const auto session = [this] {
        const std::lock_guard guard(mutex_);
        ending_ = true;
        return session_;
    }();
    return session->sender().abandon();
}

MirrorCounts Mirror::counts() const {
    const std::lock_guard guard(mutex_);
    return counts_;
}

SenderStats Mirror::sender_stats() const {
    const std::lock_guard guard(mutex_);
    return session_->sender().stats();
}

std::uint64_t Mirror::session_number() const {
    const std::lock_guard guard(mutex_);
    return session_->sender().session();
}

}  // namespace ovsdr::mirror
