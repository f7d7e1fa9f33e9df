// Megaflows for tests, as dpif-netdev makes them: in_port, recirc_id, the type and the presence of a tag are always
// matched; the vlan-limit is 1 unless a second tag is asked for.
#pragma once

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "offload/dr/megaflow.h"

namespace ovsdr::dr::test {

inline constexpr std::uint16_t vlan_present = 0x1000;

class MegaflowBuilder {
public:
    explicit MegaflowBuilder(std::uint32_t in_port = 1) {
        megaflow_.key.in_port = in_port;
        megaflow_.mask.in_port = UINT32_MAX;
        megaflow_.mask.recirc_id = UINT32_MAX;
        megaflow_.mask.be_vlan_tci[0] = htobe16(vlan_present);
        megaflow_.key.vlan_limit = 1;
    }

    MegaflowBuilder& eth_type(std::uint16_t type) {
        megaflow_.key.be_eth_type = htobe16(type);
        megaflow_.mask.be_eth_type = 0xFFFF;
        return *this;
    }
    MegaflowBuilder& ipv4() { return eth_type(0x0800).whole_packets(); }
    MegaflowBuilder& ipv6() {
        megaflow_.key.ipv6 = 1;
        return eth_type(0x86dd).whole_packets();
    }
    MegaflowBuilder& arp() {
        megaflow_.key.arp = 1;
        return eth_type(0x0806);
    }
    MegaflowBuilder& whole_packets() {
        megaflow_.key.ip_frag = 0;
        megaflow_.mask.ip_frag = 3;
        return *this;
    }
    MegaflowBuilder& proto(std::uint8_t protocol) {
        megaflow_.key.ip_proto = protocol;
        megaflow_.mask.ip_proto = 0xFF;
        return *this;
    }
    MegaflowBuilder& ports(std::uint16_t source, std::uint16_t destination) {
        megaflow_.key.be_tp_src = htobe16(source);
        megaflow_.key.be_tp_dst = htobe16(destination);
        megaflow_.mask.be_tp_src = megaflow_.mask.be_tp_dst = 0xFFFF;
        return *this;
    }
    /// Tagged, VID matched.
    MegaflowBuilder& vlan(std::uint16_t vid, std::uint16_t tpid = 0x8100) {
        megaflow_.key.be_vlan_tpid[0] = htobe16(tpid);
        megaflow_.key.be_vlan_tci[0] = htobe16(static_cast<std::uint16_t>(vid | vlan_present));
        megaflow_.mask.be_vlan_tci[0] = htobe16(vlan_present | 0xFFF);
        return *this;
    }
    MegaflowBuilder& vlan_limit(std::uint8_t limit) {
        megaflow_.key.vlan_limit = limit;
        return *this;
    }
    /// A second tag, VID matched.
    MegaflowBuilder& second_vlan(std::uint16_t vid, std::uint16_t tpid = 0x8100) {
        megaflow_.key.be_vlan_tpid[1] = htobe16(tpid);
        megaflow_.key.be_vlan_tci[1] = htobe16(static_cast<std::uint16_t>(vid | vlan_present));
        megaflow_.mask.be_vlan_tci[1] = htobe16(vlan_present | 0xFFF);
        return vlan_limit(2);
    }
    /// What the packet had that OVS made the megaflow of.
    MegaflowBuilder& perhaps_second_vlan() {
        megaflow_.key.be_vlan_tpid[1] = htobe16(0x8100);
        return vlan_limit(2);
    }
    MegaflowBuilder& no_second_vlan() {
        megaflow_.mask.be_vlan_tci[1] = htobe16(vlan_present);
        return vlan_limit(2);
    }
    MegaflowBuilder& output(std::uint32_t port) {
        ovsdr_action& action = next(OVSDR_ACTION_OUTPUT);
        action.output = port;
        return *this;
    }
    MegaflowBuilder& push(std::uint16_t vid, std::uint16_t tpid = 0x8100) {
        ovsdr_action& action = next(OVSDR_ACTION_PUSH_VLAN);
        action.push_vlan.be_tpid = htobe16(tpid);
        action.push_vlan.be_tci = htobe16(static_cast<std::uint16_t>(vid | vlan_present));
        return *this;
    }
    MegaflowBuilder& pop() {
        next(OVSDR_ACTION_POP_VLAN);
        return *this;
    }
    /// Behind a recirculation.
    MegaflowBuilder& behind(std::uint32_t recirc_id) {
        megaflow_.key.recirc_id = recirc_id;
        return *this;
    }
    MegaflowBuilder& recirc(std::uint32_t recirc_id) {
        next(OVSDR_ACTION_RECIRC).recirc_id = recirc_id;
        return *this;
    }
    /// All bits of the given bytes.
    MegaflowBuilder& set(ovsdr_header_field field, std::initializer_list<std::uint8_t> value) {
        ovsdr_set& set = next(OVSDR_ACTION_SET).set;
        set.field = static_cast<std::uint8_t>(field);
        std::copy(value.begin(), value.end(), set.value);
        std::fill_n(set.mask, value.size(), std::uint8_t{0xFF});
        return *this;
    }
    /// The last set action writes these bits only.
    MegaflowBuilder& under(std::initializer_list<std::uint8_t> mask) {
        ovsdr_set& set = megaflow_.actions[megaflow_.n_actions - 1].set;
        std::copy(mask.begin(), mask.end(), set.mask);
        for (std::size_t i = 0; i < mask.size(); ++i) {
            set.value[i] = static_cast<std::uint8_t>(set.value[i] & set.mask[i]);
        }
        return *this;
    }
    /// `header`: kept by the caller. Source ports as OVS's default has them. `out_port`: the underlay's.
    MegaflowBuilder& tunnel(const std::vector<std::uint8_t>& header, std::uint32_t out_port = 100) {
        ovsdr_tunnel_push& push = next(OVSDR_ACTION_TUNNEL_PUSH).tunnel_push;
        push = {header.data(), static_cast<std::uint16_t>(header.size()), 32768, 61000, out_port};
        return *this;
    }
    /// What is inside goes on as a packet of the tunnel port.
    MegaflowBuilder& tunnel_pop(std::uint32_t port) {
        next(OVSDR_ACTION_TUNNEL_POP).tunnel_port = port;
        return *this;
    }
    /// In_port is a tunnel port, of an IPv4 tunnel unless asked otherwise: as tnl_wc_init() of OVS masks, with a key.
    MegaflowBuilder& from_tunnel(std::uint64_t id) {
        ovsdr_tunnel_fields &key = megaflow_.tunnel_key, &mask = megaflow_.tunnel_mask;
        key.be_id = htobe64(id);
        mask.be_id = UINT64_MAX;
        const std::uint8_t source[] = {172, 16, 0, 1}, destination[] = {172, 16, 0, 2};
        std::copy_n(source, 4, key.src);
        std::copy_n(destination, 4, key.dst);
        std::fill_n(mask.src, 4, std::uint8_t{0xFF});
        std::fill_n(mask.dst, 4, std::uint8_t{0xFF});
        mask.tos = 0xFF;
        key.flags = OVSDR_TUNNEL_KEY;
        mask.flags = OVSDR_TUNNEL_KEY | OVSDR_TUNNEL_CSUM;
        return *this;
    }
    /// fd00::1 to fd00::2.
    MegaflowBuilder& over_ipv6() {
        ovsdr_tunnel_fields &key = megaflow_.tunnel_key, &mask = megaflow_.tunnel_mask;
        key.ipv6 = 1;
        for (std::uint8_t* address : {key.src, key.dst}) {
            std::fill_n(address, 16, std::uint8_t{0});
            address[0] = 0xfd;
        }
        key.src[15] = 1;
        key.dst[15] = 2;
        std::fill_n(mask.src, 16, std::uint8_t{0xFF});
        std::fill_n(mask.dst, 16, std::uint8_t{0xFF});
        return *this;
    }
    MegaflowBuilder& tunnel_flags(unsigned flags) {
        megaflow_.tunnel_key.flags = static_cast<std::uint8_t>(flags);
        return *this;
    }
    /// So many bytes of Geneve options, and no more is asked of them.
    MegaflowBuilder& options_size(std::uint8_t size) {
        megaflow_.tunnel_key.options_size = size;
        megaflow_.tunnel_mask.options_size = 0xFF;
        return *this;
    }
    /// One option of one word, and nothing else.
    MegaflowBuilder& option(std::uint16_t option_class, std::uint8_t type, std::uint32_t data,
                            std::uint32_t data_mask = UINT32_MAX) {
        const auto put = [](std::uint8_t (&to)[8], std::uint32_t header, std::uint32_t value) {
            const std::uint32_t words[] = {htobe32(header), htobe32(value)};
            std::memcpy(to, words, sizeof words);
        };
        constexpr std::uint32_t one_word = 1;
        put(megaflow_.tunnel_key.option, static_cast<std::uint32_t>(option_class) << 16 | type << 8 | one_word, data);
        put(megaflow_.tunnel_mask.option, 0xFFFFFF1F, data_mask);
        return options_size(8);
    }
    MegaflowBuilder& meter(std::uint32_t number) {
        next(OVSDR_ACTION_METER).meter = number;
        return *this;
    }
    /// `bytes` outlive the builder.
    MegaflowBuilder& software(std::string_view bytes, std::uint32_t one_of = 1) {
        next(OVSDR_ACTION_SOFTWARE).software = {.actions = reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                .actions_size = static_cast<std::uint16_t>(bytes.size()),
                                                .metered_from = 0,
                                                .meter = 0,
                                                .one_of = one_of,
                                                .name = "userspace"};
        return *this;
    }
    /// The last software action is for this one.
    MegaflowBuilder& for_sampler(const char* name) {
        megaflow_.actions[megaflow_.n_actions - 1].software.sampler = name;
        return *this;
    }
    /// As trunc(N),output(P), of which the bytes are the attributes.
    MegaflowBuilder& cut_output(std::string_view bytes, std::uint32_t cut_at, std::uint32_t port) {
        software(bytes);
        ovsdr_software& software = megaflow_.actions[megaflow_.n_actions - 1].software;
        software.cut_at = cut_at;
        software.output = port;
        software.name = "trunc";
        return *this;
    }
    /// The last software action's bytes begin with a meter, which has so many of them.
    MegaflowBuilder& behind_meter(std::uint32_t number, std::uint16_t size) {
        ovsdr_software& software = megaflow_.actions[megaflow_.n_actions - 1].software;
        software.metered_from = size;
        software.meter = number;
        return *this;
    }
    MegaflowBuilder& copy() {
        next(OVSDR_ACTION_COPY_BEGIN);
        return *this;
    }
    MegaflowBuilder& end_copy() {
        next(OVSDR_ACTION_COPY_END);
        return *this;
    }
    MegaflowBuilder& unsupported(const char* name) {
        next(OVSDR_ACTION_UNSUPPORTED).unsupported = name;
        return *this;
    }

    ovsdr_megaflow& raw() { return megaflow_; }
    operator const ovsdr_megaflow&() const { return megaflow_; }

private:
    ovsdr_action& next(ovsdr_action_type type) {
        ovsdr_action& action = megaflow_.actions[megaflow_.n_actions++];
        action.type = type;
        return action;
    }

    ovsdr_megaflow megaflow_{};
};

}  // namespace ovsdr::dr::test
