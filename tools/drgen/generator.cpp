#include "tools/drgen/generator.hpp"

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <unistd.h>

#include <algorithm>
#include <random>

namespace ovsdr::drgen {
namespace {

constexpr unsigned nanoseconds_per_tick = 16;

}  // namespace

Generator::Generator(const Options& options, Ports& ports)
    : options_(options),
      ports_(ports),
      run_(static_cast<std::uint16_t>(std::random_device{}())),
      cycles_per_second_(rte_get_tsc_hz()),
      port_results_(options.ports.size()) {
    for (std::size_t i = 0; i < options.streams.size(); ++i) {
        const StreamOptions& stream = options.streams[i];
        const StreamHeader header{.stream = static_cast<std::uint8_t>(i),
                                  .run = run_,
                                  .source = stream.source,
                                  .destination = stream.destination,
                                  .vlans = stream.vlans};
        Sender sender{.port = ports.id(stream.from), .templates = {}, .pacer = {options.rate, cycles_per_second_}};
        for (const std::size_t size : options.sizes) sender.templates.emplace_back(header, size);
        senders_.push_back(std::move(sender));
        StreamResult result;
        for (const unsigned port : stream.to) result.arrivals.push_back({port, Ledger(options.flows), {}});
        results_.push_back(std::move(result));
    }
}

Generator::~Generator() {
    for (Sender& sender : senders_) rte_pktmbuf_free_bulk(sender.waiting, sender.waiting_length);
}

std::uint64_t Generator::elapsed() const noexcept {
    return rte_rdtsc() - begin_;
}

std::uint32_t Generator::timestamp() const noexcept {
    const auto ticks =
        static_cast<unsigned __int128>(elapsed()) * (1'000'000'000 / nanoseconds_per_tick) / cycles_per_second_;
    return static_cast<std::uint32_t>(ticks);
}

void Generator::build(Sender& sender, unsigned length) {
    if (length == 0 || rte_pktmbuf_alloc_bulk(ports_.mempool(), sender.waiting, length) != 0) return;
    const std::uint32_t now = timestamp();
    for (unsigned i = 0; i < length; ++i, ++sender.next) {
        const FrameTemplate& frame = sender.templates[sender.next % sender.templates.size()];
        char* out = rte_pktmbuf_append(sender.waiting[i], static_cast<std::uint16_t>(frame.size()));
        frame.write(reinterpret_cast<std::uint8_t*>(out), sender.next % options_.flows, sender.next, now);
    }
    sender.waiting_length = length;
}

// True when something was sent.
bool Generator::send(Sender& sender, StreamResult& result, std::uint64_t now) {
    if (sender.waiting_length == 0) {
        std::uint64_t due = sender.pacer.due(now, sender.next);
        if (options_.count > 0) due = std::min(due, options_.count - sender.next);
        build(sender, static_cast<unsigned>(std::min<std::uint64_t>(due, batch)));
    }
    if (sender.waiting_length == 0) return false;
    std::uint64_t bytes[batch];
    for (unsigned i = 0; i < sender.waiting_length; ++i) bytes[i] = sender.waiting[i]->pkt_len;
    const unsigned sent =
        rte_eth_tx_burst(sender.port, 0, sender.waiting, static_cast<std::uint16_t>(sender.waiting_length));
    for (unsigned i = 0; i < sent; ++i) result.sent_bytes += bytes[i];
    result.sent += sent;
    sender.waiting_length -= sent;
    std::copy(sender.waiting + sent, sender.waiting + sent + sender.waiting_length, sender.waiting);
    return sent > 0;
}

void Generator::account(unsigned port, const rte_mbuf* packet, std::uint32_t now) {
    PortResult& result = port_results_[port];
    const std::span frame(rte_pktmbuf_mtod(packet, const std::uint8_t*), packet->data_len);
    const auto signature = read_signature(frame, run_);
    if (!signature || signature->stream >= results_.size()) {
        ++result.foreign;
        return;
    }
    ++result.received;
    result.received_bytes += packet->pkt_len;
    if (!signature->intact || signature->sequence >= senders_[signature->stream].next) {
        ++result.corrupted;
        return;
    }
    auto& arrivals = results_[signature->stream].arrivals;
    const auto arrival =
        std::find_if(arrivals.begin(), arrivals.end(), [port](const Arrival& one) { return one.port == port; });
    if (arrival == arrivals.end()) {
        ++result.stray;
        return;
    }
    arrival->ledger.receive(signature->sequence);
    arrival->latency.add(std::uint64_t{now - signature->time} * nanoseconds_per_tick);
}

unsigned Generator::receive(unsigned port) {
    rte_mbuf* packets[batch];
    const unsigned length = rte_eth_rx_burst(ports_.id(port), 0, packets, batch);
    if (length == 0) return 0;
    const std::uint32_t now = timestamp();
    for (unsigned i = 0; i < length; ++i) account(port, packets[i], now);
    rte_pktmbuf_free_bulk(packets, length);
    return length;
}

bool Generator::finished(std::uint64_t now) const noexcept {
    if (options_.duration > 0 &&
        static_cast<double>(now) >= options_.duration * static_cast<double>(cycles_per_second_)) {
        return true;
    }
    return options_.count > 0 && std::all_of(results_.begin(), results_.end(), [this](const StreamResult& result) {
               return result.sent >= options_.count;
           });
}

void Generator::run(const std::atomic<bool>& stop) {
    // Some ports (memif clients) give their peer buffers to fill only when they are polled.
    for (unsigned port = 0; port < ports_.length(); ++port) (void)receive(port);
    begin_ = rte_rdtsc();
    std::uint64_t now = 0;
    for (; !stop.load(std::memory_order_relaxed) && !finished(now); now = elapsed()) {
        bool busy = false;
        for (std::size_t i = 0; i < senders_.size(); ++i) busy |= send(senders_[i], results_[i], now);
        for (unsigned port = 0; port < ports_.length(); ++port) busy |= receive(port) > 0;
        if (!busy && options_.nap_us > 0) usleep(options_.nap_us);
    }
    seconds_ = static_cast<double>(now) / static_cast<double>(cycles_per_second_);
    for (std::size_t i = 0; i < senders_.size(); ++i) results_[i].largest_backlog = senders_[i].pacer.largest_backlog();
    drain();
}

// Late frames: until none of ours has come for the drain time.
void Generator::drain() {
    const std::uint64_t patience = cycles_per_second_ / 1000 * options_.drain_ms;
    const std::uint64_t limit = elapsed() + patience * 10;
    for (std::uint64_t last = elapsed(); elapsed() - last < patience && elapsed() < limit;) {
        unsigned received = 0;
        for (unsigned port = 0; port < ports_.length(); ++port) {
            const std::uint64_t before = port_results_[port].received;
            (void)receive(port);
            received += static_cast<unsigned>(port_results_[port].received - before);
        }
        if (received > 0) {
            last = elapsed();
        } else {
            usleep(50);
        }
    }
}

}  // namespace ovsdr::drgen
