// A connection to a running soft NIC's control socket. The protocol: datapath/control/commands.hpp.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace ovsdr::drnic {

/// What went wrong, in words for the person at the terminal.
class Failure : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// The socket to use when none is given: that of the configuration which OVSDR_SOFTNIC names (or the one under
/// /etc/ovs-dr), the built-in default where there is no such file.
[[nodiscard]] std::string default_socket();

/// For those who have more to say than one request. Functions throw Failure.
class Connection {
public:
    explicit Connection(const std::string& path);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// As request() below. A line that says that something has ended, and is no answer, is passed over.
    nlohmann::json ask(const nlohmann::json& request);

    /// With its newline; waits for at most 30 s.
    [[nodiscard]] std::string receive_line();

    /// What came with an answer, -1 for nothing. The caller's from now on.
    [[nodiscard]] int take_descriptor() noexcept { return std::exchange(descriptor_, -1); }

    /// To poll: readable when receive_line() has something to read.
    [[nodiscard]] int socket() const noexcept { return socket_; }

private:
    void send_line(std::string line);
    ssize_t receive_some();

    int socket_;
    int descriptor_ = -1;
    std::string received_;
};

/// Sends one request and returns the answer. Throws Failure: nobody there, no answer within 30 s (opening a port takes
/// a while), or an answer that says so.
[[nodiscard]] nlohmann::json request(const std::string& socket, const nlohmann::json& request);

}  // namespace ovsdr::drnic
