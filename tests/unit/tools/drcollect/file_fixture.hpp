// A folder of a collector's files, and a ring whose segments go into them: a fixture.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "offload/mirror/segment_ring.hpp"
#include "offload/mirror/wire/guard.hpp"
#include "tools/drcollect/capture_file.hpp"
#include "tools/drcollect/scan.hpp"

namespace ovsdr::drcollect::test {

using namespace mirror;

struct FileTest : ::testing::Test {
    FileTest() {
        char name[] = "/tmp/ovsdr-file-XXXXXX";
        folder = mkdtemp(name);
    }
    ~FileTest() override { std::filesystem::remove_all(folder); }

    /// Segments as a collector gets them, of seven frames each.
    void write(CaptureFile& file, unsigned segments, bool keep = true) {
        for (unsigned i = 0; i < segments; ++i) {
            std::array<std::byte, 500> frame;
            for (unsigned n = 0; n < 7; ++n) {
                frame.fill(static_cast<std::byte>(ring.sealed() * 7 + n));
                ASSERT_TRUE(ring.append({.interface = 0, .time = 5, .bytes = frame, .original_size = 500}));
            }
            const std::uint64_t sequence = ring.sealed();
            ASSERT_TRUE(ring.seal(1000 + sequence));
            ring.release(sequence + 1);
            if (sequence < file.next()) continue;
            put(file, sequence, keep);
        }
    }
    void put(CaptureFile& file, std::uint64_t sequence, bool keep = true) {
        const auto data = ring.blocks_of(sequence);
        const SegmentHeader header = decode_header(data).header;
        const Signature& signature = header.signature;
        std::vector<std::byte> fields(data.size() / signature.block_size * signature.field_size());
        for (std::uint32_t block = 0; block < data.size() / signature.block_size; ++block) {
            write_field(signature, {header.application_tag, header.first_reference + block},
                        data.subspan(block * signature.block_size, signature.block_size),
                        std::span(fields).subspan(block * signature.field_size(), signature.field_size()));
        }
        file.append(header, data, keep ? std::span<const std::byte>(fields) : std::span<const std::byte>());
    }
    std::unique_ptr<CaptureFile> open(const FileLimits& limits = {}) {
        return std::make_unique<CaptureFile>(folder, limits, hello());
    }
    Hello hello() const {
        return {.session = 7,
                .oldest = oldest,
                .application_tag = 3,
                .geometry = geometry,
                .endpoint = {},
                .mirror = "m",
                .interfaces = {{"i", 65535}}};
    }
    std::string path(unsigned number = 1) const {
        return folder + "/m-0000000000000007-0000" + std::to_string(number) + ".pcapng";
    }
    std::string content() const {
        std::ifstream file(path(), std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    static std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
    void overwrite(const std::string& bytes) const { std::ofstream(path(), std::ios::binary) << bytes; }

    const Geometry geometry{.segment_size = 8192, .slots = 4, .signature = {SignatureType::t10dif_crc, 512}};
    std::vector<std::byte> memory = std::vector<std::byte>(4 * 8192);
    SegmentRing ring{geometry, 7, 3, memory, 65535};
    std::uint64_t oldest = 0;
    std::string folder;
};

}  // namespace ovsdr::drcollect::test
