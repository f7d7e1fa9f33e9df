// What fails around sender and collector: disks, memory, names, collectors that hang. What is acknowledged is durable.
#include <arpa/inet.h>
#include <sys/socket.h>

#include "tests/unit/tools/drcollect/collector.hpp"
#include "tests/unit/tools/drcollect/interposed.hpp"
#include "tests/unit/tools/drcollect/rogue.hpp"

namespace ovsdr::drcollect {
namespace {

using namespace test;

TEST_F(Collector, WhatAFailedSyncHasLostIsWrittenAgainBeforeItIsAcknowledged) {
    start();
    const auto mirror = sender();
    append_all(*mirror, 0, 200);
    for (const int times : {1, 3}) {
        const std::uint32_t first = times == 1 ? 200 : 300;
        ASSERT_TRUE(becomes([&] { return mirror->stats().acknowledged == mirror->stats().sealed; }));
        failing_syncs = times;
        append_all(*mirror, first, first + 100);
        EXPECT_TRUE(becomes([] { return failing_syncs == 0; }));
    }
    ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_EQ(frames(), all(400)) << "each once, in order";
    EXPECT_EQ(files().size(), 3u) << "no file is written again whose sync has failed";
    std::uint64_t next = 0, segments = 0;
    for (const std::string& file : files()) {
        const Scan found = scan(file);
        EXPECT_TRUE(found.sound()) << file;
        EXPECT_EQ(found.beginning->first, next) << file;
        next = found.next;
        segments += found.segments;
    }
    EXPECT_TRUE(becomes([&] { return counted(*mirror).finished; }));
    EXPECT_EQ(counted(*mirror).segments, segments) << "each is counted once";
    EXPECT_EQ(counted(*mirror).frames, 400u);
    EXPECT_EQ(mirror->stats().connections, 1u) << "and the switch was only waiting";
}

TEST_F(Collector, AFileWithAFaultIsSaidInStats) {
    start();
    const auto mirror = sender();
    append_all(*mirror, 0, 200);
    ASSERT_TRUE(becomes([&] { return mirror->stats().acknowledged == mirror->stats().sealed; }));
    stop();
    const auto size = std::filesystem::file_size(files()[0]);
    std::fstream(files()[0], std::ios::binary | std::ios::in | std::ios::out).seekp(size / 2).write("?", 1);
    start();
    append_all(*mirror, 200, 300);
    ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    ASSERT_EQ(files().size(), 2u);
    EXPECT_EQ(std::filesystem::file_size(files()[0]), size);
    EXPECT_EQ(counted(*mirror).damaged_files, 1u);
    EXPECT_NE(counted(*mirror).damaged.find(files()[0]), std::string::npos) << counted(*mirror).damaged;
    EXPECT_EQ(scan(files()[1]).beginning->first, scan(files()[0]).next);
    EXPECT_TRUE(scan(files()[1]).sound());
}

TEST_F(Collector, RingsOfAllSwitchesTogetherHaveALimit) {
    spec.memory = 300'000;
    start();
    auto first = sender();
    ASSERT_TRUE(becomes([&] { return first->stats().connected; }));
    const auto second = sender();
    EXPECT_TRUE(becomes([&] {
        return second->stats().last_error.find("a ring takes 266240 bytes; of 300000 for all rings 266240 are taken") !=
               std::string::npos;
    })) << second->stats().last_error;
    EXPECT_EQ(server->counters().json().at("sessions").size(), 1u) << "who is refused is no session";
    EXPECT_GE(server->counters().json().at("refused"), 1);
    first.reset();
    append_all(*second, 0, 100);
    EXPECT_TRUE(second->finish(20s)) << second->stats().last_error;
    EXPECT_EQ(frames(), all(100));
}

TEST_F(Collector, ASenderWhoseCollectorsNameIsNotFoundOutCanBeEnded) {
    resolver_hangs = true;
    spec.host = "collector.example";
    {
        const auto mirror = sender();
        append(*mirror, 0);
        EXPECT_FALSE(mirror->finish(50ms));
    }   // it does not wait for the resolver
    EXPECT_TRUE(resolver_hangs);
    auto late = MessageSocket::connect("collector.example", "1", 20ms, -1);
    EXPECT_EQ(late.error().code, ETIMEDOUT) << late.error().what;
    resolver_hangs = false;
    auto none = MessageSocket::connect("collector.example", "1", 20s, -1);
    EXPECT_EQ(none.error().code, EHOSTUNREACH) << none.error().what;
}

/// A listener whose queue is full answers no SYN; one that accepts and is silent answers no Hello.
TEST_F(Collector, ASenderWhoseCollectorHangsCanBeEnded) {
    for (const bool accepts : {false, true}) {
        const int listener = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
        ASSERT_EQ(listen(listener, accepts ? 16 : 0), 0);
        ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
        spec.port = std::to_string(ntohs(address.sin_port));
        std::vector<MessageSocket> queue;
        while (!accepts) {
            auto one = MessageSocket::connect("127.0.0.1", spec.port, 300ms, -1);
            if (!one) break;
            queue.push_back(std::move(*one));
        }
        const auto mirror = sender();
        append(*mirror, 0);
        EXPECT_FALSE(mirror->finish(200ms));
        EXPECT_EQ(mirror->stats().connections, 0u);
        close(listener);
    }
}

TEST_F(Collector, ASlowDiskFillsTheRingAndEachFrameIsThereOrCounted) {
    start();
    const auto mirror = sender();
    sync_microseconds = 30'000;
    for (std::uint32_t number = 0; number < 3000; ++number) {
        append(*mirror, number);
        if (number % 10 == 0) std::this_thread::sleep_for(100us);
    }
    ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    sync_microseconds = 0;
    const SenderStats stats = mirror->stats();
    const auto numbers = frames();
    EXPECT_GT(stats.dropped, 0u) << "the disk was not slow enough for this test";
    EXPECT_EQ(numbers.size() + stats.dropped, 3000u);
    EXPECT_EQ(std::ranges::adjacent_find(numbers, std::greater_equal<>{}), numbers.end()) << "each once, in order";
    EXPECT_TRUE(only_scan().sound());
    EXPECT_EQ(only_scan().dropped, stats.dropped);
    EXPECT_EQ(stats.connections, 1u);
}

TEST_F(Collector, AFileIsReadOnlyByACollectorThatHasNotWrittenIt) {
    start();
    const auto mirror = sender();
    const auto all_is_there = [&] {
        mirror->tick();
        return mirror->stats().released == mirror->stats().sealed;
    };
    append_all(*mirror, 0, 200);
    ASSERT_TRUE(becomes(all_is_there));
    read_size = 0;
    std::vector<MirrorInterface> list = two_interfaces();
    for (std::uint32_t round = 0; round < 2; ++round) {
        list.push_back({"later" + std::to_string(round), 65535});
        ASSERT_TRUE(mirror->set_interfaces(list));
        for (std::uint32_t number = 200 + round * 20; number < 220 + round * 20; ++number) {
            ASSERT_TRUE(append(*mirror, number, 1000, 2 + round));
        }
        ASSERT_TRUE(becomes(all_is_there));
        EXPECT_EQ(mirror->stats().connections, 2u + round);
    }
    EXPECT_EQ(read_size, 0u);
    stop();
    start();
    append_all(*mirror, 240, 300);
    ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_GT(read_size, 0u);
    EXPECT_EQ(frames(), all(300)) << "each once, in order";
    EXPECT_EQ(files().size(), 3u);
    for (const std::string& file : files()) EXPECT_TRUE(scan(file).sound()) << file;
}

TEST_F(Collector, ASwitchHearsFromACollectorThatWaitsForItsDisk) {
    spec.session.sign_of_life = {.every = 40ms, .patience = 400ms};
    start();
    sync_microseconds = 2'000'000;   // much longer than it says so
    Rogue rogue(spec.port, {SignatureType::crc32, 512}, 4);
    EXPECT_GE(rogue.waits.size(), 2u);
    EXPECT_LE(rogue.waits.size(), 10u) << "a disk that does not get on is no sign of life";
    sync_microseconds = 400'000;
    rogue.seal();
    rogue.write(0, 0, 0);
    const auto signs_until = [&](std::uint64_t next) {
        unsigned signs = 0;
        for (std::uint64_t now = 0; (now = rogue.hear<Progress>().next) < next; ++signs) EXPECT_EQ(now, next - 1);
        return signs;
    };
    EXPECT_GE(signs_until(1), 2u);
    sync_microseconds = 0;
    failing_syncs = 1 << 20;   // a disk that takes nothing
    rogue.seal();
    rogue.write(1, 1, 1);
    EXPECT_TRUE(becomes([&] { return !server->counters().of(77).stalled.empty(); }));
    std::this_thread::sleep_for(300ms);
    failing_syncs = 0;
    EXPECT_GE(signs_until(2), 2u);
}

TEST_F(Collector, ASwitchThatComesBackHearsThatItsConnectionBeforeWaitsForTheDisk) {
    spec.session.sign_of_life = {.every = 40ms, .patience = 20s};
    start();
    Rogue first(spec.port, {SignatureType::crc32, 512}, 4);
    next_sync_is_held = true;
    first.seal();
    first.write(0, 0, 0);
    EXPECT_TRUE(becomes([] { return sync_is_held.load(); }));
    std::thread disk([] {
        std::this_thread::sleep_for(1s);
        sync_is_held = false;
    });
    const Rogue second(spec.port, {SignatureType::crc32, 512}, 4);
    disk.join();
    EXPECT_GE(second.waits.size(), 1u);
    EXPECT_EQ(second.accept.next, 1u);
}

TEST_F(Collector, WhoIsGoneDoesNotWaitForItsConnectionBefore) {
    spec.session.sign_of_life = {.every = 40ms, .patience = 60s};
    spec.most_connections = 2;
    start();
    const auto first = sender();
    ASSERT_TRUE(append(*first, 0));
    ASSERT_TRUE(becomes([&] {
        first->tick();
        return first->stats().released == 1;
    }));
    next_sync_is_held = true;
    ASSERT_TRUE(append(*first, 1));
    EXPECT_TRUE(becomes([&] {
        first->tick();
        return sync_is_held.load();
    }));
    {
        const Geometry geometry = geometry_of({SignatureType::t10dif_crc, 512}, 8);
        const auto connection = std::move(Connection::create(open_nic(), {}, geometry).value());
        auto socket = std::move(MessageSocket::connect("127.0.0.1", spec.port, 5s, -1).value());
        EXPECT_TRUE(socket.send(Hello{.session = first->session(),
                                      .oldest = 0,
                                      .application_tag = 0xBEEF,
                                      .geometry = geometry,
                                      .endpoint = connection->local(),
                                      .mirror = "stor0",
                                      .interfaces = two_interfaces()}));
        EXPECT_TRUE(socket.await(20s, -1)) << "a sign of life";
    }
    const auto other = sender();
    EXPECT_TRUE(becomes([&] { return other->stats().connected; })) << "in its place; " << other->stats().last_error;
    sync_is_held = false;
    EXPECT_TRUE(first->finish(20s)) << first->stats().last_error;
}

TEST_F(Collector, ReadingAFileIsToldToTheSwitchAndEndsWhenTheCollectorDoes) {
    spec.session.sign_of_life = {.every = 40ms, .patience = 20s};
    start();
    { const Rogue rogue(spec.port, {SignatureType::crc32, 512}, 4); }
    stop();
    constexpr std::uint64_t size = 256 << 20;   // nothing but the beginning stands in it
    std::filesystem::resize_file(files().at(0), size);
    start();
    read_microseconds = 200'000;   // of each MiB: a minute for all
    const Geometry geometry{.segment_size = 16 * 512, .slots = 4, .signature = {SignatureType::crc32, 512}};
    const auto connection = std::move(Connection::create(open_nic(), {}, geometry).value());
    auto socket = std::move(MessageSocket::connect("127.0.0.1", spec.port, 5s, -1).value());
    ASSERT_TRUE(socket.send(Hello{.session = 77,
                                  .oldest = 0,
                                  .application_tag = 5,
                                  .geometry = geometry,
                                  .endpoint = connection->local(),
                                  .mirror = "../../../rogue",
                                  .interfaces = {{"x", 100}}}));
    std::vector<Wait> waits;
    while (waits.empty() || waits.back().read < 4 << 20) {
        const auto message = socket.await(20s, -1);
        ASSERT_TRUE(message && std::holds_alternative<Wait>(*message));
        waits.push_back(std::get<Wait>(*message));
    }
    EXPECT_GE(waits.size(), 3u);
    EXPECT_EQ(waits.back().size, size);
    EXPECT_TRUE(std::ranges::is_sorted(waits, {}, &Wait::read));
    const auto begin = std::chrono::steady_clock::now();
    stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s) << "it has not read the rest";
    read_microseconds = 0;
    auto last = socket.await(5s, -1);
    while (last && std::holds_alternative<Wait>(*last)) last = socket.await(5s, -1);
    ASSERT_TRUE(last && std::holds_alternative<Refuse>(*last));
    EXPECT_EQ(std::get<Refuse>(*last).reason, RefuseReason::busy);
    EXPECT_EQ(std::filesystem::file_size(files().at(0)), size) << "and has cut nothing off";
}

/// Connected, from an address of this machine.
MessageSocket silent_peer(const char* from, const std::string& port) {
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, from, &address.sin_addr);
    EXPECT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
    EXPECT_EQ(connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return MessageSocket(descriptor);
}

TEST_F(Collector, WhoSaysNoHelloLocksNobodyOut) {
    spec.hello_within = 60s;
    start();
    std::vector<MessageSocket> flood;
    // One of another address stays, and so do the last ones of the address that has many.
    auto other = silent_peer("127.0.0.2", spec.port);
    for (int i = 0; i < 200; ++i) flood.push_back(silent_peer("127.0.0.3", spec.port));
    const auto is_closed = [](MessageSocket& one) {
        const auto message = one.await(20s, -1);   // a reason may come first
        return message ? std::holds_alternative<Refuse>(*message) : message.error().code != ETIMEDOUT;
    };
    for (std::size_t i = 0; i + spec.most_silent_of_address < flood.size(); ++i) ASSERT_TRUE(is_closed(flood[i])) << i;
    for (MessageSocket* const one : {&other, &flood.back()}) {
        ASSERT_TRUE(one->send(Progress{3})) << "what only a collector says";
        const auto answer = one->await(20s, -1);
        ASSERT_TRUE(answer && std::holds_alternative<Refuse>(*answer));
        EXPECT_EQ(std::get<Refuse>(*answer).reason, RefuseReason::malformed);
    }
    // From many addresses, while a mirror comes from one of them.
    for (int i = 0; i < 200; ++i) {
        flood.push_back(silent_peer(("127.0.1." + std::to_string(1 + i % 100)).c_str(), spec.port));
    }
    const auto mirror = sender();
    append_all(*mirror, 0, 100);
    EXPECT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_EQ(frames(), all(100));
    EXPECT_GT(server->counters().json().at("refused"), 200);
}

TEST_F(Collector, ThereIsALimitOfThoseThatHaveSaidHello) {
    spec.most_connections = 1;
    start();
    auto first = sender();
    ASSERT_TRUE(becomes([&] { return first->stats().connected; }));
    const auto second = sender();
    EXPECT_TRUE(becomes([&] {
        return second->stats().last_error.find("there are 1 connections") != std::string::npos;
    })) << second->stats().last_error;
    EXPECT_TRUE(first->stats().connected);
    first.reset();
    EXPECT_TRUE(becomes([&] { return second->stats().connected; }));
}

/// A collector beside the fixture's. It has no hook.
class Another {
public:
    explicit Another(ServerSpec like) : spec_(own(std::move(like))), server_(spec_), thread_([this] {
        server_.run(stop_);
    }) {}
    ~Another() {
        eventfd_write(stop_, 1);
        thread_.join();
        close(stop_);
        std::filesystem::remove_all(spec_.session.folder);
    }
    [[nodiscard]] CollectorAddress address() const { return {"127.0.0.1", std::to_string(server_.port())}; }
    [[nodiscard]] const std::string& folder() const { return spec_.session.folder; }

private:
    static ServerSpec own(ServerSpec spec) {
        char name[] = "/tmp/ovsdr-standby-XXXXXX";
        spec.port = "0";
        spec.session.folder = mkdtemp(name);
        return spec;
    }

