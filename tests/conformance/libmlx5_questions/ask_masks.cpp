// Masks of matchers, and a rule of each: whether a mask is taken often shows only when a value is written.
#include <random>

#include "tests/conformance/libmlx5_questions/action_set.hpp"
#include "tests/conformance/libmlx5_questions/mask_question.hpp"
#include "tests/conformance/libmlx5_questions/questions.hpp"

namespace ovsdr::oracle {
namespace {

constexpr unsigned priorities[] = {0, 1, 2, 0x7fff, 0xffff};

/// The field of a bit, or "reserved".
[[nodiscard]] std::string owner_of(unsigned bit) {
    for (const MatchField& field : match_fields()) {
        if (bit >= field.bit && bit < field.bit + 0U + field.bits) return std::string(field.name);
    }
    return "reserved";
}

class Masks {
public:
    Masks(const Session& session, Answers& answers, mlx5dv_dr_domain_type type)
        : answers_(answers), stage_(session, type, 1), drop_(mlx5dv_dr_action_create_drop()) {
        prefix_ = "mask " + domain_name(type) + ": ";
    }

    void ask_bits() {
        const MatchField& mac = match_field("outer.smac_47_16");
        for (unsigned bit = 0; bit < match_blocks * block_bits; ++bit) {
            const MatchField one{"", static_cast<std::uint16_t>(bit), 1};
            const std::string name = "bit " + std::to_string(bit) + " (" + owner_of(bit) + ")";
            ask(name, 1, MaskQuestion(one.criteria()).fill(one));
            ask(name + " set", 2, MaskQuestion(one.criteria()).fill(one).equal(one, 1));
            ask(name + " and outer.smac_47_16", 2, MaskQuestion(one.criteria()).fill(one).fill(mac));
            ask(name + " without criteria", 4, MaskQuestion(0).fill(one, false));
        }
    }

    void ask_fields() {
        for (const MatchField& field : match_fields()) {
            const std::string name(field.name);
            ask(name, 1, MaskQuestion().fill(field));
            ask(name + " all ones", 1, MaskQuestion().fill(field).equal(field, ~std::uint64_t{0}));
            ask(name + " lowest bit", 1, MaskQuestion().mask(field, 1));
            ask(name + " all but the lowest bit", 1, MaskQuestion().mask(field, ~std::uint64_t{1}));
            ask(name + " and every criterion", 1, MaskQuestion(0x7f).fill(field));
        }
    }

    /// Alone, and with the IP versions that many fields ask for.
    void ask_pairs() {
        const auto fields = match_fields();
        for (std::size_t i = 0; i < fields.size(); ++i) {
            for (std::size_t j = i + 1; j < fields.size(); ++j) {
                const std::string name = std::string(fields[i].name) + " + " + std::string(fields[j].name);
                for (const unsigned version : {0U, 4U, 6U}) {
                    MaskQuestion question;
                    question.fill(fields[i]).fill(fields[j]);
                    if (version != 0)
                        question.version("outer.ip_version", version).version("inner.ip_version", version);
                    ask(version == 0 ? name : name + " in IPv" + std::to_string(version), 12, question);
                }
            }
        }
    }

    void ask_criteria() {
        for (unsigned criteria = 0; criteria < 256; ++criteria) {
            const std::string name = "criteria " + std::to_string(criteria);
            const auto byte = static_cast<std::uint8_t>(criteria);
            ask(name + ", nothing masked", 1, MaskQuestion(byte));
            ask(name + ", outer.smac_47_16", 1, MaskQuestion(byte).fill(match_field("outer.smac_47_16"), false));
            MaskQuestion all(byte);
            for (const char* field : {"outer.smac_47_16", "misc.vxlan_vni", "inner.smac_47_16",
                                      "misc2.metadata_reg_c_1", "misc3.outer_tcp_seq_num", "misc5.tunnel_header_0"}) {
                all.fill(match_field(field), false);
            }
            ask(name + ", a field of each block", 1, all);
        }
        for (const unsigned priority : priorities) {
            answers_.ask(prefix_ + "priority " + std::to_string(priority), 1, [&] {
                MatchBuffer nothing;
                const Matcher matcher(mlx5dv_dr_matcher_create(stage_.table.get(), static_cast<std::uint16_t>(priority),
                                                               0, nothing.get()));
                return outcome(matcher.get());
            });
        }
    }

    /// What is announced; smac_47_16 is in the first four bytes.
    void ask_sizes() {
        for (std::size_t size = 0; size <= MatchBuffer::capacity; ++size) {
            for (const bool empty : {true, false}) {
                MaskQuestion question(empty ? 0 : 1, size);
                if (!empty && size >= 4) question.fill(match_field("outer.smac_47_16"));
                ask("size " + std::to_string(size) + (empty ? ", no criteria" : ""), 2, question);
            }
        }
    }

    /// Two to six fields, often whole, with the IP versions as often as not.
    void ask_random(unsigned count) {
        std::mt19937_64 random(answers_.seed() * 4 + stage_.type);
        const auto fields = match_fields();
        for (unsigned n = 0; n < count; ++n) {
            MaskQuestion question;
            std::string name = "random";
            for (const char* version : {"outer.ip_version", "inner.ip_version"}) {
                const unsigned roll = random() % 4;
                if (roll >= 2) continue;
                question.version(version, roll == 0 ? 4 : 6);
                name += std::string(" ") + version + (roll == 0 ? " 4" : " 6");
            }
            for (auto length = 2 + random() % 5; length > 0; --length) {
                const MatchField& field = fields[random() % fields.size()];
                const std::uint64_t bits = random() % 3 == 0 ? random() : ~std::uint64_t{0};
                const std::uint64_t value = random() % 3 == 0 ? 0 : random();
                question.mask(field, bits).equal(field, value & bits);
                name += " " + described(field, bits, value);
            }
            ask(name, 1, question);
        }
    }

private:
    [[nodiscard]] static std::string described(const MatchField& field, std::uint64_t bits, std::uint64_t value) {
        const std::uint64_t all = (std::uint64_t{1} << field.bits) - 1;
        return std::string(field.name) + "=" + std::to_string(value & bits & all) + "/" + std::to_string(bits & all);
    }

    void ask(const std::string& name, unsigned one_in, MaskQuestion question) {
        answers_.ask(prefix_ + name, one_in, [&] { return question.answer(stage_.table.get(), drop_.get()); });
    }

    Answers& answers_;
    Stage stage_;
    Action drop_;
    std::string prefix_;
};

}  // namespace

void ask_masks(const Session& session, Answers& answers) {
    constexpr unsigned random_whole = 30000, random_drawn = 3000;
    for (const mlx5dv_dr_domain_type type : domain_types) {
        Masks masks(session, answers, type);
        masks.ask_bits();
        masks.ask_fields();
        masks.ask_pairs();
        masks.ask_criteria();
        masks.ask_sizes();
        masks.ask_random(answers.whole() ? random_whole : random_drawn);
    }
}

}  // namespace ovsdr::oracle
