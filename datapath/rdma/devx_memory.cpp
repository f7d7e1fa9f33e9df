#include "datapath/rdma/devx_memory.hpp"

#include <infiniband/verbs.h>

namespace ovsdr::soft::devx {

Registry& Registry::instance() {
    static auto* const registry = new Registry;
    return *registry;
}

std::uint32_t Registry::add(const Umem& umem) {
    std::lock_guard guard(mutex_);
    umems_[next_] = umem;
    return next_++;
}

void Registry::remove(std::uint32_t id) {
    std::lock_guard guard(mutex_);
    umems_.erase(id);
}

std::byte* Registry::find(std::uint32_t id, std::uint64_t offset, std::size_t size, Use use) {
    std::lock_guard guard(mutex_);
    const auto found = umems_.find(id);
    if (found == umems_.end()) return nullptr;
    const Umem& umem = found->second;
    if (use == Use::write && !(umem.access & IBV_ACCESS_LOCAL_WRITE)) return nullptr;
    return offset <= umem.size && size <= umem.size - offset ? umem.address + offset : nullptr;
}

std::byte* find_buffer(std::span<const std::byte> in, prm::Field valid, prm::Field umem, prm::Field offset,
                       std::size_t size, Use use) {
    if (!prm::get(in, valid)) return nullptr;
    const auto number = static_cast<std::uint32_t>(prm::get(in, umem));
    return Registry::instance().find(number, prm::get(in, offset), size, use);
}

const std::atomic<__be32>* find_doorbell(std::span<const std::byte> in, prm::Field valid, prm::Field umem,
                                         prm::Field offset) {
    // A record that is not aligned could not be read as a whole.
    std::byte* const place = find_buffer(in, valid, umem, offset, 2 * sizeof(__be32), Use::read);
    const bool aligned = reinterpret_cast<std::uintptr_t>(place) % sizeof(__be32) == 0;
    return aligned ? reinterpret_cast<const std::atomic<__be32>*>(place) : nullptr;
}

}  // namespace ovsdr::soft::devx
