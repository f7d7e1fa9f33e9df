// Why a queue of the slow path has failed: the first completion that tells of it and is not merely flushed.
//
// Threads: any.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <string>

namespace ovsdr::slowpath {

class QueueFailure {
public:
    enum class Side : unsigned { receiving = 0, sending = 1U << 16 };

    /// A flush is what follows; the first failure that is none is the cause.
    void note(ibv_wc_status status, Side side) noexcept {
        unsigned known = code_.load(std::memory_order_relaxed);
        while (known == 0 || ((known & ~sending) == IBV_WC_WR_FLUSH_ERR && status != IBV_WC_WR_FLUSH_ERR)) {
            const unsigned code = status | static_cast<unsigned>(side);
            if (code_.compare_exchange_weak(known, code, std::memory_order_relaxed)) return;
        }
    }

    [[nodiscard]] bool any() const noexcept { return code_.load(std::memory_order_relaxed) != 0; }

    /// "receiving: local length error"; empty when there is none.
    [[nodiscard]] std::string text() const {
        const unsigned code = code_.load(std::memory_order_relaxed);
        if (code == 0) return {};
        const auto status = static_cast<ibv_wc_status>(code & ~sending);
        return std::string((code & sending) != 0 ? "sending: " : "receiving: ") + ibv_wc_status_str(status);
    }

private:
    static constexpr auto sending = static_cast<unsigned>(Side::sending);
    std::atomic<unsigned> code_{0};   ///< ibv_wc_status and the side; 0: none
};

}  // namespace ovsdr::slowpath
