// Small parts of the soft NIC that need no packet.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <vector>

#include "datapath/control/errno_names.hpp"
#include "datapath/control/fault.hpp"
#include "datapath/ports/drivers.hpp"
#include "datapath/ports/identity.hpp"
#include "datapath/ports/listeners.hpp"
#include "datapath/ports/lookout.hpp"
#include "datapath/ports/sleeper.hpp"
#include "datapath/ports/socket_path.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(Fault, FailsTheNthCallOnce) {
    arm_fault("ibv_create_cq", ENOMEM, 3);
    EXPECT_EQ(injected_fault("ibv_create_cq"), 0);
    EXPECT_EQ(injected_fault("ibv_create_qp"), 0) << "another call does not count";
    EXPECT_EQ(injected_fault("ibv_create_cq"), 0);
    EXPECT_EQ(injected_fault("ibv_create_cq"), ENOMEM);
    EXPECT_EQ(injected_fault("ibv_create_cq"), 0);
}

TEST(Fault, ReplacesAnEarlierArming) {
    arm_fault("ibv_reg_mr", ENOMEM, 1);
    arm_fault("ibv_reg_mr", EIO, 2);
    EXPECT_EQ(injected_fault("ibv_reg_mr"), 0);
    EXPECT_EQ(injected_fault("ibv_reg_mr"), EIO);
}

TEST(ErrnoNames, KnowsNamesAndRefusesOthers) {
    EXPECT_EQ(errno_of("ENOMEM"), ENOMEM);
    EXPECT_EQ(errno_of("EOPNOTSUPP"), EOPNOTSUPP);
    EXPECT_EQ(errno_of("EWOULDBLOCK"), EAGAIN);
    EXPECT_EQ(errno_of("enomem"), 0);
    EXPECT_EQ(errno_of(""), 0);
}

TEST(Drivers, FindsArgumentsByWholeKey) {
    EXPECT_EQ(dpdk_argument("net_af_packet,xiface=a,iface=b,framesz=2048", "iface"), "b");
    EXPECT_EQ(dpdk_argument("net_af_packet,ifaces=a", "iface"), "");
    EXPECT_EQ(dpdk_argument("net_null", "iface"), "");
}

TEST(Identity, IsStableAndDistinct) {
    EXPECT_EQ(derived_guid("mlx5_0"), derived_guid("mlx5_0"));
    EXPECT_NE(derived_guid("mlx5_0"), derived_guid("mlx5_1"));
    const std::uint64_t guid = derived_guid("mlx5_0");
    EXPECT_NE(derived_mac(guid, VportId{1}), derived_mac(guid, VportId{2}));
    EXPECT_EQ(derived_mac(guid, VportId{1})[0], 0x02);
}

TEST(Listeners, HearEveryChangeInOrder) {
    unsigned wakes = 0;
    Listeners listeners([&] { ++wakes; });
    std::vector<std::pair<VportId, VportChange>> heard;
    listeners.add([&](VportId vport, VportChange change) { heard.emplace_back(vport, change); });
    listeners.post(VportId{1}, VportChange::added);
    listeners.post(VportId{1}, VportChange::mtu);
    EXPECT_EQ(wakes, 2U);
    EXPECT_TRUE(heard.empty()) << "only the control thread calls";
    listeners.dispatch();
    EXPECT_EQ(heard, (std::vector<std::pair<VportId, VportChange>>{{VportId{1}, VportChange::added},
                                                                   {VportId{1}, VportChange::mtu}}));
}

TEST(Listeners, MayRemoveThemselves) {
    Listeners listeners([] {});
    unsigned calls = 0;
    std::uint64_t id = 0;
    id = listeners.add([&](VportId, VportChange) {
        ++calls;
        listeners.remove(id);
    });
    listeners.post(VportId{1}, VportChange::link);
    listeners.post(VportId{1}, VportChange::link);
    listeners.dispatch();
    EXPECT_EQ(calls, 1U);
}

TEST(Listeners, RemoveWaitsForACallUnderWay) {
    Listeners listeners([] {});
    std::atomic<bool> inside{false}, done{false};
    const auto id = listeners.add([&](VportId, VportChange) {
        inside = true;
        std::this_thread::sleep_for(50ms);
        done = true;
    });
    listeners.post(VportId{1}, VportChange::link);
    std::thread dispatcher([&] { listeners.dispatch(); });
    while (!inside) std::this_thread::yield();
    listeners.remove(id);
    EXPECT_TRUE(done);
    dispatcher.join();
}

