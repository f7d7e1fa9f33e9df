#include "tools/drcompile/dump_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tools/drcompile/number.hpp"

namespace ovsdr::drcompile {
namespace {

constexpr std::string_view actions_word = "actions:", extra_info = ", dp-extra-info:", blanks = " \t\r";

/// What else is printed of a megaflow.
constexpr std::array<std::string_view, 7> attributes{"ufid", "packets", "bytes", "used", "flags", "offloaded", "dp"};

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// At commas that are in no parentheses.
std::vector<std::string_view> parts_of(std::string_view text) {
    std::vector<std::string_view> parts;
    std::size_t begin = 0, open = 0;
    const auto end_part = [&](std::size_t end) {
        if (const auto part = trimmed(text.substr(begin, end - begin)); !part.empty()) parts.push_back(part);
        begin = end + 1;
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == ',' && open == 0) {
            end_part(i);
        } else if (text[i] == '(') {
            ++open;
        } else if (text[i] == ')' && open-- == 0) {
            throw BadLine(fmt::format("a parenthesis too many: \"{}\"", text.substr(begin, i - begin + 1)));
        }
    }
    if (open != 0) throw BadLine(fmt::format("a parenthesis that nothing closes: \"{}\"", text.substr(begin)));
    end_part(text.size());
    return parts;
}

void take_attribute(DumpLine& line, std::string_view name, std::string_view value) {
    if (std::ranges::count(attributes, name) == 0) throw BadLine(fmt::format("unknown: \"{}:{}\"", name, value));
    if (name == "ufid") line.ufid = value;
    if (name != "packets") return;
    line.packets = decimal<std::uint64_t>(value);
    if (!line.packets) throw BadLine(fmt::format("not a number: \"{}\"", value));
}

}  // namespace

std::optional<DumpLine> take_apart(std::string_view text) {
    text = trimmed(text);
    if (text.empty() || text.starts_with('#') || text.starts_with("flow-dump from ")) return std::nullopt;
    const auto actions = text.find(actions_word);
    if (actions == std::string_view::npos) throw BadLine("no \"actions:\"");
    DumpLine line;
    for (const std::string_view part : parts_of(text.substr(0, actions))) {
        const auto mark = part.find_first_of("(:");
        if (mark == std::string_view::npos) throw BadLine(fmt::format("neither a match nor a value: \"{}\"", part));
        if (part[mark] == ':') {
            take_attribute(line, part.substr(0, mark), part.substr(mark + 1));
        } else {
            line.match += (line.match.empty() ? "" : ",") + std::string(part);
        }
    }
    if (line.match.empty()) throw BadLine("no match");
    const auto behind = text.substr(actions + actions_word.size());
    line.actions = trimmed(behind.substr(0, behind.find(extra_info)));
    return line;
}

}  // namespace ovsdr::drcompile
