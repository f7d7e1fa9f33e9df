#include "tools/drgen/report.hpp"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

namespace ovsdr::drgen {
namespace {

using nlohmann::json;

json latency_json(const Histogram& latency) {
    return {{"p50", latency.quantile(0.5)},
            {"p90", latency.quantile(0.9)},
            {"p99", latency.quantile(0.99)},
            {"p99.9", latency.quantile(0.999)},
            {"max", latency.largest()}};
}

json stream_json(const StreamOptions& options, const StreamResult& result, double seconds) {
    json arrivals = json::array();
    for (const Arrival& arrival : result.arrivals) {
        arrivals.push_back({{"port", arrival.port},
                            {"received", arrival.ledger.received()},
                            {"lost", arrival.ledger.lost(result.sent)},
                            {"duplicated", arrival.ledger.duplicated()},
                            {"overtaken", arrival.ledger.overtaken()},
                            {"latency_ns", latency_json(arrival.latency)}});
    }
    return {{"from", options.from},
            {"sent", result.sent},
            {"sent_bytes", result.sent_bytes},
            {"rate", seconds > 0 ? static_cast<double>(result.sent) / seconds : 0.0},
            {"largest_backlog", result.largest_backlog},
            {"arrivals", std::move(arrivals)}};
}

double microseconds(const json& nanoseconds) {
    return nanoseconds.get<double>() / 1000;
}

}  // namespace

json report_json(const Options& options, const Generator& generator) {
    json streams = json::array(), ports = json::array();
    std::uint64_t sent = 0, lost = 0, duplicated = 0, overtaken = 0, corrupted = 0, stray = 0;
    for (std::size_t i = 0; i < generator.streams().size(); ++i) {
        const StreamResult& result = generator.streams()[i];
        streams.push_back(stream_json(options.streams[i], result, generator.seconds()));
        sent += result.sent;
        for (const Arrival& arrival : result.arrivals) {
            lost += arrival.ledger.lost(result.sent);
            duplicated += arrival.ledger.duplicated();
            overtaken += arrival.ledger.overtaken();
        }
    }
    for (std::size_t i = 0; i < generator.ports().size(); ++i) {
        const PortResult& port = generator.ports()[i];
        ports.push_back({{"port", i},
                         {"dpdk", options.ports[i]},
                         {"received", port.received},
                         {"received_bytes", port.received_bytes},
                         {"corrupted", port.corrupted},
                         {"stray", port.stray},
                         {"foreign", port.foreign}});
        corrupted += port.corrupted;
        stray += port.stray;
    }
    return {
        {"seconds", generator.seconds()}, {"sent", sent},           {"lost", lost},   {"duplicated", duplicated},
        {"overtaken", overtaken},         {"corrupted", corrupted}, {"stray", stray}, {"streams", std::move(streams)},
        {"ports", std::move(ports)}};
}

std::string report_text(const json& report) {
    std::string text;
    auto out = std::back_inserter(text);
    std::size_t index = 0;
    for (const json& stream : report["streams"]) {
        fmt::format_to(out, "stream {} from port {}: sent {} ({:.0f} frames/s, at most {} behind)\n", index++,
                       stream["from"].get<unsigned>(), stream["sent"].get<std::uint64_t>(),
                       stream["rate"].get<double>(), stream["largest_backlog"].get<std::uint64_t>());
        for (const json& arrival : stream["arrivals"]) {
            const json& latency = arrival["latency_ns"];
            fmt::format_to(
                out,
                "  at port {}: received {}, lost {}, duplicated {}, overtaken {}; latency in us: p50 {:.1f}, "
                "p90 {:.1f}, p99 {:.1f}, p99.9 {:.1f}, max {:.1f}\n",
                arrival["port"].get<unsigned>(), arrival["received"].get<std::uint64_t>(),
                arrival["lost"].get<std::uint64_t>(), arrival["duplicated"].get<std::uint64_t>(),
                arrival["overtaken"].get<std::uint64_t>(), microseconds(latency["p50"]), microseconds(latency["p90"]),
                microseconds(latency["p99"]), microseconds(latency["p99.9"]), microseconds(latency["max"]));
        }
    }
    for (const json& port : report["ports"]) {
        fmt::format_to(out, "port {} ({}): received {}, corrupted {}, stray {}, foreign {}\n",
                       port["port"].get<unsigned>(), port["dpdk"].get<std::string>(),
                       port["received"].get<std::uint64_t>(), port["corrupted"].get<std::uint64_t>(),
                       port["stray"].get<std::uint64_t>(), port["foreign"].get<std::uint64_t>());
    }
    fmt::format_to(out, "sent {}, lost {}, duplicated {}, overtaken {}, corrupted {}, stray {} in {:.3f} s\n",
                   report["sent"].get<std::uint64_t>(), report["lost"].get<std::uint64_t>(),
                   report["duplicated"].get<std::uint64_t>(), report["overtaken"].get<std::uint64_t>(),
                   report["corrupted"].get<std::uint64_t>(), report["stray"].get<std::uint64_t>(),
                   report["seconds"].get<double>());
    return text;
}

bool is_clean(const json& report) {
    return report["lost"] == 0 && report["duplicated"] == 0 && report["corrupted"] == 0 && report["stray"] == 0;
}

}  // namespace ovsdr::drgen
