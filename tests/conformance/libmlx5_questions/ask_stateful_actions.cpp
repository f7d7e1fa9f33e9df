// ASO actions, legacy meters and samplers, made and changed.
#include <endian.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "tests/conformance/libmlx5_questions/action_set.hpp"
#include "tests/conformance/libmlx5_questions/questions.hpp"

namespace ovsdr::oracle {
namespace {

constexpr std::uint32_t offsets[] = {0, 1, 2, 511, 512, 1000000, 0xffffffff};
constexpr unsigned flag_sets = 32;  ///< one more bit than there are ASO flags
constexpr unsigned registers = 9;
constexpr std::size_t parameter_sizes[] = {0, 1, 4, 16, 27, 28, 32};
constexpr std::uint32_t ratios[] = {0, 1, 2, 3, 4, 5, 255, 256, 65535, 65536, 0x80000000, 0xffffffff};

class Stateful {
public:
    Stateful(const Session& session, Answers& answers, mlx5dv_dr_domain_type type)
        : session_(session), answers_(answers), stage_(session, type, 1), actions_(session, stage_) {
        prefix_ = "stateful " + domain_name(type) + ": ";
    }

    void ask_aso() {
        struct Object {
            const char* name;
            mlx5dv_devx_obj* object;
        };
        for (const Object& one : {Object{"first hit", session_.first_hit.get()},
                                  {"ASO meter", session_.flow_meter.get()},
                                  {"connections", session_.connections.get()},
                                  {"counter", session_.counter.get()}}) {
            for (const std::uint32_t offset : offsets) {
                for (unsigned flags = 0; flags < flag_sets; ++flags) {
                    for (unsigned reg_c = 0; reg_c < registers; ++reg_c) {
                        const std::string what = std::string(one.name) + " at " + std::to_string(offset) + ", flags " +
                                                 std::to_string(flags) + ", reg_c_" + std::to_string(reg_c);
                        ask_aso_use(what, one.object, {offset, flags, static_cast<std::uint8_t>(reg_c)});
                    }
                }
            }
        }
    }

    void ask_meters() {
        for (const std::uint32_t level : {0U, 1U, 2U, 63U}) {
            for (unsigned reg_c = 0; reg_c < registers; ++reg_c) {
                for (const std::size_t size : parameter_sizes) {
                    answers_.ask(prefix_ + "meter before level " + std::to_string(level) + ", reg_c_" +
                                     std::to_string(reg_c) + ", " + std::to_string(size) + " bytes",
                                 1, [&] { return meter(level, static_cast<std::uint8_t>(reg_c), size); });
                }
            }
        }
    }

    void ask_samplers() {
        for (const std::uint32_t ratio : ratios) {
            ask_sampler("ratio " + std::to_string(ratio), {.ratio = ratio});
        }
        // Neither a root table nor, where there is a restore table one level above, level 1: libmlx5 44 crashes.
        for (const std::uint32_t level : {2U, 3U, 63U}) {
            ask_sampler("next at level " + std::to_string(level), {.level = level});
        }
        for (unsigned field = 0x4f; field < 0x5a; ++field) {
            for (unsigned operation = 0; operation < 4; ++operation) {
                ask_sampler(
                    "restoring with operation " + std::to_string(operation) + " of field " + std::to_string(field),
                    {.restore = EditCommand{.operation = operation, .field = field}});
            }
        }
        for (const std::string_view one : ActionSet::names) {
            ask_sampler(std::string(one), {.members = {one}});
            for (const std::string_view two : ActionSet::names) {
                ask_sampler(std::string(one) + ", " + std::string(two), {.members = {one, two}});
            }
        }
    }

private:
    struct AsoUse {
        std::uint32_t offset;
        std::uint32_t flags;
        std::uint8_t reg_c;
    };
    struct Sampler {
        std::uint32_t ratio = 4;
        std::uint32_t level = 2;
        EditCommand restore{.field = edit_field_reg_c_0};
        std::vector<std::string_view> members{};  ///< empty: the domain's usual destination
    };

