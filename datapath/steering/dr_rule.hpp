// A DR rule: a value under its matcher's mask, and the actions of packets that equal it.
//
// The list of actions is validated as libmlx5 does (each FDB rule for the wire's side and for the vports', unless its
// source settles one) and compiled into Ops and an End. When create() returns, packets meet the rule; when the rule is
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
#include <new>
#include <span>

#include "datapath/steering/dr_action.hpp"
#include "datapath/steering/dr_matcher.hpp"
#include "datapath/steering/rule_compile.hpp"

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

/// A node with its words, ops and list of actions, in one block of memory. Deleting a rule ends it at once; lanes may
/// still look at the block, which is freed after a grace period.
class Rule : public RuleNode {
public:
    static void operator delete(Rule* rule, std::destroying_delete_t) noexcept { rule->end_and_free(); }

    [[nodiscard]] static int create(Matcher& matcher, std::span<const std::uint8_t> value,
                                    std::span<Action* const> actions, std::unique_ptr<Rule>& rule);
    /// The same for a rule that is to take over from `old`, which has the same value and meets the packets until it is
    /// destroyed: no packet in between meets neither.
    [[nodiscard]] static int create_successor(Rule& old, std::span<const std::uint8_t> value,
                                              std::span<Action* const> actions, std::unique_ptr<Rule>& rule);

    /// Whose node that is.
    [[nodiscard]] static const Rule& of(const RuleNode& node) noexcept { return static_cast<const Rule&>(node); }
    [[nodiscard]] Matcher& matcher() const noexcept { return *RuleNode::matcher; }
    [[nodiscard]] std::span<Action* const> actions() const noexcept { return RuleNode::actions(); }
    [[nodiscard]] const RuleNode& node() const noexcept { return *this; }

private:
    struct Claims;
    Rule(Matcher& of, const Lengths& lengths, std::span<Action* const> listed, RulePlan& plan, Claims& claims) noexcept;
    [[nodiscard]] static int make(Matcher& matcher, std::span<const std::uint8_t> value,
                                  std::span<Action* const> actions, bool unique, std::unique_ptr<Rule>& rule);
    [[nodiscard]] int install(bool unique);
    void end_and_free() noexcept;
    void uninstall() noexcept;
    void prefetch() const noexcept;
    /// Behind the actions of a rule that is linked.
    [[nodiscard]] LinkedConnection*& link() noexcept {
        return *reinterpret_cast<LinkedConnection**>(RuleNode::actions().data() + action_count);
    }
};
static_assert(sizeof(Rule) == sizeof(RuleNode));

}  // namespace ovsdr::soft
