#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "offload/dr/compile/arrange.hpp"
#include "offload/dr/compile/compile.hpp"
#include "offload/dr/compile/packet_hash.hpp"
#include "offload/dr/compile/rewrite.hpp"
#include "offload/dr/compile/tunnel_header.hpp"
#include "offload/dr/compile/tunnel_match.hpp"

namespace ovsdr::dr {

namespace {

constexpr std::uint16_t tpid_customer = 0x8100, tpid_service = 0x88a8;
constexpr std::uint16_t vlan_present = 0x1000;   ///< OVS's VLAN_CFI, no bit of the wire
constexpr std::size_t max_pushes = 2;
constexpr std::size_t most_in_front = 3;         ///< meters: each takes a level, and those behind need some too
constexpr std::uint8_t proto_tcp = 6, proto_udp = 17, proto_icmpv6 = 58;

/// Follows the megaflow's packet through its actions: what it has become at each place where it goes.
class ActionCompiler {
public:
    ActionCompiler(MatchPlan& match, const Packets& packets, const PortMap& ports, const DeviceCaps& caps,
                   const Choices& choices, Obstacles& obstacles) noexcept
        : match_(match), packets_(packets), ports_(ports), caps_(caps), choices_(choices), obstacles_(obstacles),
          source_is_known_(!obstacles.has(RejectReason::in_port_not_offloaded)),
          now_{.hash = {match, packets.parsed_tags}} {}

    /// A path for each shape in which the packet goes somewhere, in the order in which they were found.
    std::vector<Path> run(std::span<const ovsdr_action> actions) {
        for (const ovsdr_action& action : actions) {
            if (const auto number = meter_of(action)) ++meter_uses_[*number];
        }
        for (const ovsdr_action& action : actions) step(action);
        if (only_copies()) refuse_copies();
        // A packet that is dropped is counted without its tunnel's headers too, where the device can do that.
        if (legs_.empty() && match_.in_tunnel() && caps_.counts_after_decapsulation()) (void)leg();
        for (Path& leg : legs_) {
            std::ranges::sort(leg.vports);
            std::ranges::sort(leg.tables);
            std::ranges::sort(leg.branches);
        }
        return std::move(legs_);
    }
    /// That each packet meets before all else, in this order.
    [[nodiscard]] const std::vector<Path>& front() const noexcept { return front_; }

private:
    struct Packet {
        PacketHash hash;
        std::uint8_t pops = 0;
        Rewrite rewrite{};
        std::vector<VlanTag> pushes{};
        std::optional<TunnelHeader> tunnel{};   ///< around all that; what comes later is done to it
        OdpPort underlay{};                     ///< behind a tunnel's push: in_port
    };

    void refuse(RejectReason reason, StaticName name, std::string value = {}) {
        obstacles_.add(reason, name, std::move(value));
    }

    void step(const ovsdr_action& action) {
        now_.hash.follow(action);
        switch (action.type) {
            case OVSDR_ACTION_OUTPUT: return output(OdpPort{action.output});
            case OVSDR_ACTION_PUSH_VLAN:
                return push(be16toh(action.push_vlan.be_tpid), be16toh(action.push_vlan.be_tci));
            case OVSDR_ACTION_POP_VLAN: return pop();
            case OVSDR_ACTION_SET: return set(action.set);
            case OVSDR_ACTION_TUNNEL_PUSH: return encapsulate(action.tunnel_push);
            case OVSDR_ACTION_TUNNEL_POP: return enter_tunnel(OdpPort{action.tunnel_port});
            case OVSDR_ACTION_RECIRC: return recirculate(action.recirc_id);
            case OVSDR_ACTION_COPY_BEGIN: return outside_.push_back(now_);
            case OVSDR_ACTION_COPY_END: return end_copy();
            case OVSDR_ACTION_METER: return meter(action.meter);
            case OVSDR_ACTION_SOFTWARE: return give_to_software(action.software);
            case OVSDR_ACTION_UNSUPPORTED: break;
        }
        if (action.type != OVSDR_ACTION_UNSUPPORTED || action.unsupported == nullptr) {
            return refuse(RejectReason::unsupported_action, "unknown");
        }
        // Whether it translates addresses makes no difference here.
        const bool tracks = std::string_view(action.unsupported) == "ct(nat)";
        refuse(RejectReason::unsupported_action, tracks ? "ct" : StaticName::of_table(action.unsupported));
    }

