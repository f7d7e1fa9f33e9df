#include "offload/mirror/message_socket.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace ovsdr::mirror {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t read_size = 4096;
// A peer that takes nothing must not make this process grow: a Progress has 20 bytes.
constexpr std::size_t most_to_send = 1 << 20;

Error failure(int code, const std::string& what) { return Error{code, what + ": " + std::strerror(code)}; }

/// 0 when `descriptor` is ready, or an errno.
int wait_for(int descriptor, short events, int stop, Clock::time_point end) {
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
        if (left <= 0) return ETIMEDOUT;
        pollfd polled[] = {{descriptor, events, 0}, {stop, POLLIN, 0}};
        const int ready = poll(polled, stop < 0 ? 1 : 2, static_cast<int>(left));
        if (ready < 0 && errno != EINTR) return errno;
        if (ready > 0 && stop >= 0 && polled[1].revents != 0) return ECANCELED;
        if (ready > 0 && polled[0].revents != 0) return 0;
    }
}

/// 0, or an errno.
int connect_to(int descriptor, const addrinfo& address, int stop, Clock::time_point end) {
    if (connect(descriptor, address.ai_addr, address.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    if (const int code = wait_for(descriptor, POLLOUT, stop, end); code != 0) return code;
    int code = 0;
    socklen_t size = sizeof code;
    return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &size) == 0 ? code : errno;
}

}  // namespace

Result<MessageSocket> MessageSocket::connect(const std::string& host, const std::string& service,
                                             std::chrono::milliseconds within, int stop) {
    const auto end = Clock::now() + within;
    addrinfo wanted{}, *found = nullptr;
    wanted.ai_socktype = SOCK_STREAM;
    if (const int code = getaddrinfo(host.c_str(), service.c_str(), &wanted, &found); code != 0) {
        return tl::unexpected(Error{EHOSTUNREACH, host + ": " + gai_strerror(code)});
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    int code = EHOSTUNREACH;
    for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
        const int descriptor = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (descriptor < 0) {
            code = errno;
            continue;
        }
        code = connect_to(descriptor, *address, stop, end);
        if (code == 0) return MessageSocket(descriptor);
        close(descriptor);
        if (code == ECANCELED) break;
    }
    return tl::unexpected(failure(code, host + " port " + service));
}

MessageSocket::MessageSocket(int descriptor) noexcept : descriptor_(descriptor) {
    fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
    // Some of these may be refused by a socket that is not TCP: it works all the same.
    const int on = 1, idle = 5, interval = 2, probes = 3;
    setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(descriptor_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(descriptor_, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(descriptor_, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(descriptor_, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

MessageSocket::MessageSocket(MessageSocket&& from) noexcept
    : descriptor_(std::exchange(from.descriptor_, -1)),
      reader_(std::move(from.reader_)),
      malformed_(std::move(from.malformed_)),
      received_(std::move(from.received_)),
      received_begin_(std::exchange(from.received_begin_, 0)),
      received_end_(std::exchange(from.received_end_, 0)),
      to_send_(std::move(from.to_send_)) {}

MessageSocket::~MessageSocket() {
    if (descriptor_ >= 0) close(descriptor_);
}

short MessageSocket::events() const noexcept {
    return static_cast<short>(to_send_.empty() ? POLLIN : POLLIN | POLLOUT);
}

Result<void> MessageSocket::send(const Message& message) {
    const auto bytes = encode(message);
    if (to_send_.size() + bytes.size() > most_to_send) {
        return tl::unexpected(Error{ENOBUFS, "the peer reads nothing of what it is told"});
    }
    to_send_.insert(to_send_.end(), bytes.begin(), bytes.end());
    return flush();
}

Result<void> MessageSocket::flush() {
    while (!to_send_.empty()) {
        const ssize_t size = ::send(descriptor_, to_send_.data(), to_send_.size(), MSG_NOSIGNAL);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
        if (size < 0) return tl::unexpected(failure(errno, "handshake"));
        to_send_.erase(to_send_.begin(), to_send_.begin() + size);
    }
    return {};
}

Result<std::optional<Message>> MessageSocket::receive() {
    for (;;) {
        std::span<const std::byte> left(received_.data() + received_begin_, received_end_ - received_begin_);
        if (!left.empty()) {
            auto message = reader_.read(left);
            received_begin_ = received_end_ - left.size();
            if (!message) {
                malformed_ = message.error();
                return tl::unexpected(Error{EPROTO, message.error().detail});
            }
            if (*message) return std::move(*message);
        }
        received_.resize(read_size);
        const ssize_t size = recv(descriptor_, received_.data(), received_.size(), 0);
        received_begin_ = 0;
        received_end_ = size > 0 ? static_cast<std::size_t>(size) : 0;
        if (size > 0) continue;
        if (size == 0) return tl::unexpected(Error{ECONNRESET, "the peer has closed the connection"});
        if (errno == EINTR) continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
        return tl::unexpected(failure(errno, "handshake"));
    }
}

Result<Message> MessageSocket::await(std::chrono::milliseconds within, int stop) {
    const auto end = Clock::now() + within;
    for (;;) {
        auto message = receive();
        if (!message) return tl::unexpected(std::move(message.error()));
        if (*message) return std::move(**message);
        if (const int code = wait_for(descriptor_, events(), stop, end); code != 0) {
            return tl::unexpected(failure(code, "waiting for the peer"));
        }
        if (auto flushed = flush(); !flushed) return tl::unexpected(std::move(flushed.error()));
    }
}

}  // namespace ovsdr::mirror
