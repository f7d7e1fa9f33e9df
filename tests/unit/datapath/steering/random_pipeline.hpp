// The engine and the naive pipeline beside each other, with the same random rules: what tests compare them by.
#pragma once

#include <gtest/gtest.h>

#include <list>
#include <random>
#include <string>
#include <vector>

#include "frames.hpp"
#include "naive_pipeline.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {

[[nodiscard]] std::string hex(const Frame& frame);
[[nodiscard]] std::vector<std::string> sorted(const std::vector<Frame>& frames);

/// Random masks, priorities, rules and actions in three tables that packets of every vport enter; frames of many kinds.
class RandomPipeline : public SteeringTest {
protected:
    static constexpr unsigned tables = 3, counters = 16;
    static constexpr std::uint16_t ports[] = {1, 2, 3, 0xffff};

    explicit RandomPipeline(unsigned seed);
    ~RandomPipeline() override;

    unsigned pick(unsigned below) { return static_cast<unsigned>(random_() % below); }
    bool chance(unsigned one_in) { return pick(one_in) == 0; }

    Frame random_frame();
    Frame random_plain_frame();
    Frame random_tunnel();
    void add_matcher();
    void remove_matcher();
    void add_rule();
    void remove_rule();

    NaivePipeline naive;
    unsigned accepted = 0;  ///< rules
    std::shared_ptr<CounterBulk> bulk = std::make_shared<CounterBulk>(counters);

private:
    struct MatcherPair {
        unsigned id;
        std::unique_ptr<Matcher> matcher;
    };
    struct RulePair {
        unsigned id, matcher_id;
        std::vector<Action::Created> actions;
        std::unique_ptr<Rule> rule;
    };

    Parameters random_mask();
    Parameters random_value(const Parameters& mask);
    NaiveProgram random_program(unsigned table);
    std::vector<NaiveEdit> random_edits();
    std::vector<Action::Created> actions_of(const NaiveProgram& program, std::vector<Action*>& list);
    Action* end_action(const NaiveEnd& end, std::vector<Action::Created>& made);

    std::mt19937 random_;
    Domain fdb_{steering, DomainType::fdb, nullptr};
    Table root_{fdb_, 0};
    MadeMatcher root_matcher_ = match_all(root_);
    std::vector<std::unique_ptr<Table>> tables_;
    std::vector<Action::Created> to_tables_, to_ports_;
    Action::Created drop_ = Action::drop();
    MadeRule enter_;
    std::vector<MatcherPair> matchers_;
    std::list<RulePair> rules_;  // a rule is destroyed before its actions, and no element moves over another
    unsigned next_id_ = 1;
};

}  // namespace ovsdr::soft::test
