// What a mirror's signatures cost on the soft NIC, beside the same path without and beside ISA-L's bare CRCs.
//
// Both ends are in one device: a worker of the soft NIC's sends segments of some 64 KiB out of one ring, and takes them
// into another, 64 in each, as options:segment and options:ring are by default. There is no ICRC within a device.
//
// The signature's own cost at a side is what the NIC's worker takes for a byte of data with it at that side alone, less
// what it takes by MKEYs without signature, configured anew for each segment as those with one are. Fields on the wire
// count as the signature's. Beside it stands the bare check of the same blocks while they are in the first-level cache,
// as a packet that has just been copied is:
//
//   t10dif-crc   crc16_t10dif      crc32   crc32_gzip_refl     crc32c   crc32_iscsi
//   crc64        crc64_ecma_refl: Debian's ISA-L has not this polynomial; it is the same work with other constants
//   t10dif-csum  rte_raw_cksum of DPDK: ISA-L has no such checksum
//
// All paths take turns in a round. Of speeds the best counts; of costs, the bare check's too, what a tenth of all
// ringfuls stayed below.
// The last line is the verdict; the exit
// is 1 where a ratio is above 1.5. --smoke asks for no ratio.
#include <fmt/format.h>
#include <isa-l/crc.h>
#include <isa-l/crc64.h>
#include <rte_ip.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <x86intrin.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "append.hpp"
#include "path.hpp"

using namespace ovsdr;
using namespace ovsdr::bench;
using mirror::SignatureType;

namespace {

constexpr std::uint16_t slots = 64;
constexpr std::size_t ring_size = slots * std::size_t{65536};   // at most
constexpr std::size_t hot_size = 16384;   // of the bare checks: in the first-level cache
constexpr double most = 1.5;
constexpr double none = std::numeric_limits<double>::max();

std::uint64_t sink = 0;   // keeps results alive

struct Subject {
    SignatureType type;
    std::string_view beside;
    std::uint64_t (*bare)(const unsigned char* block, std::uint16_t size);
};
using Bytes = const unsigned char*;
const std::array subjects{
    Subject{SignatureType::t10dif_crc, "crc16_t10dif",
            [](Bytes block, std::uint16_t size) -> std::uint64_t { return crc16_t10dif(0, block, size); }},
    Subject{SignatureType::t10dif_csum, "rte_raw_cksum",
            [](Bytes block, std::uint16_t size) -> std::uint64_t { return rte_raw_cksum(block, size); }},
    Subject{SignatureType::crc32, "crc32_gzip_refl",
            [](Bytes block, std::uint16_t size) -> std::uint64_t { return crc32_gzip_refl(0, block, size); }},
    Subject{SignatureType::crc32c, "crc32_iscsi",
            [](Bytes block, std::uint16_t size) -> std::uint64_t {
                return crc32_iscsi(const_cast<unsigned char*>(block), size, 0xFFFFFFFF);
            }},
    Subject{SignatureType::crc64, "crc64_ecma_refl",
            [](Bytes block, std::uint16_t size) -> std::uint64_t { return crc64_ecma_refl(0, block, size); }},
};
constexpr std::array<std::uint16_t, 2> block_sizes{512, 4096};

struct Options {
    bool smoke = false;
    unsigned rounds = 10;
    unsigned rings = 50;     ///< of a path in a round, for its cost
    std::string signature;   ///< only this one; empty: all
    double seconds = 0.1;    ///< of a path in a round, for its speed
};

double tsc_per_second() {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const std::uint64_t ticks = __rdtsc();
    while (Clock::now() - begin < std::chrono::milliseconds(50)) {}
    return static_cast<double>(__rdtsc() - ticks) / std::chrono::duration<double>(Clock::now() - begin).count();
}

/// What was seen of one path, or of the bare check.
struct Seen {
    double speed = 0;                ///< bytes a second, the best
    std::vector<double> costs{};     ///< seconds for a byte, of each ringful

    /// What a tenth of all stayed below: the others were disturbed more.
    [[nodiscard]] double cost() const {
        std::vector<double> sorted = costs;
        std::sort(sorted.begin(), sorted.end());
        return sorted.at(sorted.size() / 10);
    }
};

/// Seconds of this thread for a byte, over as many bytes as a ring has.
double bare(const Subject& subject, std::uint16_t block_size) {
    static const Pages pages(hot_size);
    const auto* const data = reinterpret_cast<Bytes>(pages.get().data());
    constexpr std::size_t repeats = ring_size / hot_size;
    const double begin = thread_seconds();
    for (std::size_t i = 0; i < repeats; ++i) {
        for (std::size_t at = 0; at < hot_size; at += block_size) sink += subject.bare(data + at, block_size);
        asm volatile("" : : : "memory");
    }
    return (thread_seconds() - begin) / static_cast<double>(repeats * hot_size);
}

double copying(std::span<std::byte> to, std::span<const std::byte> from) {
    const double begin = thread_seconds();
    constexpr std::size_t once = 65536;
    for (std::size_t at = 0; at < to.size(); at += once) {
        std::memcpy(to.data() + at, from.data() + at, once);
        asm volatile("" : : "r"(to.data()) : "memory");
    }
    return (thread_seconds() - begin) / static_cast<double>(to.size());
}

struct Row {
    const Subject* subject;
    std::uint16_t block_size;
    Seen whole{}, sending{}, receiving{}, mkey{}, region{}, bare{};
    double copy = none;

