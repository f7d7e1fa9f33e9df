// The steering engine without ports.
//
// Packets: how many a second one lane steers. Batches of 32 go into a vport over and over, and the sink that takes them
// only counts. One row per traffic and number of matchers. "warm" packets meet the flow cache, "cold" ones a table that
// has just changed: of a megaflow's batch one packet walks then, and of a batch of different rules' each. "metered":
// the rules meter, and the next table looks at the colour.
//
// Headers alone: parsing.cpp. Changes and masks: churn.cpp. A million rules: million.cpp; --million: that alone.
//
// Rules: how many a second are created and deleted in a matcher that has one rule, and in one that has a million.
//
// Time is this thread's own: what else the machine does at the same time does not count.
//
// --rounds N sets the length of a row (batches); --benchmark_min_time=N makes a short run of it, whose figures are not
// judged. The exit is not 0 below the floors that main() names.
#include <rte_cycles.h>

#include <algorithm>

#include "bench.hpp"

using namespace ovsdr::soft;
using namespace ovsdr::soft::bench;

namespace {

/// Vport 1 -> table 1 -> matchers that miss -> the one that hits -> count -> vport 2. Metered: count, meter -> table 2,
/// which sends green packets on and counts the others away.
class Bench {
public:
    explicit Bench(bool metered) {
        check(steering_.attach(VportId{1}, {.deliver = take, .self = this}));
        check(steering_.attach(VportId{2}, {.deliver = take, .self = this}));
        check(Action::table(table_, jump_));
        check(Action::vport(fdb_, 2, out_));
        Parameters source{};
        store_be16(&source[source_port_at], 0xffff);
        root_ = make_matcher(root_table_, criteria::misc, source);
        store_be16(&source[source_port_at], 1);
        rule(*root_, source, {jump_.get()});
        if (metered) {
            add_meter();
        } else {
            on_ = {out_.get()};
        }
    }

    /// `matchers` with different masks that no packet meets; then one megaflow, or one rule per tuple.
    void fill(unsigned matchers, unsigned rules) {
        Parameters mask{};
        mask[ip_version_at] = 4 << 1;
        Parameters hit = mask;
        store_be32(&mask[destination_at], 0xff000000);
        store_be32(&hit[destination_at], 0x0b000000);
        if (rules > 1) store_be16(&mask[udp_sport_at], 0xffff);
        owned_matchers_.push_back(make_matcher(table_, criteria::outer, mask));
        Matcher& last = *owned_matchers_.back();
        for (unsigned i = 0; i < rules; ++i) {
            if (rules > 1) store_be16(&hit[udp_sport_at], static_cast<std::uint16_t>(1024 + i));
            std::vector<Action*> actions{counter(i)};
            actions.insert(actions.end(), on_.begin(), on_.end());
            rule(last, hit, actions);
        }
        for (unsigned i = 1; i < matchers; ++i) {
            Parameters miss{};
            miss[ip_version_at] = 4 << 1;
            store_be32(&miss[destination_at], ~0U << (i % 24));
            store_be16(&miss[udp_dport_at], static_cast<std::uint16_t>(0xffff << (i / 24)));
            owned_matchers_.push_back(make_matcher(table_, criteria::outer, miss));
            Parameters value{};
            value[ip_version_at] = 4 << 1;
            store_be32(&value[destination_at], 0x80000000U);
            rule(*owned_matchers_.back(), value, {out_.get()});
        }
    }

    /// Millions of packets a second, and cycles a packet.
    std::pair<double, double> run(const std::vector<rte_mbuf*>& packets, unsigned batches, bool cold) {
        lane_.online();
        const auto round = [&](unsigned count) {
            std::size_t at = 0;
            for (unsigned i = 0; i < count; ++i) {
                std::array<rte_mbuf*, poll_length> batch;
                for (rte_mbuf*& packet : batch) {
                    packet = packets[at];
                    if (++at == packets.size()) at = 0;
                }
                if (cold) steering_.forget_cached();
                lane_.from_vport(VportId{1}, batch.data(), poll_length);
                lane_.quiescent();
            }
        };
        round(static_cast<unsigned>(packets.size() / poll_length) + 100);
        const double begin = thread_time();
        const std::uint64_t before = taken_;
        round(batches);
        const double time = thread_time() - begin;
        lane_.offline();
        const double sent = static_cast<double>(batches) * poll_length;
        if (taken_ - before != static_cast<std::uint64_t>(sent)) {
            fmt::print(stderr, "{} packets of {} arrived\n", taken_ - before, sent);
            std::exit(1);
        }
        return {sent / time / 1e6, time * static_cast<double>(rte_get_tsc_hz()) / sent};
    }

private:
    static void take(void* self, unsigned, rte_mbuf**, unsigned length) noexcept {
        static_cast<Bench*>(self)->taken_ += length;
    }

