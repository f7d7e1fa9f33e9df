// The parts of drgen that need no port: frames, books, pace, and the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tools/drgen/accounting.hpp"
#include "tools/drgen/frame.hpp"
#include "tools/drgen/options.hpp"
#include "tools/drgen/pacer.hpp"

namespace ovsdr::drgen {
namespace {

using testing::HasSubstr;

constexpr std::uint16_t run = 0x1234;

std::vector<std::uint8_t> frame_of(std::size_t size, std::vector<std::uint16_t> vlans = {}, std::uint32_t flow = 0) {
    const StreamHeader header{.stream = 3,
                              .run = run,
                              .source = {2, 0, 0, 0, 0, 1},
                              .destination = {2, 0, 0, 0, 0, 2},
                              .vlans = std::move(vlans)};
    std::vector<std::uint8_t> bytes(size);
    FrameTemplate(header, size).write(bytes.data(), flow, 0xfedcba98, 0x89abcdef);
    return bytes;
}

std::uint32_t ip_sum(const std::vector<std::uint8_t>& frame, std::size_t at) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < 20; i += 2) sum += static_cast<std::uint32_t>(frame[at + i] << 8 | frame[at + i + 1]);
    return (sum & 0xffff) + (sum >> 16);
}

TEST(Frame, IsKnownAgainAtEverySize) {
    for (const std::vector<std::uint16_t>& vlans : {std::vector<std::uint16_t>{}, {100}, {200, 100}}) {
        for (const std::size_t size :
             {smallest_size(vlans.size()), std::size_t{65}, std::size_t{590}, std::size_t{1514}, largest_frame}) {
            const auto signature = read_signature(frame_of(size, vlans), run);
            ASSERT_TRUE(signature) << size;
            EXPECT_TRUE(signature->intact) << size;
            EXPECT_EQ(signature->stream, 3);
            EXPECT_EQ(signature->sequence, 0xfedcba98);
            EXPECT_EQ(signature->time, 0x89abcdef);
        }
    }
}

TEST(Frame, HasACorrectIpHeaderInEveryFlow) {
    for (const std::uint32_t flow : {0U, 1U, 64511U, 64512U, 1'000'000U, 15'999'999U}) {
        EXPECT_EQ(ip_sum(frame_of(100, {}, flow), 14), 0xffffU) << flow;
    }
    EXPECT_NE(frame_of(100, {}, 0), frame_of(100, {}, 1));
    EXPECT_NE(frame_of(100, {}, 0), frame_of(100, {}, 64512));
}

TEST(Frame, EachCorruptedPayloadByteIsNoticed) {
    const auto good = frame_of(100);
    for (std::size_t at = 14 + 20 + 8; at < good.size(); ++at) {
        auto bad = good;
        bad[at] ^= 0x10;
        const auto signature = read_signature(bad, run);
        EXPECT_FALSE(signature && signature->intact) << at;
    }
}

TEST(Frame, ACutFrameIsNotIntact) {
    auto frame = frame_of(200);
    frame.resize(150);
    const auto signature = read_signature(frame, run);
    ASSERT_TRUE(signature);
    EXPECT_FALSE(signature->intact);
    for (std::size_t size = 0; size < 56; ++size) {
        frame.resize(size);
        EXPECT_FALSE(read_signature(frame, run)) << size;
    }
}

TEST(Frame, SurvivesATagThatIsPushedOnTheWay) {
    auto frame = frame_of(60);
    frame.insert(frame.begin() + 12, {0x81, 0x00, 0x00, 0x05});
    ASSERT_TRUE(read_signature(frame, run));
    EXPECT_TRUE(read_signature(frame, run)->intact);
}

TEST(Frame, OfAnotherRunIsForeign) {
    EXPECT_FALSE(read_signature(frame_of(60), run + 1));
}

TEST(Ledger, TellsLostDuplicatedAndOvertaken) {
    Ledger ledger(1);
    for (const std::uint32_t sequence : {0U, 1U, 4U, 2U, 4U, 5U}) ledger.receive(sequence);
    EXPECT_EQ(ledger.received(), 5U);
    EXPECT_EQ(ledger.lost(7), 2U) << "3 and 6";
    EXPECT_EQ(ledger.duplicated(), 1U) << "4";
    EXPECT_EQ(ledger.overtaken(), 1U) << "2, by 4";
}

