// `dr/graph`: every table, every matcher, and where the rules lead, with what they counted.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <span>
#include <string>

#include "tests/unit/offload/dr/eswitch_fixture.hpp"

namespace ovsdr::dr {
namespace {

class GraphTest : public EswitchTest {
protected:
    /// Traffic on the edge from the table's matcher of megaflows with this mask.
    [[nodiscard]] Graph::Traffic traffic(const std::string& from, const std::string& to, std::string_view mask = "") {
        const Graph graph = eswitch_->graph();
        Graph::Traffic sum;
        for (const auto& [edge, traffic] : graph.edges) {
            if (edge.from != from || edge.to != to) continue;
            if (!mask.empty() && mask_of(graph, edge).find(mask) == std::string::npos) continue;
            sum.rules += traffic.rules;
            if (traffic.packets) sum.packets = sum.packets.value_or(0) + *traffic.packets;
        }
        return sum;
    }
    [[nodiscard]] static std::string mask_of(const Graph& graph, const Graph::Edge& edge) {
        for (const Graph::Matcher& matcher : graph.tables.at(edge.from).matchers) {
            if (matcher.number == edge.matcher) return matcher.mask;
        }
        return {};
    }
    void put(std::uint64_t number, const ovsdr_megaflow& megaflow, std::uint64_t packets = 0) {
        ASSERT_TRUE(installed(eswitch_->put({number, 0}, megaflow)));
        const std::string text = eswitch_->explain({number, 0})->text;
        FakeProvider::count(static_cast<std::uint32_t>(std::stoul(text.substr(text.find("count#") + 6))), packets,
                            100 * packets);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));   // what was read a moment ago is not asked again
    }
};

TEST_F(GraphTest, TellsHowManyMatchersAPacketPasses) {
    const auto drawn = [&] {
        const Graph graph = eswitch_->graph();
        return dot_of(std::span(&graph, 1));
    };
    EXPECT_EQ(drawn().find("look-ups"), std::string::npos) << "nobody has counted a packet";
    put(1, MegaflowBuilder().eth_type(0x9000).output(2), 30);
    put(2, MegaflowBuilder().ipv4().proto(17).output(2).output(3), 10);
    // First what ends a connection, in two matchers; then the newest first: 10 packets pass 3, and 30 pass 4.
    EXPECT_NE(drawn().find("level 1, 5 matchers, 3.8 look-ups a packet"), std::string::npos) << drawn();
}

TEST_F(GraphTest, OneEdgeStandsForAllRulesOfAMatcherThatLeadToOnePlace) {
    const std::size_t edges = eswitch_->graph().edges.size();
    for (std::uint16_t i = 0; i < 100; ++i) put(i, MegaflowBuilder().eth_type(0x9000 + i).output(2), i);
    put(1000, MegaflowBuilder().eth_type(0x8000).output(3), 7);
    put(1001, MegaflowBuilder().ipv4().proto(17).output(3), 8);
    put(1002, MegaflowBuilder().eth_type(0x8001), 9);
    EXPECT_EQ(eswitch_->graph().edges.size(), edges + 4);
    const std::string entry = "recirc_id 0x0";
    EXPECT_EQ(traffic(entry, "vport 2").rules, 100U);
    EXPECT_EQ(traffic(entry, "vport 2").packets, std::optional<std::uint64_t>(4950));
    EXPECT_EQ(traffic(entry, "vport 3", "ip_protocol").packets, std::optional<std::uint64_t>(8));
    EXPECT_EQ(traffic(entry, "vport 3").packets, std::optional<std::uint64_t>(15));
    EXPECT_EQ(traffic(entry, "drop").packets, std::optional<std::uint64_t>(9));
    EXPECT_EQ(eswitch_->graph().places.at("vport 3"), "vf3\nvport 3");
    (void)eswitch_->del(Ufid{1000, 0});
    (void)eswitch_->del(Ufid{1001, 0});
    EXPECT_EQ(traffic(entry, "vport 3").rules, 0U);
    EXPECT_FALSE(eswitch_->graph().places.contains("vport 3"));
}

