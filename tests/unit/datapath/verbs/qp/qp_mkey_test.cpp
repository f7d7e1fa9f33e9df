// MKEYs by the public functions of a queue pair: what stands in its ring, word for word, and what is refused.
#include "datapath/verbs/memory/mkey.hpp"
#include "tests/unit/datapath/verbs/qp/qp_rdma_fixture.hpp"

namespace ovsdr::soft::test {
namespace {

// mkey_mask, its lower word; the upper one is 0.
constexpr std::uint32_t always = 1u << 29 | 1u << 13;  // free, tag
constexpr std::uint32_t length_bit = 1, bsf_bit = 1u << 12, access_bits = 0xfu << 18;

class MkeyQpTest : public RdmaQpTest {
protected:
    MkeyQpTest() { open_queue(64, 512); }
    ~MkeyQpTest() override {
        for (mlx5dv_mkey* mkey : mkeys) EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0);
    }

    void open_queue(std::uint32_t entries, std::uint32_t max_inline) {
        mlx5dv_qp_init_attr mlx5{};
        mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
        mlx5.send_ops_flags =
            MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED;
        ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
        attr.cap.max_send_wr = entries;
        attr.cap.max_inline_data = max_inline;
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
        qp = create(attr, &mlx5);
        ready(qp);
        ex = ibv_qp_to_qp_ex(qp);
        dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
        block = 0;
    }
    mlx5dv_mkey* make(bool is_signed = false, std::uint16_t entries = 16) {
        const unsigned signature = is_signed ? unsigned{MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE} : 0;
        mlx5dv_mkey_init_attr attr{open.pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | signature, entries};
        mkeys.push_back(mlx5dv_create_mkey(&attr));
        return mkeys.back();
    }
    void configure(mlx5dv_mkey* mkey, std::uint8_t setters, std::uint32_t flags = 0) {
        mlx5dv_mkey_conf_attr attr{.conf_flags = flags};
        mlx5dv_wr_mkey_configure(dv, mkey, setters, &attr);
    }
    void list(std::vector<ibv_sge> pieces_of) {
        mlx5dv_wr_set_mkey_layout_list(dv, static_cast<std::uint16_t>(pieces_of.size()), pieces_of.data());
    }
    void sign(const mlx5dv_sig_block_domain* memory_domain, const mlx5dv_sig_block_domain* wire,
              std::uint32_t flags = 0, std::uint8_t copy_mask = 0) {
        const mlx5dv_sig_block_attr attr{
            .mem = memory_domain, .wire = wire, .flags = flags, .check_mask = 0xA5, .copy_mask = copy_mask};
        mlx5dv_wr_set_mkey_sig_block(dv, &attr);
    }
    template <typename Say>
    int batch(Say say, unsigned flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED) {
        ibv_wr_start(ex);
        ex->wr_id = 42;
        ex->wr_flags = flags;
        say();
        return ibv_wr_complete(ex);
    }
    /// The entry of a batch, behind its control segment, which is looked at here.
    template <typename Say>
    Bytes entry(const mlx5dv_mkey* mkey, Say say) {
        EXPECT_EQ(batch(say), 0);
        const std::size_t size = sent(qp, block, 8)[7] * 16;
        EXPECT_EQ(sent(qp, block, 16),
                  words({static_cast<std::uint32_t>(block) << 8 | 0x25,
                         qp->qp_num << 8 | static_cast<std::uint32_t>(size / 16), block == 0 ? 8u : 0x28u, mkey->lkey}))
            << "each waits for the one before";
        const auto& ring = device(qp).spec().send;
        EXPECT_EQ(ring.completes_as[block], static_cast<std::uint32_t>(IBV_WC_DRIVER1));
        EXPECT_EQ(ring.wr_ids[block], 42u);
        const Bytes all = sent(qp, block, size);
        block += (size + 63) / 64;
        EXPECT_EQ(be32toh(ring.doorbell->load()), block);
        return {all.begin() + 16, all.end()};
    }
    /// UMR control and MKEY context.
    struct Head {
        std::uint32_t mask = 0, access = 0, octowords = 0, signature_octowords = 0, flags = 0;
        std::uint64_t length = 0;
    };
    static Bytes expected(const mlx5dv_mkey* mkey, const Head& head, std::initializer_list<std::uint32_t> tail = {}) {
        Bytes all = words({0x80000000, head.octowords << 16 | head.signature_octowords, 0, always | head.mask, 0, 0, 0,
                           0, 0, 0, 0, 0, head.access << 8, 0xffffff00 | (mkey->lkey & 0xff), 0, head.flags, 0, 0,
                           static_cast<std::uint32_t>(head.length >> 32), static_cast<std::uint32_t>(head.length), 0, 0,
                           0, 0, 0, 0, 0, 0});
        const Bytes more = words(tail);
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }

