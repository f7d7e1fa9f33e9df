// Signatures by the library's half of MKEYs: which are refused, what comes out on the wire, what mlx5dv_mkey_check()
// tells.
#include "mkey_fixture.hpp"

namespace ovsdr::soft {
namespace {

TEST_F(MkeyVerbsTest, ASignatureCoversBytesThat32BitsCount) {
    const mlx5dv_sig_block_attr attr{.mem = nullptr, .wire = &signature.of_crc};
    const auto finished = [&](MkeyHandle& mkey, std::initializer_list<ibv_sge> list) {
        EXPECT_EQ(begin(mkey, 2), 0);
        EXPECT_EQ(set_list(list), 0);
        EXPECT_EQ(request.set_signature(attr), 0);
        return request.finish();
    };
    EXPECT_EQ(finished(make(), {sge(0, 0xFFFFFFFF)}), 0);
    EXPECT_EQ(finished(make(), {sge(0, 0xFFFFFFFF), sge(0, 1)}), EINVAL);
    MkeyHandle& mkey = make();
    ASSERT_EQ(begin(mkey, 1), 0);
    ASSERT_EQ(set_parts(0x10000, {part(0, 0xFFFF, 0), part(0, 1, 0)}), 0);
    ASSERT_EQ(request.finish(), 0);
    ASSERT_EQ(begin(mkey, 1), 0);
    ASSERT_EQ(request.set_signature(attr), 0);
    EXPECT_EQ(request.finish(), EINVAL) << "the layout of before counts";
    EXPECT_EQ(finished(mkey, {sge(0, 8)}), 0);
}

TEST_F(MkeyVerbsTest, DomainsAreTranslatedPartByPart) {
    using SignatureDomain = signature::Domain;
    const auto same = [](const SignatureDomain& a, const SignatureDomain& b) {
        return a.block_size == b.block_size && a.t10dif == b.t10dif && a.guard == b.guard && a.seed == b.seed &&
               a.application_tag == b.application_tag && a.reference_tag == b.reference_tag &&
               a.increment_reference_tag == b.increment_reference_tag && a.escape == b.escape;
    };
    constexpr unsigned remap = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP, escape = MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE,
                       both = MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE;
    for (unsigned flags = 0; flags < 8; ++flags) {
        signature.dif.flags = static_cast<std::uint16_t>(flags);
        SignatureDomain got;
        ASSERT_TRUE(translate(&signature.of_dif, got));
        EXPECT_TRUE(same(got, {.block_size = 512,
                               .t10dif = true,
                               .guard = signature::GuardType::t10_crc,
                               .seed = 0xFFFF,
                               .application_tag = 0xABCD,
                               .reference_tag = 0x01234567,
                               .increment_reference_tag = (flags & remap) != 0,
                               .escape = flags & both     ? signature::Escape::application_and_reference_tag
                                         : flags & escape ? signature::Escape::application_tag
                                                          : signature::Escape::never}))
            << flags;
        ASSERT_TRUE(translate(nullptr, got));
        EXPECT_TRUE(same(got, {}));
    }
}

TEST_F(MkeyVerbsTest, SignaturesNeedAMkeyMadeForThemAndRoom) {
    const mlx5dv_sig_block_attr attr{.mem = nullptr, .wire = &signature.of_crc};
    ASSERT_EQ(begin(make(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT), 1), 0);
    EXPECT_EQ(request.set_signature(attr), EINVAL);
    MkeyHandle& mkey = make();
    ASSERT_EQ(begin(mkey, 2, 0, 123), 0);
    ASSERT_EQ(set_list({sge(0, 512)}), 0);
    ASSERT_EQ(request.set_signature(attr), 0);
    EXPECT_EQ(request.finish(), ENOMEM) << "64 bytes of layout, 64 of signature";
    ASSERT_EQ(begin(mkey, 2, 0, 124), 0);
    ASSERT_EQ(request.set_signature(attr), 0) << "in either order";
    ASSERT_EQ(set_list({sge(0, 512)}), 0);
    EXPECT_EQ(execute(), 0);
    EXPECT_EQ(gathered(mkey, 516).size(), 516u);
}

TEST_F(MkeyVerbsTest, SignaturesRefuseWhatTheDeviceDoesNotHave) {
    const auto refused = [&](auto change) {
        Signature changed;
        mlx5dv_sig_block_attr attr{.mem = &changed.of_dif, .wire = &changed.of_crc, .check_mask = 0xFF};
        change(changed, attr);
        EXPECT_EQ(begin(make(), 1), 0);
        return request.set_signature(attr);
    };
    EXPECT_EQ(refused([](Signature&, auto&) {}), 0);
    EXPECT_EQ(refused([](Signature&, auto& attr) { attr.mem = attr.wire = nullptr; }), EINVAL);
    EXPECT_EQ(refused([](Signature&, auto& attr) { attr.flags = 2; }), EINVAL);
    EXPECT_EQ(refused([](Signature&, auto& attr) { attr.comp_mask = 1; }), EINVAL);
    EXPECT_EQ(refused([](Signature& s, auto&) { s.of_dif.comp_mask = 1; }), EINVAL);
    EXPECT_EQ(refused([](Signature& s, auto&) { s.of_crc.block_size = static_cast<mlx5dv_block_size>(5); }), EINVAL);
    EXPECT_EQ(refused([](Signature& s, auto&) { s.of_crc.sig_type = static_cast<mlx5dv_sig_type>(2); }), EINVAL);
    EXPECT_EQ(refused([](Signature& s, auto&) { s.dif.bg = 1; }), EINVAL);
    EXPECT_EQ(refused([](Signature& s, auto&) { s.dif.flags = 8; }), EINVAL);
    EXPECT_EQ(refused([](Signature& s, auto&) { s.dif.bg_type = static_cast<mlx5dv_sig_t10dif_bg_type>(2); }), EINVAL);
    EXPECT_EQ(refused([](Signature& s, auto&) { s.crc.seed = 1; }), EINVAL);
    EXPECT_EQ(refused([](Signature& s, auto&) { s.crc.seed = ~std::uint64_t{0}; }), EINVAL) << "64 bits for CRC32";
    EXPECT_EQ(refused([](Signature& s, auto&) { s.crc.type = static_cast<mlx5dv_sig_crc_type>(3); }), EINVAL);
    const auto crc64 = [](std::uint64_t seed) {
        return [seed](Signature& s, auto&) { s.crc = {MLX5DV_SIG_CRC_TYPE_CRC64_XP10, seed}; };
    };
    EXPECT_EQ(refused(crc64(~std::uint64_t{0})), 0);
    EXPECT_EQ(refused(crc64(0xFFFFFFFF)), EINVAL);
}

TEST_F(MkeyVerbsTest, EachTypeSeedAndBlockSizeComesOutOnTheWire) {
    constexpr std::uint32_t sizes[] = {512, 520, 4048, 4096, 4160};
    MkeyHandle& mkey = make();
    const auto check = [&](const mlx5dv_sig_block_domain& domain, const signature::Domain& expected) {
        const std::uint32_t size = 3 * sizes[domain.block_size];
        ASSERT_EQ(begin(mkey, 2), 0);
        ASSERT_EQ(set_list({sge(0, size)}), 0);
        ASSERT_EQ(request.set_signature({.mem = nullptr, .wire = &domain}), 0);
        ASSERT_EQ(execute(), 0);
        const auto wire = reference::framed(expected, part_of_bytes(0, size));
        ASSERT_EQ(gathered(mkey, static_cast<std::uint32_t>(wire.size())), wire);
    };
    using signature::GuardType;
    for (unsigned block = 0; block < 5; ++block) {
        for (const bool seeded : {false, true}) {
            for (const bool checksum : {false, true}) {
                const mlx5dv_sig_t10dif dif{checksum ? MLX5DV_SIG_T10DIF_CSUM : MLX5DV_SIG_T10DIF_CRC,
                                            static_cast<std::uint16_t>(seeded ? 0xFFFF : 0), 0x1234, 77,
                                            static_cast<std::uint16_t>(seeded ? MLX5DV_SIG_T10DIF_FLAG_REF_REMAP : 0)};
                check({.sig_type = MLX5DV_SIG_TYPE_T10DIF,
                       .sig = {.dif = &dif},
                       .block_size = static_cast<mlx5dv_block_size>(block)},
                      {.block_size = sizes[block],
                       .t10dif = true,
                       .guard = checksum ? GuardType::ip_checksum : GuardType::t10_crc,
                       .seed = dif.bg,
                       .application_tag = 0x1234,
                       .reference_tag = 77,
                       .increment_reference_tag = seeded});
            }
            constexpr GuardType guards[] = {GuardType::crc32, GuardType::crc32c, GuardType::crc64_xp10};
            for (unsigned type = 0; type < 3; ++type) {
                const std::uint64_t ones = type == 2 ? ~std::uint64_t{0} : 0xFFFFFFFF;
                const mlx5dv_sig_crc crc{static_cast<mlx5dv_sig_crc_type>(type), seeded ? ones : 0};
                check({.sig_type = MLX5DV_SIG_TYPE_CRC,
                       .sig = {.crc = &crc},
                       .block_size = static_cast<mlx5dv_block_size>(block)},
                      {.block_size = sizes[block], .guard = guards[type], .seed = crc.seed});
            }
        }
    }
}

TEST_F(MkeyVerbsTest, CopyMaskNeedsTheSameStructure) {
    const auto finished = [&](const mlx5dv_sig_block_domain* mem, const mlx5dv_sig_block_domain* wire) {
        EXPECT_EQ(begin(make(), 1), 0);
        EXPECT_EQ(request.set_signature({.mem = mem,
                                         .wire = wire,
                                         .flags = MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK,
                                         .check_mask = 0,
                                         .copy_mask = 0x30}),
                  0);
        return request.finish();
    };
    EXPECT_EQ(finished(&signature.of_dif, &signature.of_dif), 0);
    EXPECT_EQ(finished(&signature.of_dif, &signature.of_crc), EINVAL);
    EXPECT_EQ(finished(nullptr, &signature.of_crc), EINVAL);
    EXPECT_EQ(finished(&signature.of_crc, nullptr), EINVAL);
    Signature larger;
    larger.of_dif.block_size = MLX5DV_BLOCK_SIZE_520;
    EXPECT_EQ(finished(&signature.of_dif, &larger.of_dif), EINVAL);
}

TEST_F(MkeyVerbsTest, FieldsGoThroughAsTheCopyMaskSays) {
    MkeyHandle& mkey = make();
    constexpr std::uint32_t said = MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK;
    const auto sent = [&](const mlx5dv_sig_block_domain& domain, std::uint32_t size, std::uint32_t flags,
                          std::uint8_t mask) {
        EXPECT_EQ(begin(mkey, 2), 0);
        EXPECT_EQ(set_list({sge(0, size)}), 0);
        EXPECT_EQ(request.set_signature({.mem = &domain, .wire = &domain, .flags = flags, .check_mask = 0,
                                         .copy_mask = mask}), 0);
        EXPECT_EQ(execute(), 0);
        return gathered(mkey, size);
    };
    const auto data = part_of_bytes(0, 512);
    const auto made = reference::framed({.block_size = 512,
                                         .t10dif = true,
                                         .seed = 0xFFFF,
                                         .application_tag = 0xABCD,
                                         .reference_tag = 0x01234567,
                                         .increment_reference_tag = true},
                                        data);
    EXPECT_EQ(sent(signature.of_dif, 520, 0, 0), part_of_bytes(0, 520))
        << "calculated: everything, whatever copy_mask is";
    EXPECT_EQ(sent(signature.of_dif, 520, said, 0), made);
    auto mixed = made;
    std::copy_n(bytes.begin() + 514, 2, mixed.begin() + 514);
    EXPECT_EQ(sent(signature.of_dif, 520, said, 0x30), mixed) << "the application tag";
    EXPECT_EQ(sent(signature.of_crc, 516, 0, 0), part_of_bytes(0, 516)) << "a CRC is copied whole";
    EXPECT_EQ(sent(signature.of_crc, 516, said, 0),
              reference::framed({.block_size = 512, .guard = signature::GuardType::crc32, .seed = 0xFFFFFFFF}, data));
}

TEST_F(MkeyVerbsTest, TheCalculatedCopyMaskComparesEachPart) {
    using SignatureDomain = signature::Domain;
    using signature::GuardType;
    const SignatureDomain dif{
        .block_size = 512, .t10dif = true, .seed = 0xFFFF, .application_tag = 1, .reference_tag = 2};
    EXPECT_EQ(default_copy_mask(dif, dif), 0xFF);
    SignatureDomain other = dif;
    other.seed = 0;
    EXPECT_EQ(default_copy_mask(dif, other), 0x3F);
    other = dif;
    other.guard = GuardType::ip_checksum;
    EXPECT_EQ(default_copy_mask(dif, other), 0x3F);
    other = dif;
    other.application_tag = 9;
    EXPECT_EQ(default_copy_mask(dif, other), 0xCF);
    other = dif;
    other.reference_tag = 9;
    EXPECT_EQ(default_copy_mask(dif, other), 0xF0);
    other = dif;
    other.block_size = 520;
    EXPECT_EQ(default_copy_mask(dif, other), 0);
    const SignatureDomain crc{.block_size = 512, .guard = GuardType::crc32};
    EXPECT_EQ(default_copy_mask(crc, crc), 0xF0);
    const SignatureDomain crc64{.block_size = 512, .guard = GuardType::crc64_xp10};
    EXPECT_EQ(default_copy_mask(crc64, crc64), 0xFF);
    EXPECT_EQ(default_copy_mask({}, crc), 0);
    EXPECT_EQ(default_copy_mask({.block_size = 512, .guard = GuardType::crc32c}, crc), 0);
}

TEST_F(MkeyVerbsTest, AttributesAreKeptUntilReset) {
    MkeyHandle& mkey = make();
    ASSERT_EQ(begin(mkey, 2), 0);
    ASSERT_EQ(set_list({sge(0, 512)}), 0);
    ASSERT_EQ(request.set_signature({.mem = nullptr, .wire = &signature.of_crc}), 0);
    ASSERT_EQ(execute(), 0);
    for (int again = 0; again < 2; ++again) {
        ASSERT_EQ(begin(mkey, 1), 0);
        ASSERT_EQ(set_list({sge(1024, 512)}), 0);
        ASSERT_EQ(execute(), 0);
        EXPECT_EQ(gathered(mkey, 516).size(), 516u) << "kept";
    }
    ASSERT_EQ(begin(mkey, 0, MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR), 0);
    ASSERT_EQ(execute(), 0);
    EXPECT_EQ(gathered(mkey, 512), part_of_bytes(1024, 512));
    ASSERT_EQ(begin(mkey, 0), 0);
    ASSERT_EQ(execute(), 0);
    EXPECT_EQ(gathered(mkey, 512), part_of_bytes(1024, 512)) << "stays reset";
    ASSERT_EQ(begin(mkey, 1, MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR), 0);
    ASSERT_EQ(request.set_signature({.mem = nullptr, .wire = &signature.of_dif}), 0) << "reset and set at once";
    ASSERT_EQ(execute(), 0);
    EXPECT_EQ(gathered(mkey, 520).size(), 520u);
}

TEST_F(MkeyVerbsTest, CheckTellsTheErrorOnce) {
    MkeyHandle& mkey = make();
    mlx5dv_mkey_err error{};
    ASSERT_EQ(mlx5dv_mkey_check(&mkey, &error), 0);
    EXPECT_EQ(error.err_type, MLX5DV_MKEY_NO_ERR);
    ASSERT_EQ(begin(mkey, 2), 0);
    ASSERT_EQ(set_list({sge(0, 516)}), 0);
    ASSERT_EQ(request.set_signature({.mem = &signature.of_crc, .wire = nullptr, .check_mask = MLX5DV_SIG_MASK_CRC32}),
              0);
    ASSERT_EQ(execute(), 0);
    EXPECT_EQ(gathered(mkey, 512), part_of_bytes(0, 512)) << "the transfer itself succeeds";
    ASSERT_EQ(mlx5dv_mkey_check(&mkey, &error), 0);
    EXPECT_EQ(error.err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
    EXPECT_EQ(error.err.sig.actual_value,
              reference::guard(signature::GuardType::crc32, ~std::uint64_t{0}, part_of_bytes(0, 512)));
    EXPECT_EQ(error.err.sig.expected_value, 0x03020100u) << "what stands behind the block";
    EXPECT_EQ(error.err.sig.offset, 0u);
    error.err.sig = {1, 2, 3};
    ASSERT_EQ(mlx5dv_mkey_check(&mkey, &error), 0);
    EXPECT_EQ(error.err_type, MLX5DV_MKEY_NO_ERR);
    EXPECT_TRUE(error.err.sig.actual_value == 1 && error.err.sig.expected_value == 2 && error.err.sig.offset == 3)
        << "untouched";
    EXPECT_EQ(mlx5dv_mkey_check(&make(MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT), &error), EINVAL);
    EXPECT_EQ(_mlx5dv_mkey_check(&mkey, &error, sizeof error - 1), EINVAL) << "from before there was such an error";
}

TEST_F(MkeyVerbsTest, CheckNamesThePartThatIsWrong) {
    MkeyHandle& mkey = make();
    const auto raw = part_of_bytes(4096, 1024);
    const auto field = reference::framed(
        {.block_size = 512, .t10dif = true, .seed = 0xFFFF, .application_tag = 0xABCD, .reference_tag = 0x01234567,
         .increment_reference_tag = true},
        raw);
    struct Case {
        std::size_t at;  ///< in the second block's field
        mlx5dv_mkey_err_type type;
        std::uint64_t right;
    };
    for (const Case& one : {Case{3, MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG, 0xABCD},
                            Case{7, MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG, 0x01234568}}) {
        std::copy(field.begin(), field.end(), bytes.begin());
        bytes[520 + 512 + one.at] ^= std::byte{1};
        ASSERT_EQ(begin(mkey, 2, MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR), 0);
        ASSERT_EQ(set_list({sge(0, 1040)}), 0);
        ASSERT_EQ(request.set_signature({.mem = &signature.of_dif, .wire = nullptr, .check_mask = 0xFF}), 0);
        ASSERT_EQ(execute(), 0);
        EXPECT_EQ(gathered(mkey, 1024), raw);
        mlx5dv_mkey_err error{};
        ASSERT_EQ(mlx5dv_mkey_check(&mkey, &error), 0);
        EXPECT_EQ(error.err_type, one.type);
        EXPECT_EQ(error.err.sig.actual_value, one.right);
        EXPECT_EQ(error.err.sig.expected_value, one.right ^ 1) << "what stands in the field";
        EXPECT_EQ(error.err.sig.offset, 520u);
    }
}

}  // namespace
}  // namespace ovsdr::soft
