// Mirrors of the process, on the soft NIC: devices that refuse them, devices that come and go. Nobody collects.
#include "ctrl/mirrors.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "ctrl/all_devices.hpp"
#include "tests/unit/ctrl/idle_eswitch.hpp"

namespace ovsdr::ctrl {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Refuses addresses and steering, and counts how often it is asked.
class RefusingEswitch final : public test::IdleEswitch {
public:
    explicit RefusingEswitch(int code) : code(code) {}
    [[nodiscard]] std::string_view device() const noexcept override { return "mlx5_0"; }
    [[nodiscard]] Result<void> let_roce_in(const dr::RoceAddress&) noexcept override { return answer(); }
    [[nodiscard]] Result<void> retry_roce(const dr::RoceAddress&) noexcept override { return answer(); }
    [[nodiscard]] Result<void> set_mirror_port(dr::OdpPort, dr::CopyKind, const dr::MirrorSteering&) noexcept override {
        return answer();
    }

    int code;
    unsigned asked = 0;

private:
    Result<void> answer() noexcept {
        ++asked;
        if (code == 0) return {};
        return tl::unexpected(Error{code, "refused"});
    }
};

/// Has queues on a device of the soft NIC, and says what it is told to have counted.
class CountingEswitch final : public test::IdleEswitch {
public:
    explicit CountingEswitch(const dr::Device& device) : device_(device) {}
    [[nodiscard]] ibv_context* context() const noexcept override { return device_.context(); }
    [[nodiscard]] ibv_pd* pd() const noexcept override { return device_.pd(); }
    [[nodiscard]] std::uint64_t copies(dr::CopyKind) const noexcept override { return led; }
    [[nodiscard]] std::uint64_t filtered_copies(dr::CopyKind) const noexcept override { return filtered; }
    Result<void> lead_copies(dr::CopyKind, ibv_qp*) noexcept override {
        if (!refuses_queues) return {};
        return tl::unexpected(Error{EOPNOTSUPP, "no queue"});
    }

    std::uint64_t led = 0, filtered = 0;
    bool refuses_queues = false;

private:
    const dr::Device& device_;
};

class MirrorsTest : public ::testing::Test {
protected:
    /// One soft NIC for all tests: a process has no other.
    static void SetUpTestSuite() {
        const std::string path = "/tmp/ovsdr-mirrors-test-" + std::to_string(getpid()) + ".json";
        std::ofstream(path) << R"({"workers": 1, "memory_mb": 128, "control_socket": "", "devices": [
            {"name": "mlx5_0", "ports": [{"vport": 65535, "dpdk": "net_null,no-rx=1", "roce_address": "192.0.2.1/24"}]},
            {"name": "mlx5_1", "ports": [{"vport": 65535, "dpdk": "net_null,no-rx=1", "roce_address": "192.0.2.2/24"}]}
            ]})";
        setenv("OVSDR_SOFTNIC", path.c_str(), 1);
        nic_ = new std::shared_ptr(*dr::Device::open("mlx5_0"));
        unlink(path.c_str());
    }
    static void TearDownTestSuite() { delete nic_; }

    MirrorsTest() : mirror_(mirrors_.make("stor0")) {}
    ~MirrorsTest() override {
        if (mirror_ != nullptr) mirrors_.close(mirror_);
        mirrors_.finish(5s);
    }

    void configure(std::string_view device, std::string_view snaplen = "65535") {
        std::vector<MirrorOption> options{
            {"collector", "127.0.0.1:9"}, {"plain", "true"}, {"ring", "4"}, {"snaplen", snaplen}};
        if (!device.empty()) options.push_back({"device", device});
        const auto done = mirrors_.configure(*mirror_, options);
        ASSERT_TRUE(done) << done.error().what;
    }
    /// As the main loop does it.
    void tend(std::chrono::milliseconds time) {
        for (const auto end = Clock::now() + time; Clock::now() < end; std::this_thread::sleep_for(1ms)) {
            if (mirrors_.is_refresh_due()) mirrors_.refresh();
        }
    }
    template <typename Condition>
    bool becomes(Condition condition) {
        for (const auto end = Clock::now() + 10s; Clock::now() < end; tend(10ms)) {
            if (condition()) return true;
        }
        return false;
    }
    void send(std::size_t length) {
        const std::vector<std::byte> frame(100);
        const mirror::SoftwareFrame one{frame, {1}};
        for (std::size_t i = 0; i < length; ++i) mirror_->owner->send({&one, 1});
    }
    /// As OVS asks for it, of the interface's statistics.
    std::map<std::string, std::uint64_t> counters() const {
        std::map<std::string, std::uint64_t> all;
        ovsdr_mirror_counters(mirror_, [](void* to, const char* key, auto value) {
            (*static_cast<std::map<std::string, std::uint64_t>*>(to))[key] = value;
        }, &all);
        return all;
    }
    std::string next_warning() {
        for (const auto end = Clock::now() + 10s; Clock::now() < end; std::this_thread::sleep_for(10ms)) {
            if (std::string warning = mirrors_.take_warning(); !warning.empty()) return warning;
        }
        return {};
    }
    template <typename T>
    static bool goes(const std::weak_ptr<T>& watched) {
        for (const auto end = Clock::now() + 10s; Clock::now() < end; std::this_thread::sleep_for(10ms)) {
            if (watched.expired()) return true;
        }
        return false;
    }

    static inline std::shared_ptr<dr::Device>* nic_ = nullptr;
    Mirrors mirrors_;
    ovsdr_mirror* mirror_;
};

