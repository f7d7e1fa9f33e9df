#include "datapath/ports/event_signal.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace ovsdr::soft {
namespace {

constexpr long most_answers = 32;   // that lie there before they are thrown away

}  // namespace

EventSignal::EventSignal() noexcept : ready_(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (syscall(SYS_io_setup, most_answers, &context_) != 0) context_ = 0;
}

EventSignal::~EventSignal() {
    if (context_ != 0) syscall(SYS_io_destroy, context_);
    if (ready_ >= 0) close(ready_);
}

bool EventSignal::submit(int event) noexcept {
    iocb request{};
    request.aio_lio_opcode = IOCB_CMD_POLL;
    request.aio_fildes = static_cast<std::uint32_t>(ready_);
    request.aio_buf = POLLIN;
    request.aio_flags = IOCB_FLAG_RESFD;
    request.aio_resfd = static_cast<std::uint32_t>(event);
    iocb* requests = &request;
    return syscall(SYS_io_submit, context_, 1L, &requests) == 1;
}

void EventSignal::wake(int event) noexcept {
    if (never_sleeps()) {
        if (submit(event)) return;
        if (errno == EAGAIN) {
            io_event answers[most_answers];
            timespec at_once{};
            syscall(SYS_io_getevents, context_, 0L, most_answers, answers, &at_once);
            if (submit(event)) return;
        }
    }
    // A wake-up that is lost would leave the other end asleep.
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(event, &one, sizeof one);
}

}  // namespace ovsdr::soft
