// Meters on the recording provider: rules, objects and parameters as they come and go, and each call failing once.
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string_view>

#include "tests/unit/offload/dr/eswitch_fixture.hpp"
#include "tests/unit/offload/fake_aso.hpp"

namespace ovsdr::dr {
namespace {

using ovsdr::test::FakeAso;

constexpr std::uint32_t number = 5;
constexpr meter::Spec small{.by_packets = true, .rate = 100, .burst = 10};
constexpr meter::Spec large{.by_packets = true, .rate = 5000, .burst = 10};
constexpr meter::Spec impossible{.by_packets = true, .bands = 2, .rate = 100, .burst = 10};

class Meters : public EswitchTest {
protected:
    void SetUp() override {
        FakeAso::install();
        FakeProvider::announce_meters(true);
        EswitchTest::SetUp();
    }
    void TearDown() override {
        FakeProvider::fail_call(0, 0);
        EswitchTest::TearDown();
        FakeProvider::announce_meters(false);
    }
    static MegaflowBuilder flow(std::uint16_t port = 80) {
        return MegaflowBuilder(1).ipv4().proto(17).ports(1, port).meter(number).output(2);
    }
    /// By table and priority.
    static std::multiset<std::string> rules() {
        std::multiset<std::string> texts;
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.actions.empty() || !rule.actions[0].starts_with("count")) continue;
            std::string text = rule.table + " " + std::to_string(rule.priority) + ":";
            for (const std::string& action : rule.actions) {
                text += " " + (action.starts_with("count") ? "count" : action);
            }
            texts.insert(text);
        }
        return texts;
    }
    /// The device lets so many packets of 100 bytes pass, and drops so many.
    static void count(std::uint64_t passed, std::uint64_t dropped) {
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.table != "FDB level 2") continue;
            const std::uint64_t packets = rule.priority == 0 ? passed : dropped;
            const auto counter = static_cast<std::uint32_t>(std::stoul(rule.actions[0].substr(6)));
            FakeProvider::count(counter, packets, 100 * packets);
        }
    }
    static void expect_counted(const MeterStats& stats, std::uint64_t passed, std::uint64_t dropped) {
        EXPECT_EQ(stats.passed.packets, passed);
        EXPECT_EQ(stats.passed.bytes, 100 * passed);
        EXPECT_EQ(stats.dropped.packets, dropped);
        EXPECT_EQ(stats.dropped.bytes, 100 * dropped);
    }
    static meter::Parameters parameters_of(const meter::Spec& spec, meter::Counts counts) {
        return *meter::parameters_of(spec, counts);
    }
    bool is_offloaded(const Ufid& ufid) {
        const auto status = eswitch_->status(ufid);
        return status && status->offloaded;
    }
};

TEST_F(Meters, ARuleColoursAndAPrivateTableDropsWhatIsNotGreen) {
    const auto without = rules();
    eswitch_->set_meter(number, small);
    EXPECT_EQ(FakeAso::requests(), 0U) << "no rule needs it";
    EXPECT_FALSE(eswitch_->has_meter(number));
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    EXPECT_TRUE(eswitch_->has_meter(number));
    auto wanted = without;
    wanted.insert("FDB level 1 1: count meter 0 dest_table 2");
    wanted.insert("FDB level 2 0: count dest_vport 2");
    wanted.insert("FDB level 2 1: count drop");
    EXPECT_EQ(rules(), wanted);
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, flow(81))));
    wanted.insert("FDB level 1 1: count meter 0 dest_table 2");
    EXPECT_EQ(rules(), wanted) << "the private table and the object are shared";
    EXPECT_EQ(FakeAso::requests(), 1U);
    (void)eswitch_->del(ufid_);
    (void)eswitch_->del({1, 2});
    EXPECT_EQ(rules(), without);
    EXPECT_FALSE(eswitch_->has_meter(number)) << "no rule uses it";
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    EXPECT_EQ(FakeAso::requests(), 1U) << "the object stays";
}

