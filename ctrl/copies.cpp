// See copies.h and copies.hpp.
#include "ctrl/copies.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
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

bool was_woken(int fd) noexcept {
    std::uint64_t count = 0;
    return read(fd, &count, sizeof count) == sizeof count;
}

void wake(int fd) noexcept {
    const std::uint64_t one = 1;
    // A full counter means that whoever waits has been told already.
    [[maybe_unused]] const auto written = write(fd, &one, sizeof one);
}

/// -1: never.
int sooner(int left, int right) noexcept {
    return left < 0 || right < 0 ? std::max(left, right) : std::min(left, right);
}

int milliseconds_of(DeviceCopies::Clock::duration time) noexcept {
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(time).count());
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
                if (frames.empty()) {
                    if (device.queue->asks_for_tending()) copy_queues().wake_tender();
                    continue;
                }
                in_a_row_ = kind == dr::CopyKind::host ? in_a_row_ + 1 : 0;
                waits = true;
                return look_up(device, frames, copies);
            }
        }
        waits = false;
        return 0;
    }

    int arm(void (*wait_for)(int fd)) {
        if (was_woken(copy_queues().receiver_fd())) {
            look_for_queues();
            return 0;
        }
        wait_for(copy_queues().receiver_fd());
        int again = -1;
        for (const auto& [queues, next] : of_kind_) {
            for (const auto& device : queues) {
                if (!device->queue->arm()) return 0;
                wait_for(device->queue->receive_fd());
                const auto when = device->look_again.load();
                const auto left = when - DeviceCopies::Clock::now();
                // The time may have come since the last look.
                const bool looked = device->queue->emptied().at >= when;
                if (left > left.zero() || !looked) again = sooner(again, std::max(milliseconds_of(left), soon_ms));
            }
        }
        return again;
    }

    void let_go() {
        for (Turns& turns : of_kind_) copy_queues().let_go(std::exchange(turns.queues, {}));
        works_ = {};
    }

private:
    /// Whoever has copies all the time never sleeps.
    void look_for_queues() {
        const unsigned version = copy_queues().version();
        if (std::exchange(seen_, version) == version) return;
        for (Turns& turns : of_kind_) copy_queues().let_go(std::exchange(turns.queues, {}));
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
            works_[n]->count();
            copies[n] = copy_of(frame, *works_[n]);
            ++n;
        }
        return n;
    }

    static constexpr unsigned longest_row = 8;   ///< batches
    static constexpr int soon_ms = 10;
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

/// Does for all queues what takes long.
int tend(void (*wait_for)(int fd)) {
    (void)was_woken(copy_queues().tender_fd());   // who wakes the tender from now on wakes it again
    wait_for(copy_queues().tender_fd());
    (void)copy_queues().take_let_go();
    int again = -1;
    bool for_receiver = false;
    for (const auto& device : copy_queues().all()) {
        const auto tended = device->queue->tend();
        for_receiver = for_receiver || tended.for_receiver;
        again = sooner(again, tended.again_in_ms);
    }
    if (for_receiver) copy_queues().wake_receiver();
    return again;
}

Receiver& receiver() {
    static auto* instance = new Receiver;
    return *instance;
}

/// From the rule that counts a copy to its queue it takes the device microseconds, and the soft NIC's worker as long as
/// somebody else may have its core.
constexpr std::chrono::milliseconds under_way{200};
/// In a queue, and in the one before it that is not empty yet.
std::uint64_t most_waiting(const slowpath::CopyQueue& queue) noexcept {
    return 2 * std::uint64_t{slowpath::CopyQueue::most_of(queue.kind())};
}

/// What is certain (copies.hpp). `led` was asked of the device before `taken`.
void settle(DeviceCopies& copies, std::uint64_t led, std::uint64_t taken, DeviceCopies::Clock::time_point asked_at) {
    DeviceCopies::Seen& seen = copies.seen;
    const auto emptied = copies.queue->emptied();
    if (seen.question && emptied.at >= seen.question->when + under_way) {
        const std::uint64_t missing = seen.question->led - std::min(seen.question->led, emptied.taken);
        seen.lost = std::max(seen.lost, missing);
        seen.question.reset();
    }
    const std::uint64_t missing = led - std::min(led, taken);
    seen.lost = std::max(seen.lost, missing - std::min(missing, most_waiting(*copies.queue)));
    if (missing <= seen.lost || seen.question) return;
    seen.question = {led, asked_at};
    copies.look_later(asked_at + under_way);
}

json json_of(const CopyReport& report) {
    return {{"copies", report.led},   {"done", report.done},
            {"lost", report.lost},    {"waiting", report.waiting}, {"errors", report.errors},
            {"restarts", report.restarts}, {"without_work", report.without_work}};
}

std::string text_of(const CopyReport& report) {
    return fmt::format("copies={} done={} lost={} waiting={} errors={} without_work={} restarts={}", report.led,
                       report.done, report.lost, report.waiting, report.errors, report.without_work, report.restarts);
}

/// What the device has led up of a work and nobody has got: lost in the queue, or on its way now.
std::uint64_t dropped(const dr::Eswitch::WorkReport& work) noexcept {
    return work.copies - std::min<std::uint64_t>(work.copies, work.work->done);
}

/// A mirror's filter is behind what is counted of a work: what it drops is no loss, and is not known by work.
json json_of(const dr::Eswitch::WorkReport& work) {
    json report{{"id", work.id},
                {"work", dr::text_of(*work.work)},
                {"queue", dr::name_of(work.work->kind)},
                {"copies", work.copies}};
    if (!is_mirror(work.work->kind)) report["dropped"] = dropped(work);
    return report;
}

