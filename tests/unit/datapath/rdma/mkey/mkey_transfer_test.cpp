// Transfers through MKEYs that change, go, end or fail under way.
#include <sys/mman.h>

#include "datapath/ports/guarded_copy.hpp"
#include "mkey_fixture.hpp"
#include "tests/unit/datapath/signature/reference.hpp"

namespace ovsdr::soft {
namespace {

using signature::Domain;
using signature::ErrorType;
using signature::GuardType;
using test::UmrEntry;
using Fault = Transfer::Fault;

class MkeyTransferTest : public test::MkeyFixture {
protected:
    /// An MKEY over [offset, offset + size).
    Mkey& over(std::size_t offset, std::uint32_t size, const signature::Attributes& attributes = {}) {
        Mkey& mkey = make_mkey();
        UmrEntry entry = UmrEntry(mkey.key()).access(all_access).list({sge(offset, size)});
        if (attributes.memory.present() || attributes.wire.present()) entry.signature(attributes);
        EXPECT_EQ(configure(entry), 0);
        return mkey;
    }
    Fault begin(unsigned access, const std::vector<ibv_sge>& pieces) { return transfer.begin(local(access), pieces); }
    Fault gather(std::uint64_t offset, std::size_t size) {
        got.resize(size);
        return transfer.gather(offset, got);
    }
    Fault in_place() {
        return transfer.in_place([this](std::byte* memory) { place = memory; });
    }
    std::vector<std::byte> part(std::size_t offset, std::size_t size) const {
        return {bytes.begin() + static_cast<long>(offset), bytes.begin() + static_cast<long>(offset + size)};
    }

    const Domain crc{.block_size = 512, .guard = GuardType::crc32, .seed = 0xFFFFFFFF};
    const Domain dif{
        .block_size = 512, .t10dif = true, .seed = 0xFFFF, .application_tag = 0xABCD, .increment_reference_tag = true};
    Transfer transfer;
    std::vector<std::byte> got;
    std::byte* place = nullptr;
};

TEST_F(MkeyTransferTest, ANewOneIsEmpty) {
    EXPECT_EQ(transfer.size(), 0U);
    EXPECT_FALSE(transfer.signature_failed());
    EXPECT_EQ(in_place(), Fault::protection);
}

TEST_F(MkeyTransferTest, SignedPiecesFollowEachOtherAndOthers) {
    Mkey& first = over(0, 1024, {{}, dif, 0xFF, 0});
    Mkey& second = over(4096, 1024, {{}, crc, 0xFF, 0});
    const std::vector<ibv_sge> pieces{
        {0, 1040, first.key()}, sge(9000, 30), {0, 1032, second.key()}, {0, 1040, first.key()}};
    std::vector<std::byte> expected;
    for (const auto& piece : {reference::framed(dif, part(0, 1024)), part(9000, 30),
                              reference::framed(crc, part(4096, 1024)), reference::framed(dif, part(0, 1024))}) {
        expected.insert(expected.end(), piece.begin(), piece.end());
    }
    ASSERT_EQ(begin(0, pieces), Fault::none);
    ASSERT_EQ(transfer.size(), expected.size());
    for (const std::size_t step : {7U, 100U, 515U, 1040U, 3142U}) {
        for (std::size_t at = 0; at < expected.size(); at += step) {
            const std::size_t size = std::min(step, expected.size() - at);
            ASSERT_EQ(gather(at, size), Fault::none);
            ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + static_cast<long>(at))) << at;
        }
    }
    EXPECT_FALSE(transfer.signature_failed());
}

