// An attached port on the recording provider and on queues of the test's own: in which order rules and queues come and
// go, what is left behind when something fails, and where each frame ends up while a queue is replaced.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "offload/dr/device/leak.hpp"
#include "offload/slowpath/attached_port.hpp"
#include "tests/unit/offload/fake_provider.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/memory_faults.hpp"
#include "tests/unit/offload/slowpath/fake_verbs.hpp"

namespace ovsdr::slowpath {
namespace {

using dr::Eswitch;
using dr::test::MegaflowBuilder;
using test::Bytes;
using test::FakeProvider;
using test::FakeQueue;
using test::FakeVerbs;
using test::MemoryFaults;

constexpr const char* to_megaflows = "FDB level 0 priority 1: dest_table 1";

class AttachedPortTest : public ::testing::Test {
protected:
    void SetUp() override {
        FakeProvider::reset();
        FakeVerbs::reset();
        FakeProvider::prepare_context = FakeVerbs::prepare_context;
        FakeVerbs::note = [](const char* event, std::uint32_t sqn) {
            FakeProvider::note(std::string(event) + " QP " + std::to_string(sqn));
        };
        auto opened = Eswitch::open("fake_0");
        ASSERT_TRUE(opened) << opened.error().what;
        eswitch_ = *opened;
        (void)FakeProvider::take_events();
    }
    void TearDown() override {
        port_.reset();
        eswitch_.reset();
        EXPECT_EQ(FakeVerbs::alive(), 0);
        EXPECT_EQ(FakeProvider::alive(), 0U);
        EXPECT_TRUE(FakeProvider::violations().empty()) << FakeProvider::violations().front();
        EXPECT_EQ(dr::leaked_objects(), 0U);
    }

    AttachedPortSpec spec() {
        return {.odp_port = {1},
                .vport = {1},
                .name = "an interface whose name takes memory",
                .frame_size = 2048,
                .on_event = [this] { ++failures_told_; }};
    }
    Result<void> open() {
        auto port = AttachedPort::open(eswitch_, spec());
        if (!port) return tl::unexpected(port.error());
        port_ = std::move(*port);
        return {};
    }
    static FakeQueue& queue(std::size_t index = 0) { return *FakeVerbs::queues().at(index); }
    unsigned transmit(std::size_t length, std::uint8_t mark) {
        const std::vector<Bytes> frames(length, Bytes(60, mark));
        const std::vector<std::span<const std::uint8_t>> views(frames.begin(), frames.end());
        return port_->transmit(views);
    }
    /// First bytes of the frames that receive() gives until there are none.
    std::vector<int> receive_all() {
        std::vector<int> marks;
        for (auto frames = port_->receive(); !frames.empty(); frames = port_->receive()) {
            for (const Frame& frame : frames) marks.push_back(frame.data[0]);
        }
        return marks;
    }
    /// The NIC has led so many packets up to the newest queue.
    static void lead_up(std::uint64_t packets) {
        const std::string newest = "dest_qp " + std::to_string(FakeVerbs::queues().back()->sqn);
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.table == "NIC_RX level 2" && rule.actions.back() == newest) {
                FakeProvider::count(static_cast<std::uint32_t>(std::stoul(rule.actions.front().substr(6))), packets, 0);
            }
        }
    }
    /// Positions of events, in the order asked for.
    static std::vector<std::string> without_counters(std::vector<std::string> events) {
        for (std::string& event : events) {
            const auto count = event.find(" count ");
            if (count != std::string::npos) event.erase(count, event.find(' ', count + 7) - count);
        }
        return events;
    }

    std::shared_ptr<Eswitch> eswitch_;
    std::unique_ptr<AttachedPort> port_;
    int failures_told_ = 0;
};

