// Signatures at blocks of 4 KiB: generating and validating fields in place, beside ISA-L's bare CRC of the same blocks
// of the same buffer. Both alternate, and of each the best round counts: a machine that is busy now and then is so for
// both.
//
// CRC64_XP10 has no code in ISA-L of Debian 12: its figure is beside ISA-L's crc64_ecma_refl(), a reflected CRC-64 of
// another polynomial that does the same work. The checksum guard has no counterpart and is shown by itself.
//
// The last line is the worst ratio; the exit is 1 where it is below 0.8. --benchmark_min_time=… makes a short run of it
// that asks for no ratio.
#include <fmt/format.h>
#include <isa-l/crc.h>
#include <isa-l/crc64.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "datapath/signature/blocks.hpp"

using namespace ovsdr::soft::signature;

namespace {

constexpr std::uint32_t block_size = 4096;
constexpr double required = 0.8;
std::uint64_t sink = 0;  // keeps results alive

using BareCrc = std::uint64_t (*)(const unsigned char* block);

struct Subject {
    std::string_view name;
    Domain domain;
    BareCrc bare;  ///< nullptr: nothing to compare with
    std::string_view beside;
};

const std::array subjects{
    Subject{"T10-DIF, CRC guard",
            {.block_size = block_size, .t10dif = true, .guard = GuardType::t10_crc, .increment_reference_tag = true},
            [](const unsigned char* block) -> std::uint64_t { return crc16_t10dif(0, block, block_size); },
            "crc16_t10dif"},
    Subject{"CRC32",
            {.block_size = block_size, .guard = GuardType::crc32, .seed = 0xFFFFFFFF},
            [](const unsigned char* block) -> std::uint64_t { return crc32_gzip_refl(0, block, block_size); },
            "crc32_gzip_refl"},
    Subject{"CRC32C",
            {.block_size = block_size, .guard = GuardType::crc32c, .seed = 0xFFFFFFFF},
            [](const unsigned char* block) -> std::uint64_t {
                return crc32_iscsi(const_cast<unsigned char*>(block), block_size, 0xFFFFFFFF);
            },
            "crc32_iscsi"},
    Subject{"CRC64_XP10",
            {.block_size = block_size, .guard = GuardType::crc64_xp10, .seed = ~std::uint64_t{0}},
            [](const unsigned char* block) -> std::uint64_t { return crc64_ecma_refl(0, block, block_size); },
            "crc64_ecma_refl (another polynomial)"},
    Subject{"T10-DIF, checksum guard",
            {.block_size = block_size, .t10dif = true, .guard = GuardType::ip_checksum},
            nullptr,
            {}},
};

template <typename Work>
[[nodiscard]] double seconds_of(Work work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Times {
    double bare = std::numeric_limits<double>::max();
    double generate = std::numeric_limits<double>::max();
    double validate = std::numeric_limits<double>::max();
};

[[nodiscard]] Times measure(const Subject& subject, std::size_t blocks, double budget) {
    const std::size_t frame = block_size + subject.domain.field_size();
    std::vector<std::byte> buffer(blocks * frame);
    for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = static_cast<std::byte>(i * 131 + (i >> 9));
    const unsigned repeats = static_cast<unsigned>(std::max<std::size_t>(1, 4096 / blocks));
    Times best;
    double spent = 0;
    while (spent < budget) {
        double round = 0;
        if (subject.bare) {
            round = seconds_of([&] {
                for (unsigned i = 0; i < repeats; ++i) {
                    for (std::size_t at = 0; at < buffer.size(); at += frame) {
                        sink += subject.bare(reinterpret_cast<const unsigned char*>(buffer.data() + at));
                    }
                }
            });
            best.bare = std::min(best.bare, round / repeats);
        }
        const double generating = seconds_of([&] {
            for (unsigned i = 0; i < repeats; ++i) generate(subject.domain, i, buffer);
        });
        const double validating = seconds_of([&] {
            for (unsigned i = 0; i < repeats; ++i) {
                const Error error = validate(subject.domain, repeats - 1, 0xFF, buffer);
                if (error.type != ErrorType::none) {
                    fmt::print("FAIL {}: block at {} does not validate\n", subject.name, error.offset);
                    std::exit(1);
                }
            }
        });
        best.generate = std::min(best.generate, generating / repeats);
        best.validate = std::min(best.validate, validating / repeats);
        spent += round + generating + validating;
    }
    return best;
}

}  // namespace

int main(int count, char** arguments) {
    bool smoke = false;
    for (int i = 1; i < count; ++i) smoke |= std::string_view(arguments[i]).starts_with("--benchmark_min_time=");
    struct Size {
        std::string_view name;
        std::size_t blocks;
    };
    constexpr std::array sizes{Size{"cache-resident (128 KiB)", 32}, Size{"64 MiB", 16384}};
    double worst = std::numeric_limits<double>::max();
    fmt::print("{:<24} {:<25} {:>9} {:>9} {:>9}  ratio\n", "GB/s", "buffer", "ISA-L", "generate", "validate");
    for (const Subject& subject : subjects) {
        for (const Size& size : sizes) {
            const Times times = measure(subject, size.blocks, smoke ? 0.01 : 2.0);
            const double bytes = static_cast<double>(size.blocks) * block_size;
            const auto rate = [bytes](double seconds) { return bytes / seconds / 1e9; };
            if (!subject.bare) {
                fmt::print("{:<24} {:<25} {:>9} {:>9.1f} {:>9.1f}\n", subject.name, size.name, "-",
                           rate(times.generate), rate(times.validate));
                continue;
            }
            const double ratio = times.bare / std::max(times.generate, times.validate);
            worst = std::min(worst, ratio);
            fmt::print("{:<24} {:<25} {:>9.1f} {:>9.1f} {:>9.1f}  {:.2f} of {}\n", subject.name, size.name,
                       rate(times.bare), rate(times.generate), rate(times.validate), ratio, subject.beside);
        }
    }
    fmt::print("worst ratio {:.2f} ({} asked)\n", worst, smoke ? "nothing" : fmt::format("{:.1f}", required));
    return sink == 42 || (!smoke && worst < required) ? 1 : 0;
}
