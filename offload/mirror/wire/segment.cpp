#include "offload/mirror/wire/segment.hpp"

#include <fmt/format.h>

#include <concepts>

#include "offload/mirror/wire/bytes.hpp"
#include "offload/mirror/wire/guard.hpp"

namespace ovsdr::mirror {
namespace {

constexpr std::uint32_t magic = 0x534d5244;   // "DRMS"
constexpr std::uint16_t version = 1;
constexpr std::size_t crc_at = 60;
constexpr unsigned block_size_bits = 13;

static_assert(block_sizes.back() < 1u << block_size_bits && static_cast<unsigned>(SignatureType::crc64) < 8);

/// Writes into memory that is there, where ByteWriter makes room: this runs for each segment.
class FixedWriter {
public:
    explicit FixedWriter(std::byte* at) noexcept : at_(at) {}
    template <std::unsigned_integral T>
    void number(T value) noexcept {
        for (std::size_t i = 0; i < sizeof value; ++i) {
            *at_++ = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> 8 * i);
        }
    }

private:
    std::byte* at_;
};

}  // namespace

std::string Geometry::fault() const {
    if (!signature.valid()) {
        return fmt::format("no device has signature {} with blocks of {} bytes", static_cast<unsigned>(signature.type),
                           signature.block_size);
    }
    if (segment_size < smallest_segment || segment_size > largest_segment) {
        return fmt::format("a segment has {} to {} bytes, not {}", smallest_segment, largest_segment, segment_size);
    }
    if (segment_size % signature.block_size != 0) {
        return fmt::format("segments of {} bytes are no whole number of blocks of {}", segment_size,
                           signature.block_size);
    }
    if (slots < fewest_slots || slots > most_slots) {
        return fmt::format("a ring has {} to {} segments, not {}", fewest_slots, most_slots, slots);
    }
    if (ring_size() > largest_ring) {
        return fmt::format("a ring has {} bytes at most, not {} segments of {}", largest_ring, slots, segment_size);
    }
    return {};
}

const char* text_of(HeaderFault fault) noexcept {
    switch (fault) {
        case HeaderFault::none:
            return "right";
        case HeaderFault::size:
            return "shorter than a header";
        case HeaderFault::magic:
            return "no segment";
        case HeaderFault::version:
            return "a version that this program does not know";
        case HeaderFault::crc:
            return "its own CRC is wrong";
        case HeaderFault::contents:
            return "it contradicts itself";
    }
    return "?";
}

void encode(const SegmentHeader& header, std::span<std::byte, header_size> to) noexcept {
    FixedWriter writer(to.data());
    writer.number(magic);
    writer.number(version);
    writer.number(static_cast<std::uint16_t>(header_size));
    writer.number(header.session);
    writer.number(header.sequence);
    writer.number(header.first_reference);
    writer.number(header.used);
    writer.number(header.dropped);
    writer.number(header.sealed);
    writer.number(header.frames);
    writer.number(header.payload_crc);
    writer.number(header.application_tag);
    writer.number(static_cast<std::uint16_t>(static_cast<unsigned>(header.signature.type) << block_size_bits |
                                             header.signature.block_size));
    writer.number(crc32c(0, to.first(crc_at)));
}

DecodedHeader decode_header(std::span<const std::byte> from) noexcept {
    if (from.size() < header_size) return {HeaderFault::size, {}};
    ByteReader reader(from.first(header_size));
    if (reader.number<std::uint32_t>() != magic) return {HeaderFault::magic, {}};
    // A header of another version may have its CRC elsewhere: the version comes first.
    const auto found_version = reader.number<std::uint16_t>();
    const auto found_size = reader.number<std::uint16_t>();
    if (found_version != version || found_size != header_size) return {HeaderFault::version, {}};
    SegmentHeader header{};
    header.session = reader.number<std::uint64_t>();
    header.sequence = reader.number<std::uint64_t>();
    header.first_reference = reader.number<std::uint32_t>();
    header.used = reader.number<std::uint32_t>();
    header.dropped = reader.number<std::uint64_t>();
    header.sealed = reader.number<std::uint64_t>();
    header.frames = reader.number<std::uint32_t>();
    header.payload_crc = reader.number<std::uint32_t>();
    header.application_tag = reader.number<std::uint16_t>();
    const auto packed = reader.number<std::uint16_t>();
    header.signature = {static_cast<SignatureType>(packed >> block_size_bits),
                        static_cast<std::uint16_t>(packed & ((1u << block_size_bits) - 1))};
    if (reader.number<std::uint32_t>() != crc32c(0, from.first(crc_at))) return {HeaderFault::crc, {}};
    if (!header.signature.valid() || header.used < header_size) return {HeaderFault::contents, {}};
    return {HeaderFault::none, header};
}

}  // namespace ovsdr::mirror
