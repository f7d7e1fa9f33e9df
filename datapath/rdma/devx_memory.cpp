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

std::byte* Registry::find(std::uint32_t id, std::uint64_t offset, std::size_t size) {
    std::lock_guard guard(mutex_);
    const auto found = umems_.find(id);
    if (found == umems_.end() || !(found->second.access & IBV_ACCESS_LOCAL_WRITE)) return nullptr;
    const Umem& umem = found->second;
    return offset <= umem.size && size <= umem.size - offset ? umem.address + offset : nullptr;
}

}  // namespace ovsdr::soft::devx
