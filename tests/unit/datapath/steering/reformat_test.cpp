// Reformats by themselves: which header fields the device writes, by what the given header is; and frames that end
// early.
#include "datapath/steering/reformat.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "datapath/steering/tunnel.hpp"
#include "frames.hpp"
#include "naive_fields.hpp"
#include "packet_pool.hpp"
#include "spread.hpp"

namespace ovsdr::soft::test {
namespace {

using Kind = Reformat::Kind;

[[nodiscard]] std::shared_ptr<const Reformat> made(Kind kind, const Frame& data) {
    std::shared_ptr<const Reformat> reformat;
    EXPECT_EQ(Reformat::create(kind, data, true, reformat), 0);
    return reformat;
}

/// What becomes of a frame; nothing, and the reason, for one that is lost.
struct Outcome {
    Frame frame;
    DropReason reason = DropReason::by_rule;
};

[[nodiscard]] Outcome applied(const Reformat& reformat, const Frame& frame,
                              std::uint16_t headroom = RTE_PKTMBUF_HEADROOM) {
    const unsigned before = mbufs_in_use();
    rte_mbuf* packet = packet_of({});
    packet->data_off = headroom;
    std::copy(frame.begin(), frame.end(),
              reinterpret_cast<std::uint8_t*>(rte_pktmbuf_append(packet, static_cast<std::uint16_t>(frame.size()))));
    Outcome outcome;
    rte_mbuf* const now = reformat.apply(packet, outcome.reason);
    if (now != nullptr) {
        outcome.frame = frame_of(now);
        rte_pktmbuf_free(now);
    }
    EXPECT_EQ(mbufs_in_use(), before);
    return outcome;
}

void put16(Frame& frame, std::size_t at, std::size_t value) {
    frame[at] = static_cast<std::uint8_t>(value >> 8);
    frame[at + 1] = static_cast<std::uint8_t>(value);
}

TEST(Reformat, LengthsAreWrittenWhereTheWholeHeaderIsGiven) {
    const Frame payload(31, 0x77);
    struct Case {
        unsigned version;
        std::uint8_t protocol, words;  ///< of IPv4's header
        unsigned tags;
    };
    for (const Case& one : {Case{4, 17, 5, 0}, Case{4, 17, 6, 1}, Case{4, 47, 5, 2}, Case{4, 17, 15, 0},
                            Case{6, 17, 0, 0}, Case{6, 47, 0, 2}, Case{4, 17, 4, 0}, Case{4, 17, 0, 0}}) {
        Frame header(12, 0x02);
        for (unsigned i = 0; i < one.tags; ++i) {
            const Frame tag = i == 0 ? Frame{0x88, 0xa8, 0, 7} : Frame{0x81, 0, 0, 8};
            header.insert(header.end(), tag.begin(), tag.end());
        }
        const bool v4 = one.version == 4;
        header.push_back(v4 ? 0x08 : 0x86);
        header.push_back(v4 ? 0x00 : 0xdd);
        const std::size_t l3 = header.size(), l4 = l3 + (v4 ? one.words * 4U : 40U);
        header.resize(std::max(l4, l3 + 20) + 8 + 4, 0x31);
        header[l3] = static_cast<std::uint8_t>(v4 ? 0x40 | one.words : 0x60);
        header[l3 + (v4 ? 9 : 6)] = one.protocol;
        // The header given to different ends.
        for (std::size_t size = 2; size <= header.size(); size += 2) {
            const Frame given(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(size));
            Frame expected = given;
            expected.insert(expected.end(), payload.begin(), payload.end());
            const bool valid = !v4 || one.words >= 5;
            if (valid && size >= l4) {
                if (v4) {
                    put16(expected, l3 + 2, expected.size() - l3);
                    put16(expected, l3 + 10, 0);
                    std::uint32_t sum = 0;
                    for (std::size_t at = l3; at < l4; at += 2) sum += expected[at] * 256U + expected[at + 1];
                    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
                    put16(expected, l3 + 10, 0xffff - sum);
                } else {
                    put16(expected, l3 + 4, expected.size() - l4);
                }
                if (one.protocol == 17 && size >= l4 + 8) {
                    put16(expected, l4 + 4, expected.size() - l4);
                    put16(expected, l4 + 6, 0);
                }
            }
            ASSERT_EQ(applied(*made(Kind::encap_l2, given), payload).frame, expected)
                << size << " of " << one.version << ' ' << int{one.words};
        }
    }
}

TEST(Reformat, L3TunnelsTakeTheEthernetHeaderAwayWhereThereIsOne) {
    const Frame header(20, 0x33);
    const auto encap = made(Kind::encap_l3, header);
    for (const unsigned tags : {0U, 1U, 2U, 3U}) {
        FrameSpec spec;
        for (unsigned i = 0; i < tags; ++i) spec.tags.push_back(i % 2 == 0 ? 0x88a80001 : 0x81000002);
        const Frame whole = make_frame(spec);
        for (std::size_t size = 14; size < 32; ++size) {
            const Frame frame(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
            // Of a tag that is cut short only the type is looked at, and a third tag is an ethertype like any other.
            std::size_t l2 = 14;
            for (unsigned i = 0; i < std::min(tags, 2U) && l2 + 4 <= size; ++i) l2 += 4;
            Frame expected = header;
            expected.insert(expected.end(), frame.begin() + static_cast<std::ptrdiff_t>(l2), frame.end());
            const Outcome outcome = applied(*encap, frame);
            ASSERT_EQ(outcome.frame, expected) << size << ' ' << tags;
        }
    }
    EXPECT_EQ(applied(*encap, Frame(13, 1)).reason, DropReason::malformed);
    EXPECT_TRUE(applied(*encap, Frame(13, 1)).frame.empty());
}

TEST(Reformat, RoomIsFoundOnEitherSideOfTheFrame) {
    const Frame header(40, 0x33);
    const auto encap = made(Kind::encap_l2, header);
    for (const std::uint16_t headroom : {0, 1, 39, 40, 41}) {
        for (const std::size_t tail : {0U, 39U, 40U, 41U}) {
            const std::size_t size = 2048 + RTE_PKTMBUF_HEADROOM - headroom - tail;
            const Frame frame(size, 0x55);
            Frame expected = header;
            expected.insert(expected.end(), frame.begin(), frame.end());
            const bool fits = headroom + tail >= 40;
            const Outcome outcome = applied(*encap, frame, headroom);
            EXPECT_EQ(outcome.frame, fits ? expected : Frame{}) << headroom << ' ' << tail;
            if (!fits) {
                EXPECT_EQ(outcome.reason, DropReason::no_buffer);
            }
        }
    }
}

[[nodiscard]] Frame in_vxlan(const Frame& inside, const Frame& trailer = {}) {
    Frame content{8, 0, 0, 0, 0, 0, 5, 0};
    content.insert(content.end(), inside.begin(), inside.end());
    Frame frame = make_frame({.dport = 4789}, content);
    frame.insert(frame.end(), trailer.begin(), trailer.end());
    return frame;
}

TEST(Reformat, DataIsReadToItsEndAndNotFurther) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    auto* const pages =
        static_cast<std::uint8_t*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void*>(pages), MAP_FAILED);
    ASSERT_EQ(mprotect(pages + page, page, PROT_NONE), 0);
    Frame ipv4(50), ipv6(62);  // UDP in IPv4 with a word of options behind a tag, and in IPv6
    ipv4[12] = 0x81;
    ipv4[16] = 8;
    ipv4[18] = 0x46;
    ipv4[18 + 9] = 17;
    ipv6[12] = 0x86;
    ipv6[13] = 0xdd;
    ipv6[14] = 0x60;
    ipv6[14 + 6] = 17;
    for (const Frame& whole : {ipv4, ipv6}) {
        for (std::size_t size = 2; size <= whole.size(); size += 2) {
            std::uint8_t* const data = pages + page - size;
            std::copy_n(whole.begin(), size, data);
            std::shared_ptr<const Reformat> reformat;
            EXPECT_EQ(Reformat::create(Kind::encap_l2, {data, size}, true, reformat), 0) << size;
        }
    }
    EXPECT_EQ(munmap(pages, 2 * page), 0);
}

TEST(Reformat, OnlyIpComesOutOfAnL3Tunnel) {
    for (const std::size_t size : {14U, 18U}) {
        const Frame l2(size, 0x44);
        const auto decap = made(Kind::decap_l3, l2);
        for (const FrameSpec& spec : {FrameSpec{}, FrameSpec{.version = 6}, FrameSpec{.tags = {0x88a80001}},
                                      FrameSpec{.tags = {0x88a80001, 0x81000001}, .version = 6}}) {
            const Frame inside = make_frame(spec);
            Frame expected = l2;
            expected.insert(expected.end(), inside.begin() + static_cast<std::ptrdiff_t>(14 + 4 * spec.tags.size()),
                            inside.end());
            EXPECT_EQ(applied(*decap, in_vxlan(inside, {9, 9})).frame, expected);
        }
        const Outcome other = applied(*decap, in_vxlan(make_frame({.version = 0})));
        EXPECT_TRUE(other.frame.empty());
        EXPECT_EQ(other.reason, DropReason::malformed);
    }
    const auto l2_end = made(Kind::decap_l2, {});
    const Frame inside = make_frame({.version = 0});
    EXPECT_EQ(applied(*l2_end, in_vxlan(inside, {9})).frame, inside);
    const Frame plain = make_frame({});
    const Outcome ip = applied(*l2_end, make_frame({.protocol = 4}, Frame(plain.begin() + 14, plain.end())));
    EXPECT_TRUE(ip.frame.empty());
    EXPECT_EQ(ip.reason, DropReason::malformed);
}

TEST(Reformat, HeadersAreWholeWordsAndNotTooLong) {
    std::shared_ptr<const Reformat> reformat;
    for (const Kind kind : {Kind::encap_l2, Kind::encap_l3}) {
        for (std::size_t size = 0; size < 140; ++size) {
            const Frame data(size, 1);
            EXPECT_EQ(Reformat::create(kind, data, true, reformat),
                      size != 0 && size <= 128 && size % 2 == 0 ? 0 : EINVAL)
                << size;
        }
    }
    for (std::size_t size = 0; size < 30; ++size) {
        EXPECT_EQ(Reformat::create(Kind::decap_l3, Frame(size, 1), true, reformat),
                  size == 14 || size == 18 ? 0 : EINVAL)
            << size;
        EXPECT_EQ(Reformat::create(Kind::decap_l2, Frame(size, 1), true, reformat), 0);
    }
}

/// Keys as sets of bits that are not known.
[[nodiscard]] Key noise(std::uint64_t seed) {
    Key key;
    for (std::uint64_t& word : key.words) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        word = seed ^ seed >> 29;
    }
    return key;
}

