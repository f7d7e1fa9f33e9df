#include "tests/differential/judge/ovs_judge.hpp"

#include <stdexcept>

namespace ovsdr::differential {

namespace {

/// No text says it of a second tag.
int looks_at_tags(const Megaflow& megaflow) {
    if (megaflow.tag == Tag::any) return 0;
    return is_there(megaflow.tag) && megaflow.second != Tag::any ? 2 : 1;
}

OvsJudge::Listener& listener(void* aux) { return *static_cast<OvsJudge::Listener*>(aux); }

constexpr ovs_judge_events events = {
    .output = [](void* aux, std::uint32_t port, const std::uint8_t* bytes, std::size_t size,
                 std::size_t source_port_at) { listener(aux).output(port, {bytes, size}, source_port_at); },
    .userspace = [](void* aux, const ovs_judge_packet* packet,
                    const ovs_judge_told* told) { listener(aux).userspace(*packet, *told); },
    .taken = [](void* aux, int number,
                const ovs_judge_packet* packet) { listener(aux).taken(static_cast<std::uint32_t>(number), *packet); },
    .missed = [](void* aux, const ovs_judge_packet* packet,
                 const ovs_judge_seen* seen) { listener(aux).missed(*packet, *seen); },
};

}  // namespace

OvsJudge::OvsJudge() : ovs_(ovs_judge_create()) {
    for (const TunnelKind kind : tunnel_kinds) {
        if (ovs_judge_add_tunnel_port(ovs_, tunnel_port_of(kind), name_of(kind))) continue;
        ovs_judge_destroy(ovs_);
        throw std::runtime_error("OVS makes no tunnel port");
    }
}

OvsJudge::~OvsJudge() { ovs_judge_destroy(ovs_); }

void OvsJudge::add(const Megaflow& megaflow) {
    const char* error = nullptr;
    const std::string match = match_text(megaflow), actions = actions_text(megaflow);
    const bool has_no_key = megaflow.tunnel && !megaflow.tunnel->key;
    const ovs_judge_megaflow text{match.c_str(), actions.c_str(), looks_at_tags(megaflow),
                                 megaflow.looks_for_zero_of(Metadata::tunnel), has_no_key,
                                 fragment_mask_of(megaflow.fragments)};
    ovs_judge_limit_vlans(vlan_limit_of(megaflow.in_port));
    ovsdr_megaflow& translated = translated_.emplace_back();
    if (!ovs_judge_add(ovs_, &text, &translated, &error)) throw std::runtime_error(error);
    ufids_.push_back(megaflow.ufid);
}

void OvsJudge::put(std::uint32_t version) {
    const auto there = versions_.find(ufids_.at(version));
    if (there != versions_.end()) remove(there->second);
    ovs_judge_put(ovs_, static_cast<int>(version));
    versions_[ufids_.at(version)] = version;
}

void OvsJudge::remove(std::uint32_t version) {
    ovs_judge_remove(ovs_, static_cast<int>(version));
    versions_.erase(ufids_.at(version));
}

void OvsJudge::set_meter(const MeterChange& change, std::uint32_t bytes_more) {
    meters_[change.number] = change.spec;
    if (!change.spec) return ovs_judge_set_meter(ovs_, change.number, nullptr);
    const MeterSpec& spec = *change.spec;
    const ovs_judge_meter meter{spec.by_packets, spec.bands, {spec.rate, 2 * spec.rate}, {spec.burst, 2 * spec.burst},
                                bytes_more};
    ovs_judge_set_meter(ovs_, change.number, &meter);
}

void OvsJudge::exhaust_meters() {
    for (std::uint32_t number = 1; number < meters_end; ++number) {
        if (meters_[number] && meters_[number]->is_exhausted) ovs_judge_exhaust_meter(ovs_, number);
    }
}

void OvsJudge::add_meter_counts(std::vector<MeterCounts>& to) const {
    to.resize(meters_end);
    for (std::uint32_t number = 1; number < meters_end; ++number) {
        const auto counts = ovs_judge_meter_counts(ovs_, number);
        to[number] += {counts.packets, counts.bytes, counts.dropped_packets, counts.dropped_bytes};
    }
}

bool OvsJudge::forward(const ovs_judge_packet& packet, Listener& to) const {
    ovs_judge_limit_vlans(vlan_limit_of(packet.in_port));
    return ovs_judge_forward(ovs_, &packet, &events, &to);
}

void OvsJudge::execute(const ovs_judge_packet& copy, const ovsdr_tunnel_fields& tunnel,
                       std::span<const std::uint8_t> actions, Listener& to) const {
    ovs_judge_execute(ovs_, &copy, &tunnel, actions.data(), actions.size(), &events, &to);
}

}  // namespace ovsdr::differential
