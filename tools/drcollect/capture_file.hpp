// The files of one session: segments go in, in their order; a file that has become large or old is followed by another.
//
// Model. Files are called MIRROR-SESSION-NUMBER.pcapng; marks.hpp says what stands in them. A segment and its mark are
// written at once. What fails half-way (a full disk) is cut off again, and append() may be tried later. sync() makes
// what was appended as durable as promised.
//
// Resuming. open() finds the session's last file, cuts off what is behind the last sound segment, and goes on there.
// What was acknowledged was synced, mark and all: of a file that nothing has damaged, nothing of it is cut off.
//
// Threads: one at a time. Errors: std::system_error, with the file's name.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "offload/mirror/wire/handshake.hpp"
#include "tools/drcollect/marks.hpp"

namespace ovsdr::drcollect {

struct FileLimits {
    std::uint64_t size = 1ull << 30;     ///< bytes after which another file is begun; 0: never
    std::chrono::seconds age{0};         ///< time after which it is; 0: never
    mirror::Durability durability = mirror::Durability::synced;
};

class CaptureFile {
public:
    CaptureFile(std::string folder, const FileLimits& limits, const mirror::Hello& hello);
    ~CaptureFile();
    CaptureFile(const CaptureFile&) = delete;
    CaptureFile& operator=(const CaptureFile&) = delete;

    /// The segment that comes next.
    [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
    /// Segments of the session that the switch had no longer when it came back.
    [[nodiscard]] std::uint64_t gap() const noexcept { return gap_; }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

    /// Segment next(). `data`: header and payload; `fields`: of its blocks, or nothing.
    void append(const mirror::SegmentHeader& header, std::span<const std::byte> data,
                std::span<const std::byte> fields);
    /// What was appended is durable; and the file is followed by another if it is time.
    void sync();
    /// Statistics, and the end.
    void close();

private:
    struct Totals {
        std::uint64_t frames = 0, dropped = 0, first = 0, last = 0;
    };

    [[nodiscard]] unsigned highest_number() const;
    void resume(std::uint64_t oldest);
    [[nodiscard]] std::vector<std::byte> head() const;
    void begin_file();
    void write_all(std::span<const std::byte> first, std::span<const std::byte> second);
    void append_statistics();
    [[nodiscard]] bool is_full() const noexcept;
    void persist() const;
    void sync_folder() const;
    [[nodiscard]] std::string path_of(unsigned number) const;
    [[noreturn]] void fail(int code) const;

    const std::string folder_;
    const FileLimits limits_;
    const std::uint64_t session_;
    const std::uint16_t application_tag_;
    const mirror::Geometry geometry_;
    const std::vector<mirror::MirrorInterface> interfaces_;
    const std::string stem_;   ///< MIRROR-SESSION
    unsigned number_ = 0;      ///< the highest that a file has
    std::string path_;
    int descriptor_ = -1;
    std::uint64_t size_ = 0;   ///< of whole segments
    std::uint64_t next_ = 0, gap_ = 0;
    Totals totals_;            ///< of this file
    std::chrono::steady_clock::time_point begun_{};
};

}  // namespace ovsdr::drcollect