TEST_F(Meters, GreenPacketsOfTheVportPassAndItsOthersAreDropped) {
    const auto before = rule_texts();
    eswitch_->set_meter(number, small);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    auto added = rules_since(before);
    std::erase_if(added, [](const std::string& text) { return !text.starts_with("FDB level 2 "); });
    EXPECT_EQ(added, (std::vector<std::string>{
                         "FDB level 2 priority 0 {source_port=0x1, metadata_reg_c_5=0x2/0xff}: count dest_vport 2",
                         "FDB level 2 priority 1 {source_port=0x1}: count drop"}));
}

TEST_F(Meters, TheFirstMegaflowOfAMeterIsToldOf) {
    unsigned uses = 0;
    eswitch_->on_meter_use([&uses] { ++uses; });
    eswitch_->set_meter(number, small);
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder(1).ipv4().output(2))));
    EXPECT_EQ(uses, 0U);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, flow(81))));
    EXPECT_EQ(uses, 1U);
    (void)eswitch_->del(ufid_);
    EXPECT_TRUE(eswitch_->has_meter(number));
    (void)eswitch_->del({1, 2});
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    EXPECT_EQ(uses, 2U) << "the first one again";
}

/// Of those that meter copies, software does it for some: who reads the line wants to know what the device meters.
TEST_F(Meters, MegaflowsAreCountedThatTheDeviceMeters) {
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
    eswitch_->set_meter(number, small);
    const std::string_view work = "\x07\x01\x0c\x01";
    const auto log = [&](std::uint16_t port, std::uint32_t one_of) {
        MegaflowBuilder megaflow = MegaflowBuilder(1).ipv4().proto(17).ports(1, port);
        return megaflow.software(work, one_of).behind_meter(number, 2).output(2);
    };
    ASSERT_TRUE(installed(eswitch_->put(ufid_, log(80, 1))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, log(81, 64))));
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, flow(82))));
    EXPECT_NE(eswitch_->show(false, {}).find("; 2 megaflows\n"), std::string::npos) << eswitch_->show(false, {});
}

TEST_F(Meters, AreShownWithWhatTheyHaveCounted) {
    const auto shown = [this] {
        const std::string text = eswitch_->show(false, {});
        const std::size_t begin = text.find("meter ");
        return begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
    };
    EXPECT_EQ(shown(), "");
    eswitch_->set_meter(number, small);
    EXPECT_EQ(shown(), "meter 5: 100 packets a second, burst 10; passed 0 packets, 0 bytes; dropped 0 packets, "
                       "0 bytes; no object yet; 0 megaflows");
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    for (const auto& rule : FakeProvider::rules()) {
        const auto number_of = [&rule] { return static_cast<std::uint32_t>(std::stoul(rule.actions[0].substr(6))); };
        if (rule.table == "FDB level 2" && rule.priority == 0) FakeProvider::count(number_of(), 7, 700);
        if (rule.table == "FDB level 2" && rule.priority == 1) FakeProvider::count(number_of(), 3, 300);
    }
    ASSERT_TRUE(eswitch_->lower_meter(number, 40));
    EXPECT_EQ(shown(), "meter 5: 100 (now 40) packets a second, burst 10; passed 7 packets, 700 bytes; dropped 3 "
                       "packets, 300 bytes; half 0 of ASO object " + shown().substr(shown().find("0x")));
    EXPECT_TRUE(shown().ends_with("; 1 megaflows")) << shown();
    const Graph graph = eswitch_->graph();
    const auto drop = graph.edges.find({"recirc_id 0x0 +1", 0, "drop"});
    ASSERT_NE(drop, graph.edges.end());
    EXPECT_EQ(drop->second.packets, std::optional<std::uint64_t>(3));
    eswitch_->set_meter(number, impossible);
    EXPECT_EQ(shown(), "meter 5: in software: a meter with several bands: 2");
}

TEST_F(Meters, WithoutObjectsOfTheDeviceMegaflowsStayInSoftwareAndNothingIsLeaked) {
    const auto without = rules();
    FakeProvider::refuse("mlx5dv_devx_obj_create", ENOSPC);
    eswitch_->set_meter(number, small);
    EXPECT_TRUE(std::holds_alternative<Error>(eswitch_->put(ufid_, flow())));
    EXPECT_FALSE(is_offloaded(ufid_));
    EXPECT_FALSE(eswitch_->has_meter(number)) << "nothing is to pay for software";
    EXPECT_EQ(rules(), without);
    FakeProvider::refuse("mlx5dv_devx_obj_create", 0);
    EXPECT_TRUE(becomes([&] { return is_offloaded(ufid_); })) << "it waits in line";
}

