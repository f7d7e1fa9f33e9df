#include "offload/mirror/message_socket.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "offload/mirror/look_up.hpp"
#include "offload/mirror/wait_for.hpp"

namespace ovsdr::mirror {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t read_size = 4096;
// A peer that takes nothing must not make this process grow: a Progress has 20 bytes.
constexpr std::size_t most_to_send = 1 << 20;

Error failure(int code, const std::string& what) { return Error{code, what + ": " + std::strerror(code)}; }

/// Of the time that is left each address that is left has the same share: one that swallows SYNs leaves the others
/// theirs.
Clock::time_point end_of_attempt(const addrinfo& first, Clock::time_point end) {
    int left = 0;
    for (const addrinfo* address = &first; address != nullptr; address = address->ai_next) ++left;
    const auto now = Clock::now();
    return now + (end - now) / left;
}

/// What a socket with a port is, or is to be, connected as.
std::optional<TcpConnection> connection_of(int descriptor, const addrinfo& to) {
    sockaddr_storage local{}, peer{};
    socklen_t size = sizeof local;
    std::memcpy(&peer, to.ai_addr, to.ai_addrlen);
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &size) != 0) return std::nullopt;
    const auto theirs = tcp_end_of(peer), ours = tcp_end_of(local);
    if (!theirs || !ours) return std::nullopt;
    return TcpConnection{*theirs, *ours};
}

/// Gives the socket a port and registers the connection that it is to be, so that no mirror takes even its first
/// packet.
/// 0, or an errno.
int register_own(int descriptor, const addrinfo& address, OwnConnections::Registered& own) {
    sockaddr_storage any{};
    any.ss_family = static_cast<sa_family_t>(address.ai_family);
    if (bind(descriptor, reinterpret_cast<const sockaddr*>(&any), address.ai_addrlen) != 0) return errno;
    if (const auto connection = connection_of(descriptor, address)) own = own_connections().add(*connection);
    return 0;
}

/// 0, or an errno.
int connect_to(int descriptor, const addrinfo& address, int stop, Clock::time_point end,
               OwnConnections::Registered& own) {
    if (const int code = register_own(descriptor, address, own); code != 0) return code;
    const int begun = connect(descriptor, address.ai_addr, address.ai_addrlen);
    if (begun != 0 && errno != EINPROGRESS) return errno;
    if (const auto connection = connection_of(descriptor, address)) own.change(*connection);
    if (begun == 0) return 0;
    if (const int code = wait_for(descriptor, POLLOUT, stop, end); code != 0) return code;
    int code = 0;
    socklen_t size = sizeof code;
    return getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &size) == 0 ? code : errno;
}

}  // namespace

Result<MessageSocket> MessageSocket::connect(const std::string& host, const std::string& service,
                                             std::chrono::milliseconds within, int stop,
                                             std::unique_ptr<TlsFilter> tls) {
    const auto end = Clock::now() + within;
    const auto found = look_up(host, service, end, stop);
    if (!found) return tl::unexpected(found.error());
    int code = EHOSTUNREACH;
    for (const addrinfo* address = found->get(); address != nullptr; address = address->ai_next) {
        const auto its_end = end_of_attempt(*address, end);
        OwnConnections::Registered own;
        const int descriptor = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (descriptor < 0) {
            code = errno;
            continue;
        }
        code = connect_to(descriptor, *address, stop, its_end, own);
        if (code == 0) {
            MessageSocket made(descriptor);
            made.own_ = std::move(own);
            if (tls == nullptr) return made;
            made.tls_ = std::move(tls);
            if (auto done = made.shake_hands(end, stop); !done) return tl::unexpected(std::move(done.error()));
            return made;
        }
        close(descriptor);
        if (code == ECANCELED) break;
    }
    return tl::unexpected(failure(code, "connect"));
}

