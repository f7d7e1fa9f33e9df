// Requests and replies between two guests, for tests/bench/slow_path: what a program sees of a switch's slow path.
//
//   exchanges serve PORT                           answers datagrams and connections until it is killed
//   exchanges datagrams ADDRESS PORT COUNT LEAST_US MOST_US one|new
//       One request after the other, with a pause of LEAST_US to MOST_US before each, from one source port or each from
//       a new one. Prints the microseconds that each took, or "lost".
//   exchanges connections ADDRESS PORT SECONDS AT_A_TIME
//       TCP connections, each from a source port of its own: one segment there, one back, then a reset, so that no side
//       keeps the port. Prints how many were whole, and in how many seconds.
//
// Source ports go round from 10000 to 59999.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::uint16_t first_source_port = 10000, last_source_port = 59999;
constexpr auto longest_wait = 1s;   // for a reply
constexpr std::string_view request = "request";

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

int check(int result, const char* what) {
    if (result < 0) fail(what);
    return result;
}

sockaddr_in address_of(const char* text, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (inet_pton(AF_INET, text, &address.sin_addr) != 1) throw std::invalid_argument("no IPv4 address");
    return address;
}

int bound_socket(int type, std::uint16_t port) {
    const int descriptor = check(socket(AF_INET, type | SOCK_CLOEXEC, 0), "socket");
    const int on = 1;
    check(setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
    const sockaddr_in address = address_of("0.0.0.0", port);
    check(bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
    return descriptor;
}

/// Sockets from one source port after the other. One that cannot be had (of a connection that still ends) is left out.
class SourcePorts {
public:
    /// The ports go on where the last process's of this seed ended, more or less: megaflows of those may be there yet.
    SourcePorts() : next_(static_cast<std::uint16_t>(first_source_port + getpid() * 7919L % 50000)) {}

    int open(int type) {
        for (;;) {
            try {
                return bound_socket(type, take());
            } catch (const std::system_error& error) {
                if (error.code().value() != EADDRINUSE) throw;
            }
        }
    }

private:
    std::uint16_t take() {
        const std::uint16_t port = next_;
        next_ = port == last_source_port ? first_source_port : static_cast<std::uint16_t>(port + 1);
        return port;
    }
    std::uint16_t next_;
};

void watch(int epoll, int descriptor, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = descriptor;
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event), "epoll_ctl");
}

void answer_datagram(int descriptor) {
    std::array<char, 64> bytes;
    sockaddr_in from{};
    socklen_t size = sizeof from;
    auto* const address = reinterpret_cast<sockaddr*>(&from);
    const ssize_t length = recvfrom(descriptor, bytes.data(), bytes.size(), 0, address, &size);
    if (length < 0) return;
    (void)sendto(descriptor, bytes.data(), static_cast<std::size_t>(length), 0, address, size);
}

/// The client ends connections: what is read then is an error or the end.
void answer_connection(int descriptor) {
    std::array<char, 64> bytes;
    const ssize_t length = read(descriptor, bytes.data(), bytes.size());
    if (length <= 0 || write(descriptor, bytes.data(), static_cast<std::size_t>(length)) != length) close(descriptor);
}

[[noreturn]] void serve(std::uint16_t port) {
    const int datagrams = bound_socket(SOCK_DGRAM, port), listener = bound_socket(SOCK_STREAM | SOCK_NONBLOCK, port);
    check(listen(listener, 4096), "listen");
    const int epoll = check(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    watch(epoll, datagrams, EPOLLIN);
    watch(epoll, listener, EPOLLIN);
    for (;;) {
        std::array<epoll_event, 64> events;
        const int length = epoll_wait(epoll, events.data(), events.size(), -1);
        for (int i = 0; i < length; ++i) {
            const int descriptor = events[static_cast<std::size_t>(i)].data.fd;
            if (descriptor == datagrams) {
                answer_datagram(descriptor);
            } else if (descriptor == listener) {
                const int accepted = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (accepted >= 0) watch(epoll, accepted, EPOLLIN);
            } else {
                answer_connection(descriptor);
            }
        }
    }
}

void set_time_limit(int descriptor) {
    const timeval limit{.tv_sec = longest_wait / 1s, .tv_usec = 0};
    check(setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), "SO_RCVTIMEO");
}

struct Pauses {
    std::chrono::microseconds least, most;
};

