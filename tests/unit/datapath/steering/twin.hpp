// One of two equal devices with the same random rules, for twin_test.cpp: what it has drawn, and what packets leave
// behind in it.
#pragma once

#include <algorithm>
#include <list>
#include <random>

#include "random_pipeline.hpp"
#include "tracked.hpp"
#include "walk_fixture.hpp"

namespace ovsdr::soft::test {

class Draws {
protected:
    explicit Draws(unsigned seed) : random_(seed) {}
    unsigned pick(std::size_t below) { return static_cast<unsigned>(random_() % below); }
    bool chance(unsigned one_in) { return pick(one_in) == 0; }
    template <typename List>
    const auto& one_of(const List& list) {
        return list[pick(std::size(list))];
    }

private:
    std::mt19937_64 random_;
};

/// What a rule lists, and those of it that are there for this rule only.
struct ActionList {
    std::vector<Action*> listed;
    std::vector<Action::Created> own;

    void share(const Action::Created& action) { listed.push_back(action.get()); }
    void keep(Action::Created action) {
        share(action);
        own.push_back(std::move(action));
    }
};

/// A meter without a rate that lets so many packets of 128 bytes pass; `modes`: its first byte.
[[nodiscard]] inline Meter::Image quota(unsigned modes, unsigned committed, unsigned excess) {
    Meter::Image image{};
    image[0] = static_cast<std::uint8_t>(modes);
    image[8] = image[16] = 10;
    image[9] = committed != 0 ? 255 : 0;
    image[17] = excess != 0 ? 255 : 0;
    store_be32(&image[12], committed * 128);
    store_be32(&image[20], excess * 128);
    image[31] = 1;  // the timestamp: the buckets have been filled
    return image;
}

/// One of the two devices, a fixture that runs no test. It draws its rules itself: by the same seed, the same ones.
class Twin : public WalkTest, private Draws {
public:
    static constexpr std::uint16_t sources[] = {1, 2, wire};
    using WalkTest::send_batch;

    explicit Twin(unsigned seed) : Draws(seed) {
        for (Table* table : tables) to_tables.push_back(to_table(*table));
        for (const std::uint16_t port : destinations) to_ports.push_back(to_vport(fdb, port));
        for (unsigned level = 2; level <= std::size(tables); ++level) {
            const bool odd = level % 2 != 0;
            const Meter::Image parameters = quota(odd ? 0xb3 : 0xa3, 300, 200);  // packets come undefined, or green
            const FlowMeterSpec spec{odd, static_cast<std::uint8_t>(level % 3 == 0 ? 3 : 5), parameters};
            legacy.emplace_back();
            EXPECT_EQ(Action::flow_meter(*tables[level - 1], spec, legacy.back()), 0);
        }
        renew_state();
    }
    void TestBody() override {}

    void add_matcher() {
        const Parameters mask = random_mask();
        const bool received = chance(5);
        Table& table = received ? *one_of(rx_tables) : *one_of(tables);
        MadeMatcher made = make_matcher(table, static_cast<std::uint16_t>(pick(4)), every, mask);
        ASSERT_EQ(made.error, 0);
        matchers.push_back({std::move(made), mask, table});
    }
    /// Not every list is one that a rule can have: then there is none.
    void add_rule() {
        const MatcherInTable& matcher = one_of(matchers);
        const Parameters value = random_value(matcher.mask);
        RuleWithActions& added = rules.emplace_back();
        add_actions(matcher.table, added.actions);
        if (Rule::create(*matcher.made, value.bytes(), added.actions.listed, added.rule) != 0) rules.pop_back();
    }
    void remove_rule() {
        if (!rules.empty()) rules.erase(std::next(rules.begin(), pick(rules.size())));
    }
    /// Meters get other parameters and tokens, first hits other bits, connections another state.
    void renew_state() {
        for (unsigned i = 0; i < meters->length(); ++i) {
            AsoBulk::Image pair{};
            for (unsigned at = 0; at < pair.size(); at += Meter::size) {
                const unsigned modes = (chance(8) ? 0 : 0x80) | pick(0x80);  // valid or not, any colour and mode
                const unsigned committed = chance(8) ? 0 : pick(40), excess = chance(3) ? 0 : pick(20);
                std::ranges::copy(quota(modes, committed, excess), pair.begin() + at);
            }
            meters->exchange(i, pair, ~0ULL);
        }
        AsoBulk::Image bits{};
        bits[63] = static_cast<std::uint8_t>(pick(4));
        hits->exchange(0, bits, 1);
        for (unsigned i = 0; i < connections->length(); ++i) {
            tracked::Object object = tracked::after_syn_ack();
            object.set(tracked::object_valid, chance(6) ? 0 : 1).set(tracked::state, pick(2));
            object.set(tracked::original_liberal, pick(2)).set(tracked::reply_liberal, pick(2));
            connections->exchange(i, object.image, ~0ULL);
        }
        for (const Action::Created& meter : legacy) {  // switched on, or off
            EXPECT_EQ(meter->modify_flow_meter({.active = chance(2), .reg_c = 5, .parameters = {}}, 1), 0);
        }
    }

