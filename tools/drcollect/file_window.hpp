// A file that is read piece by piece, and told apart: what it has, and what its disk cannot read any more.
//
// Model. One window of the file is in memory, a MiB or what was asked for. A sector that cannot be read counts as zeros
// and is remembered: whoever computes a CRC over it finds out, and is_lost() says why. pread() and no mapping: a sector
// that cannot be read ends a process that has it mapped (SIGBUS), and so does a file that somebody has made shorter.
//
// Threads: one at a time. Errors: std::system_error, with the file's name; none for what the disk cannot read (EIO and
// what file systems say of a wrong checksum).
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace ovsdr::drcollect {

/// Told how many bytes of a file have been read, of how many: every MiB or so. What it throws ends the reading.
using ReadWatch = std::function<void(std::uint64_t read, std::uint64_t size)>;

class FileWindow {
public:
    FileWindow(const std::string& path, ReadWatch watch);
    /// Of a file that is in memory.
    explicit FileWindow(std::span<const std::byte> whole) noexcept : window_(whole), size_(whole.size()) {}
    ~FileWindow();
    FileWindow(const FileWindow&) = delete;
    FileWindow& operator=(const FileWindow&) = delete;

    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    /// All of them in the file. They are there until the next call.
    [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t from, std::size_t size) {
        if (from < begin_ || from + size > begin_ + window_.size()) load(from, size);
        return window_.subspan(from - begin_, size);
    }
    [[nodiscard]] std::uint32_t word(std::uint64_t at) {
        std::uint32_t value;
        std::memcpy(&value, bytes(at, sizeof value).data(), sizeof value);
        return value;
    }

    /// Some of these, which were read, could not be.
    [[nodiscard]] bool is_lost(std::uint64_t from, std::uint64_t size) const;
    /// Where each row of bytes begins that could not be read, and where it ends.
    [[nodiscard]] const std::map<std::uint64_t, std::uint64_t>& lost() const noexcept { return lost_; }

private:
    void load(std::uint64_t from, std::size_t size);
    void lose(std::uint64_t from, std::uint64_t end);

    const std::string path_;
    const ReadWatch watch_;
    int descriptor_ = -1;
    std::vector<std::byte> buffer_;
    std::span<const std::byte> window_;
    std::uint64_t begin_ = 0;   ///< of the window, in the file
    std::uint64_t size_ = 0, read_ = 0;
    std::map<std::uint64_t, std::uint64_t> lost_;
};

}  // namespace ovsdr::drcollect
