#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "tests/connectx/entries/forwarder.hpp"
#include "tests/connectx/entries/stopped.hpp"
#include "tests/differential/judge/bytes.hpp"
#include "tests/differential/judge/crowds.hpp"
#include "tests/differential/judge/device_faults.hpp"
#include "tests/differential/judge/nic_judge.hpp"
#include "tests/differential/judge/recipe.hpp"

namespace ovsdr::differential {

namespace {

using connectx::entries::Delivery;
using connectx::entries::Forwarder;

std::uint32_t odp_of(std::uint32_t vport) {
    const auto found = std::ranges::find(ports, vport, &PortNumber::vport);
    if (found == std::end(ports)) throw std::runtime_error(fmt::format("a packet came out at vport {}", vport));
    return found->odp;
}

void add(const Installation& installation, Delivery& delivery, NicRecord& record) {
    switch (delivery.kind) {
        case Delivery::Kind::dropped: return;
        case Delivery::Kind::vport: return record.out(odp_of(delivery.number), std::move(delivery.packet.bytes));
        case Delivery::Kind::queue_pair:
            if (const auto copies = installation.copies_of_queue(delivery.number)) {
                return record.copy(*copies, delivery.packet.flow_tag, std::move(delivery.packet.bytes));
            }
            return record.up(delivery.number, delivery.packet.flow_tag, std::move(delivery.packet.bytes));
        case Delivery::Kind::tir: throw std::runtime_error("a packet came out at a TIR");
        case Delivery::Kind::kernel: throw std::runtime_error("a packet of ours was left to the kernel");
    }
}

/// The number of the queue that a VF sends the packet from: queues have numbers of their function, and those of the
/// slow path's queues may be a VF's too.
std::uint32_t queue_of(const Installation& installation, const TestPacket& packet, std::uint32_t number) {
    return vport_of(packet.in_port) == wire_vport ? 0 : installation.queues(number % port_length)[0].sqn();
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
void check_slow_path(const Installation& installation, Forwarder& forwarder) {
    for (std::size_t i = 0; i < port_length; ++i) {
        const auto frame = marker_frame(0);
        const auto deliveries = forwarder.from_queue(installation.queues(i)[0].sqn(), frame);
        if (deliveries.size() != 1 || deliveries[0].kind != Delivery::Kind::vport ||
            deliveries[0].number != ports[i].vport || deliveries[0].packet.bytes != frame) {
            throw std::runtime_error("what the slow path sent came out elsewhere");
        }
    }
}

/// Of all phases, until the eswitch is gone.
void judge_phases(const Scenario& scenario, OvsJudge& ovs, unsigned format, std::span<const std::uint32_t> explain,
                  connectx::Device& device, Verdict& verdict) {
    Installation installation(scenario, ovs, format, verdict,
                              [&](unsigned nth) { return make_one_call_fail(device, nth); },
                              [&] { make_next_read_fail(device); });
    check_shapes(installation.eswitch(), device, format != 0);
    check_source_ports(installation.eswitch(), device);
    NicRecord record(scenario, ovs, installation, verdict);
    std::uint64_t visited = 0;
    std::uint32_t number = 0;
    const auto at_first = made_for_megaflows(device);
    for (const Phase& phase : scenario.phases) {
        make_calls_fail(device);
        installation.apply(phase);
        device.clear_faults();
        record.apply(phase, format == 0);
        Forwarder forwarder(device);   // it reads the rules when it is made
        check_slow_path(installation, forwarder);
        for (; number < phase.packets_end; ++number) {
            if (number == phase.filling_end) installation.stop_meters();
            if (number == phase.priming_end) record.exhaust_meters();
            const TestPacket& packet = scenario.packets[number];
            if (packet.lie != TunnelLie::none) continue;   // the engine stops there
            const std::uint32_t queue = queue_of(installation, packet, number);
            const bool explained = std::ranges::count(explain, number) != 0;
            for (Delivery& delivery : forward(forwarder, packet, queue, number, explained)) {
                add(installation, delivery, record);
            }
        }
        record.count(phase);
        visited += forwarder.entries_visited();
    }
    std::printf("entries: %.1f visited for a packet\n",
                static_cast<double>(visited) / static_cast<double>(scenario.packets.size()));
    installation.end();
    installation.check_copies(record.copies());
    check_fragments(installation.eswitch(), device);
    check_turns(installation.eswitch(), device);
    check_same_rule(installation.eswitch(), device);
    check_parked(installation.eswitch(), device);
    check_lone_option(installation.eswitch(), device);
    check_flags(installation.eswitch(), device);
    check_many_in_tunnel(installation.eswitch());
    check_many(installation.eswitch(), device);
    check_same(at_first, with_shared_definers(at_first, made_for_megaflows(device)), "megaflows that went");
}

}  // namespace

Verdict judge_by_entries(const Scenario& scenario, OvsJudge& ovs, unsigned format,
                         std::span<const std::uint32_t> explain) {
    connectx::Device* const device = connectx::device();
    if (device == nullptr) throw std::runtime_error("not under tests/connectx/run");
    Verdict verdict(scenario.packets.size(), scenario.ufids);
    const Objects at_first = device->alive();
    check_first(*device);
    judge_phases(scenario, ovs, format, explain, *device, verdict);
    check_same(at_first, device->alive(), "an eswitch that went");
    check_same({}, device->left_behind(), "an eswitch that closed its device");
    if (const auto missing = device->not_emulated(); !missing.empty()) {
        throw std::runtime_error("the device does not emulate " + missing.front());
    }
    verdict.finish();
    return verdict;
}

}  // namespace ovsdr::differential
