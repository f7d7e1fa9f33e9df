// Scenes about the rules that megaflows become, whatever else happens.
#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "tests/differential/judge/megaflows.hpp"
#include "tests/differential/judge/scene.hpp"
#include "tests/differential/judge/scenes.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::differential {

using dr::test::MegaflowBuilder;
using namespace scene;

/// The cache of plans has 256 places: of hundreds that differ from the first some come to its place.
void play_alike(dr::Eswitch& eswitch, bool has_samplers) {
    static constexpr const char* names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    const auto plain = [] { return MegaflowBuilder(ports[0].odp).ipv4(); };
    (void)eswitch.put(first, plain().output(ports[1].odp));
    for (std::uint64_t bits = 1; bits < 1U << std::size(names); ++bits) {
        MegaflowBuilder unsupported = plain().output(ports[1].odp);
        unsupported.raw().unsupported_match = {bits, names};
        (void)eswitch.put(second, unsupported);
        expect_refused(eswitch, "that matches what no device does");
    }
    // Names of actions live as long as the process.
    static const auto numbers = [] {
        std::vector<std::string> all;
        for (unsigned i = 0; i < 2000; ++i) all.push_back(std::to_string(i));
        return all;
    }();
    for (const std::string& number : numbers) {
        const auto outcome = eswitch.put(second, plain().unsupported(number.c_str()).output(ports[1].odp));
        const auto* reject = std::get_if<dr::Reject>(&outcome);
        const bool names_it = reject != nullptr && std::ranges::any_of(reject->obstacles, [&](const auto& each) {
            return each.name.text() == number;
        });
        if (!names_it) throw std::runtime_error("a megaflow is refused for another one's action");
    }
    const auto tagged = [] { return MegaflowBuilder(ports[0].odp).vlan(5).ipv4(); };
    (void)eswitch.put(first, tagged().pop().output(ports[1].odp));
    const auto expect_own = [&](const MegaflowBuilder& megaflow, const std::string& part) {
        (void)eswitch.put(second, megaflow);
        const auto report = eswitch.explain(second);
        if (report && report->text.find(part) != std::string::npos) return;
        throw std::runtime_error("a megaflow has another one's actions: " + (report ? report->text : "none"));
    };
    for (std::uint16_t i = 1; i < 1024; ++i) {
        for (const std::uint16_t tpid : {customer_tag, service_tag}) {
            expect_own(tagged().push(i, tpid).output(ports[1].odp), fmt::format("push_vlan {:#x} vid {} ", tpid, i));
        }
        const auto high = static_cast<std::uint8_t>(i >> 8), low = static_cast<std::uint8_t>(i);
        expect_own(plain().set(OVSDR_HEADER_ETH_DST, {2, 0, 0, 0, high, low}).output(ports[1].odp),
                   fmt::format("dmac_15_0={:#x},", i));
        if (!has_samplers) continue;
        expect_own(plain().software("work", i + 1U).output(ports[1].odp), fmt::format("(1 of {})", i + 1));
    }
    const auto to_vxlan = [](std::uint16_t port) {
        auto megaflow = MegaflowBuilder(uplink).ipv4().proto(protocol_udp).ports(1, port);
        return megaflow.tunnel_pop(tunnel_port_of(TunnelKind::vxlan));
    };
    (void)eswitch.put(first, to_vxlan(4789));
    (void)eswitch.put(second, to_vxlan(4790));
    expect_refused(eswitch, "that leads another port's packets into a tunnel");
    constexpr unsigned payloads = 2000;
    for (unsigned i = 0; has_samplers && i < payloads; ++i) {
        const auto payload = std::to_string(i + payloads);   // as long as the others
        const bool alone = i % 2 != 0;   // all that it does is its payload
        const auto megaflow = alone ? plain().software(payload, 64) : plain().software(payload).output(ports[1].odp);
        (void)eswitch.put(second, megaflow);
        const auto works = eswitch.works();
        const bool is_there = std::ranges::any_of(works, [&](const dr::Eswitch::WorkReport& report) {
            const auto* actions = std::get_if<dr::SoftwareWork::Actions>(&report.work->work);
            return actions != nullptr && std::ranges::equal(*actions, payload, {}, {}, [](char byte) {
                return static_cast<std::uint8_t>(byte);
            });
        });
        if (!is_there) throw std::runtime_error("software would do another megaflow's work");
    }
    for (const dr::Ufid& ufid : {first, second}) (void)eswitch.del(ufid);
}

