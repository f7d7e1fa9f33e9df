// MKEYs through transfers: layouts against a model, signatures of local and remote keys.
#include "datapath/rdma/mkey/mkey.hpp"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <thread>

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

constexpr std::uint64_t ones = ~std::uint64_t{0};

class MkeyTest : public test::MkeyFixture {
protected:
    /// Offsets into `bytes`, in the order of the layout.
    using Model = std::vector<std::size_t>;

    static void append(Model& model, std::size_t offset, std::size_t size) {
        for (std::size_t i = 0; i < size; ++i) model.push_back(offset + i);
    }

    /// Both ways through `key`, in fragments, against the model.
    void compare(std::uint32_t key, const Model& model) {
        Transfer transfer;
        const ibv_sge all{0, static_cast<std::uint32_t>(model.size()), key};
        ASSERT_EQ(transfer.begin(local(), {&all, 1}), Fault::none);
        ASSERT_EQ(transfer.size(), model.size());
        for (int round = 0; round < 20; ++round) {
            const std::size_t at = random() % model.size();
            std::vector<std::byte> got(random() % (model.size() - at + 1));
            ASSERT_EQ(transfer.gather(at, got), Fault::none);
            for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], bytes[model[at + i]]);
        }
        const std::size_t start = random() % model.size();
        const ibv_sge part{start, static_cast<std::uint32_t>(1 + random() % (model.size() - start)), key};
        std::vector<std::byte> sent(part.length);
        for (std::byte& byte : sent) byte = static_cast<std::byte>(random());
        std::vector<std::byte> expected = bytes;
        for (std::size_t i = 0; i < sent.size(); ++i) expected[model[start + i]] = sent[i];
        ASSERT_EQ(transfer.begin(local(IBV_ACCESS_LOCAL_WRITE), {&part, 1}), Fault::none);
        for (std::size_t at = 0; at < sent.size();) {
            const std::size_t size = std::min<std::size_t>(1 + random() % 400, sent.size() - at);
            ASSERT_EQ(transfer.scatter(at, std::span<const std::byte>(sent).subspan(at, size)), Fault::none);
            at += size;
        }
        ASSERT_TRUE(bytes == expected) << "bytes beside the layout's were touched, or its own were not";
        const ibv_sge beyond{1, static_cast<std::uint32_t>(model.size()), key};
        EXPECT_EQ(transfer.begin(local(), {&beyond, 1}), Fault::protection);
    }

    /// The wire's bytes of a whole local transfer of `size`.
    std::vector<std::byte> gathered(std::uint32_t key, std::uint32_t size, std::uint64_t offset = 0) {
        Transfer transfer;
        const ibv_sge piece{offset, size, key};
        EXPECT_EQ(transfer.begin(local(), {&piece, 1}), Fault::none);
        std::vector<std::byte> wire(transfer.size());
        for (std::size_t at = 0; at < wire.size(); at += 1024) {
            EXPECT_EQ(transfer.gather(at, std::span(wire).subspan(at, std::min<std::size_t>(1024, wire.size() - at))),
                      Fault::none);
        }
        return wire;
    }
    std::span<std::byte> memory(std::size_t offset, std::size_t size) { return std::span(bytes).subspan(offset, size); }
};

TEST_F(MkeyTest, AWriterWaitsForReadersAndTheyForIt) {
    Mkey& mkey = make_mkey();
    std::atomic<bool> wrote = false, read = false;
    const auto a_while = std::chrono::milliseconds(30);
    auto first = std::make_unique<Mkey::Reading>(mkey), second = std::make_unique<Mkey::Reading>(mkey);
    std::thread writer([&] {
        const Mkey::Writing writing(mkey);
        wrote = true;
    });
    std::this_thread::sleep_for(a_while);
    EXPECT_FALSE(wrote);
    first.reset();
    std::this_thread::sleep_for(a_while);
    EXPECT_FALSE(wrote) << "one reader is left";
    second.reset();
    writer.join();
    auto writing = std::make_unique<Mkey::Writing>(mkey);
    std::thread reader([&] {
        const Mkey::Reading reading(mkey);
        read = true;
    });
    std::this_thread::sleep_for(a_while);
    EXPECT_FALSE(read);
    writing.reset();
    reader.join();
    first = std::make_unique<Mkey::Reading>(mkey);
    wrote = false;
    std::thread second_writer([&] {
        const Mkey::Writing writing_again(mkey);
        wrote = true;
    });
    std::this_thread::sleep_for(a_while);
    EXPECT_FALSE(wrote) << "one reader from the start";
    first.reset();
    second_writer.join();
}

