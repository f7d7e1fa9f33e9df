// DEVX event channels: events of the device and of its objects as the event-queue entries that hardware would write.
//
// Unaffiliated events (object NULL): NIC_VPORT_CHANGE for every change of a vport, PORT_CHANGE for the link of an IB
// port. Events of an object: what it publishes (a CQ: COMPLETION when it was armed, CQ_ERROR), to the channel or to an
// eventfd of the application's. A channel that leaves out event data keeps one event per subscription waiting at most.
// A subscription ends with its object or its channel. Source: mlx5dv_devx_create_event_channel(3),
// mlx5dv_devx_subscribe_devx_event(3), mlx5dv_devx_get_event(3).
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/devx/devx_events.hpp"
#include "datapath/rdma/devx/devx_object.hpp"
#include "datapath/verbs/objects.hpp"

using namespace ovsdr::soft;

namespace {

using Entry = devx::EventEntry;

struct DevxEvent {
    std::uint64_t cookie;
    std::uint16_t type;
    Entry entry;
};

struct Subscription {
    std::uint16_t type;
    std::uint64_t cookie;
};

/// Where a channel's events wait; subscribers keep it though the channel has gone.
struct Waiting {
    explicit Waiting(bool without_data) : omit_data(without_data) {}

    void push(std::uint64_t cookie, std::uint16_t type, const Entry& entry) {
        const DevxEvent event{cookie, type, entry};
        if (!omit_data) return events.push(event);
        events.push_unless(event,
                           [&](const DevxEvent& waiting) { return waiting.cookie == cookie && waiting.type == type; });
    }

    const bool omit_data;
    EventQueue<DevxEvent> events;
};

struct EventChannel : mlx5dv_devx_event_channel {
    EventChannel(Context& owner, bool without_data) : context(owner), waiting(std::make_shared<Waiting>(without_data)) {
        fd = waiting->events.fd();
        listener = context.state.device().add_listener(
            [this](VportId vport, VportChange change) { vport_changed(vport, change); });
        context.hold();
    }
    ~EventChannel() {
        context.state.device().remove_listener(listener);
        context.let_go();
    }

    void vport_changed(VportId vport, VportChange change) {
        Entry entry{};
        prm::set(entry, prm::event::type, prm::event::nic_vport_change);
        prm::set(entry, prm::event::vport_number, vport.value);
        publish(prm::event::nic_vport_change, entry);
        if (change != VportChange::link) return;
        VportInfo info{};
        const bool up = context.state.device().query(vport, info) == 0 && info.admin_up && info.link_up;
        entry = Entry{};
        prm::set(entry, prm::event::type, prm::event::port_change);
        prm::set(entry, prm::event::subtype, up ? prm::event::subtype_port_active : prm::event::subtype_port_down);
        prm::set(entry, prm::event::port_number, context.state.port_of(vport));
        publish(prm::event::port_change, entry);
    }

    void publish(std::uint16_t type, const Entry& entry) {
        std::lock_guard guard(mutex);
        for (const Subscription& subscription : subscriptions) {
            if (subscription.type == type) waiting->push(subscription.cookie, type, entry);
        }
    }

    Context& context;
    const std::shared_ptr<Waiting> waiting;
    std::mutex mutex;
    std::vector<Subscription> subscriptions;
    std::vector<std::shared_ptr<devx::Subscriber>> of_objects;
    std::uint64_t listener = 0;
};

[[nodiscard]] EventChannel& of(mlx5dv_devx_event_channel* channel) {
    return *static_cast<EventChannel*>(channel);
}

[[nodiscard]] bool delivered(std::uint16_t type) {
    return type == prm::event::nic_vport_change || type == prm::event::port_change;
}

/// Types that the kernel lets applications ask of an object, whether this one raises them or not.
[[nodiscard]] bool is_of_objects(std::uint16_t type) {
    constexpr std::array<std::uint16_t, 14> types{0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07,
                                                  0x10, 0x11, 0x12, 0x13, 0x14, 0x1c};
    return std::find(types.begin(), types.end(), type) != types.end();
}

[[nodiscard]] int subscribe(EventChannel& channel, mlx5dv_devx_obj& object, std::span<const std::uint16_t> types,
                            devx::Subscriber subscriber) {
    if (!std::all_of(types.begin(), types.end(), is_of_objects)) return EINVAL;
    if (!object.resource) return 0;  // counters and ASO objects raise nothing
    const auto shared = std::make_shared<devx::Subscriber>(std::move(subscriber));
    std::lock_guard guard(channel.mutex);
    channel.of_objects.push_back(shared);
    for (const std::uint16_t type : types) object.resource->events().subscribe(type, shared);
    return 0;
}

}  // namespace

