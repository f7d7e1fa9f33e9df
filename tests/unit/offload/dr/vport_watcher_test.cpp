// The watcher of a device's events on an event channel of the test's own.
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "offload/dr/vport.hpp"

namespace {

int channel_fd = -1;
std::atomic<unsigned> looks{0};
std::vector<std::vector<std::uint16_t>> asked_for;
std::vector<std::uint16_t> refused;

}  // namespace

extern "C" {

mlx5dv_devx_event_channel* mlx5dv_devx_create_event_channel(ibv_context*, mlx5dv_devx_create_event_channel_flags) {
    if (channel_fd >= 0) return new mlx5dv_devx_event_channel{channel_fd};
    errno = EOPNOTSUPP;
    return nullptr;
}
void mlx5dv_devx_destroy_event_channel(mlx5dv_devx_event_channel* channel) { delete channel; }
int mlx5dv_devx_subscribe_devx_event(mlx5dv_devx_event_channel*, mlx5dv_devx_obj*, uint16_t size, uint16_t types[],
                                     uint64_t) {
    asked_for.emplace_back(types, types + size / sizeof types[0]);
    const bool is_refused = std::ranges::find_first_of(asked_for.back(), refused) != asked_for.back().end();
    return is_refused ? EINVAL : 0;
}
ssize_t mlx5dv_devx_get_event(mlx5dv_devx_event_channel*, mlx5dv_devx_async_event_hdr*, size_t) {
    ++looks;
    errno = EAGAIN;
    return -1;
}

}  // extern "C"

namespace ovsdr::dr {
namespace {

/// Only its context is asked for.
class NoEswitch final : public Eswitch {
public:
    std::string_view device() const noexcept override { return "none"; }
    ibv_context* context() const noexcept override { return nullptr; }
    ibv_pd* pd() const noexcept override { return nullptr; }
    Result<void> attach_port(const PortSpec&) noexcept override { return {}; }
    void detach_port(VportId) noexcept override {}
    QueueSwitch switch_queue(VportId, ibv_qp*, std::uint32_t, std::span<const QueuePairFor>) noexcept override {
        return {};
    }
    void forget_old_queue(VportId) noexcept override {}
    Result<void> set_odp_port(VportId, OdpPort) noexcept override { return {}; }
    void set_policed(VportId, bool) noexcept override {}
    void close_entrance(VportId) noexcept override {}
    void set_tunnel_port(const TunnelPort&) noexcept override {}
    void remove_tunnel_port(OdpPort) noexcept override {}
    void choose(const Choices&) noexcept override {}
    void set_meter(std::uint32_t, const meter::Spec&) noexcept override {}
    MeterStats remove_meter(std::uint32_t) noexcept override { return {}; }
    bool has_meter(std::uint32_t) noexcept override { return false; }
    void on_meter_use(std::function<void()>) noexcept override {}
    Result<void> lower_meter(std::uint32_t, std::uint32_t) noexcept override { return {}; }
    MeterStats meter_stats(std::uint32_t) noexcept override { return {}; }
    bool knows(const Ufid&) const noexcept override { return false; }
    PutOutcome put(const Ufid&, const ovsdr_megaflow&, std::uint16_t) noexcept override { return {}; }
    void del(std::span<Deletion>) noexcept override {}
    std::optional<Status> status(const Ufid&) noexcept override { return {}; }
    std::optional<TableKey> table_of(std::uint32_t) const noexcept override { return {}; }
    Result<void> lead_copies(CopyKind, ibv_qp*) noexcept override { return {}; }
    void stop_copies(CopyKind) noexcept override {}
    std::shared_ptr<const InstalledWork> work_of(std::uint32_t) const noexcept override { return nullptr; }
    void flush(std::optional<OdpPort>) noexcept override {}
    std::string show(bool, const PortNames&) const override { return {}; }
    Graph graph() const override { return {}; }
    std::optional<FlowReport> explain(const Ufid&, const PortNames&) const override { return {}; }
    std::vector<ReasonCount> reasons(std::span<const InSoftware>) const override { return {}; }
    Totals totals() const noexcept override { return {}; }
};

using namespace std::chrono_literals;
constexpr std::uint16_t nic_vport_change = 0xd, port_change = 0x9;

class VportWatcherTest : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0);
        channel_fd = ends_[0];
        looks = 0;
        asked_for.clear();
        refused.clear();
    }
    void TearDown() override {
        close(ends_[0]);
        close(ends_[1]);
    }
    Result<std::unique_ptr<VportWatcher>> start(VportWatcher::Patience patience = {}) {
        return VportWatcher::start(eswitch_, [this] { ++changes_; }, patience);
    }
    /// How often the watcher said so in this time.
    unsigned changes_in(std::chrono::milliseconds time) {
        const unsigned before = changes_;
        std::this_thread::sleep_for(time);
        return changes_ - before;
    }

    int ends_[2];
    std::atomic<unsigned> changes_{0};
    NoEswitch eswitch_;
};