TEST_F(MkeyTest, ListsAreTheModelByteForByte) {
    Mkey& mkey = make_mkey(32);
    for (int round = 0; round < 200; ++round) {
        std::vector<ibv_sge> list;
        Model model;
        for (unsigned entries = 1 + random() % 32; entries != 0; --entries) {
            // Pieces in slots of their own: the model needs each byte once.
            const std::size_t size = random() % 8 == 0 ? 0 : 1 + random() % 2000;
            const std::size_t offset = entries * 4000 + random() % 1000;
            list.push_back(sge(offset, static_cast<std::uint32_t>(size)));
            append(model, offset, size);
        }
        if (model.empty()) continue;
        ASSERT_EQ(configure(UmrEntry(mkey.key()).access(IBV_ACCESS_LOCAL_WRITE).list(list)), 0);
        compare(mkey.key(), model);
    }
}

TEST_F(MkeyTest, InterleavedLayoutsAreTheModelByteForByte) {
    Mkey& mkey = make_mkey(8);
    for (int round = 0; round < 200; ++round) {
        std::vector<mlx5dv_mr_interleaved> parts(1 + random() % 7);
        const std::uint32_t repeat = 1 + random() % 12;
        Model model;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            parts[i] = {address(i * 16000 + random() % 100), static_cast<std::uint32_t>(1 + random() % 600),
                        static_cast<std::uint32_t>(random() % 700), region};
        }
        for (std::uint32_t n = 0; n < repeat; ++n) {
            for (const auto& part : parts) {
                append(model, part.addr - address(0) + n * (part.bytes_count + part.bytes_skip), part.bytes_count);
            }
        }
        ASSERT_EQ(configure(UmrEntry(mkey.key()).access(IBV_ACCESS_LOCAL_WRITE).interleaved(repeat, parts)), 0);
        compare(mkey.key(), model);
    }
}

TEST_F(MkeyTest, TheManualsInterleavedExample) {
    Mkey& mkey = make_mkey();
    ASSERT_EQ(configure(UmrEntry(mkey.key())
                            .access(IBV_ACCESS_LOCAL_WRITE)
                            .interleaved(2, {{address(0), 512, 4, region}, {address(8192), 8, 0, region}})),
              0);
    Model model;
    append(model, 0, 512);
    append(model, 8192, 8);
    append(model, 516, 512);
    append(model, 8200, 8);
    compare(mkey.key(), model);
}

TEST_F(MkeyTest, LayoutsMayLeadToFurtherMkeysUpToTheDepth) {
    Mkey* inner = &make_mkey();
    ASSERT_EQ(configure(UmrEntry(inner->key()).access(IBV_ACCESS_LOCAL_WRITE).list({sge(100, 50), sge(1000, 50)})), 0);
    for (unsigned depth = 2; depth <= 5; ++depth) {
        Mkey& outer = make_mkey();
        ASSERT_EQ(configure(UmrEntry(outer.key()).access(IBV_ACCESS_LOCAL_WRITE).list({{0, 100, inner->key()}})), 0);
        EXPECT_EQ(use(outer.key(), 100, IBV_ACCESS_LOCAL_WRITE),
                  depth <= 4 ? Fault::none : Fault::protection)
            << depth;
        inner = &outer;
    }
    Mkey& own = make_mkey();
    ASSERT_EQ(configure(UmrEntry(own.key()).list({{0, 100, own.key()}})), 0);
    EXPECT_EQ(use(own.key(), 100, 0), Fault::protection) << "a layout that leads to itself";
}

TEST_F(MkeyTest, MkeysBehindGrantWhatRegionsWould) {
    Mkey& inner = make_mkey();
    Mkey& outer = make_mkey();
    ASSERT_EQ(configure(UmrEntry(inner.key()).access(0).list({sge(100, 50), sge(1000, 50)})), 0);
    ASSERT_EQ(configure(UmrEntry(outer.key()).access(all_access).list({{25, 50, inner.key()}})), 0);
    Model model;
    append(model, 125, 25);
    append(model, 1000, 25);
    EXPECT_EQ(use(outer.key(), 50, IBV_ACCESS_LOCAL_WRITE), Fault::protection);
    ASSERT_EQ(configure(UmrEntry(inner.key()).access(IBV_ACCESS_LOCAL_WRITE)), 0);
    compare(outer.key(), model);
    ASSERT_EQ(configure(UmrEntry(inner.key()).signature({{}, {.block_size = 512, .guard = GuardType::crc32}, 0, 0})),
              0);
    EXPECT_EQ(use(outer.key(), 50, 0), Fault::protection) << "only the outermost may be signed";
}

