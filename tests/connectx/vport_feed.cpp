#include "tests/connectx/vport_feed.hpp"

#include <cstdlib>
#include <fstream>
#include <string>

namespace ovsdr::connectx {

std::optional<VportSettings> fed_vport(std::uint16_t number) {
    const char* name = std::getenv("OVSDR_CONNECTX_VPORTS");
    if (name == nullptr) return std::nullopt;
    std::ifstream file(name);
    std::uint16_t read = 0;
    std::string state;
    VportSettings settings;
    while (file >> std::dec >> read >> state >> settings.mtu >> std::hex >> settings.mac) {
        settings.up = state == "up";
        if (read == number) return settings;
    }
    return std::nullopt;
}

}   // namespace ovsdr::connectx
