// A DR rule: a value under its matcher's mask, and the actions of packets that equal it.
//
// The list of actions is validated as libmlx5 does (each FDB rule for the wire's side and for the vports', unless its
// source settles one) and compiled into a Program. When create() returns, packets meet the rule; when the rule is
// destroyed, the next ones do not, and queues that it led to have seen their last packet.
//
// Errors: make_value()'s; EINVAL (foreign domain, destination level not higher, one action too often, no usable queue),
// EBUSY (a linked connection that another rule has), EOPNOTSUPP (an order that the state machine refuses), ENOTSUP (an
// action that root tables lack), ENOMEM (a root priority above 15), EEXIST (duplicates, where they are disallowed, and
// in root tables).
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "datapath/steering/dr_action.hpp"
#include "datapath/steering/dr_matcher.hpp"

namespace ovsdr::soft {

/// A rule's hold on a connection of another domain (AsoBulk::take_link()).
class LinkedConnection {
public:
    LinkedConnection(std::shared_ptr<AsoBulk> bulk, const AsoUse& use) : bulk_(std::move(bulk)), use_(use) {}
    ~LinkedConnection() { bulk_->leave_link(use_.offset); }
    LinkedConnection(const LinkedConnection&) = delete;
    LinkedConnection& operator=(const LinkedConnection&) = delete;

    [[nodiscard]] const AsoUse& use() const noexcept { return use_; }

private:
    std::shared_ptr<AsoBulk> bulk_;
    AsoUse use_;
};

/// Its list of actions lies behind it in the same block of memory.
class Rule {
public:
    [[nodiscard]] static void* operator new(std::size_t size, std::size_t action_count) {
        return ::operator new(size + action_count * sizeof(Action*));
    }
    static void operator delete(void* rule) noexcept { ::operator delete(rule); }
    static void operator delete(void* rule, std::size_t) noexcept { ::operator delete(rule); }

    [[nodiscard]] static int create(Matcher& matcher, std::span<const std::uint8_t> value,
                                    std::span<Action* const> actions, std::unique_ptr<Rule>& rule);
    /// The same for a rule that is to take over from `old`, which has the same value and meets the packets until it is
    /// destroyed: no packet in between meets neither.
    [[nodiscard]] static int create_successor(Rule& old, std::span<const std::uint8_t> value,
                                              std::span<Action* const> actions, std::unique_ptr<Rule>& rule);
    ~Rule();
    Rule(const Rule&) = delete;
    Rule& operator=(const Rule&) = delete;

    [[nodiscard]] Matcher& matcher() const noexcept { return matcher_; }
    [[nodiscard]] std::span<Action* const> actions() const noexcept {
        return {reinterpret_cast<Action* const*>(this + 1), action_count_};
    }
    [[nodiscard]] const RuleNode& node() const noexcept { return *node_; }
    [[nodiscard]] Rule* next() const noexcept { return next_; }

private:
    Rule(Matcher& matcher, std::span<Action* const> actions);
    [[nodiscard]] static int make(Matcher& matcher, std::span<const std::uint8_t> value,
                                  std::span<Action* const> actions, bool unique, std::unique_ptr<Rule>& rule);
    [[nodiscard]] int take_links();
    [[nodiscard]] int install(std::unique_ptr<RuleNode> node, bool unique);
    void link() noexcept;
    void prefetch() const noexcept;

    Matcher& matcher_;
    RuleNode* node_ = nullptr;
    Rule* previous_ = nullptr;
    Rule* next_ = nullptr;
    std::uint32_t action_count_;
    std::uint16_t destination_ = 0;  // of the queue that the rule leads to
    bool reaches_queue_;             // by itself or through an array
    std::unique_ptr<LinkedConnection> linked_;
};

}  // namespace ovsdr::soft