TEST_F(GraphTest, ShowsChainsCopiesAndBranches) {
    put(1, MegaflowBuilder().ipv4().output(3).push(5).recirc(7), 10);
    put(2, MegaflowBuilder().ipv4().vlan(5).behind(7).output(2).output(3), 4);
    // Their branches are alike: one private table.
    put(3, MegaflowBuilder().eth_type(0x9000).output(2).push(6).output(3), 20);
    put(4, MegaflowBuilder().eth_type(0x9001).output(2).push(6).output(3), 30);
    const std::string entry = "recirc_id 0x0", branches = "recirc_id 0x0 +1", behind = "recirc_id 0x7";
    const Graph graph = eswitch_->graph();
    EXPECT_EQ(graph.tables.at(entry).level, 1U);
    EXPECT_EQ(graph.tables.at(branches).level, 2U);
    EXPECT_EQ(graph.tables.at(branches).private_tables, 2U);
    EXPECT_EQ(graph.tables.at(behind).level, 9U);
    EXPECT_EQ(graph.tables.at(behind).name, "megaflows behind recirc_id 0x7");
    const auto equals = [&](const std::string& from, const std::string& to, std::uint64_t rules,
                            std::uint64_t packets) {
        const Graph::Traffic found = traffic(from, to);
        EXPECT_EQ(found.rules, rules) << from << " to " << to;
        EXPECT_EQ(found.packets, std::optional(packets)) << from << " to " << to;
    };
    equals(entry, "vport 3", 1, 10);
    equals(entry, "vport 2", 2, 50);
    equals(entry, branches, 3, 60);
    equals(branches, behind, 1, 10);
    equals(branches, "vport 3", 1, 50);
    equals(behind, "vport 2", 1, 4);
    equals(behind, "vport 3", 1, 4);
}

TEST_F(GraphTest, ShowsWhatIsThereWithoutMegaflows) {
    const Graph graph = eswitch_->graph();
    EXPECT_EQ(graph.device, "fake_0");
    EXPECT_EQ(traffic("root", "recirc_id 0x0").rules, 3U);
    EXPECT_EQ(traffic("root", "send").rules, 3U);
    EXPECT_EQ(traffic("recirc_id 0x0", "miss").rules, 7U) << "ends of connections, and the rest";
    EXPECT_EQ(traffic("miss", "up 0").packets, std::optional<std::uint64_t>(0));
    EXPECT_EQ(traffic("up 0", "up 1").rules, 3U);
    EXPECT_EQ(traffic("up 1", "up 2").rules, 1U) << "one for each table of megaflows";
    EXPECT_EQ(traffic("up 2", "slow path").rules, 3U);
    EXPECT_EQ(graph.places.at("ports"), "packets from the ports\nvf1, vport 1\nvf2, vport 2\nvf3, vport 3");
}

TEST_F(GraphTest, EveryEdgeBeginsAndEndsAtANode) {
    put(1, MegaflowBuilder().ipv4().output(3).push(5).recirc(7));
    put(2, MegaflowBuilder().ipv4().vlan(5).behind(7).push(6).output(2).pop().output(3));
    const Graph graph = eswitch_->graph();
    const auto is_there = [&](const std::string& node) {
        return graph.tables.contains(node) || graph.places.contains(node);
    };
    for (const auto& [edge, traffic] : graph.edges) {
        EXPECT_TRUE(is_there(edge.from)) << edge.from;
        EXPECT_TRUE(is_there(edge.to)) << edge.to;
        EXPECT_TRUE(edge.matcher == 0 || !mask_of(graph, edge).empty()) << edge.from << " #" << edge.matcher;
    }
    const std::string dot = dot_of(std::span(&graph, 1));
    for (const auto& [name, table] : graph.tables) {
        EXPECT_NE(dot.find("\"fake_0 " + name + "\" [label=<"), std::string::npos) << name;
    }
}

/// The main thread draws, and packets of its ports wait that long.
TEST_F(GraphTest, TakesAMomentForManyMegaflows) {
    for (std::uint16_t i = 0; i < 20'000; ++i) {
        ASSERT_TRUE(installed(eswitch_->put({i, 1}, MegaflowBuilder().ipv4().proto(17).ports(i, 53)
                                                        .output(2 + i % 2))));
    }
    const auto began = std::chrono::steady_clock::now();
    const Graph graph = eswitch_->graph();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    std::printf("FIGURE 20,000 megaflows: %zu edges, %zu bytes of text, %.0f ms\n", graph.edges.size(),
                dot_of(std::span(&graph, 1)).size(), took.count());
    EXPECT_LT(graph.edges.size(), 40U);
    EXPECT_EQ(traffic("recirc_id 0x0", "vport 3").rules, 10'000U);
    eswitch_->flush(std::nullopt);
}

}  // namespace
}  // namespace ovsdr::dr