    ibv_qp* qp;
    ibv_qp_ex* ex;
    mlx5dv_qp_ex* dv;
    std::size_t block;
    std::vector<mlx5dv_mkey*> mkeys;
    mlx5dv_sig_crc crc{MLX5DV_SIG_CRC_TYPE_CRC32C, 0xffffffff}, crc64{MLX5DV_SIG_CRC_TYPE_CRC64_XP10, 0};
    mlx5dv_sig_t10dif dif{MLX5DV_SIG_T10DIF_CSUM, 0xffff, 0x1234, 0x89abcdef, MLX5DV_SIG_T10DIF_FLAG_REF_REMAP};
    mlx5dv_sig_block_domain of_crc{
        .sig_type = MLX5DV_SIG_TYPE_CRC, .sig = {.crc = &crc}, .block_size = MLX5DV_BLOCK_SIZE_4096};
    mlx5dv_sig_block_domain of_crc64{
        .sig_type = MLX5DV_SIG_TYPE_CRC, .sig = {.crc = &crc64}, .block_size = MLX5DV_BLOCK_SIZE_4160};
    mlx5dv_sig_block_domain of_dif{
        .sig_type = MLX5DV_SIG_TYPE_T10DIF, .sig = {.dif = &dif}, .block_size = MLX5DV_BLOCK_SIZE_512};
};

TEST_F(MkeyQpTest, EachAccessFlagIsABit) {
    mlx5dv_mkey* const mkey = make();
    constexpr unsigned known[] = {IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
                                  IBV_ACCESS_REMOTE_ATOMIC};
    for (unsigned chosen = 0; chosen < 16; ++chosen) {
        unsigned access = 0;
        for (unsigned i = 0; i < 4; ++i) access |= chosen >> i & 1 ? known[i] : 0;
        const auto say = [&] {
            configure(mkey, 1);
            mlx5dv_wr_set_mkey_access_flags(dv, access);
        };
        EXPECT_EQ(entry(mkey, say), expected(mkey, {.mask = access_bits, .access = chosen << 3})) << access;
    }
}

TEST_F(MkeyQpTest, ListsArePaddedToFourEntries) {
    mlx5dv_mkey* const mkey = make();
    const ibv_sge first{0x1122334455667788, 0x80000000, 7}, second{0x2000, 0x80000001, 8};
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 1), list({first, second}); }),
              expected(mkey, {.mask = length_bit, .octowords = 4, .length = 0x100000001},
                       {0x80000000, 7, 0x11223344, 0x55667788, 0x80000001, 8, 0, 0x2000, 0, 0, 0, 0, 0, 0, 0, 0}));
    const ibv_sge small{1, 2, 3};
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 1), list({small, small, small, small}); }),
              expected(mkey, {.mask = length_bit, .octowords = 4, .length = 8},
                       {2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1}));
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 1), list({small, small, small, small, small}); }),
              expected(mkey, {.mask = length_bit, .octowords = 8, .length = 10},
                       {2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                        0}));
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 0); }), expected(mkey, {})) << "nothing but free and tag";
}

