#include "datapath/ports/socket_path.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace ovsdr::soft {
namespace {

bool somebody_listens(const std::string& path, int type) noexcept {
    const int probe = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0) return false;
    const sockaddr_un address = socket_address(path);
    const int result = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    // EAGAIN: there is one, and its queue is full. EPROTOTYPE: there is one, of another type.
    const bool listens = result == 0 || errno == EAGAIN || errno == EPROTOTYPE;
    close(probe);
    return listens;
}

}  // namespace

sockaddr_un socket_address(const std::string& path) noexcept {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, longest_socket_path);
    return address;
}

FolderLock::FolderLock(const std::string& path) {
    const auto slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
    if (mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST) {
        descriptor_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (descriptor_ < 0) {
        error_ = errno;
    } else {
        (void)flock(descriptor_, LOCK_EX);
    }
}

FolderLock::~FolderLock() {
    if (descriptor_ >= 0) close(descriptor_);
}

int free_socket_path(const std::string& path, int type) noexcept {
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) return errno == ENOENT ? 0 : errno;
    if (!S_ISSOCK(status.st_mode)) return EEXIST;
    if (somebody_listens(path, type)) return EADDRINUSE;
    return unlink(path.c_str()) == 0 || errno == ENOENT ? 0 : errno;
}

int SocketFile::remember(const std::string& path) noexcept {
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) return errno;
    path_ = path;
    device_ = status.st_dev;
    inode_ = status.st_ino;
    return 0;
}

void SocketFile::remove() noexcept {
    struct stat status {};
    if (path_.empty() || lstat(path_.c_str(), &status) != 0) return;
    if (status.st_dev == device_ && status.st_ino == inode_) (void)unlink(path_.c_str());
    path_.clear();
}

}  // namespace ovsdr::soft