TEST_F(AttachedPortTest, LetsPacketsInLastAndTheirWayOutGoAfterThem) {
    ASSERT_TRUE(open());
    const std::string sqn = std::to_string(queue().sqn);
    EXPECT_EQ(FakeProvider::take_events().back(), std::string("create ") + to_megaflows);
    port_.reset();
    const std::vector<std::string> expected{std::string("destroy ") + to_megaflows,
                                            "drain FDB",
                                            "drain NIC_RX",
                                            "destroy NIC_RX level 0 priority 0: dest_table 1",
                                            "destroy NIC_RX level 2 priority 0: dest_qp " + sqn,
                                            "destroy FDB level 0 priority 0: dest_table 1",
                                            "destroy FDB level 1 priority 0: dest_vport 1",
                                            "drain FDB",
                                            "destroy QP " + sqn};
    EXPECT_EQ(without_counters(FakeProvider::take_events()), expected);
}

/// The recording provider has the manager, vports 1 to 4 and the uplink, in this order.
TEST_F(AttachedPortTest, ItsQueueIsOfItsVportsIbPort) {
    for (const auto& [vport, ib_port] : {std::pair<std::uint16_t, unsigned>{1, 2}, {3, 4}, {0xffff, 6}}) {
        AttachedPortSpec other = spec();
        other.vport = {vport};
        auto port = AttachedPort::open(eswitch_, other);
        ASSERT_TRUE(port) << port.error().what;
        EXPECT_EQ(FakeVerbs::queues().back()->ib_port, ib_port) << vport;
    }
    AttachedPortSpec absent = spec();
    absent.vport = {77};
    const auto port = AttachedPort::open(eswitch_, absent);
    ASSERT_FALSE(port);
    EXPECT_EQ(port.error().code, ENOENT) << port.error().what;
}

TEST_F(AttachedPortTest, LeavesNothingBehindWhicheverCallFails) {
    ASSERT_TRUE(open());
    const unsigned whole = FakeProvider::alive("rule");
    port_.reset();
    const unsigned before = FakeProvider::alive();
    std::set<std::string> failed;
    for (unsigned n = 1;; ++n) {
        FakeProvider::fail_call(n, ENOSPC);
        const auto opened = open();
        const std::string call = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        if (call.empty()) break;
        failed.insert(call);
        if (opened) {   // a call that is made twice
            EXPECT_EQ(FakeProvider::alive("rule"), whole) << call;
            port_.reset();
        } else {
            EXPECT_EQ(opened.error().code, ENOSPC) << call;
        }
        EXPECT_EQ(FakeProvider::alive(), before) << call;
        EXPECT_EQ(FakeVerbs::alive(), 0) << call;
    }
    for (const char* call : {"mlx5dv_devx_obj_create", "flow_counter", "dest_ibv_qp", "dest_vport",
                             "mlx5dv_dr_matcher_create", "mlx5dv_dr_rule_create"}) {
        EXPECT_TRUE(failed.count(call)) << call;
    }
    for (unsigned n = 1;; ++n) {
        port_.reset();
        FakeVerbs::fail_call(n);
        const auto opened = open();
        const bool happened = FakeVerbs::failed();
        FakeVerbs::fail_call(0);
        if (!happened) break;
        EXPECT_FALSE(opened);
        EXPECT_EQ(FakeProvider::alive(), before) << "call " << n << " of verbs";
        EXPECT_EQ(FakeVerbs::alive(), 0) << "call " << n << " of verbs";
    }
}

TEST_F(AttachedPortTest, LeavesNothingBehindWheneverMemoryRunsOut) {
    const unsigned before = FakeProvider::alive();
    unsigned n = 1;
    for (;; ++n) {
        const AttachedPortSpec asked = spec();
        MemoryFaults::fail_allocation(n);
        auto opened = AttachedPort::open(eswitch_, asked);
        const bool happened = MemoryFaults::happened();
        MemoryFaults::fail_allocation(0);
        if (!happened) break;
        ASSERT_FALSE(opened) << "allocation " << n;
        EXPECT_EQ(opened.error().code, ENOMEM);
        EXPECT_EQ(FakeProvider::alive(), before) << "allocation " << n;
        EXPECT_EQ(FakeVerbs::alive(), 0) << "allocation " << n;
    }
    EXPECT_GT(n, 20U);
    EXPECT_TRUE(open()) << "and the vport is free";
}