    /// A meter of 255 bytes a nanosecond, which are never used up, into reg_c_5's low byte.
    void add_meter() {
        constexpr unsigned reg_c_5_at = 216, green = 2;
        constexpr std::uint32_t comes_in_green = 4;
        AsoBulk::Image image{};
        image[0] = 0xa1;  // valid, bytes of frames
        image[8] = 23;
        image[9] = image[11] = 255;
        aso_->exchange(0, image, ~std::uint64_t{0});
        check(Action::aso(fdb_, aso_, 0, comes_in_green, 5, meter_));
        check(Action::table(by_colour_, to_colours_));
        on_ = {meter_.get(), to_colours_.get()};
        Parameters colour{};
        store_be32(&colour[reg_c_5_at], 0xff);
        owned_matchers_.push_back(make_matcher(by_colour_, criteria::misc2, colour));
        store_be32(&colour[reg_c_5_at], green);
        rule(*owned_matchers_.back(), colour, {counter(passed_counter), out_.get()});
        std::unique_ptr<Matcher> others;
        check(Matcher::create(by_colour_, 1, 0, Parameters{}, others));
        owned_matchers_.push_back(std::move(others));
        rule(*owned_matchers_.back(), {}, {counter(passed_counter + 1), drop_.get()});
    }

    Action* counter(unsigned index) {
        Action::Created action;
        check(Action::counter(bulk_, index, action));
        counters_.push_back(std::move(action));
        return counters_.back().get();
    }
    void rule(Matcher& matcher, const Parameters& value, const std::vector<Action*>& actions) {
        rules_.push_back(make_rule(matcher, value, actions));
    }

    Steering steering_{connectx_6dx};
    Lane lane_{steering_, 0};
    Domain fdb_{steering_, DomainType::fdb, nullptr};
    Table root_table_{fdb_, 0};
    Table table_{fdb_, 1}, by_colour_{fdb_, 2};
    std::unique_ptr<Matcher> root_;
    std::vector<std::unique_ptr<Matcher>> owned_matchers_;
    std::shared_ptr<AsoBulk> aso_ = std::make_shared<AsoBulk>(AsoKind::flow_meter, 0, nullptr);
    Action::Created jump_, out_, meter_, to_colours_, drop_ = Action::drop();
    std::vector<Action*> on_;  // what is done behind a rule's counter
    static constexpr unsigned passed_counter = 16382;
    std::shared_ptr<CounterBulk> bulk_ = std::make_shared<CounterBulk>(16384);
    std::vector<Action::Created> counters_;
    std::vector<std::unique_ptr<Rule>> rules_;
    std::uint64_t taken_ = 0;
};

/// Creations and deletions a second.
struct RuleRates {
    double created, deleted;
};

/// In an otherwise idle matcher: `standing` rules that stay, and then `moving` more that come and go.
class RuleBench {
public:
    explicit RuleBench(unsigned standing) {
        Parameters mask{};
        mask[ip_version_at] = 4 << 1;
        store_be32(&mask[destination_at], ~0U);
        check(Matcher::create(table_, 0, criteria::outer, mask, matcher_));
        check(Action::vport(fdb_, 2, out_));
        rules_.reserve(standing);
        for (unsigned i = 0; i < standing; ++i) rules_.push_back(make(i));
    }

    RuleRates run(unsigned moving) {
        const auto first = static_cast<std::uint32_t>(rules_.size());
        std::vector<std::unique_ptr<Rule>> added(moving);
        const double begin = thread_time();
        for (unsigned i = 0; i < moving; ++i) added[i] = make(first + i);
        const double middle = thread_time();
        for (std::unique_ptr<Rule>& rule : added) rule.reset();
        return {moving / (middle - begin), moving / (thread_time() - middle)};
    }
    /// One rule that comes and goes again and again.
    RuleRates run_alone(unsigned times) {
        double creating = 0, deleting = 0;
        const auto number = static_cast<std::uint32_t>(rules_.size());
        for (unsigned i = 0; i < times; ++i) {
            const double begin = thread_time();
            std::unique_ptr<Rule> rule = make(number);
            const double middle = thread_time();
            rule.reset();
            creating += middle - begin;
            deleting += thread_time() - middle;
        }
        return {times / creating, times / deleting};
    }

private:
    std::unique_ptr<Rule> make(std::uint32_t number) {
        Parameters value{};
        value[ip_version_at] = 4 << 1;
        store_be32(&value[destination_at], number);
        std::unique_ptr<Rule> rule;
        const std::array<Action*, 1> actions{out_.get()};
        check(Rule::create(*matcher_, value, actions, rule));
        return rule;
    }

