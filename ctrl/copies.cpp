// See copies.h and copies.hpp.
#include "ctrl/copies.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "ctrl/port.hpp"

namespace ovsdr::ctrl {
namespace {

/// What is known of the tunnel; where the megaflow did not ask, zero.
ovsdr_tunnel_fields known(const dr::TunnelMetadata& tunnel) noexcept {
    ovsdr_tunnel_fields fields = tunnel.key;
    auto* bytes = reinterpret_cast<std::uint8_t*>(&fields);
    const auto* mask = reinterpret_cast<const std::uint8_t*>(&tunnel.mask);
    for (std::size_t i = 0; i < sizeof fields; ++i) bytes[i] &= mask[i];
    fields.ipv6 = tunnel.key.ipv6;   // stands in the key only
    return fields;
}

ovsdr_copy copy_of(const slowpath::Frame& frame, const dr::SoftwareWork& work) noexcept {
    ovsdr_copy copy{.data = frame.data,
                    .size = frame.size,
                    .in_port = work.in_port.value,
                    .tunnel = known(work.tunnel),
                    .actions = nullptr,
                    .actions_size = 0,
                    .output = OVSDR_NO_ODP_PORT};
    if (const auto* port = std::get_if<dr::OdpPort>(&work.work)) {
        copy.output = port->value;
    } else {
        const auto& actions = std::get<dr::SoftwareWork::Actions>(work.work);
        copy.actions = actions.data();
        copy.actions_size = static_cast<std::uint16_t>(actions.size());
    }
    return copy;
}

/// Takes turns, so that a device with many copies leaves room for others.
class Receiver {
public:
    unsigned receive(ovsdr_copy* copies, bool& waits) {
        waits = false;
        look_for_queues();
        for (std::size_t tried = 0; tried < queues_.size() && !waits; ++tried) {
            DeviceCopies& device = *queues_[next_++ % queues_.size()];
            const auto frames = device.queue->receive();
            waits = !frames.empty();
            if (waits) return look_up(device, frames, copies);
        }
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
        for (const auto& device : queues_) {
            if (!device->queue->arm()) return 0;
            wait_for(device->queue->receive_fd());
            if (const int retry = device->queue->retry_in_ms(); retry >= 0 && (again < 0 || retry < again)) {
                again = std::max(1, retry);
            }
        }
        return again;
    }

private:
    /// Whoever has copies all the time never sleeps.
    void look_for_queues() {
        const unsigned version = copy_queues().version();
        if (std::exchange(seen_, version) != version) queues_ = copy_queues().all();
    }

    unsigned look_up(DeviceCopies& device, std::span<const slowpath::Frame> frames, ovsdr_copy* copies) {
        unsigned n = 0;
        for (const slowpath::Frame& frame : frames) {
            works_[n] = device.queue->eswitch().work_of(frame.tag);
            if (works_[n] == nullptr) {
                ++device.without_work;
                continue;
            }
            copies[n] = copy_of(frame, *works_[n]);
            ++n;
        }
        return n;
    }

    std::vector<std::shared_ptr<DeviceCopies>> queues_;
    unsigned seen_ = 0;
    std::size_t next_ = 0;
    std::array<std::shared_ptr<const dr::SoftwareWork>, OVSDR_BATCH> works_;   ///< of the copies given out last
};

Receiver& receiver() {
    static auto* instance = new Receiver;
    return *instance;
}

struct Report {
    std::string device;
    std::uint64_t led, done, lost, errors, without_work, restarts;
};

Report report_of(const DeviceCopies& copies) {
    const auto stats = copies.queue->stats();
    const std::uint64_t without_work = copies.without_work;
    const std::uint64_t led = std::max(copies.queue->led(), stats.received + stats.errors);
    return {.device = std::string(copies.queue->eswitch().device()),
            .led = led,
            .done = stats.received - without_work,
            .lost = led - stats.received - stats.errors,
            .errors = stats.errors,
            .without_work = without_work,
            .restarts = stats.restarts};
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

using namespace ovsdr::ctrl;

unsigned ovsdr_copies_receive(ovsdr_copy* copies, bool* waits) noexcept { return receiver().receive(copies, *waits); }

int ovsdr_copies_arm(void (*wait_for)(int fd)) noexcept { return receiver().arm(wait_for); }

char* ovsdr_report_copies(bool as_json) noexcept try {
    using nlohmann::json;
    json devices = json::array();
    std::string text;
    for (const auto& copies : copy_queues().all()) {
        const Report report = report_of(*copies);
        devices.push_back({{"device", report.device},
                           {"copies", report.led},
                           {"done", report.done},
                           {"lost", report.lost},
                           {"errors", report.errors},
                           {"without_work", report.without_work},
                           {"restarts", report.restarts}});
        text += fmt::format("{}: copies={} done={} lost={} errors={} without_work={} restarts={}\n", report.device,
                            report.led, report.done, report.lost, report.errors, report.without_work,
                            report.restarts);
    }
    if (text.empty()) text = "no device is open: add an interface of type=dr\n";
    return c_string(as_json ? json{{"devices", devices}}.dump(2) : text);
} catch (const std::bad_alloc&) {
    return nullptr;
}