/// Fields that mean the same outside and inside.
constexpr std::pair<Field, Field> twins[] = {
    {{0, 512}, {1024, 512}}, {{512 + 64, 16}, {512 + 80, 16}}, {field::second_cvlan, field::inner_second_cvlan},
    {field::second_svlan, field::inner_second_svlan}, {{512 + 224, 32}, {512 + 256, 32}},
    {field::outer_mpls, field::inner_mpls}, {field::outer_seq, field::inner_seq}, {field::outer_ack, field::inner_ack}};

[[nodiscard]] int twin_of(unsigned bit, bool outer) {
    for (const auto& [out, in] : twins) {
        const Field& from = outer ? out : in;
        const Field& to = outer ? in : out;
        if (bit >= from.bit && bit < from.bit + from.width) return static_cast<int>(to.bit + bit - from.bit);
    }
    return -1;
}

TEST(TunnelTaint, ADecapsulationMakesOuterFieldsOfInnerOnes) {
    for (std::uint64_t seed = 1; seed < 20; ++seed) {
        const Key before = noise(seed);
        Key after = before, mask = before;
        taint_by_decapsulation(after);
        add_inner_of_outer(mask);
        const Parameters was = spread(before), taint = spread(after), wider = spread(mask);
        for (unsigned bit = 0; bit < parameters_size * 8; ++bit) {
            if (key_offset_of(bit / 32 * 4) < 0) continue;
            const Field one{bit, 1};
            const bool settled =
                (bit > 512 && bit < 512 + 64 && bit != 514 && bit != 515) || (bit >= 1536 + 128 && bit < 1536 + 416);
            const int inner = twin_of(bit, true), outer = twin_of(bit, false);
            if (settled) {
                EXPECT_EQ(taint.get(one), was.get(one)) << bit << ": source and registers stay";
            } else {
                EXPECT_EQ(taint.get(one), inner >= 0 ? was.get({static_cast<unsigned>(inner), 1}) : 1U) << bit;
            }
            EXPECT_EQ(wider.get(one), was.get(one) | (outer >= 0 ? was.get({static_cast<unsigned>(outer), 1}) : 0U))
                << bit;
        }
    }
}

