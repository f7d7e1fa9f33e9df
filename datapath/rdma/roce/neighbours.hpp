// The neighbours of the RoCE addresses: who is behind an address on the link, and who asks for ours.
//
// Model. resolve() asks by ARP or by neighbour solicitation, waits for the answer, and asks again, for three seconds in
// all. What was learned is kept, and used without asking for a minute. Requests for our own addresses are answered;
// nothing else on the link is. Each VLAN is a link of its own: questions and answers carry its tag.
//
// Threads: resolve() from any application thread; take() from any worker.
// Source: RFC 826 (ARP), RFC 4861 (neighbour discovery).
#pragma once

#include <infiniband/verbs.h>
#include <rte_mbuf.h>

#include <array>
#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>

namespace ovsdr::soft::roce {

class Transport;
struct GidEntry;

using Mac = std::array<std::uint8_t, 6>;

class Neighbours {
public:
    explicit Neighbours(Transport& transport) noexcept : transport_(transport) {}

    /// The MAC of `address`, asked for from our own address `source`. ETIMEDOUT, ENOMEM.
    [[nodiscard]] int resolve(const ibv_gid& address, const GidEntry& source, Mac& mac);

    /// Whether the frame is ARP or neighbour discovery for one of our addresses. It stays the caller's.
    [[nodiscard]] bool take(std::span<const std::byte> frame) noexcept;

private:
    using Clock = std::chrono::steady_clock;
    struct Neighbour {
        bool known = false;
        Mac mac{};
        Clock::time_point learned;
    };
    /// Whom a link has.
    struct Place {
        std::uint16_t vlan;
        std::array<std::uint8_t, 16> address;
        auto operator<=>(const Place&) const = default;
    };
    [[nodiscard]] static Place place_of(const ibv_gid& address, std::uint16_t vlan) noexcept;

    // Frames without their tag.
    [[nodiscard]] bool take_arp(std::span<const std::byte> frame, std::uint16_t vlan) noexcept;
    [[nodiscard]] bool take_discovery(std::span<const std::byte> frame, std::uint16_t vlan) noexcept;
    void learn(const ibv_gid& address, std::uint16_t vlan, const Mac& mac) noexcept;
    [[nodiscard]] bool ask(const ibv_gid& address, const GidEntry& source) noexcept;
    [[nodiscard]] bool send(std::span<const std::byte> frame, std::uint16_t vlan) noexcept;

    Transport& transport_;
    std::mutex mutex_;
    std::condition_variable learned_;
    std::map<Place, Neighbour> neighbours_;  ///< those that were asked for
};

}  // namespace ovsdr::soft::roce
