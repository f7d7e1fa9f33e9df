// The pieces that a layout is visited in: exactly those, none of no bytes.
#include "datapath/rdma/mkey/layout.hpp"

#include <gtest/gtest.h>

namespace ovsdr::soft {
namespace {

struct Piece {
    std::uint32_t key;
    std::uint64_t address, size;
    bool operator==(const Piece&) const = default;
};
using Pieces = std::vector<Piece>;

/// Of [offset, offset + size), until `most` were seen; with one of key 0 at the end where the visit failed.
Pieces visited(const Layout& layout, std::uint64_t offset, std::uint64_t size, std::size_t most = 100) {
    Pieces seen;
    const bool whole = layout.visit(offset, size, [&](std::uint32_t key, std::uint64_t address, std::uint64_t part) {
        seen.push_back({key, address, part});
        return seen.size() < most;
    });
    if (!whole) seen.push_back({0, 0, 0});
    return seen;
}
const Pieces failed{{0, 0, 0}};

constexpr LayoutEntry entries[] = {{1000, 1, 10, 64}, {2000, 2, 0, 8}, {3000, 3, 5, 7}};

TEST(LayoutTest, HasRoomForWholeFoursOfEntries) {
    for (std::size_t wanted = 1; wanted < 10; ++wanted)
        EXPECT_EQ(Layout(wanted).max_entries(), wanted < 5 ? 4U : wanted < 9 ? 8U : 12U);
}

TEST(LayoutTest, LeadsNowhereUntilAssignedAndAfterClearing) {
    Layout layout(4);
    for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(layout.size(), 0U);
        EXPECT_EQ(visited(layout, 0, 0), Pieces{});
        EXPECT_EQ(visited(layout, 0, 1), failed);
        EXPECT_EQ(visited(layout, 1, 0), failed);
        layout.assign(entries, 1);
        EXPECT_EQ(layout.size(), 15U);
        layout.clear();
    }
    layout.assign(std::span(entries).first(1), 1);
    EXPECT_EQ(layout.size(), 10U) << "and then to what it was assigned";
}

TEST(LayoutTest, AListIsItsEntriesInOrder) {
    Layout layout(4);
    layout.assign(entries, 1);
    EXPECT_EQ(visited(layout, 0, 15), (Pieces{{1, 1000, 10}, {3, 3000, 5}})) << "an entry of no bytes is not visited";
    EXPECT_EQ(visited(layout, 0, 10), (Pieces{{1, 1000, 10}}));
    EXPECT_EQ(visited(layout, 10, 5), (Pieces{{3, 3000, 5}}));
    EXPECT_EQ(visited(layout, 9, 2), (Pieces{{1, 1009, 1}, {3, 3000, 1}}));
    EXPECT_EQ(visited(layout, 15, 0), Pieces{});
    EXPECT_EQ(visited(layout, 16, 0), failed);
    EXPECT_EQ(visited(layout, 0, 16), failed);
    EXPECT_EQ(visited(layout, 14, 2), failed);
    EXPECT_EQ(visited(layout, ~std::uint64_t{0}, 2), failed);
    EXPECT_EQ(visited(layout, 2, ~std::uint64_t{0}), failed);
}

TEST(LayoutTest, AnInterleavedLayoutGoesOnAStrideFurtherEachTime) {
    Layout layout(4);
    layout.assign(entries, 3);
    EXPECT_EQ(layout.size(), 45U);
    EXPECT_EQ(visited(layout, 0, 45),
              (Pieces{{1, 1000, 10}, {3, 3000, 5}, {1, 1064, 10}, {3, 3007, 5}, {1, 1128, 10}, {3, 3014, 5}}));
    EXPECT_EQ(visited(layout, 15, 1), (Pieces{{1, 1064, 1}}));
    EXPECT_EQ(visited(layout, 29, 3), (Pieces{{3, 3011, 1}, {1, 1128, 2}}));
    EXPECT_EQ(visited(layout, 44, 2), failed);
}

TEST(LayoutTest, AVisitStopsAtARefusal) {
    Layout layout(4);
    layout.assign(entries, 3);
    EXPECT_EQ(visited(layout, 0, 45, 2), (Pieces{{1, 1000, 10}, {3, 3000, 5}, failed[0]}));
}

}  // namespace
}  // namespace ovsdr::soft
