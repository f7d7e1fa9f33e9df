#include "tests/differential/judge/scenes.hpp"

#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "offload/dr/install/landing.hpp"
#include "tests/differential/judge/megaflows.hpp"
#include "tests/differential/judge/provider_calls.hpp"
#include "tests/differential/judge/scene.hpp"
#include "tests/differential/judge/software_parts.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::differential {

namespace {

using dr::test::MegaflowBuilder;
using namespace scene;

/// Of the tables that lead packets to queues, by table and priority.
std::map<std::pair<std::string, std::uint16_t>, std::uint64_t> rules_to_queues(const dr::Eswitch& eswitch) {
    std::map<std::pair<std::string, std::uint16_t>, std::uint64_t> rules;
    for (const auto& [node, table] : eswitch.graph().tables) {
        if (table.domain != "NIC_RX") continue;
        for (const dr::Graph::Matcher& matcher : table.matchers) rules[{node, matcher.priority}] += matcher.rules;
    }
    std::erase_if(rules, [](const auto& row) { return row.second == 0; });
    return rules;
}

/// Puts it again and again, each time with another of the calls failing that make something for it, until none fails;
/// `check` is called each time when it is in the NIC, and it goes. `before`: what it is before that. `prepare`: is
/// called first.
void put_with_failing_calls(dr::Eswitch& eswitch, const std::function<bool(unsigned nth)>& trouble,
                            const MegaflowBuilder& megaflow, const char* which, const auto& check,
                            const MegaflowBuilder* before = nullptr, const std::function<void()>& prepare = [] {}) {
    const auto comes = [&]() -> Result<void> {
        prepare();
        const Result<void> first = before == nullptr ? Result<void>() : put(eswitch, second, *before);
        const Result<void> done = put(eswitch, second, megaflow);
        expect_taken(eswitch, which);
        return first ? done : first;
    };
    bool went_wrong = true;
    for (unsigned nth = 1; went_wrong; ++nth) {
        trouble(nth);
        (void)comes();
        went_wrong = trouble(0);
        check();
        (void)eswitch.del(second);
    }
    expect_makes("a megaflow", [&] {
        const Result<void> done = comes();
        (void)eswitch.del(second);
        return done;
    });
}

}  // namespace

void play_waiting(dr::Eswitch& eswitch, const std::function<void(unsigned nth)>& trouble) {
    const auto from = [](std::uint32_t recirc_id) { return MegaflowBuilder(ports[0].odp).ipv4().behind(recirc_id); };
    const auto back = from(there).recirc(here);
    if (dr::any_recirculation()) throw std::runtime_error("it is said that something recirculates, and nothing does");
    (void)eswitch.put(root, from(0).recirc(here));
    if (!dr::any_recirculation()) throw std::runtime_error("it is said that nothing recirculates, and something does");
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
    // Its own table comes to lie before the one that it leads to, which stays.
    const auto from_other = [](std::uint32_t recirc_id) {
        return MegaflowBuilder(ports[2].odp).ipv4().behind(recirc_id);
    };
    (void)eswitch.put(root, from(0).recirc(near));
    (void)eswitch.put(first, from(near).recirc(here));
    (void)eswitch.put(third, from_other(near).recirc(far));
    (void)eswitch.put(fourth, from_other(far).recirc(there));
    (void)eswitch.put(second, back);
    expect_refused(eswitch, "that leads back again");
    (void)eswitch.del(fourth);
    (void)eswitch.put(fourth, from_other(0).recirc(there));
    expect_taken(eswitch, "whose table has moved");
    for (const dr::Ufid& ufid : {root, first, second, third, fourth}) (void)eswitch.del(ufid);
}

