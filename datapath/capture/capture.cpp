#include "datapath/capture/capture.hpp"

#include <algorithm>
#include <chrono>

namespace ovsdr::soft {
namespace {

capture::RecordHeader header_of(capture::Direction direction, unsigned interface) noexcept {
    using namespace std::chrono;
    const auto now = duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
    return {.time = static_cast<std::uint64_t>(now),
            .direction = direction,
            .interface = static_cast<std::uint8_t>(interface)};
}

}  // namespace

Capture::Capture(Spec spec, unsigned workers) : spec_(std::move(spec)), memory_(workers, spec_.ring_size) {
    shares_.reserve(workers);
    for (unsigned ring = 0; ring < workers; ++ring) {
        shares_.emplace_back(capture::Producer(memory_.control(ring), memory_.data(ring)));
    }
}

capture::Counts Capture::counts() const noexcept {
    capture::Counts sum;
    for (unsigned ring = 0; ring < memory_.rings(); ++ring) {
        for (const capture::SharedCounts& counts : memory_.control(ring).counts) {
            sum.seen += counts.seen.load(std::memory_order_relaxed);
            sum.accepted += counts.accepted.load(std::memory_order_relaxed);
            sum.dropped += counts.dropped.load(std::memory_order_relaxed);
        }
    }
    return sum;
}

void Capture::take(Share& share, capture::RecordHeader& header, const rte_mbuf* packet,
                   capture::Counts& counts) noexcept {
    const void* bytes = rte_pktmbuf_mtod(packet, const void*);
    ++counts.seen;
    header.original_size = packet->data_len;
    header.size = std::min(spec_.filter.wanted(bytes, packet->data_len), spec_.snap_length);
    if (header.size == 0) return;
    ++counts.accepted;
    counts.dropped += share.producer.stage(header, bytes) ? 0 : 1;
}

void Capture::received(unsigned worker, unsigned interface, std::span<rte_mbuf* const> packets) noexcept {
    if (!spec_.in) return;
    Share& share = shares_[worker];
    capture::RecordHeader header = header_of(capture::Direction::in, interface);
    capture::Counts counts;
    for (const rte_mbuf* packet : packets) take(share, header, packet, counts);
    share.producer.publish();
    share.producer.count(interface, counts);
}

void Capture::before_send(unsigned worker, unsigned interface, std::span<rte_mbuf* const> packets) noexcept {
    if (!spec_.out) return;
    Share& share = shares_[worker];
    share.before = share.producer.position();
    capture::RecordHeader header = header_of(capture::Direction::out, interface);
    capture::Counts counts;
    for (std::size_t i = 0; i < packets.size(); ++i) {
        take(share, header, packets[i], counts);
        share.after[i] = {share.producer.position(), static_cast<std::uint32_t>(counts.accepted),
                          static_cast<std::uint32_t>(counts.dropped)};
    }
}

void Capture::after_send(unsigned worker, unsigned interface, unsigned sent) noexcept {
    if (!spec_.out) return;
    Share& share = shares_[worker];
    if (sent == 0) {
        share.producer.publish(share.before);
        return;
    }
    const auto& last = share.after[sent - 1];
    share.producer.publish(last.position);
    share.producer.count(interface, {.seen = sent, .accepted = last.accepted, .dropped = last.dropped});
}

void CaptureList::received(unsigned worker, std::span<rte_mbuf* const> packets) const noexcept {
    for (const Item& item : items_) item.capture->received(worker, item.interface, packets);
}

void CaptureList::before_send(unsigned worker, std::span<rte_mbuf* const> packets) const noexcept {
    for (const Item& item : items_) item.capture->before_send(worker, item.interface, packets);
}

void CaptureList::after_send(unsigned worker, unsigned sent) const noexcept {
    for (const Item& item : items_) item.capture->after_send(worker, item.interface, sent);
}

}  // namespace ovsdr::soft
