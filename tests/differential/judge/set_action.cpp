#include "tests/differential/judge/set_action.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tests/differential/judge/names.hpp"

namespace ovsdr::differential {

namespace {

constexpr SetField ethernet[] = {{"src", 48}, {"dst", 48}};
constexpr SetField ipv4[] = {{"src", 32}, {"dst", 32}, {"tos", 8}, {"ttl", 8}};
constexpr SetField ipv6[] = {{"src", 128}, {"dst", 128}, {"tclass", 8}, {"hlimit", 8}};
constexpr SetField ports[] = {{"src", 16}, {"dst", 16}};
constexpr SetHeaderRow rows[] = {
    {SetHeader::ethernet, "eth", ethernet}, {SetHeader::ipv4, "ipv4", ipv4}, {SetHeader::ipv6, "ipv6", ipv6},
    {SetHeader::tcp, "tcp", ports},         {SetHeader::udp, "udp", ports},
};
constexpr std::size_t addresses = 2, tos = 2;   ///< of ipv4 and ipv6: the first two fields; the third
constexpr unsigned icmpv6_percent = 2;   ///< of its packets no device writes an address
constexpr std::uint64_t dscp = 0xFC, ecn = 0x03;

std::string text_of(const Pattern& pattern, unsigned bits) {
    std::string (*form)(const PatternBytes&) = nullptr;
    if (bits == 48) form = mac;
    if (bits == 32) form = ipv4_address;
    if (bits == 128) form = ipv6_address;
    if (form == nullptr) return hex(pattern, bits);
    const bool whole = pattern.mask == ones(bits);
    return whole ? form(pattern.value) : fmt::format("{}/{}", form(pattern.value), form(pattern.mask));
}

/// Neighbouring bits, as a part of a field is set by OpenFlow. Others would be commands without end.
PatternBytes run_of(Chance& chance, unsigned bits) {
    const unsigned length = 1 + below(chance, bits), low = below(chance, bits - length + 1);
    PatternBytes run = ones(low + length);
    const PatternBytes below_it = ones(low);
    for (std::size_t i = 0; i < run.size(); ++i) run[i] &= static_cast<std::uint8_t>(~below_it[i]);
    return run;
}

/// Of TOS OVS sets DSCP or ECN more often than other bits.
PatternBytes mask_for(Chance& chance, SetHeader header, std::size_t field, Rarity& rarity) {
    const bool is_ip = header == SetHeader::ipv4 || header == SetHeader::ipv6;
    const unsigned bits = row_of(header).fields[field].bits;
    if (!rarity.wants_mask(header, field)) return ones(bits);
    if (is_ip && field == tos && happens(chance, 70)) return number(happens(chance, 70) ? dscp : ecn);
    return run_of(chance, bits);
}

}  // namespace

const SetHeaderRow& row_of(SetHeader header) { return rows[static_cast<std::size_t>(header)]; }

SetAction draw_set(Chance& chance, std::uint16_t eth_type, std::uint8_t protocol, Rarity& rarity) {
    std::vector<SetHeader> possible{SetHeader::ethernet};
    if (protocol != 0 && eth_type == type_ipv4) possible.push_back(SetHeader::ipv4);
    if (protocol != 0 && eth_type == type_ipv6) possible.push_back(SetHeader::ipv6);
    if (protocol == protocol_tcp) possible.push_back(SetHeader::tcp);
    if (protocol == protocol_udp) possible.push_back(SetHeader::udp);
    rarity.sort(possible);
    SetAction set{.header = possible.front()};
    const auto length = static_cast<std::uint32_t>(row_of(set.header).fields.size());
    const bool may_be_icmpv6 = protocol == 0 || protocol == protocol_icmpv6;
    const bool spares_addresses = set.header == SetHeader::ipv6 && may_be_icmpv6 && !happens(chance, icmpv6_percent);
    const std::uint32_t first = spares_addresses ? addresses : 0;
    const std::uint32_t surely = first + below(chance, length - first);
    for (std::uint32_t i = first; i < length; ++i) {
        if (i != surely && !happens(chance, 70)) continue;
        set.fields[i].mask = mask_for(chance, set.header, i, rarity);
        set.fields[i].value = both(random_bytes(chance), set.fields[i].mask);
    }
    return set;
}

std::string text_of(const SetAction& set) {
    const SetHeaderRow& row = row_of(set.header);
    std::string items;
    for (std::size_t i = 0; i < row.fields.size(); ++i) {
        if (set.fields[i].mask == PatternBytes{}) continue;
        items += fmt::format("{}{}={}", items.empty() ? "" : ",", row.fields[i].name,
                             text_of(set.fields[i], row.fields[i].bits));
    }
    return fmt::format("set({}({}))", row.name, items);
}

bool touches_transport_checksum(const SetAction& set) {
    if (set.header == SetHeader::ethernet) return false;
    return std::any_of(set.fields.begin(), set.fields.begin() + addresses,
                       [](const Pattern& field) { return field.mask != PatternBytes{}; });
}

}  // namespace ovsdr::differential
