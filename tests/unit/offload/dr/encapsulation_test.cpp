// Reformats on the recording provider: which megaflows share one, and what happens when the device has no more.
#include <gtest/gtest.h>

#include "tests/unit/offload/dr/eswitch_fixture.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::dr {
namespace {

class Encapsulation : public EswitchTest {
protected:
    static std::size_t reformats() { return rules_in("FDB level 1", "packet_reformat 1 of 50"); }

    const test::HeaderBytes vxlan_ = test::vxlan(), gre_ = test::gre(test::outer_ipv4(47));
};

TEST_F(Encapsulation, StandsBehindTheCounterAndBeforeTheVport) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().tunnel(vxlan_).output(2))));
    const auto rules = megaflow_rules();
    ASSERT_EQ(rules.size(), 1U);
    EXPECT_EQ(std::vector(rules[0].begin() + 1, rules[0].end()),
              (std::vector<std::string>{"packet_reformat 1 of 50", "dest_vport 2"}));
}

TEST_F(Encapsulation, OneReformatServesMegaflowsWithTheSameHeaders) {
    const auto put_many = [&](const test::HeaderBytes* header) {
        std::uint64_t flows = 0;
        for (const std::uint32_t in : {1U, 3U}) {
            for (std::uint16_t port = 1; port < 300; ++port) {
                MegaflowBuilder flow(in);
                flow.ipv4().proto(17).ports(port, 53);
                if (header != nullptr) flow.tunnel(*header);
                ASSERT_TRUE(installed(eswitch_->put({2, ++flows}, flow.output(2))));
            }
        }
    };
    put_many(nullptr);   // counters keep their actions for whoever comes next
    const unsigned without = FakeProvider::alive("action");
    put_many(&vxlan_);
    const unsigned with = FakeProvider::alive("action");
    EXPECT_GT(with, without + 30);
    EXPECT_LE(with, without + 64) << "one for each source port";
    put_many(&gre_);
    EXPECT_EQ(FakeProvider::alive("action"), without + 1);
    put_many(nullptr);
    EXPECT_EQ(FakeProvider::alive("action"), without);
}

TEST_F(Encapsulation, AMegaflowWaitsForADeviceWithoutRoomForItsReformat) {
    FakeProvider::refuse_reformats(true);
    const PutOutcome outcome = eswitch_->put(ufid_, MegaflowBuilder().ipv4().tunnel(vxlan_).output(2));
    ASSERT_TRUE(std::holds_alternative<Error>(outcome));
    EXPECT_EQ(std::get<Error>(outcome).code, ENOMEM);
    EXPECT_TRUE(megaflow_rules().empty());
    FakeProvider::refuse_reformats(false);
    EXPECT_TRUE(becomes([&] { return reformats() == 1; }));
}

TEST_F(Encapsulation, AModifiedTunnelTakesTheOldOnesPlace) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().tunnel(vxlan_).output(2))));
    const auto other = test::vxlan(6);
    (void)FakeProvider::take_events();
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().tunnel(vxlan_).output(2))));
    EXPECT_TRUE(FakeProvider::take_events().empty()) << "the same once more";
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().tunnel(other).output(2))));
    EXPECT_FALSE(FakeProvider::take_events().empty());
    EXPECT_EQ(megaflow_rules().size(), 1U);
}

}  // namespace
}  // namespace ovsdr::dr
