// What set actions write into a packet's header, followed from action to action.
//
// Model. OVS's fields are not the device's: an address is several fields there, a TOS two. A later write to the same
// bits replaces an earlier one.
//
// Threads: a value. Source: OVS lib/odp-execute.c, what each set action writes.
#pragma once

#include <map>
#include <vector>

#include "offload/dr/device/header_field.hpp"
#include "offload/dr/megaflow.h"

namespace ovsdr::dr {

class Rewrite {
public:
    /// `ipv6`: of what the packet is, for fields that both versions have.
    void write(const ovsdr_set& set, bool ipv6);
    /// Ascending by field.
    [[nodiscard]] std::vector<HeaderWrite> writes() const;

private:
    struct Bits {
        std::uint32_t value, mask;
    };
    std::map<HeaderField, Bits> fields_;
};

}  // namespace ovsdr::dr
