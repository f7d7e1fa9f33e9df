// A recording provider: the mlx5dv_* and ibv_* functions that offload/dr calls, in the test's executable instead of a
// library's.
//
// It knows no packets. It keeps every object with what depends on it, refuses to destroy what is in use (EBUSY, and
// notes the violation), refuses rules whose value exceeds their matcher's mask, and makes the n-th creating call fail
// on demand. Counters hold what a test puts into them. Of packets it knows where they could be: it notes a violation
// when one could meet a rule that is not written yet, or be on its way to what goes (fake_objects.hpp).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

struct verbs_context;

namespace ovsdr::test {

/// While one lives, memory that a test makes run out (memory_faults.hpp) does not run out for this thread: the fake's
/// own.
class NoMemoryFaults {
public:
    NoMemoryFaults() { ++depth; }
    ~NoMemoryFaults() { --depth; }
    NoMemoryFaults(const NoMemoryFaults&) = delete;
    NoMemoryFaults& operator=(const NoMemoryFaults&) = delete;

    static inline thread_local unsigned depth = 0;
};

struct FakeProvider {
    /// Back to an empty device with vports 0 to 4 and the uplink. Everything must have been destroyed.
    static void reset();

    /// The n-th call from now on that can fail gives `code`, and `times - 1` more after it; 0: none.
    static void fail_call(unsigned n, int code, unsigned times = 1);
    /// Calls that could have failed since reset() or fail_call().
    [[nodiscard]] static unsigned calls();
    /// From now on each call of this name (as failed_call() has it) gives `code`; 0: no more.
    static void refuse(const std::string& call, int code);
    /// The name of the first call that was made to fail, empty when none was.
    [[nodiscard]] static std::string failed_call();

    /// For what beside this fakes functions of the provider: whether this call is the one to fail, with errno then.
    [[nodiscard]] static bool fails_now(const char* call);
    /// Called with the command of each DEVX object that is made.
    static void on_creation(void (*created)(const void* command));
    /// Whether the device says that it has ASO meters. reset() does not change it.
    static void announce_meters(bool announce);

    /// Objects alive, by kind: "rule", "matcher", "action", "table", "domain", "devx", "pd", "context"; "" for all.
    [[nodiscard]] static unsigned alive(const std::string& kind = "");
    /// Of them the actions that count: a bulk keeps each that it has made.
    [[nodiscard]] static unsigned counting_actions();
    /// Objects that were destroyed while in use, packets that meet what is not in the device yet or not any more
    /// (fake_objects.hpp says which), and the like.
    [[nodiscard]] static std::vector<std::string> violations();

    struct RuleView {
        std::string table;                  ///< "FDB level 1"
        unsigned priority;
        std::vector<std::string> actions;   ///< "count 5", "dest_vport 2", "dest_array [dest_vport 1, dest_vport 2]"
        std::vector<std::uint8_t> mask, value;
    };
    /// From the oldest to the newest.
    [[nodiscard]] static std::vector<RuleView> rules();
    /// The tables of a level that are there, told apart.
    [[nodiscard]] static std::set<const void*> tables(unsigned level);
    /// What the device has counted into counter `id` grows by this.
    static void count(std::uint32_t id, std::uint64_t packets, std::uint64_t bytes);
    /// Rules, as events name them, that are not in the device yet: their domain was not synced since they came. Root
    /// rules always are.
    [[nodiscard]] static std::vector<std::string> unwritten();
    [[nodiscard]] static unsigned syncs();
    [[nodiscard]] static unsigned queries();

    /// From now on so many more rules fit, then creating one is ENOSPC. UINT_MAX: no limit. Destroying one makes no
    /// room.
    static void set_room(unsigned rules);
    /// Rules refused for want of room since reset().
    [[nodiscard]] static unsigned refused();
    /// From now on a rule is not destroyed: EIO. Those with this action, or all.
    static void keep_rules(bool keep, const std::string& action = "");
    /// From now on a bulk of counters is ENOSPC.
    static void refuse_bulks(bool refuse);
    /// From now on an array of destinations is ENOSPC.
    static void refuse_arrays(bool refuse);
    /// From now on a reformat is ENOMEM.
    static void refuse_reformats(bool refuse);
    /// From now on, a rule that is destroyed counts so many packets of 100 bytes at its last moment; 0: none.
    static void count_at_destroy(unsigned packets);
    /// Rules with a counter that were destroyed while count_at_destroy() was on last.
    [[nodiscard]] static unsigned destroyed_rules();

    /// What happened to the device, in order: "create …" and "destroy FDB level 1 priority 0: count 5 dest_vport 2",
    /// "write FDB" and "drain NIC_RX", and what others note. Forgets them.
    [[nodiscard]] static std::vector<std::string> take_events();
    static void note(const std::string& event);
    static void note_locked(const std::string& event);   ///< for the fake itself

    /// Called for each context that is opened; fake_verbs.hpp makes it take queues.
    static inline void (*prepare_context)(verbs_context&) = nullptr;

    /// False until reset(): the device is a plain function, with one port and no vports.
    static inline bool has_eswitch = true;

    /// 0 until reset(); 0xFFFE on a device with processors of its own.
    static inline std::uint16_t manager_vport = 0;
    /// False until reset(): the device's NIC_RX has only its root, as where RoCE is turned off.
    static inline bool has_nic_rx_tables = true;

    /// Of the first format's meters: the parameters that an action was made or changed with last.
    static inline std::vector<std::uint8_t> meter_parameters;

    /// Called in each sync of a domain, with no lock of the fake's.
    static inline void (*in_sync)() = nullptr;

    /// From now on a rule with the value of another is EEXIST.
    static void refuse_duplicates(bool refuse);
    static void set_steering_format(std::uint8_t format);
    /// Which bulks of counters there are: bit n for 128 << n; 0: single counters only.
    static void set_counter_bulks(std::uint8_t bits);
};

}  // namespace ovsdr::test
