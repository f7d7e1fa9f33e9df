// What a collector has counted, per session and in all: for `drcollect stats` and Prometheus.
//
// Threads: a session's thread writes, whoever asks reads, under the lock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "offload/mirror/wire/handshake.hpp"

namespace ovsdr::drcollect {

struct SessionCounters {
    std::string mirror, peer, file, signature;
    bool connected = false, finished = false;
    std::string stalled;                   ///< why nothing is written at the moment; empty: it is
    std::string last_error, last_bad;
    std::uint64_t next = 0;                ///< segments below it are in files
    std::uint64_t segments = 0, frames = 0, bytes = 0;
    std::uint64_t dropped = 0;             ///< frames that the switch says are lost
    std::uint64_t gap = 0;                 ///< segments that the switch no longer had
    std::uint64_t connections = 0;
    std::uint64_t damaged_files = 0;       ///< that were left as they are, since they have a fault
    std::string damaged;                   ///< the last of them, and its fault
    std::array<std::uint64_t, 8> bad{};    ///< segments, by BadKind
};

class Counters {
public:
    /// Changes a session's counters under the lock.
    template <typename Change>
    void change(std::uint64_t session, Change&& how) {
        const std::lock_guard guard(mutex_);
        how(sessions_[session]);
        // A collector that runs for years keeps the last few that ended.
        for (auto it = sessions_.begin(); sessions_.size() > most_sessions && it != sessions_.end();) {
            it = !it->second.connected && it->first != session ? sessions_.erase(it) : std::next(it);
        }
    }
    /// A handshake. `session`: whose; 0: it did not come so far. One that was never accepted is not kept.
    void refused(std::uint64_t session, const std::string& why) {
        const std::lock_guard guard(mutex_);
        ++refused_;
        last_refused_ = why;
        if (const auto found = sessions_.find(session); found != sessions_.end()) found->second.last_error = why;
    }
    [[nodiscard]] nlohmann::json json() const;
    [[nodiscard]] SessionCounters of(std::uint64_t session) const {
        const std::lock_guard guard(mutex_);
        const auto found = sessions_.find(session);
        return found == sessions_.end() ? SessionCounters{} : found->second;
    }

private:
    static constexpr std::size_t most_sessions = 256;
    mutable std::mutex mutex_;
    std::map<std::uint64_t, SessionCounters> sessions_;
    std::uint64_t refused_ = 0;
    std::string last_refused_;
};

/// What json() says, for people and for Prometheus (text format 0.0.4).
[[nodiscard]] std::string table_of(const nlohmann::json& counters);
[[nodiscard]] std::string prometheus_of(const nlohmann::json& counters);

}  // namespace ovsdr::drcollect
