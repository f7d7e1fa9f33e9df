// Meters against a model of token buckets in exact fractions, on a clock of the test's.
#include "datapath/steering/meter.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "datapath/steering/aso.hpp"

namespace ovsdr::soft::test {
namespace {

__extension__ using Big = __int128;

/// Parameters as a driver thinks of them.
struct Rates {
    unsigned cir_mantissa = 0, cir_exponent = 0, cbs_mantissa = 0, cbs_exponent = 0;
    unsigned eir_mantissa = 0, eir_exponent = 0, ebs_mantissa = 0, ebs_exponent = 0;
    bool valid = true, overflow = false, both = false;
    Colour start = Colour::green;
    unsigned mode = 1;
};

/// The 32 bytes of flow_meter_parameters, as the PRM draws them.
Meter::Image image_of(const Rates& rates) {
    Meter::Image image{};
    image[0] = static_cast<std::uint8_t>(rates.valid << 7 | rates.overflow << 6 |
                                         static_cast<unsigned>(rates.start) << 4 | rates.both << 3 | rates.mode);
    image[8] = static_cast<std::uint8_t>(rates.cbs_exponent);
    image[9] = static_cast<std::uint8_t>(rates.cbs_mantissa);
    image[10] = static_cast<std::uint8_t>(rates.cir_exponent);
    image[11] = static_cast<std::uint8_t>(rates.cir_mantissa);
    image[16] = static_cast<std::uint8_t>(rates.ebs_exponent);
    image[17] = static_cast<std::uint8_t>(rates.ebs_mantissa);
    image[18] = static_cast<std::uint8_t>(rates.eir_exponent);
    image[19] = static_cast<std::uint8_t>(rates.eir_mantissa);
    return image;
}

/// With this many bytes in both buckets, which have no rate to fill them.
Meter::Image quota_of(const Rates& rates, unsigned tokens) {
    Meter::Image image = image_of(rates);
    for (const unsigned at : {12U, 20U}) {
        for (unsigned i = 0; i < 4; ++i) image[at + i] = static_cast<std::uint8_t>(tokens >> (24 - 8 * i));
    }
    return image;
}

/// Tokens as numerators over 2^31, the least common denominator of every rate.
class MeterModel {
public:
    explicit MeterModel(const Rates& rates)
        : rates_(rates),
          committed_size_(burst(rates.cbs_mantissa, rates.cbs_exponent)),
          excess_size_(burst(rates.ebs_mantissa, rates.ebs_exponent)),
          committed_(rates.cir_mantissa != 0 ? committed_size_ : 0),
          excess_(rates.eir_mantissa != 0 || (rates.cir_mantissa != 0 && rates.overflow) ? excess_size_ : 0) {}

    Colour mark(std::uint64_t now, Colour in, unsigned bytes) {
        const Big elapsed = last_ == 0 ? 0 : now - last_;
        last_ = now;
        committed_ += elapsed * per_ns(rates_.cir_mantissa, rates_.cir_exponent);
        excess_ += elapsed * per_ns(rates_.eir_mantissa, rates_.eir_exponent);
        if (committed_ > committed_size_) {
            if (rates_.overflow) excess_ += committed_ - committed_size_;
            committed_ = committed_size_;
        }
        excess_ = std::min(excess_, excess_size_);
        const Big price = Big{rates_.mode == 3 ? 128 : rates_.mode == 2 ? bytes + 20 : bytes} << 31;
        const bool c = committed_size_ > 0 && committed_ >= 0, e = excess_size_ > 0 && excess_ >= 0;
        if (in == Colour::green && c && (e || !rates_.both)) {
            committed_ -= price;
            if (rates_.both) excess_ -= price;
            return Colour::green;
        }
        if (in != Colour::red && e) {
            excess_ -= price;
            return Colour::yellow;
        }
        return Colour::red;
    }

private:
    static Big burst(unsigned mantissa, unsigned exponent) {
        return std::min(Big{mantissa} << exponent, Big{0x7fffffff}) << 31;
    }
    static Big per_ns(unsigned mantissa, unsigned exponent) { return Big{mantissa} << (31 - exponent); }