    void send_one_by_one(std::uint16_t port, const std::vector<Frame>& frames) {
        for (const Frame& frame : frames) {
            steering.forget_cached();
            send(port, frame);
        }
    }
    /// What has arrived since the last time, a line of text each. Sorted: flows have no order among each other.
    std::vector<std::string> take_arrived() {
        std::vector<std::string> lines;
        const auto take = [&lines](const std::string& where, Collector& collector) {
            for (const Collector::Taken& one : collector.taken) {
                lines.push_back(where + " from " + std::to_string(one.source.value) + " tag " +
                                std::to_string(one.tag) + " reg_b " + std::to_string(one.reg_b) + ' ' + hex(one.frame));
            }
            collector.taken.clear();
        };
        for (auto& [id, collector] : vports) take("vport " + std::to_string(id), collector);
        take("co-tenant", cotenant);
        take("queue", queue);
        std::ranges::sort(lines);
        return lines;
    }
    /// Everything else that packets leave behind.
    void expect_state_of(Twin& other) {
        for (unsigned i = 0; i < counters->length(); ++i) {
            EXPECT_EQ(counters->read(i).packets, other.counters->read(i).packets) << "counter " << i;
            EXPECT_EQ(counters->read(i).bytes, other.counters->read(i).bytes) << "counter " << i;
        }
        for (const auto objects : {&Twin::meters, &Twin::hits, &Twin::connections}) {
            for (unsigned i = 0; i < (this->*objects)->length(); ++i) {
                EXPECT_EQ((this->*objects)->read(i), (other.*objects)->read(i)) << "object " << i;
            }
        }
        const Steering::Drops drops = steering.drops(), others = other.steering.drops();
        EXPECT_EQ(drops.by_rule, others.by_rule);
        EXPECT_EQ(drops.nic_rx_miss, others.nic_rx_miss);
        EXPECT_EQ(drops.loop, others.loop);
    }
    [[nodiscard]] Steering::CacheUse cache_use() const { return steering.cache_use(); }

private:
    static constexpr std::uint16_t destinations[] = {1, 2, 3, wire, 0};
    static constexpr unsigned id_reg_c_3 = 0x54, id_reg_c_5 = 0x56;  // of modify-header commands

