// The files of one session: segments go in, in their order; a file that has become large or old is followed by another.
//
// Model. Files are called MIRROR-SESSION-NUMBER.pcapng; marks.hpp says what stands in them. A segment and its mark are
// written at once. What fails half-way (a full disk) is cut off again, and append() may be tried later. sync() makes
// what was appended as durable as promised.
//
// A failed fdatasync() is told once: the kernel may have thrown the pages away and call them clean, so that the next
// call succeeds. Therefore a file whose fdatasync() has failed is cut to what was durable before and never written
// again. next() goes back to durable(), and the caller appends those segments once more, to another file.
//
// Resuming. The constructor finds the session's last file, cuts an unfinished end off, and goes on there. Nothing else
// is ever cut off: a file that has a fault elsewhere is left as it is, damaged() says so, and another one begins behind
// its last sound segment. What is asked about is the disk and not the kernel's pages, which a failed fdatasync() of a
// collector before may have left behind. A file says once, at its beginning, which interfaces, application tag and
// signature there are: a session that has others now goes on in another file. So it does with another segment size or
// number of slots, unless its ring has segments that were collected already: two of the same number would differ, and
// the session is refused.
//
// A process that wrote the file knows its end (known_end()), and does not read it again: as long as nothing else has
// changed the file, and no sync has failed, of which the kernel's pages do not tell any more.
//
// Threads: one at a time. Errors: std::system_error, with the file's name; SessionConflict.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "offload/mirror/wire/handshake.hpp"
#include "tools/drcollect/scan.hpp"

namespace ovsdr::drcollect {

struct FileLimits {
    std::uint64_t size = 1ull << 30;     ///< bytes after which another file is begun; 0: never
    std::chrono::seconds age{0};         ///< time after which it is; 0: never
    mirror::Durability durability = mirror::Durability::synced;
};

/// What a session says of itself contradicts its files.
struct SessionConflict : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A file as it was: another one, or a change, has another.
struct FileIdentity {
    std::uint64_t device, inode, size;
    std::int64_t changed;   ///< nanoseconds since 1970

    [[nodiscard]] bool operator==(const FileIdentity&) const noexcept = default;
};

/// A session's last file when its connection ended.
struct KnownEnd {
    std::string path;
    FileIdentity identity;
    Scan found;   ///< what a scan would find: what resuming asks for, and no findings
};

/// How a file is resumed.
struct Resuming {
    const KnownEnd* known = nullptr;   ///< none: the file is read
    ReadWatch watch{};                 ///< while it is
};

class CaptureFile {
public:
    CaptureFile(std::string folder, const FileLimits& limits, const mirror::Hello& hello,
                const Resuming& resuming = {});
    ~CaptureFile();
    CaptureFile(const CaptureFile&) = delete;
    CaptureFile& operator=(const CaptureFile&) = delete;

    /// The segment that comes next.
    [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
    /// Segments below it are as durable as promised.
    [[nodiscard]] std::uint64_t durable() const noexcept { return durable_next_; }
    /// Which file was left as it is because of a fault, and the fault; empty: none.
    [[nodiscard]] const std::string& damaged() const noexcept { return damaged_; }
    /// Segments of the session that the switch had no longer when it came back.
    [[nodiscard]] std::uint64_t gap() const noexcept { return gap_; }
    /// The files tell of the gap: whoever resumes after this does not find it again.
    [[nodiscard]] bool gap_is_told() const noexcept { return gap_is_told_; }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

    /// Segment next(). `data`: header and payload; `fields`: of its blocks, or nothing. The caller keeps them until the
    /// segment is below durable().
    void append(const mirror::SegmentHeader& header, std::span<const std::byte> data,
                std::span<const std::byte> fields);
    /// What was appended is durable; and the file is followed by another if it is time. Throws where it is not: next()
    /// is durable() then.
    void sync();
    /// Statistics, and the end.
    void close();
    /// Where the file ends; nothing where whoever resumes it has to read it. It is not used any more after this.
    [[nodiscard]] std::optional<KnownEnd> known_end() const;

private:
    struct Totals {
        std::uint64_t frames = 0, dropped = 0, first = 0, last = 0;
    };

    [[nodiscard]] unsigned highest_number() const;
    void resume(std::uint64_t oldest, const Resuming& resuming);
    [[nodiscard]] Scan look_at(const Resuming& resuming) const;
    [[nodiscard]] bool is_only_a_beginning(const Scan& found) const;
    void check_conflict(const Beginning& file, std::uint64_t next, std::uint64_t oldest) const;
    void go_on(const Scan& found);
    [[nodiscard]] std::vector<std::byte> head(std::uint64_t first) const;
    [[nodiscard]] bool begins_alike(const Scan& found) const;
    void begin_file();
    void write_all(std::span<const std::byte> first, std::span<const std::byte> second);
    void append_statistics();
    [[nodiscard]] bool is_full() const noexcept;
    [[nodiscard]] int persist() const noexcept;
    void make_durable();
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
    std::uint64_t next_in_file_ = 0;   ///< as a scan would say: next_, unless a gap follows that is in no file yet
    bool gap_is_told_ = false;
    bool end_is_known_ = false;
    std::uint64_t first_ = 0;                            ///< segment of this file
    std::uint64_t durable_size_ = 0, durable_next_ = 0;  ///< of this file; of the session
    std::string damaged_;
    Totals totals_;            ///< of this file
    std::chrono::steady_clock::time_point begun_{};
};

}  // namespace ovsdr::drcollect
