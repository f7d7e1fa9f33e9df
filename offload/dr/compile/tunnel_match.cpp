#include "offload/dr/compile/tunnel_match.hpp"

#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

namespace ovsdr::dr {

namespace {

constexpr std::uint16_t vxlan_port = 4789, geneve_port = 6081;   // of the device's parser
constexpr std::uint8_t proto_udp = 17, proto_gre = 47;
constexpr std::uint32_t ethernet_payload = 0x6558;
constexpr unsigned vni_bits = 24, gre_key_bits = 32;
constexpr std::uint16_t ethernet_size = 14, ipv4_size = 20, udp_size = 8, vxlan_size = 8, geneve_size = 8, gre_size = 4,
                        gre_key_size = 4, geneve_word = 4;
constexpr std::uint32_t ihl_without_options = 5;

StaticName name_of(TunnelKind kind) noexcept {
    switch (kind) {
        case TunnelKind::vxlan: return "tnl_pop of VXLAN";
        case TunnelKind::geneve: return "tnl_pop of Geneve";
        case TunnelKind::gre: return "tnl_pop of GRE";
    }
    return "tnl_pop";
}

std::uint32_t word_at(const std::uint8_t* bytes) noexcept {
    std::uint32_t word;
    std::memcpy(&word, bytes, sizeof word);
    return be32toh(word);
}

struct FieldName {
    std::size_t offset, size;
    StaticName name;
};

#define OVSDR_FIELD(MEMBER) offsetof(ovsdr_tunnel_fields, MEMBER), sizeof(ovsdr_tunnel_fields::MEMBER)

/// As ovs-fields(7) has them.
constexpr FieldName field_names[] = {
    {OVSDR_FIELD(be_id), "tun_id"},         {OVSDR_FIELD(src), "tun_src"},
    {OVSDR_FIELD(dst), "tun_dst"},          {OVSDR_FIELD(be_tp_src), "tun_tp_src"},
    {OVSDR_FIELD(be_tp_dst), "tun_tp_dst"}, {OVSDR_FIELD(ipv6), "tun_ipv6"},
    {OVSDR_FIELD(tos), "tun_tos"},          {OVSDR_FIELD(ttl), "tun_ttl"},
    {OVSDR_FIELD(flags), "tun_flags"},      {OVSDR_FIELD(options_size), "tun_metadata"},
    {OVSDR_FIELD(option), "tun_metadata"},  {OVSDR_FIELD(reserved), "reserved"},
};

#undef OVSDR_FIELD

consteval bool names_cover_every_byte() {
    std::size_t end = 0;
    for (const FieldName& field : field_names) {
        if (field.offset != end) return false;
        end += field.size;
    }
    return end == sizeof(ovsdr_tunnel_fields);
}
static_assert(names_cover_every_byte());

/// Of the headers whose packets OVS's tnl_pop takes an Ethernet frame out of, those that the device's parser reads so.
/// VXLAN-GPE is left out: what is inside is told by its next protocol.
void ask_for_header(TunnelKind kind, MatchPlan& match) noexcept {
    constexpr std::uint32_t vxlan_flags = 0x08000000, vxlan_reserved = 0xFF;
    constexpr std::uint32_t geneve_version = 0xC0000000, gre_key_present = 0x20000000, protocol = 0xFFFF;
    switch (kind) {
        case TunnelKind::vxlan:
            match.ask(field::tunnel_header_0, vxlan_flags, UINT32_MAX);
            return match.ask(field::tunnel_header_1, 0, vxlan_reserved);
        case TunnelKind::geneve: return match.ask(field::tunnel_header_0, ethernet_payload, geneve_version | protocol);
        case TunnelKind::gre: return match.ask(field::tunnel_header_0, ethernet_payload, ~gre_key_present);
    }
}

/// As compile_match(): each step clears what it dealt with; a bit that is left over is refused under its field's name.
class TunnelMatcher {
public:
    TunnelMatcher(const TunnelFields& fields, const TunnelPort& tunnel, const DeviceCaps& caps, const Choices& choices,
                  MatchPlan& plan, Obstacles& obstacles) noexcept
        : key_(fields.key), mask_(fields.mask), tunnel_(tunnel), caps_(caps), choices_(choices), plan_(plan),
          obstacles_(obstacles) {}

