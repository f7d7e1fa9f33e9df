#include "datapath/verbs/flow/flow_spec.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "datapath/steering/key.hpp"

namespace ovsdr::soft {

namespace {

/// What the kernel takes of specifications in one flow.
constexpr unsigned max_specs = 10;

/// Byte offsets in the match parameters beyond the outer block's, which are a Key's.
constexpr unsigned misc = 64, inner = 128, misc2 = 192;
constexpr unsigned gre_protocol = misc + 14, gre_key = misc + 16, vxlan_vni = misc + 20;
constexpr unsigned outer_flow_label = misc + 28, inner_flow_label = misc + 32, outer_esp_spi = misc + 48;
constexpr unsigned first_mpls = misc2, inner_mpls = misc2 + 4, mpls_over_gre = misc2 + 8, mpls_over_udp = misc2 + 12;

constexpr std::uint8_t protocol_tcp = 6, protocol_udp = 17, protocol_gre = 47;

[[nodiscard]] bool multicast(const std::uint8_t (&mac)[6]) {
    return mac[0] & 1;
}
[[nodiscard]] bool multicast(std::uint32_t ip) {
    return (ip & htobe32(0xf0000000)) == htobe32(0xe0000000);
}

/// Whether all bytes of a filter from `member` on are 0.
template <typename Filter>
[[nodiscard]] bool none_from(const Filter& filter, std::size_t offset) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&filter);
    return std::all_of(bytes + offset, bytes + sizeof filter, [](std::uint8_t byte) { return byte == 0; });
}

class Translation {
public:
    explicit Translation(FlowPlan& plan) : plan_(plan) {}

    [[nodiscard]] int add(const ibv_flow_spec& spec) {
        base_ = spec.hdr.type & IBV_FLOW_SPEC_INNER ? inner : 0;
        const auto type = static_cast<ibv_flow_spec_type>(spec.hdr.type & ~static_cast<unsigned>(IBV_FLOW_SPEC_INNER));
        const int error = dispatch(type, spec);
        previous_ = type;
        return error;
    }

private:
    [[nodiscard]] int dispatch(ibv_flow_spec_type type, const ibv_flow_spec& spec) {
        switch (type) {
            case IBV_FLOW_SPEC_ETH:
                return ethernet(spec.eth);
            case IBV_FLOW_SPEC_IPV4:
                return ipv4(spec.ipv4);
            case IBV_FLOW_SPEC_IPV4_EXT:
                return ipv4_ext(spec.ipv4_ext);
            case IBV_FLOW_SPEC_IPV6:
                return ipv6(spec.ipv6);
            case IBV_FLOW_SPEC_ESP:
                return esp(spec.esp);
            case IBV_FLOW_SPEC_TCP:
                return ports(spec.tcp_udp, protocol_tcp, key_offset::tcp_sport);
            case IBV_FLOW_SPEC_UDP:
                return ports(spec.tcp_udp, protocol_udp, key_offset::udp_sport);
            case IBV_FLOW_SPEC_MPLS:
                return mpls(spec.mpls);
            default:
                return base_ == inner ? EINVAL : outer_only(type, spec);
        }
    }

    [[nodiscard]] int outer_only(ibv_flow_spec_type type, const ibv_flow_spec& spec) {
        switch (type) {
            case IBV_FLOW_SPEC_VXLAN_TUNNEL:
                return tunnel(spec.tunnel);
            case IBV_FLOW_SPEC_GRE:
                return gre(spec.gre);
            case IBV_FLOW_SPEC_ACTION_TAG:
                if (spec.flow_tag.tag_id >= 1u << 24) return EINVAL;
                plan_.tag = spec.flow_tag.tag_id;
                return 0;
            case IBV_FLOW_SPEC_ACTION_DROP:
                plan_.drop = true;
                return 0;
            case IBV_FLOW_SPEC_ACTION_HANDLE:
                plan_.actions.push_back(const_cast<ibv_flow_action*>(spec.handle.action));
                return 0;
            case IBV_FLOW_SPEC_ACTION_COUNT:
                if (plan_.counters) return EINVAL;
                plan_.counters = spec.flow_count.counters;
                return 0;
            default:
                return EINVAL;
        }
    }

