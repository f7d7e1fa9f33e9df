#include "tools/drgen/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

namespace ovsdr::drgen {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (;;) {
        const auto end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) return parts;
        text.remove_prefix(end + 1);
    }
}

std::optional<unsigned long> number(std::string_view text, int base = 10) {
    unsigned long value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
}

// The value for stream `index` of an option that is given once for all streams or once for each.
template <typename T>
std::optional<T> value_for(const std::vector<T>& values, std::size_t index, std::size_t streams, const char* option) {
    if (values.empty()) return std::nullopt;
    if (values.size() == 1) return values.front();
    if (values.size() != streams) {
        throw OptionError(fmt::format("{}: given {} times; once for all streams or once for each of the {}", option,
                                      values.size(), streams));
    }
    return values[index];
}

struct StreamTexts {
    std::vector<std::string> streams, sources, destinations, vlans;
};

void complete(Options& options, const StreamTexts& texts) {
    if (texts.streams.size() > 255) throw OptionError("--stream: more than 255 streams");
    for (std::size_t i = 0; i < texts.streams.size(); ++i) {
        const std::size_t all = texts.streams.size();
        StreamOptions stream = parse_stream(texts.streams[i], options.ports.size());
        stream.source = {0x02, 0xd6, 0x00, 0x00, static_cast<std::uint8_t>(i), 0x01};
        stream.destination = {0x02, 0xd6, 0x00, 0x00, static_cast<std::uint8_t>(i), 0x02};
        if (auto text = value_for(texts.sources, i, all, "--src-mac")) stream.source = parse_mac(*text, "--src-mac");
        if (auto text = value_for(texts.destinations, i, all, "--dst-mac")) {
            stream.destination = parse_mac(*text, "--dst-mac");
        }
        if (auto text = value_for(texts.vlans, i, all, "--vlan")) stream.vlans = parse_vlans(*text);
        for (const std::size_t size : options.sizes) {
            if (size >= smallest_size(stream.vlans.size())) continue;
            throw OptionError(fmt::format("--size: {} is too small for {} VLAN tags; the least is {}", size,
                                          stream.vlans.size(), smallest_size(stream.vlans.size())));
        }
        options.streams.push_back(std::move(stream));
    }
    if (options.duration <= 0 && options.count == 0) {
        throw OptionError("--duration: 0 without --count would never end; give one of them");
    }
    const double frames = options.count > 0 ? static_cast<double>(options.count) : options.duration * options.rate;
    if (frames > 4e9)
        throw OptionError(fmt::format("--count, --rate: {:.0f} frames a stream; the most are 4000000000", frames));
}

}  // namespace

std::vector<std::size_t> parse_sizes(const std::string& text) {
    // IMIX: 7 small, 4 medium, 1 large; 64, 594 and 1518 bytes with FCS.
    if (text == "imix") return {60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60};
    std::vector<std::size_t> sizes;
    for (const std::string_view part : split(text, ',')) {
        const auto size = number(part);
        if (!size || *size < smallest_frame || *size > largest_frame) {
            throw OptionError(
                fmt::format("--size: \"{}\" is not a frame's size: {} to {} bytes without FCS, a list of them, "
                            "or imix",
                            part, smallest_frame, largest_frame));
        }
        sizes.push_back(*size);
    }
    return sizes;
}

StreamOptions parse_stream(const std::string& text, std::size_t port_count) {
    const auto fail = [&] {
        return OptionError(
            fmt::format("--stream: \"{}\" is not FROM:TO[,TO…] with ports 0 to {} (\"0:1\", \"0:1,2\", or "
                        "\"0:\" for frames that should arrive nowhere)",
                        text, port_count - 1));
    };
    const auto parts = split(text, ':');
    if (parts.size() != 2) throw fail();
    const auto port = [&](std::string_view part) {
        const auto index = number(part);
        if (!index || *index >= port_count) throw fail();
        return static_cast<unsigned>(*index);
    };
    StreamOptions stream{};
    stream.from = port(parts[0]);
    if (parts[1].empty()) return stream;
    for (const std::string_view part : split(parts[1], ',')) stream.to.push_back(port(part));
    return stream;
}

