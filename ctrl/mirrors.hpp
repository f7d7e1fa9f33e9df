// All mirrors of the process, and the devices that copy to them.
//
// Model. Each mirror has one of eight numbers, its CopyKind in all devices. For each pair of a mirror and a device that
// dr ports are of there is a queue. It is opened when the later of the two comes, and stopped when the first goes.
// Where a device refuses it, megaflows that need it stay in software, which sends to the mirror all the same.
//
// Sessions that end, because options changed or a mirror goes, are finished by threads of their own within two seconds.
// The process may end earlier: finish() waits for them, and gives living mirrors as much. What could not be delivered
// is counted at the mirror, if there is one still, told to its next session's collector, and said in the log.
//
// What a device refuses a mirror (its address, its steering) is asked for again once a second, by refresh(); where it
// says that it cannot (EOPNOTSUPP), once a minute: another uplink or driver may. It is asked at once when options, the
// address or ports change.
//
// Locks: one, held while devices are told; it comes before those of AllDevices and of the mirrors.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ctrl/announcement.hpp"
#include "ctrl/copies.hpp"
#include "ctrl/mirror.h"
#include "ctrl/mirror_options.hpp"
#include "ctrl/ssl_configuration.hpp"
#include "offload/dr/device/device.hpp"
#include "offload/mirror/mirror.hpp"

/// Members are guarded by the lock of Mirrors, but for `mirror`, which is set once.
struct ovsdr_mirror {
    /// In one device.
    struct Queue {
        const ovsdr::dr::Eswitch* eswitch;
        std::shared_ptr<ovsdr::mirror::Mirror::Source> source{};   ///< none: `failure` says why
        std::shared_ptr<ovsdr::ctrl::DeviceCopies> copies{};       ///< the same queue, for reports
        std::string failure{};
        bool never = false;                                        ///< the device cannot have it
    };

    std::string interface;
    std::vector<std::pair<std::string, std::string>> given{};   ///< options in force, as written
    ovsdr::ctrl::MirrorOptions options{};
    std::shared_ptr<ovsdr::dr::Device> device{};                ///< that the connection is made with
    unsigned number = 0;                                        ///< below dr::max_mirrors
    std::optional<ovsdr::dr::OdpPort> odp_port{};
    std::vector<Queue> queues{};
    ovsdr::ctrl::CopyReport carried{};                          ///< of queues in devices that are gone; `waiting` is 0
    std::uint64_t carried_filtered = 0;                         ///< copies, by those devices
    std::string refusal{};                                      ///< why a device does not steer as the options say
    ovsdr::dr::Eswitch* let_in_by = nullptr;                    ///< the session's own packets come in past its ports
    ovsdr::dr::RoceAddress address{};                           ///< to this address
    std::string not_let_in{};                                   ///< why they do not
    std::shared_ptr<ovsdr::mirror::Mirror> owner{};               ///< threads that finish it have it too
    std::atomic<ovsdr::mirror::Mirror*> mirror = nullptr;       ///< null until it is configured

    [[nodiscard]] ovsdr::dr::CopyKind kind() const noexcept { return ovsdr::dr::mirror_kind(number); }
};

namespace ovsdr::ctrl {

class Mirrors {
public:
    static constexpr std::chrono::milliseconds time_to_finish{2000};

    Mirrors();

    [[nodiscard]] ovsdr_mirror* make(std::string interface);
    void close(ovsdr_mirror* mirror) noexcept;
    [[nodiscard]] Result<void> configure(ovsdr_mirror& mirror, std::span<const MirrorOption> options);
    void set_odp_port(ovsdr_mirror& mirror, dr::OdpPort port);
    /// A port of the datapath has gone.
    void forget_port(dr::OdpPort port) noexcept;

    /// dr ports are of this device, and their copies have frames of `frame_size`; again when that grows. 0: it takes no
    /// copies. Until remove().
    void add(const std::shared_ptr<dr::Eswitch>& eswitch, unsigned frame_size);
    void remove(const dr::Eswitch& eswitch) noexcept;

