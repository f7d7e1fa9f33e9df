// Files of a collector without a network: what a scan finds in them, and where one that was cut off goes on.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "offload/mirror/segment_ring.hpp"
#include "offload/mirror/wire/guard.hpp"
#include "tests/unit/tools/drcollect/interposed.hpp"
#include "tools/drcollect/capture_file.hpp"
#include "tools/drcollect/scan.hpp"

namespace ovsdr::drcollect {
namespace {

using namespace mirror;

struct FileTest : ::testing::Test {
    FileTest() {
        char name[] = "/tmp/ovsdr-file-XXXXXX";
        folder = mkdtemp(name);
    }
    ~FileTest() override { std::filesystem::remove_all(folder); }

    /// Segments as a collector gets them, of seven frames each.
    void write(CaptureFile& file, unsigned segments, bool keep = true) {
        for (unsigned i = 0; i < segments; ++i) {
            std::array<std::byte, 500> frame;
            for (unsigned n = 0; n < 7; ++n) {
                frame.fill(static_cast<std::byte>(ring.sealed() * 7 + n));
                ASSERT_TRUE(ring.append({.interface = 0, .time = 5, .bytes = frame, .original_size = 500}));
            }
            const std::uint64_t sequence = ring.sealed();
            ASSERT_TRUE(ring.seal(1000 + sequence));
            ring.release(sequence + 1);
            if (sequence < file.next()) continue;
            put(file, sequence, keep);
        }
    }
    void put(CaptureFile& file, std::uint64_t sequence, bool keep = true) {
        const auto data = ring.blocks_of(sequence);
        const SegmentHeader header = decode_header(data).header;
        const Signature& signature = header.signature;
        std::vector<std::byte> fields(data.size() / signature.block_size * signature.field_size());
        for (std::uint32_t block = 0; block < data.size() / signature.block_size; ++block) {
            write_field(signature, {header.application_tag, header.first_reference + block},
                        data.subspan(block * signature.block_size, signature.block_size),
                        std::span(fields).subspan(block * signature.field_size(), signature.field_size()));
        }
        file.append(header, data, keep ? std::span<const std::byte>(fields) : std::span<const std::byte>());
    }
    std::unique_ptr<CaptureFile> open(const FileLimits& limits = {}) {
        return std::make_unique<CaptureFile>(folder, limits, hello());
    }
    Hello hello() const {
        return {.session = 7,
                .oldest = oldest,
                .application_tag = 3,
                .geometry = geometry,
                .endpoint = {},
                .mirror = "m",
                .interfaces = {{"i", 65535}}};
    }
    std::string path(unsigned number = 1) const {
        return folder + "/m-0000000000000007-0000" + std::to_string(number) + ".pcapng";
    }
    std::string content() const {
        std::ifstream file(path(), std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    static std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
    void overwrite(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }

    const Geometry geometry{.segment_size = 8192, .slots = 4, .signature = {SignatureType::t10dif_crc, 512}};
    std::vector<std::byte> memory = std::vector<std::byte>(4 * 8192);
    SegmentRing ring{geometry, 7, 3, memory, 65535};
    std::uint64_t oldest = 0;
    std::string folder;
};

TEST_F(FileTest, AFileIsSoundAndCountsAreThose) {
    auto file = open();
    write(*file, 5);
    file->sync();
    file->close();
    const Scan found = scan(path());
    EXPECT_TRUE(found.sound());
    EXPECT_EQ(found.segments, 5u);
    EXPECT_EQ(found.frames, 35u);
    EXPECT_EQ(found.next, 5u);
    EXPECT_EQ(found.gaps, 0u);
    EXPECT_EQ(found.torn, 0u);
    EXPECT_GT(found.blocks, 5u * 7);
    EXPECT_TRUE(found.has_statistics);
}

/// Each bit of a file is packet, mark or head; a change in any of them is found.
TEST_F(FileTest, EachChangedByteBehindTheHeadIsFound) {
    auto file = open();
    write(*file, 3);
    file->sync();
    const std::string right = content();
    const std::size_t begin = right.find("BEGN") - 8;
    for (std::size_t at = begin; at < right.size(); ++at) {
        std::string changed = right;
        changed[at] = static_cast<char>(changed[at] ^ 0x20);
        const Scan found = scan(bytes_of(changed));
        EXPECT_FALSE(found.sound()) << "byte " << at << " of " << right.size();
        EXPECT_TRUE(found.damaged) << "not an end that was never written: byte " << at << " of " << right.size();
        // One segment at most is lost: whoever resumes goes on behind the last, or asks for it once more.
        EXPECT_GE(found.beginning ? found.next : 2, 2u) << "byte " << at << " of " << right.size();
    }
    EXPECT_TRUE(scan(bytes_of(right)).sound());
}

TEST_F(FileTest, AFileWithAFaultIsLeftAsItIsAndAnotherFollows) {
    {
        auto file = open();
        write(*file, 4);
        file->sync();
    }
    const std::string right = content();
    std::vector<std::size_t> marks;
    for (std::size_t at = right.find("SEGM"); at != std::string::npos; at = right.find("SEGM", at + 1)) {
        marks.push_back(at - 8);
    }
    ASSERT_EQ(marks.size(), 4u);
    std::uint32_t mark_size;
    std::memcpy(&mark_size, right.data() + marks[0] + 4, 4);
    struct Damage {
        std::size_t byte;
        std::uint64_t next;   ///< the segment that the other file begins with
    };
    const std::size_t last_payload = marks[2] + mark_size;
    const Damage damages[] = {
        {marks[0] + mark_size + 4, 4},   // a packet's length in segment 1
        {marks[1] + 5, 4},               // its mark's length
        {marks[1] + 100, 4},             // a field
        {last_payload + 4, 3},           // of the last segment: the switch is asked for it again
        {last_payload + 6, 3},           // a length beyond the file's end
        {marks[3] + 5, 3},
        {marks[3] + 6, 3},
        {marks[3] + mark_size - 3, 3},
        {marks[3] + 30, 3},
        {right.find("BEGN") + 6, 4},     // its beginning
        {right.find("BEGN") - 3, 4},
    };
    for (const Damage& damage : damages) {
        SCOPED_TRACE(damage.byte);
        std::string changed = right;
        changed[damage.byte] = static_cast<char>(changed[damage.byte] ^ 1);
        overwrite(changed);
        const auto file = open();
        EXPECT_EQ(file->next(), damage.next);
        EXPECT_EQ(file->path(), path(2));
        EXPECT_NE(file->damaged().find(path(1) + ": segment "), std::string::npos) << file->damaged();
        EXPECT_EQ(content(), changed) << "byte for byte";
        std::filesystem::remove(path(2));
    }
}

/// Linux tells an error of writing back once; the next call says that all is well.
TEST_F(FileTest, AFailedSyncIsNotMadeGoodByTheNextOne) {
    auto file = open();
    write(*file, 2);
    file->sync();
    write(*file, 2);
    test::failing_syncs = 1;
    EXPECT_THROW(file->sync(), std::system_error);
    EXPECT_EQ(file->next(), 2u) << "once more";
    EXPECT_EQ(file->durable(), 2u);
    for (const std::uint64_t sequence : {2, 3}) put(*file, sequence);
    file->sync();
    EXPECT_EQ(file->durable(), 4u);
    EXPECT_TRUE(scan(path(1)).sound());
    EXPECT_EQ(scan(path(1)).next, 2u);
    EXPECT_TRUE(scan(path(2)).sound());
    EXPECT_EQ(scan(path(2)).beginning->first, 2u);
    EXPECT_EQ(scan(path(2)).next, 4u);
}

TEST_F(FileTest, AFileWhoseFirstSyncFailsLeavesNone) {
    auto file = open();
    for (int times = 0; times < 3; ++times) {
        if (times == 0) write(*file, 1);
        else put(*file, 0);
        test::failing_syncs = 1;
        EXPECT_THROW(file->sync(), std::system_error);
        EXPECT_EQ(file->next(), 0u);
        EXPECT_FALSE(std::filesystem::exists(path(1)));
    }
    put(*file, 0);
    file->sync();
    EXPECT_EQ(scan(path(1)).segments, 1u);
    EXPECT_FALSE(std::filesystem::exists(path(2)));
}

TEST_F(FileTest, ASyncThatFailsBeforeTheNextFileIsNoneEither) {
    auto file = open({.size = 6000});
    write(*file, 2);   // it is full
    test::failing_syncs = 1;
    EXPECT_THROW(write(*file, 1), std::system_error);
    EXPECT_EQ(file->next(), 0u);
    for (const std::uint64_t sequence : {0, 1, 2}) put(*file, sequence);
    file->sync();
    EXPECT_EQ(file->durable(), 3u);
    EXPECT_TRUE(scan(path(1)).sound() && scan(path(2)).sound());
    EXPECT_EQ(scan(path(1)).segments + scan(path(2)).segments, 3u);
}

TEST_F(FileTest, TheBadBlockIsNamed) {
    auto file = open();
    write(*file, 4);
    file->sync();
    std::string changed = content();
    // The second frame of segment 2 begins with bytes 15; block 1 of the segment has byte 700 of it.
    const std::size_t third = changed.find(std::string(500, static_cast<char>(14))) - 28;   // payload of segment 2
    changed[third + 700 - header_size] = static_cast<char>(changed[third + 700 - header_size] ^ 1);
    overwrite(changed);
    const Scan found = scan(path());
    ASSERT_EQ(found.findings.size(), 1u);
    EXPECT_EQ(found.findings[0].segment, 2u);
    EXPECT_EQ(found.findings[0].file_offset, third + 512 - header_size);
    EXPECT_NE(found.findings[0].what.find("block 1 (offset 512 of the segment): guard"), std::string::npos)
        << found.findings[0].what;
    EXPECT_EQ(found.next, 4u) << "what follows is good: a collector goes on behind it";
}

TEST_F(FileTest, WithoutFieldsTheSegmentIsNamed) {
    auto file = open();
    write(*file, 4, false);
    file->sync();
    EXPECT_TRUE(scan(path()).sound());
    EXPECT_EQ(scan(path()).unprotected, 4u);
    std::string changed = content();
    changed[changed.find(std::string(500, static_cast<char>(8))) + 9] = 0;
    overwrite(changed);
    const Scan found = scan(path());
    ASSERT_EQ(found.findings.size(), 1u);
    EXPECT_EQ(found.findings[0].segment, 1u);
    EXPECT_NE(found.findings[0].what.find("CRC-32C"), std::string::npos);
}

TEST_F(FileTest, OneThatWasCutOffAnywhereGoesOnBehindItsLastWholeSegment) {
    {
        auto file = open();
        write(*file, 3);
        file->sync();
    }
    const std::string whole = content();
    const std::size_t begin = whole.find("BEGN") - 8;
    std::vector<std::size_t> ends;
    for (std::size_t size = begin; size <= whole.size(); size += 4) {
        const Scan found = scan(bytes_of(whole).first(size));
        EXPECT_LE(found.good_end, size);
        EXPECT_EQ(found.sound(), found.good_end == size && found.beginning) << size;
        if (!found.beginning) continue;
        EXPECT_EQ(found.segments, found.next);
        EXPECT_FALSE(found.damaged) << "it is unfinished: " << size;
        if (ends.size() <= found.next) ends.push_back(size);
    }
    EXPECT_EQ(ends.size(), 4u) << "no, one, two, three segments";
    for (const std::size_t cut : {ends[2] - 4, ends[2], ends[2] + 100, ends[3] - 4}) {
        overwrite(whole.substr(0, cut) + (cut == ends[2] ? std::string(1000, '\0') : ""));
        const auto file = open();
        EXPECT_EQ(file->next(), cut < ends[2] ? 1u : 2u) << cut;
        file->sync();
        EXPECT_TRUE(scan(path()).sound()) << "and it opens at once";
    }
}

TEST_F(FileTest, WhatTheSwitchHasNoLongerIsAGap) {
    {
        auto file = open();
        write(*file, 2);
        file->sync();
    }
    std::vector<std::byte> rest(4 * 8192);
    oldest = 3;
    const auto file = open();
    EXPECT_EQ(file->next(), 3u);
    EXPECT_EQ(file->gap(), 1u);
    write(*file, 3);
    file->sync();
    const Scan found = scan(path());
    EXPECT_EQ(found.gaps, 1u);
    EXPECT_FALSE(found.sound());
    EXPECT_NE(found.findings.at(0).what.find("1 segments are not there"), std::string::npos);
    EXPECT_EQ(found.next, 5u);
}

/// Whoever takes the first files away does not have the later ones written over.
TEST_F(FileTest, FilesAreKeptWhicheverOfThemAreGone) {
    const auto file_of = [&](unsigned number) {
        return folder + "/m-0000000000000007-0000" + std::to_string(number) + ".pcapng";
    };
    const FileLimits each_its_own{.size = 1000};
    {
        auto file = open(each_its_own);
        write(*file, 4);
        file->sync();
    }
    for (unsigned number = 1; number <= 4; ++number) ASSERT_EQ(scan(file_of(number)).segments, 1u) << number;
    std::filesystem::remove(file_of(1));
    std::ofstream(file_of(5), std::ios::binary) << "torn";
    std::ofstream(folder + "/m-0000000000000007-9.txt") << "somebody's";
    {
        auto file = open(each_its_own);
        EXPECT_EQ(file->next(), 4u);
        EXPECT_FALSE(std::filesystem::exists(file_of(5))) << "there was nothing in it";
        write(*file, 2);
        file->sync();
    }
    EXPECT_FALSE(std::filesystem::exists(file_of(1)));
    for (unsigned number = 2; number <= 6; ++number) {
        const Scan found = scan(file_of(number));
        EXPECT_TRUE(found.sound() && found.segments == 1 && found.next == number) << number;
    }
}

TEST_F(FileTest, SwappedAndRepeatedSegmentsAreFound) {
    {
        auto file = open();
        write(*file, 3);
        file->sync();
    }
    const std::string whole = content();
    std::vector<std::size_t> marks;
    for (std::size_t at = whole.find("SEGM"); at != std::string::npos; at = whole.find("SEGM", at + 1)) {
        std::uint32_t size;
        std::memcpy(&size, whole.data() + at - 4, 4);
        marks.push_back(at - 8 + size);
    }
    ASSERT_EQ(marks.size(), 3u);
    const std::string one = whole.substr(marks[0], marks[1] - marks[0]), two = whole.substr(marks[1]);
    overwrite(whole.substr(0, marks[0]) + two + one);
    EXPECT_FALSE(scan(path()).sound());
    overwrite(whole.substr(0, marks[1]) + one + two);
    const Scan repeated = scan(path());
    ASSERT_FALSE(repeated.sound());
    EXPECT_NE(repeated.findings[0].what.find("comes after"), std::string::npos) << repeated.findings[0].what;
}

TEST_F(FileTest, ARingOfAnotherSizeIsRefusedWhileItHasSegmentsOfTheFile) {
    {
        auto file = open();
        write(*file, 1);
        file->sync();
    }
    Hello other = hello();
    other.geometry.segment_size = 16384;
    EXPECT_THROW(CaptureFile(folder, {}, other), SessionConflict);
    EXPECT_FALSE(std::filesystem::exists(path(2)));
    EXPECT_TRUE(scan(path()).sound());
    other.oldest = 1;   // none of them
    EXPECT_EQ(CaptureFile(folder, {}, other).next(), 1u);
    EXPECT_EQ(scan(path(2)).beginning->geometry.segment_size, 16384u);
    EXPECT_EQ(scan(path(2)).beginning->first, 1u);
}

TEST_F(FileTest, WhatAFileSaysOnceIsSaidInAnotherFileWhenItChanges) {
    const auto changes = std::to_array<void (*)(Hello&)>({
        [](Hello& hello) { hello.interfaces.push_back({"j", 100}); },
        [](Hello& hello) { hello.interfaces[0].name = "k"; },
        [](Hello& hello) { hello.interfaces[0].snap_length = 128; },
        [](Hello& hello) { hello.application_tag = 4; },
        [](Hello& hello) { hello.geometry.signature = {SignatureType::t10dif_crc, 4096}; },
        [](Hello& hello) { hello.geometry.signature = {SignatureType::crc32c, 512}; },
    });
    unsigned number = 1;
    {
        auto file = open();
        write(*file, 2);
        file->sync();
    }
    Hello now = hello();
    for (const auto change : changes) {
        SCOPED_TRACE(number);
        change(now);
        const std::string before = content();
        for (int times = 0; times < 2; ++times) {   // a second time it goes on in that one
            CaptureFile file(folder, {}, now);
            EXPECT_EQ(file.next(), 2u);
            EXPECT_EQ(file.gap(), 0u);
            EXPECT_EQ(file.path(), path(number + 1));
        }
        EXPECT_EQ(content(), before);
        ++number;
    }
}

TEST_F(FileTest, NoFileAndForeignFilesAreSaidSo) {
    EXPECT_THROW((void)scan(folder + "/none"), std::system_error);
    overwrite("");
    EXPECT_FALSE(scan(path()).sound());
    overwrite("this is no capture at all, but long enough to be looked at");
    EXPECT_FALSE(scan(path()).sound());
}

}  // namespace
}  // namespace ovsdr::drcollect
