// A plan that was made of another megaflow is the one that the compiler makes of this one.
#include "offload/dr/plan_cache.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr {
namespace {

using test::MegaflowBuilder;

/// Megaflows of many shapes, those with tunnels among them.
std::vector<ovsdr_megaflow> shapes() {
    std::vector<ovsdr_megaflow> all;
    const auto finish = [&](MegaflowBuilder builder) {
        MegaflowBuilder drop = builder, set = builder, recirc = builder, two = builder;
        all.push_back(drop.raw());
        all.push_back(builder.output(2).raw());
        all.push_back(two.output(2).push(7).output(3).raw());
        all.push_back(recirc.recirc(5).raw());
        all.push_back(set.set(OVSDR_HEADER_IP_TTL, {63}).set(OVSDR_HEADER_ETH_DST, {1, 2, 3, 4, 5, 6}).output(3).raw());
    };
    for (const std::uint32_t port : {1U, 2U, 9U}) {
        finish(MegaflowBuilder(port));
        finish(MegaflowBuilder(port).arp());
        finish(MegaflowBuilder(port).vlan(5).ipv4());
        for (const std::uint8_t protocol : {1, 6, 17, 58, 132}) {
            finish(MegaflowBuilder(port).ipv4().proto(protocol).ports(8, 0));
            finish(MegaflowBuilder(port).ipv6().proto(protocol).ports(8, 0));
            finish(MegaflowBuilder(port).ipv4().proto(protocol));
        }
    }
    return all;
}

void draw(std::mt19937& random, void* bytes, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) static_cast<std::uint8_t*>(bytes)[i] = static_cast<std::uint8_t>(random());
}

class PlanCacheTest : public ::testing::Test {
protected:
    PlanCacheTest() {
        ports.set(OdpPort{1}, {VportId{1}, "one"});
        ports.set(OdpPort{2}, {VportId{2}, "two"});
        ports.set(OdpPort{3}, {VportId{3}, "three"});
    }

    Compiled<RulePlan> compiled(const ovsdr_megaflow& megaflow) {
        ++compilations;
        return compile(megaflow, ports, caps);
    }

    /// What the cache says is what the compiler says, of a megaflow that comes and of one that is there.
    void check(const ovsdr_megaflow& megaflow) {
        auto [stored, known] = plans.store(megaflow, parts);
        EXPECT_EQ(stored, StoredMegaflow(megaflow, parts)) << "the same masks and actions, none of its own";
        expect_compiled(megaflow, stored, std::move(known));
        expect_compiled(megaflow, stored, nullptr);
    }

    void expect_compiled(const ovsdr_megaflow& megaflow, const StoredMegaflow& stored,
                         std::shared_ptr<const RulePlan> known) {
        const auto cached = plans.plan_for(stored, std::move(known), [&] { return compiled(megaflow); });
        const auto plain = compile(megaflow, ports, caps);
        ASSERT_EQ(cached.has_value(), plain.has_value());
        if (!plain) return;
        EXPECT_EQ(cached->value, plain->match.value);
        RulePlan whole = *cached->plan;
        whole.match.value = cached->value;
        EXPECT_EQ(whole, *plain) << text_of(whole.match.mask, whole.match.value) << " is not "
                                 << text_of(plain->match.mask, plain->match.value);
    }

    PortMap ports;
    DeviceCaps caps;
    MegaflowParts parts;
    PlanCache plans;
    unsigned compilations = 0;
};

/// Each field of the key by itself, so that one which the compiler looks at and the cache does not is seen.
TEST_F(PlanCacheTest, MegaflowsThatDifferInOneField) {
    std::mt19937 random(1);
    for (const ovsdr_megaflow& shape : shapes()) {
        for (std::size_t byte = 0; byte < sizeof shape.key; ++byte) {
            ovsdr_megaflow other = shape;
            auto* const key = reinterpret_cast<std::uint8_t*>(&other.key);
            key[byte] ^= static_cast<std::uint8_t>(1U << random() % 8);
            check(shape);
            check(other);
            auto* const mask = reinterpret_cast<std::uint8_t*>(&other.mask);
            for (const unsigned bits : {0xFFU, static_cast<unsigned>(random() % 256)}) {
                mask[byte] = static_cast<std::uint8_t>(bits);
                check(other);
                key[byte] ^= static_cast<std::uint8_t>(bits);
                check(other);
            }
            if (HasFailure()) return;
        }
    }
}

