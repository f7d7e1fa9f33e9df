#include "tests/connectx/entries/meters.hpp"

#include <gtest/gtest.h>

#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {
namespace {

/// Of bytes, with a burst of 125 * 2^3 = 1,000.
constexpr MeterParameters by_bytes{0xA1, 0, 0, 0, 0, 0, 0, 0, 3, 125};
/// Of packets, with a burst of 128 = one behind the first.
constexpr MeterParameters by_packets{0xA3, 0, 0, 0, 0, 0, 0, 0, 0, 128};

TEST(Meter, LetsThePacketPassThatEmptiesTheBucket) {
    MeterParameters parameters = by_bytes;
    EXPECT_EQ(meter(parameters, 600), Colour::green);
    EXPECT_EQ(meter(parameters, 600), Colour::green);
    EXPECT_EQ(meter(parameters, 60), Colour::red);
    EXPECT_EQ(meter(parameters, 60), Colour::red);
}

TEST(Meter, CountsPacketsWhateverTheirSize) {
    MeterParameters parameters = by_packets;
    EXPECT_EQ(meter(parameters, 9000), Colour::green);
    EXPECT_EQ(meter(parameters, 64), Colour::green);
    EXPECT_EQ(meter(parameters, 64), Colour::red);
}

TEST(Meter, IsFullAgainWhenItIsWrittenAnew) {
    MeterParameters parameters = by_bytes;
    EXPECT_EQ(meter(parameters, 2000), Colour::green);
    EXPECT_EQ(meter(parameters, 1), Colour::red);
    parameters = by_bytes;
    EXPECT_EQ(meter(parameters, 1), Colour::green);
}

TEST(Meter, StopsAtWhatIsNotKnown) {
    MeterParameters not_valid = by_bytes, of_ip = by_bytes, with_excess = by_bytes;
    not_valid[0] = 0x21;
    of_ip[0] = 0xA0;
    with_excess[17] = 1;
    EXPECT_THROW((void)meter(not_valid, 64), Stopped);
    EXPECT_THROW((void)meter(of_ip, 64), Stopped);
    EXPECT_THROW((void)meter(with_excess, 64), Stopped);
}

}  // namespace
}  // namespace ovsdr::connectx::entries