    [[nodiscard]] int ethernet(const ibv_flow_spec_eth& spec) {
        copy(key_offset::dmac, spec.mask.dst_mac, spec.val.dst_mac, 6);
        copy(key_offset::smac, spec.mask.src_mac, spec.val.src_mac, 6);
        if (spec.mask.vlan_tag) {
            set_bits(key_offset::l3_flags, cvlan_bit, cvlan_bit);
            copy(key_offset::first_vlan, &spec.mask.vlan_tag, &spec.val.vlan_tag, 2);
        }
        copy(key_offset::ethertype, &spec.mask.ether_type, &spec.val.ether_type, 2);
        return 0;
    }

    [[nodiscard]] int ipv4(const ibv_flow_spec_ipv4& spec) {
        set_bits(key_offset::l3_flags, ip_version_bits, ip_version_4);
        copy(key_offset::source_ip + 12, &spec.mask.src_ip, &spec.val.src_ip, 4);
        copy(key_offset::destination_ip + 12, &spec.mask.dst_ip, &spec.val.dst_ip, 4);
        return 0;
    }

    [[nodiscard]] int ipv4_ext(const ibv_flow_spec_ipv4_ext& spec) {
        if (!none_from(spec.mask, offsetof(ibv_flow_ipv4_ext_filter, ttl))) return EOPNOTSUPP;
        set_bits(key_offset::l3_flags, ip_version_bits, ip_version_4);
        copy(key_offset::source_ip + 12, &spec.mask.src_ip, &spec.val.src_ip, 4);
        copy(key_offset::destination_ip + 12, &spec.mask.dst_ip, &spec.val.dst_ip, 4);
        set(key_offset::tos, spec.mask.tos, spec.val.tos);
        return protocol(spec.mask.proto, spec.val.proto);
    }

    [[nodiscard]] int ipv6(const ibv_flow_spec_ipv6& spec) {
        if (!none_from(spec.mask, offsetof(ibv_flow_ipv6_filter, hop_limit))) return EOPNOTSUPP;
        if ((be32toh(spec.mask.flow_label) | be32toh(spec.val.flow_label)) >> 20) return EINVAL;
        set_bits(key_offset::l3_flags, ip_version_bits, ip_version_6);
        copy(key_offset::source_ip, spec.mask.src_ip, spec.val.src_ip, 16);
        copy(key_offset::destination_ip, spec.mask.dst_ip, spec.val.dst_ip, 16);
        set(key_offset::tos, spec.mask.traffic_class, spec.val.traffic_class);
        copy_at(base_ == inner ? inner_flow_label : outer_flow_label, &spec.mask.flow_label, &spec.val.flow_label, 4);
        return protocol(spec.mask.next_hdr, spec.val.next_hdr);
    }

    [[nodiscard]] int esp(const ibv_flow_spec_esp& spec) {
        if (spec.mask.seq) return EOPNOTSUPP;
        copy_at(outer_esp_spi, &spec.mask.spi, &spec.val.spi, 4);
        return 0;
    }

    [[nodiscard]] int ports(const ibv_flow_spec_tcp_udp& spec, std::uint8_t number, unsigned source_port) {
        copy(source_port, &spec.mask.src_port, &spec.val.src_port, 2);
        copy(source_port + 2, &spec.mask.dst_port, &spec.val.dst_port, 2);
        return protocol(0xff, number);
    }

    [[nodiscard]] int gre(const ibv_flow_spec_gre& spec) {
        if (spec.mask.c_ks_res0_ver) return EOPNOTSUPP;
        copy_at(gre_protocol, &spec.mask.protocol, &spec.val.protocol, 2);
        copy_at(gre_key, &spec.mask.key, &spec.val.key, 4);
        return protocol(0xff, protocol_gre);
    }

