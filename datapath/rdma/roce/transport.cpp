#include "datapath/rdma/roce/transport.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/roce/link_mtu.hpp"
#include "datapath/steering/steering.hpp"

namespace ovsdr::soft::roce {

namespace {

/// Whether a frame's MAC address is that of the group which its IP header names.
[[nodiscard]] bool is_of_group(const std::byte* frame, const Arrival& arrival) noexcept {
    if (!is_multicast(arrival.destination)) return false;
    const auto mac = multicast_mac(arrival.destination);
    return std::memcmp(frame, mac.data(), mac.size()) == 0;
}

}  // namespace

bool Addresses::holds(const ibv_gid& gid, std::uint16_t vlan) const noexcept {
    return std::any_of(gids.begin(), gids.end(), [&gid, vlan](const GidEntry& entry) {
        return std::memcmp(&entry.gid, &gid, sizeof gid) == 0 && entry.vlan == vlan;
    });
}

bool Addresses::in_vlan(std::uint16_t vlan) const noexcept {
    return std::any_of(gids.begin(), gids.end(), [vlan](const GidEntry& entry) { return entry.vlan == vlan; });
}

Transport::Transport(DeviceState& state)
    : state_(state), sqn_(state.queue_numbers().take()), multicast_(state.device().steering()), neighbours_(*this) {
    read_addresses();
    Device& device = state_.device();
    for (unsigned worker = 0; worker < device.workers(); ++worker) {
        engines_.push_back(std::make_unique<Engine>(*this, worker, sqn_));
    }
    listener_ = device.add_listener([this](VportId vport, VportChange change) {
        if (vport == manager_vport && change == VportChange::mac) read_addresses();
    });
    device.steering().cotenant_send_rule(sqn_, uplink_vport);
    device.steering().set_transport({&Transport::take, this});
}

Transport::~Transport() {
    Device& device = state_.device();
    device.steering().set_transport({});
    device.steering().remove_cotenant_send_rule(sqn_);
    device.remove_listener(listener_);
}

void Transport::read_addresses() {
    auto addresses = std::make_unique<Addresses>();
    addresses->gids = gid_entries(state_);
    VportInfo manager{};
    if (state_.device().query(manager_vport, manager) == 0) {
        std::copy(std::begin(manager.mac), std::end(manager.mac), addresses->mac.begin());
    }
    const std::lock_guard guard(addresses_mutex_);
    addresses_.store(addresses.get(), std::memory_order_release);
    all_addresses_.push_back(std::move(addresses));
}

bool Transport::has_queue_pair(std::uint32_t qpn) {
    Engine& engine = engine_of(qpn);
    const Engine::Control control(engine);
    return engine.find(qpn) != nullptr;
}

void Transport::answer_doorbells() noexcept {
    for (const auto& engine : engines_) engine->settle();
}

void Transport::add_shared_queue(std::uint32_t number, SharedReceiveQueue& queue) {
    const std::lock_guard guard(shared_queues_mutex_);
    shared_queues_[number] = &queue;
}

void Transport::remove_shared_queue(std::uint32_t number) {
    const std::lock_guard guard(shared_queues_mutex_);
    shared_queues_.erase(number);
}

void Transport::send_frame(rte_mbuf* frame) noexcept {
    engines_.front()->post_frame(frame);
}

unsigned Transport::largest_mtu() const {
    VportInfo uplink{};
    return 128u << link_mtu(state_.device().query(uplink_vport, uplink) == 0 ? uplink.mtu : 0);
}

unsigned Transport::take(void* self, unsigned, rte_mbuf** packets, unsigned length) noexcept {
    auto& transport = *static_cast<Transport*>(self);
    unsigned left = 0;
    for (unsigned i = 0; i < length; ++i) {
        if (!transport.take_one(packets[i])) packets[left++] = packets[i];
    }
    if (left != length) {
        for (const auto& engine : transport.engines_) engine->wake();
    }
    return left;
}

bool Transport::take_one(rte_mbuf* packet) noexcept {
    if (source_of(packet) != uplink_vport) return false;
    const auto* const frame = rte_pktmbuf_mtod(packet, const std::byte*);
    const std::size_t size = rte_pktmbuf_data_len(packet);
    if (!is_roce(frame, size)) {
        if (!neighbours_.take({frame, size})) return false;
        rte_pktmbuf_free(packet);
        return true;
    }
    const Addresses& own = addresses();
    const bool is_group = frame[0] == std::byte{0x01} || frame[0] == std::byte{0x33};
    if (!is_group && std::memcmp(frame, own.mac.data(), own.mac.size()) != 0) return false;
    Arrival arrival;
    const bool well_formed = read_frame(frame, size, arrival);
    if (!own.in_vlan(arrival.vlan)) return false;
    if (is_group && !(well_formed && is_of_group(frame, arrival) && !multicast_.members(arrival.destination).empty())) {
        return false;
    }
    if (!well_formed || !icrc_is_right(arrival)) {
        (well_formed ? counters_.bad_icrc : counters_.malformed).fetch_add(1, std::memory_order_relaxed);
        rte_pktmbuf_free(packet);
        return true;
    }
    if (is_group) {
        copy_to_members(packet, 0);
        rte_pktmbuf_free(packet);
        return true;
    }
    if (!own.holds(arrival.destination, arrival.vlan)) return false;
    post(packet, arrival.qpn);
    return true;
}

void Transport::post(rte_mbuf* packet, std::uint32_t qpn) noexcept {
    if (engine_of(qpn).post(packet)) return;
    counters_.inbox_full.fetch_add(1, std::memory_order_relaxed);
    rte_pktmbuf_free(packet);
}

void Transport::copy_to_members(const rte_mbuf* frame, std::uint32_t sender) noexcept {
    const auto* const bytes = rte_pktmbuf_mtod(frame, const std::byte*);
    Arrival arrival;
    if (!read_frame(bytes, rte_pktmbuf_data_len(frame), arrival) || arrival.qpn != multicast_qpn) return;
    const auto bth = static_cast<std::size_t>(arrival.extensions - bytes) - sizeof(Bth);
    for (const std::uint32_t member : multicast_.members(arrival.destination)) {
        if (member == sender) continue;
        rte_mbuf* const copy = rte_pktmbuf_copy(frame, state_.mempool(), 0, UINT32_MAX);
        if (copy == nullptr) return;  // datagrams may be lost
        const __be32 qpn = htobe32(member);
        std::memcpy(rte_pktmbuf_mtod_offset(copy, std::byte*, bth + offsetof(Bth, qpn)), &qpn, sizeof qpn);
        post(copy, member);
        engine_of(member).wake();
    }
}

}  // namespace ovsdr::soft::roce
