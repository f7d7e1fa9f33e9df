#include "tests/connectx/entries/root_rules.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tests/connectx/entries/bits.hpp"
#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {

namespace {

using Parameter = std::vector<std::uint8_t>;

constexpr std::size_t block_size = 64;                        ///< bytes: outer, misc, inner, misc2, …
constexpr std::uint16_t misc = 512, misc2 = 1536;             ///< bits
constexpr std::size_t parameter_size = 8 * block_size;

struct MatchRow {
    Bits bits;
    std::uint32_t (*value)(const Packet&, std::uint16_t source_port);
};

template <unsigned number>
constexpr MatchRow reg_c_row() {
    return {{static_cast<std::uint16_t>(misc2 + 352 - 32 * number), 32},
            [](const Packet& packet, std::uint16_t) { return packet.reg_c[number]; }};
}

constexpr MatchRow rows[] = {
    {{misc + 8, 24}, [](const Packet& packet, std::uint16_t) { return packet.queue; }},
    {{misc + 48, 16}, [](const Packet&, std::uint16_t source_port) { return std::uint32_t{source_port}; }},
    reg_c_row<0>(),
    reg_c_row<1>(),
};

/// `criteria` say which blocks count.
Parameter whole(const Parameter& given, std::uint8_t criteria) {
    Parameter parameter(parameter_size);
    for (std::size_t i = 0; i < std::min(given.size(), parameter.size()); ++i) {
        if ((criteria >> (i / block_size) & 1) != 0) parameter[i] = given[i];
    }
    return parameter;
}

void refuse_unknown(Parameter mask) {
    for (const MatchRow& row : rows) set(mask.data(), row.bits, 0);
    for (std::size_t i = 0; i < mask.size(); ++i) {
        if (mask[i] != 0) throw Stopped(fmt::format("byte {} of a root matcher's mask", i));
    }
}

bool matches(const Parameter& mask, const Parameter& value, const Packet& packet, std::uint16_t source_port) {
    return std::ranges::all_of(rows, [&](const MatchRow& row) {
        return (row.value(packet, source_port) & get(mask.data(), row.bits)) == get(value.data(), row.bits);
    });
}

}  // namespace

RootTable::RootTable(const Device& device, TableType type) {
    for (RootMatcher& matcher : device.root_matchers()) {
        if (matcher.type != type) continue;
        matcher.mask = whole(matcher.mask, matcher.criteria);
        refuse_unknown(matcher.mask);
        matchers_.push_back({std::move(matcher), {}});
    }
    std::ranges::stable_sort(matchers_, {}, [](const MatcherRules& rules) { return rules.matcher.priority; });
    for (RootRule& rule : device.root_rules()) {
        const auto found = std::ranges::find(matchers_, rule.matcher,
                                             [](const MatcherRules& rules) { return rules.matcher.handle; });
        if (found == matchers_.end()) continue;
        rule.value = whole(rule.value, found->matcher.criteria);
        found->rules.push_back(std::move(rule));
    }
}

std::vector<const RootRule*> RootTable::find(const Packet& packet, std::uint16_t source_port) const {
    std::vector<const RootRule*> found;
    const MatcherRules* by = nullptr;
    for (const MatcherRules& rules : matchers_) {
        if (by != nullptr && rules.matcher.priority != by->matcher.priority) break;
        for (const RootRule& rule : rules.rules) {
            if (!matches(rules.matcher.mask, rule.value, packet, source_port)) continue;
            if (by != nullptr && by != &rules) throw Stopped("two root matchers of one priority for one packet");
            by = &rules;
            found.push_back(&rule);
        }
    }
    return found;
}

}  // namespace ovsdr::connectx::entries
