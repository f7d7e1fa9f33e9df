// /dev/infiniband/uverbs0 as one open() gave it: the kernel's objects, and the methods that make and destroy them.
//
// Methods stand in tables by object and method number (verbs_methods.cpp, devx_methods.cpp, root_methods.cpp), commands
// of the older write interface in write_commands.cpp. Each has a name, which the log, faults and counts know it by.
// Threads: the device's lock.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tests/connectx/call.hpp"
#include "tests/connectx/nic.hpp"
#include "tests/connectx/objects.hpp"

namespace ovsdr::connectx {

class OpenFile {
public:
    explicit OpenFile(Nic& owner) : nic(owner) {}
    /// Destroys what is left and counts it as left behind.
    ~OpenFile();
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;

    /// RDMA_VERBS_IOCTL. 0 or a positive errno.
    [[nodiscard]] int ioctl(ib_uverbs_ioctl_hdr& header);

    /// Undoes what making an object did elsewhere, and forgets it. Throws Refused{EBUSY} if others use it, BadStatus if
    /// the firmware says so.
    void destroy(std::uint32_t handle);
    /// The same, of an object that must be of this kind. Throws Refused.
    template <class T>
    void destroy_of_kind(std::uint32_t handle) {
        (void)objects.get<T>(handle);
        destroy(handle);
    }

    Nic& nic;
    Objects objects;

private:
    void undo(Objects::Body& body);
};

/// A row of the methods' tables.
struct Method {
    std::uint16_t object, method;
    const char* name;
    bool makes_something;
    void (*run)(OpenFile& file, Call& call);
    /// What the name says besides (the command of a DEVX call); may be null.
    std::string (*detail)(OpenFile& file, Call& call) = nullptr;
    /// Where a DEVX command's answer goes: a refusal leaves its status there.
    std::uint16_t answer = 0;
};
[[nodiscard]] std::span<const Method> verbs_methods();
[[nodiscard]] std::span<const Method> devx_methods();
[[nodiscard]] std::span<const Method> root_methods();

/// Commands of the older interface, which come in through one method.
struct WriteCommand {
    std::uint32_t number;
    const char* name;
    bool makes_something;
    void (*run)(OpenFile& file, Call& call);
};
[[nodiscard]] std::span<const WriteCommand> write_commands();

/// What memory is registered for, as the kernel's ib_check_mr_access() judges it. Throws Refused, NotEmulated.
void check_access(std::uint64_t flags);

/// `name` is one that calls are counted and made to fail by.
[[nodiscard]] bool is_call_name(std::string_view name);
/// `PD`, `DEVX:CREATE_FLOW_TABLE`, …
[[nodiscard]] std::string label_of(Nic& nic, const Objects::Body& body);

}   // namespace ovsdr::connectx
