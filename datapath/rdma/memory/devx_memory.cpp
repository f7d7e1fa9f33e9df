#include "datapath/rdma/memory/devx_memory.hpp"

#include <infiniband/verbs.h>

#include <cerrno>

namespace ovsdr::soft::devx {

std::uint32_t Umems::add(const Umem& umem) {
    std::lock_guard guard(mutex_);
    umems_[next_] = std::make_shared<const Umem>(umem);
    return next_++;
}

int Umems::remove(std::uint32_t number) {
    std::lock_guard guard(mutex_);
    const auto found = umems_.find(number);
    if (found == umems_.end()) return EINVAL;
    // Others get their share under the mutex only: a count of one stays one.
    if (found->second.use_count() != 1) return EBUSY;
    umems_.erase(found);
    return 0;
}

Buffer Umems::find(std::uint32_t number, std::uint64_t offset, std::size_t size, Use use) {
    std::lock_guard guard(mutex_);
    const auto found = umems_.find(number);
    if (found == umems_.end()) return {};
    const Umem& umem = *found->second;
    if (use == Use::write && !(umem.access & IBV_ACCESS_LOCAL_WRITE)) return {};
    if (offset > umem.size || size > umem.size - offset) return {};
    return {found->second, umem.address + offset};
}

Buffer find_buffer(Umems& umems, std::span<const std::byte> in, prm::Field valid, prm::Field umem, prm::Field offset,
                   std::size_t size, Use use) {
    if (!prm::get(in, valid)) return {};
    return umems.find(static_cast<std::uint32_t>(prm::get(in, umem)), prm::get(in, offset), size, use);
}

DoorbellRecord find_doorbell(Umems& umems, std::span<const std::byte> in, prm::Field valid, prm::Field umem,
                             prm::Field offset) {
    const Buffer place = find_buffer(umems, in, valid, umem, offset, 2 * sizeof(__be32), Use::read);
    // A record that is not aligned could not be read as a whole.
    if (reinterpret_cast<std::uintptr_t>(place.get()) % sizeof(__be32) != 0) return {};
    return {place, reinterpret_cast<const std::atomic<__be32>*>(place.get())};
}

}  // namespace ovsdr::soft::devx