    /// Looks whether addresses have changed, and asks again for what was refused.
    void refresh() noexcept;
    /// Something was refused, and the time until it is asked for again has passed.
    [[nodiscard]] bool is_refresh_due() const noexcept;
    /// Devices refuse to steer as these ports' mirrors are to: the device has come after them.
    void note_refused(const std::vector<std::pair<dr::OdpPort, Error>>& refused) noexcept;
    /// For the log: a sentence that nobody has taken yet; empty: there is none.
    [[nodiscard]] std::string take_warning() noexcept;
    /// Within the time.
    void finish(std::chrono::milliseconds within) noexcept;

    /// With the lock held; mirrors that have been configured.
    template <typename Visit>
    void for_each(Visit&& visit) const {
        const std::lock_guard guard(mutex_);
        for (ovsdr_mirror* mirror : mirrors_) {
            if (mirror->mirror != nullptr) visit(*mirror);
        }
    }
    template <typename Look>
    void look_at(const ovsdr_mirror& mirror, Look&& look) const {
        const std::lock_guard guard(mutex_);
        if (mirror.mirror != nullptr) look(mirror);
    }

    [[nodiscard]] mirror::PortNames& names() noexcept { return names_; }
    [[nodiscard]] SslConfiguration& ssl() noexcept { return ssl_; }
    [[nodiscard]] Announcement& changes() noexcept { return changes_; }
    [[nodiscard]] bool take_device_came() noexcept { return device_came_.exchange(false); }

private:
    struct KnownDevice {
        std::shared_ptr<dr::Eswitch> eswitch;
        unsigned frame_size;
    };

    [[nodiscard]] Result<std::shared_ptr<dr::Device>> open_device(const std::string& wanted);
    [[nodiscard]] Result<std::string> default_device();
    [[nodiscard]] Result<unsigned> free_number() const;
    [[nodiscard]] Result<std::unique_ptr<mirror::Session>> begin_session(const ovsdr_mirror& mirror,
                                                                         const MirrorOptions& options,
                                                                         std::shared_ptr<dr::Device> device);
    [[nodiscard]] Result<void> begin(ovsdr_mirror& mirror, const MirrorOptions& options);
    [[nodiscard]] Result<void> change(ovsdr_mirror& mirror, const MirrorOptions& options);
    void fit_queue(ovsdr_mirror& mirror, const KnownDevice& device);
    void steer(ovsdr_mirror& mirror);
    void let_in(ovsdr_mirror& mirror);
    static void keep_out(ovsdr_mirror& mirror) noexcept;
    static void stop_queue(ovsdr_mirror& mirror, ovsdr_mirror::Queue& queue) noexcept;
    static void carry(ovsdr_mirror& mirror, ovsdr_mirror::Queue& queue) noexcept;
    void plan_refresh(const Error& refusal) noexcept;
    void warn_of_loss(const std::string& interface, mirror::Mirror& mirror);
    void warn_of_loss(const std::string& interface, const std::string& collector, std::uint64_t frames);
    /// Runs it in a thread that finish() waits for.
    template <typename Work>
    void in_background(Work&& work);

    mutable std::mutex mutex_;
    std::vector<ovsdr_mirror*> mirrors_;
    std::vector<KnownDevice> devices_;
    std::map<std::string, std::weak_ptr<dr::Device>> contexts_;
    bool device_wanted_ = false;
    std::atomic<bool> device_came_ = false;
    mirror::PortNames names_;
    SslConfiguration ssl_;   ///< has a lock of its own: senders ask it
    Announcement changes_;

    std::mutex background_mutex_;
    std::condition_variable background_changed_;
    unsigned in_background_ = 0;   ///< threads
    std::deque<std::string> warnings_;
    std::atomic<std::chrono::steady_clock::time_point> refresh_at_{std::chrono::steady_clock::time_point::max()};
};

/// Of this process. Never destroyed: threads of mirrors may outlive static destructors.
[[nodiscard]] Mirrors& mirrors();

}  // namespace ovsdr::ctrl
