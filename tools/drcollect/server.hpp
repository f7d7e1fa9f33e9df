// The collector: listens for switches, and has a thread for each that is there.
//
// Model. It listens at one address and nowhere else. With TLS, who shows no certificate that the CA has signed is told
// nothing of this program's, not even why it is refused; the files are read for each connection. A connection that has
// not said a whole Hello within ten seconds is closed; a session that comes back takes the place of its connection
// before, which the switch has given up. Whoever opens the control socket is told what has been counted, as JSON, and
// nothing is read from it.
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
    unsigned most_connections = 64;
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
        bool done = false;
    };

    void accept_switch();
    void tell_counters() const;
    void serve(mirror::MessageSocket socket, const std::string& peer, Connected& self) noexcept;
    void greet(mirror::MessageSocket& socket, const std::string& peer);
    [[nodiscard]] bool take_place(Session& session);
    void leave_place(const Session& session);
    void reap_threads(bool all);

    const ServerSpec spec_;
    Counters counters_;
    MemoryLimit memory_;
    int listener_ = -1, control_ = -1, stop_ = -1;
    unsigned port_ = 0;
    std::mutex mutex_;
    std::condition_variable place_free_;
    std::map<std::uint64_t, Session*> sessions_;   ///< that are being served
    std::list<Connected> connected_;
    bool stopping_ = false;
};

}  // namespace ovsdr::drcollect
