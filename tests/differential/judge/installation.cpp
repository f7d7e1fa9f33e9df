#include "tests/differential/judge/installation.hpp"

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <variant>

#include "offload/dr/device/ib_port.hpp"
#include "tests/differential/judge/never_offloaded.hpp"
#include "tests/differential/judge/scenes.hpp"
#include "tests/differential/judge/provider_calls.hpp"

namespace ovsdr::differential {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// How long megaflows that must be in the NIC may wait, and how long nothing more must happen to the others.
constexpr std::chrono::milliseconds patience = 10s, quiet = 40ms, glance = 4ms;
constexpr std::size_t deletions_at_once = 64;
constexpr unsigned most_tries = 500;   ///< to attach a port, or to lead copies to a queue
/// They are put before this phase's changes. Megaflows of tunnels leave the device then and come again, and who comes
/// first has the Geneve option: in this phase those that ask for the usual one go anyway (scenario.cpp).
constexpr std::size_t odd_megaflows_in = 3;
constexpr unsigned copies_that_wait = 4096;
constexpr std::uint32_t odd = 40503;   ///< spreads numbers

dr::Ufid ufid_of(std::size_t number) { return {0x6d656761, number}; }

dr::TunnelKind kind_of(TunnelKind kind) {
    switch (kind) {
        case TunnelKind::vxlan: return dr::TunnelKind::vxlan;
        case TunnelKind::geneve: return dr::TunnelKind::geneve;
        case TunnelKind::gre: return dr::TunnelKind::gre;
    }
    throw std::runtime_error("no such tunnel");
}

template <typename T>
T checked(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().what);
    return std::move(*result);
}

/// Of one that is full for a moment (device_faults.hpp).
bool is_of_full_device(const Error& error) { return error.code == ENOMEM || error.code == ENOSPC; }

/// Asks a device that is full for a moment until there is room, as an operator would.
template <typename Attempt>
void until_there_is_room(const char* what, const Installation::Trouble& trouble, Attempt&& attempt) {
    for (unsigned nth = 1; nth <= most_tries; ++nth) {
        trouble(nth);
        const Result<void> done = attempt();
        if (done) {
            trouble(0);
            return;
        }
        if (!is_of_full_device(done.error())) throw std::runtime_error(done.error().what);
    }
    throw std::runtime_error(std::string(what) + " finds no room");
}

Result<std::unique_ptr<slowpath::PortQueue>> queue_for_copies(const dr::Eswitch& eswitch) {
    const dr::IbPort ib_port = checked(dr::find_ib_port(eswitch.context(), dr::VportId{wire_vport}));
    return slowpath::PortQueue::create({.context = eswitch.context(),
                                        .pd = eswitch.pd(),
                                        .ib_port = ib_port.number,
                                        .receive_length = copies_that_wait});
}

/// The first queue for copies, which brings the table of all.
Result<void> open_with_copies() {
    auto opened = dr::Eswitch::open("mlx5_0");
    if (!opened) return tl::unexpected(std::move(opened.error()));
    const auto queue = checked(queue_for_copies(**opened));
    auto led = (*opened)->lead_copies(judged_copies[0], queue->qp());
    (*opened)->stop_copies(judged_copies[0]);
    return led;
}

/// Each call that opening makes fails in turn. libmlx5 does without some of them: what opens then is closed again.
std::shared_ptr<dr::Eswitch> open_eswitch(const Installation::Trouble& trouble) {
    for (unsigned nth = 1;; ++nth) {
        trouble(nth);
        auto opened = dr::Eswitch::open("mlx5_0");
        if (const bool went_wrong = trouble(0); !went_wrong) return checked(std::move(opened));
    }
}

}  // namespace

