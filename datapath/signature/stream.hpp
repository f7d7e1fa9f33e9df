// One message between an MKEY's memory domain and its wire domain: data flows through, fields are generated, checked,
// stripped, copied or converted on the way.
//
// Model. Raw data is what is left of either domain without its fields; block n of a domain covers raw bytes
// [n * block_size, (n + 1) * block_size). The domain that data comes from is checked, the one that it goes to gets
// fields: generated, or where copy_mask says so taken over from the block that came in. Offsets on the wire count from
// byte 0 of the MKEY, and so do blocks: a transfer that begins at block 3 has reference_tag + 3 (REF_REMAP), so that a
// read that is asked for again from its middle gives the same bytes.
//
// Blocks come in pieces of any size. A field in memory is checked, or written, as soon as its block's data is complete,
// also where the message ends there; one on the wire when its last byte has come. A block that the message does not
// cover to its end is not checked.
//
// Restart. gather() at another offset than the last one's end, and the first call, place the stream: the guards of a
// block that is entered half-way are made from memory. A wire field that is entered half-way is not checked.
//
// Threads: one at a time. Nothing here allocates.
// Source: mlx5dv_wr_set_mkey_sig_block(3).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "datapath/signature/field.hpp"

namespace ovsdr::soft::signature {

/// What a Stream needs of memory: copies of [offset, offset + size), false where a part of it cannot be reached.
template <typename Memory>
concept Readable = requires(Memory& memory, std::span<std::byte> to, std::span<const std::byte> from) {
    { memory.read(std::uint64_t{}, to) } -> std::same_as<bool>;
    { memory.write(std::uint64_t{}, from) } -> std::same_as<bool>;
};

/// Memory that takes a guard along: the same, and the guard takes the bytes.
template <typename Memory>
concept Guarding =
    requires(Memory& memory, std::span<std::byte> to, std::span<const std::byte> from, Guard& guard) {
        { memory.read(std::uint64_t{}, to, guard) } -> std::same_as<bool>;
        { memory.write(std::uint64_t{}, from, guard) } -> std::same_as<bool>;
    };

class Stream {
public:
    /// Wire bytes [offset, offset + to.size()), out of memory. false: memory could not be reached.
    template <Readable Memory>
    [[nodiscard]] bool gather(const Attributes& attributes, Memory& memory, std::uint64_t offset,
                              std::span<std::byte> to) noexcept;

    /// Wire bytes from `offset` on, into memory; each call goes on where the last one ended, or begins a message.
    template <Readable Memory>
    [[nodiscard]] bool scatter(const Attributes& attributes, Memory& memory, std::uint64_t offset,
                               std::span<const std::byte> from) noexcept;

    /// The first error found.
    [[nodiscard]] const Error& error() const noexcept { return error_; }
    void forget_error() noexcept { error_ = {}; }

private:
    /// A domain's place in its current block.
    struct Side {
        std::uint64_t block;
        std::uint32_t done;  ///< bytes of the block's data
        bool needs_guard = false;
        Guard guard;

        void next(const Domain& domain) noexcept {
            ++block;
            done = 0;
            if (needs_guard) guard = Guard(domain.guard, domain.seed);
        }
    };

    [[nodiscard]] static bool checks_guard(const Domain& domain, std::uint8_t mask) noexcept {
        return domain.present() && (mask & (domain.t10dif ? guard_bytes : domain.field_size() == 4 ? 0xF0 : 0xFF));
    }
    [[nodiscard]] static bool makes_guard(const Domain& domain, std::uint8_t copied) noexcept {
        return checks_guard(domain, static_cast<std::uint8_t>(~copied));
    }

    /// A block's data is complete on the wire, and its field comes next.
    [[nodiscard]] bool at_field(const Domain& wire) const noexcept {
        return wire.present() && wire_.done == wire.block_size;
    }

    void start(const Attributes& attributes, std::uint64_t offset, bool receiving) noexcept;
    template <Readable Memory>
    [[nodiscard]] bool prime(const Domain& layout, Memory& memory, Side& side) noexcept;
    template <Readable Memory>
    [[nodiscard]] bool place(const Attributes& attributes, Memory& memory, std::uint64_t offset,
                             bool receiving) noexcept;

