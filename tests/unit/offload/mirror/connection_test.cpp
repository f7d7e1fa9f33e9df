// Two ends of a mirror's connection on a soft NIC: what arrives is what was written, with each signature, with the
// fields kept and without; and what a NIC says of blocks that are not what they should be.
#include "offload/mirror/connection.hpp"

#include <arpa/inet.h>

#include "offload/mirror/wire/guard.hpp"
#include "tests/unit/offload/mirror/mirror_nic.hpp"

namespace ovsdr::mirror {
namespace {

using namespace test;

constexpr std::uint16_t app_tag = 0xFFFF;   // no escape
constexpr std::uint16_t slots = 4;

struct Ends {
    explicit Ends(Signature signature, bool keep)
        : geometry{.segment_size = 16u * signature.block_size, .slots = slots, .signature = signature},
          source(geometry.segment_size * slots),
          sink(geometry.segment_size * slots),
          fields(slots * geometry.blocks() * signature.field_size()),
          keeps(keep) {
        sender = std::move(Connection::create(open_nic(), {}, geometry).value());
        collector = std::move(Connection::create(open_nic(), {}, geometry).value());
        EXPECT_TRUE(sender->connect(collector->local()));
        EXPECT_TRUE(collector->connect(sender->local()));
        unsigned value = 3;
        for (std::byte& byte : source.bytes) byte = static_cast<std::byte>((value = value * 1103515245 + 12345) >> 16);
        EXPECT_TRUE(collector->post_receives(2 * slots));
    }
    SlotMemory sent(std::uint64_t sequence) const {
        return {source.address(geometry.slot_of(sequence) * geometry.segment_size), source.mr->lkey};
    }
    SlotMemory received(std::uint64_t sequence) const {
        SlotMemory memory{sink.address(geometry.slot_of(sequence) * geometry.segment_size), sink.mr->lkey};
        if (keeps) {
            memory.fields = fields.address(geometry.slot_of(sequence) * fields_size());
            memory.fields_key = fields.mr->lkey;
        }
        return memory;
    }
    std::size_t fields_size() const { return geometry.blocks() * geometry.signature.field_size(); }
    void open(std::uint64_t first, std::size_t length) {
        std::vector<SlotMemory> memories;
        for (std::size_t i = 0; i < length; ++i) memories.push_back(received(first + i));
        ASSERT_TRUE(collector->post_open(first, memories, app_tag));
        const auto done = completions(*collector, 1);
        ASSERT_EQ(done.size(), 1u);
        ASSERT_EQ(done[0].status, IBV_WC_SUCCESS) << ibv_wc_status_str(done[0].status);
        ASSERT_EQ(done[0].opcode, IBV_WC_DRIVER1);
        ASSERT_EQ(done[0].wr_id, first + length - 1);
    }
    /// Writes `sequence` into the slot of `into`.
    void write(std::uint64_t sequence, std::uint64_t into, std::uint32_t blocks) {
        const auto posted =
            sender->post_write(sequence, sent(sequence), blocks, app_tag, collector->key_of(geometry.slot_of(into)));
        ASSERT_TRUE(posted) << posted.error().what;
    }
    mlx5dv_mkey_err transfer(std::uint64_t sequence, std::uint64_t into, std::uint32_t blocks) {
        write(sequence, into, blocks);
        const auto done = completions(*sender, 1), arrived = completions(*collector, 1);
        EXPECT_EQ(done.size(), 1u);
        EXPECT_EQ(arrived.size(), 1u);
        if (done.empty() || arrived.empty()) return {};
        EXPECT_TRUE(collector->post_receives(1));
        EXPECT_EQ(done[0].status, IBV_WC_SUCCESS) << ibv_wc_status_str(done[0].status);
        EXPECT_EQ(done[0].wr_id, sequence);
        EXPECT_EQ(arrived[0].status, IBV_WC_SUCCESS);
        EXPECT_EQ(arrived[0].opcode, IBV_WC_RECV_RDMA_WITH_IMM);
        EXPECT_EQ(ntohl(arrived[0].imm_data), static_cast<std::uint32_t>(sequence));
        EXPECT_EQ(arrived[0].byte_len, geometry.signature.protected_size(blocks));
        const auto own = sender->check(geometry.slot_of(sequence));
        EXPECT_TRUE(own && own->err_type == MLX5DV_MKEY_NO_ERR);
        return collector->check(geometry.slot_of(into)).value();
    }

