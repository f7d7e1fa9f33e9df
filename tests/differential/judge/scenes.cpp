#include "tests/differential/judge/scenes.hpp"

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/differential/judge/megaflows.hpp"
#include "tests/differential/judge/software_parts.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::differential {

namespace {

using Clock = std::chrono::steady_clock;
using dr::test::MegaflowBuilder;
using namespace std::chrono_literals;

constexpr dr::Ufid root{0x77616974, 1}, first{0x77616974, 2}, second{0x77616974, 3};
constexpr std::uint32_t here = 0xFFFFF0, there = 0xFFFFF1;   ///< recirc_ids, no scenario's
constexpr std::chrono::milliseconds patience = 10s, glance = 4ms;

bool is_in_nic(dr::Eswitch& eswitch, const dr::Ufid& ufid) {
    const auto status = eswitch.status(ufid);
    return status && status->offloaded;
}

void expect_refused(dr::Eswitch& eswitch, const char* when) {
    if (!is_in_nic(eswitch, second)) return;
    throw std::runtime_error(std::string("a megaflow that loops is in the NIC, ") + when);
}

void expect_taken(dr::Eswitch& eswitch, const char* when) {
    const auto deadline = Clock::now() + patience;
    while (!is_in_nic(eswitch, second)) {
        if (Clock::now() > deadline) {
            const auto report = eswitch.explain(second);
            throw std::runtime_error(std::string("a megaflow is not in the NIC ") + when + ": " +
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
    expect_refused(eswitch, "at first");
    trouble(1);
    (void)eswitch.put(second, from(there).output(ports[1].odp));
    trouble(0);
    expect_taken(eswitch, "that waited for a table, and changed when the device was full");
    (void)eswitch.put(second, back);
    expect_refused(eswitch, "again");
    (void)eswitch.del(first);
    (void)eswitch.put(root, from(0).recirc(there));
    expect_taken(eswitch, "that loops no more");
    for (const dr::Ufid& ufid : {root, second}) (void)eswitch.del(ufid);
}

void play_sampled_mirror(dr::Eswitch& eswitch, dr::CopyKind mirror) {
    const auto set = [&](std::uint32_t one_of) {
        const auto done = eswitch.set_mirror_port(dr::OdpPort{mirror_port}, mirror, {.one_of = one_of});
        if (!done) throw std::runtime_error(done.error().what);
    };
    (void)eswitch.put(second, MegaflowBuilder(ports[0].odp).ipv4().output(mirror_port).output(ports[1].odp));
    expect_taken(eswitch, "that a mirror is to see");
    set(2);
    expect_taken(eswitch, "of which a mirror is to see one packet of two");
    (void)eswitch.del(second);
    set(1);
}

}  // namespace ovsdr::differential
