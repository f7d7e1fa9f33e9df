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
constexpr unsigned leads_percent = 65, way_out_percent = 50, no_masks_percent = 12, take_percent = 60,
                   shape_percent = 35;
constexpr std::size_t tries_for_one = 12;
constexpr std::size_t plentiful = 150;   ///< megaflows of a kind: of more, few are made behind recirculations
constexpr unsigned plentiful_percent = 40;
constexpr std::uint32_t first_recirc_id = 0x10;
constexpr std::uint16_t first_eth_type = 0x600;
constexpr std::uint8_t frag_any = 1;

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

Feature destination_of(const TunnelHeaders& headers) {
    return headers.ipv6 ? Feature::tun_ipv6_dst : Feature::tun_dst;
}

void add_features_of(const TunnelHeaders& headers, std::vector<Feature>& features) {
    const bool gre = headers.kind == TunnelKind::gre;
    if (!gre || headers.key) features.push_back(gre ? Feature::tun_key : Feature::tun_id);
    features.push_back(headers.ipv6 ? Feature::tun_ipv6_src : Feature::tun_src);
    features.insert(features.end(), {Feature::tun_tos, Feature::tun_ttl});
    if (!gre) features.insert(features.end(), {Feature::tun_tp_src, Feature::tun_tp_dst});
}

PatternBytes value_of(const ovsdr_tunnel_fields& seen, Feature feature) {
    switch (feature) {
        case Feature::tun_id:
        case Feature::tun_key: return number(be64toh(seen.be_id));
        case Feature::tun_src:
        case Feature::tun_ipv6_src: return right_aligned(seen.src, seen.ipv6 != 0 ? 16 : 4);
        case Feature::tun_dst:
        case Feature::tun_ipv6_dst: return right_aligned(seen.dst, seen.ipv6 != 0 ? 16 : 4);
        case Feature::tun_tos: return number(seen.tos);
        case Feature::tun_ttl: return number(seen.ttl);
        case Feature::tun_tp_src: return number(be16toh(seen.be_tp_src));
        case Feature::tun_tp_dst: return number(be16toh(seen.be_tp_dst));
        default: return {};
    }
}

/// That a class may be told apart by.
std::vector<Feature> features_of(const Megaflow& megaflow, bool connectx_5) {
    std::vector<Feature> features{Feature::eth_dst, Feature::eth_src};
    if (is_there(megaflow.tag)) features.insert(features.end(), {Feature::vid, Feature::pcp});
    if (is_there(megaflow.second)) features.insert(features.end(), {Feature::second_vid, Feature::second_pcp});
    if (megaflow.tunnel) add_features_of(*megaflow.tunnel, features);
    if (!megaflow.is_ip()) return features;
    features.insert(features.end(), {Feature::ip_src, Feature::ip_dst, Feature::tos, Feature::ttl});
    if (megaflow.eth_type == type_ipv6) features.push_back(Feature::label);
    if (megaflow.is_of_fragments()) return features;
    const std::uint8_t protocol = megaflow.protocol();
    const bool ports = protocol == protocol_tcp || protocol == protocol_udp;
    // Inside of a tunnel no device is known to find it.
    const std::uint8_t icmp_here = megaflow.eth_type == type_ipv4 ? protocol_icmp : protocol_icmpv6;
    const bool icmp = !megaflow.tunnel && !connectx_5 && protocol == icmp_here;
    if (ports || icmp) features.insert(features.end(), {Feature::tp_src, Feature::tp_dst});
    if (protocol == protocol_tcp) features.push_back(Feature::tcp_flags);
    return features;
}

