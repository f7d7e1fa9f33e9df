#include "tests/differential/judge/crowds.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <set>
#include <stdexcept>
#include <thread>
#include <variant>
#include <vector>

#include "tests/connectx/entries/forwarder.hpp"
#include "tests/differential/judge/bytes.hpp"
#include "tests/differential/judge/frames.hpp"
#include "tests/differential/judge/megaflows.hpp"
#include "tests/differential/judge/port_queues.hpp"
#include "tests/differential/judge/provider_calls.hpp"
#include "tests/differential/judge/scene.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::differential {

namespace {

using Clock = std::chrono::steady_clock;
using connectx::entries::Delivery;
using connectx::entries::Forwarder;
using dr::test::MegaflowBuilder;
using namespace std::chrono_literals;

constexpr const char* asks_for_counters = "DEVX_OBJ_CREATE:ALLOC_FLOW_COUNTER";
constexpr const char* counters = "DEVX:ALLOC_FLOW_COUNTER";   // objects
constexpr const char* asks_for_table = "DEVX_OBJ_CREATE:CREATE_FLOW_TABLE";
constexpr const char* asks_for_header = "DEVX_OBJ_CREATE:ALLOC_PACKET_REFORMAT_CONTEXT";
constexpr const char* asks_for_option = "DEVX_OBJ_CREATE:CREATE_GENERAL_OBJECT:GENEVE_TLV_OPT";
constexpr std::chrono::milliseconds patience = 30s, glance = 4ms;
constexpr std::uint64_t always = UINT32_MAX;   ///< calls

dr::Ufid ufid_of(std::uint32_t number) { return {0x63726f7764, number}; }

MegaflowBuilder from_port(std::uint32_t number) {
    return MegaflowBuilder(ports[0].odp).ipv4().proto(protocol_udp).ports(static_cast<std::uint16_t>(number), 53);
}

bool is_in_nic(dr::Eswitch& eswitch, std::uint32_t number) {
    return scene::is_in_nic(eswitch, ufid_of(number));
}

/// All below `end`.
bool are_in_nic(dr::Eswitch& eswitch, std::uint32_t end) {
    for (std::uint32_t number = 0; number < end; ++number) {
        if (!is_in_nic(eswitch, number)) return false;
    }
    return true;
}

void expect(bool is_so, const char* otherwise) {
    if (!is_so) throw std::runtime_error(otherwise);
}

void expect_soon(const auto& is_so, const char* otherwise) {
    for (const auto deadline = Clock::now() + patience; !is_so(); std::this_thread::sleep_for(glance)) {
        expect(Clock::now() < deadline, otherwise);
    }
}

void refuse(connectx::Device& device, const char* call, std::uint64_t times = always, int error = ENOMEM) {
    expect(device.fail(call, 1, error, times), "the device has no such call");
}

std::uint64_t calls_of(const connectx::Device& device, const char* call) {
    const auto calls = device.calls();
    const auto found = calls.find(call);
    return found == calls.end() ? 0 : found->second;
}

/// Of the megaflows of from_port().
Bytes udp_frame(std::uint16_t source_port, std::uint8_t ttl = 64) {
    return {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0,                                          // Ethernet
            0x45, 0, 0, 28, 0, 0, 0, 0, ttl, protocol_udp, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,     // IPv4
            static_cast<std::uint8_t>(source_port >> 8), static_cast<std::uint8_t>(source_port), 0, 53, 0, 8, 0, 0};
}

/// In a later fragment, perhaps.
Bytes udp_frame_over_ipv6(bool in_fragment) {
    const std::uint8_t payload = in_fragment ? 16 : 8;
    Bytes frame{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd,
                0x60, 0, 0, 0, 0, payload, in_fragment ? fragment_header : protocol_udp, 64};
    for (const std::uint8_t last : {1, 2}) {   // addresses
        frame.insert(frame.end(), {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last});
    }
    if (in_fragment) frame.insert(frame.end(), {protocol_udp, 0, 0, 8, 0, 0, 0, 1});
    frame.insert(frame.end(), {0, 1, 0, 53, 0, 8, 0, 0});
    return frame;
}

/// A frame behind a Geneve header that MegaflowBuilder::from_tunnel(5) matches, with or without the OAM flag.
Bytes geneve_frame(bool oam) {
    const Bytes inner = udp_frame(1);
    const auto udp_size = static_cast<std::uint8_t>(8 + 8 + inner.size());
    const std::uint8_t flags = oam ? 0x80 : 0;
    Bytes frame{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0,
                0x45, 0, 0, static_cast<std::uint8_t>(20 + udp_size), 0, 0, 0, 0, 64, protocol_udp, 0, 0, 172, 16, 0, 1,
                172, 16, 0, 2,
                0, 1, 6081 >> 8, 6081 & 0xFF, 0, udp_size, 0, 0,
                0, flags, 0x65, 0x58, 0, 0, 5, 0};
    std::ranges::copy(inner, std::back_inserter(frame));
    return frame;
}

Bytes icmp_frame(std::uint8_t type) {
    constexpr std::size_t protocol = 23;
    Bytes frame = udp_frame(static_cast<std::uint16_t>(type << 8));
    frame[protocol] = protocol_icmp;
    return frame;
}

Bytes icmpv6_frame(std::uint8_t type) {
    constexpr std::size_t next_header = 20, payload = 54;
    Bytes frame = udp_frame_over_ipv6(false);
    frame[next_header] = protocol_icmpv6;
    frame[payload] = type;
    frame[payload + 1] = 0;
    return frame;
}

bool is_refused(const dr::PutOutcome& outcome) { return std::holds_alternative<Error>(outcome); }
bool is_taken(const dr::PutOutcome& outcome) { return std::holds_alternative<std::monostate>(outcome); }

}  // namespace