    void run() {
        ip();
        ports();
        flags();
        switch (tunnel_.kind) {
            case TunnelKind::vxlan: number(field::vxlan_vni); break;
            case TunnelKind::geneve: geneve(); break;
            case TunnelKind::gre: gre(); break;
        }
        leftovers();
    }

private:
    void refuse(RejectReason reason, StaticName name, std::string value = {}) {
        obstacles_.add(reason, name, std::move(value));
    }

    [[nodiscard]] bool is_udp() const noexcept { return tunnel_.kind != TunnelKind::gre; }

    void ip() {
        const std::uint32_t version = key_.ipv6 != 0 ? 6 : 4;
        plan_.ask(field::ip_version, version, version);   // in the mask, too, the number stands for the whole field
        if (version == 4) plan_.ask(field::ipv4_ihl, ihl_without_options, prm::ones(field::ipv4_ihl.bits));
        plan_.ask(field::ip_dscp, key_.tos >> 2, mask_.tos >> 2);
        plan_.ask(field::ip_ecn, key_.tos & 3, mask_.tos & 3);
        mask_.tos = 0;
        plan_.ask(field::ip_ttl_hoplimit, key_.ttl, mask_.ttl);
        mask_.ttl = 0;
        address(field::src_ip, key_.src, mask_.src);
        address(field::dst_ip, key_.dst, mask_.dst);
    }

    void address(const std::array<prm::Field, 4>& fields, const std::uint8_t (&key)[16], std::uint8_t (&mask)[16]) {
        if (key_.ipv6 == 0) {
            plan_.ask(fields[3], word_at(key), word_at(mask));
            std::memset(mask, 0, 4);
            return;
        }
        for (std::size_t i = 0; i < fields.size(); ++i) {
            plan_.ask(fields[i], word_at(key + 4 * i), word_at(mask + 4 * i));
        }
        std::memset(mask, 0, sizeof mask);
    }

    /// GRE has none; OVS's are 0 then.
    void ports() {
        if (is_udp()) {
            plan_.ask(field::udp_sport, be16toh(key_.be_tp_src), be16toh(mask_.be_tp_src));
            plan_.ask(field::udp_dport, be16toh(key_.be_tp_dst), be16toh(mask_.be_tp_dst));
            mask_.be_tp_src = mask_.be_tp_dst = 0;
        } else {
            if ((key_.be_tp_src & mask_.be_tp_src) == 0) mask_.be_tp_src = 0;
            if ((key_.be_tp_dst & mask_.be_tp_dst) == 0) mask_.be_tp_dst = 0;
        }
    }

    void flags() {
        if (is_udp()) {   // GRE's checksum is in its header
            if ((mask_.flags & OVSDR_TUNNEL_CSUM) != 0 && choices_.exact_tunnel_flags) {
                refuse(RejectReason::device_limit, "tun_flags", " (other_config:dr-tunnel-flags=exact)");
            }
            const auto asked = static_cast<std::uint8_t>(mask_.flags & OVSDR_TUNNEL_CSUM);
            plan_.unseen_flags = static_cast<std::uint8_t>((key_.flags & asked) + asked);
            clear_flag(OVSDR_TUNNEL_CSUM);
        }
        // OVS sets KEY for each packet of these, and OAM for no others than Geneve's.
        if (is_udp() && (key_.flags & OVSDR_TUNNEL_KEY) != 0) clear_flag(OVSDR_TUNNEL_KEY);
        if (tunnel_.kind != TunnelKind::geneve && (key_.flags & OVSDR_TUNNEL_OAM) == 0) clear_flag(OVSDR_TUNNEL_OAM);
    }

    void clear_flag(std::uint8_t flag) noexcept { mask_.flags = static_cast<std::uint8_t>(mask_.flags & ~flag); }

