// Files of a collector without a network: what a scan finds in them, and where one that was cut off goes on.
#include "tests/unit/tools/drcollect/file_fixture.hpp"

#include <algorithm>

#include "tests/unit/tools/drcollect/interposed.hpp"

namespace ovsdr::drcollect {
namespace {

using namespace test;

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
    failing_syncs = 1;
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
        failing_syncs = 1;
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
    failing_syncs = 1;
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

TEST_F(FileTest, WhatTheDiskCannotReadIsAFault) {
    {
        auto file = open();
        write(*file, 10);
        file->sync();
    }
    const std::string right = content();
    struct Unreadable {
        std::size_t begin, end;
        std::uint64_t next;
    };
    const std::size_t begins = right.find("BEGN"), last = right.rfind("SEGM");
    const Unreadable parts[] = {
        {12288, 16384, 10},                             // some segments in the middle
        {0, 1, 10},                                     // the head, and segment 0
        {last, last + 1, 9},                            // the last mark
        {right.size() - 1, right.size(), 9},
        {last - 700, last - 699, 9},                    // what is in front of it
        {begins, right.size(), 0},
    };
    for (const Unreadable& part : parts) {
        SCOPED_TRACE(part.begin);
        unreadable_begin = static_cast<off_t>(part.begin);
        unreadable_end = static_cast<off_t>(part.end);
        const Scan found = scan(path());
        EXPECT_FALSE(found.sound());
        EXPECT_TRUE(found.damaged);
        EXPECT_EQ(std::ranges::count_if(found.findings, [&](const Finding& finding) {
                      return finding.what.find("bytes cannot be read from the disk") != std::string::npos &&
                             finding.file_offset == part.begin;
                  }), 1);
        const auto file = open();
        EXPECT_EQ(file->next(), part.next);
        EXPECT_EQ(file->path(), path(2));
        EXPECT_NE(file->damaged().find(path(1)), std::string::npos);
        EXPECT_EQ(content(), right) << "nothing is cut off";
        std::filesystem::remove(path(2));
    }
    unreadable_end = 0;
}

/// A sector that cannot be read counts as zeros, and zeros may have stood there.
TEST_F(FileTest, ZerosThatTheDiskCannotReadAreAFaultToo) {
    auto file = open();
    const std::array<std::byte, 7000> frame{};
    for (std::uint64_t sequence = 0; sequence < 2; ++sequence) {
        ASSERT_TRUE(ring.append({.interface = 0, .time = 5, .bytes = frame, .original_size = 7000}));
        ASSERT_TRUE(ring.seal(1000));
        ring.release(sequence + 1);
        put(*file, sequence);
    }
    file->sync();
    const std::string right = content();
    ASSERT_TRUE(scan(path()).sound());
    ASSERT_EQ(right.substr(12288 - 200, 400), std::string(400, '\0')) << "of segment 1";
    unreadable_begin = 12288 - 100;
    unreadable_end = 12288;
    const Scan found = scan(path());
    unreadable_end = 0;
    EXPECT_FALSE(found.sound());
    EXPECT_TRUE(found.damaged);
    EXPECT_EQ(found.next, 1u);
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