TEST_F(AttachedPortTest, ReplacesItsQueueBeneathTheRules) {
    ASSERT_TRUE(open());
    const dr::Ufid ufid{1, 2};
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch_->put(ufid, MegaflowBuilder(1).ipv4())));
    for (int round = 0; round < 3; ++round) {
        const unsigned rules = FakeProvider::alive("rule");
        const std::string old_sqn = std::to_string(queue().sqn);
        const std::string was = std::to_string(round % 2), is = std::to_string((round + 1) % 2);
        (void)FakeProvider::take_events();
        ASSERT_TRUE(port_->fit(4096U << round));
        const std::string new_sqn = std::to_string(queue(1).sqn);
        const std::vector<std::string> switching{
            "create QP " + new_sqn,
            "create FDB level 1 priority 0: dest_vport 1",
            "create FDB level 0 priority 0: dest_table 1",
            "write FDB",
            "create NIC_RX level 2 priority " + is + ": dest_qp " + new_sqn,
            "write NIC_RX",
            "destroy NIC_RX level 2 priority " + was + ": dest_qp " + old_sqn,
            "drain NIC_RX"};
        EXPECT_EQ(without_counters(FakeProvider::take_events()), switching) << "entrance and megaflows are not touched";
        EXPECT_FALSE(port_->arm()) << "the old queue may hold frames";
        EXPECT_TRUE(port_->receive().empty());
        const std::vector<std::string> ending{"destroy FDB level 0 priority 0: dest_table 1",
                                              "destroy FDB level 1 priority 0: dest_vport 1", "drain FDB",
                                              "destroy QP " + old_sqn};
        EXPECT_EQ(without_counters(FakeProvider::take_events()), ending);
        EXPECT_EQ(FakeProvider::alive("rule"), rules);
        EXPECT_EQ(port_->frame_size(), 4096U << round);
        EXPECT_TRUE(port_->arm());
    }
    EXPECT_TRUE(eswitch_->status(ufid)->offloaded);
    EXPECT_TRUE(port_->fit(2048)) << "smaller frames fit";
    EXPECT_EQ(FakeVerbs::queues().size(), 1U);
    eswitch_->del(ufid);
}

TEST_F(AttachedPortTest, LosesNoFrameWhenItsQueueIsReplaced) {
    ASSERT_TRUE(open());
    for (std::uint8_t i = 0; i < 40; ++i) ASSERT_TRUE(queue().deliver(Bytes(60, i)));
    lead_up(40);
    EXPECT_EQ(port_->receive().size(), batch_length);
    queue().executes = false;
    EXPECT_EQ(transmit(3, 7), 3U);
    ASSERT_TRUE(port_->fit(9000));
    ASSERT_EQ(FakeVerbs::queues().size(), 2U);
    for (std::uint8_t i = 40; i < 45; ++i) ASSERT_TRUE(queue(1).deliver(Bytes(60, i)));
    lead_up(5);
    EXPECT_EQ(transmit(2, 8), 2U);
    EXPECT_EQ(queue(1).sent.size(), 2U);
    EXPECT_EQ(receive_all(), (std::vector<int>{32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44}));
    ASSERT_EQ(FakeVerbs::queues().size(), 2U) << "three sends are under way in the old queue";
    queue().execute();
    EXPECT_EQ(queue().sent.size(), 3U);
    EXPECT_TRUE(receive_all().empty());
    EXPECT_EQ(FakeVerbs::queues().size(), 1U);
    const SlowPathStats stats = port_->stats();
    EXPECT_EQ(stats.queue.received, 45U);
    EXPECT_EQ(stats.queue.sent, 5U);
    EXPECT_EQ(stats.queue.send_errors + stats.queue.send_drops + stats.receive_missed, 0U);
    EXPECT_EQ(stats.restarts, 0U);
}

