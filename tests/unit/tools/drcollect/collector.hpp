// A collector and switches' senders in one process, on one soft NIC: a fixture.
#pragma once

#include <sys/eventfd.h>

#include <filesystem>
#include <functional>
#include <set>

#include "offload/mirror/sender.hpp"
#include "offload/mirror/wire/guard.hpp"
#include "tests/unit/offload/mirror/mirror_nic.hpp"
#include "tools/drcollect/scan.hpp"
#include "tools/drcollect/server.hpp"

namespace ovsdr::drcollect::test {

using namespace mirror;
using mirror::test::open_nic;
using namespace std::chrono_literals;

/// Waits for up to twenty seconds.
inline bool becomes(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

class Collector : public ::testing::Test {
protected:
    Collector() {
        char name[] = "/tmp/ovsdr-collect-XXXXXX";
        folder = mkdtemp(name);
        spec.host = "127.0.0.1";
        spec.port = "0";
        spec.session.device = open_nic();
        spec.session.folder = folder;
        spec.session.retry_write = 20ms;
    }
    ~Collector() override {
        stop();
        set_hook({});
        std::filesystem::remove_all(folder);
    }

    void start() {
        stop_event = eventfd(0, 0);
        server = std::make_unique<Server>(spec);
        spec.port = std::to_string(server->port());   // the same when it comes back
        server->on_arrival = [](std::span<std::byte> segment, std::uint64_t sequence) {
            const std::lock_guard guard(hook_mutex);
            if (hook) hook(segment, sequence);
        };
        thread = std::thread([this] { server->run(stop_event); });
    }
    void stop() {
        if (server == nullptr) return;
        const std::uint64_t one = 1;
        EXPECT_EQ(write(stop_event, &one, sizeof one), static_cast<ssize_t>(sizeof one));
        thread.join();
        server.reset();
        close(stop_event);
    }

    static Geometry geometry_of(Signature signature, std::uint16_t slots) {
        return {.segment_size = (signature.block_size < 1000 ? 64u : 16u) * signature.block_size,
                .slots = slots,
                .signature = signature};
    }
    std::unique_ptr<Sender> sender(Signature signature = {SignatureType::t10dif_crc, 512}, std::uint16_t slots = 8) {
        auto made = Sender::create({.device = open_nic(),
                                    .host = spec.host,
                                    .service = spec.port,
                                    .standby = standby,
                                    .tls = source ? source : source_of(tls),
                                    .plain = !tls,
                                    .mirror = "stor0",
                                    .application_tag = 0xBEEF,
                                    .geometry = geometry_of(signature, slots),
                                    .interfaces = two_interfaces(),
                                    .seal_after = 5ms,
                                    .retry_after = 20ms});
        EXPECT_TRUE(made) << made.error().what;
        return std::move(*made);
    }

    static TlsSource source_of(const std::optional<TlsFiles>& files) {
        if (!files) return {};
        return [files = *files] { return Result<TlsFiles>(files); };
    }

    static std::vector<MirrorInterface> two_interfaces() { return {{"vm1", 65535}, {"vm2", 65535}}; }

    static bool append(Sender& to, std::uint32_t number, std::size_t size = 1000) {
        return append(to, number, size, number % 2);
    }
    /// A numbered frame; false: dropped.
    static bool append(Sender& to, std::uint32_t number, std::size_t size, std::uint32_t interface) {
        std::vector<std::byte> frame(size, static_cast<std::byte>(number * 7));
        std::memcpy(frame.data(), &number, sizeof number);
        return to.append({.interface = interface,
                          .time = 1'700'000'000'000'000'000u + number,
                          .bytes = frame,
                          .original_size = static_cast<std::uint32_t>(size),
                          .direction = pcapng::Direction::inbound});
    }
    /// As many as a patient producer has: none is dropped.
    static void append_all(Sender& to, std::uint32_t first, std::uint32_t end) {
        for (std::uint32_t number = first; number < end; ++number) {
            ASSERT_TRUE(becomes([&] {
                const SenderStats now = to.stats();
                return now.sealed - now.released < 6;
            })) << to.stats().last_error;
            ASSERT_TRUE(append(to, number));
        }
    }

    std::vector<std::string> files() const {
        std::set<std::string> sorted;
        for (const auto& file : std::filesystem::directory_iterator(folder)) sorted.insert(file.path());
        return {sorted.begin(), sorted.end()};
    }
    /// Numbers of the frames of all files, in their order, with what was wrong with their bytes.
    std::vector<std::uint32_t> frames() const {
        std::vector<std::uint32_t> numbers;
        for (const std::string& path : files()) {
            std::ifstream file(path, std::ios::binary);
            const std::string bytes((std::istreambuf_iterator<char>(file)), {});
            for (std::size_t at = 0; at + 12 <= bytes.size();) {
                std::uint32_t type, size, number, kept;
                std::memcpy(&type, bytes.data() + at, 4);
                std::memcpy(&size, bytes.data() + at + 4, 4);
                if (type == 6) {
                    std::memcpy(&number, bytes.data() + at + 28, 4);
                    std::memcpy(&kept, bytes.data() + at + 20, 4);
                    numbers.push_back(number);
                    for (std::size_t i = 4; i < kept; ++i) {
                        EXPECT_EQ(static_cast<std::uint8_t>(bytes[at + 28 + i]), static_cast<std::uint8_t>(number * 7));
                    }
                }
                if (size < 12) {
                    ADD_FAILURE() << path << ", byte " << at << ": no block";
                    break;
                }
                at += size;
            }
        }
        return numbers;
    }
    static std::vector<std::uint32_t> all(std::uint32_t end) {
        std::vector<std::uint32_t> numbers(end);
        for (std::uint32_t i = 0; i < end; ++i) numbers[i] = i;
        return numbers;
    }
    Scan only_scan() const {
        EXPECT_EQ(files().size(), 1u);
        return files().empty() ? Scan{} : scan(files()[0]);
    }
    SessionCounters counted(const Sender& of) const { return server->counters().of(of.session()); }
    static std::size_t at(BadKind kind) { return static_cast<std::size_t>(kind); }

    ServerSpec spec;
    std::optional<TlsFiles> tls;   ///< of senders
    TlsSource source;              ///< instead of these
    std::vector<CollectorAddress> standby;
    std::string folder;
    std::unique_ptr<Server> server;
    std::thread thread;
    int stop_event = -1;

    /// What a test does to a segment that has arrived.
    using Hook = std::function<void(std::span<std::byte>, std::uint64_t)>;
    static void set_hook(Hook to) {
        const std::lock_guard guard(hook_mutex);
        hook = std::move(to);
    }

private:
    static inline std::mutex hook_mutex;
    static inline Hook hook;
};

}  // namespace ovsdr::drcollect::test
