// Copies of all devices, as the C shim gets them, on the recording provider and on queues of the test's own.
#include "ctrl/copies.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "offload/slowpath/attached_port.hpp"
#include "tests/unit/offload/fake_provider.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/slowpath/fake_verbs.hpp"
#include "tests/unit/offload/software_actions.hpp"

namespace ovsdr::ctrl {
namespace {

using dr::test::MegaflowBuilder, dr::test::bytes, dr::test::tap;
using test::Bytes, test::FakeProvider, test::FakeQueue, test::FakeVerbs;

constexpr std::uint32_t unknown_tag = 4321;
std::vector<int> waited_for;

class CopiesTest : public ::testing::Test {
protected:
    void SetUp() override {
        FakeProvider::reset();
        FakeVerbs::reset();
        FakeProvider::prepare_context = FakeVerbs::prepare_context;
        auto opened = dr::Eswitch::open("fake_0");
        ASSERT_TRUE(opened) << opened.error().what;
        eswitch_ = *opened;
        auto queue = slowpath::CopyQueue::open(eswitch_, dr::CopyKind::other, 2048);
        ASSERT_TRUE(queue) << queue.error().what;
        copies_ = std::make_shared<DeviceCopies>(std::move(*queue));
        copy_queues().add(copies_);
        for (std::uint16_t number = 1; number <= 2; ++number) {
            auto port = slowpath::AttachedPort::open(eswitch_, {.odp_port = {number},
                                                                .vport = {number},
                                                                .name = "vm",
                                                                .frame_size = 2048,
                                                                .on_event = nullptr});
            ASSERT_TRUE(port) << port.error().what;
            ports_.push_back(std::move(*port));
        }
        EXPECT_EQ(arm(), 0) << "there is a queue more to look at";
        EXPECT_EQ(arm(), -1);
        EXPECT_EQ(waited_for.size(), 2U) << "for copies, and for devices that come or go";
    }
    void TearDown() override {
        ports_.clear();
        if (copies_ != nullptr) go();
        EXPECT_EQ(arm(), 0);
        EXPECT_EQ(tend(), -1);
        eswitch_.reset();
        EXPECT_EQ(FakeVerbs::alive(), 0);
        EXPECT_EQ(FakeProvider::alive(), 0U);
    }

    /// As a device that is closed.
    void go() {
        copies_->queue->stop();
        copy_queues().remove(*copies_);
        copies_.reset();
    }
    static int arm() {
        waited_for.clear();
        return ovsdr_copies_arm([](int fd) { waited_for.push_back(fd); });
    }
    static int tend() {
        return ovsdr_copies_tend([](int) {});
    }
    static FakeQueue& queue() { return *FakeVerbs::queues().front(); }
    std::vector<ovsdr_copy> receive(bool wanted = true) {
        std::vector<ovsdr_copy> copies(OVSDR_BATCH);
        bool waits = false;
        copies.resize(ovsdr_copies_receive(copies.data(), &waits));
        EXPECT_EQ(waits, wanted);
        return copies;
    }
    static nlohmann::json report() {
        const std::unique_ptr<char, decltype(&std::free)> text(ovsdr_report_copies(true), &std::free);
        return nlohmann::json::parse(text.get()).at("devices");
    }

