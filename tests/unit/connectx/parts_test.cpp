// Parts of the emulated ConnectX that need no device: bit fields, numbers, stores, faults.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <vector>

#include "tests/connectx/address_plan.hpp"
#include "tests/connectx/bits.hpp"
#include "tests/connectx/fault_plan.hpp"
#include "tests/connectx/host_memory.hpp"
#include "tests/connectx/icm.hpp"
#include "tests/connectx/id_space.hpp"
#include "tests/connectx/layouts.hpp"
#include "tests/connectx/store.hpp"

namespace ovsdr::connectx {
namespace {

TEST(Bits, AreCountedFromTheMostSignificantOfTheFirstByte) {
    std::vector<std::uint8_t> bytes(4);
    set(bytes, {0, 1}, 1);
    set(bytes, {12, 8}, 0xAB);
    EXPECT_EQ(bytes, (std::vector<std::uint8_t>{0x80, 0x0A, 0xB0, 0x00}));
    EXPECT_EQ(get(bytes, {12, 8}), 0xABU);
    set(bytes, {12, 8}, 0x100);   // what does not fit is cut off
    EXPECT_EQ(get(bytes, {12, 8}), 0U);
    EXPECT_EQ(bytes[0], 0x80);
}

TEST(Bits, OfInnerStructuresAddUp) {
    using namespace layout;
    const Field cqn = create_qp_in::qpc / qpc::cqn_snd;
    EXPECT_EQ(cqn.offset, create_qp_in::qpc.offset + qpc::cqn_snd.offset);
    EXPECT_EQ(cqn.width, 24U);
}

TEST(Bits, BehindTheEndAreRefused) {
    std::vector<std::uint8_t> bytes(4);
    EXPECT_THROW((void)get(bytes, {25, 8}), InputTooShort);
    EXPECT_THROW(set(bytes, {25, 8}, 0), OutputTooShort);
}

TEST(IdSpace, GivesRangesThatDoNotOverlap) {
    IdSpace ids(0x100, 0xFFF);
    const std::uint32_t one = ids.allocate(), many = ids.allocate(64), next = ids.allocate();
    EXPECT_EQ(many % 64, 0U);
    EXPECT_GT(many, one);
    EXPECT_GE(next, many + 64);
}

TEST(IdSpace, DoesNotGiveANumberAgainBeforeTheOthers) {
    IdSpace ids(1, 4);
    const std::uint32_t first = ids.allocate();
    ids.release(first);
    for (int i = 0; i < 3; ++i) EXPECT_NE(ids.allocate(), first);
    EXPECT_EQ(ids.allocate(), first);
    EXPECT_THROW((void)ids.allocate(), BadStatus);
}

TEST(IdSpace, FindsRoomBetweenRangesAfterTheEnd) {
    IdSpace ids(0, 31);
    const std::uint32_t low = ids.allocate(16);
    EXPECT_EQ(ids.allocate(8), 16U);
    ids.release(low);
    EXPECT_EQ(ids.allocate(8), 24U);
    EXPECT_EQ(ids.allocate(16), 0U);
}

/// The value of `mov %r9,(%rax)` and its like, by what compilers make of MMIO writes.
TEST(Store, IsReadOutOfTheInstruction) {
    mcontext_t context{};
    context.gregs[REG_RAX] = 0x1122334455667788;
    context.gregs[REG_R9] = 0x0102030405060708;
    const auto decoded = [&](std::vector<std::uint8_t> code) {
        code.resize(16);
        return decode_store(code.data(), context);
    };
    struct {
        std::vector<std::uint8_t> code;
        std::size_t size, width;
        std::uint64_t value;
    } const cases[] = {
        {{0x48, 0x89, 0x02}, 3, 8, 0x1122334455667788},                     // mov %rax,(%rdx)
        {{0x89, 0x02}, 2, 4, 0x55667788},                                   // mov %eax,(%rdx)
        {{0x4c, 0x89, 0x0a}, 3, 8, 0x0102030405060708},                     // mov %r9,(%rdx)
        {{0x48, 0x89, 0x42, 0x20}, 4, 8, 0x1122334455667788},               // mov %rax,0x20(%rdx)
        {{0x48, 0x89, 0x82, 0, 8, 0, 0}, 7, 8, 0x1122334455667788},         // mov %rax,0x800(%rdx)
        {{0x48, 0x89, 0x04, 0x0a}, 4, 8, 0x1122334455667788},               // mov %rax,(%rdx,%rcx)
        {{0x4a, 0x89, 0x44, 0x22, 0x10}, 5, 8, 0x1122334455667788},         // mov %rax,0x10(%rdx,%r12)
        {{0x48, 0x89, 0x05, 1, 2, 3, 4}, 7, 8, 0x1122334455667788},         // mov %rax,0x4030201(%rip)
        {{0x48, 0x89, 0x04, 0x25, 1, 2, 3, 4}, 8, 8, 0x1122334455667788},   // mov %rax,0x4030201
        {{0x49, 0x89, 0x84, 0x24, 0, 8, 0, 0}, 8, 8, 0x1122334455667788},   // mov %rax,0x800(%r12)
    };
    for (const auto& one : cases) {
        const auto store = decoded(one.code);
        ASSERT_TRUE(store);
        EXPECT_EQ(store->instruction_size, one.size);
        EXPECT_EQ(store->width, one.width);
        EXPECT_EQ(store->value, one.value);
    }
    EXPECT_FALSE(decoded({0x48, 0x8b, 0x02}));   // a load
    EXPECT_FALSE(decoded({0x48, 0x89, 0xc2}));   // to a register
    EXPECT_FALSE(decoded({0x0f, 0x11, 0x02}));   // movups
}

TEST(FaultPlan, FailsTheNthCallOfANameOnce) {
    FaultPlan plan;
    plan.add_list("QP_CREATE@2=EBUSY,*@3");
    EXPECT_FALSE(plan.due("QP_CREATE", true));
    EXPECT_FALSE(plan.due("PD_DESTROY", false));
    EXPECT_EQ(plan.due("QP_CREATE", true), EBUSY);
    EXPECT_EQ(plan.due("QP_CREATE", true), ENOMEM);   // the third that makes something
    EXPECT_FALSE(plan.due("QP_CREATE", true));
    EXPECT_EQ(plan.clear(), 0U);
}

TEST(FaultPlan, FailsAsOftenAsItIsAsked) {
    FaultPlan plan;
    plan.add("QP_CREATE", 2, EBUSY, 3);
    EXPECT_FALSE(plan.due("QP_CREATE", true));
    for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(plan.due("QP_CREATE", true), EBUSY);
    EXPECT_FALSE(plan.due("QP_CREATE", true));
    EXPECT_EQ(plan.clear(), 0U);
}

TEST(FaultPlan, SaysWhatItDoesNotUnderstand) {
    for (const char* bad : {"QP_CREATE", "QP_CREATE@", "QP_CREATE@0", "QP_CREATE@x", "QP_CREATE@1=EWHAT"}) {
        FaultPlan plan;
        EXPECT_THROW(plan.add_list(bad), std::invalid_argument) << bad;
    }
}

TEST(Icm, IsAlignedToItsSizeAndBounded) {
    Icm icm({20, 20, 20});
    const std::uint64_t small = icm.allocate(IcmType::steering, 100), large = icm.allocate(IcmType::steering, 0x10000);
    EXPECT_EQ(large % 0x10000, 0U);
    EXPECT_NE(icm.at(small, 4096), nullptr);
    EXPECT_EQ(icm.at(small, 4097), nullptr);
    EXPECT_EQ(icm.at(small + 4090, 7), nullptr);
    EXPECT_EQ(icm.bytes_alive(), 4096U + 0x10000);
    icm.release(small);
    EXPECT_EQ(icm.at(small, 1), nullptr);
    EXPECT_EQ(icm.allocate(IcmType::steering, 4096), small);
    EXPECT_THROW((void)icm.allocate(IcmType::steering, 1U << 20), Refused);
    EXPECT_EQ(icm.allocate(IcmType::modify_header, 1U << 20), address_plan::modify_header);
    EXPECT_THROW((void)icm.allocate(static_cast<IcmType>(4), 1), NotEmulated);
}

TEST(HostMemory, GrantsWhatAKeyIsFor) {
    const Icm icm({20, 20, 20});
    std::array<std::uint8_t, 64> bytes{};
    constexpr std::uint32_t domain = 7;
    HostMemory host;
    host.keys[0x100] = {.first = 0x5000,
                        .size = 64,
                        .memory = bytes.data(),
                        .icm_address = {},
                        .access = MemoryKey::remote_read,
                        .protection_domain = domain};
    const auto at = [&](std::uint32_t key, std::uint64_t address, std::uint64_t size, std::uint32_t access) {
        return host.at(icm, {key, address, size, access, domain});
    };
    EXPECT_EQ(at(0x100, 0x5000, 64, MemoryKey::remote_read), bytes.data());
    EXPECT_EQ(at(0x100, 0x503F, 1, MemoryKey::local_read), bytes.data() + 63);
    EXPECT_EQ(at(0x100, 0x5000, 64, MemoryKey::remote_write), nullptr);
    EXPECT_EQ(at(0x100, 0x5001, 64, MemoryKey::remote_read), nullptr);
    EXPECT_EQ(at(0x100, 0x4FFF, 1, MemoryKey::remote_read), nullptr);
    EXPECT_EQ(at(0x200, 0x5000, 1, MemoryKey::local_read), nullptr);
    EXPECT_EQ(host.at(icm, {0x100, 0x5000, 1, MemoryKey::local_read, domain + 1}), nullptr);
}

TEST(AddressPlan, KnowsWhatItGaveOut) {
    using Kind = AddressOwner::Kind;
    EXPECT_EQ(address_plan::owner_of(address_plan::fdb_tx_drop).kind, Kind::drop);
    EXPECT_EQ(address_plan::owner_of(address_plan::fdb_tx_drop + 64).kind, Kind::nothing);
    EXPECT_EQ(address_plan::owner_of(address_plan::nic_tx_allow).kind, Kind::nic_tx_allow);
    const AddressOwner wire = address_plan::owner_of(address_plan::of(address_plan::vport_tx, 0xFFFF));
    EXPECT_EQ(wire.kind, Kind::vport_tx);
    EXPECT_EQ(wire.number, 0xFFFFU);
    const AddressOwner table = address_plan::owner_of(address_plan::of(address_plan::table, 7, 1));
    EXPECT_EQ(table.kind, Kind::table);
    EXPECT_EQ(table.number, 7U);
    EXPECT_EQ(table.side, 1U);
}

}   // namespace
}   // namespace ovsdr::connectx
