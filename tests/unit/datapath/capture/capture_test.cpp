// What a vport's path shows to those who capture there.
#include "datapath/capture/capture.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <thread>

#include "datapath/ports/eal.hpp"
#include "datapath/ports/packet_pool.hpp"
#include "datapath/ports/vport_path.hpp"

namespace ovsdr::soft {
namespace {

using testing::ElementsAre;

/// Takes as many packets as it has room for.
class NarrowPort : public Port {
public:
    NarrowPort() : Port(*driver_of("net_null")) {
        const Burst send = [](void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
            auto& port = *static_cast<NarrowPort*>(self);
            length = static_cast<std::uint16_t>(std::min<unsigned>(length, port.room));
            port.room -= length;
            rte_pktmbuf_free_bulk(packets, length);
            return length;
        };
        set_queues({}, {{.send = send, .queue = this}});
    }
    [[nodiscard]] bool link_up() const noexcept override { return true; }

    unsigned room = 1000;
};

/// A capture in its own process, and its one ring.
struct ReadCapture {
    explicit ReadCapture(Capture::Spec spec)
        : capture(std::move(spec), 1), memory(fcntl(capture.descriptor(), F_DUPFD_CLOEXEC, 0)),
          ring(memory.control(0), memory.data(0)) {}

    std::vector<std::uint32_t> sizes() {
        std::vector<std::uint32_t> sizes;
        for (; const auto record = ring.front(); ring.pop()) sizes.push_back(record->header.original_size);
        return sizes;
    }

    Capture capture;
    capture::Memory memory;
    capture::Consumer ring;
};

class CaptureTest : public testing::Test {
protected:
    CaptureTest() {
        std::string error;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        EXPECT_EQ(start_eal({.memory_mb = 64}, error), 0) << error;
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        pool_ = make_mempool({.name = "capture", .length = 255, .room = 2048}, error);
        EXPECT_TRUE(pool_) << error;
        path_.set_admin_up(true);
        path_.set_link_up(true);
        path_.bind(&port_);
    }

    void deliver(const std::vector<std::uint16_t>& sizes) {
        std::vector<rte_mbuf*> packets;
        for (const std::uint16_t size : sizes) {
            packets.push_back(rte_pktmbuf_alloc(pool_.get()));
            ASSERT_NE(packets.back(), nullptr);
            (void)rte_pktmbuf_append(packets.back(), size);
        }
        const Sink sink = path_.sink();
        sink.deliver(sink.self, 0, packets.data(), static_cast<unsigned>(packets.size()));
    }

    Mempool pool_;
    NarrowPort port_;
    VportPath path_{VportId{1}, 1};
};

TEST_F(CaptureTest, HasWhatThePortTookAndNothingElse) {
    ReadCapture reader({.ring_size = 65536});
    const CaptureList list({{&reader.capture, 0}});
    path_.set_captures(&list);
    port_.room = 3;
    deliver({60, 1860, 62, 63, 64});  // the second is longer than the MTU allows, the last finds no room
    EXPECT_EQ(path_.counters().received_packets, 3U);
    EXPECT_EQ(reader.capture.counts().seen, 3U);
    EXPECT_THAT(reader.sizes(), ElementsAre(60, 62, 63));
    deliver({70, 71});
    EXPECT_EQ(reader.capture.counts().seen, 3U);
    port_.room = 1000;
    path_.set_admin_up(false);
    deliver({80});
    path_.set_admin_up(true);
    deliver({90});
    EXPECT_THAT(reader.sizes(), ElementsAre(90));
}

TEST_F(CaptureTest, WhatIsDroppedForRoomIsCountedOnlyIfItWasSent) {
    ReadCapture reader({.ring_size = 4096});
    const CaptureList list({{&reader.capture, 0}});
    path_.set_captures(&list);
    port_.room = 5;
    deliver({1500, 1500, 1500, 1500, 1500, 1500, 1500});  // two fit into the ring
    EXPECT_EQ(reader.capture.counts().accepted, 5U);
    EXPECT_EQ(reader.capture.counts().dropped, 3U);
    EXPECT_THAT(reader.sizes(), ElementsAre(1500, 1500));
}

TEST_F(CaptureTest, EachOfSeveralHasItsOwn) {
    std::string error;
    const bpf_insn longer_than_62[] = {{BPF_LD | BPF_W | BPF_LEN, 0, 0, 0}, {BPF_JMP | BPF_JGT | BPF_K, 0, 1, 62},
                                       {BPF_RET | BPF_K, 0, 0, 10}, {BPF_RET | BPF_K, 0, 0, 0}};
    const auto filter = BpfFilter::make({std::begin(longer_than_62), std::end(longer_than_62)}, error);
    ASSERT_TRUE(filter) << error;
    ReadCapture all({.ring_size = 65536}), long_ones({.ring_size = 65536, .filter = *filter}),
        in({.out = false, .ring_size = 65536});
    const CaptureList list({{&all.capture, 0}, {&long_ones.capture, 1}, {&in.capture, 0}});
    path_.set_captures(&list);
    deliver({60, 62, 63, 64});
    path_.set_captures(nullptr);
    deliver({65});
    EXPECT_THAT(all.sizes(), ElementsAre(60, 62, 63, 64));
    EXPECT_THAT(in.sizes(), ElementsAre());
    EXPECT_EQ(in.capture.counts().seen, 0U);
    EXPECT_EQ(long_ones.ring.counts(1).seen, 4U);
    EXPECT_EQ(long_ones.ring.counts(1).accepted, 2U);
    const auto record = long_ones.ring.front();
    ASSERT_TRUE(record);
    EXPECT_EQ(record->header.size, 10U);
    EXPECT_EQ(record->header.interface, 1);
    EXPECT_THAT(long_ones.sizes(), ElementsAre(63, 64));
}

/// ThreadSanitizer's: the reader beside the worker, and nothing is torn.
TEST_F(CaptureTest, IsReadWhileItIsWritten) {
    ReadCapture reader({.ring_size = 65536});
    const CaptureList list({{&reader.capture, 0}});
    path_.set_captures(&list);
    std::atomic<bool> end{false};
    std::uint64_t taken = 0;
    std::thread other([&] {
        while (!end) taken += reader.sizes().size();
    });
    port_.room = 1'000'000;
    for (unsigned i = 0; i < 5000; ++i) deliver({100, 200, 300, 1400});
    end = true;
    other.join();
    taken += reader.sizes().size();
    const capture::Counts counts = reader.capture.counts();
    EXPECT_EQ(counts.seen, 20000U);
    EXPECT_EQ(taken + counts.dropped, 20000U);
}

}  // namespace
}  // namespace ovsdr::soft
