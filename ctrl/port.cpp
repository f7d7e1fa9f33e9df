// Opening, using and closing ports. See port.h.
#include "ctrl/port.hpp"

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "ctrl/all_devices.hpp"
#include "ctrl/announcement.hpp"
#include "ctrl/mirrors.hpp"
#include "ctrl/missing_vports.hpp"
#include "offload/dr/device/ib_port.hpp"
#include "offload/dr/nic/plain_function.hpp"

namespace ovsdr::ctrl {
namespace {

static_assert(OVSDR_MAX_RECEIVE_QUEUES == slowpath::max_receive_queues);

constexpr unsigned tag_size = 4;
constexpr unsigned link_overhead = 14 + 2 * tag_size;  // Ethernet header and two VLAN tags
constexpr unsigned default_frame_size = 2048;

/// Never destroyed: ports may outlive static destructors when the process leaves through exit().
struct Registry {
    std::mutex lock;
    std::vector<ovsdr_port*> ports;
    std::map<std::string, std::weak_ptr<OpenDevice>, std::less<>> devices;   ///< open, being opened, being closed
    std::condition_variable device_changed;   ///< one is open, or closed whole
    Announcement changes;
};

Registry& registry() {
    static auto* instance = new Registry;
    return *instance;
}

void announce_change() noexcept { registry().changes.announce(); }

/// The device that is open, or the name: nobody else has it then. What ends takes what belongs to its successor with it
/// (the queues for copies, the eSwitch's place among all devices), so that the successor waits for that.
std::variant<std::shared_ptr<OpenDevice>, DeviceName> find_or_take(std::string_view name) {
    std::string owned(name);
    std::unique_lock lock(registry().lock);
    for (;;) {
        const auto [known, is_new] = registry().devices.try_emplace(owned);
        if (is_new) return DeviceName(std::move(owned));
        if (auto device = known->second.lock()) return device;
        registry().device_changed.wait(lock);
    }
}

std::string gone_text(std::string_view device) {
    return fmt::format("{} has gone: it was taken out, or is being reset", device);
}

/// A device that has gone may be back under its name; to have it, all that was opened of the old one is closed first.
Result<std::shared_ptr<OpenDevice>> open_device(std::string_view name, dr::VportId wanted) {
    auto found = find_or_take(name);
    if (auto* open = std::get_if<std::shared_ptr<OpenDevice>>(&found)) {
        if (!(*open)->has_gone()) return std::move(*open);
        missing_vports().remove(**open, wanted);
        return tl::unexpected(Error{ENODEV, gone_text(name)});
    }
    auto eswitch = dr::Eswitch::open(name);
    if (!eswitch) return tl::unexpected(eswitch.error());
    auto watcher = dr::VportWatcher::start(**eswitch, announce_change);
    if (!watcher) return tl::unexpected(watcher.error());
    auto device = std::make_shared<OpenDevice>(std::move(std::get<DeviceName>(found)), std::move(*eswitch),
                                               std::move(*watcher));
    device->notice = device->watcher->missing_events();
    const std::lock_guard guard(registry().lock);
    registry().devices.find(name)->second = device;
    registry().device_changed.notify_all();
    return device;
}

unsigned frame_size_for(std::uint16_t mtu) {
    return std::max(default_frame_size, (mtu + link_overhead + 63U) & ~63U);
}

/// A copy may be taken when a tunnel's headers are in front of the frame.
void fit_copies(ovsdr_port& port, std::uint16_t mtu) {
    const std::string failure = port.device->fit_copies(frame_size_for(mtu) + OVSDR_MAX_TUNNEL_HEADER);
    const std::lock_guard guard(port.state_lock);
    port.tell(failure);
}

/// Buffers for frames of the MTU. A failure is tried once more, and again when the device next tells of a change.
Result<void> fit_queue(ovsdr_port& port, std::uint16_t mtu) {
    const unsigned frame_size = frame_size_for(mtu);
    auto fits = port.slow_path->fit(frame_size);
    if (!fits) fits = port.slow_path->fit(frame_size);
    fit_copies(port, mtu);
    const std::lock_guard guard(port.state_lock);
    port.too_small = fits ? "" : "no slow path for frames of its MTU: " + fits.error().what;
    return fits;
}

/// A queue that fails again and again is not made anew more often than this: each time takes the firmware milliseconds.
constexpr std::chrono::seconds between_restarts{1};

void restart_queue(ovsdr_port& port) {
    const std::string failure = port.slow_path->failure();
    const auto now = std::chrono::steady_clock::now();
    std::string stopped = "the slow path has stopped (" + failure + ")";
    std::string notice;
    if (now >= port.next_restart) {
        const auto restarted = port.slow_path->restart();
        port.next_restart = now + between_restarts;
        if (restarted) {
            notice = "the slow path had stopped (" + failure + ") and works again";
            stopped.clear();
        } else {
            notice = stopped += " and cannot be started again: " + restarted.error().what;
        }
    }
    const std::lock_guard guard(port.state_lock);
    port.stopped = std::move(stopped);
    port.tell(notice);
}

/// A rule that the device keeps may be one of this port's megaflows, and nothing polices what goes by it.
void note_policed(ovsdr_port& port, bool policed) {
    const std::uint64_t kept = policed ? port.eswitch().totals().kept_rules : 0;
    std::string problem;
    if (kept != 0) {
        problem =
            fmt::format("packets may pass the policer: the device keeps {} rules that it was told to destroy", kept);
    }
    const std::lock_guard guard(port.state_lock);
    if (std::exchange(port.passes_policer, problem) != problem) announce_change();
}

/// The errno of a change that somebody wants of the vport. A refusal is told once: OVS asks for an MTU again with each
/// reconfiguration.
int outcome_of_change(ovsdr_port& port, const Result<void>& changed, std::string& told) {
    const std::lock_guard guard(port.state_lock);
    if (changed) {
        told.clear();
        return 0;
    }
    if (told != changed.error().what) port.tell(told = changed.error().what);
    return changed.error().code;
}

/// A vport that is down and that only the kernel's tools set up (EOPNOTSUPP) is a port all the same: whoever sets it up
/// later finds it working.
Result<void> set_up(ovsdr_port& port) {
    const auto up = dr::set_vport_admin_state(port.eswitch(), port.vport, true);
    if (up) {
        port.state.admin_up = true;
        return {};
    }
    if (up.error().code != EOPNOTSUPP) {
        return tl::unexpected(Error{up.error().code, "the vport cannot be set up: " + up.error().what});
    }
    port.refused_state = up.error().what;   // OVS will ask for the same at once
    port.tell("the vport is down: " + up.error().what);
    return {};
}

/// Nothing is asked of the device or mended any more. True if that is news.
bool note_device_gone(ovsdr_port& port) {
    const std::lock_guard guard(port.state_lock);
    port.state.link_up = false;
    port.device_gone = gone_text(port.eswitch().device());
    const std::string problem = port.problem();
    const bool differs = std::exchange(port.told_problem, problem) != problem;
    return !std::exchange(port.gone, true) || differs;
}

std::string take_notice(OpenDevice& device) {
    const std::lock_guard guard(registry().lock);
    return std::exchange(device.notice, {});
}

/// With what an operator does about it, and noted, so that OVS opens the interface once the vport is there.
Error no_such_vport(std::shared_ptr<OpenDevice> device, dr::VportId vport, const Error& cause) {
    if (cause.code != ENOENT) return cause;
    missing_vports().add(std::move(device), vport, MissingVports::Clock::now());
    return {ENOENT, cause.what + ": a soft NIC's are shown by `drnic list`, a hardware NIC's by `devlink port show`"};
}

/// Of options that are for the other kind of device.
Result<void> check_kind(dr::Eswitch& eswitch, const ovsdr_port_options& options) {
    const bool is_function = eswitch.plain_function() != nullptr;
    if (is_function == options.function) return {};
    std::string what = options.function
                           ? "options:vport is missing: the eSwitch vport's number. {} manages an eSwitch, and only a "
                             "function that does not can be a port itself"
                           : "{} does not manage an eSwitch (not the physical function, or not in switchdev mode) and "
                             "has no vports: leave out options:vport, and the port is the function itself";
    return tl::unexpected(Error{EINVAL, fmt::format(fmt::runtime(what), eswitch.device())});
}

Result<std::unique_ptr<ovsdr_port>> open_port(const ovsdr_port_options& options) {
    auto device = open_device(options.device, dr::VportId{options.vport});
    if (!device) return tl::unexpected(device.error());
    if (auto right = check_kind(*(*device)->eswitch, options); !right) return tl::unexpected(std::move(right.error()));
    auto port = std::make_unique<ovsdr_port>();
    port->interface = options.interface;
    port->device = std::move(*device);
    port->vport = dr::VportId{options.vport};
    port->frame_overhead = link_overhead - (options.vlan != 0 ? tag_size : 0);
    port->odp_port = options.odp_port;
    auto state = dr::query_vport(port->eswitch(), port->vport);
    if (!state) return tl::unexpected(no_such_vport(port->device, port->vport, state.error()));
    missing_vports().remove(*port->device, port->vport);
    port->state = *state;
    auto attached = slowpath::AttachedPort::open(port->device->eswitch, {.odp_port = dr::OdpPort{port->odp_port},
                                                                         .vport = port->vport,
                                                                         .name = port->interface,
                                                                         .frame_size = frame_size_for(state->mtu),
                                                                         .on_event = announce_change,
                                                                         .policed = options.policed,
                                                                         .receive_queues = options.receive_queues,
                                                                         .vlan = options.vlan,
                                                                         .segments = options.segments});
    if (!attached) return tl::unexpected(std::move(attached.error()));
    port->slow_path = std::move(*attached);
    fit_copies(*port, state->mtu);
    note_policed(*port, options.policed);
    if (!state->admin_up) {
        if (auto up = set_up(*port); !up) return tl::unexpected(std::move(up.error()));
    }
    port->tell(take_notice(*port->device));
    return port;
}

/// Runs what may throw (memory, mostly) and turns it into an errno.
template <typename Body>
int errno_of(Body&& body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    } catch (...) {
        return EIO;
    }
}

template <typename Body>
auto locked(const ovsdr_port& port, Body&& body) {
    const std::lock_guard guard(port.state_lock);
    return body();
}

/// NULL for an empty text, and when memory is out.
template <typename Body>
char* text_or_null(Body&& body) noexcept {
    try {
        const std::string text = body();
        return text.empty() ? nullptr : c_string(text);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

std::uint32_t lane_speed(std::uint8_t active_speed) {
    switch (active_speed) {
        case 1: return 2500;
        case 2: return 5000;
        case 4:
        case 8: return 10000;
        case 16: return 14000;
        case 32: return 25000;
        case 64: return 50000;
        case 128: return 100000;
        default: return 0;
    }
}

std::uint32_t lanes(std::uint8_t active_width) {
    switch (active_width) {
        case 1: return 1;
        case 2: return 4;
        case 4: return 8;
        case 8: return 12;
        case 16: return 2;
        default: return 0;
    }
}

}  // namespace

DeviceName::~DeviceName() {
    if (name_.empty()) return;
    const std::lock_guard guard(registry().lock);
    registry().devices.erase(name_);
    registry().device_changed.notify_all();
}

OpenDevice::OpenDevice(DeviceName taken, std::shared_ptr<dr::Eswitch> opened, std::unique_ptr<dr::VportWatcher> started)
    : name(std::move(taken)), eswitch(std::move(opened)), watcher(std::move(started)) {
    mirrors().note_refused(all_devices().add(*eswitch));
}

OpenDevice::~OpenDevice() {
    mirrors().remove(*eswitch);
    for (const auto& copies : copies_) {
        if (copies == nullptr) continue;
        copies->queue->stop();
        copy_queues().remove(*copies);
    }
    all_devices().remove(*eswitch);
}

std::string OpenDevice::fit_copies(unsigned frame_size) {
    if (eswitch->plain_function() != nullptr) {
        mirrors().add(eswitch, 0);
        return "";   // software has all packets but those that are dropped
    }
    mirrors().add(eswitch, frame_size);
    std::string failure;
    for (const dr::CopyKind kind : dr::copy_kinds) {
        std::string of_kind = fit_copies(kind, frame_size);
        if (failure.empty()) failure = std::move(of_kind);
    }
    return failure;
}

std::string OpenDevice::fit_copies(dr::CopyKind kind, unsigned frame_size) {
    auto& copies = copies_[index_of(kind)];
    if (copies != nullptr) {
        copies->queue->fit(frame_size);
        copy_queues().wake_tender();
        return {};
    }
    if (never_copies_) return {};
    auto queue = slowpath::CopyQueue::open(eswitch, kind, frame_size);
    if (!queue) {
        never_copies_ = queue.error().code == EOPNOTSUPP;
        const bool told = std::exchange(copies_failure_, queue.error().what) == queue.error().what;
        return told ? "" : "megaflows that need copies in software stay there whole: " + copies_failure_;
    }
    auto received = std::make_shared<DeviceCopies>(std::move(*queue));
    copy_queues().add(received);
    copies = std::move(received);
    return {};
}

void for_each_port(const std::function<void(const ovsdr_port&)>& visit) {
    const std::lock_guard guard(registry().lock);
    for (const ovsdr_port* port : registry().ports) visit(*port);
}

}  // namespace ovsdr::ctrl

using namespace ovsdr;
using namespace ovsdr::ctrl;

int ovsdr_port_open(const ovsdr_port_options* options, ovsdr_port** result, char** error) noexcept {
    *result = nullptr;
    *error = nullptr;
    return errno_of([&] {
        auto port = open_port(*options);
        if (!port) {
            *error = c_string(port.error().what);
            return port.error().code;
        }
        const std::lock_guard guard(registry().lock);
        registry().ports.push_back(port->get());
        *result = port->release();
        return 0;
    });
}

void ovsdr_port_close(ovsdr_port* port) noexcept {
    if (port == nullptr) return;
    {
        const std::lock_guard guard(registry().lock);
        std::erase(registry().ports, port);
    }
    delete port;
}

int ovsdr_port_set_odp_port(ovsdr_port* port, std::uint32_t odp_port) noexcept {
    {
        const std::lock_guard guard(port->state_lock);
        port->odp_port = odp_port;
    }
    auto set = port->eswitch().set_odp_port(port->vport, dr::OdpPort{odp_port});
    return set ? 0 : set.error().code;
}

void ovsdr_port_close_entrance(ovsdr_port* port) noexcept { port->eswitch().close_entrance(port->vport); }

bool ovsdr_port_is_last_of_device(const ovsdr_port* port) noexcept {
    bool last = true;
    for_each_port([&](const ovsdr_port& other) { last = last && (&other == port || other.device != port->device); });
    return last;
}

void ovsdr_port_set_policed(ovsdr_port* port, bool policed) noexcept {
    (void)errno_of([&] {
        port->eswitch().set_policed(port->vport, policed);
        note_policed(*port, policed);
        return 0;
    });
}

int ovsdr_port_set_receive_queues(ovsdr_port* port, unsigned receive_queues, char** error) noexcept {
    *error = nullptr;
    return errno_of([&] {
        const auto set = port->slow_path->set_receive_queues(receive_queues);
        if (set) return 0;
        *error = c_string(set.error().what);
        return set.error().code;
    });
}

unsigned ovsdr_port_receive(ovsdr_port* port, unsigned queue, ovsdr_frame* frames) noexcept {
    unsigned n = 0;
    for (const auto& frame : port->slow_path->receive(queue)) frames[n++] = {frame.data, frame.size, frame.tag};
    return n;
}

bool ovsdr_port_arm(ovsdr_port* port, unsigned queue) noexcept { return port->slow_path->arm(queue); }

int ovsdr_port_receive_fd(const ovsdr_port* port, unsigned queue) noexcept {
    return port->slow_path->receive_fd(queue);
}

unsigned ovsdr_port_transmit(ovsdr_port* port, const ovsdr_frame* frames, unsigned n) noexcept {
    std::array<std::span<const std::uint8_t>, OVSDR_BATCH> spans;
    n = std::min<unsigned>(n, spans.size());
    for (unsigned i = 0; i < n; ++i) spans[i] = {frames[i].data, frames[i].size};
    return port->slow_path->transmit(std::span(spans.data(), n));
}

std::uint32_t ovsdr_port_max_frame_size(const ovsdr_port* port) noexcept {
    const std::lock_guard guard(port->state_lock);
    return port->state.mtu + port->frame_overhead;
}

bool ovsdr_port_refresh(ovsdr_port* port) noexcept {
    if (port->device->has_gone()) return errno_of([&] { return note_device_gone(*port) ? 1 : 0; }) != 0;
    const auto now = dr::query_vport(port->eswitch(), port->vport);
    const auto changed = [&] {
        port->slow_path->tend();
        // Whoever wants to know what failed finds it in the port's problem.
        if (now) (void)fit_queue(*port, now->mtu);
        if (port->slow_path->failed()) restart_queue(*port);
        const std::lock_guard guard(port->state_lock);
        const std::string problem = port->problem();
        bool differs = std::exchange(port->told_problem, problem) != problem;
        if (now) {
            auto& before = port->state;
            differs = std::exchange(port->gone, false) || differs || before.mac != now->mac || before.mtu != now->mtu ||
                      before.admin_up != now->admin_up || before.link_up != now->link_up;
            before = *now;
        } else if (now.error().code == ENOENT) {
            port->state.link_up = false;
            differs = !std::exchange(port->gone, true) || differs;
        }
        return differs ? 1 : 0;
    };
    return errno_of(changed) != 0;
}

long long ovsdr_port_restart_in_ms(const ovsdr_port* port) noexcept {
    if (!port->slow_path->failed() || port->device->has_gone()) return -1;
    const auto left = port->next_restart - std::chrono::steady_clock::now();
    return std::max<long long>(0, std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

char* ovsdr_port_problem(const ovsdr_port* port) noexcept {
    return text_or_null([&] { return locked(*port, [&] { return port->problem(); }); });
}

char* ovsdr_port_take_notice(ovsdr_port* port) noexcept {
    return text_or_null([&] { return locked(*port, [&] { return std::exchange(port->notice, {}); }); });
}

bool ovsdr_port_is_gone(const ovsdr_port* port) noexcept {
    const std::lock_guard guard(port->state_lock);
    return port->gone;
}

void ovsdr_port_get_state(const ovsdr_port* port, ovsdr_port_state* state) noexcept {
    const std::lock_guard guard(port->state_lock);
    std::copy(port->state.mac.begin(), port->state.mac.end(), state->mac);
    state->mtu = port->state.mtu;
    state->admin_up = port->state.admin_up;
    state->link_up = port->state.link_up;
}

namespace {

/// The device counts for the vport's owner: what it has sent is what the port receives. A plain function is the port.
dr::VportStats as_the_port_sees(const dr::VportStats& owner, bool is_owner) {
    if (is_owner) return owner;
    return {.received_packets = owner.sent_packets,
            .received_bytes = owner.sent_bytes,
            .sent_packets = owner.received_packets,
            .sent_bytes = owner.received_bytes,
            .receive_errors = owner.send_errors,
            .send_errors = owner.receive_errors};
}

}  // namespace

int ovsdr_port_get_stats(const ovsdr_port* port, ovsdr_port_stats* stats) noexcept {
    dr::PlainFunction* const function = port->eswitch().plain_function();
    const auto queried = dr::query_vport_stats(port->eswitch(), port->vport);
    if (!queried) return queried.error().code;
    const dr::VportStats vport = as_the_port_sees(*queried, function != nullptr);
    const slowpath::SlowPathStats slow_path = port->slow_path->stats();
    const slowpath::QueueStats& queue = slow_path.queue;
    *stats = {.rx_packets = vport.received_packets,
              .rx_bytes = vport.received_bytes,
              .rx_errors = vport.receive_errors,
              .tx_packets = vport.sent_packets,
              .tx_bytes = vport.sent_bytes,
              .tx_errors = vport.send_errors,
              .slow_path_rx = queue.received,
              .slow_path_rx_errors = queue.receive_errors,
              .slow_path_rx_missed = slow_path.receive_missed,
              .slow_path_tx = queue.sent,
              .slow_path_tx_drops = queue.send_drops,
              .slow_path_tx_errors = queue.send_errors,
              .slow_path_restarts = slow_path.restarts,
              .function = false,
              .nic_rx_dropped = 0,
              .nic_rx_marked = 0,
              .nic_rx_down = 0,
              .nic_tx_sent = 0,
              .nic_tx_down = 0};
    if (function != nullptr) {
        const auto counts = function->counts();
        stats->function = true;
        stats->nic_rx_dropped = counts.received_dropped;
        stats->nic_rx_marked = counts.received_marked;
        stats->nic_rx_down = counts.received_down;
        stats->nic_tx_sent = counts.sent;
        stats->nic_tx_down = counts.sent_down;
    }
    return 0;
}

std::uint32_t ovsdr_port_speed(const ovsdr_port* port) noexcept {
    ibv_context* const context = port->eswitch().context();
    const auto ib_port = dr::find_ib_port(context, port->vport);
    ibv_port_attr attributes{};
    if (!ib_port || ib_port->number > UINT8_MAX) return 0;
    if (ibv_query_port(context, static_cast<std::uint8_t>(ib_port->number), &attributes) != 0) return 0;
    return lane_speed(attributes.active_speed) * lanes(attributes.active_width);
}

int ovsdr_port_set_mac(ovsdr_port* port, const std::uint8_t mac[6]) noexcept {
    return errno_of([&] {
        std::array<std::uint8_t, 6> value;
        std::copy_n(mac, value.size(), value.begin());
        const auto set = dr::set_vport_mac(port->eswitch(), port->vport, value);
        if (const int error = outcome_of_change(*port, set, port->refused_mac); error != 0) return error;
        const std::lock_guard guard(port->state_lock);
        port->state.mac = value;
        return 0;
    });
}

int ovsdr_port_set_mtu(ovsdr_port* port, std::uint16_t mtu) noexcept {
    return errno_of([&] {
        ovsdr_port_state state;
        ovsdr_port_get_state(port, &state);
        if (state.mtu != mtu) {
            const auto set = dr::set_vport_mtu(port->eswitch(), port->vport, mtu);
            if (const int error = outcome_of_change(*port, set, port->refused_mtu); error != 0) return error;
            const std::lock_guard guard(port->state_lock);
            port->state.mtu = mtu;
        }
        auto fits = fit_queue(*port, mtu);
        return fits ? 0 : fits.error().code;
    });
}

int ovsdr_port_set_admin_state(ovsdr_port* port, bool up) noexcept {
    return errno_of([&] {
        const auto set = dr::set_vport_admin_state(port->eswitch(), port->vport, up);
        if (const int error = outcome_of_change(*port, set, port->refused_state); error != 0) return error;
        const std::lock_guard guard(port->state_lock);
        port->state.admin_up = up;
        return 0;
    });
}

int ovsdr_changes_fd() noexcept { return registry().changes.fd(); }

bool ovsdr_changes_take() noexcept { return registry().changes.take(); }
