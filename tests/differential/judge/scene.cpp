#include "tests/differential/judge/scene.hpp"

#include <cerrno>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <variant>

namespace ovsdr::differential::scene {

using Clock = std::chrono::steady_clock;

bool is_in_nic(dr::Eswitch& eswitch, const dr::Ufid& ufid) {
    const auto status = eswitch.status(ufid);
    return status && status->offloaded;
}

Result<void> put(dr::Eswitch& eswitch, const dr::Ufid& ufid, const ovsdr_megaflow& megaflow) {
    dr::PutOutcome outcome = eswitch.put(ufid, megaflow);
    if (auto* const error = std::get_if<Error>(&outcome)) return tl::unexpected(std::move(*error));
    if (const auto* reject = std::get_if<dr::Reject>(&outcome)) {
        return tl::unexpected(Error{EOPNOTSUPP, text_of(*reject)});
    }
    return {};
}

void expect_refused(dr::Eswitch& eswitch, const char* which) {
    if (is_in_nic(eswitch, second)) throw std::runtime_error(std::string("a megaflow is in the NIC ") + which);
}

void expect_taken(dr::Eswitch& eswitch, const char* which) {
    const auto deadline = Clock::now() + patience;
    while (!is_in_nic(eswitch, second)) {
        if (Clock::now() > deadline) {
            const auto report = eswitch.explain(second);
            throw std::runtime_error(std::string("a megaflow is not in the NIC ") + which + ": " +
                                     (report ? report->text : "it is not known"));
        }
        std::this_thread::sleep_for(glance);
    }
}

}  // namespace ovsdr::differential::scene
