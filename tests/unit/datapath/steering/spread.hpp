// Keys for tests to look into.
#pragma once

#include "datapath/steering/parser.hpp"
#include "naive_fields.hpp"

namespace ovsdr::soft::test {

/// A Key's words where the PRM has them.
[[nodiscard]] inline Parameters spread(const Key& key) {
    Parameters all;
    for (unsigned offset = 0; offset < parameters_size; offset += 4) {
        const int place = key_offset_of(offset);
        if (place >= 0) all.set(Field{offset * 8, 32}, load_be32(key.bytes() + place));
    }
    return all;
}

}  // namespace ovsdr::soft::test
