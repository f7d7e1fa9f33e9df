// The watcher of a device's events on an event channel of the test's own.
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

#include "offload/dr/vport.hpp"

namespace {

int channel_fd = -1;
std::atomic<unsigned> looks{0};

}  // namespace

extern "C" {

mlx5dv_devx_event_channel* mlx5dv_devx_create_event_channel(ibv_context*, mlx5dv_devx_create_event_channel_flags) {
    return new mlx5dv_devx_event_channel{channel_fd};
}
void mlx5dv_devx_destroy_event_channel(mlx5dv_devx_event_channel* channel) { delete channel; }
int mlx5dv_devx_subscribe_devx_event(mlx5dv_devx_event_channel*, mlx5dv_devx_obj*, uint16_t, uint16_t[], uint64_t) {
    return 0;
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
    Result<std::uint64_t> switch_queue(VportId, ibv_qp*, std::uint32_t) noexcept override { return 0; }
    void forget_old_queue(VportId) noexcept override {}
    Result<void> set_odp_port(VportId, OdpPort) noexcept override { return {}; }
    void close_entrance(VportId) noexcept override {}
    bool knows(const Ufid&) const noexcept override { return false; }
    PutOutcome put(const Ufid&, const ovsdr_megaflow&, std::uint16_t) noexcept override { return {}; }
    void del(std::span<Deletion>) noexcept override {}
    std::optional<Status> status(const Ufid&) noexcept override { return {}; }
    std::optional<TableKey> table_of(std::uint32_t) const noexcept override { return {}; }
    void flush(std::optional<OdpPort>) noexcept override {}
    std::string show(bool, const PortNames&) const override { return {}; }
    std::optional<FlowReport> explain(const Ufid&, const PortNames&) const override { return {}; }
    std::vector<ReasonCount> reasons() const override { return {}; }
    Totals totals() const noexcept override { return {}; }
};

/// The kernel's channel of a device that was taken out is readable and hung up for ever, and has no event.
TEST(VportWatcher, SleepsWhenTheDeviceIsTakenOut) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    channel_fd = ends[0];
    std::atomic<unsigned> changes{0};
    NoEswitch eswitch;
    auto watcher = VportWatcher::start(eswitch, [&] { ++changes; });
    ASSERT_TRUE(watcher);
    ASSERT_EQ(shutdown(ends[1], SHUT_WR), 0);
    for (int i = 0; i < 10000 && changes == 0 && looks < 1000; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(changes, 1U) << "whoever owns the vports asks of them, and hears that they are gone";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_LT(looks, 10U);
    watcher->reset();
    close(ends[0]);
    close(ends[1]);
}

}  // namespace
}  // namespace ovsdr::dr
