// A sender and a mirror whose collectors hang or are away: who is silent is left, nobody waits for him, what is lost is
// told once, and no frame of a handshake is mirrored. Collectors are scripts of this test.
#include "offload/mirror/sender.hpp"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <map>

#include "offload/mirror/mirror.hpp"
#include "tests/unit/offload/mirror/mirror_nic.hpp"

namespace {

/// What "two.example" is: an address that swallows SYNs, and one where somebody listens.
constexpr const char* swallows = "127.0.0.2";
constexpr const char* listens = "127.0.0.1";

}  // namespace

/// In the library's place.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* wanted, addrinfo** found) {
    using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto original = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
    if (std::string_view(host) != "two.example") return original(host, service, wanted, found);
    if (wanted != nullptr && (wanted->ai_flags & AI_NUMERICHOST) != 0) return EAI_NONAME;
    if (const int code = original(swallows, service, wanted, found); code != 0) return code;
    return original(listens, service, wanted, &(*found)->ai_next);
}

namespace ovsdr::mirror {
namespace {

using namespace test;

constexpr Geometry geometry{.segment_size = 8192, .slots = 4, .signature = {SignatureType::t10dif_crc, 512}};

bool becomes(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

class Listener {
public:
    explicit Listener(const char* host = listens, std::uint16_t port = 0, int backlog = 16)
        : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        address_.sin_family = AF_INET;
        address_.sin_port = htons(port);
        inet_pton(AF_INET, host, &address_.sin_addr);
        socklen_t size = sizeof address_;
        EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address_), size), 0);
        EXPECT_EQ(listen(fd_, backlog), 0);
        EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &size), 0);
    }
    ~Listener() { close(fd_); }
    [[nodiscard]] std::uint16_t port() const { return ntohs(address_.sin_port); }
    [[nodiscard]] std::string service() const { return std::to_string(port()); }
    /// Takes the next connection; `peer`: its other end's port.
    [[nodiscard]] MessageSocket take(std::uint16_t* peer = nullptr) const {
        sockaddr_in from{};
        socklen_t size = sizeof from;
        const int taken = accept(fd_, reinterpret_cast<sockaddr*>(&from), &size);
        EXPECT_GE(taken, 0);
        if (peer != nullptr) *peer = ntohs(from.sin_port);
        return MessageSocket(taken);
    }

private:
    int fd_;
    sockaddr_in address_{};
};

SenderSpec spec_for(const Listener& to) {
    return {.device = open_nic(),
            .host = listens,
            .service = to.service(),
            .plain = true,
            .mirror = "stor0",
            .application_tag = 1,
            .geometry = geometry,
            .interfaces = {{"vm1", 65535}},
            .seal_after = 5ms,
            .retry_after = 20ms,
            .silent_for = 200ms};
}

std::unique_ptr<Sender> start(SenderSpec spec) {
    auto made = Sender::create(std::move(spec));
    EXPECT_TRUE(made) << made.error().what;
    return std::move(*made);
}

void append(Sender& to) {
    const std::vector<std::byte> frame(100);
    EXPECT_TRUE(to.append({.interface = 0, .time = 1, .bytes = frame, .original_size = 100}));
    to.tick();
}

/// Answers a Hello, takes what is written, and acknowledges nothing.
struct Answering {
    explicit Answering(const Listener& listener, int waits = 0)
        : socket(wait_on(listener.take(), waits)), sink(std::size_t{geometry.slots} * geometry.segment_size) {
        const auto message = socket.await(20s, -1);
        if (!message) {
            ADD_FAILURE() << message.error().what;
            return;
        }
        connection = std::move(Connection::create(open_nic(), {}, geometry).value());
        EXPECT_TRUE(connection->connect(std::get<Hello>(*message).endpoint));
        EXPECT_TRUE(connection->post_receives(2 * geometry.slots));
        std::vector<SlotMemory> memories;
        Accept accept{.next = 0, .durability = Durability::written, .endpoint = connection->local(), .keys = {}};
        for (std::uint16_t slot = 0; slot < geometry.slots; ++slot) {
            memories.push_back({sink.address(std::size_t{slot} * geometry.segment_size), sink.mr->lkey});
            accept.keys.push_back(connection->key_of(slot));
        }
        EXPECT_TRUE(connection->post_open(0, memories, 1));
        EXPECT_TRUE(socket.send(accept));
    }
    /// Says Wait so often first, every 50 ms.
    static MessageSocket wait_on(MessageSocket socket, int times) {
        for (int i = 0; i < times; ++i) {
            EXPECT_TRUE(socket.send(Wait{0, 0}));
            std::this_thread::sleep_for(50ms);
        }
        return socket;
    }
    MessageSocket socket;
    Memory sink;
    std::unique_ptr<Connection> connection;
};

