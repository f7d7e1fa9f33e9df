// What all judges are asked: megaflows that come, change and go, and the packets in between.
//
// The model. A version is a megaflow that is put at some time; the versions of one megaflow have its ufid, and differ
// in actions. A phase puts and deletes some, and then packets come. Tables of recirculations have a layer: megaflows
// lead from one layer to the next, but for those of knotted tables. Each layer has one of these.
//
// A packet takes what the megaflows on its way look at from their patterns and everything else from chance; then, for
// many of them, one thing is changed: a bit that a megaflow looks at, the port, the tags, the protocol, a fragment, a
// flag that ends a connection, a header that is cut short, a length or version that is not true, an LLC header. The
// last four bytes of each frame are its number.
//
// Beside modifications that are drawn without looking, each phase has some of megaflows in the NIC whose new version
// has a match or an action that is short there (shortage.hpp).
//
// In some phases one port has a policer, which is in software: nothing from there is in the NIC. In some the storage
// mirror wants copies of some services alone: of those that most of what OVS gives it is from or to.
//
// In the last phase all megaflows come anew, and packets have headers that are not true, where only a card can tell
// what its parser makes of them (named_differences.hpp).
//
// Threads: pure; one draw, one scenario. Errors: std::runtime_error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/differential/judge/megaflows.hpp"
#include "tests/differential/judge/named_differences.hpp"
#include "tests/differential/judge/recipe.hpp"

namespace ovsdr::differential {

struct Draw {
    std::uint64_t seed = 1;
    std::size_t megaflows = 2000, packets = 200000;
    std::string shapes;   ///< a file of what dpctl/dump-flows printed
    std::string wanted;   ///< wanted.csv, or empty: nothing is drawn because too little of it is in the NIC
    bool connectx_5 = false;   ///< what a ConnectX-5 cannot do is drawn less, and what it can more
};

struct TestPacket {
    std::uint32_t in_port;   ///< datapath port number
    std::vector<std::uint8_t> bytes;
    TunnelLie lie = TunnelLie::none;   ///< if it is one, only OVS and the soft NIC are asked
};

struct Change {
    std::uint32_t version;
    bool put;   ///< or deleted
};

/// A port of TCP or UDP of whose packets a storage mirror wants copies.
struct Service {
    std::uint8_t protocol;
    std::uint16_t port;

    /// Whether a packet is from or to any of them. Nothing where each device reads the headers in its own way.
    [[nodiscard]] static std::optional<bool> is_any(const std::vector<Service>& services,
                                                    const std::vector<std::uint8_t>& frame);
    friend auto operator<=>(const Service&, const Service&) = default;
};

struct Phase {
    std::vector<Change> changes;
    std::vector<MeterChange> meters;
    /// Its packets begin where those of the phase before end. The first ones are the priming of meters (meters.hpp):
    /// one for each exhausted meter, then the others.
    std::size_t filling_end = 0, priming_end = 0, packets_end = 0;
    bool counts = true;            ///< or its packets are such that only a card can tell what counts them
    std::uint32_t policed = 0;     ///< odp port whose packets a NIC leaves to software; 0: none
    std::vector<Service> services{};   ///< of the copies for the mirror a NIC drops all others; none: it drops none
};

/// Behind a recirculation.
struct TableOfLayer {
    unsigned layer = 1;
    /// Its megaflows may lead to knotted tables of any layer: back, around, and further than one layer.
    bool knotted = false;
};

struct Scenario {
    /// The first ones lead markers from each port to the next, and stay. Behind them are those that priming meets, one
    /// for each meter: they change nothing but that they go in the last phase and come again.
    std::vector<Megaflow> versions;
    /// Whether the megaflow is of the latter.
    [[nodiscard]] static bool is_of_priming(std::uint32_t ufid) {
        return ufid >= port_length && ufid < port_length + meters_end - 1;
    }
    std::uint32_t ufids = 0;
    std::map<std::uint32_t, TableOfLayer> tables;   ///< by recirc_id
    std::vector<TestPacket> packets;
    std::vector<Phase> phases;
    std::size_t steered = 0;   ///< versions that were drawn because a name was short
    Excused left_out;   ///< packets that were drawn and are not among `packets`
};

/// With the packets in the file `packets`, if that is not empty: to draw them takes long. They are those of the draw.
[[nodiscard]] Scenario make_scenario(const Draw& draw, const std::string& packets = {});
void write_packets(const Scenario& scenario, const std::string& path);

}  // namespace ovsdr::differential
