#include "datapath/ports/lookout.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace ovsdr::soft {

thread_local std::uint64_t Lookout::in_vain_until = 0;

Lookout::Lookout(int events) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event wanted{.events = EPOLLIN, .data = {}};
    if (epoll_ >= 0 && epoll_ctl(epoll_, EPOLL_CTL_ADD, events, &wanted) == 0) return;
    const int error = errno;
    if (epoll_ >= 0) close(epoll_);
    throw std::system_error(error, std::generic_category(), "epoll");
}

void Lookout::end() noexcept {
    const std::lock_guard lock(mutex_);
    if (!ended_) close(epoll_);
    ended_ = true;
}

bool Lookout::show(int ports) noexcept {
    const std::lock_guard lock(mutex_);
    if (ended_) return false;
    const int flags = fcntl(epoll_, F_GETFL);
    if (flags < 0 || (flags & O_NONBLOCK) == 0) return false;
    epoll_event wanted{.events = EPOLLIN, .data = {}};
    return epoll_ctl(epoll_, EPOLL_CTL_ADD, ports, &wanted) == 0;
}

void Lookout::hide(int ports) noexcept {
    const std::lock_guard lock(mutex_);
    if (!ended_) (void)epoll_ctl(epoll_, EPOLL_CTL_DEL, ports, nullptr);
}

}  // namespace ovsdr::soft
