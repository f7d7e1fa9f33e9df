#include "datapath/ports/identity.hpp"

#include <fstream>
#include <string>

namespace ovsdr::soft {
namespace {

// FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv/
std::uint64_t hash(std::string_view text, std::uint64_t seed = 0xcbf29ce484222325) noexcept {
    for (const char c : text) seed = (seed ^ static_cast<std::uint8_t>(c)) * 0x100000001b3;
    return seed;
}

}  // namespace

std::uint64_t derived_guid(std::string_view device) {
    std::string machine;
    std::ifstream file("/etc/machine-id");
    std::getline(file, machine);  // empty where there is none: then only the device's name counts
    return hash(device, hash(machine)) | 1;
}

MacAddress derived_mac(std::uint64_t guid, VportId vport) noexcept {
    const std::uint64_t mixed = (guid ^ (guid >> 29)) * 0x9e3779b97f4a7c15;
    return {0x02,
            static_cast<std::uint8_t>(mixed >> 56),
            static_cast<std::uint8_t>(mixed >> 48),
            static_cast<std::uint8_t>(mixed >> 40),
            static_cast<std::uint8_t>(vport.value >> 8),
            static_cast<std::uint8_t>(vport.value)};
}

}  // namespace ovsdr::soft
