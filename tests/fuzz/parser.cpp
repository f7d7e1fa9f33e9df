// Any bytes as a frame. The frame ends where its memory ends, so that a read past it is seen; what the parser says does
// not depend on what was in the Key before; the places that it finds are in the frame. What the fast parser takes it
// reads alike.
#include "datapath/steering/parser.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "datapath/steering/fast_parser.hpp"
#include "tests/fuzz/check.hpp"

using namespace ovsdr::soft;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size > 1514) return 0;
    const auto frame = std::make_unique<std::uint8_t[]>(size);
    std::copy(data, data + size, frame.get());
    const auto length = static_cast<std::uint32_t>(size);

    const auto first = std::make_unique<Key>(), second = std::make_unique<Key>();
    std::memset(static_cast<void*>(first.get()), 0x00, sizeof(Key));
    std::memset(static_cast<void*>(second.get()), 0x00, sizeof(Key));
    static Key fast{};  // of the frame before, as a lane has it; its words from 8 on stay 0
    const bool good = parse(frame.get(), length, *first);
    FUZZ_CHECK(parse(frame.get(), length, *second) == good);
    FUZZ_CHECK(good == (size >= 14));
    const bool taken = parse_fast(frame.get(), length, fast);
    FUZZ_CHECK(good || !taken);
    if (!good) return 0;
    FUZZ_CHECK(!taken || std::memcmp(&fast, first.get(), Key::shallow_length * sizeof(std::uint64_t)) == 0);
    FUZZ_CHECK(std::memcmp(first.get(), second.get(), sizeof(Key)) == 0);

    const Headers headers = locate(frame.get(), length);
    for (const unsigned place : {headers.vlan, headers.l3, headers.l4}) FUZZ_CHECK(place == 0 || place < size);
    FUZZ_CHECK(headers.l3 == 0 || headers.l3 >= 14);
    FUZZ_CHECK(headers.l4 == 0 || headers.l4 >= headers.l3 + 20);
    return 0;
}