TEST_F(MkeyTest, MkeysAndRegionsMixInOneTransfer) {
    Mkey& mkey = make_mkey();
    ASSERT_EQ(configure(UmrEntry(mkey.key()).list({sge(500, 10), sge(900, 10)})), 0);
    const std::array pieces{sge(0, 5), ibv_sge{8, 4, mkey.key()}, sge(7, 3)};
    Transfer transfer;
    ASSERT_EQ(transfer.begin(local(), pieces), Fault::none);
    std::vector<std::byte> got(12);
    ASSERT_EQ(transfer.gather(0, got), Fault::none);
    const std::size_t model[] = {0, 1, 2, 3, 4, 508, 509, 900, 901, 7, 8, 9};
    for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(got[i], bytes[model[i]]) << i;
}

TEST_F(MkeyTest, MemoryThatIsGoneFailsTheTransferAndNothingElse) {
    guard_copies();
    constexpr std::size_t page = 4096;
    void* const mapped = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    MemoryRegion gone{reinterpret_cast<std::uintptr_t>(mapped), page, static_cast<std::byte*>(mapped),
                      IBV_ACCESS_LOCAL_WRITE, &domain};
    ASSERT_EQ(table().add(gone), 0);
    Mkey& mkey = make_mkey();
    ASSERT_EQ(munmap(mapped, page), 0);
    for (const bool is_signed : {false, true}) {
        UmrEntry entry = UmrEntry(mkey.key()).access(IBV_ACCESS_LOCAL_WRITE).list({{gone.iova, 1024, gone.key}});
        if (is_signed) entry.signature({{}, {.block_size = 512, .guard = GuardType::crc32}, 0xFF, 0});
        ASSERT_EQ(configure(entry), 0);
        EXPECT_EQ(use(mkey.key(), 600, 0), Fault::protection);
        EXPECT_EQ(use(mkey.key(), 600, IBV_ACCESS_LOCAL_WRITE), Fault::protection);
    }
    table().remove(gone.key);
}

TEST_F(MkeyTest, AtomicsWantTheirBytesInOnePieceAndUnsigned) {
    Mkey& mkey = make_mkey();
    ASSERT_EQ(configure(UmrEntry(mkey.key()).access(IBV_ACCESS_REMOTE_ATOMIC).list({sge(0, 12), sge(64, 12)})), 0);
    const auto place_of = [&](std::uint32_t key, std::uint64_t at, std::byte*& place) {
        Transfer transfer;
        const ibv_sge piece{at, 8, key};
        const auto fault = transfer.begin(remote(IBV_ACCESS_REMOTE_ATOMIC), {&piece, 1});
        return fault == Fault::none ? transfer.in_place([&](std::byte* memory) { place = memory; }) : fault;
    };
    std::byte* place = nullptr;
    EXPECT_EQ(place_of(mkey.key(), 4, place), Fault::none);
    EXPECT_EQ(place, &bytes[4]);
    EXPECT_EQ(place_of(mkey.key(), 12, place), Fault::none);
    EXPECT_EQ(place, &bytes[64]);
    EXPECT_EQ(place_of(mkey.key(), 8, place), Fault::protection) << "across two pieces";
    EXPECT_EQ(place_of(mkey.key(), 17, place), Fault::protection) << "past the end";
    const std::uint32_t direct = register_memory(512, 16, IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE);
    EXPECT_EQ(place_of(direct, address(520), place), Fault::none);
    EXPECT_EQ(place, &bytes[520]);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).signature({{}, {.block_size = 512, .guard = GuardType::crc32}, 0, 0})), 0);
    EXPECT_EQ(place_of(mkey.key(), 4, place), Fault::protection);
}

TEST_F(MkeyTest, ConfigurationUnderWayFailsASignedTransferAndNoOther) {
    Mkey& mkey = make_mkey();
    const signature::Attributes attributes{{}, {.block_size = 512, .guard = GuardType::crc32, .seed = ones}, 0xFF, 0};
    ASSERT_EQ(configure(UmrEntry(mkey.key()).list({sge(0, 1024)}).signature(attributes)), 0);
    Transfer transfer;
    const ibv_sge piece{0, 1032, mkey.key()};
    ASSERT_EQ(transfer.begin(local(), {&piece, 1}), Fault::none);
    std::vector<std::byte> buffer(100);
    ASSERT_EQ(transfer.gather(0, buffer), Fault::none);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).list({sge(2048, 1024)})), 0);
    EXPECT_EQ(transfer.gather(100, buffer), Fault::protection);
    ASSERT_EQ(invalidate_locally(state, &domain, 0, mkey.key()), 0);
    EXPECT_EQ(transfer.gather(0, buffer), Fault::protection);
}

