// What a guest or a tap's owner leaves to its NIC, with any header: no memory outside of the frame is read, and none
// outside of a packet written; segments have the frame's payload, whole and in order; what is joined of them is cut
// again as it was.
#include "datapath/ports/unfinished.hpp"

#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "datapath/ports/joined.hpp"
#include "tests/fuzz/check.hpp"

using namespace ovsdr::soft;

namespace {

constexpr unsigned most_segments = 200;

/// A packet without a pool.
struct Packet {
    explicit Packet(std::uint32_t room) : bytes(std::make_unique<std::uint8_t[]>(room)) { mbuf.buf_addr = bytes.get(); }
    [[nodiscard]] std::vector<std::uint8_t> content() const { return {bytes.get(), bytes.get() + mbuf.data_len}; }

    std::unique_ptr<std::uint8_t[]> bytes;
    rte_mbuf mbuf{};
};

std::vector<Packet> cut(const std::vector<std::uint8_t>& frame, const VirtioHeader& says, std::uint32_t room) {
    std::vector<Packet> segments;
    Unfinished unfinished;
    if (!unfinished.begin(frame, says, room)) {
        FUZZ_CHECK(!unfinished.more());
        return segments;
    }
    while (unfinished.more() && segments.size() < most_segments) {
        unfinished.next(&segments.emplace_back(room).mbuf);
        FUZZ_CHECK(segments.back().mbuf.data_len <= room);
    }
    return segments;
}

void check_joined(const std::vector<Packet>& segments, std::uint32_t room) {
    static Message message;
    std::vector<rte_mbuf*> packets;
    for (const Packet& each : segments) packets.push_back(const_cast<rte_mbuf*>(&each.mbuf));
    for (std::size_t at = 0; at < packets.size();) {
        const std::size_t most = std::min<std::size_t>(packets.size() - at, batch_length);
        const unsigned joined = message.join({packets.data() + at, most});
        FUZZ_CHECK(joined >= 1 && joined <= most);
        std::vector<std::uint8_t> flat;
        for (const iovec& piece : message.pieces()) {
            const auto* begin = static_cast<const std::uint8_t*>(piece.iov_base);
            flat.insert(flat.end(), begin, begin + piece.iov_len);
        }
        if (joined > 1) {
            VirtioHeader says;
            std::memcpy(&says, flat.data(), sizeof says);
            const auto again = cut({flat.begin() + sizeof says, flat.end()}, says, room);
            FUZZ_CHECK(again.size() == joined);
            for (unsigned i = 0; i < joined; ++i) FUZZ_CHECK(again[i].content() == segments[at + i].content());
        }
        at += joined;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    FuzzedDataProvider input(data, size);
    VirtioHeader says{.flags = input.ConsumeIntegral<std::uint8_t>(),
                      .gso_type = input.ConsumeIntegral<std::uint8_t>(),
                      .hdr_len = 0,
                      .gso_size = input.ConsumeIntegral<std::uint16_t>(),
                      .csum_start = input.ConsumeIntegral<std::uint16_t>(),
                      .csum_offset = input.ConsumeIntegral<std::uint16_t>()};
    const std::uint32_t room = input.ConsumeIntegralInRange<std::uint32_t>(64, 4096);
    std::vector<std::uint8_t> frame = input.ConsumeRemainingBytes<std::uint8_t>();
    frame.shrink_to_fit();
    const std::vector<Packet> segments = cut(frame, says, room);
    std::size_t payload = 0;
    for (std::size_t i = 0; i + 1 < segments.size(); ++i, payload += says.gso_size) {  // the last may be shorter
        const std::vector<std::uint8_t> segment = segments[i].content();
        const auto headers = static_cast<std::ptrdiff_t>(segment.size() - says.gso_size);
        FUZZ_CHECK(std::equal(segment.begin() + headers, segment.end(),
                              frame.begin() + headers + static_cast<std::ptrdiff_t>(payload)));
    }
    check_joined(segments, room);
    finish_checksum(frame, says);
    return 0;
}
