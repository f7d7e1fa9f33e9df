// The firmware as DEVX commands show it: capabilities, vports, and objects by id (flow tables, counters, TIRs, …).
//
// Words. A kind is a class of objects that share one space of ids. An object remembers its creating command as it came.
// Objects that others use (a table that an entry leads to, a counter that a rule counts on) cannot be destroyed:
// firmware says BAD_RES_STATE.
//
// What it does not do. It does not judge what software puts into objects, beyond what must exist: sizes of reformats,
// say, are for a real card to refuse. Commands throw BadStatus, NotEmulated, InputTooShort, OutputTooShort. Threads:
// the device's lock. Source: PRM, "Command Reference".
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/connectx/device.hpp"
#include "tests/connectx/host_memory.hpp"
#include "tests/connectx/id_space.hpp"
#include "tests/connectx/profile.hpp"
#include "tests/connectx/send_queue.hpp"
#include "tests/connectx/vports.hpp"

namespace ovsdr::connectx {

enum class ObjectKind : std::uint8_t {
    flow_table,
    flow_group,
    flow_entry,
    counter,
    reformat,
    tir,
    queue_pair,
    sampler,
    flow_meter,
    aso_flow_meter,
    aso_first_hit,
    aso_connection,
    match_definer,
    modify_argument,
    geneve_option,
    completion_queue,
    send_queue,
};
inline constexpr std::size_t object_kinds = 17;

struct ObjectName {
    ObjectKind kind;
    std::uint32_t id;
};

struct FirmwareObject {
    ObjectName name;
    std::string_view label;   ///< of the creating command: `CREATE_FLOW_TABLE`, `CREATE_GENERAL_OBJECT:FLOW_SAMPLER`
    std::uint16_t opcode, general_type;
    std::uint32_t id_length;
    std::vector<std::uint8_t> command;
    std::vector<ObjectName> uses;   ///< what must stay while this stays
    unsigned users = 0;

    // A queue pair's, and a send or completion queue's:
    std::unique_ptr<SendQueue> send_queue;
    std::shared_ptr<CompletionQueue> completions;
    // Counters', and modify-header arguments' and ASO objects', by id - name.id:
    std::map<std::uint32_t, Count> counts;
    std::map<std::uint32_t, std::array<std::uint8_t, 64>> images;
};

using Bytes = std::span<const std::uint8_t>;
using WritableBytes = std::span<std::uint8_t>;

class Firmware {
public:
    Firmware(const Profile& profile, const HostMemory& host);

    /// `CREATE_FLOW_TABLE`, `QUERY_HCA_CAP`, `CREATE_GENERAL_OBJECT:FLOW_SAMPLER`, …; a number if it is not known.
    [[nodiscard]] static std::string name_of(Bytes command);
    [[nodiscard]] static bool is_name(std::string_view name);
    /// A command on no object that the kernel lets a process send. Such as change a vport are not among them.
    [[nodiscard]] static bool is_open_to_all(Bytes command);
    /// The object's own id stands where the command names it; true of commands that are not known here.
    [[nodiscard]] static bool is_named(const FirmwareObject& object, Bytes command);

    /// A command on no object.
    void general(Bytes in, WritableBytes out);
    [[nodiscard]] FirmwareObject& create(Bytes in, WritableBytes out);
    void query(const FirmwareObject& object, Bytes in, WritableBytes out);
    void modify(FirmwareObject& object, Bytes in);
    void destroy(ObjectName name);

    /// The object that has this id, or has it in its range. Null if there is none.
    [[nodiscard]] FirmwareObject* find(ObjectName name);
    [[nodiscard]] const std::map<std::uint32_t, std::unique_ptr<FirmwareObject>>& all(ObjectKind kind) const;
    /// The kernel uses an object too, for rules of root tables.
    void hold(ObjectName name) { ++existing(name).users; }
    void release(ObjectName name) { --existing(name).users; }
    /// Numbers for what the kernel makes: queue pairs, TIRs.
    [[nodiscard]] IdSpace& numbers(ObjectKind kind) { return kinds_[static_cast<std::size_t>(kind)].ids; }
    /// The table that the kernel has for the rules of a type and a priority, for a steering anchor. All anchors of both
    /// share it; each returns it.
    [[nodiscard]] ObjectName take_kernel_table(TableType type, std::uint16_t priority);
    void return_kernel_table(ObjectName table);

    /// The two meters of an ASO object; null if there is none, or queues of this protection domain may not write it.
    [[nodiscard]] std::uint8_t* aso_meters(std::uint32_t id, std::uint32_t protection_domain);
    /// Its parameters, or null.
    [[nodiscard]] std::uint8_t* meter(MeterName name);

    [[nodiscard]] Vports& vports() { return vports_; }
    [[nodiscard]] const Vports& vports() const { return vports_; }

private:
    struct Kind {
        IdSpace ids;
        std::map<std::uint32_t, std::unique_ptr<FirmwareObject>> objects;
    };
    /// Throws BadStatus.
    [[nodiscard]] FirmwareObject& existing(ObjectName name);
    /// A priority of a table's type, and the table that the kernel made for it.
    struct KernelTable {
        TableType type;
        std::uint16_t priority;
        ObjectName name;
        unsigned anchors;
    };
    /// What the device claims in a field of its general capabilities.
    [[nodiscard]] std::uint64_t claimed(Field field) const;
    void query_hca_cap(Bytes in, WritableBytes out) const;
    void query_counters(const FirmwareObject& object, Bytes in, WritableBytes out) const;
    void modify_meter(FirmwareObject& object, Bytes in);
    void query_table(const FirmwareObject& object, WritableBytes out) const;
    void complete_geneve_option(const FirmwareObject& object) const;
    void complete(FirmwareObject& object, WritableBytes out);
    void complete_entry(FirmwareObject& object);
    void use_destination(FirmwareObject& entry, const Destination& destination);
    void complete_queue_pair(FirmwareObject& object);
    void complete_completion_queue(FirmwareObject& object) const;
    void complete_send_queue(FirmwareObject& object);
    static void modify_send_queue(FirmwareObject& object, Bytes in);
    void use(FirmwareObject& user, ObjectName used);

    const Profile& profile_;
    const HostMemory& host_;
    Vports vports_;
    std::vector<Kind> kinds_;
    std::vector<KernelTable> kernel_tables_;
};

/// Answers to device.hpp's questions.
[[nodiscard]] Table table_of(const FirmwareObject& object);
[[nodiscard]] TableEntry entry_of(const FirmwareObject& object);
[[nodiscard]] Reformat reformat_of(const FirmwareObject& object);

}   // namespace ovsdr::connectx
