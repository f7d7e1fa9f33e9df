#include "tools/drnic/capture.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include "common/capture/memory.hpp"
#include "common/pcapng/file.hpp"
#include "tools/drnic/capture_reader.hpp"
#include "tools/drnic/client.hpp"
#include "tools/drnic/packet_filter.hpp"

namespace ovsdr::drnic {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

struct Options {
    std::string port, device, file, direction = "both";
    std::uint64_t count = 0;  ///< 0: no limit
    std::uint32_t snap_length = 65535;
    std::uint64_t buffer = 8192;  ///< KiB
    std::vector<std::string> filter;
};

// How long the rings are left alone. The shorter pause comes after packets.
constexpr std::chrono::milliseconds shortest_pause = 1ms, longest_pause = 16ms;

// How long until it is seen that somebody reads a named pipe.
constexpr std::chrono::milliseconds pipe_pause = 50ms;

// Where packets come faster than they can be written, the rings are never empty: somebody may want the end all the
// same.
constexpr std::uint64_t records_per_turn = 256;

/// Ctrl-C and its like, once; the second one ends the process as ever, also while a write waits for whoever reads. Only
/// one at a time is there.
class StopSignal {
public:
    StopSignal() {
        asked_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (asked_ < 0) throw Failure(fmt::format("eventfd: {}", std::strerror(errno)));
        struct sigaction action {};
        action.sa_handler = ask;
        for (const int signal : signals) {
            struct sigaction before {};
            sigaction(signal, nullptr, &before);
            const bool under_nohup = signal == SIGHUP && before.sa_handler == SIG_IGN;
            if (!under_nohup) sigaction(signal, &action, nullptr);
        }
        signal(SIGPIPE, SIG_IGN);  // whoever reads our output may leave: EPIPE says so
    }
    ~StopSignal() {
        restore_defaults();
        close(asked_);
    }
    StopSignal(const StopSignal&) = delete;
    StopSignal& operator=(const StopSignal&) = delete;

    /// To poll: readable once it has been asked.
    [[nodiscard]] int descriptor() const noexcept { return asked_; }

private:
    static constexpr int signals[] = {SIGINT, SIGTERM, SIGHUP};

    static void restore_defaults() noexcept {
        struct sigaction action {};
        action.sa_handler = SIG_DFL;
        for (const int signal : signals) {
            struct sigaction now {};
            sigaction(signal, nullptr, &now);
            if (now.sa_handler == ask) sigaction(signal, &action, nullptr);
        }
    }

    /// All of it is allowed in a signal handler: signal-safety(7).
    static void ask(int) noexcept {
        const int error = errno;
        restore_defaults();
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = write(asked_, &one, sizeof one);
        errno = error;
    }

    static inline int asked_ = -1;
};

/// Where the file goes: a file of that name, or standard output.
class Output {
public:
    /// Waits until somebody reads, if it is a named pipe, or until `stop` is readable.
    Output(const std::string& name, int stop) : name_(name.empty() || name == "-" ? "standard output" : name) {
        if (name_ == name) {
            descriptor_ = open_file(name, stop);
        } else if (isatty(descriptor_)) {
            throw Failure(
                "a capture is no text for a terminal; use -w FILE, or drnic capture PORT -w - | tcpdump -nr -");
        }
    }
    ~Output() {
        if (descriptor_ != STDOUT_FILENO) close(descriptor_);
    }
    Output(const Output&) = delete;
    Output& operator=(const Output&) = delete;

    [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }

private:
    /// An open() that waits for a pipe's reader would sleep through a signal that came just before it: so it never
    /// waits, and is tried again.
    static int open_file(const std::string& name, int stop) {
        for (;;) {
            const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0600);
            if (file >= 0) {
                fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
                return file;
            }
            const int error = errno;
            std::error_code no_file;
            const bool pipe_without_reader = error == ENXIO && std::filesystem::is_fifo(name, no_file);
            const bool leased = error == EWOULDBLOCK;  // fcntl(2), F_SETLEASE: its owner is asked to give it back
            if (!pipe_without_reader && !leased) throw Failure(fmt::format("{}: {}", name, std::strerror(error)));
            pollfd polled{stop, POLLIN, 0};
            if (poll(&polled, 1, static_cast<int>(pipe_pause.count())) > 0) {
                throw Failure(fmt::format("{}: given up before anybody read it", name));
            }
        }
    }

