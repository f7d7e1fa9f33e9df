#include <isa-l/crc.h>

#include "common/wide_registers.hpp"
#include "datapath/signature/crc.hpp"
#include "datapath/signature/crc64.hpp"

namespace ovsdr::soft::signature {

namespace {

const unsigned char* data_of(std::span<const std::byte> bytes) noexcept {
    return reinterpret_cast<const unsigned char*>(bytes.data());
}

std::uint64_t t10_dif(std::uint64_t crc, std::span<const std::byte> bytes) noexcept {
    crc = crc16_t10dif(static_cast<std::uint16_t>(crc), data_of(bytes), bytes.size());
    leave_wide_registers();
    return crc;
}

/// ISA-L's takes and returns the complement.
std::uint64_t crc32(std::uint64_t crc, std::span<const std::byte> bytes) noexcept {
    crc = ~crc32_gzip_refl(~static_cast<std::uint32_t>(crc), data_of(bytes), bytes.size());
    leave_wide_registers();
    return crc & 0xFFFFFFFF;
}

std::uint64_t crc32c(std::uint64_t crc, std::span<const std::byte> bytes) noexcept {
    // ISA-L's prototype lacks the const.
    crc = crc32_iscsi(const_cast<unsigned char*>(data_of(bytes)), static_cast<int>(bytes.size()),
                      static_cast<unsigned>(crc));
    leave_wide_registers();
    return crc;
}

}  // namespace

CrcFunction narrow_crc(GuardType type) noexcept {
    switch (type) {
        case GuardType::t10_crc:
            return t10_dif;
        case GuardType::crc32:
            return crc32;
        case GuardType::crc32c:
            return crc32c;
        case GuardType::crc64_xp10:
            return crc64_xp10;
        case GuardType::ip_checksum:
            break;
    }
    return nullptr;
}

}  // namespace ovsdr::soft::signature
