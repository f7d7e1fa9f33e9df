#include "append.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <stdexcept>

#include "offload/mirror/segment_ring.hpp"
#include "offload/mirror/wire/guard.hpp"
#include "path.hpp"

namespace ovsdr::bench {
namespace {

constexpr mirror::Geometry geometry{
    .segment_size = 65536, .slots = 64, .signature = {mirror::SignatureType::t10dif_crc, 512}};
constexpr std::size_t buffers = 1024;   // of a slowpath::CopyQueue
constexpr std::size_t block_overhead = 64;

class Appender {
public:
    explicit Appender(std::size_t frame_size)
        : frame_size_(frame_size),
          buffer_size_((frame_size + 63) / 64 * 64),
          frames_(buffers * buffer_size_),
          memory_(geometry.ring_size()),
          ring_(geometry, 1, 0, memory_.get(), 65535) {
        for (std::size_t i = 0; i < frames_.get().size(); ++i) frames_.get()[i] = static_cast<std::byte>(i * 131);
    }

    /// All buffers once.
    void append() {
        for (std::size_t i = 0; i < buffers; ++i) {
            if (!ring_.append(packet(i, frame_size_))) throw std::runtime_error("the ring has no room");
            ring_.release(ring_.sealed());
        }
    }
    void append_without_copy() {
        std::array<std::byte, block_overhead> block;
        for (std::size_t i = 0; i < buffers; ++i) {
            pcapng::write(block, packet(i, 0));
            crc_ = mirror::crc32c(crc_, block);
            crc_ = mirror::crc32c(crc_, packet(i, frame_size_).bytes);
        }
        asm volatile("" : : "r"(crc_));
    }

private:
    [[nodiscard]] pcapng::EnhancedPacket packet(std::size_t index, std::size_t size) const noexcept {
        return {.interface = 0,
                .time = 1'700'000'000'000'000'000u + index,
                .bytes = frames_.get().subspan(index * buffer_size_, size),
                .original_size = static_cast<std::uint32_t>(frame_size_),
                .direction = pcapng::Direction::inbound};
    }

    const std::size_t frame_size_, buffer_size_;
    const Pages frames_, memory_;
    mirror::SegmentRing ring_;
    std::uint32_t crc_ = 0;
};

template <typename Work>
double time_of(Work work) {
    const double begin = thread_seconds();
    work();
    return thread_seconds() - begin;
}

}  // namespace

double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

AppendCost measure_append(std::size_t frame_size, double seconds) {
    Appender appender(frame_size);
    constexpr double none = std::numeric_limits<double>::max();
    AppendCost best{none, none};
    for (double spent = 0; spent < seconds;) {
        const double whole = time_of([&] { appender.append(); });
        const double rest = time_of([&] { appender.append_without_copy(); });
        best = {std::min(best.whole, whole), std::min(best.without_copy, rest)};
        spent += whole + rest;
    }
    const auto bytes = static_cast<double>(buffers * frame_size);
    return {best.whole / bytes, best.without_copy / bytes};
}

}  // namespace ovsdr::bench
