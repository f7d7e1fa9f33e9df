// Arrays of destinations, with and without a reformat each.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "tests/conformance/libmlx5_questions/action_set.hpp"
#include "tests/conformance/libmlx5_questions/questions.hpp"

namespace ovsdr::oracle {
namespace {

constexpr unsigned drawn_one_in = 4;
constexpr std::size_t lengths[] = {0, 1, 2, 3, 4, 8, 16, 31, 32, 33, 64};
constexpr std::array<const char*, 6> reformats{"", "encap L2", "encap L3", "decap L2", "counter", "modify header"};

class Arrays {
public:
    Arrays(const Session& session, Answers& answers, mlx5dv_dr_domain_type type)
        : answers_(answers), stage_(session, type, 1), actions_(session, stage_) {
        prefix_ = "array " + domain_name(type) + ": ";
    }

    /// Two members: every kind, and each of some reformats before the first.
    void ask_pairs() {
        for (const std::string_view first : ActionSet::names) {
            for (const std::string_view second : ActionSet::names) {
                for (const char* reformat : reformats) {
                    const Member members[] = {{first, reformat}, {second, ""}};
                    ask(members);
                }
            }
        }
    }

    void ask_triples() {
        for (const std::string_view first : ActionSet::names) {
            for (const std::string_view second : ActionSet::names) {
                for (const std::string_view third : {"vport 1", "uplink", "table", "drop", "counter"}) {
                    const Member members[] = {{first, ""}, {second, "encap L2"}, {third, ""}};
                    ask(members);
                }
            }
        }
    }

    void ask_lengths() {
        const bool fdb = stage_.type == MLX5DV_DR_DOMAIN_TYPE_FDB;
        const Member member{fdb ? "vport 1" : "queue", ""};
        for (const std::size_t length : lengths) {
            answers_.ask(prefix_ + std::to_string(length) + " members", 1,
                         [&] { return answer(std::vector<Member>(length, member), MLX5DV_DR_ACTION_DEST); });
        }
        for (const unsigned type : {2U, 7U, 0xffffffffU}) {
            answers_.ask(prefix_ + "members of type " + std::to_string(type), 1,
                         [&] { return answer(std::vector<Member>(2, member), type); });
        }
    }

private:
    struct Member {
        std::string_view destination;
        std::string_view reformat;  ///< empty: none
    };

    [[nodiscard]] static std::size_t kind(std::string_view name) {
        return static_cast<std::size_t>(std::find(ActionSet::names.begin(), ActionSet::names.end(), name) -
                                        ActionSet::names.begin());
    }

    void ask(std::span<const Member> members) {
        std::string name = prefix_;
        for (const Member& member : members) {
            if (&member != members.data()) name += ", ";
            name += member.destination;
            if (!member.reformat.empty()) name += std::string(" after ") + std::string(member.reformat);
        }
        answers_.ask(name, drawn_one_in, [&] {
            return answer({members.begin(), members.end()}, MLX5DV_DR_ACTION_DEST);
        });
    }

    /// A member with a reformat is of that type whatever `type` says.
    [[nodiscard]] std::string answer(const std::vector<Member>& members, unsigned type) {
        std::vector<mlx5dv_dr_action_dest_attr> attributes(members.size());
        std::vector<mlx5dv_dr_action_dest_reformat> changes(members.size());
        std::vector<mlx5dv_dr_action_dest_attr*> pointers;
        for (std::size_t i = 0; i < members.size(); ++i) {
            mlx5dv_dr_action* destination = actions_.at(kind(members[i].destination));
            if (destination == nullptr) return std::string(members[i].destination) + " cannot be made";
            std::memcpy(&attributes[i].type, &type, sizeof type);
            attributes[i].dest = destination;
            if (!members[i].reformat.empty()) {
                mlx5dv_dr_action* reformat = actions_.at(kind(members[i].reformat));
                if (reformat == nullptr) return std::string(members[i].reformat) + " cannot be made";
                attributes[i].type = MLX5DV_DR_ACTION_DEST_REFORMAT;
                changes[i] = {reformat, destination};
                attributes[i].dest_reformat = &changes[i];
            }
            pointers.push_back(&attributes[i]);
        }
        pointers.push_back(nullptr);
        errno = 0;
        return outcome(
            Action(mlx5dv_dr_action_create_dest_array(stage_.domain.get(), members.size(), pointers.data())).get());
    }

    Answers& answers_;
    Stage stage_;
    ActionSet actions_;
    std::string prefix_;
};

}  // namespace

void ask_arrays(const Session& session, Answers& answers) {
    for (const mlx5dv_dr_domain_type type : domain_types) {
        Arrays arrays(session, answers, type);
        arrays.ask_pairs();
        arrays.ask_triples();
        arrays.ask_lengths();
    }
}

}  // namespace ovsdr::oracle