Installation::Installation(const Scenario& scenario, const OvsJudge& ovs, unsigned format, Verdict& verdict,
                           const Trouble& trouble, std::function<void()> fail_next_read)
    : scenario_(scenario), connectx_5_(format == 0), ovs_(ovs), verdict_(verdict), expectations_(scenario, format),
      fail_next_read_(std::move(fail_next_read)), version_of_(scenario.ufids, -1) {
    expect_waits(4, "an eswitch with a queue for copies", open_with_copies);
    expect_makes("an eswitch with a queue for copies", open_with_copies);
    eswitch_ = open_eswitch(trouble);
    came_up_.resize(port_length);
    for (std::size_t port = 0; port < port_length; ++port) {
        queues_.emplace_back(*eswitch_, dr::VportId{ports[port].vport}, port % 2 != 0);
        attach(port, trouble);
    }
    for (const dr::CopyKind kind : judged_copies) {
        make_copy_queue(kind);
        lead_copies(kind, trouble);
    }
    check_queues();
    eswitch_->set_host_port(dr::OdpPort{host_port}, true);
    mirror({});
    for (const TunnelKind kind : tunnel_kinds) add_tunnel_port(kind);
    play_waiting(*eswitch_, trouble);
    play_syncs(*eswitch_, !connectx_5_);
    play_full_device(*eswitch_, trouble, !connectx_5_);
    play_options(*eswitch_, trouble);
    play_alike(*eswitch_, !connectx_5_);
    play_loose_masks(*eswitch_, !connectx_5_);
    play_failed_read(*eswitch_, fail_next_read_, trouble, !connectx_5_);
    play_twins(*eswitch_);
    play_tables(*eswitch_, connectx_5_);
    play_loose_tunnels(*eswitch_);
    play_flood(*eswitch_);
    play_meter(*eswitch_);
    play_meters(*eswitch_);
    if (!connectx_5_) play_samplers(*eswitch_);
    play_sampled_mirror(*eswitch_, mirror_copies, !connectx_5_);
    check_never_offloaded(*eswitch_, [] {});   // while no other megaflow is in the way
    play_next_queue(*eswitch_, [this] { replace_copy_queue(mirror_copies); });
    for (std::size_t port = 0; port < 2; ++port) {
        play_next_queue(*eswitch_, [&] {
            switch_queues(port, !queues_[port].by_kind().empty());
            forget_old_queues();
        });
    }
    play_services(*eswitch_, mirror_copies, trouble, [this] { lead_copies(mirror_copies); });
}

Installation::~Installation() {
    for (const PortNumber& port : ports) eswitch_->detach_port(dr::VportId{port.vport});
    for (const dr::CopyKind kind : judged_copies) eswitch_->stop_copies(kind);
    old_.reset();
    old_copies_.reset();
    queues_.clear();
}

/// What leads to queues is in the device before packets are led there, and goes when none is under way to it.
void Installation::check_queues() {
    const dr::CopyKind kind = judged_copies[0];
    expect_drains(1, "another queue for copies", [&] { replace_copy_queue(kind); });
    expect_drains(3, "a queue for copies that goes", [&] { eswitch_->stop_copies(kind); });
    const auto leads = [&] { return eswitch_->lead_copies(kind, copy_queue(kind).qp()); };
    expect_waits(1, "a queue for copies that comes again", leads);
    eswitch_->stop_copies(kind);
    expect_makes("a queue for copies", leads);
    constexpr std::size_t port = 1;   // with queues by kind
    expect_drains(1, "another queue of a port", [&] { switch_queues(port, true); });
    forget_old_queues();
    check_failing_switch(port);
    expect_drains(3, "a port that goes", [&] { eswitch_->detach_port(dr::VportId{ports[port].vport}); });
    const auto attaches = [&] { return eswitch_->attach_port(spec_of(port)); };
    expect_waits(2, "a port", attaches);
    eswitch_->detach_port(dr::VportId{ports[port].vport});
    expect_makes("a port", attaches);
}

/// Each call fails in turn that makes something for the next queues. None has led a packet up then.
void Installation::check_failing_switch(std::size_t port) {
    const dr::VportId vport{ports[port].vport};
    PortQueues next(*eswitch_, vport, true);
    expect_makes("another queue of a port", [&] {
        auto switched = eswitch_->switch_queue(vport, next[0].qp(), next[0].sqn(), next.by_kind());
        if (switched.led_up != 0) throw std::runtime_error("a queue that got nothing was led packets");
        return std::move(switched.made);
    });
    old_ = Old{port, std::exchange(queues_[port], std::move(next))};
    forget_old_queues();
}

