#include "common/capture/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace ovsdr::capture {
namespace {

constexpr std::size_t page = 4096;
constexpr std::uint64_t magic = 0x6f76736472636170;  // "ovsdrcap"
constexpr unsigned most_rings = 1024;
constexpr std::size_t largest_ring = std::size_t{1} << 30;
constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/// The first page.
struct Head {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t rings;
    std::uint64_t ring_size;
};

/// Each ring has a page for its control and its records behind.
std::size_t total_size(unsigned rings, std::size_t ring_size) noexcept { return page + rings * (page + ring_size); }

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

Memory::Memory(unsigned rings, std::size_t ring_size)
    : descriptor_(memfd_create("ovs-dr-capture", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
      rings_(rings),
      ring_size_(ring_size),
      size_(total_size(rings, ring_size)) {
    if (descriptor_ < 0) fail("memfd_create");
    try {
        // Without room this fails here; without it, a write to the mapping would be the end of the process.
        if (const int error = posix_fallocate(descriptor_, 0, static_cast<off_t>(size_))) {
            errno = error;
            fail("memory for the capture");
        }
        if (fcntl(descriptor_, F_ADD_SEALS, seals) != 0) fail("F_ADD_SEALS");
        map(true);
    } catch (...) {
        release();
        throw;
    }
    const Head head{.magic = magic, .version = layout_version, .rings = rings, .ring_size = ring_size};
    std::memcpy(begin_, &head, sizeof head);
}

Memory::Memory(int descriptor) : descriptor_(descriptor) {
    try {
        struct stat status {};
        if (fstat(descriptor_, &status) != 0) fail("the capture's memory");
        const int present = fcntl(descriptor_, F_GET_SEALS);
        Head head{};
        const bool whole = pread(descriptor_, &head, sizeof head, 0) == static_cast<ssize_t>(sizeof head);
        if (!whole || present < 0 || (present & F_SEAL_SHRINK) == 0 || head.magic != magic ||
            head.version != layout_version || head.rings > most_rings || head.ring_size < page ||
            head.ring_size > largest_ring || !std::has_single_bit(head.ring_size) ||
            static_cast<std::size_t>(status.st_size) != total_size(head.rings, head.ring_size)) {
            throw std::runtime_error("the capture's memory is not laid out as expected");
        }
        rings_ = head.rings;
        ring_size_ = head.ring_size;
        size_ = static_cast<std::size_t>(status.st_size);
        map(false);
    } catch (...) {
        release();
        throw;
    }
}

Memory::~Memory() { release(); }

void Memory::map(bool new_memory) {
    const int flags = MAP_SHARED | (new_memory ? MAP_POPULATE : 0);
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, descriptor_, 0);
    if (at == MAP_FAILED) fail("mmap");
    begin_ = static_cast<std::byte*>(at);
}

void Memory::release() noexcept {
    if (begin_ != nullptr) munmap(begin_, size_);
    if (descriptor_ >= 0) close(descriptor_);
}

RingControl& Memory::control(unsigned ring) const noexcept {
    return *reinterpret_cast<RingControl*>(begin_ + page + ring * (page + ring_size_));
}

std::span<std::byte> Memory::data(unsigned ring) const noexcept {
    return {begin_ + 2 * page + ring * (page + ring_size_), ring_size_};
}

}  // namespace ovsdr::capture
