// One judge of random megaflows and packets, or the comparison of verdicts; tests/differential/run calls it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tests/differential/judge/compare.hpp"
#include "tests/differential/judge/coverage.hpp"
#include "tests/differential/judge/expectation.hpp"
#include "tests/differential/judge/nic_judge.hpp"

using namespace ovsdr::differential;

namespace {

struct Options {
    Draw draw;
    std::string verdict, ovs, soft_nic, drawn;
    std::vector<std::string> sockets;
    std::vector<std::uint32_t> explain;
    unsigned format = 1;
};

/// With all versions, none of them put.
void teach(OvsJudge& ovs, const Scenario& scenario) {
    for (const Megaflow& megaflow : scenario.versions) ovs.add(megaflow);
}

Verdict judge_by_ovs(const Scenario& scenario, OvsJudge& ovs, bool connectx_5) {
    Verdict verdict(scenario.packets.size(), scenario.ufids);
    verdict.lookups.resize(scenario.packets.size());
    Recorder recorder(verdict, scenario.versions, Recorder::Of::all);
    std::uint32_t number = 0;
    for (const Phase& phase : scenario.phases) {
        apply(phase, ovs, connectx_5);
        for (; number < phase.packets_end; ++number) {
            if (number == phase.priming_end) ovs.exhaust_meters();
            const TestPacket& packet = scenario.packets[number];
            recorder.begin(number, packet.in_port, phase.counts);
            (void)ovs.forward({packet.in_port, 0, packet.bytes.data(), packet.bytes.size(), false}, recorder);
        }
        if (phase.counts) ovs.add_meter_counts(verdict.meters.emplace_back());
    }
    verdict.finish();
    return verdict;
}

/// The judge of OVS draws packets for the others, too.
Scenario scenario_of(const Options& options, bool draws) {
    if (!draws) return make_scenario(options.draw, options.drawn);
    Scenario scenario = make_scenario(options.draw);
    if (!options.drawn.empty()) write_packets(scenario, options.drawn);
    return scenario;
}

int run_judge(const Options& options, const std::string& judge) {
    const Scenario scenario = scenario_of(options, judge == "ovs");
    OvsJudge ovs;
    teach(ovs, scenario);
    Verdict verdict;
    if (judge == "ovs") verdict = judge_by_ovs(scenario, ovs, options.draw.connectx_5);
    if (judge == "soft-nic") verdict = judge_by_soft_nic(scenario, ovs, options.format, options.sockets);
    if (judge == "entries") verdict = judge_by_entries(scenario, ovs, options.format, options.explain);
    verdict.write(options.verdict);
    return 0;
}

/// What tests/differential/run adds up: a line each, "kind<tab>numbers<tab>name".
void show_coverage(const Scenario& scenario, const Verdict& nic, const Verdict& ovs) {
    for (const auto& [name, covered] : coverage_of(scenario, nic, ovs)) {
        fmt::print("covered\t{}\t{}\t{}\t{}\t{}\n", covered.drawn, covered.installed, covered.hit, covered.packets,
                   name);
    }
    const Figures figures = figures_of(scenario, nic);
    fmt::print("figures\t{}\t{}\t{}\t{}\t{}\t{}\n", figures.drawn, figures.installed, figures.taken, figures.up,
               figures.copies, scenario.steered);
}

void show_excused(const Excused& excused) {
    for (const auto& [difference, what, why] : named_differences()) {
        fmt::print("excused\t{}\t{}: {}\n", excused.times[static_cast<std::size_t>(difference)], what, why);
    }
}

/// What is told of the verdicts on one profile, under a line with each comparison's name. True: all equal.
bool compare_all(const Scenario& scenario, const Options& options, const Verdict& ovs) {
    const Verdict soft = Verdict::read(options.soft_nic), entries = Verdict::read(options.verdict);
    bool equal = true;
    const auto show_one = [&](const char* name, const Comparison& comparison) {
        fmt::print("compared\t{}\t{}\n", comparison.differences.empty() ? 1 : 0, name);
        show_excused(comparison.excused);
        for (const std::string& line : comparison.differences) fmt::print("{}\n", line);
        equal = equal && comparison.differences.empty();
    };
    for (const auto& [name, nic] : {std::pair{"soft NIC", &soft}, {"entries", &entries}}) {
        Comparison comparison = compare_with_ovs(scenario, *nic, ovs, options.format);
        comparison.excused.add(scenario.left_out);
        show_one(name, comparison);
        show_coverage(scenario, *nic, ovs);
    }
    show_one("between", compare_nics(scenario, entries, soft, ovs));
    return equal;
}

/// One NIC alone, up to the first difference: for who makes faults on purpose.
bool compare_one(const Scenario& scenario, const Options& options, const Verdict& ovs) {
    const Verdict nic = Verdict::read(options.verdict);
    const auto differences = compare_with_ovs(scenario, nic, ovs, options.format).differences;
    if (!differences.empty()) fmt::print("{}\n", differences.front());
    return differences.empty();
}

int run_compare(const Options& options) {
    const Scenario scenario = scenario_of(options, false);
    const Verdict ovs = Verdict::read(options.ovs);
    const bool both = !options.soft_nic.empty();
    return (both ? compare_all : compare_one)(scenario, options, ovs) ? 0 : 1;
}

/// What a NIC of the format has if it is equal to OVS: no NIC is asked.
Verdict forecast_of(const Scenario& scenario, unsigned format) {
    Verdict nic(scenario.packets.size(), scenario.ufids);
    nic.installed = forecast(scenario, format);
    for (Counts& counts : nic.counts) counts.packets = 1;
    return nic;
}

int show_forecast(const Options& options) {
    const Scenario scenario = make_scenario(options.draw);
    OvsJudge ovs;
    teach(ovs, scenario);
    const Verdict by_ovs = judge_by_ovs(scenario, ovs, options.draw.connectx_5);
    show_coverage(scenario, forecast_of(scenario, options.format), by_ovs);
    return 0;
}

int show(const Options& options) {
    const Scenario scenario = make_scenario(options.draw);
    for (std::size_t i = 0; i < scenario.versions.size(); ++i) fmt::print("{}: {}\n", i, text_of(scenario.versions[i]));
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("A judge of random megaflows and packets");
    app.require_subcommand(1);
    const auto drawn = [&](CLI::App* command) {
        command->add_option("--seed", options.draw.seed);
        command->add_option("--megaflows", options.draw.megaflows);
        command->add_option("--packets", options.draw.packets);
        command->add_flag("--connectx-5", options.draw.connectx_5, "draw more of what that device takes");
        command->add_option("--wanted", options.draw.wanted, "names of matches and actions to draw more of if short");
        command->add_option("--shapes", options.draw.shapes, "megaflows as dpctl/dump-flows prints them")->required();
        return command;
    };
    const auto judge = [&](const char* name, const char* text) {
        CLI::App* const command = drawn(app.add_subcommand(name, text));
        command->add_option("--format", options.format, "steering format of the NIC");
        command->add_option("--drawn", options.drawn, "file of the packets, which OVS's judge writes and others read");
        command->add_option("verdict", options.verdict, "the judge's file")->required();
        return command;
    };
    drawn(app.add_subcommand("show", "print the megaflows"));
    drawn(app.add_subcommand("forecast", "print the coverage of a NIC that equals OVS"))
        ->add_option("--format", options.format, "steering format of the NIC");
    judge("ovs", "OVS's software datapath");
    judge("soft-nic", "the soft NIC, which the process loads")
        ->add_option("--socket", options.sockets, "of each port's memif");
    judge("entries", "steering entries on the emulated ConnectX")
        ->add_option("--explain", options.explain, "print what entries packet N meets");
    auto* const compare = judge("compare", "the entries' verdict with OVS's, and the soft NIC's with both");
    compare->add_option("--ovs", options.ovs)->required();
    compare->add_option("--soft-nic", options.soft_nic, "its verdict; the other one is the entries'");
    CLI11_PARSE(app, argc, argv);
    try {
        const std::string chosen = app.get_subcommands().front()->get_name();
        if (chosen == "show") return show(options);
        if (chosen == "forecast") return show_forecast(options);
        return chosen == "compare" ? run_compare(options) : run_judge(options, chosen);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 2;
    }
}
