// A turn at something that one thread at a time may have, for tens of nanoseconds: others spin.
//
// Threads: any.
#pragma once

#include <emmintrin.h>

#include <atomic>

namespace ovsdr::soft {

/// Has the turn for as long as it lives.
class Hold {
public:
    explicit Hold(std::atomic_flag& taken) noexcept : taken_(taken) {
        while (taken_.test_and_set(std::memory_order_acquire)) _mm_pause();
    }
    ~Hold() { taken_.clear(std::memory_order_release); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

private:
    std::atomic_flag& taken_;
};

}  // namespace ovsdr::soft
