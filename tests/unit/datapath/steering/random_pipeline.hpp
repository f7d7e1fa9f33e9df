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
/// Each object that remembers is there twice, for the engine and for the naive pipeline.
class RandomPipeline : public SteeringTest {
protected:
    static constexpr unsigned tables = 3, counters = 16;
    static constexpr std::uint16_t ports[] = {1, 2, 3, 0xffff};

    /// `remembers`: rules have meters, first hits and connections too, so that one frame has more than one fate.
    explicit RandomPipeline(unsigned seed, bool remembers = false);
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
    /// Meters get other parameters and tokens, first hits other bits, connections another state.
    void renew_state();

    NaivePipeline naive;
    unsigned accepted = 0;  ///< rules
    std::shared_ptr<CounterBulk> bulk = std::make_shared<CounterBulk>(counters);
    using State = std::array<std::shared_ptr<AsoBulk>, 3>;  ///< by NaiveState::What
    static constexpr unsigned state_objects = 2;            ///< of each
    State state = make_state(), naive_state = make_state();

private:
    static State make_state();
    [[nodiscard]] std::vector<NaiveState> random_states();
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
    /// `received`: from the wire. Then what remembers comes behind all else, which has to precede it; else ahead.
    std::vector<Action::Created> actions_of(const NaiveProgram& program, bool received, std::vector<Action*>& list);
    Action* end_action(const NaiveEnd& end, std::vector<Action::Created>& made);

    std::mt19937 random_;
    const bool remembers_;
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
