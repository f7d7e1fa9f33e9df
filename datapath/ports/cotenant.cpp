#include "datapath/ports/cotenant.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <fmt/format.h>
#include <rte_errno.h>

#include <cstring>
#include <stdexcept>
#include <string_view>

#include "datapath/ports/identity.hpp"

namespace ovsdr::soft {
namespace {

constexpr unsigned queue_length = 1024;
constexpr std::size_t most_learned = 4096;
constexpr std::uint16_t experimental_type = 0x88b5;  // IEEE 802, local experimental
constexpr std::uint16_t slow_protocols_type = 0x8809;
constexpr std::string_view signature = "ovs-dr co-tenant";

struct [[gnu::packed]] EthernetHeader {
    std::uint8_t destination[6];
    std::uint8_t source[6];
    std::uint16_t type;
};
static_assert(sizeof(EthernetHeader) == 14);

struct [[gnu::packed]] OwnFrame {
    EthernetHeader ethernet;
    char signature[16];
    std::uint64_t sequence;
    std::uint16_t vport;
    std::uint8_t padding[20];
};
static_assert(sizeof(OwnFrame) == 60 && signature.size() == 16);

// IEEE 802.1AX, 6.4.2.3: an LACPDU with its TLVs at their fixed places.
struct [[gnu::packed]] LacpParty {
    std::uint8_t type, length;
    std::uint16_t system_priority;
    std::uint8_t system[6];
    std::uint16_t key, port_priority, port;
    std::uint8_t state;
    std::uint8_t reserved[3];
};
struct [[gnu::packed]] Lacpdu {
    EthernetHeader ethernet;
    std::uint8_t subtype, version;
    LacpParty actor, partner;
    std::uint8_t collector_type, collector_length;
    std::uint16_t collector_delay;
    std::uint8_t reserved[12];
    std::uint8_t terminator[52];
};
static_assert(sizeof(LacpParty) == 20 && sizeof(Lacpdu) == 124);

constexpr std::uint8_t slow_protocols_address[6] = {0x01, 0x80, 0xc2, 0x00, 0x00, 0x02};

std::uint64_t address_bits(const std::uint8_t (&address)[6]) noexcept {
    std::uint64_t bits = 0;
    std::memcpy(&bits, address, sizeof address);
    return bits;
}

// 01:80:c2:00:00:00 to 0f stay on their link (IEEE 802.1Q, 8.6.3).
bool stays_on_link(const std::uint8_t (&destination)[6]) noexcept {
    return std::memcmp(destination, slow_protocols_address, 5) == 0 && destination[5] <= 0x0f;
}

void add(std::atomic<std::uint64_t>& counter, std::uint64_t value = 1) noexcept {
    counter.fetch_add(value, std::memory_order_relaxed);
}

}  // namespace

struct Cotenant::Queue {
    Queue(SoftDevice& owner, VportId id, std::uint32_t number)
        : device(owner), vport(id), sqn(number), mac(derived_mac(owner.guid() ^ first_cotenant_sqn, id)) {
        static std::atomic<unsigned> next{0};
        ring = rte_ring_create(fmt::format("cotenant-{}", next++).c_str(), queue_length, SOCKET_ID_ANY, RING_F_SC_DEQ);
        if (ring == nullptr) throw std::runtime_error(fmt::format("co-tenant: no ring: {}", rte_strerror(rte_errno)));
        device.steering().cotenant_send_rule(sqn, vport);
        device.add_send_source({.poll =
                                    [](void* self, rte_mbuf** packets, unsigned length) noexcept {
                                        return rte_ring_sc_dequeue_burst(static_cast<rte_ring*>(self),
                                                                         reinterpret_cast<void**>(packets), length,
                                                                         nullptr);
                                    },
                                .self = ring,
                                .sqn = sqn});
    }
    ~Queue() {
        device.remove_send_source(sqn);
        device.steering().remove_cotenant_send_rule(sqn);
        device.steering().set_lag_port(sqn, 0);
        void* packet = nullptr;
        while (rte_ring_sc_dequeue(ring, &packet) == 0) rte_pktmbuf_free(static_cast<rte_mbuf*>(packet));
        rte_ring_free(ring);
    }
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    SoftDevice& device;
    const VportId vport;
    const std::uint32_t sqn;
    const MacAddress mac;
    rte_ring* ring;
    std::atomic<std::uint64_t> sent{0}, forwarded{0}, received{0};
};

Cotenant::Cotenant(SoftDevice& device, const CotenantConfig& config)
    : device_(device), period_(config.period_ms), next_(Clock::now() + period_) {
    std::uint32_t sqn = first_cotenant_sqn;
    for (const VportId vport : config.vports) queues_.push_back(std::make_unique<Queue>(device, vport, sqn++));
    const unsigned uplinks = device.has_lag() ? lag_ports : 1;
    for (unsigned port = 1; config.lacp && port <= uplinks; ++port) {
        lacp_.push_back(std::make_unique<Queue>(device, uplink_vport, sqn++));
        if (uplinks > 1) device.steering().set_lag_port(lacp_.back()->sqn, port, true);
    }
    device.steering().set_cotenant_sink({[](void* self, unsigned, rte_mbuf** packets, unsigned length) noexcept {
                                             static_cast<Cotenant*>(self)->deliver(packets, length);
                                         },
                                         this});
}

Cotenant::~Cotenant() {
    device_.steering().set_cotenant_sink({});
}

Cotenant::Queue* Cotenant::queue_of(VportId vport) noexcept {
    for (const auto& queue : queues_) {
        if (queue->vport == vport) return queue.get();
    }
    return nullptr;
}

void Cotenant::deliver(rte_mbuf** packets, unsigned length) noexcept {
    for (unsigned i = 0; i < length; ++i) {
        const auto* ethernet = rte_pktmbuf_mtod(packets[i], const EthernetHeader*);
        const VportId source = source_of(packets[i]);
        if (Queue* queue = queue_of(source)) {
            add(queue->received);
            bridge(*queue, packets[i]);
            continue;
        }
        const bool lacp = !lacp_.empty() && source == uplink_vport &&
                          std::memcmp(ethernet->destination, slow_protocols_address, 6) == 0;
        add(lacp ? lacp_received_ : foreign_);
        rte_pktmbuf_free(packets[i]);
    }
}

void Cotenant::bridge(Queue& from, rte_mbuf* packet) noexcept {
    const auto* ethernet = rte_pktmbuf_mtod(packet, const EthernetHeader*);
    if (stays_on_link(ethernet->destination)) {
        rte_pktmbuf_free(packet);
        return;
    }
    Queue* known = nullptr;
    try {
        const std::lock_guard lock(learned_mutex_);
        if (learned_.size() >= most_learned) learned_.clear();
        if ((ethernet->source[0] & 1) == 0) learned_[address_bits(ethernet->source)] = &from;
        const auto found = learned_.find(address_bits(ethernet->destination));
        if (found != learned_.end()) known = found->second;
    } catch (const std::bad_alloc&) {
        known = nullptr;  // not learned: the bridge floods
    }
    if (known != nullptr && known != &from) {
        forward(*known, packet);
        return;
    }
    if (known == nullptr) {
        for (const auto& queue : queues_) {
            if (queue.get() == &from) continue;
            rte_mbuf* copy = rte_pktmbuf_copy(packet, device_.mempool(), 0, UINT32_MAX);
            if (copy == nullptr) {
                add(queue_full_);
            } else {
                forward(*queue, copy);
            }
        }
    }
    rte_pktmbuf_free(packet);
}

void Cotenant::forward(Queue& to, rte_mbuf* packet) noexcept {
    if (enqueue(to, packet)) add(to.forwarded);
}

bool Cotenant::enqueue(Queue& queue, rte_mbuf* packet) noexcept {
    if (rte_ring_mp_enqueue(queue.ring, packet) != 0) {
        add(queue_full_);
        rte_pktmbuf_free(packet);
        return false;
    }
    device_.ring_doorbell(queue.sqn);
    return true;
}

rte_mbuf* Cotenant::packet_from(const void* bytes, std::size_t size) const noexcept {
    rte_mbuf* packet = rte_pktmbuf_alloc(device_.mempool());
    if (packet != nullptr) std::memcpy(rte_pktmbuf_append(packet, static_cast<std::uint16_t>(size)), bytes, size);
    return packet;
}

void Cotenant::send_frame(Queue& queue) {
    OwnFrame frame{};
    std::memset(frame.ethernet.destination, 0xff, sizeof frame.ethernet.destination);
    std::memcpy(frame.ethernet.source, queue.mac.data(), queue.mac.size());
    frame.ethernet.type = htons(experimental_type);
    std::memcpy(frame.signature, signature.data(), signature.size());
    frame.sequence = htobe64(queue.sent.load(std::memory_order_relaxed));
    frame.vport = htons(queue.vport.value);
    rte_mbuf* packet = packet_from(&frame, sizeof frame);
    if (packet == nullptr) {
        add(queue_full_);
    } else if (enqueue(queue, packet)) {
        add(queue.sent);
    }
}

void Cotenant::send_lacpdu(Queue& queue, unsigned port) {
    constexpr std::uint8_t activity_aggregation = 0x05;
    Lacpdu frame{};
    std::memcpy(frame.ethernet.destination, slow_protocols_address, 6);
    std::memcpy(frame.ethernet.source, queue.mac.data(), queue.mac.size());
    frame.ethernet.type = htons(slow_protocols_type);
    frame.subtype = 1;
    frame.version = 1;
    frame.actor = {.type = 1,
                   .length = 20,
                   .system_priority = htons(0xffff),
                   .key = htons(1),
                   .port_priority = htons(0xff),
                   .port = htons(static_cast<std::uint16_t>(port)),
                   .state = activity_aggregation};
    std::memcpy(frame.actor.system, queue.mac.data(), queue.mac.size());
    frame.partner.type = 2;
    frame.partner.length = 20;
    frame.collector_type = 3;
    frame.collector_length = 16;
    rte_mbuf* packet = packet_from(&frame, sizeof frame);
    if (packet == nullptr) {
        add(queue_full_);
    } else if (enqueue(queue, packet)) {
        add(queue.sent);
    }
}

Cotenant::Clock::time_point Cotenant::tick(Clock::time_point now) {
    if (now < next_) return next_;
    next_ = std::max(next_ + period_, now);
    for (const auto& queue : queues_) send_frame(*queue);
    for (unsigned i = 0; i < lacp_.size(); ++i) send_lacpdu(*lacp_[i], i + 1);
    return next_;
}

Cotenant::Statistics Cotenant::statistics() const {
    const auto missed = [](std::uint64_t came, std::uint64_t received) {
        return came > received ? came - received : 0;
    };
    Statistics statistics{};
    for (const auto& queue : queues_) {
        VportCounters counters{};
        (void)device_.counters(queue->vport, counters);  // a vport that was removed has sent nothing
        const std::uint64_t received = queue->received.load();
        statistics.ports.push_back({.vport = queue->vport,
                                    .sent = queue->sent.load(),
                                    .forwarded = queue->forwarded.load(),
                                    .received = received,
                                    .missed = missed(counters.sent_packets, received)});
    }
    if (!lacp_.empty()) {
        for (const auto& queue : lacp_) statistics.lacp_sent += queue->sent.load();
        statistics.lacp_received = lacp_received_.load();
        statistics.lacp_missed = missed(device_.lacp_frames(), statistics.lacp_received);
    }
    statistics.foreign = foreign_.load();
    statistics.queue_full = queue_full_.load();
    return statistics;
}

}  // namespace ovsdr::soft