TEST_F(MkeyTransferTest, AFieldIsCheckedHoweverItIsCutAndItsErrorToldOnce) {
    Mkey& mkey = over(0, 4 * 512, {{}, dif, 0xFF, 0});
    const std::vector<std::byte> good = reference::framed(dif, part(20000, 4 * 512));
    for (const std::size_t step : {1U, 3U, 5U, 520U, 2080U}) {
        auto bad = good;
        bad[520 + 512] ^= std::byte{1};
        ASSERT_EQ(begin(IBV_ACCESS_LOCAL_WRITE, {{0, 2080, mkey.key()}}), Fault::none);
        EXPECT_FALSE(transfer.signature_failed()) << "that of before";
        bool told = false;
        for (std::size_t at = 0; at < bad.size(); at += step) {
            const auto fragment = std::span<const std::byte>(bad).subspan(at, std::min(step, bad.size() - at));
            ASSERT_EQ(transfer.scatter(at, fragment), Fault::none);
            EXPECT_EQ(transfer.signature_failed(), at + fragment.size() >= 2 * 520);
            const signature::Error error = mkey.take_error();
            if (error.type == ErrorType::none) continue;
            EXPECT_FALSE(told) << "taken already";
            EXPECT_EQ(error.offset, 520U);
            told = true;
        }
        EXPECT_TRUE(told) << step;
        EXPECT_EQ(part(0, 4 * 512), part(20000, 4 * 512));
    }
}

class BothWays : public MkeyTransferTest {
protected:
    static constexpr std::size_t first_size = 5000, second_at = 8192, raw_size = 16384;

    template <typename Use>
    void in_pieces(std::size_t wire_size, Use use) {
        for (std::size_t at = 0, size; at < wire_size; at += size) {
            size = std::min<std::size_t>(1 + random() % (random() % 2 ? 200 : 6000), wire_size - at);
            use(at, size);
        }
    }
    /// Of memory in two pieces, cut within a block.
    void send_and_take(const Domain& domain) {
        Mkey& mkey = make_mkey();
        const std::uint32_t second_size = raw_size - first_size;
        UmrEntry entry = UmrEntry(mkey.key()).access(all_access);
        entry.list({sge(0, first_size), sge(second_at, second_size)}).signature({{}, domain, 0xFF, 0});
        ASSERT_EQ(configure(entry), 0);
        const std::vector<std::byte> first = part(0, first_size), second = part(second_at, second_size);
        std::vector<std::byte> raw = first, wire;
        raw.insert(raw.end(), second.begin(), second.end());
        const std::vector<std::byte> expected = reference::framed(domain, raw);
        const ibv_sge piece{0, static_cast<std::uint32_t>(expected.size()), mkey.key()};
        ASSERT_EQ(begin(0, {piece}), Fault::none);
        in_pieces(expected.size(), [&](std::size_t at, std::size_t size) {
            ASSERT_EQ(gather(at, size), Fault::none);
            wire.insert(wire.end(), got.begin(), got.end());
        });
        ASSERT_EQ(wire, expected);
        take(piece, wire, false);
        EXPECT_EQ(part(0, first_size), first);
        EXPECT_EQ(part(second_at, second_size), second);
        wire[random() % wire.size()] ^= std::byte{0x10};
        take(piece, wire, true);
    }
    void take(const ibv_sge& piece, std::span<const std::byte> wire, bool fails) {
        std::fill(bytes.begin(), bytes.begin() + 2 * raw_size, std::byte{});
        ASSERT_EQ(begin(IBV_ACCESS_LOCAL_WRITE, {piece}), Fault::none);
        in_pieces(wire.size(), [&](std::size_t at, std::size_t size) {
            ASSERT_EQ(transfer.scatter(at, wire.subspan(at, size)), Fault::none);
        });
        EXPECT_EQ(transfer.signature_failed(), fails);
    }
};

/// Whole blocks and parts of blocks take turns, as packets cut them.
TEST_F(BothWays, EachSignatureIsMadeAndCheckedHoweverPacketsAndMemoryCutItsBlocks) {
    guard_copies();
    for (const std::uint32_t block_size : {512U, 4096U}) {
        for (Domain domain : {dif, crc, Domain{.guard = GuardType::crc32c, .seed = 0xFFFFFFFF},
                              Domain{.guard = GuardType::crc64_xp10},
                              Domain{.t10dif = true, .guard = GuardType::ip_checksum}}) {
            domain.block_size = block_size;
            SCOPED_TRACE(static_cast<int>(domain.guard));
            for (int round = 0; round < 5; ++round) send_and_take(domain);
        }
    }
}

