#include "offload/dr/device/geneve_option.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>

#include "offload/dr/device/leak.hpp"
#include "offload/dr/device/prm.hpp"

namespace ovsdr::dr {

namespace {

constexpr std::uint16_t create_general_object = 0xa00;
constexpr std::uint32_t geneve_tlv_option = 0xb;
// In general_obj_in_cmd_hdr.
constexpr prm::Field opcode{0, 16}, object_type{48, 16};
// In geneve_tlv_option, behind it.
constexpr prm::Field option_class{128 + 96, 16}, option_type{128 + 112, 8}, option_length{128 + 123, 5};
constexpr std::size_t mailbox = 16 + 64, answer = 16;   // bytes
constexpr std::uint32_t one_word = 1;

}  // namespace

struct GeneveParser::Object {
    explicit Object(std::shared_ptr<Device> owner, GeneveOption which) noexcept
        : device(std::move(owner)), option(which) {}
    ~Object() {
        if (object != nullptr) destroyed([this] { return mlx5dv_devx_obj_destroy(object); });
    }
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;

    std::shared_ptr<Device> device;
    GeneveOption option;
    mlx5dv_devx_obj* object = nullptr;
};

std::optional<GeneveOption> GeneveParser::current() const noexcept {
    std::lock_guard lock(mutex_);
    const auto object = object_.lock();
    return object == nullptr ? std::nullopt : std::optional(object->option);
}

Result<GeneveOptionRef> GeneveParser::acquire(GeneveOption option) {
    std::lock_guard lock(mutex_);
    if (const auto known = object_.lock(); known != nullptr) {
        if (known->option == option) return GeneveOptionRef(known, &known->option);
        return tl::unexpected(Error{EBUSY, "the device looks for another Geneve option", "GENEVE_TLV_OPT"});
    }
    auto object = std::make_shared<Object>(device_, option);
    std::array<std::uint8_t, mailbox> in{};
    std::array<std::uint8_t, answer> out{};
    prm::set(in.data(), opcode, create_general_object);
    prm::set(in.data(), object_type, geneve_tlv_option);
    prm::set(in.data(), option_class, option.option_class);
    prm::set(in.data(), option_type, option.type);
    prm::set(in.data(), option_length, one_word);
    object->object = mlx5dv_devx_obj_create(device_->context(), in.data(), in.size(), out.data(), out.size());
    if (object->object == nullptr) return tl::unexpected(devx_failure(errno, "CREATE_GENERAL_OBJECT", out));
    object_ = object;
    return GeneveOptionRef(object, &object->option);
}

}  // namespace ovsdr::dr
