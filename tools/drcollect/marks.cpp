#include "tools/drcollect/marks.hpp"

#include <cstring>

#include "offload/mirror/wire/bytes.hpp"
#include "offload/mirror/wire/guard.hpp"

namespace ovsdr::drcollect {
namespace {

using mirror::ByteReader;
using mirror::ByteWriter;

constexpr std::uint32_t begins = 0x4e474542, is_segment = 0x4d474553;   // "BEGN", "SEGM"
constexpr std::size_t head = 8, tail = 4;                               // of a block: type and size; size

/// The sizes of a block that has been filled up to its end.
std::vector<std::byte> close(std::vector<std::byte> block) {
    block.resize((block.size() + 3) & ~std::size_t{3});
    const auto size = static_cast<std::uint32_t>(block.size() + tail);
    ByteWriter(block).number(size);
    std::memcpy(block.data() + 4, block.data() + size - tail, tail);
    return block;
}

}  // namespace

std::vector<std::byte> encode(const Beginning& beginning) {
    std::vector<std::byte> block;
    ByteWriter to(block);
    to.number(mark_block);
    to.number(std::uint32_t{0});
    to.number(begins);
    to.number(beginning.session);
    to.number(beginning.first);
    to.number(beginning.geometry.segment_size);
    to.number(beginning.geometry.slots);
    to.number(static_cast<std::uint16_t>(beginning.geometry.signature.type));
    to.number(beginning.geometry.signature.block_size);
    to.number(beginning.application_tag);
    to.number(mirror::crc32c(0, std::span<const std::byte>(block).subspan(head)));
    return close(std::move(block));
}

std::vector<std::byte> encode_mark(std::span<const std::byte, mirror::header_size> header,
                                   std::span<const std::byte> fields) {
    std::vector<std::byte> block;
    block.reserve(head + 8 + header.size() + fields.size() + 3 + tail);
    ByteWriter to(block);
    to.number(mark_block);
    to.number(std::uint32_t{0});
    to.number(is_segment);
    to.number(static_cast<std::uint32_t>(fields.size()));
    to.bytes(header);
    to.bytes(fields);
    return close(std::move(block));
}

Mark decode_mark(std::span<const std::byte> block) {
    if (block.size() < head + tail) return {};
    const auto body = block.subspan(head, block.size() - head - tail);
    ByteReader from(body);
    const auto kind = from.number<std::uint32_t>();
    Mark mark;
    if (kind == begins) {
        mark.beginning.session = from.number<std::uint64_t>();
        mark.beginning.first = from.number<std::uint64_t>();
        mark.beginning.geometry.segment_size = from.number<std::uint32_t>();
        mark.beginning.geometry.slots = from.number<std::uint16_t>();
        const auto type = from.number<std::uint16_t>();
        mark.beginning.geometry.signature = {static_cast<mirror::SignatureType>(type), from.number<std::uint16_t>()};
        mark.beginning.application_tag = from.number<std::uint16_t>();
        const auto crc = from.number<std::uint32_t>();
        if (!from.complete() || type > UINT8_MAX || crc != mirror::crc32c(0, body.first(body.size() - sizeof crc)) ||
            !mark.beginning.geometry.fault().empty()) {
            return {};
        }
        mark.kind = Mark::Kind::beginning;
    } else if (kind == is_segment) {
        const std::size_t size = from.number<std::uint32_t>();
        mark.header = from.bytes(mirror::header_size);
        mark.fields = from.bytes(size);
        if (from.missing()) return {};
        mark.kind = Mark::Kind::segment;
    }
    return mark;
}

}  // namespace ovsdr::drcollect