std::string text_of(const dr::Eswitch::WorkReport& work) {
    const std::string lost = is_mirror(work.work->kind) ? "" : fmt::format(" dropped={}", dropped(work));
    return fmt::format("  {:#x}, queue {}: copies={}{}: {}\n", work.id, dr::name_of(work.work->kind), work.copies, lost,
                       dr::text_of(*work.work));
}

json json_of(const dr::SamplerCount& count) {
    return {{"sampler", count.sampler.text()}, {"one_of", count.one_of}, {"copies", count.copies.load()}};
}

std::string text_of(const dr::SamplerCount& count) {
    return fmt::format("  for {}, one of {} packets: {} copies\n", count.sampler.text(), count.one_of,
                       count.copies.load());
}

/// Of one device, whose queues these are: sums, then each queue, then each work, then what came up for each sampler.
struct DeviceReport {
    const dr::Eswitch* eswitch;
    std::vector<std::pair<const char*, CopyReport>> queues{};   ///< by the name of their kind

    [[nodiscard]] json to_json() const {
        CopyReport sum;
        json of_queues = json::array(), works = json::array(), samplers = json::array();
        for (const auto& [name, report] : queues) {
            sum = sum + report;
            of_queues.push_back(json_of(report));
            of_queues.back()["queue"] = name;
        }
        for (const auto& work : eswitch->works()) works.push_back(json_of(work));
        for (const auto& count : eswitch->samplers()) samplers.push_back(json_of(*count));
        json device = json_of(sum);
        device.update({{"device", eswitch->device()}, {"queues", of_queues}, {"works", works}, {"samplers", samplers}});
        return device;
    }
    [[nodiscard]] std::string to_text() const {
        std::string text;
        for (const auto& [name, report] : queues) {
            text += fmt::format("{}, queue {}: {}\n", eswitch->device(), name, text_of(report));
        }
        for (const auto& work : eswitch->works()) text += text_of(work);
        for (const auto& count : eswitch->samplers()) text += text_of(*count);
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

DeviceCopies::DeviceCopies(std::shared_ptr<slowpath::CopyQueue> opened)
    : DeviceCopies(std::move(opened), [this](Clock::time_point when) {
          look_again = when;
          copy_queues().wake_receiver();
      }) {}

CopyReport operator+(const CopyReport& left, const CopyReport& right) noexcept {
    return {.led = left.led + right.led,
            .done = left.done + right.done,
            .lost = left.lost + right.lost,
            .waiting = left.waiting + right.waiting,
            .errors = left.errors + right.errors,
            .without_work = left.without_work + right.without_work,
            .restarts = left.restarts + right.restarts};
}

CopyReport report_of(DeviceCopies& copies) {
    const std::lock_guard guard(copies.seen_mutex);
    const std::uint64_t without_work = copies.without_work;   // before what they are among
    const std::uint64_t led = copies.queue->led();
    const auto asked_at = DeviceCopies::Clock::now();
    const auto stats = copies.queue->stats();
    const std::uint64_t taken = stats.received + stats.errors;
    settle(copies, led, taken, asked_at);
    const std::uint64_t lost = copies.seen.lost, all = std::max(led, taken + lost);
    return {.led = all,
            .done = stats.received - without_work,
            .lost = lost,
            .waiting = all - taken - lost,
            .errors = stats.errors,
            .without_work = without_work,
            .restarts = stats.restarts};
}

CopyQueues::CopyQueues() noexcept
    : receiver_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), tender_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void CopyQueues::add(std::shared_ptr<DeviceCopies> copies) {
    {
        const std::lock_guard guard(mutex_);
        queues_.push_back(std::move(copies));
        ++version_;
    }
    wake_receiver();
}

void CopyQueues::remove(const DeviceCopies& copies) noexcept {
    {
        const std::lock_guard guard(mutex_);
        std::erase_if(queues_, [&](const auto& known) { return known.get() == &copies; });
        ++version_;
    }
    wake_receiver();
}

void CopyQueues::wake_receiver() const noexcept { wake(receiver_fd_); }
void CopyQueues::wake_tender() const noexcept { wake(tender_fd_); }

void CopyQueues::let_go(std::vector<std::shared_ptr<DeviceCopies>> queues) {
    if (queues.empty()) return;
    {
        const std::lock_guard guard(mutex_);
        let_go_.insert(let_go_.end(), std::make_move_iterator(queues.begin()), std::make_move_iterator(queues.end()));
    }
    wake_tender();
}

std::vector<std::shared_ptr<DeviceCopies>> CopyQueues::take_let_go() noexcept {
    const std::lock_guard guard(mutex_);
    return std::exchange(let_go_, {});
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

int ovsdr_copies_tend(void (*wait_for)(int fd)) noexcept { return tend(wait_for); }

void ovsdr_copies_wake() noexcept {
    copy_queues().wake_receiver();
    copy_queues().wake_tender();
}

void ovsdr_copies_let_go() noexcept { receiver().let_go(); }

void ovsdr_datapath_port_add(std::uint32_t odp_port, bool is_host) noexcept {
    all_devices().add_port(dr::OdpPort{odp_port}, is_host);
}

void ovsdr_datapath_port_remove(std::uint32_t odp_port) noexcept { all_devices().remove_port(dr::OdpPort{odp_port}); }

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
