// The library's half of MKEYs: handles through the public functions, requests through the device's half.
#include "mkey_fixture.hpp"

namespace ovsdr::soft {
namespace {

TEST_F(MkeyVerbsTest, CreationRoundsEntriesUpAndSaysSo) {
    mlx5dv_mkey_init_attr attr{pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 5};
    mlx5dv_mkey* const mkey = mlx5dv_create_mkey(&attr);
    ASSERT_NE(mkey, nullptr);
    EXPECT_EQ(attr.max_entries, 8);
    EXPECT_EQ(mkey->lkey, mkey->rkey);
    EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
    const std::uint32_t key = mkey->lkey;
    EXPECT_TRUE(state.memory().mkey(key));
    EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0);
    EXPECT_FALSE(state.memory().mkey(key));
}

TEST_F(MkeyVerbsTest, CreationTakesEachFlagThatItKnows) {
    for (const unsigned flag :
         {MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
          MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG, MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE}) {
        const Mkey::Spec& spec = make(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | flag).device.spec();
        EXPECT_EQ(spec.has_signature, flag == MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE);
        EXPECT_EQ(spec.remote_invalidate, flag == MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE);
        EXPECT_EQ(spec.max_entries, 4U);
    }
}

TEST_F(MkeyVerbsTest, CreationFailsWhenThereIsNoKeyLeft) {
    MemoryRegion region{0, 0, nullptr, 0, nullptr};
    while (state.memory().add(region) == 0) continue;
    mlx5dv_mkey_init_attr attr{pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 4};
    errno = 0;
    EXPECT_EQ(mlx5dv_create_mkey(&attr), nullptr);
    EXPECT_EQ(errno, ENOMEM);
}

TEST_F(MkeyVerbsTest, CreationRefusesWhatTheDeviceLacks) {
    for (const std::uint32_t flags :
         {0u, unsigned{MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO}, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | 1u << 5}) {
        mlx5dv_mkey_init_attr attr{pd, flags, 4};
        errno = 0;
        EXPECT_EQ(mlx5dv_create_mkey(&attr), nullptr);
        EXPECT_EQ(errno, EOPNOTSUPP) << flags;
    }
    mlx5dv_mkey_init_attr empty{pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 0};
    EXPECT_EQ(mlx5dv_create_mkey(&empty), nullptr);
    EXPECT_EQ(errno, EINVAL);
    mlx5dv_mkey_init_attr most{pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 0xFFFC};
    EXPECT_EQ(mlx5dv_destroy_mkey(mlx5dv_create_mkey(&most)), 0);
    mlx5dv_mkey_init_attr more{pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 0xFFFD};
    errno = 0;
    EXPECT_EQ(mlx5dv_create_mkey(&more), nullptr) << "rounded up it could not be said";
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(MkeyVerbsTest, CapabilitiesNameWhatThereIs) {
    mlx5dv_context caps{};
    caps.comp_mask = MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
    ASSERT_EQ(mlx5dv_query_device(context, &caps), 0);
    EXPECT_EQ(caps.comp_mask, std::uint64_t{MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD});
    EXPECT_EQ(caps.sig_caps.block_size, 0x1Fu);
    EXPECT_EQ(caps.sig_caps.block_prot, 3u);
    EXPECT_EQ(caps.sig_caps.t10dif_bg, 3u);
    EXPECT_EQ(caps.sig_caps.crc_type, 7u);
}

TEST_F(MkeyVerbsTest, ConfiguresAList) {
    MkeyHandle& mkey = make();
    ASSERT_EQ(begin(mkey, 2), 0);
    EXPECT_FALSE(request.complete());
    ASSERT_EQ(request.set_access_flags(IBV_ACCESS_LOCAL_WRITE), 0);
    ASSERT_EQ(set_list({sge(0, 8), sge(64, 8)}), 0);
    ASSERT_EQ(execute(), 0);
    auto expected = part_of_bytes(0, 8);
    const auto second = part_of_bytes(64, 8);
    expected.insert(expected.end(), second.begin(), second.end());
    EXPECT_EQ(gathered(mkey, 16), expected);
    EXPECT_TRUE(gathered(mkey, 17).empty());
}

TEST_F(MkeyVerbsTest, ConfiguresAnInterleavedLayout) {
    MkeyHandle& mkey = make();
    ASSERT_EQ(begin(mkey, 1), 0);
    ASSERT_EQ(set_parts(2, {part(0, 3, 2), part(100, 1, 0)}), 0);
    ASSERT_EQ(execute(), 0);
    const std::vector<std::byte> expected{bytes[0], bytes[1], bytes[2], bytes[100],
                                          bytes[5], bytes[6], bytes[7], bytes[101]};
    EXPECT_EQ(gathered(mkey, 8), expected);
}

TEST_F(MkeyVerbsTest, BeginRefusesAsLibmlx5Does) {
    MkeyHandle& mkey = make();
    EXPECT_EQ(request.begin(mkey, 0, {0, 0}, IBV_SEND_SIGNALED, large_inline), EOPNOTSUPP) << "not inline";
    EXPECT_EQ(request.begin(mkey, 0, {2, 0}, IBV_SEND_INLINE, large_inline), EOPNOTSUPP) << "conf_flags";
    EXPECT_EQ(request.begin(mkey, 0, {0, 1}, IBV_SEND_INLINE, large_inline), EOPNOTSUPP) << "comp_mask";
}

TEST_F(MkeyVerbsTest, SettersRefuseASecondCallAndUnknownFlags) {
    MkeyHandle& mkey = make();
    ASSERT_EQ(begin(mkey, 4), 0);
    EXPECT_EQ(request.set_access_flags(IBV_ACCESS_MW_BIND), EINVAL);
    ASSERT_EQ(request.set_access_flags(0), 0);
    EXPECT_EQ(request.set_access_flags(0), EINVAL);
    ASSERT_EQ(set_list({sge(0, 8)}), 0);
    EXPECT_EQ(set_list({sge(0, 8)}), EINVAL);
    EXPECT_EQ(set_parts(1, {part(0, 8, 0)}), EINVAL) << "one layout, of either kind";
    const mlx5dv_sig_block_attr attr{.mem = nullptr, .wire = &signature.of_crc};
    ASSERT_EQ(request.set_signature(attr), 0);
    EXPECT_EQ(request.set_signature(attr), EINVAL);
    EXPECT_FALSE(request.complete());
}

TEST_F(MkeyVerbsTest, EntriesAreLimitedByTheQueueAndTheMkey) {
    MkeyHandle& mkey = make(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 8);
    const std::vector<ibv_sge> list(9, sge(0, 8));
    const std::vector<mlx5dv_mr_interleaved> parts(9, part(0, 8, 0));
    ASSERT_EQ(begin(mkey, 1, 0, default_inline), 0);
    EXPECT_EQ(request.set_layout(std::span(list).first(5)), ENOMEM);
    EXPECT_EQ(request.set_layout(1, std::span(parts).first(4)), ENOMEM);
    EXPECT_EQ(request.set_layout(1, std::span(parts).first(3)), 0);
    ASSERT_EQ(begin(mkey, 1, 0, default_inline), 0);
    EXPECT_EQ(request.set_layout(std::span(list).first(4)), 0);
    ASSERT_EQ(begin(mkey, 1), 0);
    EXPECT_EQ(request.set_layout(std::span(list)), ENOMEM) << "max_entries";
    EXPECT_EQ(request.set_layout(std::span(list).first(8)), 0);
    ASSERT_EQ(execute(), 0);
    EXPECT_EQ(gathered(mkey, 64).size(), 64u);
    ASSERT_EQ(begin(mkey, 1), 0);
    ASSERT_EQ(request.set_layout(1, std::span(parts).first(8)), 0);
    EXPECT_EQ(execute(), EACCES) << "one entry is the strided header's";
}

TEST_F(MkeyVerbsTest, EntriesAreLimitedByTheSizeOfAQueueEntry) {
    // Of a queue for MKEYs: 1024 bytes but control, UMR and MKEY segments, and a head.
    constexpr std::uint32_t widest_inline = 828;
    constexpr std::size_t most = 52;  // of 880 bytes, in pieces of 64 bytes
    MkeyHandle& mkey = make(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 64);
    const std::vector<ibv_sge> list(most + 1, sge(0, 8));
    const std::vector<mlx5dv_mr_interleaved> parts(most, part(0, 8, 0));
    ASSERT_EQ(begin(mkey, 1, 0, widest_inline), 0);
    EXPECT_EQ(request.set_layout(std::span(list)), ENOMEM);
    EXPECT_EQ(request.set_layout(1, std::span(parts)), ENOMEM) << "one entry is the strided header's";
    EXPECT_EQ(request.set_layout(std::span(list).first(most)), 0);
    ASSERT_EQ(execute(), 0);
    EXPECT_LE(request.payload().size(), std::size_t{MkeyRequest::max_size});
    EXPECT_EQ(gathered(mkey, most * 8).size(), most * 8);
    ASSERT_EQ(begin(mkey, 1, 0, widest_inline), 0);
    EXPECT_EQ(request.set_layout(1, std::span(parts).first(most - 1)), 0);
    ASSERT_EQ(execute(), 0);
    EXPECT_EQ(gathered(mkey, (most - 1) * 8).size(), (most - 1) * 8);
}

TEST_F(MkeyVerbsTest, ASignatureIsLimitedByTheSizeOfAQueueEntry) {
    constexpr std::uint32_t widest_inline = 828;
    constexpr std::size_t most = 48;  // 768 bytes, and 64 of signature
    MkeyHandle& mkey = make(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, 64);
    const std::vector<ibv_sge> list(most + 1, sge(0, 32));
    const mlx5dv_sig_block_attr attr{.mem = nullptr, .wire = &signature.of_crc};
    ASSERT_EQ(begin(mkey, 2, 0, widest_inline), 0);
    ASSERT_EQ(request.set_signature(attr), 0);
    ASSERT_EQ(request.set_layout(std::span(list)), 0);
    EXPECT_EQ(request.finish(), ENOMEM);
    ASSERT_EQ(begin(mkey, 2, MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR, widest_inline), 0);
    ASSERT_EQ(request.set_signature(attr), 0);
    ASSERT_EQ(request.set_layout(std::span(list).first(most)), 0);
    ASSERT_EQ(execute(), 0);
    EXPECT_EQ(gathered(mkey, most * 32 / 512 * 516).size(), most * 32 / 512 * 516);
}

TEST_F(MkeyVerbsTest, PiecesPastTheFormatsSixteenBitsAreRefused) {
    MkeyHandle& mkey = make();
    ASSERT_EQ(begin(mkey, 1), 0);
    EXPECT_EQ(set_parts(1, {part(0, 65536, 0)}), EINVAL);
    EXPECT_EQ(set_parts(1, {part(0, 65535, 1)}), EINVAL);
    EXPECT_EQ(set_parts(1, {part(0, 65535, 0), part(0, 0, 65535), part(0, 4096, 61439)}), 0);
}

TEST_F(MkeyVerbsTest, ANarrowQueueHasRoomForNothing) {
    for (const std::uint32_t room : {0u, 11u}) {
        ASSERT_EQ(begin(make(), 1, 0, room), 0);
        EXPECT_EQ(set_list({sge(0, 8)}), ENOMEM);
        EXPECT_EQ(set_parts(1, {part(0, 8, 0)}), ENOMEM);
        EXPECT_EQ(request.set_layout({}), 0);
    }
    ASSERT_EQ(begin(make(), 1, 0, 12), 0);
    EXPECT_EQ(set_parts(1, {part(0, 8, 0)}), ENOMEM) << "the header takes it";
    EXPECT_EQ(set_list({sge(0, 8)}), 0);
}

TEST_F(MkeyVerbsTest, TheTagIsTheApplications) {
    MkeyHandle& mkey = make();
    const std::uint32_t before = mkey.lkey;
    mkey.lkey = mkey.rkey = (before & ~0xFFu) | 0x77;
    ASSERT_EQ(begin(mkey, 1), 0);
    ASSERT_EQ(set_list({sge(0, 8)}), 0);
    ASSERT_EQ(execute(), 0);
    EXPECT_EQ(gathered(mkey, 8).size(), 8u);
    mkey.lkey = before;
    EXPECT_TRUE(gathered(mkey, 8).empty());
    mkey.lkey = mkey.rkey;
}

TEST_F(MkeyVerbsTest, FunctionsFailWhenTheyAreTold) {
    mlx5dv_mkey_init_attr attr{pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
                               4};
    mlx5dv_mkey_err told{};
    arm_fault("mlx5dv_create_mkey", EIO, 1);
    EXPECT_EQ(mlx5dv_create_mkey(&attr), nullptr);
    EXPECT_EQ(errno, EIO);
    mlx5dv_mkey* const mkey = mlx5dv_create_mkey(&attr);
    arm_fault("mlx5dv_mkey_check", EIO, 1);
    EXPECT_EQ(mlx5dv_mkey_check(mkey, &told), EIO);
    EXPECT_EQ(mlx5dv_mkey_check(mkey, &told), 0);
    arm_fault("mlx5dv_destroy_mkey", EIO, 1);
    EXPECT_EQ(mlx5dv_destroy_mkey(mkey), EIO);
    EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0);
}

TEST_F(MkeyVerbsTest, PeersInvalidateOnlyWhatWasMadeForThem) {
    for (const bool for_them : {false, true}) {
        const unsigned flag = for_them ? unsigned{MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE} : 0u;
        MkeyHandle& mkey = make(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | flag);
        ASSERT_EQ(begin(mkey, 1), 0);
        ASSERT_EQ(set_list({sge(0, 8)}), 0);
        ASSERT_EQ(execute(), 0);
        EXPECT_EQ(invalidate_remotely(state, Pd::of(pd).domain(), 0, mkey.rkey), for_them ? 0 : EACCES);
        EXPECT_EQ(gathered(mkey, 8).empty(), for_them);
    }
}

}  // namespace
}  // namespace ovsdr::soft