void play_full_device(dr::Eswitch& eswitch, const std::function<bool(unsigned nth)>& trouble, bool has_samplers) {
    constexpr std::uint32_t number = 0xFFFFF3;   // a meter's, no scenario's
    const std::uint32_t gre_port = tunnel_port_of(TunnelKind::gre), to = ports[1].odp, other = ports[2].odp;
    const auto header = dr::test::gre(dr::test::outer_ipv4(protocol_gre));   // one of UDP has each megaflow's own port
    const auto from_port = [](std::uint16_t source_port) {
        return MegaflowBuilder(ports[0].odp).ipv4().proto(protocol_udp).ports(source_port, 53);
    };
    const auto all_from = [&](std::uint16_t source_port) {
        const auto plain = [&] { return from_port(source_port); };
        const auto from_tunnel = [&] {
            return MegaflowBuilder(gre_port).from_tunnel(5).ipv4().proto(protocol_udp).ports(source_port, 53);
        };
        std::vector<MegaflowBuilder> megaflows{
            plain().output(to).output(other),
            plain().output(to).push(7).output(other),
            plain().set(OVSDR_HEADER_IP_TTL, {9}).output(to),
            plain().tunnel(header).output(uplink),
            plain().meter(number).output(to),
            plain().recirc(here),
            plain().copy().recirc(there).end_copy().recirc(here),
            plain().copy().recirc(there).end_copy().push(7).output(other),
            from_tunnel().output(to),
        };
        if (has_samplers) {
            megaflows.push_back(from_tunnel().meter(number).push(7).output(to));
            megaflows.push_back(plain().software("work").output(to));
            megaflows.push_back(plain().software("work", 64).for_sampler("one").output(to));
        }
        return megaflows;
    };
    const MegaflowBuilder plain = from_port(1).output(other);
    const auto renew_meter = [&] {
        (void)eswitch.remove_meter(number);
        eswitch.set_meter(number, {.rate = 1000, .burst = 100});
    };
    const auto expect_one_rule = [&](const char* what, const MegaflowBuilder& megaflow) {
        expect_makes(1, what, [&] {
            const Result<void> done = put(eswitch, second, megaflow);
            if (!done) (void)eswitch.del(second);
            return done;
        });
        for (const dr::Ufid& ufid : {first, second}) (void)eswitch.del(ufid);
    };
    (void)eswitch.put(root, MegaflowBuilder(uplink).ipv4().proto(protocol_gre).tunnel_pop(gre_port));
    const auto megaflows = all_from(1), like_them = all_from(2);
    for (std::size_t i = 0; i < megaflows.size(); ++i) {
        for (const MegaflowBuilder* before : {static_cast<const MegaflowBuilder*>(nullptr), &plain}) {
            put_with_failing_calls(eswitch, trouble, megaflows[i], "that came when the device was full", [] {}, before,
                                   renew_meter);
        }
        (void)eswitch.put(first, megaflows[i]);
        expect_makes(0, "a megaflow that is there", [&] { return put(eswitch, first, megaflows[i]); });
        expect_one_rule("a megaflow with another one's mask and actions", like_them[i]);
    }
    (void)eswitch.put(third, from_port(3).output(other));
    for (const bool tags : {false, true}) {
        const auto changes = [&](std::uint16_t source_port) {
            return tags ? from_port(source_port).push(7) : from_port(source_port).set(OVSDR_HEADER_IP_TTL, {9});
        };
        (void)eswitch.put(first, changes(1).output(to));
        expect_one_rule("a megaflow with others' change and output", changes(2).output(other));
    }
    (void)eswitch.del(third);
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

void play_syncs(dr::Eswitch& eswitch, bool has_samplers) {
    const auto putting = [&](const dr::Ufid& ufid, const MegaflowBuilder& megaflow) {
        return [&eswitch, ufid, megaflow] {
            const Result<void> done = put(eswitch, ufid, megaflow);
            if (!done) (void)eswitch.del(ufid);
            return done;
        };
    };
    const auto plain = [] { return MegaflowBuilder(ports[0].odp).ipv4(); };
    const auto udp = [&] { return plain().proto(protocol_udp); };
    const auto other = [] { return MegaflowBuilder(ports[2].odp).ipv4(); };
    expect_waits(0, "a megaflow", putting(first, plain().output(ports[1].odp)));
    expect_waits(2, "a megaflow's new table", putting(second, udp().recirc(here)));
    expect_waits(0, "a megaflow with a table that is there", putting(third, other().recirc(here)));
    expect_waits(1, "another rule of a megaflow", [&] {
        const Result<void> there = putting(first, plain().output(ports[1].odp))();
        return there ? putting(first, plain().output(ports[2].odp))() : there;
    });
    expect_drains(1, "another rule of a megaflow", [&] { (void)eswitch.put(first, plain().output(ports[1].odp)); });
    for (const dr::Ufid& ufid : {first, second, third}) {
        expect_drains(1, "a megaflow that goes", [&] { (void)eswitch.del(ufid); });
    }
    if (!has_samplers) return;
    expect_waits(1, "work for software", putting(first, plain().software("work").output(ports[1].odp)));
    expect_waits(0, "another megaflow with that work", putting(second, udp().software("work").output(ports[2].odp)));
    for (const dr::Ufid& ufid : {first, second}) (void)eswitch.del(ufid);
}

void play_failed_read(dr::Eswitch& eswitch, const std::function<void()>& fail_next_read,
                      const std::function<bool(unsigned nth)>& trouble, bool has_samplers) {
    const auto failed = [&]() -> std::uint64_t {
        constexpr std::string_view title = "failed counter queries: ";
        const std::string text = eswitch.show(false);
        const std::size_t at = text.find(title);
        return at == std::string::npos ? 0 : std::stoull(text.substr(at + title.size()));
    };
    trouble(1);   // for whether this device's calls can fail
    (void)eswitch.put(second, MegaflowBuilder(ports[0].odp).ipv4().tunnel(dr::test::vxlan()).output(uplink));
    const bool can_fail = trouble(0);
    (void)eswitch.del(second);
    const auto expect_told = [&](const auto& read, bool reads_always) {
        const std::uint64_t before = failed();
        trouble(0);
        fail_next_read();
        (void)read();
        const bool went_wrong = trouble(0);
        const bool is_stale = reads_always && can_fail && !went_wrong;
        if (is_stale) throw std::runtime_error("counters are not read when somebody asks");
        const std::uint64_t after = before + went_wrong;
        // It may be the poller whose reading failed, which says so a moment later.
        for (const auto deadline = std::chrono::steady_clock::now() + patience; failed() != after;) {
            const bool too_late = std::chrono::steady_clock::now() > deadline;
            if (too_late) throw std::runtime_error("a counter that cannot be read is not told of");
            std::this_thread::sleep_for(glance);
        }
    };
    expect_told([&] { return eswitch.totals(); }, false);   // not what was read just now
    if (!has_samplers) return;
    (void)eswitch.put(second, MegaflowBuilder(ports[0].odp).ipv4().software("work").output(ports[1].odp));
    expect_taken(eswitch, "with work for software");
    expect_told([&] { return eswitch.works(); }, true);
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
    const std::size_t before = eswitch.samplers().size();
    MegaflowBuilder four = MegaflowBuilder(ports[0].odp).ipv4().software(names[0], one_of).for_sampler("mine");
    four.software(names[1], one_of).for_sampler("yours").software(names[2], one_of / 2).for_sampler("mine");
    (void)eswitch.put(second, four.software(names[3], one_of).for_sampler("mine").output(ports[1].odp));
    expect_taken(eswitch, "that has four samplers, of which two are one");
    if (eswitch.samplers().size() != before + 3) throw std::runtime_error("rate and name do not tell samplers apart");
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
    (void)eswitch.put(second, MegaflowBuilder(ports[0].odp).ipv4().software("work", 64).behind_meter(number, 4));
    expect_used(false);   // software limits samples
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

void play_next_queue(const dr::Eswitch& eswitch, const std::function<void()>& lead_to_next) {
    const auto first_ones = rules_to_queues(eswitch);
    lead_to_next();
    std::multiset<std::uint64_t> gone, come;   // rules of a table and a priority, where their number is another one
    auto next_ones = rules_to_queues(eswitch);
    for (const auto& [place, rules] : first_ones) {
        const std::uint64_t next = next_ones[place];
        if (next < rules) gone.insert(rules - next);
    }
    for (const auto& [place, rules] : next_ones) {
        const auto first = first_ones.find(place);
        const std::uint64_t before = first == first_ones.end() ? 0 : first->second;
        if (rules > before) come.insert(rules - before);
    }
    if (gone.empty() || gone != come) {
        throw std::runtime_error("rules to a next queue are beside those to the one before");
    }
    lead_to_next();
    if (rules_to_queues(eswitch) != first_ones) {
        throw std::runtime_error("rules to queues do not come back to the priorities of before");
    }
}

void play_services(dr::Eswitch& eswitch, dr::CopyKind mirror, const std::function<bool(unsigned nth)>& trouble,
                   const std::function<void()>& lead) {
    const std::vector<dr::MirrorSteering::Service> none, some{{protocol_udp, 53}, {protocol_tcp, 80}},
        turned{some[1], some[0], some[1]};
    const auto set = [&](const auto& services) {
        return eswitch.set_mirror_port(dr::OdpPort{mirror_port}, mirror, {.services = services});
    };
    expect_makes("services of a mirror", [&] { return set(some); });
    (void)set(none);
    const auto rules = [&] {
        std::uint64_t sum = 0;
        for (const auto& [edge, traffic] : eswitch.graph().edges) {
            if (edge.to == dr::name_of(mirror)) sum += traffic.rules;
        }
        return sum;
    };
    const auto expect = [&](std::uint64_t wanted, const char* when) {
        if (const std::uint64_t now = rules(); now != wanted) {
            throw std::runtime_error(fmt::format("{} rules lead to a mirror, not {}, {}", now, wanted, when));
        }
    };
    const std::uint64_t of_none = rules();
    if (const auto done = set(some); !done) throw std::runtime_error(done.error().what);
    const std::uint64_t of_some = rules();
    if (of_some == of_none) throw std::runtime_error("a mirror has no rules for its services");
    const auto with_some = rules_to_queues(eswitch);
    if (const auto done = set(turned); !done) throw std::runtime_error(done.error().what);
    if (rules_to_queues(eswitch) != with_some) {
        throw std::runtime_error("a mirror's rules are made anew for the same services");
    }
    eswitch.stop_copies(mirror);
    lead();
    expect(of_some, "that comes again");
    for (const auto& [services, wanted] : {std::pair{&none, of_none}, {&some, of_some}, {&none, of_none}}) {
        eswitch.stop_copies(mirror);
        (void)set(*services);
        lead();
        expect(wanted, "whose services changed while it had no queue");
    }
    bool went_wrong = true;
    for (unsigned nth = 1; went_wrong; ++nth) {
        trouble(nth);
        const bool done = set(some).has_value();
        went_wrong = trouble(0);
        expect(done ? of_some : of_none, "whose services change when the device is full");
        (void)set(none);
        expect(of_none, "that has none of its services any more");
    }
}

}  // namespace ovsdr::differential
