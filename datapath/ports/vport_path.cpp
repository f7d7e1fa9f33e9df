#include "datapath/ports/vport_path.hpp"

#include <rte_cycles.h>
#include <rte_mbuf.h>
#include <rte_pause.h>

#include <algorithm>
#include <cstring>

namespace ovsdr::soft {
namespace {

constexpr std::uint32_t frame_overhead = 14 + 2 * 4;  // Ethernet header and two VLAN tags

// How long a full port is waited for, in pauses of the processor: a few microseconds at most, the time that a neighbour
// on another core needs to take some packets. A port earns its waits with the packets that it takes. One that takes
// none has soon used up what it had, and then costs its senders one attempt a batch; a slow one costs no more than it
// earns.
constexpr unsigned pauses_between_attempts = 64;
constexpr unsigned most_patience = 7 * pauses_between_attempts;
constexpr unsigned patience_per_packet = 4;

// A port whose link is down is asked again when there are packets for it, but not for each.
constexpr unsigned link_questions_per_second = 1000;

constexpr std::uint8_t slow_protocols_address[6] = {0x01, 0x80, 0xc2, 0x00, 0x00, 0x02};

}  // namespace

VportPath::VportPath(VportId id, unsigned workers, std::function<void()> look)
    : id_(id), workers_(workers), look_(std::move(look)), cells_(std::make_unique<Cells[]>(workers)),
      sending_(std::make_unique<Sending[]>(workers)) {}

Sink VportPath::sink() noexcept {
    return Sink{[](void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept {
                    static_cast<VportPath*>(self)->deliver(worker, packets, length);
                },
                this};
}

void VportPath::bind(const Port* port) noexcept {
    if (port != nullptr) {
        port_ = port;
        receive_queues_ = port->receive_queues();
        send_queues_ = port->send_queues();
        locks_ = workers_ > 1 && (workers_ > send_queues_.size() || port->send_queues_vary());
        may_exceed_mtu_ = port->driver().may_exceed_mtu;
    }
    set_state(has_port, port != nullptr);
}

void VportPath::set_state(State bit, bool on) noexcept {
    if (on) {
        state_.fetch_or(bit, std::memory_order_release);
    } else {
        state_.fetch_and(static_cast<std::uint8_t>(~bit), std::memory_order_release);
    }
}

// The control thread learns of a link that came up by an event, a moment after the peer could begin to send. What can
// be told without the kernel is told here.
bool VportPath::link_has_come_up() noexcept {
    const std::uint64_t now = rte_rdtsc();
    if (now - link_asked_.load(std::memory_order_relaxed) < rte_get_tsc_hz() / link_questions_per_second) return false;
    link_asked_.store(now, std::memory_order_relaxed);
    if (!port_->link_seen_up()) return false;
    set_link_up(true);
    return true;
}

// A packet that comes has come over a link that is up: the answer to it must not find the link down. It may have waited
// in the port's buffer since before the link went down, so the control thread looks.
void VportPath::link_is_evident() noexcept {
    set_link_up(true);
    look_();
}

void VportPath::set_mtu(std::uint16_t mtu) noexcept {
    largest_frame_.store(mtu + frame_overhead, std::memory_order_relaxed);
}

thread_local std::uint64_t VportPath::delivered = 0;

void VportPath::deliver(unsigned worker, rte_mbuf** packets, unsigned length) noexcept {
    Cells& cells = cells_[worker];
    delivered += length;
    const std::uint8_t state = state_.load(std::memory_order_acquire);
    if (state != ready && !(state == (admin_up | has_port) && link_has_come_up())) [[unlikely]] {
        ((state & admin_up) == 0 ? cells.down : cells.receive_drops).add(length);
        rte_pktmbuf_free_bulk(packets, length);
        return;
    }
    const std::uint32_t largest = largest_frame_.load(std::memory_order_relaxed);
    unsigned kept = 0;
    std::uint64_t bytes = 0;
    for (unsigned i = 0; i < length; ++i) {
        if (packets[i]->pkt_len > largest) [[unlikely]] {
            cells.oversize.add(1);
            rte_pktmbuf_free(packets[i]);
            continue;
        }
        bytes += packets[i]->pkt_len;
        packets[kept++] = packets[i];
    }
    const CaptureList* captures = captures_.load(std::memory_order_acquire);
    if (captures != nullptr) [[unlikely]]
        captures->before_send(worker, {packets, kept});
    const unsigned sent = send(worker, packets, kept);
    if (captures != nullptr) [[unlikely]]
        captures->after_send(worker, sent);
    if (sent < kept) [[unlikely]] {
        for (unsigned i = sent; i < kept; ++i) bytes -= packets[i]->pkt_len;
        cells.receive_drops.add(kept - sent);
        rte_pktmbuf_free_bulk(packets + sent, kept - sent);
    }
    cells.received_packets.add(sent);
    cells.received_bytes.add(bytes);
}

// The pauses are outside the lock: who has packets for the same queue may try in between.
unsigned VportPath::send(unsigned worker, rte_mbuf** packets, unsigned length) noexcept {
    const unsigned usable = port_->usable_send_queues();
    const unsigned number = worker < usable ? worker : worker % usable;
    const PortSendQueue& queue = send_queues_[number];
    Sending& sending = sending_[number];
    passed_on(packets, length);
    for (unsigned sent = 0;;) {
        if (locks_) rte_spinlock_lock(&sending.lock);
        const unsigned taken = queue.send(queue.queue, packets + sent, static_cast<std::uint16_t>(length - sent));
        sent += taken;
        sending.patience = std::min(most_patience, sending.patience + taken * patience_per_packet);
        const bool waits = sent < length && sending.patience >= pauses_between_attempts;
        if (waits) sending.patience -= pauses_between_attempts;
        if (locks_) rte_spinlock_unlock(&sending.lock);
        if (!waits) return sent;
        for (unsigned i = 0; i < pauses_between_attempts; ++i) rte_pause();
    }
}

// A port's buffer holds more than the MTU allows, so what was cut to fit, or fills several, is too large in any case;
// and what is too large cannot be told from what was cut.
unsigned VportPath::drop_oversize(Cells& cells, rte_mbuf** packets, unsigned length) noexcept {
    const std::uint32_t largest = largest_frame_.load(std::memory_order_relaxed);
    unsigned kept = 0;
    for (unsigned i = 0; i < length; ++i) {
        if (packets[i]->pkt_len > largest) [[unlikely]] {
            cells.send_drops.add(1);
            rte_pktmbuf_free(packets[i]);
        } else {
            packets[kept++] = packets[i];
        }
    }
    return kept;
}

unsigned VportPath::receive(unsigned worker, unsigned queue, Lane& lane) noexcept {
    rte_mbuf* packets[batch_length];
    const PortReceiveQueue& from = receive_queues_[queue];
    const unsigned received = from.receive(from.queue, packets, from.most);
    if (received == 0) return 0;
    taken_over(packets, received);
    Cells& cells = cells_[worker];
    const std::uint8_t state = state_.load(std::memory_order_relaxed);
    if (state != ready) [[unlikely]] {
        if ((state & admin_up) == 0) {
            cells.down.add(received);
            rte_pktmbuf_free_bulk(packets, received);
            return received;
        }
        if ((state & link_up) == 0) link_is_evident();
    }
    const unsigned length = may_exceed_mtu_ ? drop_oversize(cells, packets, received) : received;
    std::uint64_t bytes = 0;
    for (unsigned i = 0; i < length; ++i) bytes += packets[i]->pkt_len;
    cells.sent_packets.add(length);
    cells.sent_bytes.add(bytes);
    if (watch_slow_protocols_) {
        for (unsigned i = 0; i < length; ++i) {
            const void* destination = rte_pktmbuf_mtod(packets[i], const void*);
            if (std::memcmp(destination, slow_protocols_address, sizeof slow_protocols_address) == 0) {
                cells.slow_protocols.add(1);
            }
        }
    }
    if (const CaptureList* captures = captures_.load(std::memory_order_acquire)) [[unlikely]]
        captures->received(worker, {packets, length});
    if (length > 0) lane.from_vport(id_, packets, length);
    return received;
}

void VportPath::count_sent(unsigned worker, std::uint64_t packets, std::uint64_t bytes) noexcept {
    cells_[worker].sent_packets.add(packets);
    cells_[worker].sent_bytes.add(bytes);
}

std::uint64_t VportPath::sum(Counter Cells::*counter) const noexcept {
    std::uint64_t total = 0;
    for (unsigned worker = 0; worker < workers_; ++worker) total += (cells_[worker].*counter).value();
    return total;
}

VportCounters VportPath::counters() const noexcept {
    return {.received_packets = sum(&Cells::received_packets),
            .received_bytes = sum(&Cells::received_bytes),
            .sent_packets = sum(&Cells::sent_packets),
            .sent_bytes = sum(&Cells::sent_bytes),
            .receive_drops = sum(&Cells::receive_drops),
            .send_drops = sum(&Cells::send_drops),
            .oversize = sum(&Cells::oversize),
            .down = sum(&Cells::down),
            .overruns = 0};
}

std::uint64_t VportPath::slow_protocol_frames() const noexcept {
    return sum(&Cells::slow_protocols);
}

}  // namespace ovsdr::soft
