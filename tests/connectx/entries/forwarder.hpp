// Packets through the emulated ConnectX's eSwitch: from the wire, a vport or a send queue to where they come out.
//
// The model. FDB root (the kernel's rules) → tables of steering entries → a vport, nowhere, or a destination array,
// which copies, or a sampler, which copies each ratio-th packet that it meets, or a legacy meter, which colours and
// leads on to its table. What reaches the manager's vport goes to
// the NIC_RX root of our function, and by its rules to a queue pair. A packet that no rule of ours takes in a root
// table is the kernel's.
//
// Registers. A packet comes in with its source port's value in reg_c_0. Into NIC_RX go reg_c_1, the source port's bits
// of reg_c_0 as the kernel sets them, and the other bits of reg_c_0 as they were; the other registers do not.
//
// Counters of entries and root rules count in the device, so that who asks libmlx5's user for statistics gets them.
//
// Life cycle. Tables, arrays, root rules, definers and the Geneve option are read when a Forwarder is made: make it
// when the rules are there, and again when they change. Entries are read in place.
//
// Threads: one forwarder, one thread. Errors: Stopped.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/connectx/device.hpp"
#include "tests/connectx/entries/root_rules.hpp"
#include "tests/connectx/entries/walker.hpp"

namespace ovsdr::connectx::entries {

inline constexpr std::uint16_t wire_vport = 0xFFFF, manager_vport = 0;

/// One copy of a packet, and where it came out.
struct Delivery {
    enum class Kind : std::uint8_t { vport, queue_pair, tir, dropped, kernel };
    Kind kind;
    std::uint32_t number;   ///< vport, queue pair or TIR; 0 otherwise
    Packet packet;
};

class Forwarder {
public:
    explicit Forwarder(Device& device);

    using Frame = std::span<const std::uint8_t>;
    /// From the wire (vport 0xFFFF) or from what is behind a vport, where `queue` is a number of that function's own:
    /// queues of two functions may have one number. Copies in the order of their destinations.
    [[nodiscard]] std::vector<Delivery> from_port(std::uint16_t vport, Frame frame, std::uint32_t queue = 0);
    /// From a send queue of the manager's function.
    [[nodiscard]] std::vector<Delivery> from_queue(std::uint32_t queue, Frame frame);

    void trace(std::string* lines) noexcept { walker_.trace(lines); }
    [[nodiscard]] std::uint64_t entries_visited() const noexcept { return walker_.entries_visited(); }

private:
    [[nodiscard]] std::vector<Delivery> forward(std::uint16_t source, std::uint32_t queue, Frame frame);
    void apply(const std::vector<const RootRule*>& rules, const Packet& packet, const Vport& source);
    void go_to_table(std::uint32_t id, Packet packet, const Vport& source);
    void go_to_address(std::uint64_t address, TableType type, Packet packet, const Vport& source);
    void go_to_vport(std::uint32_t vport, Packet packet, const Vport& source);
    void sample(std::uint32_t id, const Packet& packet, const Vport& source);
    void police(std::uint32_t id, Packet packet, const Vport& source);
    [[nodiscard]] std::optional<Colour> meter(MeterName name, std::size_t size);
    void copy_to_all(const Table& table, const Packet& packet, const Vport& source);
    void count(std::uint32_t counter, std::size_t bytes);
    void deliver(Delivery::Kind kind, std::uint32_t number, Packet packet);
    [[nodiscard]] const Vport& vport(std::uint32_t number) const;

    Device& device_;
    std::map<std::uint32_t, Definer> definers_;   ///< by id
    Walker walker_;
    RootTable fdb_, nic_rx_;
    std::map<std::uint32_t, Table> tables_;                     ///< by id
    std::map<std::uint32_t, std::vector<TableEntry>> arrays_;   ///< by table
    struct Sampler {
        std::uint32_t ratio, sample_table, next_table;
        std::uint32_t met = 0;
    };
    std::map<std::uint32_t, Sampler> samplers_;                 ///< by id
    struct Policer {
        std::uint32_t colour_register, next_table;
    };
    std::map<std::uint32_t, Policer> policers_;                 ///< legacy meters, by id
    std::map<std::uint32_t, Vport> vports_;
    std::vector<Delivery> delivered_;   ///< of the packet under way
    unsigned depth_ = 0;                ///< tables within arrays
};

}  // namespace ovsdr::connectx::entries