    Parameters random_mask() {
        constexpr Field others[] = {field::source_port, field::dmac_15_0, field::reg_c_1, field::dst_31_0};
        constexpr std::uint8_t bits[] = {0xff, 0xff, 0xff, 0xff, 0x01, 0x02, 0x40, 0x80};
        Parameters mask;
        const bool looks_at_outcome = chance(2);
        if (looks_at_outcome) mask.set(chance(4) ? field::reg_c_3_low : field::reg_c_5_low, one_of(bits));
        for (unsigned left = pick(2) + (looks_at_outcome ? 0 : 1); left > 0; --left) {
            const Field& other = one_of(others);
            mask.set(other, (1ULL << other.width) - 1);
            if (other.bit == field::dst_31_0.bit) mask.set(field::ip_version, 4);
        }
        return mask;
    }
    /// Of packets that there are.
    Parameters random_value(const Parameters& mask) {
        constexpr std::uint8_t outcomes[] = {0, 0, 1, 1, 2, 2, 3, 0x40, 0x41, 0x80};
        Parameters value;
        const auto set = [&](Field one, std::uint64_t number) { value.set(one, number & mask.get(one)); };
        set(field::reg_c_5_low, one_of(outcomes));
        set(field::reg_c_3_low, one_of(outcomes));
        set(field::source_port, one_of(sources));
        set(field::dmac_15_0, 2 + pick(3));
        set(field::reg_c_1, pick(3));
        set(field::dst_31_0, 0x0a000002 + pick(2));
        set(field::ip_version, 4);
        return value;
    }
    void add_actions(Table& table, ActionList& actions) {
        Domain& domain = table.domain();
        const bool received = domain.type() == DomainType::nic_rx, remembers = chance(2), at_last = chance(2);
        if (remembers && !at_last) add_states(domain, actions);
        if (chance(2)) actions.keep(counting(counters, pick(counters->length())));
        if (chance(2)) actions.keep(modifying(domain, {random_command(), random_command()}));
        if (!received && chance(6)) actions.keep(pushing(0x81000001 + pick(3)));
        if (remembers && at_last) add_states(domain, actions);
        received ? end_received(table.level(), actions) : end_forwarded(table.level(), actions);
    }
    void add_states(Domain& domain, ActionList& actions) {
        constexpr std::uint8_t registers[] = {5, 5, 5, 3, 1};
        const auto add = [&](const std::shared_ptr<AsoBulk>& bulk, unsigned offset, std::uint32_t flags) {
            Action::Created action;
            EXPECT_EQ(Action::aso(domain, bulk, offset, flags, one_of(registers), action), 0);
            actions.keep(std::move(action));
        };
        if (chance(2)) add(meters, pick(4), 1U << pick(4));     // packets come in each colour, or as the meter says
        if (chance(3)) add(connections, pick(2), 1 + pick(2));  // either direction
        if (chance(3)) add(hits, pick(2), pick(2));             // looks at the bit, or sets it too
    }
    std::uint64_t random_command() {
        switch (pick(9)) {
            case 0: return set_command(id_reg_c_5, 0, 8, pick(3));
            case 1: return set_command(id_reg_c_5, 0, 1 + pick(2), pick(4));  // a part of the outcome
            case 2: return set_command(id_reg_c_3, 0, 8, pick(3));
            case 3: return copy_command(id_reg_c_5, id_reg_c_3, 8);
            case 4: return copy_command(id_reg_c_5, id::dmac_15_0, 2);
            case 5: return copy_command(id::dmac_15_0, id_reg_c_5, 2);
            case 6: return set_command(id::dmac_15_0, 0, 16, 2 + pick(3));
            case 7: return set_command(id::reg_c_1, 0, 32, pick(3));
            default: return set_command(id::ip_ttl, 0, 8, 1 + pick(200));
        }
    }
    void end_received(unsigned level, ActionList& actions) {
        if (chance(3)) actions.keep(Action::tag(1 + pick(5)));
        if (chance(4)) return actions.share(drop);
        actions.share(level == 1 && chance(3) ? to_rx_second : to_queue);
    }
    void end_forwarded(unsigned level, ActionList& actions) {
        const bool last = level == std::size(tables);
        const auto further = [&]() -> const Action::Created& {
            return last ? one_of(to_ports) : to_tables[level + pick(to_tables.size() - level)];
        };
        switch (pick(10)) {
            case 0: return actions.share(drop);
            case 1: return actions.share(miss);
            case 2: return actions.keep(array_of(fdb, {&one_of(to_ports), &further()}));
            case 3: return actions.keep(array_of(fdb, {&further(), &one_of(to_ports), &further()}));
            case 4: return actions.share(last ? drop : legacy[level - 1 + pick(legacy.size() + 1 - level)]);
            case 5: return last ? actions.share(miss) : actions.keep(sampling_all(*tables[level]));
            default: return actions.share(chance(3) ? one_of(to_ports) : further());
        }
    }
    Action::Created sampling_all(Table& next) {
        Action* const sampled[] = {chance(2) ? miss.get() : one_of(to_ports).get()};
        Action::Created action;
        EXPECT_EQ(Action::sampler({.ratio = 1, .next = &next, .actions = sampled, .restore = 0}, action), 0);
        return action;
    }

    struct MatcherInTable {
        MadeMatcher made;
        Parameters mask;
        Table& table;
    };
    struct RuleWithActions {
        ActionList actions;
        std::unique_ptr<Rule> rule;
    };
    std::shared_ptr<CounterBulk> counters = std::make_shared<CounterBulk>(8);
    std::shared_ptr<AsoBulk> meters = std::make_shared<AsoBulk>(AsoKind::flow_meter, 1, nullptr),
                             hits = std::make_shared<AsoBulk>(AsoKind::first_hit, 0, nullptr),
                             connections = std::make_shared<AsoBulk>(AsoKind::connection, 1, nullptr);
    Table fourth{fdb, 4}, fifth{fdb, 5}, sixth{fdb, 6};
    Table* const tables[6] = {&first, &second, &third, &fourth, &fifth, &sixth};
    Table* const rx_tables[2] = {&rx_first, &rx_second};
    std::vector<Action::Created> to_tables, to_ports, legacy;  // legacy[0] leads to level 2
    std::vector<MatcherInTable> matchers;
    std::list<RuleWithActions> rules;
};

}  // namespace ovsdr::soft::test