dr::PortSpec Installation::spec_of(std::size_t port) const {
    const PortNumber& number = ports[port];
    const PortQueues& queues = queues_[port];
    return {.odp_port = dr::OdpPort{number.odp},
            .vport = dr::VportId{number.vport},
            .name = "port" + std::to_string(number.odp),
            .slow_path_qp = queues[0].qp(),
            .slow_path_sqn = queues[0].sqn(),
            .by_kind = queues.by_kind(),
            .policed = is_policed(port)};
}

void Installation::attach(std::size_t port, const Trouble& trouble) {
    const dr::PortSpec spec = spec_of(port);
    until_there_is_room("a port", trouble, [&] { return eswitch_->attach_port(spec); });
    came_up_[port] = 0;
}

/// To one queue from several, and back. Those of before stay for a while.
void Installation::switch_queues(std::size_t port) { switch_queues(port, queues_[port].by_kind().empty()); }

void Installation::switch_queues(std::size_t port, bool has_kinds) {
    forget_old_queues();
    const dr::VportId vport{ports[port].vport};
    PortQueues next(*eswitch_, vport, has_kinds);
    std::uint64_t led_up = 0;
    until_there_is_room("another queue", Installation::no_trouble, [&]() -> Result<void> {
        fail_next_read_();
        auto switched = eswitch_->switch_queue(vport, next[0].qp(), next[0].sqn(), next.by_kind());
        led_up = switched.led_up;
        return std::move(switched.made);
    });
    old_ = Old{port, std::exchange(queues_[port], std::move(next))};
    const std::uint64_t came_up = std::exchange(came_up_[port], 0);
    if (led_up == came_up) return;
    throw std::runtime_error(fmt::format("{} packets came up at the queues of port {}, the device led {} there",
                                         came_up, ports[port].odp, led_up));
}

void Installation::forget_old_queues() {
    if (!old_) return;
    eswitch_->forget_old_queue(dr::VportId{ports[old_->port].vport});
    old_.reset();
}

void Installation::check_old_queues() const {
    for (std::size_t i = 0; old_ && i < old_->queues.size(); ++i) {
        const bool is_empty = old_->queues[i].receive(0).empty();
        if (!is_empty) throw std::runtime_error("a packet came up at a queue that has been replaced");
    }
    const bool has_copies = old_copies_ != nullptr && !old_copies_->receive(0).empty();
    if (has_copies) throw std::runtime_error("a copy came up at a queue that has been replaced");
}

/// None of those that push headers of UDP, or take packets out of them, is in the device.
void Installation::check_no_tunnels() const {
    const auto pushes_udp = [](const Action& action) {
        return action.kind == Action::Kind::tunnel_push && action.tunnel.kind != TunnelKind::gre;
    };
    const auto there = installed();
    for (std::size_t i = 0; i < there.size(); ++i) {
        const Megaflow& megaflow = scenario_.versions[i];
        const bool of_udp = (megaflow.tunnel && megaflow.tunnel->kind != TunnelKind::gre) ||
                            std::ranges::any_of(megaflow.actions, pushes_udp);
        if (there[i] != 0 && of_udp) throw std::runtime_error("in the NIC: " + text_of(megaflow));
    }
}

/// One port at a time.
void Installation::police(std::uint32_t odp) {
    for (const PortNumber& port : ports) {
        if (port.odp != policed_ && port.odp != odp) continue;
        eswitch_->set_policed(dr::VportId{port.vport}, port.odp == odp);
    }
    policed_ = odp;
}

void Installation::mirror(const std::vector<Service>& services) {
    dr::MirrorSteering steering;
    for (const auto& [protocol, port] : services) steering.services.push_back({protocol, port});
    until_there_is_room("a mirror's services", Installation::no_trouble, [&] {
        return eswitch_->set_mirror_port(dr::OdpPort{mirror_port}, mirror_copies, steering);
    });
}

