// Actions that need no other action: reformats, vports, VLANs, tags, counters, tables, receivers.
#include <endian.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/conformance/libmlx5_questions/action_set.hpp"
#include "tests/conformance/libmlx5_questions/questions.hpp"

namespace ovsdr::oracle {
namespace {

constexpr unsigned reformat_types[] = {0, 1, 2, 3, 4, 5, 255, 0xffffffff};
constexpr std::size_t reformat_sizes[] = {0,  1,  2,  4,  12, 13, 14, 15, 16, 17, 18,  19,  22,  32,  34,  42,  50,
                                          54, 58, 62, 63, 64, 65, 66, 70, 74, 90, 100, 126, 127, 128, 129, 256, 512};
constexpr std::uint32_t vports[] = {0,      1,      2,      3,       4,       5,       100,
                                    0xfffd, 0xfffe, 0xffff, 0x10000, 0x10001, 0x1ffff, 0xffffffff};
constexpr std::uint32_t vlans[] = {0x81000000, 0x81000fff, 0x8100ffff, 0x88a80001, 0x88a80000, 0x08000001,
                                   0,          0xffffffff, 0x91000001, 0x92000001, 0x81010001, 0x86dd0001};
constexpr std::uint32_t tags[] = {0, 1, 0xffff, 0xffffff, 0x1000000, 0x80000000, 0xffffffff};
constexpr std::uint32_t offsets[] = {0, 1, 2, 3, 100, 511, 512, 0x7fffff, 0x800000, 0xffffffff};
constexpr std::uint32_t levels[] = {0, 1, 2, 3, 10, 62, 63, 64, 65, 100, 200, 0x7fffffff, 0xffffffff};

class Actions {
public:
    Actions(const Session& session, Answers& answers, mlx5dv_dr_domain_type type)
        : session_(session),
          answers_(answers),
          domain_(session.domain(type)),
          prefix_("action " + domain_name(type) + ": ") {}

    void ask_reformats() {
        for (const unsigned type : reformat_types) {
            for (const std::uint32_t flags : {0U, 1U, 2U, 3U, 8U}) {
                for (const std::size_t size : reformat_sizes) {
                    for (const bool data : {true, false}) ask_reformat(type, flags, size, data);
                }
            }
        }
    }

    void ask_plain() {
        for (const std::uint32_t vport : vports) {
            ask("vport " + std::to_string(vport),
                [&] { return mlx5dv_dr_action_create_dest_vport(domain_.get(), vport); });
        }
        for (std::uint32_t port = 0; port < 8; ++port) {
            ask("IB port " + std::to_string(port),
                [&] { return mlx5dv_dr_action_create_dest_ib_port(domain_.get(), port); });
        }
        for (const std::uint32_t vlan : vlans) {
            ask("push VLAN " + std::to_string(vlan),
                [&] { return mlx5dv_dr_action_create_push_vlan(domain_.get(), htobe32(vlan)); });
        }
        for (const std::uint32_t tag : tags) {
            ask("tag " + std::to_string(tag), [&] { return mlx5dv_dr_action_create_tag(tag); });
        }
        ask("drop", [] { return mlx5dv_dr_action_create_drop(); });
        ask("default miss", [] { return mlx5dv_dr_action_create_default_miss(); });
        ask("pop VLAN", [] { return mlx5dv_dr_action_create_pop_vlan(); });
        ask("queue", [&] { return mlx5dv_dr_action_create_dest_ibv_qp(session_.queue.get()); });
    }

    /// Counters and receivers are told by the DEVX object's type.
    void ask_of_objects() {
        for (const std::uint32_t offset : offsets) {
            ask("counter at " + std::to_string(offset),
                [&] { return mlx5dv_dr_action_create_flow_counter(session_.counter.get(), offset); });
        }
        struct Object {
            const char* name;
            mlx5dv_devx_obj* object;
        };
        for (const Object& one : {Object{"first hit", session_.first_hit.get()},
                                  {"meter", session_.flow_meter.get()},
                                  {"connections", session_.connections.get()},
                                  {"counter", session_.counter.get()}}) {
            answers_.ask(prefix_ + "counter of the object " + one.name, 1, [&] {
                if (one.object == nullptr) return std::string("no object");
                return outcome(Action(mlx5dv_dr_action_create_flow_counter(one.object, 0)).get());
            });
            answers_.ask(prefix_ + "TIR of the object " + one.name, 1, [&] {
                if (one.object == nullptr) return std::string("no object");
                return outcome(Action(mlx5dv_dr_action_create_dest_devx_tir(one.object)).get());
            });
        }
    }

    void ask_tables() {
        for (const std::uint32_t level : levels) {
            const std::string at = "a table at level " + std::to_string(level);
            answers_.ask(prefix_ + at, 1, [&] { return with_table(level, [](Table&) { return std::string("ok"); }); });
            answers_.ask(prefix_ + "to " + at, 1, [&] {
                return with_table(level, [](Table& table) {
                    return outcome(Action(mlx5dv_dr_action_create_dest_table(table.get())).get());
                });
            });
            for (const std::uint16_t priority : {0, 1, 100}) {
                answers_.ask(prefix_ + "to " + at + " as root, priority " + std::to_string(priority), 1, [&] {
                    return with_table(level, [&](Table& table) {
                        return outcome(Action(mlx5dv_dr_action_create_dest_root_table(table.get(), priority)).get());
                    });
                });
            }
        }
    }

private:
    template <typename Create>
    void ask(const std::string& name, Create create) {
        answers_.ask(prefix_ + name, 1, [&] { return outcome(Action(create()).get()); });
    }

    template <typename Then>
    [[nodiscard]] std::string with_table(std::uint32_t level, Then then) {
        Table table(mlx5dv_dr_table_create(domain_.get(), level));
        if (table == nullptr) return "table " + outcome(nullptr);
        errno = 0;
        return then(table);
    }

    void ask_reformat(unsigned type, std::uint32_t flags, std::size_t size, bool data) {
        const std::string name = "reformat " + std::to_string(type) + ", flags " + std::to_string(flags) + ", " +
                                 std::to_string(size) + " bytes" + (data ? "" : " at NULL");
        ask(name, [&] {
            std::vector<std::uint8_t> headers(512);
            constexpr std::uint8_t begin[] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45};
            std::copy(std::begin(begin), std::end(begin), headers.begin());
            std::uint32_t number = type;
            mlx5dv_flow_action_packet_reformat_type kind;
            static_assert(sizeof kind == sizeof number);
            std::memcpy(&kind, &number, sizeof kind);
            return mlx5dv_dr_action_create_packet_reformat(domain_.get(), flags, kind, size,
                                                           data ? headers.data() : nullptr);
        });
    }

    const Session& session_;
    Answers& answers_;
    Domain domain_;
    std::string prefix_;
};

}  // namespace

void ask_actions(const Session& session, Answers& answers) {
    for (const mlx5dv_dr_domain_type type : domain_types) {
        Actions actions(session, answers, type);
        actions.ask_reformats();
        actions.ask_plain();
        actions.ask_of_objects();
        actions.ask_tables();
    }
}

}  // namespace ovsdr::oracle
