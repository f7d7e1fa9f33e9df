// The fast parser beside parse(): whatever it takes it reads as parse() does, and it takes what it is there for. Each
// frame ends where its memory ends: the page behind it cannot be read.
#include "datapath/steering/fast_parser.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>

#include "datapath/steering/masked_words.hpp"
#include "datapath/steering/parser.hpp"
#include "frames.hpp"

namespace ovsdr::soft::test {
namespace {

/// Memory for one frame at a time, right before a page that cannot be read.
class PageEnd {
public:
    PageEnd() : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
        void* memory = ::mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        begin_ = static_cast<std::uint8_t*>(memory);
        if (::mprotect(begin_ + page_, page_, PROT_NONE) != 0) throw std::bad_alloc();
    }
    ~PageEnd() { ::munmap(begin_, 2 * page_); }
    PageEnd(const PageEnd&) = delete;
    PageEnd& operator=(const PageEnd&) = delete;

    [[nodiscard]] const std::uint8_t* put(const std::uint8_t* frame, std::size_t size) const {
        return std::copy(frame, frame + size, begin_ + page_ - size) - size;
    }

private:
    std::size_t page_;
    std::uint8_t* begin_;
};

class FastParser : public ::testing::Test {
protected:
    FastParser() {
        for (MaskedWords& mask : masks_) mask = MaskedWords(random_mask());
    }

    /// Compares both parsers, and tells whether the fast one took the frame's first `size` bytes.
    bool took(const Bytes& frame, std::size_t size) {
        const std::uint8_t* placed = page_.put(frame.data(), size);
        const auto length = static_cast<std::uint32_t>(size);
        // As a lane has it: words from 8 on are 0, those before are of the frame before.
        if (!parse_fast(placed, length, fast_)) return false;
        Key whole;
        EXPECT_TRUE(parse(placed, length, whole));
        for (unsigned i = 0; i < Key::shallow_length; ++i) EXPECT_EQ(fast_.words[i], whole.words[i]) << "word " << i;
        for (const MaskedWords& mask : masks_) {
            std::array<std::uint64_t, Key::length> words{}, expected{};
            EXPECT_EQ(mask.extract(fast_, 7, words.data()), mask.extract(whole, 7, expected.data()));
            EXPECT_EQ(words, expected);
        }
        return true;
    }
    bool took(const Bytes& frame) { return took(frame, frame.size()); }

    unsigned pick(unsigned below) { return static_cast<unsigned>(random_() % below); }
    bool chance(unsigned one_in) { return pick(one_in) == 0; }
    template <std::size_t length>
    std::uint16_t one_of(const std::uint16_t (&values)[length]) {
        return values[pick(length)];
    }
    Bytes random_frame();

private:
    void append(Bytes& frame, unsigned count) {
        while (count-- > 0) frame.push_back(static_cast<std::uint8_t>(random_()));
    }
    void append_ipv4(Bytes& frame);
    void append_ipv6(Bytes& frame);
    std::uint8_t random_protocol() {
        if (chance(8)) return static_cast<std::uint8_t>(random_());
        return static_cast<std::uint8_t>(one_of({1, 6, 6, 6, 17, 17, 17, 47, 58, 132, 0, 43, 44, 50, 51, 60}));
    }
    /// Of what a shallow mask may look at in a cache key.
    Key random_mask() {
        Key mask{};
        for (const unsigned word : {0, 1, 2, 3, 4, 5, 6, 7, 9, 10}) {
            if (chance(2)) mask.words[word] = chance(2) ? ~0ULL : random_() & random_();
        }
        return mask;
    }

