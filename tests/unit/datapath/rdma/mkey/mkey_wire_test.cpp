// MKEYs under the transport: what a frame carries, what arrives, what fails, and where a queue stops.
#include "datapath/rdma/mkey/mkey.hpp"
#include "tests/unit/datapath/rdma/mkey/umr_entry.hpp"
#include "tests/unit/datapath/rdma/roce/two_nodes.hpp"
#include "tests/unit/datapath/signature/reference.hpp"

namespace ovsdr::soft::roce::test {
namespace {

using signature::ErrorType;
using signature::GuardType;
using SignatureDomain = signature::Domain;
using soft::test::UmrEntry;

constexpr unsigned all_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

const SignatureDomain dif{.block_size = 512,
                          .t10dif = true,
                          .guard = GuardType::t10_crc,
                          .seed = 0xFFFF,
                          .application_tag = 0xABCD,
                          .reference_tag = 0x01234567,
                          .increment_reference_tag = true};
const SignatureDomain crc{.block_size = 4096, .guard = GuardType::crc64_xp10, .seed = ~std::uint64_t{0}};

/// An MKEY of a queue's domain, over the start of its memory.
struct Key {
    Key(Queue& of, bool remote_invalidate = false)
        : queue(of),
          mkey({.domain = &of, .max_entries = 4, .has_signature = true, .remote_invalidate = remote_invalidate}) {
        EXPECT_EQ(queue.node.state().memory().add(mkey), 0);
    }
    ~Key() { queue.node.state().memory().remove(mkey.key()); }

    void post(const UmrEntry& umr, bool signaled = false) {
        std::vector<std::byte> entry = umr.bytes();
        mlx5_wqe_ctrl_seg control;
        std::memcpy(&control, entry.data(), sizeof control);
        mlx5dv_set_ctrl_seg(&control, static_cast<std::uint16_t>(queue.posted), MLX5_OPCODE_UMR, 0, queue.number(),
                            signaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0, static_cast<std::uint8_t>(entry.size() / 16), 0,
                            control.imm);
        std::memcpy(entry.data(), &control, sizeof control);
        for (std::size_t at = 0; at < entry.size(); at += 64, ++queue.posted) {
            std::memcpy(queue.send_ring + queue.posted % Queue::ring_length * 64, entry.data() + at,
                        std::min<std::size_t>(64, entry.size() - at));
        }
        queue.send_doorbell = htobe32(queue.posted & 0xffff);
        queue.pair->ring_send();
    }
    void configure(std::size_t size, const signature::Attributes& attributes) {
        UmrEntry entry = UmrEntry(mkey.key()).access(all_access).list({queue.piece(0, size)});
        if (attributes.memory.present() || attributes.wire.present()) {
            entry.signature(attributes, attributes.memory.same_structure(attributes.wire));
        }
        post(entry);
    }
    ibv_sge piece(std::size_t size) const { return {0, static_cast<std::uint32_t>(size), mkey.key()}; }

    Queue& queue;
    Mkey mkey;
};

struct MkeyWireTest : TwoNodes {
    Queue client{left, {.stops_at_signature_errors = true}}, server{right, {}};
    Key local{client}, remote{server, true};
    /// Payloads of SENDs, WRITEs and READ responses, by their sequence number.
    std::map<std::uint32_t, std::vector<std::byte>> payloads;

