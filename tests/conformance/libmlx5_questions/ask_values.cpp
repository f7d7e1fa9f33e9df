// Values of rules. libmlx5 ties fields to IP versions and protocols, and wants values within their masks.
#include "tests/conformance/libmlx5_questions/mask_question.hpp"
#include "tests/conformance/libmlx5_questions/questions.hpp"

namespace ovsdr::oracle {
namespace {

constexpr unsigned drawn_one_in = 8;
constexpr std::uint64_t udp = 17;

/// What is matched beside the IP version and the field in question.
enum class Beside { nothing, ethertype, ethertype_and_protocol };
constexpr const char* beside_names[] = {"", ", its ethertype", ", its ethertype and protocol"};

struct Versions {
    unsigned mask, value;
};
constexpr Versions versions[] = {{0, 0}, {15, 0}, {15, 4}, {15, 5}, {15, 6}, {4, 0}, {4, 4},
                                 {4, 5}, {4, 6},  {6, 0},  {6, 4},  {6, 5},  {6, 6}};

struct Case {
    std::string side;  ///< "outer" or "inner"
    Versions version;
    Beside beside;

    [[nodiscard]] std::string name() const {
        return side + ".ip_version " + std::to_string(version.value) + "/" + std::to_string(version.mask) +
               beside_names[static_cast<unsigned>(beside)];
    }
    [[nodiscard]] MaskQuestion question() const {
        MaskQuestion question;
        const MatchField& field = match_field(side + ".ip_version");
        question.mask(field, version.mask).equal(field, version.value);
        if (beside != Beside::nothing) {
            const MatchField& type = match_field(side + ".ethertype");
            question.fill(type).equal(type, version.value == 6 ? 0x86dd : 0x0800);
        }
        if (beside == Beside::ethertype_and_protocol) {
            const MatchField& protocol = match_field(side + ".ip_protocol");
            question.fill(protocol).equal(protocol, udp);
        }
        return question;
    }
};

class Values {
public:
    Values(const Session& session, Answers& answers, mlx5dv_dr_domain_type type)
        : answers_(answers),
          domain_(session.domain(type)),
          table_(mlx5dv_dr_table_create(domain_.get(), 1)),
          drop_(mlx5dv_dr_action_create_drop()),
          prefix_("value " + domain_name(type) + ": ") {}

    void ask_case(const Case& one) {
        for (const MatchField& field : match_fields()) {
            if (field.name == one.side + ".ip_version") continue;
            const std::string name = one.name() + ", " + std::string(field.name);
            for (const bool whole : {true, false}) {
                const std::uint64_t mask = whole ? ~std::uint64_t{0} : 1;
                const std::string masked = name + (whole ? "" : "'s lowest bit");
                ask(masked + " 0", drawn_one_in, one.question().mask(field, mask).equal(field, 0));
                ask(masked + " 1", drawn_one_in, one.question().mask(field, mask).equal(field, 1));
                ask(masked + " all ones", drawn_one_in,
                    one.question().mask(field, mask).equal(field, ~std::uint64_t{0}));
            }
        }
    }

    /// A bit of each field that the mask does not have, and every size of a value.
    void ask_outside() {
        const MatchField& mac = match_field("outer.smac_47_16");
        for (const MatchField& field : match_fields()) {
            ask(std::string(field.name) + " not masked", 1, MaskQuestion().fill(mac).equal(field, 1));
            ask(std::string(field.name) + " not masked, every criterion", 1,
                MaskQuestion(0x7f).fill(mac).equal(field, 1));
        }
        for (std::size_t size = 0; size <= MatchBuffer::capacity; ++size) {
            answers_.ask(prefix_ + "size " + std::to_string(size), 2, [&] { return answer_of_size(size); });
        }
    }

private:
    [[nodiscard]] std::string answer_of_size(std::size_t size) {
        MatchBuffer mask, value(size);
        mask.fill(match_field("outer.smac_47_16"));
        const Matcher matcher(mlx5dv_dr_matcher_create(table_.get(), 0, 1, mask.get()));
        mlx5dv_dr_action* drop = drop_.get();
        errno = 0;
        const Rule rule(mlx5dv_dr_rule_create(matcher.get(), value.get(), 1, &drop));
        return outcome(rule.get());
    }

    void ask(const std::string& name, unsigned one_in, MaskQuestion question) {
        answers_.ask(prefix_ + name, one_in, [&] { return question.answer(table_.get(), drop_.get()); });
    }

    Answers& answers_;
    Domain domain_;
    Table table_;
    Action drop_;
    std::string prefix_;
};

}  // namespace

void ask_values(const Session& session, Answers& answers) {
    for (const mlx5dv_dr_domain_type type : domain_types) {
        Values values(session, answers, type);
        for (const char* side : {"outer", "inner"}) {
            for (const Versions& version : versions) {
                for (const Beside beside : {Beside::nothing, Beside::ethertype, Beside::ethertype_and_protocol}) {
                    values.ask_case({side, version, beside});
                }
            }
        }
        values.ask_outside();
    }
}

}  // namespace ovsdr::oracle
