// See mirror.h and mirrors.hpp.
#include "ctrl/mirror.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "ctrl/mirrors.hpp"
#include "ctrl/port.hpp"

using namespace ovsdr;
using namespace ovsdr::ctrl;

namespace {

using Added = std::pair<const char*, std::uint64_t>;

/// Runs what may throw (memory, mostly); reports are shorter then.
template <typename Body>
void as_far_as_memory_lasts(Body&& body) noexcept {
    try {
        body();
    } catch (...) {
    }
}

CopyReport sum_of_queues(const ovsdr_mirror& mirror) {
    CopyReport sum = mirror.carried;
    for (const auto& queue : mirror.queues) {
        if (queue.source == nullptr) continue;
        queue.copies->without_work = queue.source->without_work.load();
        sum = sum + report_of(*queue.copies);
    }
    return sum;
}

std::uint64_t filtered_by_devices(const ovsdr_mirror& mirror) {
    std::uint64_t filtered = mirror.carried_filtered;
    for (const auto& queue : mirror.queues) {
        // Without a queue of this mirror's, the device's count is that of whom had the number before.
        if (queue.source != nullptr) filtered += queue.eswitch->filtered_copies(mirror.kind());
    }
    return filtered;
}

/// Of all devices, since a status has each key once.
std::string failures_of_queues(const ovsdr_mirror& mirror) {
    std::string text;
    for (const auto& queue : mirror.queues) {
        if (queue.failure.empty()) continue;
        text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", queue.eswitch->device(), queue.failure);
    }
    return text;
}

}  // namespace

ovsdr_mirror* ovsdr_mirror_new(const char* interface) noexcept {
    try {
        return mirrors().make(interface);
    } catch (...) {
        return nullptr;
    }
}

void ovsdr_mirror_close(ovsdr_mirror* mirror) noexcept {
    if (mirror != nullptr) mirrors().close(mirror);
}

int ovsdr_mirror_configure(ovsdr_mirror* mirror, const ovsdr_mirror_option* options, std::size_t n,
                           char** error) noexcept {
    *error = nullptr;
    try {
        std::vector<MirrorOption> all;
        for (std::size_t i = 0; i < n; ++i) all.push_back({options[i].key, options[i].value});
        const auto done = mirrors().configure(*mirror, all);
        if (done) return 0;
        *error = c_string(done.error().what);
        return done.error().code;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    } catch (...) {
        return EIO;
    }
}

void ovsdr_mirror_set_odp_port(ovsdr_mirror* mirror, std::uint32_t odp_port) noexcept {
    mirrors().set_odp_port(*mirror, dr::OdpPort{odp_port});
}

void ovsdr_mirror_port_added(std::uint32_t odp_port, const char* name) noexcept {
    as_far_as_memory_lasts([&] { mirrors().names().set(dr::OdpPort{odp_port}, name); });
}

void ovsdr_mirror_port_deleted(std::uint32_t odp_port) noexcept {
    mirrors().names().remove(dr::OdpPort{odp_port});
    mirrors().forget_port(dr::OdpPort{odp_port});
}

void ovsdr_mirror_send(ovsdr_mirror* mirror, const ovsdr_mirror_frame* frames, std::size_t n) noexcept {
    mirror::Mirror* const to = mirror->mirror;
    if (to == nullptr) return;
    std::array<mirror::SoftwareFrame, OVSDR_BATCH> batch;
    for (std::size_t at = 0; at < n;) {
        std::size_t length = 0;
        for (; length < batch.size() && at < n; ++length, ++at) {
            batch[length] = {std::as_bytes(std::span(frames[at].data, frames[at].size)),
                             dr::OdpPort{frames[at].in_port}};
        }
        to->send(std::span(batch).first(length));
    }
}

void ovsdr_mirror_options(const ovsdr_mirror* mirror, ovsdr_add_text* add, void* aux) noexcept {
    mirrors().look_at(*mirror, [&](const ovsdr_mirror& found) {
        for (const auto& [key, value] : found.given) add(aux, key.c_str(), value.c_str());
    });
}

