// Faults to come: the Nth call of a name fails, or some from the Nth on.
//
// Out of OVSDR_CONNECTX_FAIL, a list `NAME@N=ERRNO,…` (`=ERRNO` may be left out: ENOMEM), or asked for through
// device.hpp. `*` stands for any call that makes something. Threads: the device's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ovsdr::connectx {

class FaultPlan {
public:
    /// `nth` from 1, counted from now. `times`: so many fail one after another.
    void add(std::string_view name, std::uint64_t nth, int error, std::uint64_t times = 1);
    /// Throws std::invalid_argument, naming what it does not understand.
    void add_list(std::string_view list);
    [[nodiscard]] std::size_t clear();
    /// Of the calls that are to fail.
    [[nodiscard]] std::vector<std::string> names() const;

    /// To be asked once in each call: the errno to fail with.
    [[nodiscard]] std::optional<int> due(std::string_view name, bool makes_something);

private:
    struct Fault {
        std::string name;
        std::uint64_t left;
        int error;
        std::uint64_t times;
    };
    std::vector<Fault> faults_;
};

}   // namespace ovsdr::connectx
