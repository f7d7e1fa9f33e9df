// FlowMap against the standard library's map: what is in it, and that nothing moves or is lost.
#include "offload/dr/flow_map.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ovsdr::dr {
namespace {

struct Named {
    explicit Named(const Ufid& its_ufid) : ufid(its_ufid) { ++alive; }
    ~Named() { --alive; }
    Named(const Named&) = delete;
    Named& operator=(const Named&) = delete;

    const Ufid ufid;
    static inline int alive = 0;
};

using Known = std::map<Ufid, const Named*>;

void expect_same(const FlowMap<Named>& map, const Known& known) {
    ASSERT_EQ(map.size(), known.size());
    for (const auto& [ufid, named] : known) ASSERT_EQ(map.find(ufid), named);
    std::size_t visited = 0;
    map.for_each([&](const Named& named) {
        ++visited;
        EXPECT_EQ(known.at(named.ufid), &named);
    });
    EXPECT_EQ(visited, known.size());
}

/// Ufids whose hashes are 16 bits by which tags differ and none else, so that there are long runs of neighbours.
Ufid crowded(std::uint64_t i) { return {(i % 64) << 32 | (i % 8) << 48 | i << 56, 0}; }

TEST(FlowMap, KeepsWhatIsPutUntilItIsTakenOut) {
    for (const bool crowds : {false, true}) {
        SCOPED_TRACE(crowds);
        FlowMap<Named> map;
        Known known;
        std::mt19937_64 random(7);
        for (int step = 0; step < 20000; ++step) {
            const std::uint64_t i = random() % 300;
            const Ufid ufid = crowds ? crowded(i % 256) : Ufid{i * 0x9E3779B97F4A7C15ULL, i};
            const auto found = known.find(ufid);
            ASSERT_EQ(map.find(ufid), found == known.end() ? nullptr : found->second);
            if (random() % 2 == 0) {
                Named& named = map.get(ufid);
                EXPECT_TRUE(found == known.end() || found->second == &named);
                known[ufid] = &named;
            } else {
                EXPECT_EQ(map.extract(ufid).get(), found == known.end() ? nullptr : found->second);
                known.erase(ufid);
            }
            if (step % 1000 == 0) expect_same(map, known);
        }
        expect_same(map, known);
        EXPECT_EQ(Named::alive, static_cast<int>(known.size()));
    }
    EXPECT_EQ(Named::alive, 0);
}

TEST(FlowMap, GrowsPastWhatTagsCanTell) {
    FlowMap<Named> map;
    Known known;
    std::mt19937_64 random(8);
    for (int i = 0; i < 150000; ++i) {
        const Ufid ufid{random(), random()};
        known[ufid] = &map.get(ufid);
    }
    expect_same(map, known);
    while (known.size() > 100) {
        const auto gone = known.begin();
        EXPECT_EQ(map.extract(gone->first).get(), gone->second);
        known.erase(gone);
    }
    expect_same(map, known);
}

TEST(FlowMap, HasNothingAtFirst) {
    FlowMap<Named> map;
    EXPECT_EQ(map.find({1, 2}), nullptr);
    EXPECT_EQ(map.extract({1, 2}), nullptr);
    EXPECT_EQ(map.size(), 0U);
}

}  // namespace
}  // namespace ovsdr::dr