/// Nothing: no megaflow is made of such a packet. `recipe`: of the packet, of which OVS has seen headers or has not.
std::optional<Megaflow> megaflow_of(const ovsdr_flow_fields& seen, const Recipe& recipe) {
    const std::uint16_t eth_type = be16toh(seen.be_eth_type);
    if (eth_type < first_eth_type) return std::nullopt;
    Megaflow megaflow{.recirc_id = seen.recirc_id, .in_port = seen.in_port, .eth_type = eth_type};
    if (is_tunnel_port(seen.in_port)) {
        megaflow.tunnel = recipe.tunnel;
        // Of those that are not asked for only the size matters: to OVS these two are one.
        GeneveOptions& options = megaflow.tunnel->options;
        if (options == GeneveOptions::other && !asks_for_options(*megaflow.tunnel)) options = GeneveOptions::usual;
    }
    megaflow.tag = tag_of(seen.be_vlan_tpid[0]);
    const bool sees_second = is_there(megaflow.tag) && vlan_limit_of(seen.in_port) > 1;
    megaflow.second = sees_second ? tag_of(seen.be_vlan_tpid[1]) : Tag::any;
    if ((seen.ip_frag & frag_any) != 0) megaflow.fragments = Fragments::any;
    // A broken header: a megaflow of any protocol would take packets of others, too.
    if (megaflow.is_ip() && seen.ip_proto == 0) return std::nullopt;
    // Of fragments over IPv6 later ones have another protocol than first ones.
    const bool has_protocol = !megaflow.is_of_fragments() || eth_type == type_ipv4;
    if (megaflow.is_ip() && has_protocol) megaflow[Feature::protocol] = {number(seen.ip_proto), ones(8)};
    return megaflow;
}

/// What the megaflow looks at, in the frames where it is.
void add_masks(const Megaflow& megaflow, MasksOfFrame& masks) {
    for (std::size_t i = 0; i < feature_length; ++i) {
        const auto feature = static_cast<Feature>(i);
        const bool inner = megaflow.tunnel && !is_of_tunnel(feature);
        PatternBytes& of_frame = (inner ? masks.inner : masks.outer)[static_cast<std::size_t>(in_underlay(feature))];
        const PatternBytes& mask = megaflow.patterns[i].mask;
        for (std::size_t k = 0; k < mask.size(); ++k) of_frame[k] |= mask[k];
    }
}

}  // namespace

struct Chains::Missed {
    TableId table;
    ovsdr_flow_fields seen;
    ovsdr_tunnel_fields tunnel;
    std::vector<std::uint32_t> taken;   ///< by these before
};

/// Remembers the packet that misses at some layer.
class Chains::Watcher final : public OvsJudge::Listener {
public:
    void output(std::uint32_t, std::span<const std::uint8_t>, std::size_t) override {}
    void taken(std::uint32_t version, const ovs_judge_packet&) override { taken_.push_back(version); }
    void missed(const ovs_judge_packet& packet, const ovs_judge_seen& seen) override {
        if (table_of(packet) == TableId{}) return;
        Missed one{table_of(packet), {}, {}, taken_};
        ovs_judge_read(&seen, &one.seen, &one.tunnel);
        all.push_back(std::move(one));
    }
    std::vector<Missed> all;

private:
    std::vector<std::uint32_t> taken_;
};

unsigned Chains::layer_of(TableId table) const {
    if (table.recirc_id != 0) return scenario_.tables.at(table.recirc_id).layer;
    return table.tunnel_port != 0 ? 1 : 0;
}