TEST_F(MkeyQpTest, InterleavedLayoutsAreARepeatBlock) {
    mlx5dv_mkey* const mkey = make();
    mlx5dv_mr_interleaved parts[4]{
        {0x1000, 0x100, 4, 7}, {0x1122334455667788, 0xfff0, 0xf, 8}, {3, 2, 1, 9}, {4, 0, 0xffff, 10}};
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 1), mlx5dv_wr_set_mkey_layout_interleaved(dv, 0x30001, 2, parts); }),
              expected(mkey, {.mask = length_bit, .octowords = 4, .length = 0x302d100f0},
                       {0x100f0, 0x400, 0x30001, 2, 0x01040100, 7, 0, 0x1000, 0xfffffff0, 8, 0x11223344,
                        0x55667788, 0, 0, 0, 0}));
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 1), mlx5dv_wr_set_mkey_layout_interleaved(dv, 2, 4, parts); }),
              expected(mkey, {.mask = length_bit, .octowords = 8, .length = 2 * 0x100f2},
                       {0x100f2, 0x400, 2, 4, 0x01040100, 7, 0, 0x1000, 0xfffffff0, 8, 0x11223344,
                        0x55667788, 0x00030002, 9, 0, 3, 0xffff0000, 10, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST_F(MkeyQpTest, SignaturesAreAByteStreamFormat) {
    mlx5dv_mkey* const mkey = make(true);
    constexpr std::uint32_t flags = 1u << 30, reset = MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR;
    const std::uint32_t dif_words[] = {0xc0001234, 0x89abcdef, 0x02880000, 0x0040ffff};
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 1), sign(&of_crc, &of_dif); }),
              expected(mkey, {.mask = bsf_bit, .signature_octowords = 4, .flags = flags},
                       {0x80a50103, 0xffffffff, 0, 0x42000000, 0, 0, 0, 0, dif_words[0], dif_words[1],
                        dif_words[2], dif_words[3], 0, 0, 0, 0}));
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 0); }), expected(mkey, {})) << "what is set is not set again";
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 0); }), expected(mkey, {}));
    const ibv_sge piece{1, 2, 3};
    const auto anew = [&] { configure(mkey, 2), sign(&of_dif, nullptr), list({piece}); };
    EXPECT_EQ(entry(mkey, anew),
              expected(mkey,
                       {.mask = bsf_bit | length_bit, .octowords = 4, .signature_octowords = 4, .flags = flags,
                        .length = 2},
                       {2, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80a50001, 0xffffffff, 0, 0, 0, 0, 0, 0, 0, 0,
                        0, 0, dif_words[0], dif_words[1], dif_words[2], dif_words[3]}));
    const auto same = [&](std::uint32_t conf, std::uint32_t attr_flags) {
        configure(mkey, 1, conf);
        sign(&of_crc64, &of_crc64, attr_flags, 0x3c);
    };
    EXPECT_EQ(entry(mkey, [&] { same(reset, MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK); }),
              expected(mkey, {.mask = bsf_bit, .signature_octowords = 4, .flags = flags},
                       {0x90a53c04, 0xffffffff, 0x53000000, 0x53000000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(entry(mkey, [&] { same(0, 0); }),
              expected(mkey, {.mask = bsf_bit, .signature_octowords = 4, .flags = flags},
                       {0x90a5ff04, 0xffffffff, 0x53000000, 0x53000000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}))
        << "a mask said before is not said now";
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 0, reset); }), expected(mkey, {.mask = bsf_bit}));
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 0); }), expected(mkey, {.mask = bsf_bit})) << "stays reset";
}