    std::shared_ptr<dr::Eswitch> eswitch_;
    std::shared_ptr<DeviceCopies> copies_;
    std::vector<std::unique_ptr<slowpath::AttachedPort>> ports_;
};

/// Either thread may be the last that has a device.
TEST_F(CopiesTest, WhatTheReceiverLetsGoOfTheTenderCloses) {
    ports_.clear();
    go();
    eswitch_.reset();
    EXPECT_EQ(tend(), -1);
    EXPECT_NE(FakeProvider::alive(), 0U) << "the receiver has it";
    ovsdr_copies_let_go();
    EXPECT_NE(FakeProvider::alive(), 0U) << "the tender has it";
    EXPECT_EQ(tend(), -1);
    EXPECT_EQ(FakeProvider::alive(), 0U);
}

TEST_F(CopiesTest, BothThreadsAreWoken) {
    EXPECT_EQ(arm(), -1);
    EXPECT_EQ(tend(), -1);
    const auto is_readable = [](int fd) {
        pollfd waited{fd, POLLIN, 0};
        return poll(&waited, 1, 0) == 1;
    };
    EXPECT_FALSE(is_readable(copy_queues().receiver_fd()) || is_readable(copy_queues().tender_fd()));
    ovsdr_copies_wake();
    EXPECT_TRUE(is_readable(copy_queues().receiver_fd()) && is_readable(copy_queues().tender_fd()));
}

TEST_F(CopiesTest, EachCopyComesWithWhatIsToBeDone) {
    const dr::Ufid ufid{1, 0};
    const ovsdr_megaflow megaflow = MegaflowBuilder(1).ipv4().software(bytes).output(tap).output(2);
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch_->put(ufid, megaflow)));
    unsigned works = 0;
    for (std::uint32_t tag = 1; tag < unknown_tag; ++tag) {
        const auto work = eswitch_->work_of(tag);
        if (work == nullptr) continue;
        ++works;
        ASSERT_TRUE(queue().deliver(Bytes(60, 7), tag));
        const auto copies = receive();
        ASSERT_EQ(copies.size(), 1U);
        EXPECT_EQ(copies[0].in_port, 1U);
        EXPECT_EQ(copies[0].size, 60U);
        EXPECT_EQ(copies[0].data[0], 7);
        if (std::holds_alternative<dr::SoftwareWork::Ports>(work->work)) {
            ASSERT_EQ(copies[0].n_outputs, 1U);
            EXPECT_EQ(copies[0].outputs[0], tap);
            EXPECT_EQ(copies[0].actions, nullptr);
        } else {
            ASSERT_EQ(copies[0].actions_size, bytes.size());
            EXPECT_EQ(std::memcmp(copies[0].actions, bytes.data(), bytes.size()), 0);
        }
    }
    EXPECT_EQ(works, 2U);
    EXPECT_TRUE(receive(false).empty());
    EXPECT_EQ(report().at(0).at("done"), 2);
    eswitch_->del(ufid);
}

TEST_F(CopiesTest, ACopyWhoseMegaflowHasGoneIsCounted) {
    ASSERT_TRUE(queue().deliver(Bytes(60, 7), unknown_tag));
    EXPECT_TRUE(receive().empty());
    EXPECT_TRUE(receive(false).empty());
    EXPECT_EQ(report().at(0).at("without_work"), 1);
    EXPECT_EQ(report().at(0).at("done"), 0);
}

TEST_F(CopiesTest, ADeviceThatComesIsSeenWhileCopiesOfAnotherWait) {
    auto opened = slowpath::CopyQueue::open(eswitch_, dr::CopyKind::other, 2048);
    ASSERT_TRUE(opened) << opened.error().what;
    const auto another = std::make_shared<DeviceCopies>(std::move(*opened));
    copy_queues().add(another);
    for (const auto& its : {FakeVerbs::queues().front(), FakeVerbs::queues().back()}) {
        ASSERT_TRUE(its->deliver(Bytes(60, 7), unknown_tag));
    }
    (void)receive();
    (void)receive();
    EXPECT_EQ(copies_->without_work, 1U);
    EXPECT_EQ(another->without_work, 1U);
    another->queue->stop();
    copy_queues().remove(*another);
}

TEST_F(CopiesTest, WhatIsForTheHostComesFirst) {
    auto opened = slowpath::CopyQueue::open(eswitch_, dr::CopyKind::host, 2048);
    ASSERT_TRUE(opened) << opened.error().what;
    const auto of_host = std::make_shared<DeviceCopies>(std::move(*opened));
    copy_queues().add(of_host);
    const auto others = FakeVerbs::queues().front(), hosts = FakeVerbs::queues().back();
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < OVSDR_BATCH; ++i) ASSERT_TRUE(others->deliver(Bytes(60, 7), unknown_tag));
    }
    for (std::uint64_t n = 1; n <= 3; ++n) {
        ASSERT_TRUE(hosts->deliver(Bytes(60, 7), unknown_tag));
        (void)receive();
        EXPECT_EQ(of_host->without_work, n) << "although others wait";
        EXPECT_EQ(copies_->without_work, 0U);
    }
    while (copies_->without_work < 3U * OVSDR_BATCH) (void)receive();
    const auto queues = report().at(0).at("queues");
    ASSERT_EQ(queues.size(), 2U);
    EXPECT_EQ(queues[0].at("queue"), "other");
    EXPECT_EQ(queues[1].at("queue"), "host");
    EXPECT_EQ(queues[1].at("without_work"), 3);
    EXPECT_EQ(report().at(0).at("without_work"), 3 * OVSDR_BATCH + 3) << "of the device";
    of_host->queue->stop();
    copy_queues().remove(*of_host);
}

