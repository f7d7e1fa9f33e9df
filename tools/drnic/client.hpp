// A connection to a running soft NIC's control socket. The protocol: datapath/control/commands.hpp.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace ovsdr::drnic {

/// What went wrong, in words for the person at the terminal.
class Failure : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// The socket to use when none is given: that of the configuration which OVSDR_SOFTNIC names (or the one under
/// /etc/ovs-dr), the built-in default where there is no such file.
[[nodiscard]] std::string default_socket();

/// Sends one request and returns the answer. Throws Failure: nobody there, no answer within 30 s (opening a port takes
/// a while), or an answer that says so.
[[nodiscard]] nlohmann::json request(const std::string& socket, const nlohmann::json& request);

}  // namespace ovsdr::drnic
