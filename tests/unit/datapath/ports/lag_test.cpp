// LAG on two ports of the test: by which of them each packet leaves.
#include "datapath/ports/lag.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <signal.h>

#include <cstring>
#include <set>
#include <vector>

#include "datapath/ports/eal.hpp"
#include "datapath/ports/packet_pool.hpp"

namespace ovsdr::soft {
namespace {

using Frame = std::vector<std::uint8_t>;

/// Keeps the frames that it is given to send, and has a link that the test moves.
class KeepingPort : public Port {
public:
    KeepingPort() : Port(*driver_of("net_null")) {
        const Burst send = [](void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
            for (unsigned i = 0; i < length; ++i) {
                const auto* bytes = rte_pktmbuf_mtod(packets[i], const std::uint8_t*);
                static_cast<KeepingPort*>(self)->sent.emplace_back(bytes, bytes + rte_pktmbuf_pkt_len(packets[i]));
            }
            rte_pktmbuf_free_bulk(packets, length);
            return length;
        };
        set_queues({}, {{.send = send, .queue = this}});
    }
    [[nodiscard]] bool link_up() const noexcept override { return link; }

    bool link = true;
    std::vector<Frame> sent;
};

/// UDP over IPv4, flow number `flow`; `fragment`: the fragment offset word as on the wire.
Frame udp(unsigned flow, std::uint8_t mark = 0, std::uint16_t fragment = 0) {
    Frame frame(60);
    const std::uint8_t head[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0,
                                 0x45, 0, 0, 46, 0, mark, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2};
    std::memcpy(frame.data(), head, sizeof head);
    frame[20] = static_cast<std::uint8_t>(fragment >> 8);
    frame[21] = static_cast<std::uint8_t>(fragment);
    const std::uint16_t ports[] = {htons(static_cast<std::uint16_t>(1000 + flow)), htons(4791)};
    std::memcpy(frame.data() + 34, ports, sizeof ports);
    frame[39] = 26;  // UDP length
    return frame;
}

/// UDP over IPv6 behind a fragment header whose offset word is `place`; 0: all in one.
Frame udp6(std::uint8_t flow, std::uint16_t place) {
    Frame frame(78);
    const std::uint8_t head[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 44, 64};
    std::memcpy(frame.data(), head, sizeof head);
    frame[22] = frame[38] = 0xfd;
    frame[37] = flow;
    frame[53] = 2;
    frame[54] = 17;
    frame[56] = static_cast<std::uint8_t>(place >> 8);
    frame[57] = static_cast<std::uint8_t>(place);
    return frame;
}

class LagTest : public ::testing::Test {
protected:
    LagTest() {
        std::string error;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        EXPECT_EQ(start_eal({.memory_mb = 64}, error), 0) << error;
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        pool_ = make_mempool({.name = "lag", .length = 255, .room = 2048}, error);
        EXPECT_TRUE(pool_) << error;
        for (unsigned i = 0; i < lag_ports; ++i) {
            paths_[i].set_admin_up(true);
            paths_[i].set_link_up(true);
            paths_[i].bind(&ports_[i]);
        }
    }
    ~LagTest() override { EXPECT_EQ(rte_mempool_in_use_count(pool_.get()), 0U); }

    void link(unsigned port, bool up) {
        ports_[port - 1].link = up;
        paths_[port - 1].set_link_up(up);
    }
    void deliver(const Sink& sink, const std::vector<Frame>& frames) {
        for (std::size_t done = 0; done < frames.size(); done += batch_length) {
            std::array<rte_mbuf*, batch_length> packets{};
            const auto length = static_cast<unsigned>(std::min<std::size_t>(batch_length, frames.size() - done));
            for (unsigned i = 0; i < length; ++i) {
                packets[i] = rte_pktmbuf_alloc(pool_.get());
                ASSERT_NE(packets[i], nullptr);
                const Frame& frame = frames[done + i];
                std::memcpy(rte_pktmbuf_append(packets[i], static_cast<std::uint16_t>(frame.size())), frame.data(),
                            frame.size());
            }
            sink.deliver(sink.self, 0, packets.data(), length);
        }
    }
    std::vector<Frame> take(unsigned port) { return std::exchange(ports_[port - 1].sent, {}); }

