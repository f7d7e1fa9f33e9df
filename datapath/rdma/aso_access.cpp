#include "datapath/rdma/aso_access.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "datapath/control/fault.hpp"
#include "datapath/ports/guarded_copy.hpp"
#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/prm.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::size_t control_size = 16, aso_control_size = 48;
constexpr std::size_t head_size = control_size + aso_control_size;

/// opmod by AsoKind.
constexpr std::uint64_t opmods[] = {4, 2, 1};
constexpr std::uint64_t always_false = 0, always_true = 1;
constexpr std::uint64_t by_bytes = 1;

// Bit offsets in the request.
constexpr prm::Field opmod{0, 8}, opcode{24, 8}, number{96, 32};
constexpr std::uint32_t aso = control_size * 8;
constexpr prm::Field address{aso, 64}, lkey{aso + 64, 32}, data_mask_mode{aso + 96, 2};
constexpr prm::Field condition_1{aso + 104, 4}, condition_0{aso + 108, 4}, logical{aso + 120, 2};
constexpr prm::Field data_mask{aso + 320, 64};

/// Whether the conditions let the request write; EOPNOTSUPP for comparisons.
[[nodiscard]] int conditions(std::span<const std::byte> wqe, bool& hold) {
    const std::uint64_t first = prm::get(wqe, condition_0), second = prm::get(wqe, condition_1);
    const std::uint64_t operation = prm::get(wqe, logical);
    if (first > always_true || second > always_true || operation > 1) return EOPNOTSUPP;
    const bool both = first == always_true && second == always_true;
    const bool either = first == always_true || second == always_true;
    hold = operation == 0 ? both : either;
    static_assert(always_false == 0);
    return 0;
}

}  // namespace

void AsoTable::add(std::uint32_t first, std::shared_ptr<AsoBulk> bulk, std::uint32_t access_pd) {
    const std::lock_guard lock(mutex_);
    bulks_[first] = {std::move(bulk), access_pd};
}

void AsoTable::remove(std::uint32_t first) {
    const std::lock_guard lock(mutex_);
    bulks_.erase(first);
}

AsoTable::Found AsoTable::find(std::uint32_t wanted) {
    const std::lock_guard lock(mutex_);
    auto after = bulks_.upper_bound(wanted);
    if (after == bulks_.begin()) return {};
    const auto& [first, entry] = *--after;
    if (wanted - first >= entry.bulk->length()) return {};
    return {entry.bulk, wanted - first, entry.access_pd};
}

int access_aso(DeviceState& state, const AsoRequester& by, std::span<const std::byte> wqe) noexcept {
    if (wqe.size() < head_size || prm::get(wqe, opcode) != opcode_access_aso) return EINVAL;
    if (const int error = injected_fault("work_request_aso"); error != 0) return error;
    const AsoTable::Found object = state.aso().find(static_cast<std::uint32_t>(prm::get(wqe, number)));
    if (object.bulk == nullptr) return ENOENT;
    const bool meter = object.bulk->kind() == AsoKind::flow_meter;
    if (prm::get(wqe, opmod) != opmods[static_cast<unsigned>(object.bulk->kind())]) return EINVAL;
    if (object.access_pd != by.pdn) return EPERM;
    bool hold = false;
    if (const int error = conditions(wqe, hold); error != 0) return error;
    const bool writes = wqe.size() >= head_size + AsoBulk::object_size;
    if (writes && prm::get(wqe, data_mask_mode) != by_bytes) return EOPNOTSUPP;

    AsoBulk::Image image{};
    if (writes) std::memcpy(image.data(), wqe.data() + head_size, image.size());
    const std::uint64_t mask = writes && hold ? prm::get(wqe, data_mask) : 0;
    const std::uint64_t to = prm::get(wqe, address);
    const MemoryTable::Reading reading(state.memory(), by.stripe);
    std::byte* memory = nullptr;
    if ((to & 1) != 0) {
        memory = state.memory().lookup(static_cast<std::uint32_t>(prm::get(wqe, lkey)), to & ~1ULL, image.size(),
                                       IBV_ACCESS_LOCAL_WRITE, by.domain);
        if (memory == nullptr) return EFAULT;
    }
    const AsoBulk::Image was = object.bulk->exchange(object.index, image, mask);
    const bool read = memory == nullptr || guarded_copy(memory, was.data(), was.size());
    // What lanes have cached may rest on the colour that a meter gives packets to begin with.
    if (meter && mask != 0) state.device().steering().forget_cached();
    return read ? 0 : EFAULT;
}

}  // namespace ovsdr::soft
