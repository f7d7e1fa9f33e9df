// Modify-header actions. libmlx5 translates the commands for non-root tables itself; its table of fields differs
// between generations.
#include <endian.h>

#include <algorithm>
#include <vector>

#include "tests/conformance/libmlx5_questions/action_set.hpp"
#include "tests/conformance/libmlx5_questions/questions.hpp"

namespace ovsdr::oracle {
namespace {

constexpr unsigned fields = 0x100;  ///< of the 12 bits that a command has for one
constexpr unsigned operations = 16;
constexpr unsigned field_bits = 32;  ///< offsets and lengths: five bits each
constexpr unsigned field_ttl = 0x0a;
constexpr std::size_t list_lengths[] = {0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 128, 200, 512, 1024, 2048};

/// What any generation has a name for, and some that it has none for.
constexpr bool of_interest(unsigned field) {
    return field <= 0x18 || (field >= 0x46 && field <= 0x5c) || field == 0x6e || (field >= 0x70 && field <= 0x76);
}

struct CopyCommand {
    unsigned from, from_offset, to, to_offset, length;

    [[nodiscard]] __be64 encoded() const noexcept {
        return htobe64(std::uint64_t{edit_copy} << 60 | std::uint64_t{from} << 48 | std::uint64_t{from_offset} << 40 |
                       std::uint64_t{length} << 32 | to << 16 | to_offset << 8);
    }
};

class Edits {
public:
    Edits(const Session& session, Answers& answers, mlx5dv_dr_domain_type type)
        : answers_(answers), domain_(session.domain(type)), prefix_("edit " + domain_name(type) + ": ") {}

    void ask_single() {
        for (unsigned field = 0; field < fields; ++field) {
            for (unsigned operation = 0; operation < operations; ++operation) {
                ask("operation " + std::to_string(operation) + " of " + named(field), 2,
                    {EditCommand{.operation = operation, .field = field}.encoded()});
            }
            ask("copy " + named(field) + " to reg_c_1", 1, {CopyCommand{field, 0, edit_field_reg_c_1, 0, 0}.encoded()});
            ask("copy reg_c_1 to " + named(field), 1, {CopyCommand{edit_field_reg_c_1, 0, field, 0, 0}.encoded()});
        }
        for (unsigned field = 0; field < fields; ++field) {
            if (of_interest(field)) ask_places(field);
        }
    }

    void ask_pairs() {
        for (unsigned one = 0; one < fields; ++one) {
            for (unsigned two = 0; two < fields && of_interest(one); ++two) {
                if (of_interest(two)) ask_pair(one, two);
            }
        }
    }

    void ask_lists() {
        for (const std::size_t length : list_lengths) {
            const __be64 set = EditCommand{.field = edit_field_reg_c_1}.encoded();
            const __be64 add = EditCommand{.operation = edit_add, .field = field_ttl}.encoded();
            ask(std::to_string(length) + " sets of reg_c_1", 1, std::vector<__be64>(length, set));
            std::vector<__be64> mixed(length, set);
            for (std::size_t i = 0; i < length; i += 2) mixed[i] = add;
            ask(std::to_string(length) + " sets of reg_c_1 and additions to ip_ttl in turn", 1, mixed);
        }
        const std::vector<__be64> two(2, EditCommand{}.encoded());
        for (std::size_t size = 0; size <= 16; ++size) {
            answers_.ask(prefix_ + std::to_string(size) + " bytes", 1, [&] { return answer(two, size, 0); });
        }
        for (const std::uint32_t flags : {2U, 3U, 4U, 8U, 0x80000000U}) {
            answers_.ask(prefix_ + "flags " + std::to_string(flags), 1, [&] { return answer(two, 16, flags); });
        }
    }

private:
    [[nodiscard]] static std::string named(unsigned field) { return "field " + std::to_string(field); }

    void ask_places(unsigned field) {
        for (unsigned offset = 0; offset < field_bits; ++offset) {
            for (unsigned length = 0; length < field_bits; ++length) {
                ask("set " + named(field) + " at " + std::to_string(offset) + " for " + std::to_string(length), 4,
                    {EditCommand{.field = field, .offset = offset, .length = length}.encoded()});
            }
        }
    }

    void ask_pair(unsigned one, unsigned two) {
        const std::string both = named(one) + ", " + named(two);
        for (const unsigned first : {edit_set, edit_add}) {
            for (const unsigned second : {edit_set, edit_add}) {
                ask("operations " + std::to_string(first) + " and " + std::to_string(second) + " of " + both, 4,
                    {EditCommand{.operation = first, .field = one}.encoded(),
                     EditCommand{.operation = second, .field = two}.encoded()});
            }
        }
        constexpr CopyCommand places[] = {{0, 0, 0, 0, 0},  {0, 0, 0, 0, 1},   {0, 0, 0, 0, 8},   {0, 0, 0, 0, 16},
                                          {0, 8, 0, 4, 8},  {0, 16, 0, 0, 16}, {0, 0, 0, 16, 16}, {0, 16, 0, 16, 16},
                                          {0, 31, 0, 0, 1}, {0, 0, 0, 31, 1},  {0, 1, 0, 1, 31},  {0, 0, 0, 24, 8}};
        for (CopyCommand copy : places) {
            copy.from = one;
            copy.to = two;
            ask("copy of " + both + " from " + std::to_string(copy.from_offset) + " to " +
                    std::to_string(copy.to_offset) + " for " + std::to_string(copy.length),
                4, {copy.encoded()});
        }
    }

    void ask(const std::string& name, unsigned one_in, const std::vector<__be64>& commands) {
        answers_.ask(prefix_ + name, one_in, [&] { return answer(commands, commands.size() * sizeof(__be64), 0); });
    }

    [[nodiscard]] std::string answer(std::vector<__be64> commands, std::size_t size, std::uint32_t flags) {
        errno = 0;
        const Action action(mlx5dv_dr_action_create_modify_header(domain_.get(), flags, size, commands.data()));
        return outcome(action.get());
    }

    Answers& answers_;
    Domain domain_;
    std::string prefix_;
};

}  // namespace

void ask_edits(const Session& session, Answers& answers) {
    for (const mlx5dv_dr_domain_type type : domain_types) {
        Edits edits(session, answers, type);
        edits.ask_single();
        edits.ask_pairs();
        edits.ask_lists();
    }
}

}  // namespace ovsdr::oracle
