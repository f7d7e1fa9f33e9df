// A mirror's sender by itself: appends numbered UDP frames and says in the end, as JSON, what became of them. It waits
// for room in the ring, so that none is dropped, unless --impatient.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "offload/mirror/sender.hpp"

using namespace ovsdr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

/// From port 1000 to port 2000, with the number as its payload's first bytes, most significant first.
std::vector<std::byte> frame_of(std::size_t size) {
    constexpr std::uint8_t head[] = {2, 0,  0,  0, 0, 2, 2,    0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0,    0,    0, 0, 0,
                                     0, 64, 17, 0, 0, 10, 0,   0, 1, 10, 0, 0, 2, 0x03, 0xE8, 0x07, 0xD0, 0, 0, 0, 0};
    std::vector<std::byte> frame(std::max<std::size_t>(size, 60));
    std::memcpy(frame.data(), head, sizeof head);
    const std::size_t ip = frame.size() - 14, udp = ip - 20;
    frame[16] = static_cast<std::byte>(ip >> 8), frame[17] = static_cast<std::byte>(ip);
    frame[38] = static_cast<std::byte>(udp >> 8), frame[39] = static_cast<std::byte>(udp);
    for (std::size_t i = 46; i < frame.size(); ++i) frame[i] = static_cast<std::byte>(i);
    return frame;
}

nlohmann::json json_of(const mirror::SenderStats& stats) {
    std::uint64_t bad = 0;
    for (const std::uint64_t count : stats.bad) bad += count;
    return {{"frames", stats.frames},           {"dropped", stats.dropped},           {"damaged", stats.damaged},
            {"sealed", stats.sealed},           {"acknowledged", stats.acknowledged}, {"resent", stats.resent},
            {"bad", bad},                       {"connections", stats.connections},   {"finished", stats.finished},
            {"last_error", stats.last_error},   {"last_bad", stats.last_bad}};
}

}  // namespace

int main(int argc, char** argv) {
    std::string host, port = "4180", signature = "t10dif-crc";
    std::uint32_t frames = 1000, size = 1000, rate = 0, segment = 64, finish = 60;
    std::uint16_t block = 512, slots = 32;
    int gid_index = -1;
    bool impatient = false, plain = false;
    mirror::TlsFiles tls;
    CLI::App app("Sends numbered frames to a collector.");
    app.add_option("host", host)->required();
    app.add_option("--port", port);
    app.add_option("--frames", frames);
    app.add_option("--size", size);
    app.add_option("--rate", rate, "frames a second; 0: as fast as it goes");
    app.add_option("--signature", signature);
    app.add_option("--block", block);
    app.add_option("--segment", segment, "blocks");
    app.add_option("--slots", slots);
    app.add_option("--gid-index", gid_index);
    app.add_option("--finish", finish, "seconds");
    app.add_flag("--impatient", impatient, "rather drops than waits");
    app.add_flag("--plain", plain);
    app.add_option("--private-key", tls.private_key);
    app.add_option("--certificate", tls.certificate);
    app.add_option("--ca-cert", tls.ca_certificate);
    CLI11_PARSE(app, argc, argv);

    auto device = dr::Device::open("mlx5_0");
    const auto type = mirror::signature_type_of(signature);
    if (!device || !type) {
        fmt::print(stderr, "{}\n", device ? "no such signature" : device.error().what);
        return 2;
    }
    const mirror::TlsSource files = [&] { return Result<mirror::TlsFiles>(tls); };
    auto sender = mirror::Sender::create({.device = *device,
                                          .address = {.gid_index = gid_index},
                                          .host = host,
                                          .service = port,
                                          .tls = plain ? nullptr : files,
                                          .plain = plain,
                                          .mirror = "stor0",
                                          .application_tag = 0xBEEF,
                                          .geometry = {.segment_size = segment * block,
                                                       .slots = slots,
                                                       .signature = {*type, block}},
                                          .interfaces = {{"vm1", 65535}},
                                          .seal_after = 20ms,
                                          .retry_after = 200ms});
    if (!sender) {
        fmt::print(stderr, "{}\n", sender.error().what);
        return 2;
    }
    mirror::Sender& mirror = **sender;
    std::vector<std::byte> frame = frame_of(size);
    const auto begin = Clock::now();
    for (std::uint32_t number = 0; number < frames; ++number) {
        if (rate != 0) {
            const auto due = begin + std::chrono::nanoseconds(std::uint64_t{number} * 1'000'000'000 / rate);
            while (Clock::now() < due) {
                mirror.tick();
                std::this_thread::sleep_for(std::min<Clock::duration>(1ms, due - Clock::now()));
            }
        }
        while (!impatient && mirror.stats().sealed - mirror.stats().released + 2 > slots) {
            std::this_thread::sleep_for(100us);
        }
        for (unsigned i = 0; i < 4; ++i) frame[42 + i] = static_cast<std::byte>(number >> 8 * (3 - i));
        const auto time = std::chrono::system_clock::now().time_since_epoch() / 1ns;
        mirror.append({.interface = 0,
                       .time = static_cast<std::uint64_t>(time),
                       .bytes = frame,
                       .original_size = static_cast<std::uint32_t>(frame.size()),
                       .direction = pcapng::Direction::inbound});
    }
    const bool finished = mirror.finish(std::chrono::seconds(finish));
    const std::chrono::duration<double> took = Clock::now() - begin;
    nlohmann::json said = json_of(mirror.stats());
    said["seconds"] = took.count();
    said["megabytes_per_second"] = static_cast<double>(frames) * size / 1e6 / took.count();
    fmt::print("{}\n", said.dump());
    return finished ? 0 : 1;
}
