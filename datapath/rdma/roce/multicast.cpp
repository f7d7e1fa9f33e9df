#include "datapath/rdma/roce/multicast.hpp"

#include <algorithm>
#include <cerrno>

#include "datapath/steering/steering.hpp"

namespace ovsdr::soft::roce {

namespace {

[[nodiscard]] std::array<std::uint8_t, sizeof(ibv_gid)> key_of(const ibv_gid& gid) noexcept {
    return std::to_array(gid.raw);
}

}  // namespace

std::array<std::uint8_t, 6> multicast_mac(const ibv_gid& gid) noexcept {
    const std::uint8_t* const raw = gid.raw;
    if (is_ipv4(gid)) return {0x01, 0x00, 0x5e, static_cast<std::uint8_t>(raw[13] & 0x7f), raw[14], raw[15]};
    return {0x33, 0x33, raw[12], raw[13], raw[14], raw[15]};
}

MulticastGroups::MulticastGroups(Steering& steering) : steering_(steering), table_(new Table) {}

MulticastGroups::~MulticastGroups() {
    delete table_.load();
}

int MulticastGroups::attach(const ibv_gid& gid, std::uint32_t qpn) {
    const std::lock_guard guard(mutex_);
    auto next = std::make_unique<Table>(*table_.load());
    std::vector<std::uint32_t>& members = (*next)[key_of(gid)];
    if (std::find(members.begin(), members.end(), qpn) != members.end()) return 0;
    if (next->size() > most_groups || members.size() == most_members) return ENOMEM;
    members.push_back(qpn);
    replace(std::move(next));
    return 0;
}

void MulticastGroups::detach(const ibv_gid& gid, std::uint32_t qpn) {
    const std::lock_guard guard(mutex_);
    auto next = std::make_unique<Table>(*table_.load());
    const auto group = next->find(key_of(gid));
    if (group == next->end()) return;
    std::erase(group->second, qpn);
    if (group->second.empty()) next->erase(group);
    replace(std::move(next));
}

void MulticastGroups::replace(std::unique_ptr<const Table> next) {
    const std::unique_ptr<const Table> old(table_.exchange(next.release(), std::memory_order_acq_rel));
    steering_.synchronize();
}

std::span<const std::uint32_t> MulticastGroups::members(const ibv_gid& gid) const noexcept {
    const Table& table = *table_.load(std::memory_order_acquire);
    const auto group = table.find(key_of(gid));
    return group == table.end() ? std::span<const std::uint32_t>() : group->second;
}

}  // namespace ovsdr::soft::roce
