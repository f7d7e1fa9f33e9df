#include "datapath/control/server.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "datapath/control/commands.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::size_t longest_line = 65536;
constexpr std::size_t most_unread = 16 << 20;
constexpr std::size_t most_clients = 32;

pid_t peer_of(int socket) noexcept {
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

}  // namespace

ControlServer::ControlServer(SoftNic& nic, const std::string& path) : nic_(nic), path_(path) {
    if (path.empty()) return;
    const SocketLock lock(path);
    const int result = lock.error() != 0 ? lock.error() : listen_on(path);
    if (result != 0) {
        fmt::print(stderr, "ovs-dr soft NIC: control_socket: {}; going on without one\n", socket_problem(path, result));
    }
}

int ControlServer::listen_on(const std::string& path) {
    const sockaddr_un address = socket_address(path);
    if (int result = free_socket_path(path, SOCK_STREAM)) return result;
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0) return errno;
    // Nobody can connect before listen(), so the mode is right in time.
    if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        chmod(path.c_str(), 0600) != 0 || listen(listener, 16) != 0) {
        const int result = errno;
        close(listener);
        return result;
    }
    listener_ = listener;
    return file_.remember(path);
}

ControlServer::~ControlServer() {
    for (const Client& client : clients_) close(client.socket);
    if (listener_ < 0) return;
    file_.remove();
    close(listener_);
}

void ControlServer::watch(std::vector<pollfd>& polled) const {
    if (listener_ >= 0 && clients_.size() < most_clients) polled.push_back({listener_, POLLIN, 0});
    for (const Client& client : clients_) {
        polled.push_back({client.socket, static_cast<short>(client.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    }
}

void ControlServer::handle(const std::vector<pollfd>& polled) {
    for (const pollfd& ready : polled) {
        if (ready.revents == 0) continue;
        if (ready.fd == listener_) accept_clients();
        const auto client = std::find_if(clients_.begin(), clients_.end(),
                                         [&](const Client& other) { return other.socket == ready.fd; });
        if (client == clients_.end()) continue;
        if ((ready.revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_requests(*client);
        write_answers(*client);
    }
    // A request of one client may have ended what another one holds.
    for (Client& client : clients_) {
        if (client.done || !client.session.capture) continue;
        if (const auto reason = client.session.capture->take_end()) {
            client.out += nlohmann::json{{"ended", *reason}}.dump() + '\n';
            write_answers(client);
        }
    }
    std::erase_if(clients_, [](const Client& client) {
        if (!client.done) return false;
        close(client.socket);
        return true;
    });
}

void ControlServer::accept_clients() {
    while (clients_.size() < most_clients) {
        const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket < 0) return;
        clients_.push_back({.socket = socket, .session = {.peer = peer_of(socket)}});
    }
}

void ControlServer::read_requests(Client& client) {
    char buffer[4096];
    ssize_t size;
    while ((size = recv(client.socket, buffer, sizeof buffer, 0)) > 0) {
        client.in.append(buffer, static_cast<std::size_t>(size));
        for (std::size_t end; (end = client.in.find('\n')) != std::string::npos;) {
            const std::string_view request = std::string_view(client.in).substr(0, end);
            client.out += answer(nic_, changes_, client.session, request) + '\n';
            client.in.erase(0, end + 1);
        }
        if (client.in.size() > longest_line || client.out.size() > most_unread) break;
    }
    const bool open = size < 0 && (errno == EAGAIN || errno == EINTR);
    if (!open) {
        write_answers(client);
        client.done = true;
    }
}

void ControlServer::write_answers(Client& client) {
    while (!client.out.empty()) {
        const ssize_t size = send_some(client);
        if (size < 0) {
            if (errno != EAGAIN && errno != EINTR) client.done = true;
            return;
        }
        client.out.erase(0, static_cast<std::size_t>(size));
    }
}

// A descriptor goes with the first byte that does.
ssize_t ControlServer::send_some(Client& client) noexcept {
    const int descriptor = client.session.descriptor;
    iovec part{client.out.data(), client.out.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)]{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof descriptor);
        std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    }
    const ssize_t size = sendmsg(client.socket, &message, MSG_NOSIGNAL);
    if (size > 0) client.session.descriptor = -1;
    return size;
}

}  // namespace ovsdr::soft
