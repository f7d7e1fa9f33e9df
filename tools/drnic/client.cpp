#include "tools/drnic/client.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace ovsdr::drnic {
namespace {

constexpr auto built_in_socket = "/run/ovs-dr/softnic.sock";

}  // namespace

std::string default_socket() {
    const char* path = std::getenv("OVSDR_SOFTNIC");
    std::ifstream file(path != nullptr && *path != '\0' ? path : "/etc/ovs-dr/softnic.json");
    const nlohmann::json config = nlohmann::json::parse(file, nullptr, false);
    if (!config.is_object()) return built_in_socket;
    const auto socket = config.find("control_socket");
    return socket != config.end() && socket->is_string() ? socket->get<std::string>() : built_in_socket;
}

Connection::Connection(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        throw Failure(fmt::format("--socket {}: longer than the {} bytes of a socket's path", path,
                                  sizeof address.sun_path - 1));
    }
    path.copy(address.sun_path, path.size());
    const timeval patience{.tv_sec = 30, .tv_usec = 0};
    (void)setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        const int error = errno;
        close(socket_);
        throw Failure(fmt::format("no soft NIC at {}: {}{}", path, std::strerror(error),
                                  error == EACCES ? "" : " (is it running? --socket names another one)"));
    }
}

Connection::~Connection() {
    close(socket_);
    if (descriptor_ >= 0) close(descriptor_);
}

void Connection::send_line(std::string line) {
    line += '\n';
    for (std::size_t at = 0; at < line.size();) {
        const ssize_t size = send(socket_, line.data() + at, line.size() - at, MSG_NOSIGNAL);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) throw Failure(fmt::format("the soft NIC hung up: {}", std::strerror(errno)));
        at += static_cast<std::size_t>(size);
    }
}

std::string Connection::receive_line() {
    std::size_t end;
    while ((end = received_.find('\n')) == std::string::npos) {
        const ssize_t size = receive_some();
        if (size == 0) throw Failure("the soft NIC hung up without an answer");
        if (size < 0 && errno != EINTR) throw Failure(fmt::format("no answer: {}", std::strerror(errno)));
    }
    std::string line = received_.substr(0, end + 1);
    received_.erase(0, end + 1);
    return line;
}

ssize_t Connection::receive_some() {
    char buffer[65536];
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{buffer, sizeof buffer};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t size = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    if (size <= 0) return size;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS && descriptor_ < 0) {
        std::memcpy(&descriptor_, CMSG_DATA(header), sizeof descriptor_);
    }
    received_.append(buffer, static_cast<std::size_t>(size));
    return size;
}

nlohmann::json Connection::ask(const nlohmann::json& request) {
    send_line(request.dump());
    nlohmann::json answer;
    do {
        answer = nlohmann::json::parse(receive_line(), nullptr, false);
    } while (answer.is_object() && answer.contains("ended"));
    if (!answer.is_object() || !answer.contains("ok")) throw Failure("the answer is not that of a soft NIC");
    if (answer["ok"] != true) throw Failure(answer.value("error", "the soft NIC gives no reason"));
    return answer;
}

nlohmann::json request(const std::string& socket, const nlohmann::json& request) {
    return Connection(socket).ask(request);
}

}  // namespace ovsdr::drnic