    [[nodiscard]] double sending_own() const { return sending.cost() - mkey.cost(); }
    [[nodiscard]] double receiving_own() const { return receiving.cost() - mkey.cost(); }
};

Row measure(const std::shared_ptr<dr::Device>& device, const Subject& subject, std::uint16_t block_size,
            const Options& options) {
    const mirror::Signature protection{subject.type, block_size};
    const mirror::Geometry geometry{mirror::Geometry::usual_segment(protection), slots, protection};
    using enum EndKind;
    Path whole(device, geometry, signature, signature), sending(device, geometry, signature, mkey),
        receiving(device, geometry, mkey, signature), mkeys(device, geometry, mkey, mkey),
        regions(device, geometry, region, region);
    const Pages from(ring_size), to(from.get().size());
    Row row{&subject, block_size};
    struct Turn {
        Path& path;
        Seen& seen;
    };
    const Turn turns[] = {{whole, row.whole}, {sending, row.sending}, {receiving, row.receiving},
                          {mkeys, row.mkey}, {regions, row.region}};
    for (unsigned round = 0; round < options.rounds; ++round) {
        for (const Turn& turn : turns) turn.seen.speed = std::max(turn.seen.speed, turn.path.speed(options.seconds));
        for (unsigned i = 0; i < options.rings; ++i) {
            for (const Turn& turn : turns) turn.seen.costs.push_back(turn.path.cost());
            row.bare.costs.push_back(bare(subject, block_size));
        }
        for (unsigned i = 0; i < 16; ++i) row.copy = std::min(row.copy, copying(to.get(), from.get()));
    }
    for (const Turn& turn : turns) turn.path.verify();
    return row;
}

void print(const Row& row, double hertz) {
    const Seen* const seen[] = {&row.whole, &row.mkey, &row.region};
    fmt::print("| {} | {} ", mirror::name_of(row.subject->type), row.block_size);
    for (const Seen* path : seen) fmt::print("| {:.2f} ", path->speed / 1e9);
    fmt::print("| {:.1f} | {:.1f} ", 1e-9 / row.copy, 1e-9 / row.bare.cost());
    for (const Seen* path : seen) fmt::print("| {:.3f} ", path->cost() * hertz);
    fmt::print("| {:.3f} | {:.3f} | {:.3f} | {:.2f} | {:.2f} |\n", row.bare.cost() * hertz, row.sending_own() * hertz,
               row.receiving_own() * hertz, row.sending_own() / row.bare.cost(), row.receiving_own() / row.bare.cost());
    fflush(stdout);
}

/// The copy beside the NIC's worker: `path` is what that takes at both ends for a byte.
void print_append(const Options& options, double path, double hertz) {
    fmt::print("\n| frame | append, cycles/byte | of that the copy | the copy to append and path |\n"
               "|---|---|---|---|\n");
    for (const std::size_t size : {std::size_t{1514}, std::size_t{4096}, std::size_t{9018}}) {
        const AppendCost cost = measure_append(size, options.smoke ? 0.02 : 1.0);
        const double copy = cost.whole - cost.without_copy;
        fmt::print("| {} | {:.3f} | {:.3f} | {:.1f} % |\n", size, cost.whole * hertz, copy * hertz,
                   100 * copy / (cost.whole + path));
    }
    fmt::print("\n");
}

int run(const Options& options) {
    prctl(PR_SET_TIMERSLACK, 1000);
    const double hertz = tsc_per_second();
    auto device = dr::Device::open("mlx5_0");
    if (!device) throw std::runtime_error(device.error().what);
    fmt::print("GB/s of the path with the signature, by MKEYs without and with no MKEY, of memcpy and the bare check;"
               " then cycles for a\nbyte: the path (three ways, both ends), the bare check, the signature's own"
               " when sending and when receiving\n\n"
               "| signature | block | GB/s | MKEY | none | memcpy | check | c/B | MKEY | none | check | sends |"
               " receives | times the check | |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    double worst = 0, path = none;
    std::string where;
    for (const Subject& subject : subjects) {
        if (!options.signature.empty() && options.signature != mirror::name_of(subject.type)) continue;
        for (const std::uint16_t block_size : block_sizes) {
            const Row row = measure(*device, subject, block_size, options);
            print(row, hertz);
            path = std::min(path, row.whole.cost());
            const double ratio = std::max(row.sending_own(), row.receiving_own()) / row.bare.cost();
            if (ratio <= worst) continue;
            worst = ratio;
            where = fmt::format("{}, blocks of {}", mirror::name_of(subject.type), block_size);
        }
    }
    print_append(options, path, hertz);
    const bool holds = worst <= most;
    fmt::print("a signature's own cycles are at worst {:.2f} times its bare check's ({}); asked: at most {}: {}\n",
               worst, where, most, options.smoke ? "not asked now" : holds ? "holds" : "DOES NOT HOLD");
    return holds || options.smoke || sink == 42 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("a mirror's segments from ring to ring, with each signature and without");
    Options options;
    app.add_flag("--smoke", options.smoke, "short, and whatever it takes is right");
    app.add_option("--rounds", options.rounds, "in each of which every path has its turns")->capture_default_str();
    app.add_option("--rings", options.rings, "of each path in a round, for its cost")->capture_default_str();
    app.add_option("--seconds", options.seconds, "of each path in a round, for its speed")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    std::vector<std::string> names;
    for (const mirror::SignatureName& known : mirror::signature_names) names.emplace_back(known.name);
    app.add_option("--signature", options.signature, "only this one")->check(CLI::IsMember(names));
    CLI11_PARSE(app, argc, argv);
    if (options.smoke) options.rounds = 1, options.rings = 2, options.seconds = 0.01;
    try {
        return run(options);
    } catch (const std::exception& error) {
        fmt::print(stderr, "mirror_bench: {}\n", error.what());
        return 1;
    }
}
