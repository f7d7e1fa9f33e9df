#include "datapath/ports/memif_port.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;
using memif::Direction;
using memif::FileDescriptor;
using memif::Message;
using memif::MessageType;
using memif::Role;

constexpr auto longest_handshake = 5s;
// Of a client whose server has not let it in. It looks once a second.
constexpr auto between_tries = 900ms;
constexpr unsigned most_at_once = 4;   // peers that are let in, or told that there is one

template <std::size_t size>
void copy_text(char (&target)[size], std::string_view text) noexcept {
    std::fill(std::begin(target), std::end(target), '\0');
    text.copy(target, size);
}

Message message_of(MessageType type) noexcept {
    Message message;
    std::memset(static_cast<void*>(&message), 0, sizeof message);
    message.type = type;
    return message;
}

/// Closes all that came with a message but the first, and returns how many those were. No message has more than one.
unsigned take_descriptors(msghdr& header, FileDescriptor& first) noexcept {
    unsigned surplus = 0;
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
        if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
        for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= item->cmsg_len; at += sizeof(int)) {
            int number = -1;
            std::memcpy(&number, reinterpret_cast<const std::byte*>(item) + at, sizeof number);
            FileDescriptor taken(number);
            if (first.get() >= 0) {
                ++surplus;
            } else {
                first = std::move(taken);
            }
        }
    }
    return surplus;
}

}  // namespace

MemifPort::MemifPort(const PortSpec& spec, const Driver& driver)
    : Port(driver),
      role_(dpdk_argument(spec.arguments, "role") == "client" ? Role::client : Role::server),
      path_(dpdk_argument(spec.arguments, "socket")),
      id_(number_argument(spec.arguments, "id", 0)),
      log2_ring_(number_argument(spec.arguments, "rsize", memif::usual_log2_ring)),
      buffer_size_(number_argument(spec.arguments, "bsize", memif::usual_buffer_size)),
      secret_(dpdk_argument(spec.arguments, "secret")),
      queues_(number_argument(spec.arguments, "queues", 1)),
      changed_(spec.changed),
      synchronize_(spec.synchronize) {
    pool_ = choose_memory(spec.memory, spec.mtu.value_or(Port::mtu()));
    refused_from_.fill(memif::most_rings);
}

MemifPort::~MemifPort() {
    end_talk("Device closed");
    file_.remove();
    if (listener_ >= 0) close(listener_);
    for (const Queue& queue : queues_) {
        if (queue.wake >= 0) close(queue.wake);
    }
}

std::unique_ptr<Port> MemifPort::open(const PortSpec& spec, const Driver& driver, std::string& error) {
    std::unique_ptr<MemifPort> port(new MemifPort(spec, driver));
    if (int result = port->make_queues()) {
        error = fmt::format("net_memif: epoll: {}", std::strerror(result));
        return nullptr;
    }
    if (port->role_ == Role::server && port->listen_on(port->path_, error) != 0) return nullptr;
    port->serve();  // a client connects at once where there is a server
    return port;
}

int MemifPort::make_queues() {
    std::vector<PortReceiveQueue> to_receive;
    std::vector<PortSendQueue> to_send;
    for (Queue& queue : queues_) {
        queue = {.port = this,
                 .number = static_cast<unsigned>(&queue - queues_.data()),
                 .wake = epoll_create1(EPOLL_CLOEXEC)};
        if (queue.wake < 0) return errno;
        to_receive.push_back(
            {.receive = receive, .queue = &queue, .wake_sources = {{.descriptor = queue.wake, .is_epoll = true}}});
        to_send.push_back({.send = send, .queue = &queue});
    }
    set_queues(std::move(to_receive), std::move(to_send));
    send_queues_vary_ = queues_.size() > 1;
    usable_send_queues_.store(1, std::memory_order_relaxed);
    return 0;
}

int MemifPort::listen_on(const std::string& path, std::string& error) {
    const SocketLock lock(path);
    const auto failed = [&](int cause) {
        error = fmt::format("net_memif: socket={}{}", socket_problem(path, cause),
                            cause == EADDRINUSE ? "; each port needs its own" : "");
        return cause;
    };
    if (lock.error() != 0) return failed(lock.error());
    if (int result = free_socket_path(path, SOCK_SEQPACKET)) return failed(result);
    listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const sockaddr_un address = socket_address(path);
    if (listener_ < 0 || bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_, 4) != 0) {
        return failed(errno);
    }
    return file_.remember(path);
}

