// One judge of random megaflows and packets, or the comparison of two verdicts; tests/differential/megaflows runs it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tests/differential/judge/compare.hpp"
#include "tests/differential/judge/coverage.hpp"
#include "tests/differential/judge/judges.hpp"

using namespace ovsdr::differential;

namespace {

struct Options {
    std::uint64_t seed = 1;
    std::size_t megaflows = 5000, packets = 200000;
    std::string verdict, ovs, other;
    std::vector<std::string> sockets;
    std::vector<std::uint32_t> explain;
    unsigned format = 1;
};

Scenario scenario_of(const Options& options) {
    Scenario scenario;
    scenario.megaflows = make_megaflows(options.seed, options.megaflows);
    scenario.packets = make_packets(options.seed, options.packets, scenario.megaflows);
    return scenario;
}

/// Prints what is different, and then one line: the figures.
int report(const Options& options, const Verdict& nic, const std::vector<std::string>& differences) {
    const Figures figures = figures_of(nic);
    for (const std::string& line : differences) std::puts(line.c_str());
    fmt::print("{} of {} megaflows installed; {} of {} packets forwarded by them, in {} copies, {} went up; {}\n",
               figures.installed, options.megaflows, figures.taken, options.packets, figures.copies, figures.up,
               differences.empty() ? "equal" : "DIFFERENT");
    return differences.empty() ? 0 : 1;
}

int run_compare(const Options& options) {
    const Scenario scenario = scenario_of(options);
    const Verdict verdict = Verdict::read(options.verdict);
    const Subject nic{verdict, options.format};
    const Verdict ovs = Verdict::read(options.ovs);
    if (options.other.empty()) return report(options, verdict, compare_with_ovs(scenario, nic, ovs));
    const Verdict other = Verdict::read(options.other);
    return report(options, verdict, compare_nics(scenario, nic, {other, options.format}, ovs));
}

int show(const Options& options) {
    for (const Megaflow& megaflow : scenario_of(options).megaflows) {
        fmt::print("{} actions:{}\n", match_text(megaflow), megaflow.actions.empty() ? "drop" : actions_text(megaflow));
    }
    return 0;
}

int show_coverage(const Options& options) {
    const auto megaflows = make_megaflows(options.seed, options.megaflows);
    for (const auto& [name, covered] : coverage_of(megaflows, Verdict::read(options.verdict))) {
        fmt::print("{:6} of {:6} {}\n", covered.installed, covered.drawn, name);
    }
    return 0;
}

int run_judge(const Options& options, const std::string& judge) {
    const Scenario scenario = scenario_of(options);
    const OvsJudge ovs(scenario.megaflows);
    Verdict verdict;
    if (judge == "ovs") verdict = ovs.judge(scenario);
    if (judge == "soft-nic") verdict = judge_by_soft_nic(scenario, ovs.translated(), options.sockets);
    if (judge == "entries") verdict = judge_by_entries(scenario, ovs.translated(), options.explain);
    verdict.write(options.verdict);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("A judge of random megaflows and packets");
    app.require_subcommand(1);
    const auto sized = [&](CLI::App* command) {
        command->add_option("--seed", options.seed);
        command->add_option("--megaflows", options.megaflows);
        command->add_option("--packets", options.packets);
        return command;
    };
    const auto common = [&](CLI::App* command) {
        sized(command)->add_option("verdict", options.verdict, "the judge's file")->required();
        return command;
    };
    sized(app.add_subcommand("show", "print the megaflows"));
    common(app.add_subcommand("ovs", "OVS's software datapath"));
    common(app.add_subcommand("soft-nic", "the soft NIC, which the process loads"))
        ->add_option("--socket", options.sockets, "of each port's memif");
    common(app.add_subcommand("entries", "steering entries on the emulated ConnectX"))
        ->add_option("--explain", options.explain, "print what entries packet N meets");
    common(app.add_subcommand("coverage", "megaflows that a NIC took, by match and by action"));
    auto* const compare = common(app.add_subcommand("compare", "a NIC's verdict with OVS's or another NIC's"));
    compare->add_option("--ovs", options.ovs)->required();
    compare->add_option("--soft-nic", options.other);
    compare->add_option("--format", options.format, "steering format of the NIC");
    CLI11_PARSE(app, argc, argv);
    try {
        const std::string chosen = app.get_subcommands().front()->get_name();
        if (chosen == "show") return show(options);
        if (chosen == "coverage") return show_coverage(options);
        return chosen == "compare" ? run_compare(options) : run_judge(options, chosen);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 2;
    }
}
