// Frames as hosts hand them to a NIC that does their checksums and cuts them, the kernel's own cut of them, and what
// the tests of unfinished.hpp and joined.hpp do with both. The kernel's wants root: a network namespace of its own.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "datapath/ports/eal.hpp"
#include "datapath/ports/joined.hpp"
#include "datapath/ports/packet_pool.hpp"
#include "datapath/ports/unfinished.hpp"
#include "datapath/steering/key.hpp"

namespace ovsdr::soft {

using Bytes = std::vector<std::uint8_t>;

inline constexpr std::uint8_t fin = 0x01, syn = 0x02, push = 0x08, ack = 0x10, echo = 0x40, reduced = 0x80;

inline void append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }
inline void append_all(std::vector<Bytes>& to, const std::vector<Bytes>& more) {
    to.insert(to.end(), more.begin(), more.end());
}

/// Empty where they are the same; else where they are not.
inline std::string difference(const std::vector<Bytes>& got, const std::vector<Bytes>& expected) {
    for (std::size_t n = 0; n < std::min(got.size(), expected.size()); ++n) {
        const auto [a, b] = std::mismatch(got[n].begin(), got[n].end(), expected[n].begin(), expected[n].end());
        if (a == got[n].end() && b == expected[n].end()) continue;
        return "frame " + std::to_string(n) + " of " + std::to_string(got.size()) + ", byte " +
               std::to_string(a - got[n].begin()) + " of " + std::to_string(got[n].size()) + " and " +
               std::to_string(expected[n].size());
    }
    if (got.size() == expected.size()) return "";
    return std::to_string(got.size()) + " frames, not " + std::to_string(expected.size());
}

/// Word by word, as RFC 1071 has it.
inline std::uint16_t slow_sum(const std::uint8_t* bytes, std::size_t size, std::uint32_t sum = 0) {
    for (std::size_t i = 0; i < size; ++i) {
        sum += i % 2 == 0 ? bytes[i] << 8 : bytes[i];
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return static_cast<std::uint16_t>(sum);
}

/// Where things are in a frame that Maker made.
struct Frame {
    Bytes bytes;
    VirtioHeader says{};
    std::size_t l3 = 0;
    bool v4 = true, tcp = true;
};

inline std::uint16_t pseudo_sum(const Bytes& bytes, std::size_t l3, bool v4, std::size_t length,
                                std::uint8_t protocol) {
    const std::uint16_t addresses = slow_sum(&bytes[l3 + (v4 ? 12 : 8)], v4 ? 8 : 32);
    std::uint8_t rest[] = {0, protocol, 0, 0};
    store_be16(rest + 2, static_cast<std::uint16_t>(length));
    return slow_sum(rest, 4, addresses);
}

class Maker {
public:
    explicit Maker(unsigned seed) : random_(seed) {}

    unsigned number(unsigned low, unsigned high) { return std::uniform_int_distribution<unsigned>(low, high)(random_); }
    bool chance() { return number(0, 1) == 1; }
    Bytes bytes(std::size_t size) {
        Bytes made(size);
        for (auto& byte : made) byte = static_cast<std::uint8_t>(number(0, 255));
        return made;
    }

    /// A frame as a host's stack hands it to a NIC that cuts.
    Frame frame(bool v4, bool tcp, unsigned payload, unsigned segment) {
        Frame made{.v4 = v4, .tcp = tcp};
        Bytes& out = made.bytes;
        out = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1};
        if (chance()) append(out, {0x81, 0x00, 0x20, 0x07});
        append(out, v4 ? Bytes{0x08, 0x00} : Bytes{0x86, 0xdd});
        made.l3 = out.size();
        const unsigned option_words = tcp && v4 ? number(0, 2) : 0, tcp_words = tcp ? number(5, 15) : 2;
        const unsigned behind = option_words * 4 + tcp_words * 4 + payload;
        if (v4) {
            Bytes ip = {static_cast<std::uint8_t>(0x45 + option_words), 3, 0, 0, 0x12, 0x34, 0x40, 0,
                        63, static_cast<std::uint8_t>(tcp ? 6 : 17), 0, 0, 10, 0, 0, 1, 10, 0, 0, 2};
            append(ip, Bytes(option_words * 4, 1));
            store_be16(&ip[2], static_cast<std::uint16_t>(20 + behind));
            store_be16(&ip[4], static_cast<std::uint16_t>(number(0, 65535)));
            store_be16(&ip[10], static_cast<std::uint16_t>(~slow_sum(ip.data(), ip.size())));
            append(out, ip);
        } else {
            Bytes ip = {0x60, 0x01, 0x23, 0x45, 0, 0, static_cast<std::uint8_t>(tcp ? 6 : 17), 63};
            store_be16(&ip[4], static_cast<std::uint16_t>(behind));
            append(out, ip);
            append(out, bytes(32));
        }
        const std::size_t l4 = out.size();
        const std::size_t length = tcp_words * 4 + payload;
        Bytes header = bytes(tcp_words * 4);
        if (tcp) {
            header[12] = static_cast<std::uint8_t>(tcp_words << 4);
            header[13] = ack;
            for (const std::uint8_t flag : {fin, push, echo, reduced}) header[13] |= chance() ? flag : 0;
            for (std::size_t i = 20; i < header.size(); ++i) header[i] = 1;
        } else {
            store_be16(&header[4], static_cast<std::uint16_t>(length));
        }
        const unsigned field = tcp ? 16 : 6;
        append(out, header);
        append(out, bytes(payload));
        store_be16(&out[l4 + field], pseudo_sum(out, made.l3, v4, length, tcp ? 6 : 17));
        const std::uint8_t kind = !tcp ? VirtioHeader::gso_udp : v4 ? VirtioHeader::gso_tcp4 : VirtioHeader::gso_tcp6;
        const std::uint8_t careful = tcp && (header[13] & reduced) != 0 ? VirtioHeader::ecn : 0;
        made.says = {.flags = VirtioHeader::needs_checksum,
                     .gso_type = static_cast<std::uint8_t>(segment == 0 ? 0 : kind | careful),
                     .hdr_len = static_cast<std::uint16_t>(l4 + header.size()),
                     .gso_size = static_cast<std::uint16_t>(segment),
                     .csum_start = static_cast<std::uint16_t>(l4),
                     .csum_offset = static_cast<std::uint16_t>(field)};
        return made;
    }

private:
    std::mt19937 random_;
};

