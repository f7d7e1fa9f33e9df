// The recording provider from inside: its objects, and what is checked of the order in which they come and go.
//
// Of tests, only the fake's own files include this; tests ask FakeProvider.
#pragma once

#include <infiniband/mlx5dv.h>

#include <climits>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

// What the provider's types are here. One structure serves for all kinds of objects.
struct FakeObject {
    std::string kind, text;
    std::vector<FakeObject*> needs;
    unsigned users = 0;
    unsigned level = 0, priority = 0;
    std::vector<std::uint8_t> match;
    std::uint32_t first_id = 0, length = 0;
    std::uint64_t left_at = 0;   ///< when the last rule that had this action went; events in order
};
struct mlx5dv_dr_domain : FakeObject {
    std::uint64_t written_at = 0, asked_at = 0, drained_at = 0;   ///< the last sync: that succeeded, any, any drain
};
struct mlx5dv_dr_table : FakeObject {
    bool open = false;           ///< packets may come in
    std::uint64_t shut_at = 0;   ///< when none could any more
};
struct mlx5dv_dr_matcher : FakeObject {
    std::multimap<std::vector<std::uint8_t>, mlx5dv_dr_rule*> rules;   ///< by value
};
struct mlx5dv_dr_rule : FakeObject {
    std::vector<std::string> actions;
    std::uint64_t created_at = 0;
};
struct mlx5dv_dr_action : FakeObject {
    std::vector<mlx5dv_dr_table*> leads_to;
    std::uint32_t mark = 0;   ///< of ours, that it writes into reg_c_1; or none
};
struct mlx5dv_devx_obj : FakeObject {};

namespace ovsdr::test {

struct FakeState {
    std::mutex mutex;
    std::set<FakeObject*> objects;
    std::vector<std::string> violations;
    unsigned calls = 0, fail_at = 0, fail_times = 1, syncs = 0;
    int fail_code = 0;
    std::string failed;
    std::map<std::string, int> refused_calls;
    std::uint32_t next_counter = 16;
    std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> counters;
    unsigned queries = 0, room = UINT_MAX, refused = 0, count_at_destroy = 0, destroyed_rules = 0;
    bool refuse_arrays = false, refuse_bulks = false, refuse_reformats = false;
    std::optional<std::string> kept_rules;   ///< by an action, or all
    bool refuse_duplicates = false, has_meters = false;
    std::uint8_t steering_format = 1, counter_bulks = 0x0F;
    std::vector<std::string> events;
    unsigned contexts = 0, pds = 0;
    void (*created)(const void*) = nullptr;
};
FakeState& fake_state();

/// With the mutex held: whether this call is the one to fail.
bool fails_locked(const char* call);

/// "FDB level 1 priority 0: count 5 dest_vport 2".
std::string text_of_rule(const mlx5dv_dr_rule& rule);

/// Whether packets meet only what is in the device already, and nothing goes that a packet may be on its way to; what
/// does not hold is a violation.
///
/// Model. A rule is in the device when its domain has been synced since it was created, that of a root table at once:
/// that is the firmware's. A domain's rules get there in the order in which they were created; of two domains nobody
/// knows. A table is open when a rule of a root or of an open table leads there. Packets of a table that has been shut
/// are under way until its domain has been drained. A sync that was made to fail has been asked for: who goes on behind
/// a drain that fails has no better choice. Two rules with one match may be a megaflow's, of which it does not matter
/// which a packet finds; of those that stand around megaflows it does.
///
/// All with the state's mutex.
struct FakeOrder {
    static void created(mlx5dv_dr_rule& rule);     ///< it is in its matcher
    static void destroying(mlx5dv_dr_rule& rule);
    static void destroying(const mlx5dv_dr_table& table);
    static void synced(mlx5dv_dr_domain& domain, bool drained, bool done);
    /// Rules that are not in the device yet.
    [[nodiscard]] static std::vector<std::string> unwritten();
    static void reset();
};

}  // namespace ovsdr::test