TEST(Ledger, OrderMattersOnlyWithinAFlow) {
    Ledger ledger(2);
    for (const std::uint32_t sequence : {1U, 0U, 3U, 2U, 5U}) ledger.receive(sequence);
    EXPECT_EQ(ledger.overtaken(), 0U);
    ledger.receive(7);
    ledger.receive(4);
    ledger.receive(9);
    EXPECT_EQ(ledger.overtaken(), 0U);
    ledger.receive(8);
    ledger.receive(6);
    EXPECT_EQ(ledger.overtaken(), 1U);
}

TEST(Histogram, QuantilesAreWithinASixtyFourth) {
    Histogram histogram;
    for (std::uint64_t value = 1; value <= 100'000; ++value) histogram.add(value);
    for (const double fraction : {0.001, 0.5, 0.9, 0.99, 0.999}) {
        const double exact = fraction * 100'000;
        EXPECT_GE(static_cast<double>(histogram.quantile(fraction)), exact);
        EXPECT_LE(static_cast<double>(histogram.quantile(fraction)), exact * (1 + 1.0 / 64) + 1);
    }
    EXPECT_EQ(histogram.quantile(1), 100'000U);
    EXPECT_EQ(histogram.largest(), 100'000U);
}

TEST(Histogram, HoldsTheExtremes) {
    Histogram histogram;
    EXPECT_EQ(histogram.quantile(0.5), 0U);
    histogram.add(0);
    EXPECT_EQ(histogram.quantile(0.5), 0U);
    histogram.add(std::numeric_limits<std::uint64_t>::max());
    EXPECT_EQ(histogram.quantile(1), std::numeric_limits<std::uint64_t>::max());
}

TEST(Pacer, SendsExactlyTheRate) {
    Pacer pacer(1000, 1'000'000);  // a frame every 1000 cycles
    std::uint64_t sent = 0;
    for (std::uint64_t now = 0; now < 10'000'000; now += 377) sent += pacer.due(now, sent);
    EXPECT_EQ(sent, 10'000U);
    EXPECT_EQ(pacer.largest_backlog(), 1U);
}

TEST(Pacer, MakesUpForAPause) {
    Pacer pacer(1000, 1'000'000);
    EXPECT_EQ(pacer.due(0, 0), 1U);
    EXPECT_EQ(pacer.due(50'000, 1), 50U);
    EXPECT_EQ(pacer.largest_backlog(), 50U);
}

TEST(Options, RefusesWithReason) {
    const auto problem = [](auto parse) {
        try {
            parse();
            return std::string();
        } catch (const OptionError& error) {
            return std::string(error.what());
        }
    };
    EXPECT_THAT(problem([] { (void)parse_sizes("60,59"); }), HasSubstr("\"59\""));
    EXPECT_THAT(problem([] { (void)parse_sizes("x"); }), HasSubstr("60 to 10000"));
    EXPECT_THAT(problem([] { (void)parse_stream("0:2", 2); }), HasSubstr("ports 0 to 1"));
    EXPECT_THAT(problem([] { (void)parse_stream("0", 2); }), HasSubstr("FROM:TO"));
    EXPECT_THAT(problem([] { (void)parse_vlans("4096"); }), HasSubstr("0 to 4095"));
    EXPECT_THAT(problem([] { (void)parse_vlans("1,2,3"); }), HasSubstr("two of them"));
    EXPECT_THAT(problem([] { (void)parse_mac("02:00:00:00:01", "--src-mac"); }), HasSubstr("--src-mac"));
}

TEST(Options, ReadsStreams) {
    const StreamOptions stream = parse_stream("1:0,2", 3);
    EXPECT_EQ(stream.from, 1U);
    EXPECT_EQ(stream.to, (std::vector<unsigned>{0, 2}));
    EXPECT_TRUE(parse_stream("2:", 3).to.empty());
    EXPECT_EQ(parse_sizes("imix").size(), 12U);
}

}  // namespace
}  // namespace ovsdr::drgen
