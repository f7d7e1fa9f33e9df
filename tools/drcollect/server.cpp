#include "tools/drcollect/server.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace ovsdr::drcollect {
namespace {

using namespace mirror;
using namespace std::chrono_literals;

constexpr int crowded_poll_ms = 10;

std::runtime_error failure(const std::string& what) {
    return std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

int listen_at(const std::string& host, const std::string& port) {
    addrinfo wanted{}, *found = nullptr;
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = AI_PASSIVE;
    if (const int code = getaddrinfo(host.c_str(), port.c_str(), &wanted, &found); code != 0) {
        throw std::runtime_error(fmt::format("{}: {}", host, gai_strerror(code)));
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    const int descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    if (descriptor < 0 || setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(descriptor, found->ai_addr, found->ai_addrlen) != 0 || listen(descriptor, 16) != 0) {
        const auto error = failure(fmt::format("{} port {}", host, port));
        if (descriptor >= 0) close(descriptor);
        throw error;
    }
    return descriptor;
}

int listen_at_path(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) throw std::runtime_error(path + ": too long for a socket's name");
    path.copy(address.sun_path, path.size());
    const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) throw failure("socket");
    std::error_code ignored;   // bind() says what is wrong
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    unlink(path.c_str());   // what a killed collector left
    if (bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(descriptor, 4) != 0) {
        const auto error = failure(path);
        close(descriptor);
        throw error;
    }
    return descriptor;
}

std::string name_of_peer(const sockaddr_storage& address, socklen_t size) {
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return "?";
    }
    return fmt::format("{} port {}", host, port);
}

/// What one peer has one of: an IPv4 address, or the network half of an IPv6 address.
std::string address_of(const sockaddr_storage& address) {
    if (address.ss_family == AF_INET) {
        sockaddr_in ipv4{};
        std::memcpy(&ipv4, &address, sizeof ipv4);
        return {reinterpret_cast<const char*>(&ipv4.sin_addr), sizeof ipv4.sin_addr};
    }
    if (address.ss_family != AF_INET6) return {};
    sockaddr_in6 ipv6{};
    std::memcpy(&ipv6, &address, sizeof ipv6);
    const auto* const bytes = reinterpret_cast<const char*>(&ipv6.sin6_addr);
    return IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr) ? std::string(bytes + 12, 4) : std::string(bytes, 8);
}

unsigned port_of(int listener) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    char port[NI_MAXSERV];
    if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        getnameinfo(reinterpret_cast<sockaddr*>(&address), size, nullptr, 0, port, sizeof port, NI_NUMERICSERV) != 0) {
        throw failure("getsockname");
    }
    return static_cast<unsigned>(std::stoul(port));
}

}  // namespace

Server::Server(ServerSpec spec) : spec_(std::move(spec)), memory_(spec_.memory) {
    listener_ = listen_at(spec_.host, spec_.port);
    try {
        port_ = port_of(listener_);
        if (!spec_.control_socket.empty()) control_ = listen_at_path(spec_.control_socket);
        stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (stop_ < 0) throw failure("eventfd");
    } catch (...) {
        close(listener_);
        if (control_ >= 0) close(control_);
        throw;
    }
}

Server::~Server() {
    reap_threads(true);
    close(listener_);
    close(stop_);
    if (control_ >= 0) {
        close(control_);
        unlink(spec_.control_socket.c_str());
    }
}

void Server::run(int stop, void (*idle)(const Counters&)) {
    for (;;) {
        // A connection that was closed has its thread until that one finds out. Where others come faster, they wait
        // with the kernel.
        const bool has_room = connected_.size() < spec_.most_connections + 2 * spec_.most_silent;
        pollfd polled[] = {{stop, POLLIN, 0}, {has_room ? listener_ : -1, POLLIN, 0}, {control_, POLLIN, 0}};
        poll(polled, control_ >= 0 ? 3 : 2, has_room ? 1000 : crowded_poll_ms);
        if (polled[0].revents != 0) break;
        if (polled[1].revents != 0) accept_switch();
        if (control_ >= 0 && polled[2].revents != 0) tell_counters();
        reap_threads(false);
        if (idle != nullptr) idle(counters_);
    }
    reap_threads(true);
}

void Server::tell_counters() const {
    const int descriptor = accept4(control_, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0) return;
    const timeval patience{1, 0};
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    const std::string text = counters_.json().dump() + "\n";
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t size = send(descriptor, text.data() + done, text.size() - done, MSG_NOSIGNAL);
        if (size <= 0) break;
        done += static_cast<std::size_t>(size);
    }
    close(descriptor);
}

void Server::accept_switch() {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    const int descriptor = accept4(listener_, reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC);
    if (descriptor < 0) return;
    MessageSocket socket(descriptor);
    const std::lock_guard guard(mutex_);
    make_room(address_of(address));
    Connected& self = connected_.emplace_back();
    self.address = address_of(address);
    self.descriptor = descriptor;
    try {
        std::string peer = name_of_peer(address, size);
        self.thread = std::thread([this, socket = std::move(socket), peer = std::move(peer), &self]() mutable {
            serve(std::move(socket), peer, self);
        });
    } catch (const std::system_error& error) {
        connected_.pop_back();   // no thread to be had: the switch tries again
        counters_.refused(0, error.what());
    }
}

/// Connections that have not said Hello, by address.
std::map<std::string, unsigned> Server::silent() const {
    std::map<std::string, unsigned> silent;
    for (const Connected& one : connected_) {
        if (one.descriptor >= 0) ++silent[one.address];
    }
    return silent;
}

