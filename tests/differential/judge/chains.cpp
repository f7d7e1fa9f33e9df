#include "tests/differential/judge/chains.hpp"

#include <endian.h>

#include <algorithm>
#include <cstring>

#include "tests/differential/judge/action_list.hpp"
#include "tests/differential/judge/trees.hpp"

namespace ovsdr::differential {

namespace {

/// The most that OVS and the devices' levels allow.
constexpr unsigned deepest_layer = 6;
constexpr std::size_t tables_in_layer[] = {0, 10, 7, 5, 4, 3, 2};
/// Of the megaflows behind recirculations.
constexpr unsigned share_of_layer[] = {0, 46, 26, 12, 8, 5, 3};
constexpr std::size_t most_of_class = 8;
constexpr unsigned leads_percent = 65, way_out_percent = 50, no_masks_percent = 30, take_percent = 60,
                   whole_mask_percent = 60, scarce_percent = 60;
constexpr std::size_t tries_for_one = 8;
constexpr std::uint32_t first_recirc_id = 0x10;
constexpr std::uint16_t first_eth_type = 0x600;
constexpr std::uint8_t frag_any = 1, frag_later = 2;

Tag tag_of(std::uint16_t be_tpid) {
    const std::uint16_t tpid = be16toh(be_tpid);
    return tpid == customer_tag ? Tag::customer : tpid == service_tag ? Tag::service : Tag::none;
}

template <std::size_t size>
PatternBytes right_aligned(const std::uint8_t (&bytes)[size], std::size_t used = size) {
    PatternBytes aligned{};
    std::memcpy(aligned.data() + 16 - used, bytes, used);
    return aligned;
}

PatternBytes value_of(const ovsdr_flow_fields& seen, Feature feature) {
    const std::size_t address = seen.ipv6 != 0 ? 16 : 4;
    switch (feature) {
        case Feature::eth_dst: return right_aligned(seen.eth_dst);
        case Feature::eth_src: return right_aligned(seen.eth_src);
        case Feature::vid: return number(be16toh(seen.be_vlan_tci[0]) & 0xFFFU);
        case Feature::pcp: return number(be16toh(seen.be_vlan_tci[0]) >> 13);
        case Feature::second_vid: return number(be16toh(seen.be_vlan_tci[1]) & 0xFFFU);
        case Feature::second_pcp: return number(be16toh(seen.be_vlan_tci[1]) >> 13);
        case Feature::ip_src: return right_aligned(seen.src, address);
        case Feature::ip_dst: return right_aligned(seen.dst, address);
        case Feature::tos: return number(seen.ip_tos);
        case Feature::ttl: return number(seen.ip_ttl);
        case Feature::label: return number(be32toh(seen.be_ipv6_label));
        case Feature::protocol: return number(seen.ip_proto);
        case Feature::tp_src: return number(be16toh(seen.be_tp_src));
        case Feature::tp_dst: return number(be16toh(seen.be_tp_dst));
        case Feature::tcp_flags: return number(be16toh(seen.be_tcp_flags));
        default: return {};
    }
}

/// That a class may be told apart by.
std::vector<Feature> features_of(const Megaflow& megaflow) {
    std::vector<Feature> features{Feature::eth_dst, Feature::eth_src};
    if (is_there(megaflow.tag)) features.insert(features.end(), {Feature::vid, Feature::pcp});
    if (is_there(megaflow.second)) features.insert(features.end(), {Feature::second_vid, Feature::second_pcp});
    if (!megaflow.is_ip()) return features;
    features.insert(features.end(), {Feature::ip_src, Feature::ip_dst, Feature::tos, Feature::ttl});
    if (megaflow.eth_type == type_ipv6) features.push_back(Feature::label);
    const std::uint8_t protocol = megaflow.protocol();
    const bool ports = protocol == protocol_tcp || protocol == protocol_udp;
    const bool icmp = protocol == (megaflow.eth_type == type_ipv4 ? protocol_icmp : protocol_icmpv6);
    if (ports || icmp) features.insert(features.end(), {Feature::tp_src, Feature::tp_dst});
    if (protocol == protocol_tcp) features.push_back(Feature::tcp_flags);
    return features;
}

/// Nothing: no megaflow is made of such a packet.
std::optional<Megaflow> megaflow_of(const ovsdr_flow_fields& seen) {
    const std::uint16_t eth_type = be16toh(seen.be_eth_type);
    if (eth_type < first_eth_type || (seen.ip_frag & frag_later) != 0) return std::nullopt;
    Megaflow megaflow{.recirc_id = seen.recirc_id, .in_port = seen.in_port, .eth_type = eth_type};
    megaflow.tag = tag_of(seen.be_vlan_tpid[0]);
    const bool sees_second = is_there(megaflow.tag) && vlan_limit_of(seen.in_port) > 1;
    megaflow.second = sees_second ? tag_of(seen.be_vlan_tpid[1]) : Tag::any;
    megaflow.first_fragments = (seen.ip_frag & frag_any) != 0;
    if (megaflow.is_ip() && seen.ip_proto != 0) {
        megaflow[Feature::protocol] = {number(seen.ip_proto), ones(8)};
    }
    return megaflow;
}

}  // namespace

struct Chains::Missed {
    ovs_judge_packet packet;
    ovsdr_flow_fields seen;
    std::vector<std::uint32_t> taken;   ///< by these before
};

/// Remembers the packet that misses at some layer.
class Chains::Watcher final : public OvsJudge::Listener {
public:
    void output(std::uint32_t, std::span<const std::uint8_t>, std::size_t) override {}
    void taken(std::uint32_t version, const ovs_judge_packet&) override { taken_.push_back(version); }
    void missed(const ovs_judge_packet& packet) override {
        if (packet.recirc_id == 0) return;
        Missed one{packet, {}, taken_};
        ovs_judge_extract(&packet, &one.seen);
        all.push_back(std::move(one));
    }
    std::vector<Missed> all;

private:
    std::vector<std::uint32_t> taken_;
};

unsigned Chains::layer_of(std::uint32_t recirc_id) const {
    return recirc_id == 0 ? 0 : scenario_.tables.at(recirc_id).layer;
}

std::optional<std::uint32_t> Chains::next_table(std::uint32_t from) {
    if (!happens(chance_, leads_percent)) return std::nullopt;
    if (from != 0 && scenario_.tables.at(from).knotted) {
        if (happens(chance_, way_out_percent)) return std::nullopt;
        std::vector<std::uint32_t> knot;
        for (const auto& [recirc_id, table] : scenario_.tables) {
            if (table.knotted) knot.push_back(recirc_id);
        }
        return knot[below(chance_, static_cast<std::uint32_t>(knot.size()))];
    }
    const unsigned layer = layer_of(from);
    if (layer >= deepest_layer) return std::nullopt;
    auto& tables = layers_[layer + 1];
    if (tables.size() < tables_in_layer[layer + 1]) {
        const auto recirc_id = first_recirc_id + static_cast<std::uint32_t>(scenario_.tables.size());
        scenario_.tables[recirc_id] = {.layer = layer + 1, .knotted = tables.empty()};
        tables.push_back(recirc_id);
        return recirc_id;
    }
    return tables[below(chance_, static_cast<std::uint32_t>(tables.size()))];
}

void Chains::grow(std::size_t length) {
    for (unsigned layer = 1; layer <= deepest_layer; ++layer) {
        grow_layer(layer, std::max<std::size_t>(1, length * share_of_layer[layer] / 100));
    }
}

std::vector<std::uint32_t> Chains::leading_to(unsigned layer) const {
    std::vector<std::uint32_t> versions;
    for (std::uint32_t i = 0; i < scenario_.versions.size(); ++i) {
        const bool leads = std::ranges::any_of(scenario_.versions[i].actions, [&](const Action& action) {
            return action.kind == Action::Kind::recirc && layer_of(action.port) == layer;
        });
        if (leads) versions.push_back(i);
    }
    return versions;
}

void Chains::grow_layer(unsigned layer, std::size_t length) {
    const std::vector<std::uint32_t> parents = leading_to(layer);
    const std::size_t wanted = scenario_.versions.size() + length;
    for (std::size_t tries = 0; !parents.empty() && tries < tries_for_one * length; ++tries) {
        if (scenario_.versions.size() >= wanted) return;
        const std::uint32_t parent = parents[below(chance_, static_cast<std::uint32_t>(parents.size()))];
        Recipe recipe = aimed_at_version(parent);
        if (happens(chance_, 10)) change(recipe, scenario_.versions[parent], chance_);
        const auto frame = frame_of(recipe, 0, chance_);
        Watcher watcher;
        (void)ovs_.forward({recipe.in_port, 0, frame.data(), frame.size()}, watcher);
        for (const Missed& missed : watcher.all) {
            if (layer_of(missed.packet.recirc_id) != layer || !happens(chance_, take_percent)) continue;
            Masks masks{};
            for (const std::uint32_t version : missed.taken) {
                for (std::size_t i = 0; i < feature_length; ++i) {
                    const PatternBytes& mask = scenario_.versions[version].patterns[i].mask;
                    for (std::size_t k = 0; k < mask.size(); ++k) masks[i][k] |= mask[k];
                }
            }
            make_megaflow(missed, recipe, masks);
            break;   // the others' classes may be the same
        }
    }
}

void Chains::make_megaflow(const Missed& missed, const Recipe& recipe, const Masks& masks) {
    std::optional<Megaflow> made = megaflow_of(missed.seen);
    if (!made) return;
    const Class one{made->recirc_id, made->in_port, made->eth_type, made->tag, made->second, made->protocol(),
                    made->first_fragments};
    const auto [of_class, is_new] = classes_.try_emplace(one);
    if (is_new) of_class->second.masks = masks_for(*made);
    if (++of_class->second.megaflows > most_of_class) return;
    const Masks& own = of_class->second.masks;
    Seed seed{recipe, masks};
    for (std::size_t i = 0; i < feature_length; ++i) {
        const auto feature = static_cast<Feature>(i);
        if (feature == Feature::protocol) continue;
        made->patterns[i] = {both(value_of(missed.seen, feature), own[i]), own[i]};
        for (std::size_t k = 0; k < own[i].size(); ++k) seed.masks[i][k] |= own[i][k];
    }
    made->ufid = scenario_.ufids++;
    made->actions = draw_actions(chance_, *made, [&] { return next_table(made->recirc_id); });
    const auto version = static_cast<std::uint32_t>(scenario_.versions.size());
    ovs_.add(*made);
    ovs_.put(version);
    scenario_.versions.push_back(std::move(*made));
    seeds_.emplace(version, std::move(seed));
}

std::size_t& Chains::drawn(const Megaflow& megaflow, Feature feature) {
    return drawn_[{megaflow.eth_type, feature < Feature::tp_src ? std::uint8_t{0} : megaflow.protocol(), feature}];
}

Chains::Masks Chains::masks_for(const Megaflow& megaflow) {
    Masks masks{};
    if (happens(chance_, no_masks_percent)) return masks;
    std::vector<Feature> features = features_of(megaflow);
    std::ranges::shuffle(features, chance_);
    if (happens(chance_, scarce_percent)) {
        std::ranges::stable_sort(features, {}, [&](Feature feature) { return drawn(megaflow, feature); });
    }
    features.resize(std::min<std::size_t>(features.size(), 1 + below(chance_, 4)));
    for (const Feature feature : features) {
        PatternBytes& mask = masks[static_cast<std::size_t>(feature)];
        const bool whole = ++drawn(megaflow, feature) % 2 == 0 || happens(chance_, whole_mask_percent - 50);
        const bool icmp = feature >= Feature::tp_src && megaflow.protocol() != protocol_tcp &&
                          megaflow.protocol() != protocol_udp;
        if (icmp) {
            mask = whole ? ones(8) : part_of(chance_, 8);
        } else {
            mask = whole ? ones(bits_of(feature, megaflow.eth_type)) : random_mask(chance_, feature, megaflow.eth_type);
        }
    }
    return masks;
}

Recipe Chains::aimed_at_version(std::uint32_t version) {
    const auto seed = seeds_.find(version);
    if (seed == seeds_.end()) return aimed_at(scenario_.versions[version], chance_);
    Recipe recipe = seed->second.recipe;
    vary(recipe, seed->second.masks, chance_);
    return recipe;
}

void Chains::replace(std::uint32_t old, std::uint32_t version) {
    const auto seed = seeds_.find(old);
    if (seed != seeds_.end()) seeds_[version] = Seed(seed->second);
}

}  // namespace ovsdr::differential