void MemifPort::watch(std::vector<pollfd>& polled) const {
    if (listener_ >= 0) polled.push_back({listener_, POLLIN, 0});
    if (talk_ >= 0) polled.push_back({talk_, POLLIN, 0});
}

void MemifPort::serve() noexcept {
    try {
        if (talk_ >= 0) read_messages();
        if (talk_ >= 0 && live_.load() == nullptr && Clock::now() - begun_ > longest_handshake) end_talk("No answer");
        if (connection_ && connection_->broken()) end_talk("Broken ring");
        if (listener_ >= 0) accept_peer();
        if (role_ == Role::client && talk_ < 0 && Clock::now() >= next_try_) connect_to_server();
    } catch (const std::bad_alloc&) {
        end_talk("No memory");
    }
}

void MemifPort::accept_peer() {
    // Who comes after these is there the next time: this thread has other ports to look after.
    for (unsigned accepted = 0; accepted < most_at_once; ++accepted) {
        const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket < 0) return;
        if (talk_ >= 0) {
            Message refusal = message_of(MessageType::disconnect);
            copy_text(refusal.disconnect.reason, "Already connected");
            (void)::send(socket, &refusal, sizeof refusal, MSG_NOSIGNAL);
            close(socket);
            continue;
        }
        start_talk(socket);
        Message hello = message_of(MessageType::hello);
        copy_text(hello.hello.name, "ovs-dr");
        hello.hello.lowest_version = hello.hello.highest_version = memif::version;
        hello.hello.last_region = memif::most_regions - 1;
        hello.hello.last_s2c_ring = hello.hello.last_c2s_ring = static_cast<std::uint16_t>(queues_.size() - 1);
        hello.hello.largest_log2_ring = memif::largest_log2_ring;
        (void)send_message(hello);
    }
}

void MemifPort::connect_to_server() {
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket < 0) return;
    const sockaddr_un address = socket_address(path_);
    if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        forget_refusals();
        close(socket);
        return;
    }
    start_talk(socket);
}

void MemifPort::start_talk(int socket) {
    talk_ = socket;
    step_ = Step::hello;
    rings_named_ = 0;
    begun_ = Clock::now();
    connection_ = std::make_unique<memif::Connection>(role_, pool_, static_cast<unsigned>(queues_.size()));
}

// With a reason, the peer is told.
void MemifPort::end_talk(const char* reason) noexcept {
    if (talk_ < 0) return;
    if (reason != nullptr) {
        Message message = message_of(MessageType::disconnect);
        copy_text(message.disconnect.reason, reason);
        (void)send_message(message);
    }
    const bool was_live = live_.exchange(nullptr) != nullptr;
    if (!was_live) next_try_ = Clock::now() + between_tries;
    if (was_live) {
        // A worker that has seen more send queues than the next connection has rings is done when synchronize_ returns.
        usable_send_queues_.store(1, std::memory_order_relaxed);
        synchronize_();
        forget_refusals();
    }
    // The peer has the eventfds too: closing ours would not take them out of the sets.
    const Direction receiving = connection_ ? connection_->receiving() : Direction{};
    for (unsigned ring = 0; connection_ && ring < connection_->ring_count(receiving); ++ring) {
        (void)epoll_ctl(queues_[ring].wake, EPOLL_CTL_DEL, connection_->event(receiving, ring), nullptr);
    }
    connection_.reset();
    close(talk_);
    talk_ = -1;
    if (was_live) changed_();
}

