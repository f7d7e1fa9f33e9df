#include "offload/dr/compile/plan.hpp"

#include <fmt/format.h>

namespace ovsdr::dr {

namespace {

/// ip_version is a number in the mask as well, and stands for the whole field.
bool whole(const NamedField& named, std::uint32_t bits) {
    return bits == prm::ones(named.field.bits) || named.field == field::ip_version;
}

void append(std::string& text, const std::string& part) {
    if (!text.empty()) text += ", ";
    text += part;
}

}  // namespace

std::string text_of(const MatchParam& mask, const MatchParam& value) {
    std::string text;
    for (const NamedField& named : match_fields) {
        const std::uint32_t bits = mask.get(named.field);
        if (bits == 0) continue;
        append(text, whole(named, bits) ? fmt::format("{}={:#x}", named.name, value.get(named.field))
                           : fmt::format("{}={:#x}/{:#x}", named.name, value.get(named.field), bits));
    }
    return "{" + text + "}";
}

std::string text_of(const MatchParam& mask) {
    std::string text;
    for (const NamedField& named : match_fields) {
        const std::uint32_t bits = mask.get(named.field);
        if (bits == 0) continue;
        append(text, whole(named, bits) ? std::string(named.name) : fmt::format("{}/{:#x}", named.name, bits));
    }
    return "{" + text + "}";
}

std::string text_of(const Leg& leg) {
    std::string text;
    for (unsigned i = 0; i < leg.pops; ++i) append(text, "pop_vlan");
    for (const VlanTag& tag : leg.pushes) {
        append(text, fmt::format("push_vlan {:#06x} vid {} pcp {}{}", tag.tpid, tag.tci & 0xFFF, tag.tci >> 13,
                                 (tag.tci & 0x1000) != 0 ? " dei" : ""));
    }
    if (leg.outputs.size() == 1) append(text, fmt::format("dest_vport {}", leg.outputs[0].value));
    if (leg.outputs.size() > 1) {
        std::string all;
        for (const VportId vport : leg.outputs) append(all, fmt::format("dest_vport {}", vport.value));
        append(text, "dest_array [" + all + "]");
    }
    return text;
}

std::string text_of(const RulePlan& plan) {
    if (plan.legs.empty()) return "drop";
    if (plan.legs.size() == 1) return text_of(plan.legs[0]);
    std::string text;
    for (const Leg& leg : plan.legs) {
        append(text, leg.changes_packet() ? "dest_table (" + text_of(leg) + ")" : text_of(leg));
    }
    return "dest_array [" + text + "]";
}

}  // namespace ovsdr::dr
