#include "tests/connectx/open_file.hpp"

#include <fmt/format.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>

#include "tests/connectx/layouts.hpp"

namespace ovsdr::connectx {
namespace {

constexpr std::uint8_t internal_error = 0x1;   // status of commands that fail by a fault

const Method* find_method(const Call& call) {
    for (const auto table : {verbs_methods(), devx_methods(), root_methods()}) {
        for (const Method& method : table) {
            if (method.object == call.object() && method.method == call.method()) return &method;
        }
    }
    return nullptr;
}

/// The same for both interfaces.
struct Target {
    std::string name;
    bool makes_something = false;
    void (*run)(OpenFile&, Call&) = nullptr;
    std::uint16_t answer = 0;
};

Target target_of_write(Call& call) {
    const auto number = static_cast<std::uint32_t>(call.number(UVERBS_ATTR_WRITE_CMD));
    for (const WriteCommand& command : write_commands()) {
        if (command.number == number) return {command.name, command.makes_something, command.run};
    }
    return {fmt::format("INVOKE_WRITE:{:#x}", number)};
}

Target target_of(OpenFile& file, Call& call) {
    if (call.object() == UVERBS_OBJECT_DEVICE && call.method() == UVERBS_METHOD_INVOKE_WRITE)
        return target_of_write(call);
    const Method* method = find_method(call);
    if (method == nullptr) return {fmt::format("object {:#x} method {:#x}", call.object(), call.method())};
    Target target{method->name, method->makes_something, method->run, method->answer};
    if (method->detail != nullptr) target.name += ':' + method->detail(file, call);
    return target;
}

void set_status(Call& call, const Target& target, std::uint8_t status) {
    if (target.answer == 0) return;
    const auto answer = call.output(target.answer);
    if (!answer.empty()) set(answer, layout::command_out::status, status);
}

/// Before libibverbs relies on INVOKE_WRITE it asks whether the kernel knows it, by a call without attributes.
bool is_probe(Call& call) {
    return call.object() == UVERBS_OBJECT_DEVICE && call.method() == UVERBS_METHOD_INVOKE_WRITE &&
           !call.has(UVERBS_ATTR_CORE_IN) && !call.has(UVERBS_ATTR_CORE_OUT);
}

}   // namespace

OpenFile::~OpenFile() {
    while (!objects.all().empty()) {
        const auto last = std::prev(objects.all().end());
        const std::string label = label_of(nic, last->second.body);
        ++nic.left_behind[label];
        nic.log.line("left behind: " + label);
        try {
            undo(const_cast<Objects::Body&>(last->second.body));
        } catch (const BadStatus& bad) {
            nic.log.failed("close", EREMOTEIO, bad.why);
        }
        objects.remove(last->first);
    }
}

int OpenFile::ioctl(ib_uverbs_ioctl_hdr& header) {
    if (header.length != sizeof header + header.num_attrs * sizeof header.attrs[0]) return EINVAL;
    Call call(header);
    if (is_probe(call)) return ENOSPC;
    Target target;
    const std::uint32_t first_made = objects.next();
    try {
        target = target_of(*this, call);
        nic.log.called(target.name);
        if (target.run == nullptr) throw NotEmulated{"the call"};
        if (const std::optional<int> error = nic.faults.due(target.name, target.makes_something)) {
            set_status(call, target, internal_error);
            nic.log.failed(target.name, *error, "a fault was asked for");
            return *error;
        }
        target.run(*this, call);
        call.check_all_read();
        return 0;
    } catch (const Refused& refused) {
        nic.log.failed(target.name, refused.error, refused.why);
        return refused.error;
    } catch (const NotEmulated& missing) {
        // An attribute that nobody looked at shows when the object is there already.
        if (objects.next() != first_made && !objects.all().empty() && objects.all().rbegin()->first >= first_made) {
            destroy(objects.all().rbegin()->first);
        }
        nic.log.not_emulated(target.name, missing.what);
        return EOPNOTSUPP;
    } catch (const BadStatus& bad) {
        set_status(call, target, bad.status);
        nic.log.failed(target.name, EREMOTEIO,
                       fmt::format("status {:#x}: {}", static_cast<unsigned>(bad.status), bad.why));
        return EREMOTEIO;
    } catch (const InputTooShort&) {
        set_status(call, target, BadStatus::bad_input_length);
        nic.log.failed(target.name, EREMOTEIO, "the command is too short");
        return EREMOTEIO;
    } catch (const OutputTooShort&) {
        set_status(call, target, BadStatus::bad_output_length);
        nic.log.failed(target.name, EREMOTEIO, "the room for the answer is too short");
        return EREMOTEIO;
    }
}

void OpenFile::destroy(std::uint32_t handle) {
    if (objects.is_used(handle)) throw Refused{EBUSY, "in use"};
    undo(const_cast<Objects::Body&>(objects.all().at(handle).body));
    objects.remove(handle);
}

void OpenFile::undo(Objects::Body& body) {
    struct Undo {
        OpenFile& file;
        Nic& nic;

        void operator()(const ProtectionDomain& domain) const { nic.protection_domains.release(domain.number); }
        void operator()(const CompletionQueueHandle& handle) const {
            nic.completion_queues.release(handle.queue->number());
            nic.host.completion_queues.erase(handle.queue->number());
        }
        void operator()(const QueuePair& queue_pair) const {
            nic.firmware.numbers(ObjectKind::queue_pair).release(queue_pair.number);
            nic.firmware.numbers(ObjectKind::tir).release(queue_pair.tir);
        }
        void operator()(const MemoryRegion& region) const {
            nic.host.keys.erase(region.key);
            nic.key_numbers.release(region.key >> 8);
        }
        void operator()(const DeviceMemory& memory) const { nic.icm.release(memory.address); }
        void operator()(const UserMemoryHandle& memory) const {
            nic.host.user_memory.erase(memory.id);
            nic.user_memory.release(memory.id);
        }
        void operator()(const DoorbellPage& page) const { nic.doorbell_pages.release(page.page); }
        void operator()(const DevxHandle& handle) const { nic.firmware.destroy(handle.name); }
        void operator()(const RootMatcherHandle&) const {}
        void operator()(const RootRuleHandle& rule) const {
            for (const ObjectName used : rule.uses) nic.firmware.release(used);
        }
        void operator()(const RootActionHandle&) const {}
        void operator()(const SteeringAnchor& anchor) const { nic.firmware.return_kernel_table(anchor.table); }
    };
    std::visit(Undo{*this, nic}, body);
}

void check_access(std::uint64_t flags) {
    constexpr std::uint64_t remote_atomic = 8, optional = 0x3FF00000;   // IB_ACCESS_*; hints that a kernel may ignore
    constexpr std::uint64_t known = MemoryKey::local_write | MemoryKey::remote_write | MemoryKey::remote_read;
    if ((flags & ~(known | remote_atomic | optional)) != 0)
        throw NotEmulated{fmt::format("memory with access {:#x}", flags)};
    if ((flags & (MemoryKey::remote_write | remote_atomic)) != 0 && (flags & MemoryKey::local_write) == 0)
        throw Refused{EINVAL, "memory that others may write and its owner not"};
}

bool is_call_name(std::string_view name) {
    if (name == "*" || SendQueue::is_request_name(name)) return true;
    const auto rows = write_commands();
    if (std::any_of(rows.begin(), rows.end(), [&](const WriteCommand& row) { return row.name == name; })) return true;
    const std::string_view first = name.substr(0, name.find(':'));
    for (const auto table : {verbs_methods(), devx_methods(), root_methods()}) {
        for (const Method& method : table) {
            if (method.name != first) continue;
            if (method.detail == nullptr) return first == name;
            return name.size() > first.size() && Firmware::is_name(name.substr(first.size() + 1));
        }
    }
    return false;
}

std::string label_of(Nic& nic, const Objects::Body& body) {
    if (const auto* devx = std::get_if<DevxHandle>(&body)) {
        const FirmwareObject* object = nic.firmware.find(devx->name);
        return fmt::format("DEVX:{}", object == nullptr ? "?" : object->label);
    }
    return std::visit([](const auto& known) { return std::string(std::decay_t<decltype(known)>::label); }, body);
}

}   // namespace ovsdr::connectx