/// Linux refuses a list for one of its types.
TEST_F(VportWatcherTest, AsksForEachEventByItself) {
    const auto watcher = start();
    ASSERT_TRUE(watcher);
    EXPECT_EQ(asked_for, (std::vector<std::vector<std::uint16_t>>{{nic_vport_change}, {port_change}}));
    EXPECT_EQ((*watcher)->missing_events(), "");
}

TEST_F(VportWatcherTest, LooksMoreOftenWithoutAnEvent) {
    for (const std::uint16_t type : {nic_vport_change, port_change}) {
        refused = {type};
        const auto watcher = start({.with_events = 1h, .without = 5ms});
        ASSERT_TRUE(watcher);
        const std::string& missing = (*watcher)->missing_events();
        EXPECT_NE(missing.find(type == port_change ? "(PORT_CHANGE): Invalid" : "(NIC_VPORT_CHANGE): Invalid"),
                  std::string::npos)
            << missing;
        EXPECT_EQ(missing.find(';'), std::string::npos) << missing;
        EXPECT_GT(changes_in(500ms), 2U);
    }
}

TEST_F(VportWatcherTest, LooksAtADeviceThatHasNoEvents) {
    channel_fd = -1;
    const auto watcher = start({.with_events = 1h, .without = 5ms});
    ASSERT_TRUE(watcher) << watcher.error().what;
    EXPECT_NE((*watcher)->missing_events().find("Operation not supported"), std::string::npos)
        << (*watcher)->missing_events();
    EXPECT_GT(changes_in(500ms), 2U);
    EXPECT_EQ(looks, 0U) << "there is no channel to read";
}

/// Not every change has an event, even where all are given.
TEST_F(VportWatcherTest, LooksNowAndThenAlthoughItGetsEvents) {
    const auto watcher = start({.with_events = 20ms, .without = 1h});
    ASSERT_TRUE(watcher);
    EXPECT_GT(changes_in(500ms), 2U);
}

/// An idle daemon sleeps: a look a second is two commands to the device for each port.
TEST_F(VportWatcherTest, SleepsBetweenLooks) {
    refused = {nic_vport_change};
    const auto watcher = start();
    ASSERT_TRUE(watcher);
    const unsigned changes = changes_in(2500ms);
    EXPECT_GE(changes, 1U);
    EXPECT_LE(changes, 2U);
}

/// The kernel's channel of a device that was taken out is readable and hung up for ever, and has no event.
TEST_F(VportWatcherTest, SleepsWhenTheDeviceIsTakenOut) {
    auto watcher = start({.with_events = 1h, .without = 1h});
    ASSERT_TRUE(watcher);
    ASSERT_EQ(shutdown(ends_[1], SHUT_WR), 0);
    for (int i = 0; i < 10000 && changes_ == 0 && looks < 1000; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(changes_, 1U) << "whoever owns the vports asks of them, and hears that they are gone";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_LT(looks, 10U);
}

}  // namespace
}  // namespace ovsdr::dr
