// The live pipeline of a device as a graph that one can look at, however many megaflows there are.
//
// Model. A node is a table, or a place where packets come from or leave to. An edge goes from one matcher of a table to
// a node and stands for all of the matcher's rules that lead there: how many they are, and how many packets their
// megaflows have counted. A rule that copies leads to several nodes, and is on an edge to each.
//
// The private tables of branches have one rule each and may be many: those at one level behind one table of megaflows
// are a single node.
//
// Names of nodes stay while what they stand for lives, and so do a matcher's number and an edge: who looks twice can
// tell how many packets went along an edge in between. What rules have counted that went in between is lost to that.
//
// Threads: values.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ovsdr::dr {

struct Graph {
    struct Matcher {
        unsigned number;      ///< as `dr/show` numbers it
        std::uint16_t priority;
        std::uint64_t rules;
        std::string mask;     ///< "{source_port, ethertype}"
        std::uint64_t packets = 0;   ///< that its rules' megaflows have counted, each once
    };
    struct Table {
        std::string domain;   ///< "FDB", "NIC_RX"
        std::uint32_t level;
        std::string name;     ///< "megaflows behind recirc_id 0x7"
        std::vector<Matcher> matchers{};
        std::uint64_t private_tables = 0;   ///< that the node stands for; 0: it is one table with the matchers above
    };
    struct Edge {
        std::string from;
        unsigned matcher;     ///< its number; 0: of all
        std::string to;
        friend auto operator<=>(const Edge&, const Edge&) = default;
    };
    struct Traffic {
        std::uint64_t rules = 0;
        std::optional<std::uint64_t> packets{};   ///< nothing: nobody counts them there
    };

    std::string device;
    std::map<std::string, Table> tables{};
    std::map<std::string, std::string> places{};   ///< where packets come from or leave to; what people read of them
    std::map<Edge, Traffic> edges{};
};

/// One drawing of all devices, for Graphviz. Each node and each edge is a line; each edge has an `id`, those whose
/// packets are counted `rules` and `packets`, which Graphviz does not know and passes over.
[[nodiscard]] std::string dot_of(std::span<const Graph> graphs);

}  // namespace ovsdr::dr
