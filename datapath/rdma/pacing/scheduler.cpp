#include "datapath/rdma/pacing/scheduler.hpp"

#include <algorithm>
#include <cerrno>

namespace ovsdr::soft {

namespace {

/// What goes at once while others wait.
constexpr std::uint64_t quantum = 16 * 1024;
/// When a queue that let another go first asks again.
constexpr std::uint64_t turn = 20'000;
/// A limit may have been changed meanwhile.
constexpr std::uint64_t longest_wait = 100'000'000;
constexpr std::uint64_t patience = 1'000'000;
/// Bytes by share are counted in parts, so that shares of small packets are not rounded away.
constexpr std::uint64_t parts = 256;
constexpr std::uint64_t kilobits_in_megabit = 1000;

/// Counts go round.
[[nodiscard]] bool before(std::uint64_t left, std::uint64_t right) noexcept {
    return static_cast<std::int64_t>(left - right) < 0;
}

}  // namespace

std::uint64_t Scheduler::Element::start() const noexcept {
    return before(had_, parent_->time_) ? parent_->time_ : had_;
}

int Scheduler::add(Element* parent, Kind kind, const Attributes& attributes, std::unique_ptr<Element>& added) {
    auto element = std::make_unique<Element>();
    element->kind_ = kind;
    element->parent_ = parent;
    if (const int error = modify(*element, attributes)) return error;
    const std::lock_guard guard(mutex_);
    if (parent) {
        element->level_ = parent->level_ + 1;
        if (kind != Kind::queue && element->level_ > most_levels) return EINVAL;
        parent->children_.push_back(element.get());
    }
    added = std::move(element);
    return 0;
}

int Scheduler::modify(Element& element, const Attributes& attributes) {
    if (attributes.share > most_share) return EINVAL;
    const std::lock_guard guard(mutex_);
    if (attributes.share) element.share_ = std::max(1u, *attributes.share);
    if (attributes.megabits) element.limit_.set(*attributes.megabits * kilobits_in_megabit);
    return 0;
}

int Scheduler::remove(Element& element) {
    const std::lock_guard guard(mutex_);
    if (!element.children_.empty()) return EBUSY;
    if (element.parent_) std::erase(element.parent_->children_, &element);
    return 0;
}

/// Whether something below could send now.
bool Scheduler::competes(const Element& element, std::uint64_t now) noexcept {
    if (element.limit_.allowance(now) == 0) return false;
    if (element.kind_ == Kind::queue) return element.waits_until_ > now;
    return std::any_of(element.children_.begin(), element.children_.end(),
                       [now](const Element* child) { return competes(*child, now); });
}

Scheduler::Grant Scheduler::ask(Element& queue, std::uint64_t now) noexcept {
    const std::lock_guard guard(mutex_);
    Grant grant{.bytes = RateLimit::unlimited, .at = 0};
    for (const Element* element = &queue; element; element = element->parent_) {
        const std::uint64_t allowed = element->limit_.allowance(now);
        grant.bytes = std::min(grant.bytes, allowed);
        if (allowed == 0) grant.at = std::max(grant.at, std::min(element->limit_.free_at(), now + longest_wait));
    }
    for (const Element* element = &queue; grant.bytes != 0 && element->parent_; element = element->parent_) {
        for (const Element* other : element->parent_->children_) {
            if (other == element || !competes(*other, now)) continue;
            grant.bytes = std::min(grant.bytes, quantum);
            if (before(other->start(), element->start())) grant = {.bytes = 0, .at = now + turn};
        }
    }
    queue.waits_until_ = std::max(now, grant.at) + patience;
    return grant;
}

void Scheduler::sent(Element& queue, std::uint64_t bytes, std::uint64_t now, bool more) noexcept {
    const std::lock_guard guard(mutex_);
    queue.waits_until_ = more ? now + patience : 0;
    if (bytes == 0) return;
    for (Element* element = &queue; element; element = element->parent_) {
        element->limit_.sent(bytes, now);
        if (!element->parent_) break;
        const std::uint64_t start = element->start();
        element->parent_->time_ = start;
        element->had_ = start + bytes * parts / element->share_;
    }
}

}  // namespace ovsdr::soft