TEST_F(Meters, AChangeWritesTheObjectAndNoRule) {
    eswitch_->set_meter(number, small);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    (void)FakeProvider::take_events();
    eswitch_->set_meter(number, large);
    EXPECT_EQ(FakeAso::requests(), 2U);
    for (const std::string& event : FakeProvider::take_events()) {
        EXPECT_FALSE(event.starts_with("create") || event.starts_with("destroy")) << event;
    }
    ASSERT_TRUE(eswitch_->lower_meter(number, 2500));
    ASSERT_TRUE(eswitch_->lower_meter(number, 2500));
    EXPECT_EQ(FakeAso::requests(), 3U) << "the same rate is not written again";
}

TEST_F(Meters, TheDeviceHasTheRateThatWasSetLast) {
    const auto in_device = [this] {
        const std::string text = eswitch_->show(false, {});
        const auto object = std::stoul(text.substr(text.find("ASO object ") + 11), nullptr, 16);
        return FakeAso::parameters(static_cast<std::uint32_t>(object), 0);
    };
    constexpr auto any = meter::Counts::bytes_or_packets;
    eswitch_->set_meter(number, small);
    eswitch_->set_meter(number, large);   // before there is an object
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    EXPECT_EQ(in_device(), parameters_of(large, any));
    eswitch_->set_meter(number, small);
    meter::Parameters wanted = parameters_of(small, any);
    EXPECT_EQ(in_device(), wanted);
    ASSERT_TRUE(eswitch_->lower_meter(number, 40));
    (void)meter::put_rate(wanted, meter::rate_of(40 * meter::bytes_of_packet));
    EXPECT_EQ(in_device(), wanted);
    eswitch_->set_meter(number, small);
    EXPECT_EQ(in_device(), parameters_of(small, any)) << "lowered no more";
    ASSERT_TRUE(eswitch_->lower_meter(number, 40));
    EXPECT_EQ(in_device(), wanted);
}

TEST_F(Meters, ARateThatTheDeviceDidNotTakeIsWrittenWhenItIsAskedForAgain) {
    eswitch_->set_meter(number, small);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    FakeProvider::refuse("ACCESS_ASO", EIO);
    EXPECT_FALSE(eswitch_->lower_meter(number, 40));
    FakeProvider::refuse("ACCESS_ASO", 0);
    EXPECT_EQ(eswitch_->show(false, {}).find("(now 40)"), std::string::npos);
    const unsigned requests = FakeAso::requests();
    ASSERT_TRUE(eswitch_->lower_meter(number, 40));
    EXPECT_EQ(FakeAso::requests(), requests + 1);
    EXPECT_NE(eswitch_->show(false, {}).find("(now 40)"), std::string::npos);
}

/// The device may have the lower rate although it failed: the one that it had before is written, too.
TEST_F(Meters, ARateIsWrittenAfterOneThatMayHaveBeenTaken) {
    eswitch_->set_meter(number, small);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    FakeProvider::refuse("ACCESS_ASO", EIO);
    EXPECT_FALSE(eswitch_->lower_meter(number, 40));
    FakeProvider::refuse("ACCESS_ASO", 0);
    const unsigned requests = FakeAso::requests();
    ASSERT_TRUE(eswitch_->lower_meter(number, small.rate));
    EXPECT_EQ(FakeAso::requests(), requests + 1);
    ASSERT_TRUE(eswitch_->lower_meter(number, small.rate));
    EXPECT_EQ(FakeAso::requests(), requests + 1) << "it is known now";
}

