#include "datapath/ports/eal.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "datapath/ports/descriptors.hpp"
#include "datapath/ports/pci_function.hpp"

namespace ovsdr::soft {
namespace {

// The PCI bus with a list of one allowed device, which no machine has: DPDK looks at no device, until a port adds its
// own to the list.
constexpr const char* no_pci_device = "pci:ffffffff:ff:1f.7";

std::mutex log_mutex;
std::string& log_lines() {
    static auto* lines = new std::string;  // never destroyed: DPDK may log while the process exits
    return *lines;
}

ssize_t keep_log(void*, const char* text, std::size_t size) {
    add_to_dpdk_log({text, size});
    return static_cast<ssize_t>(size);
}

void capture_log() {
    const cookie_io_functions_t functions{.read = nullptr, .write = keep_log, .seek = nullptr, .close = nullptr};
    std::FILE* stream = fopencookie(nullptr, "w", functions);
    if (stream == nullptr) return;
    std::setvbuf(stream, nullptr, _IOLBF, 0);
    rte_openlog_stream(stream);
}

unsigned first_cpu(const cpu_set_t& set) {
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &set)) return cpu;
    }
    return 0;
}

// Whether a port of the configuration is a PCI device that sees physical addresses. EAL decides that for all of its
// memory, once.
bool wants_physical_addresses(const NicConfig& config) {
    const auto wants = [](const std::string& arguments) {
        const auto function = read_pci_function(arguments.substr(0, arguments.find(',')));
        return function && function->sees_physical_addresses();
    };
    return std::ranges::any_of(config.devices, [&](const DeviceConfig& device) {
        return std::ranges::any_of(device.ports,
                                   [&](const PortConfig& port) { return wants(port.dpdk) || wants(port.lag_dpdk); });
    });
}

std::vector<std::string> eal_arguments(const NicConfig& config, unsigned cpu) {
    const bool physical = config.hugepages && wants_physical_addresses(config);
    // --no-shconf: no secondary processes, hence no files under /run. rte_thread_register() needs that as well.
    std::vector<std::string> arguments{program_invocation_short_name,
                                       "-a",
                                       no_pci_device,
                                       "--no-telemetry",
                                       "--no-shconf",
                                       physical ? "--iova-mode=pa" : "--iova-mode=va",
                                       "--log-level=*:error",
                                       "--file-prefix",
                                       fmt::format("ovsdr-{}", getpid()),
                                       "--lcores",
                                       fmt::format("0@{}", cpu),
                                       "-m",
                                       std::to_string(config.memory_mb)};
    arguments.emplace_back(config.hugepages ? "--in-memory" : "--no-huge");
    return arguments;
}

}  // namespace

int start_eal(const NicConfig& config, std::string& error) {
    if (rte_lcore_count() > 0) return 0;  // EAL knows its cores once it is initialised, by whomever
    cpu_set_t affinity;
    CPU_ZERO(&affinity);
    pthread_getaffinity_np(pthread_self(), sizeof affinity, &affinity);

    capture_log();
    std::vector<std::string> arguments = eal_arguments(config, first_cpu(affinity));
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    const CloseOnExec close_on_exec;
    const int result = rte_eal_init(static_cast<int>(argv.size()), argv.data());
    const int cause = rte_errno;
    pthread_setaffinity_np(pthread_self(), sizeof affinity, &affinity);
    if (result >= 0) return 0;

    error = fmt::format("DPDK's EAL does not start: {} (memory_mb {}, hugepages {})", rte_strerror(cause),
                        config.memory_mb, config.hugepages);
    if (const std::string log = take_dpdk_log(); !log.empty()) error += ": " + log;
    return cause > 0 ? cause : EIO;
}

void add_to_dpdk_log(std::string_view text) {
    constexpr std::size_t most = 600;
    const std::lock_guard lock(log_mutex);
    std::string& lines = log_lines();
    lines.append(text);
    if (lines.size() > most) lines.erase(0, lines.size() - most);
}

std::string take_dpdk_log() {
    const std::lock_guard lock(log_mutex);
    std::string lines;
    std::swap(lines, log_lines());
    while (!lines.empty() && std::isspace(static_cast<unsigned char>(lines.back())) != 0) lines.pop_back();
    for (std::size_t at = 0; (at = lines.find('\n', at)) != std::string::npos;) lines.replace(at, 1, "; ");
    return lines;
}

}  // namespace ovsdr::soft
