#include "datapath/ports/lag.hpp"

#include <cstring>

#include "datapath/steering/key.hpp"
#include "datapath/steering/parser.hpp"

namespace ovsdr::soft {
namespace {

/// What all packets of a flow have in common, its fragments too as long as all are: they have no L4 ports.
[[nodiscard]] std::uint32_t flow_hash(const rte_mbuf* packet) noexcept {
    constexpr std::uint64_t multiplier = 0x9e3779b97f4a7c15ULL;  // 2^64 over the golden ratio
    Key key;
    if (!parse(rte_pktmbuf_mtod(packet, const std::uint8_t*), packet->data_len, key)) return 0;
    const auto word = [&key](unsigned offset, unsigned size) {
        std::uint64_t value = 0;
        std::memcpy(&value, key.bytes() + offset, size);
        return value;
    };
    // IPv6 says of the first fragment what its protocol is, of the others that they are fragments.
    const bool fragment = (key.bytes()[key_offset::l3_flags] & frag_bit) != 0;
    std::uint64_t hash = fragment ? 0 : key.bytes()[key_offset::ip_protocol];
    for (const std::uint64_t field :
         {word(key_offset::smac, 8), word(key_offset::dmac, 8), word(key_offset::tcp_sport, 4),
          word(key_offset::udp_sport, 4), word(key_offset::source_ip, 8), word(key_offset::source_ip + 8, 8),
          word(key_offset::destination_ip, 8), word(key_offset::destination_ip + 8, 8)}) {
        hash = (hash ^ field) * multiplier;
        hash ^= hash >> 32;
    }
    return static_cast<std::uint32_t>(hash * multiplier >> 32);  // the upper bits depend on all
}

}  // namespace

Sink Lag::by_hash() noexcept {
    return {[](void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept {
                std::array<std::array<rte_mbuf*, batch_length>, lag_ports> batches;
                std::array<unsigned, lag_ports> lengths{};
                for (unsigned i = 0; i < length; ++i) {
                    const unsigned chosen =
                        static_cast<unsigned>(std::uint64_t{flow_hash(packets[i])} * lag_ports >> 32);
                    batches[chosen][lengths[chosen]++] = packets[i];
                }
                for (unsigned i = 0; i < lag_ports; ++i) {
                    if (lengths[i] != 0) static_cast<Lag*>(self)->send_by(i + 1, worker, batches[i].data(), lengths[i]);
                }
            },
            this};
}

Sink Lag::by_port(unsigned port) noexcept {
    return {[](void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept {
                const Way& way = *static_cast<const Way*>(self);
                way.lag.send_by(way.port, worker, packets, length);
            },
            &ways_[port - 1]};
}

unsigned Lag::active_port(unsigned port) const noexcept {
    const unsigned other = 3 - port;
    return !ways_[port - 1].path.usable() && ways_[other - 1].path.usable() ? other : port;
}

void Lag::send_by(unsigned port, unsigned worker, rte_mbuf** packets, unsigned length) noexcept {
    const Sink sink = ways_[active_port(port) - 1].path.sink();
    sink.deliver(sink.self, worker, packets, length);
}

}  // namespace ovsdr::soft
