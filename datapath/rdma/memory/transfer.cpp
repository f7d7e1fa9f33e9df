#include "datapath/rdma/memory/transfer.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "datapath/ports/guarded_copy.hpp"
#include "datapath/rdma/mkey/mkey.hpp"

namespace ovsdr::soft {

namespace {

/// false: the memory is not there any more.
[[nodiscard]] bool copy(std::span<std::byte>& to, const std::byte* memory, std::uint64_t size) noexcept {
    const bool copied = guarded_copy(to.data(), memory, size);
    to = to.subspan(size);
    return copied;
}
[[nodiscard]] bool copy(std::span<const std::byte>& from, std::byte* memory, std::uint64_t size) noexcept {
    const bool copied = guarded_copy(memory, from.data(), size);
    from = from.subspan(size);
    return copied;
}

[[nodiscard]] bool move(LayoutMemory& memory, std::uint64_t offset, std::span<std::byte> to) noexcept {
    return memory.read(offset, to);
}
[[nodiscard]] bool move(LayoutMemory& memory, std::uint64_t offset, std::span<const std::byte> from) noexcept {
    return memory.write(offset, from);
}

[[nodiscard]] bool move(signature::Stream& stream, const signature::Attributes& attributes, LayoutMemory& memory,
                        std::uint64_t offset, std::span<std::byte> to) noexcept {
    return stream.gather(attributes, memory, offset, to);
}
[[nodiscard]] bool move(signature::Stream& stream, const signature::Attributes& attributes, LayoutMemory& memory,
                        std::uint64_t offset, std::span<const std::byte> from) noexcept {
    return stream.scatter(attributes, memory, offset, from);
}

[[nodiscard]] bool grants(const Mkey::State& state, const Transfer::Spec& to) noexcept {
    return !state.free && (state.access & to.access) == to.access && (!to.remote || state.is_of(to.qpn));
}

/// Bytes on the wire of a local piece: see "Lengths" in the header.
[[nodiscard]] std::uint64_t local_wire_size(const Mkey::State& state, std::uint64_t offset,
                                            std::uint64_t size) noexcept {
    const signature::Domain& wire = state.attributes.wire;
    if (!state.is_signed || !wire.present() || offset != 0) return size;
    const std::uint64_t raw = state.attributes.memory.raw(state.length);
    return size == raw && raw % wire.block_size == 0 ? wire.framed(raw) : size;
}

/// Bytes of the memory domain up to the end of wire bytes [0, end), with the field of a block that ends there.
[[nodiscard]] std::uint64_t memory_end(const Mkey::State& state, std::uint64_t end) noexcept {
    if (!state.is_signed) return end;
    return state.attributes.memory.framed(state.attributes.wire.raw(end));
}

}  // namespace

bool Transfer::writes() const noexcept {
    return spec_->access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
}

bool Transfer::resolve(Piece& piece) const noexcept {
    const Spec& spec = *spec_;
    if (spec.memory.lookup(piece.key, piece.address, piece.size, spec.access, spec.domain)) return true;
    Mkey* const mkey = spec.memory.mkey(piece.key);
    if (!mkey || mkey->spec().domain != spec.domain) return false;
    const Mkey::Reading state(*mkey);
    if (!grants(*state, spec) || piece.address < state->start_address) return false;
    piece.is_mkey = true;
    piece.address -= state->start_address;
    if (!spec.remote) piece.size = local_wire_size(*state, piece.address, piece.size);
    if (piece.size > ~std::uint64_t{0} - piece.address) return false;
    return memory_end(*state, piece.address + piece.size) <= state->length;
}

Transfer::Fault Transfer::begin(const Spec& spec, std::span<const ibv_sge> pieces) noexcept {
    spec_.emplace(spec);
    length_ = 0;
    size_ = 0;
    signature_failed_ = false;
    stream_piece_ = max_pieces;
    const MemoryTable::Reading reading(spec.memory, spec.stripe);
    for (const ibv_sge& piece : pieces) {
        if (piece.length == 0) continue;
        if (length_ == max_pieces) return Fault::length;
        pieces_[length_] = {piece.addr, piece.length, piece.lkey, false};
        if (!resolve(pieces_[length_])) return Fault::protection;
        size_ += pieces_[length_++].size;
    }
    return Fault::none;
}

template <typename Bytes>
bool Transfer::through_mkey(unsigned index, std::uint64_t offset, Bytes bytes) noexcept {
    const Piece& piece = pieces_[index];
    Mkey* const mkey = spec_->memory.mkey(piece.key);
    if (!mkey || mkey->spec().domain != spec_->domain) return false;
    const Mkey::Reading state(*mkey);
    if (!grants(*state, *spec_)) return false;
    LayoutMemory memory(spec_->memory, spec_->domain, *state, writes());
    const std::uint64_t at = piece.address + offset;
    if (!state->is_signed) {
        return move(memory, at, bytes);
    }
    if (stream_piece_ != index) {
        stream_ = {};
        stream_piece_ = index;
        stream_generation_ = state->generation;
    }
    if (stream_generation_ != state->generation) return false;  // Reconfigured under way.
    const bool moved = move(stream_, state->attributes, memory, at, bytes);
    if (stream_.error().type != signature::ErrorType::none) {
        signature_failed_ = true;
        mkey->report(stream_.error());
        stream_.forget_error();
    }
    return moved;
}

template <typename Bytes>
Transfer::Fault Transfer::walk(std::uint64_t offset, Bytes bytes) noexcept {
    if (bytes.size() > size_ || offset > size_ - bytes.size()) return Fault::length;
    const MemoryTable::Reading reading(spec_->memory, spec_->stripe);
    for (unsigned i = 0; !bytes.empty(); ++i) {
        const Piece& piece = pieces_[i];
        if (offset >= piece.size) {
            offset -= piece.size;
            continue;
        }
        const std::uint64_t part = std::min<std::uint64_t>(bytes.size(), piece.size - offset);
        if (piece.is_mkey) {
            if (!through_mkey(i, offset, bytes.first(part))) return Fault::protection;
            bytes = bytes.subspan(part);
        } else {
            std::byte* const memory =
                spec_->memory.lookup(piece.key, piece.address + offset, part, spec_->access, spec_->domain);
            if (!memory || !copy(bytes, memory, part)) return Fault::protection;
        }
        offset = 0;
    }
    return Fault::none;
}

Transfer::Fault Transfer::gather(std::uint64_t offset, std::span<std::byte> to) noexcept {
    return walk(offset, to);
}

Transfer::Fault Transfer::scatter(std::uint64_t offset, std::span<const std::byte> from) noexcept {
    return walk(offset, from);
}

Transfer::Fault Transfer::in_place(void (*use)(std::byte*, void*), void* context) noexcept {
    if (length_ != 1) return Fault::protection;
    const Piece& piece = pieces_[0];
    const MemoryTable::Reading reading(spec_->memory, spec_->stripe);
    if (!piece.is_mkey) {
        std::byte* const memory =
            spec_->memory.lookup(piece.key, piece.address, piece.size, spec_->access, spec_->domain);
        if (memory) use(memory, context);
        return memory ? Fault::none : Fault::protection;
    }
    Mkey* const mkey = spec_->memory.mkey(piece.key);
    if (!mkey || mkey->spec().domain != spec_->domain) return Fault::protection;
    const Mkey::Reading state(*mkey);
    if (!grants(*state, *spec_) || state->is_signed) return Fault::protection;
    LayoutMemory memory(spec_->memory, spec_->domain, *state, writes());
    std::byte* whole = nullptr;
    const bool reached = memory.visit(piece.address, piece.size, [&](std::byte* part, std::uint64_t size) {
        if (size == piece.size) whole = part;
    });
    if (!reached || !whole) return Fault::protection;
    use(whole, context);
    return Fault::none;
}

}  // namespace ovsdr::soft
