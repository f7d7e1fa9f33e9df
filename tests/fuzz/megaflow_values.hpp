// Megaflows out of a fuzzer's bytes: any values that struct ovsdr_megaflow allows, those that mean something most of
// the time. The datapath's ports are dr ports (1, 2, 3, the uplink 9), tunnels (tunnel_ports) and storage mirrors
// (mirrors); its meters are `meters`, numbered from 1, and nobody has set number 6.
#pragma once

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "offload/dr/ids.hpp"
#include "offload/dr/megaflow.h"
#include "offload/dr/software.hpp"
#include "offload/meter/parameters.hpp"
#include "tests/fuzz/megaflow_check.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::fuzz {

inline constexpr std::uint32_t uplink = 9;
/// Of the kinds that there are; the last one is VXLAN on a port that no device's parser knows.
inline const dr::TunnelPort tunnel_ports[] = {{{20}, dr::TunnelKind::vxlan, 4789, "vxlan_sys_4789"},
                                              {{21}, dr::TunnelKind::geneve, 6081, "genev_sys_6081"},
                                              {{22}, dr::TunnelKind::gre, 0, "gre_sys"},
                                              {{23}, dr::TunnelKind::vxlan, 8472, "vxlan_sys_8472"}};

/// Of the last one no device has the like.
inline constexpr meter::Spec meters[] = {{.by_packets = true, .rate = 1, .burst = 1},
                                         {.by_packets = true, .rate = 1'000'000, .burst = 5000},
                                         {.rate = 1'000'000, .burst = 100'000},
                                         {.rate = 1, .burst = 128},
                                         {.bands = 2, .rate = 1, .burst = 128}};

struct Mirror {
    std::uint32_t odp;
    dr::CopyKind kind;
    dr::MirrorSteering steering{};
};
/// Of the second one's packets a sampler takes some, which not all devices have.
inline const Mirror mirrors[] = {{60, dr::mirror_kind(0)},
                                 {61, dr::mirror_kind(3), {.one_of = 4, .services = {{6, 3260}, {17, 4791}}}}};

struct MegaflowValue {
    ovsdr_megaflow megaflow{};
    std::vector<std::shared_ptr<std::vector<std::uint8_t>>> headers{};   ///< that its actions point to
};

/// Draws a megaflow of which each part is one that a device may take, most of the time: one odd part is enough to have
/// all of it refused. An input that has come to its end draws nothing odd.
class MegaflowDrawer {
public:
    explicit MegaflowDrawer(FuzzedDataProvider& input) noexcept : input_(input) {}

    MegaflowValue draw() {
        if (percent(15)) {
            match_before(a_tunnel());
        } else {
            match();
        }
        static const char* const names[] = {"ct_state", "tun_id"};
        if (odd()) megaflow().unsupported_match = {3, names};
        const auto length = input_.ConsumeIntegralInRange<std::uint32_t>(0, 6);
        megaflow().n_actions = odd() ? input_.ConsumeIntegralInRange<std::uint32_t>(0, 4000) : length;
        const auto kept = std::min<std::uint32_t>(megaflow().n_actions, OVSDR_MAX_ACTIONS);
        for (std::uint32_t i = 0; i < kept; ++i) action(megaflow().actions[i]);
        return std::move(value_);
    }

private:
    ovsdr_megaflow& megaflow() noexcept { return value_.megaflow; }
    bool percent(unsigned share) { return input_.ConsumeIntegralInRange<unsigned>(0, 99) >= 100 - share; }
    bool odd() { return percent(1); }
    template <typename T>
    T any() { return input_.ConsumeIntegral<T>(); }

    std::uint32_t port() {
        if (odd()) return input_.PickValueInArray<std::uint32_t>({4, 0, UINT32_MAX});
        return input_.PickValueInArray<std::uint32_t>({1, 2, 3, 9});
    }

    std::uint32_t output() {
        const auto die = input_.ConsumeIntegralInRange<unsigned>(0, 7);
        return die < 6 ? port() : mirrors[die - 6].odp;
    }

    const dr::TunnelPort& a_tunnel() {
        const std::size_t known = std::size(tunnel_ports) - 1;
        return tunnel_ports[odd() ? known : input_.ConsumeIntegralInRange<std::size_t>(0, known - 1)];
    }

    std::uint16_t eth_type() {
        if (odd()) return any<std::uint16_t>();
        if (percent(10)) {
            return input_.PickValueInArray<std::uint16_t>({0x0806, 0x8035, 0x8100, 0x88a8, 0x8847, 0x894f, 0x05ff, 0});
        }
        return percent(40) ? 0x86dd : 0x0800;
    }

    /// Bytes of a mask: none, all, or any.
    void mask_bytes(void* mask, std::size_t size) {
        const auto kind = input_.ConsumeIntegralInRange<unsigned>(0, 3);
        std::memset(mask, kind == 0 ? 0 : 0xFF, size);
        if (kind == 3) input_.ConsumeData(mask, size);
    }
    void field(auto& key, auto& mask) {
        input_.ConsumeData(&key, sizeof key);
        mask_bytes(&mask, sizeof mask);
    }

    /// Packets that may be those of a tunnel: pop_ names it.
    void match_before(const dr::TunnelPort& tunnel) {
        ovsdr_flow_fields &key = megaflow().key, &mask = megaflow().mask;
        pop_ = tunnel.odp_port.value;
        key.in_port = odd() ? port() : uplink;
        mask.in_port = UINT32_MAX;
        key.ipv6 = percent(30);
        key.be_eth_type = htobe16(key.ipv6 ? 0x86dd : 0x0800);
        mask.be_eth_type = 0xFFFF;
        key.vlan_limit = 1;
        mask.be_vlan_tci[0] = htobe16(odd() ? 0 : 0x1000);
        key.ip_proto = tunnel.kind == dr::TunnelKind::gre ? 47 : 17;
        mask.ip_proto = odd() ? 0 : 0xFF;
        mask.ip_frag = 3;
        if (tunnel.kind != dr::TunnelKind::gre) {
            key.be_tp_dst = htobe16(tunnel.udp_port);
            mask.be_tp_dst = odd() ? any<std::uint16_t>() : 0xFFFF;
        }
    }

    /// What packets of a tunnel port had around them, as OVS asks for it; or any bytes.
    void tunnel_fields(const dr::TunnelPort& tunnel) {
        ovsdr_tunnel_fields &key = megaflow().tunnel_key, &mask = megaflow().tunnel_mask;
        const bool gre = tunnel.kind == dr::TunnelKind::gre;
        key.ipv6 = percent(30);
        const std::size_t size = key.ipv6 ? 16 : 4;
        for (auto [to, to_mask] : {std::pair{key.src, mask.src}, {key.dst, mask.dst}}) {
            input_.ConsumeData(to, size);
            mask_bytes(to_mask, size);
        }
        key.be_id = htobe64(any<std::uint32_t>() & (gre ? UINT32_MAX : 0xFFFFFF));
        mask.be_id = percent(10) ? any<std::uint64_t>() : UINT64_MAX;
        field(key.tos, mask.tos);
        if (percent(20)) field(key.ttl, mask.ttl);
        if (!gre && percent(20)) field(key.be_tp_src, mask.be_tp_src);
        key.flags = OVSDR_TUNNEL_KEY;
        if (percent(10)) key.flags = any<std::uint8_t>();
        mask.flags = odd() ? any<std::uint8_t>() : OVSDR_TUNNEL_KEY | OVSDR_TUNNEL_CSUM;
        if (tunnel.kind == dr::TunnelKind::geneve) options();
        if (odd()) input_.ConsumeData(&key, sizeof key);
        if (odd()) input_.ConsumeData(&mask, sizeof mask);
    }

    void options() {
        ovsdr_tunnel_fields &key = megaflow().tunnel_key, &mask = megaflow().tunnel_mask;
        key.options_size = odd() ? any<std::uint8_t>() : static_cast<std::uint8_t>(4 * (any<std::uint8_t>() % 4));
        mask.options_size = percent(10) ? any<std::uint8_t>() : 0xFF;
        if (percent(40)) return;
        constexpr std::uint8_t class_type_and_length[] = {0xFF, 0xFF, 0xFF, 0x1F};
        const std::uint8_t header[] = {1, 2, static_cast<std::uint8_t>(0x80 + percent(20)), 1};
        key.options_size = 8;
        std::copy_n(header, sizeof header, key.option);
        std::copy_n(class_type_and_length, sizeof header, mask.option);
        input_.ConsumeData(key.option + 4, 4);
        mask_bytes(mask.option + 4, 4);
    }

    void match() {
        ovsdr_flow_fields &key = megaflow().key, &mask = megaflow().mask;
        if (odd()) {
            input_.ConsumeData(&key, sizeof key);
            input_.ConsumeData(&mask, sizeof mask);
        }
        key.in_port = port();
        if (percent(25)) {
            const dr::TunnelPort& tunnel = a_tunnel();
            key.in_port = tunnel.odp_port.value;
            tunnel_fields(tunnel);
        } else if (odd()) {
            tunnel_fields(a_tunnel());
        }
        mask.in_port = odd() ? any<std::uint32_t>() : UINT32_MAX;
        key.recirc_id = percent(30) ? 7 + any<std::uint8_t>() % 2 : 0;
        mask.recirc_id = odd() ? any<std::uint32_t>() : UINT32_MAX;
        key.be_eth_type = htobe16(eth_type());
        mask.be_eth_type = odd() ? any<std::uint16_t>() : 0xFFFF;
        key.ipv6 = key.be_eth_type == htobe16(0x86dd);
        key.arp = key.be_eth_type == htobe16(0x0806) || key.be_eth_type == htobe16(0x8035);
        key.vlan_limit = percent(40) ? 2 : 1;
        key.reserved = mask.reserved = mask.vlan_limit = mask.ipv6 = mask.arp = 0;
        key.ip_frag = percent(5) ? any<std::uint8_t>() & 3 : 0;
        tags();
        if (percent(30)) field(key.eth_dst, mask.eth_dst);
        if (percent(30)) field(key.eth_src, mask.eth_src);
        if (is_ip() || odd()) headers();
    }

    [[nodiscard]] bool is_ip() { return megaflow().key.ipv6 != 0 || megaflow().key.be_eth_type == htobe16(0x0800); }

    void tags() {
        ovsdr_flow_fields &key = megaflow().key, &mask = megaflow().mask;
        tags_ = percent(40) ? input_.ConsumeIntegralInRange<unsigned>(1, key.vlan_limit) : 0;
        for (unsigned i = 0; i < 2; ++i) {
            if (i < tags_) {
                key.be_vlan_tpid[i] = htobe16(odd() ? any<std::uint16_t>() : percent(30) ? 0x88a8 : 0x8100);
                field(key.be_vlan_tci[i], mask.be_vlan_tci[i]);
                key.be_vlan_tci[i] |= htobe16(0x1000);
                if (percent(50)) mask.be_vlan_tpid[i] = 0xFFFF;
            }
            if (i < key.vlan_limit && i <= tags_ && !odd()) mask.be_vlan_tci[i] |= htobe16(0x1000);
        }
    }

    void headers() {
        ovsdr_flow_fields &key = megaflow().key, &mask = megaflow().mask;
        mask.ip_frag = 3;
        if (percent(30)) field(key.src, mask.src);
        if (percent(30)) field(key.dst, mask.dst);
        if (!key.ipv6) {
            std::memset(key.src + 4, 0, 12);
            std::memset(key.dst + 4, 0, 12);
            std::memset(mask.src + 4, 0, 12);
            std::memset(mask.dst + 4, 0, 12);
        }
        if (percent(15)) field(key.ip_tos, mask.ip_tos);
        if (percent(15)) field(key.ip_ttl, mask.ip_ttl);
        if (key.ipv6 && percent(10)) field(key.be_ipv6_label, mask.be_ipv6_label);
        if (percent(30)) return;
        const std::uint8_t icmp = key.ipv6 ? 58 : 1;
        key.ip_proto = odd() ? any<std::uint8_t>() : input_.PickValueInArray<std::uint8_t>({6, 6, 17, 17, icmp, 132});
        mask.ip_proto = 0xFF;
        const bool has_ports = key.ip_proto == 6 || key.ip_proto == 17;
        if (has_ports ? percent(40) : percent(10)) field(key.be_tp_src, mask.be_tp_src);
        if (has_ports ? percent(40) : percent(10)) field(key.be_tp_dst, mask.be_tp_dst);
        if (key.ip_proto == 6 && percent(10)) field(key.be_tcp_flags, mask.be_tcp_flags);
    }

    /// As tunnels' headers are, or any bytes.
    std::vector<std::uint8_t> header() {
        namespace headers = dr::test;
        std::vector<std::uint8_t> bytes;
        switch (input_.ConsumeIntegralInRange<unsigned>(0, 4)) {
            case 0: bytes = headers::vxlan(any<std::uint8_t>()); break;
            case 1: bytes = headers::vxlan_over(headers::outer_ipv6(17)); break;
            case 2: bytes = headers::geneve(input_.ConsumeIntegralInRange<unsigned>(0, 20)); break;
            case 3: bytes = headers::gre(headers::outer_ipv4(47)); break;
            default: bytes = headers::gre(headers::outer_ipv6(47), 0);
        }
        if (percent(15)) bytes[input_.ConsumeIntegralInRange<std::size_t>(0, bytes.size() - 1)] ^= any<std::uint8_t>();
        if (odd()) bytes.resize(input_.ConsumeIntegralInRange<unsigned>(0, OVSDR_MAX_TUNNEL_HEADER));
        return bytes;
    }

    /// A field of the packet's own headers.
    std::uint8_t header_field() {
        const bool ipv6 = megaflow().key.ipv6 != 0;
        if (odd()) return input_.ConsumeIntegralInRange<std::uint8_t>(0, set_sizes.size() - 1);
        if (!is_ip() || percent(30)) return percent(50) ? OVSDR_HEADER_ETH_SRC : OVSDR_HEADER_ETH_DST;
        const std::uint8_t proto = megaflow().key.ip_proto;
        if ((proto == 6 || proto == 17) && percent(30)) {
            return static_cast<std::uint8_t>((proto == 6 ? OVSDR_HEADER_TCP_SRC : OVSDR_HEADER_UDP_SRC) + percent(50));
        }
        if (percent(50)) return percent(30) ? OVSDR_HEADER_IP_TOS : OVSDR_HEADER_IP_TTL;
        return static_cast<std::uint8_t>((ipv6 ? OVSDR_HEADER_IPV6_SRC : OVSDR_HEADER_IP_SRC) + percent(50));
    }

    /// The bits of a field; of the value none that are not in the mask, and the mask is not empty.
    ovsdr_set set() {
        ovsdr_set set{};
        set.field = header_field();
        const std::size_t size = set_sizes[set.field];
        mask_bytes(set.mask, size);
        if (std::all_of(set.mask, set.mask + size, [](std::uint8_t byte) { return byte == 0; })) set.mask[0] = 0xFC;
        input_.ConsumeData(set.value, size);
        for (std::size_t i = 0; i < size; ++i) set.value[i] &= set.mask[i];
        return set;
    }

    ovsdr_action_type action_type() {
        if (odd()) return OVSDR_ACTION_UNSUPPORTED;
        if (pop_ != 0 ? percent(70) : odd()) return OVSDR_ACTION_TUNNEL_POP;
        const auto die = input_.ConsumeIntegralInRange<unsigned>(0, 21);
        if (in_tunnel_ || die < 9) return OVSDR_ACTION_OUTPUT;
        if (die < 12) return OVSDR_ACTION_SET;
        if (die < 13) return OVSDR_ACTION_METER;
        if (die < 15) return OVSDR_ACTION_PUSH_VLAN;
        if (die < 16) return OVSDR_ACTION_POP_VLAN;
        if (die < 17) return OVSDR_ACTION_RECIRC;
        if (die < 18) return OVSDR_ACTION_TUNNEL_PUSH;
        if (die < 20) return OVSDR_ACTION_SOFTWARE;
        if (open_copies_ == 0) return OVSDR_ACTION_COPY_BEGIN;
        return OVSDR_ACTION_COPY_END;
    }

    void action(ovsdr_action& action) {
        action.type = action_type();
        switch (action.type) {
            case OVSDR_ACTION_OUTPUT: action.output = output(); break;
            case OVSDR_ACTION_PUSH_VLAN:
                action.push_vlan.be_tpid = htobe16(odd() ? any<std::uint16_t>() : percent(30) ? 0x88a8 : 0x8100);
                action.push_vlan.be_tci = any<std::uint16_t>();
                break;
            case OVSDR_ACTION_SET: action.set = set(); break;
            case OVSDR_ACTION_TUNNEL_PUSH: tunnel_push(action.tunnel_push); break;
            case OVSDR_ACTION_TUNNEL_POP:
                action.tunnel_port = odd() || pop_ == 0 ? any<std::uint8_t>() : pop_;
                break;
            case OVSDR_ACTION_RECIRC:
                action.recirc_id = input_.PickValueInArray<std::uint32_t>({7, 8, 9});
                break;
            case OVSDR_ACTION_SOFTWARE: software(action.software); break;
            case OVSDR_ACTION_METER: action.meter = input_.PickValueInArray<std::uint32_t>({1, 2, 3, 4, 5, 6}); break;
            case OVSDR_ACTION_UNSUPPORTED: action.unsupported = "ct"; break;
            case OVSDR_ACTION_COPY_BEGIN: ++open_copies_; break;
            case OVSDR_ACTION_COPY_END: --open_copies_; break;
            default: break;
        }
    }

    void tunnel_push(ovsdr_tunnel_push& push) {
        value_.headers.push_back(std::make_shared<std::vector<std::uint8_t>>(header()));
        const auto& bytes = *value_.headers.back();
        push = {bytes.data(), static_cast<std::uint16_t>(bytes.size()), 32768, 61000};
        in_tunnel_ = !odd();
    }

    void software(ovsdr_software& software) {
        static constexpr std::uint8_t bytes[OVSDR_MAX_SOFTWARE_ACTIONS] = {};
        const auto size = input_.PickValueInArray<std::uint16_t>({1, 2, 3, OVSDR_MAX_SOFTWARE_ACTIONS});
        const auto one_of = input_.PickValueInArray<std::uint32_t>({1, 1, 2, 64});
        const bool metered = size > 2 && !odd();
        software = {.actions = bytes,
                    .actions_size = size,
                    .metered_from = static_cast<std::uint16_t>(metered ? 2 : 0),
                    .meter = metered ? input_.PickValueInArray<std::uint32_t>({1, 2, 3, 4, 5, 6}) : 0,
                    .one_of = odd() ? std::max(1U, any<std::uint32_t>()) : one_of,
                    .name = "userspace"};
        if (!percent(20)) return;
        software.cut_at = input_.PickValueInArray<std::uint32_t>({14, 128, UINT32_MAX});
        software.output = output();
    }

    FuzzedDataProvider& input_;
    MegaflowValue value_;
    unsigned tags_ = 0;
    int open_copies_ = 0;
    bool in_tunnel_ = false;
    std::uint32_t pop_ = 0;   ///< the tunnel that this megaflow's packets are taken out of
};

}  // namespace ovsdr::fuzz
