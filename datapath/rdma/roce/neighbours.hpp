// The neighbours of the RoCE addresses: who is behind an address on the link, and who asks for ours.
//
// Model. resolve() asks by ARP or by neighbour solicitation, waits for the answer, and asks again, for three seconds in all.
// What was learned is kept, and used without asking for a minute. Requests for our own addresses are answered; nothing
// else on the link is.
//
// Threads: resolve() from any application thread; take() from any worker.
// Source: RFC 826 (ARP), RFC 4861 (neighbour discovery).
#pragma once

#include <infiniband/verbs.h>
#include <rte_mbuf.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <span>

namespace ovsdr::soft::roce {

class Transport;

using Mac = std::array<std::uint8_t, 6>;

class Neighbours {
public:
    explicit Neighbours(Transport& transport) noexcept : transport_(transport) {}

    /// The MAC of `address`, asked for from our own address `source`. ETIMEDOUT, ENOMEM.
    [[nodiscard]] int resolve(const ibv_gid& address, const ibv_gid& source, Mac& mac);

    /// Whether the frame is ARP or neighbour discovery for one of our addresses. It stays the caller's.
    [[nodiscard]] bool take(std::span<const std::byte> frame) noexcept;

private:
    using Clock = std::chrono::steady_clock;
    struct Neighbour {
        bool known = false;
        Mac mac{};
        Clock::time_point learned;
    };
    struct Less {
        bool operator()(const ibv_gid& left, const ibv_gid& right) const noexcept;
    };

    [[nodiscard]] bool take_arp(std::span<const std::byte> frame) noexcept;
    [[nodiscard]] bool take_discovery(std::span<const std::byte> frame) noexcept;
    void learn(const ibv_gid& address, const Mac& mac) noexcept;
    [[nodiscard]] bool ask(const ibv_gid& address, const ibv_gid& source) noexcept;
    [[nodiscard]] bool send(std::span<const std::byte> frame) noexcept;

    Transport& transport_;
    std::mutex mutex_;
    std::condition_variable learned_;
    std::map<ibv_gid, Neighbour, Less> neighbours_;  ///< those that were asked for
};

}  // namespace ovsdr::soft::roce
