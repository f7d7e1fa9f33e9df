#include "datapath/ports/packet_queues.hpp"

#include <linux/filter.h>
#include <linux/if_ether.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "datapath/steering/vlan.hpp"

namespace ovsdr::soft {
namespace {

// A worker that waits for its turn on a busy host is away for some ten milliseconds; what comes then must fit, and of
// RoCE most: its unreliable services send nothing again. The kernel doubles it, and takes what it needs itself.
int room_to_receive(bool roce) noexcept {
    return (8 << 20) * (roce ? 4 : 1);
}
constexpr int room_to_send = 64 << 20;

// Of a frame that virtio's header cannot describe the kernel tells in place of the frame; of an interface that went
// down, once.
constexpr unsigned most_errors = 4;

template <typename Value>
int set(int socket, int level, int name, const Value& value) noexcept {
    return setsockopt(socket, level, name, &value, sizeof value) == 0 ? 0 : errno;
}

TakenTag tag_of(msghdr& message) noexcept {
    const cmsghdr* const told = CMSG_FIRSTHDR(&message);
    if (told == nullptr || told->cmsg_level != SOL_PACKET || told->cmsg_type != PACKET_AUXDATA) return {};
    tpacket_auxdata data;
    std::memcpy(&data, CMSG_DATA(told), sizeof data);
    const bool known = (data.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
    return {.there = (data.tp_status & TP_STATUS_VLAN_VALID) != 0,
            .type = known ? data.tp_vlan_tpid : type_cvlan,
            .tci = data.tp_vlan_tci};
}

void add(std::atomic<std::uint64_t>& count, std::uint64_t more) noexcept {
    count.store(count.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

int bind_to(int socket, unsigned interface, std::uint16_t protocol) noexcept {
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = __builtin_bswap16(protocol);
    address.sll_ifindex = static_cast<int>(interface);
    return bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

// For the sockets of a group: of each packet as much as they get of it.
int set_filter(int socket, std::span<sock_filter> program) noexcept {
    return set(socket, SOL_SOCKET, SO_ATTACH_FILTER,
               sock_fprog{.len = static_cast<unsigned short>(program.size()), .filter = program.data()});
}

int receive_nothing(int socket) noexcept {
    sock_filter program[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    return set_filter(socket, program);
}

int receive_what_comes_in(int socket) noexcept {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(SKF_AD_OFF + SKF_AD_PKTTYPE)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
    };
    return set_filter(socket, program);
}

}  // namespace

PacketReceiver::PacketReceiver(rte_mempool* pool) : pool_(pool) {
    const auto room = static_cast<std::uint16_t>(rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM);
    for (unsigned i = 0; i < received_at_a_time; ++i) incoming_.emplace_back(room);
}

PacketReceiver::~PacketReceiver() {
    if (socket_ >= 0) close(socket_);
    rte_pktmbuf_free_bulk(spares_.data(), spares_.size());
}

// Until it is bound with a protocol the socket receives nothing.
int PacketReceiver::open(unsigned interface, bool roce, FanoutGroup* group, std::string& step) {
    step = "no socket to receive by";
    socket_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (socket_ < 0) return errno;
    for (const int name : {PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, PACKET_AUXDATA}) {
        if (int result = set(socket_, SOL_PACKET, name, 1)) return result;
    }
    if (group != nullptr) {
        if (int result = receive_nothing(socket_)) return result;
    }
    (void)set(socket_, SOL_SOCKET, SO_RCVBUFFORCE, room_to_receive(roce));
    step = "not bound to the interface";
    packet_mreq all{};
    all.mr_ifindex = static_cast<int>(interface);
    all.mr_type = PACKET_MR_PROMISC;
    if (int result = set(socket_, SOL_PACKET, PACKET_ADD_MEMBERSHIP, all)) return result;
    if (int result = bind_to(socket_, interface, ETH_P_ALL)) return result;
    if (group == nullptr) return 0;
    step = "packets cannot be spread over several sockets";
    return join(*group);
}

// Only a socket that is bound can join.
int PacketReceiver::join(FanoutGroup& group) noexcept {
    constexpr unsigned ignore_outgoing = 0x4000;  // PACKET_FANOUT_FLAG_IGNORE_OUTGOING, since Linux 6.1
    constexpr unsigned spread = PACKET_FANOUT_HASH | ignore_outgoing;
    if (group) return set(socket_, SOL_PACKET, PACKET_FANOUT, spread << 16 | *group);
    if (int result = set(socket_, SOL_PACKET, PACKET_FANOUT, (spread | PACKET_FANOUT_FLAG_UNIQUEID) << 16)) {
        return result;
    }
    unsigned made = 0;
    socklen_t size = sizeof made;
    if (getsockopt(socket_, SOL_PACKET, PACKET_FANOUT, &made, &size) != 0) return errno;
    group = static_cast<std::uint16_t>(made);
    return 0;
}

int PacketReceiver::start() noexcept {
    return receive_what_comes_in(socket_);
}

std::uint64_t PacketReceiver::overruns() noexcept {
    tpacket_stats told{};  // since they were last asked for
    socklen_t size = sizeof told;
    (void)getsockopt(socket_, SOL_PACKET, PACKET_STATISTICS, &told, &size);
    return (overruns_ += told.tp_drops) + lost_.load(std::memory_order_relaxed);
}

// Frames into spares_, as many as there are buffers for. False: none has come.
bool PacketReceiver::receive_more() noexcept {
    unsigned length = 0;
    for (; length < received_at_a_time; ++length) {
        if (spares_[length] == nullptr) spares_[length] = rte_pktmbuf_alloc(pool_);
        if (spares_[length] == nullptr) break;
        const std::span<iovec> pieces = incoming_[length].read_into(spares_[length]);
        msghdr& message = arrivals_[length].msg_hdr;
        message.msg_iov = pieces.data();
        message.msg_iovlen = pieces.size();
        message.msg_control = &controls_[length];
        message.msg_controllen = sizeof controls_[length];
    }
    next_ = end_ = 0;
    for (unsigned errors = 0; length > 0 && errors < most_errors; ++errors) {
        const int received = recvmmsg(socket_, arrivals_.data(), length, MSG_DONTWAIT, nullptr);
        if (received > 0) {
            end_ = static_cast<unsigned>(received);
            drained_ = end_ < length;
            return true;
        }
        if (errno == EAGAIN) return false;
        if (errno == EINVAL) add(lost_, 1);
    }
    return false;
}

// Of cut_, which has one; nullptr when there is no buffer: then the rest is lost, as with a NIC.
rte_mbuf* PacketReceiver::next_segment() noexcept {
    rte_mbuf* const segment = rte_pktmbuf_alloc(pool_);
    if (segment == nullptr) {
        cut_.give_up();
        add(lost_, 1);
    } else {
        cut_.next(segment);
    }
    return segment;
}

std::uint16_t PacketReceiver::receive(void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
    auto& receiver = *static_cast<PacketReceiver*>(self);
    std::uint16_t received = 0;
    receiver.drained_ = false;
    while (received < length) {
        if (receiver.cut_.more()) {
            rte_mbuf* const segment = receiver.next_segment();
            if (segment != nullptr) packets[received++] = segment;
            continue;
        }
        if (received >= poll_length) break;
        if (receiver.next_ == receiver.end_ && (receiver.drained_ || !receiver.receive_more())) break;
        const unsigned current = receiver.next_++;
        mmsghdr& arrival = receiver.arrivals_[current];
        if ((arrival.msg_hdr.msg_flags & MSG_TRUNC) != 0) {  // longer than IP allows
            add(receiver.lost_, 1);
            continue;
        }
        const TakenTag tag = tag_of(arrival.msg_hdr);
        if (receiver.incoming_[current].finish(arrival.msg_len, tag, receiver.spares_[current], receiver.cut_)) {
            packets[received++] = std::exchange(receiver.spares_[current], nullptr);
        }
    }
    return received;
}

PacketSender::~PacketSender() {
    if (socket_ >= 0) close(socket_);
}

int PacketSender::open(unsigned interface, bool qdisc_bypass, std::string& step) {
    step = "no socket to send by";
    socket_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (socket_ < 0) return errno;
    if (int result = set(socket_, SOL_PACKET, PACKET_VNET_HDR, 1)) return result;
    if (int result = set(socket_, SOL_PACKET, PACKET_QDISC_BYPASS, static_cast<int>(qdisc_bypass))) return result;
    // What the kernel does not take because packets before are still on their way would be dropped.
    (void)set(socket_, SOL_SOCKET, SO_SNDBUFFORCE, room_to_send);
    return bind_to(socket_, interface, 0);
}

void PacketSender::refuse(std::span<rte_mbuf*> packets) noexcept {
    for (const rte_mbuf* packet : packets) add(bytes_, packet->pkt_len);
    add(packets_, packets.size());
}

std::uint16_t PacketSender::send(void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
    auto& sender = *static_cast<PacketSender*>(self);
    unsigned ends[batch_length], messages = 0;
    for (unsigned described = 0; described < length && messages < batch_length; ++messages) {
        Message& message = sender.messages_[messages];
        if (sender.joins_) {
            described += message.join({packets + described, length - described});
        } else {
            message.set(packets[described++]);
        }
        const std::span<iovec> pieces = message.pieces();
        sender.departures_[messages].msg_hdr.msg_iov = pieces.data();
        sender.departures_[messages].msg_hdr.msg_iovlen = pieces.size();
        ends[messages] = described;
    }
    unsigned sent = 0;
    for (unsigned message = 0; message < messages; sent = ends[message - 1]) {
        const int taken = sendmmsg(sender.socket_, &sender.departures_[message], messages - message, MSG_DONTWAIT);
        if (taken > 0) {
            message += static_cast<unsigned>(taken);
        } else if (errno == EMSGSIZE || errno == EINVAL) {
            sender.refuse({packets + sent, packets + ends[message]});
            ++message;
        } else {
            break;
        }
    }
    rte_pktmbuf_free_bulk(packets, sent);
    return static_cast<std::uint16_t>(sent);
}

}  // namespace ovsdr::soft