void play_loose_masks(dr::Eswitch& eswitch, bool parses_icmp) {
    const auto expect_taken_with = [&](const auto& change, const char* which) {
        MegaflowBuilder megaflow = MegaflowBuilder(ports[0].odp).ipv4().output(ports[1].odp);
        change(megaflow.raw());
        (void)eswitch.put(second, megaflow);
        expect_taken(eswitch, which);
        (void)eswitch.del(second);
    };
    for (const std::uint16_t tpid : {customer_tag, std::uint16_t{0}}) {
        expect_taken_with([&](ovsdr_megaflow& megaflow) {
            megaflow.key.be_vlan_tpid[0] = htobe16(tpid);
            megaflow.mask.be_vlan_tpid[0] = 0xFFFF;
            megaflow.mask.be_vlan_tci[0] = 0;
        }, "that matches a tag's TPID alone");
    }
    expect_taken_with([](ovsdr_megaflow& megaflow) { megaflow.mask.recirc_id = 0; }, "of recirculated packets, too");
    for (const std::uint16_t mask : {0, 0xFFFF}) {
        expect_taken_with([&](ovsdr_megaflow& megaflow) {
            megaflow.key.be_eth_type = htobe16(0x600);
            megaflow.mask.be_eth_type = mask;
            megaflow.mask.ip_frag = 0;
        }, "of the first type, or of any");
    }
    expect_taken_with([](ovsdr_megaflow& megaflow) { megaflow.mask.ip_frag = 0; }, "of fragments, too");
    expect_taken_with([](ovsdr_megaflow& megaflow) { megaflow.tunnel_mask.be_id = UINT64_MAX; }, "of no tunnel");
    expect_taken_with([](ovsdr_megaflow& megaflow) {
        megaflow.key.be_eth_type = htobe16(0x86dd);
        megaflow.key.be_ipv6_label = htobe32(7);
        megaflow.mask.be_ipv6_label = UINT32_MAX;
    }, "whose label is matched with what is always 0 of it");
    expect_taken_with([](ovsdr_megaflow& megaflow) { megaflow.mask.be_vlan_tpid[1] = 0xFFFF; }, "without a second tag");
    expect_taken_with([](ovsdr_megaflow& megaflow) {
        megaflow.key.be_vlan_tpid[0] = htobe16(customer_tag);
        megaflow.key.be_vlan_tci[0] = htobe16(dr::test::vlan_present | 5);
        megaflow.mask.be_vlan_tpid[1] = 0xFFFF;
    }, "with a tag and without a second one");
    for (const bool of_code : {false, true}) {
        MegaflowBuilder icmp = MegaflowBuilder(ports[0].odp).ipv4().proto(protocol_icmp).output(ports[1].odp);
        (of_code ? icmp.raw().mask.be_tp_dst : icmp.raw().mask.be_tp_src) = htobe16(0xF000);
        (void)eswitch.put(second, icmp);
        (parses_icmp ? expect_taken : expect_refused)(eswitch, "that matches what is always 0 of ICMP's type or code");
        (void)eswitch.del(second);
    }
}

void play_tables(dr::Eswitch& eswitch, bool is_connectx_5) {
    constexpr std::uint32_t number = 0xFFFFF2;   // a meter's, no scenario's
    constexpr std::uint32_t one_of = 64;
    constexpr int refused = -1;
    constexpr std::uint8_t bits = 0x55;
    const auto eight = {bits, bits, bits, bits, bits, bits, bits, bits};
    const std::uint32_t gre_port = tunnel_port_of(TunnelKind::gre), to = ports[1].odp, other = ports[2].odp;
    const auto from_port = [] { return MegaflowBuilder(ports[0].odp).ipv4(); };
    const auto over_ipv6 = [] { return MegaflowBuilder(ports[0].odp).ipv6(); };
    const auto from_wire = [] { return MegaflowBuilder(uplink).ipv4(); };
    const auto from_tunnel = [&] { return MegaflowBuilder(gre_port).from_tunnel(5).ipv4(); };
    const auto with_ttl = [](MegaflowBuilder megaflow) { return megaflow.set(OVSDR_HEADER_IP_TTL, {9}); };
    const auto header = dr::test::vxlan();
    struct Row {
        const char* what;
        MegaflowBuilder megaflow;
        int of_connectx_5, of_others;   ///< private tables; refused: it is not in the NIC
    };
    const auto meters = [](MegaflowBuilder megaflow) { return megaflow.meter(number).meter(number + 1).meter(number); };
    const Row rows[] = {
        {"into a tunnel", from_port().tunnel(header).output(uplink), 0, 0},
        {"a tag", from_port().push(7).output(to), 0, 0},
        {"two tags", from_port().push(7).push(8).output(to), 1, 0},
        {"a tag, then two", from_port().push(7).output(to).push(8).output(other), 1, 1},
        {"a tag of the wire's becomes another one", with_ttl(from_wire().vlan(5).pop()).push(7).output(to), refused, 0},
        {"a tag of the wire's, then a tunnel", from_wire().push(7).tunnel(header).output(to), refused, 0},
        {"another tag of the wire's, then a tunnel",
         from_wire().vlan(5).pop().push(7).tunnel(header).output(to), refused, 1},
        {"a tag of a tunnel's", with_ttl(from_tunnel()).push(7).output(to), refused, 0},
        {"a drop of a tunnel's", from_tunnel(), 0, 1},
        {"a meter", from_port().meter(number).output(to), 1, 1},
        {"a meter of the wire's", from_wire().meter(number).output(to), 1, 1},
        {"a meter of the wire's, without a tag", from_wire().vlan(5).meter(number).pop().output(to), 1, 2},
        {"a third tag, then a write",
         with_ttl(from_port().vlan(5).second_vlan(6).push(7).output(to)).output(other), 2, 2},
        {"a meter behind a copy for software",
         from_port().copy().software("work").end_copy().meter(number).output(to), refused, 3},
        {"a recirculation behind a meter of a tunnel's", from_tunnel().meter(number).recirc(here), refused, refused},
        {"copies alone", from_port().software("work").software("more").behind_meter(number, 4), refused, refused},
        {"as many commands as one action has",
         over_ipv6().proto(protocol_udp).set(OVSDR_HEADER_IPV6_SRC, eight).under(eight).output(to), 0, 0},
        {"as much as can be in front of a table",
         with_ttl(meters(from_wire().vlan(5)).software("1", one_of).pop().output(to)).recirc(here), refused, 6},
        {"as much without a sampler",
         with_ttl(meters(from_wire().vlan(5)).pop().output(to)).push(7).recirc(here), refused, 5},
    };
    eswitch.set_meter(number + 1, {.rate = 1000, .burst = 100});
    eswitch.set_meter(number, {.rate = 1000, .burst = 100});
    (void)eswitch.put(root, from_wire().proto(protocol_gre).tunnel_pop(gre_port));
    const auto private_tables = [&] {
        std::size_t sum = 0;
        for (const auto& [node, table] : eswitch.graph().tables) sum += table.private_tables;
        return static_cast<int>(sum);
    };
    for (const Row& row : rows) {
        (void)eswitch.put(second, row.megaflow);
        const int expected = is_connectx_5 ? row.of_connectx_5 : row.of_others;
        const int found = is_in_nic(eswitch, second) ? private_tables() : refused;
        if (found != expected) {
            throw std::runtime_error(fmt::format("{} has {} tables of its own, not {} ({}: refused)", row.what,
                                                 found, expected, refused));
        }
        (void)eswitch.del(second);
    }
    (void)eswitch.del(root);
    for (const std::uint32_t each : {number, number + 1}) (void)eswitch.remove_meter(each);
}

