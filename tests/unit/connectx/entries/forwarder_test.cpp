// An eSwitch made by hand: root rules, tables, arrays, the manager's NIC_RX.
#include "tests/connectx/entries/forwarder.hpp"

#include <gtest/gtest.h>

#include "tests/unit/connectx/entries/entry_builder.hpp"
#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {
namespace {

using namespace test;

constexpr std::uint64_t rx_root = 0x1000000, tx_root = 0x2000000;
constexpr std::uint64_t vport_rx = 0x5000000000, vport_tx = 0x5100000000, drop = 0x5200000000, array_rx = 0x5300000000,
                        array_tx = 0x5300000040, queue_pair = 0x5700000040;
constexpr std::uint32_t megaflows = 11, array = 12, branch = 13;

/// Answers what the forwarder asks; the rest is empty.
class FakeDevice final : public Device {
public:
    [[nodiscard]] unsigned steering_format() const override { return 1; }
    [[nodiscard]] const std::uint8_t* icm(std::uint64_t address, std::size_t size) const override {
        return memory.read(address, size);
    }
    [[nodiscard]] AddressOwner owner_of(std::uint64_t address) const override {
        using Kind = AddressOwner::Kind;
        const auto number = static_cast<std::uint32_t>((address & 0xFFFFFFFF) / 64);
        if (address == drop) return {Kind::drop};
        if (address == array_rx) return {Kind::table, array, 0};
        if (address == array_tx) return {Kind::table, array, 1};
        if (address == queue_pair) return {Kind::queue_pair, 1};
        if (address >> 32 == vport_rx >> 32) return {Kind::vport_rx, number, 0};
        if (address >> 32 == vport_tx >> 32) return {Kind::vport_tx, number, 1};
        return {};
    }
    [[nodiscard]] std::uint64_t modify_header_base() const override { return Icm::modify_base; }
    [[nodiscard]] std::uint64_t modify_pattern_base() const override { return 0; }
    [[nodiscard]] std::optional<std::array<std::uint8_t, 64>> argument(std::uint32_t) const override { return {}; }
    [[nodiscard]] std::optional<MeterParameters> meter(MeterName) const override { return {}; }
    bool set_meter(MeterName, const MeterParameters&) override { return false; }
    [[nodiscard]] std::vector<Table> tables() const override {
        return {{megaflows, TableType::fdb, 1, true, false, false, {rx_root, tx_root}},
                {array, TableType::fdb, 62, false, false, false, {array_rx, array_tx}},
                {branch, TableType::fdb, 2, true, false, false, {rx_root + 0x1000, tx_root + 0x1000}}};
    }
    [[nodiscard]] std::vector<TableEntry> table_entries() const override { return entries; }
    [[nodiscard]] std::vector<RootMatcher> root_matchers() const override { return matchers; }
    [[nodiscard]] std::vector<RootRule> root_rules() const override { return rules; }
    [[nodiscard]] std::vector<RootAction> root_actions() const override { return {}; }
    [[nodiscard]] std::vector<DevxObject> devx_objects() const override { return objects; }
    [[nodiscard]] std::optional<Reformat> reformat(std::uint32_t) const override { return {}; }
    [[nodiscard]] std::vector<Vport> vports() const override {
        return {{0, 1, 0x20000, 0xFFFF0000}, {1, 2, 0x30000, 0xFFFF0000}, {2, 3, 0x40000, 0xFFFF0000},
                {wire_vport, 0, 0x10000, 0xFFFF0000}};
    }
    bool count(std::uint32_t counter, Count more) override {
        counts[counter].packets += more.packets;
        counts[counter].bytes += more.bytes;
        return counter != 0xBAD;
    }
    [[nodiscard]] std::optional<Count> counted(std::uint32_t) const override { return {}; }
    [[nodiscard]] std::map<std::string, std::uint64_t> calls() const override { return {}; }
    [[nodiscard]] std::vector<std::string> not_emulated() const override { return {}; }
    bool fail(std::string_view, std::uint64_t, int, std::uint64_t) override { return false; }
    std::size_t clear_faults() override { return 0; }
    [[nodiscard]] std::map<std::string, std::uint64_t> alive() const override { return {}; }
    [[nodiscard]] std::uint64_t icm_bytes_alive() const override { return 0; }
    [[nodiscard]] std::map<std::string, std::uint64_t> left_behind() const override { return {}; }
    [[nodiscard]] std::uint64_t work_requests() const override { return 0; }
    [[nodiscard]] std::uint64_t icm_bytes_written() const override { return 0; }
    [[nodiscard]] std::uint64_t frames_sent() const override { return 0; }
    void set_vport(std::uint16_t, bool) override {}
    void configure_vport(std::uint16_t, VportSettings) override {}
    [[nodiscard]] VportSettings vport_settings(std::uint16_t) const override { return {}; }
    [[nodiscard]] std::uint64_t shared_root_entries() const override { return 0; }

