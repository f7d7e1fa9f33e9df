// What it takes to read a frame's headers and hash what masks look at: by parse(), and as a lane does for frames that
// it has seen the like of, by parse_fast() first.
//
// Frames are in the cache. Where kinds of frames mix their order is random and too long for the processor to learn.
// Each figure is the best of many short turns, which the two take alternately: what else the machine does hits both.
#include <rte_cycles.h>

#include <algorithm>
#include <limits>
#include <random>

#include "bench.hpp"
#include "datapath/steering/fast_parser.hpp"
#include "datapath/steering/parser.hpp"

namespace ovsdr::soft::bench {
namespace {

constexpr unsigned frame_size = 78, frame_count = 4096, turns = 40, batches_in_turn = frame_count / poll_length;
using Frame = std::array<std::uint8_t, frame_size>;

struct Shape {
    std::uint16_t type;
    std::uint8_t protocol;
    bool tagged;
};
constexpr Shape udp4{0x0800, 17, false}, tcp4{0x0800, 6, false}, icmp4{0x0800, 1, false}, udp6{0x86dd, 17, false};
constexpr Shape tcp6{0x86dd, 6, false}, tagged4{0x0800, 17, true}, arp{0x0806, 0, false};

[[nodiscard]] Frame make_frame(const Shape& shape, unsigned number) {
    Frame frame{};
    frame[5] = 2;
    frame[11] = 1;
    unsigned at = 12;
    if (shape.tagged) {
        store_be16(&frame[at], 0x8100);
        store_be16(&frame[at + 2], 5);
        at += 4;
    }
    store_be16(&frame[at], shape.type);
    std::uint8_t* header = &frame[at + 2];
    const bool v4 = shape.type == 0x0800;
    header[0] = v4 ? 0x45 : 0x60;
    store_be16(header + (v4 ? 2 : 4), v4 ? 46 : 20);
    header[v4 ? 8 : 7] = 64;
    header[v4 ? 9 : 6] = shape.protocol;
    store_be32(header + (v4 ? 12 : 20), 0x0a000000 + number);
    store_be32(header + (v4 ? 20 : 40), 0x03e80050);
    return frame;
}

/// Of the fields that a megaflow of that many words looks at: Ethernet type and fragments; protocol; destination;
/// addresses, tag, source and ports.
[[nodiscard]] MaskedWords mask_of(unsigned words) {
    Key mask{};
    std::uint8_t* bytes = mask.bytes();
    store_be16(bytes + key_offset::ethertype, 0xffff);
    store_be16(bytes + key_offset::ip_protocol, 0xff00);
    bytes[key_offset::l3_flags] = frag_bit | ip_version_bits;
    if (words >= 3) store_be16(bytes + key_offset::destination_ip + 12, 0xffff);
    if (words >= 8) {
        std::memset(bytes, 0xff, key_offset::ip_protocol);
        std::memset(bytes + key_offset::tcp_sport, 0xff, 4);
        std::memset(bytes + key_offset::udp_sport, 0xff, 4 + 32);
    }
    return MaskedWords(mask);
}

/// Cycles a frame of one turn.
template <typename Read>
[[nodiscard]] double turn(const std::vector<Frame>& frames, const MaskedWords& mask, Read read) {
    std::array<std::array<std::uint64_t, Key::length>, poll_length> words;
    std::uint32_t hashes = 0;
    const std::uint64_t begin = rte_rdtsc();
    for (std::size_t i = 0; i < frames.size(); ++i) {
        hashes ^= mask.extract(read(frames[i].data()), 1, words[i % poll_length].data());
    }
    const std::uint64_t end = rte_rdtsc();
    asm volatile("" : : "r"(hashes), "m"(words) : "memory");
    return static_cast<double>(end - begin) / static_cast<double>(frames.size());
}

/// How many times as long parse() takes.
double run_row(const char* name, const std::vector<Shape>& shapes, unsigned words) {
    std::mt19937 random(1);
    std::vector<Frame> frames;
    for (unsigned i = 0; i < frame_count; ++i) frames.push_back(make_frame(shapes[random() % shapes.size()], i));
    const MaskedWords mask = mask_of(words);
    std::array<Key, poll_length> keys{};
    Key common{};
    unsigned at = 0;
    double slow = std::numeric_limits<double>::max(), fast = slow;
    for (unsigned i = 0; i < turns; ++i) {
        slow = std::min(slow, turn(frames, mask, [&](const std::uint8_t* frame) -> const Key& {
            Key& key = keys[at++ % poll_length];
            static_cast<void>(parse(frame, frame_size, key));
            return key;
        }));
        fast = std::min(fast, turn(frames, mask, [&](const std::uint8_t* frame) -> const Key& {
            if (parse_fast(frame, frame_size, common)) [[likely]] return common;
            static_cast<void>(parse(frame, frame_size, keys[0]));
            return keys[0];
        }));
    }
    fmt::print("{:>24} {:>8} {:>10.1f} {:>10.1f} {:>8.1f}\n", name, mask.length, slow, fast, slow / fast);
    return slow / fast;
}

}  // namespace

bool run_parsing() {
    constexpr double least = 1.5;
    const struct {
        const char* name;
        std::vector<Shape> shapes;
    } rows[] = {{"IPv4, UDP", {udp4}},
                {"IPv4, TCP", {tcp4}},
                {"IPv6, UDP", {udp6}},
                {"IPv4, UDP, tagged", {tagged4}},
                {"ARP", {arp}},
                {"IPv4, UDP and TCP", {udp4, tcp4}},
                {"all of these", {udp4, tcp4, udp6, tcp6, tagged4, arp}},
                {"ICMP, by parse()", {icmp4}}};
    fmt::print("{:>24} {:>8} {:>10} {:>10} {:>8}\n", "headers: cycles a frame", "words", "parse()", "fast", "ratio");
    double worst = std::numeric_limits<double>::max();
    for (const unsigned words : {2U, 3U, 8U}) {
        for (const auto& row : rows) {
            const double ratio = run_row(row.name, row.shapes, words);
            if (row.shapes[0].protocol != icmp4.protocol) worst = std::min(worst, ratio);
        }
    }
    return worst >= least;
}

}  // namespace ovsdr::soft::bench