TEST(TunnelTaint, RewrittenHeadersAreNotKnownButSourceAndRegistersAre) {
    Key taint{}, deep{};
    taint_headers(taint);
    taint_deep(deep);
    const Parameters all = spread(taint), later = spread(deep);
    for (unsigned bit = 0; bit < parameters_size * 8; ++bit) {
        if (key_offset_of(bit / 32 * 4) < 0) continue;
        const bool gre = bit == 512 || bit == 514 || bit == 515;
        const bool settled = (bit >= 512 && bit < 512 + 64 && !gre) || (bit >= 1536 + 128 && bit < 1536 + 416);
        EXPECT_EQ(all.get({bit, 1}), settled ? 0U : 1U) << bit;
        const bool in_line_one =
            (bit < 512 + 128) || (bit >= 1536 + 128 && bit < 1536 + 416) || (bit >= 2048 + 192 && bit < 2048 + 288);
        const bool second = bit >= 512 + 80 && bit < 512 + 96, qualifier = bit == 512 + 97 || bit == 512 + 99,
                   protocol = bit >= 512 + 112 && bit < 512 + 128;
        EXPECT_EQ(later.get({bit, 1}), !in_line_one || gre || second || qualifier || protocol ? 1U : 0U) << bit;
    }
}

}  // namespace
}  // namespace ovsdr::soft::test