    Rates rates_;
    Big committed_size_, excess_size_, committed_, excess_;
    std::uint64_t last_ = 0;
};

constexpr std::uint64_t noon = 1'000'000'000'000;

void expect_as_the_model(const Rates& rates, std::uint32_t seed) {
    Meter meter;
    meter.write(image_of(rates), ~0U);
    MeterModel model(rates);
    std::mt19937_64 random(seed);
    std::uint64_t now = noon;
    std::array<std::uint8_t, 2048> frame{};
    for (unsigned i = 0; i < 3000; ++i) {
        now += random() % 4 == 0 ? random() % 100'000 : random() % 300;
        const auto in = static_cast<Colour>(random() % 3);
        const auto bytes = static_cast<std::uint32_t>(60 + random() % 1455);
        ASSERT_EQ(meter.mark(now, in, frame.data(), bytes), model.mark(now, in, bytes))
            << "packet " << i << ", seed " << seed;
    }
}

TEST(Meter, ColoursAsTheModelForRandomParameters) {
    std::mt19937 random(7);
    for (std::uint32_t seed = 0; seed < 300; ++seed) {
        Rates rates;
        rates.cir_mantissa = random() % 256;
        rates.cir_exponent = random() % 32;
        rates.cbs_mantissa = random() % 256;
        rates.cbs_exponent = random() % 32;
        rates.eir_mantissa = random() % 256;
        rates.eir_exponent = random() % 32;
        rates.ebs_mantissa = random() % 256;
        rates.ebs_exponent = random() % 16;
        rates.overflow = random() % 2;
        rates.both = random() % 2;
        rates.mode = 1 + random() % 3;
        expect_as_the_model(rates, seed);
    }
}

TEST(Meter, GrantsExactlyTheRateOverTwentySeconds) {
    // 10^9 * 3 / 2^7 bytes per second; packets of 1000 bytes, ten times as many as fit.
    Meter meter;
    meter.write(image_of({.cir_mantissa = 3, .cir_exponent = 7, .cbs_mantissa = 100, .cbs_exponent = 4}), ~0U);
    std::array<std::uint8_t, 1000> frame{};
    std::uint64_t green = 0;
    constexpr std::uint64_t seconds = 20, step = 4267;
    for (std::uint64_t t = 1; t <= seconds * 1'000'000'000; t += step) {
        green += meter.mark(noon + t, Colour::green, frame.data(), 1000) == Colour::green;
    }
    const std::uint64_t granted = seconds * 1'000'000'000 * 3 / 128 + 1600;
    EXPECT_GE(green * 1000, granted - 1000);
    EXPECT_LE(green * 1000, granted + 1000) << "one packet may end below zero";
}

TEST(Meter, CountsIpBytesWithoutPaddingAndTags) {
    Meter meter;
    meter.write(quota_of({.cbs_mantissa = 100, .cbs_exponent = 0, .mode = 0}, 100), ~0U);
    std::array<std::uint8_t, 64> frame{};
    frame[12] = 0x81;  // a tag, IPv4 of 28 bytes, then padding
    frame[16] = 0x08;
    frame[18] = 0x45;
    frame[21] = 28;
    for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(meter.mark(noon, Colour::green, frame.data(), 64), Colour::green) << i;
    EXPECT_EQ(meter.mark(noon, Colour::green, frame.data(), 64), Colour::red) << "100 - 4 * 28 < 0";
    const auto read = meter.read();
    EXPECT_EQ(static_cast<std::int8_t>(read[15]), -12);
    EXPECT_EQ(read[12], 0xff);
}

TEST(Meter, CountsWhatTheIpHeaderSaysOrWhatIsThere) {
    struct Case {
        std::vector<std::uint8_t> begin;  ///< from the ethertype on
        unsigned size, expected;
    };
    const auto v4 = [](unsigned total) {
        return std::vector<std::uint8_t>{
            8, 0, 0x45, 0, static_cast<std::uint8_t>(total >> 8), static_cast<std::uint8_t>(total)};
    };
    const auto v6 = [](unsigned payload) {
        return std::vector<std::uint8_t>{0x86, 0xdd, 0x60, 0, 0, 0, 0, static_cast<std::uint8_t>(payload)};
    };
    const auto tagged = [](std::vector<std::uint8_t> rest, unsigned tags) {
        for (unsigned i = 0; i < tags; ++i) {
            const std::vector<std::uint8_t> tag =
                i % 2 == 0 ? std::vector<std::uint8_t>{0x81, 0, 0, 5} : std::vector<std::uint8_t>{0x88, 0xa8, 0, 5};
            rest.insert(rest.begin(), tag.begin(), tag.end());
        }
        return rest;
    };
    const Case cases[] = {{v4(40), 64, 40},
                          {v4(50), 64, 50},
                          {v4(51), 64, 50},
                          {v4(20), 34, 20},
                          {v4(10), 33, 19},
                          {v4(0), 64, 50},
                          {v4(19), 64, 50},
                          {v4(300), 64, 50},
                          {v6(6), 64, 46},
                          {v6(10), 64, 50},
                          {v6(11), 64, 50},
                          {v6(0), 54, 40},
                          {v6(0), 53, 39},
                          {{8, 6}, 64, 50},
                          {{8, 6}, 14, 0},
                          {{8, 6}, 13, 0},
                          {{}, 12, 0},
                          {tagged(v4(40), 1), 64, 40},
                          {tagged(v4(40), 2), 64, 40},
                          {tagged(v6(2), 2), 80, 42},
                          {tagged(v6(2), 3), 80, 58},
                          {tagged({8, 6}, 2), 64, 42},
                          {{0x81, 0, 0, 5, 8, 0}, 18, 0},
                          {{0x81, 0, 0, 5, 8, 0}, 17, 3}};
    for (const Case& one : cases) {
        Meter meter;
        meter.write(quota_of({.cbs_mantissa = 200, .cbs_exponent = 2, .mode = 0}, 800), ~0U);
        std::vector<std::uint8_t> frame(12);
        frame.insert(frame.end(), one.begin.begin(), one.begin.end());
        frame.resize(std::max<std::size_t>(one.size, frame.size()));
        ASSERT_EQ(meter.mark(noon, Colour::green, frame.data(), one.size), Colour::green);
        const auto read = meter.read();
        EXPECT_EQ(800 - (read[14] << 8 | read[15]), static_cast<int>(one.expected))
            << one.size << ' ' << ::testing::PrintToString(one.begin);
    }
}

TEST(Meter, TokensAndTheTimestampAreWrittenWhereTheirBytesAre) {
    const Meter::Image whole = [] {
        Meter::Image image = image_of({.cbs_mantissa = 255, .cbs_exponent = 4, .ebs_mantissa = 255, .ebs_exponent = 4});
        for (const unsigned at : {12U, 20U}) image[at + 2] = 1;      // 256 tokens each
        for (unsigned i = 0; i < 8; ++i) image[24 + i] = static_cast<std::uint8_t>(i + 1);
        return image;
    }();
    Meter::Image next = whole;
    for (unsigned i = 12; i < 16; ++i) next[i] = next[i + 8] = static_cast<std::uint8_t>(0xf0 + i);  // negative ones
    for (unsigned i = 24; i < 32; ++i) next[i] = static_cast<std::uint8_t>(0x40 + i);
    for (unsigned byte = 0; byte < 32; ++byte) {
        Meter meter;
        meter.write(whole, ~0U);
        EXPECT_EQ(meter.read(), whole);
        meter.write(next, 1U << (31 - byte));
        Meter::Image expected = whole;
        expected[byte] = next[byte];
        EXPECT_EQ(meter.read(), expected) << byte;
    }
    Meter meter;
    meter.write(whole, ~0U);
    std::array<std::uint8_t, 100> frame{};
    (void)meter.mark(0x0102030405060708, Colour::green, frame.data(), 100);
    EXPECT_EQ(meter.read()[15], 256 - 100) << "no time has passed";
    meter.write(next, 0xff);  // the timestamp alone
    const auto read = meter.read();
    EXPECT_EQ(read[15], 256 - 100) << "the tokens are what they were";
    EXPECT_EQ(read[14], 0);
    EXPECT_EQ(read[24], 0x40 + 24);
}

TEST(Meter, FillsUpAtATimestampOfZeroOnly) {
    Meter meter;
    Meter::Image image = image_of({.cir_mantissa = 1, .cbs_mantissa = 100, .cbs_exponent = 4});
    image[31] = 1;  // one nanosecond
    meter.write(image, ~0U);
    std::array<std::uint8_t, 64> frame{};
    EXPECT_EQ(meter.mark(101, Colour::green, frame.data(), 64), Colour::green);
    EXPECT_EQ(meter.read()[15], 100 - 64) << "a byte each nanosecond";
    EXPECT_EQ(meter.mark(50, Colour::green, frame.data(), 64), Colour::green) << "time does not go back";
    EXPECT_EQ(static_cast<std::int8_t>(meter.read()[15]), 100 - 128);
    EXPECT_EQ(meter.read()[31], 101);
}

/// As DPDK makes a quota: a committed bucket of 2^30 bytes without a rate, 10,000 bytes in it, none in the other.
TEST(Meter, AQuotaIsWhatWasWritten) {
    Meter meter;
    Meter::Image image =
        quota_of({.cbs_mantissa = 1, .cbs_exponent = 30, .ebs_mantissa = 1, .ebs_exponent = 30}, 10000);
    std::fill_n(image.begin() + 20, 4, std::uint8_t{0xff});
    meter.write(image, ~0U);
    std::array<std::uint8_t, 1000> frame{};
    for (unsigned i = 0; i < 11; ++i) {
        EXPECT_EQ(meter.mark(noon + i, Colour::green, frame.data(), 1000), Colour::green) << i;
    }
    EXPECT_EQ(meter.mark(noon + 20, Colour::green, frame.data(), 1000), Colour::red);
}

TEST(Meter, HoldsTwoGigabytesAfterADayAtTheHighestRate) {
    Meter meter;
    meter.write(image_of({.cir_mantissa = 255, .cbs_mantissa = 255, .cbs_exponent = 31}), ~0U);
    std::array<std::uint8_t, 64> frame{};
    ASSERT_EQ(meter.mark(noon, Colour::green, frame.data(), 64), Colour::green);
    ASSERT_EQ(meter.mark(noon + 86'400'000'000'000, Colour::green, frame.data(), 64), Colour::green);
    const auto read = meter.read();
    EXPECT_EQ(read[12] << 24 | read[13] << 16 | read[14] << 8 | read[15], 0x7fffffff - 64);
}

/// The first packets come together: what any of them pays is paid out of full buckets.
TEST(Meter, IsFilledForTheFirstTimeBeforeAnybodyPays) {
    for (unsigned round = 0; round < 300; ++round) {
        Meter meter;
        meter.write(image_of({.cir_mantissa = 1, .cbs_mantissa = 1, .cbs_exponent = 10, .mode = 3}), ~0U);
        std::atomic<unsigned> ready{0}, green{0};
        std::vector<std::thread> workers;
        for (unsigned i = 0; i < 4; ++i) {
            workers.emplace_back([&] {
                ++ready;
                while (ready < 4) {
                }
                for (unsigned k = 0; k < 9; ++k) green += meter.mark(noon, Colour::green, nullptr, 0) == Colour::green;
            });
        }
        for (auto& worker : workers) worker.join();
        ASSERT_EQ(green, 9U) << "1024 / 128, and the one below zero";
    }
}

TEST(Meter, EachFlagIsItsBit) {
    Meter meter;
    for (const unsigned start : {0U, 1U, 2U, 3U}) {
        Meter::Image image{};
        image[0] = static_cast<std::uint8_t>(0x80 | start << 4);
        meter.write(image, ~0U);
        EXPECT_EQ(static_cast<unsigned>(meter.start_colour()), start);
    }
}

TEST(Meter, ThatIsNotValidLeavesColoursAlone) {
    Meter meter;
    std::array<std::uint8_t, 64> frame{};
    for (const Colour colour : {Colour::red, Colour::yellow, Colour::green}) {
        EXPECT_EQ(meter.mark(noon, colour, frame.data(), 64), colour);
    }
}

TEST(Meter, ReplacesSelectedBytesOnly) {
    Meter meter;
    meter.write(image_of({.cir_mantissa = 1, .cbs_mantissa = 7, .ebs_mantissa = 9}), ~0U);
    meter.write(image_of({.cbs_mantissa = 8, .ebs_mantissa = 10}), 0x00c00000);
    const auto read = meter.read();
    EXPECT_EQ(read[9], 8);
    EXPECT_EQ(read[11], 1);
    EXPECT_EQ(read[17], 9);
}

TEST(Meter, GrantsNoTokenTwiceBetweenWorkers) {
    Meter meter;
    // 400, and the one below zero.
    meter.write(quota_of({.cbs_mantissa = 200, .cbs_exponent = 8, .mode = 3}, 200 << 8), ~0U);
    std::atomic<unsigned> green{0};
    std::vector<std::thread> workers;
    for (unsigned i = 0; i < 4; ++i) {
        workers.emplace_back([&] {
            for (unsigned k = 0; k < 1000; ++k) green += meter.mark(noon, Colour::green, nullptr, 0) == Colour::green;
        });
    }
    for (auto& worker : workers) worker.join();
    EXPECT_EQ(green, 401u);
}

TEST(AsoBulk, FirstHitsAreBitsOfBigEndianObjects) {
    AsoBulk bulk(AsoKind::first_hit, 1, nullptr);
    EXPECT_FALSE(bulk.hit(512 + 9, false));
    EXPECT_FALSE(bulk.hit(512 + 9, true));
    EXPECT_TRUE(bulk.hit(512 + 9, false));
    EXPECT_TRUE(bulk.hit(512 + 9, true));
    AsoBulk::Image expected{};
    EXPECT_EQ(bulk.read(0), expected);
    expected[63 - 9 / 8] = 1 << 9 % 8;
    EXPECT_EQ(bulk.read(1), expected);
    EXPECT_EQ(bulk.exchange(1, {}, ~0ULL), expected) << "read and clear, as aging does";
    EXPECT_FALSE(bulk.hit(512 + 9, false));
    AsoBulk::Image all;
    all.fill(0xff);
    bulk.exchange(0, all, 1);  // the last byte
    EXPECT_TRUE(bulk.hit(7, false));
    EXPECT_FALSE(bulk.hit(8, false));
}

TEST(AsoBulk, HitsAreReplacedByteByByte) {
    AsoBulk bulk(AsoKind::first_hit, 2, nullptr);
    std::mt19937_64 random(3);
    std::array<AsoBulk::Image, 4> model{};
    for (unsigned step = 0; step < 500; ++step) {
        const auto index = static_cast<unsigned>(random() % 4);
        AsoBulk::Image image;
        for (std::uint8_t& byte : image) byte = static_cast<std::uint8_t>(random());
        const std::uint64_t bytes = random() & random();
        EXPECT_EQ(bulk.exchange(index, image, bytes), model[index]);
        for (unsigned i = 0; i < 64; ++i) {
            if ((bytes >> (63 - i) & 1) != 0) model[index][i] = image[i];
        }
        const auto bit = static_cast<unsigned>(random() % 512);
        std::uint8_t& byte = model[index][63 - bit / 8];
        const bool set = random() % 2 != 0;
        EXPECT_EQ(bulk.hit(index * 512 + bit, set), (byte >> bit % 8 & 1) != 0);
        if (set) byte = static_cast<std::uint8_t>(byte | 1 << bit % 8);
        for (unsigned i = 0; i < 4; ++i) ASSERT_EQ(bulk.read(i), model[i]) << step;
    }
}

TEST(AsoBulk, HoldsTwoMetersAnObject) {
    AsoBulk bulk(AsoKind::flow_meter, 2, nullptr);
    AsoBulk::Image image{};
    const auto second = image_of({.cbs_mantissa = 3, .start = Colour::yellow});
    std::copy(second.begin(), second.end(), image.begin() + 32);
    bulk.exchange(3, image, 0x80ffffff);
    EXPECT_EQ(bulk.meter(7).start_colour(), Colour::yellow);
    EXPECT_EQ(bulk.meter(7).read()[9], 3);
    EXPECT_EQ(bulk.meter(6).read()[9], 0);
    EXPECT_EQ(bulk.read(3), image);
}

}  // namespace
}  // namespace ovsdr::soft::test
