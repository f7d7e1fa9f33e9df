#include "tests/conformance/libmlx5_questions/answers.hpp"

#include <cstdio>
#include <cstring>

namespace ovsdr::oracle {
namespace {

/// FNV-1a, so that a draw is the same on every machine.
[[nodiscard]] std::uint64_t hash(std::uint64_t seed, std::string_view name) noexcept {
    std::uint64_t value = 0xcbf29ce484222325ULL ^ seed * 0x9e3779b97f4a7c15ULL;
    for (const char letter : name) value = (value ^ static_cast<std::uint8_t>(letter)) * 0x100000001b3ULL;
    return value ^ value >> 32;
}

}  // namespace

bool Answers::chosen(std::string_view name, unsigned one_in) const noexcept {
    if (!choice_.only.empty()) return name == choice_.only;
    return choice_.whole || one_in <= 1 || hash(choice_.seed, name) % one_in == 0;
}

void Answers::print(std::string_view name, std::string_view answer) {
    ++asked_;
    std::printf("%.*s\t%.*s\n", static_cast<int>(name.size()), name.data(), static_cast<int>(answer.size()),
                answer.data());
}

std::string errno_name(int error) {
    if (error == 0) return "ok";
    const char* name = strerrorname_np(error);
    return name != nullptr ? name : std::to_string(error);
}

std::string outcome(const void* created) {
    if (created != nullptr) return "ok";
    return errno == 0 ? "NULL without errno" : errno_name(errno);
}

std::string outcome_of(int returned) {
    return errno_name(returned < 0 ? errno : returned);
}

}  // namespace ovsdr::oracle
