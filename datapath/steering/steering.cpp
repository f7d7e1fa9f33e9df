#include "datapath/steering/plain_function.hpp"
#include "datapath/steering/steering.hpp"

#include <algorithm>
#include <cerrno>

#include "datapath/steering/dr_matcher.hpp"
#include "datapath/steering/steering_impl.hpp"
#include "datapath/steering/tunnel.hpp"

namespace ovsdr::soft {

Steering::Steering(const Profile& profile) : impl_(std::make_unique<Impl>(profile)) {}
Steering::~Steering() = default;

int Steering::attach(VportId vport, Sink sink) { return impl_->attach(vport, sink); }
int Steering::attach_lag_port(unsigned port, Sink sink, Sink strict) {
    return impl_->attach_lag_port(port, sink, strict);
}
void Steering::detach(VportId vport) noexcept { impl_->detach(vport); }
void make_plain_function(Steering& steering) noexcept { steering.impl().plain_function = true; }
bool is_plain_function(const Steering& steering) noexcept {
    return const_cast<Steering&>(steering).impl().plain_function;
}

void Steering::cotenant_send_rule(std::uint32_t sqn, VportId vport) { impl_->add_send_rule(sqn, vport); }
void Steering::remove_cotenant_send_rule(std::uint32_t sqn) noexcept { impl_->remove_send_rule(sqn); }
void Steering::set_lag_port(std::uint32_t sqn, unsigned port, bool strict) { impl_->set_lag_port(sqn, port, strict); }
void Steering::set_cotenant_sink(Sink sink) noexcept { impl_->set_cotenant_sink(sink); }
void Steering::set_transport(Filter transport) { impl_->set_transport(transport); }
int Steering::set_geneve_option(const GeneveOption& option) { return impl_->set_geneve_option(option); }
void Steering::forget_cached() noexcept { const Impl::Change change(*impl_); }
void Steering::forget_cached(VportId source) noexcept { const Impl::Change change(*impl_, SourceScope::of(source)); }
void Steering::synchronize() noexcept { impl_->rcu.synchronize(); }
const Profile& Steering::profile() const noexcept { return impl_->profile; }
Room& room_of(Steering& steering) noexcept { return steering.impl().room; }

Steering::Drops Steering::drops() const noexcept {
    std::array<std::uint64_t, drop_reasons> sum{};
    for (const Impl::WorkerCounts& worker : impl_->counts) {
        for (unsigned i = 0; i < drop_reasons; ++i) sum[i] += worker.drops[i].load(std::memory_order_relaxed);
    }
    const auto of = [&sum](DropReason reason) { return sum[static_cast<unsigned>(reason)]; };
    return {.by_rule = of(DropReason::by_rule),
            .no_vport = of(DropReason::no_vport),
            .nic_rx_miss = of(DropReason::nic_rx_miss),
            .malformed = of(DropReason::malformed),
            .no_buffer = of(DropReason::no_buffer),
            .loop = of(DropReason::loop)};
}

Steering::CacheUse Steering::cache_use() const noexcept {
    std::uint64_t looked_up = 0, walked = 0;
    for (const Impl::WorkerCounts& worker : impl_->counts) {
        walked += worker.walked.load(std::memory_order_relaxed);
        looked_up += worker.looked_up.load(std::memory_order_relaxed);
    }
    // A packet may be looked up and walk between the two readings.
    return {.hits = looked_up - std::min(walked, looked_up), .misses = walked};
}

Steering::Impl::Impl(const Profile& chosen)
    : profile(chosen),
      cache_keys(ParserSetup{.gtpu = chosen.has_parser(flex_parser::gtpu)}, rcu,
                 [](const void* of) { return static_cast<const Impl*>(of)->now(); }, this),
      slots_(std::make_unique<std::atomic<std::uint16_t>[]>(65536)),
      send_rules_(new SendRules),
      lag_choices_(new LagChoices) {
    for (auto& list : root_lists) list = new MatcherList;
    destination_users_[cotenant_destination] = 1;
}

Steering::Impl::~Impl() {
    for (auto& list : root_lists) delete list.load();
    for (auto& sink : sinks) delete sink.load();
    delete transport.load();
    delete send_rules_.load();
    delete lag_choices_.load();
}

std::uint16_t Steering::Impl::free_destination() const noexcept {
    const auto found = std::find(destination_users_.begin(), destination_users_.end(), 0U);
    return found == destination_users_.end() ? 0 : static_cast<std::uint16_t>(found - destination_users_.begin());
}

int Steering::Impl::attach(VportId vport, Sink sink) {
    auto published = std::make_unique<const Sink>(sink);
    const Change change(*this);
    if (slot_of(vport) != 0) return EEXIST;
    const std::uint16_t slot = free_destination();
    const auto attached = std::count_if(slots_.get(), slots_.get() + 65536, [](const auto& used) { return used != 0; });
    if (slot == 0 || attached >= max_vports) return ENOSPC;
    destination_users_[slot] = 1;
    sinks[slot].store(published.release(), std::memory_order_release);
    slots_[vport.value].store(slot, std::memory_order_release);
    return 0;
}

int Steering::Impl::attach_lag_port(unsigned port, Sink sink, Sink strict) {
    for (const auto& [wanted, is_strict] : {std::pair{sink, false}, std::pair{strict, true}}) {
        auto published = std::make_unique<const Sink>(wanted);
        const Change change(*this);
        const std::uint16_t slot = free_destination();
        if (slot == 0) return ENOSPC;
        destination_users_[slot] = 1;
        sinks[slot].store(published.release(), std::memory_order_release);
        lag_slots_[lag_place(port, is_strict)].store(slot, std::memory_order_release);
    }
    return 0;
}

void Steering::Impl::detach(VportId vport) noexcept {
    std::array<std::uint16_t, 1 + 2 * lag_ports> slots{};
    {
        const Change change(*this);
        slots[0] = slots_[vport.value].exchange(0, std::memory_order_acq_rel);
        for (unsigned i = 0; vport == uplink_vport && i < lag_slots_.size(); ++i) {
            slots[i + 1] = lag_slots_[i].exchange(0, std::memory_order_acq_rel);
        }
    }
    if (slots[0] == 0) return;
    rcu.synchronize();  // lanes have flushed what they held for the slots
    const Change change(*this);
    for (const std::uint16_t slot : slots) {
        if (slot == 0) continue;
        delete sinks[slot].exchange(nullptr, std::memory_order_acq_rel);
        destination_users_[slot] = 0;
    }
}

void Steering::Impl::set_cotenant_sink(Sink sink) noexcept {
    const Sink* old;
    {
        const Change change(*this);
        const Sink* next = sink.deliver == nullptr ? nullptr : new Sink(sink);
        old = sinks[cotenant_destination].exchange(next, std::memory_order_acq_rel);
    }
    rcu.synchronize();
    delete old;
}

void Steering::Impl::set_transport(Filter transport) {
    const std::unique_ptr<const Filter> old(this->transport.exchange(
        transport.take == nullptr ? nullptr : new Filter(transport), std::memory_order_acq_rel));
    rcu.synchronize();
}

int Steering::Impl::set_geneve_option(const GeneveOption& option) {
    const Change change(*this);
    if (option.length != 0 && parser_setup().option.length != 0) return EBUSY;
    cache_keys.set_parser({.gtpu = profile.has_parser(flex_parser::gtpu), .option = option});
    return 0;
}

/// Lanes keep what they have cached where a number gets its first rule: its queue has sent nothing yet. So the making
/// of a queue pair costs the others nothing.
void Steering::Impl::add_send_rule(std::uint32_t sqn, VportId vport) {
    const auto add = [&] { replace(send_rules_, [&](SendRules& rules) { rules.insert_or_assign(sqn, vport); }); };
    {
        const std::lock_guard lock(control_);
        if (!send_rules_.load(std::memory_order_relaxed)->contains(sqn)) return add();
    }
    const Change change(*this, SourceScope::of(manager_vport));
    add();
}

void Steering::Impl::remove_send_rule(std::uint32_t sqn) {
    {
        const std::lock_guard lock(control_);
        if (!send_rules_.load(std::memory_order_relaxed)->contains(sqn)) return;
    }
    const Change change(*this, SourceScope::of(manager_vport));
    replace(send_rules_, [sqn](SendRules& rules) { rules.erase(sqn); });
}

void Steering::Impl::set_lag_port(std::uint32_t sqn, unsigned port, bool strict) {
    {
        const std::lock_guard lock(control_);
        if (port == 0 && !lag_choices_.load(std::memory_order_relaxed)->contains(sqn)) return;
    }
    const Change change(*this, SourceScope::of(manager_vport));
    replace(lag_choices_, [&](LagChoices& choices) {
        if (port == 0) {
            choices.erase(sqn);
        } else {
            choices.insert_or_assign(sqn, LagChoice{.port = static_cast<std::uint8_t>(port), .strict = strict});
        }
    });
}

std::uint16_t Steering::Impl::uplink_slot_of(std::uint32_t sqn) const noexcept {
    const LagChoices* choices = lag_choices_.load(std::memory_order_acquire);
    const auto choice = choices->find(sqn);
    if (choice == choices->end()) return slot_of(uplink_vport);
    const std::uint16_t slot =
        lag_slots_[lag_place(choice->second.port, choice->second.strict)].load(std::memory_order_acquire);
    return slot != 0 ? slot : slot_of(uplink_vport);
}

bool Steering::Impl::send_rule(std::uint32_t sqn, VportId& vport) const noexcept {
    const SendRules* rules = send_rules_.load(std::memory_order_acquire);
    const auto found = rules->find(sqn);
    if (found == rules->end()) return false;
    vport = found->second;
    return true;
}

int Steering::Impl::acquire_destination(const Sink& sink, std::uint16_t& destination) {
    auto published = std::make_unique<const Sink>(sink);
    const std::lock_guard lock(control_);  // no rule leads to it yet
    const auto known = std::find_if(sinks.begin() + 1, sinks.end(), [&sink](const std::atomic<const Sink*>& held) {
        const Sink* other = held.load(std::memory_order_relaxed);
        return other != nullptr && *other == sink;
    });
    if (known != sinks.end()) {
        destination = static_cast<std::uint16_t>(known - sinks.begin());
        ++destination_users_[destination];
        return 0;
    }
    destination = free_destination();
    if (destination == 0) return ENOSPC;
    destination_users_[destination] = 1;
    sinks[destination].store(published.release(), std::memory_order_release);
    return 0;
}

void Steering::Impl::release_destination(std::uint16_t destination) noexcept {
    const Change change(*this);
    if (--destination_users_[destination] != 0) return;
    rcu.retire(const_cast<Sink*>(sinks[destination].exchange(nullptr, std::memory_order_acq_rel)));
}

void Steering::Impl::add_matcher(Matcher& matcher, std::vector<Matcher*>& among,
                                 std::atomic<const MatcherList*>& published) {
    const auto place = std::find_if(among.begin(), among.end(), [&matcher](const Matcher* other) {
        return other->view().rank >= matcher.view().rank;
    });
    among.insert(place, &matcher);
    cache_keys.add_matcher(matcher.view());
    publish(among, published);
}

void Steering::Impl::remove_matcher(Matcher& matcher, std::vector<Matcher*>& among,
                                    std::atomic<const MatcherList*>& published) {
    std::erase(among, &matcher);
    cache_keys.remove_matcher(matcher.view());
    publish(among, published);
}

void Steering::Impl::publish(const std::vector<Matcher*>& among, std::atomic<const MatcherList*>& published) {
    auto list = std::make_unique<MatcherList>();
    for (const Matcher* matcher : among) list->matchers.push_back(&matcher->view());
    const MatcherList* old = published.exchange(list.release(), std::memory_order_acq_rel);
    rcu.retire(const_cast<MatcherList*>(old));
}

}  // namespace ovsdr::soft