    std::string name_;
    int descriptor_ = STDOUT_FILENO;
};

/// From the clock of records to the time of day.
class Clock {
public:
    /// Follows a time of day that somebody has set. Less than 1 ms is left alone: times of neighbours must not swap.
    void adjust() noexcept {
        const std::int64_t now = offset();
        if (std::chrono::nanoseconds(std::abs(now - offset_)) > 1ms) offset_ = now;
    }
    [[nodiscard]] std::uint64_t time_of(std::uint64_t record) const noexcept {
        return record + static_cast<std::uint64_t>(offset_);
    }

private:
    static std::int64_t offset() noexcept {
        const auto day = std::chrono::system_clock::now().time_since_epoch() / 1ns;
        return day - static_cast<std::int64_t>(monotonic_now());
    }

    std::int64_t offset_ = offset();
};

json capture_request(const Options& options, const std::string& filter) {
    const bool number = !options.port.empty() && options.port.size() < 9 &&
                        options.port.find_first_not_of("0123456789") == std::string::npos;
    json request{{"command", "capture"},
                 {"port", number ? json(std::stoul(options.port)) : json(options.port)},
                 {"direction", options.direction},
                 {"snap_length", options.snap_length},
                 {"buffer", std::bit_ceil(options.buffer << 10)},
                 {"program", compile_filter(filter, options.snap_length)},
                 {"filter", filter}};
    if (!options.device.empty()) request["device"] = options.device;
    return request;
}

class Capture {
public:
    Capture(const Options& options, const std::string& socket)
        : options_(options),
          filter_(fmt::format("{}", fmt::join(options.filter, " "))),
          request_(capture_request(options, filter_)),
          connection_(socket),
          answer_(start()),
          memory_(connection_.take_descriptor()),
          reader_(memory_),
          output_(options.file, stop_.descriptor()),
          file_(output_.descriptor()) {}

    void run() {
        try {
            write_head();
            follow();
            finish();
        } catch (const std::system_error& error) {
            if (error.code().value() != EPIPE) {
                throw Failure(fmt::format("{}: {}", output_.name(), error.code().message()));
            }
        }
        report();
        if (!end_.empty()) throw Failure(end_);
    }

private:
    [[nodiscard]] json start() {
        json answer;
        try {
            answer = connection_.ask(request_);
        } catch (const Failure& failure) {
            if (std::string_view(failure.what()).starts_with("command: \"capture\" is not")) {
                throw Failure("the running soft NIC is older than this drnic and cannot capture; restart its process");
            }
            throw;
        }
        if (answer.value("layout", 0U) != capture::layout_version) {
            throw Failure(
                "the running soft NIC and this drnic are of different versions; use the one that came with it");
        }
        return answer;
    }

    void write_head() {
        file_.append(pcapng::SectionHeader{.application = "ovs-dr drnic"});
        for (const json& name : answer_.at("interfaces")) {
            names_.push_back(name.get<std::string>());
            file_.append(pcapng::InterfaceDescription{
                .name = names_.back(),
                .description = fmt::format("vport {} of {}", answer_.at("vport").dump(), answer_.value("device", "")),
                .snap_length = options_.snap_length,
                .filter = filter_});
        }
        delivered_.resize(names_.size());
        begin_ = clock_.time_of(monotonic_now());
        file_.flush();
        fmt::print(stderr, "capturing at {}; Ctrl-C ends it\n", fmt::join(names_, ", "));
    }

    /// Until enough has come, somebody ends it, or the NIC does.
    void follow() {
        std::chrono::milliseconds pause = shortest_pause;
        while (!enough()) {
            const std::uint64_t some = write_records(true);
            const bool more = some == records_per_turn;
            if (!more) file_.flush();
            pause = some > 0 ? shortest_pause : std::min(pause * 2, longest_pause);
            if (enough()) break;
            pollfd polled[] = {{stop_.descriptor(), POLLIN, 0}, {connection_.socket(), POLLIN, 0}};
            if (poll(polled, std::size(polled), more ? 0 : static_cast<int>(pause.count())) <= 0) continue;
            if (polled[1].revents != 0) hear();
            break;
        }
    }

