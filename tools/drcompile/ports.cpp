#include "tools/drcompile/ports.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>

#include "offload/dr/device/device.hpp"
#include "tools/drcompile/number.hpp"

namespace ovsdr::drcompile {
namespace {

constexpr std::uint16_t last_vf = 0xFEFF;
constexpr std::string_view uplink_name = "uplink";

// No datapath has as many ports: from here on, numbers stand for names.
constexpr std::uint32_t first_named = 0x8000'0000, no_port = UINT32_MAX;

/// As OVS calls a datapath's tunnel ports (netdev-vport.c), and a bridge's own in OVN, OpenStack and examples.
constexpr std::array<const char*, 6> usual_others{"*_sys", "*_sys_*", "ovs-netdev", "0", "br-*", "br[0-9]*"};

/// What a port that OVS calls so takes packets out of.
std::optional<dr::TunnelPort> tunnel_of(const std::string& name, dr::OdpPort odp_port) {
    if (name == "gre_sys") return dr::TunnelPort{odp_port, dr::TunnelKind::gre, 0, name};
    constexpr std::pair<std::string_view, dr::TunnelKind> prefixes[] = {{"vxlan_sys_", dr::TunnelKind::vxlan},
                                                                        {"genev_sys_", dr::TunnelKind::geneve}};
    for (const auto& [prefix, kind] : prefixes) {
        if (!name.starts_with(prefix)) continue;
        const auto udp_port = decimal<std::uint16_t>(std::string_view(name).substr(prefix.size()));
        if (udp_port) return dr::TunnelPort{odp_port, kind, *udp_port, name};
    }
    return std::nullopt;
}

bool is_digits(std::string_view text) { return text.find_first_not_of("0123456789") == std::string_view::npos; }

}  // namespace

std::pair<std::string, dr::VportId> parse_wish(const std::string& text) {
    const auto middle = text.rfind('=');
    if (middle == std::string::npos || middle == 0) {
        throw std::invalid_argument(fmt::format("\"{}\" is not NAME=VPORT (\"vm1=3\", \"p0=uplink\")", text));
    }
    const std::string name = text.substr(0, middle), vport = text.substr(middle + 1);
    if (vport == uplink_name) return {name, dr::uplink_vport};
    const auto value = decimal<std::uint32_t>(vport);
    if (!value || *value == 0 || (*value > last_vf && *value != dr::uplink_vport.value)) {
        throw std::invalid_argument(
            fmt::format("\"{}\": a vport is a number from 1 to {}, or \"uplink\"", text, last_vf));
    }
    return {name, dr::VportId{static_cast<std::uint16_t>(*value)}};
}

std::optional<dr::OdpPort> Ports::number_of(std::string_view text, ovsdr_port_role role) {
    auto known = by_text_.find(text);
    if (known == by_text_.end()) {
        if (text.empty()) return std::nullopt;
        const auto value = decimal<std::uint32_t>(text);
        if (value == no_port) return dr::OdpPort{no_port};   // it stands for none
        if (is_digits(text) && (!value || *value >= first_named)) return std::nullopt;
        const auto named = first_named + static_cast<std::uint32_t>(ports_.size());
        known = by_text_.emplace(text, ports_.size()).first;
        ports_.push_back({std::string(text), dr::OdpPort{value.value_or(named)}});
        if (!value) names_[dr::OdpPort{named}] = text;
    }
    Port& port = ports_[known->second];
    if (role != OVSDR_PORT_ANY) port.carries = true;
    return port.odp_port;
}

bool Ports::is_other(const Port& port) const {
    const auto fits = [&](const auto& pattern) {
        return fnmatch(std::string(pattern).c_str(), port.text.c_str(), 0) == 0;
    };
    return port.carries || std::ranges::any_of(wishes_.others, fits) || std::ranges::any_of(usual_others, fits);
}

void Ports::assign() {
    std::set<dr::VportId> taken;
    for (const auto& [text, vport] : wishes_.vports) taken.insert(vport);
    dr::VportId next{1};
    for (Port& port : ports_) {
        if (auto tunnel = tunnel_of(port.text, port.odp_port)) map_.set_tunnel(std::move(*tunnel));
        const auto mirror = std::ranges::find(wishes_.mirrors, port.text);
        if (mirror != wishes_.mirrors.end()) {
            const auto number = static_cast<unsigned>(mirror - wishes_.mirrors.begin());
            port.mirror = number;
            map_.set_mirror(port.odp_port, {.kind = dr::mirror_kind(number)});
            continue;
        }
        const auto wish = wishes_.vports.find(port.text);
        if (wish != wishes_.vports.end()) {
            port.vport = wish->second;
        } else if (is_other(port)) {
            continue;
        } else if (port.text == uplink_name && !taken.contains(dr::uplink_vport)) {
            port.vport = dr::uplink_vport;
        } else {
            while (taken.contains(next)) ++next.value;
            if (next.value > last_vf) throw std::runtime_error(fmt::format("more ports than {} vports", last_vf));
            port.vport = next;
            ++next.value;
        }
        map_.set(port.odp_port, {*port.vport, port.text});
    }
}

std::vector<std::string> Ports::unknown_mirrors() const {
    std::vector<std::string> unknown;
    for (const std::string& name : wishes_.mirrors) {
        if (!by_text_.contains(name)) unknown.push_back(name);
    }
    return unknown;
}

std::string text_of(dr::VportId vport) {
    return vport == dr::uplink_vport ? std::string(uplink_name) : fmt::format("vport {}", vport.value);
}

}  // namespace ovsdr::drcompile
