// DR objects for tests, with one-line makers; whoever makes them destroys them in reverse.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <vector>

#include "datapath/steering/dr_rule.hpp"
#include "naive_fields.hpp"

namespace ovsdr::soft::test {

namespace criteria_bits = ovsdr::soft::criteria;

inline constexpr std::uint16_t wire = 0xffff;  ///< the uplink, as source_port has it
inline constexpr std::uint8_t every = 0x7f;    ///< all criteria of a matcher

[[nodiscard]] inline Field reg_c(unsigned index) { return {1536 + 352 - 32 * index, 32}; }

/// A matcher, or the errno that it was refused with.
struct MadeMatcher {
    std::unique_ptr<Matcher> matcher;
    int error = 0;

    Matcher& operator*() const { return *matcher; }
};

inline MadeMatcher make_matcher(Table& table, std::uint16_t priority, std::uint8_t criteria, const Parameters& mask) {
    MadeMatcher made;
    made.error = Matcher::create(table, priority, criteria, mask.bytes(), made.matcher);
    return made;
}

inline MadeMatcher match_all(Table& table, std::uint16_t priority = 0) {
    return make_matcher(table, priority, 0, Parameters{});
}

struct MadeRule {
    std::unique_ptr<Rule> rule;
    int error = 0;
};

inline MadeRule make_rule(Matcher& matcher, const Parameters& value,
                          std::initializer_list<const Action::Created*> actions) {
    std::vector<Action*> list;
    for (const Action::Created* action : actions) list.push_back(action->get());
    MadeRule made;
    made.error = Rule::create(matcher, value.bytes(), list, made.rule);
    return made;
}

inline Action::Created to_table(Table& table) {
    Action::Created action;
    EXPECT_EQ(Action::table(table, action), 0);
    return action;
}

inline Action::Created to_vport(Domain& domain, std::uint16_t vport) {
    Action::Created action;
    EXPECT_EQ(Action::vport(domain, vport, action), 0);
    return action;
}

inline Action::Created counting(const std::shared_ptr<CounterBulk>& bulk, unsigned index = 0) {
    Action::Created action;
    EXPECT_EQ(Action::counter(bulk, index, action), 0);
    return action;
}

inline Action::Created pushing(std::uint32_t header) {
    Action::Created action;
    EXPECT_EQ(Action::push_vlan(header, action), 0);
    return action;
}

inline Action::Created to_sink(const Sink& sink) { return Action::receiver({.sink = sink}); }

inline Action::Created array_of(Domain& domain, std::initializer_list<const Action::Created*> branches) {
    std::vector<Action*> list;
    for (const Action::Created* branch : branches) list.push_back(branch->get());
    Action::Created action;
    EXPECT_EQ(Action::dest_array(domain, list, action), 0);
    return action;
}

inline Action::Created reformatting(Domain& domain, Reformat::Kind kind, const std::vector<std::uint8_t>& data,
                                    bool root_level = false) {
    Action::Created action;
    EXPECT_EQ(Action::packet_reformat(domain, root_level, kind, data, action), 0);
    return action;
}

/// Modify-header commands in host order, as the PRM lays them out.
inline std::uint64_t set_command(unsigned field, unsigned offset, unsigned length, std::uint32_t data) {
    return 1ULL << 60 | static_cast<std::uint64_t>(field) << 48 | static_cast<std::uint64_t>(offset) << 40 |
           static_cast<std::uint64_t>(length & 31) << 32 | data;
}
inline std::uint64_t add_command(unsigned field, std::uint32_t data) {
    return 2ULL << 60 | static_cast<std::uint64_t>(field) << 48 | data;
}
inline std::uint64_t copy_command(unsigned from, unsigned to, unsigned length) {
    return 3ULL << 60 | static_cast<std::uint64_t>(from) << 48 | static_cast<std::uint64_t>(length & 31) << 32 |
           static_cast<std::uint64_t>(to) << 16;
}

inline int try_modify(Domain& domain, std::initializer_list<std::uint64_t> commands, Action::Created& action,
                      bool root_level = false) {
    std::vector<std::uint64_t> big_endian;
    for (const std::uint64_t command : commands) big_endian.push_back(__builtin_bswap64(command));
    return Action::modify_header(domain, root_level, big_endian, action);
}

inline Action::Created modifying(Domain& domain, std::initializer_list<std::uint64_t> commands,
                                 bool root_level = false) {
    Action::Created action;
    EXPECT_EQ(try_modify(domain, commands, action, root_level), 0);
    return action;
}

/// Field ids of modify-header commands (MLX5_ACTION_IN_FIELD_OUT_*).
namespace id {
inline constexpr unsigned smac_47_16 = 1, smac_15_0 = 2, dmac_47_16 = 4, dmac_15_0 = 5, ip_dscp = 6, tcp_flags = 7;
inline constexpr unsigned tcp_sport = 8, tcp_dport = 9, ip_ttl = 0xa, udp_sport = 0xb, udp_dport = 0xc;
inline constexpr unsigned sipv6_31_0 = 0x10, dipv6_127_96 = 0x11, sipv4 = 0x15, dipv4 = 0x16, first_vid = 0x17;
inline constexpr unsigned hoplimit = 0x47, reg_a = 0x49, reg_b = 0x50, reg_c_0 = 0x51, reg_c_1 = 0x52, reg_c_2 = 0x53;
inline constexpr unsigned tcp_seq = 0x59, ip_ecn = 0x73;
}  // namespace id

}  // namespace ovsdr::soft::test