    /// VNI, or GRE's key as far as it is in `field`.
    void number(prm::Field field, unsigned shift = 0) noexcept {
        const std::uint64_t bits = std::uint64_t{prm::ones(field.bits)} << shift;
        const std::uint64_t value = be64toh(key_.be_id), mask = be64toh(mask_.be_id);
        plan_.ask(field, static_cast<std::uint32_t>((value & bits) >> shift),
                  static_cast<std::uint32_t>((mask & bits) >> shift));
        std::uint64_t left = mask & ~bits;
        // Bits that no packet has: asked to be 0 they are no match.
        const std::uint64_t above = ~std::uint64_t{0} << (is_udp() ? vni_bits : gre_key_bits);
        if ((value & left & above) == 0) left &= ~above;
        mask_.be_id = htobe64(left);
    }

    void gre() {
        plan_.ask(field::gre_protocol, ethernet_payload, 0xFFFF);
        plan_.ask(field::gre_c_present, 0, 1);
        plan_.ask(field::gre_s_present, 0, 1);
        if ((key_.flags & mask_.flags & OVSDR_TUNNEL_CSUM) != 0) {
            refuse(RejectReason::unsupported_match, "tun_flags", "=csum (the device does not check a GRE checksum)");
        }
        clear_flag(OVSDR_TUNNEL_CSUM);
        // A packet without a key has the id 0.
        const bool keyed = (mask_.flags & OVSDR_TUNNEL_KEY) == 0 || (key_.flags & OVSDR_TUNNEL_KEY) != 0;
        clear_flag(OVSDR_TUNNEL_KEY);
        plan_.ask(field::gre_k_present, keyed ? 1 : 0, 1);
        if (keyed) {
            number(field::gre_key_h, 8);
            number(field::gre_key_l);
        } else if ((key_.be_id & mask_.be_id) == 0) {
            mask_.be_id = 0;
        }
    }

    void geneve() {
        number(field::geneve_vni);
        plan_.ask(field::geneve_protocol_type, ethernet_payload, 0xFFFF);
        if ((mask_.flags & OVSDR_TUNNEL_OAM) != 0) {
            plan_.ask(field::geneve_oam, (key_.flags & OVSDR_TUNNEL_OAM) != 0 ? 1 : 0, 1);
            clear_flag(OVSDR_TUNNEL_OAM);
        }
        const bool sized = mask_.options_size == 0xFF && key_.options_size % geneve_word == 0;
        if (sized) {
            plan_.ask(field::geneve_opt_len, key_.options_size / geneve_word, prm::ones(field::geneve_opt_len.bits));
            mask_.options_size = 0;
        }
        const bool any = std::ranges::any_of(mask_.option, [](std::uint8_t byte) { return byte != 0; });
        if (any) option(sized);
        std::memset(mask_.option, 0, sizeof mask_.option);
    }

    /// The first option, its class, type and length in the first word; whose place the device does not tell.
    void option(bool sized) {
        constexpr std::uint32_t header_bits = 0xFFFFFF1F, one_word = 1, length_bits = 0x1F;
        const std::uint32_t header = word_at(key_.option), header_mask = word_at(mask_.option);
        const std::uint32_t data = word_at(key_.option + 4), data_mask = word_at(mask_.option + 4);
        const bool alone = sized && key_.options_size == sizeof key_.option && (header & length_bits) == one_word;
        if (!alone) {
            return refuse(RejectReason::unsupported_match, "tun_metadata", " (more than one option of one word)");
        }
        if (header_mask != header_bits) {
            return refuse(RejectReason::unsupported_mask, "tun_metadata",
                          fmt::format("/{:#x} of an option's class, type and length", header_mask));
        }
        if (!caps_.geneve_option) {
            return refuse(RejectReason::device_limit, "tun_metadata", " (not in the device's parser profile)");
        }
        // The device looks for one option at a time: not for one that nobody wants to know of.
        if (data_mask == 0) {
            return refuse(RejectReason::unsupported_match, "tun_metadata", " (an option, and nothing of what it says)");
        }
        if (caps_.tells_geneve_option) {
            plan_.ask(field::geneve_tlv_option_0_exist, 1, 1);
        } else if ((data & data_mask) == 0) {
            return refuse(RejectReason::device_limit, "tun_metadata", "=0 (an option that is not there is 0, too)");
        }
        plan_.ask(field::geneve_tlv_option_0_data, data, data_mask);
        plan_.geneve_option = GeneveOption{static_cast<std::uint16_t>(header >> 16),
                                           static_cast<std::uint8_t>(header >> 8)};
    }

