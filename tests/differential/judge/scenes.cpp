#include "tests/differential/judge/scenes.hpp"

#include <chrono>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

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

}  // namespace

void play_waiting(dr::Eswitch& eswitch, const std::function<void(unsigned nth)>& trouble) {
    const auto from = [](std::uint32_t recirc_id) { return MegaflowBuilder(ports[0].odp).ipv4().behind(recirc_id); };
    const auto back = from(there).recirc(here);
    (void)eswitch.put(root, from(0).recirc(here));
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
        bool went_wrong = true;
        for (unsigned nth = 1; went_wrong; ++nth) {
            trouble(nth);
            (void)eswitch.put(second, megaflow);
            went_wrong = trouble(0);
            expect_taken(eswitch, "that came when the device was full");
            (void)eswitch.del(second);
        }
    }
    (void)eswitch.del(root);
    (void)eswitch.remove_meter(number);
}

void play_twins(dr::Eswitch& eswitch) {
    const std::uint32_t gre_port = tunnel_port_of(TunnelKind::gre);
    const auto from_tunnel = [&] { return MegaflowBuilder(gre_port).from_tunnel(5).ipv4(); };
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
    (void)eswitch.del(first);
    expect_taken(eswitch, "that was alone then");
    for (const dr::Ufid& ufid : {root, second}) (void)eswitch.del(ufid);
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
    // The tunnel is taken off in front of the meter, and the meter is in front of the samplers.
    const std::uint32_t gre_port = tunnel_port_of(TunnelKind::gre);
    eswitch.set_meter(number, {.rate = 1000, .burst = 100});
    (void)eswitch.put(root, MegaflowBuilder(uplink).ipv4().proto(protocol_gre).tunnel_pop(gre_port));
    expect_as_many(MegaflowBuilder(gre_port).from_tunnel(5).ipv4().meter(number), 3);
    for (const dr::Ufid& ufid : {root, second}) (void)eswitch.del(ufid);
    (void)eswitch.remove_meter(number);
    MegaflowBuilder four = MegaflowBuilder(ports[0].odp).ipv4().software(names[0], one_of).for_sampler("one");
    four.software(names[1], one_of).for_sampler("other").software(names[2], one_of / 2).for_sampler("one");
    (void)eswitch.put(second, four.software(names[3], one_of).for_sampler("one").output(ports[1].odp));
    expect_taken(eswitch, "that has four samplers, of which two are one");
    if (eswitch.samplers().size() != 3) throw std::runtime_error("samplers are not told apart by rate and name");
    (void)eswitch.del(second);
}

void play_meter(dr::Eswitch& eswitch) {
    constexpr std::uint32_t number = 0xFFFFF0;   // no scenario's
    const auto expect_used = [&](bool used) {
        if (eswitch.has_meter(number) != used) throw std::runtime_error("who uses a meter is not known");
    };
    eswitch.set_meter(number, {.rate = 1000, .burst = 100});
    expect_used(false);
    (void)eswitch.graph();   // an operator looks at a meter that nobody has used
    (void)eswitch.put(second, MegaflowBuilder(ports[0].odp).ipv4().meter(number).output(ports[1].odp));
    expect_taken(eswitch, "that a meter is to limit");
    expect_used(true);
    (void)eswitch.del(second);
    expect_used(false);
    (void)eswitch.remove_meter(number);
    expect_used(false);
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

}  // namespace ovsdr::differential
