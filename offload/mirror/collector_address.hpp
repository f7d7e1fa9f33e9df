// Where a collector listens for the handshake.
//
// Threads: values.
#pragma once

#include <string>

namespace ovsdr::mirror {

struct CollectorAddress {
    std::string host, service;   ///< a name or an address without brackets; a port's number or name

    bool operator==(const CollectorAddress&) const = default;
};

/// HOST:PORT, an IPv6 address in brackets.
[[nodiscard]] inline std::string text_of(const CollectorAddress& address) {
    const bool brackets = address.host.find(':') != std::string::npos;
    return (brackets ? "[" + address.host + "]" : address.host) + ":" + address.service;
}

}  // namespace ovsdr::mirror