void MemifPort::read_messages() {
    while (talk_ >= 0) {
        Message message;
        iovec piece{.iov_base = &message, .iov_len = sizeof message};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4) + CMSG_SPACE(sizeof(ucred))];
        msghdr header{};
        header.msg_iov = &piece;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        const ssize_t size = recvmsg(talk_, &header, MSG_CMSG_CLOEXEC);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
        FileDescriptor descriptor;
        const unsigned surplus = size >= 0 ? take_descriptors(header, descriptor) : 0;
        if (size <= 0) return leave({});
        if (size != sizeof message) return end_talk("Invalid message size");
        if (surplus != 0 || (header.msg_flags & MSG_CTRUNC) != 0) return end_talk("Too many file descriptors");
        if (message.type == MessageType::disconnect) {
            const char* const reason = message.disconnect.reason;
            return leave({reason, strnlen(reason, sizeof message.disconnect.reason)});
        }
        if (const char* problem = handle(message, std::move(descriptor))) end_talk(problem);
    }
}

const char* MemifPort::handle(const Message& message, FileDescriptor descriptor) {
    return role_ == Role::server ? handle_as_server(message, std::move(descriptor)) : handle_as_client(message);
}

const char* MemifPort::check_init(const memif::Init& init) const noexcept {
    if (init.version != memif::version) return "Incompatible memif version";
    if (init.id != id_) return "ID not found";
    if (init.mode != 0) return "Only ethernet mode supported";
    if (secret_.empty()) return nullptr;
    return secret_ == std::string_view(init.secret, strnlen(init.secret, sizeof init.secret)) ? nullptr
                                                                                              : "Incorrect secret";
}

const char* MemifPort::handle_as_server(const Message& message, FileDescriptor descriptor) {
    const char* problem = nullptr;
    if (message.type == MessageType::add_region && step_ == Step::region) {
        problem = connection_->add_region(message.add_region, std::move(descriptor));
    } else if (message.type == MessageType::add_ring && step_ == Step::region) {
        problem = connection_->add_ring(message.add_ring, std::move(descriptor));
    } else {
        if (message.type == MessageType::connect && step_ == Step::region) return go_live();
        if (message.type != MessageType::init || step_ != Step::hello) return "Unexpected message";
        problem = check_init(message.init);
        step_ = Step::region;
    }
    if (problem != nullptr) return problem;
    return send_message(message_of(MessageType::ack)) ? nullptr : "No answer";
}

const char* MemifPort::handle_as_client(const Message& message) {
    if (message.type == MessageType::hello && step_ == Step::hello) {
        if (message.hello.lowest_version > memif::version || message.hello.highest_version < memif::version) {
            return "Incompatible memif version";
        }
        const memif::Layout layout{.to_server = rings_for(Direction::client_to_server, message.hello.last_c2s_ring),
                                   .to_client = rings_for(Direction::server_to_client, message.hello.last_s2c_ring),
                                   .log2_ring = std::min<unsigned>(log2_ring_, message.hello.largest_log2_ring),
                                   .buffer_size = buffer_size_};
        if (const char* problem = connection_->make_memory(layout)) return problem;
        step_ = Step::init;
        return go_on();
    }
    if (message.type == MessageType::ack && step_ > Step::init && step_ < Step::done) return go_on();
    if (message.type == MessageType::connected && step_ == Step::done && live_.load() == nullptr) return go_live();
    return "Unexpected message";
}

// As many rings as the port has queues and the server takes. `last`: the highest index that its HELLO names.
unsigned MemifPort::rings_for(Direction direction, std::uint16_t last) const noexcept {
    return std::min(
        {static_cast<unsigned>(queues_.size()), last + 1U, refused_from_[static_cast<unsigned>(direction)]});
}

// In the order in which the client names its rings.
MemifPort::RingName MemifPort::client_ring(unsigned number) const noexcept {
    const unsigned to_server = connection_->ring_count(Direction::client_to_server);
    if (number < to_server) return {Direction::client_to_server, number};
    return {Direction::server_to_client, number - to_server};
}

// The peer has left, for this reason. A server that has learned of a ring too many is asked anew at once.
void MemifPort::leave(std::string_view reason) noexcept {
    const bool heeded = role_ == Role::client && heed_refusal(reason);
    end_talk(nullptr);
    if (heeded) next_try_ = {};
}