void ovsdr_mirror_status(const ovsdr_mirror* mirror, ovsdr_add_text* add, void* aux) noexcept {
    as_far_as_memory_lasts([&] {
        mirrors().look_at(*mirror, [&](const ovsdr_mirror& found) {
            const mirror::SenderStats stats = found.owner->sender_stats();
            add(aux, "driver_name", "ovs-dr");
            add(aux, "device", found.device->name().c_str());
            add(aux, "collector", stats.collector.c_str());
            add(aux, "connected", stats.connected ? "true" : "false");
            add(aux, "handshake", found.options.plain ? "plain" : "TLS");
            if (!stats.tls_fault.empty()) add(aux, OVSDR_MIRROR_PROBLEM, stats.tls_fault.c_str());
            add(aux, "session", fmt::format("{:016x}", found.owner->session_number()).c_str());
            if (!stats.last_error.empty()) add(aux, "last_error", stats.last_error.c_str());
            if (!stats.last_bad.empty()) add(aux, "last_bad", stats.last_bad.c_str());
            if (!found.not_let_in.empty()) add(aux, "not_let_in", found.not_let_in.c_str());
            if (!found.refusal.empty()) add(aux, "not_steered", found.refusal.c_str());
            const std::string failures = failures_of_queues(found);
            if (!failures.empty()) add(aux, "in_software", failures.c_str());
        });
    });
}

void ovsdr_mirror_counters(const ovsdr_mirror* mirror, ovsdr_add_number* add, void* aux) noexcept {
    as_far_as_memory_lasts([&] {
        mirrors().look_at(*mirror, [&](const ovsdr_mirror& found) {
            const mirror::MirrorCounts counts = found.owner->counts();
            const mirror::SenderStats stats = found.owner->sender_stats();
            const CopyReport copies = sum_of_queues(found);
            for (const auto& [key, value] : {
                     Added{"mirror_software_frames", counts.software},
                     Added{"mirror_software_sampled_out", counts.software_passed_over},
                     Added{"mirror_software_filtered", counts.software_filtered},
                     Added{"mirror_own_frames", counts.own},
                     Added{"mirror_frames_undelivered", counts.undelivered},
                     Added{"mirror_copies", copies.led},
                     Added{"mirror_copies_lost", copies.lost + copies.errors},
                     Added{"mirror_copies_filtered", filtered_by_devices(found)},
                     Added{"mirror_segments_sealed", stats.sealed},
                     Added{"mirror_segments_acknowledged", stats.acknowledged},
                     Added{"mirror_segments_resent", stats.resent},
                     Added{"mirror_frames_damaged", stats.damaged},
                     Added{"mirror_connections", stats.connections},
                 }) {
                add(aux, key, value);
            }
        });
    });
}

void ovsdr_mirror_get_stats(const ovsdr_mirror* mirror, ovsdr_mirror_stats* stats) noexcept {
    *stats = {};
    as_far_as_memory_lasts([&] {
        mirrors().look_at(*mirror, [&](const ovsdr_mirror& found) {
            const mirror::MirrorCounts counts = found.owner->counts();
            const CopyReport copies = sum_of_queues(found);
            *stats = {.taken = counts.taken,
                      .taken_bytes = counts.taken_bytes,
                      .dropped = counts.dropped + counts.undelivered,
                      .lost = copies.lost + copies.errors};
        });
    });
}

void ovsdr_mirrors_set_ssl(const ovsdr_ssl* ssl) noexcept {
    as_far_as_memory_lasts([&] {
        std::optional<SslRow> row;
        if (ssl != nullptr) {
            row = SslRow{{.private_key = ssl->private_key,
                          .certificate = ssl->certificate,
                          .ca_certificate = ssl->ca_cert},
                         ssl->bootstrap_ca_cert};
        }
        mirrors().ssl().set(std::move(row));
    });
}

int ovsdr_mirror_changes_fd() noexcept { return mirrors().changes().fd(); }

bool ovsdr_mirror_changes_take() noexcept {
    const bool changed = mirrors().changes().take();
    if (!changed && !mirrors().is_refresh_due()) return false;
    mirrors().refresh();
    return true;
}

char* ovsdr_mirror_take_warning() noexcept {
    const std::string warning = mirrors().take_warning();
    return warning.empty() ? nullptr : c_string(warning);
}

bool ovsdr_mirror_device_came() noexcept { return mirrors().take_device_came(); }

void ovsdr_mirrors_finish(unsigned milliseconds) noexcept { mirrors().finish(std::chrono::milliseconds(milliseconds)); }
