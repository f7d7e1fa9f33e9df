#include "datapath/ports/soft_nic.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <pthread.h>
#include <rte_mbuf.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "datapath/control/server.hpp"
#include "datapath/ports/eal.hpp"
#include "datapath/ports/guarded_copy.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;

// Interface events come by netlink; this bounds the damage of one that got lost, and serves ports without an interface.
constexpr auto link_check_period = 1s;
// The kernel tells of a carrier that went up to a second later: too late for what is to go by the other wire. As often
// as its own bonds are usually told to look.
constexpr auto lag_check_period = 100ms;
constexpr auto patience_at_exit = 5s;   // for each port to close

int interface_event_socket() noexcept {
    const int descriptor = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (descriptor < 0) return -1;
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK;
    if (bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return descriptor;
    close(descriptor);
    return -1;
}

}  // namespace

SoftNic::SoftNic(NicConfig config) : config_(std::move(config)), process_(getpid()) {}

SoftNic::~SoftNic() {
    stop();
    if (wake_descriptor_ >= 0) close(wake_descriptor_);
}

std::unique_ptr<SoftNic> SoftNic::start(NicConfig config, int& code, std::string& error) {
    std::unique_ptr<SoftNic> nic(new SoftNic(std::move(config)));
    guard_copies();
    // Threads inherit the mask: no signal of the process is ever handled on one of ours, but for what their own
    // instructions raise. Blocked, a fault in a guarded copy would end the process, and any other would reach no
    // handler.
    sigset_t ours, before;
    sigfillset(&ours);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&ours, fault);
    pthread_sigmask(SIG_SETMASK, &ours, &before);
    try {
        nic->thread_ = std::thread([raw = nic.get()] { raw->control_thread(); });
    } catch (const std::system_error& failure) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        error = fmt::format("no control thread: {}", failure.what());
        code = EAGAIN;
        return nullptr;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);

    std::unique_lock lock(nic->mutex_);
    nic->changed_.wait(lock, [&] { return nic->phase_ != Phase::starting; });
    if (nic->phase_ == Phase::running) return nic;
    code = nic->start_code_;
    error = nic->start_error_;
    lock.unlock();
    nic->thread_.join();
    return nullptr;
}

void SoftNic::control_thread() {
    (void)pthread_setname_np(pthread_self(), "softnic-control");
    std::string error;
    int code = 0;
    try {
        code = bring_up(error);
    } catch (const std::exception& failure) {
        code = ENOMEM;
        error = failure.what();
    }
    if (code != 0) tear_down();
    {
        const std::lock_guard lock(mutex_);
        start_code_ = code;
        start_error_ = error;
        phase_ = code == 0 ? Phase::running : Phase::failed;
        changed_.notify_all();
    }
    if (code != 0) return;
    serve();
    tear_down();
    const std::lock_guard lock(mutex_);
    phase_ = Phase::stopped;
    changed_.notify_all();
}

int SoftNic::make_packet_memory(std::string& error) {
    // What is left is for AF_XDP ports, which have their own buffers, and for the rings of all.
    constexpr unsigned small_percent = 40, jumbo_percent = 30;
    constexpr unsigned overhead = 64 + sizeof(rte_mbuf) + RTE_PKTMBUF_HEADROOM + 64;  // mempool header, mbuf, spreading
    const auto length = [&](unsigned percent, unsigned room) {
        return static_cast<unsigned>(std::uint64_t{config_.memory_mb} * 1024 * 1024 / 100 * percent /
                                     (room + overhead));
    };
    small_pool_ =
        make_mempool({.name = "softnic-small", .length = length(small_percent, small_room), .room = small_room}, error);
    if (!small_pool_) return ENOMEM;
    jumbo_pool_ =
        make_mempool({.name = "softnic-jumbo", .length = length(jumbo_percent, jumbo_room), .room = jumbo_room}, error);
    return jumbo_pool_ ? 0 : ENOMEM;
}

