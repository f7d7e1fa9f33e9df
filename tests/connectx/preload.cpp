// The C library's functions through which libibverbs and libmlx5 reach the kernel, interposed for one device.
//
// Taken over: the device's path and the files opened of it; mappings of those files (doorbell pages), and their end;
// sockets of RDMA netlink, which would show the host's own devices (libibverbs then reads sysfs, where SYSFS_PATH
// says). All else goes to the C library unchanged. Interposed functions may run before this library's constructors, and
// on any thread.

// Both names of each function are interposed here; with this the headers would make them one.
#undef _FILE_OFFSET_BITS
#include "tests/connectx/preload.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/netlink.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "tests/connectx/doorbell.hpp"
#include "tests/connectx/open_file.hpp"

#define INTERPOSED extern "C" __attribute__((visibility("default")))

namespace ovsdr::connectx {
namespace {

constexpr const char* device_path = "/dev/infiniband/uverbs0";
constexpr unsigned device_major = 231, device_minor = 192;   // what the launcher's sysfs says too

/// What a descriptor of this process is to us: asked without a lock in every close() and ioctl().
enum class Use : std::uint8_t { none, device, events };
constinit std::array<std::atomic<Use>, 1U << 16> uses{};

Use use_of(int fd) {
    return fd >= 0 && static_cast<std::size_t>(fd) < uses.size() ? uses[static_cast<std::size_t>(fd)].load()
                                                                 : Use::none;
}
bool set_use(int fd, Use use) {
    if (fd < 0 || static_cast<std::size_t>(fd) >= uses.size()) return false;
    uses[static_cast<std::size_t>(fd)] = use;
    return true;
}

/// The C library's function of this name.
template <class F>
F* next(const char* name) {
    return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name) static auto* const real = next<decltype(name)>(#name)

bool is_device(const char* path) {
    return path != nullptr && std::strcmp(path, device_path) == 0;
}

template <class S>
int describe(S* status) {
    std::memset(status, 0, sizeof *status);
    status->st_mode = S_IFCHR | 0666;
    status->st_rdev = makedev(device_major, device_minor);
    return 0;
}

int open_device() {
    const int fd = memfd_create("uverbs0", MFD_CLOEXEC);
    if (fd < 0) return -1;
    Nic& nic = the_nic();
    const std::lock_guard lock(nic.mutex);
    nic.log.called("OPEN");
    if (!set_use(fd, Use::device)) {
        next<int(int)>("close")(fd);
        errno = EMFILE;
        return -1;
    }
    nic.files[fd] = std::make_unique<OpenFile>(nic);   // one of this number was closed behind our back
    return fd;
}

int device_ioctl(int fd, unsigned long request, void* argument) {
    if (request != RDMA_VERBS_IOCTL) {
        errno = ENOTTY;
        return -1;
    }
    Nic& nic = the_nic();
    const std::lock_guard lock(nic.mutex);
    const auto file = nic.files.find(fd);
    const int error =
        file == nic.files.end() ? EBADF : file->second->ioctl(*static_cast<ib_uverbs_ioctl_hdr*>(argument));
    if (error == 0) return 0;
    errno = error;
    return -1;
}

void on_ring(const Ring& ring) {
    constexpr std::size_t completion_queue_doorbell = 0x20;   // MLX5_CQ_DOORBELL
    constexpr std::uint32_t number_mask = 0xFFFFFF, solicited_only = 1U << 24;   // MLX5_CQ_DB_REQ_NOT_SOL
    Nic& nic = the_nic();
    const std::lock_guard lock(nic.mutex);
    if (ring.offset == completion_queue_doorbell) {
        // High word: sequence, command, consumer; low word: the queue's number.
        const auto high = static_cast<std::uint32_t>(ring.value >> 32);
        return nic.ring_completion_queue(static_cast<std::uint32_t>(ring.value) & number_mask, high & number_mask,
                                         (high & solicited_only) != 0);
    }
    if (ring.width != sizeof(std::uint64_t))
        return nic.log.not_emulated("doorbell", fmt::format("{} bytes wide", ring.width));
    // The first eight bytes of the last request's control segment; the second word has the queue pair's number.
    nic.ring_queue_pair(static_cast<std::uint32_t>(ring.value) >> 8);
}

/// Of what a device can be asked to map there are the doorbell pages of UAR_OBJ_ALLOC.
bool is_doorbell_page(Nic& nic, int fd, std::size_t size, off64_t offset) {
    constexpr std::size_t page_size = 4096;
    bool found = false;
    const auto file = nic.files.find(fd);
    if (file == nic.files.end()) return false;
    file->second->objects.for_each<DoorbellPage>([&](std::uint32_t, const DoorbellPage& page) {
        found |= static_cast<off64_t>(page.page * page_size) == offset;
    });
    return found && size == page_size;
}

void* map_page(int fd, std::size_t size, off64_t offset) {
    Nic& nic = the_nic();
    {
        const std::lock_guard lock(nic.mutex);
        nic.log.called("MMAP");
        if (!is_doorbell_page(nic, fd, size, offset)) {
            nic.log.not_emulated("MMAP", fmt::format("{} bytes at {:#x}", size, offset));
            errno = EINVAL;
            return MAP_FAILED;
        }
    }
    void* page = map_doorbell_page(on_ring);
    if (page != nullptr) return page;
    errno = ENOMEM;
    return MAP_FAILED;
}

/// The process closes one of its files: of the device, or of events.
void forget(int fd) {
    const Use use = use_of(fd);
    if (use == Use::none) return;
    Nic& nic = the_nic();
    const std::lock_guard lock(nic.mutex);
    set_use(fd, Use::none);
    use == Use::device ? nic.files.erase(fd) : nic.event_files.erase(fd);
}

void print_summary() {
    const char* wanted = std::getenv("OVSDR_CONNECTX_SUMMARY");
    Nic& nic = the_nic();
    const std::lock_guard lock(nic.mutex);
    for (const auto& [fd, file] : nic.files) {
        for (const auto& [handle, object] : file->objects.all())
            nic.log.line("alive at the end: " + label_of(nic, object.body));
    }
    nic.log.line(fmt::format("end: {} work requests, {} bytes to ICM, {} bytes of ICM alive", nic.figures.requests,
                             nic.figures.icm_bytes, nic.icm.bytes_alive()));
    if (wanted == nullptr || std::strcmp(wanted, "1") != 0) return;
    for (const auto& [name, count] : nic.log.calls()) fmt::print(stderr, "connectx: {:8} {}\n", count, name);
    for (const auto& [name, count] : nic.left_behind)
        fmt::print(stderr, "connectx: {:8} {} left behind\n", count, name);
    fmt::print(stderr, "connectx: {} bytes of ICM alive\n", nic.icm.bytes_alive());
}

Nic* make_nic() try {
    auto nic = std::make_unique<Nic>(profile_of_environment());
    nic->on_event_file = [](int fd) { return set_use(fd, Use::events); };
    if (const char* faults = std::getenv("OVSDR_CONNECTX_FAIL")) nic->faults.add_list(faults);
    for (const std::string& name : nic->faults.names()) {
        if (!is_call_name(name)) throw std::invalid_argument("OVSDR_CONNECTX_FAIL: no call is named " + name);
    }
    std::atexit(print_summary);
    return nic.release();
} catch (const std::exception& error) {
    fmt::print(stderr, "connectx: {}\n", error.what());
    std::exit(EXIT_FAILURE);
}

}   // namespace

Nic& the_nic() {
    static Nic* const nic = make_nic();
    return *nic;
}

}   // namespace ovsdr::connectx

using namespace ovsdr::connectx;

INTERPOSED int stat(const char* path, struct stat* status) noexcept {
    static auto* const real = next<int(const char*, struct stat*)>("stat");
    return is_device(path) ? describe(status) : real(path, status);
}

INTERPOSED int stat64(const char* path, struct stat64* status) noexcept {
    static auto* const real = next<int(const char*, struct stat64*)>("stat64");
    return is_device(path) ? describe(status) : real(path, status);
}

INTERPOSED int fstat(int fd, struct stat* status) noexcept {
    static auto* const real = next<int(int, struct stat*)>("fstat");
    return use_of(fd) == Use::device ? describe(status) : real(fd, status);
}

INTERPOSED int fstat64(int fd, struct stat64* status) noexcept {
    static auto* const real = next<int(int, struct stat64*)>("fstat64");
    return use_of(fd) == Use::device ? describe(status) : real(fd, status);
}

INTERPOSED int open(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    NEXT(open);
    return is_device(path) ? open_device() : real(path, flags, mode);
}

INTERPOSED int open64(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    NEXT(open64);
    return is_device(path) ? open_device() : real(path, flags, mode);
}

INTERPOSED int close(int fd) {
    NEXT(close);
    forget(fd);
    return real(fd);
}

INTERPOSED int ioctl(int fd, unsigned long request, ...) noexcept {
    va_list arguments;
    va_start(arguments, request);
    void* argument = va_arg(arguments, void*);
    va_end(arguments);
    static auto* const real = next<int(int, unsigned long, ...)>("ioctl");
    return use_of(fd) == Use::device ? device_ioctl(fd, request, argument) : real(fd, request, argument);
}

INTERPOSED void* mmap(void* at, std::size_t size, int protection, int flags, int fd, off_t offset) noexcept {
    static auto* const real = next<void*(void*, std::size_t, int, int, int, off_t)>("mmap");
    return use_of(fd) == Use::device ? map_page(fd, size, offset) : real(at, size, protection, flags, fd, offset);
}

INTERPOSED void* mmap64(void* at, std::size_t size, int protection, int flags, int fd, off64_t offset) noexcept {
    static auto* const real = next<void*(void*, std::size_t, int, int, int, off64_t)>("mmap64");
    return use_of(fd) == Use::device ? map_page(fd, size, offset) : real(at, size, protection, flags, fd, offset);
}

INTERPOSED int munmap(void* at, std::size_t size) noexcept {
    static auto* const real = next<int(void*, std::size_t)>("munmap");
    return unmap_doorbell_page(at) ? 0 : real(at, size);
}

INTERPOSED int socket(int domain, int type, int protocol) noexcept {
    static auto* const real = next<int(int, int, int)>("socket");
    if (domain == AF_NETLINK && protocol == NETLINK_RDMA) {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    return real(domain, type, protocol);
}