    /// The NIC has spoken unasked.
    void hear() {
        try {
            const json line = json::parse(connection_.receive_line(), nullptr, false);
            end_ = line.is_object() ? line.value("ended", "the soft NIC ended the capture")
                                    : "the soft NIC spoke no JSON";
        } catch (const Failure&) {
            end_ = "the soft NIC's process has ended";
        }
    }

    void finish() {
        try {
            (void)connection_.ask({{"command", "capture"}, {"stop", true}});
        } catch (const Failure& failure) {
            if (end_.empty()) end_ = failure.what();  // what is in the rings is good all the same
        }
        while (write_records(false) > 0) {}
        const std::uint64_t end = clock_.time_of(monotonic_now());
        for (unsigned interface = 0; interface < names_.size(); ++interface) {
            const capture::Counts counts = reader_.counts(interface);
            file_.append(pcapng::InterfaceStatistics{.interface = interface, .start = begin_, .end = end,
                                                     .received = counts.seen, .accepted = counts.accepted,
                                                     .dropped = counts.dropped, .delivered = delivered_[interface]});
        }
        file_.flush();
    }

    /// At most records_per_turn; how many there were.
    std::uint64_t write_records(bool packets_still_come) {
        const std::uint64_t before = written_;
        clock_.adjust();
        while (!enough() && written_ - before < records_per_turn) {
            const auto record = reader_.next(packets_still_come);
            if (!record) break;
            const capture::RecordHeader& header = record->header;
            if (header.interface >= names_.size()) throw Failure("a captured packet is of no interface that is there");
            file_.append(pcapng::EnhancedPacket{
                .interface = header.interface,
                .time = clock_.time_of(header.time),
                .bytes = record->bytes,
                .original_size = header.original_size,
                .direction = header.direction == capture::Direction::in ? pcapng::Direction::inbound
                                                                        : pcapng::Direction::outbound});
            ++delivered_[header.interface];
            ++written_;
        }
        return written_ - before;
    }

    [[nodiscard]] bool enough() const noexcept { return options_.count != 0 && written_ >= options_.count; }

    void report() const {
        capture::Counts sum;
        for (unsigned interface = 0; interface < names_.size(); ++interface) {
            const capture::Counts counts = reader_.counts(interface);
            sum.seen += counts.seen;
            sum.accepted += counts.accepted;
            sum.dropped += counts.dropped;
        }
        fmt::print(stderr,
                   "{} packets captured at {}; {} passed by, {} of them through the filter; {} dropped by the "
                   "capture\n",
                   written_, fmt::join(names_, ", "), sum.seen, sum.accepted, sum.dropped);
    }

    const Options& options_;
    const std::string filter_;
    const json request_;
    StopSignal stop_;
    Connection connection_;
    const json answer_;
    capture::Memory memory_;
    CaptureReader reader_;
    Output output_;
    pcapng::File file_;
    Clock clock_;
    std::vector<std::string> names_;
    std::vector<std::uint64_t> delivered_;  ///< per interface
    std::uint64_t begin_ = 0, written_ = 0;
    std::string end_;  ///< why it ended, where neither the user nor --count did it
};

}  // namespace

void describe_capture(CLI::App& app, const std::string& socket) {
    CLI::App* command =
        app.add_subcommand("capture", "write what passes a vport, offloaded packets too, into a pcapng file");
    const auto options = std::make_shared<Options>();
    command->add_option("PORT", options->port, "a vport's number or name, or uplink")->required();
    command->add_option("FILTER", options->filter, "as tcpdump has it: tcp port 80");
    command->add_option("-w,--write", options->file, "file; - for standard output, which must be no terminal");
    command->add_option("--direction", options->direction, "in: from the port into the switch; out: to the port")
        ->check(CLI::IsMember({"in", "out", "both"}))
        ->capture_default_str();
    command->add_option("-c,--count", options->count, "end after so many packets")->check(CLI::PositiveNumber);
    command->add_option("-s,--snaplen", options->snap_length, "bytes of each packet that are kept")
        ->check(CLI::Range(1, 65535))
        ->capture_default_str();
    command->add_option("-B,--buffer", options->buffer, "KiB for each worker of the NIC, rounded up to a power of two")
        ->check(CLI::Range(64, 1 << 20))
        ->capture_default_str();
    command->add_option("--device", options->device, "device, where there are several: mlx5_0");
    command->callback([options, &socket] { Capture(*options, socket).run(); });
}

}  // namespace ovsdr::drnic