class SocketLockTest : public testing::Test {
protected:
    SocketLockTest() { std::filesystem::create_directory(folder_); }
    ~SocketLockTest() override { std::filesystem::remove_all(folder_); }

    const std::filesystem::path folder_ = "/tmp/ovs-dr-lock-" + std::to_string(getpid());
    const std::string path_ = folder_ / "socket", lock_ = path_ + ".lock";
};

/// Who can read the folder can lock it, and keep the lock.
TEST_F(SocketLockTest, AFolderThatSomebodyLocksHoldsNobodyUp) {
    const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(flock(folder, LOCK_EX), 0);
    std::atomic<bool> done{false};
    std::thread starting([&] {
        EXPECT_EQ(SocketLock(path_).error(), 0);
        done = true;
    });
    for (unsigned i = 0; i < 10'000 && !done; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(done);
    close(folder);
    starting.join();
}

TEST_F(SocketLockTest, IsOneOwnersAtATimeAndLeavesNothingBehind) {
    std::atomic<unsigned> inside{0}, turns{0};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (unsigned turn = 0; turn < 50; ++turn) {
                const SocketLock lock(path_);
                if (lock.error() != 0) continue;
                EXPECT_EQ(++inside, 1U);
                ++turns;
                --inside;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_GT(turns, 0U);
    EXPECT_FALSE(std::filesystem::exists(lock_));
}

TEST_F(SocketLockTest, AnOwnerThatKeepsItIsWaitedForOnlySoLong) {
    const int file = open(lock_.c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_EQ(flock(file, LOCK_EX), 0);
    EXPECT_EQ(SocketLock(path_).error(), ETIMEDOUT);
    EXPECT_NE(socket_problem(path_, ETIMEDOUT).find(lock_), std::string::npos);
    EXPECT_TRUE(std::filesystem::exists(lock_)) << "the owner's";
    close(file);
    EXPECT_EQ(SocketLock(path_).error(), 0) << "what a process that was killed left behind";
}

TEST_F(SocketLockTest, ALockThatOthersCouldHoldIsNone) {
    std::ofstream(lock_) << "";
    ASSERT_EQ(chmod(lock_.c_str(), 0604), 0);
    EXPECT_EQ(SocketLock(path_).error(), ENOLCK);
    std::filesystem::remove(lock_);
    const std::string elsewhere = folder_ / "elsewhere";
    std::filesystem::create_symlink(elsewhere, lock_);
    EXPECT_EQ(SocketLock(path_).error(), ENOLCK);
    EXPECT_FALSE(std::filesystem::exists(elsewhere));
    std::filesystem::remove(lock_);
    std::filesystem::create_directory(lock_);
    EXPECT_NE(SocketLock(path_).error(), 0);
    std::filesystem::remove(lock_);
    if (geteuid() == 0) {
        std::ofstream(lock_) << "";
        ASSERT_EQ(chmod(lock_.c_str(), 0600), 0);
        ASSERT_EQ(chown(lock_.c_str(), 65534, 65534), 0);
        EXPECT_EQ(SocketLock(path_).error(), ENOLCK);
    }
    EXPECT_EQ(SocketLock(folder_ / "no" / "folder" / "socket").error(), ENOENT);
    EXPECT_EQ(SocketLock(folder_ / "made" / "socket").error(), 0);
}

TEST(Sleeper, WakesByDoorbell) {
    Sleeper sleeper;
    sleeper.prepare();
    std::thread ringer([&] {
        std::this_thread::sleep_for(20ms);
        sleeper.ring();
    });
    const auto begin = Clock::now();
    sleeper.sleep(10s);
    EXPECT_LT(Clock::now() - begin, 5s);
    ringer.join();
}

TEST(Sleeper, DoesNotSleepWhenRungBefore) {
    Sleeper sleeper;
    sleeper.prepare();
    sleeper.ring();
    const auto begin = Clock::now();
    sleeper.sleep(10s);
    EXPECT_LT(Clock::now() - begin, 5s);
}

TEST(Sleeper, SleepsForItsTime) {
    Sleeper sleeper;
    sleeper.prepare();
    const auto begin = Clock::now();
    sleeper.sleep(20ms);
    EXPECT_GE(Clock::now() - begin, 20ms);
}

TEST(Sleeper, LeavesOutASocketThatCriesWolf) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(write(ends[1], "x", 1), 1);
    Sleeper sleeper;
    sleeper.watch({{.descriptor = ends[0], .is_epoll = false}});
    unsigned wakes = 0;
    for (; !sleeper.lost_sockets() && wakes < 1000; ++wakes) {
        sleeper.prepare();
        sleeper.sleep(1s);
        sleeper.woke_for(false);
    }
    EXPECT_TRUE(sleeper.lost_sockets());
    EXPECT_GT(wakes, 10U) << "a few empty wakes are normal";
    const auto begin = Clock::now();
    sleeper.prepare();
    sleeper.sleep(20ms);
    EXPECT_GE(Clock::now() - begin, 20ms);
    close(ends[0]);
    close(ends[1]);
}

bool readable(int descriptor) {
    pollfd polled{.fd = descriptor, .events = POLLIN, .revents = 0};
    return poll(&polled, 1, 0) == 1;
}

/// An eventfd that is readable once it was rung.
class Bell {
public:
    ~Bell() { close(fd); }
    void ring() const {
        const std::uint64_t one = 1;
        EXPECT_EQ(write(fd, &one, sizeof one), 8);
    }
    void silence() const {
        std::uint64_t count;
        EXPECT_EQ(read(fd, &count, sizeof count), 8);
    }
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
};

TEST(Sleeper, NamesTheSourcesThatAreReadable) {
    Bell bells[3];
    Sleeper sleeper;
    sleeper.watch({{.descriptor = bells[0].fd}, {.descriptor = bells[1].fd}, {.descriptor = bells[2].fd}});
    std::array<unsigned, 8> places{};
    bells[1].ring();
    EXPECT_EQ(sleeper.readable(places), 0U) << "they are not gathered";
    bells[1].silence();
    ASSERT_TRUE(sleeper.gather());
    EXPECT_EQ(sleeper.readable(places), 0U);
    EXPECT_FALSE(readable(sleeper.gathered()));
    bells[2].ring();
    ASSERT_EQ(sleeper.readable(places), 1U);
    EXPECT_EQ(places[0], 2U);
    EXPECT_TRUE(readable(sleeper.gathered()));
    EXPECT_EQ(sleeper.readable(places), 1U) << "for as long as it is";
    bells[0].ring();
    ASSERT_EQ(sleeper.readable(places), 2U);
    EXPECT_EQ(places[0] + places[1], 2U);
    EXPECT_EQ(sleeper.readable(std::span(places).first(1)), 1U);
    sleeper.watch({{.descriptor = bells[1].fd}, {.descriptor = bells[0].fd}});
    EXPECT_EQ(sleeper.readable(places), 0U) << "those of before are watched no more";
    ASSERT_TRUE(sleeper.gather());
    ASSERT_EQ(sleeper.readable(places), 1U);
    EXPECT_EQ(places[0], 1U);
    sleeper.scatter();
    EXPECT_EQ(sleeper.readable(places), 0U);
}

TEST(Sleeper, KnowsWhichSourcesStayReadable) {
    Bell bell;
    const int edges = epoll_create1(EPOLL_CLOEXEC), file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    Sleeper sleeper;
    EXPECT_FALSE(sleeper.gather()) << "there is none";
    sleeper.watch({{.descriptor = bell.fd}});
    EXPECT_TRUE(sleeper.gather());
    sleeper.watch({{.descriptor = bell.fd}, {.descriptor = edges, .is_epoll = true}});
    EXPECT_FALSE(sleeper.gather());
    sleeper.watch({{.descriptor = bell.fd}, {.descriptor = file}});
    EXPECT_FALSE(sleeper.gather()) << "a file tells nobody";
    sleeper.watch({{.descriptor = bell.fd}});
    EXPECT_TRUE(sleeper.gather());
    close(edges);
    close(file);
}

TEST(Sleeper, NapsUntilTheDoorbellRings) {
    Sleeper sleeper;
    sleeper.prepare();
    std::thread ringer([&] {
        std::this_thread::sleep_for(20ms);
        sleeper.ring();
    });
    const auto begin = Clock::now();
    EXPECT_TRUE(sleeper.nap(900ms));
    EXPECT_LT(Clock::now() - begin, 800ms);
    ringer.join();
    EXPECT_FALSE(sleeper.asleep());
    sleeper.prepare();
    EXPECT_FALSE(sleeper.nap(1ms)) << "one ring ends one nap";
}

TEST(Sleeper, NapsForItsTimeWhateverTheSourcesSay) {
    Bell bell;
    bell.ring();
    Sleeper sleeper;
    sleeper.watch({{.descriptor = bell.fd}});
    sleeper.prepare();
    const auto begin = Clock::now();
    EXPECT_FALSE(sleeper.nap(20ms));
    EXPECT_GE(Clock::now() - begin, 20ms);
    EXPECT_TRUE(sleeper.asleep()) << "others may do its work still";
    sleeper.cancel();
    EXPECT_FALSE(sleeper.asleep());
}

class LookoutTest : public testing::Test {
protected:
    LookoutTest() { set_flags(O_NONBLOCK); }
    void set_flags(int flags) { EXPECT_EQ(fcntl(lookout_.fd(), F_SETFL, flags), 0); }

    Bell events_, ports_;
    Lookout lookout_{events_.fd};
};

TEST_F(LookoutTest, ShowsEvents) {
    EXPECT_FALSE(readable(lookout_.fd()));
    events_.ring();
    EXPECT_TRUE(readable(lookout_.fd()));
    events_.silence();
    EXPECT_FALSE(readable(lookout_.fd()));
}

TEST_F(LookoutTest, ShowsPortsUntilItIsToHideThem) {
    ports_.ring();
    EXPECT_FALSE(readable(lookout_.fd()));
    EXPECT_TRUE(lookout_.show(ports_.fd));
    EXPECT_TRUE(readable(lookout_.fd()));
    lookout_.hide(ports_.fd);
    EXPECT_FALSE(readable(lookout_.fd()));
    lookout_.hide(ports_.fd);
    EXPECT_TRUE(lookout_.show(ports_.fd)) << "and again";
    ports_.silence();
    EXPECT_FALSE(readable(lookout_.fd()));
    events_.ring();
    EXPECT_TRUE(readable(lookout_.fd()));
}

TEST_F(LookoutTest, WhereItBlocksItShowsEventsOnly) {
    set_flags(0);
    ports_.ring();
    EXPECT_FALSE(lookout_.show(ports_.fd));
    EXPECT_FALSE(readable(lookout_.fd()));
    set_flags(O_NONBLOCK);
    EXPECT_TRUE(lookout_.show(ports_.fd));
    EXPECT_TRUE(readable(lookout_.fd()));
}

TEST_F(LookoutTest, WhatIsNoDescriptorItCannotShow) {
    EXPECT_FALSE(lookout_.show(-1));
    EXPECT_THROW(Lookout(-1), std::system_error);
}

/// The number of its descriptor is soon somebody else's.
TEST_F(LookoutTest, AfterItsEndItLeavesOthersDescriptorsAlone) {
    ASSERT_TRUE(lookout_.show(ports_.fd));
    const int number = lookout_.fd();
    lookout_.end();
    const int other = epoll_create1(EPOLL_CLOEXEC);
    ASSERT_EQ(other, number);
    ASSERT_EQ(fcntl(other, F_SETFL, O_NONBLOCK), 0);
    EXPECT_FALSE(lookout_.show(events_.fd));
    epoll_event wanted{.events = EPOLLIN, .data = {}};
    ASSERT_EQ(epoll_ctl(other, EPOLL_CTL_ADD, ports_.fd, &wanted), 0);
    lookout_.hide(ports_.fd);
    ports_.ring();
    EXPECT_TRUE(readable(other));
    lookout_.end();
    EXPECT_GE(fcntl(other, F_GETFD), 0);
    close(other);
}

TEST_F(LookoutTest, KnowsWhoHasWaitedLast) {
    EXPECT_EQ(lookout_.waiter(), nullptr);
    Lookout::in_vain_until = 1;
    lookout_.about_to_wait();
    EXPECT_EQ(Lookout::in_vain_until, 0U);
    EXPECT_EQ(lookout_.waiter(), Lookout::this_thread());
    Lookout::in_vain_until = 1;
    std::thread other([&] {
        lookout_.about_to_wait();
        EXPECT_EQ(lookout_.waiter(), Lookout::this_thread());
    });
    other.join();
    EXPECT_NE(lookout_.waiter(), Lookout::this_thread());
    EXPECT_EQ(Lookout::in_vain_until, 1U) << "another thread's wait";
    Lookout::in_vain_until = 0;
}

}  // namespace
}  // namespace ovsdr::soft