    void leftovers() {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(&mask_);
        for (const FieldName& field : field_names) {
            const std::span<const std::uint8_t> left(bytes + field.offset, field.size);
            if (std::ranges::any_of(left, [](std::uint8_t byte) { return byte != 0; })) {
                refuse(RejectReason::unsupported_match, field.name);
            }
        }
    }

    const ovsdr_tunnel_fields& key_;
    ovsdr_tunnel_fields mask_;
    const TunnelPort& tunnel_;
    const DeviceCaps& caps_;
    const Choices& choices_;
    MatchPlan& plan_;
    Obstacles& obstacles_;
};

}  // namespace

bool narrow_to_tunnel(MatchPlan& match, const TunnelPort& tunnel, const DeviceCaps& caps, const Choices& choices,
                      Obstacles& obstacles) {
    const StaticName name = name_of(tunnel.kind);
    const bool udp = tunnel.kind != TunnelKind::gre;
    const std::uint16_t parsed = tunnel.kind == TunnelKind::vxlan ? vxlan_port : geneve_port;
    if (tunnel.kind == TunnelKind::geneve && !caps.geneve) {
        obstacles.add(RejectReason::device_limit, name, " (not in the device's parser profile)");
        return false;
    }
    if (udp && tunnel.udp_port != parsed) {
        obstacles.add(RejectReason::device_limit, name,
                      fmt::format(" on UDP port {} (the device's parser has {})", tunnel.udp_port, parsed));
        return false;
    }
    const bool all_udp = match.protocol == proto_udp && match.mask.get(field::udp_dport) == 0xFFFF &&
                         match.value.get(field::udp_dport) == parsed;
    if (udp ? !all_udp : match.protocol != proto_gre) {
        obstacles.add(RejectReason::unsupported_match, name, ": packets that may be none");
        return false;
    }
    if (caps.matches_header_of(tunnel.kind)) {
        ask_for_header(tunnel.kind, match);
    } else if (choices.exact_tunnel_flags) {
        obstacles.add(RejectReason::device_limit, name,
                      ", whose reserved bits the device does not see (other_config:dr-tunnel-flags=exact)");
        return false;
    }
    return true;
}

void match_tunnel(const TunnelFields& fields, const TunnelPort& tunnel, const DeviceCaps& caps, const Choices& choices,
                  MatchPlan& plan, Obstacles& obstacles) {
    TunnelMatcher(fields, tunnel, caps, choices, plan, obstacles).run();
}

void match_no_tunnel(const TunnelFields& fields, Obstacles& obstacles) {
    const auto* key = reinterpret_cast<const std::uint8_t*>(&fields.key);
    const auto* mask = reinterpret_cast<const std::uint8_t*>(&fields.mask);
    unsigned asked = 0;   // no exit in between: the compiler takes many bytes at once
    for (std::size_t i = 0; i < sizeof fields.key; ++i) asked |= static_cast<unsigned>(key[i] & mask[i]);
    if (asked != 0) obstacles.add(RejectReason::unsupported_match, "tunnel", " of packets that come through none");
}

std::optional<std::uint16_t> fix_tunnel_size(const ovsdr_tunnel_fields& key, TunnelKind kind,
                                             MatchPlan& plan) noexcept {
    if (key.ipv6 != 0) return std::nullopt;
    std::size_t size = ethernet_size + ipv4_size;
    switch (kind) {
        case TunnelKind::vxlan: size += udp_size + vxlan_size; break;
        case TunnelKind::gre: size += gre_size + (plan.value.get(field::gre_k_present) != 0 ? gre_key_size : 0); break;
        case TunnelKind::geneve:
            plan.ask(field::geneve_opt_len, key.options_size / geneve_word, prm::ones(field::geneve_opt_len.bits));
            size += udp_size + geneve_size + key.options_size;
            break;
    }
    return static_cast<std::uint16_t>(size);
}

}  // namespace ovsdr::dr
