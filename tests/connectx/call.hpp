// One ioctl of the uverbs ABI: its attributes, as the process gave them.
//
// An attribute is a number, a buffer (eight bytes and less stand in the attribute itself), a handle, a file, or an
// array of handles. Each that a method understands is asked for; what nobody asked for and the process calls mandatory
// is found by check_all_read(). Threads: one. Source: rdma/rdma_user_ioctl_cmds.h.
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace ovsdr::connectx {

class Call {
public:
    explicit Call(ib_uverbs_ioctl_hdr& header) : header_(header), read_(header.num_attrs) {}

    [[nodiscard]] std::uint16_t object() const { return header_.object_id; }
    [[nodiscard]] std::uint16_t method() const { return header_.method_id; }

    [[nodiscard]] bool has(std::uint16_t id) { return find(id) != nullptr; }
    /// A number of four or eight bytes, or a handle; `missing` if it is not there. Throws Refused.
    [[nodiscard]] std::uint64_t number(std::uint16_t id, std::optional<std::uint64_t> missing = std::nullopt);
    [[nodiscard]] std::uint32_t handle(std::uint16_t id) { return static_cast<std::uint32_t>(number(id)); }
    /// Empty if it is not there.
    [[nodiscard]] std::span<const std::uint8_t> input(std::uint16_t id);
    /// The beginning of a buffer as a structure, which newer libraries may have made longer. Throws Refused.
    template <class T>
    [[nodiscard]] T structure(std::uint16_t id) {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        const auto bytes = input(id);
        std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
        return value;
    }
    [[nodiscard]] std::vector<std::uint32_t> numbers(std::uint16_t id);
    [[nodiscard]] std::uint8_t element(std::uint16_t id);   ///< of an enumeration; 0 if it is not there

    /// The process's buffer for an answer, all 0. Empty if it does not want it.
    [[nodiscard]] std::span<std::uint8_t> output(std::uint16_t id);
    template <class T>
    void answer(std::uint16_t id, const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        const auto bytes = output(id);
        std::memcpy(bytes.data(), &value, std::min(bytes.size(), sizeof value));
    }
    void answer_handle(std::uint16_t id, std::uint32_t handle);
    void answer_file(std::uint16_t id, int fd);

    /// Attributes that make no difference here.
    void ignore(std::initializer_list<std::uint16_t> ids) {
        for (const std::uint16_t id : ids) (void)find(id);
    }
    /// Throws NotEmulated.
    void check_all_read() const;

private:
    [[nodiscard]] ib_uverbs_attr* find(std::uint16_t id);
    [[nodiscard]] ib_uverbs_attr& required(std::uint16_t id);

    ib_uverbs_ioctl_hdr& header_;
    std::vector<bool> read_;
};

}   // namespace ovsdr::connectx