TEST_F(MkeyTransferTest, EachBeginsAnew) {
    // The second begins where the first stopped, within a block, with the other key.
    Mkey& first = over(0, 512, {{}, crc, 0xFF, 0});
    Mkey& second = over(4096, 512, {{}, crc, 0xFF, 0});
    ASSERT_EQ(begin(0, {{0, 516, first.key()}}), Fault::none);
    ASSERT_EQ(gather(0, 100), Fault::none);
    ASSERT_EQ(begin(0, {{100, 416, second.key()}}), Fault::none);
    EXPECT_EQ(transfer.size(), 416U);
    ASSERT_EQ(gather(0, 416), Fault::none);
    const auto expected = reference::framed(crc, part(4096, 512));
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + 100));
}

TEST_F(MkeyTransferTest, AKeyThatWentOrIsAnothersEndsIt) {
    const auto both_ways = [&](auto change, Fault expected) {
        Mkey& mkey = over(64, 64);
        ASSERT_EQ(begin(IBV_ACCESS_REMOTE_ATOMIC, {{0, 8, mkey.key()}}), Fault::none);
        change(mkey);
        EXPECT_EQ(in_place(), expected);
        EXPECT_EQ(gather(0, 8), expected);
    };
    both_ways([](Mkey&) {}, Fault::none);
    EXPECT_EQ(place, &bytes[64]);
    Mkey foreign({&other_domain, 4, true, false});
    both_ways(
        [&](Mkey& mkey) {
            // A key of the same number, of another domain, that leads to the same bytes.
            table().remove(mkey.key());
            ASSERT_EQ(table().add(foreign), 0);
            ASSERT_EQ(foreign.key() >> 8, mkey.key() >> 8);
            foreign.set_key(mkey.key());
            const std::uint32_t theirs = register_memory(64, 64, IBV_ACCESS_LOCAL_WRITE, &other_domain);
            const UmrEntry entry = UmrEntry(mkey.key()).access(all_access).list({{address(64), 64, theirs}});
            ASSERT_EQ(configure_mkey(state, &other_domain, 0, entry.bytes()), 0);
        },
        Fault::protection);
    table().remove(foreign.key());
    mkeys.pop_back();
    both_ways([&](Mkey& mkey) { table().remove(mkey.key()); }, Fault::protection);
    mkeys.pop_back();
    both_ways([&](Mkey& mkey) { ASSERT_EQ(configure(UmrEntry(mkey.key()).access(0)), 0); }, Fault::protection);
}

TEST_F(MkeyTransferTest, ItsBeginTellsWhatTheKeyDoesNotGrant) {
    Mkey& mkey = over(0, 512, {crc, {}, 0xFF, 0});
    ASSERT_EQ(configure(UmrEntry(mkey.key()).access(IBV_ACCESS_REMOTE_READ).list({sge(0, 516)})), 0);
    EXPECT_EQ(begin(IBV_ACCESS_REMOTE_READ, {{0, 512, mkey.key()}}), Fault::none);
    EXPECT_EQ(begin(IBV_ACCESS_REMOTE_READ, {{0, 513, mkey.key()}}), Fault::protection);
    EXPECT_EQ(begin(IBV_ACCESS_REMOTE_WRITE, {{0, 8, mkey.key()}}), Fault::protection);
    ASSERT_EQ(invalidate_locally(state, &domain, 0, mkey.key()), 0);
    EXPECT_EQ(begin(0, {{0, 8, mkey.key()}}), Fault::protection);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).list({sge(0, 512)})), 0);
    EXPECT_EQ(begin(0, {{0, 512, mkey.key()}}), Fault::none) << "its signature is forgotten";
    EXPECT_EQ(gather(0, 512), Fault::none);
}

TEST_F(MkeyTransferTest, AnUnsignedOneFollowsItsLayout) {
    Mkey& mkey = over(0, 64);
    ASSERT_EQ(begin(0, {{0, 64, mkey.key()}}), Fault::none);
    ASSERT_EQ(gather(0, 10), Fault::none);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).list({sge(4096, 64)})), 0);
    ASSERT_EQ(gather(10, 10), Fault::none);
    EXPECT_EQ(got, part(4106, 10));
}

