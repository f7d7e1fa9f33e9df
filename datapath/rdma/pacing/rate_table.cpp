#include "datapath/rdma/pacing/rate_table.hpp"

#include <cerrno>

namespace ovsdr::soft {

int RateTable::take(std::uint32_t kilobits, bool dedicated, Hold& hold) {
    if (kilobits < slowest || kilobits > fastest) return EINVAL;
    const std::lock_guard guard(mutex_);
    std::uint16_t found = 0;
    for (std::uint16_t index = 1; index < length; ++index) {
        const Rate& rate = rates_[index];
        if (rate.holders == 0) {
            if (found == 0) found = index;
        } else if (!dedicated && !rate.dedicated && rate.kilobits == kilobits) {
            found = index;
            break;
        }
    }
    if (found == 0) return ENOSPC;
    Rate& rate = rates_[found];
    rate = {.kilobits = kilobits, .holders = rate.holders + 1, .dedicated = dedicated};
    hold = Hold(*this, found);
    return 0;
}

std::optional<std::uint32_t> RateTable::rate_of(std::uint32_t index) {
    if (index == 0) return 0;
    const std::lock_guard guard(mutex_);
    if (index >= length || rates_[index].holders == 0) return std::nullopt;
    return rates_[index].kilobits;
}

void RateTable::let_go(std::uint16_t index) {
    const std::lock_guard guard(mutex_);
    --rates_[index].holders;
}

}  // namespace ovsdr::soft
