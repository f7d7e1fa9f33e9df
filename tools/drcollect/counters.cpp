#include "tools/drcollect/counters.hpp"

#include <fmt/format.h>

namespace ovsdr::drcollect {
namespace {

using nlohmann::json;

json bad_of(const SessionCounters& session) {
    json bad = json::object();
    for (std::size_t kind = 1; kind < session.bad.size(); ++kind) {
        bad[text_of(static_cast<mirror::BadKind>(kind))] = session.bad[kind];
    }
    return bad;
}

struct Metric {
    const char* key;
    const char* name;
    const char* type;
    const char* help;
};
constexpr Metric metrics[] = {
    {"connected", "drcollect_connected", "gauge", "1: the switch is connected."},
    {"is_stalled", "drcollect_stalled", "gauge", "1: nothing can be written at the moment."},
    {"segments", "drcollect_segments_total", "counter", "Segments written by this process."},
    {"frames", "drcollect_frames_total", "counter", "Frames written by this process."},
    {"bytes", "drcollect_bytes_total", "counter", "Bytes of segments written by this process."},
    {"dropped", "drcollect_dropped_frames_total", "counter", "Frames that the switch found no room for."},
    {"gap", "drcollect_missing_segments_total", "counter", "Segments that the switch no longer had."},
    {"connections", "drcollect_connections_total", "counter", "Connections of the session."},
    {"damaged_files", "drcollect_damaged_files_total", "counter", "Files with a fault, which were left as they are."},
};

/// A label's value in Prometheus' text format.
std::string label(const std::string& value) {
    std::string escaped;
    for (const char c : value) {
        if (c == '\\' || c == '"') escaped += '\\';
        escaped += c == '\n' ? ' ' : c;
    }
    return escaped;
}

std::string labels_of(const json& session) {
    return fmt::format("mirror=\"{}\",session=\"{}\"", label(session.at("mirror").get<std::string>()),
                       session.at("session").get<std::string>());
}

std::uint64_t number_of(const json& value) {
    return value.is_boolean() ? value.get<bool>() : value.get<std::uint64_t>();
}

}  // namespace

nlohmann::json Counters::json() const {
    const std::lock_guard guard(mutex_);
    nlohmann::json all{{"refused", refused_}, {"last_refused", last_refused_}, {"sessions", nlohmann::json::array()}};
    for (const auto& [number, session] : sessions_) {
        all["sessions"].push_back({{"session", fmt::format("{:016x}", number)},
                                   {"mirror", session.mirror},
                                   {"peer", session.peer},
                                   {"file", session.file},
                                   {"signature", session.signature},
                                   {"connected", session.connected},
                                   {"finished", session.finished},
                                   {"stalled", session.stalled},
                                   {"is_stalled", !session.stalled.empty()},
                                   {"last_error", session.last_error},
                                   {"last_bad", session.last_bad},
                                   {"next", session.next},
                                   {"segments", session.segments},
                                   {"frames", session.frames},
                                   {"bytes", session.bytes},
                                   {"dropped", session.dropped},
                                   {"gap", session.gap},
                                   {"connections", session.connections},
                                   {"damaged_files", session.damaged_files},
                                   {"damaged", session.damaged},
                                   {"bad", bad_of(session)}});
    }
    return all;
}

std::string table_of(const nlohmann::json& counters) {
    std::string text = fmt::format("{:16} {:>16} {:>9} {:>9} {:>11} {:>9} {:>8} {:>5}  {}\n", "mirror", "session",
                                   "state", "segments", "frames", "dropped", "missing", "bad", "file");
    for (const auto& session : counters.at("sessions")) {
        std::uint64_t bad = 0;
        for (const auto& [kind, count] : session.at("bad").items()) bad += count.get<std::uint64_t>();
        const char* const state = session.at("is_stalled").get<bool>()  ? "stalled"
                                  : session.at("connected").get<bool>() ? "connected"
                                  : session.at("finished").get<bool>()  ? "finished"
                                                                        : "away";
        text += fmt::format("{:16} {:>16} {:>9} {:>9} {:>11} {:>9} {:>8} {:>5}  {}\n",
                            session.at("mirror").get<std::string>(), session.at("session").get<std::string>(), state,
                            number_of(session.at("segments")), number_of(session.at("frames")),
                            number_of(session.at("dropped")), number_of(session.at("gap")), bad,
                            session.at("file").get<std::string>());
        for (const char* key : {"stalled", "last_bad", "last_error", "damaged"}) {
            const auto said = session.at(key).get<std::string>();
            if (!said.empty()) text += fmt::format("  {}: {}\n", key, said);
        }
    }
    const auto last = counters.at("last_refused").get<std::string>();
    return text + fmt::format("{} handshakes refused{}{}\n", number_of(counters.at("refused")),
                              last.empty() ? "" : "; the last: ", last);
}

std::string prometheus_of(const nlohmann::json& counters) {
    std::string text = "# HELP drcollect_refused_handshakes_total Connections that were refused.\n"
                       "# TYPE drcollect_refused_handshakes_total counter\n";
    text += fmt::format("drcollect_refused_handshakes_total {}\n", number_of(counters.at("refused")));
    for (const Metric& metric : metrics) {
        text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", metric.name, metric.help, metric.name, metric.type);
        for (const auto& session : counters.at("sessions")) {
            text += fmt::format("{}{{{}}} {}\n", metric.name, labels_of(session), number_of(session.at(metric.key)));
        }
    }
    text += "# HELP drcollect_bad_segments_total Segments that were not what the switch sealed, and were sent again.\n"
            "# TYPE drcollect_bad_segments_total counter\n";
    for (const auto& session : counters.at("sessions")) {
        for (const auto& [kind, count] : session.at("bad").items()) {
            text += fmt::format("drcollect_bad_segments_total{{{},kind=\"{}\"}} {}\n", labels_of(session), kind,
                                number_of(count));
        }
    }
    return text;
}

}  // namespace ovsdr::drcollect