TEST_F(MkeyTest, SignedTransfersWorkForEachOperation) {
    // SEND and WRITE gather a local key, RECV and READ scatter to one, READ and WRITE of a remote key the other ways.
    const Domain dif{.block_size = 512,
                     .t10dif = true,
                     .guard = GuardType::t10_crc,
                     .seed = 0xFFFF,
                     .application_tag = 0xABCD,
                     .reference_tag = 0x01234567,
                     .increment_reference_tag = true};
    Mkey& mkey = make_mkey();
    ASSERT_EQ(
        configure(
            UmrEntry(mkey.key()).access(all_access).list({sge(0, 600), sge(4000, 1448)}).signature({{}, dif, 0xFF, 0})),
        0);
    std::vector<std::byte> raw(memory(0, 600).begin(), memory(0, 600).end());
    raw.insert(raw.end(), bytes.begin() + 4000, bytes.begin() + 5448);
    const auto wire = reference::framed(dif, raw);
    ASSERT_EQ(wire.size(), 2080u);
    struct Way {
        bool remote;
        unsigned access;
    };
    for (const Way way : {Way{false, 0}, Way{true, IBV_ACCESS_REMOTE_READ}}) {
        Transfer transfer;
        const ibv_sge piece{0, 2080, mkey.key()};
        ASSERT_EQ(transfer.begin(way.remote ? remote(way.access) : local(way.access), {&piece, 1}), Fault::none);
        std::vector<std::byte> got(2080);
        ASSERT_EQ(transfer.gather(0, got), Fault::none);
        EXPECT_EQ(got, wire);
        EXPECT_FALSE(transfer.signature_failed());
    }
    const auto before = bytes;
    for (const Way way : {Way{false, IBV_ACCESS_LOCAL_WRITE}, Way{true, IBV_ACCESS_REMOTE_WRITE}}) {
        std::fill_n(bytes.begin(), 600, std::byte{});
        std::fill_n(bytes.begin() + 4000, 1448, std::byte{});
        Transfer transfer;
        const ibv_sge piece{0, 2080, mkey.key()};
        ASSERT_EQ(transfer.begin(way.remote ? remote(way.access) : local(way.access), {&piece, 1}), Fault::none);
        ASSERT_EQ(transfer.scatter(0, wire), Fault::none);
        EXPECT_TRUE(bytes == before);
        EXPECT_FALSE(transfer.signature_failed());
        auto bad = wire;
        bad[520 + 513] ^= std::byte{1};
        ASSERT_EQ(transfer.begin(way.remote ? remote(way.access) : local(way.access), {&piece, 1}), Fault::none);
        ASSERT_EQ(transfer.scatter(0, bad), Fault::none) << "the transfer itself succeeds";
        EXPECT_TRUE(transfer.signature_failed());
        const signature::Error error = mkey.take_error();
        EXPECT_EQ(error.type, ErrorType::guard);
        EXPECT_EQ(error.offset, 520u);
        EXPECT_EQ(mkey.take_error().type, ErrorType::none);
    }
}

TEST_F(MkeyTest, TheFirstErrorIsKeptUntilItIsTaken) {
    const Domain crc{.block_size = 512, .guard = GuardType::crc64_xp10, .seed = ones};
    Mkey& mkey = make_mkey();
    ASSERT_EQ(configure(UmrEntry(mkey.key()).access(all_access).list({sge(0, 2 * 520)}).signature({crc, {}, 0xFF, 0})),
              0);
    const auto good = reference::framed(crc, memory(20000, 1024));
    const auto send_with_bad = [&](std::size_t at) {
        std::copy(good.begin(), good.end(), bytes.begin());
        bytes[at] ^= std::byte{1};
        (void)gathered(mkey.key(), 1024);
    };
    send_with_bad(530);
    send_with_bad(10);
    EXPECT_EQ(mkey.take_error().offset, 520u);
    send_with_bad(10);
    EXPECT_EQ(mkey.take_error().offset, 0u);
    EXPECT_EQ(mkey.take_error().type, ErrorType::none);
}

