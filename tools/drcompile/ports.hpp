// The ports that the input names, and which vports they would be.
//
// Model. A port is known by its text: a name or a number. Whoever reads the input asks for the datapath port number of
// each text; when all is read, assign() gives out vports. What is said of a port (PortWishes) comes first; of the
// others it is no dr port
// - what tunnels: the port of a tnl_push or tnl_pop, and those that OVS calls so, which also says what they take
//   packets out of: vxlan_sys_4789, genev_sys_6081, gre_sys;
// - what a bridge has of its own: the port by which a tunnel's packets leave, br-int, br0, and the datapath's port 0;
// and each that is left becomes a vport, in the order in which they were first named; "uplink" the uplink.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctrl/shim/dump_text.h"
#include "offload/dr/compile/port_map.hpp"

namespace ovsdr::drcompile {

struct PortWishes {
    std::map<std::string, dr::VportId, std::less<>> vports;
    std::vector<std::string> others;   ///< patterns, as a shell has them, of what is no dr port
    std::vector<std::string> mirrors{};   ///< ports of type drmirror, at most dr::max_mirrors
};

/// "vm1=3" or "p0=uplink". Throws std::invalid_argument.
[[nodiscard]] std::pair<std::string, dr::VportId> parse_wish(const std::string& text);

class Ports {
public:
    explicit Ports(PortWishes wishes) : wishes_(std::move(wishes)) {}

    /// Nothing: no port can be called that.
    [[nodiscard]] std::optional<dr::OdpPort> number_of(std::string_view text, ovsdr_port_role role);
    /// Throws std::runtime_error: there are not enough vports.
    void assign();

    struct Port {
        std::string text;
        dr::OdpPort odp_port;
        bool carries = false;                     ///< a tunnel, or a bridge's own
        std::optional<dr::VportId> vport{};       ///< nothing: no dr port
        std::optional<unsigned> mirror{};         ///< a storage mirror's: which of the wishes
    };
    /// Storage mirrors that are asked for and that nothing in the input names.
    [[nodiscard]] std::vector<std::string> unknown_mirrors() const;
    [[nodiscard]] const std::vector<Port>& all() const noexcept { return ports_; }
    [[nodiscard]] const dr::PortMap& map() const noexcept { return map_; }
    /// Of those that have one.
    [[nodiscard]] const dr::PortNames& names() const noexcept { return names_; }

private:
    [[nodiscard]] bool is_other(const Port& port) const;

    PortWishes wishes_;
    std::vector<Port> ports_;
    std::map<std::string, std::size_t, std::less<>> by_text_;
    dr::PortMap map_;
    dr::PortNames names_;
};

/// "vport 3" or "uplink".
[[nodiscard]] std::string text_of(dr::VportId vport);

}  // namespace ovsdr::drcompile
