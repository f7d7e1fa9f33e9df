#include "tools/drnic/capture_reader.hpp"

#include <chrono>
#include <utility>

namespace ovsdr::drnic {
namespace {

using namespace std::chrono_literals;

// A worker takes a batch's time before it copies and sends the batch, which takes microseconds.
constexpr auto moment = 2ms;

}  // namespace

std::uint64_t monotonic_now() noexcept {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / 1ns);
}

CaptureReader::CaptureReader(const capture::Memory& memory) {
    for (unsigned ring = 0; ring < memory.rings(); ++ring) rings_.emplace_back(memory.control(ring), memory.data(ring));
}

std::optional<capture::Consumer::Record> CaptureReader::next(bool packets_still_come) {
    if (capture::Consumer* last = std::exchange(last_, nullptr)) last->pop();
    const bool hold_back = packets_still_come && rings_.size() > 1;
    std::uint64_t until = hold_back ? monotonic_now() - moment / 1ns : ~std::uint64_t{0};
    std::optional<capture::Consumer::Record> oldest;
    for (capture::Consumer& ring : rings_) {
        const auto record = ring.front();
        if (!record || record->header.time > until || (oldest && record->header.time == until)) continue;
        oldest = record;
        until = record->header.time;
        last_ = &ring;
    }
    return oldest;
}

capture::Counts CaptureReader::counts(unsigned interface) const noexcept {
    capture::Counts sum;
    for (const capture::Consumer& ring : rings_) {
        const capture::Counts counts = ring.counts(interface);
        sum.seen += counts.seen;
        sum.accepted += counts.accepted;
        sum.dropped += counts.dropped;
    }
    return sum;
}

}  // namespace ovsdr::drnic
