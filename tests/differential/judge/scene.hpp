// What scenes have in common: the names of their megaflows and tables, which are no scenario's, and what is to become
// of `second`.
//
// Threads: one. Errors: std::runtime_error.
#pragma once

#include <chrono>
#include <cstdint>

#include "offload/dr/eswitch.hpp"
#include "offload/dr/result.hpp"

namespace ovsdr::differential::scene {

using namespace std::chrono_literals;

inline constexpr dr::Ufid root{0x77616974, 1}, first{0x77616974, 2}, second{0x77616974, 3}, third{0x77616974, 4},
                          fourth{0x77616974, 5};
/// recirc_ids
inline constexpr std::uint32_t here = 0xFFFFF0, there = 0xFFFFF1, near = 0xFFFFF2, far = here | 1U << 31;
inline constexpr std::chrono::milliseconds patience = 10s, glance = 4ms;

[[nodiscard]] bool is_in_nic(dr::Eswitch& eswitch, const dr::Ufid& ufid);
/// An error, too, where it is refused.
[[nodiscard]] Result<void> put(dr::Eswitch& eswitch, const dr::Ufid& ufid, const ovsdr_megaflow& megaflow);
/// It may be refused, or wait. `which`: goes on "a megaflow is in the NIC".
void expect_refused(dr::Eswitch& eswitch, const char* which);
/// Sooner or later. `which`: goes on "a megaflow is not in the NIC".
void expect_taken(dr::Eswitch& eswitch, const char* which);

}  // namespace ovsdr::differential::scene
