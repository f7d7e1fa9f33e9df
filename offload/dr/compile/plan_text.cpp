// What operators read of plans.
#include "offload/dr/compile/plan.hpp"

#include <fmt/format.h>

#include <string>

namespace ovsdr::dr {

namespace {

/// ip_version is a number in the mask as well, and stands for the whole field.
bool whole(const NamedField& named, std::uint32_t bits) {
    return bits == prm::ones(named.field.bits) || named.field == field::ip_version;
}

/// Fields of which the mask has a bit: `visit(prefix, field, place, bits)`.
void for_each_field(const MatchParam& mask, auto&& visit) {
    for (const NamedField& named : match_fields) {
        if (const std::uint32_t bits = mask.get(named.field); bits != 0) visit("", named, named.field, bits);
    }
    for (const NamedField& named : match_fields) {
        if (!field::is_outer(named.field)) break;
        const prm::Field inner = field::inner_of(named.field);
        if (const std::uint32_t bits = mask.get(inner); bits != 0) visit("inner_", named, inner, bits);
    }
}

void append(std::string& text, const std::string& part) {
    if (!text.empty()) text += ", ";
    text += part;
}

}  // namespace

std::string text_of(TableKey table) {
    if (table.tunnel_port == 0) return fmt::format("recirc_id {:#x}", table.recirc_id);
    const std::string port = fmt::format("tunnel port {}", table.tunnel_port);
    return table.recirc_id == 0 ? port : fmt::format("recirc_id {:#x} of {}", table.recirc_id, port);
}

std::string text_of(const MatchParam& mask, const MatchParam& value) {
    std::string text;
    for_each_field(mask, [&](const char* prefix, const NamedField& named, prm::Field place, std::uint32_t bits) {
        append(text, fmt::format("{}{}={:#x}", prefix, named.name, value.get(place)));
        if (!whole(named, bits)) text += fmt::format("/{:#x}", bits);
    });
    return "{" + text + "}";
}

std::string text_of(const MatchParam& mask) {
    std::string text;
    for_each_field(mask, [&](const char* prefix, const NamedField& named, prm::Field, std::uint32_t bits) {
        append(text, fmt::format("{}{}", prefix, named.name));
        if (!whole(named, bits)) text += fmt::format("/{:#x}", bits);
    });
    return "{" + text + "}";
}

std::string text_of(const Changes& changes) {
    std::string text;
    if (changes.decapsulates) append(text, "decapsulate");
    for (unsigned i = 0; i < changes.pops; ++i) append(text, "pop_vlan");
    for (const HeaderWrite& write : changes.writes) {
        const HeaderFieldRow& row = row_of(write.field);
        append(text, fmt::format("set {}={:#x}", row.name, write.value));
        if (write.mask != prm::ones(row.bits)) text += fmt::format("/{:#x}", write.mask);
    }
    for (const VlanTag& tag : changes.pushes) {
        append(text, fmt::format("push_vlan {:#06x} vid {} pcp {}{}", tag.tpid, tag.tci & 0xFFF, tag.tci >> 13,
                                 (tag.tci & 0x1000) != 0 ? " dei" : ""));
    }
    if (!changes.tunnel.empty()) append(text, fmt::format("encapsulate {:02x}", fmt::join(changes.tunnel, "")));
    return text;
}

std::string text_of(const Path& path) {
    if (path.meter) {
        return fmt::format("meter {} ({}), dest_table (exceeding: drop; {})", path.meter->number, path.meter->serial,
                           text_of(path.branches.front()));
    }
    if (path.software) {
        const std::string text = text_of(*path.software);
        return path.is_copy() ? text : fmt::format("{}; dest_table ({})", text, text_of(path.branches.front()));
    }
    std::string text = text_of(path.changes), ends;
    for (const VportId vport : path.vports) append(ends, fmt::format("dest_vport {}", vport.value));
    for (const TableKey table : path.tables) append(ends, "dest_table " + text_of(table));
    for (const Path& branch : path.branches) append(ends, "dest_table (" + text_of(branch) + ")");
    if (path.ends() == 0) ends = "drop";
    append(text, path.ends() > 1 ? "dest_array [" + ends + "]" : ends);
    return text;
}

}  // namespace ovsdr::dr
