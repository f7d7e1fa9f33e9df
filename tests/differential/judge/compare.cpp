#include "tests/differential/judge/compare.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace ovsdr::differential {

namespace {

constexpr std::size_t most_lines = 20;
constexpr std::uint32_t megaflow_table_tag = 1;

class Differences {
public:
    void add(std::string line) {
        if (lines_.size() < most_lines) {
            lines_.push_back(std::move(line));
        } else {
            ++more_;
        }
    }
    [[nodiscard]] std::vector<std::string> take() {
        if (more_ != 0) lines_.push_back(fmt::format("and {} more", more_));
        return std::move(lines_);
    }

private:
    std::vector<std::string> lines_;
    std::size_t more_ = 0;
};

std::string text_of(const std::vector<Copy>& copies) {
    std::string text;
    for (const Copy& copy : copies) {
        const std::string up = copy.up ? fmt::format("up with tag {} at ", copy.tag) : std::string();
        text += fmt::format(" {}{}:{:02x}", up, copy.port, fmt::join(copy.bytes, ""));
    }
    return text.empty() ? " nowhere" : text;
}

std::string text_of(const Megaflow& megaflow) {
    return match_text(megaflow) + " actions:" + (megaflow.actions.empty() ? "drop" : actions_text(megaflow));
}

std::string text_of(const MegaflowVerdict& verdict) {
    const char* const there = verdict.installed ? "" : ", not installed";
    return fmt::format("{} packets, {} bytes{}", verdict.packets, verdict.bytes, there);
}

std::string text_of(const Scenario& scenario, std::size_t packet) {
    return fmt::format("packet {} from port {} ({:02x})", packet, scenario.packets[packet].in_port,
                       fmt::join(scenario.packets[packet].bytes, ""));
}

bool went_up(const std::vector<Copy>& copies) {
    return std::ranges::any_of(copies, [](const Copy& copy) { return copy.up; });
}

/// Empty: it may.
std::string fault_of_going_up(const Scenario& scenario, std::size_t number, const Verdict& nic, const Verdict& ovs) {
    const TestPacket& packet = scenario.packets[number];
    const Copy& copy = nic.copies[number].front();
    if (nic.copies[number].size() != 1 || copy.port != packet.in_port || copy.tag != megaflow_table_tag ||
        copy.bytes != packet.bytes) {
        return "went up otherwise than it came";
    }
    if (ends_connection(packet.bytes)) return "";
    const std::int32_t taken_by = ovs.taken_by[number];
    if (taken_by < 0 || !nic.megaflows[static_cast<std::size_t>(taken_by)].installed) return "";
    return may_go_up(packet.bytes) ? "" : "went up";
}

void compare_counts(const Scenario& scenario, const Subject& one, const Subject& other, Differences& differences) {
    for (std::size_t i = 0; i < scenario.megaflows.size() - port_length; ++i) {
        if (one.verdict.megaflows[i] == other.verdict.megaflows[i]) continue;
        differences.add(fmt::format("megaflow {} {}:\n    {}\n    {}", i, text_of(scenario.megaflows[i]),
                                    text_of(one.verdict.megaflows[i]), text_of(other.verdict.megaflows[i])));
    }
}

/// Packets of a megaflow (-1: of none) at one place, as they came out. The n-th copies of packets are a sequence of
/// their own, since a packet's copies have no order.
using Sequences = std::map<std::tuple<std::uint32_t, std::int32_t, unsigned>, std::vector<std::uint32_t>>;

Sequences sequences_of(const Verdict& verdict, const Verdict& ovs) {
    Sequences sequences;
    for (const auto& [place, numbers] : verdict.arrivals) {
        std::map<std::uint32_t, unsigned> copies;
        for (const std::uint32_t number : numbers) {
            sequences[{place, ovs.taken_by[number], copies[number]++}].push_back(number);
        }
    }
    return sequences;
}

void compare_order(const Verdict& one, const Verdict& other, const Verdict& ovs, Differences& differences) {
    const Sequences left = sequences_of(one, ovs), right = sequences_of(other, ovs);
    for (const auto& [key, numbers] : left) {
        const auto found = right.find(key);
        if (found != right.end() && found->second == numbers) continue;
        const auto& [place, megaflow, copy] = key;
        differences.add(fmt::format("order of megaflow {}'s packets from port {} to {:#x}:\n    {}\n    {}", megaflow,
                                    place >> 16, place & 0xFFFF, fmt::join(numbers, " "),
                                    found == right.end() ? "none" : fmt::format("{}", fmt::join(found->second, " "))));
    }
}

/// What OVS's software says of the packets that did not go up.
Verdict expected_of(const Scenario& scenario, const Subject& nic, const Verdict& ovs) {
    Verdict expected;
    expected.copies.resize(scenario.packets.size());
    for (const Megaflow& megaflow : scenario.megaflows) {
        expected.megaflows.push_back({.installed = is_offloadable(megaflow, nic.format)});
    }
    for (const auto& [key, numbers] : nic.verdict.arrivals) {
        if ((key & 0x8000) != 0) expected.arrivals.emplace(key, numbers);   // judged one by one
    }
    for (const auto& [key, numbers] : ovs.arrivals) {
        auto& arrived = expected.arrivals[key];
        std::ranges::copy_if(numbers, std::back_inserter(arrived),
                             [&](std::uint32_t number) { return !went_up(nic.verdict.copies[number]); });
        if (arrived.empty()) expected.arrivals.erase(key);
    }
    for (std::size_t i = 0; i < scenario.packets.size(); ++i) {
        if (went_up(nic.verdict.copies[i]) || ovs.taken_by[i] < 0) continue;
        MegaflowVerdict& megaflow = expected.megaflows[static_cast<std::size_t>(ovs.taken_by[i])];
        ++megaflow.packets;
        megaflow.bytes += scenario.packets[i].bytes.size();
    }
    return expected;
}

}  // namespace

