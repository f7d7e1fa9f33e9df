#include "tests/differential/judge/scenes.hpp"

#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "offload/dr/install/landing.hpp"
#include "tests/differential/judge/megaflows.hpp"
#include "tests/differential/judge/software_parts.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::differential {

namespace {

using Clock = std::chrono::steady_clock;
using dr::test::MegaflowBuilder;
using namespace std::chrono_literals;

constexpr dr::Ufid root{0x77616974, 1}, first{0x77616974, 2}, second{0x77616974, 3}, third{0x77616974, 4};
constexpr std::uint32_t here = 0xFFFFF0, there = 0xFFFFF1, far = here | 1U << 31;   ///< recirc_ids, no scenario's
constexpr std::chrono::milliseconds patience = 10s, glance = 4ms;

bool is_in_nic(dr::Eswitch& eswitch, const dr::Ufid& ufid) {
    const auto status = eswitch.status(ufid);
    return status && status->offloaded;
}

void expect_refused(dr::Eswitch& eswitch, const char* which) {
    if (is_in_nic(eswitch, second)) throw std::runtime_error(std::string("a megaflow is in the NIC ") + which);
}

void expect_taken(dr::Eswitch& eswitch, const char* which) {
    const auto deadline = Clock::now() + patience;
    while (!is_in_nic(eswitch, second)) {
        if (Clock::now() > deadline) {
            const auto report = eswitch.explain(second);
            throw std::runtime_error(std::string("a megaflow is not in the NIC ") + which + ": " +
                                     (report ? report->text : "it is not known"));
        }
        std::this_thread::sleep_for(glance);
    }
}

/// Of the rules that lead copies to the mirror.
std::set<std::uint16_t> priorities_of(const dr::Eswitch& eswitch, dr::CopyKind mirror) {
    const dr::Graph graph = eswitch.graph();
    std::set<std::uint16_t> priorities;
    for (const auto& [edge, traffic] : graph.edges) {
        if (edge.to != dr::name_of(mirror)) continue;
        for (const dr::Graph::Matcher& matcher : graph.tables.at(edge.from).matchers) {
            if (matcher.number == edge.matcher) priorities.insert(matcher.priority);
        }
    }
    if (priorities.empty()) throw std::runtime_error("the graph does not lead to the mirror");
    return priorities;
}

/// Puts it again and again, each time with another of the calls failing that make something for it, until none fails;
/// `check` is called each time when it is in the NIC, and it goes.
void put_with_failing_calls(dr::Eswitch& eswitch, const std::function<bool(unsigned nth)>& trouble,
                            const MegaflowBuilder& megaflow, const char* which, const auto& check) {
    bool went_wrong = true;
    for (unsigned nth = 1; went_wrong; ++nth) {
        trouble(nth);
        (void)eswitch.put(second, megaflow);
        went_wrong = trouble(0);
        expect_taken(eswitch, which);
        check();
        (void)eswitch.del(second);
    }
}

}  // namespace

void play_waiting(dr::Eswitch& eswitch, const std::function<void(unsigned nth)>& trouble) {
    const auto from = [](std::uint32_t recirc_id) { return MegaflowBuilder(ports[0].odp).ipv4().behind(recirc_id); };
    const auto back = from(there).recirc(here);
    if (dr::any_recirculation()) throw std::runtime_error("there is no table behind a recirculation yet");
    (void)eswitch.put(root, from(0).recirc(here));
    if (!dr::any_recirculation()) throw std::runtime_error("there is a table behind a recirculation");
    (void)eswitch.put(first, from(here).recirc(there));
    (void)eswitch.put(second, back);
    expect_refused(eswitch, "that loops");
    trouble(1);
    (void)eswitch.put(second, from(there).output(ports[1].odp));
    trouble(0);
    expect_taken(eswitch, "that waited for a table, and changed when the device was full");
    (void)eswitch.put(second, back);
    expect_refused(eswitch, "that loops again");
    (void)eswitch.del(first);
    (void)eswitch.put(root, from(0).recirc(there));
    expect_taken(eswitch, "that loops no more");
    for (const dr::Ufid& ufid : {root, second}) (void)eswitch.del(ufid);
    // It waits for a table of before it to go.
    (void)eswitch.put(root, from(0).recirc(here));
    (void)eswitch.put(first, from(here).recirc(there));
    (void)eswitch.put(third, MegaflowBuilder(ports[2].odp).ipv4().recirc(there));
    (void)eswitch.put(second, back);
    expect_refused(eswitch, "that leads back");
    for (const dr::Ufid& ufid : {first, root}) (void)eswitch.del(ufid);
    expect_taken(eswitch, "that leads to a table that has gone");
    for (const dr::Ufid& ufid : {third, second}) (void)eswitch.del(ufid);
}