TEST_F(AttachedPortTest, KeepsItsQueueWhenTheDeviceHasNoOther) {
    ASSERT_TRUE(open());
    const unsigned before = FakeProvider::alive();
    const int verbs_before = FakeVerbs::alive();
    const auto works = [&](const std::string& what) {
        EXPECT_EQ(FakeProvider::alive(), before) << what;
        EXPECT_EQ(FakeVerbs::alive(), verbs_before) << what;
        ASSERT_EQ(FakeVerbs::queues().size(), 1U) << what;
        EXPECT_TRUE(queue().deliver(Bytes(60, 1)));
        EXPECT_EQ(receive_all().size(), 1U) << what;
        EXPECT_EQ(transmit(1, 1), 1U) << what;
        EXPECT_EQ(queue().sent.size(), 1U) << what;
        queue().sent.clear();
    };
    for (unsigned n = 1;; ++n) {
        FakeProvider::fail_call(n, ENOSPC);
        const auto fits = port_->fit(9000);
        const std::string call = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        if (fits) {
            // A sync or a query that failed once is made again; what else failed must have been told.
            EXPECT_TRUE(call.empty() || call == "mlx5dv_dr_domain_sync" || call == "mlx5dv_devx_obj_query") << call;
            break;
        }
        works(call);
    }
    (void)receive_all();
    for (unsigned n = 1;; ++n) {
        FakeVerbs::fail_call(n);
        const auto fits = port_->fit(10000);
        FakeVerbs::fail_call(0);
        if (fits) break;
        works("call " + std::to_string(n) + " of verbs");
    }
    (void)receive_all();
    for (unsigned n = 1;; ++n) {
        MemoryFaults::fail_allocation(n);
        const auto fits = port_->fit(11000);
        const bool happened = MemoryFaults::happened();
        MemoryFaults::fail_allocation(0);
        if (!happened) break;
        ASSERT_FALSE(fits);
        works("allocation " + std::to_string(n));
    }
    (void)receive_all();
    works("at last");
}

/// Each second queue's rule is in front of the one before's.
TEST_F(AttachedPortTest, GivesOutWhatAQueueGotThatTheDeviceThenFailedWith) {
    ASSERT_TRUE(open());
    static unsigned refused, got;
    refused = got = 0;
    FakeProvider::in_sync = [] {
        const std::string newest = "dest_qp " + std::to_string(FakeVerbs::queues().back()->sqn);
        const auto rules = FakeProvider::rules();
        if (FakeVerbs::queues().size() < 2 || rules.back().actions.back() != newest) return;
        lead_up(2);
        ++refused;   // it has no buffer for it
        got += FakeVerbs::queues().back()->deliver(Bytes(60, 5));
    };
    for (unsigned n = 1;; ++n) {
        FakeProvider::fail_call(n, EIO, 2);
        const bool fits = port_->fit(9000).has_value();
        FakeProvider::fail_call(0, 0);
        if (fits) break;
        const std::vector<int> waiting(got - port_->stats().queue.received, 5);
        EXPECT_EQ(receive_all(), waiting);
        EXPECT_EQ(port_->stats().receive_missed, refused);
        EXPECT_EQ(FakeVerbs::queues().size(), 1U);
    }
    FakeProvider::in_sync = nullptr;
    EXPECT_GE(refused, 2U) << "the device failed when packets had come";
    (void)receive_all();
    EXPECT_EQ(port_->stats().queue.received, got);
}

