#include "datapath/rdma/roce/neighbours.hpp"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/roce/gid_table.hpp"
#include "datapath/rdma/roce/transport.hpp"

namespace ovsdr::soft::roce {

namespace {

using namespace std::chrono_literals;

// In all as long as Linux waits (three times a second), so that a link that is just coming up is in time; asked more
// often, so that what was lost on the way costs little.
constexpr auto patience = 250ms;  // for one answer
constexpr unsigned attempts = 12;
constexpr auto lifetime = 60s;

constexpr std::uint16_t type_arp = 0x0806, type_ipv6 = 0x86dd;
constexpr std::uint16_t arp_request = 1, arp_reply = 2;
constexpr std::uint8_t protocol_icmpv6 = 58, hop_limit = 255;
constexpr std::uint8_t solicitation = 135, advertisement = 136;
constexpr std::uint32_t is_solicited = 0x40000000, overrides = 0x20000000;
constexpr std::uint8_t option_source = 1, option_target = 2;
constexpr Mac broadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

struct Ethernet {
    Mac destination, source;
    __be16 type;
};
struct [[gnu::packed]] Arp {
    Ethernet ethernet;
    __be16 hardware, protocol;
    std::uint8_t hardware_size, protocol_size;
    __be16 operation;
    Mac sender_mac;
    std::uint8_t sender[4];
    Mac target_mac;
    std::uint8_t target[4];
};
struct [[gnu::packed]] Discovery {
    Ethernet ethernet;
    __be32 version;
    __be16 payload_size;
    std::uint8_t next_header, hop_limit;
    std::uint8_t source[16], destination[16];
    // From here on, what the checksum is over besides the addresses.
    std::uint8_t type, code;
    __be16 checksum;
    __be32 flags;
    std::uint8_t target[16];
    std::uint8_t option, option_length;
    Mac mac;
};
static_assert(sizeof(Ethernet) == 14 && sizeof(Arp) == 42 && sizeof(Discovery) == 14 + 40 + 32);
constexpr std::size_t option_size = 8;
constexpr std::size_t before_type = offsetof(Ethernet, type);  ///< where a tag goes

[[nodiscard]] ibv_gid mapped(const std::uint8_t (&address)[4]) noexcept {
    ibv_gid gid{};
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, address, sizeof address);
    return gid;
}

[[nodiscard]] ibv_gid gid_of(const std::uint8_t (&address)[16]) noexcept {
    ibv_gid gid;
    std::memcpy(gid.raw, address, sizeof gid.raw);
    return gid;
}

/// The checksum over the pseudo header and the ICMPv6 message of `size` bytes; its own field counts as it is.
[[nodiscard]] std::uint16_t checksum(const Discovery& frame, std::size_t size) noexcept {
    std::uint64_t sum = size + protocol_icmpv6;
    const auto add = [&sum](const std::uint8_t* from, std::size_t length) {
        for (std::size_t i = 0; i + 1 < length; i += 2) sum += static_cast<unsigned>(from[i] << 8 | from[i + 1]);
    };
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&frame);
    add(bytes + offsetof(Discovery, source), 32);
    add(bytes + offsetof(Discovery, type), size);
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
}

/// A message of ours, complete but for addresses: the caller sets those, then calls seal().
[[nodiscard]] Discovery discovery(const Mac& own, const Mac& to, std::uint8_t type, std::uint32_t flags) noexcept {
    Discovery frame{};
    frame.ethernet = {to, own, htobe16(type_ipv6)};
    frame.version = htobe32(6u << 28);
    frame.payload_size = htobe16(sizeof(Discovery) - offsetof(Discovery, type));
    frame.next_header = protocol_icmpv6;
    frame.hop_limit = hop_limit;
    frame.type = type;
    frame.flags = htobe32(flags);
    frame.option = type == solicitation ? option_source : option_target;
    frame.option_length = 1;
    frame.mac = own;
    return frame;
}
void seal(Discovery& frame) noexcept {
    frame.checksum = 0;
    frame.checksum = htobe16(checksum(frame, sizeof frame - offsetof(Discovery, type)));
}