TEST_F(MirrorsTest, WhatFailedIsAskedForAgainASecondLater) {
    const auto eswitch = std::make_shared<RefusingEswitch>(ENOMEM);
    configure("mlx5_0");
    mirrors_.add(eswitch, 0);
    EXPECT_EQ(eswitch->asked, 1U);
    EXPECT_EQ(mirror_->not_let_in, "refused");
    EXPECT_TRUE(becomes([&] { return eswitch->asked == 3; }));
    eswitch->code = 0;
    EXPECT_TRUE(becomes([&] { return mirror_->not_let_in.empty(); }));
    const unsigned asked = eswitch->asked;
    tend(1500ms);
    EXPECT_EQ(eswitch->asked, asked) << "it is in";
}

TEST_F(MirrorsTest, WhatADeviceCannotDoIsNotAskedForEachSecond) {
    const auto eswitch = std::make_shared<RefusingEswitch>(EOPNOTSUPP);
    configure("mlx5_0");
    mirrors_.add(eswitch, 0);
    tend(2500ms);
    EXPECT_EQ(eswitch->asked, 1U);
    EXPECT_EQ(mirror_->not_let_in, "refused") << "and the user still sees why";
    eswitch->code = 0;
    mirrors_.add(eswitch, 0);
    EXPECT_EQ(eswitch->asked, 2U) << "another port of the device";
    EXPECT_EQ(mirror_->not_let_in, "");
}

TEST_F(MirrorsTest, SteeringThatWasRefusedIsAskedForAgain) {
    constexpr dr::OdpPort port{7};
    RefusingEswitch eswitch(ENOMEM);
    ASSERT_TRUE(all_devices().add(eswitch).empty());
    configure("mlx5_0");
    mirrors_.set_odp_port(*mirror_, port);
    EXPECT_EQ(mirror_->refusal, "refused");
    EXPECT_TRUE(becomes([&] { return eswitch.asked == 3; }));
    EXPECT_EQ(mirror_->refusal, "refused");
    eswitch.code = 0;
    EXPECT_TRUE(becomes([&] { return mirror_->refusal.empty(); }));
    const unsigned asked = eswitch.asked;
    mirrors_.note_refused({{port, Error{ENOMEM, "of a device that came later"}}});
    EXPECT_EQ(mirror_->refusal, "of a device that came later");
    EXPECT_TRUE(becomes([&] { return mirror_->refusal.empty(); }));
    EXPECT_EQ(eswitch.asked, asked + 1);
    mirrors_.forget_port(port);
    all_devices().remove(eswitch);
}

