// A device that is opened again while it is being closed, on the recording provider.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <variant>

#include "ctrl/all_devices.hpp"
#include "ctrl/copies.hpp"
#include "ctrl/port.h"
#include "tests/unit/offload/fake_provider.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/slowpath/fake_verbs.hpp"
#include "tests/unit/offload/software_actions.hpp"

namespace ovsdr::ctrl {
namespace {

using dr::test::MegaflowBuilder, dr::test::tap;
using test::FakeProvider, test::FakeVerbs;

constexpr std::size_t queues_for_copies = dr::copy_kinds.size();

/// NULL: it could not be opened.
ovsdr_port* open_port(std::uint16_t vport) {
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
    EXPECT_EQ(ovsdr_port_open(&options, &port, &error), 0) << (error != nullptr ? error : "");
    std::free(error);
    return port;
}

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

}  // namespace
}  // namespace ovsdr::ctrl
