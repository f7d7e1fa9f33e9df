// Parameters of meters against long double arithmetic, over every rate and every burst that a device takes.
#include "offload/meter/parameters.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

namespace ovsdr::meter {
namespace {

using Wide = long double;

Wide value_of_rate(Float rate) { return std::ldexp(Wide{1e9} * rate.mantissa, -int{rate.exponent}); }
Wide value_of_burst(Float burst) { return std::ldexp(Wide(burst.mantissa), burst.exponent); }

struct Worst {
    Wide error = 0;
    std::uint64_t at = 0;
    std::size_t steps = 0;   ///< distinct forms
};

/// Over every n from 1 to `last`: an encoding grows with n, so all that have one form lie side by side, and the first
/// or the last of them is furthest from it.
Worst worst_over(std::uint64_t last, const std::function<Float(std::uint64_t)>& encode,
                 const std::function<Wide(std::uint64_t)>& wanted, const std::function<Wide(Float)>& value) {
    Worst worst;
    Wide before = 0;
    for (std::uint64_t first = 1; first <= last; ++worst.steps) {
        const Float form = encode(first);
        EXPECT_GT(value(form), before) << first;
        before = value(form);
        std::uint64_t low = first, high = last;   // the last with this form is between them
        while (low < high) {
            const std::uint64_t middle = low + (high - low + 1) / 2;
            if (encode(middle) == form) low = middle; else high = middle - 1;
        }
        for (const std::uint64_t end : {first, low}) {
            const Wide error = std::fabs(value(form) - wanted(end)) / wanted(end);
            if (error > worst.error) {
                worst.error = error;
                worst.at = end;
            }
        }
        first = low + 1;
    }
    return worst;
}

constexpr std::uint64_t of_400_gigabits = 400'000'000;   // in kilobits
constexpr Wide most_error = 0.5L / 128;                  // half a step of the shortest mantissa of eight bits

TEST(MeterParameters, RatesAreRightWithinHalfAStepFromOneKilobitTo400Gigabits) {
    const Worst worst = worst_over(
        of_400_gigabits, [](std::uint64_t n) { return rate_of(n * 125); },
        [](std::uint64_t n) { return Wide(n) * 125; }, value_of_rate);
    std::printf("FIGURE rate, 1 kb/s to 400 Gb/s: worst error %.4Lf %% at %llu kb/s\n", worst.error * 100,
                static_cast<unsigned long long>(worst.at));
    EXPECT_LE(worst.error, most_error);
    EXPECT_GT(worst.steps, 2500U);
}

TEST(MeterParameters, RatesByPacketsAreAsRight) {
    const Worst worst = worst_over(
        most_rate / 128, [](std::uint64_t n) { return rate_of(n * 128); },
        [](std::uint64_t n) { return Wide(n) * 128; }, value_of_rate);
    std::printf("FIGURE rate, 1 to %llu packets a second: worst error %.4Lf %% at %llu\n",
                static_cast<unsigned long long>(most_rate / 128), worst.error * 100,
                static_cast<unsigned long long>(worst.at));
    EXPECT_LE(worst.error, most_error);
}

TEST(MeterParameters, BurstsAreAsRight) {
    const Worst worst = worst_over(
        most_burst, [](std::uint64_t n) { return burst_of(n); }, [](std::uint64_t n) { return Wide(n); },
        value_of_burst);
    std::printf("FIGURE burst, 1 to 2^31 - 1 bytes: worst error %.4Lf %% at %llu\n", worst.error * 100,
                static_cast<unsigned long long>(worst.at));
    EXPECT_LE(worst.error, most_error);
    for (std::uint64_t n = 1; n < 256; ++n) EXPECT_EQ(value_of_burst(burst_of(n)), Wide(n));
    EXPECT_LE(value_of_burst(burst_of(most_burst)), Wide{most_burst});
}

/// worst_over() takes for granted that encodings grow: here they are compared with every other form.
TEST(MeterParameters, TheNearestFormIsTaken) {
    std::mt19937_64 random(1);
    for (int i = 0; i < 300; ++i) {
        const std::uint64_t bytes = 125 + random() % (most_rate >> random() % 30);
        const Wide error = std::fabs(value_of_rate(rate_of(bytes)) - Wide(bytes));
        const std::uint64_t burst = 1 + random() % (most_burst >> random() % 31);
        const Wide burst_error = std::fabs(value_of_burst(burst_of(burst)) - Wide(burst));
        for (unsigned mantissa = 1; mantissa < 256; ++mantissa) {
            for (unsigned exponent = 0; exponent < 32; ++exponent) {
                const Float form{static_cast<std::uint8_t>(mantissa), static_cast<std::uint8_t>(exponent)};
                ASSERT_LE(error, std::fabs(value_of_rate(form) - Wide(bytes))) << bytes;
                if (value_of_burst(form) > Wide{most_burst}) continue;
                ASSERT_LE(burst_error, std::fabs(value_of_burst(form) - Wide(burst))) << burst;
            }
        }
    }
}

TEST(MeterParameters, LieWhereTheDeviceReadsThem) {
    const auto kilobits = parameters_of({.rate = 8000, .burst = 800});   // 10^6 and 10^5 bytes
    ASSERT_TRUE(kilobits);
    EXPECT_EQ((*kilobits)[0], 0xA1) << "valid, green, by the bytes of frames";
    EXPECT_EQ(value_of_burst({(*kilobits)[9], (*kilobits)[8]}), 99840.L);
    EXPECT_NEAR(static_cast<double>(value_of_rate({(*kilobits)[11], (*kilobits)[10]})), 1e6, 4e3);
    const auto packets = parameters_of({.by_packets = true, .rate = 1000, .burst = 100});
    ASSERT_TRUE(packets);
    EXPECT_EQ((*packets)[0], 0xA3) << "by packets";
    EXPECT_EQ(value_of_burst({(*packets)[9], (*packets)[8]}), 99.L * 128) << "and one more below zero";
    EXPECT_NEAR(static_cast<double>(value_of_rate({(*packets)[11], (*packets)[10]})), 128e3, 5e2);
    for (const Parameters& all : {*kilobits, *packets}) {
        for (unsigned i = 1; i < all.size(); ++i) EXPECT_TRUE(all[i] == 0 || (i >= 8 && i < 12)) << i;
    }
}

TEST(MeterParameters, ABurstOfOnePacketLetsOneThrough) {
    const auto one = parameters_of({.by_packets = true, .rate = 10, .burst = 1});
    ASSERT_TRUE(one);
    EXPECT_EQ((*one)[9], 1) << "a bucket of size 0 would never pay";
    EXPECT_EQ((*one)[8], 0);
}

std::string refusal(const Spec& spec) {
    const auto parameters = parameters_of(spec);
    return parameters ? "" : parameters.error().name.text() + parameters.error().value;
}

TEST(MeterParameters, WhatADeviceLacksIsRefusedByName) {
    EXPECT_EQ(refusal({.bands = 2, .rate = 1000, .burst = 1000}), "a meter with several bands: 2");
    EXPECT_EQ(refusal({.only_drops = false, .rate = 1000, .burst = 1000}), "a meter with a band that does not drop");
    EXPECT_EQ(refusal({.rate = 2'040'000'000, .burst = 1000}), "");
    EXPECT_EQ(refusal({.rate = 2'040'000'001, .burst = 1000}),
              "a meter's rate above the device's: 2040000001 kilobits a second");
    EXPECT_EQ(refusal({.by_packets = true, .rate = 1'992'187'501, .burst = 1000}),
              "a meter's rate above the device's: 1992187501 packets a second");
    EXPECT_EQ(refusal({.rate = 1000, .burst = 17'179'869}), "");
    EXPECT_EQ(refusal({.rate = 1000, .burst = 17'179'870}), "a meter's burst above the device's: 17179870 kilobits");
    EXPECT_EQ(refusal({.by_packets = true, .rate = 1000, .burst = 16'777'216}), "");
    EXPECT_EQ(refusal({.by_packets = true, .rate = 1000, .burst = 16'777'217}),
              "a meter's burst above the device's: 16777217 packets");
    EXPECT_EQ(refusal({.rate = 1000, .burst = 80}), "");
    EXPECT_TRUE(parameters_of({.rate = 1000, .burst = 80}, Counts::bytes));
    const auto by_packets = parameters_of({.by_packets = true, .rate = 1000, .burst = 100}, Counts::bytes);
    EXPECT_EQ(by_packets.error(), (Refusal{"a meter by packets", " (the device's meters count bytes)"}));
    EXPECT_EQ(refusal({.rate = 1000, .burst = 79}), "a meter's burst shorter than a packet may be: 79 kilobits");
}

}  // namespace
}  // namespace ovsdr::meter
