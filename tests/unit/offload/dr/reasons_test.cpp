// Why megaflows stay in software: rows that do not grow with the traffic, and every obstacle of a megaflow in them.
#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include <infiniband/verbs.h>

#include "offload/dr/eswitch.hpp"
#include "tests/unit/offload/fake_provider.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr {
namespace {

using ovsdr::test::FakeProvider;
using test::MegaflowBuilder;

class Reasons : public ::testing::Test {
protected:
    void SetUp() override {
        FakeProvider::reset();
        auto opened = Eswitch::open("fake_0");
        ASSERT_TRUE(opened) << opened.error().what;
        eswitch_ = *opened;
        for (const std::uint16_t port : {1, 2}) {
            ASSERT_TRUE(
                eswitch_->attach_port({OdpPort{port}, VportId{port}, "vf" + std::to_string(port), &queue_pair_, port}));
        }
    }
    void TearDown() override {
        for (const std::uint16_t port : {1, 2}) eswitch_->detach_port(VportId{port});
        eswitch_.reset();
    }

    [[nodiscard]] std::map<std::string, Eswitch::ReasonCount> rows() const {
        std::map<std::string, Eswitch::ReasonCount> rows;
        for (const auto& row : eswitch_->reasons()) rows[row.reason + ": " + row.detail] = row;
        return rows;
    }
    [[nodiscard]] std::string text() const { return eswitch_->explain({1, 1})->text; }

    std::shared_ptr<Eswitch> eswitch_;
    // The provider never looks into it.
    alignas(16) std::uint8_t queue_pair_bytes_[256]{};
    ibv_qp& queue_pair_ = reinterpret_cast<ibv_qp&>(queue_pair_bytes_);
};

TEST_F(Reasons, AreOneRowForTwoThousandValuesOfAField) {
    for (std::uint32_t i = 0; i < 2000; ++i) {
        MegaflowBuilder flow;
        flow.ipv4().output(2).raw().key.recirc_id = 1 + i;
        (void)eswitch_->put({i, 1}, flow);
    }
    ASSERT_EQ(rows().size(), 1U);
    EXPECT_EQ(rows().begin()->first, "recirculation: recirc_id");
    EXPECT_EQ(rows().begin()->second.megaflows, 2000U);
    EXPECT_EQ(eswitch_->totals().rejected, 2000U);
    EXPECT_EQ(eswitch_->explain({0x16, 1})->text, "recirculation: recirc_id=0x17 (no megaflow in the NIC leads there)")
        << "the value is the megaflow's";
}

TEST_F(Reasons, AreAsManyRowsAsThereAreNamesWhateverTheTraffic) {
    std::uint64_t megaflows = 0;
    for (std::uint32_t i = 0; i < 2000; ++i) {
        const auto value = static_cast<std::uint16_t>(i);
        MegaflowBuilder llc, tpid, tag, fragment;
        llc.eth_type(value % 0x600);
        tpid.ipv4().vlan(1, static_cast<std::uint16_t>(0x9200 + value));
        tag.ipv4().vlan(1).raw().key.be_vlan_tci[1] = htobe16(static_cast<std::uint16_t>(0x1000 + value));
        tag.raw().mask.be_vlan_tci[1] = 0xFFFF;
        for (const ovsdr_megaflow& flow :
             {ovsdr_megaflow(llc.output(2)), ovsdr_megaflow(tpid.output(2)), ovsdr_megaflow(tag.output(2)),
              ovsdr_megaflow(MegaflowBuilder(100 + i).ipv4()), ovsdr_megaflow(MegaflowBuilder().ipv4().output(100 + i)),
              ovsdr_megaflow(MegaflowBuilder().ipv4().push(1, value).output(2))}) {
            (void)eswitch_->put({++megaflows, 1}, flow);
        }
    }
    EXPECT_LE(rows().size(), 8U);
    for (const auto& [text, row] : rows()) EXPECT_NE(row.detail, "other");
}

TEST_F(Reasons, NameAllObstaclesOfAMegaflow) {
    MegaflowBuilder flow;
    flow.arp().unsupported("ct").unsupported("set(eth)").unsupported("ct").output(2);
    flow.raw().mask.ip_proto = 0xFF;
    flow.raw().mask.src[0] = 0xFF;
    (void)eswitch_->put({1, 1}, flow);
    EXPECT_EQ(text(), "unsupported match: arp_op; unsupported match: arp_spa; unsupported action: ct; "
                      "unsupported action: set(eth)");
    EXPECT_EQ(rows().size(), 4U);
    for (const auto& [name, row] : rows()) EXPECT_EQ(row.megaflows, 1U) << name;
    EXPECT_EQ(eswitch_->totals().rejected, 1U) << "one megaflow, under each of its obstacles";
    (void)eswitch_->put({1, 2}, MegaflowBuilder().ipv4().unsupported("ct").output(2));
    EXPECT_EQ(rows()["unsupported action: ct"].megaflows, 2U);
    EXPECT_EQ(rows()["unsupported match: arp_op"].megaflows, 1U);
    EXPECT_EQ(eswitch_->totals().rejected, 2U);
    eswitch_->del(Ufid{1, 1});
    EXPECT_EQ(rows()["unsupported action: ct"].megaflows, 1U);
    EXPECT_EQ(rows()["unsupported match: arp_op"].megaflows, 0U);
    EXPECT_EQ(rows()["unsupported match: arp_op"].total, 1U);
    EXPECT_EQ(eswitch_->totals().rejected, 1U);
}

TEST_F(Reasons, CountAMegaflowOnceWhoseObstaclesStay) {
    for (const std::uint16_t type : {1, 2, 3}) {
        (void)eswitch_->put({1, 1}, MegaflowBuilder().eth_type(type).unsupported("ct").output(2));
    }
    EXPECT_EQ(rows()["unsupported match: eth_type"].total, 1U);
    EXPECT_EQ(text(), "unsupported match: eth_type=0x0003 (802.3 with LLC); unsupported action: ct");
    (void)eswitch_->put({1, 1}, MegaflowBuilder().ipv4().unsupported("ct").output(2));
    EXPECT_EQ(rows()["unsupported match: eth_type"].megaflows, 0U);
    EXPECT_EQ(rows()["unsupported action: ct"].megaflows, 1U);
}

TEST_F(Reasons, KeepTheFirstActionsOfTooMany) {
    MegaflowBuilder flow;
    flow.ipv4().unsupported("meter");
    while (flow.raw().n_actions < OVSDR_MAX_ACTIONS) flow.output(2);
    flow.raw().n_actions = 50;
    (void)eswitch_->put({1, 1}, flow);
    EXPECT_NE(text().find("unsupported action: meter"), std::string::npos) << text();
    EXPECT_NE(text().find("50"), std::string::npos) << text();
}

TEST_F(Reasons, OfAFailedDeviceAreItsCallAndErrno) {
    FakeProvider::fail_call(1, ENOMEM);
    const auto outcome = eswitch_->put({1, 1}, MegaflowBuilder().ipv4().output(2));
    const auto* error = std::get_if<Error>(&outcome);
    ASSERT_NE(error, nullptr);
    ASSERT_EQ(eswitch_->reasons().size(), 1U);
    EXPECT_EQ(eswitch_->reasons()[0].reason, "device error");
    EXPECT_EQ(eswitch_->reasons()[0].detail, std::string(error->what.substr(0, error->what.find_first_of("(:"))) +
                                                 ": Cannot allocate memory");
    EXPECT_NE(text().find(error->what), std::string::npos) << text();
}

}  // namespace
}  // namespace ovsdr::dr
