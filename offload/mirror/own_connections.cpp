#include "offload/mirror/own_connections.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace ovsdr::mirror {
namespace {

// Longer than the kernel keeps a connection that it has closed (TCP_TIMEWAIT_LEN, and tcp_fin_timeout's default).
constexpr std::chrono::seconds kept_after_end{60};

}  // namespace

std::optional<TcpEnd> tcp_end_of(const sockaddr_storage& address) noexcept {
    if (address.ss_family == AF_INET) {
        sockaddr_in v4;
        std::memcpy(&v4, &address, sizeof v4);
        TcpEnd end{ntohs(v4.sin_port), {}};
        if (v4.sin_addr.s_addr == INADDR_ANY) return end;
        end.address[10] = end.address[11] = 0xff;
        std::memcpy(&end.address[12], &v4.sin_addr, 4);
        return end;
    }
    if (address.ss_family == AF_INET6) {
        sockaddr_in6 v6;
        std::memcpy(&v6, &address, sizeof v6);
        TcpEnd end{ntohs(v6.sin6_port), {}};
        std::memcpy(end.address.data(), &v6.sin6_addr, end.address.size());
        return end;
    }
    return std::nullopt;
}

OwnConnections::Registered::Registered(Registered&& from) noexcept : entry_(std::exchange(from.entry_, std::nullopt)) {}

OwnConnections::Registered& OwnConnections::Registered::operator=(Registered&& from) noexcept {
    std::swap(entry_, from.entry_);
    return *this;
}

OwnConnections::Registered::~Registered() {
    if (!entry_) return;
    const std::lock_guard guard(own_connections().mutex_);
    (*entry_)->ended = std::chrono::steady_clock::now();
}

void OwnConnections::Registered::change(const TcpConnection& connection) {
    if (!entry_) return;
    const std::lock_guard guard(own_connections().mutex_);
    (*entry_)->connection = connection;
    own_connections().tell();
}

OwnConnections::Registered OwnConnections::add(const TcpConnection& connection) {
    const std::lock_guard guard(mutex_);
    const auto now = std::chrono::steady_clock::now();
    std::erase_if(entries_, [now](const auto& entry) { return entry.ended && now - *entry.ended > kept_after_end; });
    entries_.push_back({connection});
    Registered registered(std::prev(entries_.end()));
    tell();
    return registered;
}

/// With the lock.
void OwnConnections::tell() {
    auto all = std::make_shared<std::set<TcpConnection>>();
    for (const auto& entry : entries_) all->insert(entry.connection);
    all_ = std::move(all);
    version_.fetch_add(1, std::memory_order_release);
}

bool OwnConnections::Look::has(std::span<const std::byte> frame) noexcept {
    OwnConnections& own = own_connections();
    if (own.version_.load(std::memory_order_acquire) != version_) {
        const std::lock_guard guard(own.mutex_);
        known_ = own.all_;
        version_ = own.version_.load(std::memory_order_relaxed);
    }
    if (known_ == nullptr) return false;
    const auto ends = tcp_ends(frame);
    if (!ends) return false;
    const auto is_known = [&](const TcpEnd& theirs, const TcpEnd& ours) {
        return known_->contains({theirs, ours}) || known_->contains({theirs, {ours.port, {}}});
    };
    return is_known(ends->destination, ends->source) || is_known(ends->source, ends->destination);
}

OwnConnections& own_connections() {
    static auto* instance = new OwnConnections;
    return *instance;
}

}  // namespace ovsdr::mirror