    std::mt19937_64 random_{20261126};
    PageEnd page_;
    Key fast_{};
    std::array<MaskedWords, 8> masks_;
};

/// Lengths are right half of the time, and else off by a little or by anything.
void FastParser::append_ipv4(Bytes& frame) {
    const unsigned ihl = chance(4) ? pick(16) : 5, l4_size = pick(48);
    const std::size_t header = frame.size();
    append(frame, std::max(ihl * 4, 20U) + l4_size);
    frame[header] = static_cast<std::uint8_t>((chance(16) ? pick(16) : 4) << 4 | ihl);
    unsigned total = ihl * 4 + l4_size;
    if (chance(4)) total += pick(13) - 6;
    if (chance(16)) total = static_cast<unsigned>(random_());
    store_be16(&frame[header + 2], static_cast<std::uint16_t>(total));
    if (!chance(8)) store_be16(&frame[header + 6], one_of({0, 0, 0x4000, 0x4000, 0x8000, 0x2000, 0x0001, 0x1fff}));
    frame[header + 9] = random_protocol();
}

void FastParser::append_ipv6(Bytes& frame) {
    const std::size_t header = frame.size();
    const unsigned payload = pick(64);
    append(frame, 40 + payload);
    frame[header] = static_cast<std::uint8_t>((chance(16) ? pick(16) : 6) << 4 | (frame[header] & 15));
    unsigned said = payload;
    if (chance(4)) said += pick(13) - 6;
    if (chance(16)) said = static_cast<unsigned>(random_());
    store_be16(&frame[header + 4], static_cast<std::uint16_t>(said));
    frame[header + 6] = random_protocol();
    // What an extension header says: the next one, and that it is short.
    if (payload > 10) frame[header + 40] = random_protocol();
    if (payload > 10) frame[header + 41] = static_cast<std::uint8_t>(pick(3));
}

Bytes FastParser::random_frame() {
    Bytes frame;
    append(frame, 12);
    for (unsigned tags = chance(2) ? 0 : pick(4); tags > 0; --tags) {
        const std::uint16_t type = one_of({0x8100, 0x8100, 0x88a8, 0x9100});
        frame.push_back(static_cast<std::uint8_t>(type >> 8));
        frame.push_back(static_cast<std::uint8_t>(type));
        append(frame, 2);
    }
    const std::uint16_t type = one_of({0x0800, 0x0800, 0x0800, 0x86dd, 0x86dd, 0x0806, 0x88cc, 0x8847, 0x05dc});
    frame.push_back(static_cast<std::uint8_t>(type >> 8));
    frame.push_back(static_cast<std::uint8_t>(type));
    if (type == 0x0800) {
        append_ipv4(frame);
    } else if (type == 0x86dd) {
        append_ipv6(frame);
    } else {
        append(frame, pick(60));
    }
    if (chance(4)) append(frame, pick(20));  // an Ethernet trailer
    if (chance(8)) frame[12 + pick(static_cast<unsigned>(frame.size()) - 12)] = static_cast<std::uint8_t>(random_());
    return frame;
}

TEST_F(FastParser, ReadsRandomFramesCutAtEveryLengthAsTheParserDoes) {
    std::size_t taken = 0, left = 0;
    for (unsigned i = 0; i < 20'000 && !HasFailure(); ++i) {
        const Bytes frame = random_frame();
        for (std::size_t size = i % 16 == 0 ? 0 : frame.size(); size <= frame.size() && !HasFailure(); ++size) {
            ++(took(frame, size) ? taken : left);
        }
    }
    EXPECT_GT(taken, (taken + left) / 8);
    EXPECT_GT(left, (taken + left) / 8);
}

TEST_F(FastParser, ReadsFramesOfWhichAnyByteIsWrongAsTheParserDoes) {
    const FrameSpec specs[] = {{},
                               {.protocol = 6, .tcp_flags = 0x1ab},
                               {.tags = {0x8100e123}, .protocol = 6},
                               {.tags = {0x88a85fff}, .version = 6},
                               {.version = 6, .protocol = 6, .tcp_flags = 0x1ab}};
    for (const FrameSpec& spec : specs) {
        const Bytes frame = make_frame(spec);
        for (std::size_t at = 0; at < frame.size(); ++at) {
            for (unsigned value = 0; value < 256 && !HasFailure(); ++value) {
                Bytes wrong = frame;
                wrong[at] = static_cast<std::uint8_t>(value);
                static_cast<void>(took(wrong));
            }
        }
    }
}

/// Tunnels, SCTP and whatever else is no ICMP have no L4 fields; frames that are no IP none beyond L2.
TEST_F(FastParser, TakesWhatIsCommon) {
    for (const std::vector<std::uint32_t>& tags : {std::vector<std::uint32_t>{}, {0x8100e123}, {0x88a80001}}) {
        for (const unsigned version : {4U, 6U}) {
            for (const std::uint8_t protocol : {6, 17, 47, 50, 132}) {
                EXPECT_TRUE(took(make_frame({.tags = tags, .version = version, .protocol = protocol})))
                    << version << ", " << int{protocol};
            }
        }
        EXPECT_TRUE(took(make_frame({.tags = tags, .version = 0}))) << "ARP";
        EXPECT_TRUE(took(make_frame({.tags = tags, .tos = 0xb9, .place = 0x4000}))) << "not to be fragmented";
        for (const unsigned version : {4U, 6U}) {
            const Bytes shortest = make_frame({.tags = tags, .version = version, .payload = 12});
            EXPECT_TRUE(took(shortest)) << "20 bytes of UDP";
            EXPECT_FALSE(took(shortest, shortest.size() - 1));
            EXPECT_FALSE(took(make_frame({.tags = tags, .version = version, .payload = 11})));
            EXPECT_TRUE(took(make_frame({.tags = tags, .version = version, .protocol = 6, .payload = 0})));
        }
    }
}

TEST_F(FastParser, LeavesTheRestToTheParser) {
    const FrameSpec specs[] = {{.protocol = 1},
                               {.version = 6, .protocol = 58},
                               {.tags = {0x81000001, 0x81000002}},
                               {.tags = {0x88a80001, 0x81000002}, .version = 0},
                               {.place = 0x2000},
                               {.place = 0x0001},
                               {.version = 6, .hop_by_hop = true},
                               {.version = 6, .place = 8, .fragment_header = true}};
    for (const FrameSpec& spec : specs) EXPECT_FALSE(took(make_frame(spec)));
    Bytes options = make_frame({});
    options[14] = 0x46;
    EXPECT_FALSE(took(options));
    for (const std::uint16_t total : {19, 51}) {
        Bytes bad = make_frame({});
        store_be16(&bad[16], total);
        EXPECT_FALSE(took(bad)) << total << " of " << bad.size() - 14;
    }
}

}  // namespace
}  // namespace ovsdr::soft::test