void check_shapes(dr::Eswitch& eswitch, connectx::Device& device, bool parses_icmp) {
    constexpr std::uint8_t megaflows = 255;
    const auto ufid_of_ttl = [](std::uint8_t ttl) { return dr::Ufid{0x74746c, ttl}; };
    for (std::uint8_t ttl = 0; ttl < megaflows; ++ttl) {
        auto megaflow = MegaflowBuilder(ports[0].odp).ipv4().output(ports[1].odp);
        megaflow.raw().key.ip_ttl = ttl;
        megaflow.raw().mask.ip_ttl = 0xFF;
        expect(is_taken(eswitch.put(ufid_of_ttl(ttl), megaflow)), "a megaflow is not in the NIC");
    }
    Forwarder forwarder(device);
    for (std::uint8_t ttl = 0; ttl < megaflows; ++ttl) {
        (void)forwarder.from_port(static_cast<std::uint16_t>(ports[0].vport), udp_frame(0, ttl));
        const auto last = eswitch.del(ufid_of_ttl(ttl));
        expect(last && last->packets == 1, "a megaflow takes another one's packets");
    }
    if (!parses_icmp) return;
    for (const bool over_ipv6 : {false, true}) {
        constexpr std::uint8_t types = 2;
        for (std::uint8_t type = 0; type < types; ++type) {
            MegaflowBuilder megaflow(ports[0].odp);
            over_ipv6 ? megaflow.ipv6().proto(protocol_icmpv6) : megaflow.ipv4().proto(protocol_icmp);
            expect(is_taken(eswitch.put(ufid_of(type), megaflow.ports(type, 0).output(ports[1].odp))),
                   "a megaflow of a type of ICMP is not in the NIC");
        }
        for (std::uint8_t type = 0; type < types; ++type) {
            const auto frame = over_ipv6 ? icmpv6_frame(type) : icmp_frame(type);
            (void)Forwarder(device).from_port(static_cast<std::uint16_t>(ports[0].vport), frame);
            const auto last = eswitch.del(ufid_of(type));
            expect(last && last->packets == 1, "a megaflow takes packets of another type of ICMP");
        }
    }
}