    Icm memory;
    std::vector<TableEntry> entries;
    std::vector<DevxObject> objects;
    std::vector<RootMatcher> matchers;
    std::vector<RootRule> rules;
    std::map<std::uint32_t, Count> counts;
};

using Parameter = std::vector<std::uint8_t>;

constexpr unsigned source_queue = 512 + 8, source_port = 512 + 48, reg_c_1 = 1536 + 320, reg_c_0 = 1536 + 352;

Parameter parameter(std::initializer_list<std::array<std::uint64_t, 3>> ranges) {
    Parameter bytes(4 * 64);
    for (const auto& [offset, length, value] : ranges) {
        put_bits(bytes.data(), static_cast<unsigned>(offset), static_cast<unsigned>(length), value);
    }
    return bytes;
}

class ForwarderTest : public ::testing::Test {
protected:
    ForwarderTest() {
        device_.matchers = {{1, TableType::fdb, 1, 2, parameter({{source_port, 16, 0xFFFF}})}};
        for (const std::uint16_t vport : {std::uint16_t{1}, std::uint16_t{2}, wire_vport}) {
            RootRule enter{.handle = 100U + vport, .matcher = 1, .value = parameter({{source_port, 16, vport}})};
            enter.table = megaflows;
            device_.rules.push_back(enter);
        }
        // What misses goes up: reg_c_1 is 1, and the port's queue has its number.
        const Parameter up_mask = parameter({{reg_c_0, 32, 0xFFFF0000}, {reg_c_1, 32, ~0ULL}});
        device_.matchers.push_back({2, TableType::nic_rx, 0, 8, up_mask});
        for (const auto& [value, queue] : {std::pair{0x10000, 71U}, {0x30000, 72U}}) {
            RootRule up{.handle = 200U + queue, .matcher = 2,
                        .value = parameter({{reg_c_0, 32, static_cast<std::uint64_t>(value)}, {reg_c_1, 32, 1}})};
            up.queue_pair = queue;
            up.tag = 5;
            up.counters = {300 + queue};
            device_.rules.push_back(up);
        }
    }
    /// The only entry of the megaflow table, on both sides.
    void lead(const Entry1& rx, const Entry1& tx) {
        device_.memory.put(rx_root, rx);
        device_.memory.put(tx_root, tx);
    }
    static Entry1 mark() { return Entry1().action(0x0691202000000001, 8); }

    std::vector<Delivery> from(std::uint16_t vport) { return Forwarder(device_).from_port(vport, frame_); }