    void SetUp() override {
        client.connect(server);
        server.connect(client);
        fill(client.memory, 1);
        fill(server.memory, 2);
        wire = [this](const Frame& frame, bool) {
            keep(frame);
            return 1u;
        };
    }
    /// IPv4 with RoCE: BTH at 42. Extensions: RETH 16 bytes, AETH 4.
    void keep(const Frame& frame) {
        const auto byte = [&](std::size_t at) { return std::to_integer<unsigned>(frame[at]); };
        const unsigned opcode = byte(42);
        std::size_t start = 54;
        if (opcode == 6 || opcode == 10) start += 16;                  // WRITE first, only
        if (opcode == 13 || opcode == 15 || opcode == 16) start += 4;  // READ response first, last, only
        if (opcode == 12 || opcode > 16) return;                       // READ request, acknowledgements, atomics
        const std::size_t size = frame.size() - start - 4 - (byte(43) >> 4 & 3);
        const std::uint32_t psn = ((byte(51) << 16 | byte(52) << 8 | byte(53)) + 16) & 0xffffff;
        payloads[psn].assign(frame.begin() + static_cast<long>(start), frame.begin() + static_cast<long>(start + size));
    }
    std::vector<std::byte> on_the_wire() const {
        std::vector<std::byte> all;
        for (const auto& [psn, payload] : payloads) all.insert(all.end(), payload.begin(), payload.end());
        return all;
    }
    static std::vector<std::byte> start_of(const Queue& queue, std::size_t size) {
        return {queue.memory.begin(), queue.memory.begin() + static_cast<long>(size)};
    }
    void expect_success(std::size_t completions = 1) {
        const auto done = client.sends();
        ASSERT_EQ(done.size(), completions);
        for (const Completion& completion : done) EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    }
};

TEST_F(MkeyWireTest, ASendCarriesWhatItsKeyGeneratesAndTheReceiverStripsIt) {
    local.configure(4096, {{}, dif, 0xFF, 0});
    remote.configure(4104, {crc, dif, 0xFF, 0});
    server.post_receive(1, {remote.piece(4160)});
    client.post({.sges = {local.piece(4160)}});
    run();
    expect_success();
    ASSERT_EQ(server.receives_done().size(), 1U);
    const auto raw = start_of(client, 4096);
    EXPECT_EQ(on_the_wire(), reference::framed(dif, raw));
    EXPECT_EQ(start_of(server, 4104), reference::framed(crc, raw));
    EXPECT_EQ(local.mkey.take_error().type, ErrorType::none);
    EXPECT_EQ(remote.mkey.take_error().type, ErrorType::none);
}

TEST_F(MkeyWireTest, AWriteGoesThroughBothKeys) {
    const auto raw = start_of(client, 4096);
    const auto stored = reference::framed(crc, raw);
    std::copy(stored.begin(), stored.end(), client.memory.begin());
    local.configure(4104, {crc, dif, 0xFF, 0});
    remote.configure(4160, {dif, dif, 0xFF, 0xFF});
    run();
    client.post(
        {.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {local.piece(4160)}, .remote = 0, .rkey = remote.mkey.key()});
    run();
    expect_success();
    EXPECT_EQ(on_the_wire(), reference::framed(dif, raw));
    EXPECT_EQ(start_of(server, 4160), reference::framed(dif, raw));
    EXPECT_EQ(remote.mkey.take_error().type, ErrorType::none);
}

TEST_F(MkeyWireTest, AReadGoesThroughBothKeys) {
    const auto raw = start_of(server, 4096);
    local.configure(4104, {crc, dif, 0xFF, 0});
    remote.configure(4096, {{}, dif, 0xFF, 0});
    run();
    client.post({.opcode = MLX5_OPCODE_RDMA_READ, .sges = {local.piece(4160)}, .remote = 0, .rkey = remote.mkey.key()});
    run();
    expect_success();
    EXPECT_EQ(on_the_wire(), reference::framed(dif, raw));
    EXPECT_EQ(start_of(client, 4104), reference::framed(crc, raw));
    EXPECT_EQ(local.mkey.take_error().type, ErrorType::none);
}

TEST_F(MkeyWireTest, LossChangesNothing) {
    const SignatureDomain odd{.block_size = 520, .guard = GuardType::crc32c, .seed = 0xFFFFFFFF};
    std::mt19937 random(3);
    wire = [&](const Frame&, bool) { return random() % 10 == 0 ? 0u : 1u; };
    local.configure(52000, {{}, odd, 0xFF, 0});
    remote.configure(52000, {{}, odd, 0xFF, 0});
    run();
    for (int round = 0; round < 4; ++round) {
        fill(client.memory, 10 + static_cast<unsigned>(round));
        client.post(
            {.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {local.piece(52400)}, .remote = 0, .rkey = remote.mkey.key()});
        run();
        expect_success();
        ASSERT_EQ(start_of(server, 52000), start_of(client, 52000));
        fill(server.memory, 20 + static_cast<unsigned>(round));
        client.post(
            {.opcode = MLX5_OPCODE_RDMA_READ, .sges = {local.piece(52400)}, .remote = 0, .rkey = remote.mkey.key()});
        run();
        expect_success();
        ASSERT_EQ(start_of(server, 52000), start_of(client, 52000));
        ASSERT_EQ(local.mkey.take_error().type, ErrorType::none);
        ASSERT_EQ(remote.mkey.take_error().type, ErrorType::none);
    }
}

TEST_F(MkeyWireTest, ConfigurationTakesEffectInTheOrderOfTheQueue) {
    local.post(UmrEntry(local.mkey.key()).access(0).list({client.piece(0, 64)}), true);
    server.post_receive(1, {server.piece(0, 64)});
    server.post_receive(2, {server.piece(64, 64)});
    client.post({.sges = {local.piece(64)}});
    local.post(UmrEntry(local.mkey.key()).list({client.piece(5000, 64)}), true);
    client.post({.sges = {local.piece(64)}});
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 4U);
    EXPECT_EQ(done[0].opcode, IBV_WC_DRIVER1);
    EXPECT_EQ(done[1].opcode, IBV_WC_SEND);
    EXPECT_EQ(done[2].opcode, IBV_WC_DRIVER1);
    EXPECT_TRUE(std::equal(server.memory.begin(), server.memory.begin() + 64, client.memory.begin()));
    EXPECT_TRUE(std::equal(server.memory.begin() + 64, server.memory.begin() + 128, client.memory.begin() + 5000));
}

TEST_F(MkeyWireTest, AConfigurationThatFailsCompletesWithAnError) {
    local.post(UmrEntry(client.region.key).list({client.piece(0, 64)}), true);
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, IBV_WC_MW_BIND_ERR);
    EXPECT_EQ(client.pair->state(), IBV_QPS_ERR);
}