void check_source_ports(dr::Eswitch& eswitch, connectx::Device& device) {
    constexpr std::uint8_t megaflows = 32;
    constexpr std::size_t outer_source_port = 34;
    const auto header = dr::test::vxlan();
    struct Range {
        std::uint16_t first, end;   ///< as a megaflow's
        unsigned last;
        std::size_t fewest;   ///< of 32 megaflows, whose ports are a matter of hashes
    };
    constexpr Range ranges[] = {{32768, 61000, 60999, 16}, {40000, 40008, 40007, 4}, {40000, 0, 40000, 1}};
    for (const Range& range : ranges) {
        for (std::uint8_t port = 0; port < megaflows; ++port) {
            auto megaflow = from_port(port).tunnel(header).output(uplink);
            ovsdr_tunnel_push& push = megaflow.raw().actions[0].tunnel_push;
            push.udp_source_first = range.first;
            push.udp_source_end = range.end;
            expect(is_taken(eswitch.put(ufid_of(port), megaflow)), "a megaflow into a tunnel is not in the NIC");
        }
        Forwarder forwarder(device);
        std::set<unsigned> found;
        for (std::uint8_t port = 0; port < megaflows; ++port) {
            const auto deliveries = forwarder.from_port(static_cast<std::uint16_t>(ports[0].vport), udp_frame(port));
            expect(deliveries.size() == 1 && deliveries[0].kind == Delivery::Kind::vport,
                   "a packet did not go into its tunnel");
            const Bytes& bytes = deliveries[0].packet.bytes;
            found.insert(bytes.at(outer_source_port) << 8 | bytes.at(outer_source_port + 1));
            (void)eswitch.del(ufid_of(port));
        }
        expect(*found.begin() >= range.first && *found.rbegin() <= range.last && found.size() >= range.fewest,
               "a tunnel's source ports are not spread over their range");
    }
}

void check_fragments(dr::Eswitch& eswitch, connectx::Device& device) {
    constexpr std::size_t flags = 20;   ///< of the IPv4 header
    const auto of_any = [](MegaflowBuilder megaflow) {
        megaflow.raw().mask.ip_frag = 0;
        return megaflow.output(ports[1].odp);
    };
    const auto udp = [] { return MegaflowBuilder(ports[0].odp).ipv4().proto(protocol_udp); };
    const auto udp_over_ipv6 = [] { return MegaflowBuilder(ports[0].odp).ipv6().proto(protocol_udp); };
    Bytes fragment = udp_frame(1);
    fragment[flags] = 0x20;   // more will come
    struct Row {
        MegaflowBuilder megaflow;
        Bytes frame;
        bool wanted;
    };
    const Row rows[] = {
        {of_any(udp()), udp_frame(1), true},
        {of_any(udp()), fragment, true},
        {of_any(udp().ports(1, 53)), udp_frame(1), true},
        {of_any(udp().ports(1, 53)), fragment, false},   // ports of a fragment are 0 to the device
        {of_any(udp_over_ipv6()), udp_frame_over_ipv6(false), true},
        {of_any(udp_over_ipv6()), udp_frame_over_ipv6(true), false},   // OVS: its protocol is 44
    };
    // The last megaflows of before may have been refused: the device has room now.
    (void)eswitch.put(ufid_of(0), udp().output(ports[1].odp));
    expect_soon([&] { return is_in_nic(eswitch, 0); }, "there is room, and a megaflow is not in the NIC");
    (void)eswitch.del(ufid_of(0));
    for (const Row& row : rows) {
        expect(is_taken(eswitch.put(ufid_of(0), row.megaflow)), "a megaflow of any fragments is not in the NIC");
        (void)Forwarder(device).from_port(static_cast<std::uint16_t>(ports[0].vport), row.frame);
        const auto last = eswitch.del(ufid_of(0));
        expect(last && last->packets == (row.wanted ? 1 : 0), "a rule takes a packet that OVS would not, or does not");
    }
}

