// Questions to a provider of libibverbs and libmlx5, and its answers.
//
// A question has a name in words, which is the same in every run, and is answered by "ok", or by the step that failed
// and its errno: "matcher EINVAL". Each question makes what it needs and takes it away again: no answer depends on
// which other questions were asked. A line of output is name, tab, answer.
//
// Which questions are asked: all (--whole), one (--ask), or of each group the share that its author gave it, drawn by
// the seed and the name. So both providers are asked the same ones.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

namespace ovsdr::oracle {

struct Choice {
    std::uint64_t seed = 1;
    bool whole = false;
    std::string only;  ///< the one question to ask; empty: no such limit
};

class Answers {
public:
    explicit Answers(Choice choice) : choice_(std::move(choice)) {}

    /// Asks unless the question was not chosen: one in `one_in` is drawn. `answer` returns a string and is called once.
    template <typename Answer>
    void ask(const std::string& name, unsigned one_in, Answer answer) {
        if (!chosen(name, one_in)) return;
        errno = 0;
        print(name, answer());
    }

    [[nodiscard]] bool whole() const noexcept { return choice_.whole || !choice_.only.empty(); }
    [[nodiscard]] std::uint64_t seed() const noexcept { return choice_.seed; }
    [[nodiscard]] std::uint64_t asked() const noexcept { return asked_; }

private:
    [[nodiscard]] bool chosen(std::string_view name, unsigned one_in) const noexcept;
    void print(std::string_view name, std::string_view answer);

    Choice choice_;
    std::uint64_t asked_ = 0;
};

/// "EINVAL"; "ok" for 0; a number that has no name as it is.
[[nodiscard]] std::string errno_name(int error);

/// "ok", or errno's name when the provider returned NULL. A NULL without errno is "NULL without errno".
[[nodiscard]] std::string outcome(const void* created);

/// What a function returned: 0, an errno, or -1 with errno set.
[[nodiscard]] std::string outcome_of(int returned);

}  // namespace ovsdr::oracle
