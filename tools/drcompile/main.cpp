// drcompile: says what a NIC would make of megaflows that `dpctl/dump-flows` printed, without a switch or a NIC.
//
// Exit codes: 0 all lines were understood, 1 some were not, nothing could be read, or a --mirror is in no line.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "offload/dr/device/device.hpp"
#include "tools/drcompile/profiles.hpp"
#include "tools/drcompile/report.hpp"

namespace ovsdr::drcompile {
namespace {

struct Options {
    std::string profile = "cx6dx";
    std::vector<std::string> files, ports, uplinks, others, mirrors;
    std::vector<std::uint32_t> meters;
    int vlan_limit = 1;
    bool summary = false, as_json = false;
};

constexpr const char* description =
    "Prints the DR program of each megaflow, or every reason why it stays in software, without a switch or a NIC.";

constexpr const char* footer =
    R"(The input is what ovs-appctl dpctl/dump-flows prints, with -m or without, with --names or without. Empty lines,
lines that begin with #, and the headings of threads are passed over. A line that is not understood is named on
standard error, with what is wrong with it, and the others go on.

Ports. Which ports are dr ports a dump does not say. Each name or number in it is taken for a vport of its own, counted
from 1 in the order in which they come; "uplink" is the uplink. These are no dr ports, unless --port says so: ports of
tunnels (of tnl_push and tnl_pop; *_sys, *_sys_*), those of bridges (by which tnl_push sends; br-*, br0 to br9*),
ovs-netdev, and the datapath's port 0. The first lines of the output say which port was taken for what.

Tables. A megaflow behind a recirculation is offloaded if one of the input that is offloaded leads there, so give all
that a switch has at one time. Tables get their levels in the order of the input; in a live switch, in the order of the
traffic. Give megaflows of several switches one by one: their recirculations have the same numbers.

Meters. What a meter is a dump does not say either: name with --meter those that a device can have (docs/meters.md).

Each profile is a device as shipped. What is known only of a device at work is not in the answer: room for rules and
counters, and calls that fail.

Examples:
  ovs-appctl dpctl/dump-flows -m --names | drcompile --uplink p0 --other 'tap*'
  drcompile --summary --profile cx5 flows.txt

Exit codes: 0 all lines were understood; 1 some were not, a file cannot be read, or a --mirror is in no line.)";

/// Text that keeps its lines.
class Help : public CLI::Formatter {
public:
    std::string make_footer(const CLI::App* app) const override { return app->get_footer() + "\n"; }
};

void describe(CLI::App& app, Options& options) {
    std::vector<std::string> names;
    for (const Profile& profile : profiles) names.emplace_back(profile.name);
    app.formatter(std::make_shared<Help>());
    app.footer(footer);
    app.add_option("FILE", options.files, "dumps; none, or -, is standard input");
    app.add_option("--profile", options.profile, "the device: cx5, cx6dx, cx7 (ConnectX-5, 6 Dx, 7)")
        ->check(CLI::IsMember(names))->type_name("NAME")->capture_default_str();
    app.add_option("--port", options.ports, "the port NAME (or number) is this vport: 1 to 65279, or uplink; repeated")
        ->type_name("NAME=VPORT")->allow_extra_args(false);
    app.add_option("--uplink", options.uplinks, "the port NAME is the uplink; repeated for dumps of several switches")
        ->type_name("NAME")->allow_extra_args(false);
    app.add_option("--other", options.others, "what a shell's pattern fits is no dr port: 'tap*'; repeated")
        ->type_name("PATTERN")->allow_extra_args(false);
    app.add_option("--mirror", options.mirrors, "the port NAME is a storage mirror (type=drmirror); at most 8 times")
        ->type_name("NAME")->allow_extra_args(false);
    app.add_option("--meter", options.meters, "the datapath's meter N is one that a device can have; repeated")
        ->type_name("N")->allow_extra_args(false);
    app.add_option("--vlan-limit", options.vlan_limit, "the switch's other_config:vlan-limit: 0, 1 or 2")
        ->check(CLI::Range(0, 2))->type_name("N")->capture_default_str();
    app.add_flag("--summary", options.summary, "how many are offloaded, and how many are not for each reason");
    app.add_flag("-j,--json", options.as_json, "for programs");
}

PortWishes wishes_of(const Options& options) {
    PortWishes wishes{{}, options.others, options.mirrors};
    if (wishes.mirrors.size() > dr::max_mirrors) {
        throw std::invalid_argument(fmt::format("--mirror: {} ports, the most is {}", wishes.mirrors.size(),
                                                dr::max_mirrors));
    }
    for (const std::string& name : wishes.mirrors) {
        if (std::ranges::count(wishes.mirrors, name) != 1) {
            throw std::invalid_argument(fmt::format("--mirror: {} is given twice", name));
        }
    }
    std::vector<std::pair<std::string, dr::VportId>> given;
    for (const std::string& text : options.ports) given.push_back(parse_wish(text));
    for (const std::string& name : options.uplinks) given.emplace_back(name, dr::uplink_vport);
    for (const auto& [name, vport] : given) {
        const auto same = [vport = vport](const auto& wish) { return wish.second == vport; };
        if (vport != dr::uplink_vport && std::ranges::any_of(wishes.vports, same)) {
            throw std::invalid_argument(fmt::format("--port: two ports for vport {}", vport.value));
        }
        const bool is_mirror = std::ranges::count(wishes.mirrors, name) != 0;
        if (is_mirror || !wishes.vports.emplace(name, vport).second) {
            throw std::invalid_argument(fmt::format("--port, --uplink, --mirror: {} is given twice", name));
        }
    }
    return wishes;
}

/// False: a file cannot be read.
bool read_all(Input& input, const std::vector<std::string>& files) {
    bool all = true;
    for (const std::string& file : files) {
        try {
            std::ifstream stream;
            if (file != "-") {
                stream.open(file);
                if (!stream) throw std::runtime_error(fmt::format("{}: {}", file, std::strerror(errno)));
            }
            input.read(file == "-" ? std::cin : stream, file == "-" ? "stdin" : file);
        } catch (const std::runtime_error& error) {
            fmt::print(stderr, "drcompile: {}\n", error.what());
            all = false;
        }
    }
    return all;
}

int run(const Options& options) {
    Input input(wishes_of(options), options.vlan_limit);
    const bool all = read_all(input, options.files.empty() ? std::vector<std::string>{"-"} : options.files);
    input.ports().assign();
    const auto profile = std::ranges::find(profiles, options.profile, &Profile::name);
    dr::PortMap map = input.ports().map();
    for (const dr::CopyKind kind : dr::all_copy_kinds) map.lead_copies(kind, true);   // as a daemon does
    for (const std::uint32_t meter : options.meters) map.set_meter(meter, {.serial = 1});
    const auto verdicts = offload_all(input.values(), map, profile->caps);
    const Report report{options.profile, input, verdicts};
    for (const Input::Fault& fault : input.faults()) fmt::print(stderr, "drcompile: {}\n", text_of(fault));
    const std::vector<std::string> unknown = input.ports().unknown_mirrors();
    for (const std::string& name : unknown) {
        fmt::print(stderr, "drcompile: --mirror {}: no megaflow names this port\n", name);
    }
    if (options.as_json) {
        fmt::print("{}\n", json_of(report, !options.summary).dump(2));
    } else {
        fmt::print("{}", ports_text(report));
        fmt::print("{}", options.summary ? summary_text(summary_of(report)) : megaflows_text(report));
    }
    return all && input.faults().empty() && unknown.empty() ? 0 : 1;
}

}  // namespace
}  // namespace ovsdr::drcompile

int main(int argc, char** argv) {
    CLI::App app(ovsdr::drcompile::description, "drcompile");
    ovsdr::drcompile::Options options;
    ovsdr::drcompile::describe(app, options);
    try {
        app.parse(argc, argv);
        return ovsdr::drcompile::run(options);
    } catch (const CLI::ParseError& error) {
        return app.exit(error);
    } catch (const std::exception& error) {
        fmt::print(stderr, "drcompile: {}\n", error.what());
        return 1;
    }
}
