// Packets for tests: an EAL without hugepages, one pool, frames in and out of mbufs.
#pragma once

#include <gtest/gtest.h>
#include <rte_mbuf.h>

#include <cstdint>
#include <map>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/steering/steering.hpp"

namespace ovsdr::soft::test {

using Frame = std::vector<std::uint8_t>;

/// Started on first use, for the whole process.
[[nodiscard]] rte_mempool* pool();

/// Mbufs that somebody still holds.
[[nodiscard]] unsigned mbufs_in_use();

[[nodiscard]] rte_mbuf* packet_of(const Frame& frame);
[[nodiscard]] Frame frame_of(const rte_mbuf* packet);

/// A sink that keeps copies of what it gets.
class Collector {
public:
    [[nodiscard]] Sink sink() noexcept { return {.deliver = deliver, .self = this}; }
    struct Taken {
        Frame frame;
        std::uint32_t tag;
        VportId source;
        std::uint32_t reg_b = 0;
    };
    std::vector<Taken> taken;

private:
    static void deliver(void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept;
};

/// A device with a lane and some vports. The lane is online only while it is sent something: control calls wait for
/// lanes, and nobody else moves this one.
class SteeringTest : public ::testing::Test {
protected:
    explicit SteeringTest(const Profile& profile = connectx_6dx) : steering(profile), lane(steering, 0) {}

    void SetUp() override { in_use_ = mbufs_in_use(); }
    void TearDown() override {
        lane.flush();
        EXPECT_EQ(mbufs_in_use(), in_use_) << "packets leaked, or were freed twice";
    }

    void attach(std::initializer_list<std::uint16_t> ids) {
        for (const std::uint16_t id : ids) ASSERT_EQ(steering.attach(VportId{id}, vports[id].sink()), 0);
    }
    /// One frame into a vport; everything it causes has arrived on return.
    void send(std::uint16_t vport, const Frame& frame, unsigned times = 1);
    void send_batch(std::uint16_t vport, const std::vector<Frame>& frames);
    void send_from_queue(std::uint32_t sqn, const Frame& frame, unsigned times = 1);
    Steering steering;
    Lane lane;
    std::map<std::uint16_t, Collector> vports;

private:
    unsigned in_use_ = 0;
};

}  // namespace ovsdr::soft::test
