// What an interface of type "dr" receives, sends and waits for.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/ctrl/netdev_dr_io_probe.h"

using Bytes = std::vector<std::uint8_t>;

/// Played. Frames that it gives are good until the next call, as ctrl/port.h says: then their bytes change.
struct ovsdr_port {
    struct Incoming {
        Bytes bytes;
        std::uint32_t tag = 0;
    };
    std::array<std::deque<Incoming>, 2> queues;
    std::vector<Incoming> given;
    std::vector<unsigned> asked;    // the queue of each receive
    unsigned arms = 0;
    int fd = 7;
    std::vector<Bytes> sent;
    std::vector<unsigned> batches;  // the length of each that was sent
    unsigned room = 1000;
    std::uint32_t max_frame_size = 100;
    ovsdr_port_stats stats{};
    int stats_error = 0;
};

namespace {

void spoil(ovsdr_port& port) {
    for (ovsdr_port::Incoming& frame : port.given) std::ranges::fill(frame.bytes, 0xEE);
}

}  // namespace

extern "C" {

unsigned ovsdr_port_receive(ovsdr_port* port, unsigned queue, ovsdr_frame* frames) noexcept {
    port->asked.push_back(queue);
    port->given.clear();
    std::deque<ovsdr_port::Incoming>& those = port->queues.at(queue);
    for (; !those.empty() && port->given.size() < OVSDR_BATCH; those.pop_front()) {
        port->given.push_back(std::move(those.front()));
    }
    for (unsigned i = 0; i < port->given.size(); ++i) {
        const ovsdr_port::Incoming& frame = port->given[i];
        frames[i] = {frame.bytes.data(), static_cast<std::uint32_t>(frame.bytes.size()), frame.tag};
    }
    return static_cast<unsigned>(port->given.size());
}

bool ovsdr_port_arm(ovsdr_port* port, unsigned queue) noexcept {
    spoil(*port);
    ++port->arms;
    return port->queues.at(queue).empty();
}

int ovsdr_port_receive_fd(const ovsdr_port* port, unsigned queue) noexcept {
    return port->fd + static_cast<int>(queue);
}

unsigned ovsdr_port_transmit(ovsdr_port* port, const ovsdr_frame* frames, unsigned n) noexcept {
    EXPECT_LE(n, unsigned{OVSDR_BATCH});
    port->batches.push_back(n);
    unsigned taken = 0;
    for (; taken < n && port->sent.size() < port->room; ++taken) {
        port->sent.emplace_back(frames[taken].data, frames[taken].data + frames[taken].size);
    }
    return taken;
}

std::uint32_t ovsdr_port_max_frame_size(const ovsdr_port* port) noexcept { return port->max_frame_size; }

void ovsdr_port_get_state(const ovsdr_port*, ovsdr_port_state* state) noexcept { *state = {.mtu = 78}; }

int ovsdr_port_get_stats(const ovsdr_port* port, ovsdr_port_stats* stats) noexcept {
    *stats = port->stats;
    return port->stats_error;
}

}  // extern "C"

namespace {

struct Interface {
    Interface() : dev(probe_dr_new(&port)) {}
    ~Interface() { probe_dr_free(dev); }
    Interface(const Interface&) = delete;
    Interface& operator=(const Interface&) = delete;

    void comes(std::uint8_t byte, std::uint32_t tag = 0, unsigned queue = 0) {
        port.queues.at(queue).push_back({Bytes(60, byte), tag});
    }

    ovsdr_port port;
    netdev_dr* dev;
};

class NetdevDrIo : public ::testing::Test {
protected:
    NetdevDrIo() {
        probe_dr_woke();
        (void)probe_dr_received();
        probe_offload_is_on = true;
        probe_dr_log[0] = '\0';
    }

    /// The first byte of each that comes; EAGAIN where none does.
    std::vector<unsigned> receive(const Interface& from, int queue = 0) {
        unsigned n = 0;
        error_ = probe_dr_receive(from.dev, queue, packets_.data(), &n);
        std::vector<unsigned> bytes;
        for (const probe_packet& packet : std::span(packets_).first(n)) bytes.push_back(packet.data[0]);
        return bytes;
    }