    Mempool pool_;
    std::array<KeepingPort, lag_ports> ports_;
    std::array<VportPath, lag_ports> paths_{VportPath{uplink_vport, 1}, VportPath{uplink_vport, 1}};
    Lag lag_{paths_[0], paths_[1]};
};

TEST_F(LagTest, FlowsAreSpreadOverBothPortsAndEachKeepsItsOwn) {
    constexpr unsigned flows = 1000;
    std::vector<Frame> frames;
    for (std::uint8_t mark = 0; mark < 3; ++mark) {
        for (unsigned flow = 0; flow < flows; ++flow) frames.push_back(udp(flow, mark));
    }
    deliver(lag_.by_hash(), frames);
    std::array<std::set<std::pair<std::uint8_t, std::uint8_t>>, lag_ports> seen;
    for (unsigned port = 1; port <= lag_ports; ++port) {
        std::uint8_t last = 0;
        for (const Frame& frame : take(port)) {
            seen[port - 1].insert({frame[34], frame[35]});
            EXPECT_GE(frame[19], last) << "packets of a flow overtook each other";
            last = frame[19];
        }
    }
    EXPECT_EQ(seen[0].size() + seen[1].size(), flows) << "a flow on both ports";
    // A fair coin gives less than 400 or more than 600 of 1000 once in 10^10.
    EXPECT_GT(seen[0].size(), 400U);
    EXPECT_GT(seen[1].size(), 400U);
}

TEST_F(LagTest, Ipv6FragmentsOfAPacketLeaveByOnePort) {
    for (std::uint8_t flow = 0; flow < 16; ++flow) {
        deliver(lag_.by_hash(), {udp6(flow, 1), udp6(flow, 17), udp6(flow, 32)});
        const std::size_t first = take(1).size();
        EXPECT_EQ(first % 3, 0U);
        EXPECT_EQ(first + take(2).size(), 3U);
    }
}

TEST_F(LagTest, TcpPortsVlanProtocolAndAllOfIpv6Count) {
    const auto spreads = [&](Frame frame, std::size_t at) {
        std::vector<Frame> frames;
        for (std::uint8_t value = 100; value < 164; ++value) {  // as a protocol, none has ports
            frame[at] = value;
            frames.push_back(frame);
        }
        deliver(lag_.by_hash(), frames);
        const std::size_t first = take(1).size(), second = take(2).size();
        return first != 0 && second != 0;
    };
    Frame tcp = udp(0), tagged = udp(0);
    tcp[23] = 6;
    tcp[46] = 0x50;
    const std::uint8_t tag[] = {0x81, 0, 0, 0};
    tagged.insert(tagged.begin() + 12, std::begin(tag), std::end(tag));
    EXPECT_TRUE(spreads(tcp, 35));
    EXPECT_TRUE(spreads(tcp, 37));
    EXPECT_TRUE(spreads(tagged, 15));
    EXPECT_TRUE(spreads(udp(0), 23)) << "protocol";
    for (const std::size_t at : {29U, 37U, 45U, 53U}) EXPECT_TRUE(spreads(udp6(0, 0), at)) << at;
}

TEST_F(LagTest, EachFieldOfAFlowCounts) {
    struct Place {
        const char* what;
        unsigned at;
        bool counts;
    };
    // Of 64 values of a byte that counts, all by the same port has the odds of 2^63 to one.
    for (const Place& place :
         {Place{"destination MAC", 5, true}, Place{"source MAC", 11, true}, Place{"type of service", 15, false},
          Place{"identification", 19, false}, Place{"time to live", 22, false}, Place{"source address", 29, true},
          Place{"destination address", 33, true}, Place{"source port", 35, true}, Place{"destination port", 37, true},
          Place{"payload", 50, false}}) {
        std::vector<Frame> frames;
        for (unsigned value = 1; value <= 64; ++value) {
            frames.push_back(udp(0));
            frames.back()[place.at] = static_cast<std::uint8_t>(value);
        }
        deliver(lag_.by_hash(), frames);
        const std::size_t first = take(1).size(), second = take(2).size();
        EXPECT_EQ(first + second, 64U);
        EXPECT_EQ(first != 0 && second != 0, place.counts) << place.what << ": " << first << " and " << second;
    }
}

TEST_F(LagTest, FragmentsOfAPacketLeaveByOnePort) {
    for (unsigned flow = 0; flow < 16; ++flow) {
        deliver(lag_.by_hash(), {udp(flow, 7, 0x2000), udp(flow + 100, 7, 0x2005), udp(flow + 200, 7, 10)});
        const std::size_t first = take(1).size();
        EXPECT_EQ(first % 3, 0U);
        EXPECT_EQ(first + take(2).size(), 3U);
    }
}

TEST_F(LagTest, AFrameThatIsTooShortForAnyFieldLeaves) {
    deliver(lag_.by_hash(), {Frame(10)});
    EXPECT_EQ(take(1).size() + take(2).size(), 1U);
}

TEST_F(LagTest, AChosenPortIsUsed) {
    for (unsigned port = 1; port <= lag_ports; ++port) {
        deliver(lag_.by_port(port), {udp(1), udp(2), udp(3), udp(4), udp(5)});
        EXPECT_EQ(take(port).size(), 5U);
        EXPECT_EQ(take(3 - port).size(), 0U);
        EXPECT_EQ(lag_.active_port(port), port);
    }
}

TEST_F(LagTest, APortStandsInForTheOtherWhileThatOnesLinkIsDown) {
    std::vector<Frame> flows;
    for (unsigned flow = 0; flow < 64; ++flow) flows.push_back(udp(flow));
    for (unsigned port = 1; port <= lag_ports; ++port) {
        const unsigned other = 3 - port;
        link(port, false);
        EXPECT_EQ(lag_.active_port(port), other);
        EXPECT_EQ(lag_.active_port(other), other);
        deliver(lag_.by_port(port), {udp(1)});
        deliver(lag_.by_port(other), {udp(1)});
        EXPECT_EQ(take(other).size(), 2U);
        deliver(lag_.by_hash(), flows);
        EXPECT_EQ(take(other).size(), 64U);
        EXPECT_EQ(take(port).size(), 0U);
        link(port, true);
        EXPECT_EQ(lag_.active_port(port), port);
        deliver(lag_.by_port(port), {udp(1)});
        EXPECT_EQ(take(port).size(), 1U);
        deliver(lag_.by_hash(), flows);
        EXPECT_GT(take(port).size(), 0U);
        (void)take(other);
    }
}

TEST_F(LagTest, AStrictChoiceStandsByItsPort) {
    link(2, false);
    deliver(lag_.strictly_by_port(2), {udp(1)});
    EXPECT_EQ(take(1).size() + take(2).size(), 0U);
    EXPECT_EQ(paths_[1].counters().receive_drops, 1U);
    link(2, true);
    deliver(lag_.strictly_by_port(2), {udp(1)});
    EXPECT_EQ(take(2).size(), 1U);
}

TEST_F(LagTest, WithBothLinksDownNothingIsMoved) {
    link(1, false);
    link(2, false);
    EXPECT_EQ(lag_.active_port(1), 1U);
    EXPECT_EQ(lag_.active_port(2), 2U);
    deliver(lag_.by_port(2), {udp(1)});
    EXPECT_EQ(paths_[0].counters().receive_drops, 0U);
    EXPECT_EQ(paths_[1].counters().receive_drops, 1U);
}

TEST_F(LagTest, APortWithoutADeviceIsDown) {
    paths_[0].bind(nullptr);
    EXPECT_EQ(lag_.active_port(1), 2U);
    paths_[0].bind(&ports_[0]);
    paths_[0].set_admin_up(false);
    EXPECT_EQ(lag_.active_port(1), 2U);
}

}  // namespace
}  // namespace ovsdr::soft
