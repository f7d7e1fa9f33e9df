// What a test asks of the emulated ConnectX that it runs on.
//
// The model. tests/connectx/run preloads a library under the real libibverbs and libmlx5. It plays the kernel's uverbs
// device and the firmware behind it, and remembers what it was told: device memory (ICM) that libmlx5 wrote by RDMA,
// objects made by DEVX commands, and the rules of root tables, which libmlx5 leaves to the kernel. A program under the
// launcher finds this interface with device(); the library makes no sense of steering entries (tests/connectx/entries
// does).
//
// Words. An id is the firmware's number of an object (table, counter, TIR, …), as it stands in commands and steering
// entries. A handle is the kernel's number of an object, as it stands in ioctl calls. Ids of different kinds of objects
// overlap. ICM addresses are device addresses, not pointers.
//
// Life cycle. The device lives as long as the process. All answers are copies of the state at the time of the call,
// except icm(). When the process closes the device, the kernel's part destroys what was left; left_behind() remembers
// how much. Doorbells are synchronous: when a store to the doorbell has retired, all requests up to it have been
// carried out.
//
// Threads: any function from any thread, at any time, not from signal handlers.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ovsdr::connectx {

/// The firmware's numbers of flow table types.
enum class TableType : std::uint8_t { nic_rx = 0, nic_tx = 1, fdb = 4, rdma_rx = 7, rdma_tx = 8 };

/// A flow table that the firmware knows: libmlx5 makes one for each table above level 0 (`sw_owner`: the entries are in
/// ICM, written by libmlx5), and firmware-owned ones of a single entry for destination arrays and samplers. libmlx5
/// tells the firmware its own level: 63 for all of its tables, whatever level the application asked for.
struct Table {
    std::uint32_t id;
    TableType type;
    std::uint8_t level;
    bool sw_owner, termination, reformat_enabled;
    /// Where packets enter: [0] NIC_RX, NIC_TX, or FDB from the wire; [1] FDB from the vports. As given for sw_owner
    /// tables, chosen by the device for others.
    std::array<std::uint64_t, 2> icm;
};

struct Destination {
    std::uint8_t type;                          ///< 0 vport, 1 flow table, 2 TIR
    std::uint32_t id;                           ///< vport number, table id, TIR number
    std::optional<std::uint32_t> reformat_id;   ///< a packet reformat context, done on this copy only
};

/// SET_FLOW_TABLE_ENTRY on a firmware-owned table. Such tables have one group that matches everything.
struct TableEntry {
    std::uint32_t table_id, group_id, flow_index;
    std::uint16_t action;   ///< 4 forward, 8 count
    std::uint32_t flow_tag;
    std::vector<Destination> destinations;
    std::vector<std::uint32_t> counters;   ///< counter ids
};

/// A matcher of a root table (level 0), which the kernel holds. Lower priorities come first.
struct RootMatcher {
    std::uint32_t handle;
    TableType type;
    std::uint16_t priority;
    std::uint8_t criteria;            ///< bits of MLX5DV_DR_MATCHER criteria: 1 outer, 2 misc, 4 inner, 8 misc2, …
    std::vector<std::uint8_t> mask;   ///< struct fte_match_param, big endian, as given; may be short
};

/// A rule of a root table.
struct RootRule {
    std::uint32_t handle;
    std::uint32_t matcher;                     ///< handle of its RootMatcher
    std::uint64_t order;                       ///< of creation, in the life of the process
    std::vector<std::uint8_t> value;           ///< as given; may be short
    std::optional<std::uint32_t> table;        ///< id: go to this flow table
    std::optional<std::uint32_t> tir;          ///< number of a TIR made by DEVX
    std::optional<std::uint32_t> queue_pair;   ///< number of a queue pair made by verbs
    bool drop, default_miss;
    std::optional<std::uint32_t> tag;
    std::vector<std::uint32_t> counters;   ///< counter ids, with their offset in the bulk added
    std::vector<std::uint32_t> actions;    ///< handles of RootActions, as ordered in the call
};

/// A modify-header list or a packet reformat made through the kernel, for root rules.
struct RootAction {
    enum class Kind : std::uint8_t { modify_header, reformat };
    std::uint32_t handle;
    Kind kind;
    TableType type;
    std::uint8_t reformat_type;   ///< MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_*; 0 for modify_header
    std::vector<std::uint8_t>
        data;   ///< set/add/copy_action_in, 8 bytes each, or the header; empty for a decapsulation
};

