#include "tests/connectx/entries/decapsulation.hpp"

#include "tests/connectx/entries/packet_headers.hpp"
#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {

void decapsulate(Packet& packet) {
    if (packet.side == Side::tx) throw Stopped("decapsulation on the TX side");
    PacketHeaders headers;
    headers.parse(packet, std::nullopt);
    const std::size_t frame = headers.tunnel().frame;
    if (frame == 0) throw Stopped("decapsulation of a packet that is in no known tunnel, or has no frame inside");
    if (headers.of(Layer::outer).offsets().end != packet.bytes.size()) {
        throw Stopped("decapsulation of a packet with bytes behind its IP packet");
    }
    packet.bytes.erase(packet.bytes.begin(), packet.bytes.begin() + static_cast<std::ptrdiff_t>(frame));
}

}  // namespace ovsdr::connectx::entries
