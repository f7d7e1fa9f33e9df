#include "tools/drcollect/file_window.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace ovsdr::drcollect {
namespace {

constexpr std::size_t window_size = 1 << 20;
// What Linux reads at once, and so what one bad sector costs.
constexpr std::uint64_t page_size = 4096;

/// The disk cannot read it, now and later. Another error (of a network, say) may go.
bool is_fault_of_disk(int code) noexcept {
    return code == EIO || code == ENODATA || code == EBADMSG || code == EUCLEAN;
}

}  // namespace

FileWindow::FileWindow(const std::string& path, ReadWatch watch)
    : path_(path), watch_(std::move(watch)), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat about {};
    const int code = descriptor_ >= 0 && fstat(descriptor_, &about) == 0 ? 0 : errno;
    if (code != 0) {
        if (descriptor_ >= 0) close(descriptor_);
        throw std::system_error(code, std::generic_category(), path_);
    }
    size_ = static_cast<std::uint64_t>(about.st_size);
    posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

FileWindow::~FileWindow() {
    if (descriptor_ >= 0) close(descriptor_);
}

bool FileWindow::is_lost(std::uint64_t from, std::uint64_t size) const {
    const auto behind = lost_.lower_bound(from + size);
    return behind != lost_.begin() && std::prev(behind)->second > from;
}

void FileWindow::lose(std::uint64_t from, std::uint64_t end) {
    if (const auto behind = lost_.upper_bound(from); behind != lost_.begin()) {
        auto& end_before = std::prev(behind)->second;
        if (end_before >= from) {
            end_before = std::max(end_before, end);
            return;
        }
    }
    lost_[from] = end;
}

void FileWindow::load(std::uint64_t from, std::size_t size) {
    // From a page's beginning, so that each page that is lost is told once.
    size += from % page_size;
    from -= from % page_size;
    buffer_.resize(std::min<std::uint64_t>(std::max(size, window_size), size_ - from));
    window_ = {};
    for (std::size_t done = 0; done < buffer_.size();) {
        const std::uint64_t at = from + done;
        const ssize_t got = pread(descriptor_, buffer_.data() + done, buffer_.size() - done, static_cast<off_t>(at));
        if (got > 0) {
            done += static_cast<std::size_t>(got);
            continue;
        }
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && !is_fault_of_disk(errno)) throw std::system_error(errno, std::generic_category(), path_);
        // 0: somebody has made the file shorter.
        const std::uint64_t end =
            std::min(got == 0 ? from + buffer_.size() : (at / page_size + 1) * page_size, from + buffer_.size());
        std::fill_n(buffer_.begin() + static_cast<std::ptrdiff_t>(done), end - at, std::byte{});
        lose(at, end);
        done = end - from;
    }
    begin_ = from;
    window_ = buffer_;
    read_ = std::max(read_, from + buffer_.size());
    if (watch_) watch_(read_, size_);
}

}  // namespace ovsdr::drcollect
