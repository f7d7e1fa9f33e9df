#include "naive_pipeline.hpp"

#include <algorithm>

#include "frames.hpp"

namespace ovsdr::soft::test {
namespace {

using What = NaiveEdit::What;

constexpr unsigned wire = 0xffff;  // the uplink, as source_port has it

constexpr Field plain_fields[] = {
    field::smac_47_16, field::smac_15_0, field::ethertype, field::dmac_47_16, field::dmac_15_0, field::first_prio,
    field::first_cfi, field::first_vid, field::ip_protocol, field::ip_dscp, field::ip_ecn, field::frag,
    field::tcp_flags, field::tcp_sport, field::tcp_dport, field::ttl, field::udp_sport, field::udp_dport,
    field::src_127_96, field::src_95_64, field::src_63_32, field::src_31_0, field::dst_127_96, field::dst_95_64,
    field::dst_63_32, field::dst_31_0, field::source_port, field::second_prio, field::second_cfi, field::second_vid,
    field::reg_c_1, field::reg_c_0, field::reg_c_3_low, field::reg_c_5_low,
    field::icmp_type, field::icmp_code, field::icmpv6_type, field::icmpv6_code,
    field::gre_protocol, field::gre_key_l, field::vxlan_vni, field::geneve_vni, field::outer_label, field::inner_label,
    field::inner_dmac_15_0, field::inner_smac_15_0, field::inner_ethertype, field::inner_first_vid,
    field::inner_protocol, field::inner_ttl, field::inner_tcp_sport, field::inner_udp_dport, field::inner_src_31_0,
    field::inner_dst_31_0, field::inner_frag, field::inner_second_vid, field::outer_seq, field::inner_seq,
    field::tunnel_0, field::mpls_over_gre, field::mpls_over_udp, field::gtpu_teid, field::gtpu_type, field::gtpu_dw_2,
    field::gtpu_extension, field::geneve_exists, field::geneve_option};

[[nodiscard]] int qualifier(const Parameters& of, Field customer, Field service) {
    return of.get(customer) != 0 ? 1 : of.get(service) != 0 ? 2 : 0;
}

[[nodiscard]] bool meets(const Parameters& packet, const Parameters& mask, const Parameters& value) {
    for (const Field& one : plain_fields) {
        if ((packet.get(one) & mask.get(one)) != value.get(one)) return false;
    }
    for (const Field version : {field::ip_version, field::inner_version}) {
        if (mask.get(version) != 0 && packet.get(version) != value.get(version)) return false;
    }
    if (qualifier(mask, field::cvlan_tag, field::svlan_tag) != 0 &&
        qualifier(packet, field::cvlan_tag, field::svlan_tag) != qualifier(value, field::cvlan_tag, field::svlan_tag)) {
        return false;
    }
    return qualifier(mask, field::second_cvlan, field::second_svlan) == 0 ||
           qualifier(packet, field::second_cvlan, field::second_svlan) ==
               qualifier(value, field::second_cvlan, field::second_svlan);
}

[[nodiscard]] bool tagged(const Bytes& frame, std::size_t at) {
    return frame.size() >= at + 6 &&
           ((frame[at] == 0x81 && frame[at + 1] == 0) || (frame[at] == 0x88 && frame[at + 1] == 0xa8));
}

void pop(Bytes& frame) {
    if (tagged(frame, 12)) frame.erase(frame.begin() + 12, frame.begin() + 16);
}

void push(Bytes& frame, std::uint32_t header) {
    const std::uint8_t bytes[] = {static_cast<std::uint8_t>(header >> 24), static_cast<std::uint8_t>(header >> 16),
                                  static_cast<std::uint8_t>(header >> 8), static_cast<std::uint8_t>(header)};
    frame.insert(frame.begin() + 12, bytes, bytes + 4);
}

void put16(Bytes& frame, std::size_t at, std::uint32_t value) {
    frame[at] = static_cast<std::uint8_t>(value >> 8);
    frame[at + 1] = static_cast<std::uint8_t>(value);
}

/// `parts` is what the frame has at present.
void edit_l3(Bytes& frame, const Parameters& parts, const NaiveEdit& edit) {
    std::size_t l3 = 14;
    for (int tag = 0; tag < 2 && tagged(frame, l3 - 2); ++tag) l3 += 4;
    const bool v4 = parts.get(field::ip_version) == 4;
    const bool whole = parts.get(field::frag) == 0;
    std::size_t l4 = l3 + (v4 ? 20 : 40);
    if (!v4 && (frame[l3 + 6] == 0 || frame[l3 + 6] == 44)) l4 += 8;
    const std::size_t udp_check = l4 + 6;
    const bool is_udp = parts.get(field::ip_protocol) == 17;
    const bool no_check = is_udp && frame.size() > udp_check + 1 && frame[udp_check] == 0 && frame[udp_check + 1] == 0;
    switch (edit.what) {
        case What::ttl:
            if (v4) frame[l3 + 8] = static_cast<std::uint8_t>(edit.value);
            break;
        case What::ttl_add:
            if (v4) frame[l3 + 8] = static_cast<std::uint8_t>(frame[l3 + 8] + edit.value);
            break;
        case What::dscp:
            if (v4) {
                frame[l3 + 1] = static_cast<std::uint8_t>((frame[l3 + 1] & 3) | edit.value << 2);
            } else {
                const unsigned traffic_class = ((frame[l3] << 8 | frame[l3 + 1]) >> 4 & 3) | edit.value << 2;
                put16(frame, l3, 0x6000 | traffic_class << 4 | (frame[l3 + 1] & 15));
            }
            break;
        case What::ipv4_source:
            if (v4) {
                put16(frame, l3 + 12, edit.value >> 16);
                put16(frame, l3 + 14, edit.value);
            }
            break;
        case What::udp_dport:
            if (whole && is_udp) put16(frame, l4 + 2, edit.value);
            break;
        case What::tcp_sport:
            if (whole && parts.get(field::ip_protocol) == 6) put16(frame, l4, edit.value);
            break;
        default: break;
    }
    fix_checksums(frame);
    if (no_check) put16(frame, udp_check, 0);
}

void edit_frame(Bytes& frame, const NaiveEdit& edit) {
    const std::optional<Parameters> parts = take_apart(frame);
    if (!parts) return;
    if (edit.what == What::dmac_15_0) {
        put16(frame, 4, edit.value);
    } else if (edit.what == What::first_vid) {
        if (tagged(frame, 12)) put16(frame, 14, (frame[14] << 8 & 0xf000) | edit.value);
    } else if (edit.what != What::reg_c_1 && parts->get(field::ip_version) != 0) {
        edit_l3(frame, *parts, edit);
    }
}

/// The device's part of a header that it puts before a packet: written field by field, checksum from scratch.
void encapsulate(Bytes& frame, const Bytes& header) {
    frame.insert(frame.begin(), header.begin(), header.end());
    const bool v4 = frame[12] == 0x08;
    const std::size_t l4 = v4 ? 34 : 54;
    if (v4) {
        put16(frame, 16, static_cast<std::uint32_t>(frame.size() - 14));
        put16(frame, 24, 0);
        std::uint32_t sum = 0;
        for (std::size_t at = 14; at < 34; at += 2) sum += frame[at] * 256U + frame[at + 1];
        while (sum > 0xffff) sum = sum % 0x10000 + sum / 0x10000;
        put16(frame, 24, 0xffff - sum);
    } else {
        put16(frame, 18, static_cast<std::uint32_t>(frame.size() - 54));
    }
    if (frame[v4 ? 23 : 20] != 17) return;
    put16(frame, l4 + 4, static_cast<std::uint32_t>(frame.size() - l4));
    put16(frame, l4 + 6, 0);
}

}  // namespace

void NaivePipeline::receive(unsigned vport, const Bytes& frame) {
    if (!take_apart(frame)) {
        ++malformed;
        return;
    }
    follow({frame, vport}, 1);
}

const NaiveRule* NaivePipeline::find(const Packet& packet, unsigned table) const {
    Parameters parts = *take_apart(packet.frame, parser);
    parts.set(field::source_port, packet.source).set(field::reg_c_1, packet.reg_c[1]);
    parts.set(field::reg_c_3_low, packet.reg_c[3]).set(field::reg_c_5_low, packet.reg_c[5]);
    parts.set(field::reg_c_0, static_cast<std::uint64_t>(packet.source) << 16);
    const NaiveRule* best = nullptr;
    unsigned best_priority = ~0U;
    for (const NaiveMatcher& matcher : matchers) {
        if (matcher.table != table || matcher.priority > best_priority) continue;
        for (const NaiveRule& rule : matcher.rules) {
            if (!meets(parts, matcher.mask, rule.value)) continue;
            best = &rule;  // a later matcher of the same priority is newer, and wins
            best_priority = matcher.priority;
            break;
        }
    }
    return best;
}

void NaivePipeline::ask_all(const NaiveProgram& program, bool first_hits, Packet& packet) const {
    for (const NaiveState& state : program.states) {
        if ((state.what == NaiveState::What::first_hit) != first_hits) continue;
        std::uint32_t& reg = packet.reg_c[state.reg_c];
        reg = (reg & ~0xffU) | ask(state, static_cast<std::uint8_t>(reg), packet.frame);
    }
}

/// What is sent is metered and tracked as it came and asked for first hits as it goes; what is received, the reverse.
void NaivePipeline::follow(Packet packet, unsigned table) {
    const NaiveRule* rule = find(packet, table);
    if (rule == nullptr) return leave(packet, {});
    const NaiveProgram program = rule->program;
    const bool received = packet.source == wire;
    if (!received) ask_all(program, false, packet);
    const std::size_t whole_size = packet.frame.size();
    if (program.decapsulates) {
        const std::optional<Carried> carried = carried_by(packet.frame, parser);
        if (!carried || carried->ip_version != 0) {
            ++malformed;
            return;
        }
        packet.frame = carried->packet;
    }
    for (unsigned i = 0; i < program.pops; ++i) pop(packet.frame);
    if (received) ask_all(program, true, packet);
    if (program.counter) {
        counters[*program.counter].packets += 1;
        counters[*program.counter].bytes += packet.source == wire ? packet.frame.size() : whole_size;
    }
    for (const NaiveEdit& edit : program.edits) {
        edit_frame(packet.frame, edit);
        if (edit.what == What::reg_c_1) packet.reg_c[1] = edit.value;
    }
    for (const std::uint32_t header : program.pushes) push(packet.frame, header);
    if (!program.encapsulation.empty()) encapsulate(packet.frame, program.encapsulation);
    ask_all(program, !received, packet);
    for (NaiveEnd end : program.ends) {
        // Of several destinations the wire may be one; as the only one it is not for what came from it.
        const bool back = end.kind == NaiveEnd::Kind::vport && end.number == wire && packet.source == wire;
        if (back && program.ends.size() == 1) end.kind = NaiveEnd::Kind::drop;
        leave(packet, end);
    }
}

void NaivePipeline::leave(const Packet& packet, const NaiveEnd& end) {
    switch (end.kind) {
        case NaiveEnd::Kind::miss: delivered[0].push_back(packet.frame); break;
        case NaiveEnd::Kind::drop: ++dropped; break;
        case NaiveEnd::Kind::vport: delivered[end.number].push_back(packet.frame); break;
        case NaiveEnd::Kind::table: follow(packet, end.number); break;
    }
}

}  // namespace ovsdr::soft::test
