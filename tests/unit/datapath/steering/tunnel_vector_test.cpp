// Encapsulation, decapsulation and matching against frames that scapy made: data/*_vectors.csv, see tunnel_vectors.py.
#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "datapath/steering/tunnel.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"
#include "tests/unit/paths.hpp"

namespace ovsdr::soft::test {
namespace {

using Kind = Reformat::Kind;


struct Row {
    std::string name;
    bool l3;
    Frame frame, header, written;
};

[[nodiscard]] Frame bytes_of(const std::string& hex) {
    Frame bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
        bytes.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
    }
    return bytes;
}

template <std::size_t columns>
[[nodiscard]] std::vector<std::array<std::string, columns>> cells_of(const char* name) {
    std::vector<std::array<std::string, columns>> all;
    std::ifstream file(ovsdr::test::source_folder + "/tests/unit/datapath/steering/data/" + name);
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        std::istringstream cut(line);
        for (std::string& cell : all.emplace_back()) std::getline(cut, cell, ',');
    }
    return all;
}

[[nodiscard]] std::vector<Row> rows() {
    std::vector<Row> all;
    for (const auto& cells : cells_of<5>("tunnel_vectors.csv")) {
        all.push_back({cells[0], cells[1] == "l3", bytes_of(cells[2]), bytes_of(cells[3]), bytes_of(cells[4])});
    }
    return all;
}

/// Without its tags: what an L3 tunnel leaves of a frame once it has come out with an Ethernet header of 14 bytes.
[[nodiscard]] Frame untagged(Frame frame) {
    while (frame[12] == 0x81 && frame[13] == 0x00) frame.erase(frame.begin() + 12, frame.begin() + 16);
    return frame;
}

const Profile with_gtpu = with_flex_parser_profile(connectx_6dx, 3);

class TunnelVectors : public SteeringTest {
protected:
    TunnelVectors() : SteeringTest(with_gtpu) { attach({1, 2, wire}); }

    Domain fdb{steering, DomainType::fdb, nullptr};
    Table root{fdb, 0}, first{fdb, 1};
    MadeMatcher root_all = match_all(root);
    MadeMatcher by_source = make_matcher(first, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff));
    Action::Created to_first = to_table(first), to_2 = to_vport(fdb, 2), to_wire = to_vport(fdb, wire);
    MadeRule enter = make_rule(*root_all, {}, {&to_first});
};

TEST_F(TunnelVectors, AreWrittenAndTakenAwayAsScapyDoes) {
    const std::vector<Row> all = rows();
    ASSERT_EQ(all.size(), 152U);
    for (const Row& row : all) {
        const Frame expected = row.l3 ? untagged(row.frame) : row.frame;
        const auto encap = reformatting(fdb, row.l3 ? Kind::encap_l3 : Kind::encap_l2, row.header);
        const auto decap = reformatting(fdb, row.l3 ? Kind::decap_l3 : Kind::decap_l2,
                                        row.l3 ? Frame(expected.begin(), expected.begin() + 14) : Frame{});
        const auto out = make_rule(*by_source, Parameters{}.set(field::source_port, 1), {&encap, &to_wire});
        const auto in = make_rule(*by_source, Parameters{}.set(field::source_port, wire), {&decap, &to_2});
        ASSERT_EQ(out.error, 0) << row.name;
        ASSERT_EQ(in.error, 0) << row.name;
        // Twice each: the second packet meets the flow cache.
        send(1, row.frame, 2);
        send(wire, row.written, 2);
        ASSERT_EQ(vports[wire].taken.size(), 2U) << row.name;
        ASSERT_EQ(vports[2].taken.size(), 2U) << row.name;
        for (const auto& taken : vports[wire].taken) ASSERT_EQ(taken.frame, row.written) << row.name;
        for (const auto& taken : vports[2].taken) ASSERT_EQ(taken.frame, expected) << row.name;
        vports[wire].taken.clear();
        vports[2].taken.clear();
    }
}

/// A device of either parser profile, which sends what meets a rule to vport 2.
class FieldVectors : public SteeringTest {
protected:
    explicit FieldVectors(const Profile& profile = connectx_6dx) : SteeringTest(profile) {
        attach({1, 2});
        steering.set_cotenant_sink(vports[0].sink());
    }

    /// Whether a rule of that mask and value takes the frame.
    [[nodiscard]] bool takes(const Parameters& mask, const Parameters& value, const Frame& frame) {
        const auto matcher = make_matcher(first, 0, every, mask);
        const auto rule = make_rule(*matcher, value, {&to_2});
        EXPECT_EQ(rule.error, 0);
        vports[2].taken.clear();
        send(1, frame, 2);
        return vports[2].taken.size() == 2;
    }

    static constexpr std::uint8_t every =
        criteria::outer | criteria::misc | criteria::inner | criteria::misc2 | criteria::misc3;
    Domain fdb{steering, DomainType::fdb, nullptr};
    Table root{fdb, 0}, first{fdb, 1};
    MadeMatcher root_all = match_all(root);
    Action::Created to_first = to_table(first), to_2 = to_vport(fdb, 2);
    MadeRule enter = make_rule(*root_all, {}, {&to_first});
};

