// The collector: listens for switches, and has a thread for each that is there.
//
// Model. It listens at one address and nowhere else. With TLS, who shows no certificate that the CA has signed is told
// nothing of this program's, not even why it is refused; the files are read for each connection. A connection that has
// not said a whole Hello within ten seconds is closed; a session that comes back takes the place of its connection
// before, which the switch has given up.
//
// Places. Connections without a Hello have places of their own. Where too many have come from one address, or from all,
// a new one is let in, and the oldest of them is closed (of the address that has most), so that they lock nobody out.
// An address is an IPv4 address, or the first 64 bits of an IPv6 address: the rest of it is its owner's choice.
//
// A session that ends leaves the end of its last file here: when it comes back the file need not be read.
//
// Whoever opens the control socket is told what has been counted, as JSON, and nothing is read from it.
//
// Threads: run() by one; port() and counters() by any.
#pragma once

#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tools/drcollect/session.hpp"

namespace ovsdr::drcollect {

struct ServerSpec {
    std::string host, port;          ///< to listen at; port "0": any that is free
    std::string control_socket;      ///< empty: none
    unsigned most_connections = 64;          ///< that have said Hello
    unsigned most_silent = 48;               ///< that have not
    unsigned most_silent_of_address = 16;    ///< of one peer: twice the mirrors that a switch can have
    std::optional<mirror::TlsFiles> tls{};   ///< none: plain
    std::chrono::milliseconds hello_within{10'000};   ///< the TLS handshake and a Hello
    std::uint64_t memory = 1024ull << 20;   ///< bytes of all rings together, with the fields that are kept
    SessionSpec session;
};

class Server {
public:
    /// Throws std::runtime_error where it cannot listen.
    explicit Server(ServerSpec spec);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    /// Until `stop` is readable. Then each file is as durable as promised up to its last acknowledged segment.
    /// `idle` is called once a second at least.
    void run(int stop, void (*idle)(const Counters&) = nullptr);

    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
    [[nodiscard]] unsigned port() const noexcept { return port_; }

    /// See Session::on_arrival.
    void (*on_arrival)(std::span<std::byte> segment, std::uint64_t sequence) = nullptr;

private:
    struct Connected {
        std::thread thread;
        std::string address;     ///< of the peer, without its port
        int descriptor = -1;     ///< of one that has not said Hello
        bool is_session = false, was_displaced = false, done = false;
    };

    void accept_switch();
    void make_room(const std::string& address);
    void displace_oldest(const std::string& address);
    [[nodiscard]] std::map<std::string, unsigned> silent() const;
    [[nodiscard]] mirror::Refuse why_no_hello(const mirror::MessageSocket& socket, const Error& error,
                                              const Connected& self);
    [[nodiscard]] std::optional<mirror::Refuse> admit(Connected& self);
    void tell_counters() const;
    void serve(mirror::MessageSocket socket, const std::string& peer, Connected& self) noexcept;
    void greet(mirror::MessageSocket& socket, const std::string& peer, Connected& self);
    [[nodiscard]] bool take_place(Session& session);
    void leave_place(Session& session);
    void reap_threads(bool all);

    static constexpr std::size_t most_known = 256;
    const ServerSpec spec_;
    Counters counters_;
    MemoryLimit memory_;
    int listener_ = -1, control_ = -1, stop_ = -1;
    unsigned port_ = 0;
    std::mutex mutex_;
    std::condition_variable place_free_;
    std::map<std::uint64_t, Session*> sessions_;   ///< that are being served
    std::map<std::uint64_t, KnownEnd> known_ends_;   ///< by session; most_known at most
    std::list<Connected> connected_;                 ///< the oldest first
    bool stopping_ = false;
};

}  // namespace ovsdr::drcollect
