// Megaflows for tests, as dpif-netdev makes them: in_port, recirc_id, the type and the presence of a tag are always
// matched; the vlan-limit is 1 unless a second tag is asked for.
#pragma once

#include <endian.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
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
    /// `header`: kept by the caller. Source ports as OVS's default has them.
    MegaflowBuilder& tunnel(const std::vector<std::uint8_t>& header) {
        ovsdr_tunnel_push& push = next(OVSDR_ACTION_TUNNEL_PUSH).tunnel_push;
        push = {header.data(), static_cast<std::uint16_t>(header.size()), 32768, 61000, 0};
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