std::uint32_t Installation::came_up(std::uint32_t queue_pair, const std::vector<std::uint8_t>& frame, bool is_true) {
    for (std::size_t port = 0; port < port_length; ++port) {
        if (!queues_[port].has(queue_pair)) continue;
        if (is_true) queues_[port].check_kind(queue_pair, frame);
        ++came_up_[port];
        return ports[port].odp;
    }
    throw std::runtime_error("a packet came up at a queue that is no port's");
}

void Installation::add_tunnel_port(TunnelKind kind) {
    eswitch_->set_tunnel_port({dr::OdpPort{tunnel_port_of(kind)}, kind_of(kind), udp_port_of(kind), name_of(kind)});
}

/// In place of the one that there is.
void Installation::make_copy_queue(dr::CopyKind kind) {
    until_there_is_room("a queue for copies", Installation::no_trouble, [&]() -> Result<void> {
        auto queue = queue_for_copies(*eswitch_);
        if (!queue) return tl::unexpected(std::move(queue.error()));
        old_copies_ = std::exchange(copy_queues_[index_of(kind)], std::move(*queue));
        return {};
    });
}

void Installation::lead_copies(dr::CopyKind kind, const Trouble& trouble) {
    until_there_is_room("a queue for copies", trouble,
                        [&] { return eswitch_->lead_copies(kind, copy_queue(kind).qp()); });
}

/// The one before stays for a while.
void Installation::replace_copy_queue(dr::CopyKind kind) {
    make_copy_queue(kind);
    lead_copies(kind);
}

/// As OVS does with the megaflows from a port that goes; they come again.
void Installation::flush(std::uint32_t odp) {
    eswitch_->flush(dr::OdpPort{odp});
    for (const std::int64_t version : std::vector(version_of_)) {
        if (version < 0) continue;
        const Megaflow& megaflow = scenario_.versions[static_cast<std::size_t>(version)];
        const bool is_from_there = megaflow.in_port == odp;
        if (eswitch_->knows(ufid_of(megaflow.ufid)) == is_from_there) {
            throw std::runtime_error(fmt::format("{} when port {} was flushed: {}",
                                                 is_from_there ? "it stayed" : "it went", odp, text_of(megaflow)));
        }
        if (is_from_there) put(static_cast<std::uint32_t>(version));
    }
}

/// In the midst of the changes a port gets other queues, leaves and comes again, another one in each phase, and with it
/// a tunnel port and a queue for copies, which is replaced, too; the next port gets other queues; where nothing is
/// counted all megaflows are flushed and come again, and then the port's once more. No other judge hears of it. Policed
/// is whom the phase says, before the port leaves, and mirrored what it says.
void Installation::disturb(std::size_t change, const Phase& phase) {
    const std::size_t port = verdict_.installed.size() % port_length, all = phase.changes.size();
    const auto copies = judged_copies[verdict_.installed.size() % judged_copies.size()];
    // Geneve's when nobody waits for another option: who came first would have it.
    const TunnelKind tunnel = tunnel_kinds[(verdict_.installed.size() + 1) % std::size(tunnel_kinds)];
    if (change == all / 8) replace_copy_queue(judged_copies[(verdict_.installed.size() + 1) % judged_copies.size()]);
    if (change == all / 7) mirror(phase.services);
    if (change == all / 6) police(phase.policed);
    if (change == all / 5) switch_queues(port);
    if (change == all / 4) {
        if (dr::is_mirror(copies)) {   // its counts begin anew
            led_before_ += eswitch_->copies(copies);
            filtered_ = 0;
        }
        eswitch_->stop_copies(copies);
    }
    if (change == all / 3) eswitch_->detach_port(dr::VportId{ports[port].vport});
    if (change == all * 2 / 5) eswitch_->remove_tunnel_port(dr::OdpPort{tunnel_port_of(tunnel)});
    if (change == all / 2) lead_copies(copies);
    if (change == all * 3 / 5) add_tunnel_port(tunnel);
    if (change == all * 4 / 7) replace_copy_queue(copies);
    if (change == all * 2 / 3) attach(port);
    if (change == all * 5 / 7) switch_queues((port + 1) % port_length);   // those of before stay for the packets
    if (phase.counts || change != all * 3 / 4) return;
    eswitch_->flush(std::nullopt);
    for (const std::int64_t version : std::vector(version_of_)) {
        if (version >= 0) put(static_cast<std::uint32_t>(version));
    }
    flush(ports[port].odp);
}