TEST_F(MkeyQpTest, TheOlderFunctionsSayAccessAndLayoutAtOnce) {
    mlx5dv_mkey* const mkey = make();
    ibv_sge piece{1, 2, 3};
    EXPECT_EQ(entry(mkey, [&] { mlx5dv_wr_mr_list(dv, mkey, IBV_ACCESS_REMOTE_READ, 1, &piece); }),
              expected(mkey, {.mask = access_bits | length_bit, .access = 1 << 4, .octowords = 4, .length = 2},
                       {2, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
    mlx5dv_mr_interleaved part{1, 2, 3, 4};
    EXPECT_EQ(entry(mkey, [&] { mlx5dv_wr_mr_interleaved(dv, mkey, IBV_ACCESS_LOCAL_WRITE, 5, 1, &part); }),
              expected(mkey, {.mask = access_bits | length_bit, .access = 1 << 3, .octowords = 4, .length = 10},
                       {2, 0x400, 5, 1, 0x00050002, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST_F(MkeyQpTest, RefusalsComeWithTheBatchAndPostNothing) {
    mlx5dv_mkey* const mkey = make();
    mlx5dv_mkey* const signable = make(true);
    const auto access = [&](unsigned flags) { mlx5dv_wr_set_mkey_access_flags(dv, flags); };
    const ibv_sge piece{1, 2, 3};
    const auto say_nothing = [&] { configure(mkey, 0); };
    EXPECT_EQ(batch(say_nothing, IBV_SEND_SIGNALED), EOPNOTSUPP) << "not inline";
    EXPECT_EQ(batch([&] { configure(mkey, 0, 2); }), EOPNOTSUPP);
    EXPECT_EQ(batch([&] { configure(mkey, 2), access(0); }), EINVAL) << "a setter is missing";
    EXPECT_EQ(batch([&] { configure(mkey, 1), access(0), list({piece}); }), EINVAL) << "one too many";
    EXPECT_EQ(batch([&] { configure(mkey, 0), access(0); }), EINVAL) << "one where none is announced";
    EXPECT_EQ(batch([&] { access(0); }), EINVAL);
    EXPECT_EQ(batch([&] { configure(mkey, 1), access(IBV_ACCESS_MW_BIND); }), EINVAL);
    EXPECT_EQ(batch([&] { configure(mkey, 3), access(0), access(0); }), EINVAL) << "twice";
    const mlx5dv_crypto_attr crypto{};
    EXPECT_EQ(batch([&] { configure(mkey, 1), mlx5dv_wr_set_mkey_crypto(dv, &crypto), access(0); }), EINVAL)
        << "none can do it";
    EXPECT_EQ(batch([&] { configure(mkey, 1), list(std::vector<ibv_sge>(17, piece)); }), ENOMEM);
    EXPECT_EQ(batch([&] { configure(mkey, 1), sign(&of_crc, nullptr); }), EINVAL);
    EXPECT_EQ(batch([&] { configure(mkey, 2), list(std::vector<ibv_sge>(17, piece)), access(IBV_ACCESS_MW_BIND); }),
              ENOMEM)
        << "the first error counts";
    EXPECT_EQ(batch([&] { configure(signable, 1), sign(&of_crc, &of_dif, MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK); }),
              EINVAL);
    EXPECT_EQ(device(qp).send_rings, 0u);
    EXPECT_EQ(device(qp).spec().send.doorbell->load(), 0u);
}

TEST_F(MkeyQpTest, SettersAreNotForTheEntriesOfOtherOperations) {
    mlx5dv_mkey* const mkey = make();
    const auto send_and_set = [&] {
        return batch([&] {
            ibv_wr_send(ex);
            mlx5dv_wr_set_mkey_access_flags(dv, 0);
        });
    };
    EXPECT_EQ(send_and_set(), EINVAL);
    EXPECT_EQ(batch([&] { configure(mkey, 1); }), EINVAL);
    EXPECT_EQ(send_and_set(), EINVAL) << "nor for one that was left open";
    EXPECT_EQ(device(qp).send_rings, 0u);
}

TEST_F(MkeyQpTest, ABatchThatHasFailedDoesNotTouchWhatIsKnownOfAKey) {
    mlx5dv_mkey* const mkey = make(true);
    EXPECT_EQ(batch([&] { configure(mkey, 1), sign(&of_crc, nullptr); }), 0);
    const auto fails_first = [&] {
        mlx5dv_wr_set_mkey_access_flags(dv, 0);
        configure(mkey, 0, MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR);
    };
    EXPECT_EQ(batch(fails_first), EINVAL);
    block = be32toh(device(qp).spec().send.doorbell->load());
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 0); }), expected(mkey, {})) << "its signature is set as before";
}

TEST_F(MkeyQpTest, AQueueForMkeysAloneTakesFourPiecesAndThreeInterleaved) {
    mlx5dv_qp_init_attr mlx5{};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;  // alone, as the manual has it
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    attr.cap = {8, 1, 1, 1, 0};
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    qp = create(attr, &mlx5);
    ASSERT_TRUE(qp);
    EXPECT_EQ(attr.cap.max_inline_data, 60U);
    ready(qp);
    ex = ibv_qp_to_qp_ex(qp);
    dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
    mlx5dv_mkey* const mkey = make();
    mlx5dv_mr_interleaved parts[4]{{1, 2, 0, 3}, {1, 2, 0, 3}, {1, 2, 0, 3}, {1, 2, 0, 3}};
    const auto pieces = [&](std::size_t count) {
        return batch([&] { configure(mkey, 1), list(std::vector<ibv_sge>(count, {1, 2, 3})); });
    };
    const auto interleaved = [&](std::uint16_t count) {
        return batch([&] { configure(mkey, 1), mlx5dv_wr_set_mkey_layout_interleaved(dv, 2, count, parts); });
    };
    EXPECT_EQ(pieces(5), ENOMEM);
    EXPECT_EQ(pieces(4), 0);
    EXPECT_EQ(interleaved(4), ENOMEM);
    EXPECT_EQ(interleaved(3), 0);
}

TEST_F(MkeyQpTest, AfterAnAbortedRequestASignatureIsSetAnew) {
    mlx5dv_mkey* const mkey = make(true);
    constexpr std::uint32_t reset = MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR;
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_INLINE;
    configure(mkey, 1);
    sign(&of_crc, nullptr);
    ibv_wr_abort(ex);
    EXPECT_EQ(device(qp).send_rings, 0u);
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 0, reset); }), expected(mkey, {.mask = bsf_bit}));
    EXPECT_EQ(entry(mkey, [&] { configure(mkey, 1), sign(&of_crc, nullptr); }).size(),
              expected(mkey, {}).size() + 64) << "all of it";
}

TEST_F(MkeyQpTest, AFullQueueAndANarrowOneSaySo) {
    open_queue(1, 0);
    mlx5dv_mkey* const mkey = make(true);
    const ibv_sge piece{1, 2, 3};
    EXPECT_EQ(batch([&] { configure(mkey, 2), list({piece}), sign(&of_crc, nullptr); }), ENOMEM)
        << "the entries are too small";
    EXPECT_EQ(device(qp).send_rings, 0u);
    for (std::uint32_t room = device(qp).spec().send.length; room != 0; --room) {
        if (const int error = batch([&] { configure(mkey, 0); })) {
            EXPECT_EQ(error, ENOMEM);
            EXPECT_EQ(batch([&] { configure(mkey, 1), list({piece}); }), ENOMEM);
            return;
        }
    }
    FAIL() << "never full";
}

}  // namespace
}  // namespace ovsdr::soft::test
