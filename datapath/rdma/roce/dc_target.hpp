// A DC target's sessions: a responder for each stream of each initiator that is connected.
//
// Model. A connect packet with the right access key opens a session; its number tells it from earlier ones of the same
// stream. Requests without a session are dropped: the initiator connects again when it repeats itself. A session ends
// with a disconnect packet, with an error (the initiator has been told), or with the stream's next one. What ended is
// remembered as long as there is room, so that packets that come late open nothing again.
//
// A wrong key is refused as remote access error. With most_sessions open, none of which was silent for `silence`, a
// connect packet is answered by an RNR NAK.
//
// Threads: under the engine's lock.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "datapath/rdma/roce/peer.hpp"
#include "datapath/rdma/roce/responder.hpp"

namespace ovsdr::soft::roce {

class DcTarget {
public:
    static constexpr std::size_t log_most_sessions = 10;
    static constexpr std::size_t most_sessions = 1 << log_most_sessions;
    static constexpr std::uint64_t silence = 10'000'000'000;  ///< ns

    explicit DcTarget(Pair& pair);

    void receive(const Arrival& arrival, std::uint64_t now) noexcept;
    [[nodiscard]] bool ready() const noexcept { return first_active_ != nullptr || refusals_ != 0; }
    void send(Burst& burst) noexcept;
    /// Forgets all sessions; entries of the SRQ that they hold go back.
    void reset() noexcept;

private:
    struct Session {
        explicit Session(Pair& pair) noexcept : responder(pair, peer) {}
        Peer peer;
        bool open = false;
        bool active = false;            ///< in the list of those that have something to send
        std::uint64_t last_heard = 0;   ///< ns
        Session* next_active = nullptr;
        Session* next_of_bucket = nullptr;
        Responder responder;
    };
    struct Refusal {
        Peer peer;
        std::uint32_t psn;
        std::uint8_t syndrome;
    };

    [[nodiscard]] Session** find(const ibv_gid& gid, std::uint32_t qpn, std::uint32_t stream) noexcept;
    [[nodiscard]] Session* make_room(std::uint64_t now) noexcept;
    void connect(const Arrival& arrival, const DcEth& header, std::uint64_t now) noexcept;
    void end(Session& session) noexcept;
    void refuse(const Arrival& arrival, const DcEth& header, std::uint8_t syndrome) noexcept;
    [[nodiscard]] bool send_refusal(Burst& burst, const Refusal& refusal) noexcept;
    [[nodiscard]] Peer peer_of(const Arrival& arrival, const DcEth& header) const noexcept;
    void activate(Session& session) noexcept;

    Pair& pair_;
    std::vector<std::unique_ptr<Session>> sessions_;
    std::array<Session*, most_sessions> buckets_{};
    Session* first_active_ = nullptr;
    Session* last_active_ = nullptr;
    std::array<Refusal, 16> waiting_;
    unsigned refusals_ = 0;  ///< in it
};

}  // namespace ovsdr::soft::roce