/// OVS sets a meter's statistics to 0 when it changes.
TEST_F(Meters, AChangeBeginsToCountAnewAndALowerRateDoesNot) {
    expect_counted(eswitch_->meter_stats(number), 0, 0);
    eswitch_->set_meter(number, small);
    expect_counted(eswitch_->meter_stats(number), 0, 0);
    ASSERT_TRUE(eswitch_->lower_meter(number, 40)) << "nothing to lower yet";
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    count(7, 3);
    expect_counted(eswitch_->meter_stats(number), 7, 3);
    ASSERT_TRUE(eswitch_->lower_meter(number, 40));
    expect_counted(eswitch_->meter_stats(number), 7, 3);
    eswitch_->set_meter(number, large);
    expect_counted(eswitch_->meter_stats(number), 0, 0);
    count(2, 5);
    expect_counted(eswitch_->meter_stats(number), 2, 5);
    (void)eswitch_->del(ufid_);
    expect_counted(eswitch_->meter_stats(number), 2, 5);
    expect_counted(eswitch_->remove_meter(number), 2, 5);
    expect_counted(eswitch_->meter_stats(number), 0, 0);
    EXPECT_FALSE(eswitch_->has_meter(number));
}

TEST_F(Meters, AMeterThatTheDeviceCannotDoTakesItsMegaflowsOut) {
    const auto without = rules();
    eswitch_->set_meter(number, small);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    eswitch_->set_meter(number, impossible);
    EXPECT_FALSE(is_offloaded(ufid_));
    EXPECT_EQ(rules(), without);
    eswitch_->set_meter(number, small);
    EXPECT_TRUE(is_offloaded(ufid_));
    (void)eswitch_->remove_meter(number);
    EXPECT_FALSE(is_offloaded(ufid_));
    EXPECT_EQ(rules(), without);
}

TEST_F(Meters, AThousandMegaflowsShareAnObjectAndAPrivateTable) {
    constexpr std::uint16_t length = 1000;
    eswitch_->set_meter(number, small);
    const std::size_t before = rules().size();
    for (std::uint16_t i = 0; i < length; ++i) ASSERT_TRUE(installed(eswitch_->put({3, i}, flow(i))));
    EXPECT_EQ(rules().size(), before + length + 2);
    EXPECT_EQ(FakeAso::requests(), 1U);
    eswitch_->set_meter(number, large);
    EXPECT_EQ(FakeAso::requests(), 2U);
    (void)eswitch_->remove_meter(number);
    EXPECT_EQ(rules().size(), before);
}

/// The device may then have the old parameters or the new ones: the megaflow gets another meter.
TEST_F(Meters, AChangeThatFailsIsAnotherObject) {
    eswitch_->set_meter(number, small);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    (void)FakeProvider::take_events();
    FakeProvider::refuse("ACCESS_ASO", EIO);
    eswitch_->set_meter(number, large);
    EXPECT_FALSE(is_offloaded(ufid_)) << "nothing goes by a meter of which the rate is not known";
    EXPECT_NE(eswitch_->explain(ufid_)->text.find("ACCESS_ASO"), std::string::npos) << eswitch_->explain(ufid_)->text;
    FakeProvider::refuse("ACCESS_ASO", 0);
    EXPECT_TRUE(becomes([&] { return is_offloaded(ufid_); })) << "it waits in line";
    FakeProvider::fail_call(1, EIO);
    eswitch_->set_meter(number, small);
    FakeProvider::fail_call(0, 0);
    EXPECT_TRUE(becomes([&] { return is_offloaded(ufid_); }));
}

TEST_F(Meters, EachCallOfAnInstallFailsOnceAndIsUndone) {
    std::set<std::string> failed;
    for (unsigned n = 1;; ++n) {
        close();
        open();
        const auto without = rules();
        const unsigned tables = FakeProvider::alive("table");
        eswitch_->set_meter(number, small);
        FakeProvider::fail_call(n, ENOMEM);
        const PutOutcome outcome = eswitch_->put(ufid_, flow());
        const std::string call = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        SCOPED_TRACE("call " + std::to_string(n) + ", " + call);
        if (call.empty()) break;
        if (!installed(outcome)) {
            ASSERT_TRUE(std::holds_alternative<Error>(outcome));
            failed.insert(call);
            (void)eswitch_->del(ufid_);
            EXPECT_EQ(rules(), without);
            EXPECT_EQ(FakeProvider::alive("table"), tables);
            ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
        }
        EXPECT_EQ(rules().size(), without.size() + 3);
        (void)eswitch_->del(ufid_);
    }
    for (const char* call : {"mlx5dv_devx_umem_reg", "mlx5dv_devx_query_eqn", "mlx5dv_devx_obj_create",
                             "mlx5dv_devx_obj_modify", "mlx5dv_init_obj", "ACCESS_ASO", "mlx5dv_dr_action_create_aso",
                             "mlx5dv_dr_rule_create", "mlx5dv_dr_matcher_create", "mlx5dv_dr_table_create"}) {
        EXPECT_TRUE(failed.contains(call)) << call;
    }
}