MessageSocket::MessageSocket(int descriptor) noexcept : descriptor_(descriptor) {
    fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
    // Some of these may be refused by a socket that is not TCP: it works all the same.
    const int on = 1, idle = 5, interval = 2, probes = 3;
    // The kernel does not ask a peer that has not acknowledged what it was sent: it is given as long.
    const unsigned unacknowledged_ms = (idle + interval * probes) * 1000;
    setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(descriptor_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(descriptor_, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(descriptor_, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(descriptor_, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(descriptor_, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
}

MessageSocket::MessageSocket(MessageSocket&& from) noexcept
    : descriptor_(std::exchange(from.descriptor_, -1)),
      own_(std::move(from.own_)),
      tls_(std::move(from.tls_)),
      reader_(std::move(from.reader_)),
      malformed_(std::move(from.malformed_)),
      received_(std::move(from.received_)),
      received_begin_(std::exchange(from.received_begin_, 0)),
      to_send_(std::move(from.to_send_)) {}

MessageSocket::~MessageSocket() {
    if (descriptor_ >= 0) close(descriptor_);
}

short MessageSocket::events() const noexcept {
    return static_cast<short>(to_send_.empty() ? POLLIN : POLLIN | POLLOUT);
}

Result<void> MessageSocket::secure(const TlsFiles& files) {
    auto filter = TlsFilter::create(files, TlsRole::server);
    if (!filter) return tl::unexpected(std::move(filter.error()));
    tls_ = std::move(*filter);
    return {};
}

/// As the client: the collector never speaks first, so that a message before ours is a mistake.
Result<void> MessageSocket::shake_hands(Clock::time_point end, int stop) {
    auto done = tls_->begin(to_send_);
    if (done) done = flush();
    while (done && !tls_->established()) {
        const auto message = receive();
        if (!message) return tl::unexpected(message.error());
        if (*message) return tl::unexpected(Error{EPROTO, "the collector speaks before it is spoken to"});
        if (tls_->established()) break;
        if (const int code = wait_for(descriptor_, events(), stop, end); code != 0) {
            return tl::unexpected(failure(code, "TLS: waiting for the peer"));
        }
        done = flush();
    }
    return done;
}

Result<void> MessageSocket::send(const Message& message) {
    const auto bytes = encode(message);
    if (to_send_.size() + bytes.size() > most_to_send) {
        return tl::unexpected(Error{ENOBUFS, "the peer reads nothing of what it is told"});
    }
    if (tls_ == nullptr) {
        to_send_.insert(to_send_.end(), bytes.begin(), bytes.end());
    } else if (auto written = tls_->write(bytes, to_send_); !written) {
        return written;
    }
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
        std::span<const std::byte> left(received_.data() + received_begin_, received_.size() - received_begin_);
        if (!left.empty()) {
            auto message = reader_.read(left);
            received_begin_ = received_.size() - left.size();
            if (!message) {
                malformed_ = message.error();
                return tl::unexpected(Error{EPROTO, message.error().detail});
            }
            if (*message) return std::move(*message);
        }
        const auto some = read_some();
        if (!some) return tl::unexpected(some.error());
        if (!*some) return std::nullopt;
    }
}

/// Everything in received_ has been taken.
Result<bool> MessageSocket::read_some() {
    std::array<std::byte, read_size> bytes;
    ssize_t size = -1;
    do size = recv(descriptor_, bytes.data(), bytes.size(), 0);
    while (size < 0 && errno == EINTR);
    if (size == 0) return tl::unexpected(Error{ECONNRESET, "the peer has closed the connection"});
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (size < 0) return tl::unexpected(failure(errno, "handshake"));
    const auto came = std::span<const std::byte>(bytes).first(static_cast<std::size_t>(size));
    received_.clear();
    received_begin_ = 0;
    if (tls_ == nullptr) {
        received_.assign(came.begin(), came.end());
        return true;
    }
    auto taken = tls_->take(came, received_, to_send_);
    if (taken && to_send_.size() > most_to_send) {
        taken = tl::unexpected(Error{ENOBUFS, "the peer reads nothing of what it is told"});
    }
    auto flushed = flush();   // what is wrong is told to the peer as well
    if (!taken) return tl::unexpected(std::move(taken.error()));
    if (!flushed) return tl::unexpected(std::move(flushed.error()));
    return true;
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
