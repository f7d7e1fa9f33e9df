#include <cerrno>

#include "mkey_fixture.hpp"

namespace ovsdr::soft {
namespace {

using test::UmrEntry;
using Fault = Transfer::Fault;

class UmrTest : public test::MkeyFixture {};

TEST_F(UmrTest, AKeyIsOfNoUseBeforeItIsConfigured) {
    EXPECT_EQ(use(make_mkey().key(), 1, 0), Fault::protection);
}

TEST_F(UmrTest, GrantsWhatItsFlagsSayAndNothingElse) {
    constexpr unsigned flags[] = {IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
                                  IBV_ACCESS_REMOTE_ATOMIC};
    Mkey& mkey = make_mkey();
    for (unsigned granted = 0; granted < 16; ++granted) {
        unsigned access = 0;
        for (unsigned i = 0; i < 4; ++i) access |= granted >> i & 1 ? flags[i] : 0;
        ASSERT_EQ(configure(UmrEntry(mkey.key()).access(access).list({sge(0, 64)})), 0);
        EXPECT_EQ(use(mkey.key(), 64, 0), Fault::none) << "local reading is always granted";
        for (unsigned i = 0; i < 4; ++i) {
            EXPECT_EQ(use(mkey.key(), 64, flags[i], 0, flags[i] != IBV_ACCESS_LOCAL_WRITE),
                      granted >> i & 1 ? Fault::none : Fault::protection)
                << granted << " " << flags[i];
        }
    }
}

TEST_F(UmrTest, ChangesWhatItNamesAndLeavesTheRest) {
    Mkey& mkey = make_mkey();
    ASSERT_EQ(configure(UmrEntry(mkey.key()).access(IBV_ACCESS_REMOTE_READ).list({sge(0, 64)})), 0);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).access(IBV_ACCESS_REMOTE_WRITE)), 0);
    EXPECT_EQ(use(mkey.key(), 64, IBV_ACCESS_REMOTE_WRITE, 0, true), Fault::none);
    EXPECT_EQ(use(mkey.key(), 64, IBV_ACCESS_REMOTE_READ, 0, true), Fault::protection);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).list({sge(0, 32)})), 0);
    EXPECT_EQ(use(mkey.key(), 32, IBV_ACCESS_REMOTE_WRITE, 0, true), Fault::none);
    EXPECT_EQ(use(mkey.key(), 33, IBV_ACCESS_REMOTE_WRITE, 0, true), Fault::protection);
}

TEST_F(UmrTest, IsOfItsDomainOnly) {
    Mkey& mkey = make_mkey();
    const UmrEntry entry = UmrEntry(mkey.key()).access(all_access).list({sge(0, 64)});
    EXPECT_EQ(configure_mkey(state, &other_domain, 0, entry.bytes()), EACCES);
    ASSERT_EQ(configure(entry), 0);
    Transfer transfer;
    const ibv_sge piece{0, 64, mkey.key()};
    EXPECT_EQ(transfer.begin({table(), &other_domain, 0, false, 0}, {&piece, 1}), Fault::protection);
}

TEST_F(UmrTest, KeysBehindMustGrantAndBeOfTheDomain) {
    Mkey& mkey = make_mkey();
    const std::uint32_t read_only = register_memory(0, 64, 0);
    const std::uint32_t foreign = register_memory(0, 64, IBV_ACCESS_LOCAL_WRITE, &other_domain);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).access(all_access).list({{address(0), 64, read_only}})), 0);
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::none);
    EXPECT_EQ(use(mkey.key(), 64, IBV_ACCESS_REMOTE_WRITE, 0, true), Fault::protection);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).list({{address(0), 64, foreign}})), 0);
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::protection);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).list({{address(1), 64, read_only}})), 0);
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::protection) << "past the region's end";
    EXPECT_EQ(use(mkey.key(), 63, 0), Fault::none);
}

TEST_F(UmrTest, IsUselessAfterInvalidationUntilConfiguredAnew) {
    Mkey& mkey = make_mkey();
    const UmrEntry entry = UmrEntry(mkey.key()).access(all_access).list({sge(0, 64)});
    ASSERT_EQ(configure(entry), 0);
    ASSERT_EQ(use(mkey.key(), 64, 0), Fault::none);
    ASSERT_EQ(invalidate_locally(state, &domain, 0, mkey.key()), 0);
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::protection);
    ASSERT_EQ(configure(UmrEntry(mkey.key())), 0);
    EXPECT_EQ(use(mkey.key(), 1, 0), Fault::protection) << "its layout was cleared";
    ASSERT_EQ(configure(entry), 0);
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::none);
}