    void end_copy() {
        if (outside_.empty()) return refuse(RejectReason::unsupported_action, "the end of a copy that never began");
        now_ = std::move(outside_.back());
        outside_.pop_back();
    }

    /// For a packet that goes out, or on in the table of a megaflow behind this one.
    Path& leg(bool goes_out = true) {
        Changes changes{match_.in_tunnel() && goes_out, now_.pops, now_.rewrite.writes(), now_.pushes};
        if (now_.tunnel) changes.tunnel = tunnel_bytes();
        if (commands_of(changes.writes) > most_commands) {
            refuse(RejectReason::too_many_actions, "set actions whose masks have too many parts");
        }
        const auto known = std::ranges::find(legs_, changes, &Path::changes);
        return known != legs_.end() ? *known : legs_.emplace_back(Path{changes, {}, {}, {}});
    }

    std::vector<std::uint8_t> tunnel_bytes() {
        const auto& bytes = now_.tunnel->bytes();
        if (bytes.size() > caps_.max_tunnel_header) {
            refuse(RejectReason::device_limit, "tnl_push with a header longer than the device's",
                   fmt::format(": {} bytes, the most is {}", bytes.size(), caps_.max_tunnel_header));
        }
        return bytes;
    }

    void output(OdpPort odp_port) {
        if (const PortMap::Mirror* mirror = ports_.find_mirror(odp_port)) return copy_to(*mirror, odp_port);
        const PortMap::Port* port = ports_.find(odp_port);
        if (port == nullptr && ports_.is_gone(odp_port)) return;   // dpif-netdev, too, drops what goes there
        if (port == nullptr) return output_by_software(odp_port);
        if (source_is_known_ && port->vport == match_.source) {
            // Uplink to uplink is refused by devices; for other vports whether a packet comes back is not known.
            if (match_.in_tunnel()) {
                return refuse(RejectReason::output_not_offloaded, "output to the uplink of packets from a tunnel",
                              ": " + port->name);
            }
            return refuse(RejectReason::output_not_offloaded, "output to the in_port", ": " + port->name);
        }
        // libmlx5's array would pass two equal destinations on, and no document says what firmware makes of them: the
        // kernel makes one of them before it asks (find_flow_rule() in mlx5's fs_core.c).
        auto& vports = leg().vports;
        if (std::ranges::count(vports, port->vport) != 0) {
            return refuse(RejectReason::unsupported_action, "two outputs to one port", ": " + port->name);
        }
        vports.push_back(port->vport);
    }

    /// Outputs of the same packet are one work: software gets one copy for all of them.
    void output_by_software(OdpPort odp_port) {
        const Obstacle no_port{RejectReason::output_not_offloaded, "output to a port that is no dr port of this device",
                               {}, odp_port};
        const CopyKind kind = ports_.is_host(odp_port) ? CopyKind::host : CopyKind::other;
        const bool can_copy =
            ports_.leads_copies(kind) && caps_.recirculates && ports_.find_tunnel(odp_port) == nullptr;
        if (!can_copy) return obstacles_.add(no_port);
        without_copies_.push_back(no_port);
        auto& ports = outputs_by_software(kind);
        const auto place = std::ranges::lower_bound(ports, odp_port);
        if (place != ports.end() && *place == odp_port) {
            return refuse(RejectReason::unsupported_action, "two outputs to one port");
        }
        ports.insert(place, odp_port);
    }

    /// A storage mirror takes the packet as it is here, or `cut_at` bytes of it; nothing is left to software.
    void copy_to(const PortMap::Mirror& mirror, OdpPort odp_port, std::uint32_t cut_at = 0) {
        constexpr StaticName name = "output to a storage mirror";
        if (!caps_.recirculates) {
            return refuse(RejectReason::device_limit, name, " (NIC_RX has no table but its root)");
        }
        if (!ports_.leads_copies(mirror.kind)) {
            return obstacles_.add({RejectReason::output_not_offloaded,
                                   "output to a storage mirror whose copies have no queue", {}, odp_port});
        }
        if (mirror.one_of != 1 && !caps_.samples) {
            return refuse(RejectReason::device_limit, name, " of one in several packets (the device has no sampler)");
        }
        SoftwareWork taken = work(SoftwareWork::Ports{odp_port}, {}, mirror.kind);
        taken.cut_at = cut_at;
        copy(Path{.software = SoftwareCopy{mirror.one_of, std::move(taken)}}, "two outputs to one port");
    }

