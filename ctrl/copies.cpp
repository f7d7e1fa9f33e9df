// See copies.h and copies.hpp.
#include "ctrl/copies.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ctrl/all_devices.hpp"
#include "ctrl/port.hpp"

namespace ovsdr::ctrl {
namespace {

using nlohmann::json;

/// What is known of the tunnel; where the megaflow did not ask, zero.
ovsdr_tunnel_fields known(const dr::TunnelMetadata& tunnel) noexcept {
    ovsdr_tunnel_fields fields = tunnel.key;
    auto* bytes = reinterpret_cast<std::uint8_t*>(&fields);
    const auto* mask = reinterpret_cast<const std::uint8_t*>(&tunnel.mask);
    for (std::size_t i = 0; i < sizeof fields; ++i) bytes[i] &= mask[i];
    fields.ipv6 = tunnel.key.ipv6;   // stands in the key only
    return fields;
}

/// A port is its number: the C shim gets a list of ports as one of numbers.
static_assert(sizeof(dr::OdpPort) == sizeof(std::uint32_t) && std::is_standard_layout_v<dr::OdpPort>);

ovsdr_copy copy_of(const slowpath::Frame& frame, const dr::SoftwareWork& work) noexcept {
    ovsdr_copy copy{.data = frame.data,
                    .size = frame.size,
                    .in_port = work.in_port.value,
                    .tunnel = known(work.tunnel),
                    .actions = nullptr,
                    .actions_size = 0,
                    .n_outputs = 0,
                    .outputs = nullptr};
    if (const auto* ports = std::get_if<dr::SoftwareWork::Ports>(&work.work)) {
        copy.n_outputs = static_cast<std::uint16_t>(ports->size());
        copy.outputs = &ports->front().value;
    } else {
        const auto& actions = std::get<dr::SoftwareWork::Actions>(work.work);
        copy.actions = actions.data();
        copy.actions_size = static_cast<std::uint16_t>(actions.size());
    }
    return copy;
}

/// What is for hosts comes first, most of the time: others come after a row of it, or a flood to LOCAL would be the end
/// of logs and samples. Queues of a kind take turns: a device with many copies leaves room for others.
class Receiver {
public:
    unsigned receive(ovsdr_copy* copies, bool& waits) {
        look_for_queues();
        const bool others_first = in_a_row_ == longest_row;
        if (others_first) in_a_row_ = 0;
        for (const dr::CopyKind kind : others_first ? others_then_hosts : dr::copy_kinds) {
            auto& [queues, next] = of_kind_[index_of(kind)];
            for (std::size_t tried = 0; tried < queues.size(); ++tried) {
                DeviceCopies& device = *queues[next++ % queues.size()];
                const auto frames = device.queue->receive();
                if (frames.empty()) continue;
                in_a_row_ = kind == dr::CopyKind::host ? in_a_row_ + 1 : 0;
                waits = true;
                return look_up(device, frames, copies);
            }
        }
        waits = false;
        return 0;
    }

    int arm(void (*wait_for)(int fd)) {
        std::uint64_t count = 0;
        if (read(copy_queues().wake_fd(), &count, sizeof count) == sizeof count) {
            look_for_queues();
            return 0;
        }
        wait_for(copy_queues().wake_fd());
        int again = -1;
        for (const auto& [queues, next] : of_kind_) {
            for (const auto& device : queues) {
                if (!device->queue->arm()) return 0;
                wait_for(device->queue->receive_fd());
                if (const int retry = device->queue->retry_in_ms(); retry >= 0 && (again < 0 || retry < again)) {
                    again = std::max(1, retry);
                }
            }
        }
        return again;
    }

private:
    /// Whoever has copies all the time never sleeps.
    void look_for_queues() {
        const unsigned version = copy_queues().version();
        if (std::exchange(seen_, version) == version) return;
        for (Turns& turns : of_kind_) turns.queues.clear();
        for (auto& queue : copy_queues().all()) {
            of_kind_[index_of(queue->queue->kind())].queues.push_back(std::move(queue));
        }
    }