    const Geometry geometry;
    Memory source, sink, fields;
    const bool keeps;
    std::unique_ptr<Connection> sender, collector;
};

TEST(MirrorConnection, EachSignatureGoesOverItWithFieldsKeptAndWithout) {
    for (const SignatureName& known : signature_names) {
        for (const std::uint16_t size : block_sizes) {
            for (const bool keep : {false, true}) {
                SCOPED_TRACE(std::string(known.name) + " " + std::to_string(size) + (keep ? ", kept" : ", stripped"));
                Ends ends({known.type, size}, keep);
                ends.open(0, slots);
                for (std::uint64_t sequence = 0; sequence < slots; ++sequence) ends.write(sequence, sequence, 16);
                ASSERT_EQ(completions(*ends.sender, slots).size(), slots);
                ASSERT_EQ(completions(*ends.collector, slots).size(), slots);
                EXPECT_EQ(ends.sink.bytes, ends.source.bytes);
                for (std::uint16_t slot = 0; slot < slots; ++slot) {
                    EXPECT_EQ(ends.collector->check(slot)->err_type, MLX5DV_MKEY_NO_ERR);
                }
                if (!keep) continue;
                const Signature& signature = ends.geometry.signature;
                const auto source = std::span<const std::byte>(ends.source.bytes);
                const auto fields = std::span<const std::byte>(ends.fields.bytes);
                for (std::uint32_t block = 0; block < 16u * slots; ++block) {
                    const BlockCheck check =
                        check_field(signature, {app_tag, block}, source.subspan(block * size, size),
                                    fields.subspan(block * signature.field_size(), signature.field_size()));
                    ASSERT_EQ(check.fault, BlockFault::none) << "block " << block;
                }
            }
        }
    }
}

TEST(MirrorConnection, ASlotIsConfiguredAnewForEachSegment) {
    Ends ends({SignatureType::t10dif_crc, 512}, true);
    ends.open(0, slots);
    for (std::uint64_t sequence = 0; sequence < 3 * slots; ++sequence) {
        if (sequence >= slots) ends.open(sequence, 1);
        EXPECT_EQ(ends.transfer(sequence, sequence, 5).err_type, MLX5DV_MKEY_NO_ERR) << sequence;
    }
}

TEST(MirrorConnection, AReplayedSegmentHasWrongReferenceTags) {
    Ends ends({SignatureType::t10dif_csum, 4096}, false);
    ends.open(0, slots);
    EXPECT_EQ(ends.transfer(1, 1, 16).err_type, MLX5DV_MKEY_NO_ERR);
    ends.open(1 + slots, 1);
    const mlx5dv_mkey_err error = ends.transfer(1, 1 + slots, 16);
    ASSERT_EQ(error.err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG);
    EXPECT_EQ(error.err.sig.actual_value, 16u * (1 + slots)) << "what should be there";
    EXPECT_EQ(error.err.sig.expected_value, 16u) << "what came";
    EXPECT_EQ(error.err.sig.offset, 0u);
    EXPECT_EQ(ends.transfer(1 + slots, 1 + slots, 16).err_type, MLX5DV_MKEY_NO_ERR) << "sent again, as it should be";
}

TEST(MirrorConnection, AnotherMirrorsSegmentHasAWrongApplicationTag) {
    Ends ends({SignatureType::t10dif_crc, 520}, false);
    ends.open(0, slots);
    ASSERT_TRUE(ends.sender->post_write(0, ends.sent(0), 16, 0x1234, ends.collector->key_of(0)));
    ASSERT_EQ(completions(*ends.collector, 1).size(), 1u);
    const auto error = ends.collector->check(0);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG);
}

TEST(MirrorConnection, ThePeerWritesIntoTheRingOnlyAndOnlyWhereItIsOpen) {
    {
        Ends ends({SignatureType::crc32c, 512}, false);
        ends.open(0, 1);
        ends.write(1, 1, 1);
        const auto done = completions(*ends.sender, 1);
        ASSERT_EQ(done.size(), 1u);
        EXPECT_EQ(done[0].status, IBV_WC_REM_ACCESS_ERR) << "a slot that is not open";
    }
    Ends ends({SignatureType::crc32c, 512}, false);
    ends.open(0, slots);
    ends.write(0, 0, 17);   // one block more than a segment has; the sender's own memory has it
    const auto done = completions(*ends.sender, 1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].status, IBV_WC_REM_ACCESS_ERR);
}

TEST(MirrorConnection, AWrongAddressIsNamed) {
    const Geometry geometry{.segment_size = 8192, .slots = 2, .signature = {SignatureType::crc32, 512}};
    const auto none = Connection::create(open_nic(), {.gid_index = 200}, geometry);
    ASSERT_FALSE(none);
    EXPECT_NE(none.error().what.find("200"), std::string::npos) << none.error().what;
    EXPECT_FALSE(Connection::create(open_nic(), {.ib_port = 9}, geometry));
}

}  // namespace
}  // namespace ovsdr::mirror
