#include "tests/connectx/entries/root_rules.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tests/connectx/entries/bits.hpp"
#include "tests/connectx/entries/header_fields.hpp"
#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {

namespace {

using Parameter = std::vector<std::uint8_t>;

constexpr std::size_t block_size = 64;                        ///< bytes: outer, misc, inner, misc2, …
constexpr std::uint16_t misc = 512, misc2 = 1536, misc3 = 2048;   ///< bits
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

constexpr Bits cvlan_tag{144, 1}, ip_version{147, 4};
constexpr std::uint32_t of_tcp = 6, of_udp = 17, of_icmpv6 = 58;

/// Of the outer headers, as the device's parser reads them.
struct HeaderRow {
    Bits bits;
    Field of_ipv4, of_ipv6;
    std::uint32_t protocol = 0;   ///< of packets of another protocol it is 0; 0: of all
};

constexpr HeaderRow header_rows[] = {
    {{48, 16}, Field::ethertype, Field::ethertype},
    {{64, 32}, Field::dmac_47_16, Field::dmac_47_16},
    {{96, 16}, Field::dmac_15_0, Field::dmac_15_0},
    {{116, 12}, Field::first_vid, Field::first_vid},
    {{128, 8}, Field::protocol, Field::protocol},
    {{146, 1}, Field::fragment, Field::fragment},
    {ip_version, Field::ip_version, Field::ip_version},
    {{176, 16}, Field::destination_port, Field::destination_port, of_tcp},
    {{240, 16}, Field::destination_port, Field::destination_port, of_udp},
    {{384, 32}, Field::count_of_fields, Field::ipv6_destination_127_96},
    {{416, 32}, Field::count_of_fields, Field::ipv6_destination_95_64},
    {{448, 32}, Field::count_of_fields, Field::ipv6_destination_63_32},
    {{480, 32}, Field::ipv4_destination, Field::ipv6_destination_31_0},
    {{misc3 + 272, 8}, Field::count_of_fields, Field::icmp_type, of_icmpv6},
};

std::uint32_t value_of(const HeaderRow& row, const HeaderFields& headers) {
    constexpr std::uint32_t version_6 = 6;
    const Field field = headers[Field::ip_version] == version_6 ? row.of_ipv6 : row.of_ipv4;
    const bool has_it = row.protocol == 0 || headers[Field::protocol] == row.protocol;
    return has_it && field != Field::count_of_fields ? headers[field] : 0;
}

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
    constexpr std::uint32_t whole_version = 0xF;
    if (const std::uint32_t version = get(mask.data(), ip_version); version != 0 && version != whole_version) {
        throw Stopped(fmt::format("a root matcher's mask of ip_version: {:#x}, which are bits there", version));
    }
    for (const HeaderRow& row : header_rows) set(mask.data(), row.bits, 0);
    set(mask.data(), cvlan_tag, 0);
    for (std::size_t i = 0; i < mask.size(); ++i) {
        if (mask[i] != 0) throw Stopped(fmt::format("byte {} of a root matcher's mask", i));
    }
}

/// cvlan_tag that is looked at and 0 is "without a tag", of either kind (Linux, drivers/net/ethernet/mellanox/mlx5).
bool matches_tag(const Parameter& mask, const Parameter& value, const HeaderFields& headers) {
    if (get(mask.data(), cvlan_tag) == 0) return true;
    constexpr std::uint32_t untagged = 0, customer = 2;
    return headers[Field::first_qualifier] == (get(value.data(), cvlan_tag) != 0 ? customer : untagged);
}

bool matches(const Parameter& mask, const Parameter& value, const Packet& packet, const HeaderFields& headers,
             std::uint16_t source_port) {
    const bool metadata = std::ranges::all_of(rows, [&](const MatchRow& row) {
        return (row.value(packet, source_port) & get(mask.data(), row.bits)) == get(value.data(), row.bits);
    });
    return metadata && matches_tag(mask, value, headers) && std::ranges::all_of(header_rows, [&](const HeaderRow& row) {
        return (value_of(row, headers) & get(mask.data(), row.bits)) == get(value.data(), row.bits);
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
    HeaderFields headers;
    headers.parse(packet.bytes);
    std::vector<const RootRule*> found;
    const MatcherRules* by = nullptr;
    for (const MatcherRules& rules : matchers_) {
        if (by != nullptr && rules.matcher.priority != by->matcher.priority) break;
        for (const RootRule& rule : rules.rules) {
            if (!matches(rules.matcher.mask, rule.value, packet, headers, source_port)) continue;
            if (by != nullptr && by != &rules) throw Stopped("two root matchers of one priority for one packet");
            by = &rules;
            found.push_back(&rule);
        }
    }
    return found;
}

}  // namespace ovsdr::connectx::entries
