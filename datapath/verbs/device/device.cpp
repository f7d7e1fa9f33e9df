// The device list: the devices of this process's NIC, under the names of the configuration.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "datapath/control/fault.hpp"
#include "datapath/ports/nic.hpp"
#include "datapath/verbs/objects.hpp"

#undef ibv_get_device_list

namespace ovsdr::soft {

namespace {

struct ListedDevice : ibv_device {
    DeviceState* state;
};

[[nodiscard]] ListedDevice* list(Device& device, rte_mempool* mempool, unsigned index) {
    auto* const listed = new ListedDevice{};
    listed->node_type = IBV_NODE_CA;
    listed->transport_type = IBV_TRANSPORT_IB;
    const std::string name(device.name());
    std::snprintf(listed->name, sizeof listed->name, "%s", name.c_str());
    std::snprintf(listed->dev_name, sizeof listed->dev_name, "uverbs%u", index);
    // Where the kernel would show the device; nothing is there, and nothing here reads it.
    std::snprintf(listed->dev_path, sizeof listed->dev_path, "/sys/class/infiniband_verbs/uverbs%u", index);
    std::snprintf(listed->ibdev_path, sizeof listed->ibdev_path, "/sys/class/infiniband/%.200s", name.c_str());
    listed->state = &DeviceState::of(device, mempool);
    // Whoever has addresses is asked for them: the transport answers from the start.
    VportInfo uplink{};
    if (device.query(uplink_vport, uplink) == 0 && !uplink.roce_addresses.empty()) (void)listed->state->transport();
    return listed;
}

/// Made once the NIC has started; kept, as applications keep pointers to what is in it.
[[nodiscard]] int listed_devices(std::vector<ListedDevice*>*& devices) {
    static std::mutex mutex;
    static auto* const known = new std::vector<ListedDevice*>;
    std::lock_guard guard(mutex);
    devices = known;
    if (!known->empty()) return 0;
    Nic* nic = nullptr;
    if (const int error = Nic::start(nic)) return error;
    unsigned index = 0;
    for (Device* device : nic->devices()) known->push_back(list(*device, nic->mempool(), index++));
    return 0;
}

}  // namespace

ibv_context* import_context(ibv_device* device, int descriptor) noexcept {
    DeviceState& state = *static_cast<ListedDevice*>(device)->state;
    if (!state.is_file(descriptor)) return nullptr;
    ibv_context* const context = open_context(device, state);
    if (context) close(descriptor);
    return context;
}

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

/// A NIC that cannot start (it has said why on stderr) is no device: an empty list, errno says what happened.
ibv_device** ibv_get_device_list(int* length) {
    if (length) *length = 0;
    if (const int error = injected_fault("ibv_get_device_list")) {
        errno = error;
        return nullptr;
    }
    return created([&] {
        std::vector<ListedDevice*>* devices = nullptr;
        const int error = listed_devices(devices);
        auto** const array = static_cast<ibv_device**>(std::calloc(devices->size() + 1, sizeof(ibv_device*)));
        if (!array) throw std::bad_alloc();
        for (std::size_t i = 0; i < devices->size(); ++i) array[i] = (*devices)[i];
        if (length) *length = static_cast<int>(devices->size());
        if (error) errno = error;
        return array;
    });
}

void ibv_free_device_list(ibv_device** list) {
    std::free(list);
}

const char* ibv_get_device_name(ibv_device* device) {
    return device->name;
}

__be64 ibv_get_device_guid(ibv_device* device) {
    return htobe64(static_cast<ListedDevice*>(device)->state->device().guid());
}

/// The kernel's index of a device; there is none.
int ibv_get_device_index(ibv_device*) {
    return -1;
}

ibv_context* ibv_open_device(ibv_device* device) {
    if (const int error = injected_fault("ibv_open_device")) {
        errno = error;
        return nullptr;
    }
    return open_context(device, *static_cast<ListedDevice*>(device)->state);
}

bool mlx5dv_is_supported(ibv_device*) {
    return true;
}

ibv_context* mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr* attr) {
    constexpr std::uint32_t known = MLX5DV_CONTEXT_FLAGS_DEVX;
    if (attr && ((attr->flags & ~known) || attr->comp_mask)) {
        errno = EINVAL;
        return nullptr;
    }
    if (const int error = injected_fault("mlx5dv_open_device")) {
        errno = error;
        return nullptr;
    }
    return ibv_open_device(device);
}

// The kernel pins nothing here and copies no page behind the application's back: fork() needs no preparation.
int ibv_fork_init(void) {
    return 0;
}
ibv_fork_status ibv_is_fork_initialized(void) {
    return IBV_FORK_UNNEEDED;
}
int ibv_dontfork_range(void*, std::size_t) {
    return 0;
}
int ibv_dofork_range(void*, std::size_t) {
    return 0;
}

}  // extern "C"
