// Rules with every sequence of up to four actions. What may follow what is a state machine per domain and side; in the
// FDB a rule has two sides unless its match says where packets come from.
#include <vector>

#include "tests/conformance/libmlx5_questions/action_set.hpp"
#include "tests/conformance/libmlx5_questions/match_buffer.hpp"
#include "tests/conformance/libmlx5_questions/questions.hpp"

namespace ovsdr::oracle {
namespace {

constexpr std::size_t longest = 4;
/// Of the sequences of each length one in so many is drawn.
constexpr unsigned drawn_one_in[longest + 1] = {1, 1, 1, 3, 200};

struct Source {
    const char* name;
    int port;  ///< -1: the rule matches packets from everywhere
};

class Sequences {
public:
    Sequences(const Session& session, Answers& answers, mlx5dv_dr_domain_type type)
        : answers_(answers), stage_(session, type, 1), actions_(session, stage_) {}

    void ask_all(const Source& source) {
        Mask().swap(mask_);
        const MatchField& port = match_field("misc.source_port");
        const MatchField& mac = match_field("outer.smac_47_16");
        mask_.buffer.fill(mac);
        value_.set(mac, 0x02000000);
        std::uint8_t criteria = mac.criteria();
        if (source.port >= 0) {
            mask_.buffer.fill(port);
            value_.set(port, static_cast<std::uint64_t>(source.port));
            criteria |= port.criteria();
        }
        matcher_.reset(mlx5dv_dr_matcher_create(stage_.table.get(), 1, criteria, mask_.buffer.get()));
        ask_from("sequence " + domain_name(stage_.type) + " from " + source.name + ":");
        matcher_.reset();
    }

private:
    struct Mask {
        MatchBuffer buffer;
        void swap(Mask& other) noexcept { std::swap(buffer, other.buffer); }
    };

    void ask_from(const std::string& name) {
        answers_.ask(name, drawn_one_in[chosen_.size()], [this] { return answer(); });
        if (chosen_.size() == longest) return;
        for (std::size_t kind = 0; kind < ActionSet::names.size(); ++kind) {
            chosen_.push_back(kind);
            ask_from(name + (chosen_.size() == 1 ? " " : ", ") + std::string(ActionSet::names[kind]));
            chosen_.pop_back();
        }
    }

    [[nodiscard]] std::string answer() {
        std::vector<mlx5dv_dr_action*> list;
        for (const std::size_t kind : chosen_) {
            if (actions_.at(kind) == nullptr) return std::string(ActionSet::names[kind]) + " " + actions_.made(kind);
            list.push_back(actions_.at(kind));
        }
        errno = 0;
        const Rule rule(mlx5dv_dr_rule_create(matcher_.get(), value_.get(), list.size(), list.data()));
        return outcome(rule.get());
    }

    Answers& answers_;
    Stage stage_;
    ActionSet actions_;
    Mask mask_;
    MatchBuffer value_;
    Matcher matcher_;
    std::vector<std::size_t> chosen_;
};

}  // namespace

void ask_sequences(const Session& session, Answers& answers) {
    constexpr Source anywhere{"anywhere", -1}, wire{"the wire", 0xffff}, vport{"vport 1", 1};
    for (const mlx5dv_dr_domain_type type : domain_types) {
        Sequences sequences(session, answers, type);
        sequences.ask_all(anywhere);
        if (type != MLX5DV_DR_DOMAIN_TYPE_FDB) continue;
        sequences.ask_all(wire);
        sequences.ask_all(vport);
    }
}

}  // namespace ovsdr::oracle
