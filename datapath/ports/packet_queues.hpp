// The sockets of a PacketPort: what receives, and what sends.
//
// Receivers. Several share the interface's packets as a group (PACKET_FANOUT_HASH): the kernel picks one by a hash of
// addresses and L4 ports that is the same for both directions of a flow and for all its fragments, so a flow stays in
// its order. Until the group is complete each of its sockets would get every packet: they drop all until then.
//
// Senders. Each is one worker's: it sends while others do.
//
// What the host itself sends on its end of the interface, and what senders send, did not come from the vport and is not
// received. A socket of its own is told so; a group is told so only since Linux 6.1, and its sockets have a filter.
//
// Threads: open(), start() and destructors from the control thread, receive() from one worker at a time, send() too.
// What is counted may be read from any thread, overruns() from one.
//
// Source: packet(7), and Linux's net/packet/af_packet.c on what a group inherits.
#pragma once

#include <linux/if_packet.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/ports/incoming.hpp"
#include "datapath/ports/joined.hpp"
#include "datapath/ports/unfinished.hpp"

struct rte_mbuf;
struct rte_mempool;

namespace ovsdr::soft {

/// Of a group of receivers on one interface: the kernel's number for it, once its first receiver has made it.
using FanoutGroup = std::optional<std::uint16_t>;

class PacketReceiver {
public:
    explicit PacketReceiver(rte_mempool* pool);
    ~PacketReceiver();
    PacketReceiver(const PacketReceiver&) = delete;
    PacketReceiver& operator=(const PacketReceiver&) = delete;

    /// 0 or an errno, with what failed in `step`. `group`: nullptr for the only receiver. One of a group receives
    /// nothing before start().
    [[nodiscard]] int open(unsigned interface, bool roce, FanoutGroup* group, std::string& step);
    [[nodiscard]] int start() noexcept;

    [[nodiscard]] int descriptor() const noexcept { return socket_; }

    static std::uint16_t receive(void* self, rte_mbuf** packets, std::uint16_t length) noexcept;

    /// Packets that found no room, those for whose segments there was no buffer among them.
    [[nodiscard]] std::uint64_t overruns() noexcept;

private:
    /// Frames that are received at a time: each may be a long one.
    static constexpr unsigned received_at_a_time = 8;

    /// The tag that the kernel took out of a frame comes beside it.
    union Control {
        cmsghdr header;
        std::byte bytes[CMSG_SPACE(sizeof(tpacket_auxdata))];
    };

    [[nodiscard]] int join(FanoutGroup& group) noexcept;
    [[nodiscard]] rte_mbuf* next_segment() noexcept;
    [[nodiscard]] bool receive_more() noexcept;

    rte_mempool* const pool_;
    int socket_ = -1;
    std::vector<Incoming> incoming_;
    std::array<rte_mbuf*, received_at_a_time> spares_{};  ///< what is received into
    std::array<mmsghdr, received_at_a_time> arrivals_{};
    std::array<Control, received_at_a_time> controls_;
    unsigned next_ = 0, end_ = 0;  ///< of what has arrived
    bool drained_ = false;         ///< in this call the socket has given less than it was asked for
    Unfinished cut_;               ///< of the one before next_
    std::uint64_t overruns_ = 0;   ///< of what the kernel has forgotten since it told us
    std::atomic<std::uint64_t> lost_{0};
};

class PacketSender {
public:
    /// `joins`: TCP packets leave joined.
    explicit PacketSender(bool joins) noexcept : joins_(joins) {}
    ~PacketSender();
    PacketSender(const PacketSender&) = delete;
    PacketSender& operator=(const PacketSender&) = delete;

    /// 0 or an errno, with what failed in `step`.
    [[nodiscard]] int open(unsigned interface, bool qdisc_bypass, std::string& step);

    static std::uint16_t send(void* self, rte_mbuf** packets, std::uint16_t length) noexcept;

    /// What the interface does not take, a frame with two tags and as long as the MTU allows, say.
    [[nodiscard]] std::uint64_t refused_packets() const noexcept { return packets_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t refused_bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

private:
    void refuse(std::span<rte_mbuf*> packets) noexcept;

    const bool joins_;
    int socket_ = -1;
    std::array<Message, batch_length> messages_;
    std::array<mmsghdr, batch_length> departures_{};
    std::atomic<std::uint64_t> packets_{0}, bytes_{0};
};

}  // namespace ovsdr::soft
