// The headers of a packet, and, if a tunnel carries a frame in it, the tunnel's and those of the frame inside.
//
// The model. The parser knows a tunnel by the outer headers: VXLAN by UDP port 4789 (RFC 7348), Geneve by 6081 (RFC
// 8926), GRE by IP protocol 47 (RFC 2784, 2890), each over IPv4 and IPv6, behind the outer frame's tags. It knows one
// tunnel; a second one inside is payload. The frame inside is parsed as the outer one is.
//
// What it does not take for a tunnel, since no public document says what a device makes of it: a fragment, an outer IP
// packet that is not all there, a UDP length that is not the rest of the IP packet, VXLAN without the I flag, Geneve of
// another version or with options beyond the packet, GRE of another version, with a routing or a reserved bit, or cut
// short. A tunnel that carries another thing than Ethernet (Geneve's and GRE's protocol 0x6558) has no frame inside.
//
// The words of a tunnel's header are there to look at by port or protocol alone, also where the rest does not make a
// tunnel. A device that shows nothing there finds what a rule does not ask for either: no header that one asks for
// begins with a word of zeros. GRE's words behind the first one are in places of their own, and are not known here.
//
// Unknown fields. What a look-up shows of a tunnel that the packet is not in is documented nowhere either: knows()
// tells, and the walker stops. The same goes for packets that vports send (Side::tx): rules on tunnels are for what the
// wire brings. A Geneve option that is not there reads 0, as DPDK relies on; one that is there twice, with another
// length or beyond the options' end is not known.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tests/connectx/entries/header_fields.hpp"
#include "tests/connectx/entries/packet.hpp"

namespace ovsdr::connectx::entries {

/// Which headers a field is of. Fields of a tunnel's own header and of the metadata are with the outer ones.
enum class Layer : std::uint8_t { outer, inner };

/// What a GENEVE_TLV_OPT object names: the option that the flexible parser looks for. Length in words of 4 bytes.
struct GeneveOption {
    std::uint16_t option_class;
    std::uint8_t type, length;
};

struct Tunnel {
    enum class Kind : std::uint8_t { none, vxlan, geneve, gre };
    Kind kind = Kind::none;
    std::size_t frame = 0;       ///< where the frame inside begins; 0: there is none
    bool option_known = false;   ///< whether the option that an object names is there
    unsigned words_known = 0;    ///< of the tunnel's header
};

class PacketHeaders {
public:
    /// Reads the headers anew; the fields of the metadata stay. `option`: nothing, no object names one.
    void parse(const Packet& packet, const std::optional<GeneveOption>& option) noexcept;
    void take_metadata(const Packet& packet) noexcept { outer_.take_metadata(packet); }

    [[nodiscard]] const HeaderFields& of(Layer layer) const noexcept { return layer == Layer::outer ? outer_ : inner_; }
    [[nodiscard]] const Tunnel& tunnel() const noexcept { return tunnel_; }
    /// Whether it is known what a look-up shows in this field.
    [[nodiscard]] bool knows(Layer layer, Field field) const noexcept;

private:
    HeaderFields outer_, inner_;
    Tunnel tunnel_;
};

}  // namespace ovsdr::connectx::entries
