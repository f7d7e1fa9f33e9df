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
    explicit Object(GeneveOption which) noexcept : option(which) {}
    ~Object() {
        if (object != nullptr) destroyed([this] { return mlx5dv_devx_obj_destroy(object); });
    }
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;

    GeneveOption option;
    mlx5dv_devx_obj* object = nullptr;
};

struct GeneveParser::Ref {
    explicit Ref(GeneveOption which) noexcept : option(which) {}
    ~Ref() {
        if (parser != nullptr) parser->let_go();
    }
    Ref(const Ref&) = delete;
    Ref& operator=(const Ref&) = delete;

    GeneveOption option;
    GeneveParser* parser = nullptr;   ///< counts this
};

GeneveParser::GeneveParser(std::shared_ptr<Device> device) noexcept : device_(std::move(device)) {}
GeneveParser::~GeneveParser() = default;

std::optional<GeneveOption> GeneveParser::current() const noexcept {
    std::lock_guard lock(mutex_);
    return object_ == nullptr ? std::nullopt : std::optional(object_->option);
}

/// The object goes with the lock held: until then the device takes no other.
void GeneveParser::let_go() noexcept {
    std::lock_guard lock(mutex_);
    if (--refs_ == 0) object_ = nullptr;
}

Result<GeneveOptionRef> GeneveParser::acquire(GeneveOption option) {
    const auto ref = std::make_shared<Ref>(option);
    std::lock_guard lock(mutex_);
    if (object_ != nullptr && object_->option != option) {
        return tl::unexpected(Error{EBUSY, "the device looks for another Geneve option", "GENEVE_TLV_OPT"});
    }
    if (object_ == nullptr) {
        auto made = make(option);
        if (!made) return tl::unexpected(std::move(made.error()));
        object_ = std::move(*made);
    }
    ref->parser = this;
    ++refs_;
    return GeneveOptionRef(ref, &ref->option);
}

Result<std::unique_ptr<GeneveParser::Object>> GeneveParser::make(GeneveOption option) const {
    auto made = std::make_unique<Object>(option);
    std::array<std::uint8_t, mailbox> in{};
    std::array<std::uint8_t, answer> out{};
    prm::set(in.data(), opcode, create_general_object);
    prm::set(in.data(), object_type, geneve_tlv_option);
    prm::set(in.data(), option_class, option.option_class);
    prm::set(in.data(), option_type, option.type);
    prm::set(in.data(), option_length, one_word);
    made->object = mlx5dv_devx_obj_create(device_->context(), in.data(), in.size(), out.data(), out.size());
    if (made->object == nullptr) return tl::unexpected(devx_failure(errno, "CREATE_GENERAL_OBJECT", out));
    return made;
}

}  // namespace ovsdr::dr