    const ServerSpec spec_;
    const int stop_ = eventfd(0, 0);
    Server server_;
    std::thread thread_;
};

TEST_F(Collector, AStandbyTakesOverAtTheFirstSegmentThatTheRingHas) {
    start();
    const Another other(spec);
    // Nobody is at the first of them.
    standby = {{"127.0.0.1", "1"}, other.address()};
    const auto mirror = sender();
    append_all(*mirror, 0, 200);
    ASSERT_TRUE(becomes([&] {
        mirror->tick();
        return mirror->stats().released == mirror->stats().sealed;
    }));
    EXPECT_EQ(mirror->stats().collector, "127.0.0.1:" + spec.port);
    stop();
    append_all(*mirror, 200, 400);
    EXPECT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_EQ(mirror->stats().collector, "127.0.0.1:" + standby[1].service);
    EXPECT_EQ(mirror->stats().last_error, "127.0.0.1:1: connect: Connection refused") << "whose error it was";
    EXPECT_EQ(mirror->stats().dropped, 0u);
    const Scan first = only_scan();
    std::vector<std::uint32_t> numbers = frames();
    const std::string first_folder = std::exchange(folder, other.folder());
    const Scan second = only_scan();
    std::ranges::copy(frames(), std::back_inserter(numbers));
    folder = first_folder;
    EXPECT_EQ(numbers, all(400)) << "each once";
    EXPECT_TRUE(first.sound() && second.sound());
    EXPECT_EQ(second.beginning->first, first.next);
    EXPECT_EQ(second.beginning->session, first.beginning->session);
}

TEST_F(Collector, AStandbyTakesOverFromOneThatCallsASegmentBadForEver) {
    start();
    set_hook([](std::span<std::byte> segment, std::uint64_t sequence) {
        if (sequence < 2) segment[100] ^= std::byte{1};
    });
    const Another other(spec);
    standby = {other.address()};
    const auto mirror = sender();
    append_all(*mirror, 0, 200);
    EXPECT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_EQ(mirror->stats().collector, "127.0.0.1:" + standby[0].service);
    EXPECT_EQ(mirror->stats().dropped, 0u);
    const std::string first_folder = std::exchange(folder, other.folder());
    EXPECT_EQ(frames(), all(200));
    folder = first_folder;
}

}  // namespace
}  // namespace ovsdr::drcollect
