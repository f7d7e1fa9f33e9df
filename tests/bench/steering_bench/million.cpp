// A million rules in one matcher: what they weigh, how long the longest change takes, how many can come and go.
//
// Each rule is a 5-tuple of a vport's packets, a counter of its own and a vport to go to. All come one by one and go in
// another order, each time into a new matcher: first alone, then beside a lane that steers packets of the first of
// them. The last time some go and come again before that: as fast as it goes, then 10,000 a second.
//
// Bytes: by which resident memory grows for each rule, its action and its counter, after each has counted. The
// program's own lists of rules and actions are not among them.
//
// Longest: of a rule that comes or goes, in this thread's own time. For so long, at most, lanes write no new lines into
// their caches. What the machine does to a virtual CPU counts as the thread's own time, so of each change the shortest
// of all turns is judged: a table that grows does so at the same rule each time.
#include <malloc.h>

#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include "bench.hpp"

namespace ovsdr::soft::bench {
namespace {

constexpr unsigned source_ip_at = 44, protocol_at = 16, bulk_length = 16384, steered = 4096, changes_a_second = 10'000;
constexpr double most_bytes = 192, most_seconds = 0.001, least_rate = 10'000;

/// Bytes.
double resident() {
    std::size_t size = 0, pages = 0;
    std::ifstream("/proc/self/statm") >> size >> pages;
    return static_cast<double>(pages) * static_cast<double>(::getpagesize());
}
double allocated() {
    const struct mallinfo2 info = ::mallinfo2();
    return static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd);
}

/// How long things took: how many below each power of two of microseconds, and the longest.
class Times {
public:
    explicit Times(const std::vector<float>& seconds) : longest_(*std::max_element(seconds.begin(), seconds.end())) {
        for (const float one : seconds) {
            double bound = 1;
            while (one * 1e6 >= bound) bound *= 2;
            ++below_[bound];
        }
    }
    [[nodiscard]] double longest() const { return longest_; }
    void print(const char* what) const {
        fmt::print("{:>24}: longest {:.0f} us;", what, longest_ * 1e6);
        for (const auto& [bound, count] : below_) fmt::print(" <{:.0f}: {}", bound, count);
        fmt::print("\n");
    }

private:
    double longest_;
    std::map<double, unsigned> below_;
};

class Million {
public:
    explicit Million(unsigned rules)
        : actions_(rules), rules_(rules), shortest_come_(rules, 1), shortest_go_(rules, 1) {
        for (const std::uint16_t vport : {1, 2}) {
            check(steering_.attach(VportId{vport}, {.deliver = take, .self = this}));
        }
        check(Action::table(table_, jump_));
        check(Action::vport(fdb_, 2, out_));
        Parameters source{};
        store_be16(&source[source_port_at], 0xffff);
        root_ = make_matcher(root_table_, criteria::misc, source);
        store_be16(&source[source_port_at], 1);
        entry_ = make_rule(*root_, source, {jump_.get()});
    }

    bool run(const std::vector<rte_mbuf*>& packets) {
        constexpr unsigned turns = 4;
        const double bytes = weigh();
        go();
        start_lane(packets);
        for (unsigned i = 1; i + 1 < turns; ++i) {
            come();
            go();
        }
        come();
        const double still = rate(0.5);
        const double changed = churn(static_cast<unsigned>(rules_.size() / 4), false);
        const std::uint64_t before = taken_;
        const double lane_before = lane_time_;
        const double kept = churn(changes_a_second, true);
        const double beside = static_cast<double>(taken_ - before) / (lane_time_ - lane_before) / 1e6;
        go();
        stop_lane();
        const Times coming(shortest_come_), going(shortest_go_);
        coming.print("rules that come");
        going.print("rules that go");
        fmt::print("{:>24}: {:.1f} Mpps beside {} rules, {:.1f} ({:.0f} %) while {:.0f} a second change\n", "lane",
                   still, rules_.size(), beside, 100 * beside / still, kept);
        const double longest = std::max(coming.longest(), going.longest());
        const bool holds = bytes <= most_bytes && longest <= most_seconds && changed >= least_rate;
        fmt::print("{} rules: {:.1f} bytes each, longest change {:.3f} ms, {:.0f} changes a second: {}\n",
                   rules_.size(), bytes, longest * 1e3, changed, holds ? "holds" : "does not hold");
        return holds;
    }

private:
    static void take(void* self, unsigned, rte_mbuf**, unsigned length) noexcept {
        std::atomic<std::uint64_t>& taken = static_cast<Million*>(self)->taken_;
        taken.store(taken.load(std::memory_order_relaxed) + length, std::memory_order_relaxed);
    }

    /// Bytes a rule.
    double weigh() {
        const double began_resident = resident(), began = allocated();
        for (unsigned i = 0; i < rules_.size(); i += bulk_length) {
            bulks_.push_back(std::make_shared<CounterBulk>(bulk_length));
        }
        for (unsigned i = 0; i < actions_.size(); ++i) {
            check(Action::counter(bulks_[i / bulk_length], i % bulk_length, actions_[i]));
        }
        const double counted_resident = resident();
        come();
        const auto count = static_cast<double>(rules_.size());
        const double rules = (resident() - counted_resident) / count;
        for (unsigned i = 0; i < rules_.size(); ++i) bulks_[i / bulk_length]->add(0, i % bulk_length, 1, 60);
        const double bytes = (resident() - began_resident) / count;
        fmt::print("{:>24}: {:.1f}; of these the rule {:.1f}, counter and action {:.1f}; allocated, with address space "
                   "of workers that have not counted: {:.1f}\n",
                   "bytes a rule", bytes, rules, bytes - rules, (allocated() - began) / count);
        return bytes;
    }

