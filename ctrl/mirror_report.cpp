// dr/mirror: what each mirror is, has done and has lost.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "ctrl/mirrors.hpp"
#include "ctrl/port.hpp"

using namespace ovsdr;
using namespace ovsdr::ctrl;
using nlohmann::json;

namespace {

constexpr auto first_bad = mirror::BadKind::guard, last_bad = mirror::BadKind::size;

json json_of(const mirror::SenderStats& stats) {
    json bad = json::object();
    for (auto kind = static_cast<std::size_t>(first_bad); kind <= static_cast<std::size_t>(last_bad); ++kind) {
        bad[mirror::text_of(static_cast<mirror::BadKind>(kind))] = stats.bad[kind];
    }
    return {{"connected", stats.connected},       {"connections", stats.connections},
            {"sealed", stats.sealed},             {"acknowledged", stats.acknowledged},
            {"resent", stats.resent},             {"damaged", stats.damaged},
            {"last_error", stats.last_error},     {"last_bad", stats.last_bad},
            {"collector", stats.collector},       {"problem", stats.tls_fault},
            {"bad", std::move(bad)}};
}

json json_of(const ovsdr_mirror& mirror, const ovsdr_mirror::Queue& queue) {
    json device{{"device", queue.eswitch->device()}, {"error", queue.failure}};
    if (queue.source == nullptr) return device;
    queue.copies->without_work = queue.source->without_work.load();
    const CopyReport report = report_of(*queue.copies);
    device.update({{"copies", report.led},
                   {"taken", report.done},
                   {"lost", report.lost},
                   {"waiting", report.waiting},
                   {"errors", report.errors},
                   {"without_work", report.without_work},
                   {"restarts", report.restarts},
                   {"filtered", queue.eswitch->filtered_copies(mirror.kind())}});
    return device;
}

json json_of(const ovsdr_mirror& mirror) {
    const mirror::MirrorCounts counts = mirror.owner->counts();
    json options = json::object(), devices = json::array();
    for (const auto& [key, value] : mirror.given) options[key] = value;
    for (const auto& queue : mirror.queues) devices.push_back(json_of(mirror, queue));
    json said = json_of(mirror.owner->sender_stats());
    said.update({{"name", mirror.interface},
                 {"kind", dr::name_of(mirror.kind())},
                 {"options", std::move(options)},
                 {"handshake", mirror.options.plain ? "plain" : "TLS"},
                 {"device", mirror.device->name()},
                 {"session", fmt::format("{:016x}", mirror.owner->session_number())},
                 {"frames", counts.taken},
                 {"bytes", counts.taken_bytes},
                 {"dropped", counts.dropped},
                 {"undelivered", counts.undelivered},
                 {"own", counts.own},
                 {"software",
                  {{"frames", counts.software},
                   {"sampled_out", counts.software_passed_over},
                   {"filtered", counts.software_filtered}}},
                 {"not_let_in", mirror.not_let_in},
                 {"not_steered", mirror.refusal},
                 {"devices", std::move(devices)}});
    return said;
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// Members as "key=value", those that are objects or lists left out.
std::string line_of(const json& object, std::initializer_list<const char*> keys) {
    std::string line;
    for (const char* const key : keys) {
        if (object.contains(key)) line += fmt::format("{}{}={}", line.empty() ? "" : " ", key, text_of(object[key]));
    }
    return line;
}

std::string text_of_mirror(const json& mirror) {
    std::string text = fmt::format("{} ({}): {}\n", text_of(mirror["name"]), text_of(mirror["kind"]),
                                   line_of(mirror, {"collector", "handshake", "device", "session", "connected",
                                                    "connections"}));
    std::string options;
    for (const auto& [key, value] : mirror["options"].items()) options += fmt::format(" {}={}", key, text_of(value));
    text += fmt::format("  options:{}\n", options);
    text += fmt::format("  {}\n", line_of(mirror, {"frames", "bytes", "dropped", "undelivered", "damaged", "own"}));
    text += fmt::format("  segments: {}\n", line_of(mirror, {"sealed", "acknowledged", "resent"}));
    std::string bad;
    for (const auto& [kind, count] : mirror["bad"].items()) {
        if (count != 0) bad += fmt::format(" \"{}\"={}", kind, count.dump());
    }
    if (!bad.empty()) text += fmt::format("  bad:{}\n", bad);
    text += fmt::format("  software: {}\n", line_of(mirror["software"], {"frames", "sampled_out", "filtered"}));
    for (const json& device : mirror["devices"]) {
        text += fmt::format("  {}: {}\n", text_of(device["device"]),
                            line_of(device, {"copies", "taken", "filtered", "lost", "waiting", "errors", "without_work",
                                             "restarts"}));
        if (device["error"] != "") text += fmt::format("    in software: {}\n", text_of(device["error"]));
    }
    for (const char* const key : {"problem", "last_error", "last_bad", "not_let_in", "not_steered"}) {
        if (mirror[key] != "") text += fmt::format("  {}: {}\n", key, text_of(mirror[key]));
    }
    return text;
}

}  // namespace

char* ovsdr_report_mirrors(bool as_json) noexcept try {
    json all = json::array();
    mirrors().for_each([&](const ovsdr_mirror& mirror) { all.push_back(json_of(mirror)); });
    if (as_json) return c_string(json{{"mirrors", all}}.dump(2, ' ', false, json::error_handler_t::replace));
    std::string text;
    for (const json& mirror : all) text += text_of_mirror(mirror);
    return c_string(text.empty() ? "there is no interface of type=drmirror\n" : text);
} catch (...) {
    return nullptr;
}