    FakeDevice device_;
    std::vector<std::uint8_t> frame_ = std::vector<std::uint8_t>(60, 7);
};

TEST_F(ForwarderTest, LeadsThePacketsOfEachSideToTheirVport) {
    lead(Entry1().hit(vport_rx + 2 * 64).counter(9), Entry1().hit(vport_tx + 0xFFFF * 64).counter(9));
    const auto from_wire = from(wire_vport), from_vport = from(1);
    ASSERT_EQ(from_wire.size(), 1U);
    EXPECT_EQ(from_wire[0].kind, Delivery::Kind::vport);
    EXPECT_EQ(from_wire[0].number, 2U);
    EXPECT_EQ(from_wire[0].packet.bytes, frame_);
    ASSERT_EQ(from_vport.size(), 1U);
    EXPECT_EQ(from_vport[0].number, 0xFFFFU);
    EXPECT_EQ(device_.counts[9].packets, 2U);
    EXPECT_EQ(device_.counts[9].bytes, 120U);
}

TEST_F(ForwarderTest, SendsMissesUpWithTagAndCount) {
    lead(mark().hit(vport_rx), mark().hit(vport_tx));
    for (const auto& [vport, queue] : {std::pair{wire_vport, 71U}, {std::uint16_t{1}, 72U}}) {
        const auto up = from(vport);
        ASSERT_EQ(up.size(), 1U);
        EXPECT_EQ(up[0].kind, Delivery::Kind::queue_pair);
        EXPECT_EQ(up[0].number, queue);
        EXPECT_EQ(up[0].packet.flow_tag, 5U);
        EXPECT_EQ(device_.counts[300 + queue].packets, 1U);
    }
}

TEST_F(ForwarderTest, LeavesToTheKernelWhatNoRootRuleTakes) {
    lead(Entry1().hit(vport_rx), Entry1().hit(vport_tx));   // reg_c_1 is 0
    ASSERT_EQ(from(1).size(), 1U);
    EXPECT_EQ(from(1)[0].kind, Delivery::Kind::kernel);
    EXPECT_EQ(from(0)[0].kind, Delivery::Kind::kernel);
}

TEST_F(ForwarderTest, CopiesToEveryDestinationOfAnArray) {
    TableEntry copies{.table_id = array, .action = 4};
    copies.destinations = {{0, 2, {}}, {1, branch, {}}, {0, 0xFFFF, {}}};
    device_.entries = {copies};
    lead(Entry1().hit(array_rx), Entry1().hit(array_tx));
    device_.memory.put(tx_root + 0x1000, Entry1().action(0x0A000C0081000005, 8).hit(vport_tx + 2 * 64));
    const auto out = from(1);
    ASSERT_EQ(out.size(), 3U);
    EXPECT_EQ(out[0].packet.bytes, frame_);
    EXPECT_EQ(out[1].number, 2U);
    EXPECT_EQ(out[1].packet.bytes.size(), 64U);
    EXPECT_EQ(out[2].number, 0xFFFFU);
    EXPECT_EQ(out[2].packet.bytes, frame_);
}

TEST_F(ForwarderTest, DropsWhereEntriesSaySo) {
    lead(Entry1().hit(drop), Entry1().hit(drop));
    ASSERT_EQ(from(1).size(), 1U);
    EXPECT_EQ(from(1)[0].kind, Delivery::Kind::dropped);
}

TEST_F(ForwarderTest, PrefersTheLowerPriorityOfRootMatchers) {
    const Parameter mask = parameter({{source_queue, 24, 0xFFFFFF}, {source_port, 16, 0xFFFF}});
    device_.matchers.push_back({3, TableType::fdb, 0, 2, mask});
    RootRule send{.handle = 3, .matcher = 3, .value = parameter({{source_queue, 24, 0x77}, {source_port, 16, 0}})};
    send.table = branch;
    device_.rules.push_back(send);
    device_.memory.put(tx_root + 0x1000, Entry1().hit(vport_tx + 2 * 64));
    const auto out = Forwarder(device_).from_queue(0x77, frame_);
    ASSERT_EQ(out.size(), 1U);
    EXPECT_EQ(out[0].number, 2U);
    EXPECT_EQ(Forwarder(device_).from_queue(0x78, frame_)[0].kind, Delivery::Kind::kernel);
}

TEST_F(ForwarderTest, TellsTheQueuesOfTwoFunctionsApart) {
    device_.matchers.push_back({3, TableType::fdb, 0, 2, parameter({{source_queue, 24, 0xFFFFFF}})});
    RootRule send{.handle = 3, .matcher = 3, .value = parameter({{source_queue, 24, 0x77}})};
    send.table = branch;
    device_.rules.push_back(send);
    lead(Entry1(), Entry1().hit(drop));
    device_.memory.put(tx_root + 0x1000, Entry1().hit(vport_tx + 2 * 64));
    Forwarder forwarder(device_);
    EXPECT_EQ(forwarder.from_port(1, frame_, 0x77)[0].kind, Delivery::Kind::vport) << "the rule names no function";
    EXPECT_EQ(forwarder.from_port(1, frame_, 0x78)[0].kind, Delivery::Kind::dropped);
}

TEST_F(ForwarderTest, GivesACopyToEachRuleOfTheSameMatch) {
    RootRule second = device_.rules.back();
    second.queue_pair = 99;
    device_.rules.push_back(second);
    lead(mark().hit(vport_rx), mark().hit(vport_tx));
    const auto up = from(1);
    ASSERT_EQ(up.size(), 2U);
    EXPECT_EQ(up[0].number, 72U);
    EXPECT_EQ(up[1].number, 99U);
}

TEST_F(ForwarderTest, ReadsDefinersOutOfTheirCommands) {
    DevxObject definer{.id = 0x21, .opcode = 0xA00, .general_type = 0x18, .id_length = 1};
    definer.command.resize(16 + 128);
    put_bits(definer.command.data() + 16, 144, 16, 16);          // format_id
    put_bits(definer.command.data() + 16 + 96, 208, 16, 0xFFFF);   // source_gvmi
    device_.objects = {definer};
    const Entry1 any = Entry1(0x400 | any_packet).bits(112, 8, 0x21).hit(tx_root + 0x2000);
    lead(Entry1(), any);
    device_.memory.put(tx_root + 0x2000, Entry1(0x421).bits(256 + 208, 16, 2).hit(vport_tx + 2 * 64).miss(drop));
    EXPECT_EQ(from(1)[0].kind, Delivery::Kind::vport);
    EXPECT_EQ(from(2)[0].kind, Delivery::Kind::dropped);
}

TEST_F(ForwarderTest, StopsAtWhatItDoesNotKnow) {
    const auto expect_stop = [&](const char* name) {
        try {
            (void)from(1);
            FAIL() << "went on past " << name;
        } catch (const Stopped& stopped) {
            EXPECT_NE(std::string(stopped.what()).find(name), std::string::npos) << stopped.what();
        }
    };
    lead(Entry1(), Entry1().hit(vport_rx + 2 * 64));
    expect_stop("at the end of steering on the TX side");
    lead(Entry1(), Entry1().hit(array_tx));
    expect_stop("firmware's table 12 with 0 entries");
    lead(Entry1(), Entry1().hit(vport_tx + 2 * 64).counter(0xBAD));
    expect_stop("counter 0xbad");
    lead(Entry1(), Entry1().hit(queue_pair));
    expect_stop("at the end of steering on the TX side");
    lead(Entry1(), Entry1().hit(vport_tx + 7 * 64));
    expect_stop("vport 7, which is not there");
    lead(Entry1(), Entry1().hit(vport_tx + 64));
    expect_stop("a packet back to vport 1, its source");
    lead(Entry1(), Entry1().hit(array_tx));
    device_.entries = {{.table_id = array, .action = 4}};
    expect_stop("without a destination");
    device_.entries[0].destinations = {{0, 2, {}}};
    device_.entries[0].action = 8;
    expect_stop("action 0x8 of firmware's table 12");
    DevxObject definer{.id = 0x21, .opcode = 0xA00, .general_type = 0x18, .id_length = 1};
    definer.command.resize(16 + 128);
    definer.command[16 + 95] = 1;
    device_.objects = {definer};
    expect_stop("a definer that chooses its words");
    device_.objects.clear();
    device_.rules[0].drop = true;
    expect_stop("a root rule with two destinations");
    device_.rules[0].drop = false;
    device_.matchers.push_back({4, TableType::fdb, 5, 1, parameter({{0, 8, 0xFF}})});
    expect_stop("byte 0 of a root matcher's mask");
}

}  // namespace
}  // namespace ovsdr::connectx::entries