TEST_F(UmrTest, AnEntryMayInvalidateToo) {
    Mkey& mkey = make_mkey();
    ASSERT_EQ(configure(UmrEntry(mkey.key()).access(all_access).list({sge(0, 64)})), 0);
    UmrEntry invalidation(mkey.key());
    invalidation.context.free = MLX5_WQE_MKEY_CONTEXT_FREE;
    ASSERT_EQ(configure(invalidation), 0);
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::protection);
}

TEST_F(UmrTest, InvalidationWantsTheRightKey) {
    Mkey& mkey = make_mkey();
    ASSERT_EQ(configure(UmrEntry(mkey.key()).access(all_access).list({sge(0, 64)})), 0);
    EXPECT_EQ(invalidate_locally(state, &domain, 0, mkey.key() + 1), EACCES) << "another tag";
    EXPECT_EQ(invalidate_locally(state, &domain, 0, region), EACCES) << "a region";
    EXPECT_EQ(invalidate_locally(state, &other_domain, 0, mkey.key()), EACCES);
    EXPECT_EQ(invalidate_remotely(state, &domain, 0, mkey.key()), EACCES) << "not made for it";
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::none);
}

TEST_F(UmrTest, RemoteInvalidationIsForKeysMadeForIt) {
    Mkey& mkey = make_mkey(4, false, true);
    EXPECT_EQ(invalidate_remotely(state, &domain, 0, mkey.key()), EACCES) << "free already";
    ASSERT_EQ(configure(UmrEntry(mkey.key()).access(all_access).list({sge(0, 64)})), 0);
    EXPECT_EQ(invalidate_remotely(state, &other_domain, 0, mkey.key()), EACCES);
    EXPECT_EQ(invalidate_remotely(state, &domain, 0, region), EACCES);
    EXPECT_EQ(invalidate_remotely(state, &domain, 0, mkey.key()), 0);
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::protection);
}

TEST_F(UmrTest, AKeyThatIsBoundToAQueuePairIsThatOnesAlone) {
    constexpr std::uint32_t owner = 0x12, another = 0x13;
    Mkey& mkey = make_mkey(4, false, true);
    const auto used_by = [&](std::uint32_t qpn) {
        Transfer::Spec spec = remote(IBV_ACCESS_REMOTE_READ);
        spec.qpn = qpn;
        Transfer transfer;
        const ibv_sge piece{0, 64, mkey.key()};
        return transfer.begin(spec, {&piece, 1});
    };
    const auto bind = [&] {
        UmrEntry entry = UmrEntry(mkey.key()).access(all_access).list({sge(0, 64)});
        entry.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN;
        entry.context.qpn_mkey = htobe32(owner << 8 | (mkey.key() & 0xff));
        EXPECT_EQ(configure_mkey(state, &domain, another, entry.bytes()), EACCES) << "not its own";
        EXPECT_EQ(configure_mkey(state, &domain, owner, entry.bytes()), 0);
    };
    bind();
    EXPECT_EQ(used_by(owner), Fault::none);
    EXPECT_EQ(used_by(another), Fault::protection);
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::none) << "here";
    EXPECT_EQ(invalidate_locally(state, &domain, another, mkey.key()), EACCES);
    EXPECT_EQ(invalidate_remotely(state, &domain, another, mkey.key()), EACCES);
    EXPECT_EQ(used_by(owner), Fault::none);
    EXPECT_EQ(invalidate_locally(state, &domain, owner, mkey.key()), 0);
    bind();
    EXPECT_EQ(invalidate_remotely(state, &domain, owner, mkey.key()), 0);
    EXPECT_EQ(used_by(owner), Fault::protection);
    EXPECT_EQ(configure(UmrEntry(mkey.key()).access(all_access).list({sge(0, 64)})), 0);
    EXPECT_EQ(used_by(another), Fault::none) << "free of it again";
}

