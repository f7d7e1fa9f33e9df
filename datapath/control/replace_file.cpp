#include "datapath/control/replace_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

namespace ovsdr::soft {
namespace {

/// The new file, until it has its name.
class TemporaryFile {
public:
    explicit TemporaryFile(const std::string& beside)
        : path_(beside + ".XXXXXX"), descriptor_(mkostemp(path_.data(), O_CLOEXEC)) {}
    ~TemporaryFile() {
        if (descriptor_ < 0) return;
        close(descriptor_);
        if (!renamed_) unlink(path_.c_str());
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    [[nodiscard]] bool made() const noexcept { return descriptor_ >= 0; }

    [[nodiscard]] int fill(std::string_view content, const struct stat& like) {
        while (!content.empty()) {
            const ssize_t size = write(descriptor_, content.data(), content.size());
            if (size < 0 && errno == EINTR) continue;
            if (size < 0) return errno;
            content.remove_prefix(static_cast<std::size_t>(size));
        }
        // A change of owner takes set-user-ID bits away: the mode last.
        const bool done = fchown(descriptor_, like.st_uid, like.st_gid) == 0 &&
                          fchmod(descriptor_, like.st_mode & 07777) == 0 && fsync(descriptor_) == 0;
        return done ? 0 : errno;
    }

    [[nodiscard]] int rename_to(const std::string& path) {
        if (rename(path_.c_str(), path.c_str()) != 0) return errno;
        renamed_ = true;
        return 0;
    }

private:
    std::string path_;
    int descriptor_;
    bool renamed_ = false;
};

// The new name survives a crash once its folder is written. Where a file system cannot do that, nothing is lost but
// time.
void sync_folder(const std::string& path) noexcept {
    const auto slash = path.rfind('/');
    const int folder = open(path.substr(0, slash + 1).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    (void)fsync(folder);
    close(folder);
}

}  // namespace

int replace_file(const std::string& path, std::string_view content) {
    const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(path.c_str(), nullptr), &std::free);
    if (!resolved) return errno;
    const std::string target = resolved.get();
    struct stat old {};
    if (stat(target.c_str(), &old) != 0 || access(target.c_str(), W_OK) != 0) return errno;
    TemporaryFile file(target);
    if (!file.made()) return errno;
    if (const int error = file.fill(content, old)) return error;
    if (const int error = file.rename_to(target)) return error;
    sync_folder(target);
    return 0;
}

}  // namespace ovsdr::soft
