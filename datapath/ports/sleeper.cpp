#include "datapath/ports/sleeper.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <system_error>

namespace ovsdr::soft {
namespace {

constexpr unsigned most_empty_wakes = 64;

}  // namespace

Sleeper::Sleeper()
    : doorbell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), gathered_(epoll_create1(EPOLL_CLOEXEC)) {
    if (doorbell_ < 0 || gathered_ < 0) {
        const int error = errno;
        for (const int descriptor : {doorbell_, gathered_}) {
            if (descriptor >= 0) close(descriptor);
        }
        throw std::system_error(error, std::generic_category(), "eventfd or epoll");
    }
    watch({});
}

Sleeper::~Sleeper() {
    close(gathered_);
    close(doorbell_);
}

void Sleeper::ring() noexcept {
    if (!asleep()) return;
    if (!asleep_.exchange(false, std::memory_order_acq_rel)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(doorbell_, &one, sizeof one);
}

void Sleeper::watch(const std::vector<WakeSource>& sources) {
    watched_.assign(1, pollfd{.fd = doorbell_, .events = POLLIN, .revents = 0});
    is_epoll_.assign(1, false);
    for (const WakeSource& source : sources) {
        watched_.push_back({.fd = source.descriptor, .events = POLLIN, .revents = 0});
        is_epoll_.push_back(source.is_epoll);
    }
    empty_wakes_.assign(watched_.size(), 0);
    lost_ = false;
    scatter();
    in_gathered_.reserve(sources.size());
}

bool Sleeper::gather() noexcept {
    if (watched_.size() == 1 || std::ranges::find(is_epoll_, true) != is_epoll_.end()) return false;
    for (std::size_t i = 1; i < watched_.size(); ++i) {
        epoll_event wanted{.events = EPOLLIN, .data = {.u32 = static_cast<std::uint32_t>(i - 1)}};
        if (epoll_ctl(gathered_, EPOLL_CTL_ADD, watched_[i].fd, &wanted) != 0) return false;
        in_gathered_.push_back(watched_[i].fd);
    }
    return true;
}

void Sleeper::scatter() noexcept {
    for (const int source : in_gathered_) (void)epoll_ctl(gathered_, EPOLL_CTL_DEL, source, nullptr);
    in_gathered_.clear();
}

unsigned Sleeper::readable(std::span<unsigned> places) const noexcept {
    constexpr std::size_t most = 8;
    epoll_event events[most];
    // Not epoll_wait(), at which a thread may be cancelled.
    const long length = syscall(SYS_epoll_pwait, gathered_, events, std::min(most, places.size()), 0, nullptr, 0);
    for (long i = 0; i < length; ++i) places[static_cast<std::size_t>(i)] = events[i].data.u32;
    return length > 0 ? static_cast<unsigned>(length) : 0;
}

void Sleeper::prepare() noexcept {
    asleep_.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Sleeper::sleep(std::chrono::nanoseconds time) noexcept {
    timespec limit{.tv_sec = static_cast<time_t>(time.count() / 1'000'000'000),
                   .tv_nsec = static_cast<long>(time.count() % 1'000'000'000)};
    const int ready = ppoll(watched_.data(), watched_.size(), &limit, nullptr);
    asleep_.store(false, std::memory_order_relaxed);
    if (ready <= 0) {
        for (pollfd& watched : watched_) watched.revents = 0;
        return;
    }
    if (watched_[0].revents != 0) {
        std::uint64_t rings;
        [[maybe_unused]] const ssize_t size = read(doorbell_, &rings, sizeof rings);
    }
    for (std::size_t i = 1; i < watched_.size(); ++i) {
        if (watched_[i].revents != 0 && is_epoll_[i]) {
            epoll_event edge;
            (void)epoll_wait(watched_[i].fd, &edge, 1, 0);
        }
        if ((watched_[i].revents & POLLERR) == 0) continue;
        // An interface that went down leaves an error, which would be reported until somebody fetches it.
        int error = 0;
        socklen_t size = sizeof error;
        (void)getsockopt(watched_[i].fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
}

bool Sleeper::nap(std::chrono::nanoseconds time) noexcept {
    const timespec limit{.tv_sec = 0, .tv_nsec = static_cast<long>(time.count())};
    const bool rang = ppoll(watched_.data(), 1, &limit, nullptr) > 0;
    watched_[0].revents = 0;
    std::uint64_t rings;
    if (rang) [[maybe_unused]] const ssize_t size = read(doorbell_, &rings, sizeof rings);
    return rang;
}

void Sleeper::woke_for(bool work) noexcept {
    bool too_many = false;
    for (std::size_t i = 1; i < watched_.size(); ++i) {
        if (watched_[i].revents == 0) continue;
        empty_wakes_[i] = work ? 0 : empty_wakes_[i] + 1;
        too_many |= empty_wakes_[i] > most_empty_wakes;
        watched_[i].revents = 0;
    }
    if (too_many) drop_idle_talkers();
}

void Sleeper::drop_idle_talkers() noexcept {
    for (std::size_t i = 1; i < watched_.size(); ++i) {
        if (empty_wakes_[i] <= most_empty_wakes) continue;
        watched_[i].fd = -1;  // ppoll passes over it
        empty_wakes_[i] = 0;
        lost_ = true;
    }
}

}  // namespace ovsdr::soft
