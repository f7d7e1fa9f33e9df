#include "ctrl/mirrors.hpp"

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <system_error>
#include <thread>

#include "ctrl/all_devices.hpp"

namespace ovsdr::ctrl {
namespace {

std::vector<std::string> rdma_devices() {
    int length = 0;
    const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> list(ibv_get_device_list(&length),
                                                                             &ibv_free_device_list);
    std::vector<std::string> names;
    for (int i = 0; list != nullptr && i < length; ++i) names.emplace_back(ibv_get_device_name(list.get()[i]));
    return names;
}

std::string join(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
}

/// The last part of finish()'s time: it is kept for ending connections and for saying what is lost.
constexpr std::chrono::milliseconds time_to_warn{100};

bool can_be_told(const std::string& name) noexcept {
    const auto is_printable = [](char character) { return character >= ' ' && character <= '~'; };
    return !name.empty() && name.size() <= mirror::longest_name && std::ranges::all_of(name, is_printable);
}

}  // namespace

Mirrors::Mirrors() = default;

template <typename Work>
void Mirrors::in_background(Work&& work) {
    {
        const std::lock_guard guard(background_mutex_);
        ++in_background_;
    }
    const auto done = [this] {
        const std::lock_guard guard(background_mutex_);
        --in_background_;
        background_changed_.notify_all();
    };
    try {
        std::thread([work, done]() mutable {
            (*work)();
            work.reset();
            done();
        }).detach();
    } catch (const std::system_error&) {   // no thread: what is in the ring is lost
        done();
    }
}

ovsdr_mirror* Mirrors::make(std::string interface) {
    auto made = std::unique_ptr<ovsdr_mirror>(new ovsdr_mirror{.interface = std::move(interface)});
    const std::lock_guard guard(mutex_);
    mirrors_.push_back(made.get());
    return made.release();
}

void Mirrors::close(ovsdr_mirror* closed) noexcept {
    std::unique_ptr<ovsdr_mirror> mirror(closed);
    {
        const std::lock_guard guard(mutex_);
        if (mirror->odp_port) all_devices().remove_mirror_port(*mirror->odp_port);
        for (auto& queue : mirror->queues) stop_queue(*mirror, queue);
        keep_out(*mirror);
        std::erase(mirrors_, closed);
    }
    if (mirror->owner == nullptr) return;
    try {
        struct Ending {
            Mirrors& mirrors;
            std::string interface;
            std::shared_ptr<dr::Device> device;   // goes last
            std::shared_ptr<mirror::Mirror> mirror;
            void operator()() {
                mirror->stop_receiving();
                (void)mirror->finish(time_to_finish);
                mirrors.warn_of_loss(interface, *mirror);
                mirror.reset();
            }
        };
        in_background(std::make_shared<Ending>(Ending{*this, mirror->interface, std::move(mirror->device),
                                                      std::move(mirror->owner)}));
    } catch (const std::bad_alloc&) {   // what is in the ring is lost
    }
}

Result<std::string> Mirrors::default_device() {
    std::vector<std::string> of_ports;
    for (const KnownDevice& known : devices_) of_ports.emplace_back(known.eswitch->device());
    if (of_ports.size() == 1) return of_ports.front();
    const std::vector<std::string> all = rdma_devices();
    if (all.size() == 1) return all.front();
    if (all.empty()) return tl::unexpected(Error{ENODEV, "there is no RDMA device"});
    device_wanted_ = of_ports.empty();
    return tl::unexpected(Error{ENODEV, of_ports.empty()
        ? fmt::format("options:device is missing: there are {}, and no interface of type=dr says which", join(all))
        : fmt::format("options:device is missing: interfaces of type=dr are of {}", join(of_ports))});
}

Result<std::shared_ptr<dr::Device>> Mirrors::open_device(const std::string& wanted) {
    auto name = wanted.empty() ? default_device() : Result<std::string>(wanted);
    if (!name) return tl::unexpected(std::move(name.error()));
    auto& context = contexts_[*name];
    if (auto open = context.lock()) return open;
    auto opened = dr::Device::open(*name);
    if (!opened) {
        return tl::unexpected(Error{opened.error().code, fmt::format("options:device={}: {}", *name,
                                                                     opened.error().what)});
    }
    context = *opened;
    return std::move(*opened);
}

Result<unsigned> Mirrors::free_number() const {
    for (unsigned number = 0; number < dr::max_mirrors; ++number) {
        const auto has_it = [number](const ovsdr_mirror* one) {
            return one->mirror != nullptr && one->number == number;
        };
        if (std::ranges::none_of(mirrors_, has_it)) return number;
    }
    return tl::unexpected(Error{ENOSPC, fmt::format("there are {} interfaces of type=drmirror already, and there can "
                                                    "be no more", dr::max_mirrors)});
}

Result<std::unique_ptr<mirror::Session>> Mirrors::begin_session(const ovsdr_mirror& mirror,
                                                                const MirrorOptions& options,
                                                                std::shared_ptr<dr::Device> device) {
    constexpr std::uint32_t whole = 65535;
    const mirror::TlsSource from_database = [this] { return ssl_.files(); };
    return mirror::Session::create({.device = std::move(device),
                                    .address = {.gid_index = options.gid_index},
                                    .host = options.collector.host,
                                    .service = options.collector.service,
                                    .standby = options.standby,
                                    .tls = options.plain ? nullptr : from_database,
                                    .plain = options.plain,
                                    .mirror = mirror.interface,
                                    .application_tag = options.application_tag,
                                    .geometry = options.geometry,
                                    .snap_length = options.snap_length == 0 ? whole : options.snap_length,
                                    .interfaces = {},
                                    .on_change = [this] { changes_.announce(); }},
                                   names_);
}

Result<void> Mirrors::begin(ovsdr_mirror& mirror, const MirrorOptions& options) {
    if (!can_be_told(mirror.interface)) {
        return tl::unexpected(Error{EINVAL, fmt::format("the name of an interface of type=drmirror has {} printable "
                                                        "characters at most", mirror::longest_name)});
    }
    const auto number = free_number();
    if (!number) return tl::unexpected(number.error());
    auto device = open_device(options.device);
    if (!device) return tl::unexpected(std::move(device.error()));
    auto session = begin_session(mirror, options, *device);
    if (!session) return tl::unexpected(std::move(session.error()));
    auto started = mirror::Mirror::start(std::move(*session), options.steering);
    if (!started) return tl::unexpected(std::move(started.error()));
    mirror.number = *number;
    mirror.device = std::move(*device);
    mirror.owner = std::move(*started);
    mirror.mirror = mirror.owner.get();
    mirror.options = options;
    for (const KnownDevice& known : devices_) fit_queue(mirror, known);
    let_in(mirror);
    return {};
}

void Mirrors::steer(ovsdr_mirror& mirror) {
    mirror.refusal.clear();
    if (!mirror.odp_port) return;
    const auto set = all_devices().set_mirror_port(*mirror.odp_port, mirror.kind(), mirror.options.steering);
    if (set) return;
    mirror.refusal = set.error().what;
    plan_refresh(set.error());
}

/// What the session's connection is sent comes in by the uplink, which may be a port of the switch.
void Mirrors::let_in(ovsdr_mirror& mirror) {
    const auto is_its_own = [&](const KnownDevice& known) { return known.eswitch->device() == mirror.device->name(); };
    const auto known = std::ranges::find_if(devices_, is_its_own);
    dr::Eswitch* const eswitch = known == devices_.end() ? nullptr : known->eswitch.get();
    const auto index = mirror::gid_index_of(*mirror.device, {.gid_index = mirror.options.gid_index});
    const auto address = index ? dr::roce_address(mirror.device->context(), mirror::PortAddress{}.ib_port, *index)
                               : tl::unexpected(index.error());
    if (eswitch == mirror.let_in_by && (eswitch == nullptr || (address && *address == mirror.address))) {
        // The uplink may have become a port since, and the device have refused the address then.
        const auto in = eswitch != nullptr ? eswitch->retry_roce(mirror.address) : Result<void>();
        mirror.not_let_in = in ? "" : in.error().what;
        if (!in) plan_refresh(in.error());
        return;
    }
    keep_out(mirror);
    if (eswitch == nullptr) return;
    const auto let = address ? eswitch->let_roce_in(*address) : tl::unexpected(address.error());
    if (!let) {
        mirror.not_let_in = let.error().what;
        plan_refresh(let.error());
        return;
    }
    mirror.let_in_by = eswitch;
    mirror.address = *address;
}

void Mirrors::keep_out(ovsdr_mirror& mirror) noexcept {
    if (mirror.let_in_by != nullptr) mirror.let_in_by->forget_roce(mirror.address);
    mirror.let_in_by = nullptr;
    mirror.not_let_in.clear();
}

void Mirrors::refresh() noexcept try {
    const std::lock_guard guard(mutex_);
    refresh_at_ = std::chrono::steady_clock::time_point::max();
    for (ovsdr_mirror* mirror : mirrors_) {
        if (mirror->mirror == nullptr) continue;
        let_in(*mirror);
        if (!mirror->refusal.empty()) steer(*mirror);
    }
} catch (const std::bad_alloc&) {   // the next change asks again
}

bool Mirrors::is_refresh_due() const noexcept { return std::chrono::steady_clock::now() >= refresh_at_.load(); }

/// The earliest of all attempts that are planned counts.
void Mirrors::plan_refresh(const Error& refusal) noexcept {
    constexpr std::chrono::seconds soon{1}, seldom{60};
    const auto at = std::chrono::steady_clock::now() + (refusal.code == EOPNOTSUPP ? seldom : soon);
    auto planned = refresh_at_.load();
    while (at < planned && !refresh_at_.compare_exchange_weak(planned, at)) {}
}

void Mirrors::note_refused(const std::vector<std::pair<dr::OdpPort, Error>>& refused) noexcept try {
    const std::lock_guard guard(mutex_);
    for (const auto& [port, error] : refused) {
        for (ovsdr_mirror* mirror : mirrors_) {
            if (mirror->odp_port == port) mirror->refusal = error.what;
        }
        plan_refresh(error);
    }
    if (!refused.empty()) changes_.announce();
} catch (const std::bad_alloc&) {   // it is in software all the same
}

void Mirrors::warn_of_loss(const std::string& interface, mirror::Mirror& mirror) {
    const auto left = mirror.abandon();
    warn_of_loss(interface, mirror.sender_stats().collector, left.frames);
}

/// For the main loop, which writes the log.
void Mirrors::warn_of_loss(const std::string& interface, const std::string& collector, std::uint64_t frames) {
    constexpr std::size_t most_warnings = 64;
    if (frames == 0) return;
    {
        const std::lock_guard guard(background_mutex_);
        if (warnings_.size() == most_warnings) warnings_.pop_front();
        warnings_.push_back(fmt::format("{}: {} mirrored frames are lost: the collector ({}) did not acknowledge them "
                                        "before their session ended", interface, frames, collector));
    }
    changes_.announce();
}

std::string Mirrors::take_warning() noexcept {
    const std::lock_guard guard(background_mutex_);
    if (warnings_.empty()) return {};
    std::string first = std::move(warnings_.front());
    warnings_.pop_front();
    return first;
}

Result<void> Mirrors::change(ovsdr_mirror& mirror, const MirrorOptions& options) {
    if (options.needs_other_session(mirror.options)) {
        // Without options:device it stays with the one that it has: now another one might be chosen, or none.
        const bool keeps_device = options.device == mirror.options.device;
        auto device = keeps_device ? Result<std::shared_ptr<dr::Device>>(mirror.device) : open_device(options.device);
        if (!device) return tl::unexpected(std::move(device.error()));
        auto session = begin_session(mirror, options, *device);
        if (!session) return tl::unexpected(std::move(session.error()));
        struct Ending {
            Mirrors& mirrors;
            std::string interface;
            std::weak_ptr<mirror::Mirror> owner;
            std::shared_ptr<dr::Device> device;
            std::shared_ptr<mirror::Session> session;
            void operator()() {
                (void)session->sender().finish(time_to_finish);
                const auto left = session->sender().abandon();
                if (const auto mirror = owner.lock()) mirror->add_undelivered(left);
                mirrors.warn_of_loss(interface, session->sender().stats().collector, left.frames);
                session.reset();
            }
        };
        in_background(std::make_shared<Ending>(Ending{*this, mirror.interface, mirror.owner,
                                                      std::exchange(mirror.device, std::move(*device)),
                                                      mirror.owner->replace(std::move(*session))}));
    }
    const bool steers = options.steering != mirror.options.steering;
    mirror.options = options;
    if (steers) {
        mirror.owner->steer(options.steering);
        steer(mirror);
    }
    let_in(mirror);
    return {};
}

Result<void> Mirrors::configure(ovsdr_mirror& mirror, std::span<const MirrorOption> options) {
    auto parsed = parse_mirror_options(options);
    if (!parsed) return tl::unexpected(std::move(parsed.error()));
    const std::lock_guard guard(mutex_);
    auto done = mirror.mirror == nullptr ? begin(mirror, *parsed) : change(mirror, *parsed);
    if (!done) return done;
    mirror.given.clear();
    for (const MirrorOption& option : options) mirror.given.emplace_back(option.key, option.value);
    return {};
}

void Mirrors::set_odp_port(ovsdr_mirror& mirror, dr::OdpPort port) {
    const std::lock_guard guard(mutex_);
    if (mirror.mirror == nullptr) return;   // vswitchd adds no port that it could not configure
    mirror.odp_port = port;
    steer(mirror);
}

void Mirrors::forget_port(dr::OdpPort port) noexcept {
    const std::lock_guard guard(mutex_);
    for (ovsdr_mirror* mirror : mirrors_) {
        if (mirror->odp_port != port) continue;
        mirror->odp_port.reset();
        all_devices().remove_mirror_port(port);
    }
}

/// What fails is tried again when the device's frames grow or a port is opened.
void Mirrors::fit_queue(ovsdr_mirror& mirror, const KnownDevice& device) {
    if (device.frame_size == 0) return;
    auto queue = std::ranges::find(mirror.queues, device.eswitch.get(), &ovsdr_mirror::Queue::eswitch);
    if (queue == mirror.queues.end()) queue = mirror.queues.insert(queue, {.eswitch = device.eswitch.get()});
    if (queue->source != nullptr) {
        queue->source->queue->fit(device.frame_size);
        mirror.owner->wake();
        return;
    }
    if (queue->never) return;
    auto opened = slowpath::CopyQueue::open(device.eswitch, mirror.kind(), device.frame_size);
    if (!opened) {
        queue->never = opened.error().code == EOPNOTSUPP;
        queue->failure = opened.error().what;
        return;
    }
    queue->failure.clear();
    queue->source = mirror.owner->add(*opened);
    queue->copies = std::make_shared<DeviceCopies>(
        std::move(*opened), [owner = mirror.owner.get(), source = queue->source](DeviceCopies::Clock::time_point when) {
            owner->look_later(*source, when);
        });
}

void Mirrors::stop_queue(ovsdr_mirror& mirror, ovsdr_mirror::Queue& queue) noexcept {
    if (queue.source != nullptr) mirror.owner->remove(*queue.source);
}

/// The statistics of a queue that has been stopped: what is in it is taken a moment later, and then it is known what it
/// has lost.
void Mirrors::carry(ovsdr_mirror& mirror, ovsdr_mirror::Queue& queue) noexcept {
    if (queue.source == nullptr) return;
    constexpr std::chrono::milliseconds longest{100};
    const auto end = std::chrono::steady_clock::now() + longest;
    const auto stopped = std::chrono::steady_clock::now();
    const slowpath::CopyQueue& copies = *queue.source->queue;
    while (copies.emptied().at < stopped && std::chrono::steady_clock::now() < end) {
        mirror.owner->wake();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CopyReport last = report_of(*queue.copies);
    last.lost += std::exchange(last.waiting, 0);
    mirror.carried = mirror.carried + last;
    mirror.carried_filtered += queue.eswitch->filtered_copies(mirror.kind());
}

void Mirrors::add(const std::shared_ptr<dr::Eswitch>& eswitch, unsigned frame_size) {
    const std::lock_guard guard(mutex_);
    auto known = std::ranges::find(devices_, eswitch, &KnownDevice::eswitch);
    if (known == devices_.end()) {
        known = devices_.insert(known, KnownDevice{eswitch, frame_size});
        if (std::exchange(device_wanted_, false)) {
            device_came_ = true;
            changes_.announce();
        }
    }
    known->frame_size = std::max(known->frame_size, frame_size);
    for (ovsdr_mirror* mirror : mirrors_) {
        if (mirror->mirror == nullptr) continue;
        fit_queue(*mirror, *known);
        let_in(*mirror);
    }
}

void Mirrors::remove(const dr::Eswitch& eswitch) noexcept {
    const std::lock_guard guard(mutex_);
    for (ovsdr_mirror* mirror : mirrors_) {
        if (mirror->let_in_by == &eswitch) keep_out(*mirror);
        std::erase_if(mirror->queues, [&](ovsdr_mirror::Queue& queue) {
            if (queue.eswitch != &eswitch) return false;
            stop_queue(*mirror, queue);
            carry(*mirror, queue);
            return true;
        });
    }
    std::erase_if(devices_, [&](const KnownDevice& known) { return known.eswitch.get() == &eswitch; });
}

void Mirrors::finish(std::chrono::milliseconds within) noexcept {
    const auto end = std::chrono::steady_clock::now() + within;
    try {
        const std::lock_guard guard(mutex_);
        for (ovsdr_mirror* one : mirrors_) {
            if (one->owner == nullptr) continue;
            // close() may run at the same time, and let go of it.
            in_background(std::make_shared<std::function<void()>>(
                [this, interface = one->interface, device = one->device, mirror = one->owner, end] {
                    mirror->stop_receiving();
                    const auto left = end - time_to_warn - std::chrono::steady_clock::now();
                    (void)mirror->finish(std::chrono::duration_cast<std::chrono::milliseconds>(left));
                    warn_of_loss(interface, *mirror);
                }));
        }
    } catch (const std::bad_alloc&) {   // what is in the rings is lost
    }
    std::unique_lock lock(background_mutex_);
    background_changed_.wait_until(lock, end, [this] { return in_background_ == 0; });
}

Mirrors& mirrors() {
    static auto* instance = new Mirrors;
    return *instance;
}

}  // namespace ovsdr::ctrl
