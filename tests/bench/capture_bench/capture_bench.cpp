// What a capture costs the packets' path: vport 1's path receives batches of 32 from a port in memory, one rule steers
// them, and vport 2's path sends them to another such port. Captures are at vport 2.
//
// The reader of a capture is always done: its cost is not the path's. Time is this thread's own.
//
// --batches N sets the length of a row; --benchmark_min_time=… makes a short run. --only ROW runs one row and nothing
// else, for callgrind: with two lengths the difference is the batches' alone (`tests/bench/capture --instructions`).
#include <fmt/format.h>
#include <pcap/pcap.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "datapath/ports/vport_path.hpp"
#include "datapath/steering/dr_rule.hpp"
#include "datapath/steering/steering.hpp"

using namespace ovsdr::soft;

namespace {

constexpr unsigned source_port_at = 70;
using Parameters = std::array<std::uint8_t, match_param_size>;

void start_eal() {
    std::string prefix = fmt::format("--file-prefix=capture-bench-{}", ::getpid());
    std::vector<std::string> words{"bench", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", "64",
                                   "--log-level=error", "--lcores=0", prefix};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    if (rte_eal_init(static_cast<int>(arguments.size()), arguments.data()) < 0) std::exit(1);
}

void check(int error) {
    if (error == 0) return;
    fmt::print(stderr, "errno {}\n", error);
    std::exit(1);
}

double thread_time() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Gives the same packets over and over; keeps nothing.
class MemoryPort : public Port {
public:
    MemoryPort(rte_mempool* pool, std::uint16_t size) : Port(*driver_of("net_null")) {
        for (rte_mbuf*& packet : packets_) {
            packet = rte_pktmbuf_alloc(pool);
            if (packet == nullptr) std::exit(1);
            auto* frame = reinterpret_cast<std::uint8_t*>(rte_pktmbuf_append(packet, size));
            std::memset(frame, 0, size);
            frame[5] = 2;
            frame[11] = 1;
            frame[12] = 8;
            frame[14] = 0x45;
            frame[17] = 46;
            frame[23] = 17;  // UDP
        }
        const Burst receive = [](void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
            std::memcpy(packets, static_cast<MemoryPort*>(self)->packets_.data(), length * sizeof *packets);
            return length;
        };
        const Burst send = [](void*, rte_mbuf**, std::uint16_t length) noexcept { return length; };
        set_queues({{.receive = receive, .queue = this}}, {{.send = send, .queue = this}});
    }
    ~MemoryPort() override { rte_pktmbuf_free_bulk(packets_.data(), poll_length); }
    [[nodiscard]] bool link_up() const noexcept override { return true; }

private:
    std::array<rte_mbuf*, poll_length> packets_;
};

/// Port -> vport 1 -> table 1 -> vport 2 -> port.
class Bench {
public:
    Bench(rte_mempool* pool, std::uint16_t size) : port_(pool, size) {
        for (VportPath* path : {&in_, &out_}) {
            path->set_admin_up(true);
            path->set_link_up(true);
            path->bind(&port_);
            check(steering_.attach(path->id(), path->sink()));
        }
        check(Action::table(table_, jump_));
        check(Action::vport(fdb_, 2, to_));
        Parameters source{};
        store_be16(&source[source_port_at], 0xffff);
        check(Matcher::create(root_, 0, criteria::misc, source, from_));
        store_be16(&source[source_port_at], 1);
        check(Rule::create(*from_, source, std::array{jump_.get()}, enter_));
        check(Matcher::create(table_, 0, 0, {}, all_));
        check(Rule::create(*all_, {}, std::array{to_.get()}, forward_));
    }

    void capture(const Capture::Spec& spec) {
        capture_.emplace(spec, 1);
        list_.emplace(std::vector<CaptureList::Item>{{&*capture_, 0}});
        memory_.emplace(dup(capture_->descriptor()));
        out_.set_captures(&*list_);
    }

    /// `reads`: what has been captured is read at once; otherwise the ring is full and stays so.
    void run(unsigned batches, bool reads) {
        lane_.online();
        for (unsigned i = 0; i < batches; ++i) {
            in_.receive(0, 0, lane_);
            lane_.flush();
            lane_.quiescent();
            if (!memory_ || !reads) continue;
            auto& control = memory_->control(0);
            control.read.store(control.written.load(std::memory_order_relaxed), std::memory_order_relaxed);
        }
        lane_.offline();
    }

