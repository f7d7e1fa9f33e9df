// Copies that a meter limits: which lists have one, and when a device does the limiting.
#include "tests/differential/judge/metered_copies.hpp"

#include <gtest/gtest.h>

#include "tests/differential/judge/expectation.hpp"
#include "tests/differential/judge/names.hpp"

namespace ovsdr::differential {

namespace {

using Kind = Action::Kind;
using Form = SoftwarePart::Form;

constexpr unsigned old_format = 0, later_format = 1;
constexpr std::uint32_t of_log = 5;   // by kilobits: a ConnectX-5 has it, too

const Action limiting{.kind = Kind::meter, .port = of_log}, to_port{.kind = Kind::output, .port = 2};
const Action logged{.kind = Kind::software, .software = {.to_controller = true}};
const Action copy_from{.kind = Kind::copy_begin}, copy_to{.kind = Kind::copy_end};
const Action tagged{.kind = Kind::push, .tpid = customer_tag, .vid = 3};

Action limited(std::vector<std::uint32_t> meters) {
    return {.kind = Kind::software, .software = {.form = Form::metered_sample, .meters = std::move(meters)}};
}

Megaflow megaflow_of(std::vector<Action> actions) {
    return {.in_port = 1, .eth_type = 0x88b5, .actions = std::move(actions)};
}

bool has_no_meter(std::uint32_t) { return false; }
bool takes(unsigned format, std::vector<Action> actions) {
    return is_offloadable(megaflow_of(std::move(actions)), format);
}

TEST(MeteredCopies, AListEndsInAMeterAndUserspace) {
    EXPECT_TRUE(is_metered_end({to_port, limiting, logged}, 1));
    EXPECT_TRUE(is_metered_end({copy_from, limiting, logged, copy_to, to_port}, 1));
    EXPECT_FALSE(is_metered_end({limiting, logged, to_port}, 0)) << "what it drops would have gone on";
    EXPECT_FALSE(is_metered_end({to_port, limiting}, 1));
    EXPECT_FALSE(is_metered_end({to_port, limiting, limited({})}, 1));
    EXPECT_FALSE(is_metered_end({limiting, to_port}, 0));
    EXPECT_EQ(entries_of({to_port, limiting, logged}), 2U);
    EXPECT_EQ(entries_of({limiting, logged, to_port}), 3U);
}

TEST(MeteredCopies, AreOffloadedWhoeverLimitsThem) {
    for (const unsigned format : {old_format, later_format}) {
        EXPECT_TRUE(takes(format, {to_port, limiting, logged}));
        EXPECT_TRUE(is_offloadable(megaflow_of({to_port, limiting, logged}), format, has_no_meter));
        EXPECT_TRUE(takes(format, {limited({of_log}), to_port}));
        EXPECT_TRUE(takes(format, {to_port, limited({of_log}), limiting, logged})) << "a meter met twice";
        EXPECT_FALSE(takes(format, {to_port, limiting, logged, to_port})) << "the meter is behind an output";
        EXPECT_FALSE(takes(format, {limited({of_log}), limited({of_log}), to_port})) << "twice the same";
    }
    EXPECT_TRUE(takes(later_format, {copy_from, tagged, limiting, logged, copy_to, to_port})) << "of another length";
    EXPECT_TRUE(takes(later_format, {limited({of_log}), limited({of_log + 2}), to_port}));
}

/// Where the packet goes nowhere else, a device is of use only if it limits the copies.
TEST(MeteredCopies, AloneAreOffloadedWhereTheDeviceLimitsThem) {
    EXPECT_TRUE(takes(later_format, {limiting, logged}));
    EXPECT_FALSE(takes(old_format, {limiting, logged}));
    EXPECT_FALSE(is_offloadable(megaflow_of({limiting, logged}), later_format, has_no_meter));
    EXPECT_FALSE(takes(later_format, {tagged, limiting, logged})) << "with another length";
    EXPECT_FALSE(takes(later_format, {limited({of_log}), limiting, logged})) << "who comes first matters";
    EXPECT_FALSE(takes(later_format, {limited({of_log, of_log})})) << "here as well";
    EXPECT_TRUE(takes(later_format, {limited({of_log, of_log + 2})})) << "the first one is the device's";
}

/// A log's meter goes: the megaflow stays in the NIC, but where it is only a log.
TEST(MeteredCopies, AreExpectedByTheMetersOfNow) {
    Scenario scenario;
    scenario.versions = {megaflow_of({to_port, limiting, logged}), megaflow_of({limiting, logged})};
    scenario.versions[1].ufid = 1;
    scenario.ufids = 2;
    Expectations expectations(scenario, later_format);
    const MeterSpec there{.rate = 1000, .burst = 128};
    expectations.apply({.changes = {{0, true}, {1, true}}, .meters = {{of_log, there}}});
    using enum Expectation;
    EXPECT_EQ(expectations.all({0, 0}), (std::vector{installed, installed}));
    expectations.apply({.changes = {}, .meters = {{of_log, std::nullopt}}});
    EXPECT_EQ(expectations.all({0, 0}), (std::vector{installed, refused}));
    expectations.apply({.changes = {}, .meters = {{of_log, there}}});
    EXPECT_EQ(expectations.all({0, 0}), (std::vector{installed, installed}));
}

TEST(MeteredCopies, AreNamedApartFromMetersOfPackets) {
    const auto names = names_of(megaflow_of({to_port, limiting, logged}));
    EXPECT_TRUE(names.contains(metered_end_name));
    EXPECT_FALSE(names.contains("userspace"));
    EXPECT_FALSE(names.contains("meter (kilobits)"));
    const auto longer = names_of(megaflow_of({tagged, limited({of_log}), to_port}));
    EXPECT_TRUE(longer.contains("a metered copy behind another length"));
    const auto twice = names_of(megaflow_of({limited({of_log, of_log}), to_port}));
    EXPECT_TRUE(twice.contains("a metered copy whose meter is met again"));
}

TEST(MeteredCopies, AreTextsAsOvsHasThem) {
    EXPECT_EQ(actions_text(megaflow_of({limited({of_log, 7}), to_port})),
              "sample(sample=100.0%,actions(meter(5),meter(7),userspace(pid=0,flow_sample(probability=1,"
              "collector_set_id=1,obs_domain_id=0,obs_point_id=0,output_port=4294967295)))),2");
    EXPECT_EQ(actions_text(megaflow_of({limiting, logged})),
              "meter(5),userspace(pid=0,controller(reason=1,dont_send=0,continuation=0,recirc_id=7,rule_cookie=0x0,"
              "controller_id=0,max_len=65535))");
}

}  // namespace

}  // namespace ovsdr::differential
