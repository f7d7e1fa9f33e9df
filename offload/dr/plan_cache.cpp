#include "offload/dr/plan_cache.hpp"

#include <cstddef>
#include <utility>

namespace ovsdr::dr {

namespace {

constexpr std::uint8_t proto_tcp = 6, proto_udp = 17;

/// Neighbours in the key are neighbours in the device's structure, both as on the wire.
template <std::size_t size>
void copy(const ovsdr_flow_fields& key, std::size_t offset, prm::Field first, const MatchParam& mask,
          MatchParam& value) noexcept {
    const std::size_t place = first.bit_offset / 8;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&key) + offset;
    for (std::size_t i = 0; i < size; ++i) {
        value.bytes[place + i] = static_cast<std::uint8_t>(bytes[i] & mask.bytes[place + i]);
    }
}

static_assert(offsetof(ovsdr_flow_fields, be_tp_dst) == offsetof(ovsdr_flow_fields, be_tp_src) + 2);

}  // namespace

PlanCache::Stored PlanCache::store(const ovsdr_megaflow& given, MegaflowParts& parts) {
    {
        Place& place = place_of(StoredMegaflow::shape_hash(given));
        std::lock_guard lock(place.mutex);
        if (place.plan != nullptr && place.shape.has_shape_of(given)) {
            return {StoredMegaflow(place.shape, given.key), place.plan};
        }
    }
    return {StoredMegaflow(given, parts), nullptr};
}

std::shared_ptr<const RulePlan> PlanCache::find(const StoredMegaflow& megaflow) noexcept {
    Place& place = place_of(megaflow.shape_hash());
    std::lock_guard lock(place.mutex);
    if (place.plan == nullptr || !place.shape.has_shape_of(megaflow)) return nullptr;
    return place.plan;
}

void PlanCache::remember(const StoredMegaflow& megaflow, std::shared_ptr<const RulePlan> plan) noexcept {
    Place& place = place_of(megaflow.shape_hash());
    StoredMegaflow shape = megaflow;
    std::lock_guard lock(place.mutex);
    std::swap(place.shape, shape);   // the one before goes without the lock
    place.plan = std::move(plan);
}

void PlanCache::forget() noexcept {
    for (Place& place : places_) {
        std::lock_guard lock(place.mutex);
        place.shape = StoredMegaflow();
        place.plan = nullptr;
    }
}

MatchParam PlanCache::value_of(const ovsdr_flow_fields& key, const MatchPlan& match) noexcept {
    const MatchParam& mask = match.mask;
    MatchParam value = match.value;
    copy<6>(key, offsetof(ovsdr_flow_fields, eth_dst), field::dmac_47_16, mask, value);
    copy<6>(key, offsetof(ovsdr_flow_fields, eth_src), field::smac_47_16, mask, value);
    if (match.l3 == L3::ipv4) {
        copy<4>(key, offsetof(ovsdr_flow_fields, src), field::src_ip[3], mask, value);
        copy<4>(key, offsetof(ovsdr_flow_fields, dst), field::dst_ip[3], mask, value);
    } else if (match.l3 == L3::ipv6) {
        copy<16>(key, offsetof(ovsdr_flow_fields, src), field::src_ip[0], mask, value);
        copy<16>(key, offsetof(ovsdr_flow_fields, dst), field::dst_ip[0], mask, value);
    }
    constexpr std::size_t ports = offsetof(ovsdr_flow_fields, be_tp_src);
    if (match.protocol == proto_tcp) copy<4>(key, ports, field::tcp_sport, mask, value);
    if (match.protocol == proto_udp) copy<4>(key, ports, field::udp_sport, mask, value);
    return value;
}

}  // namespace ovsdr::dr