/// A log's meter: it drops copies for software, and no packet.
class MetersOfCopies : public Meters {
protected:
    void SetUp() override {
        Meters::SetUp();
        lead();
    }
    void lead() { ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_)); }
    static MegaflowBuilder logged(std::uint16_t port = 80) {
        static constexpr std::string_view work{"\x07\x05\x0c\x01", 4};
        return MegaflowBuilder(1).ipv4().proto(17).ports(1, port).software(work).behind_meter(number, 2).output(2);
    }
    /// Of private tables, copies included.
    static std::multiset<std::string> branches() {
        std::multiset<std::string> texts;
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.table != "FDB level 2" && rule.table != "FDB level 3") continue;
            std::string text = rule.table + " " + std::to_string(rule.priority) + ":";
            for (const std::string& action : rule.actions) {
                text += " " + (action.starts_with("count") ? "count" : action);
            }
            texts.insert(text);
        }
        return texts;
    }
    [[nodiscard]] std::string works() const {
        std::string text;
        for (const auto& work : eswitch_->works()) text += text_of(*work.work) + "\n";
        return text;
    }
};

TEST_F(MetersOfCopies, TheCopyIsColouredAndOnlyWhatIsGreenComesUp) {
    eswitch_->set_meter(number, small);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, logged())));
    EXPECT_EQ(megaflow_rules().at(0).at(1), "dest_array [dest_vport 2, dest_table 2]");
    EXPECT_EQ(branches(), (std::multiset<std::string>{"FDB level 2 0: meter 0 dest_table 3",
                                                      "FDB level 3 0: count modify_header dest_table 60",
                                                      "FDB level 3 1: count drop"}));
    EXPECT_EQ(works(), "userspace 0c01, from datapath port 1\n") << "software does not meter again";
    EXPECT_TRUE(eswitch_->has_meter(number)) << "it pays for what software lets pass";
    EXPECT_NE(eswitch_->show(false, {}).find("; 1 megaflows"), std::string::npos);
    const Graph graph = eswitch_->graph();
    EXPECT_TRUE(graph.edges.contains({"recirc_id 0x0 +2", 0, "drop"}));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, logged(81))));
    EXPECT_EQ(branches().size(), 3U) << "shared";
    EXPECT_EQ(FakeAso::requests(), 1U);
}

/// The packet goes on in any case, and is in the NIC all the time.
TEST_F(MetersOfCopies, WhatTheDeviceCannotMeterSoftwareDoes) {
    const std::string all = "userspace 07050c01, from datapath port 1\n";
    const std::string green = "userspace 0c01, from datapath port 1\n";
    ASSERT_TRUE(installed(eswitch_->put(ufid_, logged())));
    EXPECT_EQ(works(), all) << "nobody has set it";
    eswitch_->set_meter(number, small);
    EXPECT_EQ(works(), green);
    eswitch_->set_meter(number, impossible);
    EXPECT_EQ(works(), all);
    EXPECT_TRUE(is_offloaded(ufid_));
    eswitch_->set_meter(number, large);
    EXPECT_EQ(works(), green);
    (void)eswitch_->remove_meter(number);
    EXPECT_EQ(works(), all);
    EXPECT_TRUE(is_offloaded(ufid_));
}

