// What a rule does, compiled when the rule is created; and what a whole traversal does, composed from that.
//
// A rule has a few Ops in the order the hardware works in (decapsulate, pop, count, edit, push, encapsulate; counted
// first where rule_compile.cpp says so), whatever order the application listed its actions in, and one End: where the
// packet goes next. A Trace is a flat list of Ops only: the flow cache keeps one per line and runs it on every packet
// that meets the line. Where the way depends on what a meter, a first hit or a tracked connection says of the packet,
// the trace has the ops of each outcome one behind the other (OpCode::outcome).
//
// Lifetime: Ops point into objects that the rule's actions keep alive while there is the rule, and the rule's end for a
// grace period more.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "datapath/steering/counter.hpp"
#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

class EditList;
class Reformat;
class TableView;
struct ArrayProgram;

enum class OpCode : std::uint8_t {
    count,      ///< object: CounterBulk, value: index
    edit,       ///< object: EditList
    push_vlan,  ///< value: ethertype << 16 | TCI
    pop_vlan,
    reformat,   ///< object: Reformat
    tag,        ///< value: 24 bits
    output,     ///< destination; the packet is given away
    copy_out,   ///< destination; a reference is given away and the packet goes on
    drop,       ///< value: DropReason
    fork,       ///< the next `value` ops run on a reference of their own, which they give away
    sample,     ///< object: SamplerProgram; as fork, but for one packet in SamplerProgram::ratio
    first_hit,  ///< object: AsoBulk, value: bit, argument: register << 8 | set
    meter,      ///< object: Meter, argument: register << 8 | colour that packets come in with; in traces, value: the
                ///< byte in the register, where that may be the colour
    flow_meter, ///< object: FlowMeter (a legacy meter: its colour, its register); value as for `meter`
    connection, ///< object: ConnTrack, argument: register << 8 | direction
    outcome,    ///< right behind an op of state: the next `value` ops are for packets whose outcome is one of the set
                ///< `argument` (stateful.hpp), which they give away; the others go on behind them
};

enum class DropReason : std::uint8_t { by_rule, no_vport, nic_rx_miss, malformed, no_buffer, loop };
inline constexpr unsigned drop_reasons = 6;

/// Which packets a rule of the FDB exists for: those from the wire, those from vports. NIC domains use both bits.
inline constexpr std::uint8_t side_wire = 1, side_vports = 2, side_both = 3;

struct Op {
    OpCode code;
    std::uint8_t sides = side_both;  ///< a walk takes only the ops of its packet's side into the trace
    union {
        std::uint16_t destination = 0;  ///< index into the Steering's destinations
        std::uint16_t argument;
    };
    std::uint32_t value = 0;
    const void* object = nullptr;
};
static_assert(sizeof(Op) == 16);

enum class EndKind : std::uint8_t { miss, drop, table, root_table, vport, destination, array };

struct End {
    EndKind kind = EndKind::miss;
    union {
        VportId vport{0};
        std::uint16_t destination;
    };
    std::uint32_t rank = 0;                ///< root_table: go on at matchers of this rank or later
    union {
        const TableView* table = nullptr;
        const ArrayProgram* array;
    };
};
static_assert(sizeof(End) == 16);

/// A dest_array: counters bump first, then each branch gets the packet.
struct ArrayProgram {
    struct Branch {
        End end;
        const Reformat* reformat = nullptr;  ///< done to this branch's packet before it leaves
    };

    std::vector<Op> counts;
    std::vector<Branch> branches;
    std::vector<std::shared_ptr<const void>> kept;
};

/// Who samples: one packet in `ratio` (all, if it is 1) goes to the branches as well.
struct SamplerProgram {
    std::uint32_t ratio;
    bool tags = false;
    std::uint32_t tag = 0;
    ArrayProgram array;
};

/// tag, counter (before or after, by side), edit, two pops, two pushes, decapsulation and encapsulation, first hit,
/// meter and connection by side, sample and its edit
inline constexpr unsigned max_rule_ops = 20;

}  // namespace ovsdr::soft
