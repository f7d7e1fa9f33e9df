// Raw packet queues of the tests' own: the ibv_* functions that offload/slowpath calls. The test plays the network.
//
// Any number of queue pairs, each with a receive and a send completion queue, and of WQs, each a FakeQueue that only
// receives. Queue pairs that spread over an indirection table have numbers of their own, and no queues. fail_call()
// makes one call fail; a queue
// pair that fails flushes what is posted, as a device's does. Creating and destroying is noted with FakeProvider's
// events where both are in one program.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace ovsdr::test {

using Bytes = std::vector<std::uint8_t>;

class FakeQueue {
public:
    /// Into the first posted buffer. False: none was posted, the frame is lost.
    bool deliver(const Bytes& bytes, std::uint32_t tag = 0, ibv_wc_status status = IBV_WC_SUCCESS);
    /// The queue pair fails: the next send that is executed, or if `status` is a flush none, completes with it.
    void fail(ibv_wc_status status = IBV_WC_WR_FLUSH_ERR);
    /// Sends are executed as they are posted, unless this is false: then at most `sends` when told to.
    bool executes = true;
    void execute(std::size_t sends = SIZE_MAX);

    [[nodiscard]] std::size_t posted_receives() const { return receives.size(); }

    struct Receive {
        ibv_sge buffer;
        std::uint64_t id;
    };
    struct Received {
        std::uint64_t id;
        ibv_wc_status status;
        std::uint32_t size, tag;
    };
    ibv_qp qp{};
    ibv_wq wq{};
    bool is_wq = false;
    std::uint32_t sqn = 0;
    unsigned ib_port = 0;   ///< that INIT named
    std::deque<Receive> receives;
    std::deque<Received> received;          ///< completions that nobody has polled
    std::deque<ibv_send_wr> sends;          ///< posted, not executed
    std::deque<ibv_wc> send_completions;
    std::vector<Bytes> sent;                ///< what the network got
    bool failed = false;
    ibv_wc_status next_send = IBV_WC_SUCCESS;
    std::function<void()> on_post;          ///< when something is posted to be sent; in the sender's thread
    std::function<void()> on_receive;       ///< before it is polled; in the receiver's thread
    unsigned refuse_send_at = 0;            ///< the n-th request of the next post is refused; 0: none
};

struct FakeVerbs {
    /// Forgets everything; all queues are gone.
    static void reset();
    /// The n-th call from now on that can fail gives ENOMEM; 0: none.
    static void fail_call(unsigned n);
    [[nodiscard]] static bool failed();
    /// Objects alive: queue pairs, completion queues, channels, memory regions.
    [[nodiscard]] static int alive();
    /// In the order in which they were made.
    [[nodiscard]] static std::vector<FakeQueue*> queues();
    /// The receive queues that a queue pair spreads over, by the lowest bits of a hash.
    [[nodiscard]] static std::vector<FakeQueue*> spread_of(std::uint32_t qp_num);
    /// Whether the last receive() asked for a wake-up.
    [[nodiscard]] static bool armed();
    /// A wake-up of the completion queue comes to whichever channel is asked next.
    static void wake(ibv_cq* cq);
    /// Those that nobody has taken; those of a completion queue that were acknowledged; how often somebody has asked.
    [[nodiscard]] static std::size_t wake_ups();
    [[nodiscard]] static unsigned acknowledged(ibv_cq* cq);
    [[nodiscard]] static unsigned looks_for_wake_ups();
    /// Makes a context take these queues.
    static void prepare_context(verbs_context& context);
    /// Told of each queue pair that is made or destroyed.
    static inline void (*note)(const char* event, std::uint32_t sqn) = nullptr;
};

}  // namespace ovsdr::test
