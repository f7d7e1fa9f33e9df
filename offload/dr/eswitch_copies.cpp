#include <cerrno>

#include "offload/dr/eswitch_impl.hpp"

namespace ovsdr::dr {

Result<void> EswitchImpl::lead_copies(ibv_qp*) noexcept {
    return tl::unexpected(Error{EOPNOTSUPP, "copies to software"});
}

void EswitchImpl::stop_copies() noexcept {}

std::shared_ptr<const SoftwareWork> EswitchImpl::work_of(std::uint32_t) const noexcept { return nullptr; }

}  // namespace ovsdr::dr