TEST_F(MirrorsTest, StatisticsOfADeviceThatGoesAreKept) {
    configure("mlx5_0");
    const auto going = std::make_shared<CountingEswitch>(**nic_);
    going->led = 5;
    going->filtered = 3;
    mirrors_.add(going, 2048);
    ASSERT_NE(mirror_->queues.at(0).source, nullptr) << mirror_->queues.at(0).failure;
    EXPECT_EQ(counters().at("mirror_copies"), 5U);
    EXPECT_EQ(counters().at("mirror_copies_lost"), 0U) << "they may be on their way";
    mirrors_.remove(*going);
    EXPECT_EQ(counters().at("mirror_copies"), 5U);
    EXPECT_EQ(counters().at("mirror_copies_lost"), 5U) << "nobody got them, and nobody will";
    EXPECT_EQ(counters().at("mirror_copies_filtered"), 3U);
    const auto without_queue = std::make_shared<CountingEswitch>(**nic_);
    without_queue->refuses_queues = true;
    without_queue->filtered = 100;   // of the mirror that had the number before
    mirrors_.add(without_queue, 2048);
    EXPECT_EQ(counters().at("mirror_copies_filtered"), 3U);
}

TEST_F(MirrorsTest, FramesThatASessionCouldNotDeliverAreCountedAndTold) {
    configure("mlx5_0");
    send(3);
    configure("mlx5_0", "1000");
    EXPECT_NE(next_warning().find("stor0: 3 mirrored frames are lost"), std::string::npos);
    EXPECT_EQ(counters().at("mirror_frames_undelivered"), 3U);
    ovsdr_mirror_stats stats{};
    ovsdr_mirror_get_stats(mirror_, &stats);
    EXPECT_EQ(stats.taken, 3U);
    EXPECT_EQ(stats.dropped, 3U);
    send(2);
    mirrors_.close(std::exchange(mirror_, nullptr));
    EXPECT_NE(next_warning().find("stor0: 2 mirrored frames are lost"), std::string::npos);
}

TEST_F(MirrorsTest, AProcessThatEndsTellsWhatItLoses) {
    configure("mlx5_0");
    send(4);
    const auto begin = Clock::now();
    mirrors_.finish(1s);
    EXPECT_LT(Clock::now() - begin, 5s);
    EXPECT_NE(next_warning().find("stor0: 4 mirrored frames are lost"), std::string::npos);
}

TEST_F(MirrorsTest, WithoutANameItKeepsTheDeviceThatItHas) {
    const auto eswitch = std::make_shared<RefusingEswitch>(0);
    mirrors_.add(eswitch, 0);
    configure("");
    const auto device = mirror_->device;
    EXPECT_EQ(device->name(), "mlx5_0");
    mirrors_.remove(*eswitch);
    configure("", "1000");
    EXPECT_EQ(mirror_->device, device);
}

TEST_F(MirrorsTest, ADeviceWhoseLastPortHasGoneIsLetGo) {
    auto opened = dr::Eswitch::open("mlx5_1");
    ASSERT_TRUE(opened) << opened.error().what;
    const std::weak_ptr<dr::Eswitch> watched = *opened;
    configure("mlx5_0");
    mirrors_.add(*opened, 2048);
    ASSERT_EQ(mirror_->queues.size(), 1U);
    ASSERT_NE(mirror_->queues.front().source, nullptr) << mirror_->queues.front().failure;
    mirrors_.remove(**opened);
    EXPECT_TRUE(mirror_->queues.empty());
    opened->reset();
    EXPECT_TRUE(goes(watched)) << "the mirror keeps the device open";
}

TEST_F(MirrorsTest, AConnectionsDeviceIsLetGoWhenItIsNotUsedAnyMore) {
    configure("mlx5_1");
    const std::weak_ptr<dr::Device> first = mirror_->device;
    configure("mlx5_0");
    EXPECT_TRUE(goes(first)) << "the session of before keeps it";
    configure("mlx5_1");
    const std::weak_ptr<dr::Device> second = mirror_->device;
    configure("mlx5_1", "1000");
    EXPECT_EQ(mirror_->device, second.lock()) << "another session on the same device";
    mirrors_.close(std::exchange(mirror_, nullptr));
    EXPECT_TRUE(goes(second)) << "the mirror that was closed keeps it";
}

}  // namespace
}  // namespace ovsdr::ctrl