void check_turns(dr::Eswitch& eswitch, connectx::Device& device) {
    constexpr std::uint32_t old = 0, fresh = 1, first_refused = 2, few_end = 14, many = 1000;
    constexpr std::uint32_t waiting = few_end, behind = 0xFFFFF0;   ///< a recirc_id, no scenario's
    const auto header = dr::test::vxlan();
    const auto put_refused = [&](std::uint32_t number) {
        expect(is_refused(eswitch.put(ufid_of(number), from_port(number).tunnel(header).output(uplink))),
               "the device refuses a header, and the megaflow is in the NIC");
    };
    (void)eswitch.put(ufid_of(old), from_port(old).output(ports[1].odp));
    refuse(device, asks_for_header);
    for (std::uint32_t number = first_refused; number < few_end; ++number) put_refused(number);
    expect(is_taken(eswitch.put(ufid_of(old), from_port(old).output(ports[2].odp))),
           "a megaflow that is in the NIC changes, and waits behind others");
    for (std::uint32_t number = first_refused; number < few_end; ++number) (void)eswitch.del(ufid_of(number));
    for (std::uint32_t number = first_refused; number < few_end; ++number) put_refused(number);
    std::this_thread::sleep_for(100ms);   // until all have been refused again
    (void)eswitch.put(ufid_of(fresh), from_port(fresh).output(ports[1].odp));
    put_refused(few_end);   // newer, and so in front
    expect_soon([&] { return is_in_nic(eswitch, fresh); }, "others are refused, and a megaflow does not have its turn");
    for (std::uint32_t number = first_refused; number <= few_end; ++number) (void)eswitch.del(ufid_of(number));
    // One waits that the device has room for; others come all the time, are refused and go.
    refuse(device, asks_for_table, 1);
    expect(is_refused(eswitch.put(ufid_of(waiting), from_port(waiting).recirc(behind - 1))), "a table is not refused");
    for (const auto deadline = Clock::now() + patience; !is_in_nic(eswitch, waiting);) {
        expect(Clock::now() < deadline, "others come and go, and a megaflow does not have its turn");
        put_refused(many);
        (void)eswitch.del(ufid_of(many));
    }
    (void)eswitch.del(ufid_of(waiting));
    // One is refused that the device has room for later, and then so many that they are not tried in a moment.
    (void)eswitch.put(ufid_of(old), from_port(old).output(ports[1].odp));
    refuse(device, asks_for_table, 1);
    expect(is_refused(eswitch.put(ufid_of(waiting), from_port(waiting).recirc(behind))), "a table is not refused");
    const std::uint64_t asked_before = calls_of(device, asks_for_header);
    for (std::uint32_t number = first_refused; number < many; ++number) {
        if (number != waiting) put_refused(number);
    }
    expect_soon([&] { return is_in_nic(eswitch, waiting); }, "newer ones are refused, and a megaflow has no turn");
    expect(calls_of(device, asks_for_header) - asked_before < many / 4, "a device that is full is asked each time");
    device.clear_faults();
    expect_soon([&] { return are_in_nic(eswitch, many); }, "there is room, and a megaflow of many is not in the NIC");
    for (std::uint32_t number = 0; number < many; ++number) (void)eswitch.del(ufid_of(number));
}

void check_same_rule(dr::Eswitch& eswitch, connectx::Device& device) {
    const auto put_refused = [&](const MegaflowBuilder& megaflow, int error) {
        refuse(device, asks_for_header, 1, error);
        const auto outcome = eswitch.put(ufid_of(0), megaflow);
        device.clear_faults();
        return outcome;
    };
    const auto plain = from_port(0).output(ports[1].odp);
    const auto header = dr::test::vxlan();
    const auto into_tunnel = from_port(0).tunnel(header).output(uplink);
    expect(!eswitch.del(ufid_of(0)), "a megaflow that does not exist had counts");
    for (const int error : {EEXIST, ENOMEM}) {
        expect(is_refused(put_refused(into_tunnel, error)), "a megaflow that was refused is asked for at once");
        (void)eswitch.put(ufid_of(0), plain);
        bool is_there = false;
        expect_drains(1, "a rule that goes before its successor", [&] {
            is_there = is_taken(put_refused(into_tunnel, error));
        });
        expect(is_there == (error == EEXIST), "the old rule goes first where the new one is like it, and only there");
        (void)eswitch.del(ufid_of(0));
    }
}