MacAddress parse_mac(const std::string& text, const std::string& option) {
    const auto parts = split(text, ':');
    MacAddress mac{};
    bool good = parts.size() == mac.size();
    for (std::size_t i = 0; good && i < mac.size(); ++i) {
        const auto byte = number(parts[i], 16);
        good = byte && parts[i].size() == 2;
        if (good) mac[i] = static_cast<std::uint8_t>(*byte);
    }
    if (!good)
        throw OptionError(fmt::format("{}: \"{}\" is not a MAC address such as 02:00:00:00:00:01", option, text));
    return mac;
}

std::vector<std::uint16_t> parse_vlans(const std::string& text) {
    std::vector<std::uint16_t> vlans;
    for (const std::string_view part : split(text, ',')) {
        const auto id = number(part);
        if (!id || *id > 4095 || vlans.size() == 2) {
            throw OptionError(
                fmt::format("--vlan: \"{}\" is not a VLAN number (0 to 4095), or two of them, outer first: "
                            "100 or 200,100",
                            text));
        }
        vlans.push_back(static_cast<std::uint16_t>(*id));
    }
    return vlans;
}

Options parse_options(int argc, char** argv) {
    Options options;
    StreamTexts texts;
    std::string sizes = "60";
    CLI::App app("Sends frames on DPDK ports and accounts for each of them where it should arrive.", "drgen");
    app.add_option("--port", options.ports, "DPDK device arguments, repeated: ports 0, 1, …: net_af_packet,iface=eth0")
        ->required();
    app.add_option("--stream", texts.streams, "FROM:TO[,TO…]: from port FROM, expected at each port TO; repeated")
        ->required();
    app.add_option("--size", sizes, "bytes without FCS, a list used in turn, or imix")->capture_default_str();
    app.add_option("--flows", options.flows, "flows a stream: source addresses and ports")
        ->check(CLI::Range(1U, 16'000'000U))
        ->capture_default_str();
    app.add_option("--vlan", texts.vlans, "VLAN tags, outer first: 100 or 200,100; once, or once a stream");
    app.add_option("--src-mac", texts.sources, "once, or once a stream");
    app.add_option("--dst-mac", texts.destinations, "once, or once a stream");
    app.add_option("--rate", options.rate, "frames per second of each stream, 0: as fast as possible")
        ->check(CLI::Range(0.0, 1e9))
        ->capture_default_str();
    app.add_option("--duration", options.duration, "seconds, 0: until --count")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    app.add_option("--count", options.count, "frames of each stream, 0: until --duration")->capture_default_str();
    app.add_option("--drain-ms", options.drain_ms, "how long late frames are waited for")
        ->check(CLI::Range(0U, 600'000U))
        ->capture_default_str();
    app.add_option("--nap-us", options.nap_us, "sleep when nothing is due; costs precision")
        ->check(CLI::Range(0U, 100'000U))
        ->capture_default_str();
    app.add_option("--memory-mb", options.memory_mb, "packet memory")
        ->check(CLI::Range(64U, 65'536U))
        ->capture_default_str();
    app.add_option("--cpu", options.cpu, "run on this CPU")->check(CLI::Range(0, 1023));
    app.add_option("--json", options.json, "report for programs: a file, or - for stdout");
    app.add_flag("--strict", options.strict, "exit with 2 if anything is lost, duplicated, corrupted or stray");
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp& help) {
        std::exit(app.exit(help));
    } catch (const CLI::ParseError& error) {
        throw OptionError(error.what());
    }
    options.sizes = parse_sizes(sizes);
    if (options.count > 0 && app.count("--duration") == 0) options.duration = 0;
    complete(options, texts);
    return options;
}

}  // namespace ovsdr::drgen
