#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/differential/judge/judges.hpp"
#include "tests/differential/judge/memif_peer.hpp"

namespace ovsdr::differential {

namespace {

using Clock = std::chrono::steady_clock;

/// Packets that are under way at once: fewer than any ring has room for.
constexpr std::size_t window = 400;
constexpr auto patience = std::chrono::seconds(60);
/// Above any packet's number: frames that the slow path sends (the port in the low byte), and markers.
constexpr std::uint32_t first_sent = 0xFE000000, first_marker = 0xFF000000;
constexpr std::size_t sent_by_each = 32;

/// Sends windows of packets, and after each a marker from each port: a worker moves what one port received in order, so
/// that when a second marker is there, all that came before the first has come out.
class SoftNic {
public:
    SoftNic(Installation& installation, const std::vector<std::string>& sockets, Verdict& verdict,
            const std::vector<TestPacket>& packets)
        : installation_(installation), verdict_(verdict), packets_(packets) {
        for (const std::string& socket : sockets) peers_.push_back(std::make_unique<MemifPeer>(socket));
    }

    void run() {
        settle();
        send_from_queues();
        for (std::size_t begin = 0; begin < packets_.size(); begin += window) {
            const std::size_t end = std::min(packets_.size(), begin + window);
            for (std::size_t i = begin; i < end; ++i) peer_of(packets_[i].in_port).send(packets_[i].bytes);
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

    /// What a port's queue sends comes out at the port, and nowhere else.
    void send_from_queues() {
        for (std::size_t i = 0; i < port_length; ++i) {
            const auto frame = marker_frame(first_sent + ports[i].odp);
            const std::vector<std::span<const std::uint8_t>> frames(sent_by_each, frame);
            if (installation_.queue(i).transmit(frames) != sent_by_each) {
                throw std::runtime_error("a queue takes no frames");
            }
        }
        wait("what the slow path sent", [this] { return sent_arrived_ == port_length * sent_by_each; });
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
                came_out({.port = ports[i].odp, .bytes = std::move(frame)});
            }
            slowpath::PortQueue& queue = installation_.queue(i);
            for (auto batch = queue.receive(0); !batch.empty(); batch = queue.receive(0)) {
                any = true;
                for (const slowpath::Frame& frame : batch) {
                    came_out({.port = ports[i].odp, .up = true, .tag = frame.tag,
                              .bytes = {frame.data, frame.data + frame.size}});
                }
            }
        }
        return any;
    }

    void came_out(Copy copy) {
        const std::uint32_t number = number_of(copy.bytes);
        if (number >= first_marker) {
            if (copy.up) throw std::runtime_error("a marker went up");
            arrived_ += number == first_marker + markers_ ? 1 : 0;
            return;
        }
        if (number >= first_sent) {
            if (copy.up || copy.port != number - first_sent || copy.bytes != marker_frame(number)) {
                throw std::runtime_error("what the slow path sent came out elsewhere");
            }
            ++sent_arrived_;
            return;
        }
        if (number >= packets_.size()) throw std::runtime_error("a frame of nobody's came out of the soft NIC");
        verdict_.add(packets_[number].in_port, std::move(copy));
    }

    Installation& installation_;
    Verdict& verdict_;
    const std::vector<TestPacket>& packets_;
    std::vector<std::unique_ptr<MemifPeer>> peers_;
    std::uint32_t markers_ = 0;
    std::size_t arrived_ = 0, sent_arrived_ = 0;
};

}  // namespace

Verdict judge_by_soft_nic(const Scenario& scenario, const std::vector<ovsdr_megaflow>& megaflows,
                          const std::vector<std::string>& sockets) {
    Verdict verdict;
    verdict.copies.resize(scenario.packets.size());
    Installation installation;
    installation.put(megaflows, verdict);
    SoftNic(installation, sockets, verdict, scenario.packets).run();
    installation.remove(verdict);
    verdict.finish();
    return verdict;
}

}  // namespace ovsdr::differential