void exchange_datagrams(const sockaddr_in& to, unsigned count, Pauses pauses, bool new_ports) {
    std::mt19937 random(1);
    std::uniform_int_distribution<long> pause(pauses.least.count(), pauses.most.count());
    SourcePorts ports;
    int descriptor = -1;
    for (unsigned i = 0; i < count; ++i) {
        if (new_ports || descriptor < 0) {
            if (descriptor >= 0) close(descriptor);
            descriptor = ports.open(SOCK_DGRAM);
            set_time_limit(descriptor);
            check(connect(descriptor, reinterpret_cast<const sockaddr*>(&to), sizeof to), "connect");
        }
        if (pauses.most > 0us) std::this_thread::sleep_for(std::chrono::microseconds(pause(random)));
        std::array<char, 64> bytes;
        const auto begin = Clock::now();
        check(static_cast<int>(send(descriptor, request.data(), request.size(), 0)), "send");
        const ssize_t length = recv(descriptor, bytes.data(), bytes.size(), 0);
        const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
        if (length < 0) {
            fmt::print("lost\n");
        } else {
            fmt::print("{:.1f}\n", took.count());
        }
    }
    close(descriptor);
}

class Connections {
public:
    explicit Connections(const sockaddr_in& to) : to_(to) {}

    void run(std::chrono::seconds time, unsigned at_a_time) {
        const auto begin = Clock::now();
        for (unsigned i = 0; i < at_a_time; ++i) open_one();
        while (Clock::now() - begin < time) {
            std::array<epoll_event, 64> events;
            const int length = epoll_wait(epoll_, events.data(), events.size(), 100);
            for (int i = 0; i < length; ++i) go_on(events[static_cast<std::size_t>(i)]);
        }
        const std::chrono::duration<double> seconds = Clock::now() - begin;
        fmt::print("{} {:.4f} {}\n", whole_, seconds.count(), failed_);
    }

private:
    void open_one() {
        const int descriptor = ports_.open(SOCK_STREAM | SOCK_NONBLOCK);
        const linger reset{.l_onoff = 1, .l_linger = 0};
        check(setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), "SO_LINGER");
        if (connect(descriptor, reinterpret_cast<const sockaddr*>(&to_), sizeof to_) != 0 && errno != EINPROGRESS) {
            fail("connect");
        }
        watch(epoll_, descriptor, EPOLLOUT);
    }

    void go_on(const epoll_event& event) {
        const int descriptor = event.data.fd;
        if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) {
            end(descriptor, failed_);
        } else if ((event.events & EPOLLOUT) != 0) {
            if (write(descriptor, request.data(), request.size()) < 0) return end(descriptor, failed_);
            epoll_event next{};
            next.events = EPOLLIN;
            next.data.fd = descriptor;
            check(epoll_ctl(epoll_, EPOLL_CTL_MOD, descriptor, &next), "epoll_ctl");
        } else {
            std::array<char, 64> bytes;
            const bool answered = read(descriptor, bytes.data(), bytes.size()) > 0;
            end(descriptor, answered ? whole_ : failed_);
        }
    }

    void end(int descriptor, std::uint64_t& counter) {
        ++counter;
        close(descriptor);
        open_one();
    }

    const sockaddr_in to_;
    const int epoll_ = check(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
    SourcePorts ports_;
    std::uint64_t whole_ = 0, failed_ = 0;
};

unsigned number(const char* text) { return static_cast<unsigned>(std::strtoul(text, nullptr, 10)); }

}  // namespace

int main(int argc, char** argv) try {
    const std::string_view what = argc > 1 ? argv[1] : "";
    const auto to = [&] { return address_of(argv[2], static_cast<std::uint16_t>(number(argv[3]))); };
    if (what == "serve" && argc == 3) serve(static_cast<std::uint16_t>(number(argv[2])));
    if (what == "datagrams" && argc == 8) {
        exchange_datagrams(to(), number(argv[4]), {std::chrono::microseconds(number(argv[5])),
                                                   std::chrono::microseconds(number(argv[6]))},
                           std::string_view(argv[7]) == "new");
    } else if (what == "connections" && argc == 6) {
        Connections(to()).run(std::chrono::seconds(number(argv[4])), number(argv[5]));
    } else {
        fmt::print(stderr, "see the head of exchanges.cpp\n");
        return 2;
    }
    return 0;
} catch (const std::exception& error) {
    fmt::print(stderr, "exchanges: {}\n", error.what());
    return 1;
}