TEST_F(MkeyTransferTest, LengthsBoundALayoutAndLayoutsALength) {
    Mkey& mkey = over(0, 64);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).length(32)), 0);
    EXPECT_EQ(use(mkey.key(), 32, 0), Fault::none);
    EXPECT_EQ(use(mkey.key(), 33, 0), Fault::protection);
    EXPECT_EQ(use(mkey.key(), 31, 0, 1), Fault::none);
    EXPECT_EQ(use(mkey.key(), 32, 0, 1), Fault::protection);
    EXPECT_EQ(use(mkey.key(), 8, 0, ~std::uint64_t{0} - 3), Fault::protection) << "around the end of all addresses";
    ASSERT_EQ(configure(UmrEntry(mkey.key()).length(~std::uint64_t{0})), 0);
    EXPECT_EQ(begin(0, {{~std::uint64_t{0} - 8, 8, mkey.key()}}), Fault::none);
    EXPECT_EQ(gather(0, 8), Fault::protection) << "the layout has no such bytes";
    EXPECT_EQ(begin(0, {{~std::uint64_t{0} - 7, 8, mkey.key()}}), Fault::protection);
    EXPECT_EQ(use(mkey.key(), 65, 0), Fault::protection);
    // A length that shrinks under way, also for a key behind.
    Mkey& outer = make_mkey();
    ASSERT_EQ(configure(UmrEntry(mkey.key()).length(64)), 0);
    ASSERT_EQ(configure(UmrEntry(outer.key()).list({{0, 64, mkey.key()}})), 0);
    EXPECT_EQ(use(outer.key(), 64, 0), Fault::none);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).length(63)), 0);
    EXPECT_EQ(use(outer.key(), 63, 0), Fault::none);
    EXPECT_EQ(use(outer.key(), 64, 0), Fault::protection);
    EXPECT_EQ(use(outer.key(), 1, 0, 63), Fault::protection);
    ASSERT_EQ(begin(0, {{0, 63, mkey.key()}}), Fault::none);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).length(10)), 0);
    EXPECT_EQ(gather(0, 10), Fault::none);
    EXPECT_EQ(gather(0, 11), Fault::protection);
    EXPECT_EQ(gather(10, 1), Fault::protection);
}

TEST_F(MkeyTransferTest, WhoWritesNeedsLocalWriteOfTheKeysBehind) {
    const std::uint32_t read_only = register_memory(0, 64, 0),
                        writable = register_memory(0, 64, IBV_ACCESS_LOCAL_WRITE);
    for (const unsigned access : {0, int{IBV_ACCESS_REMOTE_READ}, int{IBV_ACCESS_LOCAL_WRITE},
                                  int{IBV_ACCESS_REMOTE_WRITE}, int{IBV_ACCESS_REMOTE_ATOMIC}}) {
        const bool writes = access != 0 && access != IBV_ACCESS_REMOTE_READ;
        for (const std::uint32_t behind : {read_only, writable}) {
            Mkey& mkey = make_mkey();
            ASSERT_EQ(configure(UmrEntry(mkey.key()).access(all_access).list({{address(0), 64, behind}})), 0);
            ASSERT_EQ(begin(access, {{0, 8, mkey.key()}}), Fault::none);
            EXPECT_EQ(in_place(), writes && behind == read_only ? Fault::protection : Fault::none) << access;
        }
    }
}

TEST_F(MkeyTransferTest, KeysBehindOfAnotherDomainAreOutOfReach) {
    Mkey& inner = over(0, 64);
    Mkey foreign({&other_domain, 4, true, false});
    ASSERT_EQ(table().add(foreign), 0);
    const std::uint32_t ours = register_memory(0, 64, IBV_ACCESS_LOCAL_WRITE, &other_domain);
    ASSERT_EQ(configure_mkey(state, &other_domain, 0,
                             UmrEntry(foreign.key()).access(all_access).list({{address(0), 64, ours}}).bytes()),
              0);
    Mkey& outer = make_mkey();
    ASSERT_EQ(configure(UmrEntry(outer.key()).list({{0, 64, inner.key()}})), 0);
    EXPECT_EQ(use(outer.key(), 64, 0), Fault::none);
    Mkey& stranger = make_mkey();
    ASSERT_EQ(configure(UmrEntry(stranger.key()).list({{0, 64, foreign.key()}})), 0);
    EXPECT_EQ(use(stranger.key(), 64, 0), Fault::protection);
    // Bytes of our own domain through a key that is not: it would do if only the last key counted.
    ASSERT_EQ(configure_mkey(state, &other_domain, 0, UmrEntry(foreign.key()).list({sge(0, 64)}).bytes()), 0);
    EXPECT_EQ(use(stranger.key(), 64, 0), Fault::protection);
    table().remove(foreign.key());
}

