#include "tools/drcollect/capture_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "common/pcapng/blocks.hpp"

namespace ovsdr::drcollect {
namespace {

/// What a shell and a file system take without a second thought.
std::string file_name_of(const std::string& mirror) {
    std::string name = mirror;
    for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') c = '_';
    }
    return name;
}

std::optional<FileIdentity> identity_of(const std::string& path) noexcept {
    struct stat about {};
    if (stat(path.c_str(), &about) != 0) return std::nullopt;
    return FileIdentity{about.st_dev, about.st_ino, static_cast<std::uint64_t>(about.st_size),
                        about.st_mtim.tv_sec * 1'000'000'000 + about.st_mtim.tv_nsec};
}

template <typename T>
void add(std::vector<std::byte>& to, const T& block) {
    const std::size_t at = to.size(), size = pcapng::write({}, block);
    to.resize(at + size);
    pcapng::write(std::span(to).subspan(at), block);
}

}  // namespace

CaptureFile::CaptureFile(std::string folder, const FileLimits& limits, const mirror::Hello& hello,
                         const Resuming& resuming)
    : folder_(std::move(folder)),
      limits_(limits),
      session_(hello.session),
      application_tag_(hello.application_tag),
      geometry_(hello.geometry),
      interfaces_(hello.interfaces),
      stem_(fmt::format("{}-{:016x}", file_name_of(hello.mirror), hello.session)),
      next_(hello.oldest),
      durable_next_(hello.oldest) {
    number_ = highest_number();
    try {
        if (number_ > 0) resume(hello.oldest, resuming);
        if (descriptor_ < 0) begin_file();
    } catch (...) {
        if (descriptor_ >= 0) ::close(descriptor_);
        throw;
    }
}

/// Of the session's files. Earlier ones may have been taken away.
unsigned CaptureFile::highest_number() const {
    unsigned highest = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder_)) {
        const std::string name = file.path().filename().string();
        if (!name.starts_with(stem_ + "-")) continue;
        unsigned number = 0;
        const char* const digits = name.data() + stem_.size() + 1;
        const auto [end, code] = std::from_chars(digits, name.data() + name.size(), number);
        if (code == std::errc{} && std::string_view(end) == ".pcapng") highest = std::max(highest, number);
    }
    return highest;
}

CaptureFile::~CaptureFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

std::string CaptureFile::path_of(unsigned number) const {
    return fmt::format("{}/{}-{:05}.pcapng", folder_, stem_, number);
}

void CaptureFile::fail(int code) const { throw std::system_error(code, std::generic_category(), path_); }

/// What stands in path_. Of a file that this process has not written, pages that the kernel holds for clean are dropped
/// first: they may be what a disk refused.
Scan CaptureFile::look_at(const Resuming& resuming) const {
    const KnownEnd* const known = resuming.known;
    if (known != nullptr && known->path == path_ && identity_of(path_) == known->identity) return known->found;
    if (limits_.durability == mirror::Durability::synced) {
        const int descriptor = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
        const int code = descriptor >= 0 && fdatasync(descriptor) == 0 ? 0 : errno;
        if (code == 0) posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
        if (descriptor >= 0) ::close(descriptor);
        if (code != 0) fail(code);
    }
    return scan(path_, resuming.watch);
}

/// Such a file was never written to the end of its beginning, so that no segment has ever been in it. A small one whose
/// beginning a disk has changed is none of these.
bool CaptureFile::is_only_a_beginning(const Scan& found) const {
    return !found.beginning && found.size < head(0).size() && !may_have_segments(path_);
}

/// From the last file that tells a segment.
void CaptureFile::resume(std::uint64_t oldest, const Resuming& resuming) {
    for (unsigned number = number_; number > 0; --number) {
        path_ = path_of(number);
        if (!std::filesystem::exists(path_)) continue;
        const Scan found = look_at(resuming);
        if (is_only_a_beginning(found)) {
            std::filesystem::remove(path_);
            if (number == number_) --number_;
            continue;
        }
        if (found.damaged) {
            damaged_ = fmt::format("{}: segment {}, byte {}: {}", path_, found.findings.at(0).segment,
                                   found.findings.at(0).file_offset, found.findings.at(0).what);
        }
        const std::uint64_t next = found.beginning ? found.next : next_of(path_, session_, resuming.watch);
        if (next == 0 && !found.beginning) continue;   // it tells nothing
        if (found.beginning) check_conflict(*found.beginning, next, oldest);
        if (next < oldest) gap_ = oldest - next;
        next_ = durable_next_ = std::max(next, oldest);
        if (!found.damaged && number == number_ && begins_alike(found)) go_on(found);
        return;
    }
}

