// The end of the threads for copies: the process must not end while one of them is closing a device, and must end.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/unit/ctrl/shim_copies_probe.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// A process's threads start once: each test is a process of its own. It ends with the number of what is not so.
struct InProcess : testing::Test {
    static void SetUpTestSuite() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
    static void want(bool is_so, int number) {
        if (!is_so) std::exit(number);
    }
};

TEST_F(InProcess, ThreadsThatSleepEndAtOnceAndLetGo) {
    EXPECT_EXIT({
        probe_copies_start();
        const auto begin = Clock::now();
        probe_copies_stop();
        want(Clock::now() < begin + 2s, 1);
        want(probe_let_go_calls() == 1 && probe_tended_last(), 2);
        std::exit(0);
    }, testing::ExitedWithCode(0), "");
}

TEST_F(InProcess, ADeviceThatIsBeingClosedIsWaitedFor) {
    EXPECT_EXIT({
        probe_copies_start();
        probe_tend(500);
        probe_copies_stop();
        want(probe_has_tended(), 1);
        want(probe_let_go_calls() == 1 && probe_tended_last(), 2);
        std::exit(0);
    }, testing::ExitedWithCode(0), "");
}

/// Its commands are the kernel's to end.
TEST_F(InProcess, ADeviceThatDoesNotAnswerIsLeftToTheKernel) {
    EXPECT_EXIT({
        probe_copies_start();
        probe_tend(60000);
        const auto begin = Clock::now();
        probe_copies_stop();
        want(!probe_has_tended(), 2);
        want(Clock::now() >= begin + 2s && Clock::now() < begin + 20s, 1);
        std::_Exit(0);
    }, testing::ExitedWithCode(0), "");
}

TEST_F(InProcess, WithoutThreadsThereIsNothingToStop) {
    EXPECT_EXIT({
        probe_copies_stop();
        want(probe_let_go_calls() == 0, 1);
        std::exit(0);
    }, testing::ExitedWithCode(0), "");
}

}  // namespace