/// A flood to LOCAL is not the end of logs and samples.
TEST_F(CopiesTest, WhatIsForTheHostLeavesOthersATurn) {
    auto opened = slowpath::CopyQueue::open(eswitch_, dr::CopyKind::host, 2048);
    ASSERT_TRUE(opened) << opened.error().what;
    const auto of_host = std::make_shared<DeviceCopies>(std::move(*opened));
    copy_queues().add(of_host);
    const auto others = FakeVerbs::queues().front(), hosts = FakeVerbs::queues().back();
    ASSERT_TRUE(others->deliver(Bytes(60, 7), unknown_tag));
    constexpr std::uint64_t longest_row = 8;
    for (std::uint64_t n = 0; n < longest_row; ++n) {
        ASSERT_TRUE(hosts->deliver(Bytes(60, 7), unknown_tag));
        (void)receive();
        EXPECT_EQ(copies_->without_work, 0U);
    }
    ASSERT_TRUE(hosts->deliver(Bytes(60, 7), unknown_tag));
    (void)receive();
    EXPECT_EQ(copies_->without_work, 1U);
    (void)receive();
    EXPECT_EQ(of_host->without_work, longest_row + 1);
    of_host->queue->stop();
    copy_queues().remove(*of_host);
}

TEST_F(CopiesTest, WhatWaitsIsNotLost) {
    const dr::Ufid ufid{1, 0};
    const ovsdr_megaflow megaflow = MegaflowBuilder(1).ipv4().output(tap).output(2);
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch_->put(ufid, megaflow)));
    const auto works = eswitch_->works();
    ASSERT_EQ(works.size(), 1U);
    const auto lead_up = [](std::uint64_t packets) {
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.table != "NIC_RX level 2" || rule.actions.at(0).find("count ") != 0) continue;
            FakeProvider::count(static_cast<std::uint32_t>(std::stoul(rule.actions[0].substr(6))), packets, 0);
        }
    };
    lead_up(2);
    ASSERT_EQ(report().at(0).at("copies"), 2);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(queue().deliver(Bytes(60, 7), works[0].id));
    EXPECT_EQ(report().at(0).at("lost"), 0);
    EXPECT_EQ(report().at(0).at("waiting"), 2);
    EXPECT_EQ(receive().size(), 2U);
    EXPECT_EQ(report().at(0).at("done"), 2);
    EXPECT_EQ(report().at(0).at("waiting"), 0);

    constexpr std::uint64_t most_waiting = 2 * slowpath::CopyQueue::most_of(dr::CopyKind::other);
    lead_up(most_waiting + 3);
    EXPECT_EQ(report().at(0).at("lost"), 3) << "more than two queues hold";
    EXPECT_EQ(report().at(0).at("waiting"), most_waiting);
    eswitch_->del(ufid);
}

/// A receiver that stands still loses nothing by that; what was lost is told when the queue has been found empty.
TEST_F(CopiesTest, WhatIsMissingIsLostWhenTheQueueHasBeenFoundEmpty) {
    const dr::Ufid ufid{1, 0};
    const ovsdr_megaflow megaflow = MegaflowBuilder(1).ipv4().output(tap).output(2);
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch_->put(ufid, megaflow)));
    const auto works = eswitch_->works();
    for (const auto& rule : FakeProvider::rules()) {
        if (rule.table != "NIC_RX level 2" || rule.actions.at(0).find("count ") != 0) continue;
        FakeProvider::count(static_cast<std::uint32_t>(std::stoul(rule.actions[0].substr(6))), 12, 0);
    }
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(queue().deliver(Bytes(60, 7), works.at(0).id));
    const auto told = [] {
        const auto device = report().at(0);
        return std::vector<int>{device.at("done"), device.at("lost"), device.at("waiting")};
    };
    EXPECT_EQ(told(), (std::vector<int>{0, 0, 12}));
    EXPECT_EQ(arm(), 0) << "the receiver is woken";
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    EXPECT_EQ(told(), (std::vector<int>{0, 0, 12})) << "nobody has looked";
    EXPECT_EQ(receive().size(), 5U);
    EXPECT_EQ(told(), (std::vector<int>{5, 0, 7})) << "more may wait behind these";
    EXPECT_TRUE(receive(false).empty());
    EXPECT_EQ(told(), (std::vector<int>{5, 7, 0}));
    EXPECT_EQ(arm(), -1) << "nothing is to be found out";
    ASSERT_TRUE(queue().deliver(Bytes(60, 7), works.at(0).id));
    EXPECT_EQ(receive().size(), 1U);
    EXPECT_EQ(told(), (std::vector<int>{6, 7, 0})) << "lost is never taken back";
    eswitch_->del(ufid);
}

