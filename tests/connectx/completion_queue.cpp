#include "tests/connectx/completion_queue.hpp"

#include <endian.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <rdma/ib_user_verbs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "tests/connectx/refused.hpp"

namespace ovsdr::connectx {
namespace {

constexpr std::uint32_t index_mask = 0xFFFFFF;   // consumer and producer have 24 bits on the wire

}   // namespace

EventFile::EventFile() {
    int ends[2];
    // O_DIRECT: each write is a packet of its own.
    if (pipe2(ends, O_CLOEXEC | O_DIRECT) != 0) throw Refused{errno, "no pipe for events"};
    fd_ = ends[0];
    write_end_ = ends[1];
    read_end_ = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    fcntl(write_end_, F_SETFL, O_NONBLOCK | O_DIRECT);
}

EventFile::~EventFile() {
    close(read_end_);
    close(write_end_);
}

void EventFile::send(std::uint64_t message) const {
    [[maybe_unused]] const auto written = write(write_end_, &message, sizeof message);
}

std::uint32_t EventFile::take_back(std::uint64_t message) const {
    int unread = 0;
    std::uint32_t taken = 0;
    ioctl(read_end_, FIONREAD, &unread);
    // Each is read once; those of others go to the end again.
    for (std::size_t left = static_cast<std::size_t>(unread) / sizeof message; left > 0; --left) {
        pollfd ready{read_end_, POLLIN, 0};
        std::uint64_t one = 0;
        if (poll(&ready, 1, 0) != 1 || read(read_end_, &one, sizeof one) != sizeof one) break;
        one == message ? void(++taken) : send(one);
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
    if (is_armed_) wake();
    return true;
}

void CompletionQueue::arm(std::uint32_t consumer) {
    is_armed_ = true;
    if (((producer_ - consumer) & index_mask) != 0) wake();
}

void CompletionQueue::wake() {
    is_armed_ = false;
    if (spec_.channel == nullptr) return;
    static_assert(sizeof(ib_uverbs_comp_event_desc) == sizeof spec_.user_handle);
    spec_.channel->send(spec_.user_handle);
    ++events_;
}

std::uint32_t CompletionQueue::end_events() {
    is_armed_ = false;
    return spec_.channel == nullptr ? 0 : events_ - spec_.channel->take_back(spec_.user_handle);
}

}   // namespace ovsdr::connectx