void play_full_device(dr::Eswitch& eswitch, const std::function<bool(unsigned nth)>& trouble, bool has_samplers) {
    constexpr std::uint32_t number = 0xFFFFF3;   // a meter's, no scenario's
    const std::uint32_t gre_port = tunnel_port_of(TunnelKind::gre);
    const auto from_port = [] { return MegaflowBuilder(ports[0].odp).ipv4().proto(protocol_udp).ports(1, 53); };
    const std::uint32_t to = ports[1].odp, other = ports[2].odp;
    const auto header = dr::test::vxlan();
    eswitch.set_meter(number, {.rate = 1000, .burst = 100});
    (void)eswitch.put(root, MegaflowBuilder(uplink).ipv4().proto(protocol_gre).tunnel_pop(gre_port));
    std::vector<MegaflowBuilder> megaflows{
        from_port().output(to).push(7).output(other),
        from_port().set(OVSDR_HEADER_IP_TTL, {9}).output(to),
        from_port().tunnel(header).output(uplink),
        from_port().meter(number).output(to),
        from_port().recirc(here),
        MegaflowBuilder(gre_port).from_tunnel(5).ipv4().output(to),
    };
    if (has_samplers) {
        megaflows.push_back(MegaflowBuilder(gre_port).from_tunnel(5).ipv4().meter(number).push(7).output(to));
        megaflows.push_back(from_port().software("work").output(to));
        megaflows.push_back(from_port().software("work", 64).for_sampler("one").output(to));
    }
    for (const MegaflowBuilder& megaflow : megaflows) {
        put_with_failing_calls(eswitch, trouble, megaflow, "that came when the device was full", [] {});
    }
    (void)eswitch.del(root);
    (void)eswitch.remove_meter(number);
}

void play_options(dr::Eswitch& eswitch, const std::function<bool(unsigned nth)>& trouble) {
    const std::uint32_t geneve_port = tunnel_port_of(TunnelKind::geneve);
    const auto with_option = [&](std::uint8_t type) {
        return MegaflowBuilder(geneve_port).from_tunnel(5).option(0x102, type, 7).ipv4().output(ports[1].odp);
    };
    (void)eswitch.put(root, MegaflowBuilder(uplink).ipv4().proto(protocol_udp).ports(1, 6081).tunnel_pop(geneve_port));
    put_with_failing_calls(eswitch, trouble, with_option(1), "whose option the device did not take at first", [&] {
        (void)eswitch.put(third, with_option(2));
        if (is_in_nic(eswitch, third)) throw std::runtime_error("two Geneve options are in the NIC");
        (void)eswitch.del(third);
    });
    (void)eswitch.del(root);
}

