// The queue for copies on the recording provider and on queues of the test's own: what it leads up, what happens to
// frames while a queue is replaced, and what is left behind when something fails.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "offload/dr/device/leak.hpp"
#include "offload/mirror/mirror.hpp"
#include "offload/slowpath/copy_queue.hpp"
#include "tests/unit/offload/fake_provider.hpp"
#include "tests/unit/offload/memory_faults.hpp"
#include "tests/unit/offload/slowpath/fake_verbs.hpp"

namespace ovsdr::slowpath {
namespace {

using dr::Eswitch;
using test::Bytes;
using test::FakeProvider;
using test::FakeQueue;
using test::FakeVerbs;
using test::MemoryFaults;

class CopyQueueTest : public ::testing::Test {
protected:
    static constexpr unsigned frame_size = 2048;

    void SetUp() override {
        FakeProvider::reset();
        FakeVerbs::reset();
        FakeProvider::prepare_context = FakeVerbs::prepare_context;
        auto opened = Eswitch::open("fake_0");
        ASSERT_TRUE(opened) << opened.error().what;
        eswitch_ = *opened;
    }
    void TearDown() override {
        copies_.reset();
        eswitch_.reset();
        // The fake provider counts what two open devices have together.
        const bool two_devices = std::exchange(device_, nullptr) != nullptr;
        auto violations = FakeProvider::violations();
        if (two_devices) std::erase(violations, "device closed while in use");
        EXPECT_EQ(FakeVerbs::alive(), 0);
        EXPECT_EQ(FakeProvider::alive(), 0U);
        EXPECT_TRUE(violations.empty()) << violations.front();
        EXPECT_EQ(dr::leaked_objects(), 0U);
    }
    void open() {
        auto opened = CopyQueue::open(eswitch_, dr::CopyKind::other, frame_size);
        ASSERT_TRUE(opened) << opened.error().what;
        copies_ = std::move(*opened);
    }
    /// Whether the receiver has something to take over then.
    bool tend() { return copies_->tend().for_receiver; }
    static FakeQueue& queue(std::size_t index = 0) { return *FakeVerbs::queues().at(index); }
    /// First bytes and tags of the frames that receive() gives until there are none.
    std::vector<std::pair<int, std::uint32_t>> receive_all() {
        std::vector<std::pair<int, std::uint32_t>> all;
        for (auto frames = copies_->receive(); !frames.empty(); frames = copies_->receive()) {
            for (const Frame& frame : frames) all.emplace_back(frame.data[0], frame.tag);
        }
        return all;
    }