TEST_F(UmrTest, AnEntryMayChangeTheTag) {
    Mkey& mkey = make_mkey();
    const std::uint32_t before = mkey.key();
    UmrEntry entry = UmrEntry((before & ~0xFFu) | 0x5A).access(all_access).list({sge(0, 64)});
    ASSERT_EQ(configure(entry), 0);
    EXPECT_EQ(mkey.key(), entry.key);
    EXPECT_EQ(use(entry.key, 64, 0), Fault::none);
    EXPECT_EQ(use(before, 64, 0), Fault::protection);
    entry.mask &= ~std::uint64_t{MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY};
    entry.key = before;
    EXPECT_EQ(configure(entry), EACCES) << "a stale key without a new tag";
}

TEST_F(UmrTest, RefusesWhatDoesNotFitAndChangesNothing) {
    Mkey& mkey = make_mkey(4, false);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).access(all_access).list({sge(0, 64)})), 0);
    const ibv_sge piece = sge(0, 8);
    EXPECT_EQ(configure(UmrEntry(mkey.key()).list({piece, piece, piece, piece, piece})), EACCES) << "max_entries";
    const signature::Domain crc{.block_size = 512, .guard = signature::GuardType::crc32};
    EXPECT_EQ(configure(UmrEntry(mkey.key()).signature({{}, crc, 0xFF, 0})), EACCES)
        << "not made with BLOCK_SIGNATURE";
    UmrEntry wrong_sum = UmrEntry(mkey.key()).interleaved(2, {{address(0), 8, 2, region}});
    reinterpret_cast<mlx5_wqe_umr_repeat_block_seg*>(wrong_sum.layout.data())->byte_count = htobe32(9);
    EXPECT_EQ(configure(wrong_sum), EACCES);
    UmrEntry too_many = UmrEntry(mkey.key()).interleaved(2, {{address(0), 8, 2, region}});
    reinterpret_cast<mlx5_wqe_umr_repeat_block_seg*>(too_many.layout.data())->num_ent = htobe16(4);
    EXPECT_EQ(configure(too_many), EACCES);
    const auto followed = too_many.bytes();  // by zeros, which would be a fourth piece of nothing
    std::vector<std::byte> more = followed;
    more.resize(more.size() + 16);
    EXPECT_EQ(configure_mkey(state, &domain, 0, std::span(more).first(followed.size())), EACCES);
    UmrEntry pointer(mkey.key());
    pointer.flags = 0;
    EXPECT_EQ(configure(pointer), EINVAL) << "not inline";
    auto cut = UmrEntry(mkey.key()).list({sge(0, 32)}).bytes();
    cut.resize(cut.size() - 16);
    EXPECT_EQ(configure_mkey(state, &domain, 0, cut), EINVAL);
    UmrEntry checked = UmrEntry(mkey.key()).list({sge(0, 32)});
    checked.flags |= MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE;
    EXPECT_EQ(configure(checked), EACCES) << "in use";
    checked.key = make_mkey().key();
    EXPECT_EQ(configure(checked), 0) << "free";
    EXPECT_EQ(configure(UmrEntry(region).list({sge(0, 32)})), EACCES) << "a region";
    EXPECT_EQ(configure(UmrEntry(0xFFFFFF00).list({sge(0, 32)})), EACCES) << "nobody's key";
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::none) << "all as it was";
}

TEST_F(UmrTest, AddressesCountFromTheStartAddress) {
    Mkey& mkey = make_mkey();
    UmrEntry entry = UmrEntry(mkey.key()).access(all_access).list({sge(100, 64)});
    entry.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR;
    entry.context.start_addr = htobe64(0x123456789000);
    ASSERT_EQ(configure(entry), 0);
    EXPECT_EQ(use(mkey.key(), 64, 0, 0x123456789000), Fault::none);
    EXPECT_EQ(use(mkey.key(), 63, 0, 0x123456789001), Fault::none);
    EXPECT_EQ(use(mkey.key(), 64, 0, 0x123456789001), Fault::protection);
    EXPECT_EQ(use(mkey.key(), 1, 0, 0x123456788fff), Fault::protection);
    EXPECT_EQ(use(mkey.key(), 1, 0, 0), Fault::protection);
    Mkey& outer = make_mkey();
    ASSERT_EQ(configure(UmrEntry(outer.key()).list({{0x123456788fff, 65, mkey.key()}})), 0);
    EXPECT_EQ(use(outer.key(), 1, 0), Fault::protection);
    EXPECT_EQ(use(outer.key(), 64, 0, 1), Fault::none);
    Transfer transfer;
    const ibv_sge piece{0x123456789002, 8, mkey.key()};
    ASSERT_EQ(transfer.begin(local(), {&piece, 1}), Fault::none);
    std::vector<std::byte> got(8);
    ASSERT_EQ(transfer.gather(0, got), Fault::none);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin() + 102));
    entry.context.start_addr = 0;
    entry.mask &= ~std::uint64_t{MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR};
    ASSERT_EQ(configure(entry), 0);
    EXPECT_EQ(use(mkey.key(), 64, 0, 0x123456789000), Fault::none) << "not named: it stays";
}

