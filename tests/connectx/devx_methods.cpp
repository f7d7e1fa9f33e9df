// Methods of DEVX: commands to the firmware, memory for it, and its events.
//
// What the kernel's mlx5_ib refuses before it asks the firmware is refused here (drivers/infiniband/hw/mlx5/devx.c).
#include <fmt/format.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/connectx/open_file.hpp"

namespace ovsdr::connectx {
namespace {

/// The command's name; the attribute is DEVX_*_CMD_IN.
template <std::uint16_t attribute>
std::string command_name(OpenFile&, Call& call) {
    return Firmware::name_of(call.input(attribute));
}

/// The name of the command that made the object.
std::string creation_name(OpenFile& file, Call& call) {
    const DevxHandle& devx = file.objects.get<DevxHandle>(call.handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE));
    return std::string(file.nic.firmware.find(devx.name)->label);
}

FirmwareObject& object_of(OpenFile& file, Call& call, std::uint16_t attribute) {
    FirmwareObject* object = file.nic.firmware.find(file.objects.get<DevxHandle>(call.handle(attribute)).name);
    if (object == nullptr) throw Refused{EINVAL, "the firmware's object is gone"};
    return *object;
}

void general(OpenFile& file, Call& call) {
    const Bytes in = call.input(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN);
    if (!Firmware::is_open_to_all(in)) throw Refused{EINVAL, "the kernel does not pass it on"};
    file.nic.firmware.general(in, call.output(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT));
}

/// A command on an object names it once more, after the call's handle. Of a bulk of counters by the first: older
/// kernels take no other.
void check_id(const FirmwareObject& object, Bytes in) {
    if (!Firmware::is_named(object, in)) throw Refused{EINVAL, "the command names another object"};
}

/// The kernel destroys by a command of its own, whose answer becomes an errno.
void destroy_by_command(OpenFile& file, std::uint32_t handle) {
    try {
        file.destroy(handle);
    } catch (const BadStatus& bad) {
        throw Refused{EINVAL, "firmware: " + bad.why};
    }
}

void create(OpenFile& file, Call& call) {
    const FirmwareObject& object = file.nic.firmware.create(call.input(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN),
                                                            call.output(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT));
    call.answer_handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, file.objects.add(DevxHandle{object.name}));
}

void query(OpenFile& file, Call& call) {
    const FirmwareObject& object = object_of(file, call, MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE);
    const Bytes in = call.input(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN);
    check_id(object, in);
    file.nic.firmware.query(object, in, call.output(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT));
}

void modify(OpenFile& file, Call& call) {
    FirmwareObject& object = object_of(file, call, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE);
    const Bytes in = call.input(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN);
    check_id(object, in);
    (void)call.output(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT);
    file.nic.firmware.modify(object, in);
}

void destroy(OpenFile& file, Call& call) {
    const std::uint32_t handle = call.handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE);
    (void)file.objects.get<DevxHandle>(handle);
    destroy_by_command(file, handle);
}

void register_memory(OpenFile& file, Call& call) {
    if (call.has(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD)) throw NotEmulated{"memory of a dma-buf"};
    call.ignore({MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP});   // how the kernel cuts it into pages
    check_access(call.number(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, 0));
    const std::uint64_t address = call.number(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR),
                        size = call.number(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN);
    if (size == 0) throw Refused{EINVAL, "no byte of memory"};
    const std::uint32_t id = file.nic.user_memory.allocate();
    file.nic.host.user_memory[id] = {reinterpret_cast<std::uint8_t*>(address), size};
    call.answer_handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, file.objects.add(UserMemoryHandle{id}));
    call.answer(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, id);
}