void check_parked(dr::Eswitch& eswitch, connectx::Device& device) {
    constexpr std::uint32_t root = 0, first = 1, back = 2, here = 0xFFFFF0, there = 0xFFFFF1;   // recirc_ids
    const auto header = dr::test::vxlan();
    const auto in = [](std::uint32_t recirc_id) { return MegaflowBuilder(ports[0].odp).ipv4().behind(recirc_id); };
    (void)eswitch.put(ufid_of(root), from_port(root).recirc(here));
    (void)eswitch.put(ufid_of(first), in(here).recirc(there));
    const auto outcome = eswitch.put(ufid_of(back), in(there).recirc(here));
    expect(!is_taken(outcome) && !is_refused(outcome), "a megaflow that goes back does not wait for a table");
    refuse(device, asks_for_header);
    expect(is_refused(eswitch.put(ufid_of(back), in(there).tunnel(header).output(uplink))),
           "the device refuses a header, and the megaflow is in the NIC");
    device.clear_faults();
    expect_soon([&] { return is_in_nic(eswitch, back); }, "one that does not wait for a table any more has no turn");
    for (const std::uint32_t number : {back, first, root}) (void)eswitch.del(ufid_of(number));
}

void check_lone_option(dr::Eswitch& eswitch, connectx::Device& device) {
    constexpr std::uint32_t parent = 0, child = 1, other = 2, third = 3, refusals = 4;
    const std::uint32_t geneve_port = tunnel_port_of(TunnelKind::geneve);
    const auto from = [&](std::uint64_t id) {
        return MegaflowBuilder(geneve_port).from_tunnel(id).option(0x102, 1, 7).ipv4().output(ports[1].odp);
    };
    const auto megaflow = from(5);
    auto pop = MegaflowBuilder(uplink).ipv4().proto(protocol_udp).ports(1, 6081).tunnel_pop(geneve_port);
    (void)eswitch.put(ufid_of(parent), pop);
    refuse(device, asks_for_option);
    for (std::uint32_t i = 1; i < refusals; ++i) {
        (void)eswitch.put(ufid_of(child), megaflow);
        (void)eswitch.del(ufid_of(child));
    }
    std::this_thread::sleep_for(100ms);   // until the backlog's thread sleeps
    const auto begin = Clock::now();
    (void)eswitch.put(ufid_of(child), megaflow);
    const std::uint64_t asked_before = calls_of(device, asks_for_option);
    (void)eswitch.put(ufid_of(other), from(6));
    const bool is_asked = calls_of(device, asks_for_option) != asked_before;
    expect(!is_asked || Clock::now() > begin + 1s, "an option that was refused so often is asked for");   // every 2 s
    device.clear_faults();
    expect_soon([&] { return is_in_nic(eswitch, child); }, "an option is taken at last, and who waits for it waits on");
    expect_soon([&] { return is_in_nic(eswitch, other); }, "an option is taken, and the second one waits on");
    (void)eswitch.put(ufid_of(third), from(7));
    expect(is_in_nic(eswitch, third), "an option is there, and who wants it waits");
    for (const std::uint32_t number : {parent, child, other, third}) (void)eswitch.del(ufid_of(number));
    // One refusal is nobody's but its own.
    (void)eswitch.put(ufid_of(parent), pop);
    refuse(device, asks_for_option, 1);
    (void)eswitch.put(ufid_of(child), megaflow);
    expect(is_taken(eswitch.put(ufid_of(other), from(6))), "an option is refused once, and others wait");
    device.clear_faults();
    for (const std::uint32_t number : {parent, child, other}) (void)eswitch.del(ufid_of(number));
}

void check_flags(dr::Eswitch& eswitch, connectx::Device& device) {
    constexpr std::uint32_t parent = 0, child = 1;
    const std::uint32_t geneve_port = tunnel_port_of(TunnelKind::geneve);
    auto pop = MegaflowBuilder(uplink).ipv4().proto(protocol_udp).ports(1, 6081).tunnel_pop(geneve_port);
    (void)eswitch.put(ufid_of(parent), pop);
    for (const unsigned asked : {0U, unsigned{OVSDR_TUNNEL_OAM}}) {
        MegaflowBuilder megaflow = MegaflowBuilder(geneve_port).from_tunnel(5).ipv4().output(ports[1].odp);
        megaflow.raw().tunnel_mask.flags |= static_cast<std::uint8_t>(asked);
        expect(is_taken(eswitch.put(ufid_of(child), megaflow)), "a megaflow of Geneve is not in the NIC");
        for (const bool oam : {false, true}) (void)Forwarder(device).from_port(wire_vport, geneve_frame(oam));
        const auto last = eswitch.del(ufid_of(child));
        expect(last && last->packets == (asked != 0 ? 1 : 2), "OAM is matched unasked, or not at all");
    }
    (void)eswitch.del(ufid_of(parent));
}

