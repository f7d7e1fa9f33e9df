// Header fields and registers of a packet, read and written as modify-header commands do.
//
// The model. A field is a range of bits in one or two 16-bit words of a header. The headers are found once, when the
// first of their fields is asked for: later writes do not move them, as the device parses anew only between entries.
//
// Checksums. A write mends what covers it: IPv4's header checksum, and that of TCP, UDP and, over IPv6, ICMPv6. Each is
// mended by the difference (RFC 1624), as OVS does, so that a right one stays right and a wrong one as wrong as it was;
// UDP's 0 (none) stays 0, and none becomes 0. A write that changes nothing touches no checksum. docs/fidelity.md says
// what of this no public document tells.
//
// What nobody documents stops the engine: a field of a header that the packet does not have; an address of a fragment,
// of a packet whose TCP, UDP or ICMPv6 header is cut short, or before a routing header that is not done.
//
// Life cycle. A Rewriter lives for one modify-header list; nobody else changes the packet meanwhile.
// Threads: one. Errors: Stopped. Source: RFC 791, 768, 1624, 8200, 9293, 4443.
#pragma once

#include <cstdint>
#include <optional>

#include "tests/connectx/entries/header_fields.hpp"
#include "tests/connectx/entries/packet.hpp"

namespace ovsdr::connectx::entries {

enum class Header : std::uint8_t { registers, ethernet, tag, ethertype, ipv4, ipv6, ports, tcp };   ///< ports: TCP, UDP

/// `length` bits that end `shift` bits above the lowest of the word of `size` bytes (2 or 4) at `offset`.
struct FieldPlace {
    Header header;
    std::uint8_t offset;   ///< in the header; of registers: reg_c's number, 8 reg_a, 9 reg_b
    std::uint8_t size, shift, length;
};

class Rewriter {
public:
    explicit Rewriter(Packet& packet) noexcept : packet_(packet) {}

    /// Whether the packet has the header.
    [[nodiscard]] bool has(Header header);
    /// Fields of headers that it has.
    [[nodiscard]] std::uint32_t read(const FieldPlace& field);
    /// Bits of `value` above the field are left out.
    void write(const FieldPlace& field, std::uint32_t value);

private:
    [[nodiscard]] const HeaderFields& headers();
    [[nodiscard]] std::size_t begin_of(Header header);
    [[nodiscard]] std::uint32_t load(const FieldPlace& field);
    void store(const FieldPlace& field, std::uint32_t word);
    void mend(const FieldPlace& field, std::uint32_t before, std::uint32_t after);
    void mend_pseudo_header(bool is_ipv6_destination, std::uint32_t before, std::uint32_t after);
    void mend_transport(std::uint32_t before, std::uint32_t after);

    Packet& packet_;
    std::optional<HeaderFields> headers_;
};

}  // namespace ovsdr::connectx::entries
