// Calls of the C library that a test makes fail or wait. To be included by one source of a program: what is defined
// here is called in the library's place.
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace ovsdr::drcollect::test {

/// So many of the next calls of fdatasync() fail. As on Linux, what was written since the last good one is gone (zeros
/// stand there), and nothing says so again.
inline std::atomic<int> failing_syncs{0};
/// Those that succeed before.
inline std::atomic<int> good_syncs_first{0};

/// Of each call: a slow disk.
inline std::atomic<unsigned> sync_microseconds{0};
/// The next call does not end until it is let go.
inline std::atomic<bool> next_sync_is_held{false}, sync_is_held{false};

/// Bytes of whatever file is read by pread(): the disk cannot.
inline std::atomic<off_t> unreadable_begin{0}, unreadable_end{0};

/// Of each pread(): a slow disk. What all of them have read.
inline std::atomic<unsigned> read_microseconds{0};
inline std::atomic<std::size_t> read_size{0};

/// While it is true, looking a name up does not end.
inline std::atomic<bool> resolver_hangs{false};

inline std::mutex synced_mutex;
inline std::map<ino_t, off_t> synced_sizes;

}  // namespace ovsdr::drcollect::test

extern "C" int fdatasync(int descriptor) {
    using namespace ovsdr::drcollect::test;
    if (sync_microseconds > 0) usleep(sync_microseconds);
    if (next_sync_is_held.exchange(false)) {
        sync_is_held = true;
        while (sync_is_held) usleep(1000);
    }
    const std::lock_guard guard(synced_mutex);
    struct stat about {};
    if (fstat(descriptor, &about) != 0) return -1;
    off_t& synced = synced_sizes[about.st_ino];
    if (synced > about.st_size) synced = about.st_size;
    if (failing_syncs > 0 && good_syncs_first > 0) {
        --good_syncs_first;
    } else if (failing_syncs > 0) {
        --failing_syncs;
        const std::vector<char> zeros(static_cast<std::size_t>(about.st_size - synced));
        [[maybe_unused]] const ssize_t size = pwrite(descriptor, zeros.data(), zeros.size(), synced);
        errno = EIO;
        return -1;
    }
    synced = about.st_size;
    return static_cast<int>(syscall(SYS_fdatasync, descriptor));
}

extern "C" ssize_t pread(int descriptor, void* to, std::size_t size, off_t at) {
    using namespace ovsdr::drcollect::test;
    if (read_microseconds > 0) usleep(read_microseconds);
    if (unreadable_end > at && unreadable_begin < at + static_cast<off_t>(size)) {
        if (unreadable_begin <= at) {
            errno = EIO;
            return -1;
        }
        size = static_cast<std::size_t>(unreadable_begin - at);
    }
    const long got = syscall(SYS_pread64, descriptor, to, size, at);
    if (got > 0) read_size += static_cast<std::size_t>(got);
    return got;
}

extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* wanted, addrinfo** found) {
    using namespace ovsdr::drcollect::test;
    using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto original = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
    const bool numeric = wanted != nullptr && (wanted->ai_flags & AI_NUMERICHOST) != 0;
    if (numeric || std::string(host).find(".example") == std::string::npos) {
        return original(host, service, wanted, found);
    }
    while (resolver_hangs) usleep(1000);
    return EAI_NONAME;
}
