// Ids that packets have when they come up: of the table in which they missed, or of what software is to do to a copy.
//
// An id is not given again while packets may be under way with it: find() still knows many that have gone.
//
// Threads: any. Held for a moment: whoever receives packets asks for ids.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>

#include "offload/dr/ids.hpp"
#include "offload/dr/install/landing.hpp"
#include "offload/dr/software.hpp"

namespace ovsdr::dr {

class LandingIds {
public:
    using Meaning = std::variant<TableKey, std::shared_ptr<const InstalledWork>>;

    [[nodiscard]] std::uint32_t give(Meaning meaning);
    /// Whose id no packet has.
    void take_back(std::uint32_t id) noexcept;
    /// Packets may be under way with it.
    void gone(std::uint32_t id) noexcept;
    /// What it stands for, or stood for.
    [[nodiscard]] std::optional<Meaning> find(std::uint32_t id) const;

private:
    static constexpr std::size_t remembered = 4096;
    static constexpr std::uint32_t first = Landing::entry_id + 1, last = 0xFFFFFF;

    [[nodiscard]] static std::uint32_t after(std::uint32_t id) noexcept;

    mutable std::mutex mutex_;
    std::map<std::uint32_t, Meaning> ids_;
    std::deque<std::uint32_t> gone_;
    std::uint32_t next_ = first;
};

}  // namespace ovsdr::dr
