// What a signature costs when a message goes through an MKEY a packet at a time, beside the same MKEY without one and
// beside ISA-L's bare check of the same blocks.
//
// Model. A segment of 64 KiB, or what whole blocks there are in it, goes in packets of one size, as requester and
// responder of the soft NIC take them: Transfer::gather() and scatter(), nothing else of the NIC. Packets of 4096 bytes
// end within a block nearly always; beside them stand packets of about that size that have whole blocks only.
//
// Costs are time-stamp cycles a block: of a segment with a signature, one without and the bare check in turn; of each
// what a tenth of all rounds stayed below. The signature's own are the difference, fields on the wire included. The
// check's blocks are in the first-level cache. CRC64_XP10 stands beside ISA-L's crc64_ecma_refl(), which is the same
// work, and the checksum guard, which ISA-L does not have, beside rte_raw_cksum().
//
// The last line is the worst ratio. --benchmark_min_time=… makes a short run of it.
#include <fmt/format.h>
#include <isa-l/crc.h>
#include <isa-l/crc64.h>
#include <rte_ip.h>
#include <x86intrin.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "common/pages.hpp"
#include "common/wide_registers.hpp"
#include "datapath/ports/guarded_copy.hpp"
#include "datapath/rdma/memory/transfer.hpp"
#include "datapath/rdma/mkey/mkey.hpp"

using namespace ovsdr;
using namespace ovsdr::soft;
using signature::Domain;
using signature::GuardType;

namespace {

constexpr std::size_t segment_size = 65536, hot_size = 16384;
constexpr std::size_t packets = 20, packet_room = 8320, headers = 202;   // as payloads lie in their buffers
const int protection_domain = 0;
std::uint64_t sink = 0;   // keeps results alive

using Bytes = const unsigned char*;
struct Subject {
    std::string_view name;
    Domain domain;
    std::uint64_t (*bare)(Bytes block, std::size_t size);
};
const std::array subjects{
    Subject{"t10dif-crc",
            {.t10dif = true, .guard = GuardType::t10_crc, .increment_reference_tag = true},
            [](Bytes block, std::size_t size) -> std::uint64_t { return crc16_t10dif(0, block, size); }},
    Subject{"t10dif-csum",
            {.t10dif = true, .guard = GuardType::ip_checksum, .increment_reference_tag = true},
            [](Bytes block, std::size_t size) -> std::uint64_t { return rte_raw_cksum(block, size); }},
    Subject{"crc32",
            {.guard = GuardType::crc32, .seed = 0xFFFFFFFF},
            [](Bytes block, std::size_t size) -> std::uint64_t { return crc32_gzip_refl(0, block, size); }},
    Subject{"crc32c",
            {.guard = GuardType::crc32c, .seed = 0xFFFFFFFF},
            [](Bytes block, std::size_t size) -> std::uint64_t {
                return crc32_iscsi(const_cast<unsigned char*>(block), static_cast<int>(size), 0xFFFFFFFF);
            }},
    Subject{"crc64",
            {.guard = GuardType::crc64_xp10, .seed = ~std::uint64_t{0}},
            [](Bytes block, std::size_t size) -> std::uint64_t { return crc64_ecma_refl(0, block, size); }},
};

class Cycles {
public:
    void add(std::uint64_t cycles) { seen_.push_back(cycles); }
    [[nodiscard]] double of(std::size_t blocks) {
        std::sort(seen_.begin(), seen_.end());
        return static_cast<double>(seen_.at(seen_.size() / 10)) / static_cast<double>(blocks);
    }

private:
    std::vector<std::uint64_t> seen_;
};

/// A segment's memory and two MKEYs over it, one of them signed on the wire.
class Segment {
public:
    explicit Segment(const Domain& wire) {
        std::uint32_t value = 7;
        for (std::byte& byte : memory_.get()) byte = static_cast<std::byte>((value = value * 1103515245 + 12345) >> 16);
        region_.base = memory_.get().data();
        if (table_.add(region_) != 0 || table_.add(plain_) != 0 || table_.add(signed_) != 0) std::abort();
        configure(plain_, nullptr);
        configure(signed_, &wire);
    }

