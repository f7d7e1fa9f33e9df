// Storage mirrors on the soft NIC, with real packets: what a filter lets pass, a queue that is replaced, and the
// manager's RoCE past an uplink that is a port.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "offload/dr/device/leak.hpp"
#include "offload/slowpath/copy_queue.hpp"
#include "tests/unit/offload/softnic_fixture.hpp"
#include "tests/unit/offload/software_actions.hpp"

namespace ovsdr::dr {
namespace {

using namespace std::chrono_literals;
using namespace test::frames;
using slowpath::PortQueue;
using test::MegaflowBuilder, test::SoftNic, test::stor0;
using Frames = std::vector<FrameBytes>;

constexpr CopyKind mirror = mirror_kind(5);
constexpr std::uint8_t tcp = 6, udp = 17, icmp = 1;
constexpr std::uint16_t iscsi = 3260, rocev2 = 4791;
constexpr std::uint16_t first_fragment = 0x2000, later_fragment = 0x0010;

FrameBytes v4(std::uint8_t protocol, std::uint16_t source, std::uint16_t destination, std::uint16_t fragment = 0) {
    return ipv4({.protocol = protocol, .fragment = fragment, .source_port = source, .destination_port = destination});
}

/// Behind a fragment header, if there is to be one.
FrameBytes v6(std::uint8_t protocol, std::uint16_t source, std::uint16_t destination, bool fragment = false) {
    FrameBytes bytes = frame(0, 0x86dd);
    const auto put16 = [&](std::size_t at, std::uint16_t value) {
        bytes[at] = static_cast<std::uint8_t>(value >> 8);
        bytes[at + 1] = static_cast<std::uint8_t>(value);
    };
    std::fill(bytes.begin() + 14, bytes.end(), std::uint8_t{0});
    bytes[14] = 0x60;
    put16(18, frame_size - 54);
    bytes[20] = fragment ? 44 : protocol;
    bytes[21] = 64;
    bytes[22] = bytes[38] = 0x20;
    bytes[37] = 1;
    bytes[53] = 2;
    std::size_t l4 = 54;
    if (fragment) {
        bytes[l4] = protocol;
        put16(l4 + 2, 1);   // the first of several
        l4 += 8;
    }
    put16(l4, source);
    put16(l4 + 2, destination);
    if (protocol == udp) put16(l4 + 4, static_cast<std::uint16_t>(frame_size - l4));
    if (protocol == tcp) bytes[l4 + 12] = 0x50, bytes[l4 + 13] = 0x10;
    return bytes;
}

FrameBytes behind_tag(FrameBytes bytes) {
    const std::uint8_t tag[] = {0x81, 0x00, 0x00, 0x05};
    bytes.insert(bytes.begin() + 12, tag, tag + 4);
    return bytes;
}

std::map<FrameBytes, unsigned> counted(const Frames& frames) {
    std::map<FrameBytes, unsigned> times;
    for (const FrameBytes& each : frames) ++times[each];
    return times;
}

class Mirrored : public SoftNic {
protected:
    void SetUp() override {
        SoftNic::SetUp();
        if (IsSkipped()) return;
        lead_to_another_queue();
        led_before_ = eswitch_->copies(mirror);
        filtered_before_ = eswitch_->filtered_copies(mirror);
    }
    void TearDown() override {
        if (eswitch_ != nullptr) {
            eswitch_->remove_mirror_port(OdpPort{stor0});
            eswitch_->stop_copies(mirror);
        }
        queues_.clear();
        SoftNic::TearDown();
        EXPECT_EQ(leaked_objects(), 0U);
    }
    void lead_to_another_queue() {
        const auto ib_port = find_ib_port(eswitch_->context(), VportId{0});
        ASSERT_TRUE(ib_port) << ib_port.error().what;
        auto queue = PortQueue::create({.context = eswitch_->context(), .pd = eswitch_->pd(),
                                        .ib_port = ib_port->number});
        ASSERT_TRUE(queue) << queue.error().what;
        const auto led = eswitch_->lead_copies(mirror, (*queue)->qp());
        ASSERT_TRUE(led) << led.error().what;
        queues_.push_back(std::move(*queue));
    }
    static void set(const MirrorSteering& steering) {
        const auto done = eswitch_->set_mirror_port(OdpPort{stor0}, mirror, steering);
        ASSERT_TRUE(done) << done.error().what;
    }
    [[nodiscard]] std::uint64_t led() const { return eswitch_->copies(mirror) - led_before_; }
    [[nodiscard]] std::uint64_t filtered() const { return eswitch_->filtered_copies(mirror) - filtered_before_; }
    /// What has come up at any of the queues.
    Frames copies() {
        Frames frames;
        const auto end = std::chrono::steady_clock::now() + 5s;
        while (frames.size() < led() && std::chrono::steady_clock::now() < end) {
            for (const auto& queue : queues_) {
                for (const slowpath::Frame& each : queue->receive(0)) {
                    frames.emplace_back(each.data, each.data + each.size);
                    const auto work = eswitch_->work_of(each.tag);
                    EXPECT_TRUE(work != nullptr && work->kind == mirror);
                }
            }
        }
        return frames;
    }
    /// Sends one after another, so that each has been steered when this returns. `wait` is for one that does not come.
    static Frames sent(const Frames& frames, std::uint32_t from = 1, std::chrono::milliseconds wait = 10s) {
        Frames arrived;
        for (const FrameBytes& each : frames) {
            port(from).wire->send(each);
            for (auto& bytes : port(2).wire->collect(1, wait)) arrived.push_back(std::move(bytes));
        }
        return arrived;
    }
    /// Until so many copies have been counted: on a busy machine frames may still wait in a ring.
    void wait_until_steered(std::uint64_t copies) const {
        const auto end = std::chrono::steady_clock::now() + 10s;
        while (led() + filtered() < copies && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
    }

    std::vector<std::unique_ptr<PortQueue>> queues_;
    std::uint64_t led_before_ = 0, filtered_before_ = 0;
};

TEST_F(Mirrored, TheFilterTakesWholePacketsOfItsServicesFromEitherSide) {
    set({.services = {{tcp, iscsi}, {udp, rocev2}}});
    put({1, 1}, MegaflowBuilder(1).eth_type(0x0800).output(2).output(stor0));
    put({1, 2}, MegaflowBuilder(1).eth_type(0x86dd).output(2).output(stor0));
    put({1, 3}, MegaflowBuilder(1).vlan(5).eth_type(0x0800).output(2).output(stor0));
    const Frames wanted{v4(tcp, 1000, iscsi), v4(tcp, iscsi, 1000), v4(udp, 7, rocev2), v4(udp, rocev2, 7),
                        v6(tcp, 1000, iscsi), v6(tcp, iscsi, 1000), v6(udp, 7, rocev2), v6(udp, rocev2, 7),
                        behind_tag(v4(tcp, 1000, iscsi))};
    const Frames others{v4(udp, 1000, iscsi), v4(tcp, rocev2, 1000), v4(tcp, 1000, iscsi + 1), v4(icmp, iscsi, 0),
                        v4(tcp, 1000, iscsi, first_fragment), v4(tcp, 1000, iscsi, later_fragment),
                        v6(udp, iscsi, 1000), v6(tcp, 1000, rocev2), v6(tcp, 1000, iscsi, true),
                        behind_tag(v4(udp, 1000, iscsi))};
    EXPECT_EQ(sent(wanted).size(), wanted.size());
    EXPECT_EQ(sent(others).size(), others.size()) << "traffic goes on";
    EXPECT_EQ(led(), wanted.size());
    EXPECT_EQ(filtered(), others.size());
    EXPECT_EQ(counted(copies()), counted(wanted));
    std::uint64_t of_works = 0;
    for (const auto& work : eswitch_->works()) of_works += work.copies;
    EXPECT_EQ(of_works, wanted.size() + others.size()) << "the filter is behind them";
}

TEST_F(Mirrored, AMirrorAloneTakesWhatComesInAndNothingGoesUp) {
    set({});
    put({2, 1}, MegaflowBuilder(1).eth_type(0x0800).output(stor0));
    const Frames frames{v4(tcp, 1, 2), v4(udp, 3, 4), v4(icmp, 5, 6, first_fragment)};
    for (const FrameBytes& each : frames) port(1).wire->send(each);
    wait_until_steered(frames.size());
    EXPECT_EQ(counted(copies()), counted(frames));
    EXPECT_EQ(filtered(), 0U);
    EXPECT_TRUE(port(1).queue->receive(0).empty());
    EXPECT_EQ(eswitch_->del({2, 1})->packets, frames.size());
}

/// Each copy reaches one of the queues, and what the filter drops reaches none, while queues and services change.
TEST_F(Mirrored, WhileQueuesAndServicesAreReplacedNoCopyIsLostOrComesTwice) {
    const MirrorSteering one{.services = {{tcp, iscsi}}}, more{.services = {{tcp, iscsi}, {udp, rocev2}}};
    set(one);
    put({3, 1}, MegaflowBuilder(1).eth_type(0x0800).output(2).output(stor0));
    constexpr std::uint32_t rounds = 12, window = 40;
    Frames wanted;
    for (std::uint32_t round = 0; round < rounds; ++round) {
        std::thread sender([&] {
            for (std::uint32_t n = 0; n < window; ++n) {
                const auto number = static_cast<std::uint16_t>(1 + round * window + n);
                wanted.push_back(v4(tcp, number, iscsi));
                port(1).wire->send(wanted.back());
                port(1).wire->send(v4(tcp, number, iscsi + 1));
                std::this_thread::sleep_for(200us);
            }
        });
        lead_to_another_queue();
        set(round % 2 == 0 ? more : one);
        sender.join();
        wait_until_steered(2 * wanted.size());
    }
    constexpr std::uint64_t length = rounds * window;
    EXPECT_EQ(led(), length);
    EXPECT_EQ(filtered(), length);
    EXPECT_EQ(counted(copies()), counted(wanted));
}

/// A port that is deleted and another one that has its number: what the first was led is none of the second's.
TEST_F(Mirrored, AQueueOfTheNextMirrorCountsAnew) {
    set({});
    put({5, 1}, MegaflowBuilder(1).eth_type(0x0800).output(2).output(stor0));
    EXPECT_EQ(sent({v4(tcp, 1, 2), v4(tcp, 3, 4), v4(tcp, 5, 6)}).size(), 3U);
    EXPECT_EQ(led(), 3U);
    EXPECT_EQ(copies().size(), 3U);
    eswitch_->stop_copies(mirror);
    const auto next = slowpath::CopyQueue::open(eswitch_, mirror, 2048);
    ASSERT_TRUE(next) << next.error().what;
    EXPECT_EQ((*next)->led(), 0U);
    EXPECT_EQ(sent({v4(tcp, 7, 8)}).size(), 1U);
    EXPECT_EQ((*next)->led(), 1U);
}

/// 10.0.0.2 is the manager's, who has no queue pair here: what reaches it is gone.
TEST_F(Mirrored, RoceOfTheManagerPassesTheSwitchByAndArpIsBoths) {
    set({});
    put({4, 1}, MegaflowBuilder(9).eth_type(0x0800).output(2).output(stor0));
    put({4, 2}, MegaflowBuilder(9).eth_type(0x0806).output(2));
    const FrameBytes roce = v4(udp, 7, rocev2);
    EXPECT_EQ(sent({roce}, 9).size(), 1U) << "nobody has asked for it";
    const RoceAddress address{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2}, {2, 0, 0, 0, 0, 2}};
    const auto let_in = eswitch_->let_roce_in(address);
    ASSERT_TRUE(let_in) << let_in.error().what;
    const std::uint64_t before = eswitch_->status({4, 1})->stats.packets;
    EXPECT_TRUE(sent({roce}, 9, 200ms).empty());
    EXPECT_EQ(sent({v4(udp, 7, rocev2 + 1), v4(tcp, 7, rocev2)}, 9).size(), 2U) << "is no RoCE";
    port(1).wire->send(roce);
    EXPECT_EQ(went_up(port(1), 1).size(), 1U) << "from another port it is the switch's";
    EXPECT_EQ(sent({frame(1, 0x0806)}, 9).size(), 1U) << "ARP to the manager's MAC is the switch's too";
    EXPECT_EQ(eswitch_->del({4, 1})->packets, before + 2);
    EXPECT_EQ(led(), 3U) << "before, and what is no RoCE";
    EXPECT_EQ(copies().size(), 3U);
    eswitch_->forget_roce(address);
    put({4, 1}, MegaflowBuilder(9).eth_type(0x0800).output(2));
    EXPECT_EQ(sent({roce}, 9).size(), 1U);
}

}  // namespace
}  // namespace ovsdr::dr