    [[nodiscard]] std::uint64_t sent() const { return out_.counters().received_packets; }

private:
    MemoryPort port_;
    Steering steering_{connectx_6dx};
    Lane lane_{steering_, 0};
    VportPath in_{VportId{1}, 1}, out_{VportId{2}, 1};
    std::optional<Capture> capture_;
    std::optional<CaptureList> list_;
    std::optional<ovsdr::capture::Memory> memory_;
    Domain fdb_{steering_, DomainType::fdb, nullptr};
    Table root_{fdb_, 0};
    Table table_{fdb_, 1};
    std::unique_ptr<Matcher> from_, all_;
    Action::Created jump_, to_;
    std::unique_ptr<Rule> enter_, forward_;
};

BpfFilter filter(const char* text) {
    pcap_t* compiler = pcap_open_dead(DLT_EN10MB, 65535);
    bpf_program program{};
    if (pcap_compile(compiler, &program, text, 1, PCAP_NETMASK_UNKNOWN) != 0) std::exit(1);
    std::string error;
    auto made = BpfFilter::make({program.bf_insns, program.bf_insns + program.bf_len}, error);
    pcap_freecode(&program);
    pcap_close(compiler);
    return *std::move(made);
}

struct Row {
    std::string_view name;
    std::uint16_t size;
    bool captures = false, reads = true;
    const char* filter = nullptr;
    std::uint32_t snap_length = 65535;
};

constexpr Row rows[] = {
    {.name = "no capture", .size = 60},
    {.name = "filter that takes none", .size = 60, .captures = true, .filter = "tcp port 80"},
    {.name = "all", .size = 60, .captures = true},
    {.name = "filter that takes all", .size = 60, .captures = true, .filter = "udp"},
    {.name = "all, ring full", .size = 60, .captures = true, .reads = false},
    {.name = "no capture", .size = 1514},
    {.name = "all", .size = 1514, .captures = true},
    {.name = "all, 96 bytes of each", .size = 1514, .captures = true, .snap_length = 96},
};

}  // namespace

int main(int argc, char** argv) {
    unsigned batches = 200'000;
    std::string_view only;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word.starts_with("--benchmark_min_time")) batches = 1000;
        if (word == "--batches" && i + 1 < argc) batches = static_cast<unsigned>(std::stoul(argv[++i]));
        if (word == "--only" && i + 1 < argc) only = argv[++i];
    }
    start_eal();
    std::string error;
    const Mempool pool = make_mempool({.name = "capture-bench", .length = 255, .room = 2048}, error);
    if (!pool) {
        fmt::print(stderr, "{}\n", error);
        return 1;
    }
    double first = 0, captured = 0;
    fmt::print("{:24} {:>5} {:>8} {:>14}\n", "capture", "bytes", "Mpps", "cycles/packet");
    for (const Row& row : rows) {
        if (!only.empty() && only != row.name) continue;
        Bench bench(pool.get(), row.size);
        if (row.captures) {
            bench.capture({.snap_length = row.snap_length, .filter = row.filter ? filter(row.filter) : BpfFilter()});
        }
        if (only.empty()) bench.run(batches / 10, row.reads);
        const double begin = thread_time();
        const std::uint64_t before = bench.sent();
        bench.run(batches, row.reads);
        const double time = thread_time() - begin;
        const auto sent = static_cast<double>(bench.sent() - before);
        if (sent != static_cast<double>(batches) * poll_length) {
            fmt::print(stderr, "{} packets of {} arrived\n", sent, batches * poll_length);
            return 1;
        }
        const double cycles = time * static_cast<double>(rte_get_tsc_hz()) / sent;
        fmt::print("{:24} {:>5} {:>8.1f} {:>14.0f}\n", row.name, row.size, sent / time / 1e6, cycles);
        if (row.size == 60 && !row.captures) first = cycles;
        if (row.size == 60 && row.name == "all") captured = cycles;
        if (!only.empty()) return 0;
    }
    fmt::print("cycles a packet of 60 bytes: {:.0f} without a capture, {:.0f} with one of all\n", first, captured);
    return 0;
}
