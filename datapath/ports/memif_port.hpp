// net_memif: a port to another process by shared memory; VPP, libmemif and DPDK's driver of this name speak it too.
//
//   net_memif,socket=PATH[,role=server|client][,id=N][,queues=N][,rsize=LOG2][,bsize=BYTES][,secret=TEXT]
//
// A server (the default) makes the socket file and waits; it serves one peer, and the next when that one is gone. A
// client connects to PATH, and again every second while nobody serves it. `rsize` and `bsize` are the client's to
// choose: descriptors of a ring as a power of two (default 10), bytes of a buffer (default 2048). The link is up while
// a peer is connected; who restarts finds the other waiting.
//
// `queues` is the number of rings each way that the port has room for, 1 (the default) to 16: a receive queue for each,
// and a queue to send by. How many there are is for each connection to say, and may differ between the ways: a server
// offers `queues`, and the client makes as many as it wants; as a client the port makes `queues`, or as many as the
// server takes. A receive queue without a ring is silent, a send queue without one is not used. Some servers (DPDK's
// driver, libmemif) promise more rings in their HELLO than they take, and refuse the first that they have no queue for:
// the next attempt does without.
//
// DPDK's driver is not used: it cannot wake a sleeping worker, it unmaps memory that a worker is reading when a peer
// leaves, and it believes what the peer writes into the rings. See memif_connection.hpp.
//
// Threads: as port.hpp says. What workers use is one atomic pointer; a connection dies after a synchronize().
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "datapath/ports/memif_connection.hpp"
#include "datapath/ports/port.hpp"
#include "datapath/ports/socket_path.hpp"

namespace ovsdr::soft {

class MemifPort final : public Port {
public:
    [[nodiscard]] static std::unique_ptr<Port> open(const PortSpec& spec, const Driver& driver, std::string& error);
    ~MemifPort() override;

    void arm(unsigned queue) noexcept override { set_armed(queue, true); }
    void disarm(unsigned queue) noexcept override { set_armed(queue, false); }
    [[nodiscard]] bool link_up() const noexcept override { return live_.load() != nullptr; }
    void watch(std::vector<pollfd>& polled) const override;
    void serve() noexcept override;

private:
    using Clock = std::chrono::steady_clock;

    /// What the client sends next; each waits for the answer to the one before.
    enum class Step : std::uint8_t { hello, init, region, rings, connect, done };

    /// One to receive by and one to send by: of the rings of this number, where the peer has them.
    struct Queue {
        MemifPort* port;
        unsigned number;
        int wake = -1;  ///< epoll descriptor that collects the peer's wake-ups
    };
    struct RingName {
        memif::Direction direction;
        unsigned index;
    };

    MemifPort(const PortSpec& spec, const Driver& driver);
    int make_queues();
    int listen_on(const std::string& path, std::string& error);
    void accept_peer();
    void connect_to_server();
    void start_talk(int socket);
    void end_talk(const char* reason) noexcept;
    void read_messages();
    [[nodiscard]] const char* handle(const memif::Message& message, memif::FileDescriptor descriptor);
    [[nodiscard]] const char* handle_as_server(const memif::Message& message, memif::FileDescriptor descriptor);
    [[nodiscard]] const char* handle_as_client(const memif::Message& message);
    [[nodiscard]] const char* check_init(const memif::Init& init) const noexcept;
    [[nodiscard]] unsigned rings_for(memif::Direction direction, std::uint16_t last) const noexcept;
    [[nodiscard]] RingName client_ring(unsigned number) const noexcept;
    void leave(std::string_view reason) noexcept;
    [[nodiscard]] bool heed_refusal(std::string_view reason) noexcept;
    void forget_refusals() noexcept;
    [[nodiscard]] const char* go_on();
    [[nodiscard]] const char* go_live();
    bool send_message(const memif::Message& message, int descriptor = -1) const noexcept;
    void set_armed(unsigned queue, bool on) noexcept;
    static std::uint16_t receive(void* self, rte_mbuf** packets, std::uint16_t length) noexcept;
    static std::uint16_t send(void* self, rte_mbuf** packets, std::uint16_t length) noexcept;

    const memif::Role role_;
    const std::string path_;
    const std::uint32_t id_;
    const unsigned log2_ring_;
    const std::uint32_t buffer_size_;
    const std::string secret_;
    std::vector<Queue> queues_;
    const std::function<void()> changed_, synchronize_;
    rte_mempool* pool_;
    int listener_ = -1;  ///< server
    SocketFile file_;

    int talk_ = -1;  ///< the socket to the peer
    Step step_ = Step::hello;
    unsigned rings_named_ = 0;                ///< client: ADD_RINGs that have been sent
    unsigned unanswered_ = 0;                 ///< client: how many had been when the server left last
    std::array<unsigned, 2> refused_from_{};  ///< client: the first ring that the server refuses, in each direction
    Clock::time_point begun_{}, next_try_{};
    std::unique_ptr<memif::Connection> connection_;
    std::atomic<memif::Connection*> live_{nullptr};  ///< connection_ once it is complete: the workers'
};

}  // namespace ovsdr::soft
