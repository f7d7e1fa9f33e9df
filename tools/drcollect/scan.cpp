#include "tools/drcollect/scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "offload/mirror/wire/guard.hpp"

namespace ovsdr::drcollect {
namespace {

using mirror::header_size;
using mirror::SegmentHeader;

constexpr std::uint32_t interface_description = 1, interface_statistics = 5, enhanced_packet = 6;
constexpr std::uint32_t segment_magic = 0x4d474553, header_magic = 0x534d5244;   // "SEGM", "DRMS"
constexpr std::size_t smallest_block = 12, mark_header_at = 16;

std::uint32_t word(std::span<const std::byte> bytes, std::size_t at) noexcept {
    std::uint32_t value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

/// The block at the front of `bytes`, or nothing where there is none whole.
std::span<const std::byte> block_of(std::span<const std::byte> bytes) noexcept {
    if (bytes.size() < smallest_block) return {};
    const std::size_t size = word(bytes, 4);
    if (size < smallest_block || size % 4 != 0 || size > bytes.size() || word(bytes, size - 4) != size) return {};
    return bytes.first(size);
}

/// The block at `at` of a file, or nothing where there is none whole. None of a collector's is as long as a segment may
/// be: a wrong size does not make it read all of the file.
std::span<const std::byte> block_at(FileWindow& file, std::uint64_t at) {
    if (file.size() - at < smallest_block) return {};
    const std::size_t size = file.word(at + 4);
    if (size > mirror::Geometry::largest_segment || size > file.size() - at) return {};
    return block_of(file.bytes(at, size));
}

/// A segment's mark that can be read, found without what is in front of it.
struct WholeMark {
    std::size_t at = 0;   ///< in the file; its size where there is none
    SegmentHeader header{};
};

WholeMark next_mark(FileWindow& file, std::size_t from, std::uint64_t session) {
    for (std::size_t at = (from + 3) & ~std::size_t{3}; at + smallest_block <= file.size(); at += 4) {
        if (file.word(at) != mark_block) continue;
        const Mark mark = decode_mark(block_at(file, at));
        if (mark.kind != Mark::Kind::segment) continue;
        const auto decoded = mirror::decode_header(mark.header);
        if (decoded.fault != mirror::HeaderFault::none || decoded.header.session != session) continue;
        return {at, decoded.header};
    }
    return {.at = file.size()};
}

class Walk {
public:
    explicit Walk(FileWindow& file) : file_(file) { scan_.size = file.size(); }

    Scan run() {
        std::size_t at = 0;
        while (at < file_.size()) {
            const auto block = block_at(file_, at);
            if (!block.empty()) {
                take(block, at);
                at += block.size();
            } else if (!pass_over(at)) {
                break;
            }
        }
        scan_.torn = file_.size() - std::max<std::size_t>(payload_begin_, scan_.beginning ? 0 : at);
        const bool unfinished = scan_.beginning && scan_.torn > 0 && !has_trace(at) && file_.lost().empty();
        tell_lost();
        scan_.damaged = !scan_.beginning || scan_.faults > gap_faults_ || (scan_.torn > 0 && !unfinished);
        if (!scan_.beginning) {
            fault(0, 0, "it does not begin as a collector's file");
        } else if (scan_.torn > 0) {
            fault(scan_.next, payload_begin_,
                  fmt::format("{} bytes behind segment {} belong to none: {}", scan_.torn, expected_ - 1,
                              unfinished               ? "it was cut off"
                              : file_.lost().empty() ? "there is a mark in them that cannot be read"
                                                     : "there may be a segment that the disk cannot read"));
        }
        return std::move(scan_);
    }

private:
    /// What the disk could not read is a fault, even where zeros stood there.
    void tell_lost() {
        for (const auto& [from, end] : file_.lost()) {
            fault(expected_, from, fmt::format("{} bytes cannot be read from the disk", end - from));
        }
    }

    /// At a block whose size is wrong: to the next mark that can be read, its payload in front of it. False: there is
    /// none.
    bool pass_over(std::size_t& at) {
        if (!scan_.beginning) return false;
        const WholeMark found = next_mark(file_, at, scan_.beginning->session);
        if (found.at == file_.size()) return false;
        fault(expected_, at, fmt::format("a block's size is wrong; the next mark is at byte {}", found.at));
        at = found.at;
        return true;
    }

    /// Behind the last segment, where the walk has ended at `end`, stands more than a part of a segment.
    bool has_trace(std::size_t end) {
        // A mark that was not written to its end is none: its size is right, and there is less of it.
        std::size_t unfinished = file_.size();
        if (file_.size() - end >= mark_header_at && file_.word(end) == mark_block) {
            const std::uint64_t size = size_of_mark(file_.word(end + 12));
            if (file_.word(end + 8) == segment_magic && file_.word(end + 4) == size && size > file_.size() - end) {
                unfinished = end + mark_header_at;
            }
        }
        for (std::size_t at = payload_begin_; at + header_size <= file_.size(); at += 4) {
            if (at == unfinished || file_.word(at) != header_magic) continue;
            if (at >= 8 && file_.word(at - 8) == segment_magic) return true;
            const auto decoded = mirror::decode_header(file_.bytes(at, header_size));
            if (decoded.fault == mirror::HeaderFault::none && decoded.header.session == scan_.beginning->session) {
                return true;
            }
        }
        return false;
    }

    void fault(std::uint64_t segment, std::uint64_t offset, std::string what) {
        ++scan_.faults;
        if (scan_.findings.size() < most_findings) scan_.findings.push_back({segment, offset, std::move(what)});
    }

    void take(std::span<const std::byte> block, std::size_t at) {
        const std::uint32_t type = word(block, 0);
        if (type == mark_block) {
            mark_.assign(block.begin(), block.end());   // its payload may need the window
            return take_mark(decode_mark(mark_), at, at + mark_.size());
        }
        if (type == interface_description) ++interfaces_;
        if (type == interface_statistics) scan_.has_statistics = true;
        // Statistics stand between segments; everything else is of the next one.
        if (payload_begin_ == at && type == interface_statistics) payload_begin_ = at + block.size();
    }

    void take_mark(const Mark& mark, std::size_t at, std::size_t end) {
        if (mark.kind == Mark::Kind::beginning && !scan_.beginning) {
            scan_.beginning = mark.beginning;
            if (end <= longest_head) {
                const auto head = file_.bytes(0, end);
                scan_.head.assign(head.begin(), head.end());
            }
            expected_ = scan_.next = mark.beginning.first;
            good_end(end);
        } else if (mark.kind == Mark::Kind::segment && scan_.beginning) {
            const auto decoded = mirror::decode_header(mark.header);
            const std::size_t found = at - payload_begin_, said = decoded.header.used - header_size;
            if (decoded.fault == mirror::HeaderFault::none && found > said) {
                fault(expected_, payload_begin_, fmt::format("{} bytes that belong to no segment", found - said));
                payload_begin_ = at - said;
            }
            const std::uint64_t before = scan_.faults, gaps_before = gap_faults_;
            take_segment(mark, at);
            if (scan_.faults - before == gap_faults_ - gaps_before) good_end(end);
        } else {
            fault(expected_, at, "a mark that cannot be read");
        }
        payload_begin_ = end;
    }

    void good_end(std::size_t end) {
        scan_.good_end = end;
        scan_.next = expected_;
    }

    /// Whose mark stands at `at`.
    void take_segment(const Mark& mark, std::size_t at) {
        const auto decoded = mirror::decode_header(mark.header);
        if (decoded.fault != mirror::HeaderFault::none) {
            fault(expected_++, at, fmt::format("its header: {}", text_of(decoded.fault)));
            return;
        }
        const SegmentHeader& header = decoded.header;
        ++scan_.segments;
        scan_.frames += header.frames;
        scan_.dropped += header.dropped;
        if (scan_.first_sealed == 0) scan_.first_sealed = header.sealed;
        scan_.last_sealed = header.sealed;
        check_order(header, at);
        const std::size_t size = at - payload_begin_;
        if (header.used != header_size + size) {
            fault(header.sequence, payload_begin_,
                  fmt::format("it has {} bytes; its header says {}", size, header.used - header_size));
            return;
        }
        if (header.used > scan_.beginning->geometry.segment_size) {
            fault(header.sequence, payload_begin_,
                  fmt::format("it has {} bytes; a segment has {} at most", header.used,
                              scan_.beginning->geometry.segment_size));
            return;
        }
        check_payload(header, mark, file_.bytes(payload_begin_, size));
    }

    void check_payload(const SegmentHeader& header, const Mark& mark, std::span<const std::byte> payload) {
        if (file_.is_lost(payload_begin_, payload.size() + mark_.size())) {   // the mark stands behind it
            fault(header.sequence, payload_begin_, "bytes of it cannot be read from the disk");
            return;
        }
        if (!check_fields(header, mark, payload) && mirror::crc32c(0, payload) != header.payload_crc) {
            fault(header.sequence, payload_begin_,
                  fmt::format("the payload's CRC-32C is {:#010x}, expected {:#010x}", mirror::crc32c(0, payload),
                              header.payload_crc));
        } else if (const std::string wrong = payload_fault(payload, interfaces_); !wrong.empty()) {
            fault(header.sequence, payload_begin_, wrong);
        }
    }

    void check_order(const SegmentHeader& header, std::size_t at) {
        const Beginning& beginning = *scan_.beginning;
        if (header.session != beginning.session || header.application_tag != beginning.application_tag ||
            !(header.signature == beginning.geometry.signature)) {
            fault(header.sequence, at, "it is of another session, or another mirror");
        } else if (header.first_reference != beginning.geometry.first_reference(header.sequence)) {
            fault(header.sequence, at, "its reference tag is not that of its number");
        }
        if (header.sequence > expected_) {
            const std::uint64_t missing = header.sequence - expected_;
            scan_.gaps += missing;
            ++gap_faults_;
            fault(expected_, at, fmt::format("{} segments are not there", missing));
        } else if (header.sequence < expected_) {
            fault(header.sequence, at, fmt::format("it comes after segment {}", expected_ - 1));
        }
        expected_ = std::max(expected_, header.sequence + 1);
    }

    /// True: a block was wrong, and named.
    bool check_fields(const SegmentHeader& header, const Mark& mark, std::span<const std::byte> payload) {
        if (mark.fields.empty()) {
            ++scan_.unprotected;
            return false;
        }
        const mirror::Signature& signature = header.signature;
        const std::uint32_t blocks = signature.blocks_of(header.used);
        if (mark.fields.size() != std::size_t{blocks} * signature.field_size()) {
            fault(header.sequence, payload_begin_, "it has not as many fields as blocks");
            return true;
        }
        std::vector<std::byte> whole(std::size_t{blocks} * signature.block_size);
        std::ranges::copy(mark.header, whole.begin());
        std::ranges::copy(payload, whole.begin() + header_size);
        bool wrong = false;
        for (std::uint32_t block = 0; block < blocks; ++block) {
            const auto check = mirror::check_field(
                signature, {header.application_tag, header.first_reference + block},
                std::span<const std::byte>(whole).subspan(std::size_t{block} * signature.block_size,
                                                          signature.block_size),
                mark.fields.subspan(std::size_t{block} * signature.field_size(), signature.field_size()));
            ++scan_.blocks;
            if (check.fault == mirror::BlockFault::none) continue;
            constexpr const char* parts[] = {"", "guard", "application tag", "reference tag"};
            const std::uint64_t offset = std::uint64_t{block} * signature.block_size;
            fault(header.sequence, payload_begin_ + std::max<std::uint64_t>(offset, header_size) - header_size,
                  fmt::format("block {} (offset {} of the segment): {} is {:#x}, expected {:#x}", block, offset,
                              parts[static_cast<unsigned>(check.fault)], check.actual, check.expected));
            wrong = true;
        }
        return wrong;
    }

    FileWindow& file_;
    Scan scan_;
    std::vector<std::byte> mark_;
    std::uint64_t expected_ = 0;        ///< the segment that should come
    std::size_t payload_begin_ = 0;     ///< behind the last mark
    std::size_t interfaces_ = 0;
    std::uint64_t gap_faults_ = 0;      ///< faults that say that something is not there
};

}  // namespace

std::string payload_fault(std::span<const std::byte> payload, std::size_t interfaces) {
    constexpr std::size_t fixed = 32;   // of an enhanced packet: all but the packet and options
    while (!payload.empty()) {
        const auto block = block_of(payload);
        if (block.empty()) return "a block's size is wrong";
        if (word(block, 0) != enhanced_packet) return fmt::format("a block of type {:#x}", word(block, 0));
        if (block.size() < fixed || word(block, 20) > block.size() - fixed) return "a packet is longer than its block";
        if (word(block, 8) >= interfaces) return fmt::format("a packet of interface {}", word(block, 8));
        payload = payload.subspan(block.size());
    }
    return {};
}

std::uint64_t next_of(const std::string& path, std::uint64_t session, const ReadWatch& watch) {
    FileWindow file(path, watch);
    std::uint64_t next = 0;
    for (auto found = next_mark(file, 0, session); found.at < file.size();
         found = next_mark(file, found.at + smallest_block, session)) {
        const std::size_t size = found.header.used - header_size;
        if (size > found.at || size > mirror::Geometry::largest_segment) continue;
        const auto payload = file.bytes(found.at - size, size);
        if (mirror::crc32c(0, payload) == found.header.payload_crc) next = std::max(next, found.header.sequence + 1);
    }
    return next;
}

bool may_have_segments(const std::string& path) {
    FileWindow file(path, {});
    for (std::uint64_t at = 0; at + sizeof segment_magic <= file.size(); at += 4) {
        const std::uint32_t found = file.word(at);
        if (found == segment_magic || found == header_magic) return true;
    }
    return !file.lost().empty();
}

Scan scan(const std::string& path, const ReadWatch& watch) {
    FileWindow file(path, watch);
    return Walk(file).run();
}

Scan scan(std::span<const std::byte> bytes) {
    FileWindow file(bytes);
    return Walk(file).run();
}

}  // namespace ovsdr::drcollect