/// For one of `address` that has not said Hello.
void Server::make_room(const std::string& address) {
    const auto silent = this->silent();
    unsigned all = 0;
    auto most = silent.begin();
    for (auto it = silent.begin(); it != silent.end(); ++it) {
        all += it->second;
        if (it->second > most->second) most = it;
    }
    if (const auto its = silent.find(address); its != silent.end() && its->second >= spec_.most_silent_of_address) {
        displace_oldest(address);
    } else if (all >= spec_.most_silent) {
        displace_oldest(most->first);
    }
}

/// Its thread finds the socket closed, and ends. It closes the descriptor only when this one does not have it any more.
void Server::displace_oldest(const std::string& address) {
    for (Connected& one : connected_) {
        if (one.descriptor < 0 || one.address != address) continue;
        shutdown(std::exchange(one.descriptor, -1), SHUT_RDWR);
        one.was_displaced = true;
        return;
    }
}

void Server::serve(MessageSocket socket, const std::string& peer, Connected& self) noexcept {
    try {
        greet(socket, peer, self);
    } catch (const std::exception& error) {
        counters_.refused(0, peer + ": " + error.what());   // no memory: the switch tries again
    }
    const std::lock_guard guard(mutex_);
    self.descriptor = -1;
    self.done = true;
}

/// Gives who has said Hello a place, or says why there is none.
std::optional<Refuse> Server::admit(Connected& self) {
    const std::lock_guard guard(mutex_);
    const auto sessions = std::ranges::count_if(connected_, [](const Connected& one) {
        return one.is_session && !one.done;
    });
    if (static_cast<unsigned>(sessions) >= spec_.most_connections) {
        return Refuse{RefuseReason::busy, fmt::format("there are {} connections", sessions)};
    }
    self.descriptor = -1;
    self.is_session = true;
    return std::nullopt;
}

Refuse Server::why_no_hello(const MessageSocket& socket, const Error& error, const Connected& self) {
    const std::lock_guard guard(mutex_);
    if (self.was_displaced) return {RefuseReason::busy, "others came, and it had not said Hello"};
    return socket.malformed().value_or(Refuse{RefuseReason::malformed, error.what});
}

void Server::greet(MessageSocket& socket, const std::string& peer, Connected& self) {
    if (spec_.tls) {
        if (const auto secured = socket.secure(*spec_.tls); !secured) {
            return counters_.refused(0, peer + ": " + secured.error().what);
        }
    }
    auto first = socket.await(spec_.hello_within, stop_);
    const auto refuse = [&](const Refuse& why) {
        counters_.refused(0, peer + ": " + why.detail);
        (void)socket.send(why);   // with TLS: to a peer that is known only
    };
    if (!first) return refuse(why_no_hello(socket, first.error(), self));
    auto* const hello = std::get_if<Hello>(&*first);
    if (hello == nullptr) return refuse({RefuseReason::malformed, "a switch says Hello first"});
    if (const auto why = admit(self)) return refuse(*why);
    Session session(spec_.session, counters_, memory_, std::move(socket), peer, std::move(*hello));
    session.on_arrival = on_arrival;
    if (!take_place(session)) {
        return session.refuse({RefuseReason::busy, "the session's connection before has not ended"});
    }
    session.run();
    leave_place(session);
}

/// Waits for the session's connection before to end. It is told to: a switch has one at a time. It may be waiting for a
/// disk, with which the switch has the same patience here.
bool Server::take_place(Session& session) {
    std::unique_lock lock(mutex_);
    const auto before = sessions_.find(session.number());
    if (before != sessions_.end()) before->second->ask_to_stop();
    const SignOfLife::Rhythm& rhythm = spec_.session.sign_of_life;
    const auto end = std::chrono::steady_clock::now() + rhythm.patience;
    const auto is_free = [&] { return stopping_ || !sessions_.contains(session.number()); };
    while (!place_free_.wait_for(lock, rhythm.every, is_free)) {
        lock.unlock();
        const bool is_there = session.show_life();
        lock.lock();
        if (!is_there || std::chrono::steady_clock::now() >= end) return false;
    }
    if (stopping_) return false;
    sessions_[session.number()] = &session;
    if (auto known = known_ends_.extract(session.number())) session.know(std::move(known.mapped()));
    return true;
}

void Server::leave_place(Session& session) {
    const std::lock_guard guard(mutex_);
    sessions_.erase(session.number());
    if (auto known = session.known_end()) {
        if (known_ends_.size() >= most_known) known_ends_.erase(known_ends_.begin());   // its file is read again
        known_ends_.insert_or_assign(session.number(), std::move(*known));
    }
    place_free_.notify_all();
}

/// Threads that have ended; with `all`, every one, which is told to end.
void Server::reap_threads(bool all) {
    std::unique_lock lock(mutex_);
    if (all) {
        stopping_ = true;
        place_free_.notify_all();
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t size = write(stop_, &one, sizeof one);
        for (const auto& [number, session] : sessions_) session->ask_to_stop();
    }
    for (auto it = connected_.begin(); it != connected_.end();) {
        if (!all && !it->done) {
            ++it;
            continue;
        }
        // It takes the lock to say that it is done.
        lock.unlock();
        it->thread.join();
        lock.lock();
        it = connected_.erase(it);
    }
}

}  // namespace ovsdr::drcollect
