// A completion queue in the process's memory, as the device writes it, and the completion channel that it wakes.
//
// Words. The doorbell record is two words in the process's memory: how far software has read, and the last request to
// be woken. Armed: the next completion sends one event to the channel, then it is no longer armed. Armed for errors:
// the next one with an error does (`solicited_only` of ibv_req_notify_cq(); no receive ever completes here). Threads:
// the device's lock. Source: PRM, "Completion Queues"; struct mlx5_cqe64 of mlx5dv.h.
#pragma once

#include <cstdint>
#include <memory>

namespace ovsdr::connectx {

/// A file whose readable end is the process's. Each message is read in one piece, as the kernel's event files give
/// them. It holds some hundred messages, where the kernel's hold any number.
class EventFile {
public:
    /// Throws Refused.
    EventFile();
    ~EventFile();
    EventFile(const EventFile&) = delete;
    EventFile& operator=(const EventFile&) = delete;

    /// The process's end; the process closes it.
    [[nodiscard]] int fd() const { return fd_; }
    /// False: it is full, and the message is lost.
    bool send(std::uint64_t message);
    /// Takes back the messages that are `message` and nobody has read; how many.
    std::uint32_t take_back(std::uint64_t message);
    /// Messages lost so far.
    [[nodiscard]] std::uint64_t lost() const { return lost_; }

private:
    int fd_ = -1;         ///< the process's
    int read_end_ = -1;   ///< our own, after the process's is closed too; never blocks
    int write_end_ = -1;
    std::uint64_t lost_ = 0;
};

class CompletionQueue {
public:
    struct Spec {
        std::uint8_t* buffer;                 ///< the process's memory
        std::uint32_t* doorbell_record;       ///< the same
        std::uint32_t length;                 ///< entries, a power of two
        std::uint32_t entry_size;             ///< 64 or 128 bytes
        std::uint64_t user_handle;            ///< what events name it by
        std::shared_ptr<EventFile> channel;   ///< may be null
    };
    explicit CompletionQueue(std::uint32_t number, Spec spec) : number_(number), spec_(std::move(spec)) {}

    [[nodiscard]] std::uint32_t number() const { return number_; }
    /// Its ring lies in these bytes.
    [[nodiscard]] bool is_in(const std::uint8_t* memory, std::uint64_t size) const {
        return spec_.buffer >= memory && spec_.buffer < memory + size;
    }

    struct Completion {
        std::uint32_t queue_pair;
        std::uint32_t user_index;    ///< what libmlx5 finds the queue pair by; 0 for queue pairs made by DEVX
        std::uint16_t request;       ///< index of the work request
        std::uint8_t opcode;         ///< of the work request
        std::uint8_t syndrome = 0;   ///< MLX5_CQE_SYNDROME_*; 0 is success
    };
    /// False: there is no room, and the completion is lost. A real queue would go into its error state.
    [[nodiscard]] bool complete(const Completion& completion);

    /// The process wants an event for the next completion that is not before `consumer`, which may be there already.
    void arm(std::uint32_t consumer, bool errors_only);

    /// Before it is destroyed: takes back events that nobody has read. How many have been read, which libibverbs waits
    /// for until all of them are acknowledged.
    [[nodiscard]] std::uint32_t end_events();

private:
    void wake();

    std::uint32_t number_;
    Spec spec_;
    std::uint32_t producer_ = 0;
    std::uint32_t behind_error_ = 0;   ///< what producer_ was after the last completion with an error
    std::uint32_t events_ = 0;         ///< sent so far
    bool is_armed_ = false, for_errors_ = false;
};

}   // namespace ovsdr::connectx
