// Frames that software gives to a mirror, from several threads, with filter, sampling, sessions that are replaced and
// ports that come later: each that is wanted is in the collector's files once, or counted as dropped.
#include "offload/mirror/mirror.hpp"

#include <algorithm>
#include <atomic>
#include <map>

#include "tests/unit/tools/drcollect/collector.hpp"

namespace ovsdr::drcollect {
namespace {

using namespace test;
using Bytes = std::vector<std::byte>;

constexpr std::size_t size_of_frame = 200;

/// As Collector::append()'s.
Bytes numbered(std::uint32_t number) {
    Bytes frame(size_of_frame, static_cast<std::byte>(number * 7));
    std::memcpy(frame.data(), &number, sizeof number);
    return frame;
}

class MirrorTest : public Collector {
protected:
    void SetUp() override {
        names.set({1}, "vm1");
        start();
    }
    std::unique_ptr<mirror::Session> session(std::uint16_t slots = 64) {
        auto made = mirror::Session::create({.device = open_nic(),
                                     .host = "127.0.0.1",
                                     .service = spec.port,
                                     .plain = true,
                                     .mirror = "stor0",
                                     .application_tag = 1,
                                     .geometry = geometry_of({SignatureType::t10dif_crc, 512}, slots),
                                     .interfaces = {},
                                     .seal_after = 5ms,
                                     .retry_after = 20ms},
                                    names);
        EXPECT_TRUE(made) << made.error().what;
        return std::move(*made);
    }
    std::unique_ptr<Mirror> make(dr::MirrorSteering steering = {}, std::uint16_t slots = 64) {
        auto made = Mirror::start(session(slots), std::move(steering));
        EXPECT_TRUE(made) << made.error().what;
        return std::move(*made);
    }
    static void send(Mirror& to, std::uint32_t number, std::uint32_t port = 1) {
        const Bytes frame = numbered(number);
        const SoftwareFrame one{frame, {port}};
        to.send({&one, 1});
    }
    static void finish(Mirror& mirror) {
        mirror.stop_receiving();
        EXPECT_TRUE(mirror.finish(20s)) << mirror.sender_stats().last_error;
    }
    /// Names of interfaces and how many frames are theirs, of all files.
    std::map<std::string, unsigned> by_interface() const {
        std::map<std::string, unsigned> counts;
        for (const std::string& path : files()) {
            std::ifstream file(path, std::ios::binary);
            const std::string bytes((std::istreambuf_iterator<char>(file)), {});
            std::vector<std::string> interfaces;
            for (std::size_t at = 0; at + 12 <= bytes.size();) {
                std::uint32_t type, size, interface;
                std::uint16_t length;
                std::memcpy(&type, bytes.data() + at, 4);
                std::memcpy(&size, bytes.data() + at + 4, 4);
                std::memcpy(&length, bytes.data() + at + 18, 2);   // of the first option, the name
                std::memcpy(&interface, bytes.data() + at + 8, 4);
                if (type == 1) interfaces.push_back(bytes.substr(at + 20, length));
                if (type == 6) ++counts[interfaces.at(interface)];
                at += size;
            }
        }
        return counts;
    }