TEST_F(MkeyTest, SignatureAttributesStayUntilTheyAreReset) {
    const Domain crc{.block_size = 512, .guard = GuardType::crc32, .seed = ones};
    Mkey& mkey = make_mkey();
    ASSERT_EQ(configure(UmrEntry(mkey.key()).list({sge(0, 512)}).signature({{}, crc, 0xFF, 0})), 0);
    EXPECT_EQ(gathered(mkey.key(), 516), reference::framed(crc, memory(0, 512)));
    ASSERT_EQ(configure(UmrEntry(mkey.key()).list({sge(1024, 512)})), 0);
    EXPECT_EQ(gathered(mkey.key(), 516), reference::framed(crc, memory(1024, 512)));
    ASSERT_EQ(configure(UmrEntry(mkey.key()).no_signature()), 0);
    EXPECT_EQ(use(mkey.key(), 516, 0), Fault::protection);
    EXPECT_EQ(gathered(mkey.key(), 512), std::vector<std::byte>(memory(1024, 512).begin(), memory(1024, 512).end()));
}

TEST_F(MkeyTest, LengthsAreTheWires) {
    const Domain dif{.block_size = 512, .t10dif = true};
    const Domain crc{.block_size = 512, .guard = GuardType::crc32, .seed = ones};
    Mkey& mkey = make_mkey();
    const auto size_of = [&](std::uint32_t length, std::uint64_t offset, bool is_remote) {
        Transfer transfer;
        const ibv_sge piece{offset, length, mkey.key()};
        const auto fault = transfer.begin(is_remote ? remote(IBV_ACCESS_REMOTE_READ) : local(), {&piece, 1});
        return fault == Fault::none ? transfer.size() : ones;
    };
    ASSERT_EQ(configure(UmrEntry(mkey.key()).access(all_access).list({sge(0, 2048)}).signature({{}, dif, 0xFF, 0})), 0);
    EXPECT_EQ(size_of(2080, 0, false), 2080u);
    EXPECT_EQ(size_of(2080, 0, true), 2080u);
    EXPECT_EQ(size_of(2081, 0, false), ones) << "memory ends";
    EXPECT_EQ(size_of(520, 1560, false), 520u);
    EXPECT_EQ(size_of(521, 1560, false), ones);
    EXPECT_EQ(size_of(512, 0, false), 512u);
    // All raw data of the MKEY: its blocks with their signatures. A request from the wire says what it means.
    EXPECT_EQ(size_of(2048, 0, false), 2080u);
    EXPECT_EQ(size_of(2048, 0, true), 2048u);
    // Memory has more than the wire.
    ASSERT_EQ(configure(UmrEntry(mkey.key()).list({sge(0, 2 * 516)}).signature({crc, {}, 0xFF, 0})), 0);
    EXPECT_EQ(size_of(1024, 0, false), 1024u);
    EXPECT_EQ(size_of(1025, 0, false), ones);
    ASSERT_EQ(configure(UmrEntry(mkey.key()).list({sge(0, 2 * 516 - 1)})), 0);
    EXPECT_EQ(size_of(1023, 0, false), 1023u);
    EXPECT_EQ(size_of(1024, 0, false), ones) << "the last block's field is not in memory";
}

TEST_F(MkeyTest, RdmaCoresTestsOfSignatures) {
    // test_mlx5_mkey: 512 bytes of data, a T10-DIF wire domain at both ends, pieces of 512 bytes.
    const Domain dif{.block_size = 512, .t10dif = true, .seed = 0xFFFF, .application_tag = 0xABCD};
    Mkey& sender = make_mkey();
    Mkey& receiver = make_mkey();
    ASSERT_EQ(configure(UmrEntry(sender.key()).list({sge(0, 512)}).signature({{}, dif, 0xFF, 0})), 0);
    ASSERT_EQ(configure(UmrEntry(receiver.key())
                            .access(IBV_ACCESS_LOCAL_WRITE)
                            .list({sge(8192, 512)})
                            .signature({{}, dif, 0xFF, 0})),
              0);
    const auto wire = gathered(sender.key(), 512);
    EXPECT_EQ(wire, reference::framed(dif, memory(0, 512))) << "the wire carries the signature";
    Transfer transfer;
    const ibv_sge piece{0, 512, receiver.key()};
    ASSERT_EQ(transfer.begin(local(IBV_ACCESS_LOCAL_WRITE), {&piece, 1}), Fault::none);
    ASSERT_EQ(transfer.size(), wire.size());
    ASSERT_EQ(transfer.scatter(0, wire), Fault::none);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.begin() + 512, bytes.begin() + 8192));
    EXPECT_EQ(receiver.take_error().type, ErrorType::none);
    EXPECT_FALSE(transfer.signature_failed());
}

}  // namespace
}  // namespace ovsdr::soft