    /// Of the packet as it is here.
    SoftwareWork::Ports& outputs_by_software(CopyKind kind) {
        const SoftwareWork none = work(SoftwareWork::Ports{}, {}, kind);
        auto& branches = leg().branches;
        auto known = std::ranges::find_if(branches, [&](const Path& branch) {
            return branch.is_copy() && branch.software->work.kind == kind &&
                   branch.software->work.in_port == none.in_port &&
                   std::holds_alternative<SoftwareWork::Ports>(branch.software->work.work);
        });
        if (known == branches.end()) {
            known = branches.insert(known, Path{.software = SoftwareCopy{1, none}});
        }
        return std::get<SoftwareWork::Ports>(known->software->work.work);
    }

    void give_to_software(const ovsdr_software& software) {
        if (software.cut_at != 0) {
            const OdpPort odp_port{software.output};
            if (const PortMap::Mirror* mirror = ports_.find_mirror(odp_port)) {
                return copy_to(*mirror, odp_port, software.cut_at);
            }
        }
        const StaticName name = software.name != nullptr ? StaticName::of_table(software.name) : "software's actions";
        if (!caps_.recirculates) {
            return refuse(RejectReason::device_limit, name, " (NIC_RX has no table but its root)");
        }
        if (!ports_.leads_copies(CopyKind::other)) {
            return refuse(RejectReason::unsupported_action, name, " (copies for software have no queue)");
        }
        if (software.one_of != 1 && !caps_.samples) {
            return refuse(RejectReason::device_limit, name, " of one in several packets (the device has no sampler)");
        }
        without_copies_.push_back({RejectReason::unsupported_action, name});
        const std::optional<MeterUse> meter = meter_of_copies(software);
        const std::size_t done = meter ? software.metered_from : 0;
        SoftwareWork::Actions actions(software.actions + done, software.actions + software.actions_size);
        SoftwareWork each_work = work(std::move(actions), name, CopyKind::other);
        if (software.sampler != nullptr) each_work.sampler = StaticName::of_table(software.sampler);
        const Path each{.software = SoftwareCopy{software.one_of, std::move(each_work)}};
        copy(meter ? Path{.branches = {each}, .meter = meter} : each,
             "one action of software's twice on the same packet");
    }

    /// The meter that software's actions begin with, if the device is to drop the copies that exceed it. Software
    /// meters where that would not be the same: a packet meets this meter elsewhere too, and who comes first matters;
    /// or it has another length than it came with, and it is not known which one the device takes.
    [[nodiscard]] std::optional<MeterUse> meter_of_copies(const ovsdr_software& software) const {
        if (software.metered_from == 0 || software.one_of != 1) return {};
        if (!caps_.meters || caps_.meters_end_rules) return {};   // such a meter leads to a table at one level
        const PortMap::Meter* meter = ports_.find_meter(software.meter);
        const bool as_it_came = now_.pops == 0 && now_.pushes.empty() && !now_.tunnel;
        if (meter == nullptr || meter->refusal || !as_it_came || meter_uses_.at(software.meter) != 1) return {};
        return MeterUse{software.meter, meter->serial};
    }

    /// To be done to the packet as it is here. Behind a tunnel's push OVS knows of it what netdev_push_header() leaves:
    /// the port of the underlay, and no tunnel that it came through.
    [[nodiscard]] SoftwareWork work(decltype(SoftwareWork::work) what, StaticName name, CopyKind kind) const {
        if (now_.tunnel) return {now_.underlay, {}, std::move(what), name, kind};
        return {packets_.in_port, packets_.tunnel, std::move(what), name, kind};
    }

    /// Of the packet as it is here, which goes on.
    void copy(Path path, StaticName twice) {
        auto& branches = leg().branches;
        if (std::ranges::count(branches, path) != 0) return refuse(RejectReason::unsupported_action, twice);
        branches.push_back(std::move(path));
    }

