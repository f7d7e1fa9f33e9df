// drcollect: collects what mirrors of switches send, and checks files that it wrote.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "tools/drcollect/scan.hpp"
#include "tools/drcollect/server.hpp"

namespace ovsdr::drcollect {
namespace {

constexpr const char* default_control = "/run/ovs-dr/drcollect.sock";

struct Options {
    std::string listen, device = "mlx5_0", folder = ".", control = default_control, durability = "synced";
    int gid_index = -1;
    std::uint32_t ib_port = 1;
    std::uint64_t rotate_size = 1024, rotate_age = 0, largest_ring = 256, memory = 1024;
    bool strip = false, plain = false;
    std::string private_key, certificate, ca_certificate;
    std::vector<std::string> files;
    bool prometheus = false, json = false;
};

int stop_event = -1;

void ask_to_stop(int) noexcept {
    const int error = errno;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = write(stop_event, &one, sizeof one);
    errno = error;
}

void catch_signals() {
    stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop_event < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    struct sigaction action {};
    action.sa_handler = ask_to_stop;
    action.sa_flags = static_cast<int>(SA_RESETHAND);   // the second one ends it as ever
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
    signal(SIGPIPE, SIG_IGN);
}

/// HOST:PORT, [HOST]:PORT; a host is always named.
std::pair<std::string, std::string> address_of(const std::string& text) {
    const std::size_t colon = text.rfind(':');
    std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    if (host.empty() || colon + 1 == text.size()) throw std::runtime_error(text + ": not HOST:PORT");
    return {host, text.substr(colon + 1)};
}

/// For whoever watches; a service's log is left alone.
void show_progress(const Counters& counters) {
    if (isatty(STDERR_FILENO) == 0) return;
    std::uint64_t segments = 0, frames = 0, bytes = 0, dropped = 0, connected = 0;
    for (const auto& session : counters.json().at("sessions")) {
        segments += session.at("segments").get<std::uint64_t>();
        frames += session.at("frames").get<std::uint64_t>();
        bytes += session.at("bytes").get<std::uint64_t>();
        dropped += session.at("dropped").get<std::uint64_t>();
        connected += session.at("connected").get<bool>() ? 1 : 0;
    }
    fmt::print(stderr, "\r{} connected, {} segments, {} frames, {:.1f} MB, {} dropped by the switch ", connected,
               segments, frames, static_cast<double>(bytes) / 1e6, dropped);
}

/// None: --plain. Whoever listens says which of the two it is.
std::optional<mirror::TlsFiles> tls_of(const Options& options) {
    const std::pair<const char*, const std::string&> files[] = {{"--private-key", options.private_key},
                                                                {"--certificate", options.certificate},
                                                                {"--ca-cert", options.ca_certificate}};
    std::string missing;
    std::size_t there = 0;
    for (const auto& [option, value] : files) {
        if (!value.empty()) ++there;
        else missing += (missing.empty() ? "" : ", ") + std::string(option);
    }
    if (options.plain && there > 0) throw std::runtime_error("--plain: not with files for TLS");
    if (options.plain) return std::nullopt;
    if (there == 0) {
        throw std::runtime_error("--private-key, --certificate and --ca-cert for TLS, or --plain for a network that "
                                 "only switches are in: one of the two is needed");
    }
    if (there < std::size(files)) throw std::runtime_error("for TLS these are needed too: " + missing);
    mirror::TlsFiles tls{options.private_key, options.certificate, options.ca_certificate};
    // Now, and not when the first switch comes.
    if (const auto read = mirror::TlsFilter::create(tls, mirror::TlsRole::server); !read) {
        throw std::runtime_error(read.error().what);
    }
    return tls;
}

void collect(const Options& options) {
    if (options.memory < options.largest_ring) {
        throw std::runtime_error(fmt::format("--memory {}: a ring of --largest-ring {} has no room in it",
                                             options.memory, options.largest_ring));
    }
    const auto [host, port] = address_of(options.listen);
    auto tls = tls_of(options);
    catch_signals();
    auto device = dr::Device::open(options.device);
    if (!device) throw std::runtime_error(device.error().what);
    ServerSpec spec{.host = host,
                    .port = port,
                    .control_socket = options.control,
                    .tls = std::move(tls),
                    .session = {.device = *device}};
    spec.session.address = {options.ib_port, options.gid_index};
    spec.session.folder = options.folder;
    spec.session.keep_fields = !options.strip;
    spec.session.largest_ring = options.largest_ring << 20;
    spec.memory = options.memory << 20;
    spec.session.limits = {.size = options.rotate_size << 20,
                           .age = std::chrono::seconds(options.rotate_age),
                           .durability = options.durability == "synced" ? mirror::Durability::synced
                                                                        : mirror::Durability::written};
    Server server(std::move(spec));
    fmt::print(stderr, "listening at {} port {}; files go to {}; acknowledged segments are {}\n", host, server.port(),
               options.folder, options.durability);
    server.run(stop_event, show_progress);
    fmt::print(stderr, "\n{}", table_of(server.counters().json()));
}

/// Files of a session, of those that were named: whether each begins where the one before it ends. True: they do.
bool verify_order(std::vector<std::pair<std::string, Scan>> files) {
    std::ranges::stable_sort(files, {}, [](const auto& file) {
        return std::tuple(file.second.beginning->session, file.second.beginning->first, file.second.next);
    });
    bool sound = true;
    for (std::size_t i = 1; i < files.size(); ++i) {
        const auto& [name, found] = files[i];
        const auto& [name_before, before] = files[i - 1];
        if (found.beginning->session != before.beginning->session || found.beginning->first == before.next) continue;
        sound = false;
        if (found.beginning->first > before.next) {
            fmt::print("{}: {} segments are missing between {} and this file\n", name,
                       found.beginning->first - before.next, name_before);
        } else {
            fmt::print("{}: {} has its segments from {} to {} too\n", name, name_before, found.beginning->first,
                       std::min(before.next, found.next) - 1);
        }
    }
    return sound;
}

/// 0: sound; 1: not.
int verify(const Options& options) {
    bool sound = true;
    std::vector<std::pair<std::string, Scan>> readable;
    for (const std::string& file : options.files) {
        Scan found = scan(file);
        for (const Finding& finding : found.findings) {
            fmt::print("{}: segment {}, byte {} of the file: {}\n", file, finding.segment, finding.file_offset,
                       finding.what);
        }
        if (found.faults > found.findings.size()) {
            fmt::print("{}: {} more\n", file, found.faults - found.findings.size());
        }
        fmt::print("{}: {}: {} segments, {} frames, {} blocks checked, {} segments without fields (by CRC-32C only), "
                   "{} frames dropped by the switch, {} segments missing{}\n",
                   file, found.sound() ? "sound" : "NOT SOUND", found.segments, found.frames, found.blocks,
                   found.unprotected, found.dropped, found.gaps, found.has_statistics ? "" : ", not closed");
        sound = sound && found.sound();
        // One without a segment is passed over: another session setting may have followed at once.
        if (found.beginning && found.next > found.beginning->first) readable.emplace_back(file, std::move(found));
    }
    sound = verify_order(std::move(readable)) && sound;
    return sound ? 0 : 1;
}

void stats(const Options& options) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (options.control.size() >= sizeof address.sun_path) throw std::runtime_error(options.control + ": too long");
    options.control.copy(address.sun_path, options.control.size());
    const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0 || connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        const int code = errno;
        if (descriptor >= 0) close(descriptor);
        throw std::runtime_error(fmt::format("{}: {}", options.control, std::strerror(code)));
    }
    std::string text;
    char buffer[4096];
    for (ssize_t size = 0; (size = read(descriptor, buffer, sizeof buffer)) > 0;) {
        text.append(buffer, static_cast<std::size_t>(size));
    }
    close(descriptor);
    const auto counters = nlohmann::json::parse(text);
    std::cout << (options.json         ? counters.dump(2) + "\n"
                  : options.prometheus ? prometheus_of(counters)
                                       : table_of(counters));
}

