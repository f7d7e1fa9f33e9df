// What a judge says became of each packet and each megaflow; as a file, and compared with another judge's.
//
// The model. A copy is a port and the bytes that came out there. Going up is a copy too, at the queue of a port. Copies
// of one packet have no order (devices promise none); the packets that came out at a port do, and are written down as
// they came.
//
// Threads: one. Errors: std::runtime_error for files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ovsdr::differential {

struct Copy {
    std::uint32_t port = 0;       ///< datapath port number
    bool up = false;              ///< at the port's slow-path queue
    std::uint32_t tag = 0;        ///< of the completion, if it went up
    std::vector<std::uint8_t> bytes;

    friend auto operator<=>(const Copy&, const Copy&) = default;
};

struct MegaflowVerdict {
    bool installed = false;
    std::uint64_t packets = 0, bytes = 0;

    friend bool operator==(const MegaflowVerdict&, const MegaflowVerdict&) = default;
};

struct Verdict {
    std::vector<std::vector<Copy>> copies;                            ///< by packet, sorted
    /// Numbers of packets, by in_port (in the high 16 bits) and port (with 0x8000: its queue).
    std::map<std::uint32_t, std::vector<std::uint32_t>> arrivals;
    std::vector<MegaflowVerdict> megaflows;
    std::vector<std::int32_t> taken_by;   ///< OVS only: the megaflow of each packet, -1 none

    /// Of a copy whose last four bytes are the packet's number.
    void add(std::uint32_t in_port, Copy copy);
    /// When all copies are there.
    void finish();

    void write(const std::string& path) const;
    [[nodiscard]] static Verdict read(const std::string& path);
};

/// The packet's number in a frame.
[[nodiscard]] std::uint32_t number_of(const std::vector<std::uint8_t>& frame);

}  // namespace ovsdr::differential