void deregister_memory(OpenFile& file, Call& call) {
    const std::uint32_t handle = call.handle(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE);
    const auto found = file.nic.host.user_memory.find(file.objects.get<UserMemoryHandle>(handle).id);
    // The queues of the firmware have pointers into it.
    for (const ObjectKind kind : {ObjectKind::queue_pair, ObjectKind::send_queue, ObjectKind::completion_queue}) {
        for (const auto& [id, object] : file.nic.firmware.all(kind)) {
            const bool is_of_completions = kind == ObjectKind::completion_queue &&
                                           object->completions->is_in(found->second.memory, found->second.size);
            if (is_of_completions ||
                (object->send_queue && object->send_queue->is_in(found->second.memory, found->second.size))) {
                throw Refused{EINVAL, "firmware: a queue has its rings in it"};
            }
        }
    }
    file.destroy(handle);
}

/// All queues' events go to one.
void query_event_queue(OpenFile&, Call& call) {
    constexpr std::uint32_t event_queue = 7;
    if (call.number(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC) != 0) throw Refused{EINVAL, "no such vector"};
    call.answer(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, event_queue);
}

void allocate_event_file(OpenFile& file, Call& call) {
    if ((call.number(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, 0) & MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA) ==
        0) {
        throw NotEmulated{"events with the event queue's entry"};
    }
    call.answer_file(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, file.nic.add_event_file());
}

constexpr std::uint16_t port_change = 0x9, nic_vport_change = 0xd;

/// Without event capabilities mlx5_ib knows one event that belongs to no object. With them firmware says which a
/// process may have: these two, on this card.
bool is_offered(const Profile& profile, std::uint16_t type) {
    return type == port_change || (profile.has_event_cap && type == nic_vport_change);
}

/// Of what can be subscribed to only the coming and going of vports happens here. Ports change with their links, which
/// stay as they are.
void subscribe(OpenFile& file, Call& call) {
    if (call.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM)) throw NotEmulated{"events to an eventfd"};
    if (call.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE)) throw NotEmulated{"events of an object"};
    constexpr std::size_t most_types = 16;
    const auto events =
        file.nic.event_files.find(static_cast<int>(call.number(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE)));
    if (events == file.nic.event_files.end()) throw Refused{EBADF, "not an event file"};
    const std::uint64_t cookie = call.number(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, 0);
    const Bytes list = call.input(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST);
    std::vector<std::uint16_t> types(list.size() / sizeof(std::uint16_t));
    if (types.empty() || types.size() > most_types || list.size() % sizeof(std::uint16_t) != 0)
        throw Refused{EINVAL, "not a list of 1 to 16 event types"};
    std::memcpy(types.data(), list.data(), list.size());
    for (const std::uint16_t type : types) {
        if (!is_offered(file.nic.profile, type))
            throw Refused{EINVAL, fmt::format("events of type {:#x} are not for processes", type)};
    }
    for (const std::uint16_t type : types) {
        if (type == nic_vport_change) file.nic.vport_watchers.emplace_back(events->second, cookie);
    }
}

constexpr std::uint16_t object_attribute = MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN;

constexpr Method table[] = {
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, "DEVX_OTHER", false, general,
     command_name<MLX5_IB_ATTR_DEVX_OTHER_CMD_IN>, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, "DEVX_QUERY_EQN", false, query_event_queue},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, "DEVX_SUBSCRIBE_EVENT", true, subscribe},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, "DEVX_OBJ_CREATE", true, create,
     command_name<object_attribute>, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, "DEVX_OBJ_QUERY", false, query,
     command_name<MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN>, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, "DEVX_OBJ_MODIFY", false, modify,
     command_name<MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN>, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, "DEVX_OBJ_DESTROY", false, destroy, creation_name},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, "DEVX_UMEM_REG", true, register_memory},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, "DEVX_UMEM_DEREG", false, deregister_memory},
    {MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC, "DEVX_ASYNC_EVENT_FD_ALLOC", true,
     allocate_event_file},
};

}   // namespace

std::span<const Method> devx_methods() {
    return table;
}

}   // namespace ovsdr::connectx
