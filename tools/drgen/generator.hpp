// Sends the streams at their rates, receives on all ports, and keeps the books.
//
// One thread does both in turn, a batch at a time, so a frame is at worst one batch late. It polls without rest unless
// told to nap: a generator that sleeps sees its own sleep as latency.
#pragma once

#include <rte_mbuf.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tools/drgen/accounting.hpp"
#include "tools/drgen/frame.hpp"
#include "tools/drgen/options.hpp"
#include "tools/drgen/pacer.hpp"
#include "tools/drgen/ports.hpp"

namespace ovsdr::drgen {

/// A stream at one of the ports where it should arrive.
struct Arrival {
    unsigned port;
    Ledger ledger;
    Histogram latency;
};

struct StreamResult {
    std::uint64_t sent = 0, sent_bytes = 0;
    std::uint64_t largest_backlog = 0;  ///< frames that were due at once
    std::vector<Arrival> arrivals;
};

struct PortResult {
    std::uint64_t received = 0, received_bytes = 0;  ///< of this run's frames
    std::uint64_t corrupted = 0;  ///< length or checksum of the payload is wrong; not counted as arrived
    std::uint64_t stray = 0;      ///< arrived where they should not
    std::uint64_t foreign = 0;    ///< other frames than ours
};

class Generator {
public:
    Generator(const Options& options, Ports& ports);
    ~Generator();
    Generator(const Generator&) = delete;
    Generator& operator=(const Generator&) = delete;

    /// Until duration or count is reached or `stop` is set, and then as long as late frames are waited for.
    void run(const std::atomic<bool>& stop);

    [[nodiscard]] const std::vector<StreamResult>& streams() const noexcept { return results_; }
    [[nodiscard]] const std::vector<PortResult>& ports() const noexcept { return port_results_; }
    [[nodiscard]] double seconds() const noexcept { return seconds_; }  ///< of sending

private:
    static constexpr unsigned batch = 32;

    struct Sender {
        std::uint16_t port;
        std::vector<FrameTemplate> templates;  ///< one a size, used in turn
        Pacer pacer;
        std::uint32_t next = 0;    ///< sequence number of the next frame
        rte_mbuf* waiting[batch];  ///< built, and not taken by the port yet
        unsigned waiting_length = 0;
    };

    bool send(Sender& sender, StreamResult& result, std::uint64_t now);
    void build(Sender& sender, unsigned length);
    unsigned receive(unsigned port);
    void account(unsigned port, const rte_mbuf* packet, std::uint32_t now);
    bool finished(std::uint64_t now) const noexcept;
    void drain();
    [[nodiscard]] std::uint64_t elapsed() const noexcept;
    [[nodiscard]] std::uint32_t timestamp() const noexcept;

    const Options& options_;
    Ports& ports_;
    const std::uint16_t run_;
    const std::uint64_t cycles_per_second_;
    std::uint64_t begin_ = 0;
    double seconds_ = 0;
    std::vector<Sender> senders_;
    std::vector<StreamResult> results_;
    std::vector<PortResult> port_results_;
};

}  // namespace ovsdr::drgen