    /// Cycles for `size` bytes on the wire.
    [[nodiscard]] std::uint64_t move(bool with_signature, bool receives, std::size_t size, std::size_t packet_size) {
        const ibv_sge piece{0, static_cast<std::uint32_t>(size), with_signature ? signed_.key() : plain_.key()};
        const unsigned access = receives ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0u;
        bool failed = transfer_.begin({table_, &protection_domain, access, false, 0}, {&piece, 1}) != none;
        const std::uint64_t begin = __rdtsc();
        std::byte* packet = packets_.get().data() + headers;
        for (std::size_t at = 0; at < size; at += packet_size, packet += packet_room) {
            const std::size_t part = std::min(packet_size, size - at);
            failed |= receives ? transfer_.scatter(at, {packet, part}) != none
                               : transfer_.gather(at, {packet, part}) != none;
        }
        const std::uint64_t cycles = __rdtsc() - begin;
        if (failed || transfer_.signature_failed()) {
            fmt::print("FAIL: a transfer, or a block of it\n");
            std::exit(1);
        }
        return cycles;
    }

private:
    static constexpr auto none = Transfer::Fault::none;

    void configure(Mkey& mkey, const Domain* wire) {
        const Mkey::Writing state(mkey);
        state->free = false;
        state->access = IBV_ACCESS_LOCAL_WRITE;
        const LayoutEntry all{0, region_.key, segment_size, 0};
        state->layout.assign({&all, 1}, 1);
        state->length = segment_size;
        state->is_signed = wire != nullptr;
        if (wire) state->attributes = {{}, *wire, 0xFF, 0};
    }

    const Pages memory_{segment_size}, packets_{packets * packet_room};
    MemoryRegion region_{.iova = 0,
                         .size = segment_size,
                         .base = nullptr,
                         .access = IBV_ACCESS_LOCAL_WRITE,
                         .domain = &protection_domain};
    Mkey plain_{{&protection_domain, 4, false, false}}, signed_{{&protection_domain, 4, true, false}};
    MemoryTable table_;
    Transfer transfer_;
};

std::uint64_t bare(const Subject& subject, std::size_t block_size) {
    static const Pages pages(hot_size);
    const auto* const data = reinterpret_cast<Bytes>(pages.get().data());
    const std::uint64_t begin = __rdtsc();
    for (std::size_t at = 0; at + block_size <= hot_size; at += block_size) sink += subject.bare(data + at, block_size);
    const std::uint64_t cycles = __rdtsc() - begin;
    leave_wide_registers();
    return cycles;
}

/// The worse ratio of the two sides.
double measure(const Subject& subject, const Domain& wire, std::size_t packet_size, unsigned rounds) {
    Segment segment(wire);
    const std::size_t block_size = wire.block_size;
    const std::size_t blocks = segment_size / block_size, raw = blocks * block_size;
    Cycles check, sent, sent_signed, taken, taken_signed;
    for (unsigned round = 0; round < rounds; ++round) {
        // In this order: what is taken is what has been sent.
        sent.add(segment.move(false, false, raw, packet_size));
        sent_signed.add(segment.move(true, false, wire.framed(raw), packet_size));
        taken_signed.add(segment.move(true, true, wire.framed(raw), packet_size));
        sent.add(segment.move(false, false, raw, packet_size));
        taken.add(segment.move(false, true, raw, packet_size));
        check.add(bare(subject, block_size));
    }
    const double one = check.of(hot_size / block_size);
    const double sending = sent_signed.of(blocks) - sent.of(blocks);
    const double receiving = taken_signed.of(blocks) - taken.of(blocks);
    fmt::print("| {} | {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.2f} | {:.2f} |\n", subject.name,
               block_size, packet_size, one, sent.of(blocks), sending, taken.of(blocks), receiving, sending / one,
               receiving / one);
    fflush(stdout);
    return std::max(sending, receiving) / one;
}

}  // namespace

int main(int count, char** arguments) {
    unsigned rounds = 2000;
    for (int i = 1; i < count; ++i) {
        if (std::string_view(arguments[i]).starts_with("--benchmark_min_time=")) rounds = 20;
    }
    guard_copies();
    fmt::print("Cycles for a block: the bare check, sending without a signature, the signature's own, receiving"
               " without, its own\n\n| signature | block | packets | check | sending | own | receiving | own |"
               " times the check, sending | receiving |\n|---|---|---|---|---|---|---|---|---|---|\n");
    double worst = 0;
    for (const Subject& subject : subjects) {
        for (const std::uint32_t block_size : {512u, 520u, 4048u, 4096u, 4160u}) {
            Domain wire = subject.domain;
            wire.block_size = block_size;
            const std::size_t frame = block_size + wire.field_size();
            const std::size_t whole = std::max<std::size_t>(1, 4160 / frame);
            for (const std::size_t packet_size : {std::size_t{4096}, whole * frame}) {
                worst = std::max(worst, measure(subject, wire, packet_size, rounds));
            }
        }
    }
    fmt::print("\na signature's own cycles are at worst {:.2f} times its bare check's\n", worst);
    return sink == 42 ? 1 : 0;
}
