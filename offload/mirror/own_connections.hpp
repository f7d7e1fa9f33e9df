// The TCP connections over which this process's mirrors speak with their collectors: no mirror takes frames of these.
// Where the bridge carries them (LOCAL has the address from which the collector is reached), each message would be
// mirrored, sealed and acknowledged, and the acknowledgement be mirrored again, without an end; with two mirrors, the
// one would take the other's.
//
// Model. Whoever connects registers the connection before its first packet leaves: the port is bound by then, the own
// address may still be any. The registration lasts a minute longer than the socket, for what closes it: nobody else has
// the connection's addresses and ports meanwhile, for one of them is this host's. A frame is of a connection by its
// outer headers, in either direction, behind two VLAN tags at most. One in a tunnel or in fragments is not known.
//
// Threads: registering by any; a Look is one thread's at a time.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>

#include "offload/mirror/service_filter.hpp"

namespace ovsdr::mirror {

/// The address is zero where it is any. Nothing: neither IPv4 nor IPv6.
[[nodiscard]] std::optional<TcpEnd> tcp_end_of(const sockaddr_storage& address) noexcept;

struct TcpConnection {
    TcpEnd theirs;
    TcpEnd ours;   ///< address zero: any of this host's

    friend auto operator<=>(const TcpConnection&, const TcpConnection&) = default;
};

class OwnConnections {
public:
    /// Lets the registration end.
    class Registered {
    public:
        Registered() noexcept = default;
        Registered(Registered&& from) noexcept;
        Registered& operator=(Registered&& from) noexcept;
        ~Registered();
        /// The own address is known now.
        void change(const TcpConnection& connection);

    private:
        friend class OwnConnections;
        struct Entry {
            TcpConnection connection;
            std::optional<std::chrono::steady_clock::time_point> ended{};
        };
        explicit Registered(std::list<Entry>::iterator entry) noexcept : entry_(entry) {}
        std::optional<std::list<Entry>::iterator> entry_;
    };

    /// What a thread knows of them: no lock is taken while none comes or goes.
    class Look {
    public:
        /// `frame`: from its Ethernet header on.
        [[nodiscard]] bool has(std::span<const std::byte> frame) noexcept;

    private:
        std::shared_ptr<const std::set<TcpConnection>> known_;
        std::uint64_t version_ = 0;
    };

    [[nodiscard]] Registered add(const TcpConnection& connection);

private:
    void tell();

    std::mutex mutex_;
    std::list<Registered::Entry> entries_;
    std::shared_ptr<const std::set<TcpConnection>> all_;
    std::atomic<std::uint64_t> version_ = 0;   ///< counted when all_ is another one
};

/// Of this process. Never destroyed: senders may outlive static destructors.
[[nodiscard]] OwnConnections& own_connections();

}  // namespace ovsdr::mirror
