#include "tests/connectx/fault_plan.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <stdexcept>

namespace ovsdr::connectx {
namespace {

constexpr int last_errno = 133;   // of Linux

int errno_of(std::string_view name) {
    for (int error = 1; error <= last_errno; ++error) {
        const char* known = strerrorname_np(error);
        if (known != nullptr && name == known) return error;
    }
    throw std::invalid_argument("OVSDR_CONNECTX_FAIL: no errno is named " + std::string(name));
}

}   // namespace

void FaultPlan::add(std::string_view name, std::uint64_t nth, int error, std::uint64_t times) {
    faults_.push_back({std::string(name), nth, error, times});
}

void FaultPlan::add_list(std::string_view list) {
    while (!list.empty()) {
        const std::string_view item = list.substr(0, list.find(','));
        list.remove_prefix(item.size() == list.size() ? list.size() : item.size() + 1);
        const auto at = item.find('@'), equals = item.find('=');
        std::uint64_t nth = 0;
        const std::string_view number = at == item.npos ? "" : item.substr(at + 1, equals - at - 1);
        const auto parsed = std::from_chars(number.data(), number.data() + number.size(), nth);
        if (parsed.ec != std::errc{} || parsed.ptr != number.data() + number.size() || nth == 0) {
            throw std::invalid_argument("OVSDR_CONNECTX_FAIL: not NAME@N or NAME@N=ERRNO: " + std::string(item));
        }
        add(item.substr(0, at), nth, equals == item.npos ? ENOMEM : errno_of(item.substr(equals + 1)));
    }
}

std::vector<std::string> FaultPlan::names() const {
    std::vector<std::string> all;
    for (const Fault& fault : faults_) all.push_back(fault.name);
    return all;
}

std::size_t FaultPlan::clear() {
    const std::size_t waiting = faults_.size();
    faults_.clear();
    return waiting;
}

std::optional<int> FaultPlan::due(std::string_view name, bool makes_something) {
    std::optional<int> error;
    std::erase_if(faults_, [&](Fault& fault) {
        if (fault.name != name && !(fault.name == "*" && makes_something)) return false;
        if (--fault.left != 0) return false;
        error = fault.error;
        fault.left = 1;
        return --fault.times == 0;
    });
    return error;
}

}   // namespace ovsdr::connectx