    unsigned look_up(DeviceCopies& device, std::span<const slowpath::Frame> frames, ovsdr_copy* copies) {
        unsigned n = 0;
        for (const slowpath::Frame& frame : frames) {
            works_[n] = device.queue->eswitch().work_of(frame.tag);
            if (works_[n] == nullptr) {
                ++device.without_work;
                continue;
            }
            works_[n]->done.fetch_add(1, std::memory_order_relaxed);
            copies[n] = copy_of(frame, *works_[n]);
            ++n;
        }
        return n;
    }

    static constexpr unsigned longest_row = 8;   ///< batches
    static constexpr std::array others_then_hosts{dr::CopyKind::other, dr::CopyKind::host};
    static_assert(others_then_hosts.size() == dr::copy_kinds.size());

    struct Turns {
        std::vector<std::shared_ptr<DeviceCopies>> queues;
        std::size_t next = 0;
    };
    dr::PerCopyKind<Turns> of_kind_;
    unsigned in_a_row_ = 0;   ///< batches for hosts, up to longest_row
    unsigned seen_ = 0;
    std::array<std::shared_ptr<const dr::InstalledWork>, OVSDR_BATCH> works_;   ///< of the copies given out last
};

Receiver& receiver() {
    static auto* instance = new Receiver;
    return *instance;
}

/// In frames.
struct Report {
    std::uint64_t led = 0, done = 0, lost = 0, waiting = 0, errors = 0, without_work = 0, restarts = 0;
};

/// What nobody has got waits or is lost, and the device does not tell which: more than the queue holds is lost, and the
/// rest once nothing has come and gone for a while.
void update(DeviceCopies::Seen& seen, std::uint64_t led, std::uint64_t taken) {
    constexpr std::chrono::milliseconds a_while{500};
    const auto now = std::chrono::steady_clock::now();
    const bool moved = led != seen.led || taken != seen.taken;
    seen.led = led;
    seen.taken = taken;
    if (moved) seen.since = now;
    const std::uint64_t missing = led - taken, holds = now - seen.since < a_while ? slowpath::CopyQueue::length : 0;
    if (missing > holds) seen.lost = std::max(seen.lost, missing - holds);
}

Report report_of(DeviceCopies& copies) {
    const std::uint64_t without_work = copies.without_work;   // before what they are among
    const auto stats = copies.queue->stats();
    const std::uint64_t taken = stats.received + stats.errors;
    const std::lock_guard guard(copies.seen_mutex);
    update(copies.seen, std::max(copies.queue->led(), taken), taken);
    const std::uint64_t lost = copies.seen.lost, led = std::max(copies.seen.led, taken + lost);
    return {.led = led,
            .done = stats.received - without_work,
            .lost = lost,
            .waiting = led - taken - lost,
            .errors = stats.errors,
            .without_work = without_work,
            .restarts = stats.restarts};
}

Report operator+(const Report& left, const Report& right) noexcept {
    return {.led = left.led + right.led,
            .done = left.done + right.done,
            .lost = left.lost + right.lost,
            .waiting = left.waiting + right.waiting,
            .errors = left.errors + right.errors,
            .without_work = left.without_work + right.without_work,
            .restarts = left.restarts + right.restarts};
}

json json_of(const Report& report) {
    return {{"copies", report.led},   {"done", report.done},
            {"lost", report.lost},    {"waiting", report.waiting}, {"errors", report.errors},
            {"restarts", report.restarts}, {"without_work", report.without_work}};
}

std::string text_of(const Report& report) {
    return fmt::format("copies={} done={} lost={} waiting={} errors={} without_work={} restarts={}", report.led,
                       report.done, report.lost, report.waiting, report.errors, report.without_work, report.restarts);
}

/// What the device has led up of a work and nobody has got: lost in the queue, or on its way now.
std::uint64_t dropped(const dr::Eswitch::WorkReport& work) noexcept {
    return work.copies - std::min<std::uint64_t>(work.copies, work.work->done);
}

json json_of(const dr::Eswitch::WorkReport& work) {
    return {{"id", work.id},
            {"work", dr::text_of(*work.work)},
            {"queue", dr::name_of(work.work->kind)},
            {"copies", work.copies},
            {"dropped", dropped(work)}};
}

/// Of one device, whose queues these are: sums, then each queue, then each work.
struct DeviceReport {
    const dr::Eswitch* eswitch;
    std::vector<std::pair<const char*, Report>> queues{};   ///< by the name of their kind