int SoftNic::bring_up(std::string& error) {
    const long cpus = sysconf(_SC_NPROCESSORS_CONF);
    for (const unsigned cpu : config_.cpus) {
        if (cpus <= 0 || cpu < static_cast<unsigned long>(cpus)) continue;
        error = fmt::format("workers.cpus: {} is no CPU of this machine; it has 0 to {}", cpu, cpus - 1);
        return EINVAL;
    }
    if (int result = start_eal(config_, error)) return result;
    if (int result = make_packet_memory(error)) return result;
    wake_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_descriptor_ < 0) {
        error = fmt::format("eventfd: {}", std::strerror(errno));
        return errno;
    }
    interface_events_ = interface_event_socket();

    std::vector<Steering*> steerings;
    for (const DeviceConfig& device : config_.devices) {
        devices_.push_back(std::make_unique<SoftDevice>(device, static_cast<unsigned>(devices_.size()), config_.workers,
                                                        [this] { wake(); }));
        device_pointers_.push_back(devices_.back().get());
        steerings.push_back(&devices_.back()->steering());
    }
    for (unsigned index = 0; index < config_.workers; ++index) {
        std::optional<unsigned> cpu;
        if (!config_.cpus.empty()) cpu = config_.cpus[index % config_.cpus.size()];
        workers_.push_back(std::make_unique<Worker>(index, steerings, cpu, config_.workers == 1));
    }
    for (const auto& worker : workers_) worker->start();
    for (std::size_t i = 0; i < devices_.size(); ++i) {
        const DeviceConfig& device = config_.devices[i];
        devices_[i]->connect(workers_, {.small = small_pool_.get(), .jumbo = jumbo_pool_.get()});
        if (device.cotenant && device.cotenant->lacp) devices_[i]->watch_lacp();
        for (const PortConfig& port : device.ports) {
            if (int result = devices_[i]->add_vport(port, false, error)) return result;
        }
        cotenants_.push_back(device.cotenant ? std::make_unique<Cotenant>(*devices_[i], *device.cotenant) : nullptr);
    }
    balancer_ = std::make_unique<Balancer>(devices_, workers_, config_.rebalance);
    server_ = std::make_unique<ControlServer>(*this, config_.control_socket);
    return 0;
}

void SoftNic::serve() {
    auto next_link_check = std::chrono::steady_clock::now();
    auto next_lag_check = next_link_check;
    while (!stop_.load(std::memory_order_acquire)) {
        const auto now = std::chrono::steady_clock::now();
        for (const auto& device : devices_) {
            if (device->take_port_event()) next_link_check = {};
        }
        if (now >= next_link_check) {
            for (const auto& device : devices_) device->check_links();
            next_link_check = now + link_check_period;
        }
        const bool lag = std::ranges::any_of(devices_, [](const auto& device) { return device->has_lag(); });
        if (lag && now >= next_lag_check) {
            for (const auto& device : devices_) device->check_lag();
            next_lag_check = now + lag_check_period;
        }
        auto next = lag ? std::min(next_link_check, next_lag_check) : next_link_check;
        next = std::min(next, balancer_->tick(now));
        for (const auto& cotenant : cotenants_) {
            if (cotenant) next = std::min(next, cotenant->tick(now));
        }
        for (const auto& device : devices_) device->dispatch_events();

        std::vector<pollfd> polled{{wake_descriptor_, POLLIN, 0}, {interface_events_, POLLIN, 0}};
        for (const auto& device : devices_) device->watch(polled);
        const std::size_t first_client = polled.size();
        server_->watch(polled);
        const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - std::chrono::steady_clock::now());
        if (poll(polled.data(), polled.size(), std::max<int>(0, static_cast<int>(wait.count()))) <= 0) continue;
        if (polled[0].revents != 0) {
            std::uint64_t count;
            [[maybe_unused]] const ssize_t size = read(wake_descriptor_, &count, sizeof count);
        }
        if (polled[1].revents != 0) handle_interface_events();
        // Whatever an interface or a port has to say: all are looked at.
        const bool said = std::any_of(polled.begin() + 1, polled.begin() + static_cast<std::ptrdiff_t>(first_client),
                                      [](const pollfd& item) { return item.revents != 0; });
        if (said) next_link_check = {};
        server_->handle(polled);
    }
}

// Which interface changed does not matter: all are looked at. Events that were lost (ENOBUFS) are no different.
void SoftNic::handle_interface_events() noexcept {
    char buffer[8192];
    while (recv(interface_events_, buffer, sizeof buffer, 0) > 0 || errno == ENOBUFS) {
        errno = 0;
    }
}

void SoftNic::tear_down() noexcept {
    server_.reset();
    for (const auto& worker : workers_) worker->stop();
    const auto closed = [this] {
        const std::lock_guard lock(mutex_);
        ++closed_ports_;
        changed_.notify_all();
    };
    for (const auto& device : devices_) device->close_ports(closed);
    if (interface_events_ >= 0) close(interface_events_);
    interface_events_ = -1;
}

void SoftNic::wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_descriptor_, &one, sizeof one);
}

void SoftNic::stop() noexcept {
    if (getpid() != process_ || !thread_.joinable()) return;
    stop_.store(true, std::memory_order_release);
    wake();
    std::unique_lock lock(mutex_);
    // A driver that hangs must not keep the process from ending. On a busy machine each port may take long to close:
    // all of them are waited for.
    const auto is_stopped = [&] { return phase_ != Phase::running; };
    for (bool goes_on = true; goes_on && !is_stopped();) {
        goes_on = changed_.wait_for(lock, patience_at_exit,
                                    [&, before = closed_ports_] { return is_stopped() || closed_ports_ != before; });
    }
    const bool stopped = is_stopped();
    lock.unlock();
    if (stopped) {
        thread_.join();
    } else {
        thread_.detach();
    }
}

}  // namespace ovsdr::soft