    void come() {
        Parameters mask{};
        mask[ip_version_at] = 4 << 1;
        mask[protocol_at] = 0xff;
        store_be32(&mask[source_ip_at], ~0U);
        store_be32(&mask[destination_at], ~0U);
        store_be32(&mask[udp_sport_at], ~0U);
        store_be16(&mask[source_port_at], 0xffff);
        matcher_ = make_matcher(table_, criteria::outer | criteria::misc, mask);
        for (unsigned i = 0; i < rules_.size(); ++i) timed(shortest_come_[i], [&] { rules_[i] = make(i); });
    }
    void go() {
        for (unsigned i = 0; i < rules_.size(); ++i) timed(shortest_go_[i], [&] { rules_[order(i)].reset(); });
        matcher_.reset();
    }

    /// Of the packet of that number (make_packets()).
    std::unique_ptr<Rule> make(unsigned number) {
        Parameters value{};
        value[ip_version_at] = 4 << 1;
        value[protocol_at] = 17;
        store_be32(&value[source_ip_at], 0x0a000000 + (number >> 14));
        store_be32(&value[destination_at], 0x0b000000);
        store_be16(&value[udp_sport_at], static_cast<std::uint16_t>(1024 + (number & 0x3fff)));
        store_be16(&value[udp_dport_at], 80);
        store_be16(&value[source_port_at], 1);
        std::unique_ptr<Rule> rule;
        const std::array<Action*, 2> actions{actions_[number].get(), out_.get()};
        check(Rule::create(*matcher_, value, actions, rule));
        return rule;
    }
    /// Every number once, far from the one before.
    [[nodiscard]] std::size_t order(std::size_t number) const {
        constexpr std::size_t step = 7919;  // a prime that divides no length asked for
        return number * step % rules_.size();
    }

    template <typename Change>
    static void timed(float& shortest, Change change) {
        const double begin = thread_time();
        change();
        shortest = std::min(shortest, static_cast<float>(thread_time() - begin));
    }

    /// Changes a second: of rules that no packet of the lane meets one goes and comes again.
    double churn(unsigned changes, bool paced) {
        using Clock = std::chrono::steady_clock;
        const auto begin = Clock::now();
        const auto since = [begin] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
        const double began = thread_time();
        for (unsigned i = 0; i < changes / 2; ++i) {
            while (paced && 2 * i > since() * changes_a_second) {
                std::this_thread::sleep_for(std::chrono::microseconds(100));
            }
            std::size_t number = order(i);
            if (number < steered) number += rules_.size() / 2;
            rules_[number].reset();
            rules_[number] = make(static_cast<unsigned>(number));
        }
        return changes / (paced ? since() : thread_time() - began);
    }

    void start_lane(const std::vector<rte_mbuf*>& packets) {
        worker_ = std::thread([this, &packets] {
            Lane lane(steering_, 0);
            lane.online();
            std::size_t at = 0;
            while (!ends_.load(std::memory_order_relaxed)) {
                const double begin = thread_time();
                for (unsigned i = 0; i < 16; ++i) {
                    std::array<rte_mbuf*, poll_length> batch;
                    for (rte_mbuf*& packet : batch) {
                        packet = packets[at];
                        if (++at == steered) at = 0;
                    }
                    lane.from_vport(VportId{1}, batch.data(), poll_length);
                    lane.quiescent();
                }
                const double time = thread_time() - begin;
                lane_time_ = lane_time_ + time;
            }
            lane.offline();
        });
    }
    void stop_lane() {
        ends_ = true;
        worker_.join();
    }
    /// Millions of packets a second of the lane's time.
    double rate(double seconds) {
        const std::uint64_t before = taken_;
        const double time = lane_time_;
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
        return static_cast<double>(taken_ - before) / (lane_time_ - time) / 1e6;
    }

    Steering steering_{connectx_6dx};
    Domain fdb_{steering_, DomainType::fdb, nullptr};
    Table root_table_{fdb_, 0}, table_{fdb_, 1};
    std::unique_ptr<Matcher> root_, matcher_;
    Action::Created jump_, out_;
    std::unique_ptr<Rule> entry_;
    std::vector<std::shared_ptr<CounterBulk>> bulks_;
    std::vector<Action::Created> actions_;
    std::vector<std::unique_ptr<Rule>> rules_;
    std::vector<float> shortest_come_, shortest_go_;  // seconds, by number of the change
    std::thread worker_;
    std::atomic<bool> ends_{false};
    std::atomic<std::uint64_t> taken_{0};
    std::atomic<double> lane_time_{0};
};

}  // namespace

bool run_million(const std::vector<rte_mbuf*>& packets, unsigned rules) { return Million(rules).run(packets); }

}  // namespace ovsdr::soft::bench