TEST_F(UmrTest, AFreeKeyStaysSoUntilAnEntryNamesTheFreeBit) {
    Mkey& mkey = make_mkey();
    Mkey& outer = make_mkey();
    UmrEntry entry = UmrEntry(mkey.key()).access(all_access).list({sge(0, 64)});
    entry.mask &= ~std::uint64_t{MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE};
    ASSERT_EQ(configure(entry), 0);
    ASSERT_EQ(configure(UmrEntry(outer.key()).list({{0, 64, mkey.key()}})), 0);
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::protection);
    EXPECT_EQ(use(outer.key(), 64, 0), Fault::protection);
    ASSERT_EQ(configure(UmrEntry(mkey.key())), 0);
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::none);
    EXPECT_EQ(use(outer.key(), 64, 0), Fault::none);
    entry.context.free = MLX5_WQE_MKEY_CONTEXT_FREE;
    ASSERT_EQ(configure(entry), 0);
    EXPECT_EQ(use(mkey.key(), 64, 0), Fault::none) << "it is not made free either";
}

TEST_F(UmrTest, EachAccessBitIsNamedByItself) {
    constexpr unsigned flags[] = {IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
                                  IBV_ACCESS_REMOTE_ATOMIC};
    Mkey& mkey = make_mkey();
    for (unsigned i = 0; i < 4; ++i) {
        UmrEntry one(mkey.key());
        one.mask |= std::uint64_t{1} << (18 + i);
        ASSERT_EQ(configure(UmrEntry(mkey.key()).access(all_access)), 0);
        ASSERT_EQ(configure(one), 0);
        EXPECT_EQ(Mkey::Reading(mkey)->access, all_access & ~flags[i]);
        one.context.access_flags = 0x78;
        ASSERT_EQ(configure(UmrEntry(mkey.key()).access(0)), 0);
        ASSERT_EQ(configure(one), 0);
        EXPECT_EQ(Mkey::Reading(mkey)->access, flags[i]);
    }
}

TEST_F(UmrTest, AKeyIsEmptyBeforeItIsConfiguredAndAfterInvalidation) {
    const auto is_empty = [](Mkey& mkey) {
        const Mkey::Reading state(mkey);
        return state->free && !state->is_signed && state->access == 0 && state->start_address == 0 &&
               state->length == 0 && state->layout.size() == 0;
    };
    Mkey& mkey = make_mkey(4, true, true);
    EXPECT_TRUE(is_empty(mkey));
    UmrEntry entry = UmrEntry(mkey.key()).access(all_access).list({sge(0, 64)});
    entry.signature({{}, {.block_size = 512, .guard = signature::GuardType::crc32}, 0xFF, 0});
    entry.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR;
    entry.context.start_addr = htobe64(0x1000);
    UmrEntry invalidation(mkey.key());
    invalidation.context.free = MLX5_WQE_MKEY_CONTEXT_FREE;
    for (unsigned way = 0; way < 3; ++way) {
        ASSERT_EQ(configure(entry), 0);
        EXPECT_FALSE(is_empty(mkey));
        const std::uint32_t before = Mkey::Reading(mkey)->generation;
        ASSERT_EQ(way == 0   ? configure(invalidation)
                  : way == 1 ? invalidate_locally(state, &domain, 0, mkey.key())
                             : invalidate_remotely(state, &domain, 0, mkey.key()),
                  0);
        EXPECT_TRUE(is_empty(mkey));
        EXPECT_NE(Mkey::Reading(mkey)->generation, before);
    }
}