    void ask_aso_use(const std::string& what, mlx5dv_devx_obj* object, AsoUse use) {
        answers_.ask(prefix_ + what, 4, [&] {
            if (object == nullptr) return std::string("no object");
            const Action action(
                mlx5dv_dr_action_create_aso(stage_.domain.get(), object, use.offset, use.flags, use.reg_c));
            return outcome(action.get());
        });
        answers_.ask(prefix_ + "changed to " + what, 4, [&] {
            if (object == nullptr) return std::string("no object");
            const std::uint32_t first_flags =
                object == session_.flow_meter.get()  ? std::uint32_t{MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_GREEN}
                : object == session_.first_hit.get() ? std::uint32_t{MLX5DV_DR_ACTION_FLAGS_ASO_FIRST_HIT_SET}
                                                     : std::uint32_t{MLX5DV_DR_ACTION_FLAGS_ASO_CT_DIRECTION_INITIATOR};
            const Action action(mlx5dv_dr_action_create_aso(stage_.domain.get(), object, 0, first_flags, 3));
            if (action == nullptr) return "creation " + outcome(nullptr);
            errno = 0;
            return outcome_of(mlx5dv_dr_action_modify_aso(action.get(), use.offset, use.flags, use.reg_c));
        });
    }

    [[nodiscard]] std::string meter(std::uint32_t level, std::uint8_t reg_c, std::size_t size) {
        const Table next(mlx5dv_dr_table_create(stage_.domain.get(), level));
        if (next == nullptr) return "table " + outcome(nullptr);
        std::array<std::uint8_t, 32> parameters{};
        parameters[3] = 1;
        mlx5dv_dr_flow_meter_attr attributes{next.get(), 1, reg_c, size, parameters.data()};
        errno = 0;
        return outcome(Action(mlx5dv_dr_action_create_flow_meter(&attributes)).get());
    }

    [[nodiscard]] static std::size_t kind(std::string_view name) {
        return static_cast<std::size_t>(std::find(ActionSet::names.begin(), ActionSet::names.end(), name) -
                                        ActionSet::names.begin());
    }

    void ask_sampler(const std::string& name, const Sampler& sampler) {
        answers_.ask(prefix_ + "sampler: " + name, 1, [&] { return answer(sampler); });
    }

    [[nodiscard]] std::string answer(const Sampler& sampler) {
        std::vector<mlx5dv_dr_action*> members;
        const bool fdb = stage_.type == MLX5DV_DR_DOMAIN_TYPE_FDB;
        if (sampler.members.empty()) members.push_back(actions_.at(kind(fdb ? "vport 1" : "queue")));
        for (const std::string_view name : sampler.members) {
            if (actions_.at(kind(name)) == nullptr) return std::string(name) + " cannot be made";
            members.push_back(actions_.at(kind(name)));
        }
        const Table next(mlx5dv_dr_table_create(stage_.domain.get(), sampler.level));
        if (next == nullptr) return "table " + outcome(nullptr);
        mlx5dv_dr_flow_sampler_attr attributes{.sample_ratio = sampler.ratio,
                                               .default_next_table = next.get(),
                                               .num_sample_actions = static_cast<std::uint32_t>(members.size()),
                                               .sample_actions = members.data(),
                                               .action = sampler.restore.encoded()};
        errno = 0;
        return outcome(Action(mlx5dv_dr_action_create_flow_sampler(&attributes)).get());
    }

    const Session& session_;
    Answers& answers_;
    Stage stage_;
    ActionSet actions_;
    std::string prefix_;
};

}  // namespace

void ask_stateful_actions(const Session& session, Answers& answers) {
    for (const mlx5dv_dr_domain_type type : domain_types) {
        Stateful stateful(session, answers, type);
        stateful.ask_aso();
        stateful.ask_meters();
        stateful.ask_samplers();
    }
}

}  // namespace ovsdr::oracle