TEST_F(MetersOfCopies, EachCallOfAnInstallFailsOnceAndIsUndone) {
    std::set<std::string> failed;
    for (unsigned n = 1;; ++n) {
        close();
        open();
        lead();
        const unsigned tables = FakeProvider::alive("table"), made = FakeProvider::alive("rule");
        eswitch_->set_meter(number, small);
        FakeProvider::fail_call(n, ENOMEM);
        const PutOutcome outcome = eswitch_->put(ufid_, logged());
        const std::string call = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        SCOPED_TRACE("call " + std::to_string(n) + ", " + call);
        if (call.empty()) break;
        if (!installed(outcome)) {
            ASSERT_TRUE(std::holds_alternative<Error>(outcome));
            failed.insert(call);
            (void)eswitch_->del(ufid_);
            EXPECT_EQ(FakeProvider::alive("rule"), made);
            EXPECT_EQ(FakeProvider::alive("table"), tables);
            EXPECT_EQ(works(), "");
            ASSERT_TRUE(installed(eswitch_->put(ufid_, logged())));
        }
        EXPECT_EQ(branches().size(), 3U);
        (void)eswitch_->del(ufid_);
    }
    for (const char* call : {"mlx5dv_devx_obj_create", "ACCESS_ASO", "mlx5dv_dr_action_create_aso", "dest_array",
                             "modify_header", "mlx5dv_dr_rule_create", "mlx5dv_dr_table_create"}) {
        EXPECT_TRUE(failed.contains(call)) << call;
    }
}

/// ConnectX-5: a rule ends in the meter, which leads to a table of its own.
class LegacyMeters : public Meters {
protected:
    static constexpr meter::Spec slow{.rate = 1000, .burst = 100}, fast{.rate = 5000, .burst = 800};

    void SetUp() override {
        Meters::SetUp();
        close();
        open_first_format();
    }
    void open_first_format() {
        FakeProvider::reset();
        FakeProvider::set_steering_format(0);
        open();
    }
};

TEST_F(LegacyMeters, ARuleNumbersItsPathAndEndsInTheMetersTable) {
    const auto without = rules();
    eswitch_->set_meter(number, slow);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    auto wanted = without;
    wanted.insert("FDB level 1 1: count modify_header meter to 2");
    wanted.insert("FDB level 2 0: count dest_vport 2");
    wanted.insert("FDB level 2 1: count drop");
    EXPECT_EQ(rules(), wanted);
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, flow(81))));
    wanted.insert("FDB level 1 1: count modify_header meter to 2");
    EXPECT_EQ(rules(), wanted) << "they take one path";
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, MegaflowBuilder(3).ipv4().meter(number).output(2))));
    wanted.insert("FDB level 1 1: count modify_header meter to 2");
    wanted.insert("FDB level 2 0: count dest_vport 2");
    EXPECT_EQ(rules(), wanted) << "another path, the same meter";
    EXPECT_EQ(FakeAso::requests(), 0U);
    EXPECT_NE(eswitch_->show(false, {}).find("a legacy meter; 3 megaflows"), std::string::npos);
    for (const Ufid& ufid : {ufid_, Ufid{1, 2}, Ufid{1, 3}}) (void)eswitch_->del(ufid);
    wanted = without;
    wanted.insert("FDB level 2 1: count drop");
    EXPECT_EQ(rules(), wanted) << "the meter's own";
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, flow(81))));
    wanted.insert("FDB level 2 0: count dest_vport 2");
    for (int i = 0; i < 2; ++i) wanted.insert("FDB level 1 1: count modify_header meter to 2");
    EXPECT_EQ(rules(), wanted) << "one path again";
    (void)eswitch_->del(ufid_);
    (void)eswitch_->del(Ufid{1, 2});
    (void)eswitch_->remove_meter(number);
    EXPECT_EQ(rules(), without);
}

/// The first word of reg_c_1 is the number that the rule in front wrote.
TEST_F(LegacyMeters, GreenPacketsOfThePathAndItsVportPassAndAllOthersAreDropped) {
    const auto before = rule_texts();
    eswitch_->set_meter(number, slow);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    auto added = rules_since(before);
    std::erase_if(added, [](const std::string& text) { return !text.starts_with("FDB level 2 "); });
    EXPECT_EQ(added, (std::vector<std::string>{
                         "FDB level 2 priority 0 {source_port=0x1, metadata_reg_c_5=0x2/0xff, metadata_reg_c_1=0x1}: "
                         "count dest_vport 2",
                         "FDB level 2 priority 1 {}: count drop"}));
}

