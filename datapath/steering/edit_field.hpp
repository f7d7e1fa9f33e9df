// The fields that modify-header commands name, as a table: where each sits in a frame and in a Key.
#pragma once

#include <cstdint>

#include "datapath/steering/key.hpp"

namespace ovsdr::soft {

/// The header that a field is in; decides when an edit applies and which checksums it touches.
enum class EditPlace : std::uint8_t { ethernet, type, vlan, ipv4, ipv6, tos, tcp, udp, reg };

/// A field of `length` bits whose lowest is `shift` bits above the lowest of a big-endian container of `bytes` bytes,
/// `offset` bytes into its header (into the Key for registers).
struct EditField {
    std::uint16_t id;
    const char* name;
    EditPlace place;
    std::uint16_t offset;
    std::uint8_t bytes, shift, length;
    std::uint8_t l3;            ///< 4 or 6 where libmlx5 ties the field to one, else 0
    std::uint8_t l4;            ///< 6 or 17 likewise
    bool address;               ///< counts in the L4 pseudo header
    bool addable;
    std::uint16_t key_offset;   ///< the container in a Key
    std::uint8_t key_bytes;     ///< 0: no such field in a Key
};

/// nullptr for an id that is no field. Source: MLX5_ACTION_IN_FIELD_OUT_*.
[[nodiscard]] const EditField* edit_field(std::uint16_t id) noexcept;

}  // namespace ovsdr::soft
