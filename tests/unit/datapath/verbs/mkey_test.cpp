// The library's half of MKEYs: handles through the public functions, requests through the device's half.
#include "datapath/verbs/mkey.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/roce/local_operations.hpp"
#include "datapath/rdma/transfer.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"
#include "tests/unit/datapath/signature/reference.hpp"

namespace ovsdr::soft {
namespace {

using Fault = Transfer::Fault;

constexpr std::uint32_t default_inline = 60;  // what a queue with MKEY operations grants at least
constexpr std::uint32_t large_inline = 512;

struct Signature {
    mlx5dv_sig_t10dif dif{MLX5DV_SIG_T10DIF_CRC, 0xFFFF, 0xABCD, 0x01234567, MLX5DV_SIG_T10DIF_FLAG_REF_REMAP};
    mlx5dv_sig_crc crc{MLX5DV_SIG_CRC_TYPE_CRC32, 0xFFFFFFFF};
    mlx5dv_sig_block_domain of_dif{
        .sig_type = MLX5DV_SIG_TYPE_T10DIF, .sig = {.dif = &dif}, .block_size = MLX5DV_BLOCK_SIZE_512};
    mlx5dv_sig_block_domain of_crc{
        .sig_type = MLX5DV_SIG_TYPE_CRC, .sig = {.crc = &crc}, .block_size = MLX5DV_BLOCK_SIZE_512};
};

class MkeyVerbsTest : public ::testing::Test {
protected:
    MkeyVerbsTest() {
        std::iota(reinterpret_cast<unsigned char*>(bytes.data()),
                  reinterpret_cast<unsigned char*>(bytes.data() + bytes.size()), 0);
        context = open_context(&ibdevice, state);
        pd = ibv_alloc_pd(context);
        mr = ibv_reg_mr(pd, bytes.data(), bytes.size(), IBV_ACCESS_LOCAL_WRITE);
    }
    ~MkeyVerbsTest() override {
        for (mlx5dv_mkey* mkey : mkeys) EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        ibv_close_device(context);
    }

    MkeyHandle& make(std::uint32_t flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT |
                                           MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
                     std::uint16_t entries = 4) {
        mlx5dv_mkey_init_attr attr{pd, flags, entries};
        mkeys.push_back(mlx5dv_create_mkey(&attr));
        return MkeyHandle::of(mkeys.back());
    }
    int begin(MkeyHandle& mkey, unsigned setters, std::uint32_t conf_flags = 0, std::uint32_t room = large_inline) {
        return request.begin(mkey, setters, {conf_flags, 0}, IBV_SEND_INLINE | IBV_SEND_SIGNALED, room);
    }
    /// Ends the request, and lets the device execute it.
    int execute() {
        EXPECT_TRUE(request.complete());
        if (const int error = request.finish()) return error;
        mlx5_wqe_ctrl_seg control{};
        control.imm = htobe32(request.key());
        std::vector<std::byte> entry(sizeof control);
        std::memcpy(entry.data(), &control, sizeof control);
        entry.insert(entry.end(), request.payload().begin(), request.payload().end());
        return configure_mkey(state, Pd::of(pd).domain(), 0, entry);
    }
    ibv_sge sge(std::size_t offset, std::uint32_t size) const {
        return {reinterpret_cast<std::uintptr_t>(bytes.data() + offset), size, mr->lkey};
    }
    mlx5dv_mr_interleaved part(std::size_t offset, std::uint32_t size, std::uint32_t skip) const {
        return {reinterpret_cast<std::uintptr_t>(bytes.data() + offset), size, skip, mr->lkey};
    }
    int set_list(std::initializer_list<ibv_sge> list) {
        return request.set_layout(std::span(list.begin(), list.size()));
    }
    int set_parts(std::uint32_t repeat, std::initializer_list<mlx5dv_mr_interleaved> parts) {
        return request.set_layout(repeat, std::span(parts.begin(), parts.size()));
    }

    std::vector<std::byte> gathered(const MkeyHandle& mkey, std::uint32_t size) {
        Transfer transfer;
        const ibv_sge piece{0, size, mkey.lkey};
        if (transfer.begin({state.memory(), Pd::of(pd).domain(), 0, false, 0}, {&piece, 1}) != Fault::none) return {};
        std::vector<std::byte> wire(transfer.size());
        EXPECT_EQ(transfer.gather(0, wire), Fault::none);
        return wire;
    }
    std::vector<std::byte> part_of_bytes(std::size_t offset, std::size_t size) const {
        return {bytes.begin() + static_cast<long>(offset), bytes.begin() + static_cast<long>(offset + size)};
    }

    std::vector<std::byte> bytes = std::vector<std::byte>(1 << 15);
    test::FakeDevice device;
    DeviceState state{device, test::packet_pool()};
    ibv_device ibdevice{};
    ibv_context* context;
    ibv_pd* pd;
    ibv_mr* mr;
    std::vector<mlx5dv_mkey*> mkeys;
    MkeyRequest request;
    Signature signature;
};

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
    for (const unsigned flag : {MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
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
    constexpr std::uint32_t widest_inline = 1004;  // of a queue for MKEYs alone: 1024 bytes but a control segment and a head
    constexpr std::size_t most = 52;               // of 880 bytes, in pieces of 64 bytes
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
    constexpr std::uint32_t widest_inline = 1004;
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
    EXPECT_TRUE(error.err.sig.actual_value == 1 && error.err.sig.expected_value == 2 && error.err.sig.offset == 3) << "untouched";
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

TEST_F(MkeyVerbsTest, FunctionsFailWhenTheyAreTold) {
    mlx5dv_mkey_init_attr attr{pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, 4};
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