    [[nodiscard]] json to_json() const {
        Report sum;
        json of_queues = json::array(), works = json::array();
        for (const auto& [name, report] : queues) {
            sum = sum + report;
            of_queues.push_back(json_of(report));
            of_queues.back()["queue"] = name;
        }
        for (const auto& work : eswitch->works()) works.push_back(json_of(work));
        json device = json_of(sum);
        device.update({{"device", eswitch->device()}, {"queues", of_queues}, {"works", works}});
        return device;
    }
    [[nodiscard]] std::string to_text() const {
        std::string text;
        for (const auto& [name, report] : queues) {
            text += fmt::format("{}, queue {}: {}\n", eswitch->device(), name, text_of(report));
        }
        for (const auto& work : eswitch->works()) {
            text += fmt::format("  {:#x}, queue {}: copies={} dropped={}: {}\n", work.id, dr::name_of(work.work->kind),
                                work.copies, dropped(work), dr::text_of(*work.work));
        }
        return text;
    }
};

std::vector<DeviceReport> device_reports(const std::vector<std::shared_ptr<DeviceCopies>>& queues) {
    std::vector<DeviceReport> devices;
    for (const auto& copies : queues) {
        const dr::Eswitch* const eswitch = &copies->queue->eswitch();
        auto device = std::ranges::find(devices, eswitch, &DeviceReport::eswitch);
        if (device == devices.end()) device = devices.insert(device, DeviceReport{eswitch});
        device->queues.emplace_back(dr::name_of(copies->queue->kind()), report_of(*copies));
    }
    return devices;
}

}  // namespace

static_assert(static_cast<unsigned>(OVSDR_BATCH) == slowpath::batch_length);

CopyQueues::CopyQueues() noexcept : wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void CopyQueues::add(std::shared_ptr<DeviceCopies> copies) {
    {
        const std::lock_guard guard(mutex_);
        queues_.push_back(std::move(copies));
        ++version_;
    }
    wake();
}

void CopyQueues::remove(const DeviceCopies& copies) noexcept {
    {
        const std::lock_guard guard(mutex_);
        std::erase_if(queues_, [&](const auto& known) { return known.get() == &copies; });
        ++version_;
    }
    wake();
}

void CopyQueues::wake() const noexcept {
    const std::uint64_t one = 1;
    // A full counter means that the receiver has been told already.
    [[maybe_unused]] const auto written = write(wake_fd_, &one, sizeof one);
}

std::vector<std::shared_ptr<DeviceCopies>> CopyQueues::all() const {
    const std::lock_guard guard(mutex_);
    return queues_;
}

CopyQueues& copy_queues() {
    static auto* instance = new CopyQueues;
    return *instance;
}

}  // namespace ovsdr::ctrl

using namespace ovsdr;
using namespace ovsdr::ctrl;

unsigned ovsdr_copies_receive(ovsdr_copy* copies, bool* waits) noexcept { return receiver().receive(copies, *waits); }

int ovsdr_copies_arm(void (*wait_for)(int fd)) noexcept { return receiver().arm(wait_for); }

void ovsdr_host_port_set(std::uint32_t odp_port, bool is_host) noexcept {
    all_devices().set_host_port(dr::OdpPort{odp_port}, is_host);
}

char* ovsdr_report_copies(bool as_json) noexcept try {
    const auto queues = copy_queues().all();   // keeps the devices
    json devices = json::array();
    std::string text;
    for (const DeviceReport& device : device_reports(queues)) {
        if (as_json) {
            devices.push_back(device.to_json());
        } else {
            text += device.to_text();
        }
    }
    if (text.empty()) text = "no device is open: add an interface of type=dr\n";
    return c_string(as_json ? json{{"devices", devices}}.dump(2) : text);
} catch (const std::bad_alloc&) {
    return nullptr;
}
