#include "offload/mirror/look_up.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "offload/mirror/wait_for.hpp"

namespace ovsdr::mirror {
namespace {

std::atomic<unsigned> look_ups_under_way{0};

/// What a look-up's thread and whoever waits for it both own.
struct LookUp {
    LookUp() : answered(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { ++look_ups_under_way; }
    ~LookUp() {
        if (answered >= 0) close(answered);
        --look_ups_under_way;
    }
    LookUp(const LookUp&) = delete;
    LookUp& operator=(const LookUp&) = delete;

    const int answered;   ///< eventfd: code and found are there
    int code = 0;
    Addresses found;
};

Error unknown_host(const std::string& host, int code) {
    return {EHOSTUNREACH, host + ": " + (code == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(code))};
}

addrinfo stream_sockets(int flags) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = flags;
    return wanted;
}

}  // namespace

Result<Addresses> look_up(const std::string& host, const std::string& service,
                          std::chrono::steady_clock::time_point end, int stop) {
    addrinfo* found = nullptr;
    const addrinfo numeric = stream_sockets(AI_NUMERICHOST | AI_NUMERICSERV);
    if (getaddrinfo(host.c_str(), service.c_str(), &numeric, &found) == 0) return Addresses(found);
    if (look_ups_under_way >= most_look_ups) {
        return tl::unexpected(Error{EAGAIN, host + ": the resolver has not answered earlier questions yet"});
    }
    const auto look_up = std::make_shared<LookUp>();
    if (look_up->answered < 0) return tl::unexpected(Error{errno, host + ": no eventfd"});
    try {
        std::thread([look_up, host, service] {
            const addrinfo wanted = stream_sockets(0);
            addrinfo* addresses = nullptr;
            look_up->code = getaddrinfo(host.c_str(), service.c_str(), &wanted, &addresses);
            if (look_up->code == 0) look_up->found.reset(addresses);
            eventfd_write(look_up->answered, 1);
        }).detach();
    } catch (const std::system_error& error) {
        return tl::unexpected(Error{error.code().value(), host + ": no thread to look it up"});
    }
    if (const int code = wait_for(look_up->answered, POLLIN, stop, end); code != 0) {
        return tl::unexpected(Error{code, host + ": looking it up: " + std::strerror(code)});
    }
    eventfd_t ignored;
    eventfd_read(look_up->answered, &ignored);
    if (look_up->code != 0) return tl::unexpected(unknown_host(host, look_up->code));
    return std::move(look_up->found);
}

}  // namespace ovsdr::mirror