TEST_F(AttachedPortTest, RestartsAQueueThatFailedAndCountsWhatWasLost) {
    ASSERT_TRUE(open());
    EXPECT_EQ(transmit(4, 1), 4U);
    for (std::uint8_t i = 0; i < 3; ++i) ASSERT_TRUE(queue().deliver(Bytes(60, i)));
    queue().fail(IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(transmit(5, 2), 5U);   // the first fails, four are flushed
    EXPECT_FALSE(queue().deliver(Bytes(60, 9))) << "nothing is posted any more";
    lead_up(3 + 2);                  // two more that found a queue that had failed
    EXPECT_EQ(port_->receive().size(), 3U);
    EXPECT_TRUE(port_->receive().empty());
    EXPECT_TRUE(port_->failed());
    EXPECT_EQ(transmit(2, 3), 0U);
    EXPECT_EQ(failures_told_, 1);
    EXPECT_EQ(port_->stats().queue.send_errors, 7U);
    EXPECT_EQ(port_->failure(), "sending: local protection error");

    ASSERT_TRUE(port_->restart());
    EXPECT_FALSE(port_->failed());
    EXPECT_TRUE(receive_all().empty());
    ASSERT_EQ(FakeVerbs::queues().size(), 1U);
    EXPECT_TRUE(queue().deliver(Bytes(60, 42)));
    lead_up(1);
    EXPECT_EQ(receive_all(), std::vector<int>{42});
    EXPECT_EQ(transmit(6, 4), 6U);
    EXPECT_EQ(queue().sent.size(), 6U);
    const SlowPathStats stats = port_->stats();
    EXPECT_EQ(stats.queue.received, 4U);
    EXPECT_EQ(stats.receive_missed, 2U);
    EXPECT_EQ(stats.queue.sent, 4U + 6U);
    EXPECT_EQ(stats.queue.send_errors, 7U);
    EXPECT_EQ(stats.restarts, 1U);
    EXPECT_EQ(failures_told_, 1);
}

TEST_F(AttachedPortTest, GivesUpSendsWhoseCompletionsNeverCome) {
    ASSERT_TRUE(open());
    queue().executes = false;
    EXPECT_EQ(transmit(3, 7), 3U);
    ASSERT_TRUE(port_->fit(9000));
    ASSERT_TRUE(port_->fit(10000)) << "a second one does not wait for them";
    EXPECT_EQ(port_->stats().queue.send_errors, 3U);
    EXPECT_TRUE(receive_all().empty());
    EXPECT_EQ(FakeVerbs::queues().size(), 1U);
}

/// OVS hands over up to 32 packets of 64 KB at a time, before the device has sent any of them.
TEST_F(AttachedPortTest, ABatchOfSegmentsFindsRoom) {
    auto wide = spec();
    wide.segments = true;
    auto opened = AttachedPort::open(eswitch_, wide);
    ASSERT_TRUE(opened) << opened.error().what;
    port_ = std::move(*opened);
    queue().executes = false;
    constexpr std::size_t segments = 32 * 46;   // of 1,500 bytes each
    EXPECT_EQ(transmit(segments, 1), segments);
    EXPECT_EQ(port_->stats().queue.send_drops, 0U);
    queue().execute();
}

/// Several threads of which at any moment one sends must not keep the main thread waiting.
TEST_F(AttachedPortTest, ReplacesItsQueueWhileOthersSendWithoutAPause) {
    ASSERT_TRUE(open());
    constexpr unsigned most = 3000;
    std::atomic<unsigned> posts = 0;
    std::atomic<bool> replaced = false;
    queue().on_post = [&] {
        ++posts;
        std::this_thread::sleep_for(std::chrono::microseconds(300));
    };
    std::vector<std::thread> senders;
    for (unsigned i = 0; i < 3; ++i) {
        senders.emplace_back([&] {
            while (!replaced && posts < most) transmit(1, 7);
        });
    }
    while (posts < 10) std::this_thread::yield();
    const unsigned before = posts;
    EXPECT_TRUE(port_->fit(9000));
    replaced = true;
    const unsigned waited_for = posts - before;
    for (std::thread& sender : senders) sender.join();
    EXPECT_LT(waited_for, 100U) << "sends, of at most " << most;
}

/// With several receive queues.
class SpreadPortTest : public AttachedPortTest {
protected:
    Result<void> open_with(unsigned receive_queues) {
        auto spread = spec();
        spread.receive_queues = receive_queues;
        auto port = AttachedPort::open(eswitch_, spread);
        if (!port) return tl::unexpected(port.error());
        port_ = std::move(*port);
        return {};
    }
    static std::vector<FakeQueue*> receive_queues() {
        auto queues = FakeVerbs::queues();
        std::erase_if(queues, [](const FakeQueue* queue) { return !queue->is_wq; });
        return queues;
    }
    static FakeQueue* sender() {
        for (FakeQueue* queue : FakeVerbs::queues()) {
            if (!queue->is_wq) return queue;
        }
        return nullptr;
    }
    std::vector<int> received_by(unsigned queue) {
        std::vector<int> marks;
        for (auto frames = port_->receive(queue); !frames.empty(); frames = port_->receive(queue)) {
            for (const Frame& frame : frames) marks.push_back(frame.data[0]);
        }
        return marks;
    }
    static std::vector<std::string> landings() {
        std::vector<std::string> rules;
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.table != "NIC_RX level 2") continue;
            rules.push_back(std::to_string(rule.priority) + " " + rule.actions.back());
        }
        return rules;
    }
};

