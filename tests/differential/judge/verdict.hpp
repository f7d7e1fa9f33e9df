// What a judge says became of each packet and each megaflow; as a file.
//
// The model. A copy is a port and the bytes that came out there at last, whoever sent it: the NIC, or OVS's software,
// which went on with what came up. Copies of one packet have no order (devices promise none); the packets that the NIC
// put out at a port do, and are written down as they came. A packet that no megaflow takes ends as a copy, too: for an
// upcall.
//
// Threads: one. Errors: std::runtime_error for files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/differential/judge/ovs_judge.hpp"

namespace ovsdr::differential {

struct Copy {
    static constexpr std::uint32_t upcall = UINT32_MAX;
    std::uint32_t port = 0;               ///< datapath port number, or an upcall
    TableId table{};                      ///< of an upcall
    bool in_software = false;
    std::uint32_t source_port_at = 0;     ///< where OVS has chosen a tunnel's UDP source port
    std::vector<std::uint8_t> bytes;

    friend auto operator<=>(const Copy&, const Copy&) = default;
};

/// What a NIC led to its port's slow-path queue.
struct Up {
    TableId table{};   ///< that the queue was told
    std::vector<std::uint8_t> bytes;

    friend auto operator<=>(const Up&, const Up&) = default;
};

/// OVS looked a packet up.
struct Lookup {
    TableId table;
    std::int32_t version;   ///< that took it; -1: none

    friend auto operator<=>(const Lookup&, const Lookup&) = default;
};

struct Counts {
    std::uint64_t packets = 0, bytes = 0;                    ///< the NIC's
    std::uint64_t software_packets = 0, software_bytes = 0;

    Counts& operator+=(const Counts& more) {
        packets += more.packets;
        bytes += more.bytes;
        software_packets += more.software_packets;
        software_bytes += more.software_bytes;
        return *this;
    }
    friend bool operator==(const Counts&, const Counts&) = default;
};

struct Verdict {
    std::vector<std::vector<Copy>> copies;   ///< by packet, sorted
    std::vector<std::vector<Up>> ups;        ///< by packet, sorted
    /// Numbers of packets, by in_port (in the high 16 bits) and port: what the NIC put out; of OVS's, all.
    std::map<std::uint32_t, std::vector<std::uint32_t>> arrivals;
    std::vector<Counts> counts;                           ///< by ufid
    std::vector<std::vector<std::uint8_t>> installed;     ///< by phase and version
    std::vector<std::vector<Lookup>> lookups;             ///< OVS only: by packet

    Verdict() = default;
    Verdict(std::size_t packets, std::size_t ufids);
    /// When all copies are there.
    void finish();

    void write(const std::string& path) const;
    [[nodiscard]] static Verdict read(const std::string& path);
};

/// Writes down what OVS does to a packet.
class Recorder final : public OvsJudge::Listener {
public:
    /// `in_software`: it came up from a NIC. Otherwise OVS does it all, and its lookups are written down.
    Recorder(Verdict& verdict, const std::vector<Megaflow>& versions, bool in_software)
        : verdict_(verdict), versions_(versions), in_software_(in_software) {}
    /// What follows is about this packet; `counts`: megaflows count it.
    void begin(std::uint32_t number, std::uint32_t in_port, bool counts) {
        number_ = number;
        in_port_ = in_port;
        counts_ = counts;
    }

    void output(std::uint32_t port, std::span<const std::uint8_t> frame, std::size_t source_port_at) override;
    void taken(std::uint32_t version, const ovs_judge_packet& packet) override;
    void missed(const ovs_judge_packet& packet, const ovs_judge_seen& seen) override;

private:
    Verdict& verdict_;
    const std::vector<Megaflow>& versions_;
    const bool in_software_;
    std::uint32_t number_ = 0, in_port_ = 0;
    bool counts_ = true;
};

/// The packet's number in a frame.
[[nodiscard]] std::uint32_t number_of(const std::vector<std::uint8_t>& frame);

}  // namespace ovsdr::differential
