#include "tests/connectx/call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "tests/connectx/refused.hpp"

namespace ovsdr::connectx {
namespace {

template <class T>
T* pointer(const ib_uverbs_attr& attribute) {
    return reinterpret_cast<T*>(static_cast<std::uintptr_t>(attribute.data));
}

}   // namespace

ib_uverbs_attr* Call::find(std::uint16_t id) {
    for (std::size_t i = 0; i < header_.num_attrs; ++i) {
        if (header_.attrs[i].attr_id != id) continue;
        read_[i] = true;
        return &header_.attrs[i];
    }
    return nullptr;
}

ib_uverbs_attr& Call::required(std::uint16_t id) {
    if (ib_uverbs_attr* attribute = find(id)) return *attribute;
    throw Refused{EINVAL, fmt::format("attribute {:#x} is missing", id)};
}

std::uint64_t Call::number(std::uint16_t id, std::optional<std::uint64_t> missing) {
    if (missing && find(id) == nullptr) return *missing;
    const ib_uverbs_attr& attribute = required(id);
    return attribute.len == sizeof(std::uint32_t) ? static_cast<std::uint32_t>(attribute.data) : attribute.data;
}

std::span<const std::uint8_t> Call::input(std::uint16_t id) {
    const ib_uverbs_attr* attribute = find(id);
    if (attribute == nullptr) return {};
    if (attribute->len <= sizeof attribute->data)
        return {reinterpret_cast<const std::uint8_t*>(&attribute->data), attribute->len};
    return {pointer<const std::uint8_t>(*attribute), attribute->len};
}

std::vector<std::uint32_t> Call::numbers(std::uint16_t id) {
    const auto bytes = input(id);
    std::vector<std::uint32_t> values(bytes.size() / sizeof(std::uint32_t));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(std::uint32_t));
    return values;
}

std::uint8_t Call::element(std::uint16_t id) {
    const ib_uverbs_attr* attribute = find(id);
    return attribute == nullptr ? std::uint8_t{0} : attribute->attr_data.enum_data.elem_id;
}

std::span<std::uint8_t> Call::output(std::uint16_t id) {
    ib_uverbs_attr* attribute = find(id);
    if (attribute == nullptr) return {};
    auto* memory = pointer<std::uint8_t>(*attribute);
    std::fill_n(memory, attribute->len, std::uint8_t{0});
    attribute->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
    return {memory, attribute->len};
}

void Call::answer_handle(std::uint16_t id, std::uint32_t handle) {
    required(id).data = handle;
}

void Call::answer_file(std::uint16_t id, int fd) {
    required(id).data_s64 = fd;
}

void Call::check_all_read() const {
    for (std::size_t i = 0; i < header_.num_attrs; ++i) {
        if (read_[i] || (header_.attrs[i].flags & UVERBS_ATTR_F_MANDATORY) == 0) continue;
        throw NotEmulated{fmt::format("attribute {:#x}", header_.attrs[i].attr_id)};
    }
}

}   // namespace ovsdr::connectx