TEST_F(UmrTest, ALayoutEndsWhereItSaysSo) {
    // Behind it stands what would be a further piece, or another layout.
    const auto followed = [&](const UmrEntry& entry, const auto& segment) {
        std::vector<std::byte> more = entry.bytes();
        UmrEntry::append(more, segment);
        return configure_mkey(state, &domain, 0, more);
    };
    Mkey& mkey = make_mkey(4);
    const ibv_sge piece = sge(0, 8);
    const mlx5_wqe_umr_klm_seg klm{htobe32(100), htobe32(region), htobe64(address(0))};
    const auto size = [&] { return Mkey::Reading(mkey)->layout.size(); };
    ASSERT_EQ(followed(UmrEntry(mkey.key()).list({piece, piece, piece, piece}), klm), 0);
    EXPECT_EQ(size(), 32U);
    EXPECT_EQ(Mkey::Reading(mkey)->layout.max_entries(), 4U);
    const mlx5dv_mr_interleaved part{address(0), 8, 2, region};
    const mlx5_wqe_umr_repeat_ent_seg entry{htobe16(8), htobe16(8), htobe32(region), htobe64(address(0))};
    ASSERT_EQ(followed(UmrEntry(mkey.key()).interleaved(2, {part, part, part}), entry), 0);
    EXPECT_EQ(size(), 48U);
    const mlx5_wqe_umr_repeat_block_seg block{
        .byte_count = htobe32(1), .op = htobe32(0x400), .repeat_count = htobe32(1)};
    EXPECT_EQ(followed(UmrEntry(mkey.key()), block), 0);
    EXPECT_EQ(size(), 48U) << "no layout: it stays";
}

TEST_F(UmrTest, RefusesEntriesThatContradictThemselves) {
    Mkey& mkey = make_mkey(64);
    const signature::Attributes attributes{{.block_size = 512, .guard = signature::GuardType::crc32}, {}, 0xFF, 0};
    const UmrEntry plain(mkey.key());
    const UmrEntry is_signed = UmrEntry(mkey.key()).list({sge(0, 8)}).signature(attributes);
    EXPECT_EQ(configure(is_signed), 0);
    const auto with = [](UmrEntry entry, auto change) {
        change(entry);
        return entry;
    };
    const auto cut = [&](const UmrEntry& entry, std::size_t size) {
        std::vector<std::byte> shorter = entry.bytes();
        shorter.resize(shorter.size() - size);
        return configure_mkey(state, &domain, 0, shorter);
    };
    EXPECT_EQ(cut(plain, 0), 0);
    EXPECT_EQ(cut(plain, 16), EINVAL) << "shorter than its head";
    EXPECT_EQ(cut(is_signed, 16), EINVAL) << "shorter than its signature";
    EXPECT_EQ(configure(with(is_signed, [](UmrEntry& it) { it.mask &= ~std::uint64_t{1u << 12}; })), EINVAL)
        << "not named";
    EXPECT_EQ(configure(with(is_signed, [](UmrEntry& it) { it.context.flags_pd = 0; })), EINVAL);
    for (unsigned bit = 0; bit < 64; ++bit) {
        constexpr std::uint64_t known = 1u << 0 | 1u << 6 | 1u << 12 | 1u << 13 | 1u << 14 | 0xfu << 18 | 1u << 29;
        const std::uint64_t named = std::uint64_t{1} << bit;
        if (!(known & named)) {
            EXPECT_EQ(configure(with(plain, [&](UmrEntry& it) { it.mask |= named; })), EINVAL) << bit;
        }
    }
    EXPECT_EQ(configure(with(plain, [](UmrEntry& it) { it.mask |= 1u << 14; })), 0) << "of no queue pair";
    EXPECT_EQ(configure(with(plain,
                             [](UmrEntry& it) {
                                 it.mask |= 1u << 14;
                                 it.context.qpn_mkey &= ~htobe32(0x100);
                             })),
              EACCES)
        << "another's";
    EXPECT_EQ(configure(with(is_signed, [](UmrEntry& it) { it.bsf.clear(); })), EACCES)
        << "no signature where one is announced";
    EXPECT_EQ(configure(with(is_signed, [](UmrEntry& it) { it.bsf.resize(128); })), EACCES) << "one of twice the size";
    EXPECT_EQ(configure(with(is_signed, [](UmrEntry& it) { it.bsf[0] = {}; })), EACCES) << "one of an unknown format";
    EXPECT_EQ(configure(with(is_signed, [](UmrEntry& it) { it.flags |= MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET; })),
              EINVAL)
        << "its size is an offset now";
    EXPECT_EQ(configure(with(plain, [](UmrEntry& it) { it.flags |= MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET; })), 0);
    EXPECT_EQ(configure(with(plain, [](UmrEntry& it) { it.layout.resize(64 * 16); })), 0);
    EXPECT_EQ(configure(with(plain, [](UmrEntry& it) { it.layout.resize(65 * 16); })), EINVAL)
        << "longer than an entry";
}

