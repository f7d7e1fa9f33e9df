#include "datapath/ports/sleeper.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
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

Sleeper::Sleeper() : doorbell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (doorbell_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    watch({});
}

Sleeper::~Sleeper() {
    if (sockets_ >= 0) close(sockets_);
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
    gather_sockets();
}

void Sleeper::gather_sockets() noexcept {
    if (sockets_ >= 0) close(sockets_);
    sockets_ = -1;
    if (watched_.size() == 1 || std::ranges::find(is_epoll_, true) != is_epoll_.end()) return;
    sockets_ = epoll_create1(EPOLL_CLOEXEC);
    for (std::size_t i = 1; i < watched_.size() && sockets_ >= 0; ++i) {
        epoll_event wanted{.events = EPOLLIN, .data = {}};
        if (epoll_ctl(sockets_, EPOLL_CTL_ADD, watched_[i].fd, &wanted) == 0) continue;
        close(sockets_);
        sockets_ = -1;
    }
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

void Sleeper::sleep_behind(std::chrono::nanoseconds time, bool sockets, std::chrono::nanoseconds patience) noexcept {
    const auto wait = [this](std::size_t length, std::chrono::nanoseconds limit) {
        const timespec most{.tv_sec = 0, .tv_nsec = static_cast<long>(limit.count())};
        return ppoll(watched_.data(), length, &most, nullptr);
    };
    if (wait(sockets ? watched_.size() : 1, time) > 0 && watched_[0].revents == 0) (void)wait(1, patience);
    asleep_.store(false, std::memory_order_relaxed);
    std::uint64_t rings;
    if (watched_[0].revents != 0) [[maybe_unused]] const ssize_t size = read(doorbell_, &rings, sizeof rings);
    for (pollfd& watched : watched_) watched.revents = 0;
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
