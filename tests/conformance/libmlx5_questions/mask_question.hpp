// A mask, a value of it, and what the provider says to a matcher and a rule of them.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/conformance/libmlx5_questions/answers.hpp"
#include "tests/conformance/libmlx5_questions/handles.hpp"
#include "tests/conformance/libmlx5_questions/match_buffer.hpp"

namespace ovsdr::oracle {

class MaskQuestion {
public:
    explicit MaskQuestion(std::uint8_t criteria = 0, std::size_t size = MatchBuffer::all_blocks)
        : mask_(size), value_(size), criteria_(criteria) {}

    /// Masks bits of a field, and with `criterion` asks for its block.
    MaskQuestion& mask(const MatchField& field, std::uint64_t bits, bool criterion = true) {
        mask_.set(field, bits);
        if (criterion) criteria_ |= field.criteria();
        return *this;
    }
    MaskQuestion& fill(const MatchField& field, bool criterion = true) {
        return mask(field, ~std::uint64_t{0}, criterion);
    }
    MaskQuestion& equal(const MatchField& field, std::uint64_t value) {
        value_.set(field, value);
        return *this;
    }
    /// An IP version as libmlx5 wants it: the number in mask and value alike.
    MaskQuestion& version(std::string_view field, unsigned number) {
        return mask(match_field(field), number).equal(match_field(field), number);
    }

    /// "ok", or the step that was refused with its errno.
    [[nodiscard]] std::string answer(mlx5dv_dr_table* table, mlx5dv_dr_action* action) {
        const Matcher matcher(mlx5dv_dr_matcher_create(table, 0, criteria_, mask_.get()));
        if (matcher == nullptr) return "matcher " + outcome(nullptr);
        errno = 0;
        const Rule rule(mlx5dv_dr_rule_create(matcher.get(), value_.get(), 1, &action));
        return rule == nullptr ? "rule " + outcome(nullptr) : "ok";
    }

private:
    MatchBuffer mask_;
    MatchBuffer value_;
    std::uint8_t criteria_;
};

}  // namespace ovsdr::oracle
