#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "tests/connectx/entries/forwarder.hpp"
#include "tests/connectx/entries/stopped.hpp"
#include "tests/differential/judge/judges.hpp"

namespace ovsdr::differential {

namespace {

using connectx::entries::Delivery;
using connectx::entries::Forwarder;

std::uint32_t odp_of(std::uint32_t vport) {
    const auto found = std::ranges::find(ports, vport, &PortNumber::vport);
    if (found == std::end(ports)) throw std::runtime_error(fmt::format("a packet came out at vport {}", vport));
    return found->odp;
}

void add(const Installation& installation, const TestPacket& packet, Delivery& delivery, Verdict& verdict) {
    Copy copy{.bytes = std::move(delivery.packet.bytes)};
    switch (delivery.kind) {
        case Delivery::Kind::dropped: return;
        case Delivery::Kind::vport: copy.port = odp_of(delivery.number); break;
        case Delivery::Kind::queue_pair:
            copy.port = installation.port_of_queue(delivery.number);
            copy.up = true;
            copy.tag = delivery.packet.flow_tag;
            break;
        case Delivery::Kind::tir: throw std::runtime_error("a packet came out at a TIR");
        case Delivery::Kind::kernel: throw std::runtime_error("a packet of ours was left to the kernel");
    }
    verdict.add(packet.in_port, std::move(copy));
}

/// The number of the queue that a VF sends the packet from: queues have numbers of their function, and those of the
/// slow path's queues may be a VF's too.
std::uint32_t queue_of(Installation& installation, const TestPacket& packet, std::uint32_t number) {
    return vport_of(packet.in_port) == wire_vport ? 0 : installation.queue(number % port_length).sqn();
}

/// Prints the entries that the packet meets, if that is asked for or the engine stops.
std::vector<Delivery> forward(Forwarder& forwarder, const TestPacket& packet, std::uint32_t queue, std::uint32_t number,
                              bool explain) {
    std::string lines;
    forwarder.trace(&lines);
    const auto print = [&] { std::printf("packet %u from port %u\n%s", number, packet.in_port, lines.c_str()); };
    try {
        if (!explain) forwarder.trace(nullptr);
        auto deliveries = forwarder.from_port(vport_of(packet.in_port), packet.bytes, queue);
        if (explain) print();
        return deliveries;
    } catch (const connectx::entries::Stopped&) {
        if (explain) print();
        std::printf("the engine stopped at packet %u: --explain %u shows its entries\n", number, number);
        throw;
    }
}

/// What a port's queue sends comes out at the port, and nowhere else.
void check_slow_path(Installation& installation, Forwarder& forwarder) {
    for (std::size_t i = 0; i < port_length; ++i) {
        const auto frame = marker_frame(0);
        const auto deliveries = forwarder.from_queue(installation.queue(i).sqn(), frame);
        if (deliveries.size() != 1 || deliveries[0].kind != Delivery::Kind::vport ||
            deliveries[0].number != ports[i].vport || deliveries[0].packet.bytes != frame) {
            throw std::runtime_error("what the slow path sent came out elsewhere");
        }
    }
}

}  // namespace

Verdict judge_by_entries(const Scenario& scenario, const std::vector<ovsdr_megaflow>& megaflows,
                         std::span<const std::uint32_t> explain) {
    connectx::Device* const device = connectx::device();
    if (device == nullptr) throw std::runtime_error("not under tests/connectx/run");
    Verdict verdict;
    verdict.copies.resize(scenario.packets.size());
    Installation installation;
    installation.put(megaflows, verdict);
    Forwarder forwarder(*device);
    check_slow_path(installation, forwarder);
    for (std::uint32_t i = 0; i < scenario.packets.size(); ++i) {
        const TestPacket& packet = scenario.packets[i];
        const std::uint32_t queue = queue_of(installation, packet, i);
        for (Delivery& delivery : forward(forwarder, packet, queue, i, std::ranges::count(explain, i) != 0)) {
            add(installation, packet, delivery, verdict);
        }
    }
    std::printf("entries: %.1f visited for a packet\n",
                static_cast<double>(forwarder.entries_visited()) / static_cast<double>(scenario.packets.size()));
    installation.remove(verdict);
    if (const auto missing = device->not_emulated(); !missing.empty()) {
        throw std::runtime_error("the device does not emulate " + missing.front());
    }
    verdict.finish();
    return verdict;
}

}  // namespace ovsdr::differential
