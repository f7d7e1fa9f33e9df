#include "tests/connectx/icm.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <iterator>
#include <string>

#include "tests/connectx/address_plan.hpp"
#include "tests/connectx/refused.hpp"

namespace ovsdr::connectx {
namespace {

constexpr std::uint64_t page_size = 4096;
constexpr std::array bases{address_plan::steering, address_plan::modify_header, address_plan::modify_pattern};

}   // namespace

Icm::~Icm() {
    for (const auto& [address, region] : regions_) munmap(region.memory, region.size);
}

std::uint64_t Icm::allocate(IcmType type, std::uint64_t size) {
    const auto index = static_cast<std::size_t>(type) - 1;
    if (index >= bases.size())
        throw NotEmulated{"device memory of type " + std::to_string(static_cast<unsigned>(type))};
    const std::uint64_t end = bases[index] + (1ULL << log_sizes_[index]);
    if (size == 0) throw Refused{EINVAL, "no byte of device memory"};
    if (size > end - bases[index]) throw Refused{ENOMEM, "more device memory than there is"};
    const std::uint64_t rounded = std::max(page_size, std::bit_ceil(size));
    std::uint64_t address = bases[index];
    for (auto region = regions_.lower_bound(address); region != regions_.end() && region->first < address + rounded;
         ++region) {
        address = (region->first + region->second.size + rounded - 1) / rounded * rounded;
    }
    if (address + rounded > end) throw Refused{ENOMEM, "no device memory is left"};
    void* memory = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw Refused{ENOMEM, "no memory for device memory"};
    regions_.emplace(address, Region{rounded, static_cast<std::uint8_t*>(memory)});
    return address;
}

void Icm::release(std::uint64_t address) {
    const auto region = regions_.find(address);
    if (region == regions_.end()) return;
    munmap(region->second.memory, region->second.size);
    regions_.erase(region);
}

std::uint8_t* Icm::at(std::uint64_t address, std::uint64_t size) const {
    const auto after = regions_.upper_bound(address);
    if (after == regions_.begin()) return nullptr;
    const auto& [base, region] = *std::prev(after);
    if (address - base > region.size || size > region.size - (address - base)) return nullptr;
    return region.memory + (address - base);
}

std::uint64_t Icm::bytes_alive() const {
    std::uint64_t sum = 0;
    for (const auto& [address, region] : regions_) sum += region.size;
    return sum;
}

}   // namespace ovsdr::connectx