/// When none has changed yet: of one that changed, the counts from before would be enough.
void Installation::check_live_counts() const {
    const auto has_counted = [this](std::size_t ufid) {
        const auto status = eswitch_->status(ufid_of(ufid));
        return status && status->stats.packets != 0 && status->stats.bytes != 0;
    };
    for (const auto deadline = Clock::now() + patience; Clock::now() < deadline; std::this_thread::sleep_for(glance)) {
        for (std::size_t ufid = 0; ufid < version_of_.size(); ++ufid) {
            if (version_of_[ufid] >= 0 && has_counted(ufid)) return;
        }
    }
    throw std::runtime_error("no megaflow that is in the NIC says that it has counted a packet");
}

void Installation::apply(const Phase& phase) {
    if (verdict_.installed.size() == 1) check_live_counts();
    std::vector<std::uint32_t> gone;
    std::size_t change = 0, meter = 0;
    if (verdict_.installed.size() == odd_megaflows_in) {
        check_never_offloaded(*eswitch_, [this] { check_no_tunnels(); });
    }
    for (const auto& [version, put_it] : phase.changes) {
        disturb(change++, phase);
        // Some before most of their megaflows, some behind.
        for (; meter < phase.meters.size() && meter * phase.changes.size() <= change * phase.meters.size(); ++meter) {
            set_meter(phase.meters[meter]);
        }
        if (!put_it) gone.push_back(scenario_.versions[version].ufid);
        if (put_it || gone.size() == deletions_at_once) {
            remove(gone);
            gone.clear();
        }
        if (put_it) put(version);
    }
    remove(gone);
    for (; meter < phase.meters.size(); ++meter) set_meter(phase.meters[meter]);
    counts_ = phase.counts;
    expectations_.apply(phase);
    wait_until_settled();
    verdict_.installed.push_back(installed());
}

/// A ConnectX-5's meter keeps what its bucket holds when it is changed (docs/meters.md): there it goes and comes anew.
void Installation::set_meter(const MeterChange& change) {
    if (meters_[change.number] && (connectx_5_ || !change.spec)) (void)eswitch_->remove_meter(change.number);
    meters_[change.number] = change.spec;
    if (!change.spec) return;
    const MeterSpec& spec = *change.spec;
    eswitch_->set_meter(change.number, {.by_packets = spec.by_packets, .bands = spec.bands, .rate = spec.rate,
                                        .burst = spec.burst});
}

void Installation::stop_meters() {
    for (std::uint32_t number = 1; number < meters_end; ++number) {
        if (!meters_[number] || !meters_[number]->is_exhausted) continue;
        if (const auto lowered = eswitch_->lower_meter(number, 0); !lowered) {
            throw std::runtime_error(lowered.error().what);
        }
    }
}

void Installation::add_meter_counts(std::vector<MeterCounts>& to) const {
    to.resize(meters_end);
    for (std::uint32_t number = 1; number < meters_end; ++number) {
        const auto& [passed, dropped] = eswitch_->meter_stats(number);
        to[number] += {passed.packets + dropped.packets, passed.bytes + dropped.bytes, dropped.packets, dropped.bytes};
    }
}

void Installation::put(std::uint32_t version) {
    const std::uint32_t ufid = scenario_.versions[version].ufid;
    const auto neighbourhood = static_cast<std::uint16_t>(ufid * odd);   // any number goes
    const dr::PutOutcome outcome = eswitch_->put(ufid_of(ufid), ovs_.translated(version), neighbourhood);
    const auto* error = std::get_if<Error>(&outcome);
    if (error != nullptr && !is_of_full_device(*error)) throw std::runtime_error(error->what);   // else it waits
    version_of_[ufid] = version;
}

void Installation::remove(const std::vector<std::uint32_t>& ufids) {
    std::vector<dr::Eswitch::Deletion> deletions;
    for (const std::uint32_t ufid : ufids) deletions.push_back({ufid_of(ufid)});
    fail_next_read_();
    eswitch_->del(deletions);
    for (std::size_t i = 0; i < deletions.size(); ++i) {
        version_of_[ufids[i]] = -1;
        if (!deletions[i].last || !counts_) continue;
        verdict_.counts[ufids[i]].packets += deletions[i].last->packets;
        verdict_.counts[ufids[i]].bytes += deletions[i].last->bytes;
    }
}