    /// How many of `size` bytes of data are left in the current block of both domains.
    [[nodiscard]] std::uint64_t within_blocks(const Attributes& attributes, std::uint64_t size) const noexcept;
    /// Data out of memory or into it, which `guard` takes too.
    template <Readable Memory>
    [[nodiscard]] static bool move(Memory& memory, std::uint64_t offset, std::span<std::byte> to,
                                   Guard& guard) noexcept {
        if constexpr (Guarding<Memory>) return memory.read(offset, to, guard);
        if (!memory.read(offset, to)) return false;
        guard.update(to);
        return true;
    }
    template <Readable Memory>
    [[nodiscard]] static bool move(Memory& memory, std::uint64_t offset, std::span<const std::byte> from,
                                   Guard& guard) noexcept {
        if constexpr (Guarding<Memory>) return memory.write(offset, from, guard);
        if (!memory.write(offset, from)) return false;
        guard.update(from);
        return true;
    }
    template <Readable Memory>
    [[nodiscard]] static bool move(Memory& memory, std::uint64_t offset, std::span<std::byte> to) noexcept {
        return memory.read(offset, to);
    }
    template <Readable Memory>
    [[nodiscard]] static bool move(Memory& memory, std::uint64_t offset, std::span<const std::byte> from) noexcept {
        return memory.write(offset, from);
    }
    /// Data within the current block of both domains.
    template <Readable Memory, typename Bytes>
    [[nodiscard]] bool move_data(const Attributes& attributes, Memory& memory, Bytes data) noexcept;
    /// The common case, in a loop of its own: whole blocks with fields on the wire and none in memory. What is left of
    /// the bytes is something else.
    [[nodiscard]] bool begins_plain_block(const Attributes& attributes) const noexcept;
    template <Readable Memory>
    [[nodiscard]] bool gather_blocks(const Domain& wire, Memory& memory, std::span<std::byte>& to) noexcept;
    template <Readable Memory>
    [[nodiscard]] bool scatter_blocks(const Attributes& attributes, Memory& memory,
                                      std::span<const std::byte>& from) noexcept;
    template <Readable Memory>
    [[nodiscard]] bool finish_memory_gather(const Attributes& attributes, Memory& memory) noexcept;
    template <Readable Memory>
    [[nodiscard]] bool finish_memory_scatter(const Attributes& attributes, Memory& memory) noexcept;
    void make_wire_field(const Attributes& attributes) noexcept;
    void note(const Error& error) noexcept {
        if (error_.type == ErrorType::none) error_ = error;
    }

