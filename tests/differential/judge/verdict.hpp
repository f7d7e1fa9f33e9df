// What a judge says became of each packet and each megaflow; as a file.
//
// The model. A copy is a port and the bytes that came out there at last, whoever sent it: the NIC, or OVS's software,
// which went on with what came up. Copies of one packet have no order (devices promise none); the packets that the NIC
// put out at a port do, and are written down as they came. A packet that no megaflow takes ends as a copy, too: for an
// upcall. What software did to a copy that a NIC took for it counts as what came out there, and samplers take all of
// OVS's packets (ovs_actions.h).
//
// Threads: one. Errors: std::runtime_error for files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/differential/judge/ovs_judge.hpp"

namespace ovsdr::differential {

/// What an upcall that a megaflow asks for says beside the packet.
struct Told {
    std::uint32_t in_port = 0, one_of = 1;   ///< one_of: of so many packets one is sampled
    std::int32_t version = -1;               ///< whose action it is; -1: it was done to a copy that a NIC took
    std::vector<std::uint8_t> cookie;        ///< and what is known of the tunnel that the packet came out of

    [[nodiscard]] bool is_sampled() const { return one_of != 1; }
    [[nodiscard]] bool says(const Told& other) const {
        return in_port == other.in_port && one_of == other.one_of && cookie == other.cookie;
    }
    friend auto operator<=>(const Told&, const Told&) = default;
};

struct Copy {
    static constexpr std::uint32_t upcall = UINT32_MAX, userspace = UINT32_MAX - 1;
    std::uint32_t port = 0;               ///< datapath port number, or an upcall, or one that a megaflow asks for
    TableId table{};                      ///< of an upcall
    bool in_software = false;
    std::uint32_t source_port_at = 0;     ///< where OVS has chosen a tunnel's UDP source port
    std::vector<std::uint8_t> bytes;
    Told told{};                          ///< by `userspace`

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
    /// Numbers of packets, by in_port (in the high 16 bits) and port (0xFFFE: what megaflows give to userspace): what
    /// the NIC put out, or took for software; of OVS's, all.
    std::map<std::uint32_t, std::vector<std::uint32_t>> arrivals;
    std::vector<Counts> counts;                           ///< by ufid
    std::vector<std::vector<std::uint8_t>> installed;     ///< by phase and version
    std::vector<std::vector<Lookup>> lookups;             ///< OVS only: by packet
    std::vector<std::vector<MeterCounts>> meters;         ///< by number, at the end of each phase that counts
    /// By phase: copies for the mirror that the NIC dropped, for they were of no service. OVS has no such rule.
    std::vector<std::uint64_t> filtered;

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
    enum class Of : std::uint8_t {
        all,         ///< OVS does it all, and its lookups are written down
        slow_path,   ///< it came up from a NIC
        copies,      ///< a NIC took a copy for software
    };
    Recorder(Verdict& verdict, const std::vector<Megaflow>& versions, Of of)
        : verdict_(verdict), versions_(versions), of_(of), in_software_(of != Of::all) {}
    /// What follows is about this packet; `counts`: megaflows count it.
    void begin(std::uint32_t number, std::uint32_t in_port, bool counts) {
        number_ = number;
        in_port_ = in_port;
        counts_ = counts;
    }

    void output(std::uint32_t port, std::span<const std::uint8_t> frame, std::size_t source_port_at) override;
    void userspace(const ovs_judge_packet& packet, const ovs_judge_told& told) override;
    void taken(std::uint32_t version, const ovs_judge_packet& packet) override;
    void missed(const ovs_judge_packet& packet, const ovs_judge_seen& seen) override;

private:
    void arrived(std::uint32_t port);

    Verdict& verdict_;
    const std::vector<Megaflow>& versions_;
    const Of of_;
    const bool in_software_;
    std::uint32_t number_ = 0, in_port_ = 0;
    bool counts_ = true;
};

/// The packet's number in a frame.
[[nodiscard]] std::uint32_t number_of(const std::vector<std::uint8_t>& frame);

}  // namespace ovsdr::differential