/// A veth pair whose one end has the kernel cut and sum up what is sent by it; the other end gets that.
class KernelsCut {
public:
    static bool available() {
        static const bool made = geteuid() == 0 && unshare(CLONE_NEWNET) == 0 &&
                                 std::system("ip link add cut0 mtu 9000 type veth peer name cut1 mtu 9000 && "
                                             "for i in cut0 cut1; do "
                                             "echo 1 > /proc/sys/net/ipv6/conf/$i/disable_ipv6; "
                                             "ethtool -K $i tx off tso off gso off txvlan off rxvlan off gro off "
                                             ">/dev/null; ip link set $i up; done") == 0;
        return made;
    }

    /// Since Linux 6.2 virtio's header has a word for UDP.
    static bool knows_udp() {
        utsname system{};
        unsigned major = 0, minor = 0;
        return uname(&system) == 0 && std::sscanf(system.release, "%u.%u", &major, &minor) == 2 &&
               (major > 6 || (major == 6 && minor >= 2));
    }

    KernelsCut() : sender_(open("cut0", 0)), receiver_(open("cut1", ETH_P_ALL)) {
        const int on = 1;
        EXPECT_EQ(setsockopt(sender_, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on), 0);
    }
    ~KernelsCut() {
        close(sender_);
        close(receiver_);
    }
    KernelsCut(const KernelsCut&) = delete;
    KernelsCut& operator=(const KernelsCut&) = delete;