/// The cache of programs has 256 places: of hundreds that differ from the first some come to its place.
void play_alike(dr::Eswitch& eswitch, bool has_copies) {
    static constexpr const char* names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    const auto plain = [] { return MegaflowBuilder(ports[0].odp).ipv4(); };
    (void)eswitch.put(first, plain().output(ports[1].odp));
    for (std::uint64_t bits = 1; bits < 1U << std::size(names); ++bits) {
        MegaflowBuilder unsupported = plain().output(ports[1].odp);
        unsupported.raw().unsupported_match = {bits, names};
        (void)eswitch.put(second, unsupported);
        expect_refused(eswitch, "that matches what no device does");
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
        if (!has_copies) continue;
        expect_own(plain().software("work", i + 1U).output(ports[1].odp), fmt::format("(1 of {})", i + 1));
    }
    constexpr unsigned payloads = 2000;
    for (unsigned i = 0; has_copies && i < payloads; ++i) {
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

void play_failed_read(dr::Eswitch& eswitch, const std::function<void()>& fail_next_read,
                      const std::function<bool(unsigned nth)>& trouble, bool has_copies) {
    const auto failed = [&]() -> std::uint64_t {
        constexpr std::string_view title = "failed counter queries: ";
        const std::string text = eswitch.show(false);
        const std::size_t at = text.find(title);
        return at == std::string::npos ? 0 : std::stoull(text.substr(at + title.size()));
    };
    const auto expect_told = [&](const auto& read) {
        const std::uint64_t before = failed();
        trouble(0);
        fail_next_read();
        (void)read();
        const unsigned went_wrong = trouble(0);
        if (failed() != before + went_wrong) throw std::runtime_error("a counter that cannot be read is not told of");
    };
    expect_told([&] { return eswitch.totals(); });
    if (!has_copies) return;
    (void)eswitch.put(second, MegaflowBuilder(ports[0].odp).ipv4().software("work").output(ports[1].odp));
    expect_told([&] { return eswitch.works(); });
    const std::string mark = fmt::format("metadata_reg_c_1={:#x},", dr::Landing::mark_of(eswitch.works().front().id));
    const auto report = eswitch.explain(second);
    const bool names_it = report && std::ranges::any_of(report->program, [&](const std::string& line) {
        return line.find(mark) != std::string::npos;
    });
    if (!names_it) throw std::runtime_error("a program does not mark copies as they are marked");
    (void)eswitch.del(second);
}

void play_twins(dr::Eswitch& eswitch) {
    const std::uint32_t gre_port = tunnel_port_of(TunnelKind::gre);
    const auto from_tunnel = [&] { return MegaflowBuilder(gre_port).from_tunnel(5).ipv4(); };
    (void)eswitch.put(second, from_tunnel().output(ports[1].odp));
    expect_refused(eswitch, "that nothing leads to");
    const auto report = eswitch.explain(second);
    const bool is_told = report && report->text.find("in_port is a tunnel port") != std::string::npos;
    if (!is_told) throw std::runtime_error("who waits for a tunnel's packets says: " + (report ? report->text : ""));
    (void)eswitch.put(root, MegaflowBuilder(uplink).ipv4().proto(protocol_gre).tunnel_pop(gre_port));
    (void)eswitch.put(first, from_tunnel().recirc(here));
    (void)eswitch.put(third, from_tunnel().behind(here).recirc(far));
    (void)eswitch.put(second, from_tunnel().behind(far).output(ports[1].odp));
    expect_taken(eswitch, "that two other tables have one like");
    for (const dr::Ufid& ufid : {root, first, second, third}) (void)eswitch.del(ufid);
    // No device sees whether there is an outer checksum: who comes later waits.
    const std::uint32_t vxlan_port = tunnel_port_of(TunnelKind::vxlan);
    const auto with = [&](unsigned flags) {
        return MegaflowBuilder(vxlan_port).from_tunnel(5).tunnel_flags(OVSDR_TUNNEL_KEY | flags).ipv4();
    };
    (void)eswitch.put(root, MegaflowBuilder(uplink).ipv4().proto(protocol_udp).ports(1, 4789).tunnel_pop(vxlan_port));
    (void)eswitch.put(first, with(0).output(ports[1].odp));
    (void)eswitch.put(second, with(OVSDR_TUNNEL_CSUM).output(ports[2].odp));
    expect_refused(eswitch, "that differs in nothing that the device sees");
    (void)eswitch.put(second, with(0).output(ports[1].odp));
    expect_taken(eswitch, "that has a twin");
    MegaflowBuilder of_other_port = with(0).output(ports[2].odp);
    of_other_port.raw().tunnel_key.be_tp_dst = htobe16(4790);
    of_other_port.raw().tunnel_mask.be_tp_dst = 0xFFFF;
    (void)eswitch.put(second, of_other_port);
    expect_taken(eswitch, "of another port of UDP, though no packet is");
    (void)eswitch.put(second, with(OVSDR_TUNNEL_CSUM).output(ports[2].odp));
    expect_refused(eswitch, "that has no twin any more");
    (void)eswitch.del(first);
    expect_taken(eswitch, "that was alone then");
    for (const dr::Ufid& ufid : {root, second}) (void)eswitch.del(ufid);
}

void play_flood(dr::Eswitch& eswitch) {
    constexpr std::uint32_t first_port = 0x10000, outputs = OVSDR_MAX_ACTIONS;   // no scenario's ports
    MegaflowBuilder flood = MegaflowBuilder(ports[0].odp).ipv4();
    for (std::uint32_t i = 0; i < outputs; ++i) flood.output(first_port + i);
    const auto set_gone = [&](bool gone) {
        for (std::uint32_t i = 0; i < outputs; ++i) eswitch.set_gone_port(dr::OdpPort{first_port + i}, gone);
    };
    set_gone(true);
    (void)eswitch.put(second, flood);
    expect_taken(eswitch, "whose outputs are all gone");
    eswitch.set_gone_port(dr::OdpPort{first_port + outputs - 1}, false);
    expect_refused(eswitch, "all of whose outputs are left to software");
    set_gone(false);
    (void)eswitch.del(second);
}

void play_samplers(dr::Eswitch& eswitch) {
    constexpr std::string_view names[] = {"1", "2", "3", "4", "5", "6", "7"};
    constexpr std::uint32_t one_of = 64, number = 0xFFFFF2;   // a meter's, no scenario's
    const auto expect_as_many = [&](MegaflowBuilder many, std::size_t tables) {
        for (std::size_t i = 0; i < tables; ++i) many.software(names[i], one_of);
        (void)eswitch.put(second, MegaflowBuilder(many).output(ports[1].odp));
        expect_taken(eswitch, "that has as many samplers as tables");
        (void)eswitch.put(second, many.software(names[tables], one_of).output(ports[1].odp));
        expect_refused(eswitch, "that has a sampler more than tables");
    };
    expect_as_many(MegaflowBuilder(ports[0].odp).ipv4(), 6);
    MegaflowBuilder in_front = MegaflowBuilder(ports[0].odp).ipv4();
    for (std::size_t i = 0; i < 5; ++i) in_front.software(names[i], one_of);
    (void)eswitch.put(second, in_front.recirc(here));
    expect_taken(eswitch, "that has samplers in front of another table");
    // A tag goes onto packets from the wire in the first rule, for it may count them.
    MegaflowBuilder tagged = MegaflowBuilder(uplink).ipv4().push(7);
    for (std::size_t i = 0; i < 5; ++i) tagged.software(names[i], one_of);
    (void)eswitch.put(second, tagged.output(ports[1].odp));
    expect_taken(eswitch, "that has five samplers behind a tag");
    // The tunnel is taken off in front of the meter, and the meter is in front of the samplers.
    const std::uint32_t gre_port = tunnel_port_of(TunnelKind::gre);
    eswitch.set_meter(number, {.rate = 1000, .burst = 100});
    (void)eswitch.put(root, MegaflowBuilder(uplink).ipv4().proto(protocol_gre).tunnel_pop(gre_port));
    expect_as_many(MegaflowBuilder(gre_port).from_tunnel(5).ipv4().meter(number), 3);
    expect_as_many(MegaflowBuilder(gre_port).from_tunnel(5).ipv4(), 5);
    expect_as_many(MegaflowBuilder(ports[0].odp).ipv4().meter(number), 5);
    for (const dr::Ufid& ufid : {root, second}) (void)eswitch.del(ufid);
    (void)eswitch.remove_meter(number);
    MegaflowBuilder four = MegaflowBuilder(ports[0].odp).ipv4().software(names[0], one_of).for_sampler("one");
    four.software(names[1], one_of).for_sampler("other").software(names[2], one_of / 2).for_sampler("one");
    (void)eswitch.put(second, four.software(names[3], one_of).for_sampler("one").output(ports[1].odp));
    expect_taken(eswitch, "that has four samplers, of which two are one");
    if (eswitch.samplers().size() != 3) throw std::runtime_error("samplers are not told apart by rate and name");
    (void)eswitch.del(second);
}

void play_tables(dr::Eswitch& eswitch, bool is_connectx_5) {
    constexpr std::uint32_t number = 0xFFFFF2;   // a meter's, no scenario's
    constexpr std::uint32_t one_of = 64;
    constexpr int refused = -1;
    const std::uint32_t gre_port = tunnel_port_of(TunnelKind::gre), to = ports[1].odp, other = ports[2].odp;
    const auto from_port = [] { return MegaflowBuilder(ports[0].odp).ipv4(); };
    const auto from_wire = [] { return MegaflowBuilder(uplink).ipv4(); };
    const auto from_tunnel = [&] { return MegaflowBuilder(gre_port).from_tunnel(5).ipv4(); };
    const auto with_ttl = [](MegaflowBuilder megaflow) { return megaflow.set(OVSDR_HEADER_IP_TTL, {9}); };
    const auto header = dr::test::vxlan();
    struct Row {
        const char* what;
        MegaflowBuilder megaflow;
        int of_connectx_5, of_others;
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
            throw std::runtime_error(fmt::format("{} has {} tables of its own, not {}", row.what, found, expected));
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

void play_meter(dr::Eswitch& eswitch) {
    constexpr std::uint32_t number = 0xFFFFF0;   // no scenario's
    const auto expect_used = [&](bool used) {
        if (eswitch.has_meter(number) != used) throw std::runtime_error("who uses a meter is not known");
    };
    (void)eswitch.lower_meter(number, 1);   // nothing: there is no such meter
    eswitch.set_meter(number, {.rate = 1000, .burst = 100});
    (void)eswitch.lower_meter(number, 1);   // nor has it an object
    expect_used(false);
    (void)eswitch.graph();   // an operator looks at a meter that nobody has used
    eswitch.set_meter(number, {.rate = 2000, .burst = 100});
    unsigned told = 0;
    eswitch.on_meter_use([&] { ++told; });
    const auto metered = [&] { return MegaflowBuilder(ports[0].odp).ipv4().meter(number); };
    (void)eswitch.put(second, metered().output(ports[1].odp));
    expect_taken(eswitch, "that a meter is to limit");
    expect_used(true);
    (void)eswitch.put(first, metered().proto(protocol_udp).output(ports[1].odp));
    if (told != 1) throw std::runtime_error("who waits for a meter's first rule is told of another one, or of none");
    eswitch.on_meter_use({});
    eswitch.set_meter(number, {.rate = 3000, .burst = 100});   // in the device
    expect_taken(eswitch, "whose meter has changed");
    const auto is_lowered = [&] { return eswitch.show(true).find("(now ") != std::string::npos; };
    const auto lower = [&](std::uint32_t rate, bool lowered) {
        const bool done = eswitch.lower_meter(number, rate) && is_lowered() == lowered;
        if (!done) throw std::runtime_error(fmt::format("a meter is not lowered to {} of 3000", rate));
    };
    lower(0, true);
    lower(100, true);
    lower(3000, false);
    (void)eswitch.del(first);
    (void)eswitch.put(second, metered());
    expect_used(true);
    (void)eswitch.remove_meter(number);
    expect_refused(eswitch, "whose meter has gone");
    (void)eswitch.del(second);
    expect_used(false);
}

void play_meters(dr::Eswitch& eswitch) {
    constexpr std::uint32_t end = 0xFFFFF4, begin = end - 4;   // no scenario's
    const auto ufid_of_meter = [](std::uint32_t number) { return dr::Ufid{0x6d657465, number}; };
    for (std::uint32_t number = begin; number != end; ++number) {
        eswitch.set_meter(number, {.rate = 1000, .burst = 100});
        auto megaflow = MegaflowBuilder(ports[0].odp).ipv4().proto(protocol_udp);
        megaflow.ports(static_cast<std::uint16_t>(number), 53).meter(number).output(ports[1].odp);
        (void)eswitch.put(ufid_of_meter(number), megaflow);
        const bool is_there = is_in_nic(eswitch, ufid_of_meter(number));
        if (!is_there) throw std::runtime_error("a megaflow with a meter is not in the NIC");
    }
    const std::string text = eswitch.show(true);
    std::set<std::string> halves;
    std::size_t count = 0;
    for (std::size_t at = text.find("half "); at != std::string::npos; at = text.find("half ", at + 1), ++count) {
        halves.insert(text.substr(at, text.find(';', at) - at));
    }
    if (halves.size() != count) throw std::runtime_error("two meters say that they are one half of an object");
    for (std::uint32_t number = begin; number != end; ++number) {
        (void)eswitch.del(ufid_of_meter(number));
        (void)eswitch.remove_meter(number);
    }
}

void play_sampled_mirror(dr::Eswitch& eswitch, dr::CopyKind mirror, bool has_samplers) {
    const dr::CopyKind no_mirror = dr::mirror_kind(1);
    if (eswitch.copies(no_mirror) != 0 || eswitch.filtered_copies(no_mirror) != 0) {
        throw std::runtime_error("copies for a mirror that there never was");
    }
    const auto set = [&](std::uint32_t one_of) {
        const auto done = eswitch.set_mirror_port(dr::OdpPort{mirror_port}, mirror, {.one_of = one_of});
        if (!done) throw std::runtime_error(done.error().what);
    };
    (void)eswitch.put(second, MegaflowBuilder(ports[0].odp).ipv4().output(mirror_port).output(ports[1].odp));
    expect_taken(eswitch, "that a mirror is to see");
    set(2);
    (has_samplers ? expect_taken : expect_refused)(eswitch, "of which a mirror is to see one packet of two");
    set(1);
    expect_taken(eswitch, "that a mirror is to see again");
    (void)eswitch.del(second);
}

void play_next_queue(const dr::Eswitch& eswitch, dr::CopyKind mirror, const std::function<void()>& lead_to_next) {
    const auto first_ones = priorities_of(eswitch, mirror);
    lead_to_next();
    if (priorities_of(eswitch, mirror) == first_ones) {
        throw std::runtime_error("rules to a mirror's next queue are beside those to the one before");
    }
    lead_to_next();
    if (priorities_of(eswitch, mirror) != first_ones) {
        throw std::runtime_error("rules to a mirror's queues do not come back to the priority of before");
    }
}

}  // namespace ovsdr::differential
