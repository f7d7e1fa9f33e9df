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

class Connection {
public:
    explicit Connection(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
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
    ~Connection() { close(socket_); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void send_line(std::string line) {
        line += '\n';
        for (std::size_t at = 0; at < line.size();) {
            const ssize_t size = send(socket_, line.data() + at, line.size() - at, MSG_NOSIGNAL);
            if (size < 0) throw Failure(fmt::format("the soft NIC hung up: {}", std::strerror(errno)));
            at += static_cast<std::size_t>(size);
        }
    }

    std::string receive_line() {
        std::string line;
        char buffer[65536];
        while (line.empty() || line.back() != '\n') {
            const ssize_t size = recv(socket_, buffer, sizeof buffer, 0);
            if (size == 0) throw Failure("the soft NIC hung up without an answer");
            if (size < 0 && errno == EINTR) continue;
            if (size < 0) throw Failure(fmt::format("no answer: {}", std::strerror(errno)));
            line.append(buffer, static_cast<std::size_t>(size));
        }
        return line;
    }

private:
    int socket_;
};

}  // namespace

std::string default_socket() {
    const char* path = std::getenv("OVSDR_SOFTNIC");
    std::ifstream file(path != nullptr && *path != '\0' ? path : "/etc/ovs-dr/softnic.json");
    const nlohmann::json config = nlohmann::json::parse(file, nullptr, false);
    if (!config.is_object()) return built_in_socket;
    const auto socket = config.find("control_socket");
    return socket != config.end() && socket->is_string() ? socket->get<std::string>() : built_in_socket;
}

nlohmann::json request(const std::string& socket, const nlohmann::json& request) {
    Connection connection(socket);
    connection.send_line(request.dump());
    const nlohmann::json answer = nlohmann::json::parse(connection.receive_line(), nullptr, false);
    if (!answer.is_object() || !answer.contains("ok")) throw Failure("the answer is not that of a soft NIC");
    if (answer["ok"] != true) throw Failure(answer.value("error", "the soft NIC gives no reason"));
    return answer;
}

}  // namespace ovsdr::drnic
