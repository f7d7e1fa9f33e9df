// A device that is opened again while it is being closed, and one that is taken out, on the recording provider.
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "ctrl/all_devices.hpp"
#include "ctrl/copies.hpp"
#include "ctrl/port.h"
#include "tests/unit/offload/fake_provider.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/slowpath/fake_verbs.hpp"
#include "tests/unit/offload/software_actions.hpp"

namespace {
int channel_fd = -1;   // -1: the device has no events
}  // namespace

extern "C" {
mlx5dv_devx_event_channel* mlx5dv_devx_create_event_channel(ibv_context*, mlx5dv_devx_create_event_channel_flags) {
    if (channel_fd >= 0) return new mlx5dv_devx_event_channel{channel_fd};
    errno = EOPNOTSUPP;
    return nullptr;
}
void mlx5dv_devx_destroy_event_channel(mlx5dv_devx_event_channel* channel) { delete channel; }
int mlx5dv_devx_subscribe_devx_event(mlx5dv_devx_event_channel*, mlx5dv_devx_obj*, uint16_t, uint16_t[], uint64_t) {
    return 0;
}
ssize_t mlx5dv_devx_get_event(mlx5dv_devx_event_channel*, mlx5dv_devx_async_event_hdr*, size_t) {
    errno = EAGAIN;
    return -1;
}
}  // extern "C"

namespace ovsdr::ctrl {
namespace {

using dr::test::MegaflowBuilder, dr::test::tap;
using test::FakeProvider, test::FakeVerbs;

constexpr std::size_t queues_for_copies = dr::copy_kinds.size();

/// NULL: it could not be opened; `code` and `message` say why.
ovsdr_port* try_to_open(std::uint16_t vport, int& code, std::string& message) {
    const ovsdr_port_options options{.interface = "vm",
                                     .device = "fake_0",
                                     .function = false,
                                     .vport = vport,
                                     .vlan = 0,
                                     .odp_port = vport,
                                     .policed = false,
                                     .receive_queues = 1,
                                     .segments = false};
    ovsdr_port* port = nullptr;
    char* error = nullptr;
    code = ovsdr_port_open(&options, &port, &error);
    message = error != nullptr ? error : "";
    std::free(error);
    return port;
}

ovsdr_port* open_port(std::uint16_t vport) {
    int code = 0;
    std::string message;
    ovsdr_port* const port = try_to_open(vport, code, message);
    EXPECT_EQ(code, 0) << message;
    return port;
}

std::string problem_of(const ovsdr_port* port) {
    char* const text = ovsdr_port_problem(port);
    std::string problem = text != nullptr ? text : "";
    std::free(text);
    return problem;
}

/// The events of a device that is opened while this lives.
class EventChannel {
public:
    EventChannel() {
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0);
        channel_fd = ends_[0];
    }
    ~EventChannel() {
        channel_fd = -1;
        close(ends_[0]);
        close(ends_[1]);
    }
    EventChannel(const EventChannel&) = delete;
    EventChannel& operator=(const EventChannel&) = delete;
    void hang_up() { EXPECT_EQ(shutdown(ends_[1], SHUT_WR), 0); }

private:
    int ends_[2];
};

/// Opens another port of the device while the last one's end takes the queues for copies away.
std::optional<std::future<ovsdr_port*>> other;
bool waited;
void open_another_once() {
    if (other || FakeVerbs::queues().size() != queues_for_copies) return;
    other = std::async(std::launch::async, [] { return open_port(2); });
    waited = other->wait_for(std::chrono::milliseconds(300)) == std::future_status::timeout;
}

TEST(DeviceEnd, WhoOpensTheDeviceMeanwhileHasAllOfIt) {
    FakeProvider::reset();
    FakeVerbs::reset();
    FakeProvider::prepare_context = FakeVerbs::prepare_context;
    ovsdr_port* const first = open_port(1);
    ASSERT_NE(first, nullptr);
    FakeProvider::in_sync = open_another_once;
    ovsdr_port_close(first);
    FakeProvider::in_sync = nullptr;
    ASSERT_TRUE(other) << "the device has been closed";
    EXPECT_TRUE(waited);
    ovsdr_port* const second = other->get();
    ASSERT_NE(second, nullptr);
    unsigned devices = 0;
    all_devices().for_each([&](dr::Eswitch& eswitch) {
        ++devices;
        const dr::Ufid ufid{1, 0};
        const ovsdr_megaflow megaflow = MegaflowBuilder(2).ipv4().output(tap).recirc(7);
        EXPECT_TRUE(std::holds_alternative<std::monostate>(eswitch.put(ufid, megaflow))) << "it has queues for copies";
        eswitch.del(ufid);
    });
    EXPECT_EQ(devices, 1U);
    ovsdr_port_close(second);
    other.reset();
    EXPECT_EQ(FakeVerbs::alive(), 0);
    EXPECT_EQ(FakeProvider::alive(), 0U);
}

/// What Linux does to those who have a device open that is unplugged or reset.
TEST(DeviceEnd, PortsOfADeviceThatIsTakenOutSaySoUntilAllAreClosed) {
    FakeProvider::reset();
    FakeVerbs::reset();
    FakeProvider::prepare_context = FakeVerbs::prepare_context;
    EventChannel old_events;
    ovsdr_port* const first = open_port(1);
    ovsdr_port* const second = open_port(2);
    ASSERT_TRUE(first != nullptr && second != nullptr);
    EXPECT_FALSE(ovsdr_port_is_gone(first));
    FakeProvider::refuse("mlx5dv_devx_general_cmd", EIO);
    old_events.hang_up();
    bool differs = false;
    for (int i = 0; i < 10000 && !ovsdr_port_is_gone(first); ++i) {
        differs = ovsdr_port_refresh(first);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(ovsdr_port_is_gone(first));
    EXPECT_TRUE(differs);
    EXPECT_NE(problem_of(first).find("fake_0 has gone"), std::string::npos) << problem_of(first);
    EXPECT_FALSE(ovsdr_port_refresh(first)) << "told once";
    EXPECT_EQ(ovsdr_port_restart_in_ms(first), -1) << "nothing is mended";
    EXPECT_TRUE(ovsdr_port_refresh(second));
    EXPECT_TRUE(ovsdr_port_is_gone(second));

    FakeProvider::refuse("mlx5dv_devx_general_cmd", 0);
    EventChannel new_events;
    ovsdr_port_close(first);
    int code = 0;
    std::string message;
    EXPECT_EQ(try_to_open(1, code, message), nullptr) << "the device is still that which has gone";
    EXPECT_EQ(code, ENODEV);
    EXPECT_NE(message.find("fake_0 has gone"), std::string::npos) << message;
    ovsdr_port_close(second);
    ovsdr_port* const anew = open_port(1);
    ASSERT_NE(anew, nullptr);
    (void)ovsdr_port_refresh(anew);
    EXPECT_FALSE(ovsdr_port_is_gone(anew));
    EXPECT_EQ(problem_of(anew), "");
    ovsdr_port_close(anew);
    EXPECT_EQ(FakeVerbs::alive(), 0);
    EXPECT_EQ(FakeProvider::alive(), 0U);
}

}  // namespace
}  // namespace ovsdr::ctrl