void check_many_in_tunnel(dr::Eswitch& eswitch) {
    constexpr std::uint32_t parent = 0, children_end = 1500;
    const dr::OdpPort port{tunnel_port_of(TunnelKind::gre)};
    (void)eswitch.put(ufid_of(parent), MegaflowBuilder(uplink).ipv4().proto(protocol_gre).tunnel_pop(port.value));
    for (std::uint32_t number = 1; number < children_end; ++number) {
        auto megaflow = MegaflowBuilder(port.value).from_tunnel(number).ipv4().output(ports[1].odp);
        (void)eswitch.put(ufid_of(number), megaflow);
    }
    eswitch.remove_tunnel_port(port);
    expect(!is_in_nic(eswitch, 1), "a tunnel port has gone, and its megaflow is in the NIC");
    eswitch.set_tunnel_port({port, dr::TunnelKind::gre, udp_port_of(TunnelKind::gre), "gre"});
    expect_soon([&] { return are_in_nic(eswitch, children_end); },
                "a tunnel port has come, and a megaflow of it is not in the NIC");
    for (std::uint32_t number = 0; number < children_end; ++number) (void)eswitch.del(ufid_of(number));
}

void check_first(connectx::Device& device) {
    constexpr std::uint32_t many = 2600;   // six bulks of counters: too many to be read whenever somebody asks
    const auto made = [](auto&& result) {
        if (!result) throw std::runtime_error(result.error().what);
        return std::move(*result);
    };
    const auto eswitch = made(dr::Eswitch::open("mlx5_0"));
    std::vector<PortQueues> queues;
    for (const PortNumber& port : {ports[0], ports[1]}) {
        const dr::VportId vport{port.vport};
        const PortQueues& own = queues.emplace_back(*eswitch, vport, false);
        auto attached = eswitch->attach_port({.odp_port = dr::OdpPort{port.odp},
                                              .vport = vport,
                                              .name = "port",
                                              .slow_path_qp = own[0].qp(),
                                              .slow_path_sqn = own[0].sqn()});
        if (!attached) throw std::runtime_error(attached.error().what);
    }
    for (std::uint32_t number = 0; number < many; ++number) {
        expect(is_taken(eswitch->put(ufid_of(number), from_port(number).output(ports[1].odp))),
               "one of the first megaflows is not in the NIC");
    }
    for (const std::uint32_t number : {0U, many - 1}) {
        const auto frame = udp_frame(static_cast<std::uint16_t>(number));
        (void)Forwarder(device).from_port(static_cast<std::uint16_t>(ports[0].vport), frame);
        expect_soon([&] { return eswitch->status(ufid_of(number))->stats.packets == 1; },
                    "nobody reads what the first megaflows count");
    }
    for (const PortNumber& port : {ports[0], ports[1]}) eswitch->detach_port(dr::VportId{port.vport});
}