std::vector<std::string> compare_nics(const Scenario& scenario, const Subject& one, const Subject& other,
                                      const Verdict& ovs) {
    Differences differences;
    for (std::size_t i = 0; i < scenario.packets.size(); ++i) {
        if (one.verdict.copies[i] == other.verdict.copies[i]) continue;
        differences.add(fmt::format("{}:\n   {}\n   {}", text_of(scenario, i), text_of(one.verdict.copies[i]),
                                    text_of(other.verdict.copies[i])));
    }
    compare_counts(scenario, one, other, differences);
    compare_order(one.verdict, other.verdict, ovs, differences);
    return differences.take();
}

std::vector<std::string> compare_with_ovs(const Scenario& scenario, const Subject& nic, const Verdict& ovs) {
    Differences differences;
    for (std::size_t i = 0; i < scenario.packets.size(); ++i) {
        const auto& copies = nic.verdict.copies[i];
        const std::int32_t taken_by = ovs.taken_by[i];
        std::string fault;
        if (went_up(copies)) {
            fault = fault_of_going_up(scenario, i, nic.verdict, ovs);
        } else if (ends_connection(scenario.packets[i].bytes)) {
            fault = "ends a connection, and did not go up";
        } else if (taken_by < 0 || copies != ovs.copies[i]) {
            fault = "differs";
        }
        if (fault.empty()) continue;
        const std::string megaflow =
            taken_by < 0 ? "none" : text_of(scenario.megaflows[static_cast<std::size_t>(taken_by)]);
        differences.add(fmt::format("{} {}; its megaflow: {}\n   {}\n    OVS{}", text_of(scenario, i), fault, megaflow,
                                    text_of(copies), text_of(ovs.copies[i])));
    }
    const Verdict expected = expected_of(scenario, nic, ovs);
    compare_counts(scenario, nic, {expected, nic.format}, differences);
    compare_order(nic.verdict, expected, ovs, differences);
    return differences.take();
}

Figures figures_of(const Verdict& nic) {
    Figures figures;
    for (const auto& copies : nic.copies) {
        const bool up = went_up(copies);
        figures.up += up ? 1 : 0;
        figures.taken += up ? 0 : 1;
        figures.copies += up ? 0 : copies.size();
    }
    figures.installed = static_cast<std::size_t>(std::ranges::count(nic.megaflows, true, &MegaflowVerdict::installed));
    figures.installed -= std::min(figures.installed, port_length);   // the markers'
    return figures;
}

}  // namespace ovsdr::differential
