// DEVX event channels: changes of vports as the event-queue entries that hardware would write.
//
// Unaffiliated events only (object NULL): NIC_VPORT_CHANGE for every change of a vport, PORT_CHANGE for the link of an
// IB port. A channel that leaves out event data keeps one event per subscription waiting at most. Source:
// mlx5dv_devx_create_event_channel(3), mlx5dv_devx_subscribe_devx_event(3), mlx5dv_devx_get_event(3).
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/prm.hpp"
#include "datapath/verbs/objects.hpp"

using namespace ovsdr::soft;

namespace {

using Entry = std::array<std::byte, prm::event::eqe_size>;

struct DevxEvent {
    std::uint64_t cookie;
    std::uint16_t type;
    Entry entry;
};

struct Subscription {
    std::uint16_t type;
    std::uint64_t cookie;
};

struct EventChannel : mlx5dv_devx_event_channel {
    EventChannel(Context& owner, bool without_data) : context(owner), omit_data(without_data) {
        fd = events.fd();
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
            if (subscription.type != type) continue;
            const DevxEvent event{subscription.cookie, type, entry};
            if (omit_data) {
                events.push_unless(event, [&](const DevxEvent& waiting) {
                    return waiting.cookie == event.cookie && waiting.type == type;
                });
            } else {
                events.push(event);
            }
        }
    }

    Context& context;
    const bool omit_data;
    EventQueue<DevxEvent> events;
    std::mutex mutex;
    std::vector<Subscription> subscriptions;
    std::uint64_t listener = 0;
};

[[nodiscard]] EventChannel& of(mlx5dv_devx_event_channel* channel) {
    return *static_cast<EventChannel*>(channel);
}

[[nodiscard]] bool delivered(std::uint16_t type) {
    return type == prm::event::nic_vport_change || type == prm::event::port_change;
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

/// `size` is bytes. EOPNOTSUPP for events of objects and for event types that the device does not raise.
int mlx5dv_devx_subscribe_devx_event(mlx5dv_devx_event_channel* channel, mlx5dv_devx_obj* object, std::uint16_t size,
                                     std::uint16_t types[], std::uint64_t cookie) {
    if (const int error = injected_fault("mlx5dv_devx_subscribe_devx_event")) return failed(error);
    const std::size_t length = size / sizeof *types;
    if (length == 0 || size % sizeof *types) return failed(EINVAL);
    if (object || !std::all_of(types, types + length, delivered)) return failed(EOPNOTSUPP);
    EventChannel& to = of(channel);
    std::lock_guard guard(to.mutex);
    try {
        for (std::size_t i = 0; i < length; ++i) to.subscriptions.push_back({types[i], cookie});
    } catch (const std::bad_alloc&) {
        return failed(ENOMEM);
    }
    return 0;
}

ssize_t mlx5dv_devx_get_event(mlx5dv_devx_event_channel* channel, mlx5dv_devx_async_event_hdr* out, std::size_t size) {
    EventChannel& from = of(channel);
    const std::size_t needed = sizeof(out->cookie) + (from.omit_data ? 0 : sizeof(Entry));
    int error = injected_fault("mlx5dv_devx_get_event");
    if (!error && size < needed) error = EINVAL;
    DevxEvent event{};
    if (!error) error = from.events.pop(event);
    if (error) {
        errno = error;
        return -1;
    }
    out->cookie = event.cookie;
    if (!from.omit_data) std::memcpy(out->out_data, event.entry.data(), event.entry.size());
    return static_cast<ssize_t>(needed);
}

}  // extern "C"