/// An object made by a DEVX command: `command` is the whole creating command, `opcode` its first two bytes.
struct DevxObject {
    std::uint32_t id;
    std::uint16_t opcode;
    std::uint16_t general_type;   ///< obj_type of CREATE_GENERAL_OBJECT (0xa00), otherwise 0
    std::uint32_t
        id_length;   ///< ids that it covers, from `id` on: a counter's bulk, ASO objects, modify-header arguments
    std::vector<std::uint8_t> command;
};

/// ALLOC_PACKET_REFORMAT_CONTEXT: what steering entries name by id to insert or remove a header.
struct Reformat {
    std::uint8_t
        type;   ///< enum reformat_type of the PRM: 0 L2 to VXLAN, 2 L2 to L2 tunnel, 3 L3 tunnel to L2, 4 L2 to L3
    std::vector<std::uint8_t> data;
};

/// What stands behind an ICM address where steering ends or leaves software's entries.
struct AddressOwner {
    enum class Kind : std::uint8_t {
        nothing,   ///< no such address
        entries,   ///< steering entries or modify-header lists in allocated ICM
        drop,
        nic_tx_allow,   ///< NIC_TX is done: on to the FDB
        vport_rx,       ///< `number` is a vport; 0xFFFF is the wire. Reached from FDB entries of the RX side
        vport_tx,       ///< the same, from FDB entries of the TX side
        tir,            ///< TIR number
        queue_pair,     ///< number of a queue pair made by verbs: its own TIR
        table,          ///< id of a firmware-owned table; `side` as in Table::icm
        sampler,        ///< general object id; `side` 0 RX, 1 TX
        flow_meter,     ///< the same
    };
    Kind kind = Kind::nothing;
    std::uint32_t number = 0;
    std::uint8_t side = 0;
};

/// A vport as the device shows it. Its vhca id is the gvmi of steering entries.
struct Vport {
    std::uint16_t number;   ///< 0 the manager, 1… VFs, 0xFFFF the wire
    std::uint16_t vhca_id;
    std::uint32_t register_value, register_mask;   ///< of reg_c_0, for packets that enter here
};

/// What the kernel and the vport's owner set of a vport.
struct VportSettings {
    bool up = true;
    std::uint16_t mtu = 1500;
    std::uint64_t mac = 0;
    friend bool operator==(const VportSettings&, const VportSettings&) = default;
};

/// A flow meter: a legacy one, or one of the two of an ASO object.
struct MeterName {
    bool aso;
    std::uint32_t id;   ///< of the object
    bool is_second;     ///< of an ASO object's
};
/// flow_meter_parameters of the PRM: what the meter was told, its tokens and when they were counted last.
inline constexpr std::size_t meter_parameters_size = 32;
using MeterParameters = std::array<std::uint8_t, meter_parameters_size>;

struct Count {
    std::uint64_t packets = 0, bytes = 0;
};

class Device {
public:
    /// 0, 1, 2: ConnectX-5, ConnectX-6 Dx, ConnectX-7, as steering_format_version.
    [[nodiscard]] virtual unsigned steering_format() const = 0;

    /// `size` bytes of device memory, or null if they are not all allocated. Valid until libmlx5 frees the memory.
    [[nodiscard]] virtual const std::uint8_t* icm(std::uint64_t address, std::size_t size) const = 0;
    [[nodiscard]] virtual AddressOwner owner_of(std::uint64_t address) const = 0;
    /// Where steering entries count modify-header lists (in 64-byte units) and patterns from.
    [[nodiscard]] virtual std::uint64_t modify_header_base() const = 0;
    [[nodiscard]] virtual std::uint64_t modify_pattern_base() const = 0;
    /// The 64 bytes of a modify-header argument; nothing when no live argument object has this id.
    [[nodiscard]] virtual std::optional<std::array<std::uint8_t, 64>> argument(std::uint32_t id) const = 0;

    /// A meter's parameters; who makes packets meet it writes its tokens back. Nothing, or false: there is none.
    [[nodiscard]] virtual std::optional<MeterParameters> meter(MeterName name) const = 0;
    virtual bool set_meter(MeterName name, const MeterParameters& parameters) = 0;

