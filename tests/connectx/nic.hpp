// The emulated card as a whole: what all open files share.
//
// Everything in it is under one lock, taken where the process comes in: an ioctl, a doorbell, a question of device.hpp.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/connectx/call_log.hpp"
#include "tests/connectx/fault_plan.hpp"
#include "tests/connectx/firmware.hpp"
#include "tests/connectx/host_memory.hpp"
#include "tests/connectx/icm.hpp"
#include "tests/connectx/profile.hpp"
#include "tests/connectx/send_queue.hpp"

namespace ovsdr::connectx {

class OpenFile;

struct Nic final : RequestTargets {
    explicit Nic(Profile claimed)
        : profile(std::move(claimed)),
          icm({log_steering_icm, log_modify_header_icm, log_modify_pattern_icm}),
          firmware(profile, host) {}

    std::mutex mutex;
    const Profile profile;
    CallLog log;
    FaultPlan faults;
    Icm icm;
    HostMemory host;
    Firmware firmware;
    SendQueue::Figures figures;
    /// Numbers of what only the kernel makes.
    IdSpace key_numbers{0x10, 0xFFFFFF}, protection_domains{0x20, 0xFFFFFF}, completion_queues{0x30, 0xFFFFFF},
        user_memory{0x40, 0xFFFF}, doorbell_pages{0x50, 0xFFFF};
    std::map<int, std::shared_ptr<EventFile>> event_files;   ///< by the process's end
    bool (*on_event_file)(int fd) = nullptr;                 ///< told of each; false: there is no room for it
    std::map<int, std::unique_ptr<OpenFile>> files;          ///< by file descriptor
    /// Who wants to hear of vports that come and go, and the word that tells it.
    std::vector<std::pair<std::weak_ptr<EventFile>, std::uint64_t>> vport_watchers;
    std::map<std::string, std::uint64_t> left_behind;
    std::uint64_t rules_made = 0, shared_root_entries = 0, events_lost = 0;

    /// A new file of events; the process's end of it. Throws Refused.
    [[nodiscard]] int add_event_file();

    void set_vport(std::uint16_t number, bool present);

    /// The process rang for this queue pair. Numbers that nobody has go into the log.
    void ring_queue_pair(std::uint32_t number);
    void ring_completion_queue(std::uint32_t number, std::uint32_t consumer, bool errors_only);
    /// Says so when events were lost since it was last called.
    void note_lost_events();

    // RequestTargets
    std::uint8_t* memory(const MemoryRange& range) override { return host.at(icm, range); }
    bool is_icm(std::uint32_t key) const override {
        const auto found = host.keys.find(key);
        return found != host.keys.end() && found->second.icm_address.has_value();
    }
    std::uint8_t* argument(std::uint32_t id) override;
    std::uint8_t* aso_meters(std::uint32_t id, std::uint32_t protection_domain) override {
        return firmware.aso_meters(id, protection_domain);
    }
    bool must_fail(std::string_view opcode) override;
    void note(std::string_view what) override { log.not_emulated("work request", what); }
};

}   // namespace ovsdr::connectx
