// A guest's end of a vport: a socket on a network interface.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "datapath/ports/unfinished.hpp"
#include "nic_fixture.hpp"

namespace ovsdr::soft {

inline void shell(const std::string& command) {
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
}

/// Sees frames of one Ethernet type only.
class Guest {
public:
    explicit Guest(const std::string& interface) : socket_(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(0x88b5))) {
        sockaddr_ll address{};
        address.sll_family = AF_PACKET;
        address.sll_protocol = htons(0x88b5);
        address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
        EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    }
    ~Guest() { close(socket_); }
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;

    static constexpr std::size_t number_at = 14;

    /// `number`: what the frame carries, where there is room for it.
    void send(std::size_t size, std::uint32_t number = 0) {
        std::vector<char> frame(size);
        std::memcpy(frame.data(), "\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x88\xb5", 14);
        if (size >= number_at + sizeof number) std::memcpy(&frame[number_at], &number, sizeof number);
        EXPECT_EQ(::send(socket_, frame.data(), size, 0), static_cast<ssize_t>(size)) << std::strerror(errno);
    }

    // Size of the next frame, 0 if none came in time.
    std::size_t receive(std::chrono::milliseconds patience = std::chrono::seconds(5)) {
        char frame[16384];
        ssize_t size = 0;
        (void)eventually([&] { return (size = recv(socket_, frame, sizeof frame, 0)) > 0; }, patience);
        return size > 0 ? static_cast<std::size_t>(size) : 0;
    }

private:
    int socket_;
};

/// Packets that this kernel has thrown away, in whichever namespace, because its backlog was full.
inline std::uint64_t backlog_drops() {
    std::ifstream table("/proc/net/softnet_stat");
    std::uint64_t sum = 0;
    for (std::string processed, dropped, rest; table >> processed >> dropped && std::getline(table, rest);) {
        sum += std::stoull(dropped, nullptr, 16);
    }
    return sum;
}

/// Sends so many frames, and returns how many of them the kernel may have lost on the way.
inline std::uint64_t flood(Guest& from, unsigned frames) {
    const std::uint64_t before = backlog_drops();
    for (unsigned i = 0; i < frames; ++i) {
        from.send(60);
        if (i % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return backlog_drops() - before;
}

/// Of eleven frames from one to the other, each after a pause that lets the worker sleep.
inline std::chrono::steady_clock::duration median_time(Guest& from, Guest& to) {
    using Clock = std::chrono::steady_clock;
    std::vector<Clock::duration> times;
    for (unsigned round = 0; round < 11; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        const auto begin = Clock::now();
        from.send(60);
        while (to.receive(std::chrono::milliseconds(0)) == 0 && Clock::now() - begin < std::chrono::seconds(1)) {
        }
        times.push_back(Clock::now() - begin);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/// Whether a frame wakes the worker, which would sleep for 100 ms otherwise. Three tries: somebody else may have the
/// processor.
inline bool wakes_the_worker(Guest& from, Guest& to) {
    for (unsigned tries = 0; tries < 3; ++tries) {
        if (median_time(from, to) < std::chrono::milliseconds(25)) return true;
    }
    return false;
}

/// A guest's socket for TCP packets in VLAN 7 that its NIC is to cut.
class TaggedSocket {
public:
    explicit TaggedSocket(const std::string& interface)
        : socket_(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL))) {
        const int on = 1;
        EXPECT_EQ(setsockopt(socket_, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on), 0);
        EXPECT_EQ(setsockopt(socket_, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on), 0);
        EXPECT_EQ(setsockopt(socket_, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on), 0);
        sockaddr_ll address{};
        address.sll_family = AF_PACKET;
        address.sll_protocol = htons(ETH_P_ALL);
        address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
        EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    }
    ~TaggedSocket() { close(socket_); }
    TaggedSocket(const TaggedSocket&) = delete;
    TaggedSocket& operator=(const TaggedSocket&) = delete;

    /// `flags`: TCP's; ACK and CWR unless told.
    void send(unsigned payload, std::uint16_t segment, std::uint8_t flags = 0x90) {
        VirtioHeader says{.flags = VirtioHeader::needs_checksum, .gso_type = VirtioHeader::gso_tcp4, .hdr_len = 58,
                          .gso_size = segment, .csum_start = 38, .csum_offset = 16};
        std::vector<std::uint8_t> frame = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0x20, 7, 8, 0,
                                           0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
                                           0, 80, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x90, 1, 0, 0, 0, 0, 0};
        frame[20] = static_cast<std::uint8_t>((payload + 40) >> 8);
        frame[21] = static_cast<std::uint8_t>(payload + 40);
        frame[51] = flags;
        const unsigned pseudo = 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + IPPROTO_TCP + payload + 20;
        const unsigned folded = (pseudo & 0xffff) + (pseudo >> 16);
        frame[54] = static_cast<std::uint8_t>(folded >> 8);
        frame[55] = static_cast<std::uint8_t>(folded);
        frame.resize(58 + payload);
        const iovec pieces[] = {{&says, sizeof says}, {frame.data(), frame.size()}};
        EXPECT_EQ(writev(socket_, pieces, 2), static_cast<ssize_t>(sizeof says + frame.size())) << std::strerror(errno);
    }

    /// Size of the next frame without its tag, and its tag.
    std::pair<std::size_t, unsigned> receive() {
        std::vector<char> frame(1 << 17);
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(tpacket_auxdata))];
        iovec piece{frame.data(), frame.size()};
        msghdr message{};
        message.msg_iov = &piece;
        message.msg_iovlen = 1;
        message.msg_control = control;
        ssize_t size = 0;
        (void)eventually([&] {
            message.msg_controllen = sizeof control;
            return (size = recvmsg(socket_, &message, 0)) > 0;
        }, std::chrono::seconds(5));
        if (size <= 0) return {0, 0};
        tpacket_auxdata told{};
        std::memcpy(&told, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof told);
        return {static_cast<std::size_t>(size) - sizeof(VirtioHeader), told.tp_vlan_tci};
    }

private:
    int socket_;
};

}  // namespace ovsdr::soft
