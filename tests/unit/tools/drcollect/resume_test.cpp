// Files of a collector that a session goes on with: which of them, where, and what is left as it is.
#include "tests/unit/tools/drcollect/file_fixture.hpp"
#include "tests/unit/tools/drcollect/interposed.hpp"

namespace ovsdr::drcollect {
namespace {

using namespace test;

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

TEST_F(FileTest, AResumeWhoseSecondSyncFailsTakesNothingAway) {
    {
        auto file = open();
        write(*file, 3);
        file->sync();
    }
    const std::string right = content();
    for (const char* end : {"", "an unfinished end   "}) {
        overwrite(right + end);
        good_syncs_first = 1;   // before the file is read
        failing_syncs = 1;
        EXPECT_THROW((void)open(), std::system_error);
        EXPECT_EQ(failing_syncs, 0);
        EXPECT_EQ(content(), right);
        const auto file = open();
        EXPECT_EQ(file->next(), 3u);
        EXPECT_EQ(file->path(), path(1));
    }
}

TEST_F(FileTest, AnEndThatIsKnownIsNotReadAgain) {
    std::optional<KnownEnd> known;
    for (const unsigned segments : {3u, 2u, 0u, 1u}) {
        SCOPED_TRACE(segments);
        read_size = 0;
        CaptureFile file(folder, {}, hello(), {.known = known ? &*known : nullptr});
        EXPECT_EQ(read_size, 0u);
        EXPECT_EQ(file.path(), path(1));
        write(file, segments);
        if (segments > 0) {
            EXPECT_FALSE(file.known_end()) << "it is not durable";
        }
        file.sync();
        if (segments == 2) file.close();   // with statistics, which whoever goes on cuts off
        known = file.known_end();
        ASSERT_TRUE(known);
        const Scan read = scan(path());
        EXPECT_TRUE(read.sound());
        EXPECT_EQ(known->found.beginning, read.beginning);
        EXPECT_EQ(known->found.head, read.head);
        EXPECT_EQ(known->found.size, read.size);
        EXPECT_EQ(known->found.good_end, read.good_end);
        EXPECT_EQ(known->found.next, read.next);
        EXPECT_EQ(known->found.frames, read.frames);
        EXPECT_EQ(known->found.first_sealed, read.first_sealed);
        EXPECT_EQ(known->found.last_sealed, read.last_sealed);
    }
    EXPECT_EQ(known->found.next, 6u);
    const std::string right = content();
    const auto reads = [&] {
        read_size = 0;
        EXPECT_EQ(CaptureFile(folder, {}, hello(), {.known = &*known}).next(), 6u);
        return read_size > 0;
    };
    overwrite(right + "somebody's ");
    EXPECT_TRUE(reads()) << "another size";
    overwrite(right);
    EXPECT_TRUE(reads()) << "written at another time";
    std::filesystem::rename(path(1), path(2));
    EXPECT_TRUE(reads()) << "another name";
}

TEST_F(FileTest, AFailedSyncLeavesNoKnownEnd) {
    auto file = open();
    write(*file, 2);
    file->sync();
    EXPECT_TRUE(file->known_end());
    write(*file, 1);
    failing_syncs = 1;
    EXPECT_THROW(file->sync(), std::system_error);
    EXPECT_FALSE(file->known_end());
    put(*file, 2);   // to another file
    file->sync();
    EXPECT_EQ(file->known_end().value().path, path(2));
    failing_syncs = 1;   // of the statistics
    file->close();
    EXPECT_FALSE(file->known_end());
}

TEST_F(FileTest, AGapIsToldOnceASegmentBehindItIsDurable) {
    std::optional<KnownEnd> known;
    {
        auto file = open();
        write(*file, 2);
        file->sync();
        known = file->known_end();
    }
    oldest = 3;
    for (int times = 0; times < 3; ++times) {   // each breaks at once
        const CaptureFile file(folder, {}, hello(), {.known = times == 1 ? &*known : nullptr});
        EXPECT_EQ(file.gap(), 1u);
        EXPECT_FALSE(file.gap_is_told());
        known = file.known_end();
        EXPECT_EQ(known.value().found.next, 2u);
    }
    {
        auto file = open();
        write(*file, 2);
        EXPECT_FALSE(file->gap_is_told());
        file->sync();
        EXPECT_TRUE(file->gap_is_told());
    }
    oldest = 5;
    Hello other = hello();
    other.interfaces.push_back({"j", 100});
    const CaptureFile file(folder, {}, other);
    EXPECT_EQ(file.gap(), 1u);
    EXPECT_TRUE(file.gap_is_told()) << "another file begins behind it";
}

TEST_F(FileTest, ASmallFileWhoseBeginningCannotBeReadStays) {
    {
        auto file = open();
        write(*file, 2);
        file->sync();
    }
    Hello many = hello();
    for (int i = 0; i < 200; ++i) many.interfaces.push_back({std::string(64, 'x'), 100});
    std::string changed = content();
    changed[changed.find("BEGN") + 6] ^= 1;
    overwrite(changed);
    {
        const CaptureFile file(folder, {}, many);
        EXPECT_EQ(file.next(), 2u);
        EXPECT_EQ(file.path(), path(2));
        EXPECT_NE(file.damaged().find(path(1)), std::string::npos);
    }
    ASSERT_TRUE(std::filesystem::exists(path(1)));
    EXPECT_EQ(content(), changed);
    std::filesystem::remove(path(2));
    // Without a mark that can be read, but a segment has been there.
    for (std::size_t at = changed.find("SEGM"); at != std::string::npos; at = changed.find("SEGM", at + 1)) {
        changed[at + 20] ^= 1;
    }
    overwrite(changed);
    EXPECT_EQ(CaptureFile(folder, {}, many).path(), path(2));
    ASSERT_TRUE(std::filesystem::exists(path(1)));
    EXPECT_EQ(content(), changed);
    std::filesystem::remove(path(2));
    // No segment has ever been in this one.
    overwrite(changed.substr(0, changed.find("BEGN")));
    EXPECT_EQ(CaptureFile(folder, {}, many).path(), path(1));
    EXPECT_TRUE(scan(path(1)).sound());
}

}  // namespace
}  // namespace ovsdr::drcollect