    [[nodiscard]] int tunnel(const ibv_flow_spec_tunnel& spec) {
        const std::uint32_t mask = be32toh(spec.mask.tunnel_id), value = be32toh(spec.val.tunnel_id);
        if ((mask | value) >> 24) return EINVAL;
        const std::uint32_t shifted_mask = htobe32(mask << 8), shifted_value = htobe32(value << 8);
        copy_at(vxlan_vni, &shifted_mask, &shifted_value, 4);
        return 0;
    }

    /// The label's place depends on what stands before it in the list.
    [[nodiscard]] int mpls(const ibv_flow_spec_mpls& spec) {
        unsigned place = base_ == inner ? inner_mpls : first_mpls;
        if (previous_ == IBV_FLOW_SPEC_UDP) place = mpls_over_udp;
        if (previous_ == IBV_FLOW_SPEC_GRE) place = mpls_over_gre;
        copy_at(place, &spec.mask.label, &spec.val.label, 4);
        return 0;
    }

    [[nodiscard]] int protocol(std::uint8_t mask, std::uint8_t value) {
        if (mask == 0) return 0;
        std::uint8_t& known_mask = plan_.mask[base_ + key_offset::ip_protocol];
        std::uint8_t& known = plan_.value[base_ + key_offset::ip_protocol];
        value &= mask;
        if (known_mask != 0) return mask == known_mask && value == known ? 0 : EINVAL;
        known_mask = mask;
        known = value;
        return 0;
    }

    void set(unsigned offset, std::uint8_t mask, std::uint8_t value) {
        plan_.mask[base_ + offset] = mask;
        plan_.value[base_ + offset] = value & mask;
    }
    void set_bits(unsigned offset, std::uint8_t bits, std::uint8_t value) {
        std::uint8_t& known = plan_.value[base_ + offset];
        plan_.mask[base_ + offset] |= bits;
        known = static_cast<std::uint8_t>((known & ~bits) | value);
    }
    void copy(unsigned offset, const void* mask, const void* value, unsigned size) {
        copy_at(base_ + offset, mask, value, size);
    }
    void copy_at(unsigned offset, const void* mask, const void* value, unsigned size) {
        std::memcpy(&plan_.mask[offset], mask, size);
        std::memcpy(&plan_.value[offset], value, size);
        for (unsigned i = offset; i < offset + size; ++i) plan_.value[i] &= plan_.mask[i];
    }

    FlowPlan& plan_;
    unsigned base_ = 0;
    unsigned previous_ = 0;
};

[[nodiscard]] bool is_multicast_only(const ibv_flow_spec& first) {
    switch (static_cast<unsigned>(first.hdr.type)) {
        case IBV_FLOW_SPEC_IPV4:
        case IBV_FLOW_SPEC_IPV4_EXT:
            return multicast(first.ipv4.val.dst_ip) &&
                   multicast(first.hdr.type == IBV_FLOW_SPEC_IPV4 ? first.ipv4.mask.dst_ip
                                                                  : first.ipv4_ext.mask.dst_ip);
        case IBV_FLOW_SPEC_ETH:
            return multicast(first.eth.val.dst_mac) && multicast(first.eth.mask.dst_mac);
        default:
            return false;
    }
}