void check_many(dr::Eswitch& eswitch, connectx::Device& device) {
    constexpr std::uint32_t many = 4500;   // nine bulks of counters
    constexpr std::uint32_t seen_of = 37, most = 60000, leaving = 64;
    constexpr std::uint64_t most_bulks = 48;   // full ones, open ones, and those made ahead
    constexpr std::uint64_t of_one_round = many / 512;   // bulks that it fills in one neighbourhood
    const auto put = [&](std::uint32_t number, std::uint32_t neighbourhood) {
        auto megaflow = from_port(number).output(ports[1].odp);
        return eswitch.put(ufid_of(number), megaflow, static_cast<std::uint16_t>(neighbourhood));
    };
    const std::uint64_t at_first = device.alive()[counters];
    for (std::uint32_t number = 0; number < many; ++number) {
        expect(is_taken(put(number, number)), "the device has room, and a megaflow is not in the NIC");
    }
    expect(device.alive()[counters] <= at_first + most_bulks, "megaflows take more counters than they need");
    Forwarder forwarder(device);
    for (std::uint32_t number = 0; number < many; number += seen_of) {
        const auto frame = udp_frame(static_cast<std::uint16_t>(number));
        (void)forwarder.from_port(static_cast<std::uint16_t>(ports[0].vport), frame);
    }
    const auto counts = [&](std::uint32_t number) { return eswitch.status(ufid_of(number))->stats.packets; };
    const auto is_counted = [&] {
        for (std::uint32_t number = 0; number < many; number += seen_of) {
            if (counts(number) != 1) return false;
        }
        return true;
    };
    expect_soon(is_counted, "nobody reads what many megaflows count");
    expect(eswitch.status(ufid_of(0))->stats.used_ms != 0, "a megaflow has counted, and was never used");
    // The device is full from now on.
    refuse(device, asks_for_counters);
    const std::uint64_t asked_before = calls_of(device, asks_for_counters);
    const auto begin = Clock::now();
    std::uint32_t end = many;
    while (is_taken(put(end, end))) expect(++end < most, "a device that has no more counters takes any number");
    std::this_thread::sleep_for(200ms);
    const auto passed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
    const std::uint64_t asked = calls_of(device, asks_for_counters) - asked_before;
    expect(asked != 0 && asked < 30 + static_cast<std::uint64_t>(passed / 10ms),
           "a device that has no more counters is asked again and again");
    (void)eswitch.del(ufid_of(end));   // it waits
    expect(is_taken(eswitch.put(ufid_of(1), from_port(1).output(ports[2].odp))),
           "a megaflow that has a counter wants another one");
    const auto last = [&](std::uint32_t number) {
        const auto stats = eswitch.del(ufid_of(number));
        expect(stats.has_value(), "a megaflow that was in the NIC has no counts");
        return stats->packets;
    };
    for (std::uint32_t i = 0; i < leaving; ++i) {
        const std::uint32_t number = i * (end / leaving);
        const bool is_seen = number < many && number % seen_of == 0;
        expect(last(number) == (is_seen ? 1 : 0), "a megaflow has another one's counts");
    }
    const auto header = dr::test::vxlan();
    for (std::uint32_t i = 0; i < leaving; ++i) {
        // Its counter is the next one's.
        refuse(device, asks_for_header, 1);
        const auto outcome = eswitch.put(ufid_of(end), from_port(end).tunnel(header).output(uplink));
        expect(is_refused(outcome), "the device refuses a header, and the megaflow is in the NIC");
        (void)eswitch.del(ufid_of(end));
        const std::uint32_t number = i * (end / leaving);
        (void)put(number, number * 7 + 3);
        expect_soon([&] { return is_in_nic(eswitch, number); }, "others have gone, and there is no counter");
        expect(counts(number) == 0, "a megaflow begins with another one's counts");
    }
    device.clear_faults();
    const auto delete_all = [&] {
        std::vector<dr::Eswitch::Deletion> deletions;
        for (std::uint32_t number = 0; number < end; ++number) deletions.push_back({ufid_of(number)});
        eswitch.del(deletions);
    };
    delete_all();
    // Once more, and again. What is made ahead is not as much as there was.
    const std::uint64_t bulks = device.alive()[counters];
    for (unsigned round = 0; round < 3; ++round) {
        for (std::uint32_t number = 0; number < many; ++number) (void)put(number, number);
        delete_all();
    }
    expect(device.alive()[counters] < 2 * bulks, "counters that are free again are not used");
    // And in one neighbourhood, which takes one bulk behind the other: those that it filled have room again.
    const auto bulks_behind = [&](unsigned rounds) {
        for (unsigned round = 0; round < rounds; ++round) {
            for (std::uint32_t number = 0; number < many; ++number) (void)put(number, 0);
            delete_all();
        }
        return device.alive()[counters];
    };
    const std::uint64_t behind_two = bulks_behind(2);   // those that are made ahead come in either
    expect(bulks_behind(3) <= behind_two + of_one_round, "counters of full bulks that are free again are not used");
    std::this_thread::sleep_for(600ms);   // until who reads counters sees that there is none to read
    constexpr std::uint32_t alone = 0;
    (void)put(alone, alone);
    (void)Forwarder(device).from_port(static_cast<std::uint16_t>(ports[0].vport), udp_frame(alone));
    expect_soon([&] { return counts(alone) == 1; }, "nobody reads what one megaflow counts after many");
    (void)eswitch.del(ufid_of(alone));
}

}  // namespace ovsdr::differential