    std::shared_ptr<dr::Device> device_;   ///< of a mirror's session, if there is one
    std::shared_ptr<Eswitch> eswitch_;
    std::shared_ptr<CopyQueue> copies_;
};

TEST_F(CopyQueueTest, AMirrorsIsLongerAndBounded) {
    const auto length_of = CopyQueue::length_of;
    EXPECT_EQ(length_of(dr::CopyKind::host, 1600), 1024U);
    EXPECT_EQ(length_of(dr::CopyKind::host, 65536), 1024U);
    const dr::CopyKind mirror = dr::mirror_kind(3);
    EXPECT_EQ(length_of(mirror, 1600), 8192U);
    EXPECT_EQ(length_of(mirror, 4096), 8192U);
    EXPECT_EQ(length_of(mirror, 4097), 4096U);
    EXPECT_EQ(length_of(mirror, 9100), 2048U);
    EXPECT_EQ(length_of(mirror, 65536), 1024U);
    EXPECT_EQ(CopyQueue::most_of(mirror), 8192U);
}

TEST_F(CopyQueueTest, GivesOutWhatComesUpWithItsTag) {
    open();
    EXPECT_EQ(queue().ib_port, 6U) << "the uplink's";
    EXPECT_EQ(queue().posted_receives(), 1024U);
    EXPECT_TRUE(copies_->arm());
    ASSERT_TRUE(queue().deliver(Bytes(60, 1), 77));
    ASSERT_TRUE(queue().deliver(Bytes(60, 2), 78));
    EXPECT_EQ(receive_all(), (std::vector<std::pair<int, std::uint32_t>>{{1, 77}, {2, 78}}));
    EXPECT_EQ(copies_->stats().received, 2U);
    EXPECT_FALSE(copies_->asks_for_tending());
    EXPECT_FALSE(tend());
    EXPECT_EQ(copies_->tend().again_in_ms, -1);
}

TEST_F(CopyQueueTest, LosesNoFrameWhenItsBuffersGrow) {
    open();
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(queue().deliver(Bytes(60, static_cast<std::uint8_t>(i))));
    copies_->fit(frame_size);
    EXPECT_FALSE(tend()) << "smaller frames fit";
    copies_->fit(9000);
    EXPECT_EQ(FakeVerbs::queues().size(), 1U);
    ASSERT_TRUE(tend());
    ASSERT_EQ(FakeVerbs::queues().size(), 2U);
    EXPECT_FALSE(copies_->arm()) << "there is something to take over";
    EXPECT_FALSE(tend()) << "one at a time";
    EXPECT_EQ(copies_->receive().size(), batch_length);
    EXPECT_FALSE(copies_->arm()) << "the old queue has not been emptied";
    EXPECT_FALSE(copies_->asks_for_tending());
    EXPECT_FALSE(tend());
    ASSERT_TRUE(queue(1).deliver(Bytes(8999, 99)));
    const auto rest = receive_all();
    ASSERT_EQ(rest.size(), 9U);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(rest[static_cast<std::size_t>(i)].first, 32 + i);
    EXPECT_EQ(rest.back().first, 99);
    EXPECT_EQ(FakeVerbs::queues().size(), 2U) << "the receiver makes and destroys nothing";
    EXPECT_TRUE(copies_->asks_for_tending());
    EXPECT_FALSE(copies_->asks_for_tending()) << "once";
    EXPECT_FALSE(tend());
    EXPECT_EQ(FakeVerbs::queues().size(), 1U);
    EXPECT_EQ(copies_->stats().received, 41U);
    EXPECT_EQ(copies_->stats().restarts, 0U);
}

TEST_F(CopyQueueTest, AQueueThatFailedIsReplacedOnceASecond) {
    open();
    ASSERT_TRUE(queue().deliver(Bytes(60, 1)));
    queue().fail(IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(receive_all().size(), 1U) << "what it held";
    EXPECT_TRUE(copies_->asks_for_tending());
    EXPECT_TRUE(tend());
    EXPECT_EQ(copies_->stats().restarts, 1U);
    EXPECT_TRUE(receive_all().empty());
    EXPECT_TRUE(copies_->asks_for_tending()) << "to let go of the one before";
    EXPECT_FALSE(tend());
    ASSERT_EQ(FakeVerbs::queues().size(), 1U);
    ASSERT_TRUE(queue().deliver(Bytes(60, 2)));
    EXPECT_EQ(receive_all().size(), 1U);

    queue().fail(IBV_WC_WR_FLUSH_ERR);
    EXPECT_TRUE(receive_all().empty());
    EXPECT_TRUE(copies_->asks_for_tending());
    const auto tended = copies_->tend();
    EXPECT_FALSE(tended.for_receiver);
    EXPECT_GT(tended.again_in_ms, 0);
    EXPECT_LE(tended.again_in_ms, 1000);
    EXPECT_FALSE(copies_->asks_for_tending()) << "it comes by itself";
    EXPECT_EQ(copies_->stats().restarts, 1U);
    EXPECT_EQ(copies_->stats().received, 2U);
}

/// The device fails when the new queue has got copies already.
TEST_F(CopyQueueTest, LosesNoFrameWhenItsQueueCannotBeReplaced) {
    open();
    ASSERT_TRUE(queue().deliver(Bytes(60, 1)));
    copies_->fit(9000);
    static bool delivered;
    delivered = false;
    FakeProvider::in_sync = [] {
        if (FakeVerbs::queues().size() < 2 || std::exchange(delivered, true)) return;
        EXPECT_TRUE(FakeVerbs::queues().back()->deliver(Bytes(60, 2)));
        FakeProvider::fail_call(1, EIO, 2);   // and the drain behind it
    };
    const auto tended = copies_->tend();
    FakeProvider::in_sync = nullptr;
    EXPECT_TRUE(tended.for_receiver) << "what the new one got";
    EXPECT_GT(tended.again_in_ms, 0);
    EXPECT_TRUE(delivered);
    EXPECT_EQ(receive_all().size(), 2U) << "both";
    EXPECT_FALSE(copies_->tend().for_receiver);
    EXPECT_EQ(FakeVerbs::queues().size(), 1U) << "the one before";
    ASSERT_TRUE(queue().deliver(Bytes(60, 3)));
    EXPECT_EQ(receive_all().size(), 1U);
    EXPECT_EQ(copies_->stats().received, 3U);
}

TEST_F(CopyQueueTest, TakesNoQueueAnyMoreWhenItHasBeenStopped) {
    open();
    ASSERT_TRUE(queue().deliver(Bytes(60, 1)));
    copies_->stop();
    copies_->stop();
    EXPECT_EQ(receive_all().size(), 1U) << "what had come up";
    copies_->fit(9000);
    const auto tended = copies_->tend();
    EXPECT_FALSE(tended.for_receiver);
    EXPECT_EQ(tended.again_in_ms, -1);
    EXPECT_TRUE(receive_all().empty());
    EXPECT_EQ(FakeVerbs::queues().size(), 1U);
}

TEST_F(CopyQueueTest, KnowsWhenItWasLastEmpty) {
    open();
    const auto begun = CopyQueue::Clock::now();
    EXPECT_LT(copies_->emptied().at, begun);
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(queue().deliver(Bytes(60, 1)));
    EXPECT_EQ(copies_->receive().size(), batch_length);
    EXPECT_EQ(copies_->receive().size(), 8U);
    EXPECT_LT(copies_->emptied().at, begun) << "it was not found empty";
    EXPECT_TRUE(copies_->receive().empty());
    EXPECT_GE(copies_->emptied().at, begun);
    EXPECT_EQ(copies_->emptied().taken, 40U);
}

TEST_F(CopyQueueTest, AnotherMayFollowBeforeTheLastOwnerLetsGo) {
    open();
    auto held = copies_;
    copies_->stop();
    open();
    const unsigned rules = FakeProvider::alive("rule");
    ASSERT_EQ(FakeVerbs::queues().size(), 2U);
    held.reset();
    EXPECT_EQ(FakeVerbs::queues().size(), 1U);
    EXPECT_EQ(FakeProvider::alive("rule"), rules) << "the first one's end takes nothing from the second";
    ASSERT_TRUE(queue().deliver(Bytes(60, 1)));
    EXPECT_EQ(receive_all().size(), 1U);
}

TEST_F(CopyQueueTest, LeavesNothingBehindWhicheverCallFails) {
    open();
    copies_.reset();
    const unsigned before = FakeProvider::alive();   // with what the eSwitch keeps for the next one
    const auto nothing = [&](const std::string& what) {
        EXPECT_EQ(FakeVerbs::alive(), 0) << what;
        EXPECT_EQ(FakeProvider::alive(), before) << what;
    };
    for (unsigned n = 1;; ++n) {
        FakeVerbs::fail_call(n);
        auto opened = CopyQueue::open(eswitch_, dr::CopyKind::other, frame_size);
        FakeVerbs::fail_call(0);
        if (opened) break;
        nothing("call " + std::to_string(n) + " of verbs");
    }
    nothing("closed");
    for (unsigned n = 1;; ++n) {
        MemoryFaults::fail_allocation(n);
        auto opened = CopyQueue::open(eswitch_, dr::CopyKind::other, frame_size);
        const bool happened = MemoryFaults::happened();
        MemoryFaults::fail_allocation(0);
        if (!happened) break;
        if (!opened) nothing("allocation " + std::to_string(n));
    }
    for (unsigned n = 1;; ++n) {
        FakeProvider::fail_call(n, ENOSPC);
        auto opened = CopyQueue::open(eswitch_, dr::CopyKind::other, frame_size);
        FakeProvider::fail_call(0, 0);
        if (opened) break;
        nothing(FakeProvider::failed_call());
    }
}

/// A process that ends stops no queue: copies come as fast as the mirror takes them.
TEST_F(CopyQueueTest, AMirrorThatIsEndedTakesWhatAQueueHoldsAndNoMore) {
    auto device = dr::Device::open("fake_0");
    ASSERT_TRUE(device) << device.error().what;
    device_ = *device;
    auto opened = CopyQueue::open(eswitch_, dr::mirror_kind(0), frame_size);
    ASSERT_TRUE(opened) << opened.error().what;
    const mirror::PortNames names;
    auto session = mirror::Session::create({.device = device_,
                                            .host = "127.0.0.1",
                                            .service = "1",   // nobody is there
                                            .plain = true,
                                            .mirror = "stor0",
                                            .application_tag = 1,
                                            .geometry = {.segment_size = 8192,
                                                         .slots = 2,
                                                         .signature = {mirror::SignatureType::t10dif_crc, 512}},
                                            .interfaces = {}},
                                           names);
    ASSERT_TRUE(session) << session.error().what;
    auto started = mirror::Mirror::start(std::move(*session), {});
    ASSERT_TRUE(started) << started.error().what;
    FakeQueue& endless = queue();
    std::atomic<bool> ends = false;
    endless.on_receive = [&] {
        if (!ends) (void)endless.deliver(Bytes(60, 1), 77);
    };
    const auto source = (*started)->add(std::move(*opened));
    while (source->without_work < 100) std::this_thread::yield();
    auto ended = std::async(std::launch::async, [&] { (*started)->stop_receiving(); });
    const bool in_time = ended.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    EXPECT_TRUE(in_time);
    ends = true;
    ended.wait();
    endless.on_receive = {};
    EXPECT_GE(source->without_work, 1024U) << "what may have been in the queue was taken";
    (*started)->remove(*source);
    started->reset();
}

}  // namespace
}  // namespace ovsdr::slowpath
