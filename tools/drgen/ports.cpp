#include "tools/drgen/ports.hpp"

#include <fmt/format.h>
#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace ovsdr::drgen {
namespace {

constexpr std::uint16_t queue_length = 1024;
constexpr auto longest_link_wait = std::chrono::seconds(10);
constexpr std::size_t small_ring_frame = 1900;  // what net_af_packet's ring of 2048-byte frames takes with certainty

std::string complete_arguments(const std::string& given, bool jumbo) {
    const auto comma = given.find(',');
    std::string arguments = comma == std::string::npos ? "" : given.substr(comma + 1);
    if (given.starts_with("net_af_packet") && arguments.find("framesz") == std::string::npos) {
        // Jumbo: two frames in five pages, so that none straddles a block.
        arguments += jumbo ? ",framesz=10240,blocksz=20480,framecnt=1024" : ",framesz=2048,blocksz=4096,framecnt=4096";
    }
    if (given.starts_with("net_af_xdp") && arguments.find("busy_budget") == std::string::npos)
        arguments += ",busy_budget=0";
    return arguments;
}

}  // namespace

Ports::Ports(const Options& options) {
    start_dpdk(options);
    const std::size_t largest = *std::max_element(options.sizes.begin(), options.sizes.end());
    const bool xdp = std::any_of(options.ports.begin(), options.ports.end(),
                                 [](const std::string& port) { return port.starts_with("net_af_xdp"); });
    if (xdp && largest > 3000) throw PortError("--size: net_af_xdp takes frames of at most 3000 bytes");
    const bool jumbo = largest > small_ring_frame;
    // One pool for all: AF_XDP wants its buffers within a page, and they are as good for the others.
    const auto room = static_cast<std::uint16_t>((jumbo && !xdp ? 10240 : 3456) + RTE_PKTMBUF_HEADROOM);
    const unsigned buffer = jumbo && !xdp ? 12288 : 4096;
    const unsigned length = static_cast<unsigned>(std::uint64_t{options.memory_mb} * 1024 * 1024 * 7 / 10 / buffer);
    pool_ = rte_pktmbuf_pool_create("drgen", length, 256, 0, room, SOCKET_ID_ANY);
    if (pool_ == nullptr) throw PortError(fmt::format("no packet memory: {}", rte_strerror(rte_errno)));
    try {
        for (const std::string& port : options.ports) open(port, jumbo);
        wait_for_links(options);
    } catch (...) {
        close();
        throw;
    }
}

Ports::~Ports() {
    close();
}

void Ports::start_dpdk(const Options& options) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    (void)sched_getaffinity(0, sizeof allowed, &allowed);
    int cpu = options.cpu;
    for (int candidate = 0; cpu < 0 && candidate < CPU_SETSIZE; ++candidate) {
        if (CPU_ISSET(candidate, &allowed)) cpu = candidate;
    }
    std::vector<std::string> arguments{"drgen",
                                       "--no-pci",
                                       "--no-huge",
                                       "--no-shconf",
                                       "--no-telemetry",
                                       "--iova-mode=va",
                                       "--log-level=*:error",
                                       "--file-prefix",
                                       fmt::format("drgen-{}", getpid()),
                                       "--lcores",
                                       fmt::format("0@{}", cpu),
                                       "-m",
                                       std::to_string(options.memory_mb)};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0) {
        throw PortError(fmt::format("DPDK does not start: {}", rte_strerror(rte_errno)));
    }
    // EAL has pinned this thread; without --cpu the kernel may move it about.
    if (options.cpu < 0) (void)sched_setaffinity(0, sizeof allowed, &allowed);
}

void Ports::open(const std::string& given, bool jumbo) {
    const std::string driver = given.substr(0, given.find(','));
    const std::string name = fmt::format("{}{}", driver, opened_.size());
    const auto check = [&](int result, const char* step) {
        if (result != 0) throw PortError(fmt::format("--port {}: {}: {}", given, step, rte_strerror(-result)));
    };
    check(rte_eal_hotplug_add("vdev", name.c_str(), complete_arguments(given, jumbo).c_str()),
          "cannot be opened (drivers: net_af_packet, net_af_xdp, net_memif, net_virtio_user, net_pcap, net_null, "
          "net_ring)");
    Opened port{.name = name, .id = 0};
    check(rte_eth_dev_get_port_by_name(name.c_str(), &port.id), "no such device");
    opened_.push_back(port);
    const rte_eth_conf configuration{};
    check(rte_eth_dev_configure(port.id, 1, 1, &configuration), "cannot be configured");
    check(rte_eth_rx_queue_setup(port.id, 0, queue_length, SOCKET_ID_ANY, nullptr, pool_), "no receive queue");
    check(rte_eth_tx_queue_setup(port.id, 0, queue_length, SOCKET_ID_ANY, nullptr), "no transmit queue");
    check(rte_eth_dev_start(port.id), "does not start");
    (void)rte_eth_promiscuous_enable(port.id);
}

// Whoever is behind a port may have to connect to it first.
void Ports::wait_for_links(const Options& options) const {
    const auto end = std::chrono::steady_clock::now() + longest_link_wait;
    for (std::size_t i = 0; i < opened_.size(); ++i) {
        rte_eth_link link{};
        while (rte_eth_link_get_nowait(opened_[i].id, &link) == 0 && link.link_status != RTE_ETH_LINK_UP) {
            if (std::chrono::steady_clock::now() > end) {
                throw PortError(
                    fmt::format("--port {}: no link within {} s", options.ports[i], longest_link_wait.count()));
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
}

// In DPDK's interrupt thread, which runs alarms and does nothing else any more: there net_memif hears from its peers,
// and frees what closing a port frees, with no lock between the two; and it goes on listening when it has freed the
// socket.
void Ports::close() noexcept {
    if (rte_eal_alarm_set(1, close_and_stay, this) == 0) {
        closed_.acquire();
    } else {
        close_all();
    }
    for (const Opened& port : opened_) (void)rte_eal_hotplug_remove("vdev", port.name.c_str());
    opened_.clear();
}

void Ports::close_all() noexcept {
    for (const Opened& port : opened_) {
        (void)rte_eth_dev_stop(port.id);
        (void)rte_eth_dev_close(port.id);
    }
}

void Ports::close_and_stay(void* ports) noexcept {
    auto& self = *static_cast<Ports*>(ports);
    self.close_all();
    self.closed_.release();
    for (;;) pause();
}

}  // namespace ovsdr::drgen