TEST_F(MkeyWireTest, AnEntryThatMakesNoSenseIsAnOperationError) {
    UmrEntry entry(local.mkey.key());
    entry.flags = 0;  // not inline
    local.post(entry, true);
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, IBV_WC_LOC_QP_OP_ERR);
    EXPECT_EQ(client.pair->state(), IBV_QPS_ERR);
}

TEST_F(MkeyWireTest, ARegionsKeyCannotBeInvalidated) {
    client.post({.opcode = MLX5_OPCODE_LOCAL_INVAL, .immediate = htobe32(client.region.key)});
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, IBV_WC_MW_BIND_ERR);
}

TEST_F(MkeyWireTest, AKeyThatWasInvalidatedFailsItsNextUse) {
    local.configure(64, {});
    server.post_receive(1, {server.piece(0, 64)});
    client.post({.sges = {local.piece(64)}, .signaled = false});
    client.post({.opcode = MLX5_OPCODE_LOCAL_INVAL, .immediate = htobe32(local.mkey.key())});
    client.post({.sges = {local.piece(64)}});
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].opcode, IBV_WC_LOCAL_INV);
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[1].status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(MkeyWireTest, AnEntryThatFreesAKeyFailsItsNextUse) {
    local.configure(64, {});
    server.post_receive(1, {server.piece(0, 64)});
    client.post({.sges = {local.piece(64)}, .signaled = false});
    UmrEntry free(local.mkey.key());
    free.context.free = MLX5_WQE_MKEY_CONTEXT_FREE;
    local.post(free, true);
    client.post({.sges = {local.piece(64)}});
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[1].status, IBV_WC_LOC_PROT_ERR);
}

/// As windows of type 2 are bound.
TEST_F(MkeyWireTest, AKeyThatIsBoundToAQueuePairIsUsedAndFreedThroughIt) {
    UmrEntry bound = UmrEntry(remote.mkey.key()).access(all_access).list({server.piece(0, 64)});
    bound.mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN;
    bound.context.qpn_mkey = htobe32(server.number() << 8 | (remote.mkey.key() & 0xff));
    remote.post(bound, true);
    run();
    EXPECT_EQ(server.sends().at(0).status, IBV_WC_SUCCESS);
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 64)}, .rkey = remote.mkey.key()});
    run();
    expect_success();
    EXPECT_EQ(start_of(server, 64), start_of(client, 64));
    server.post_receive(1, {});
    client.post({.opcode = MLX5_OPCODE_SEND_INVAL, .immediate = htobe32(remote.mkey.key())});
    run();
    expect_success();
    EXPECT_TRUE(Mkey::Reading(remote.mkey)->free);
}