    /// Each packet would go up as before, and nothing be done in the device: packets go nowhere but up, and not only
    /// samples of them, or those that a meter lets pass.
    [[nodiscard]] bool only_copies() const {
        const auto goes_on = [](const Path& leg) {
            return !leg.vports.empty() || !leg.tables.empty() ||
                   !std::ranges::all_of(leg.branches, [](const Path& branch) {
                       return branch.software.has_value() || branch.is_metered_copy();
                   });
        };
        const auto copies_each = [](const Path& leg) { return std::ranges::any_of(leg.branches, &Path::is_copy); };
        return front_.empty() && std::ranges::none_of(legs_, goes_on) && std::ranges::any_of(legs_, copies_each);
    }

    /// Those to mirrors are not among them: nothing is left to be done in software.
    void refuse_copies() {
        for (Obstacle& obstacle : without_copies_) obstacles_.add(std::move(obstacle));
    }

    void recirculate(std::uint32_t recirc_id) {
        const TableKey table{recirc_id, match_.table.tunnel_port};
        if (!caps_.recirculates) {
            return refuse(RejectReason::device_limit, "recirc", " (NIC_RX has no table but its root)");
        }
        if (now_.tunnel) return refuse(RejectReason::unsupported_order, "recirc behind tnl_push");
        if (table.recirc_id == match_.table.recirc_id) {
            return refuse(RejectReason::recirculation, "recirc to the table that it comes from",
                          fmt::format(": {:#x}", table.recirc_id));
        }
        if (match_.in_tunnel() && (is_changed() || !front_.empty())) {
            // It would have to be taken out of the tunnel for that, and could not be given to software as it came.
            return refuse(RejectReason::unsupported_order, "recirc behind a change of packets from a tunnel");
        }
        if (const StaticName changed_by = now_.hash.changed_by();
            choices_.exact_tunnel_source_port && !changed_by.empty()) {
            // OVS would hash it anew if it missed there.
            return refuse(RejectReason::unsupported_action,
                          "recirc behind a change of what OVS hashes (other_config:dr-tunnel-source-port=exact)",
                          fmt::format(": {}", changed_by.text()));
        }
        auto& tables = leg(false).tables;
        if (std::ranges::count(tables, table) != 0) {
            return refuse(RejectReason::unsupported_action, "recirc twice to one recirc_id",
                          fmt::format(": {:#x}", table.recirc_id));
        }
        tables.push_back(table);
    }

    [[nodiscard]] bool is_changed() const {
        return now_.pops != 0 || !now_.pushes.empty() || !now_.rewrite.writes().empty();
    }

    /// The packet goes on as it is in the tunnel port's table, whose rules take it out.
    void enter_tunnel(OdpPort odp_port) {
        const TunnelPort* tunnel = ports_.find_tunnel(odp_port);
        if (tunnel == nullptr) {
            return obstacles_.add(
                {RejectReason::output_not_offloaded, "tnl_pop to a port that is no known tunnel", {}, odp_port});
        }
        if (now_.tunnel) return refuse(RejectReason::unsupported_order, "tnl_pop behind tnl_push");
        if (match_.in_tunnel()) return refuse(RejectReason::unsupported_order, "tnl_pop of packets from a tunnel");
        if (source_is_known_ && match_.source != uplink_vport) {
            return refuse(RejectReason::device_limit, "tnl_pop of packets from another vport than the uplink");
        }
        if (!caps_.recirculates) {
            return refuse(RejectReason::device_limit, "tnl_pop", " (NIC_RX has no table but its root)");
        }
        // OVS does not look for a tag there and would cut the packet four bytes off.
        if (now_.pops != match_.vlan_tags || match_.more_tags || !now_.pushes.empty()) {
            return refuse(RejectReason::unsupported_order, "tnl_pop of packets that may have a tag");
        }
        if (!narrow_to_tunnel(match_, *tunnel, caps_, choices_, obstacles_)) return;
        if (!whole_datagrams("tnl_pop")) return;
        auto& tables = leg(false).tables;
        const TableKey table{0, odp_port.value};
        if (std::ranges::count(tables, table) != 0) {
            return refuse(RejectReason::unsupported_action, "tnl_pop twice into one tunnel");
        }
        tables.push_back(table);
    }

