// A second eSwitch, apart from the engine: lists of rules tried one after another, one packet at a time, checksums
// computed from scratch. Tables 1.. of the FDB, which packets of every vport enter at table 1.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "naive_fields.hpp"

namespace ovsdr::soft::test {

struct NaiveEdit {
    enum class What { dmac_15_0, ttl, ttl_add, dscp, ipv4_source, udp_dport, tcp_sport, first_vid, reg_c_1 } what;
    std::uint32_t value;
};

/// What an object that remembers says of a packet goes into the low byte of a register.
struct NaiveState {
    enum class What { meter, first_hit, connection } what;
    unsigned number;     ///< of the object
    std::uint32_t flags;
    unsigned reg_c;
};

struct NaiveEnd {
    enum class Kind { miss, drop, vport, table } kind = Kind::miss;
    unsigned number = 0;
};

struct NaiveProgram {
    std::optional<unsigned> counter;
    bool decapsulates = false;  ///< an Ethernet frame out of its tunnel
    unsigned pops = 0;
    std::vector<NaiveEdit> edits;
    std::vector<NaiveState> states;  ///< a meter before a connection
    std::vector<std::uint32_t> pushes;
    Bytes encapsulation;           ///< headers with lengths and checksums left to the device; empty = none
    std::vector<NaiveEnd> ends;  ///< more than one: an array
};

struct NaiveRule {
    unsigned id;
    Parameters value;
    NaiveProgram program;
};

struct NaiveMatcher {
    unsigned id;
    unsigned table;
    unsigned priority;
    Parameters mask;
    std::vector<NaiveRule> rules;  ///< oldest first
};

class NaivePipeline {
public:
    std::vector<NaiveMatcher> matchers;  ///< oldest first
    NaiveParser parser;
    /// Asks an object of a packet, whose register's low byte is given.
    std::function<std::uint8_t(const NaiveState&, std::uint8_t, const Bytes&)> ask;

    struct Count {
        std::uint64_t packets, bytes;
    };
    std::map<unsigned, Count> counters;
    std::map<unsigned, std::vector<Bytes>> delivered;  ///< by vport; 0 = the manager
    std::uint64_t dropped = 0;
    std::uint64_t malformed = 0;

    void receive(unsigned vport, const Bytes& frame);

private:
    struct Packet {
        Bytes frame;
        unsigned source;
        std::array<std::uint32_t, 6> reg_c{};
    };

    void follow(Packet packet, unsigned table);
    void ask_all(const NaiveProgram& program, bool first_hits, Packet& packet) const;
    void leave(const Packet& packet, const NaiveEnd& end);
    [[nodiscard]] const NaiveRule* find(const Packet& packet, unsigned table) const;
};

}  // namespace ovsdr::soft::test