    std::array<probe_packet, OVSDR_BATCH> packets_{};
    int error_ = 0;
};

using Waiting = NetdevDrIo;
using Receiving = NetdevDrIo;
using Sending = NetdevDrIo;
using Statistics = NetdevDrIo;

TEST_F(Waiting, APortWaitsInTheMainThreadsSleep) {
    const Interface one;
    EXPECT_FALSE(probe_dr_waits());
    probe_dr_wait(one.dev, 0);
    EXPECT_EQ(probe_waited_for, 7);
    EXPECT_EQ(probe_waited_events, probe_dr_packets_in);
    EXPECT_EQ(probe_immediate_wakes, 0);
    EXPECT_TRUE(probe_dr_waits());
    probe_dr_woke();
    EXPECT_FALSE(probe_dr_waits());
}

/// What an offload thread is to be woken for must not wait for as long as this one sleeps.
TEST_F(Waiting, WakesTheOffloadThreadsBefore) {
    const Interface one;
    probe_dr_wait(one.dev, 0);
    EXPECT_STREQ(probe_dr_log, "r");
    EXPECT_TRUE(probe_dr_wait_again());
    EXPECT_STREQ(probe_dr_log, "rr");
}

TEST_F(Waiting, WithFramesThereIsNoSleep) {
    Interface one;
    one.comes(1);
    probe_dr_wait(one.dev, 0);
    EXPECT_EQ(probe_waited_for, -1);
    EXPECT_EQ(probe_immediate_wakes, 1);
    EXPECT_FALSE(probe_dr_waits());
}

TEST_F(Waiting, WithoutOffloadNobodyLooksForPackets) {
    const Interface one;
    probe_offload_is_on = false;
    probe_dr_wait(one.dev, 0);
    EXPECT_EQ(probe_waited_for, 7) << "but the port is waited for";
    EXPECT_FALSE(probe_dr_waits());
}

TEST_F(Waiting, APortThatIsNotConfiguredDoesNot) {
    const Interface one;
    probe_dr_set_port(one.dev, nullptr);
    probe_dr_wait(one.dev, 0);
    EXPECT_EQ(probe_waited_for, -1);
    EXPECT_EQ(probe_immediate_wakes, 0);
    EXPECT_FALSE(probe_dr_waits());
}

TEST_F(Waiting, GoesOnForEachPortThatWaits) {
    const Interface one, two;
    probe_dr_wait(one.dev, 0);
    probe_dr_wait(two.dev, 0);
    EXPECT_TRUE(probe_dr_wait_again());
    EXPECT_EQ(one.port.arms, 2U);
    EXPECT_EQ(two.port.arms, 2U);
    EXPECT_TRUE(probe_dr_waits());
}

TEST_F(Waiting, DoesNotGoOnWithFrames) {
    Interface one, two;
    probe_dr_wait(one.dev, 0);
    probe_dr_wait(two.dev, 0);
    one.comes(1);
    EXPECT_FALSE(probe_dr_wait_again());
    EXPECT_EQ(receive(one), std::vector{1U});
    two.comes(2);
    EXPECT_FALSE(probe_dr_wait_again());
    EXPECT_EQ(receive(two), std::vector{2U});
    EXPECT_TRUE(probe_dr_wait_again());
}

/// The sleep's descriptors are those of before: the slow path that failed was replaced by another.
TEST_F(Waiting, DoesNotGoOnForAnotherDescriptor) {
    Interface one;
    probe_dr_wait(one.dev, 0);
    one.port.fd = 9;
    EXPECT_FALSE(probe_dr_wait_again());
}

TEST_F(Waiting, GoesOnWithoutAPortThatHasGone) {
    Interface one, two;
    probe_dr_wait(one.dev, 0);
    probe_dr_wait(two.dev, 0);
    probe_dr_set_port(one.dev, nullptr);
    EXPECT_TRUE(probe_dr_wait_again());
    EXPECT_EQ(one.port.arms, 1U);
    EXPECT_EQ(two.port.arms, 2U);
}

/// Its descriptor is not among the sleep's: an event would stay for later, and frames would not end the sleep.
TEST_F(Waiting, APortOfAnEarlierSleepIsNotAskedAgain) {
    Interface one, two;
    probe_dr_wait(one.dev, 0);
    probe_dr_woke();
    probe_dr_wait(two.dev, 0);
    one.comes(1);
    EXPECT_TRUE(probe_dr_wait_again());
    EXPECT_EQ(one.port.arms, 1U);
    EXPECT_EQ(two.port.arms, 2U);
}

TEST_F(Waiting, APmdThreadsSleepIsNotTheMainThreads) {
    Interface one;
    probe_dr_set_pmd_receives(one.dev, true);
    probe_dr_wait(one.dev, 0);
    EXPECT_EQ(probe_waited_for, -1) << "not the main thread's any more";
    one.comes(1);
    std::thread([&] {
        probe_become_pmd();
        probe_dr_wait(one.dev, 1);
    }).join();
    EXPECT_EQ(probe_waited_for, 8) << "with what waits in another queue";
    EXPECT_FALSE(probe_dr_waits());
}

TEST_F(Receiving, CopiesWhatCame) {
    Interface one;
    EXPECT_EQ(receive(one), std::vector<unsigned>());
    EXPECT_EQ(error_, EAGAIN);
    one.comes(1);
    one.comes(2);
    EXPECT_EQ(receive(one), (std::vector{1U, 2U}));
    EXPECT_EQ(error_, 0);
    spoil(one.port);
    for (const probe_packet& packet : std::span(packets_).first(2)) {
        EXPECT_EQ(packet.size, 60U);
        EXPECT_EQ(packet.data[59], packet.data[0]);
        EXPECT_GE(packet.headroom, 128U);
        EXPECT_GE(packet.tailroom, 128U) << "conntrack lengthens FTP's in place";
    }
    EXPECT_EQ(probe_dr_received(), 2U);
    EXPECT_EQ(probe_dr_received(), 0U) << "since it was asked last";
}

/// Offload threads may take the megaflows of earlier packets now; those of these packets wait until these are sent.
TEST_F(Receiving, HoldsOffloadThreadsUntilPacketsAreSent) {
    Interface one;
    (void)receive(one);
    EXPECT_STREQ(probe_dr_log, "r");
    one.comes(1);
    (void)receive(one);
    EXPECT_STREQ(probe_dr_log, "rrh");
}

TEST_F(Receiving, AMissCarriesItsTable) {
    Interface one;
    probe_dr_set_flow_api(one.dev, true);
    one.comes(1, 0x123456);
    one.comes(2);
    ASSERT_EQ(receive(one).size(), 2U);
    EXPECT_TRUE(packets_[0].marked);
    EXPECT_EQ(packets_[0].mark, 0x123456U);
    EXPECT_FALSE(packets_[1].marked);
}

/// dpif-netdev would take it for its own.
TEST_F(Receiving, WhereNobodyRecoversMissesThereIsNoMark) {
    Interface one;
    one.comes(1, 0x123456);
    ASSERT_EQ(receive(one).size(), 1U);
    EXPECT_FALSE(packets_[0].marked) << "no flow API";
    probe_dr_set_flow_api(one.dev, false);
    one.comes(1, 0x123456);
    ASSERT_EQ(receive(one).size(), 1U);
    EXPECT_FALSE(packets_[0].marked) << "another flow API";
    probe_dr_set_flow_api(one.dev, true);
    probe_offload_is_on = false;
    one.comes(1, 0x123456);
    ASSERT_EQ(receive(one).size(), 1U);
    EXPECT_FALSE(packets_[0].marked) << "offload is off";
}

TEST_F(Receiving, OneThreadDoes) {
    Interface one;
    one.comes(1);
    probe_dr_set_pmd_receives(one.dev, true);
    EXPECT_EQ(receive(one), std::vector<unsigned>());
    EXPECT_EQ(error_, EAGAIN);
    EXPECT_TRUE(one.port.asked.empty());
    std::thread([&] {
        probe_become_pmd();
        EXPECT_EQ(receive(one), std::vector{1U});
        one.comes(2, 0, 1);
        EXPECT_EQ(receive(one, 1), std::vector{2U});
        probe_dr_set_pmd_receives(one.dev, false);
        one.comes(3);
        EXPECT_EQ(receive(one), std::vector<unsigned>());
    }).join();
    EXPECT_EQ(one.port.asked, (std::vector{0U, 1U}));
    EXPECT_EQ(receive(one), std::vector{3U});
}

TEST_F(Receiving, APortThatIsNotConfiguredGivesNothing) {
    Interface one;
    one.comes(1);
    probe_dr_set_port(one.dev, nullptr);
    EXPECT_EQ(receive(one), std::vector<unsigned>());
    EXPECT_EQ(error_, EAGAIN);
}

TEST_F(Receiving, WhatIsPolicedIsDroppedAndCounted) {
    Interface one;
    probe_dr_police(one.dev, 1, 1);
    for (unsigned i = 0; i < 1500; ++i) {
        one.comes(1);
        if (i % OVSDR_BATCH == 0) (void)receive(one);
    }
    while (!one.port.queues[0].empty()) (void)receive(one);
    probe_stats stats{};
    ASSERT_EQ(probe_dr_stats(one.dev, &stats), 0);
    EXPECT_GT(stats.rx_dropped, 0U);
    EXPECT_LE(stats.rx_dropped, 500U);
    EXPECT_EQ(probe_dr_custom(one.dev, "slow_path_rx_policed"), stats.rx_dropped);
}

TEST_F(Receiving, DrainingTakesAll) {
    Interface one;
    for (unsigned i = 0; i < 3 * OVSDR_BATCH + 1; ++i) one.comes(1);
    probe_dr_drain(one.dev, 0);
    EXPECT_TRUE(one.port.queues[0].empty());
    probe_dr_set_pmd_receives(one.dev, true);
    one.comes(1);
    probe_dr_drain(one.dev, 0);
    EXPECT_FALSE(one.port.queues[0].empty()) << "another thread's";
}

Bytes frame(std::uint8_t kind, std::uint8_t byte, std::size_t size = 60) {
    Bytes bytes(size, byte);
    bytes[0] = kind;
    return bytes;
}

int send(const Interface& to, const std::vector<Bytes>& frames, bool is_ip = false) {
    std::vector<probe_frame> those;
    for (const Bytes& bytes : frames) those.push_back({bytes.data(), static_cast<std::uint32_t>(bytes.size()), is_ip});
    return probe_dr_send(to.dev, those.data(), static_cast<unsigned>(those.size()));
}

TEST_F(Sending, InOneBatchAndInOrder) {
    const Interface one;
    const std::vector frames{frame(PROBE_PLAIN, 1), frame(PROBE_PLAIN, 2, 100), frame(PROBE_PLAIN, 3, 14)};
    EXPECT_EQ(send(one, frames), 0);
    EXPECT_EQ(one.port.sent, frames);
    EXPECT_EQ(one.port.batches, std::vector{3U});
    EXPECT_EQ(probe_dr_custom(one.dev, "slow_path_tx_size_drops"), 0U);
}

TEST_F(Sending, WhatDoesNotFitTheMtuIsCounted) {
    const Interface one;
    EXPECT_EQ(send(one, {frame(PROBE_PLAIN, 1, 101), frame(PROBE_PLAIN, 2), frame(PROBE_PLAIN, 3, 13)}), EMSGSIZE);
    EXPECT_EQ(one.port.sent, (std::vector<Bytes>{frame(PROBE_PLAIN, 2)})) << "the others go";
    EXPECT_EQ(probe_dr_custom(one.dev, "slow_path_tx_size_drops"), 2U);
    probe_stats stats{};
    ASSERT_EQ(probe_dr_stats(one.dev, &stats), 0);
    EXPECT_EQ(stats.tx_dropped, 2U);
}

TEST_F(Sending, WhatHasNoEthernetHeaderIsNot) {
    const Interface one;
    EXPECT_EQ(send(one, {frame(PROBE_PLAIN, 1)}, true), EPFNOSUPPORT);
    EXPECT_TRUE(one.port.sent.empty());
}

/// More of them than a batch has, behind more frames than there is room for segments of that size.
TEST_F(Sending, SegmentsGoInTheirPlace) {
    constexpr unsigned segments = OVSDR_BATCH + 8, before = 10;
    Bytes many = frame(PROBE_SEGMENTS, 2, std::size_t{segments} * PROBE_SEGMENT_SIZE);
    for (std::size_t i = 0; i < segments; ++i) many[(i + 1) * PROBE_SEGMENT_SIZE - 1] = static_cast<std::uint8_t>(i);
    std::vector<Bytes> frames(before, frame(PROBE_PLAIN, 100));
    frames.push_back(many);
    frames.push_back(frame(PROBE_PLAIN, 101));
    std::vector<unsigned> wanted(before, 100);
    for (unsigned i = 0; i < segments; ++i) wanted.push_back(i);
    wanted.push_back(101);
    for (const std::uint32_t max_frame_size : {100, 9000}) {
        Interface one;
        one.port.max_frame_size = max_frame_size;
        EXPECT_EQ(send(one, frames), 0);
        std::vector<unsigned> last;
        for (const Bytes& sent : one.port.sent) {
            EXPECT_EQ(sent.size(), 60U);
            last.push_back(sent.back());
        }
        EXPECT_EQ(last, wanted) << max_frame_size;
    }
}

TEST_F(Sending, WhatCannotBeFinishedIsDropped) {
    const Interface one;
    for (const std::uint8_t kind : {PROBE_UNFINISHABLE, PROBE_NO_SEGMENTS}) {
        EXPECT_EQ(send(one, {frame(kind, 1), frame(PROBE_PLAIN, 2)}), EINVAL);
    }
    EXPECT_EQ(one.port.sent, (std::vector{frame(PROBE_PLAIN, 2), frame(PROBE_PLAIN, 2)}));
}

TEST_F(Sending, WhereThereIsNoRoomItSaysSo) {
    Interface one;
    one.port.room = 1;
    EXPECT_EQ(send(one, {frame(PROBE_PLAIN, 1), frame(PROBE_PLAIN, 2)}), EAGAIN);
    EXPECT_EQ(one.port.sent.size(), 1U);
}

TEST_F(Sending, ToAPortThatIsNotConfigured) {
    const Interface one;
    probe_dr_set_port(one.dev, nullptr);
    EXPECT_EQ(send(one, {frame(PROBE_PLAIN, 1)}), ENODEV);
}

TEST_F(Statistics, AreTheVports) {
    Interface one;
    one.port.stats = {.rx_packets = 1, .rx_bytes = 2, .rx_errors = 4, .tx_packets = 8, .tx_bytes = 16, .tx_errors = 32,
                      .slow_path_rx = 64, .slow_path_rx_errors = 128, .slow_path_rx_missed = 256, .slow_path_tx = 512,
                      .slow_path_tx_drops = 1024, .slow_path_tx_errors = 2048, .slow_path_restarts = 4096};
    probe_stats stats{};
    ASSERT_EQ(probe_dr_stats(one.dev, &stats), 0);
    EXPECT_EQ(stats.rx_packets, 1U);
    EXPECT_EQ(stats.rx_bytes, 2U);
    EXPECT_EQ(stats.rx_errors, 4U + 128U);
    EXPECT_EQ(stats.rx_dropped, 256U);
    EXPECT_EQ(stats.tx_packets, 8U);
    EXPECT_EQ(stats.tx_bytes, 16U);
    EXPECT_EQ(stats.tx_errors, 32U + 2048U);
    EXPECT_EQ(stats.tx_dropped, 1024U);
    EXPECT_EQ(stats.multicast, UINT64_MAX) << "which is not known";
    const std::vector<std::pair<const char*, std::uint64_t>> counters{
        {"slow_path_rx_packets", 64},  {"slow_path_rx_errors", 128},  {"slow_path_rx_missed", 256},
        {"slow_path_tx_packets", 512}, {"slow_path_tx_drops", 1024},  {"slow_path_tx_errors", 2048},
        {"slow_path_restarts", 4096},  {"nic_tx_packets", UINT64_MAX}};
    for (const auto& [name, value] : counters) EXPECT_EQ(probe_dr_custom(one.dev, name), value) << name;
}

TEST_F(Statistics, APlainFunctionHasItsOwn) {
    Interface one;
    one.port.stats = {.function = true, .nic_rx_dropped = 1, .nic_rx_marked = 2, .nic_rx_down = 4, .nic_tx_sent = 8,
                      .nic_tx_down = 16};
    const std::vector<std::pair<const char*, std::uint64_t>> counters{{"nic_rx_megaflow_drops", 1},
                                                                      {"nic_rx_marked_packets", 2},
                                                                      {"nic_rx_down_drops", 4},
                                                                      {"nic_tx_packets", 8},
                                                                      {"nic_tx_down_drops", 16}};
    for (const auto& [name, value] : counters) EXPECT_EQ(probe_dr_custom(one.dev, name), value) << name;
}

TEST_F(Statistics, OfAPortThatCannotBeAsked) {
    Interface one;
    probe_stats stats{};
    one.port.stats_error = EIO;
    EXPECT_EQ(probe_dr_stats(one.dev, &stats), EIO);
    EXPECT_EQ(probe_dr_custom(one.dev, "slow_path_rx_packets"), UINT64_MAX);
    probe_dr_set_port(one.dev, nullptr);
    EXPECT_EQ(probe_dr_stats(one.dev, &stats), ENODEV);
}

}  // namespace