extern "C" {

mlx5dv_devx_event_channel* mlx5dv_devx_create_event_channel(ibv_context* context,
                                                            mlx5dv_devx_create_event_channel_flags flags) {
    constexpr unsigned omit = MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA;
    int error = injected_fault("mlx5dv_devx_create_event_channel");
    if (!error && (static_cast<unsigned>(flags) & ~omit)) error = EINVAL;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> mlx5dv_devx_event_channel* {
        return new EventChannel(Context::of(context), static_cast<unsigned>(flags) & omit);
    });
}

void mlx5dv_devx_destroy_event_channel(mlx5dv_devx_event_channel* channel) {
    delete &of(channel);
}

/// `size` is bytes. EOPNOTSUPP for unaffiliated event types that the device does not raise.
int mlx5dv_devx_subscribe_devx_event(mlx5dv_devx_event_channel* channel, mlx5dv_devx_obj* object, std::uint16_t size,
                                     std::uint16_t types[], std::uint64_t cookie) {
    if (const int error = injected_fault("mlx5dv_devx_subscribe_devx_event")) return failed(error);
    const std::size_t length = size / sizeof *types;
    if (length == 0 || size % sizeof *types) return failed(EINVAL);
    EventChannel& to = of(channel);
    try {
        if (object) {
            const int error = subscribe(to, *object, {types, length},
                                        [waiting = to.waiting, cookie](std::uint16_t type, const Entry& entry) {
                                            waiting->push(cookie, type, entry);
                                        });
            return error ? failed(error) : 0;
        }
        if (!std::all_of(types, types + length, delivered)) return failed(EOPNOTSUPP);
        std::lock_guard guard(to.mutex);
        for (std::size_t i = 0; i < length; ++i) to.subscriptions.push_back({types[i], cookie});
    } catch (const std::bad_alloc&) {
        return failed(ENOMEM);
    }
    return 0;
}

/// The event goes to an eventfd in place of the channel, which only keeps the subscription. Of objects only.
int mlx5dv_devx_subscribe_devx_event_fd(mlx5dv_devx_event_channel* channel, int fd, mlx5dv_devx_obj* object,
                                        std::uint16_t type) {
    if (const int error = injected_fault("mlx5dv_devx_subscribe_devx_event_fd")) return failed(error);
    if (!object) return failed(EOPNOTSUPP);
    const int ours = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (ours < 0) return failed(errno);
    try {
        const std::shared_ptr<int> kept(new int(ours), [](int* descriptor) {
            close(*descriptor);
            delete descriptor;
        });
        const int error = subscribe(of(channel), *object, {&type, 1}, [kept](std::uint16_t, const Entry&) {
            const std::uint64_t one = 1;
            [[maybe_unused]] const ssize_t written = write(*kept, &one, sizeof one);
        });
        return error ? failed(error) : 0;
    } catch (const std::bad_alloc&) {
        return failed(ENOMEM);
    }
}

ssize_t mlx5dv_devx_get_event(mlx5dv_devx_event_channel* channel, mlx5dv_devx_async_event_hdr* out, std::size_t size) {
    EventChannel& from = of(channel);
    const std::size_t needed = sizeof(out->cookie) + (from.waiting->omit_data ? 0 : sizeof(Entry));
    int error = injected_fault("mlx5dv_devx_get_event");
    if (!error && size < needed) error = EINVAL;
    DevxEvent event{};
    if (!error) error = from.waiting->events.pop(event);
    if (error) {
        errno = error;
        return -1;
    }
    out->cookie = event.cookie;
    if (!from.waiting->omit_data) std::memcpy(out->out_data, event.entry.data(), event.entry.size());
    return static_cast<ssize_t>(needed);
}

}  // extern "C"
