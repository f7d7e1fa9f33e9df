// Rules that change while packets are steered, and masks of other vports.
//
// Changes: 10,000 megaflows of vport 1 in ten matchers, a packet of each in turn. So many times a second of the lane's
// own time a rule comes or goes: one of another vport, one of vport 1 that no packet meets, or one of those 10,000,
// which another replaces. Beside it the same where each change empties all caches, as it did before caches had a log of
// changes.
// The time that the changes take themselves does not count.
//
// Masks: 100,000 tuples of vport 1 in one megaflow, and one rule more that looks at ports or into tunnels: of another
// vport, and of none, which every vport's packets have to be told apart by.
#include <algorithm>

#include "bench.hpp"

namespace ovsdr::soft::bench {
namespace {

constexpr unsigned source_at = 44, vni_at = 84, matcher_count = 10, rules_in_each = 1000;

enum class Changed { other_vport, same_vport, met };
constexpr std::array<const char*, 3> names{"of another vport", "of the vport, not met", "of the vport, met"};

/// Vports 1 and 3 -> table 1 -> vport 2. Matchers have the source vport in their masks, as megaflows do.
class ChurnBench {
public:
    ChurnBench() {
        for (const std::uint16_t vport : {1, 2, 3}) {
            check(steering_.attach(VportId{vport}, {.deliver = take, .self = this}));
        }
        check(Action::table(table_, jump_));
        check(Action::vport(fdb_, 2, out_));
        Parameters source{};
        store_be16(&source[source_port_at], 0xffff);
        keep(root_table_, criteria::misc, source);
        for (const std::uint16_t vport : {1, 3}) {
            store_be16(&source[source_port_at], vport);
            standing_.push_back(make_rule(*matchers_.back(), source, {jump_.get()}));
        }
    }

    /// A rule for each of the tuples, so many in each matcher; then a second passes, after which keys are judged anew.
    void add_megaflows() {
        steering_.impl().stopped_clock = 1;
        for (unsigned m = 0; m < matcher_count; ++m) {
            keep(table_, criteria::outer | criteria::misc, parameters(m, 0xffff, 0xffff, ~0U));
            for (unsigned i = 0; i < rules_in_each; ++i) {
                const unsigned number = static_cast<unsigned>(megaflows_.size());
                megaflows_.push_back(make_rule(*matchers_.back(), megaflow(number), {counter(number), out_.get()}));
            }
        }
        steering_.impl().stopped_clock += CacheKeys::least_age;
        for (unsigned i = 0; i < 2; ++i) change(Changed::same_vport);
    }
    void add_one_megaflow() {
        keep(table_, criteria::outer | criteria::misc, parameters(0, 0xffff, 0, ~0U));
        standing_.push_back(make_rule(*matchers_.back(), parameters(0, 1, 0, destination), {counter(0), out_.get()}));
    }
    /// One rule that no packet meets, with ports or a VNI in its mask; of `vport`, or of none where that is 0.
    void add_mask(bool tunnel, std::uint16_t vport) {
        Parameters mask = parameters(matcher_count, vport == 0 ? 0 : 0xffff, 0xffff, ~0U);
        store_be32(&mask[source_at], ~0U);
        store_be16(&mask[udp_dport_at], 0xffff);
        if (tunnel) store_be32(&mask[vni_at], 0xffffff00);
        const Parameters value = parameters(matcher_count, vport, 9, 0x01000000);
        keep(table_, criteria::outer | criteria::misc, mask);
        standing_.push_back(make_rule(*matchers_.back(), value, {out_.get()}));
    }

    /// Millions of packets a second with `rate` changes a second; `forget`: caches are emptied with each.
    double run(const std::vector<rte_mbuf*>& packets, unsigned batches, unsigned rate, Changed kind, bool forget) {
        constexpr unsigned between = 16;
        lane_.online();
        steer(packets, static_cast<unsigned>(packets.size() / poll_length) + between);
        double begin = thread_time();
        std::uint64_t made = 0;
        for (unsigned sent = 0; sent < batches; sent += between) {
            steer(packets, between);
            const double now = thread_time();
            if (rate == 0 || static_cast<double>(made) >= (now - begin) * rate) continue;
            for (; static_cast<double>(made) < (now - begin) * rate; ++made) {
                change(kind);
                if (forget) steering_.forget_cached();
            }
            begin += thread_time() - now;
        }
        const double time = thread_time() - begin;
        lane_.offline();
        return static_cast<double>(batches) * poll_length / time / 1e6;
    }

private:
    static constexpr std::uint32_t destination = 0x0b000000;

    static void take(void* self, unsigned, rte_mbuf**, unsigned length) noexcept {
        static_cast<ChurnBench*>(self)->taken_ += length;
    }

    /// As a mask and as a value: the first bits of the destination, so many that each matcher has a mask of its own.
    static Parameters parameters(unsigned matcher, std::uint16_t vport, std::uint16_t sport, std::uint32_t address) {
        Parameters made{};
        made[ip_version_at] = 4 << 1;
        store_be32(&made[destination_at], address & ~0U << (23 - matcher));
        store_be16(&made[udp_sport_at], sport);
        store_be16(&made[source_port_at], vport);
        return made;
    }
    static Parameters megaflow(unsigned number) {
        return parameters(number / rules_in_each, 1, static_cast<std::uint16_t>(1024 + number), destination);
    }
    void keep(Table& table, std::uint8_t criteria, const Parameters& mask) {
        matchers_.push_back(make_matcher(table, criteria, mask));
    }
    Action* counter(unsigned index) {
        Action::Created action;
        check(Action::counter(bulk_, index, action));
        counters_.push_back(std::move(action));
        return counters_.back().get();
    }

