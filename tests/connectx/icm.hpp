// Device memory: what software allocates through the kernel and writes by RDMA: steering entries, lists and patterns of
// modify-header actions.
//
// Each allocation is a mapping of its own, so that an address behind its end is found out. Its bytes begin as zero; a
// real device leaves what was there. Threads: the caller's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace ovsdr::connectx {

/// The kernel's numbers (MLX5_IB_UAPI_DM_TYPE_*).
enum class IcmType : std::uint8_t { steering = 1, modify_header = 2, modify_pattern = 3 };

class Icm {
public:
    /// log2 of the bytes that there are of each type.
    struct Sizes {
        unsigned steering, modify_header, modify_pattern;
    };
    explicit Icm(Sizes sizes) : log_sizes_{sizes.steering, sizes.modify_header, sizes.modify_pattern} {}
    ~Icm();
    Icm(const Icm&) = delete;
    Icm& operator=(const Icm&) = delete;

    /// The address of `size` bytes, rounded up to a power of two that is a page at least, and aligned to that. Throws
    /// Refused.
    [[nodiscard]] std::uint64_t allocate(IcmType type, std::uint64_t size);
    void release(std::uint64_t address);

    /// Null unless all of it is allocated, in one piece.
    [[nodiscard]] std::uint8_t* at(std::uint64_t address, std::uint64_t size) const;
    [[nodiscard]] std::uint64_t bytes_alive() const;

private:
    struct Region {
        std::uint64_t size;
        std::uint8_t* memory;
    };
    std::array<unsigned, 3> log_sizes_;
    std::map<std::uint64_t, Region> regions_;   ///< by address
};

}   // namespace ovsdr::connectx