// If the server has left because of a ring, and not of the first one, do without it next time. It may also leave in the
// middle of all this because it ends. DPDK's and VPP's reasons name the ring; libmemif only closes, or says something
// else: what counts is that it does so twice at the same ring.
bool MemifPort::heed_refusal(std::string_view reason) noexcept {
    if (rings_named_ == 0 || step_ == Step::done) return false;
    const bool names_ring = reason.find("ring") != reason.npos || reason.find("Ring") != reason.npos;
    if (std::exchange(unanswered_, rings_named_) != rings_named_ && !names_ring) return false;
    const RingName refused = client_ring(rings_named_ - 1);
    if (refused.index == 0) return false;
    refused_from_[static_cast<unsigned>(refused.direction)] = refused.index;
    return true;
}

// The next server may be another one.
void MemifPort::forget_refusals() noexcept {
    refused_from_.fill(memif::most_rings);
    unanswered_ = 0;
}

// The client's next message.
const char* MemifPort::go_on() {
    Message message;
    int descriptor = -1;
    if (step_ == Step::init) {
        message = message_of(MessageType::init);
        message.init.version = memif::version;
        message.init.id = id_;
        copy_text(message.init.secret, secret_);
        copy_text(message.init.name, "ovs-dr");
        step_ = Step::region;
    } else if (step_ == Step::region) {
        message = message_of(MessageType::add_region);
        message.add_region.size = connection_->region_size();
        descriptor = connection_->region_descriptor();
        step_ = Step::rings;
    } else if (step_ == Step::rings) {
        const auto [direction, index] = client_ring(rings_named_++);
        const memif::RingPlace& place = connection_->place(direction, index);
        message = message_of(MessageType::add_ring);
        message.add_ring.flags = direction == Direction::client_to_server ? 1 : 0;
        message.add_ring.index = static_cast<std::uint16_t>(index);
        message.add_ring.region = place.region;
        message.add_ring.offset = place.offset;
        message.add_ring.log2_size = place.log2_size;
        descriptor = connection_->event(direction, index);
        const bool last = direction == Direction::server_to_client && index + 1 == connection_->ring_count(direction);
        if (last) step_ = Step::connect;
    } else {
        message = message_of(MessageType::connect);
        copy_text(message.name.interface, "ovs-dr");
        step_ = Step::done;
    }
    return send_message(message, descriptor) ? nullptr : "No answer";
}

const char* MemifPort::go_live() {
    if (const char* problem = connection_->complete()) return problem;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    const Direction receiving = connection_->receiving();
    for (unsigned ring = 0; ring < connection_->ring_count(receiving); ++ring) {
        const int wake_up = connection_->event(receiving, ring);
        if (epoll_ctl(queues_[ring].wake, EPOLL_CTL_ADD, wake_up, &event) != 0) return "No wake-up";
    }
    usable_send_queues_.store(connection_->ring_count(connection_->sending()), std::memory_order_relaxed);
    live_.store(connection_.get());
    if (role_ == Role::server) {
        // Not before we take frames: the peer sends as soon as it reads this.
        Message message = message_of(MessageType::connected);
        copy_text(message.name.interface, "ovs-dr");
        if (!send_message(message)) return "No answer";
        step_ = Step::done;
    }
    changed_();
    return nullptr;
}

bool MemifPort::send_message(const Message& message, int descriptor) const noexcept {
    Message copy = message;
    iovec piece{.iov_base = &copy, .iov_len = sizeof copy};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (descriptor >= 0) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        cmsghdr* item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(item), &descriptor, sizeof descriptor);
    }
    return sendmsg(talk_, &header, MSG_NOSIGNAL) == sizeof copy;
}

void MemifPort::set_armed(unsigned queue, bool on) noexcept {
    if (memif::Connection* connection = live_.load()) connection->arm(queue, on);
}

std::uint16_t MemifPort::receive(void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
    const Queue& queue = *static_cast<const Queue*>(self);
    memif::Connection* connection = queue.port->live_.load(std::memory_order_acquire);
    return connection == nullptr ? 0 : connection->receive(queue.number, packets, length);
}

std::uint16_t MemifPort::send(void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
    const Queue& queue = *static_cast<const Queue*>(self);
    memif::Connection* connection = queue.port->live_.load(std::memory_order_acquire);
    return connection == nullptr ? 0 : connection->send(queue.number, packets, length);
}

}  // namespace ovsdr::soft