template <typename Frame>
[[nodiscard]] std::span<const std::byte> bytes_of(const Frame& frame) noexcept {
    return std::as_bytes(std::span{&frame, 1});
}

}  // namespace

Neighbours::Place Neighbours::place_of(const ibv_gid& address, std::uint16_t vlan) noexcept {
    Place place{.vlan = vlan, .address = {}};
    std::copy(std::begin(address.raw), std::end(address.raw), place.address.begin());
    return place;
}

bool Neighbours::send(std::span<const std::byte> frame, std::uint16_t vlan) noexcept {
    rte_mbuf* const packet = rte_pktmbuf_alloc(transport_.state().mempool());
    if (packet == nullptr) return false;
    const std::size_t tag_size = vlan ? vlan_tag_size : 0;
    auto* const to =
        reinterpret_cast<std::byte*>(rte_pktmbuf_append(packet, static_cast<std::uint16_t>(frame.size() + tag_size)));
    const __be16 tag[] = {htobe16(type_cvlan), htobe16(vlan)};
    std::memcpy(to, frame.data(), before_type);
    std::memcpy(to + before_type, tag, tag_size);
    std::memcpy(to + before_type + tag_size, frame.data() + before_type, frame.size() - before_type);
    transport_.send_frame(packet);
    return true;
}

bool Neighbours::ask(const ibv_gid& address, const GidEntry& source) noexcept {
    const Mac own = transport_.addresses().mac;
    if (is_ipv4(address)) {
        Arp frame{.ethernet = {broadcast, own, htobe16(type_arp)},
                  .hardware = htobe16(1),
                  .protocol = htobe16(0x0800),
                  .hardware_size = 6,
                  .protocol_size = 4,
                  .operation = htobe16(arp_request),
                  .sender_mac = own};
        std::memcpy(frame.sender, source.gid.raw + 12, 4);
        std::memcpy(frame.target, address.raw + 12, 4);
        return send(bytes_of(frame), source.vlan);
    }
    // To the solicited-node address: ff02::1:ff00:0/104 and the last three bytes (RFC 4291, 2.7.1).
    const std::uint8_t* const last = address.raw + 13;
    Discovery frame = discovery(own, {0x33, 0x33, 0xff, last[0], last[1], last[2]}, solicitation, 0);
    std::memcpy(frame.source, source.gid.raw, 16);
    const std::uint8_t node[16] = {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, last[0], last[1], last[2]};
    std::memcpy(frame.destination, node, 16);
    std::memcpy(frame.target, address.raw, 16);
    seal(frame);
    return send(bytes_of(frame), source.vlan);
}

int Neighbours::resolve(const ibv_gid& address, const GidEntry& source, Mac& mac) {
    const Place place = place_of(address, source.vlan);
    std::unique_lock lock(mutex_);
    if (const Neighbour& known = neighbours_[place]; known.known && Clock::now() - known.learned < lifetime) {
        mac = known.mac;
        return 0;
    }
    neighbours_[place].known = false;
    for (unsigned attempt = 0; attempt < attempts; ++attempt) {
        lock.unlock();
        const bool asked = ask(address, source);
        lock.lock();
        if (!asked) return ENOMEM;
        if (learned_.wait_for(lock, patience, [&] { return neighbours_[place].known; })) {
            mac = neighbours_[place].mac;
            return 0;
        }
    }
    neighbours_.erase(place);
    return ETIMEDOUT;
}

void Neighbours::learn(const ibv_gid& address, std::uint16_t vlan, const Mac& mac) noexcept {
    const std::lock_guard guard(mutex_);
    const auto found = neighbours_.find(place_of(address, vlan));
    if (found == neighbours_.end() || (mac[0] & 1)) return;
    found->second = {.known = true, .mac = mac, .learned = Clock::now()};
    learned_.notify_all();
}