TEST(SilentCollector, WhoAnswersNoHelloIsLeftForTheNext) {
    const Listener silent, next;
    SenderSpec spec = spec_for(silent);
    spec.standby = {{listens, next.service()}};
    const auto sender = start(std::move(spec));
    EXPECT_TRUE(becomes([&] { return sender->stats().collector.ends_with(next.service()); }));
    EXPECT_NE(sender->stats().last_error.find("the collector has said nothing for 200 ms"), std::string::npos)
        << sender->stats().last_error;
}

TEST(SilentCollector, WhoAcknowledgesNothingIsLeftForTheNext) {
    const Listener silent, next;
    SenderSpec spec = spec_for(silent);
    spec.standby = {{listens, next.service()}};
    const auto sender = start(std::move(spec));
    Answering collector(silent);
    ASSERT_TRUE(becomes([&] { return sender->stats().connected; }));
    append(*sender);
    EXPECT_TRUE(becomes([&] { return sender->stats().collector.ends_with(next.service()); }));
    EXPECT_EQ(sender->stats().connections, 1U);
}

TEST(SilentCollector, WhoReadsAFileForAResumeIsWaitedFor) {
    const Listener listener;
    SenderSpec spec = spec_for(listener);
    spec.silent_for = 500ms;
    const auto sender = start(std::move(spec));
    Answering collector(listener, 30);
    EXPECT_TRUE(becomes([&] { return sender->stats().connected; }));
    EXPECT_EQ(sender->stats().last_error, "");
}

TEST(SilentCollector, WhoShowsLifeOrIsAskedForNothingStays) {
    const Listener listener;
    SenderSpec spec = spec_for(listener);
    spec.silent_for = 1s;
    const auto sender = start(std::move(spec));
    Answering collector(listener);
    ASSERT_TRUE(becomes([&] { return sender->stats().connected; }));
    std::this_thread::sleep_for(1500ms);
    EXPECT_TRUE(sender->stats().connected) << "nothing is under way: " << sender->stats().last_error;
    append(*sender);
    for (int i = 0; i < 15; ++i) {
        EXPECT_TRUE(collector.socket.send(Progress{0}));
        std::this_thread::sleep_for(100ms);
    }
    EXPECT_TRUE(sender->stats().connected) << sender->stats().last_error;
    EXPECT_EQ(sender->stats().acknowledged, 0U);
    EXPECT_TRUE(collector.socket.send(Progress{1}));
    EXPECT_TRUE(becomes([&] { return sender->stats().acknowledged == 1; }));
}

TEST(ManyAddresses, OneThatSwallowsSynsLeavesTheOthersTheirTime) {
    const Listener listener;
    const Listener full(swallows, listener.port(), 0);
    std::vector<MessageSocket> queue;
    for (;;) {
        auto one = MessageSocket::connect(swallows, full.service(), 200ms, -1);
        if (!one) break;
        queue.push_back(std::move(*one));
    }
    const auto connected = MessageSocket::connect("two.example", listener.service(), 3s, -1);
    EXPECT_TRUE(connected) << connected.error().what;
}

/// TCP over IPv4 between two of this host's addresses.
std::vector<std::byte> frame_between(std::uint16_t source, std::uint16_t destination) {
    std::vector<std::byte> frame(60);
    const auto put = [&](std::size_t at, std::initializer_list<int> bytes) {
        for (const int byte : bytes) frame[at++] = static_cast<std::byte>(byte);
    };
    put(12, {8, 0, 0x45});
    put(23, {6});
    put(26, {127, 0, 0, 1, 127, 0, 0, 1, source >> 8, source & 255, destination >> 8, destination & 255});
    return frame;
}

