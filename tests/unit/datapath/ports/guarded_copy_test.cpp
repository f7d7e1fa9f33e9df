#include "datapath/ports/guarded_copy.hpp"

#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "datapath/signature/crc.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::size_t page = 4096;

void copy_each_size() {
    constexpr std::size_t most = 20'000, wide_ends = 16'384;
    std::vector<unsigned char> from(most), expected(most);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(1 + i % 251);
    std::vector<std::size_t> sizes(1100);
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = i;
    for (const std::size_t size : {page, page + 1, wide_ends - 1, wide_ends, wide_ends + 1, most - 20}) {
        sizes.push_back(size);
    }
    for (const std::size_t size : sizes) {
        const std::size_t to_offset = size % 17, from_offset = size % 13;
        std::vector<unsigned char> to(most);
        std::fill(expected.begin(), expected.end(), 0);
        std::memcpy(expected.data() + to_offset, from.data() + from_offset, size);
        ASSERT_TRUE(guarded_copy(to.data() + to_offset, from.data() + from_offset, size));
        ASSERT_EQ(to, expected) << size;
    }
}

/// What registers are used is decided by guard_copies().
TEST(GuardedCopy, CopiesEachSizeFromAnywhereAndNoByteMore) {
    copy_each_size();
    guard_copies();
    copy_each_size();
}

/// Half of two pages is there: what touches the other half fails, on either side, for each way to copy.
TEST(GuardedCopy, TellsThatMemoryIsNotThere) {
    guard_copies();
    auto* const pages = static_cast<unsigned char*>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void*>(pages), MAP_FAILED);
    ASSERT_EQ(mprotect(pages + page, page, PROT_NONE), 0);
    std::vector<unsigned char> other(page);
    for (const std::size_t size :
         {std::size_t{1}, std::size_t{16}, std::size_t{40}, std::size_t{64}, std::size_t{65}, std::size_t{256},
          std::size_t{257}, std::size_t{320}, std::size_t{600}, page}) {
        EXPECT_TRUE(guarded_copy(other.data(), pages + page - size, size));
        EXPECT_FALSE(guarded_copy(other.data(), pages + page - size + 1, size)) << size;
        EXPECT_TRUE(guarded_copy(pages + page - size, other.data(), size));
        EXPECT_FALSE(guarded_copy(pages + page - size + 1, other.data(), size)) << size;
    }
    munmap(pages, 2 * page);
}

/// The same for what copies and computes at once, with nothing on either side of a page.
TEST(GuardedCopy, SoDoCopiesThatAreSummedUp) {
    guard_copies();
    auto* const pages = static_cast<std::byte*>(
        mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void*>(pages), MAP_FAILED);
    ASSERT_EQ(mprotect(pages, page, PROT_NONE), 0);
    ASSERT_EQ(mprotect(pages + 2 * page, page, PROT_NONE), 0);
    std::byte* const there = pages + page;
    std::vector<std::byte> other(page + 8);
    using signature::GuardType;
    for (const GuardType type : {GuardType::t10_crc, GuardType::crc32, GuardType::crc32c, GuardType::crc64_xp10}) {
        const signature::CopyingCrc crc = signature::copying_crc(type);
        if (crc.function == nullptr) GTEST_SKIP() << "the processor has no VPCLMULQDQ";
        for (const std::size_t size : {8U, 64U, 72U, 248U, 256U, 264U, 512U, 520U, 4048U, 4096U}) {
            const auto copies = [&](std::byte* to, const std::byte* from) {
                std::uint64_t value = 1;
                return crc.function(value, to, {from, size});
            };
            for (std::byte* const at : {there, there + page - size}) {
                EXPECT_TRUE(copies(other.data(), at)) << size;
                EXPECT_TRUE(copies(at, other.data())) << size;
            }
            for (std::byte* const at : {there - 1, there + page - size + 1}) {
                EXPECT_FALSE(copies(other.data(), at)) << size;
                EXPECT_FALSE(copies(at, other.data())) << size;
            }
        }
    }
    munmap(pages, 3 * page);
}

TEST(GuardedCopy, AtomicOperationsAreWhatTheySayOrTellThatMemoryIsNotThere) {
    guard_copies();
    std::uint64_t word = 40, before = 7;
    EXPECT_TRUE(guarded_fetch_add(&word, 2, before));
    EXPECT_EQ(word, 42U);
    EXPECT_EQ(before, 40U);
    before = 41;
    EXPECT_TRUE(guarded_compare_swap(&word, 1, before));
    EXPECT_EQ(word, 42U);
    EXPECT_EQ(before, 42U);
    EXPECT_TRUE(guarded_compare_swap(&word, 1, before));
    EXPECT_EQ(word, 1U);
    EXPECT_EQ(before, 42U);
    auto* const nothing = reinterpret_cast<std::uint64_t*>(page);
    EXPECT_FALSE(guarded_fetch_add(nothing, 2, before));
    EXPECT_FALSE(guarded_compare_swap(nothing, 2, before));
    EXPECT_EQ(before, 42U);
}