    [[nodiscard]] virtual std::vector<Table> tables() const = 0;
    [[nodiscard]] virtual std::vector<TableEntry> table_entries() const = 0;
    [[nodiscard]] virtual std::vector<RootMatcher> root_matchers() const = 0;
    [[nodiscard]] virtual std::vector<RootRule> root_rules() const = 0;
    [[nodiscard]] virtual std::vector<RootAction> root_actions() const = 0;
    /// How often a root rule was made while another one of its match and priority was there. They are one entry to the
    /// kernel: for as long as both are there, each packet goes to the destinations of both.
    [[nodiscard]] virtual std::uint64_t shared_root_entries() const = 0;
    [[nodiscard]] virtual std::vector<DevxObject> devx_objects() const = 0;
    [[nodiscard]] virtual std::optional<Reformat> reformat(std::uint32_t id) const = 0;
    [[nodiscard]] virtual std::vector<Vport> vports() const = 0;

    /// A flow counter's value. Counting on an id that is no live counter returns false.
    virtual bool count(std::uint32_t counter, Count more) = 0;
    [[nodiscard]] virtual std::optional<Count> counted(std::uint32_t counter) const = 0;

    /// The calls seen so far, by name: `QP_CREATE`, `DEVX_OBJ_CREATE:CREATE_FLOW_TABLE`, … (the log has the same
    /// names). Work requests count as calls `REQUEST:RDMA_WRITE`, …
    [[nodiscard]] virtual std::map<std::string, std::uint64_t> calls() const = 0;
    /// What was asked for and is not emulated, by name. Each failed with an errno.
    [[nodiscard]] virtual std::vector<std::string> not_emulated() const = 0;
    /// Makes the `nth` call of this name from now on (1 is the next) fail with `error`; a DEVX command fails as the
    /// kernel reports a firmware's refusal if `error` is EREMOTEIO. `*` is any call that makes something. A work
    /// request (`REQUEST:RDMA_WRITE`, …) completes with an error, and its queue pair is in error from then on.
    /// `times`: so many calls fail, that one and those that follow. False: no such name.
    virtual bool fail(std::string_view call, std::uint64_t nth, int error, std::uint64_t times = 1) = 0;
    /// Forgets faults that have not happened. The number that were still waiting.
    virtual std::size_t clear_faults() = 0;

    /// Objects alive in the kernel and the firmware, by kind: `PD`, `CQ`, `DEVX:CREATE_FLOW_TABLE`, …
    [[nodiscard]] virtual std::map<std::string, std::uint64_t> alive() const = 0;
    [[nodiscard]] virtual std::uint64_t icm_bytes_alive() const = 0;
    /// Objects that closing a context destroyed because the process had not, since the process began, by kind.
    [[nodiscard]] virtual std::map<std::string, std::uint64_t> left_behind() const = 0;

    /// Work requests carried out, bytes written to ICM, and frames sent on raw packet queues (they go nowhere).
    [[nodiscard]] virtual std::uint64_t work_requests() const = 0;
    [[nodiscard]] virtual std::uint64_t icm_bytes_written() const = 0;
    [[nodiscard]] virtual std::uint64_t frames_sent() const = 0;

    /// Makes a VF's vport come or go: while gone, queries of it fail as firmware refuses them. Who subscribed to
    /// NIC_VPORT_CHANGE is told.
    virtual void set_vport(std::uint16_t number, bool present) = 0;
    /// As the kernel's tools set it. Nobody is told: Linux has firmware tell of addresses only.
    virtual void configure_vport(std::uint16_t number, VportSettings settings) = 0;
    [[nodiscard]] virtual VportSettings vport_settings(std::uint16_t number) const = 0;

protected:
    ~Device() = default;
};

/// The emulated device, or null when the process does not run under tests/connectx/run.
[[nodiscard]] inline Device* device() noexcept {
    using Find = Device*();
    auto* find = reinterpret_cast<Find*>(dlsym(RTLD_DEFAULT, "ovsdr_connectx_device"));
    return find == nullptr ? nullptr : find();
}

/// Whether the device was started with event capabilities (tests/connectx/run --events).
[[nodiscard]] inline bool has_event_cap() noexcept {
    const char* events = std::getenv("OVSDR_CONNECTX_EVENTS");
    return events == nullptr || std::string_view(events) != "0";
}

}   // namespace ovsdr::connectx