bool Neighbours::take(std::span<const std::byte> frame) noexcept {
    const LinkLayer link = read_link_layer(frame.data(), frame.size());
    if (!link.understood) return false;
    std::array<std::byte, sizeof(Discovery)> untagged;  // as much as is looked at
    if (link.size > sizeof(Ethernet)) {
        const std::size_t size = std::min(untagged.size(), frame.size() - vlan_tag_size);
        std::memcpy(untagged.data(), frame.data(), before_type);
        std::memcpy(untagged.data() + before_type, frame.data() + before_type + vlan_tag_size, size - before_type);
        frame = {untagged.data(), size};
    }
    if (link.type == type_arp) return take_arp(frame, link.vlan);
    return link.type == type_ipv6 && take_discovery(frame, link.vlan);
}

bool Neighbours::take_arp(std::span<const std::byte> bytes, std::uint16_t vlan) noexcept {
    Arp frame;
    if (bytes.size() < sizeof frame) return false;
    std::memcpy(&frame, bytes.data(), sizeof frame);
    if (frame.hardware != htobe16(1) || frame.protocol != htobe16(0x0800) || frame.hardware_size != 6 ||
        frame.protocol_size != 4) {
        return false;
    }
    const Addresses& own = transport_.addresses();
    const ibv_gid target = mapped(frame.target);
    if (!own.holds(target, vlan) || frame.sender_mac == own.mac) return false;
    learn(mapped(frame.sender), vlan, frame.sender_mac);
    if (frame.operation == htobe16(arp_reply)) return true;
    if (frame.operation != htobe16(arp_request)) return false;
    Arp answer = frame;
    answer.ethernet = {frame.sender_mac, own.mac, htobe16(type_arp)};
    answer.operation = htobe16(arp_reply);
    answer.sender_mac = own.mac;
    std::memcpy(answer.sender, frame.target, 4);
    answer.target_mac = frame.sender_mac;
    std::memcpy(answer.target, frame.sender, 4);
    (void)send(bytes_of(answer), vlan);
    return true;
}

bool Neighbours::take_discovery(std::span<const std::byte> bytes, std::uint16_t vlan) noexcept {
    Discovery frame{};
    constexpr std::size_t without_option = sizeof frame - option_size;
    if (bytes.size() < without_option) return false;
    std::memcpy(&frame, bytes.data(), std::min(bytes.size(), sizeof frame));
    const std::size_t size = be16toh(frame.payload_size);
    if (be32toh(frame.version) >> 28 != 6 || frame.next_header != protocol_icmpv6 || frame.hop_limit != hop_limit ||
        frame.code != 0 || (frame.type != solicitation && frame.type != advertisement)) {
        return false;
    }
    const std::size_t message = sizeof frame - offsetof(Discovery, type);
    const bool option = size >= message && bytes.size() >= sizeof frame && frame.option_length == 1;
    const Addresses& own = transport_.addresses();
    const ibv_gid target = gid_of(frame.target);
    if (frame.type == advertisement) {
        if (frame.ethernet.destination != own.mac || !own.holds(gid_of(frame.destination), vlan)) return false;
        learn(target, vlan, option && frame.option == option_target ? frame.mac : frame.ethernet.source);
        return true;
    }
    if (!own.holds(target, vlan) || frame.ethernet.source == own.mac) return false;
    // Longer messages carry options that we do not know; the first one is ours to read (RFC 4861, 7.1.1).
    if (size == message && bytes.size() >= sizeof frame && checksum(frame, size) != 0) return true;
    const ibv_gid asker = gid_of(frame.source);
    constexpr ibv_gid unspecified{};
    const bool probe = std::memcmp(&asker, &unspecified, sizeof asker) == 0;  // duplicate address detection
    if (!probe) learn(asker, vlan, option && frame.option == option_source ? frame.mac : frame.ethernet.source);
    const Mac everyone{0x33, 0x33, 0, 0, 0, 1};
    Discovery answer = discovery(own.mac, probe ? everyone : frame.ethernet.source, advertisement,
                                 overrides | (probe ? 0 : is_solicited));
    std::memcpy(answer.source, frame.target, 16);
    const std::uint8_t all_nodes[16] = {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    std::memcpy(answer.destination, probe ? all_nodes : frame.source, 16);
    std::memcpy(answer.target, frame.target, 16);
    seal(answer);
    (void)send(bytes_of(answer), vlan);
    return true;
}

}  // namespace ovsdr::soft::roce