TEST(OwnHandshake, IsKnownInBothDirectionsAndForAWhileAfterItsEnd) {
    const Listener listener;
    OwnConnections::Look look;
    std::uint16_t port = 0;
    {
        auto socket = MessageSocket::connect(listens, listener.service(), 20s, -1);
        ASSERT_TRUE(socket);
        const auto peer = listener.take(&port);
        EXPECT_TRUE(look.has(frame_between(port, listener.port())));
        EXPECT_TRUE(look.has(frame_between(listener.port(), port)));
        EXPECT_FALSE(look.has(frame_between(static_cast<std::uint16_t>(port ^ 1), listener.port())));
        EXPECT_FALSE(look.has(frame_between(port, port)));
    }
    EXPECT_TRUE(look.has(frame_between(port, listener.port())));
}

struct Mirroring {
    std::unique_ptr<Session> session(const Listener& to) const {
        auto made = Session::create(spec_for(to), names);
        EXPECT_TRUE(made) << made.error().what;
        return std::move(*made);
    }
    std::shared_ptr<Mirror> make(const Listener& to, dr::MirrorSteering steering = {}) const {
        auto made = Mirror::start(session(to), std::move(steering));
        EXPECT_TRUE(made) << made.error().what;
        return std::move(*made);
    }
    static void send(Mirror& to, const std::vector<std::byte>& frame) {
        const SoftwareFrame one{frame, {1}};
        to.send({&one, 1});
    }
    PortNames names;
};

TEST(OwnHandshake, IsNotMirrored) {
    const Mirroring all;
    const Listener listener;
    const auto mirror = all.make(listener);
    std::uint16_t port = 0;
    const auto peer = listener.take(&port);
    Mirroring::send(*mirror, frame_between(port, listener.port()));
    Mirroring::send(*mirror, frame_between(listener.port(), port));
    Mirroring::send(*mirror, frame_between(port, static_cast<std::uint16_t>(listener.port() ^ 1)));
    EXPECT_EQ(mirror->counts().own, 2U);
    EXPECT_EQ(mirror->counts().taken, 1U);
}

TEST(EndedSession, WhatItCouldNotDeliverIsCountedAndToldByTheNext) {
    const Mirroring all;
    const Listener silent;
    const auto mirror = all.make(silent);
    constexpr std::uint64_t length = 100;   // frames; in several segments
    for (std::uint64_t i = 0; i < length; ++i) Mirroring::send(*mirror, std::vector<std::byte>(200));
    const auto before = mirror->replace(all.session(silent));
    EXPECT_FALSE(before->sender().finish(10ms));
    const auto left = before->sender().abandon();
    EXPECT_EQ(left.frames, mirror->counts().taken);
    EXPECT_EQ(left.frames + left.dropped, length);
    mirror->add_undelivered(left);
    EXPECT_EQ(mirror->counts().undelivered, left.frames);
    EXPECT_TRUE(becomes([&] { return mirror->sender_stats().sealed == 1; })) << "a segment that tells it";
    EXPECT_EQ(mirror->sender_stats().dropped, length);
}

TEST(EndingMirror, NobodyWaitsForWhoFinishesItAndTwoMay) {
    const Mirroring all;
    const Listener silent;
    const auto mirror = all.make(silent);
    Mirroring::send(*mirror, std::vector<std::byte>(200));
    std::atomic<unsigned> finishing = 0;
    std::atomic<std::uint64_t> lost = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
            mirror->stop_receiving();
            ++finishing;
            EXPECT_FALSE(mirror->finish(3s));
            lost += mirror->abandon().frames;
        });
    }
    ASSERT_TRUE(becomes([&] { return finishing == 2; }));
    std::this_thread::sleep_for(200ms);
    const auto before = std::chrono::steady_clock::now();
    Mirroring::send(*mirror, std::vector<std::byte>(200));
    EXPECT_LT(std::chrono::steady_clock::now() - before, 1s) << "who sends has waited";
    EXPECT_EQ(mirror->counts().dropped, 1U) << "what comes then";
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(lost, 1U) << "counted once";
}

}  // namespace
}  // namespace ovsdr::mirror
