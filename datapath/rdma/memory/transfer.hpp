// One end of an RDMA message: the bytes that cross the wire, and the memory behind lkeys or an rkey that they come from
// or go to.
//
// Model. A transfer is a list of pieces (key, address, length). A piece's key names a memory region, or an MKEY whose
// layout leads to further keys; where an MKEY has signature attributes, the bytes of the memory domain and those of the
// wire domain differ, and the transfer generates, checks, strips or converts between them. Whoever moves packets sees
// the wire's bytes only, and asks for them by their offset in the message.
//
// Order. gather() may be asked for any range again: a requester that goes back sends the same bytes. scatter() comes in
// ascending order without gaps, each byte once: a transport gives it what arrived in order only.
//
// Lengths. A piece's length is that of its bytes on the wire, and its address an offset there, also where the key's
// memory domain has more or fewer bytes: NVIDIA's example of these verbs (Mellanox/hw_offload_api_examples,
// dv_signature_offload_api_example) posts (block + signature) * blocks with the words "length is calculated according
// to wire domain", Linux' iser and rdma_rw add the protection bytes where the wire carries them
// (scsi_transfer_length()), and a request's RETH can mean nothing else. One local length means more: exactly all raw
// data of the MKEY, in whole blocks, stands for the blocks with their signatures. rdma-core's test_mlx5_mkey posts such
// pieces (512 bytes, T10-DIF of 512-byte blocks on the wire); by the letter they would cut the last signatures off,
// which serves nobody.
//
// Lifetime. begin() copies the pieces. Memory is looked up anew by each call, so that a region that is deregistered, or
// an MKEY that is invalidated, meanwhile fails the transfer and nothing else.
//
// Threads: one at a time; the worker that executes the queue.
// Source: ibv_post_send(3), mlx5dv_wr_mkey_configure(3), mlx5dv_wr_set_mkey_sig_block(3).
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "datapath/rdma/memory/memory.hpp"
#include "datapath/signature/stream.hpp"

namespace ovsdr::soft {

class Transfer {
public:
    static constexpr unsigned max_pieces = 32;

    enum class Fault : std::uint8_t {
        none,
        protection,  ///< a key that is unknown, invalid, of another domain, without the access, or out of its bounds
        length,      ///< the message is longer than the transfer, or than a signature's blocks allow
    };

    struct Spec {
        MemoryTable& memory;
        const void* domain;  ///< protection domain of the queue
        unsigned access;     ///< what each key must grant, enum ibv_access_flags; 0 to read locally
        bool remote;         ///< the one piece is (rkey, address, length) of a request from the wire
        unsigned stripe;     ///< see MemoryTable::Reading
        std::uint32_t qpn = 0;  ///< remote: the queue pair that was asked
    };

    /// The pieces' wire bytes are size() from now on. A fault that can be told at once is told here.
    [[nodiscard]] Fault begin(const Spec& spec, std::span<const ibv_sge> pieces) noexcept;

    /// Bytes on the wire.
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

    /// A block failed its check since begin(). The bytes went through all the same; the MKEY has the particulars.
    [[nodiscard]] bool signature_failed() const noexcept { return signature_failed_; }

    /// Copies wire bytes [offset, offset + to.size()) out of memory.
    [[nodiscard]] Fault gather(std::uint64_t offset, std::span<std::byte> to) noexcept;

    /// Copies wire bytes from `offset` on into memory.
    [[nodiscard]] Fault scatter(std::uint64_t offset, std::span<const std::byte> from) noexcept;

    /// Calls use(memory) with where all bytes of the transfer are, while they are sure to stay: for atomic operations.
    /// Fault::protection too where they are not in one piece, or are signed.
    template <typename Use>
    [[nodiscard]] Fault in_place(Use use) noexcept {
        return in_place([](std::byte* memory, void* context) { (*static_cast<Use*>(context))(memory); }, &use);
    }

private:
    struct Piece {
        std::uint64_t address;
        std::uint64_t size;  ///< bytes on the wire
        std::uint32_t key;
        bool is_mkey;
    };

    /// Checks a piece's key; sets what begin() finds out about it.
    [[nodiscard]] bool resolve(Piece& piece) const noexcept;
    template <typename Bytes>
    [[nodiscard]] Fault walk(std::uint64_t offset, Bytes bytes) noexcept;
    template <typename Bytes>
    [[nodiscard]] bool through_mkey(unsigned index, std::uint64_t offset, Bytes bytes) noexcept;
    [[nodiscard]] bool writes() const noexcept;
    [[nodiscard]] Fault in_place(void (*use)(std::byte*, void*), void* context) noexcept;

    std::optional<Spec> spec_;
    std::array<Piece, max_pieces> pieces_{};
    unsigned length_ = 0;
    std::uint64_t size_ = 0;
    bool signature_failed_ = false;
    // The one signature stream under way: of the piece that was copied last.
    signature::Stream stream_;
    unsigned stream_piece_ = max_pieces;  // max_pieces: none
    std::uint32_t stream_generation_{};
};

}  // namespace ovsdr::soft
