#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "offload/dr/compile/compile.hpp"
#include "offload/dr/compile/flow_fields.hpp"

namespace ovsdr::dr {

namespace {

constexpr std::uint16_t eth_type_ipv4 = 0x0800, eth_type_arp = 0x0806, eth_type_rarp = 0x8035, eth_type_ipv6 = 0x86dd;
constexpr std::uint16_t tpid_customer = 0x8100, tpid_service = 0x88a8;
constexpr bool is_tag(std::uint16_t eth_type) noexcept { return eth_type == tpid_customer || eth_type == tpid_service; }
constexpr std::uint16_t first_eth_type = 0x0600;   ///< below: an 802.3 length; OVS has 0x05ff for those
constexpr std::uint16_t vlan_present = 0x1000;     ///< OVS's VLAN_CFI
constexpr std::uint8_t proto_icmp = 1, proto_igmp = 2, proto_tcp = 6, proto_udp = 17, proto_icmpv6 = 58;
constexpr std::uint8_t proto_sctp = 132;
constexpr std::uint8_t frag_any = 1, frag_later = 2;

/// Next-header numbers of IPv6 that OVS steps over: hop-by-hop, routing, fragment, AH, destination options.
constexpr std::array<std::uint8_t, 5> ipv6_extension_headers{0, 43, 44, 51, 60};

/// Where the device has a tag, and what users call it.
struct TagFields {
    prm::Field customer, service, prio, vid;
    StaticName tci_name, tpid_name;
};
constexpr TagFields tag_fields[] = {
    {field::cvlan_tag, field::svlan_tag, field::first_prio, field::first_vid, "vlan_tci", "vlan_tpid"},
    {field::outer_second_cvlan_tag, field::outer_second_svlan_tag, field::outer_second_prio, field::outer_second_vid,
     "vlan_tci[1]", "vlan_tpid[1]"},
};

constexpr std::uint32_t ipv6_label_bits = 20;

std::uint32_t word_at(const std::uint8_t* bytes) noexcept {
    std::uint32_t word;
    std::memcpy(&word, bytes, sizeof word);
    return be32toh(word);
}

bool is_zero(std::span<const std::uint8_t> bytes) noexcept {
    return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

class MatchCompiler {
public:
    MatchCompiler(const ovsdr_flow_fields& key, const ovsdr_flow_fields& mask, const PortMap& ports,
                  const DeviceCaps& caps, Obstacles& obstacles) noexcept
        : key_(key), mask_(mask), parses_two_tags_(key.vlan_limit > 1), ports_(ports), caps_(caps),
          obstacles_(obstacles) {}

    /// Each step clears what it dealt with, be it that it refused it.
    MatchPlan run() {
        using Step = void (MatchCompiler::*)();
        constexpr Step steps[] = {&MatchCompiler::recirculation, &MatchCompiler::in_port, &MatchCompiler::ethernet,
                                  &MatchCompiler::eth_type,      &MatchCompiler::vlan,    &MatchCompiler::ip,
                                  &MatchCompiler::fragment,      &MatchCompiler::transport, &MatchCompiler::leftovers};
        for (const Step step : steps) (this->*step)();
        return plan_;
    }

private:
    /// `field`: as if no tunnel's headers were in front.
    void match(prm::Field field, std::uint32_t value, std::uint32_t mask) noexcept {
        if (mask != 0) plan_.ask(plan_.place_of(field), value, mask);
    }

    void refuse(RejectReason reason, StaticName name, std::string value = {}) {
        obstacles_.add(reason, name, std::move(value));
    }

    template <typename T>
    static void clear(T& bits) noexcept {
        std::memset(&bits, 0, sizeof bits);
    }

    /// The table says it: no rule asks for it again.
    void recirculation() {
        const std::uint32_t mask = std::exchange(mask_.recirc_id, 0), value = key_.recirc_id & mask;
        if (value == 0) return;   // perhaps of recirculated packets as well, which then stay in software
        if (mask != UINT32_MAX) return refuse(RejectReason::unsupported_mask, "recirc_id", fmt::format("/{:#x}", mask));
        if (!caps_.recirculates) {
            return refuse(RejectReason::device_limit, "recirc_id", " (NIC_RX has no table but its root)");
        }
        plan_.table.recirc_id = value;
    }

    void in_port() {
        const std::uint32_t mask = std::exchange(mask_.in_port, 0);
        if (mask != UINT32_MAX) return refuse(RejectReason::in_port_not_offloaded, "in_port is not matched whole");
        const OdpPort odp_port{key_.in_port};
        if (const TunnelPort* tunnel = ports_.find_tunnel(odp_port); tunnel != nullptr) {
            if (!caps_.recirculates) {
                return refuse(RejectReason::device_limit, "in_port is a tunnel port",
                              " (NIC_RX has no table but its root)");
            }
            plan_.table.tunnel_port = odp_port.value;
            return comes_from(uplink_vport);
        }
        const PortMap::Port* port = ports_.find(odp_port);
        if (port == nullptr) {
            return obstacles_.add(
                {RejectReason::in_port_not_offloaded, "in_port is no dr port of this device", {}, odp_port});
        }
        if (port->policed) {
            obstacles_.add(
                {RejectReason::policed_port, "in_port has a policer, which is in the slow path", {}, odp_port});
        }
        comes_from(port->vport);
    }

    void comes_from(VportId vport) noexcept {
        plan_.source = vport;
        plan_.ask(field::source_port, vport.value, 0xFFFF);
    }

    void ethernet() {
        match_mac(field::dmac_47_16, field::dmac_15_0, key_.eth_dst, mask_.eth_dst);
        match_mac(field::smac_47_16, field::smac_15_0, key_.eth_src, mask_.eth_src);
    }

    void match_mac(prm::Field high, prm::Field low, const std::uint8_t (&key)[6], std::uint8_t (&mask)[6]) noexcept {
        match(high, word_at(key), word_at(mask));
        match(low, static_cast<std::uint32_t>(key[4] << 8 | key[5]),
              static_cast<std::uint32_t>(mask[4] << 8 | mask[5]));
        clear(mask);
    }

    void eth_type() {
        if (mask_.be_eth_type == 0) return;
        const std::uint16_t type = be16toh(key_.be_eth_type), mask = be16toh(mask_.be_eth_type);
        clear(mask_.be_eth_type);
        if (mask != 0xFFFF) return refuse(RejectReason::unsupported_mask, "eth_type", fmt::format("/{:#06x}", mask));
        if (type < first_eth_type) {
            return refuse(RejectReason::unsupported_match, "eth_type", fmt::format("={:#06x} (802.3 with LLC)", type));
        }
        if (is_tag(type)) {
            unparsed_tag_ = type;
            return;
        }
        match(field::ethertype, type, 0xFFFF);
        if (type == eth_type_arp || type == eth_type_rarp) plan_.l3 = L3::arp;
        if (type == eth_type_ipv4) plan_.l3 = L3::ipv4;
        if (type == eth_type_ipv6) plan_.l3 = L3::ipv6;
        // libmlx5 chooses what it builds by the number in the mask, which stands for the whole field.
        if (plan_.l3 == L3::ipv4) match(field::ip_version, 4, 4);
        if (plan_.l3 == L3::ipv6) match(field::ip_version, 6, 6);
    }

    enum class Tag : std::uint8_t { none, present, perhaps };

    void vlan() {
        const Tag first = tag(0), second = parses_two_tags_ ? tag(1) : tag_not_parsed();
        if (unparsed_tag_ != 0 && (parses_two_tags_ || first == Tag::none)) {
            return refuse(RejectReason::unsupported_match, "eth_type",
                          fmt::format("={:#06x} (a tag that OVS did not parse)", unparsed_tag_));
        }
        if (first == Tag::none) return untagged(second);
        if (second == Tag::none) match(field::outer_second_cvlan_tag, 0, 1);
        if (second == Tag::present) {
            plan_.vlan_tags = 2;
            plan_.more_tags = plan_.mask.get(field::ethertype) == 0;
        } else {
            plan_.vlan_tags = first == Tag::present ? 1 : 0;
            plan_.more_tags = first == Tag::perhaps || second == Tag::perhaps;
        }
    }

    void untagged(Tag second) {
        match(field::cvlan_tag, 0, 1);   // one qualifier: neither a customer's nor a service tag
        if (second == Tag::present) {
            refuse(RejectReason::unsupported_match, "vlan_tci[1]", " (a second tag of an untagged packet)");
        }
    }

    /// OVS's TPID and TCI are 0 without a tag. A match that went through netlink may have the whole TPID and no TCI.
    Tag tag(std::size_t number) {
        const TagFields& fields = tag_fields[number];
        const std::uint16_t tci = be16toh(key_.be_vlan_tci[number]), tci_mask = be16toh(mask_.be_vlan_tci[number]);
        const std::uint16_t tpid = be16toh(key_.be_vlan_tpid[number]), tpid_mask = be16toh(mask_.be_vlan_tpid[number]);
        clear(mask_.be_vlan_tci[number]);
        clear(mask_.be_vlan_tpid[number]);
        const bool tpid_tells = tpid_mask == 0xFFFF, tci_tells = (tci_mask & vlan_present) != 0;
        if (!tci_tells && !tpid_tells) return perhaps_tagged(fields, tci_mask, tpid_mask);
        if (tci_tells ? (tci & vlan_present) == 0 : tpid == 0) {
            return not_tagged(fields, tci & tci_mask, tpid & tpid_mask);
        }
        if (!is_tag(tpid)) {
            refuse(RejectReason::unsupported_match, fields.tpid_name, fmt::format("={:#06x}", tpid));
        }
        match(tpid == tpid_customer ? fields.customer : fields.service, 1, 1);
        match(fields.vid, tci & 0xFFF, tci_mask & 0xFFF);
        match(fields.prio, tci >> 13, tci_mask >> 13);
        return Tag::present;
    }

    Tag perhaps_tagged(const TagFields& fields, std::uint16_t tci_mask, std::uint16_t tpid_mask) {
        if (tci_mask != 0) {
            refuse(RejectReason::unsupported_mask, fields.tci_name,
                   fmt::format("/{:#06x} without presence of a tag", tci_mask));
        }
        if (tpid_mask != 0) {
            refuse(RejectReason::unsupported_mask, fields.tpid_name,
                   fmt::format("/{:#06x} without presence of a tag", tpid_mask));
        }
        return Tag::perhaps;
    }

    Tag not_tagged(const TagFields& fields, int tci, int tpid) {
        if (tci != 0) {
            refuse(RejectReason::unsupported_match, fields.tci_name, fmt::format("={:#06x} without a tag", tci));
        }
        if (tpid != 0) {
            refuse(RejectReason::unsupported_match, fields.tpid_name, fmt::format("={:#06x} without a tag", tpid));
        }
        return Tag::none;
    }

    /// With a vlan-limit of 1 OVS's ethertype says whether there is a second tag; its own fields are 0 in all packets.
    Tag tag_not_parsed() {
        const Tag none = not_tagged(tag_fields[1], be16toh(key_.be_vlan_tci[1] & mask_.be_vlan_tci[1]),
                                    be16toh(key_.be_vlan_tpid[1] & mask_.be_vlan_tpid[1]));
        clear(mask_.be_vlan_tci[1]);
        clear(mask_.be_vlan_tpid[1]);
        if (unparsed_tag_ == 0) return none;
        match(unparsed_tag_ == tpid_customer ? tag_fields[1].customer : tag_fields[1].service, 1, 1);
        return Tag::present;
    }

    void ip() {
        if (plan_.l3 != L3::ipv4 && plan_.l3 != L3::ipv6) return;
        match(field::ip_dscp, key_.ip_tos >> 2, mask_.ip_tos >> 2);
        match(field::ip_ecn, key_.ip_tos & 3, mask_.ip_tos & 3);
        clear(mask_.ip_tos);
        match(field::ip_ttl_hoplimit, key_.ip_ttl, mask_.ip_ttl);
        clear(mask_.ip_ttl);
        match_address(field::src_ip, key_.src, mask_.src);
        match_address(field::dst_ip, key_.dst, mask_.dst);
        if (plan_.l3 == L3::ipv6) flow_label();
        protocol();
    }

    /// OVS's field has 32 bits, of which the upper ones are 0 in every packet.
    void flow_label() {
        const std::uint32_t label = be32toh(key_.be_ipv6_label), mask = be32toh(std::exchange(mask_.be_ipv6_label, 0));
        if ((label & mask) >> ipv6_label_bits != 0) {
            return refuse(RejectReason::unsupported_match, "ipv6_label", fmt::format("={:#x}", label));
        }
        match(field::outer_ipv6_flow_label, label, mask & prm::ones(ipv6_label_bits));
    }

    void match_address(const std::array<prm::Field, 4>& fields, const std::uint8_t (&key)[16],
                       std::uint8_t (&mask)[16]) noexcept {
        if (plan_.l3 == L3::ipv4) {
            match(fields[3], word_at(key), word_at(mask));
            std::memset(mask, 0, 4);
            return;
        }
        for (std::size_t i = 0; i < fields.size(); ++i) match(fields[i], word_at(key + 4 * i), word_at(mask + 4 * i));
        clear(mask);
    }

    void protocol() {
        if (mask_.ip_proto == 0) return;
        const std::uint8_t mask = std::exchange(mask_.ip_proto, 0);
        if (mask != 0xFF) return refuse(RejectReason::unsupported_mask, "nw_proto", fmt::format("/{:#04x}", mask));
        plan_.protocol = key_.ip_proto;
        if (plan_.l3 == L3::ipv6 && std::ranges::count(ipv6_extension_headers, key_.ip_proto) != 0) {
            return refuse(RejectReason::unsupported_match, "nw_proto",
                          fmt::format("={} (an IPv6 extension header)", key_.ip_proto));
        }
        match(field::ip_protocol, key_.ip_proto, 0xFF);
    }

    /// The device has one bit, "is a fragment"; OVS tells first fragments (1) from later ones (3). Over IPv6 a later
    /// one has protocol 44 to OVS (parse_ipv6_ext_hdrs()); to the device, as DPDK's mlx5 driver has it, the fragment
    /// header's next header (the PRM does not say). So a rule for a protocol over IPv6 is one for whole packets.
    void fragment() {
        if (plan_.l3 != L3::ipv4 && plan_.l3 != L3::ipv6) return;
        const std::uint8_t bits = mask_.ip_frag & (frag_any | frag_later);
        const bool protocol_over_ipv6 = plan_.l3 == L3::ipv6 && plan_.protocol.has_value();
        if (bits == 0) {
            if (protocol_over_ipv6) match(field::frag, 0, 1);
            return;
        }
        mask_.ip_frag = static_cast<std::uint8_t>(mask_.ip_frag & ~bits);
        const std::uint8_t value = key_.ip_frag & bits;
        if (value == 0 && (bits & frag_any) != 0) {
            match(field::frag, 0, 1);
        } else if (value == frag_any && bits == frag_any) {
            match(field::frag, 1, 1);
            plan_.fragment = true;
            if (protocol_over_ipv6) {
                refuse(RejectReason::unsupported_match, "nw_frag",
                       " with nw_proto over IPv6 (OVS and the device differ in a later fragment's protocol)");
            }
        } else {
            refuse(RejectReason::unsupported_match, "nw_frag",
                   fmt::format("={:#x}/{:#x} (first and later fragments are one to the device)", value, bits));
        }
    }

    void transport() {
        if (mask_.be_tp_src == 0 && mask_.be_tp_dst == 0 && mask_.be_tcp_flags == 0) return;
        if (!plan_.protocol) return;   // left over, and named there
        if (plan_.fragment) {
            refuse(RejectReason::unsupported_match, "nw_frag",
                   " with transport fields (a fragment has none to the device)");
        }
        switch (*plan_.protocol) {
            case proto_tcp: tcp(); break;
            case proto_udp: ports(field::udp_sport, field::udp_dport); break;
            case proto_icmp:
                if (plan_.l3 == L3::ipv4) icmp(caps_.icmp_v4, field::icmp_type, field::icmp_code, "icmp_type");
                break;
            case proto_icmpv6:
                if (plan_.l3 == L3::ipv6) icmp(caps_.icmp_v6, field::icmpv6_type, field::icmpv6_code, "icmpv6_type");
                break;
            default: break;
        }
        match(field::frag, 0, 1);
    }

    void ports(prm::Field source, prm::Field destination) noexcept {
        match(source, be16toh(key_.be_tp_src), be16toh(mask_.be_tp_src));
        match(destination, be16toh(key_.be_tp_dst), be16toh(mask_.be_tp_dst));
        clear(mask_.be_tp_src);
        clear(mask_.be_tp_dst);
    }

    void tcp() {
        ports(field::tcp_sport, field::tcp_dport);
        const std::uint16_t flags_mask = be16toh(mask_.be_tcp_flags);
        clear(mask_.be_tcp_flags);
        if ((flags_mask & ~0x1FF) != 0) {
            return refuse(RejectReason::unsupported_mask, "tcp_flags",
                          fmt::format("/{:#05x} (the device has the lower 9 bits)", flags_mask));
        }
        match(field::tcp_flags, be16toh(key_.be_tcp_flags), flags_mask);
    }

    /// OVS keeps type and code in the low bytes of the ports; the high ones are always 0.
    void icmp(bool parsed, prm::Field type, prm::Field code, StaticName name) {
        const std::uint16_t key_type = be16toh(key_.be_tp_src), key_code = be16toh(key_.be_tp_dst);
        const std::uint16_t mask_type = be16toh(mask_.be_tp_src), mask_code = be16toh(mask_.be_tp_dst);
        clear(mask_.be_tp_src);
        clear(mask_.be_tp_dst);
        if (!parsed) return refuse(RejectReason::device_limit, name, " (not in the device's parser profile)");
        if (plan_.in_tunnel()) {
            return refuse(RejectReason::device_limit, name,
                          " inside of a tunnel (libmlx5 has the outer packet's only)");
        }
        if (((key_type & mask_type) | (key_code & mask_code)) >> 8 != 0) {
            return refuse(RejectReason::unsupported_match, name, fmt::format("={:#x}, code {:#x}", key_type, key_code));
        }
        match(type, key_type & 0xFF, mask_type & 0xFF);
        match(code, key_code & 0xFF, mask_code & 0xFF);
    }

    /// The last step: whatever bit of the structure is still set, no step above knows what to do with.
    void leftovers() {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(&mask_);
        constexpr ovsdr_flow_fields none{};
        if (std::memcmp(bytes, &none, sizeof none) == 0) return;
        for (const FlowField& field : flow_fields) {
            if (!is_zero({bytes + field.offset, field.size})) refuse(RejectReason::unsupported_match, name_here(field));
        }
    }

    /// The name of the field in packets of this megaflow.
    StaticName name_here(const FlowField& field) const noexcept {
        StaticName name;
        if (plan_.l3 == L3::arp) name = field.in_arp;
        if (plan_.protocol == proto_igmp) name = field.in_igmp;
        if (plan_.protocol == proto_sctp) name = field.in_sctp;
        return name.empty() ? field.name : name;
    }

    const ovsdr_flow_fields& key_;
    ovsdr_flow_fields mask_;
    const bool parses_two_tags_;
    std::uint16_t unparsed_tag_ = 0;   ///< the TPID that is OVS's ethertype; 0: it is another one
    const PortMap& ports_;
    const DeviceCaps& caps_;
    Obstacles& obstacles_;
    MatchPlan plan_;
};

}  // namespace

MatchPlan compile_match(const ovsdr_flow_fields& key, ovsdr_flow_fields mask, const PortMap& ports,
                        const DeviceCaps& caps, Obstacles& obstacles) noexcept {
    return MatchCompiler(key, mask, ports, caps, obstacles).run();
}

}  // namespace ovsdr::dr
