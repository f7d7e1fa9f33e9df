// Reads a collector's file segment by segment, and says what is wrong with it: for `drcollect verify`, and for a
// collector that goes on where a file ends.
//
// Model. The file is read and walked block by block. A segment is right when its mark's header is, when it is the one
// that follows, when its payload has the header's CRC, and when each of its blocks, put together again out of header,
// payload and zeros, has the field that came over the wire. Where a segment is wrong the walk goes on; where a block's
// size is, it goes on at the next mark whose header is right: a header says how long the payload in front of it is.
//
// An unfinished end is what a collector that was killed within a write leaves: a part of a segment without its mark, or
// with the beginning of one. Where there is a trace of a whole mark behind the last sound segment, the end is damaged
// and not unfinished: what stands there may have been acknowledged. A file that the disk cannot read all of is damaged
// too.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/drcollect/file_window.hpp"
#include "tools/drcollect/marks.hpp"

namespace ovsdr::drcollect {

struct Finding {
    std::uint64_t segment;
    std::uint64_t file_offset;   ///< of the first byte that is known to be concerned
    std::string what;
};

struct Scan {
    std::optional<Beginning> beginning;
    std::vector<std::byte> head;       ///< all up to the end of the beginning; empty: it is longer than longest_head
    std::uint64_t size = 0;            ///< of the file
    std::uint64_t good_end = 0;        ///< behind the last segment that is right, or the beginning; 0: there is none
    std::uint64_t next = 0;            ///< the segment that follows what is in front of good_end
    std::uint64_t segments = 0, frames = 0, dropped = 0;
    std::uint64_t blocks = 0;          ///< whose fields were checked
    std::uint64_t unprotected = 0;     ///< segments without fields
    std::uint64_t gaps = 0;            ///< segments that are not there
    std::uint64_t first_sealed = 0, last_sealed = 0;
    bool has_statistics = false;       ///< it was closed
    std::uint64_t torn = 0;            ///< bytes at the end that belong to no segment
    bool damaged = false;              ///< a fault that is neither a gap nor an unfinished end
    std::vector<Finding> findings;     ///< at most most_findings
    std::uint64_t faults = 0;

    [[nodiscard]] bool sound() const noexcept { return beginning && faults == 0; }
};

inline constexpr std::size_t most_findings = 100, longest_head = 64 << 10;

/// Throws std::system_error where the file cannot be read; what its disk cannot read is a finding and no error.
[[nodiscard]] Scan scan(const std::string& path, const ReadWatch& watch = {});
/// The same of a file's bytes.
[[nodiscard]] Scan scan(std::span<const std::byte> file);

/// Behind the highest segment of the session that stands whole and right somewhere in a file; 0: there is none. For
/// files whose beginning cannot be read.
[[nodiscard]] std::uint64_t next_of(const std::string& path, std::uint64_t session, const ReadWatch& watch = {});

/// A part of a mark or of a segment's header stands in the file, or something that the disk cannot read.
[[nodiscard]] bool may_have_segments(const std::string& path);

/// The walk over a payload: whole enhanced packets of interfaces that there are. Empty, or what is wrong.
[[nodiscard]] std::string payload_fault(std::span<const std::byte> payload, std::size_t interfaces);

}  // namespace ovsdr::drcollect
