// Encapsulation and decapsulation against frames that scapy made: data/tunnel_vectors.csv, see tunnel_vectors.py.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {
namespace {

using Kind = Reformat::Kind;

constexpr std::uint16_t wire = 0xffff;

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

[[nodiscard]] std::vector<Row> rows() {
    std::vector<Row> all;
    std::ifstream file(TUNNEL_VECTORS);
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        std::istringstream cut(line);
        std::array<std::string, 5> cells;
        for (std::string& cell : cells) std::getline(cut, cell, ',');
        all.push_back({cells[0], cells[1] == "l3", bytes_of(cells[2]), bytes_of(cells[3]), bytes_of(cells[4])});
    }
    return all;
}

/// Without its tags: what an L3 tunnel leaves of a frame once it has come out with an Ethernet header of 14 bytes.
[[nodiscard]] Frame untagged(Frame frame) {
    while (frame[12] == 0x81 && frame[13] == 0x00) frame.erase(frame.begin() + 12, frame.begin() + 16);
    return frame;
}

class TunnelVectors : public SteeringTest {
protected:
    TunnelVectors() { attach({1, 2, wire}); }

    Domain fdb{steering, DomainType::fdb, nullptr};
    Table root{fdb, 0}, first{fdb, 1};
    MadeMatcher root_all = match_all(root);
    MadeMatcher by_source = make_matcher(first, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff));
    Action::Created to_first = to_table(first), to_2 = to_vport(fdb, 2), to_wire = to_vport(fdb, wire);
    MadeRule enter = make_rule(*root_all, {}, {&to_first});
};

TEST_F(TunnelVectors, AreWrittenAndTakenAwayAsScapyDoes) {
    const std::vector<Row> all = rows();
    ASSERT_EQ(all.size(), 100U);
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

}  // namespace
}  // namespace ovsdr::soft::test