void CaptureFile::check_conflict(const Beginning& file, std::uint64_t next, std::uint64_t oldest) const {
    const mirror::Geometry& before = file.geometry;
    if (file.session != session_) throw SessionConflict(path_ + " has this session's name and is of another");
    if (before.segment_size == geometry_.segment_size && before.slots == geometry_.slots) return;
    if (oldest >= next) return;
    throw SessionConflict(fmt::format("{} has segments of this session up to {}, {} of {} bytes in a ring; the switch "
                                      "has segments from {} on, {} of {} bytes in a ring",
                                      path_, next, before.slots, before.segment_size, oldest, geometry_.slots,
                                      geometry_.segment_size));
}

/// In path_, without its unfinished end.
void CaptureFile::go_on(const Scan& found) {
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail(errno);
    if (found.good_end < found.size && ftruncate(descriptor_, static_cast<off_t>(found.good_end)) != 0) fail(errno);
    // What was found came from the disk: a sync that fails below takes none of it away.
    size_ = durable_size_ = found.good_end;
    first_ = found.beginning->first;
    next_in_file_ = found.next;
    totals_ = {found.frames, found.dropped, found.first_sealed, found.last_sealed};
    begun_ = std::chrono::steady_clock::now();
    // Whoever wrote it may have been killed before its last segments were durable, and they count as such now.
    make_durable();
    sync_folder();
    end_is_known_ = true;
}

/// With the same interfaces, application tag and geometry.
bool CaptureFile::begins_alike(const Scan& found) const {
    return found.head == head(found.beginning->first);
}

/// Of a file that begins with segment `first`.
std::vector<std::byte> CaptureFile::head(std::uint64_t first) const {
    std::vector<std::byte> head;
    add(head, pcapng::SectionHeader{.application = "ovs-dr drcollect"});
    for (const mirror::MirrorInterface& interface : interfaces_) {
        add(head, pcapng::InterfaceDescription{
                      .name = interface.name, .description = {}, .snap_length = interface.snap_length, .filter = {}});
    }
    const auto beginning = encode(Beginning{session_, first, application_tag_, geometry_});
    head.insert(head.end(), beginning.begin(), beginning.end());
    return head;
}

void CaptureFile::begin_file() {
    end_is_known_ = false;
    path_ = path_of(++number_);
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor_ < 0) {
        --number_;
        fail(errno);
    }
    size_ = 0;
    first_ = next_in_file_ = next_;
    totals_ = {};
    begun_ = std::chrono::steady_clock::now();
    try {
        write_all(head(next_), {});
        if (const int code = persist(); code != 0) fail(code);
        sync_folder();
        durable_size_ = size_;
        gap_is_told_ = end_is_known_ = true;
    } catch (...) {
        // No file rather than one without a beginning.
        ::close(descriptor_);
        descriptor_ = -1;
        unlink(path_.c_str());
        --number_;
        throw;
    }
}

/// Both, or nothing.
void CaptureFile::write_all(std::span<const std::byte> first, std::span<const std::byte> second) {
    iovec parts[] = {{const_cast<std::byte*>(first.data()), first.size()},
                     {const_cast<std::byte*>(second.data()), second.size()}};
    const std::size_t whole = first.size() + second.size();
    for (std::size_t done = 0; done < whole;) {
        const bool in_second = done >= first.size();
        const std::size_t into = in_second ? done - first.size() : done;
        iovec left[] = {parts[in_second ? 1 : 0], parts[1]};
        left[0].iov_base = static_cast<std::byte*>(left[0].iov_base) + into;
        left[0].iov_len -= into;
        const ssize_t size = pwritev(descriptor_, left, in_second ? 1 : 2, static_cast<off_t>(size_ + done));
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) {
            const int code = size < 0 ? errno : ENOSPC;
            // A torn end is passed over by whoever resumes; without it the file opens without a complaint now.
            [[maybe_unused]] const int cut = ftruncate(descriptor_, static_cast<off_t>(size_));
            fail(code);
        }
        done += static_cast<std::size_t>(size);
    }
    size_ += whole;
}

