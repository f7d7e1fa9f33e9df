// Unix sockets in the file system: taking a path over from a process that is gone, and giving it back.
//
// A socket file that nobody listens on, left by a process that was killed, is replaced. One that somebody serves is
// left alone. Whoever takes a path holds its lock meanwhile, so that two processes that start together
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

/// Makes the path's folder if only its last part is missing, and holds the path's lock while it lives.
///
/// The lock is on a file of its own, PATH.lock, which only its owner may open: a folder can be locked
/// by whoever can read it, and would hold us up for as long as he likes. The file goes with the lock.
class SocketLock {
public:
    /// Waits for somebody else's change to end, but not for ever: see error().
    explicit SocketLock(const std::string& path);
    ~SocketLock();
    SocketLock(const SocketLock&) = delete;
    SocketLock& operator=(const SocketLock&) = delete;

    /// 0; ETIMEDOUT when another process of ours holds the lock and does not give it back; ENOLCK when the lock's file
    /// is somebody else's, or open to others; or another errno: no such folder, say.
    [[nodiscard]] int error() const noexcept { return error_; }

private:
    [[nodiscard]] int take() noexcept;
    [[nodiscard]] int try_once(bool& again) noexcept;

    std::string path_;
    int descriptor_ = -1;
    int error_ = 0;
};

/// What an errno of SocketLock or free_socket_path() means for `path`, in words.
[[nodiscard]] std::string socket_problem(const std::string& path, int error);

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
