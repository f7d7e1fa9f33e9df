// What stays in memory of megaflows that have gone: nothing that grows with how many there have been. A switch runs for
// months. In a program of its own: it replaces the global operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>

#include "tests/unit/offload/dr/eswitch_fixture.hpp"

namespace {

/// In front of each allocation: what it adds to `live_bytes`. The fake's own add nothing.
struct alignas(16) Header {
    std::size_t counted;
};
std::atomic<std::int64_t> live_bytes{0};

}  // namespace

void* operator new(std::size_t size) {
    auto* const header = static_cast<Header*>(std::malloc(sizeof(Header) + size));
    if (header == nullptr) throw std::bad_alloc();
    header->counted = ovsdr::test::NoMemoryFaults::depth == 0 ? size : 0;
    live_bytes += static_cast<std::int64_t>(header->counted);
    return header + 1;
}
void operator delete(void* memory) noexcept {
    if (memory == nullptr) return;
    Header* const header = static_cast<Header*>(memory) - 1;
    live_bytes -= static_cast<std::int64_t>(header->counted);
    std::free(header);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace ovsdr::dr {
namespace {

constexpr std::uint32_t uplink = 9, vxlan = 20;

class KeptMemory : public EswitchTest {
protected:
    void SetUp() override {
        EswitchTest::SetUp();
        ASSERT_TRUE(eswitch_->attach_port({OdpPort{uplink}, uplink_vport, "uplink", &queue_pair_, 0x109}));
        ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
        eswitch_->set_tunnel_port({OdpPort{vxlan}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
        MegaflowBuilder into(uplink);
        into.ipv4().proto(17).ports(0, 4789).tunnel_pop(vxlan).raw().mask.be_tp_src = 0;
        ASSERT_TRUE(installed(eswitch_->put({9, 9}, into)));
    }
    void TearDown() override {
        eswitch_->flush(std::nullopt);
        eswitch_->stop_copies(CopyKind::other);
        eswitch_->detach_port(uplink_vport);
        EswitchTest::TearDown();
    }

    /// Megaflows that no other round has: of work for software, a table that is new and one that waits for it, one that
    /// waits in vain, and one of a tunnel.
    void round(std::uint32_t number) {
        std::string works[ids_of_round - 1];
        for (std::uint32_t i = 0; i < std::size(works); ++i) {
            const std::uint32_t what = number * std::size(works) + i;
            works[i] = {0x0c, static_cast<char>(what), static_cast<char>(what >> 8), static_cast<char>(what >> 16)};
        }
        const std::uint32_t recirc_id = 2 * number + 1;
        MegaflowBuilder parent(1);
        parent.ipv4();
        for (const std::string& work : works) parent.software(work);
        EXPECT_FALSE(installed(eswitch_->put({1, 1}, MegaflowBuilder(1).ipv4().behind(recirc_id).output(2))));
        EXPECT_FALSE(installed(eswitch_->put({1, 2}, MegaflowBuilder(1).ipv4().behind(recirc_id + 1).output(2))));
        ASSERT_TRUE(installed(eswitch_->put({1, 3}, parent.output(2).recirc(recirc_id))));
        ASSERT_TRUE(installed(eswitch_->put({1, 4}, MegaflowBuilder(vxlan).from_tunnel(number).ipv4().output(2))));
        for (const std::uint64_t each : {1U, 2U, 3U, 4U}) (void)eswitch_->del(Ufid{1, each});
        (void)FakeProvider::take_events();
    }

    static constexpr std::uint32_t ids_of_round = 5;
};

TEST_F(KeptMemory, DoesNotGrowWithTheMegaflowsThatHaveBeen) {
    constexpr std::uint32_t remembered_ids = 4096;   // of packets that may still come up
    constexpr std::uint32_t first = remembered_ids / ids_of_round + 200, more = 2000;
    for (std::uint32_t number = 0; number < first; ++number) round(number);
    const std::int64_t before = live_bytes;
    const unsigned bulks = FakeProvider::alive("devx"), matchers = FakeProvider::alive("matcher");
    for (std::uint32_t number = 0; number < more; ++number) round(first + number);
    // Less than the smallest node of a map for each round; caches are cleaned up now and then.
    EXPECT_LT(live_bytes - before, 40 * more);
    EXPECT_EQ(FakeProvider::alive("devx"), bulks) << "counters were given back";
    EXPECT_EQ(FakeProvider::alive("matcher"), matchers);
    std::printf("FIGURE %lld bytes more after %u rounds\n", static_cast<long long>(live_bytes - before), more);
}

}  // namespace
}  // namespace ovsdr::dr