TEST_F(SpreadPortTest, LeadsEachKindOfPacketToQueuePairsThatSpreadAndTheRestToTheFirstQueue) {
    ASSERT_TRUE(open_with(3));
    const auto queues = receive_queues();
    ASSERT_EQ(queues.size(), 3U);
    unsigned kinds = 0, rest = 0;
    for (const auto& rule : FakeProvider::rules()) {
        if (rule.table != "NIC_RX level 2") continue;
        const auto spread =
            FakeVerbs::spread_of(static_cast<std::uint32_t>(std::stoul(rule.actions.back().substr(8))));
        ASSERT_FALSE(spread.empty()) << "a rule leads to a queue pair that only sends";
        if (spread.size() == 1) {
            EXPECT_EQ(rule.priority, 2U) << "behind all kinds";
            EXPECT_EQ(spread[0], queues[0]);
            ++rest;
            continue;
        }
        EXPECT_LT(rule.priority, 2U);
        for (const FakeQueue* queue : queues) {
            EXPECT_NEAR(std::ranges::count(spread, queue), spread.size() / 3.0, 1.0) << "shares differ";
        }
        ++kinds;
    }
    EXPECT_EQ(kinds, 6U);
    EXPECT_EQ(rest, 1U);
    // Each receive queue gives what it got, and what is sent goes by the one that sends.
    for (std::uint8_t i = 0; i < 3; ++i) ASSERT_TRUE(queues[i]->deliver(Bytes(60, static_cast<std::uint8_t>(10 + i))));
    for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(received_by(i), std::vector<int>{static_cast<int>(10 + i)});
    EXPECT_EQ(transmit(2, 7), 2U);
    EXPECT_EQ(sender()->sent.size(), 2U);
    EXPECT_EQ(port_->stats().queue.received, 3U);
}