TEST_F(UmrTest, TheTagIsTheContextsAndNeededOnlyToChangeIt) {
    Mkey& mkey = make_mkey();
    UmrEntry entry = UmrEntry(mkey.key()).access(all_access).list({sge(0, 64)});
    entry.mask &= ~std::uint64_t{MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY};
    entry.context.qpn_mkey = htobe32(0x11);
    const std::uint32_t before = mkey.key();
    ASSERT_EQ(configure(entry), 0);
    EXPECT_EQ(mkey.key(), before);
    entry.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
    entry.key = before ^ 0xC3;
    ASSERT_EQ(configure(entry), 0);
    EXPECT_EQ(mkey.key(), (before & ~0xFFu) | 0x11);
}

TEST_F(UmrTest, EachPartOfASignatureHasItsCode) {
    // Words of rdma-core's qp.c: block size selectors, block formats of CRCs, bits of a T10-DIF.
    using signature::Domain, signature::Escape, signature::GuardType;
    const auto encoded = [](const Domain& memory, const Domain& wire = {}) {
        const umr::Bsf bsf = umr::encode({memory, wire, 0, 0}, false);
        std::array<std::uint8_t, 64> all;
        std::memcpy(all.data(), &bsf, sizeof bsf);
        return all;
    };
    constexpr std::size_t wire_block = 2, memory_block = 3, wire_format = 8, memory_format = 12, wire_dif = 32;
    constexpr std::size_t memory_dif = 48;
    struct Size {
        std::uint32_t size;
        unsigned selector;
    };
    for (const auto& [size, selector] : {Size{512, 1}, Size{520, 2}, Size{4048, 6}, Size{4096, 3}, Size{4160, 4}}) {
        const Domain domain{.block_size = size, .guard = GuardType::crc32};
        EXPECT_EQ(encoded(domain)[memory_block], selector);
        EXPECT_EQ(encoded(domain)[wire_block], 0);
        EXPECT_EQ(encoded({}, domain)[wire_block], selector);
        EXPECT_EQ(encoded({}, domain)[memory_block], 0);
    }
    struct Crc {
        GuardType guard;
        unsigned format;
    };
    for (const auto& [guard, format] :
         {Crc{GuardType::crc32, 0x22}, Crc{GuardType::crc32c, 0x42}, Crc{GuardType::crc64_xp10, 0x52}}) {
        const Domain ones{.block_size = 512, .guard = guard, .seed = 0xFFFFFFFF};
        const Domain zero{.block_size = 512, .guard = guard};
        EXPECT_EQ(encoded(ones)[memory_format], format);
        EXPECT_EQ(encoded(zero)[memory_format], format | 1);
        EXPECT_EQ(encoded({}, ones)[wire_format], format);
        EXPECT_EQ(encoded({}, zero)[wire_format], format | 1);
    }
    struct Dif {
        Domain domain;
        unsigned type, seed, increment_escape;
    };
    const Domain dif{.block_size = 512, .t10dif = true};
    const auto with = [dif](auto change) {
        Domain changed = dif;
        change(changed);
        return changed;
    };
    for (const Dif& one :
         {Dif{dif, 1, 0x80, 0}, Dif{with([](Domain& it) { it.guard = GuardType::ip_checksum; }), 2, 0x80, 0},
          Dif{with([](Domain& it) { it.seed = 0xFFFF; }), 1, 0x88, 0},
          Dif{with([](Domain& it) { it.increment_reference_tag = true; }), 1, 0x80, 0x40},
          Dif{with([](Domain& it) { it.escape = Escape::application_tag; }), 1, 0x80, 1},
          Dif{with([](Domain& it) { it.escape = Escape::application_and_reference_tag; }), 1, 0x80, 2}}) {
        for (const std::size_t at : {memory_dif, wire_dif}) {
            const auto all = at == memory_dif ? encoded(one.domain) : encoded({}, one.domain);
            EXPECT_EQ(all[at], 0xC0);
            EXPECT_EQ(all[at + 8], one.type);
            EXPECT_EQ(all[at + 9], one.seed);
            EXPECT_EQ(all[at + 13], one.increment_escape);
        }
    }
    EXPECT_EQ(umr::encode({dif, dif, 0, 0x3C}, true).size_same_structure, 0x90);
    EXPECT_EQ(umr::encode({dif, dif, 0, 0x3C}, true).wire_block_or_copy_mask, 0x3C);
}

