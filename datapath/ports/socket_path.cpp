#include "datapath/ports/socket_path.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace ovsdr::soft {
namespace {

// Others hold a lock for a few system calls.
constexpr auto longest_wait = std::chrono::seconds(2);

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

SocketLock::SocketLock(const std::string& path) : path_(path + ".lock") {
    const auto slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
    error_ = mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST ? take() : errno;
}

SocketLock::~SocketLock() {
    if (descriptor_ < 0) return;
    // Whoever waits for this file sees that it is gone, and makes another.
    (void)unlink(path_.c_str());
    close(descriptor_);
}

int SocketLock::take() noexcept {
    const auto end = std::chrono::steady_clock::now() + longest_wait;
    for (;;) {
        bool again = false;
        const int result = try_once(again);
        if (!again) return result;
        if (std::chrono::steady_clock::now() > end) return ETIMEDOUT;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

// `again`: somebody holds the lock, or has just given it back.
int SocketLock::try_once(bool& again) noexcept {
    const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (file < 0) return errno == ELOOP || errno == EACCES ? ENOLCK : errno;
    struct stat locked {}, there {};
    int result = 0;
    if (fstat(file, &locked) != 0) {
        result = errno;
    } else if (!S_ISREG(locked.st_mode) || locked.st_uid != geteuid() || (locked.st_mode & 077) != 0) {
        result = ENOLCK;
    } else if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        again = errno == EWOULDBLOCK || errno == EINTR;
        result = errno;
    } else {
        // Its last owner may have removed the file between our open() and our lock.
        again = lstat(path_.c_str(), &there) != 0 || there.st_ino != locked.st_ino || there.st_dev != locked.st_dev;
    }
    if (result != 0 || again) {
        close(file);
    } else {
        descriptor_ = file;
    }
    return result;
}

std::string socket_problem(const std::string& path, int error) {
    switch (error) {
        case EADDRINUSE: return path + ": another port or process listens there";
        case EEXIST: return path + ": the file that is there is no socket";
        case ETIMEDOUT: return path + ".lock: another process holds this lock and does not give it back";
        case ENOLCK: return path + ".lock: the file belongs to somebody else or is open to others; remove it";
        default: return path + ": " + std::strerror(error);
    }
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
