#include "datapath/ports/packet_port.hpp"

#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace ovsdr::soft {

PacketPort::PacketPort(const PortSpec& spec, const Driver& driver)
    : Port(driver), interface_(dpdk_argument(spec.arguments, "iface")) {}

std::unique_ptr<Port> PacketPort::open(const PortSpec& spec, const Driver& driver, std::string& error) {
    std::unique_ptr<PacketPort> port(new PacketPort(spec, driver));
    if (port->interface_.prepare(spec.mtu, error) != 0) return nullptr;
    port->interface_.bring_up();
    std::string step;
    int result = port->open_senders(spec, step);
    if (result == 0) result = port->open_receivers(spec, step);
    if (result != 0) {
        error = fmt::format("{}: {}: {}", spec.arguments, step, std::strerror(result));
        return nullptr;
    }
    std::vector<PortReceiveQueue> receive;
    for (const auto& receiver : port->receivers_) {
        receive.push_back({.receive = PacketReceiver::receive,
                           .queue = receiver.get(),
                           .wake_sources = {{.descriptor = receiver->descriptor(), .is_epoll = false}},
                           .most = batch_length});
    }
    std::vector<PortSendQueue> send;
    for (const auto& sender : port->senders_) send.push_back({.send = PacketSender::send, .queue = sender.get()});
    port->set_queues(std::move(receive), std::move(send));
    return port;
}

int PacketPort::open_senders(const PortSpec& spec, std::string& step) {
    const bool joins = number_argument(spec.arguments, "gro", 1) != 0;
    const bool bypass = number_argument(spec.arguments, "qdisc_bypass", 0) != 0;
    for (unsigned i = 0; i < spec.workers; ++i) {
        senders_.push_back(std::make_unique<PacketSender>(joins));
        if (int result = senders_.back()->open(if_nametoindex(interface_.name().c_str()), bypass, step)) return result;
    }
    return 0;
}

int PacketPort::open_receivers(const PortSpec& spec, std::string& step) {
    const unsigned number = number_argument(spec.arguments, "qpairs", 1);
    const unsigned interface = if_nametoindex(interface_.name().c_str());
    rte_mempool* const pool = choose_memory(spec.memory, spec.mtu.value_or(mtu()));
    FanoutGroup group;
    for (unsigned i = 0; i < number; ++i) {
        receivers_.push_back(std::make_unique<PacketReceiver>(pool));
        PacketReceiver& receiver = *receivers_.back();
        if (int result = receiver.open(interface, spec.roce, number > 1 ? &group : nullptr, step)) return result;
    }
    for (const auto& receiver : receivers_) {
        if (int result = number > 1 ? receiver->start() : 0) return result;
    }
    return 0;
}

std::uint16_t PacketPort::mtu() const noexcept {
    int mtu = 0;
    if (interface_.mtu(mtu) != 0) return Port::mtu();
    return static_cast<std::uint16_t>(std::clamp<int>(mtu, min_mtu, driver_->largest_mtu));
}

int PacketPort::set_mtu(std::uint16_t mtu) noexcept {
    if (int result = Port::set_mtu(mtu)) return result;
    return interface_.set_mtu(mtu);
}

std::uint64_t PacketPort::overruns() noexcept {
    std::uint64_t sum = 0;
    for (const auto& receiver : receivers_) sum += receiver->overruns();
    return sum;
}

Port::Refused PacketPort::refused() const noexcept {
    Refused sum;
    for (const auto& sender : senders_) {
        sum.packets += sender->refused_packets();
        sum.bytes += sender->refused_bytes();
    }
    return sum;
}

}  // namespace ovsdr::soft
