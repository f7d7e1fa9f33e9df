#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "offload/dr/device/device.hpp"
#include "offload/dr/vport.hpp"

namespace ovsdr::dr {

namespace {

constexpr std::uint16_t event_port_change = 0x9, event_nic_vport_change = 0xd;

struct DestroyChannel {
    void operator()(mlx5dv_devx_event_channel* channel) const noexcept { mlx5dv_devx_destroy_event_channel(channel); }
};
using Channel = std::unique_ptr<mlx5dv_devx_event_channel, DestroyChannel>;

class EventFd {
public:
    explicit EventFd(int fd) noexcept : fd_(fd) {}
    ~EventFd() {
        if (fd_ >= 0) close(fd_);
    }
    EventFd(const EventFd&) = delete;
    EventFd& operator=(const EventFd&) = delete;
    [[nodiscard]] int get() const noexcept { return fd_; }

private:
    int fd_;
};

class ThreadedWatcher final : public VportWatcher {
public:
    ThreadedWatcher(Channel channel, int end_fd, std::function<void()> changed)
        : channel_(std::move(channel)), end_(end_fd), changed_(std::move(changed)) {
        thread_ = std::thread([this] { watch(); });
        pthread_setname_np(thread_.native_handle(), "dr-events");
    }

    ~ThreadedWatcher() override {
        const std::uint64_t one = 1;
        while (write(end_.get(), &one, sizeof one) < 0 && errno == EINTR) {}
        thread_.join();
    }

private:
    void watch() {
        // A device that was taken out leaves a channel that is hung up, and readable without an event (kernel: devx.c).
        constexpr short hung_up = POLLRDHUP | POLLHUP | POLLERR;
        pollfd waited[] = {{channel_->fd, POLLIN | POLLRDHUP, 0}, {end_.get(), POLLIN, 0}};
        while (true) {
            if (poll(waited, 2, -1) < 0) {
                if (errno == EINTR) continue;
                return;
            }
            if (waited[1].revents != 0) return;
            const bool gone = (waited[0].revents & hung_up) != 0 || (waited[0].revents & POLLIN) == 0;
            if (drain_events() || gone) changed_();
            if (gone) return;
        }
    }

    /// Takes all events that wait: one call of `changed_` stands for them.
    bool drain_events() {
        alignas(mlx5dv_devx_async_event_hdr) std::uint8_t event[sizeof(mlx5dv_devx_async_event_hdr) + 64];
        bool any = false;
        while (mlx5dv_devx_get_event(channel_.get(), reinterpret_cast<mlx5dv_devx_async_event_hdr*>(event),
                                     sizeof event) >= 0) {
            any = true;
        }
        return any;
    }

    Channel channel_;
    EventFd end_;
    std::function<void()> changed_;
    std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<VportWatcher>> VportWatcher::start(Eswitch& eswitch, std::function<void()> changed) {
    Channel channel(mlx5dv_devx_create_event_channel(eswitch.context(),
                                                     MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA));
    if (channel == nullptr) return tl::unexpected(failure(errno, "mlx5dv_devx_create_event_channel"));
    const int flags = fcntl(channel->fd, F_GETFL);
    if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        return tl::unexpected(failure(errno, "fcntl of the event channel"));
    }
    std::uint16_t events[] = {event_nic_vport_change, event_port_change};
    const int code = mlx5dv_devx_subscribe_devx_event(channel.get(), nullptr, sizeof events, events, 0);
    if (code != 0) return tl::unexpected(failure(code < 0 ? errno : code, "mlx5dv_devx_subscribe_devx_event"));
    const int end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (end_fd < 0) return tl::unexpected(failure(errno, "eventfd"));
    return std::make_unique<ThreadedWatcher>(std::move(channel), end_fd, std::move(changed));
}

}  // namespace ovsdr::dr