std::optional<std::uint32_t> Chains::next_table(TableId from) {
    if (!happens(chance_, leads_percent)) return std::nullopt;
    if (from.recirc_id != 0 && scenario_.tables.at(from.recirc_id).knotted) {
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

template <typename Leads>
std::vector<std::uint32_t> Chains::versions_that(Leads leads) const {
    std::vector<std::uint32_t> versions;
    for (std::uint32_t i = 0; i < scenario_.versions.size(); ++i) {
        if (std::ranges::any_of(scenario_.versions[i].actions, leads)) versions.push_back(i);
    }
    return versions;
}

void Chains::grow_tunnels(std::size_t length) {
    // Of Geneve there are many forms; of what comes over IPv6 a ConnectX-5 takes nothing.
    constexpr std::size_t percents[] = {14, 58, 15}, percents_of_connectx_5[] = {24, 58, 28};
    const std::size_t* const over_ipv4 = rarity_.of_connectx_5() ? percents_of_connectx_5 : percents;
    const std::size_t over_ipv6 = rarity_.of_connectx_5() ? 2 : 17;
    for (const TunnelKind kind : tunnel_kinds) {
        grow_tunnel(kind, type_ipv4, length * over_ipv4[static_cast<std::size_t>(kind)] / 100);
        grow_tunnel(kind, type_ipv6, length * over_ipv6 / 100);
    }
}

void Chains::grow_tunnel(TunnelKind kind, std::uint16_t eth_type, std::size_t length) {
    const TableId table{0, tunnel_port_of(kind)};
    const auto pops = [&](const Action& action) {
        return action.kind == Action::Kind::tunnel_pop && action.port == table.tunnel_port;
    };
    std::vector<std::uint32_t> parents = versions_that(pops);
    std::erase_if(parents, [&](std::uint32_t version) { return scenario_.versions[version].eth_type != eth_type; });
    grow_behind(parents, length, [&](const Missed& missed) { return missed.table == table; });
}

void Chains::grow(std::size_t length) {
    for (unsigned layer = 1; layer <= deepest_layer; ++layer) {
        const auto leads = [&](const Action& action) {
            return action.kind == Action::Kind::recirc && layer_of({action.port, 0}) == layer;
        };
        const auto is_there = [&](const Missed& missed) {
            return missed.table.recirc_id != 0 && layer_of(missed.table) == layer;
        };
        grow_behind(versions_that(leads), std::max<std::size_t>(1, length * share_of_layer[layer] / 100), is_there);
    }
}

template <typename IsWanted>
void Chains::grow_behind(const std::vector<std::uint32_t>& parents, std::size_t length, IsWanted is_wanted) {
    const std::size_t wanted = scenario_.versions.size() + length;
    for (std::size_t tries = 0; !parents.empty() && tries < tries_for_one * length; ++tries) {
        if (scenario_.versions.size() >= wanted) return;
        const std::uint32_t parent = parents[below(chance_, static_cast<std::uint32_t>(parents.size()))];
        Recipe recipe = aimed_at_version(parent, chance_);
        if (happens(chance_, 10)) change(recipe, scenario_.versions[parent], chance_);
        const auto frame = frame_of(recipe, 0, chance_);
        Watcher watcher;
        (void)ovs_.forward({recipe.in_port, 0, frame.data(), frame.size(), false}, watcher);
        for (const Missed& missed : watcher.all) {
            if (!is_wanted(missed) || !happens(chance_, take_percent)) continue;
            if (make_megaflow(missed, recipe)) break;   // the others' classes may be the same
        }
    }
}

MasksOfFrame Chains::masks_on_the_way(const Missed& missed) const {
    MasksOfFrame masks;
    for (const std::uint32_t version : missed.taken) add_masks(scenario_.versions[version], masks);
    return masks;
}

bool Chains::make_megaflow(const Missed& missed, const Recipe& recipe) {
    std::optional<Megaflow> made = megaflow_of(missed.seen, recipe);
    if (!made) return false;
    const Class one{made->recirc_id, made->in_port, made->tunnel, made->eth_type, made->tag, made->second,
                    made->protocol(), made->fragments};
    const bool is_plentiful = !made->tunnel && rarity_.drawn_like(*made) > plentiful;
    if (is_plentiful && !happens(chance_, plentiful_percent)) return false;
    const auto [of_class, is_new] = classes_.try_emplace(one);
    if (is_new) give_masks(*made, of_class->second);
    if (++of_class->second.megaflows > most_of_class) return false;
    const Masks& own = of_class->second.masks;
    for (std::size_t i = 0; i < feature_length; ++i) {
        const auto feature = static_cast<Feature>(i);
        if (feature == Feature::protocol) continue;
        const PatternBytes value = feature == Feature::tun_option ? recipe[feature]
                                   : is_of_tunnel(feature)        ? value_of(missed.tunnel, feature)
                                                                  : value_of(missed.seen, feature);
        made->patterns[i] = {both(value, own[i]), own[i]};
    }
    const bool nowhere = made->tunnel && (*made)[destination_of(*made->tunnel)].value == PatternBytes{};
    if (nowhere) return false;   // to OVS there is no tunnel without a destination
    Seed seed{recipe, masks_on_the_way(missed)};
    add_masks(*made, seed.masks);
    made->ufid = scenario_.ufids++;
    draw_metadata(chance_, *made);
    made->actions = actions_for(*made, of_class->second.shape);
    rarity_.add(*made);
    const auto version = static_cast<std::uint32_t>(scenario_.versions.size());
    ovs_.add(*made);
    ovs_.put(version);
    scenario_.versions.push_back(std::move(*made));
    seeds_.emplace(version, std::move(seed));
    return true;
}

/// OVS has some of the destination in each, and the first option's contents are what options are there for.
void Chains::add_tunnel_masks(const Megaflow& megaflow, Masks& masks) {
    const Feature destination = destination_of(*megaflow.tunnel);
    masks[static_cast<std::size_t>(destination)] = mask_for(megaflow, destination);
    if (!asks_for_options(*megaflow.tunnel) || !happens(chance_, 95)) return;
    masks[static_cast<std::size_t>(Feature::tun_option)] = mask_for(megaflow, Feature::tun_option);
}

PatternBytes Chains::mask_for(const Megaflow& megaflow, Feature feature) {
    const bool icmp = is_transport(feature) && megaflow.protocol() != protocol_tcp &&
                      megaflow.protocol() != protocol_udp;
    const unsigned bits = icmp ? 8 : bits_of(feature, megaflow.eth_type);
    return rarity_.wants_mask(megaflow, feature) ? part_of(chance_, bits) : ones(bits);
}

void Chains::give_masks(const Megaflow& megaflow, ClassOfPackets& of_class) {
    const bool has_shapes = !megaflow.is_of_fragments();
    if (has_shapes && happens(chance_, shape_percent)) of_class.shape = shape_like(chance_, shapes_, megaflow);
    if (of_class.shape == nullptr) {
        of_class.masks = masks_for(megaflow);
        return;
    }
    for (std::size_t i = 0; i < feature_length; ++i) {
        if (static_cast<Feature>(i) != Feature::protocol) of_class.masks[i] = of_class.shape->megaflow.patterns[i].mask;
    }
}

std::vector<Action> Chains::actions_for(Megaflow megaflow, const Shape* shape) {
    const NextTable next = [&] { return next_table(megaflow.table()); };
    if (shape == nullptr) return draw_actions(chance_, megaflow, next, rarity_);
    megaflow.actions = shape->megaflow.actions;
    draw_ports(chance_, megaflow, next);
    add_copies_and_meters(chance_, megaflow, rarity_.of_connectx_5(), megaflow.actions);
    return std::move(megaflow.actions);
}

Masks Chains::masks_for(const Megaflow& megaflow) {
    Masks masks{};
    if (megaflow.tunnel) add_tunnel_masks(megaflow, masks);
    if (happens(chance_, no_masks_percent)) return masks;
    std::vector<Feature> features = features_of(megaflow, rarity_.of_connectx_5());
    rarity_.sort(megaflow, features);
    features.resize(std::min<std::size_t>(features.size(), (megaflow.tunnel ? 6 : 4) + below(chance_, 6)));
    for (const Feature feature : features) masks[static_cast<std::size_t>(feature)] = mask_for(megaflow, feature);
    return masks;
}

Recipe Chains::aimed_at_version(std::uint32_t version, Chance& chance) const {
    const auto seed = seeds_.find(version);
    if (seed == seeds_.end()) return aimed_at(scenario_.versions[version], chance);
    Recipe recipe = seed->second.recipe;
    vary(recipe, seed->second.masks, chance);
    return recipe;
}

void Chains::replace(std::uint32_t old, std::uint32_t version) {
    const auto seed = seeds_.find(old);
    if (seed != seeds_.end()) seeds_[version] = Seed(seed->second);
}

}  // namespace ovsdr::differential
