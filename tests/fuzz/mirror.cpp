// Any bytes on a mirror's handshake port, in pieces of any size, any bytes as a segment's header, and any as a file of
// a collector's. What is taken for a message is one: written again, it is the same bytes.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "offload/mirror/wire/handshake.hpp"
#include "tests/fuzz/check.hpp"
#include "tools/drcollect/scan.hpp"

using namespace ovsdr::mirror;

namespace {

void check_header(std::span<const std::byte> bytes) {
    const DecodedHeader decoded = decode_header(bytes);
    if (decoded.fault != HeaderFault::none) return;
    std::array<std::byte, header_size> again;
    encode(decoded.header, again);
    FUZZ_CHECK(std::ranges::equal(again, bytes.first(header_size)));
}

void check_file(std::span<const std::byte> bytes) {
    const auto found = ovsdr::drcollect::scan(bytes);
    FUZZ_CHECK(found.good_end <= bytes.size());
    FUZZ_CHECK(found.torn <= bytes.size());
    FUZZ_CHECK(found.sound() == (found.findings.empty() && found.beginning));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto all = std::as_bytes(std::span(data, size));
    check_header(all);
    check_file(all);
    if (size == 0) return 0;
    // The first byte says in which pieces the rest comes.
    const std::size_t piece = 1 + data[0];
    auto left = all.subspan(1);
    std::vector<std::byte> taken, again;
    MessageReader reader;
    while (!left.empty()) {
        auto part = left.first(std::min(piece, left.size()));
        const std::size_t before = part.size();
        const auto message = reader.read(part);
        const std::size_t used = before - part.size();
        taken.insert(taken.end(), left.begin(), left.begin() + static_cast<std::ptrdiff_t>(used));
        left = left.subspan(used);
        if (!message) {
            FUZZ_CHECK(!message.error().detail.empty());
            FUZZ_CHECK(!reader.read(part));
            // What the peer is told is a message too.
            const auto refusal = encode(message.error());
            FUZZ_CHECK(decode(3, std::span(refusal).subspan(frame_header_size)));
            return 0;
        }
        FUZZ_CHECK(used > 0);
        if (!*message) continue;
        const auto bytes = encode(**message);
        FUZZ_CHECK(bytes == taken);
        taken.clear();
    }
    return 0;
}