TEST_F(LegacyMeters, AChangeIsOneOfTheActionAndAnotherObjectWhereThatFails) {
    eswitch_->set_meter(number, slow);
    ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
    const auto expect_written = [](const meter::Parameters& wanted) {
        EXPECT_EQ(FakeProvider::meter_parameters, std::vector<std::uint8_t>(wanted.begin(), wanted.end()));
    };
    expect_written(parameters_of(slow, meter::Counts::bytes));
    (void)FakeProvider::take_events();
    eswitch_->set_meter(number, fast);
    EXPECT_EQ(FakeProvider::take_events(), std::vector<std::string>{"change meter 6"}) << "cbs and cir";
    expect_written(parameters_of(fast, meter::Counts::bytes));
    ASSERT_TRUE(eswitch_->lower_meter(number, 2500));
    EXPECT_EQ(FakeProvider::take_events(), std::vector<std::string>{"change meter 4"}) << "cir alone";
    meter::Parameters lowered{};
    (void)meter::put_rate(lowered, meter::rate_of(2500 * 125));
    expect_written(lowered);
    FakeProvider::fail_call(1, EIO);
    eswitch_->set_meter(number, slow);
    FakeProvider::fail_call(0, 0);
    EXPECT_TRUE(is_offloaded(ufid_));
    const auto events = FakeProvider::take_events();
    EXPECT_GT(std::ranges::count_if(events, [](const auto& event) { return event.starts_with("create"); }), 0);
}

/// A branch has no table that the meter could lead to.
TEST_F(LegacyMeters, SoftwareMetersCopies) {
    static constexpr std::string_view work{"\x07\x05\x0c\x01", 4};
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
    eswitch_->set_meter(number, slow);
    ASSERT_TRUE(installed(
        eswitch_->put(ufid_, MegaflowBuilder(1).ipv4().software(work).behind_meter(number, 2).output(2))));
    ASSERT_EQ(eswitch_->works().size(), 1U);
    EXPECT_EQ(text_of(*eswitch_->works()[0].work), "userspace 07050c01, from datapath port 1");
    EXPECT_FALSE(eswitch_->has_meter(number));
    EXPECT_NE(eswitch_->show(false, {}).find("; 0 megaflows"), std::string::npos);
}

TEST_F(LegacyMeters, AMeterByPacketsStaysInSoftware) {
    eswitch_->set_meter(number, small);
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put(ufid_, flow())));
    EXPECT_NE(eswitch_->explain(ufid_)->text.find("a meter by packets (the device's meters count bytes)"),
              std::string::npos);
    eswitch_->set_meter(number, slow);
    EXPECT_TRUE(is_offloaded(ufid_));
}

TEST_F(LegacyMeters, EachCallOfAnInstallFailsOnceAndIsUndone) {
    std::set<std::string> failed;
    for (unsigned n = 1;; ++n) {
        close();
        open_first_format();
        const auto without = rules();
        eswitch_->set_meter(number, slow);
        FakeProvider::fail_call(n, ENOMEM);
        const PutOutcome outcome = eswitch_->put(ufid_, flow());
        const std::string call = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        SCOPED_TRACE("call " + std::to_string(n) + ", " + call);
        if (call.empty()) break;
        if (!installed(outcome)) {
            ASSERT_TRUE(std::holds_alternative<Error>(outcome));
            failed.insert(call);
            (void)eswitch_->del(ufid_);
            EXPECT_LE(rules().size(), without.size() + 1) << "the meter's own at most";
            ASSERT_TRUE(installed(eswitch_->put(ufid_, flow())));
        }
        EXPECT_EQ(rules().size(), without.size() + 3);
        (void)eswitch_->del(ufid_);
        (void)eswitch_->remove_meter(number);
        EXPECT_EQ(rules(), without);
    }
    for (const char* call : {"mlx5dv_dr_action_create_flow_meter", "modify_header", "mlx5dv_dr_rule_create",
                             "mlx5dv_dr_matcher_create", "mlx5dv_dr_table_create"}) {
        EXPECT_TRUE(failed.contains(call)) << call;
    }
}

}  // namespace
}  // namespace ovsdr::dr
