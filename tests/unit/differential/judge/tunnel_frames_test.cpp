// Frames in tunnels, and where a tunnel's fields lie in them.
#include <gtest/gtest.h>

#include "tests/differential/judge/frames.hpp"
#include "tests/differential/judge/recipe.hpp"

namespace ovsdr::differential {

namespace {

Recipe through(TunnelKind kind, std::uint16_t eth_type) {
    Recipe inner{.eth_type = 0x88b5};
    Recipe recipe{.in_port = uplink, .eth_type = eth_type};
    recipe[Feature::protocol] = number(kind == TunnelKind::gre ? protocol_gre : protocol_udp);
    recipe[Feature::tp_dst] = number(udp_port_of(kind));
    recipe.tunnel = {.kind = kind, .ipv6 = eth_type == type_ipv6};
    recipe.inner.push_back(inner);
    return recipe;
}

TEST(InsideOf, FindsTheFrameInEachTunnel) {
    for (const TunnelKind kind : tunnel_kinds) {
        for (const std::uint16_t type : {type_ipv4, type_ipv6}) {
            Recipe recipe = through(kind, type);
            if (kind == TunnelKind::geneve) recipe.tunnel.options = GeneveOptions::two;
            Chance one(1), other(1);
            EXPECT_EQ(inside_of(frame_of(recipe, 7, one)), frame_of(recipe.inner.front(), 7, other))
                << name_of(kind) << " over " << type;
        }
    }
}

TEST(InsideOf, NothingInAnythingElse) {
    Chance chance(1);
    Recipe recipe = through(TunnelKind::vxlan, type_ipv4);
    recipe[Feature::tp_dst] = number(53);
    EXPECT_TRUE(inside_of(frame_of(recipe, 7, chance)).empty());
    EXPECT_TRUE(inside_of(frame_of({.eth_type = type_arp}, 7, chance)).empty());
}

TEST(Change, ABitOfATunnelsAddressIsTheUnderlays) {
    Chance chance(1);
    Megaflow megaflow{.in_port = tunnel_port_of(TunnelKind::vxlan), .eth_type = 0x88b5};
    megaflow.tunnel = TunnelHeaders{};
    megaflow[Feature::tun_dst].mask = number(1);
    bool flipped = false;
    for (int tries = 0; tries < 200; ++tries) {
        Recipe recipe = through(TunnelKind::vxlan, type_ipv4);
        change(recipe, megaflow, chance);
        flipped = flipped || recipe[Feature::ip_dst][15] == 1;
        EXPECT_EQ(recipe.inner.front()[Feature::ip_dst][15], 0);
    }
    EXPECT_TRUE(flipped);
}

}  // namespace

}  // namespace ovsdr::differential