TEST_F(MkeyTransferTest, APieceMayBeOneOf32) {
    Mkey& mkey = over(0, 64);
    std::vector<ibv_sge> pieces(32, {0, 2, mkey.key()});
    EXPECT_EQ(begin(0, pieces), Fault::none);
    EXPECT_EQ(transfer.size(), 64U);
    EXPECT_EQ(gather(0, 64), Fault::none);
    pieces.push_back({0, 0, 0});
    EXPECT_EQ(begin(0, pieces), Fault::none) << "one of no bytes does not count";
    pieces.back() = pieces.front();
    EXPECT_EQ(begin(0, pieces), Fault::length);
}

TEST_F(MkeyTransferTest, InPlaceIsOnePieceThatIsThere) {
    Mkey& mkey = over(0, 64);
    ASSERT_EQ(begin(0, {{0, 8, mkey.key()}, {8, 8, mkey.key()}}), Fault::none);
    EXPECT_EQ(in_place(), Fault::protection);
    const std::uint32_t short_lived = register_memory(0, 64, 0);
    ASSERT_EQ(begin(0, {{address(0), 8, short_lived}}), Fault::none);
    EXPECT_EQ(in_place(), Fault::none);
    EXPECT_EQ(place, bytes.data());
    place = nullptr;
    table().remove(short_lived);
    EXPECT_EQ(in_place(), Fault::protection);
    EXPECT_EQ(place, nullptr) << "nobody touches what is not there";
    // One of two regions behind has gone.
    const std::uint32_t gone = register_memory(0, 64, 0);
    Mkey& two = make_mkey();
    ASSERT_EQ(configure(UmrEntry(two.key()).list({{address(0), 8, gone}, sge(64, 8)})), 0);
    ASSERT_EQ(begin(0, {{0, 8, two.key()}}), Fault::none);
    table().remove(gone);
    EXPECT_EQ(in_place(), Fault::protection);
    EXPECT_EQ(place, nullptr);
}

TEST_F(MkeyTransferTest, OnlyThePiecesOfARangeAreLookedUp) {
    const std::uint32_t gone = register_memory(0, 10, 0);
    ASSERT_EQ(begin(0, {{address(0), 10, gone}, sge(100, 10)}), Fault::none);
    table().remove(gone);
    EXPECT_EQ(gather(9, 2), Fault::protection);
    EXPECT_EQ(gather(10, 10), Fault::none);
    EXPECT_EQ(got, part(100, 10));
}

TEST_F(MkeyTransferTest, OnePageOfSeveralThatIsGoneFailsAll) {
    guard_copies();
    constexpr std::size_t page = 4096;
    auto* const pages =
        static_cast<std::byte*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void*>(pages), MAP_FAILED);
    MemoryRegion added{reinterpret_cast<std::uintptr_t>(pages), 2 * page, pages, IBV_ACCESS_LOCAL_WRITE, &domain};
    ASSERT_EQ(table().add(added), 0);
    ASSERT_EQ(munmap(pages, page), 0);
    Mkey& mkey = make_mkey();
    const ibv_sge absent{added.iova, 64, added.key}, present{added.iova + page, 64, added.key};
    for (const auto& [first, second] :
         {std::pair{absent, present}, std::pair{present, absent}, std::pair{present, present}}) {
        const Fault expected = first.addr == second.addr ? Fault::none : Fault::protection;
        ASSERT_EQ(configure(UmrEntry(mkey.key()).access(all_access).list({first, second})), 0);
        EXPECT_EQ(use(mkey.key(), 128, 0), expected);
        EXPECT_EQ(use(mkey.key(), 128, IBV_ACCESS_LOCAL_WRITE), expected);
        // Regions without an MKEY.
        ASSERT_EQ(begin(IBV_ACCESS_LOCAL_WRITE, {first, second}), Fault::none);
        EXPECT_EQ(gather(0, 128), expected);
        EXPECT_EQ(transfer.scatter(0, got), expected);
    }
    table().remove(added.key);
    munmap(pages + page, page);
}

}  // namespace
}  // namespace ovsdr::soft