/// Whoever asks has the receiver look once more when what was under way has come.
TEST_F(CopiesTest, TheReceiverLooksAgainForWhoAsks) {
    const dr::Ufid ufid{1, 0};
    const ovsdr_megaflow megaflow = MegaflowBuilder(1).ipv4().output(tap).output(2);
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch_->put(ufid, megaflow)));
    for (const auto& rule : FakeProvider::rules()) {
        if (rule.table != "NIC_RX level 2" || rule.actions.at(0).find("count ") != 0) continue;
        FakeProvider::count(static_cast<std::uint32_t>(std::stoul(rule.actions[0].substr(6))), 3, 0);
    }
    EXPECT_EQ(report().at(0).at("waiting"), 3);
    EXPECT_EQ(arm(), 0);
    EXPECT_TRUE(receive(false).empty());
    for (int again = arm(); again > 0; again = arm()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(again));
        EXPECT_TRUE(receive(false).empty());
    }
    EXPECT_EQ(report().at(0).at("lost"), 3);
    eswitch_->del(ufid);
}

TEST_F(CopiesTest, AQueueIsReplacedByTheTender) {
    copies_->queue->fit(9000);
    EXPECT_EQ(arm(), -1) << "that is nothing of the receiver's";
    EXPECT_EQ(tend(), -1);
    EXPECT_EQ(FakeVerbs::queues().size(), 4U) << "two ports', and two for copies";
    EXPECT_EQ(arm(), 0) << "it is woken";
    EXPECT_TRUE(receive(false).empty());
    EXPECT_EQ(FakeVerbs::queues().size(), 4U);
    EXPECT_EQ(tend(), -1);
    EXPECT_EQ(FakeVerbs::queues().size(), 3U);
}

/// One copy for all of them; what the device led up and nobody got is told by work.
TEST_F(CopiesTest, ACopyHasSeveralOutputs) {
    const dr::Ufid ufid{1, 0};
    const ovsdr_megaflow megaflow = MegaflowBuilder(1).ipv4().output(tap + 1).output(tap).output(2);
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch_->put(ufid, megaflow)));
    const auto works = eswitch_->works();
    ASSERT_EQ(works.size(), 1U);
    for (const auto& rule : FakeProvider::rules()) {
        if (rule.table != "NIC_RX level 1" || !rule.actions.at(0).starts_with("count ")) continue;
        FakeProvider::count(static_cast<std::uint32_t>(std::stoul(rule.actions[0].substr(6))), 5, 0);
    }
    ASSERT_TRUE(queue().deliver(Bytes(60, 7), works[0].id));
    const auto copies = receive();
    ASSERT_EQ(copies.size(), 1U);
    ASSERT_EQ(copies[0].n_outputs, 2U);
    EXPECT_EQ(copies[0].outputs[0], tap);
    EXPECT_EQ(copies[0].outputs[1], tap + 1);
    const auto told = report().at(0).at("works").at(0);
    EXPECT_EQ(told.at("id"), works[0].id);
    EXPECT_EQ(told.at("work"), "output to datapath ports 77, 78, from datapath port 1");
    EXPECT_EQ(told.at("copies"), 5);
    EXPECT_EQ(told.at("dropped"), 4);
    eswitch_->del(ufid);
}

TEST_F(CopiesTest, ADeviceThatGoesWaitsForNobody) {
    const std::size_t queues = FakeVerbs::queues().size();
    go();
    EXPECT_EQ(FakeVerbs::queues().size(), queues) << "the receiver may be using it";
    EXPECT_TRUE(report().empty());
    EXPECT_EQ(arm(), 0);
    EXPECT_EQ(FakeVerbs::queues().size(), queues) << "that takes the firmware's time";
    EXPECT_EQ(tend(), -1);
    EXPECT_EQ(FakeVerbs::queues().size(), queues - 1);
    copy_queues().wake_receiver();
}

}  // namespace
}  // namespace ovsdr::ctrl
