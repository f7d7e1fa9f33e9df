// Receive-side scaling: packets of one TIR spread over the receive queues of an indirection table by a hash of their
// headers, so that each flow stays in one queue.
//
// Model. The hash's input is what is selected of source and destination address, source and destination port or the SPI
// of ESP, in that order; its lowest bits are the index into the table. With `symmetric` both directions of a connection
// meet the same queue: where both addresses (ports) are selected, the lower one comes first, as the kernel asks of the
// device for verbs QPs (rx_hash_symmetric). A packet that is not of the selected protocols, or whose ports are in
// another fragment, goes to the table's first queue.
//
// A receiver with tunnel offloads looks inside: completions describe the inner packet, and the hash may be made of it.
// What carries no packet then counts as not of the selected protocols.
//
// A packet that was hashed says so (RTE_MBUF_F_RX_RSS_HASH): its hash is where its source was, hash.fdir.lo, and what
// it is made of in packet_type, see rx_hash_type.
//
// Life cycle. The table's queues are held by whoever owns the table. Threads: any worker delivers; a table's queues may
// be replaced meanwhile.
// Source: ibv_create_qp_ex(3), ibv_create_rwq_ind_table(3); mlx5_ib's create_rss_raw_qp_tir.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/rdma/ethernet/receive_queue.hpp"
#include "datapath/rdma/ethernet/toeplitz.hpp"
#include "datapath/steering/parser.hpp"

namespace ovsdr::soft {

/// What a hash is made of.
struct RssFields {
    std::uint8_t ip_version = 0;               ///< 4, 6; 0 no addresses
    std::uint8_t protocol = 0;                 ///< 6 TCP, 17 UDP; 0 no ports
    bool source = false, destination = false;  ///< addresses
    bool source_port = false, destination_port = false;
    bool spi = false;  ///< of ESP, in the place of the ports
    bool inner = false;  ///< of the packet that a tunnel carries
    bool symmetric = true;

    [[nodiscard]] bool any() const noexcept { return ip_version || protocol || spi; }
};

/// enum ibv_rx_hash_fields turned into fields. EINVAL for both IP versions or both protocols; EOPNOTSUPP for inner
/// headers (no tunnel offloads are announced) and the IPsec SPI.
[[nodiscard]] int parse_rss_fields(std::uint64_t mask, RssFields& fields) noexcept;

/// Receive queues by the lowest bits of a hash.
class QueueTable {
public:
    /// `queues`: a power of two of them.
    explicit QueueTable(std::vector<ReceiveQueue*> queues)
        : queues_(std::make_shared<const std::vector<ReceiveQueue*>>(std::move(queues))) {}

    [[nodiscard]] std::shared_ptr<const std::vector<ReceiveQueue*>> queues() const noexcept { return queues_.load(); }
    /// Batches that are under way may still go to the queues that were there.
    void replace(std::vector<ReceiveQueue*> queues) {
        queues_.store(std::make_shared<const std::vector<ReceiveQueue*>>(std::move(queues)));
    }

private:
    std::atomic<std::shared_ptr<const std::vector<ReceiveQueue*>>> queues_;
};

class RssReceiver {
public:
    /// `looks_inside`: with tunnel offloads.
    RssReceiver(const RssFields& fields, const std::array<std::uint8_t, Toeplitz::key_size>& key,
                std::shared_ptr<const QueueTable> table, bool looks_inside = false);
    RssReceiver(const RssReceiver&) = delete;
    RssReceiver& operator=(const RssReceiver&) = delete;

    [[nodiscard]] Sink sink() noexcept { return Sink{&RssReceiver::deliver, this}; }

    /// The hash of a frame; 0 for what the fields do not apply to.
    [[nodiscard]] std::uint32_t hash(std::span<const std::uint8_t> frame) const noexcept;

    /// Rules that lead here.
    void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { holders_.fetch_sub(1, std::memory_order_release); }
    [[nodiscard]] bool held() const noexcept { return holders_.load(std::memory_order_acquire) != 0; }

private:
    static void deliver(void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept;
    [[nodiscard]] std::uint32_t hash(std::span<const std::uint8_t> packet, const Headers& headers) const noexcept;

    const RssFields fields_;
    const Toeplitz toeplitz_;
    const std::shared_ptr<const QueueTable> table_;
    const std::uint8_t hash_type_;
    const bool looks_inside_;
    std::atomic<unsigned> holders_{0};
};

}  // namespace ovsdr::soft