    void change(Changed kind) {
        const auto number = static_cast<unsigned>(changes_++);
        if (kind == Changed::met) {
            std::unique_ptr<Rule>& old = megaflows_[number % megaflows_.size()];
            const std::vector<Action*> actions(old->actions().begin(), old->actions().end());
            std::unique_ptr<Rule> next;
            check(Rule::create_successor(*old, megaflow(number % megaflows_.size()), actions, next));
            old = std::move(next);
            return;
        }
        if (moving_ != nullptr) return moving_.reset();
        const std::uint16_t vport = kind == Changed::other_vport ? 3 : 1;
        const unsigned place = number % matcher_count;
        moving_ = make_rule(*matchers_[1 + place],
                            parameters(place, vport, static_cast<std::uint16_t>(20'000 + number % 20'000), destination),
                            {out_.get()});
    }

    void steer(const std::vector<rte_mbuf*>& packets, unsigned batches) {
        const std::uint64_t before = taken_;
        for (unsigned i = 0; i < batches; ++i) {
            std::array<rte_mbuf*, poll_length> batch;
            for (rte_mbuf*& packet : batch) {
                packet = packets[at_];
                if (++at_ == packets.size()) at_ = 0;
            }
            lane_.from_vport(VportId{1}, batch.data(), poll_length);
            lane_.quiescent();
        }
        if (taken_ - before == std::uint64_t{batches} * poll_length) return;
        fmt::print(stderr, "{} packets of {} arrived\n", taken_ - before, batches * poll_length);
        std::exit(1);
    }

    Steering steering_{connectx_6dx};
    Lane lane_{steering_, 0};
    Domain fdb_{steering_, DomainType::fdb, nullptr};
    Table root_table_{fdb_, 0};
    Table table_{fdb_, 1};
    std::vector<std::unique_ptr<Matcher>> matchers_;
    Action::Created jump_, out_;
    std::shared_ptr<CounterBulk> bulk_ = std::make_shared<CounterBulk>(16384);
    std::vector<Action::Created> counters_;
    std::vector<std::unique_ptr<Rule>> standing_, megaflows_;
    std::unique_ptr<Rule> moving_;
    std::uint64_t changes_ = 0, taken_ = 0;
    std::size_t at_ = 0;
};

/// The smallest share of a still cache's rate that is left at 10,000 changes a second.
double run_changes(const std::vector<rte_mbuf*>& packets, unsigned batches) {
    double least = 1;
    const std::vector<rte_mbuf*> sent(packets.begin(), packets.begin() + matcher_count * rules_in_each);
    fmt::print("{:>24} {:>10} {:>8} {:>8} {:>14} {:>8}\n", "rules that change", "a second", "Mpps", "share",
               "emptied: Mpps", "share");
    for (const Changed kind : {Changed::other_vport, Changed::same_vport, Changed::met}) {
        ChurnBench bench;
        bench.add_megaflows();
        const double still = bench.run(sent, batches, 0, kind, false);
        fmt::print("{:>24} {:>10} {:>8.1f}\n", names[static_cast<unsigned>(kind)], 0, still);
        for (const unsigned rate : {100U, 1'000U, 10'000U}) {
            const double kept = bench.run(sent, batches, rate, kind, false);
            const double emptied = bench.run(sent, batches / 4, rate, kind, true);
            fmt::print("{:>24} {:>10} {:>8.1f} {:>7.0f}% {:>14.1f} {:>7.0f}%\n", "", rate, kept, 100 * kept / still,
                       emptied, 100 * emptied / still);
            if (rate == 10'000) least = std::min(least, kept / still);
        }
    }
    return least;
}

/// The smallest share of a lone megaflow's rate that is left beside a mask of another vport.
double run_masks(const std::vector<rte_mbuf*>& packets, unsigned batches) {
    double least = 1;
    fmt::print("{:>24} {:>10} {:>8} {:>8}\n", "100k tuples beside", "", "Mpps", "share");
    const auto rate = [&](int tunnel, std::uint16_t vport) {
        ChurnBench bench;
        bench.add_one_megaflow();
        if (tunnel >= 0) bench.add_mask(tunnel != 0, vport);
        return bench.run(packets, batches, 0, Changed::met, false);
    };
    const double alone = rate(-1, 0);
    fmt::print("{:>24} {:>10} {:>8.1f}\n", "nothing", "", alone);
    for (const int tunnel : {0, 1}) {
        const double other = rate(tunnel, 3), all = rate(tunnel, 0);
        const char* const name = tunnel != 0 ? "a tunnel's VNI" : "a 5-tuple";
        fmt::print("{:>24} {:>10} {:>8.1f} {:>7.0f}%\n", name, "another's", other, 100 * other / alone);
        fmt::print("{:>24} {:>10} {:>8.1f} {:>7.0f}%\n", name, "all's", all, 100 * all / alone);
        least = std::min(least, other / alone);
    }
    return least;
}

}  // namespace

bool run_churn(const std::vector<rte_mbuf*>& packets, unsigned batches) {
    constexpr double least_beside_changes = 0.8, least_beside_masks = 0.8;
    const double changes = run_changes(packets, batches), masks = run_masks(packets, batches);
    fmt::print("{:.0f} % of the rate is left at 10,000 changes a second, {:.0f} % beside another vport's masks\n",
               100 * changes, 100 * masks);
    return changes >= least_beside_changes && masks >= least_beside_masks;
}

}  // namespace ovsdr::soft::bench