TEST(GuardedCopy, AdditionsOfManyThreadsAllCount) {
    std::uint64_t word = 0;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
        threads.emplace_back([&word] {
            std::uint64_t before = 0;
            for (unsigned round = 0; round < 20'000; ++round) EXPECT_TRUE(guarded_fetch_add(&word, 1, before));
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(word, 80'000U);
}

void exits_with_7(int) { _exit(7); }
void exits_with_8_for_page_1(int, siginfo_t* info, void*) {
    _exit(info->si_addr == reinterpret_cast<void*>(page) ? 8 : 9);
}
void touch_page_1() { *reinterpret_cast<volatile char*>(page) = 1; }

/// The application's own faults are its own: whoever was there before hears of them as before.
TEST(GuardedCopyDeathTest, OtherFaultsAreWhoseTheyWere) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // processes in which nobody guards yet
    EXPECT_EXIT(signal(SIGSEGV, SIG_DFL); guard_copies(); touch_page_1(), testing::KilledBySignal(SIGSEGV), "");
    EXPECT_EXIT(signal(SIGSEGV, SIG_IGN); guard_copies(); touch_page_1(), testing::KilledBySignal(SIGSEGV), "");
    EXPECT_EXIT(signal(SIGBUS, SIG_DFL); guard_copies(); raise(SIGBUS); raise(SIGBUS),
                testing::KilledBySignal(SIGBUS), "");
    EXPECT_EXIT(signal(SIGBUS, exits_with_7); guard_copies(); raise(SIGBUS), testing::ExitedWithCode(7), "");
    EXPECT_EXIT(signal(SIGSEGV, exits_with_7); guard_copies(); touch_page_1(), testing::ExitedWithCode(7), "");
    EXPECT_EXIT(
        {
            struct sigaction action {};
            action.sa_sigaction = exits_with_8_for_page_1;
            action.sa_flags = SA_SIGINFO;
            sigaction(SIGSEGV, &action, nullptr);
            guard_copies();
            guard_copies();
            touch_page_1();
        },
        testing::ExitedWithCode(8), "");
}

void says_once(int) { (void)!write(STDERR_FILENO, "once;", 5); }

/// A crash handler that asked to be called once, and returns to the fault, would be called for ever.
TEST(GuardedCopyDeathTest, AHandlerThatWantsOneCallGetsOne) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            struct sigaction action {};
            action.sa_handler = says_once;
            action.sa_flags = static_cast<int>(SA_RESETHAND);
            sigaction(SIGSEGV, &action, nullptr);
            guard_copies();
            alarm(30);
            touch_page_1();
        },
        testing::KilledBySignal(SIGSEGV), "^once;$");
}

std::array<char, 1 << 16> other_stack;
sigjmp_buf back;
void exits_with_7_from_the_other_stack(int) {
    char here;
    const auto at = reinterpret_cast<std::uintptr_t>(&here);
    const auto start = reinterpret_cast<std::uintptr_t>(other_stack.data());
    _exit(at >= start && at < start + other_stack.size() ? 7 : 9);
}
void use_other_stack() {
    const stack_t stack{.ss_sp = other_stack.data(), .ss_flags = 0, .ss_size = other_stack.size()};
    sigaltstack(&stack, nullptr);
}
void jumps_back(int) { siglongjmp(back, 1); }
void touch_page_1_and_come_back() {
    if (sigsetjmp(back, 0) == 0) touch_page_1();  // 0: the mask of signals stays as the handler had it
}

TEST(GuardedCopyDeathTest, HandlersRunOnTheApplicationsSignalStackAndMayLeaveByAJump) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            use_other_stack();
            signal(SIGSEGV, exits_with_7_from_the_other_stack);
            guard_copies();
            touch_page_1();
        },
        testing::ExitedWithCode(7), "");
    EXPECT_EXIT(
        {
            signal(SIGSEGV, jumps_back);
            guard_copies();
            touch_page_1_and_come_back();
            touch_page_1_and_come_back();
            char byte;
            _exit(guarded_copy(&byte, reinterpret_cast<void*>(page), 1) ? 9 : 7);
        },
        testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace ovsdr::soft
