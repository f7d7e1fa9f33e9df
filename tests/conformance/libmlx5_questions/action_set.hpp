// One action of each kind, with good arguments, for rules of one domain; and those that a kind leads to or is made of.
//
// Names are in the order of Kind and the same in every domain and on every device: where a kind cannot be made,
// its place holds the reason.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/libmlx5_questions/handles.hpp"
#include "tests/conformance/libmlx5_questions/session.hpp"

namespace ovsdr::oracle {

/// A SET command of modify-header: `length` 0 stands for 32 bits.
struct EditCommand {
    unsigned operation = 1, field = 1, offset = 0, length = 0;
    std::uint32_t data = 1;

    [[nodiscard]] __be64 encoded() const noexcept;
};

inline constexpr unsigned edit_set = 1, edit_add = 2, edit_copy = 3;
inline constexpr unsigned edit_field_smac = 0x01, edit_field_reg_c_0 = 0x51, edit_field_reg_c_1 = 0x52;

/// The tables of a domain that rules and actions stand between.
struct Stage {
    Stage(const Session& session, mlx5dv_dr_domain_type type, unsigned level);

    mlx5dv_dr_domain_type type;
    Domain domain;
    Table table;  ///< at `level`
    Table next;   ///< one deeper
};

class ActionSet {
public:
    static constexpr std::array<std::string_view, 22> names{
        "drop",      "tag",       "default miss", "counter", "modify header", "push VLAN", "pop VLAN", "decap L2",
        "decap L3",  "encap L2",  "encap L3",     "table",   "vport 1",       "uplink",    "array",    "queue",
        "first hit", "ASO meter", "connections",  "meter",   "sampler",       "IB port 2"};

    ActionSet(const Session& session, const Stage& stage, bool root = false);

    /// Null where the kind cannot be made.
    [[nodiscard]] mlx5dv_dr_action* at(std::size_t kind) const noexcept { return actions_[kind].get(); }
    /// "ok" or the errno of making it.
    [[nodiscard]] const std::string& made(std::size_t kind) const noexcept { return made_[kind]; }

private:
    void keep(mlx5dv_dr_action* action);
    void make_plain(const Session& session, const Stage& stage, std::uint32_t flags);
    void make_reformats(mlx5dv_dr_domain* domain, std::uint32_t flags);
    void make_destinations(const Session& session, const Stage& stage);
    void make_stateful(const Session& session, const Stage& stage);

    std::vector<Action> parts_;  ///< of arrays and samplers
    std::vector<Action> actions_;
    std::vector<std::string> made_;
};

/// An array of two vports; null with errno where the domain has none.
[[nodiscard]] mlx5dv_dr_action* create_array(mlx5dv_dr_domain* domain, mlx5dv_dr_action* first,
                                             mlx5dv_dr_action* second);

}  // namespace ovsdr::oracle