/// Its receivers are woken by nobody, and only the first of them looks after the sends.
TEST_F(SpreadPortTest, HearsOfASendThatFailedFromWhoeverFindsNothing) {
    ASSERT_TRUE(open_with(2));
    sender()->fail(IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(transmit(1, 2), 1U);
    EXPECT_TRUE(received_by(1).empty());
    EXPECT_FALSE(port_->failed());
    EXPECT_TRUE(received_by(0).empty());
    EXPECT_TRUE(port_->failed());
    EXPECT_EQ(failures_told_, 1);
    EXPECT_EQ(port_->failure(), "sending: local protection error");
}

TEST_F(SpreadPortTest, GivesEachBufferBackToItsOwnQueue) {
    ASSERT_TRUE(open_with(2));
    const auto queues = receive_queues();
    const std::size_t posted = queues[0]->posted_receives();
    for (unsigned round = 0; round < 5000; ++round) {
        ASSERT_TRUE(queues[round % 2]->deliver(Bytes(60, static_cast<std::uint8_t>(round))));
        if (round % 7 == 0) {
            (void)received_by(0);
            (void)received_by(1);
        }
    }
    for (unsigned i : {0U, 1U, 0U, 1U}) (void)received_by(i);
    EXPECT_EQ(queues[0]->posted_receives(), posted);
    EXPECT_EQ(queues[1]->posted_receives(), posted);
}

TEST_F(SpreadPortTest, KeepsAnOldQueueUntilEachOfItsReceiversHasEmptiedIt) {
    ASSERT_TRUE(open_with(2));
    const auto old = receive_queues();
    const FakeQueue* const old_sender = sender();
    ASSERT_TRUE(old[0]->deliver(Bytes(60, 1)));
    ASSERT_TRUE(old[1]->deliver(Bytes(60, 2)));
    lead_up(0);
    ASSERT_TRUE(port_->fit(9216));
    EXPECT_EQ(receive_queues().size(), 4U);
    EXPECT_EQ(landings().size(), 7U) << "the old queue's rules are gone";
    for (const std::string& rule : landings()) EXPECT_GE(rule[0], '3') << rule;

    const auto held = port_->receive(1);
    ASSERT_EQ(held.size(), 1U);
    EXPECT_EQ(received_by(0), std::vector<int>{1});
    port_->tend();
    EXPECT_EQ(receive_queues().size(), 4U) << "somebody has its frame";
    EXPECT_EQ(held[0].data[0], 2);
    const auto again = port_->fit(12000);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code, EBUSY);
    EXPECT_EQ(failures_told_, 0);
    EXPECT_TRUE(port_->receive(1).empty());
    EXPECT_EQ(failures_told_, 1) << "the owner is told to tend()";
    port_->tend();
    EXPECT_EQ(receive_queues().size(), 2U);
    EXPECT_NE(sender(), old_sender);
    EXPECT_TRUE(port_->fit(12000));
    EXPECT_EQ(received_by(0).size() + received_by(1).size(), 0U);
    port_->tend();
}

TEST_F(SpreadPortTest, LosesNothingWhenTheNumberOfQueuesChanges) {
    ASSERT_TRUE(open_with(1));
    for (const unsigned length : {4U, 3U, 1U, 2U, 1U}) {
        const auto before = receive_queues();
        std::size_t sent = 0;
        if (before.empty()) {
            ASSERT_TRUE(sender()->deliver(Bytes(60, 1)));
            ++sent;
        }
        for (FakeQueue* queue : before) sent += queue->deliver(Bytes(60, 1));
        ASSERT_TRUE(port_->set_receive_queues(length));
        EXPECT_EQ(port_->receive_queues(), length);
        std::size_t came = 0;
        for (unsigned queue = 0; queue < length; ++queue) came += received_by(queue).size();
        EXPECT_EQ(came, sent) << "to " << length;
        port_->tend();
        EXPECT_EQ(receive_queues().size(), length > 1 ? length : 0);
        EXPECT_EQ(port_->stats().receive_missed, 0U);
    }
}

TEST_F(SpreadPortTest, LeavesNothingBehindWhenACallFails) {
    unsigned failed = 0;
    for (unsigned n = 1;; ++n) {
        FakeVerbs::fail_call(n);
        const auto opened = open_with(2);
        if (!FakeVerbs::failed()) {
            EXPECT_TRUE(opened);
            break;
        }
        EXPECT_FALSE(opened) << n;
        EXPECT_EQ(FakeVerbs::alive(), 0) << n;
        EXPECT_TRUE(landings().empty()) << n;
        ++failed;
    }
    FakeVerbs::fail_call(0);
    EXPECT_GT(failed, 80U);
    // And a number that cannot be had leaves the one there is.
    const auto rules = landings();
    FakeVerbs::fail_call(20);
    EXPECT_FALSE(port_->set_receive_queues(3));
    FakeVerbs::fail_call(0);
    EXPECT_EQ(landings(), rules);
    EXPECT_EQ(port_->receive_queues(), 2U);
}

}  // namespace
}  // namespace ovsdr::slowpath
