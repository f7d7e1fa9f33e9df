#include <infiniband/verbs.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/differential/judge/memif_peer.hpp"
#include "tests/differential/judge/nic_judge.hpp"
#include "tests/differential/judge/recipe.hpp"

namespace ovsdr::differential {

namespace {

using Clock = std::chrono::steady_clock;

/// Packets that are under way at once: fewer than any ring has room for.
constexpr std::size_t window = 400;
constexpr auto patience = std::chrono::seconds(60);
/// Above any packet's number: frames that the slow path sends (the port in the low byte), and markers.
constexpr std::uint32_t first_sent = 0xFE000000, first_marker = 0xFF000000;
constexpr std::size_t sent_by_each = 32;

/// Sends windows of packets, and after each a marker from each port, which comes out at the next one, or up from a
/// policed port: a worker moves what one port received in order, so that when a second marker is there, all that came
/// before the first has come out.
class SoftNic {
public:
    SoftNic(Installation& installation, NicRecord& record, const std::vector<std::string>& sockets,
            const std::vector<TestPacket>& packets)
        : installation_(installation), record_(record), packets_(packets) {
        for (const std::string& socket : sockets) peers_.push_back(std::make_unique<MemifPeer>(socket));
    }

    /// What a port's queue sends comes out at the port, and nowhere else.
    void check_slow_path() {
        settle();
        send_from_queues();
    }

    /// The packets up to the one with this number, from where the call before ended.
    void run(std::size_t packets_end) {
        while (sent_ < packets_end) {
            const std::size_t end = std::min(packets_end, sent_ + window);
            for (; sent_ < end; ++sent_) peer_of(packets_[sent_].in_port).send(packets_[sent_].bytes);
            settle();
            settle();
        }
    }

private:
    MemifPeer& peer_of(std::uint32_t odp) {
        for (std::size_t i = 0; i < port_length; ++i) {
            if (ports[i].odp == odp) return *peers_[i];
        }
        throw std::runtime_error("no such port");
    }

    void send_from_queues() {
        for (std::size_t i = 0; i < port_length; ++i) {
            const auto frame = marker_frame(first_sent + ports[i].odp);
            const std::vector<std::span<const std::uint8_t>> frames(sent_by_each, frame);
            if (installation_.queues(i)[0].transmit(frames) != sent_by_each) {
                throw std::runtime_error("a queue takes no frames");
            }
        }
        wait("what the slow path sent", [this] { return sent_arrived_ == port_length * sent_by_each; });
        sent_arrived_ = 0;
        settle();
    }

    template <typename Done>
    void wait(const char* for_what, Done done) {
        const auto deadline = Clock::now() + patience;
        while (!done()) {
            if (!take_all()) std::this_thread::yield();
            if (Clock::now() <= deadline) continue;
            throw std::runtime_error(std::string(for_what) + " does not come out of the soft NIC");
        }
    }

    void settle() {
        ++markers_;
        for (auto& peer : peers_) peer->send(marker_frame(first_marker + markers_));
        arrived_ = 0;
        wait("a marker", [this] { return arrived_ == port_length; });
        while (take_all()) {}
    }

    bool take_all() {
        bool any = false;
        for (std::size_t i = 0; i < port_length; ++i) {
            for (auto frame = peers_[i]->receive(); !frame.empty(); frame = peers_[i]->receive()) {
                any = true;
                if (!is_mine(i, frame)) record_.out(ports[i].odp, std::move(frame));
            }
            any = take_up(i) || any;
        }
        installation_.check_old_queues();
        return take_copies() || any;
    }

    bool take_up(std::size_t port) {
        const PortQueues& queues = installation_.queues(port);
        bool any = false;
        for (std::size_t i = 0; i < queues.size(); ++i) {
            for (auto batch = queues[i].receive(0); !batch.empty(); batch = queues[i].receive(0)) {
                any = true;
                for (const slowpath::Frame& frame : batch) {
                    std::vector<std::uint8_t> bytes(frame.data, frame.data + frame.size);
                    const std::uint32_t queue_pair = queues[i].qp()->qp_num;
                    if (is_marker(bytes)) {
                        take_marker(port, queue_pair, bytes);
                    } else {
                        record_.up(queue_pair, frame.tag, std::move(bytes));
                    }
                }
            }
        }
        return any;
    }

    /// A policed port's, which goes no further.
    void take_marker(std::size_t port, std::uint32_t queue_pair, const std::vector<std::uint8_t>& frame) {
        if (!installation_.is_policed(port)) throw std::runtime_error("a marker went up");
        (void)installation_.came_up(queue_pair, frame, true);
        arrived_ += is_latest(frame) ? 1 : 0;
    }

    bool take_copies() {
        bool any = false;
        for (const dr::CopyKind kind : judged_copies) {
            slowpath::PortQueue& queue = installation_.copy_queue(kind);
            for (auto batch = queue.receive(0); !batch.empty(); batch = queue.receive(0)) {
                any = true;
                for (const slowpath::Frame& frame : batch) {
                    record_.copy(kind, frame.tag, {frame.data, frame.data + frame.size});
                }
            }
        }
        return any;
    }

    static bool is_marker(const std::vector<std::uint8_t>& frame) { return number_of(frame) >= first_marker; }
    [[nodiscard]] bool is_latest(const std::vector<std::uint8_t>& frame) const {
        return number_of(frame) == first_marker + markers_;
    }

    /// Markers, and what the slow path sent.
    bool is_mine(std::size_t port, const std::vector<std::uint8_t>& frame) {
        const std::uint32_t number = number_of(frame);
        if (is_marker(frame)) {
            const std::size_t from = (port + port_length - 1) % port_length;
            if (installation_.is_policed(from)) throw std::runtime_error("a policed port's marker did not go up");
            arrived_ += is_latest(frame) ? 1 : 0;
        } else if (number >= first_sent) {
            if (ports[port].odp != number - first_sent || frame != marker_frame(number)) {
                throw std::runtime_error("what the slow path sent came out elsewhere");
            }
            ++sent_arrived_;
        }
        return number >= first_sent;
    }

    Installation& installation_;
    NicRecord& record_;
    const std::vector<TestPacket>& packets_;
    std::vector<std::unique_ptr<MemifPeer>> peers_;
    std::uint32_t markers_ = 0;
    std::size_t arrived_ = 0, sent_arrived_ = 0;
    std::size_t sent_ = 0;   ///< packets
};

}  // namespace

Verdict judge_by_soft_nic(const Scenario& scenario, OvsJudge& ovs, unsigned format,
                          const std::vector<std::string>& sockets) {
    Verdict verdict(scenario.packets.size(), scenario.ufids);
    Installation installation(scenario, ovs, format, verdict);
    NicRecord record(scenario, ovs, installation, verdict);
    SoftNic nic(installation, record, sockets, scenario.packets);
    for (const Phase& phase : scenario.phases) {
        installation.apply(phase);
        record.apply(phase, format == 0);
        nic.check_slow_path();
        nic.run(phase.filling_end);
        installation.stop_meters();
        nic.run(phase.priming_end);
        record.exhaust_meters();
        nic.run(phase.packets_end);
        record.count(phase);
    }
    installation.end();
    installation.check_copies(record.copies());
    verdict.finish();
    return verdict;
}

}  // namespace ovsdr::differential
