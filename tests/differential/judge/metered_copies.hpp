// Copies for software that a meter limits: OVN's log of an ACL, `controller(meter_id=N)`.
//
// The model. OVS has two forms: `sample(100%,actions(meter(N),userspace(...)))`, which is a SoftwarePart, and at a
// list's end `meter(N),userspace(...)`, which is a meter and a SoftwarePart behind it. Either meter drops copies, and
// no packet. A device meters them where that is the same (docs/software-branch.md); software does elsewhere.
//
// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/differential/judge/set_action.hpp"

namespace ovsdr::differential {

struct Action;
struct Megaflow;
struct SoftwarePart;

/// Whether the action is a meter, the one behind it is userspace, and nothing comes behind that in their list: what the
/// meter drops would have gone nowhere else.
[[nodiscard]] bool is_metered_end(const std::vector<Action>& actions, std::size_t at);

/// That the part's actions begin with, if it is the device that may meter by it: by number.
[[nodiscard]] std::optional<std::uint32_t> meter_in_front(const SoftwarePart& part);

/// How often packets or copies meet each meter, as far as a device may meter them; by number.
[[nodiscard]] std::map<std::uint32_t, unsigned> meter_uses(const std::vector<Action>& actions);

/// Puts some of them into some lists of actions. Meters and other copies are there already.
void add_metered_copies(Chance& chance, const Megaflow& megaflow, bool connectx_5, std::vector<Action>& actions);

/// What names.hpp calls the two forms.
inline constexpr const char *metered_end_name = "meter, userspace (of copies)",
                            *metered_sample_name = "sample (each), metered";
/// And what it says of the meters, and of where such copies stand.
void add_metered_copy_names(const Megaflow& megaflow, std::set<std::string>& names);

}  // namespace ovsdr::differential
