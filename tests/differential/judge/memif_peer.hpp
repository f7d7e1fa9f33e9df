// The other end of a vport of the soft NIC that is on memif: frames in and out, none lost, in order.
//
// The model. The client of the protocol: it makes one region of shared memory with both rings and a buffer for each
// descriptor. The caller keeps fewer frames under way than a ring has descriptors (ring_length).
//
// Threads: one. Errors: std::runtime_error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ovsdr::differential {

class MemifPeer {
public:
    static constexpr unsigned ring_length = 2048;
    static constexpr unsigned buffer_size = 2048;

    /// Connects to the vport's socket, for which it waits.
    explicit MemifPeer(const std::string& path);
    ~MemifPeer();
    MemifPeer(const MemifPeer&) = delete;
    MemifPeer& operator=(const MemifPeer&) = delete;

    void send(std::span<const std::uint8_t> frame);
    /// The next frame that the vport sent; empty when there is none.
    [[nodiscard]] std::vector<std::uint8_t> receive();

private:
    int connect_socket(const std::string& path);
    void make_region();
    void handshake();

    int socket_ = -1, memory_file_ = -1;
    int events_[2] = {-1, -1};
    std::byte* memory_ = nullptr;
    std::uint16_t sent_ = 0, received_ = 0;
};

}  // namespace ovsdr::differential
