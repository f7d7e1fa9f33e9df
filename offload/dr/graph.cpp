#include "offload/dr/graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace ovsdr::dr {

namespace {

constexpr std::size_t line_length = 44;   // of a matcher's mask

std::string escaped(std::string_view text) {
    std::string html;
    for (const char character : text) {
        switch (character) {
            case '&': html += "&amp;"; break;
            case '<': html += "&lt;"; break;
            case '>': html += "&gt;"; break;
            case '"': html += "&quot;"; break;
            case '\n': html += "<BR/>"; break;
            default: html += character;
        }
    }
    return html;
}

/// Broken behind commas.
std::string wrapped(std::string_view text) {
    std::string lines;
    std::size_t length = 0;
    while (!text.empty()) {
        const std::size_t comma = text.find(", ");
        const std::string_view word = text.substr(0, comma == std::string_view::npos ? comma : comma + 2);
        if (length != 0 && length + word.size() > line_length) {
            lines += '\n';
            length = 0;
        }
        lines += word;
        length += word.size();
        text.remove_prefix(word.size());
    }
    return lines;
}

std::string short_number(std::uint64_t number) {
    if (number < 100'000) return fmt::format("{}", number);
    const auto value = static_cast<double>(number);
    if (number < 1'000'000) return fmt::format("{:.0f} k", value / 1e3);
    if (number < 1'000'000'000) return fmt::format("{:.1f} M", value / 1e6);
    return fmt::format("{:.1f} G", value / 1e9);
}

std::string plural(std::uint64_t number, std::string_view noun) {
    return fmt::format("{} {}{}", short_number(number), noun, number == 1 ? "" : "s");
}

/// Of a packet that a megaflow of the table has taken: it is looked up in one matcher after another, by priority, and
/// within one in the newest first, as rdma-core 44 has it. Nothing where nobody has counted any.
std::string look_ups(const Graph::Table& table) {
    double packets = 0, look_ups = 0;
    for (const Graph::Matcher& matcher : table.matchers) {
        const auto comes_first = [&](const Graph::Matcher& other) {
            return std::pair(other.priority, matcher.number) < std::pair(matcher.priority, other.number);
        };
        const auto before = std::ranges::count_if(table.matchers, comes_first);
        packets += static_cast<double>(matcher.packets);
        look_ups += static_cast<double>(matcher.packets) * static_cast<double>(before + 1);
    }
    return packets == 0 ? "" : fmt::format(", {:.1f} look-ups a packet", look_ups / packets);
}

class Dot {
public:
    std::string drawing(std::span<const Graph> graphs) {
        text_ = "digraph \"dr\" {\n"
                "  rankdir=LR; ranksep=1.0; nodesep=0.25; fontname=\"Helvetica\"; labeljust=l; outputorder=edgesfirst\n"
                "  node [fontname=\"Helvetica\", fontsize=10, shape=plain]\n"
                "  edge [fontname=\"Helvetica\", fontsize=9, color=\"#4a6fa5\", arrowsize=0.6]\n";
        for (const Graph& graph : graphs) device(graph);
        return std::move(text_) + "}\n";
    }

private:
    template <typename... Arguments>
    void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
        text_ += fmt::format(format, std::forward<Arguments>(arguments)...);
        text_ += '\n';
    }

    /// The device's own: several devices have nodes of one name.
    static std::string node(const Graph& graph, const std::string& name) {
        return fmt::format("\"{} {}\"", graph.device, name);
    }

    void device(const Graph& graph) {
        line("  subgraph \"cluster {}\" {{", graph.device);
        line("    label=\"{}\"; color=\"#c0c0c0\"", graph.device);
        for (const char* domain : {"FDB", "NIC_RX"}) {
            line("    subgraph \"cluster {} {}\" {{", graph.device, domain);
            line("      label=\"{}\"; style=filled; color=\"#f2f2f2\"", domain);
            for (const auto& [name, each] : graph.tables) {
                if (each.domain == domain) table(graph, name, each);
            }
            line("    }}");
        }
        for (const auto& [name, label] : graph.places) {
            line("    {} [shape=box, style=\"rounded,filled\", fillcolor=\"#e3f1e3\", label=<{}>]", node(graph, name),
                 escaped(label));
        }
        for (const auto& [each, traffic] : graph.edges) edge(graph, each, traffic);
        line("  }}");
    }

    void table(const Graph& graph, const std::string& name, const Graph::Table& table) {
        std::string rows = fmt::format("<TR><TD PORT=\"in\" BGCOLOR=\"#d5e3f3\"><B>{}</B><BR/>level {}, {}{}</TD></TR>",
                                       escaped(table.name), table.level,
                                       table.private_tables == 0 ? plural(table.matchers.size(), "matcher")
                                                                 : plural(table.private_tables, "table"),
                                       look_ups(table));
        for (const Graph::Matcher& matcher : table.matchers) {
            rows += fmt::format("<TR><TD PORT=\"m{}\" ALIGN=\"LEFT\">#{} priority {}: {}<BR ALIGN=\"LEFT\"/>{}"
                                "<BR ALIGN=\"LEFT\"/></TD></TR>",
                                matcher.number, matcher.number, matcher.priority, plural(matcher.rules, "rule"),
                                mask_of(matcher));
        }
        line("      {} [label=<<TABLE BORDER=\"0\" CELLBORDER=\"1\" CELLSPACING=\"0\" BGCOLOR=\"white\">{}</TABLE>>]",
             node(graph, name), rows);
    }

    static std::string mask_of(const Graph::Matcher& matcher) {
        if (matcher.mask == "{}") return "every packet";
        std::string html = escaped(wrapped(matcher.mask));
        for (std::size_t at = 0; (at = html.find("<BR/>", at)) != std::string::npos; ++at) {
            html.replace(at, 5, "<BR ALIGN=\"LEFT\"/>");
        }
        return html;
    }

    void edge(const Graph& graph, const Graph::Edge& edge, const Graph::Traffic& traffic) {
        std::string from = node(graph, edge.from), to = node(graph, edge.to), attributes;
        if (edge.matcher != 0) from += fmt::format(":m{}:e", edge.matcher);
        if (graph.tables.contains(edge.to)) to += ":in:w";
        std::vector<std::string> label;
        if (traffic.rules != 0) label.push_back(plural(traffic.rules, "rule"));
        if (traffic.packets) {
            label.push_back(plural(*traffic.packets, "packet"));
            // The eye follows the wide ones; ten times the packets is a step.
            attributes = fmt::format(", rules={}, packets={}, penwidth={:.1f}", traffic.rules, *traffic.packets,
                                     1 + 0.6 * std::log10(1.0 + static_cast<double>(*traffic.packets)));
            if (*traffic.packets == 0) attributes += ", color=\"#b0b0b0\"";
        } else {
            attributes = ", style=dashed, color=\"#909090\"";
        }
        line("    {} -> {} [id=\"{}: {} #{} to {}\", label=\"{}\"{}]", from, to, graph.device, edge.from,
             edge.matcher, edge.to, fmt::join(label, "\\n"), attributes);
    }

    std::string text_;
};

}  // namespace

std::string dot_of(std::span<const Graph> graphs) { return Dot().drawing(graphs); }

}  // namespace ovsdr::dr
