// Objects of the kernel, by handle, as one open device file has them.
//
// An object that others were made of (a protection domain of memory regions, a matcher of rules) cannot be destroyed
// before those: EBUSY, as the kernel's use counts give. Closing the file destroys what is left, last made first.
// Threads: the device's lock.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/connectx/device.hpp"
#include "tests/connectx/firmware.hpp"
#include "tests/connectx/refused.hpp"

namespace ovsdr::connectx {

struct ProtectionDomain {
    static constexpr const char* label = "PD";
    std::uint32_t number;
};
struct CompletionQueueHandle {
    static constexpr const char* label = "CQ";
    std::shared_ptr<CompletionQueue> queue;
};
/// A queue pair made by verbs: raw packet queues. `tir` leads to its receive queue.
struct QueuePair {
    static constexpr const char* label = "QP";
    std::uint32_t number, tir;
    std::unique_ptr<SendQueue> send_queue;
    std::shared_ptr<CompletionQueue> completions;
};
struct MemoryRegion {
    static constexpr const char* label = "MR";
    std::uint32_t key;
};
struct DeviceMemory {
    static constexpr const char* label = "DM";
    std::uint64_t address, size;
};
struct UserMemoryHandle {
    static constexpr const char* label = "UMEM";
    std::uint32_t id;
};
struct DoorbellPage {
    static constexpr const char* label = "UAR";
    std::uint32_t page;
};
struct DevxHandle {
    static constexpr const char* label = "DEVX";
    ObjectName name;
};
struct RootMatcherHandle {
    static constexpr const char* label = "FLOW_MATCHER";
    RootMatcher matcher;
};
struct RootRuleHandle {
    static constexpr const char* label = "FLOW";
    RootRule rule;
    std::vector<ObjectName> uses;
};
struct RootActionHandle {
    static constexpr const char* label = "FLOW_ACTION";
    RootAction action;
};
struct SteeringAnchor {
    static constexpr const char* label = "STEERING_ANCHOR";
    ObjectName table;
};

class Objects {
public:
    using Body =
        std::variant<ProtectionDomain, CompletionQueueHandle, QueuePair, MemoryRegion, DeviceMemory, UserMemoryHandle,
                     DoorbellPage, DevxHandle, RootMatcherHandle, RootRuleHandle, RootActionHandle, SteeringAnchor>;

    struct Object {
        Body body;
        std::vector<std::uint32_t> made_of;   ///< handles
        unsigned users = 0;
    };

    /// The handle of a new object. `made_of` must be there.
    std::uint32_t add(Body body, std::vector<std::uint32_t> made_of = {}) {
        for (const std::uint32_t handle : made_of) ++objects_.at(handle).users;
        objects_.emplace(next_, Object{std::move(body), std::move(made_of)});
        return next_++;
    }

    /// Throws Refused.
    template <class T>
    [[nodiscard]] T& get(std::uint32_t handle) {
        const auto found = objects_.find(handle);
        if (found == objects_.end()) throw Refused{ENOENT, std::string("no object has this handle: ") + T::label};
        if (T* body = std::get_if<T>(&found->second.body)) return *body;
        throw Refused{EINVAL, std::string("the handle is of another kind: ") + T::label};
    }
    [[nodiscard]] bool is_used(std::uint32_t handle) const { return objects_.at(handle).users != 0; }

    /// The handle of the object that is made next.
    [[nodiscard]] std::uint32_t next() const { return next_; }

    void remove(std::uint32_t handle) {
        const auto found = objects_.find(handle);
        for (const std::uint32_t part : found->second.made_of) --objects_.at(part).users;
        objects_.erase(found);
    }

    [[nodiscard]] const std::map<std::uint32_t, Object>& all() const { return objects_; }
    template <class T, class F>
    void for_each(F&& function) {
        for (auto& [handle, object] : objects_) {
            if (T* body = std::get_if<T>(&object.body)) function(handle, *body);
        }
    }

private:
    std::map<std::uint32_t, Object> objects_;
    std::uint32_t next_ = 1;
};

}   // namespace ovsdr::connectx
