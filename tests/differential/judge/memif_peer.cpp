#include "tests/differential/judge/memif_peer.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "datapath/ports/memif_wire.hpp"

namespace ovsdr::differential {

namespace {

namespace memif = soft::memif;
using memif::Message;
using memif::MessageType;
using namespace std::chrono_literals;

constexpr unsigned log2_ring = std::countr_zero(MemifPeer::ring_length);
constexpr std::size_t ring_size = 128 + sizeof(memif::Descriptor) * MemifPeer::ring_length;
constexpr std::size_t buffers = 2 * ring_size;
constexpr std::size_t region_size = buffers + 2 * std::size_t{MemifPeer::ring_length} * MemifPeer::buffer_size;
enum Direction : unsigned { to_server = 0, to_client = 1 };

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("memif: " + what); }

memif::Ring& ring(std::byte* memory, Direction direction) {
    return *reinterpret_cast<memif::Ring*>(memory + direction * ring_size);
}

Message message_of(MessageType type) {
    Message message;
    std::memset(static_cast<void*>(&message), 0, sizeof message);
    message.type = type;
    return message;
}

Message answer(int socket) {
    Message message = message_of(MessageType::none);
    if (recv(socket, &message, sizeof message, 0) != static_cast<ssize_t>(sizeof message)) fail("no answer");
    return message;
}

void exchange(int socket, const Message& message, MessageType expected, int descriptor = -1) {
    iovec piece{const_cast<Message*>(&message), sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    if (descriptor >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        cmsghdr* const item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(item), &descriptor, sizeof descriptor);
    }
    if (sendmsg(socket, &header, MSG_NOSIGNAL) < 0) fail("cannot send");
    const Message reply = answer(socket);
    if (reply.type == MessageType::disconnect) fail(reply.disconnect.reason);
    if (reply.type != expected) fail("unexpected answer");
}

}  // namespace

MemifPeer::MemifPeer(const std::string& path) {
    socket_ = connect_socket(path);
    make_region();
    handshake();
}

MemifPeer::~MemifPeer() {
    if (memory_ != nullptr) munmap(memory_, region_size);
    for (const int descriptor : {socket_, memory_file_, events_[0], events_[1]}) {
        if (descriptor >= 0) close(descriptor);
    }
}

int MemifPeer::connect_socket(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) fail(path + ": too long a name");
    path.copy(address.sun_path, path.size());
    for (int tries = 0; tries < 1000; ++tries) {
        const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return socket;
        close(socket);
        std::this_thread::sleep_for(10ms);
    }
    fail("nobody at " + path);
}

void MemifPeer::make_region() {
    memory_file_ = memfd_create("memif-peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory_file_ < 0 || ftruncate(memory_file_, region_size) != 0) fail("no shared memory");
    if (fcntl(memory_file_, F_ADD_SEALS, F_SEAL_SHRINK) != 0) fail("no seal");
    void* const memory = mmap(nullptr, region_size, PROT_READ | PROT_WRITE, MAP_SHARED, memory_file_, 0);
    if (memory == MAP_FAILED) fail("no shared memory");
    memory_ = static_cast<std::byte*>(memory);
    for (const Direction direction : {to_server, to_client}) {
        memif::Ring& made = ring(memory_, direction);
        made.cookie = memif::ring_cookie;
        for (unsigned i = 0; i < ring_length; ++i) {
            const std::size_t number = std::size_t{direction} * ring_length + i;
            made.descriptors[i] = {.length = buffer_size,
                                   .offset = static_cast<std::uint32_t>(buffers + number * buffer_size)};
        }
    }
}

void MemifPeer::handshake() {
    if (answer(socket_).type != MessageType::hello) fail("no HELLO");
    Message message = message_of(MessageType::init);
    message.init.version = memif::version;
    exchange(socket_, message, MessageType::ack);
    message = message_of(MessageType::add_region);
    message.add_region.size = region_size;
    exchange(socket_, message, MessageType::ack, memory_file_);
    for (const Direction direction : {to_server, to_client}) {
        events_[direction] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        message = message_of(MessageType::add_ring);
        message.add_ring.flags = direction == to_server ? 1 : 0;
        message.add_ring.offset = static_cast<std::uint32_t>(direction * ring_size);
        message.add_ring.log2_size = log2_ring;
        exchange(socket_, message, MessageType::ack, events_[direction]);
    }
    exchange(socket_, message_of(MessageType::connect), MessageType::connected);
    memif::Ring& empty = ring(memory_, to_client);
    empty.flags = memif::ring_no_wake_up;   // we look
    __atomic_store_n(&empty.head, static_cast<std::uint16_t>(ring_length), __ATOMIC_RELEASE);
}

void MemifPeer::send(std::span<const std::uint8_t> frame) {
    memif::Ring& to = ring(memory_, to_server);
    if (frame.size() > buffer_size) fail("too long a frame");
    const std::uint16_t taken = __atomic_load_n(&to.tail, __ATOMIC_ACQUIRE);
    if (static_cast<std::uint16_t>(sent_ - taken) == ring_length) fail("ring full");
    memif::Descriptor& descriptor = to.descriptors[sent_ % ring_length];
    descriptor.flags = 0;
    descriptor.length = static_cast<std::uint32_t>(frame.size());
    std::memcpy(memory_ + descriptor.offset, frame.data(), frame.size());
    __atomic_store_n(&to.head, ++sent_, __ATOMIC_SEQ_CST);
    if ((__atomic_load_n(&to.flags, __ATOMIC_SEQ_CST) & memif::ring_no_wake_up) != 0) return;
    const std::uint64_t one = 1;
    if (write(events_[to_server], &one, sizeof one) < 0) fail("cannot wake");
}

std::vector<std::uint8_t> MemifPeer::receive() {
    memif::Ring& from = ring(memory_, to_client);
    if (__atomic_load_n(&from.tail, __ATOMIC_ACQUIRE) == received_) return {};
    memif::Descriptor& descriptor = from.descriptors[received_ % ring_length];
    if ((descriptor.flags & memif::descriptor_next) != 0) fail("a frame of several buffers");
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(memory_ + descriptor.offset);
    std::vector<std::uint8_t> frame(bytes, bytes + descriptor.length);
    descriptor.length = buffer_size;
    ++received_;
    __atomic_store_n(&from.head, static_cast<std::uint16_t>(received_ + ring_length), __ATOMIC_RELEASE);
    return frame;
}

}  // namespace ovsdr::differential
