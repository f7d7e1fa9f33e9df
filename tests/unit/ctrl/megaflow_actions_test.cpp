// What of a datapath flow's actions reaches offload/.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ovs_probe.h"

namespace {

ovsdr_megaflow from_actions(const std::string& text) {
    ovsdr_megaflow megaflow{};
    EXPECT_TRUE(probe_actions_text(text.c_str(), &megaflow)) << text;
    return megaflow;
}

TEST(MegaflowActions, CarriesOutputsAndTagsInOrder) {
    const auto megaflow = from_actions("1,push_vlan(vid=12,pcp=3),2,pop_vlan,push_vlan(tpid=0x88a8,vid=5,pcp=0),3");
    ASSERT_EQ(megaflow.n_actions, 6u);
    EXPECT_EQ(megaflow.actions[0].type, OVSDR_ACTION_OUTPUT);
    EXPECT_EQ(megaflow.actions[0].output, 1u);
    EXPECT_EQ(megaflow.actions[1].type, OVSDR_ACTION_PUSH_VLAN);
    EXPECT_EQ(megaflow.actions[1].push_vlan.be_tpid, htons(0x8100));
    EXPECT_EQ(megaflow.actions[1].push_vlan.be_tci, htons(3 << 13 | 1 << 12 | 12));
    EXPECT_EQ(megaflow.actions[2].output, 2u);
    EXPECT_EQ(megaflow.actions[3].type, OVSDR_ACTION_POP_VLAN);
    EXPECT_EQ(megaflow.actions[4].push_vlan.be_tpid, htons(0x88a8));
    EXPECT_EQ(megaflow.actions[5].output, 3u);
}

TEST(MegaflowActions, NoActionsAndAnExplicitDropAreDrops) {
    EXPECT_EQ(from_actions("drop").n_actions, 0u);
    ovsdr_megaflow megaflow{};
    probe_action(probe_drop, 0, &megaflow);
    EXPECT_EQ(megaflow.n_actions, 0u);
}

TEST(MegaflowActions, EveryOtherActionIsNamedEachByItsOwnName) {
    std::set<std::string> names;
    int unsupported = 0;
    for (int attribute = 0; attribute <= probe_action_attribute_max; ++attribute) {
        if (attribute == probe_output || attribute == probe_push_vlan || attribute == probe_pop_vlan ||
            attribute == probe_drop || attribute == probe_set || attribute == probe_set_masked) {
            continue;
        }
        ovsdr_megaflow megaflow{};
        probe_action(attribute, 0, &megaflow);
        ASSERT_EQ(megaflow.n_actions, 1u);
        ASSERT_EQ(megaflow.actions[0].type, OVSDR_ACTION_UNSUPPORTED) << "OVS_ACTION_ATTR " << attribute;
        EXPECT_STRNE(megaflow.actions[0].unsupported, "unknown") << "OVS_ACTION_ATTR " << attribute;
        names.insert(megaflow.actions[0].unsupported);
        ++unsupported;
    }
    EXPECT_EQ(names.size(), static_cast<std::size_t>(unsupported));
}

TEST(MegaflowActions, ASetIsNamedWithWhatItSets) {
    std::set<std::string> names;
    for (int key = 0; key <= probe_key_attribute_max; ++key) {
        for (const int attribute : {probe_set, probe_set_masked}) {
            ovsdr_megaflow megaflow{};
            probe_action(attribute, key, &megaflow);
            ASSERT_EQ(megaflow.actions[0].type, OVSDR_ACTION_UNSUPPORTED);
            EXPECT_STRNE(megaflow.actions[0].unsupported, "set(unknown)") << "OVS_KEY_ATTR " << key;
            names.insert(megaflow.actions[0].unsupported);
        }
    }
    EXPECT_EQ(names.size(), static_cast<std::size_t>(probe_key_attribute_max) + 1);
}

TEST(MegaflowActions, AnActionOfALaterReleaseIsUnknownNotACrash) {
    ovsdr_megaflow megaflow{};
    probe_action(probe_action_attribute_max + 20, 0, &megaflow);
    EXPECT_STREQ(megaflow.actions[0].unsupported, "unknown");
}

TEST(MegaflowActions, CountsThoseThatDoNotFit) {
    std::string text = "1";
    for (int i = 1; i < OVSDR_MAX_ACTIONS + 8; ++i) text += ",1";
    EXPECT_EQ(from_actions(text).n_actions, static_cast<std::uint32_t>(OVSDR_MAX_ACTIONS + 8));
}

TEST(MegaflowActions, NestedListsAreOneAction) {
    const auto megaflow = from_actions("sample(sample=50.0%,actions(2)),3");
    ASSERT_EQ(megaflow.n_actions, 2u);
    EXPECT_STREQ(megaflow.actions[0].unsupported, "sample");
    EXPECT_EQ(megaflow.actions[1].output, 3u);
}

}  // namespace
