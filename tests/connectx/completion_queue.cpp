#include "tests/connectx/completion_queue.hpp"

#include <endian.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <rdma/ib_user_verbs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "tests/connectx/refused.hpp"

namespace ovsdr::connectx {
namespace {

constexpr std::uint32_t index_mask = 0xFFFFFF;   // consumer and producer have 24 bits on the wire
/// Bytes of a pipe: a message takes a page of it. The most that needs no privilege.
constexpr int pipe_size = 1 << 20;

}   // namespace

EventFile::EventFile() {
    int ends[2];
    // O_DIRECT: each write is a packet of its own.
    if (pipe2(ends, O_CLOEXEC | O_DIRECT) != 0) throw Refused{errno, "no pipe for events"};
    fd_ = ends[0];
    write_end_ = ends[1];
    fcntl(write_end_, F_SETFL, O_NONBLOCK | O_DIRECT);
    fcntl(write_end_, F_SETPIPE_SZ, pipe_size);
    // Opened anew, since a duplicate would block or not as the process has it for its own end.
    read_end_ = open(("/proc/self/fd/" + std::to_string(fd_)).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (read_end_ < 0) {
        const int error = errno;
        close(fd_);
        close(write_end_);
        throw Refused{error, "no reading end of the pipe for events"};
    }
}

EventFile::~EventFile() {
    close(read_end_);
    close(write_end_);
}

bool EventFile::send(std::uint64_t message) {
    const bool sent = write(write_end_, &message, sizeof message) == sizeof message;
    if (!sent) ++lost_;
    return sent;
}

std::uint32_t EventFile::take_back(std::uint64_t message) {
    int unread = 0;
    std::uint32_t taken = 0;
    ioctl(read_end_, FIONREAD, &unread);
    // Each is read once; those of others go to the end again.
    for (std::size_t left = static_cast<std::size_t>(unread) / sizeof message; left > 0; --left) {
        std::uint64_t one = 0;
        if (read(read_end_, &one, sizeof one) != sizeof one) break;   // the process was faster
        one == message ? void(++taken) : void(send(one));
    }
    return taken;
}

bool CompletionQueue::complete(const Completion& completion) {
    const std::uint32_t consumer = be32toh(std::atomic_ref(spec_.doorbell_record[0]).load());
    if (((producer_ - consumer) & index_mask) >= spec_.length) return false;
    std::uint8_t* entry = spec_.buffer + std::size_t{producer_ & (spec_.length - 1)} * spec_.entry_size +
                          (spec_.entry_size - sizeof(mlx5_cqe64));
    const bool failed = completion.syndrome != 0;
    mlx5_cqe64 written{};
    written.srqn_uidx = htobe32(completion.user_index);
    written.sop_drop_qpn = htobe32(std::uint32_t{completion.opcode} << 24 | completion.queue_pair);
    written.wqe_counter = htobe16(completion.request);
    if (failed) reinterpret_cast<mlx5_err_cqe&>(written).syndrome = completion.syndrome;
    const unsigned owner = (producer_ & spec_.length) != 0 ? 1 : 0;
    const auto kind = failed ? MLX5_CQE_REQ_ERR : MLX5_CQE_REQ;
    std::memcpy(entry, &written, offsetof(mlx5_cqe64, op_own));
    // Software looks at this byte first.
    std::atomic_ref(entry[offsetof(mlx5_cqe64, op_own)])
        .store(static_cast<std::uint8_t>(kind << 4 | owner), std::memory_order_release);
    producer_ = (producer_ + 1) & index_mask;
    if (failed) behind_error_ = producer_;
    if (is_armed_ && (failed || !for_errors_)) wake();
    return true;
}

void CompletionQueue::arm(std::uint32_t consumer, bool errors_only) {
    is_armed_ = true;
    for_errors_ = errors_only;
    const std::uint32_t unread = ((errors_only ? behind_error_ : producer_) - consumer) & index_mask;
    if (unread != 0 && unread <= spec_.length) wake();   // an error that was read lies behind the consumer
}

void CompletionQueue::wake() {
    is_armed_ = false;
    if (spec_.channel == nullptr) return;
    static_assert(sizeof(ib_uverbs_comp_event_desc) == sizeof spec_.user_handle);
    if (spec_.channel->send(spec_.user_handle)) ++events_;
}

std::uint32_t CompletionQueue::end_events() {
    is_armed_ = false;
    return spec_.channel == nullptr ? 0 : events_ - spec_.channel->take_back(spec_.user_handle);
}

}   // namespace ovsdr::connectx
