// drgen: a traffic generator on DPDK ports that accounts for each frame.
//
// Exit codes: 0 with a report, 1 without one, 2 when --strict found something lost, duplicated, corrupted or stray.
#include <fmt/format.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tools/drgen/generator.hpp"
#include "tools/drgen/options.hpp"
#include "tools/drgen/ports.hpp"
#include "tools/drgen/report.hpp"

namespace ovsdr::drgen {
namespace {

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler stores to it

void stop_on_signals() {
    struct sigaction action {};
    action.sa_handler = [](int) { stop.store(true, std::memory_order_relaxed); };
    action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second Ctrl-C ends it without a report
    (void)sigaction(SIGINT, &action, nullptr);
    (void)sigaction(SIGTERM, &action, nullptr);
}

void write_json(const nlohmann::json& report, const std::string& file) {
    const std::string text = report.dump(2) + '\n';
    std::FILE* stream = file == "-" ? stdout : std::fopen(file.c_str(), "w");
    const bool good = stream != nullptr && std::fputs(text.c_str(), stream) >= 0;
    const int error = errno;
    if (stream != nullptr && stream != stdout && std::fclose(stream) != 0)
        throw OptionError(fmt::format("--json {}: {}", file, std::strerror(errno)));
    if (!good) throw OptionError(fmt::format("--json {}: {}", file, std::strerror(error)));
}

int run(int argc, char** argv) {
    const Options options = parse_options(argc, argv);
    Ports ports(options);
    stop_on_signals();
    Generator generator(options, ports);
    generator.run(stop);
    const nlohmann::json report = report_json(options, generator);
    if (options.json != "-") fmt::print("{}", report_text(report));
    if (!options.json.empty()) write_json(report, options.json);
    return options.strict && !is_clean(report) ? 2 : 0;
}

}  // namespace
}  // namespace ovsdr::drgen

int main(int argc, char** argv) {
    try {
        return ovsdr::drgen::run(argc, argv);
    } catch (const std::exception& error) {
        fmt::print(stderr, "drgen: {}\n", error.what());
        return 1;
    }
}
