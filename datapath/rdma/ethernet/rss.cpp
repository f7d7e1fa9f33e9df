#include "datapath/rdma/ethernet/rss.hpp"

#include <rte_mbuf.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "datapath/rdma/completion/cqe_ring.hpp"
#include "datapath/rdma/ethernet/inner_packet.hpp"

namespace ovsdr::soft {

namespace {

constexpr std::uint8_t protocol_tcp = 6, protocol_udp = 17, protocol_esp = 50;

/// The selected ones of a pair of equal size; where both are and it is symmetric, the lower first.
class Input {
public:
    explicit Input(bool symmetric) noexcept : symmetric_(symmetric) {}
    void add(const std::uint8_t* source, bool with_source, const std::uint8_t* destination, bool with_destination,
             unsigned size) noexcept {
        const bool swapped =
            symmetric_ && with_source && with_destination && std::memcmp(source, destination, size) > 0;
        if (swapped) std::swap(source, destination);
        if (with_source) add(source, size);
        if (with_destination) add(destination, size);
    }
    void add(const std::uint8_t* from, unsigned size) noexcept {
        std::memcpy(bytes_.data() + size_, from, size);
        size_ += size;
    }
    [[nodiscard]] std::span<const std::uint8_t> bytes() const noexcept { return {bytes_.data(), size_}; }

private:
    const bool symmetric_;
    std::array<std::uint8_t, Toeplitz::max_input> bytes_;
    unsigned size_ = 0;
};

[[nodiscard]] std::uint8_t hash_type_of(const RssFields& fields) {
    unsigned type = 0;
    if (fields.ip_version != 0) type |= fields.ip_version == 4 ? rx_hash_type::ipv4 : rx_hash_type::ipv6;
    if (fields.protocol != 0) type |= fields.protocol == protocol_tcp ? rx_hash_type::tcp : rx_hash_type::udp;
    if (fields.spi) type |= rx_hash_type::ipsec;
    return static_cast<std::uint8_t>(type);
}

}  // namespace

int parse_rss_fields(std::uint64_t mask, RssFields& fields) noexcept {
    constexpr std::uint64_t v4 = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
    constexpr std::uint64_t v6 = IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
    constexpr std::uint64_t tcp = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
    constexpr std::uint64_t udp = IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;
    if (mask & ~(v4 | v6 | tcp | udp)) return EOPNOTSUPP;
    if (((mask & v4) && (mask & v6)) || ((mask & tcp) && (mask & udp))) return EINVAL;
    fields.ip_version = mask & v4 ? 4 : mask & v6 ? 6 : 0;
    fields.protocol = mask & tcp ? protocol_tcp : mask & udp ? protocol_udp : 0;
    fields.source = mask & (IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_SRC_IPV6);
    fields.destination = mask & (IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_DST_IPV6);
    fields.source_port = mask & (IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_SRC_PORT_UDP);
    fields.destination_port = mask & (IBV_RX_HASH_DST_PORT_TCP | IBV_RX_HASH_DST_PORT_UDP);
    return 0;
}

RssReceiver::RssReceiver(const RssFields& fields, const std::array<std::uint8_t, Toeplitz::key_size>& key,
                         std::shared_ptr<const QueueTable> table, bool looks_inside)
    : fields_(fields),
      toeplitz_(key),
      table_(std::move(table)),
      hash_type_(hash_type_of(fields)),
      looks_inside_(looks_inside) {}

std::uint32_t RssReceiver::hash(std::span<const std::uint8_t> frame) const noexcept {
    if (!fields_.any()) return 0;
    if (!fields_.inner) return hash(frame, locate(frame.data(), static_cast<std::uint32_t>(frame.size())));
    const InnerPacket inner = inner_packet(frame);
    return inner.bytes.empty() ? 0 : hash(inner.bytes, inner.headers);
}

std::uint32_t RssReceiver::hash(std::span<const std::uint8_t> packet, const Headers& headers) const noexcept {
    Input input(fields_.symmetric);
    if (fields_.ip_version != 0) {
        if (headers.l3_version != fields_.ip_version) return 0;
        const bool v4 = fields_.ip_version == 4;
        const std::uint8_t* const addresses = packet.data() + headers.l3 + (v4 ? 12 : 8);
        const unsigned size = v4 ? 4 : 16;
        input.add(addresses, fields_.source, addresses + size, fields_.destination, size);
    }
    if (fields_.protocol != 0) {
        if (headers.l4 == 0 || headers.fragment || headers.l4_protocol != fields_.protocol) return 0;
        const std::uint8_t* const ports = packet.data() + headers.l4;
        input.add(ports, fields_.source_port, ports + 2, fields_.destination_port, 2);
    }
    if (fields_.spi) {
        constexpr unsigned spi_size = 4;
        const bool esp = headers.payload != 0 && headers.l4_protocol == protocol_esp;
        if (!esp || headers.payload + spi_size > headers.end) return 0;
        input.add(packet.data() + headers.payload, spi_size);
    }
    return toeplitz_.hash(input.bytes());
}

void RssReceiver::deliver(void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept {
    auto& receiver = *static_cast<RssReceiver*>(self);
    const auto table = receiver.table_->queues();
    std::array<ReceiveQueue*, batch_length> queues;
    for (unsigned i = 0; i < length; ++i) {
        const std::span frame(rte_pktmbuf_mtod(packets[i], const std::uint8_t*), rte_pktmbuf_data_len(packets[i]));
        const std::uint32_t hash = receiver.hash(frame);
        queues[i] = (*table)[hash & (table->size() - 1)];
        if (hash == 0 && !receiver.looks_inside_) continue;
        packets[i]->hash.fdir.lo = hash;
        packets[i]->packet_type = (hash != 0 ? receiver.hash_type_ : 0U) |
                                  (receiver.looks_inside_ ? rx_hash_type::looks_inside : 0U);
        packets[i]->ol_flags |= RTE_MBUF_F_RX_RSS_HASH;
    }
    // One call per queue, packets in their order.
    std::array<rte_mbuf*, batch_length> batch;
    for (unsigned first = 0; first < length; ++first) {
        ReceiveQueue* const queue = queues[first];
        if (queue == nullptr) continue;
        unsigned count = 0;
        for (unsigned i = first; i < length; ++i) {
            if (queues[i] != queue) continue;
            batch[count++] = packets[i];
            queues[i] = nullptr;
        }
        const Sink sink = queue->sink();
        sink.deliver(sink.self, worker, batch.data(), count);
    }
}

}  // namespace ovsdr::soft
