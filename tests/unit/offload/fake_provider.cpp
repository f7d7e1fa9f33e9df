#include "tests/unit/offload/fake_provider.hpp"

#include <algorithm>
#include <cerrno>

#include "tests/unit/offload/fake_objects.hpp"

namespace ovsdr::test {

FakeState& fake_state() {
    static FakeState the_state;
    return the_state;
}

bool fails_locked(const char* call) {
    FakeState& now = fake_state();
    ++now.calls;
    if (const auto refused = now.refused_calls.find(call); refused != now.refused_calls.end()) {
        errno = refused->second;
        return true;
    }
    if (now.fail_at == 0 || now.calls < now.fail_at || now.calls >= now.fail_at + now.fail_times) return false;
    if (now.failed.empty()) now.failed = call;
    errno = now.fail_code;
    return true;
}

std::string text_of_rule(const mlx5dv_dr_rule& rule) {
    const FakeObject* matcher = rule.needs[0];
    std::string text = matcher->needs[0]->text + " priority " + std::to_string(matcher->priority) + ":";
    for (const std::string& action : rule.actions) text += " " + action;
    return text;
}

void FakeProvider::reset() {
    FakeState& now = fake_state();
    std::lock_guard lock(now.mutex);
    now.violations.clear();
    FakeOrder::reset();
    now.calls = now.fail_at = now.syncs = 0;
    now.queries = now.refused = now.count_at_destroy = now.destroyed_rules = 0;
    now.room = UINT_MAX;
    now.refuse_arrays = now.refuse_bulks = now.refuse_reformats = false;
    now.kept_rules.reset();
    now.failed.clear();
    now.refused_calls.clear();
    now.events.clear();
    now.counters.clear();
    now.next_counter = 16;
    now.refuse_duplicates = false;
    now.steering_format = 1;
    now.counter_bulks = 0x0F;
    has_eswitch = has_nic_rx_tables = true;
    manager_vport = 0;
}

void FakeProvider::fail_call(unsigned n, int code, unsigned times) {
    FakeState& now = fake_state();
    std::lock_guard lock(now.mutex);
    now.calls = 0;
    now.fail_at = n;
    now.fail_times = times;
    now.fail_code = code;
    now.failed.clear();
}

void FakeProvider::refuse(const std::string& call, int code) {
    std::lock_guard lock(fake_state().mutex);
    fake_state().refused_calls.erase(call);
    if (code != 0) fake_state().refused_calls[call] = code;
}

bool FakeProvider::fails_now(const char* call) {
    std::lock_guard lock(fake_state().mutex);
    return fails_locked(call);
}
void FakeProvider::on_creation(void (*now)(const void*)) { fake_state().created = now; }
void FakeProvider::announce_meters(bool announce) { fake_state().has_meters = announce; }

unsigned FakeProvider::calls() {
    std::lock_guard lock(fake_state().mutex);
    return fake_state().calls;
}

std::string FakeProvider::failed_call() {
    std::lock_guard lock(fake_state().mutex);
    return fake_state().failed;
}

unsigned FakeProvider::alive(const std::string& kind) {
    FakeState& now = fake_state();
    std::lock_guard lock(now.mutex);
    const auto length =
        std::ranges::count_if(now.objects, [&](auto* object) { return kind.empty() || object->kind == kind; });
    unsigned others = 0;
    if (kind.empty() || kind == "pd") others += now.pds;
    if (kind.empty() || kind == "context") others += now.contexts;
    return static_cast<unsigned>(length) + others;
}

unsigned FakeProvider::counting_actions() {
    std::lock_guard lock(fake_state().mutex);
    return static_cast<unsigned>(std::ranges::count_if(fake_state().objects, [](const FakeObject* object) {
        return object->kind == "action" && object->text.starts_with("count ");
    }));
}

std::vector<std::string> FakeProvider::violations() {
    std::lock_guard lock(fake_state().mutex);
    return fake_state().violations;
}

std::vector<FakeProvider::RuleView> FakeProvider::rules() {
    FakeState& now = fake_state();
    std::lock_guard lock(now.mutex);
    std::vector<const mlx5dv_dr_rule*> rules;
    for (const FakeObject* object : now.objects) {
        if (object->kind == "rule") rules.push_back(static_cast<const mlx5dv_dr_rule*>(object));
    }
    std::ranges::sort(rules, {}, &mlx5dv_dr_rule::created_at);
    std::vector<RuleView> views;
    for (const mlx5dv_dr_rule* rule : rules) {
        const FakeObject* matcher = rule->needs[0];
        views.push_back({matcher->needs[0]->text, matcher->priority, rule->actions, matcher->match, rule->match});
    }
    return views;
}

void FakeProvider::count(std::uint32_t id, std::uint64_t packets, std::uint64_t bytes) {
    std::lock_guard lock(fake_state().mutex);
    auto& counter = fake_state().counters[id];
    counter.first += packets;
    counter.second += bytes;
}

std::vector<std::string> FakeProvider::unwritten() {
    std::lock_guard lock(fake_state().mutex);
    return FakeOrder::unwritten();
}

unsigned FakeProvider::syncs() {
    std::lock_guard lock(fake_state().mutex);
    return fake_state().syncs;
}
unsigned FakeProvider::queries() {
    std::lock_guard lock(fake_state().mutex);
    return fake_state().queries;
}

void FakeProvider::set_room(unsigned rules) {
    std::lock_guard lock(fake_state().mutex);
    fake_state().room = rules;
}

unsigned FakeProvider::refused() {
    std::lock_guard lock(fake_state().mutex);
    return fake_state().refused;
}

void FakeProvider::refuse_reformats(bool refuse) {
    std::lock_guard lock(fake_state().mutex);
    fake_state().refuse_reformats = refuse;
}
void FakeProvider::refuse_arrays(bool refuse) {
    std::lock_guard lock(fake_state().mutex);
    fake_state().refuse_arrays = refuse;
}

void FakeProvider::refuse_bulks(bool refuse) {
    std::lock_guard lock(fake_state().mutex);
    fake_state().refuse_bulks = refuse;
}

void FakeProvider::keep_rules(bool keep, const std::string& action) {
    std::lock_guard lock(fake_state().mutex);
    fake_state().kept_rules = keep ? std::optional(action) : std::nullopt;
}

void FakeProvider::count_at_destroy(unsigned packets) {
    std::lock_guard lock(fake_state().mutex);
    fake_state().count_at_destroy = packets;
    if (packets != 0) fake_state().destroyed_rules = 0;
}

std::set<const void*> FakeProvider::tables(unsigned level) {
    std::lock_guard lock(fake_state().mutex);
    std::set<const void*> found;
    for (const FakeObject* object : fake_state().objects) {
        if (object->kind == "table" && object->level == level) found.insert(object);
    }
    return found;
}

unsigned FakeProvider::destroyed_rules() {
    std::lock_guard lock(fake_state().mutex);
    return fake_state().destroyed_rules;
}

void FakeProvider::note(const std::string& event) {
    std::lock_guard lock(fake_state().mutex);
    note_locked(event);
}

void FakeProvider::note_locked(const std::string& event) {
    const NoMemoryFaults exempt;
    fake_state().events.push_back(event);
}

std::vector<std::string> FakeProvider::take_events() {
    std::lock_guard lock(fake_state().mutex);
    return std::exchange(fake_state().events, {});
}

void FakeProvider::refuse_duplicates(bool refuse) {
    std::lock_guard lock(fake_state().mutex);
    fake_state().refuse_duplicates = refuse;
}

void FakeProvider::set_steering_format(std::uint8_t format) {
    std::lock_guard lock(fake_state().mutex);
    fake_state().steering_format = format;
}

void FakeProvider::set_counter_bulks(std::uint8_t bits) {
    std::lock_guard lock(fake_state().mutex);
    fake_state().counter_bulks = bits;
}

}  // namespace ovsdr::test
