// Whether drcompile's profiles are what offload/ finds out about a device. Run on each emulated ConnectX.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "offload/dr/device/device.hpp"
#include "tools/drcompile/profiles.hpp"

namespace ovsdr::drcompile {
namespace {

TEST(Profile, IsWhatTheDeviceAnswers) {
    const char* name = std::getenv("OVSDR_CONNECTX_PROFILE");
    ASSERT_NE(name, nullptr) << "to be run by tests/connectx/run";
    const auto profile = std::ranges::find(profiles, name, &Profile::name);
    ASSERT_NE(profile, profiles.end()) << name;
    auto device = dr::Device::open("mlx5_0");
    ASSERT_TRUE(device) << device.error().what;
    const auto asked = dr::probe_caps(*device);
    ASSERT_TRUE(asked) << asked.error().what;
    dr::DeviceCaps told = *asked;
    told.counter_bulks = profile->caps.counter_bulks;   // nothing that a megaflow's compilation depends on
    EXPECT_EQ(told, profile->caps);
}

}  // namespace
}  // namespace ovsdr::drcompile
