// A peer that is gone without a word, in a network namespace of the test's own: its loopback goes down.
#include "offload/mirror/message_socket.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace ovsdr::mirror {
namespace {

using namespace std::chrono_literals;

bool set_loopback(bool up) {
    const int descriptor = socket(AF_INET, SOCK_DGRAM, 0);
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = up ? IFF_UP : 0;
    const bool done = ioctl(descriptor, SIOCSIFFLAGS, &request) == 0;
    close(descriptor);
    return done;
}

TEST(MessageSocket, WhoAcknowledgesNothingIsGone) {
    if (unshare(CLONE_NEWNET) != 0 || !set_loopback(true)) GTEST_SKIP() << "no right to make a network namespace";
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
    auto here = MessageSocket::connect("127.0.0.1", std::to_string(ntohs(address.sin_port)), 5s, -1);
    ASSERT_TRUE(here) << here.error().what;
    const MessageSocket there(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    close(listener);

    ASSERT_TRUE(set_loopback(false));
    ASSERT_TRUE(here->send(Progress{1}));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(here->await(60s, -1));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
}

}  // namespace
}  // namespace ovsdr::mirror