    PortNames names;
};

TEST_F(MirrorTest, FramesOfSeveralThreadsAreThereOnce) {
    constexpr std::uint32_t threads = 4, each = 500;
    auto to = make();
    std::vector<std::thread> senders;
    for (std::uint32_t first = 0; first < threads; ++first) {
        senders.emplace_back([&to, first] {
            for (std::uint32_t number = first * each; number < (first + 1) * each; ++number) send(*to, number);
        });
    }
    for (std::thread& sender : senders) sender.join();
    finish(*to);
    auto found = frames();
    std::ranges::sort(found);
    EXPECT_EQ(found, all(threads * each));
    const MirrorCounts counts = to->counts();
    EXPECT_EQ(counts.taken, threads * each);
    EXPECT_EQ(counts.taken_bytes, threads * each * size_of_frame);
    EXPECT_EQ(counts.software, threads * each);
    EXPECT_EQ(counts.dropped + counts.software_filtered + counts.software_passed_over, 0u);
}

/// Nobody ticks but the mirror's own thread, which was asleep.
TEST_F(MirrorTest, OneFrameIsSealedByItself) {
    auto to = make();
    ASSERT_TRUE(becomes([&] { return to->sender_stats().connected; }));
    std::this_thread::sleep_for(100ms);
    send(*to, 0);
    EXPECT_TRUE(becomes([&] { return to->sender_stats().acknowledged == 1; }));
    EXPECT_EQ(frames(), all(1));
}

TEST_F(MirrorTest, FilterAndSamplingAreCounted) {
    auto to = make({.one_of = 4});
    constexpr std::uint32_t length = 4000;
    for (std::uint32_t number = 0; number < length; ++number) send(*to, number);
    const MirrorCounts sampled = to->counts();
    EXPECT_EQ(sampled.taken + sampled.software_passed_over, length);
    EXPECT_NEAR(static_cast<double>(sampled.taken), length / 4., 5 * 27.4) << "standard deviation 27.4";
    to->steer({.services = {{6, 3260}}});
    for (std::uint32_t number = 0; number < 100; ++number) send(*to, number);
    EXPECT_EQ(to->counts().software_filtered, 100u);
    EXPECT_EQ(to->counts().taken, sampled.taken);
    finish(*to);
    EXPECT_EQ(frames().size(), sampled.taken);
}

TEST_F(MirrorTest, APortThatComesLaterHasItsName) {
    auto to = make();
    send(*to, 0);
    send(*to, 1, 77);
    ASSERT_TRUE(becomes([&] { return to->sender_stats().acknowledged > 0; }));
    names.set({2}, "vm2");
    send(*to, 2, 2);
    send(*to, 3);
    finish(*to);
    EXPECT_EQ(frames(), all(4));
    EXPECT_EQ(by_interface(), (std::map<std::string, unsigned>{{"other", 1}, {"vm1", 2}, {"vm2", 1}}));
    EXPECT_EQ(to->counts().dropped, 0u);
}

TEST_F(MirrorTest, ASessionIsReplacedWhileFramesCome) {
    constexpr std::uint32_t length = 2000;
    auto to = make();
    std::atomic<bool> replaced = false;
    std::uint32_t number = 0;
    std::thread sender([&] {
        for (; number < length / 2 || !replaced; ++number) {
            send(*to, number);
            std::this_thread::sleep_for(20us);
        }
        for (const std::uint32_t end = number + 100; number < end; ++number) send(*to, number);
    });
    ASSERT_TRUE(becomes([&] { return to->counts().taken > 100; }));
    auto before = to->replace(session());
    EXPECT_TRUE(before->sender().finish(20s));
    replaced = true;
    sender.join();
    finish(*to);
    auto found = frames();
    std::ranges::sort(found);
    EXPECT_EQ(to->counts().dropped, 0u);
    EXPECT_EQ(found, all(number));
    EXPECT_EQ(files().size(), 2u);
}

TEST_F(MirrorTest, AFullRingDropsAndCounts) {
    stop();
    auto to = make({}, 2);
    for (std::uint32_t number = 0; number < 1000; ++number) send(*to, number);
    const MirrorCounts counts = to->counts();
    EXPECT_GT(counts.dropped, 0u);
    EXPECT_EQ(counts.taken + counts.dropped, 1000u);
    start();
    const auto dropped = [this] { return files().size() == 1 ? scan(files()[0]).dropped : 0; };
    EXPECT_TRUE(becomes([&] { return dropped() == counts.dropped; })) << "told without another frame";
    EXPECT_EQ(frames(), all(static_cast<std::uint32_t>(counts.taken)));
}

}  // namespace
}  // namespace ovsdr::drcollect
