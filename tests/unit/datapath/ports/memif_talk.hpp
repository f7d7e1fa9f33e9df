// NICs with memif vports, and the messages of a client of the test's own.
#pragma once

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "datapath/ports/memif_wire.hpp"
#include "datapath/ports/socket_path.hpp"
#include "nic_fixture.hpp"

namespace ovsdr::soft {

using memif::Message;
using memif::MessageType;

class MemifNicTest : public NicTest {
protected:
    MemifNicTest() : folder_("/tmp/ovs-dr-memif-" + std::to_string(getpid())) {
        mkdir(folder_.c_str(), 0700);
        path_ = folder_ + "/socket";
    }
    ~MemifNicTest() override {
        nic_.reset();
        for (const std::string& path : {path_, second_path()}) unlink(path.c_str());
        rmdir(folder_.c_str());
    }

    [[nodiscard]] std::string server(const std::string& more = "") const { return "net_memif,socket=" + path_ + more; }
    [[nodiscard]] std::string client(const std::string& more = "") const {
        return "net_memif,role=client,socket=" + path_ + more;
    }
    [[nodiscard]] std::string second_path() const { return path_ + "2"; }
    static std::string port(unsigned vport, const std::string& dpdk) {
        return R"({"vport": )" + std::to_string(vport) + R"(, "dpdk": ")" + dpdk + R"("})";
    }

    /// Options of a NIC with so many workers, each of which keeps its queues.
    static std::string workers(unsigned count) {
        return R"("control_socket": "", "workers": {"count": )" + std::to_string(count) + R"(, "rebalance": false})";
    }
    bool comes_up(unsigned vport = 1) {
        return eventually([&] { return info(vport).link_up; });
    }
    /// Number of a send queue that this worker polls, of up to three.
    static std::uint32_t queue_of(unsigned worker, unsigned which = 0) { return 120 + which * 6 + worker; }

    void move(unsigned vport, unsigned queue, unsigned worker) {
        EXPECT_EQ(device().move_queue(VportId{static_cast<std::uint16_t>(vport)}, 0, queue, worker), 0);
    }

    std::string folder_, path_;
};

/// One end of a connection's socket.
class MemifSocket {
public:
    explicit MemifSocket(int socket) : socket_(socket) {}
    ~MemifSocket() { close(socket_); }
    MemifSocket(const MemifSocket&) = delete;
    MemifSocket& operator=(const MemifSocket&) = delete;

    static Message message(MessageType type) {
        Message message;
        std::memset(static_cast<void*>(&message), 0, sizeof message);
        message.type = type;
        return message;
    }

    void send(const Message& message, int descriptor = -1) {
        send(&message, sizeof message, std::vector<int>(descriptor >= 0 ? 1 : 0, descriptor));
    }

    void send(const void* bytes, std::size_t size, const std::vector<int>& descriptors) {
        iovec piece{const_cast<void*>(bytes), size};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 64)] = {};
        msghdr header{};
        header.msg_iov = &piece;
        header.msg_iovlen = 1;
        if (!descriptors.empty()) {
            header.msg_control = control;
            header.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
            cmsghdr* item = CMSG_FIRSTHDR(&header);
            item->cmsg_level = SOL_SOCKET;
            item->cmsg_type = SCM_RIGHTS;
            item->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
            std::memcpy(CMSG_DATA(item), descriptors.data(), sizeof(int) * descriptors.size());
        }
        EXPECT_EQ(sendmsg(socket_, &header, MSG_NOSIGNAL), static_cast<ssize_t>(size));
    }

    /// The next message, of type none at the end.
    Message answer() {
        Message message = MemifSocket::message(MessageType::none);
        (void)recv(socket_, &message, sizeof message, 0);
        return message;
    }

    Message exchange(const Message& message, int descriptor = -1) {
        send(message, descriptor);
        return answer();
    }

protected:
    int socket_;
};

/// What a client says.
class MemifTalk : public MemifSocket {
public:
    explicit MemifTalk(const std::string& path) : MemifSocket(socket(AF_UNIX, SOCK_SEQPACKET, 0)) {
        const sockaddr_un address = socket_address(path);
        EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        hello = answer();
        EXPECT_EQ(hello.type, MessageType::hello);
    }

    Message init(std::uint32_t id = 0, const char* secret = "") {
        Message init = message(MessageType::init);
        init.init.version = memif::version;
        init.init.id = id;
        std::strncpy(init.init.secret, secret, sizeof init.init.secret);
        return exchange(init);
    }
    Message add_region(int file, std::uint64_t size) {
        Message region = message(MessageType::add_region);
        region.add_region.size = size;
        return exchange(region, file);
    }
    /// `event` is to wake the consumer.
    Message add_ring(const memif::AddRing& said, int event) {
        Message ring = message(MessageType::add_ring);
        ring.add_ring = said;
        return exchange(ring, event);
    }

    Message hello;
};

}  // namespace ovsdr::soft
