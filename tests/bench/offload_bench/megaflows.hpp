// The megaflows that the benchmarks install: IPv4 and TCP with all of the 5-tuple, as OVN's stateless ACLs make them.
//
// They come in by datapath ports 1 to `ports` in turn and go out by the next one, so that each port has an equal share.
#pragma once

#include <endian.h>

#include <cstdint>

#include "offload/dr/eswitch.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::bench {

/// Makes number `i` of it; it is of the same port already.
inline void set_number(ovsdr_megaflow& megaflow, std::uint64_t i) {
    const std::uint64_t host = i / 50000;
    megaflow.key.src[2] = static_cast<std::uint8_t>(host >> 8);
    megaflow.key.src[3] = static_cast<std::uint8_t>(host);
    megaflow.key.be_tp_src = htobe16(static_cast<std::uint16_t>(1024 + i % 50000));
}

/// Number `i` of a set; `turn` changes where it goes.
inline ovsdr_megaflow megaflow(std::uint64_t i, std::uint32_t ports, std::uint32_t turn = 1) {
    const auto in_port = static_cast<std::uint32_t>(1 + i % ports);
    dr::test::MegaflowBuilder builder(in_port);
    builder.ipv4()
        .proto(6)
        .ports(static_cast<std::uint16_t>(1024 + i % 50000), 443)
        .output(1 + (in_port - 1 + turn) % ports);
    ovsdr_megaflow& made = builder.raw();
    const std::uint64_t host = i / 50000;
    const std::uint8_t source[] = {10, 1, static_cast<std::uint8_t>(host >> 8), static_cast<std::uint8_t>(host)};
    const std::uint8_t destination[] = {10, 2, 0, 1};
    for (int byte = 0; byte < 4; ++byte) {
        made.key.src[byte] = source[byte];
        made.key.dst[byte] = destination[byte];
        made.mask.src[byte] = made.mask.dst[byte] = 0xFF;
    }
    return made;
}

/// As dpif-netdev's hashes: all bits vary.
inline dr::Ufid ufid(std::uint64_t i) {
    const auto mix = [](std::uint64_t word) {
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ULL;
        word = (word ^ (word >> 27)) * 0x94D049BB133111EBULL;
        return word ^ (word >> 31);
    };
    return {mix(i + 1), mix(~i)};
}

/// The part of the revalidators' memory that the megaflow's key is in; they delete part after part.
inline std::uint16_t neighbourhood(std::uint64_t i) { return static_cast<std::uint16_t>(ufid(i)[1] >> 16) % 512; }

}  // namespace ovsdr::bench