TEST_F(UmrTest, TheFormatOfSignaturesIsTheDevices) {
    // Words as rdma-core's qp.c composes them for CRC32C with seed 0 in memory and T10-DIF on the wire.
    const signature::Attributes attributes{{.block_size = 4096, .guard = signature::GuardType::crc32c, .seed = 0},
                                           {.block_size = 512,
                                            .t10dif = true,
                                            .guard = signature::GuardType::ip_checksum,
                                            .seed = 0xFFFF,
                                            .application_tag = 0x1234,
                                            .reference_tag = 0x89ABCDEF,
                                            .increment_reference_tag = true,
                                            .escape = signature::Escape::application_and_reference_tag},
                                           0xA5,
                                           0};
    constexpr unsigned char expected[64] = {
        0x80, 0xA5, 1,    3,    0xFF, 0xFF, 0xFF, 0xFF, 0, 0,    0, 0, 0x43, 0,    0,    0,  // basic
        0,    0,    0,    0,    0,    0,    0,    0,    0, 0,    0, 0, 0,    0,    0,    0,  // extended
        0xC0, 0,    0x12, 0x34, 0x89, 0xAB, 0xCD, 0xEF, 2, 0x88, 0, 0, 0,    0x42, 0xFF, 0xFF,
    };
    const umr::Bsf bsf = umr::encode(attributes, false);
    EXPECT_EQ(std::memcmp(&bsf, expected, sizeof bsf), 0);
}

TEST_F(UmrTest, SignatureFormatsComeBackAsTheyWere) {
    using signature::Domain, signature::GuardType;
    std::vector<Domain> domains{Domain{}};
    for (const std::uint32_t size : {512u, 520u, 4048u, 4096u, 4160u}) {
        for (const bool seeded : {false, true}) {
            for (const GuardType guard : {GuardType::crc32, GuardType::crc32c, GuardType::crc64_xp10}) {
                domains.push_back({.block_size = size, .guard = guard, .seed = seeded ? ~std::uint64_t{0} : 0});
            }
            for (unsigned i = 0; i < 12; ++i) {
                domains.push_back({.block_size = size,
                                   .t10dif = true,
                                   .guard = i % 2 ? GuardType::t10_crc : GuardType::ip_checksum,
                                   .seed = seeded ? 0xFFFFu : 0u,
                                   .application_tag = static_cast<std::uint16_t>(random()),
                                   .reference_tag = static_cast<std::uint32_t>(random()),
                                   .increment_reference_tag = i / 2 % 2 != 0,
                                   .escape = static_cast<signature::Escape>(i / 4)});
            }
        }
    }
    const auto same = [](const Domain& a, const Domain& b) {
        return a.block_size == b.block_size && a.t10dif == b.t10dif && (!a.present() || a.guard == b.guard) &&
               a.seed == b.seed && a.application_tag == b.application_tag && a.reference_tag == b.reference_tag &&
               a.increment_reference_tag == b.increment_reference_tag && a.escape == b.escape;
    };
    for (const Domain& memory : domains) {
        for (const Domain& wire : domains) {
            if (!memory.present() && !wire.present()) continue;
            const bool structure = memory.same_structure(wire);
            const signature::Attributes sent{memory, wire, 0x5A, static_cast<std::uint8_t>(structure ? 0xC3 : 0)};
            signature::Attributes got;
            ASSERT_TRUE(umr::decode(umr::encode(sent, structure), got));
            ASSERT_TRUE(same(got.memory, memory) && same(got.wire, wire));
            ASSERT_EQ(got.check_mask, 0x5A);
            ASSERT_EQ(got.copy_mask, sent.copy_mask);
        }
    }
}