void describe(CLI::App& app, Options& options) {
    app.require_subcommand(1);
    CLI::App* run = app.add_subcommand("run", "listen for switches and write what their mirrors send, until a signal");
    run->add_option("--listen", options.listen, "HOST:PORT to listen at, and nowhere else")->required();
    run->add_option("--private-key", options.private_key, "PEM file: the collector's private key, for TLS");
    run->add_option("--certificate", options.certificate, "PEM file: its certificate");
    run->add_option("--ca-cert", options.ca_certificate, "PEM file: who has to have signed the switches' certificates");
    run->add_flag("--plain", options.plain, "no TLS: whoever reaches the port can send, and read what is sent");
    run->add_option("--device", options.device, "RDMA device")->capture_default_str();
    run->add_option("--ib-port", options.ib_port, "its port")->capture_default_str();
    run->add_option("--gid-index", options.gid_index, "its address; -1: the first RoCEv2 one that is not link-local")
        ->capture_default_str();
    run->add_option("--folder", options.folder, "where files go")->check(CLI::ExistingDirectory)->capture_default_str();
    run->add_option("--rotate-size", options.rotate_size, "MiB after which a file is followed by another; 0: never")
        ->check(CLI::Range(0, 1 << 24))
        ->capture_default_str();
    run->add_option("--rotate-seconds", options.rotate_age, "seconds after which it is; 0: never")
        ->capture_default_str();
    run->add_option("--largest-ring", options.largest_ring, "MiB of memory that a switch may ask for")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    run->add_option("--memory", options.memory, "MiB of memory for the rings of all switches together")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    run->add_option("--durability", options.durability,
                    "of what is acknowledged. synced: on the disk; written: with the kernel, which survives this "
                    "process and not the machine")
        ->check(CLI::IsMember({"synced", "written"}))
        ->capture_default_str();
    run->add_flag("--strip", options.strip, "keep no signature fields; verify has a CRC-32C per segment then");
    CLI::App* check = app.add_subcommand("verify", "check files: each block's field, each segment's place");
    check->add_option("FILE", options.files, "files that drcollect wrote")->required();
    CLI::App* show = app.add_subcommand("stats", "what a running collector has counted");
    show->add_flag("--prometheus", options.prometheus, "as Prometheus reads it");
    show->add_flag("--json", options.json, "as JSON");
    for (CLI::App* command : {run, show}) {
        command->add_option("--control", options.control, "control socket")->capture_default_str();
    }
}

}  // namespace
}  // namespace ovsdr::drcollect

int main(int argc, char** argv) {
    using namespace ovsdr::drcollect;
    Options options;
    CLI::App app("Collects what mirrors of switches send, and checks files that it wrote.");
    describe(app, options);
    CLI11_PARSE(app, argc, argv);
    try {
        if (app.got_subcommand("verify")) return verify(options);
        if (app.got_subcommand("stats")) {
            stats(options);
        } else {
            collect(options);
        }
    } catch (const std::exception& error) {
        fmt::print(stderr, "drcollect: {}\n", error.what());
        return 2;
    }
    return 0;
}