class GtpuFieldVectors : public FieldVectors {
protected:
    GtpuFieldVectors() : FieldVectors(with_gtpu) {}
};

const auto inner_mask =
    Parameters{}.set(field::inner_version, 4).set(field::inner_src_31_0, 0xffffffff).set(field::inner_protocol, 0xff);

[[nodiscard]] Parameters inner_of(const std::array<std::string, 6>& cells) {
    return Parameters{}.set(field::inner_version, 4)
        .set(field::inner_src_31_0, std::stoul(cells[4], nullptr, 16))
        .set(field::inner_protocol, std::stoul(cells[5]));
}

TEST_F(FieldVectors, GeneveOptionsAreFoundWhereScapyPutThem) {
    const auto data_mask = Parameters{}.set(field::geneve_option, 0xffffffff);
    const auto exists_mask = Parameters{}.set(field::geneve_exists, 1).set(field::geneve_vni, 0xffffff);
    unsigned found = 0;
    for (const auto& cells : cells_of<6>("field_vectors.csv")) {
        const Frame frame = bytes_of(cells[1]);
        const std::uint64_t data = std::stoul(cells[3], nullptr, 16);
        const std::uint64_t vni = cells[0].find("geneve") == std::string::npos ? 0 : 1;
        EXPECT_FALSE(takes(data_mask, Parameters{}.set(field::geneve_option, 0x12345679), frame)) << cells[0];
        EXPECT_TRUE(takes(data_mask, Parameters{}, frame)) << cells[0] << ": nothing is looked for yet";
        ASSERT_EQ(steering.set_geneve_option({.option_class = 0x0102, .type = 0x80, .length = 1}), 0);
        EXPECT_TRUE(takes(data_mask, Parameters{}.set(field::geneve_option, data), frame)) << cells[0];
        EXPECT_EQ(takes(data_mask, Parameters{}, frame), data == 0) << cells[0];
        EXPECT_TRUE(takes(exists_mask,
                          Parameters{}.set(field::geneve_exists, cells[2] == "1").set(field::geneve_vni, vni), frame))
            << cells[0];
        EXPECT_FALSE(takes(exists_mask,
                           Parameters{}.set(field::geneve_exists, cells[2] != "1").set(field::geneve_vni, vni), frame))
            << cells[0];
        EXPECT_EQ(takes(inner_mask, inner_of(cells), frame), vni == 1) << cells[0] << ": GTP-U is not parsed here";
        ASSERT_EQ(steering.set_geneve_option({}), 0);
        found += data != 0;
    }
    EXPECT_EQ(found, 6U);
}

TEST_F(FieldVectors, AnotherOptionTakesEffectAtOnce) {
    const auto mask = Parameters{}.set(field::geneve_option, 0xffffffff);
    const auto matcher = make_matcher(first, 0, criteria::misc3, mask);
    const auto rule = make_rule(*matcher, Parameters{}.set(field::geneve_option, 0x12345678), {&to_2});
    const Frame frame = bytes_of(cells_of<6>("field_vectors.csv")[1][1]);
    send(1, frame, 2);
    EXPECT_EQ(vports[2].taken.size(), 0U);
    ASSERT_EQ(steering.set_geneve_option({.option_class = 0x0102, .type = 0x80, .length = 1}), 0);
    EXPECT_EQ(steering.set_geneve_option({.option_class = 0x0103, .type = 0x80, .length = 1}), EBUSY);
    send(1, frame, 2);
    EXPECT_EQ(vports[2].taken.size(), 2U);
    ASSERT_EQ(steering.set_geneve_option({}), 0);
    send(1, frame, 2);
    EXPECT_EQ(vports[2].taken.size(), 2U);
}

TEST_F(GtpuFieldVectors, InnerHeadersAreThoseThatScapyPutThere) {
    unsigned carried = 0;
    for (const auto& cells : cells_of<6>("field_vectors.csv")) {
        const Frame frame = bytes_of(cells[1]);
        const bool carries = cells[5] != "0";
        EXPECT_EQ(takes(inner_mask, inner_of(cells), frame), carries) << cells[0];
        auto other = inner_of(cells);
        EXPECT_FALSE(takes(inner_mask, other.set(field::inner_src_31_0, 1), frame)) << cells[0];
        carried += carries;
    }
    EXPECT_EQ(carried, 20U);
}

TEST_F(FieldVectors, WithoutTheParserGtpuIsNotTakenAway) {
    const auto by_source = make_matcher(first, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff));
    const auto decap = reformatting(fdb, Kind::decap_l3, Frame(14));
    ASSERT_EQ(steering.attach(VportId{wire}, vports[wire].sink()), 0);
    const auto in = make_rule(*by_source, Parameters{}.set(field::source_port, wire), {&decap, &to_2});
    ASSERT_EQ(in.error, 0);
    for (const auto& cells : cells_of<6>("field_vectors.csv")) {
        if (cells[0].find("gtpu") != std::string::npos) send(wire, bytes_of(cells[1]));
    }
    EXPECT_EQ(vports[2].taken.size(), 0U);
    EXPECT_EQ(steering.drops().malformed, 8U);
}

}  // namespace
}  // namespace ovsdr::soft::test