    /// A rewrite before it does not matter: it changes no packet's length.
    void meter(std::uint32_t number) {
        const PortMap::Meter* known = ports_.find_meter(number);
        if (known == nullptr) {
            return refuse(RejectReason::unsupported_action, "meter", fmt::format(": nobody has set number {}", number));
        }
        if (!caps_.meters) return refuse(RejectReason::device_limit, "meter", " (the device has none)");
        if (known->refusal) return refuse(RejectReason::device_limit, known->refusal->name, known->refusal->value);
        const auto goes_out = [](const Path& leg) { return !leg.vports.empty() || !leg.tables.empty(); };
        if (std::ranges::any_of(legs_, goes_out)) {
            return refuse(RejectReason::unsupported_order, "meter behind an output");
        }
        if (!outside_.empty()) return refuse(RejectReason::unsupported_order, "meter in a copy");
        if (now_.pops != 0 || !now_.pushes.empty() || now_.tunnel) {
            return refuse(RejectReason::unsupported_order, "meter behind a change of the packet's length");
        }
        if (caps_.meters_end_rules && match_.table != TableKey{}) {
            const bool in_tunnel = match_.in_tunnel();
            return refuse(RejectReason::device_limit,
                          in_tunnel ? StaticName("meter of packets from a tunnel") : "meter behind a recirculation",
                          " (a meter of the device has a table at one level)");
        }
        if (!put_copies_in_front()) {
            return refuse(RejectReason::unsupported_order, "meter behind a copy of a packet that has been changed");
        }
        const auto copies_each = [](const Path& front) { return front.is_copy() || front.is_metered_copy(); };
        if (!caps_.copies_to_table && std::ranges::any_of(front_, copies_each)) {
            return refuse(RejectReason::device_limit, "copy to software", " (no copies to tables)");
        }
        if (caps_.meters_end_rules && !front_.empty()) {
            const bool metered = front_.back().meter.has_value();
            return refuse(RejectReason::device_limit,
                          metered ? StaticName("several meters") : "meter behind a copy to software",
                          " (a rule of the device ends in one)");
        }
        if (front_.size() >= most_in_front) {
            return refuse(RejectReason::too_many_actions, "meters, with the copies in front of them");
        }
        front_.push_back(Path{.meter = MeterUse{number, known->serial}});
    }

    /// Those that were taken before a meter.
    bool put_copies_in_front() {
        for (Path& leg : legs_) {
            if (!leg.changes.none()) return false;
            for (Path& branch : leg.branches) front_.push_back(std::move(branch));
        }
        legs_.clear();
        return true;
    }

    void push(std::uint16_t tpid, std::uint16_t tci) {
        if (tpid != tpid_customer && tpid != tpid_service) {
            refuse(RejectReason::unsupported_action, "push_vlan", fmt::format("(tpid={:#06x})", tpid));
        }
        const VlanTag tag{tpid, static_cast<std::uint16_t>(tci & ~vlan_present)};
        if ((now_.tunnel ? now_.tunnel->tags() : now_.pushes.size()) == max_pushes) {
            return refuse(RejectReason::too_many_actions, "more than two push_vlan");
        }
        if (now_.tunnel) {
            now_.tunnel->push(tag);
        } else {
            now_.pushes.push_back(tag);
        }
    }

    void encapsulate(const ovsdr_tunnel_push& push) {
        if (now_.tunnel) return refuse(RejectReason::unsupported_order, "tnl_push behind tnl_push");
        now_.tunnel = TunnelHeader::of(push, flow_hash(), choices_, obstacles_);
        now_.underlay = OdpPort{push.out_port};
    }

    /// Of what tells this megaflow from others.
    [[nodiscard]] std::uint64_t flow_hash() const noexcept {
        const auto& value = match_.value.bytes;
        const std::string_view bytes(reinterpret_cast<const char*>(value.data()), value.size());
        return std::hash<std::string_view>{}(bytes);
    }

    void pop() {
        if (now_.tunnel) {
            now_.tunnel->pop();
        } else if (!now_.pushes.empty()) {
            now_.pushes.pop_back();
        } else if (now_.pops < match_.vlan_tags) {
            ++now_.pops;
        } else if (match_.more_tags) {
            refuse(RejectReason::unsupported_order, "pop_vlan of packets that may have no tag");
        }   // else OVS leaves an untagged packet as it is
    }