struct SizeOf {
    unsigned type;
    std::size_t size;
};
constexpr std::array spec_sizes{
    SizeOf{IBV_FLOW_SPEC_ETH, sizeof(ibv_flow_spec_eth)},
    SizeOf{IBV_FLOW_SPEC_IPV4, sizeof(ibv_flow_spec_ipv4)},
    SizeOf{IBV_FLOW_SPEC_IPV4_EXT, sizeof(ibv_flow_spec_ipv4_ext)},
    SizeOf{IBV_FLOW_SPEC_IPV6, sizeof(ibv_flow_spec_ipv6)},
    SizeOf{IBV_FLOW_SPEC_ESP, sizeof(ibv_flow_spec_esp)},
    SizeOf{IBV_FLOW_SPEC_TCP, sizeof(ibv_flow_spec_tcp_udp)},
    SizeOf{IBV_FLOW_SPEC_UDP, sizeof(ibv_flow_spec_tcp_udp)},
    SizeOf{IBV_FLOW_SPEC_VXLAN_TUNNEL, sizeof(ibv_flow_spec_tunnel)},
    SizeOf{IBV_FLOW_SPEC_GRE, sizeof(ibv_flow_spec_gre)},
    SizeOf{IBV_FLOW_SPEC_MPLS, sizeof(ibv_flow_spec_mpls)},
    SizeOf{IBV_FLOW_SPEC_ACTION_TAG, sizeof(ibv_flow_spec_action_tag)},
    SizeOf{IBV_FLOW_SPEC_ACTION_DROP, sizeof(ibv_flow_spec_action_drop)},
    SizeOf{IBV_FLOW_SPEC_ACTION_HANDLE, sizeof(ibv_flow_spec_action_handle)},
    SizeOf{IBV_FLOW_SPEC_ACTION_COUNT, sizeof(ibv_flow_spec_counter_action)},
};

/// Whether the specification is of a known type, and no shorter than that.
[[nodiscard]] bool well_formed(const ibv_flow_spec& spec) {
    const unsigned type = spec.hdr.type & ~static_cast<unsigned>(IBV_FLOW_SPEC_INNER);
    const auto found =
        std::find_if(spec_sizes.begin(), spec_sizes.end(), [type](const SizeOf& known) { return known.type == type; });
    return found != spec_sizes.end() && spec.hdr.size >= found->size;
}

/// An ethertype in full beside an IP specification must be that IP's; MPLS may stand between them. In part: EINVAL.
[[nodiscard]] bool ethertype_fits(const FlowPlan& plan, unsigned base, bool has_ip) {
    const std::uint16_t mask = load_be16(&plan.mask[base + key_offset::ethertype]);
    const std::uint16_t ethertype = load_be16(&plan.value[base + key_offset::ethertype]);
    if (!has_ip || mask == 0) return true;
    const bool v4 = (plan.value[base + key_offset::l3_flags] & ip_version_bits) == ip_version_4;
    return mask == 0xffff && (ethertype == (v4 ? 0x0800 : 0x86dd) || ethertype == 0x8847 || ethertype == 0x8848);
}

}  // namespace

std::uint8_t FlowPlan::criteria() const noexcept {
    std::uint8_t enabled = 0;
    for (unsigned block = 0; block < match_param_size / 64; ++block) {
        const auto* const first = mask.data() + block * 64;
        if (std::any_of(first, first + 64, [](std::uint8_t byte) { return byte != 0; })) {
            enabled = static_cast<std::uint8_t>(enabled | 1u << block);
        }
    }
    return enabled;
}

int plan_flow(const ibv_flow_attr& attr, FlowPlan& plan) {
    if (attr.num_of_specs > max_specs) return EINVAL;
    Translation translation(plan);
    const auto* at = reinterpret_cast<const std::byte*>(&attr + 1);
    for (unsigned i = 0; i < attr.num_of_specs; ++i) {
        // Specifications follow each other by their sizes, wherever that leads: a copy is aligned.
        ibv_flow_spec spec{};
        std::memcpy(&spec.hdr, at, sizeof spec.hdr);
        std::memcpy(&spec, at, std::min<std::size_t>(spec.hdr.size, sizeof spec));
        if (!well_formed(spec)) return EINVAL;
        if (i == 0) plan.multicast_only = is_multicast_only(spec);
        if (const int error = translation.add(spec); error != 0) return error;
        at += spec.hdr.size;
    }
    for (const unsigned base : {0u, inner}) {
        const bool has_ip = plan.mask[base + key_offset::l3_flags] & ip_version_bits;
        if (!ethertype_fits(plan, base, has_ip)) return EINVAL;
    }
    return 0;
}

}  // namespace ovsdr::soft