    std::vector<Bytes> of(const VirtioHeader& says, const Bytes& frame) {
        VirtioHeader header = says;
        iovec pieces[] = {{&header, sizeof header}, {const_cast<std::uint8_t*>(frame.data()), frame.size()}};
        return sent(pieces, sizeof header + frame.size());
    }
    std::vector<Bytes> sent(std::span<iovec> pieces, std::size_t size) {
        EXPECT_EQ(writev(sender_, pieces.data(), static_cast<int>(pieces.size())), static_cast<ssize_t>(size))
            << std::strerror(errno);
        std::vector<Bytes> got;
        Bytes buffer(70000);
        // A veth's other end has it when the call returns, or some moments later where softirqs are deferred.
        for (int patience = 0; patience < 20; ++patience) {
            ssize_t length = 0;
            while ((length = recv(receiver_, buffer.data(), buffer.size(), MSG_DONTWAIT)) > 0) {
                got.emplace_back(buffer.begin(), buffer.begin() + length);
                patience = 0;
            }
            if (!got.empty() && patience > 2) break;
            usleep(got.empty() ? 5000 : 100);
        }
        return got;
    }

private:
    static int open(const char* interface, std::uint16_t protocol) {
        const int made = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
        sockaddr_ll address{};
        address.sll_family = AF_PACKET;
        address.sll_protocol = htons(protocol);
        address.sll_ifindex = static_cast<int>(if_nametoindex(interface));
        EXPECT_EQ(bind(made, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
        return made;
    }

    int sender_, receiver_;
};

/// As a packet socket gives it, which has the tag beside the frame.
inline std::vector<Bytes> without_tags(std::vector<Bytes> frames) {
    for (Bytes& frame : frames) {
        if (load_be16(&frame[12]) == 0x8100) frame.erase(frame.begin() + 12, frame.begin() + 16);
    }
    return frames;
}

class UnfinishedTest : public testing::Test {
protected:
    static void SetUpTestSuite() {
        kernel_ = KernelsCut::available();
        sigset_t all;
        sigfillset(&all);
        std::thread([&] {
            pthread_sigmask(SIG_SETMASK, &all, nullptr);
            std::string error;
            ASSERT_EQ(start_eal({.memory_mb = 128}, error), 0) << error;
            pool_ = make_mempool({.name = "unfinished", .length = 4000, .room = jumbo_room}, error);
            ASSERT_TRUE(pool_) << error;
        }).join();
    }
    static void TearDownTestSuite() { pool_.reset(); }

    rte_mbuf* packet(const Bytes& bytes) {
        rte_mbuf* const made = rte_pktmbuf_alloc(pool_.get());
        std::memcpy(rte_pktmbuf_append(made, static_cast<std::uint16_t>(bytes.size())), bytes.data(), bytes.size());
        return made;
    }
    static Bytes bytes_of(const rte_mbuf* packet) {
        const auto* begin = rte_pktmbuf_mtod(packet, const std::uint8_t*);
        return {begin, begin + packet->data_len};
    }

    /// Empty where it cannot be cut.
    std::vector<Bytes> cut(const Bytes& frame, const VirtioHeader& says, std::uint32_t room = jumbo_room) {
        if (!Unfinished::is_long(says)) {
            Bytes whole = frame;
            finish_checksum(whole, says);
            return {whole};
        }
        Unfinished unfinished;
        std::vector<Bytes> segments;
        if (!unfinished.begin(frame, says, room)) {
            EXPECT_FALSE(unfinished.more());
            return {};
        }
        while (unfinished.more()) {
            rte_mbuf* const segment = rte_pktmbuf_alloc(pool_.get());
            unfinished.next(segment);
            EXPECT_EQ(segment->pkt_len, segment->data_len);
            segments.push_back(bytes_of(segment));
            rte_pktmbuf_free(segment);
        }
        return segments;
    }

    /// Joins packets, as far as that goes, and gives each message to `use`, flat.
    template <typename Use>
    void join(const std::vector<Bytes>& packets, Use use) {
        std::vector<rte_mbuf*> made;
        for (const Bytes& bytes : packets) made.push_back(packet(bytes));
        for (std::size_t at = 0; at < made.size();) {
            const std::size_t most = std::min<std::size_t>(made.size() - at, batch_length);
            const unsigned joined = message_.join({made.data() + at, most});
            ASSERT_GE(joined, 1U);
            ASSERT_LE(joined, most);
            at += joined;
            Bytes flat;
            for (const iovec& piece : message_.pieces()) {
                const auto* begin = static_cast<const std::uint8_t*>(piece.iov_base);
                flat.insert(flat.end(), begin, begin + piece.iov_len);
            }
            VirtioHeader says;
            std::memcpy(&says, flat.data(), sizeof says);
            use(says, Bytes(flat.begin() + sizeof says, flat.end()), joined);
        }
        for (rte_mbuf* each : made) rte_pktmbuf_free(each);
    }

    static inline Mempool pool_;
    static inline bool kernel_ = false;
    Message message_;
};

}  // namespace ovsdr::soft