TEST_F(PlanCacheTest, MegaflowsWithOtherValues) {
    std::mt19937 random(1);
    for (unsigned round = 0; round < 30; ++round) {
        for (ovsdr_megaflow megaflow : shapes()) {
            draw(random, &megaflow.mask.eth_dst, sizeof megaflow.mask.eth_dst);
            draw(random, &megaflow.mask.src, megaflow.key.ipv6 != 0 ? 16 : 4);
            draw(random, &megaflow.mask.dst, megaflow.key.ipv6 != 0 ? 16 : 4);
            for (unsigned i = 0; i < 3; ++i) {
                draw(random, &megaflow.key.eth_dst, sizeof megaflow.key.eth_dst);
                draw(random, &megaflow.key.eth_src, sizeof megaflow.key.eth_src);
                draw(random, &megaflow.key.src, megaflow.key.ipv6 != 0 ? 16 : 4);
                draw(random, &megaflow.key.dst, megaflow.key.ipv6 != 0 ? 16 : 4);
                if (i == 0) draw(random, &megaflow.key.be_tp_src, sizeof megaflow.key.be_tp_src);
                if (i == 1) draw(random, &megaflow.key.be_tp_dst, sizeof megaflow.key.be_tp_dst);
                check(megaflow);
                if (HasFailure()) return;
            }
        }
    }
}

ovsdr_megaflow connection(std::uint16_t source_port) {
    return MegaflowBuilder(1).ipv4().proto(6).ports(source_port, 443).output(2).raw();
}

TEST_F(PlanCacheTest, CompilesAShapeOnce) {
    for (std::uint16_t port = 1; port < 100; ++port) check(connection(port));
    EXPECT_EQ(compilations, 1U);
}

TEST_F(PlanCacheTest, ForgetsWhatWasCompiledForOtherPorts) {
    check(connection(1));
    ports.erase(OdpPort{2});
    ports.set(OdpPort{2}, {VportId{4}, "another"});
    plans.forget();
    check(connection(2));
    EXPECT_EQ(compilations, 2U);
}

/// What a hash may leave out.
TEST_F(PlanCacheTest, TellsMegaflowsApartThatHaveOnePlace) {
    const ovsdr_megaflow megaflow = connection(1);
    const StoredMegaflow stored(megaflow, parts);
    EXPECT_TRUE(stored.has_shape_of(connection(2)));
    const auto other = [&](auto&& change) {
        ovsdr_megaflow changed = megaflow;
        change(changed);
        return !stored.has_shape_of(changed);
    };
    EXPECT_TRUE(other([](auto& changed) { changed.key.ip_tos = 4; }));
    EXPECT_TRUE(other([](auto& changed) { changed.mask.be_tp_src = 0; }));
    EXPECT_TRUE(other([](auto& changed) { changed.unsupported_match.bits = 1; }));
    EXPECT_TRUE(other([](auto& changed) { changed.tunnel_key.ttl = 1; }));
    EXPECT_TRUE(other([](auto& changed) { changed.tunnel_mask.ttl = 1; }));
    EXPECT_TRUE(other([](auto& changed) { changed.actions[0].output = 3; }));
    EXPECT_TRUE(other([](auto& changed) { changed.n_actions = 0; }));
}

TEST_F(PlanCacheTest, HashesAMegaflowAsItIsStored) {
    for (const ovsdr_megaflow& megaflow : shapes()) {
        const StoredMegaflow stored(megaflow, parts);
        EXPECT_TRUE(stored.has_shape());
        EXPECT_EQ(StoredMegaflow::shape_hash(megaflow), stored.shape_hash());
    }
}

/// Where a megaflow's packets go into a tunnel, its source port is of all that the megaflow matches.
TEST_F(PlanCacheTest, CompilesEachThatHasToDoWithATunnel) {
    for (std::uint16_t port = 1; port < 10; ++port) {
        ovsdr_megaflow megaflow = connection(port);
        megaflow.actions[megaflow.n_actions++] = megaflow.actions[0];
        megaflow.actions[0].type = OVSDR_ACTION_TUNNEL_POP;
        megaflow.actions[0].tunnel_port = 7;
        check(megaflow);
    }
    EXPECT_EQ(compilations, 2 * 9U) << "check() asks twice";
}

}  // namespace
}  // namespace ovsdr::dr
