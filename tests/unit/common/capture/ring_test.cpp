// A producer that never waits and a consumer, alone, beside each other, and one that lies.
#include "common/capture/ring.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "common/capture/memory.hpp"

namespace ovsdr::capture {
namespace {

constexpr std::size_t ring_size = 4096;

RecordHeader header(std::size_t size, std::uint64_t time = 0) {
    return {.size = static_cast<std::uint32_t>(size),
            .original_size = static_cast<std::uint32_t>(size),
            .time = time,
            .direction = Direction::in};
}

/// Bytes that depend on both.
std::string content(std::uint64_t number, std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(number * 31 + i);
    return bytes;
}

std::string text(const Consumer::Record& record) {
    return {reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size()};
}

class RingTest : public testing::Test {
protected:
    bool stage(const std::string& bytes) { return producer_.stage(header(bytes.size()), bytes.data()); }
    void put(const std::string& bytes) {
        ASSERT_TRUE(stage(bytes));
        producer_.publish();
    }
    std::string take() {
        const auto record = consumer_.front();
        if (!record) return "nothing";
        std::string bytes = text(*record);
        consumer_.pop();
        return bytes;
    }

    Memory memory_{1, ring_size};
    Producer producer_{memory_.control(0), memory_.data(0)};
    Consumer consumer_{memory_.control(0), memory_.data(0)};
};

TEST_F(RingTest, RecordsComeOutAsTheyWentIn) {
    EXPECT_FALSE(consumer_.front());
    RecordHeader first = header(5, 77);
    first.original_size = 1514;
    first.direction = Direction::out;
    first.interface = 1;
    ASSERT_TRUE(producer_.stage(first, "first"));
    ASSERT_TRUE(stage("second one"));
    producer_.publish();
    const auto record = consumer_.front();
    ASSERT_TRUE(record);
    EXPECT_EQ(text(*record), "first");
    EXPECT_EQ(record->header.time, 77U);
    EXPECT_EQ(record->header.original_size, 1514U);
    EXPECT_EQ(record->header.direction, Direction::out);
    EXPECT_EQ(record->header.interface, 1);
    consumer_.pop();
    EXPECT_EQ(take(), "second one");
    EXPECT_EQ(take(), "nothing");
}

TEST_F(RingTest, WhatIsNotPublishedIsNotSeenAndCanBeTakenBack) {
    put("kept");
    ASSERT_TRUE(stage("sent"));
    const std::uint64_t sent = producer_.position();
    ASSERT_TRUE(stage("not sent"));
    EXPECT_EQ(take(), "kept");
    EXPECT_EQ(take(), "nothing");
    producer_.publish(sent);
    put("later");
    EXPECT_EQ(take(), "sent");
    EXPECT_EQ(take(), "later");
    EXPECT_EQ(take(), "nothing");
}

TEST_F(RingTest, AFullRingRefusesAndGoesOnWhenThereIsRoom) {
    unsigned taken = 0;
    while (stage(content(taken, 120))) ++taken;  // of 144 bytes each: 64 bytes are left
    producer_.publish();
    EXPECT_EQ(taken, ring_size / record_size(120));
    EXPECT_FALSE(stage(content(0, 120)));
    EXPECT_TRUE(stage("")) << "a smaller one may still fit";
    producer_.publish();
    EXPECT_EQ(take(), content(0, 120));
    EXPECT_EQ(take(), content(1, 120));
    put(content(99, 120));
    for (unsigned i = 2; i < taken; ++i) EXPECT_EQ(take(), content(i, 120));
    EXPECT_EQ(take(), "");
    EXPECT_EQ(take(), content(99, 120));
}

TEST_F(RingTest, WhatIsLargerThanTheRingIsRefused) {
    EXPECT_FALSE(stage(std::string(ring_size, 'x')));
    EXPECT_TRUE(stage(std::string(ring_size - sizeof(RecordHeader), 'x')));
}

TEST_F(RingTest, RecordsOfAllSizesGoRoundManyTimes) {
    for (std::uint64_t i = 0; i < 20'000; ++i) {
        const std::string bytes = content(i, i * 7 % 1500);
        put(bytes);
        ASSERT_EQ(take(), bytes) << i;
    }
}

TEST_F(RingTest, ATakenBackBatchThatWentRoundLeavesNoTrace) {
    for (std::uint64_t i = 0; i < 5'000; ++i) {
        const std::uint64_t before = producer_.position();
        for (std::size_t size : {700, 900, 1300}) (void)stage(content(7, size));
        producer_.publish(before);
        const std::string bytes = content(i, i * 13 % 900);
        put(bytes);
        ASSERT_EQ(take(), bytes) << i;
    }
}

TEST_F(RingTest, CountsAddUp) {
    producer_.count(1, {.seen = 5, .accepted = 3, .dropped = 2});
    producer_.count(1, {.seen = 1, .accepted = 1, .dropped = 0});
    EXPECT_EQ(consumer_.counts(1).seen, 6U);
    EXPECT_EQ(consumer_.counts(1).accepted, 4U);
    EXPECT_EQ(consumer_.counts(1).dropped, 2U);
    EXPECT_EQ(consumer_.counts(0).seen, 0U);
}

TEST_F(RingTest, TwoThreadsLoseAndMixUpNothing) {
    constexpr std::uint64_t length = 100'000;
    std::uint64_t dropped = 0;
    std::thread writer([&] {
        for (std::uint64_t i = 0; i < length; ++i) {
            std::string bytes = content(i, 8 + i % 300);
            std::memcpy(bytes.data(), &i, sizeof i);
            if (producer_.stage(header(bytes.size(), i), bytes.data())) {
                producer_.publish();
            } else {
                ++dropped;
            }
        }
        producer_.count(0, {.seen = length, .accepted = length, .dropped = dropped});
    });
    std::uint64_t taken = 0, last = 0;
    const auto drain = [&] {
        while (const auto record = consumer_.front()) {
            const std::uint64_t number = record->header.time;
            std::string bytes = content(number, 8 + number % 300);
            std::memcpy(bytes.data(), &number, sizeof number);
            EXPECT_EQ(text(*record), bytes);
            EXPECT_TRUE(taken == 0 || number > last);
            last = number;
            ++taken;
            consumer_.pop();
        }
    };
    while (consumer_.counts(0).seen == 0) drain();
    writer.join();
    drain();
    EXPECT_EQ(taken + dropped, length);
    EXPECT_EQ(consumer_.counts(0).dropped, dropped);
    EXPECT_GT(taken, 0U);
}

TEST_F(RingTest, AConsumerThatLiesOnlyHarmsItself) {
    for (const std::uint64_t lie : {~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{12345}}) {
        memory_.control(0).read.store(lie);
        for (unsigned i = 0; i < 200; ++i) (void)stage(content(i, 1000));
        producer_.publish();
    }
    memory_.control(0).read.store(producer_.position());
    EXPECT_TRUE(stage("room again"));
}

TEST_F(RingTest, AProducerThatLiesIsFoundOut) {
    put("good");
    RingControl& control = memory_.control(0);
    const auto expect_damage = [&](const char* what) {
        EXPECT_THROW((void)consumer_.front(), std::runtime_error) << what;
    };
    control.written.store(control.written.load() + 2 * ring_size);
    expect_damage("more than there is room for");
    control.written.store(32);
    const std::uint32_t sizes[] = {~std::uint32_t{0}, ~std::uint32_t{0} - 1, 33, 1 << 20};
    for (const std::uint32_t size : sizes) {
        std::memcpy(memory_.data(0).data(), &size, sizeof size);
        expect_damage("a size");
    }
}

TEST(CaptureMemoryTest, TheOtherEndSeesTheSameRings) {
    const Memory made(3, 8192);
    const Memory opened(fcntl(made.descriptor(), F_DUPFD_CLOEXEC, 0));
    ASSERT_EQ(opened.rings(), 3U);
    for (unsigned ring = 0; ring < 3; ++ring) {
        Producer producer(made.control(ring), made.data(ring));
        Consumer consumer(opened.control(ring), opened.data(ring));
        const std::string bytes = content(ring, 100);
        ASSERT_TRUE(producer.stage(header(bytes.size()), bytes.data()));
        producer.publish();
        const auto record = consumer.front();
        ASSERT_TRUE(record);
        EXPECT_EQ(text(*record), bytes);
        EXPECT_EQ(opened.data(ring).size(), 8192U);
    }
}

TEST(CaptureMemoryTest, NobodyCanTakePagesAway) {
    const Memory made(1, 8192);
    EXPECT_NE(ftruncate(made.descriptor(), 0), 0);
    EXPECT_EQ(errno, EPERM);
}

TEST(CaptureMemoryTest, OtherMemoryIsRefused) {
    EXPECT_THROW(Memory(-1), std::system_error);
    const int other = memfd_create("other", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(other, 1 << 20), 0);
    EXPECT_THROW(Memory{other}, std::runtime_error);
    const Memory made(1, 8192);
    std::uint32_t version = layout_version + 1;
    ASSERT_EQ(pwrite(made.descriptor(), &version, sizeof version, 8), static_cast<ssize_t>(sizeof version));
    EXPECT_THROW(Memory(fcntl(made.descriptor(), F_DUPFD_CLOEXEC, 0)), std::runtime_error);
}

}  // namespace
}  // namespace ovsdr::capture