    void set(const ovsdr_set& set) {
        const bool ipv6 = match_.l3 == L3::ipv6;
        if (now_.tunnel) return refuse(RejectReason::unsupported_order, "set behind tnl_push");
        switch (set.field) {
            case OVSDR_HEADER_ETH_DST:
            case OVSDR_HEADER_ETH_SRC: break;
            case OVSDR_HEADER_IP_SRC:
            case OVSDR_HEADER_IP_DST:
                if (match_.l3 != L3::ipv4) return refuse_other_packets("set(ipv4)");
                if (!whole_datagrams("set(ipv4) of addresses")) return;
                break;
            case OVSDR_HEADER_IPV6_SRC:
            case OVSDR_HEADER_IPV6_DST:
                if (!ipv6) return refuse_other_packets("set(ipv6)");
                if (!match_.protocol || match_.protocol == proto_icmpv6) {
                    // Linux's own offload writes no addresses of ICMPv6 (modify_header_match_supported in mlx5).
                    return refuse(RejectReason::unsupported_action, "set(ipv6) of addresses",
                                  " of packets that may be ICMPv6, whose checksum covers them");
                }
                if (!whole_datagrams("set(ipv6) of addresses")) return;
                break;
            case OVSDR_HEADER_IP_TOS:
                if (match_.l3 != L3::ipv4 && !ipv6) return refuse_other_packets("set(ipv4) or set(ipv6)");
                if ((set.mask[0] & 3) != 0 && !caps_.writes_ecn) {
                    return refuse(RejectReason::device_limit, "set of the IP header's ECN bits");
                }
                break;
            case OVSDR_HEADER_IP_TTL:
                if (match_.l3 != L3::ipv4 && !ipv6) return refuse_other_packets("set(ipv4) or set(ipv6)");
                break;
            case OVSDR_HEADER_TCP_SRC:
            case OVSDR_HEADER_TCP_DST:
                if (match_.protocol != proto_tcp) return refuse_other_packets("set(tcp)");
                if (!whole_datagrams("set(tcp)")) return;
                break;
            case OVSDR_HEADER_UDP_SRC:
            case OVSDR_HEADER_UDP_DST:
                if (match_.protocol != proto_udp) return refuse_other_packets("set(udp)");
                if (!whole_datagrams("set(udp)")) return;
                break;
            default: return refuse(RejectReason::unsupported_action, "set of an unknown field");
        }
        now_.rewrite.write(set, ipv6);
    }

    void refuse_other_packets(StaticName name) {
        refuse(RejectReason::unsupported_action, name, " of packets that may have no such header");
    }

    /// A fragment has no transport header to the device, and its checksum is the whole datagram's. Rules that need one
    /// ask for packets that are none; OVS would change first fragments too, and does it in the slow path.
    bool whole_datagrams(StaticName name) {
        if (match_.fragment) {
            refuse(RejectReason::unsupported_action, name, " of a fragment");
            return false;
        }
        match_.ask(match_.place_of(field::frag), 0, 1);
        return true;
    }

    MatchPlan& match_;
    const Packets& packets_;
    const PortMap& ports_;
    const DeviceCaps& caps_;
    const Choices& choices_;
    Obstacles& obstacles_;
    const bool source_is_known_;
    Packet now_;
    std::vector<Packet> outside_;   ///< of the copies that we are in
    std::vector<Path> legs_;
    std::vector<Path> front_;
    std::map<std::uint32_t, unsigned> meter_uses_;   ///< how often packets meet each
    std::vector<Obstacle> without_copies_;   ///< what each copy would be if there were none
};

}  // namespace

Path compile_actions(std::span<const ovsdr_action> actions, MatchPlan& match, const Packets& packets,
                     const PortMap& ports, const DeviceCaps& caps, const Choices& choices,
                     Obstacles& obstacles) noexcept {
    ActionCompiler compiler(match, packets, ports, caps, choices, obstacles);
    Path path = sample(join(compiler.run(actions)));
    if (obstacles.has(RejectReason::in_port_not_offloaded)) return path;
    const Side side = match.source == uplink_vport ? Side::wire : Side::vports;
    const auto& front = compiler.front();
    const bool taken_out_first = !front.empty() && match.in_tunnel();
    arrange(path, side, caps, front.size() + (taken_out_first ? 1 : 0), obstacles);
    return put_in_front(std::move(path), front, side, caps);
}

}  // namespace ovsdr::dr
