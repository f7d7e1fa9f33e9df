#include <fcntl.h>
#include <fmt/format.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "offload/dr/device/device.hpp"
#include "offload/dr/vport.hpp"

namespace ovsdr::dr {

namespace {

struct EventType {
    std::uint16_t number;
    const char* name;
};
constexpr EventType event_types[] = {{0xd, "NIC_VPORT_CHANGE"}, {0x9, "PORT_CHANGE"}};

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
    ThreadedWatcher(Channel channel, int end_fd, std::function<void()> changed, std::string missing_events,
                    std::chrono::milliseconds patience)
        : channel_(std::move(channel)),
          end_(end_fd),
          changed_(std::move(changed)),
          missing_events_(std::move(missing_events)),
          patience_(patience) {
        thread_ = std::thread([this] { watch(); });
        pthread_setname_np(thread_.native_handle(), "dr-events");
    }

    ~ThreadedWatcher() override {
        const std::uint64_t one = 1;
        while (write(end_.get(), &one, sizeof one) < 0 && errno == EINTR) {}
        thread_.join();
    }

    const std::string& missing_events() const noexcept override { return missing_events_; }
    bool device_has_gone() const noexcept override { return gone_; }

private:
    void watch() {
        // A device that was taken out leaves a channel that is hung up, and readable without an event (kernel: devx.c).
        constexpr short hung_up = POLLRDHUP | POLLHUP | POLLERR;
        const int no_channel = -1;
        pollfd waited[] = {{channel_ ? channel_->fd : no_channel, POLLIN | POLLRDHUP, 0}, {end_.get(), POLLIN, 0}};
        while (true) {
            const int ready = poll(waited, 2, static_cast<int>(patience_.count()));
            if (ready < 0) {
                if (errno == EINTR) continue;
                return;
            }
            if (ready == 0) {
                changed_();
                continue;
            }
            if (waited[1].revents != 0) return;
            gone_ = (waited[0].revents & hung_up) != 0 || (waited[0].revents & POLLIN) == 0;
            if (drain_events() || gone_) changed_();
            if (gone_) return;
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
    std::string missing_events_;
    std::chrono::milliseconds patience_;
    std::atomic<bool> gone_ = false;
    std::thread thread_;
};

/// Errors: errno of the call that failed.
Result<Channel> open_channel(ibv_context* context) {
    Channel channel(mlx5dv_devx_create_event_channel(context, MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA));
    if (channel == nullptr) return tl::unexpected(failure(errno, "mlx5dv_devx_create_event_channel"));
    const int flags = fcntl(channel->fd, F_GETFL);
    if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        return tl::unexpected(failure(errno, "fcntl of the event channel"));
    }
    return channel;
}

/// Each type by itself: the kernel refuses a list for one of its types. Those refused, with the errno, for people.
std::string subscribe(mlx5dv_devx_event_channel& channel) {
    std::string refused;
    for (const EventType& type : event_types) {
        std::uint16_t number = type.number;
        const int code = mlx5dv_devx_subscribe_devx_event(&channel, nullptr, sizeof number, &number, 0);
        if (code == 0) continue;
        const Error error = failure(code < 0 ? errno : code, "mlx5dv_devx_subscribe_devx_event", type.name);
        refused += refused.empty() ? error.what : "; " + error.what;
    }
    return refused;
}

}  // namespace

Result<std::unique_ptr<VportWatcher>> VportWatcher::start(Eswitch& eswitch, std::function<void()> changed,
                                                          Patience patience) {
    auto channel = open_channel(eswitch.context());
    std::string missing = channel ? subscribe(**channel) : channel.error().what;
    if (!missing.empty()) {
        patience.with_events = patience.without;
        missing = fmt::format("{} does not tell of every change of its vports ({}): they are looked at every {} ms",
                              eswitch.device(), missing, patience.without.count());
    }
    const int end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (end_fd < 0) return tl::unexpected(failure(errno, "eventfd"));
    return std::make_unique<ThreadedWatcher>(channel ? std::move(*channel) : nullptr, end_fd, std::move(changed),
                                             std::move(missing), patience.with_events);
}

}  // namespace ovsdr::dr
