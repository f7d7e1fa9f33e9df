// Addresses of a host, without waiting longer than somebody wants to.
//
// Model. A numeric address is taken as it is. A name is asked for by a thread of its own, since getaddrinfo() cannot be
// told to stop; whoever waits may give up, and the thread ends by itself when the resolver has answered. There are
// most_look_ups such threads at a time.
//
// Threads: any.
#pragma once

#include <netdb.h>

#include <chrono>
#include <memory>
#include <string>

#include "offload/dr/result.hpp"

namespace ovsdr::mirror {

inline constexpr unsigned most_look_ups = 8;

struct FreeAddresses {
    void operator()(addrinfo* addresses) const noexcept { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// For stream sockets; at least one. `stop`: becomes readable when nobody wants it any more; -1: never. Errors:
/// EHOSTUNREACH with the resolver's words, ETIMEDOUT, ECANCELED, EAGAIN where too many look-ups are under way.
[[nodiscard]] Result<Addresses> look_up(const std::string& host, const std::string& service,
                                        std::chrono::steady_clock::time_point end, int stop);

}  // namespace ovsdr::mirror
