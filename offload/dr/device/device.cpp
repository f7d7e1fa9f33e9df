#include "offload/dr/device/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "offload/dr/device/ib_port.hpp"
#include "offload/dr/device/leak.hpp"
#include "offload/dr/device/prm.hpp"

namespace ovsdr::dr {

namespace {

struct DeviceList {
    DeviceList() : devices(ibv_get_device_list(&length)) {}
    ~DeviceList() {
        if (devices != nullptr) ibv_free_device_list(devices);
    }
    DeviceList(const DeviceList&) = delete;
    DeviceList& operator=(const DeviceList&) = delete;

    int length = 0;
    ibv_device** devices;
};

struct StatusName {
    std::uint32_t status;
    const char* words;
};

/// Source: PRM, "Command Return Status"; mlx5_ifc.h of the kernel has the numbers.
constexpr StatusName statuses[] = {
    {0x1, "an internal error"},
    {0x2, "it does not know the command"},
    {prm::bad_parameter, "a wrong parameter"},
    {0x4, "it is in no state for it"},
    {prm::bad_resource, "it has no such resource"},
    {0x6, "the resource is busy"},
    {0x8, "a limit is exceeded"},
    {0x9, "the resource is in no state for it"},
    {0xa, "a wrong index"},
    {0xf, "it has no resources left"},
    {0x50, "a wrong size of the command"},
    {0x51, "a wrong size of the answer"},
};

std::string names_in(const DeviceList& list) {
    std::string names;
    for (int i = 0; i < list.length; ++i) {
        if (!names.empty()) names += ", ";
        names += ibv_get_device_name(list.devices[i]);
    }
    return names.empty() ? "none" : names;
}

std::string text_of(StaticName call, std::string_view object) {
    return object.empty() ? call.text() : fmt::format("{}({})", call.text(), object);
}

}  // namespace

Error failure(int code, StaticName call, std::string_view object) {
    const int positive = code == 0 ? EIO : std::abs(code);
    return Error{positive, fmt::format("{}: {}", text_of(call, object), std::strerror(positive)), call};
}

Error devx_failure(int code, StaticName call, std::span<const std::uint8_t> out, std::string_view object) {
    if (std::abs(code) != EREMOTEIO || out.size() < 8) return failure(code, call, object);
    constexpr prm::Field syndrome{32, 32};
    const std::uint32_t status = prm::get(out.data(), prm::status);
    const auto named = std::ranges::find(statuses, status, &StatusName::status);
    return Error{EREMOTEIO,
                 fmt::format("{}: the device refuses: {} (status {:#x}, syndrome {:#x})", text_of(call, object),
                             named == std::end(statuses) ? "for a reason of its own" : named->words, status,
                             prm::get(out.data(), syndrome)),
                 call};
}

Result<std::shared_ptr<Device>> Device::open(std::string_view name) noexcept {
    DeviceList list;
    if (list.devices == nullptr) return tl::unexpected(failure(errno, "ibv_get_device_list"));
    for (int i = 0; i < list.length; ++i) {
        ibv_device* found = list.devices[i];
        if (name != ibv_get_device_name(found)) continue;
        mlx5dv_context_attr attributes{};
        attributes.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
        ibv_context* context = mlx5dv_open_device(found, &attributes);
        if (context == nullptr) return tl::unexpected(failure(errno, "mlx5dv_open_device", name));
        std::shared_ptr<Device> device(new Device(std::string(name), context));
        device->pd_ = ibv_alloc_pd(context);
        if (device->pd_ == nullptr) return tl::unexpected(failure(errno, "ibv_alloc_pd", name));
        return device;
    }
    return tl::unexpected(Error{ENODEV, fmt::format("no device \"{}\"; there are: {}", name, names_in(list))});
}

Device::Device(std::string name, ibv_context* context) noexcept : name_(std::move(name)), context_(context) {}

Device::~Device() {
    if (pd_ != nullptr) destroyed([this] { return ibv_dealloc_pd(pd_); });
    destroyed([this] { return ibv_close_device(context_) == 0 ? 0 : (errno != 0 ? errno : EIO); });
}

Result<Device::VportRegister> Device::vport_register(VportId vport) const {
    const auto port = find_ib_port(context_, vport);
    if (!port) return tl::unexpected(port.error());
    if (!port->has_register) {
        return tl::unexpected(Error{ENOENT, fmt::format("IB port {} of {}, which is vport {}, has no bits of reg_c_0",
                                                        port->number, name_, vport.value)});
    }
    return VportRegister{port->register_value, port->register_mask};
}

Result<void> Device::command(StaticName call, std::span<const std::uint8_t> in,
                             std::span<std::uint8_t> out) const noexcept {
    const int code = mlx5dv_devx_general_cmd(context_, in.data(), in.size(), out.data(), out.size());
    if (code != 0) return tl::unexpected(devx_failure(code < 0 && errno != 0 ? errno : code, call, out));
    return {};
}

}  // namespace ovsdr::dr