    Steering steering_{connectx_6dx};
    Domain fdb_{steering_, DomainType::fdb, nullptr};
    Table table_{fdb_, 1};
    std::unique_ptr<Matcher> matcher_;
    Action::Created out_;
    std::vector<std::unique_ptr<Rule>> rules_;
};

struct Costs {
    double hit = 0, miss = 0;  ///< cycles a packet
};

struct Row {
    unsigned tuples, rules, matchers;
    bool metered = false;
};

Costs run_row(const Row& row, const std::vector<rte_mbuf*>& packets, unsigned batches) {
    auto bench = std::make_unique<Bench>(row.metered);
    bench->fill(row.matchers, row.rules);
    const std::vector<rte_mbuf*> sent(packets.begin(), packets.begin() + row.tuples);
    const auto [warm, warm_cycles] = bench->run(sent, batches, false);
    const auto [cold, cold_cycles] = bench->run(sent, batches / 10, true);
    fmt::print("{:>8} {:>8} {:>8} {:>10.1f} {:>8.0f} {:>10.1f} {:>8.0f}{}\n", row.tuples, row.rules, row.matchers, warm,
               warm_cycles, cold, cold_cycles, row.metered ? "  metered" : "");
    return {warm_cycles, cold_cycles};
}

}  // namespace

int main(int argc, char** argv) {
    unsigned batches = 400'000, standing = 1'000'000;
    bool judged = true, only_million = false;
    for (int i = 1; i < argc; ++i) {
        if (std::strncmp(argv[i], "--benchmark_min_time", 20) == 0) {
            batches = 500;
            standing = 10'000;
            judged = false;
        }
        if (std::strcmp(argv[i], "--million") == 0) only_million = true;
        if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            batches = static_cast<unsigned>(std::atoi(argv[++i]));
        }
    }
    start_eal();
    rte_mempool* pool = rte_pktmbuf_pool_create("bench", 100'000, 0, 0, 128 + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
    if (pool == nullptr) return 1;
    const std::vector<rte_mbuf*> packets = make_packets(pool, 99'968);
    if (only_million) return run_million(packets, standing) || !judged ? 0 : 1;
    fmt::print("{:>8} {:>8} {:>8} {:>10} {:>8} {:>10} {:>8}\n", "tuples", "rules", "matchers", "warm Mpps", "cycles",
               "cold Mpps", "cycles");
    for (const Row& row : {Row{1, 1, 1}, Row{1, 1, 10}, Row{1, 1, 50}, Row{10'000, 1, 1}, Row{99'968, 1, 1}}) {
        run_row(row, packets, batches);
    }
    // A rule per tuple: each packet of a batch that misses the cache walks for itself.
    std::array<Costs, 3> costs;
    constexpr std::array<unsigned, 3> matchers{1, 10, 50};
    for (unsigned i = 0; i < matchers.size(); ++i) costs[i] = run_row({10'000, 10'000, matchers[i]}, packets, batches);
    for (const unsigned rules : {1U, 10'000U}) run_row({10'000, rules, 1, true}, packets, batches);

    const bool read_fast = run_parsing();
    const bool steady = run_churn(packets, batches / 4);

    const bool bears_million = run_million(packets, standing);
    const RuleRates few = RuleBench(1).run_alone(standing / 4), many = RuleBench(standing).run(standing / 4);
    fmt::print("rules a second, beside 1: {:.0f} created, {:.0f} deleted; beside {}: {:.0f}, {:.0f}\n", few.created,
               few.deleted, standing, many.created, many.deleted);

    constexpr double least_rules = 100'000, most_slowdown = 4, most_growth = 2;
    const bool good = read_fast && steady && bears_million && many.created >= least_rules &&
                      many.deleted >= least_rules && many.created * most_slowdown >= few.created &&
                      many.deleted * most_slowdown >= few.deleted &&
                      costs[2].hit <= most_growth * costs[0].hit;
    fmt::print(
        "{:.0f} and {:.0f} rules a second created and deleted beside {}; cycles a packet with 1, 10, 50 matchers: "
        "{:.0f}, {:.0f}, {:.0f} from the cache, {:.0f}, {:.0f}, {:.0f} without\n",
        many.created, many.deleted, standing, costs[0].hit, costs[1].hit, costs[2].hit, costs[0].miss, costs[1].miss,
        costs[2].miss);
    return judged && !good ? 1 : 0;
}
