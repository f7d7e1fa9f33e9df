// Modify-header actions: the device's 64-bit commands (SET, ADD, COPY) compiled into edits of headers and registers.
// Commands work in their order: each sees what those before it did.
//
// An edit of a header that the packet does not have does nothing, as in hardware; no edit reaches L4 of a fragment.
// Checksums of IPv4, TCP, UDP and ICMPv6 are fixed up incrementally; an absent UDP checksum stays absent.
//
// Errors are libmlx5's: EINVAL (unknown field, too long, ADD elsewhere than TTL, hop limit, sequence and
// acknowledgement number, reg_a outside NIC_TX, reg_b outside NIC_RX, TCP with UDP), ENOTSUP (IPv4 with IPv6),
// EOPNOTSUPP (unknown command).
// Source: set_action_in, add_action_in, copy_action_in; dr_action.c, dr_ste_v1.c of rdma-core.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "datapath/steering/key.hpp"
#include "datapath/steering/match.hpp"

namespace ovsdr::soft {

struct EditField;

/// One command. `destination` bits [offset, offset + length) get the constant, the sum, or the source's bits.
struct Edit {
    enum class Kind : std::uint8_t { set, add, copy } kind;
    const EditField* destination;
    const EditField* source;        ///< copy
    std::uint8_t offset, source_offset, length;
    std::uint32_t data;
};

class EditList {
public:
    /// `commands` are big-endian, in the order of the application.
    [[nodiscard]] static int compile(DomainType domain, std::span<const std::uint64_t> commands,
                                     std::shared_ptr<const EditList>& list);

    /// Edits the headers. `registers` are as they were before the list. One frame, writable, `size` bytes.
    void apply(std::uint8_t* frame, std::uint32_t size, const Key& registers) const noexcept;
    /// The same, and returns what becomes of reg_b, which was `reg_b` (host order).
    [[nodiscard]] std::uint32_t apply(std::uint8_t* frame, std::uint32_t size, const Key& registers,
                                      std::uint32_t reg_b) const noexcept;

    /// Edits the registers of `key`; `frame` is as it was before the list.
    void apply_registers(Key& key, const std::uint8_t* frame, std::uint32_t size) const noexcept;

    [[nodiscard]] bool edits_headers() const noexcept { return edits_headers_; }
    /// reg_b travels with the packet: its receiver is told.
    [[nodiscard]] bool edits_reg_b() const noexcept { return edits_reg_b_; }
    /// Whether the same edits can be repeated on another packet of the same flow without its registers.
    [[nodiscard]] bool repeatable() const noexcept { return repeatable_; }

    /// Bits of the packet's Key that are no function of the Key alone, or only if the packet has the header.
    [[nodiscard]] const Key& taint() const noexcept { return taint_; }

    /// Bit i: word i of the packet's Key may be another afterwards. Registers do not count.
    [[nodiscard]] std::uint64_t edited_words() const noexcept { return edited_words_; }

    [[nodiscard]] const std::vector<Edit>& edits() const noexcept { return edits_; }

private:
    [[nodiscard]] int add(DomainType domain, std::uint64_t command);
    /// One list keeps to one L3 and one L4.
    [[nodiscard]] int check_types(const EditField& field) noexcept;
    void note_effect(const Edit& edit) noexcept;
    /// One command after the other, on both.
    void run(std::uint8_t* frame, std::uint32_t size, Key& registers) const noexcept;

    std::vector<Edit> edits_;
    Key taint_{};
    std::uint64_t edited_words_ = 0;
    std::uint8_t l3_ = 0, l4_ = 0;  // that the list is tied to so far
    bool edits_headers_ = false;
    bool edits_registers_ = false;
    bool edits_reg_b_ = false;
    bool repeatable_ = true;
};

}  // namespace ovsdr::soft
