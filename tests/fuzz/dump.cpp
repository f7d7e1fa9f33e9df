// Any text as a dump of megaflows: drcompile's reader says what is wrong with a line, or has a megaflow of which the
// compiler has an opinion.
#include <sstream>
#include <stdexcept>
#include <string>

#include "tests/fuzz/megaflow_check.hpp"
#include "tools/drcompile/input.hpp"
#include "tools/drcompile/nic.hpp"
#include "tools/drcompile/profiles.hpp"

using namespace ovsdr;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::istringstream text(std::string(reinterpret_cast<const char*>(data), size));
    drcompile::Input input({});
    input.read(text, "fuzz");
    FUZZ_CHECK(input.values().size() == input.megaflows().size());
    for (const auto& fault : input.faults()) FUZZ_CHECK(!fault.what.empty());
    for (const dr::StoredMegaflow& value : input.values()) fuzz::check_actions(value.restore());
    try {
        input.ports().assign();
    } catch (const std::runtime_error&) {
        return 0;   // more ports than there are vports
    }
    for (const auto& profile : drcompile::profiles) {
        const auto verdicts = drcompile::offload_all(input.values(), input.ports().map(), profile.caps);
        FUZZ_CHECK(verdicts.size() == input.values().size());
        for (const auto& verdict : verdicts) FUZZ_CHECK(verdict.plan || !verdict.obstacles.empty());
    }
    return 0;
}
