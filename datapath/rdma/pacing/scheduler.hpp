// The device's transmit scheduler: trees of elements that share bandwidth and bound it.
//
// Model. A root has nodes and leaves under it, nodes have more, queues hang on leaves. Each element but a root has a
// share and may have a limit, which is on all that is sent below it together. A queue with something to send asks; it
// may send when no limit above it is exceeded and when, at no level, an element beside it that could send now has had
// less for its share (start-time fair queueing). So bandwidth that somebody cannot use goes to the others, and those
// that are all busy get theirs as their shares are: exactly, but for the batch under way. Queues on one leaf share it
// equally.
//
// There is no rate of a link that would make elements wait for each other. Where nothing limits them, the shares are
// those of what the workers manage to send.
//
// A queue that was told to wait, and does not come back within a millisecond, waits no more in the eyes of others.
//
// Threads: any; one lock for the device, taken twice for a batch of a queue that hangs on a leaf. Times: ns, steady
// clock.
// Source: mlx5dv_sched_node_create(3); P. Goyal, H. Vin, H. Cheng: Start-time Fair Queueing (SIGCOMM 1996).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "datapath/rdma/pacing/rate_limit.hpp"

namespace ovsdr::soft {

class Scheduler {
public:
    static constexpr std::uint32_t most_share = 100;
    static constexpr unsigned most_levels = 8;  ///< of nodes and leaves

    enum class Kind : std::uint8_t { node, leaf, queue };

    struct Attributes {
        std::optional<std::uint32_t> share;     ///< 0: the default, 1
        std::optional<std::uint32_t> megabits;  ///< of 10^6 bits per second; 0: no limit
    };

    class Element {
    public:
        [[nodiscard]] Kind kind() const noexcept { return kind_; }

    private:
        friend class Scheduler;
        /// What it has had for its share, not less than those who were busy.
        [[nodiscard]] std::uint64_t start() const noexcept;

        Kind kind_ = Kind::node;
        Element* parent_ = nullptr;
        unsigned level_ = 1;
        std::uint32_t share_ = 1;
        RateLimit limit_;
        std::uint64_t had_ = 0;          ///< bytes, by share
        std::uint64_t time_ = 0;         ///< start() of who sent last below it
        std::uint64_t waits_until_ = 0;  ///< of a queue: when others need not wait for it any more
        std::vector<Element*> children_;
    };

    /// `parent`: a node, or nullptr for a root, which has no attributes. EINVAL: a share out of range, too many levels.
    [[nodiscard]] int add(Element* parent, Kind kind, const Attributes& attributes, std::unique_ptr<Element>& added);
    /// EINVAL: a share out of range.
    [[nodiscard]] int modify(Element& element, const Attributes& attributes);
    /// EBUSY: there is something below it.
    [[nodiscard]] int remove(Element& element);

    struct Grant {
        std::uint64_t bytes;  ///< that may go now, the last packet of them in whole
        std::uint64_t at;     ///< where that is 0: when to ask again
    };
    /// `queue` has something to send.
    [[nodiscard]] Grant ask(Element& queue, std::uint64_t now) noexcept;
    /// It has sent this, and could send `more` at once.
    void sent(Element& queue, std::uint64_t bytes, std::uint64_t now, bool more) noexcept;

private:
    [[nodiscard]] static bool competes(const Element& element, std::uint64_t now) noexcept;

    std::mutex mutex_;
};

}  // namespace ovsdr::soft