TEST_F(MkeyWireTest, ThePeerMayInvalidateAKeyMadeForIt) {
    remote.configure(64, {});
    server.post_receive(1, {});
    run();
    client.post({.opcode = MLX5_OPCODE_SEND_INVAL, .immediate = htobe32(remote.mkey.key()), .wr_id = 1});
    run();
    expect_success();
    const auto got = server.receives_done();
    ASSERT_EQ(got.size(), 1U);
    EXPECT_TRUE(got[0].wc_flags & IBV_WC_WITH_INV);
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 8)}, .rkey = remote.mkey.key()});
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MkeyWireTest, RemoteRightsAreTheKeys) {
    remote.post(UmrEntry(remote.mkey.key()).access(IBV_ACCESS_REMOTE_READ).list({server.piece(0, 64)}));
    run();
    client.post({.opcode = MLX5_OPCODE_RDMA_READ, .sges = {client.piece(0, 64)}, .rkey = remote.mkey.key()});
    client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 8)}, .rkey = remote.mkey.key()});
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[1].status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_TRUE(std::equal(client.memory.begin(), client.memory.begin() + 64, server.memory.begin()));
}

TEST_F(MkeyWireTest, AtomicsReachThroughAKey) {
    remote.post(UmrEntry(remote.mkey.key()).access(IBV_ACCESS_REMOTE_ATOMIC).list({server.piece(128, 8)}));
    run();
    std::uint64_t before, after;
    std::memcpy(&before, server.memory.data() + 128, 8);
    client.post(
        {.opcode = MLX5_OPCODE_ATOMIC_FA, .sges = {client.piece(0, 8)}, .rkey = remote.mkey.key(), .swap_add = 5});
    run();
    expect_success();
    std::memcpy(&after, server.memory.data() + 128, 8);
    EXPECT_EQ(after, before + 5);
    std::memcpy(&after, client.memory.data(), 8);
    EXPECT_EQ(after, before);
}

TEST_F(MkeyWireTest, AQueueForPipeliningStopsBehindABadSignature) {
    const SignatureDomain domain{.block_size = 512, .guard = GuardType::crc32};
    constexpr std::uint8_t fence = 4;  // what IBV_SEND_FENCE becomes
    for (const bool reads : {false, true}) {
        SCOPED_TRACE(reads ? "read" : "write");
        client.events.clear();
        remote.configure(512, {});
        local.configure(
            516, reads ? signature::Attributes{{}, domain, 0xF0, 0} : signature::Attributes{domain, {}, 0xF0, 0});
        if (reads) remote.configure(516, {});  // whose last four bytes are no CRC
        run();
        server.post_receive(1, {server.piece(8000, 16)});
        client.post({.opcode = static_cast<std::uint8_t>(reads ? MLX5_OPCODE_RDMA_READ : MLX5_OPCODE_RDMA_WRITE),
                     .sges = {local.piece(reads ? 516 : 512)},
                     .rkey = remote.mkey.key(),
                     .signaled = false});
        client.post({.sges = {client.piece(9000, 16)}, .fence = fence, .wr_id = 7});
        EXPECT_EQ(client.pair->drained_at(), std::nullopt);
        run();
        EXPECT_EQ(client.pair->state(), IBV_QPS_SQD);
        EXPECT_EQ(client.events, std::vector{IBV_EVENT_SQ_DRAINED});
        EXPECT_EQ(client.pair->drained_at(), std::uint64_t{client.posted - 1});
        EXPECT_TRUE(client.sends().empty());
        EXPECT_TRUE(server.receives_done().empty());
        EXPECT_EQ(local.mkey.take_error().type, ErrorType::guard);
        ASSERT_EQ(client.to(IBV_QPS_RTS), 0);
        run();
        expect_success();
        EXPECT_EQ(server.receives_done().size(), 1U);
        EXPECT_EQ(client.pair->drained_at(), std::nullopt);
    }
}

TEST_F(MkeyWireTest, OtherQueuesGoOn) {
    const SignatureDomain domain{.block_size = 512, .guard = GuardType::crc32};
    remote.configure(516, {domain, {}, 0xF0, 0});  // the server's queue does not stop
    local.configure(512, {});
    run();
    server.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {remote.piece(512)}, .rkey = local.mkey.key()});
    run();
    EXPECT_EQ(server.sends().size(), 1U);
    EXPECT_EQ(server.pair->state(), IBV_QPS_RTS);
    EXPECT_TRUE(server.events.empty() || server.events == std::vector{IBV_EVENT_COMM_EST});
    EXPECT_EQ(remote.mkey.take_error().type, ErrorType::guard);
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