void CaptureFile::append(const mirror::SegmentHeader& header, std::span<const std::byte> data,
                         std::span<const std::byte> fields) {
    // Here too: many segments may come at once. close() does not say whether the disk has them.
    if (descriptor_ >= 0 && is_full()) {
        make_durable();
        close();
    }
    if (descriptor_ < 0) begin_file();
    write_all(data.first(header.used).subspan(mirror::header_size),
              encode_mark(data.first<mirror::header_size>(), fields));
    next_in_file_ = ++next_;
    totals_.frames += header.frames;
    totals_.dropped += header.dropped;
    if (totals_.first == 0) totals_.first = header.sealed;
    totals_.last = header.sealed;
}

/// 0, or an errno.
int CaptureFile::persist() const noexcept {
    return limits_.durability == mirror::Durability::synced && fdatasync(descriptor_) != 0 ? errno : 0;
}

void CaptureFile::make_durable() {
    const int code = persist();
    if (code == 0) {
        durable_size_ = size_;
        durable_next_ = next_;
        if (next_in_file_ == next_) gap_is_told_ = true;
        return;
    }
    end_is_known_ = false;
    // What is behind durable_size_ may be gone, and the next fdatasync() would not say so. Segments that cannot be cut
    // off either are in the next file too; verify says that they are there twice.
    [[maybe_unused]] const int cut = ftruncate(descriptor_, static_cast<off_t>(durable_size_));
    ::close(descriptor_);
    descriptor_ = -1;
    next_ = durable_next_;
    if (first_ == next_ && unlink(path_.c_str()) == 0) --number_;   // no segment is left in it
    fail(code);
}

void CaptureFile::sync_folder() const {
    if (limits_.durability != mirror::Durability::synced) return;
    const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int code = folder >= 0 && fsync(folder) == 0 ? 0 : errno;
    if (folder >= 0) ::close(folder);
    if (code != 0) fail(code);
}

void CaptureFile::sync() {
    if (descriptor_ < 0) return;
    make_durable();
    if (is_full()) close();   // the next segment begins the next file
}

bool CaptureFile::is_full() const noexcept {
    const bool large = limits_.size != 0 && size_ >= limits_.size;
    return large || (limits_.age.count() != 0 && std::chrono::steady_clock::now() - begun_ >= limits_.age);
}

/// All is told of the first interface: a segment counts for the mirror as a whole.
void CaptureFile::append_statistics() {
    std::vector<std::byte> block;
    add(block, pcapng::InterfaceStatistics{.interface = 0,
                                           .start = totals_.first,
                                           .end = totals_.last,
                                           .received = totals_.frames + totals_.dropped,
                                           .accepted = totals_.frames + totals_.dropped,
                                           .dropped = totals_.dropped,
                                           .delivered = totals_.frames});
    write_all(block, {});
}

void CaptureFile::close() {
    if (descriptor_ < 0) return;
    const std::uint64_t end = size_;
    try {
        append_statistics();
        if (persist() != 0) end_is_known_ = false;
    } catch (const std::system_error&) {
        // The segments are there; statistics that no disk takes are not worth them.
    }
    size_ = end;
    ::close(descriptor_);
    descriptor_ = -1;
}

std::optional<KnownEnd> CaptureFile::known_end() const {
    if (!end_is_known_ || durable_next_ != next_ || durable_size_ != size_) return std::nullopt;
    const auto identity = identity_of(path_);
    if (!identity) return std::nullopt;
    KnownEnd known{path_, *identity, {}};
    known.found.beginning = Beginning{session_, first_, application_tag_, geometry_};
    known.found.head = head(first_);
    known.found.size = identity->size;
    known.found.good_end = size_;
    known.found.next = next_in_file_;
    known.found.frames = totals_.frames;
    known.found.dropped = totals_.dropped;
    known.found.first_sealed = totals_.first;
    known.found.last_sealed = totals_.last;
    return known;
}

}  // namespace ovsdr::drcollect
