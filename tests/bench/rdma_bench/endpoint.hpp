// One end of a reliable connection for the benchmark: a device, a QP, and a buffer that the other end may write.
//
// Life cycle. Made after fork(): the soft NIC is of the process that opens it. connect() with the other end's address,
// which travels by whatever the caller likes; then write() on one side.
// Errors: exceptions that name the call.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace ovsdr::bench {

/// What the other end must know. A plain value: it goes through a pipe as it is.
struct Address {
    std::uint32_t qpn, psn;
    ibv_gid gid;
    std::uint64_t buffer;
    std::uint32_t rkey;
};

class Endpoint {
public:
    /// `size`: bytes of the buffer.
    explicit Endpoint(std::size_t size);

    [[nodiscard]] Address address() const;
    void connect(const Address& peer);

    /// RDMA WRITEs of `message_size` bytes for `duration`; bytes per second that were acknowledged.
    [[nodiscard]] double write(std::size_t message_size, std::chrono::duration<double> duration);

    /// The last bytes that the other end has written.
    [[nodiscard]] const std::vector<std::uint8_t>& buffer() const noexcept { return buffer_; }
    void fill(std::uint8_t value) noexcept;

private:
    template <auto destroy>
    struct Deleter {
        template <typename T>
        void operator()(T* object) const noexcept {
            destroy(object);
        }
    };
    template <typename T, auto destroy>
    using Owned = std::unique_ptr<T, Deleter<destroy>>;

    void post(std::size_t message_size);
    unsigned reap();

    std::vector<std::uint8_t> buffer_;
    Owned<ibv_context, ibv_close_device> context_;
    Owned<ibv_pd, ibv_dealloc_pd> pd_;
    Owned<ibv_cq, ibv_destroy_cq> cq_;
    Owned<ibv_mr, ibv_dereg_mr> mr_;
    Owned<ibv_qp, ibv_destroy_qp> qp_;
    int gid_index_ = 0;
    ibv_gid gid_{};
    Address peer_{};
};

}  // namespace ovsdr::bench
