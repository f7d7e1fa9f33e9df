// How much a requester keeps on its way, and how long silence lasts before it asks what has arrived.
//
// Model. A window of packets: it halves when something was lost, as going back sends all of it again, and grows with
// what is acknowledged. The time from a packet to its acknowledgement is measured; silence well beyond that is taken
// for a loss of the acknowledgement, or of what was sent again (which no NAK tells: a responder says only once what it
// misses). Then one packet goes out, and the window opens again with its acknowledgement. The times of the queue pair's
// timeout attribute stand beside this, with its retry counter: they decide when to give up.
//
// Times are in nanoseconds. Source: RFC 6298 (estimate of the round trip), RFC 5681 (the window).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "datapath/rdma/roce/wire.hpp"

namespace ovsdr::soft::roce {

class Pace {
public:
    static constexpr std::uint32_t widest = 128, narrowest = 32;

    [[nodiscard]] std::uint32_t window() const noexcept { return window_; }
    /// From the last progress on; the maximum before the first acknowledgement.
    [[nodiscard]] std::uint64_t patience() const noexcept {
        if (round_trip_ == 0) return std::numeric_limits<std::int64_t>::max();
        return std::max(least_patience, round_trip_ + 4 * variation_) << std::min(silences_, most_doublings);
    }

    /// A packet that asks for an acknowledgement has left for the first time.
    void sent(std::uint32_t psn, std::uint64_t now) noexcept {
        if (measuring_) return;
        measuring_ = true;
        measured_psn_ = psn;
        measured_since_ = now;
    }
    /// `packets` more have arrived, all before `una`.
    void arrived(std::uint32_t una, std::uint32_t packets, std::uint64_t now) noexcept {
        if (measuring_ && psn_distance(measured_psn_, una) > 0) {
            measuring_ = false;
            measured(now - measured_since_);
        }
        silences_ = 0;
        window_ = std::min(widest, window_ + (window_ < threshold_ ? packets : (packets + 7) / 8));
    }
    /// Something is missing: we go back.
    void lost() noexcept {
        measuring_ = false;  // what is acknowledged now may be either of two packets
        threshold_ = window_ = std::max(narrowest, window_ / 2);
    }
    void silence() noexcept {
        lost();
        ++silences_;
        window_ = 1;
    }

private:
    static constexpr std::uint64_t least_patience = 1'000'000;
    static constexpr unsigned most_doublings = 20;

    void measured(std::uint64_t time) noexcept {
        if (round_trip_ == 0) {
            round_trip_ = time;
            variation_ = time / 2;
            return;
        }
        const std::uint64_t away = time > round_trip_ ? time - round_trip_ : round_trip_ - time;
        variation_ = (3 * variation_ + away) / 4;
        round_trip_ = std::max<std::uint64_t>(1, (7 * round_trip_ + time) / 8);
    }

    std::uint32_t window_ = widest, threshold_ = widest;
    bool measuring_ = false;
    std::uint32_t measured_psn_{};
    std::uint64_t measured_since_{};
    std::uint64_t round_trip_ = 0, variation_ = 0;  ///< smoothed; 0: not known
    unsigned silences_ = 0;                         ///< since the last progress
};

}  // namespace ovsdr::soft::roce