TEST_F(UmrTest, RefusesSignatureFormatsThatItDoesNotHave) {
    const signature::Attributes good{{.block_size = 512, .guard = signature::GuardType::crc32}, {}, 0xFF, 0};
    signature::Attributes out;
    const umr::Bsf reference = umr::encode(good, false);
    ASSERT_TRUE(umr::decode(reference, out));
    umr::Bsf bsf = reference;
    bsf.memory_block = 5;
    EXPECT_FALSE(umr::decode(bsf, out)) << "an unknown block size";
    bsf = reference;
    bsf.memory_format_psv = htobe32(0x30u << 24 | 2u << 24);
    EXPECT_FALSE(umr::decode(bsf, out)) << "an unknown CRC";
    bsf = reference;
    bsf.size_same_structure |= 1 << 4;
    EXPECT_FALSE(umr::decode(bsf, out)) << "the same structure as no structure";
    bsf = reference;
    bsf.size_same_structure = 0;
    EXPECT_FALSE(umr::decode(bsf, out));
    EXPECT_FALSE(umr::decode(umr::Bsf{}, out));
    bsf = umr::Bsf{};
    bsf.size_same_structure = 2 << 6;
    EXPECT_FALSE(umr::decode(bsf, out)) << "neither domain";
    bsf = umr::encode({{}, good.memory, 0xFF, 0}, false);
    ASSERT_TRUE(umr::decode(bsf, out));
    bsf.size_same_structure |= 1 << 4;
    bsf.memory_block = 1;
    EXPECT_FALSE(umr::decode(bsf, out)) << "the same structure as no structure";
    const auto refused = [&](const umr::Bsf& from, auto change) {
        umr::Bsf changed = from;
        change(changed);
        return !umr::decode(changed, out);
    };
    EXPECT_TRUE(refused(reference, [](umr::Bsf& it) { it.size_same_structure = 3 << 6; })) << "an unknown size";
    EXPECT_TRUE(refused(reference, [](umr::Bsf& it) { it.memory_format_psv |= htobe32(8u << 24); }))
        << "a flag of no CRC";
    EXPECT_TRUE(refused(reference, [](umr::Bsf& it) { it.memory_format_psv &= ~htobe32(2u << 24); }))
        << "no repetition";
    const signature::Domain dif{.block_size = 512, .t10dif = true};
    const umr::Bsf of_dif = umr::encode({dif, {}, 0xFF, 0}, false);
    ASSERT_TRUE(umr::decode(of_dif, out));
    EXPECT_TRUE(refused(of_dif, [](umr::Bsf& it) { it.memory_format_psv = htobe32(0x22u << 24); })) << "and a CRC too";
    EXPECT_TRUE(refused(of_dif, [](umr::Bsf& it) { it.memory.type = 3; }));
    EXPECT_TRUE(refused(of_dif, [](umr::Bsf& it) { it.memory.repeat_seed &= 0x7F; })) << "no repetition";
    EXPECT_TRUE(refused(of_dif, [](umr::Bsf& it) { it.memory.application_tag_mask = htobe16(0xFF00); }));
    EXPECT_TRUE(refused(of_dif, [](umr::Bsf& it) { it.memory_block = 0; }));
    const umr::Bsf both = umr::encode({dif, {.block_size = 512, .guard = signature::GuardType::crc32}, 0xFF, 0}, false);
    ASSERT_TRUE(umr::decode(both, out));
    EXPECT_TRUE(refused(both, [](umr::Bsf& it) { it.size_same_structure |= 1 << 4; })) << "they differ";
    EXPECT_TRUE(refused(both, [](umr::Bsf& it) { it.wire_block_or_copy_mask = 7; }));
}

}  // namespace
}  // namespace ovsdr::soft