    bool placed_ = false;
    bool unknown_field_ = false;  // the wire field's first bytes came before the stream was placed
    // What place() says first.
    std::uint64_t next_{};  // wire offset
    std::uint64_t raw_{};
    Side memory_{}, wire_{};
    Field incoming_{};  // the field of the last block that came in
    std::array<std::byte, sizeof(Field)> field_bytes_{};  // of the wire
    std::uint32_t field_done_{};
    Error error_;
};

inline void Stream::start(const Attributes& attributes, std::uint64_t offset, bool receiving) noexcept {
    const auto& [memory, wire, check_mask, copy_mask] = attributes;
    memory_ = {};
    wire_ = {};
    memory_.needs_guard = receiving ? makes_guard(memory, copy_mask) : checks_guard(memory, check_mask);
    wire_.needs_guard = receiving ? checks_guard(wire, check_mask) : makes_guard(wire, copy_mask);
    if (memory_.needs_guard) memory_.guard = Guard(memory.guard, memory.seed);
    if (wire_.needs_guard) wire_.guard = Guard(wire.guard, wire.seed);
    next_ = offset;
    raw_ = wire.raw(offset);
    if (wire.present()) {
        const std::uint32_t frame = wire.block_size + wire.field_size();
        const auto in_frame = static_cast<std::uint32_t>(offset % frame);
        wire_.block = offset / frame;
        wire_.done = std::min(in_frame, wire.block_size);
        field_done_ = in_frame - wire_.done;
        unknown_field_ = field_done_ != 0;
    }
    if (!memory.present()) return;
    memory_.block = raw_ / memory.block_size;
    memory_.done = static_cast<std::uint32_t>(raw_ % memory.block_size);
    if (receiving && copy_mask && at_field(wire)) {
        // The block is complete but for its field, which is yet to come.
        memory_.block = wire_.block;
        memory_.done = wire_.done;
    }
}

template <Readable Memory>
bool Stream::prime(const Domain& layout, Memory& memory, Side& side) noexcept {
    if (!side.needs_guard) return true;
    std::array<std::byte, 512> buffer;
    for (std::uint64_t raw = raw_ - side.done; raw != raw_;) {
        std::uint64_t size = std::min<std::uint64_t>(raw_ - raw, buffer.size());
        if (layout.present()) size = std::min(size, layout.block_size - raw % layout.block_size);
        const std::span part = std::span(buffer).first(size);
        if (!memory.read(layout.framed(raw), part)) return false;
        side.guard.update(part);
        raw += size;
    }
    return true;
}

template <Readable Memory>
bool Stream::place(const Attributes& attributes, Memory& memory, std::uint64_t offset, bool receiving) noexcept {
    start(attributes, offset, receiving);
    if (!prime(attributes.memory, memory, memory_) || !prime(attributes.memory, memory, wire_)) return false;
    if (receiving || !at_field(attributes.wire)) return true;
    if (attributes.copy_mask) {
        const Domain& domain = attributes.memory;
        std::array<std::byte, sizeof(Field)> bytes;
        const std::span field(bytes.data(), domain.field_size());
        if (!memory.read(domain.framed(raw_) - field.size(), field)) return false;
        incoming_ = domain.load(field);
    }
    make_wire_field(attributes);
    return true;
}

inline std::uint64_t Stream::within_blocks(const Attributes& attributes, std::uint64_t size) const noexcept {
    const auto& [memory, wire, check_mask, copy_mask] = attributes;
    if (memory.present()) size = std::min<std::uint64_t>(size, memory.block_size - memory_.done);
    if (wire.present()) size = std::min<std::uint64_t>(size, wire.block_size - wire_.done);
    return size;
}

template <Readable Memory, typename Bytes>
bool Stream::move_data(const Attributes& attributes, Memory& memory, Bytes data) noexcept {
    const std::uint64_t offset = attributes.memory.framed(raw_);
    if (wire_.needs_guard) {
        if (!move(memory, offset, data, wire_.guard)) return false;
        if (memory_.needs_guard) memory_.guard.update(data);
    } else if (memory_.needs_guard) {
        if (!move(memory, offset, data, memory_.guard)) return false;
    } else if (!move(memory, offset, data)) {
        return false;
    }
    raw_ += data.size();
    if (attributes.memory.present()) memory_.done += static_cast<std::uint32_t>(data.size());
    if (attributes.wire.present()) wire_.done += static_cast<std::uint32_t>(data.size());
    return true;
}

inline bool Stream::begins_plain_block(const Attributes& attributes) const noexcept {
    return wire_.needs_guard && wire_.done == 0 && !attributes.memory.present();
}

template <Readable Memory>
bool Stream::gather_blocks(const Domain& wire, Memory& memory, std::span<std::byte>& to) noexcept {
    const std::size_t data = wire.block_size, field = wire.field_size();
    const Guard begun(wire.guard, wire.seed);
    for (; to.size() >= data + field; to = to.subspan(data + field), raw_ += data, ++wire_.block) {
        Guard guard = begun;
        if (!move(memory, raw_, to.first(data), guard)) return false;
        wire.store(wire.field(wire_.block, guard.value()), to.subspan(data, field));
    }
    return true;
}

template <Readable Memory>
bool Stream::scatter_blocks(const Attributes& attributes, Memory& memory, std::span<const std::byte>& from) noexcept {
    const Domain& wire = attributes.wire;
    const std::size_t data = wire.block_size, field = wire.field_size();
    const std::uint64_t checked = bits_of(attributes.check_mask);
    const Guard begun(wire.guard, wire.seed);
    for (; from.size() >= data + field; from = from.subspan(data + field), raw_ += data, ++wire_.block) {
        Guard guard = begun;
        if (!move(memory, raw_, from.first(data), guard)) return false;
        const Field made = wire.field(wire_.block, guard.value()), found = wire.load(from.subspan(data, field));
        if (((made ^ found) & checked) != 0) note(check(wire, wire_.block, found, made, attributes.check_mask));
    }
    return true;
}

inline void Stream::make_wire_field(const Attributes& attributes) noexcept {
    const Domain& wire = attributes.wire;
    const std::uint64_t copied = bits_of(attributes.copy_mask);
    const Field made = wire.field(wire_.block, wire_.guard.value());
    wire.store((incoming_ & copied) | (made & ~copied), field_bytes_);
}

template <Readable Memory>
bool Stream::finish_memory_gather(const Attributes& attributes, Memory& memory) noexcept {
    const Domain& domain = attributes.memory;
    std::array<std::byte, sizeof(Field)> bytes;
    const std::span field(bytes.data(), domain.field_size());
    if (!memory.read(domain.framed(raw_) - field.size(), field)) return false;
    incoming_ = domain.load(field);
    const Field made = domain.field(memory_.block, memory_.guard.value());
    note(check(domain, memory_.block, incoming_, made, attributes.check_mask));
    memory_.next(domain);
    return true;
}

template <Readable Memory>
bool Stream::finish_memory_scatter(const Attributes& attributes, Memory& memory) noexcept {
    const Domain& domain = attributes.memory;
    const std::uint64_t copied = bits_of(attributes.copy_mask);
    const Field made = domain.field(memory_.block, memory_.guard.value());
    std::array<std::byte, sizeof(Field)> bytes;
    const std::span field(bytes.data(), domain.field_size());
    domain.store((incoming_ & copied) | (made & ~copied), field);
    if (!memory.write(domain.framed(raw_) - field.size(), field)) return false;
    memory_.next(domain);
    return true;
}

template <Readable Memory>
bool Stream::gather(const Attributes& attributes, Memory& memory, std::uint64_t offset,
                    std::span<std::byte> to) noexcept {
    const auto& [memory_domain, wire, check_mask, copy_mask] = attributes;
    const bool goes_on = placed_ && offset == next_;
    placed_ = false;  // Until all of it was reached.
    if (!goes_on && !place(attributes, memory, offset, false)) return false;
    next_ += to.size();
    while (!to.empty()) {
        std::size_t size;
        if (begins_plain_block(attributes)) {
            if (!gather_blocks(wire, memory, to)) return false;
            if (to.empty()) break;
        }
        if (at_field(wire)) {
            size = std::min<std::size_t>(to.size(), wire.field_size() - field_done_);
            std::memcpy(to.data(), field_bytes_.data() + field_done_, size);
            field_done_ += static_cast<std::uint32_t>(size);
            if (field_done_ == wire.field_size()) {
                wire_.next(wire);
                field_done_ = 0;
            }
        } else {
            size = within_blocks(attributes, to.size());
            if (!move_data(attributes, memory, to.first(size))) return false;
            if (memory_domain.present() && memory_.done == memory_domain.block_size &&
                !finish_memory_gather(attributes, memory)) {
                return false;
            }
            if (at_field(wire)) make_wire_field(attributes);
        }
        to = to.subspan(size);
    }
    return placed_ = true;
}

template <Readable Memory>
bool Stream::scatter(const Attributes& attributes, Memory& memory, std::uint64_t offset,
                     std::span<const std::byte> from) noexcept {
    const auto& [memory_domain, wire, check_mask, copy_mask] = attributes;
    const bool goes_on = placed_ && offset == next_;
    placed_ = false;  // Until all of it was reached.
    if (!goes_on && !place(attributes, memory, offset, true)) return false;
    next_ += from.size();
    while (!from.empty()) {
        std::size_t size;
        if (begins_plain_block(attributes)) {
            if (!scatter_blocks(attributes, memory, from)) return false;
            if (from.empty()) break;
        }
        if (at_field(wire)) {
            size = std::min<std::size_t>(from.size(), wire.field_size() - field_done_);
            std::memcpy(field_bytes_.data() + field_done_, from.data(), size);
            field_done_ += static_cast<std::uint32_t>(size);
            if (field_done_ == wire.field_size()) {
                incoming_ = wire.load(field_bytes_);
                const Field made = wire.field(wire_.block, wire_.guard.value());
                if (!unknown_field_) note(check(wire, wire_.block, incoming_, made, check_mask));
                if (copy_mask && !finish_memory_scatter(attributes, memory)) return false;
                wire_.next(wire);
                field_done_ = 0;
                unknown_field_ = false;
            }
        } else {
            size = within_blocks(attributes, from.size());
            if (!move_data(attributes, memory, from.first(size))) return false;
            if (!copy_mask && memory_domain.present() && memory_.done == memory_domain.block_size &&
                !finish_memory_scatter(attributes, memory)) {
                return false;
            }
        }
        from = from.subspan(size);
    }
    return placed_ = true;
}

}  // namespace ovsdr::soft::signature
