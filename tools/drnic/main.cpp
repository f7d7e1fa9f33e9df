// drnic: shows and changes the soft NIC of a running process.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/drnic/capture.hpp"
#include "tools/drnic/client.hpp"
#include "tools/drnic/tables.hpp"

namespace ovsdr::drnic {
namespace {

using nlohmann::json;

struct Options {
    std::string socket = default_socket();
    bool as_json = false;
    std::vector<std::string> dpdk, limits;
    std::string device, name, mac, link, call, error;
    std::uint64_t vport = 0, nth = 1, queue = 0, worker = 0;
    std::optional<std::uint64_t> mtu, lag_port;
    bool disarm = false, save = false;
};

json with_device(json request, const Options& options) {
    if (!options.device.empty()) request["device"] = options.device;
    return request;
}

json add_request(const Options& options) {
    json port{{"vport", options.vport}, {"dpdk", options.dpdk}};
    if (options.dpdk.size() == 1) port["dpdk"] = options.dpdk.front();
    if (!options.name.empty()) port["name"] = options.name;
    if (!options.mac.empty()) port["mac"] = options.mac;
    if (options.mtu) port["mtu"] = *options.mtu;
    return with_device({{"command", "add"}, {"port", port}, {"save", options.save}}, options);
}

json del_request(const Options& options) {
    return with_device({{"command", "del"}, {"vport", options.vport}, {"save", options.save}}, options);
}

json set_request(const Options& options) {
    json request{{"command", "set"}, {"vport", options.vport}};
    if (!options.link.empty()) request["link"] = options.link;
    if (!options.mac.empty()) request["mac"] = options.mac;
    if (options.mtu) request["mtu"] = *options.mtu;
    return with_device(request, options);
}

json move_request(const Options& options) {
    json request{{"command", "move"}, {"vport", options.vport}, {"queue", options.queue}, {"worker", options.worker}};
    if (options.lag_port) request["port"] = *options.lag_port;
    return with_device(std::move(request), options);
}

/// Of RESOURCE=NUMBER and RESOURCE=none.
json limits_request(const Options& options) {
    json wanted = json::object();
    for (const std::string& limit : options.limits) {
        const std::size_t at = limit.find('=');
        const std::string name = limit.substr(0, at), most = at == std::string::npos ? "" : limit.substr(at + 1);
        const bool number = !most.empty() && most.size() < 11 && most.find_first_not_of("0123456789") == most.npos;
        if (!number && most != "none") throw std::invalid_argument(limit + " is not RESOURCE=NUMBER or RESOURCE=none");
        wanted[name] = number ? json(std::stoull(most)) : json();
    }
    json request{{"command", "limits"}};
    if (!wanted.empty()) request["set"] = std::move(wanted);
    return with_device(std::move(request), options);
}

json fault_request(const Options& options) {
    const bool number = options.error.find_first_not_of("0123456789") == std::string::npos && options.error.size() < 9;
    const json error = number ? json(std::stoul(options.error)) : json(options.error);
    return {{"command", "fault"}, {"call", options.call}, {"errno", error}, {"nth", options.nth}};
}

void show(const Options& options, const json& question, std::string (*table)(const json&)) {
    const json answer = request(options.socket, question);
    fmt::print("{}", options.as_json ? answer.dump(2) + '\n' : table(answer));
}

// For what changes the NIC: says which file was written, if any.
void change(const Options& options, const json& wanted) {
    const json answer = request(options.socket, wanted);
    if (answer.contains("saved")) fmt::print("saved in {}\n", answer["saved"].get<std::string>());
}

/// Help whose usage line names the options that must be given.
class Help : public CLI::Formatter {
public:
    std::string make_usage(const CLI::App* app, std::string name) const override {
        std::string usage = CLI::Formatter::make_usage(app, std::move(name)), required;
        for (const CLI::Option* option : app->get_options()) {
            if (option->get_required() && !option->get_positional()) {
                required += fmt::format(" {} {}", option->get_name(), option->get_type_name());
            }
        }
        const std::string_view options = "[OPTIONS]";
        const auto at = usage.find(options);
        return at == std::string::npos ? usage : usage.insert(at + options.size(), required);
    }
};

void describe(CLI::App& app, Options& options) {
    app.require_subcommand(1);
    app.formatter(std::make_shared<Help>());   // subcommands inherit it
    app.add_option("--socket", options.socket, "control socket of the NIC")->capture_default_str();
    const auto device = [&](CLI::App* command) {
        command->add_option("--device", options.device, "device, where there are several: mlx5_0");
        command->add_option("vport,--vport", options.vport, "1 to 65279 for a VF, 65535 for the uplink")->required();
    };
    const auto save = [&](CLI::App* command) {
        command->add_flag("--save", options.save,
                          "write this, and what else was added and removed, into the configuration file");
    };

    CLI::App* list = app.add_subcommand("list", "devices and their vports");
    list->add_flag("--json", options.as_json, "for programs");
    list->callback([&] { show(options, {{"command", "list"}}, list_table); });

    CLI::App* stats = app.add_subcommand("stats", "counters of vports, drops, co-tenants and workers");
    stats->add_flag("--json", options.as_json, "for programs");
    stats->callback([&] { show(options, {{"command", "stats"}}, stats_table); });

    CLI::App* add = app.add_subcommand("add", "add a vport, until the process ends or, saved, for good");
    device(add);
    add->add_option("--dpdk", options.dpdk, "DPDK device arguments: net_af_packet,iface=vm1; of an uplink in LAG twice")
        ->required()->type_name("ARGUMENTS");
    add->add_option("--name", options.name, "what people call it");
    add->add_option("--mac", options.mac, "02:00:00:00:00:01");
    add->add_option("--mtu", options.mtu, "68 to 9978");
    save(add);
    add->callback([&] { change(options, add_request(options)); });

    CLI::App* del = app.add_subcommand("del", "remove a vport");
    device(del);
    save(del);
    del->callback([&] { change(options, del_request(options)); });

    CLI::App* saved =
        app.add_subcommand("save", "write vports that were added and removed into the configuration file");
    saved->callback([&] { change(options, {{"command", "save"}}); });

    CLI::App* set = app.add_subcommand("set", "change a vport");
    device(set);
    set->add_option("--link", options.link, "administrative state: up or down");
    set->add_option("--mac", options.mac, "02:00:00:00:00:01");
    set->add_option("--mtu", options.mtu, "68 to 9978");
    set->callback([&] { (void)request(options.socket, set_request(options)); });

    CLI::App* move =
        app.add_subcommand("move", "have another worker poll a receive queue; drnic stats shows who polls what");
    device(move);
    move->add_option("queue,--queue", options.queue, "which of the port's receive queues, from 0")->required();
    move->add_option("worker,--worker", options.worker, "from 0")->required();
    move->add_option("--port", options.lag_port, "of an uplink in LAG: 1 or 2");
    move->callback([&] { (void)request(options.socket, move_request(options)); });

    CLI::App* limits = app.add_subcommand("limits", "what devices have room for, and how much of it is taken");
    limits->add_option("--device", options.device, "device, where there are several: mlx5_0");
    limits->add_option("LIMIT", options.limits, "new ones, until the process ends: rules=1000 tables=none");
    limits->add_flag("--json", options.as_json, "for programs");
    limits->callback([&] { show(options, limits_request(options), limits_table); });

    describe_capture(app, options.socket);

    CLI::App* fault = app.add_subcommand("fault", "make the Nth next call of a function, or work request, fail");
    fault->add_option("CALL", options.call, "function: ibv_create_qp_ex; drnic faults lists them")->required();
    fault->add_option("ERRNO", options.error, "ENOMEM, or a number")->required();
    fault->add_option("N", options.nth, "1 is the next call")->capture_default_str();
    fault->callback([&] { (void)request(options.socket, fault_request(options)); });

    CLI::App* faults = app.add_subcommand("faults", "calls that can be made to fail, and the faults that are armed");
    faults->add_flag("--disarm", options.disarm, "forget those that are armed");
    faults->add_flag("--json", options.as_json, "for programs");
    faults->callback([&] { show(options, {{"command", "faults"}, {"disarm", options.disarm}}, faults_table); });
}

}  // namespace
}  // namespace ovsdr::drnic

int main(int argc, char** argv) {
    CLI::App app("Shows and changes the soft NIC of a running process.", "drnic");
    ovsdr::drnic::Options options;
    ovsdr::drnic::describe(app, options);
    try {
        app.parse(argc, argv);
        return 0;
    } catch (const CLI::ParseError& error) {
        return app.exit(error);
    } catch (const std::exception& error) {
        fmt::print(stderr, "drnic: {}\n", error.what());
        return 1;
    }
}
