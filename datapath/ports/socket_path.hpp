// Unix sockets in the file system: taking a path over from a process that is gone, and giving it back.
//
// A socket file that nobody listens on, left by a process that was killed, is replaced. One that somebody serves is
// left alone. Whoever takes a path holds the lock of its folder meanwhile, so that two processes that start together
// cannot both win.
//
// Threads: any.
#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <string>

namespace ovsdr::soft {

/// sun_path has 108 bytes, one of them for the end.
inline constexpr std::size_t longest_socket_path = 107;

/// `path` is at most longest_socket_path bytes long.
[[nodiscard]] sockaddr_un socket_address(const std::string& path) noexcept;

/// Makes the path's folder if only its last part is missing, and holds its lock while it lives.
class FolderLock {
public:
    explicit FolderLock(const std::string& path);
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

    /// 0, or the errno: no such folder, say.
    [[nodiscard]] int error() const noexcept { return error_; }

private:
    int descriptor_ = -1;
    int error_ = 0;
};

/// Makes way for a socket of this type (SOCK_STREAM, SOCK_SEQPACKET): removes one that nobody listens on. Returns 0,
/// EADDRINUSE (somebody does), EEXIST (the file is no socket), or another errno.
[[nodiscard]] int free_socket_path(const std::string& path, int type) noexcept;

/// Which file a path names, so that at the end only one's own is removed.
class SocketFile {
public:
    SocketFile() = default;
    /// The file that is there now; 0 or an errno.
    [[nodiscard]] int remember(const std::string& path) noexcept;
    void remove() noexcept;

private:
    std::string path_;
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

}  // namespace ovsdr::soft
