#include "offload/dr/compile/plan.hpp"

#include <algorithm>
#include <tuple>

namespace ovsdr::dr {

std::strong_ordering Path::operator<=>(const Path& other) const noexcept {
    const auto own = [](const Path& path) {
        return std::tie(path.changes, path.vports, path.tables, path.meter, path.software);
    };
    if (const auto order = own(*this) <=> own(other); order != 0) return order;
    return std::lexicographical_compare_three_way(branches.begin(), branches.end(), other.branches.begin(),
                                                  other.branches.end());
}

}  // namespace ovsdr::dr