void play_loose_tunnels(dr::Eswitch& eswitch) {
    const std::uint32_t gre_port = tunnel_port_of(TunnelKind::gre), vxlan_port = tunnel_port_of(TunnelKind::vxlan);
    const auto from_gre = [&] { return MegaflowBuilder(gre_port).from_tunnel(5).ipv4().output(ports[1].odp); };
    (void)eswitch.put(root, MegaflowBuilder(uplink).ipv4().proto(protocol_gre).tunnel_pop(gre_port));
    for (const bool of_ports : {false, true}) {
        MegaflowBuilder megaflow = from_gre();
        ovsdr_tunnel_fields &key = megaflow.raw().tunnel_key, &mask = megaflow.raw().tunnel_mask;
        if (of_ports) {
            mask.be_tp_src = mask.be_tp_dst = 0xFFFF;   // GRE has none: they are 0
        } else {
            key.flags = mask.flags = 0;
        }
        (void)eswitch.put(second, megaflow);
        expect_taken(eswitch, "of GRE that matches what is always 0, or not whether there is a key");
        (void)eswitch.del(second);
    }
    // Twins, of which one asks for less that no device sees.
    (void)eswitch.put(third, MegaflowBuilder(uplink).ipv4().proto(protocol_udp).ports(1, 4789).tunnel_pop(vxlan_port));
    const auto with = [&](unsigned flags, unsigned mask) {
        MegaflowBuilder megaflow = MegaflowBuilder(vxlan_port).from_tunnel(5).ipv4().output(ports[1].odp);
        megaflow.raw().tunnel_key.flags = static_cast<std::uint8_t>(flags);
        megaflow.raw().tunnel_mask.flags = static_cast<std::uint8_t>(mask);
        return megaflow;
    };
    constexpr unsigned key = OVSDR_TUNNEL_KEY, checksum = OVSDR_TUNNEL_CSUM, management = OVSDR_TUNNEL_OAM;
    (void)eswitch.put(first, with(key, key));
    (void)eswitch.put(second, with(key | checksum, key | checksum));
    expect_refused(eswitch, "that differs in nothing that the device sees");
    (void)eswitch.put(first, with(key, key | checksum));
    (void)eswitch.put(second, with(key, key | checksum | management));
    expect_taken(eswitch, "that has a twin that asks for less");
    for (const dr::Ufid& ufid : {root, first, second, third}) (void)eswitch.del(ufid);
    // Such headers as OVS does not push today.
    auto bare = dr::test::vxlan();
    constexpr std::size_t udp_end = 42;
    bare.resize(udp_end);
    (void)eswitch.put(second, MegaflowBuilder(ports[0].odp).ipv4().tunnel(bare).output(uplink));
    expect_taken(eswitch, "whose tunnel has nothing behind UDP");
    (void)eswitch.del(second);
}

}  // namespace ovsdr::differential