void Installation::end() {
    for (std::size_t port = 0; port < port_length; ++port) switch_queues(port);   // with those that they were given
    forget_old_queues();
    std::vector<std::uint32_t> all;
    for (std::uint32_t ufid = 0; ufid < version_of_.size(); ++ufid) {
        if (version_of_[ufid] >= 0) all.push_back(ufid);
    }
    remove(all);
    for (std::uint32_t number = 1; number < meters_end; ++number) {
        if (meters_[number]) (void)eswitch_->remove_meter(number);
    }
}

std::vector<std::uint8_t> Installation::installed() const {
    std::vector<std::uint8_t> installed(scenario_.versions.size());
    for (std::size_t ufid = 0; ufid < version_of_.size(); ++ufid) {
        if (version_of_[ufid] < 0) continue;
        const auto status = eswitch_->status(ufid_of(ufid));
        installed[static_cast<std::size_t>(version_of_[ufid])] = status && status->offloaded ? 1 : 0;
    }
    return installed;
}

void Installation::wait_until_settled() {
    const auto all_there = [&](const std::vector<std::uint8_t>& now) {
        const auto expected = expectations_.all(now);
        for (std::size_t i = 0; i < now.size(); ++i) {
            if (expected[i] == Expectation::installed && now[i] == 0) return false;
        }
        return true;
    };
    const auto deadline = Clock::now() + patience;
    auto last = installed();
    for (auto changed = Clock::now(); Clock::now() < deadline;) {
        if (all_there(last) && Clock::now() > changed + quiet) return;
        std::this_thread::sleep_for(glance);
        auto now = installed();
        if (now != last) changed = Clock::now();
        last = std::move(now);
    }
    tell_missing(expectations_.all(last), last);
}

/// For whoever reads of the difference.
void Installation::tell_missing(const std::vector<Expectation>& expected,
                                const std::vector<std::uint8_t>& installed) const {
    for (std::size_t i = 0; i < installed.size(); ++i) {
        if (expected[i] != Expectation::installed || installed[i] != 0) continue;
        const auto report = eswitch_->explain(ufid_of(scenario_.versions[i].ufid));
        fmt::print(stderr, "megaflow {} is not in the NIC: {}\n", i, report ? report->text : "it is not known");
    }
}

std::optional<dr::CopyKind> Installation::copies_of_queue(std::uint32_t queue_pair) const {
    for (const dr::CopyKind kind : judged_copies) {
        if (copy_queues_[index_of(kind)]->qp()->qp_num == queue_pair) return kind;
    }
    return std::nullopt;
}

std::shared_ptr<const dr::InstalledWork> Installation::work_of(std::uint32_t tag) const {
    auto work = eswitch_->work_of(tag);
    if (work == nullptr) throw std::runtime_error(fmt::format("a copy came up with tag {}, which is no work's", tag));
    return work;
}

std::uint64_t Installation::take_filtered() {
    const std::uint64_t now = eswitch_->filtered_copies(mirror_copies);
    return now - std::exchange(filtered_, now);
}

void Installation::check_copies(const dr::PerCopyKind<std::uint64_t>& came) const {
    for (const dr::CopyKind kind : judged_copies) {
        const std::uint64_t led = eswitch_->copies(kind) + (dr::is_mirror(kind) ? led_before_ : 0);
        if (led == came[index_of(kind)]) continue;
        throw std::runtime_error(fmt::format("{} copies came to queue {}, the device led {} there",
                                             came[index_of(kind)], name_of(kind), led));
    }
}

TableId Installation::table_of(std::uint32_t tag) const {
    const auto table = eswitch_->table_of(tag);
    if (!table) throw std::runtime_error(fmt::format("a packet came up with tag {}, which is no table's", tag));
    return {table->recirc_id, table->tunnel_port};
}

}  // namespace ovsdr::differential
