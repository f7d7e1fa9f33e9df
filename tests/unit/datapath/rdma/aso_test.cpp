// ASO objects by DEVX commands and ACCESS_ASO requests, byte by byte: the numbers are the drivers', written out again.
#include "datapath/rdma/aso_access.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <vector>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/dr_seam.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t flow_meter = 0x24, first_hit = 0x25, connection_tracking = 0x31, encryption_key = 0x0c;
constexpr std::uint32_t pdn = 0x123456;

/// CREATE_GENERAL_OBJECT of an ASO: head of 16 bytes, object of 128.
Bytes create_command(std::uint32_t type, unsigned log_range, std::size_t size = 144) {
    Bytes in(size);
    in[0] = 0x0a;
    in[7] = static_cast<std::uint8_t>(type);
    in[12] = static_cast<std::uint8_t>(log_range);
    if (size >= 36) {
        in[33] = pdn >> 16 & 0xff;
        in[34] = pdn >> 8 & 0xff;
        in[35] = pdn & 0xff;
    }
    return in;
}

/// A request as the drivers build it.
struct Request {
    std::uint8_t opmod = 2, opcode = 0x2d;
    std::uint32_t object = 0;
    std::uint64_t read_to = 0;
    std::uint32_t lkey = 0;
    std::uint8_t mask_mode = 1, conditions = 0x11, logical = 1;
    std::uint64_t data_mask = ~0ULL;
    bool with_data = true;
    std::array<std::uint8_t, 64> data{};

    [[nodiscard]] std::vector<std::byte> bytes() const {
        std::vector<std::byte> wqe(with_data ? 128 : 64);
        const auto put = [&wqe](std::size_t at, std::uint64_t value, unsigned size) {
            for (unsigned i = 0; i < size; ++i) wqe[at + i] = std::byte(value >> 8 * (size - 1 - i) & 0xff);
        };
        put(0, opmod, 1);
        put(3, opcode, 1);
        put(12, object, 4);
        put(16, read_to == 0 ? 0 : read_to | 1, 8);
        put(24, lkey, 4);
        put(28, std::uint64_t{mask_mode} << 6, 1);
        put(29, conditions, 1);
        put(31, std::uint64_t{logical} << 6, 1);
        put(56, data_mask, 8);
        for (std::size_t i = 0; with_data && i < 64; ++i) wqe[64 + i] = std::byte{data[i]};
        return wqe;
    }
};

class Aso : public ::testing::Test {
protected:
    explicit Aso(const Profile& profile = connectx_6dx) : open(profile) {}

    mlx5dv_devx_obj* create(const Bytes& in) {
        out.assign(16, 0xee);
        return mlx5dv_devx_obj_create(open.context, in.data(), in.size(), out.data(), out.size());
    }
    [[nodiscard]] std::uint32_t number() const {
        return std::uint32_t{out[8]} << 24 | std::uint32_t{out[9]} << 16 | std::uint32_t{out[10]} << 8 | out[11];
    }
    int access(const Request& request, std::uint32_t by = pdn) {
        return access_aso(open.state, {.pdn = by, .domain = open.pd}, request.bytes());
    }
    std::array<std::uint8_t, 64> read(std::uint32_t object, std::uint8_t opmod) {
        alignas(64) std::array<std::uint8_t, 64> memory{};
        ibv_mr* region = ibv_reg_mr(open.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
        const Request request{.opmod = opmod, .object = object,
                              .read_to = reinterpret_cast<std::uintptr_t>(memory.data()), .lkey = region->lkey,
                              .with_data = false};
        EXPECT_EQ(access(request), 0);
        ibv_dereg_mr(region);
        return memory;
    }

    OpenDevice open;
    Bytes out;
};

class OldAso : public Aso {
protected:
    OldAso() : Aso(connectx_5) {}
};

TEST_F(Aso, ObjectsOfABulkHaveConsecutiveNumbers) {
    mlx5dv_devx_obj* object = create(create_command(flow_meter, 3));
    ASSERT_NE(object, nullptr);
    const std::uint32_t first = number();
    EXPECT_EQ(access({.object = first}), 0);
    EXPECT_EQ(access({.object = first + 7}), 0);
    EXPECT_EQ(access({.object = first + 8}), ENOENT);
    EXPECT_EQ(access({.object = first - 1}), ENOENT);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(object), 0);
    EXPECT_EQ(access({.object = first}), ENOENT);
}

TEST_F(Aso, WritesTheBytesThatTheMaskSelects) {
    mlx5dv_devx_obj* object = create(create_command(flow_meter, 0));
    Request write{.object = number(), .data_mask = 0x80ffffff00000000};  // as Linux writes meter 0
    write.data.fill(0x11);
    write.data[0] = 0xa3;
    ASSERT_EQ(access(write), 0);
    const auto now = read(number(), 2);
    for (unsigned i = 0; i < 64; ++i) {
        const bool written = i == 0 || (i >= 8 && i < 32);
        EXPECT_EQ(now[i], i == 0 ? 0xa3 : written ? 0x11 : 0) << i;
    }
    EXPECT_EQ(mlx5dv_devx_obj_destroy(object), 0);
}

TEST_F(Aso, ReadsTheStateBeforeTheWrite) {
    mlx5dv_devx_obj* object = create(create_command(first_hit, 0));
    ASSERT_NE(object, nullptr);
    EXPECT_FALSE(aso_bulk_of(object)->hit(10, true));
    auto expected = std::array<std::uint8_t, 64>{};
    expected[62] = 1 << 2;
    EXPECT_EQ(read(number(), 4), expected);
    alignas(64) std::array<std::uint8_t, 64> memory{};
    ibv_mr* region = ibv_reg_mr(open.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    // Read and clear, as aging does.
    ASSERT_EQ(access({.opmod = 4, .object = number(), .read_to = reinterpret_cast<std::uintptr_t>(memory.data()),
                      .lkey = region->lkey}), 0);
    EXPECT_EQ(memory, expected);
    EXPECT_EQ(read(number(), 4), (std::array<std::uint8_t, 64>{}));
    ibv_dereg_mr(region);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(object), 0);
}

TEST_F(Aso, ConditionsDecideWhetherItWrites) {
    mlx5dv_devx_obj* object = create(create_command(flow_meter, 0));
    // Operands: 0 never, 1 always; the upper one is condition 1. Operations: 0 and, 1 or.
    struct Case {
        std::uint8_t operands, logical;
        bool writes;
    };
    for (const Case& now : {Case{0x11, 0, true}, Case{0x10, 0, false}, Case{0x01, 0, false}, Case{0x10, 1, true},
                            Case{0x01, 1, true}, Case{0x00, 1, false}}) {
        Request request{.object = number(), .conditions = now.operands, .logical = now.logical};
        request.data[9] = 77;
        ASSERT_EQ(access(request), 0);
        EXPECT_EQ(read(number(), 2)[9], now.writes ? 77 : 0);
        request = {.object = number()};
        ASSERT_EQ(access(request), 0);
    }
    EXPECT_EQ(access({.object = number(), .conditions = 0x12}), EOPNOTSUPP) << "equal";
    EXPECT_EQ(access({.object = number(), .logical = 2}), EOPNOTSUPP);
    EXPECT_EQ(access({.object = number(), .mask_mode = 0}), EOPNOTSUPP) << "64 bits";
    EXPECT_EQ(access({.object = number(), .mask_mode = 2}), EOPNOTSUPP) << "calculated";
    EXPECT_EQ(mlx5dv_devx_obj_destroy(object), 0);
}

TEST_F(Aso, RefusesRequestsThatAreNotForTheObject) {
    mlx5dv_devx_obj* object = create(create_command(flow_meter, 0));
    EXPECT_EQ(access({.opmod = 4, .object = number()}), EINVAL) << "it is no first hit";
    EXPECT_EQ(access({.opcode = 0x0a, .object = number()}), EINVAL);
    EXPECT_EQ(access({.object = number()}, pdn + 1), EPERM);
    const auto whole = Request{.object = number()}.bytes();
    EXPECT_EQ(access_aso(open.state, {.pdn = pdn, .domain = open.pd}, std::span(whole).first(63)), EINVAL);
    std::array<std::uint8_t, 64> memory{};
    EXPECT_EQ(
        access({.object = number(), .read_to = reinterpret_cast<std::uintptr_t>(memory.data()) & ~1ULL, .lkey = 7}),
        EFAULT);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(object), 0);
}

TEST_F(Aso, AFaultOnDemandLeavesTheObjectAsItWas) {
    mlx5dv_devx_obj* object = create(create_command(flow_meter, 0));
    Request write{.object = number()};
    write.data[9] = 77;
    arm_fault("work_request_aso", EIO, 1);
    EXPECT_EQ(access(write), EIO);
    EXPECT_EQ(read(number(), 2)[9], 0);
    ASSERT_EQ(access(write), 0);
    EXPECT_EQ(read(number(), 2)[9], 77);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(object), 0);
}

TEST_F(Aso, QueriesByItsNumberAndType) {
    Bytes in = create_command(flow_meter, 1);
    in[80] = 0x91;
    mlx5dv_devx_obj* object = create(in);
    ASSERT_NE(object, nullptr);
    const std::uint32_t second = number() + 1;
    Bytes query(16);
    query[0] = 0x0a;
    query[1] = 0x02;
    query[7] = flow_meter;
    for (unsigned i = 0; i < 4; ++i) query[8 + i] = static_cast<std::uint8_t>(second >> (24 - 8 * i));
    Bytes answer(144, 0xee);
    ASSERT_EQ(mlx5dv_devx_obj_query(object, query.data(), query.size(), answer.data(), answer.size()), 0);
    EXPECT_EQ(answer[0], 0);
    EXPECT_EQ(answer[35], pdn & 0xff);
    EXPECT_EQ(answer[80], 0x91) << "what it was created with";
    query[7] = first_hit;
    EXPECT_EQ(mlx5dv_devx_obj_query(object, query.data(), query.size(), answer.data(), answer.size()), EINVAL);
    query[7] = flow_meter;
    query[11] = static_cast<std::uint8_t>(query[11] + 1);
    EXPECT_EQ(mlx5dv_devx_obj_query(object, query.data(), query.size(), answer.data(), answer.size()), EINVAL);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(object), 0);
}

TEST_F(Aso, RefusesWhatTheDeviceLacks) {
    errno = 0;
    EXPECT_EQ(create(create_command(encryption_key, 0)), nullptr);
    EXPECT_EQ(errno, EREMOTEIO);
    EXPECT_EQ(out[0], 0x3) << "bad parameter";
    EXPECT_EQ(create(create_command(flow_meter, 17)), nullptr);
    EXPECT_EQ(out[0], 0x3);
    EXPECT_EQ(create(create_command(flow_meter, 0, 143)), nullptr);
    EXPECT_EQ(out[0], 0x50) << "bad input length";
    const Bytes in = create_command(flow_meter, 0);
    Bytes answer(16);
    EXPECT_EQ(mlx5dv_devx_general_cmd(open.context, in.data(), in.size(), answer.data(), answer.size()), EINVAL);
}

/// general_obj_types is a 64-bit field at byte 128 of the capability; its lowest bit is type 0.
std::uint64_t general_object_types(ibv_context* context) {
    Bytes in(16), out(16 + 4096);
    in[0] = 0x01;
    in[7] = 1;
    EXPECT_EQ(mlx5dv_devx_general_cmd(context, in.data(), in.size(), out.data(), out.size()), 0);
    std::uint64_t types = 0;
    for (unsigned i = 0; i < 8; ++i) types = types << 8 | out[16 + 128 + i];
    return types;
}

TEST_F(Aso, AnnouncesMetersFirstHitsAndConnectionTracking) {
    const std::uint64_t types = general_object_types(open.context);
    EXPECT_EQ(types >> flow_meter & 1, 1U);
    EXPECT_EQ(types >> first_hit & 1, 1U);
    EXPECT_EQ(types >> connection_tracking & 1, 1U);
    Bytes in(16), qos(16 + 4096);
    in[0] = 0x01;
    in[7] = 0xc << 1 | 1;
    ASSERT_EQ(mlx5dv_devx_general_cmd(open.context, in.data(), in.size(), qos.data(), qos.size()), 0);
    EXPECT_EQ(qos[16 + 0] & 1, 1) << "flow_meter_old";
    EXPECT_EQ(qos[16 + 3], 0xfc) << "flow_meter_reg_id";
    EXPECT_EQ(qos[16 + 37], 16) << "log_meter_aso_max_alloc";
}

TEST_F(OldAso, ConnectX5HasNone) {
    const std::uint64_t types = general_object_types(open.context);
    EXPECT_EQ(types & (1ULL << flow_meter | 1ULL << first_hit | 1ULL << connection_tracking), 0U);
    for (const std::uint32_t type : {flow_meter, first_hit, connection_tracking}) {
        EXPECT_EQ(create(create_command(type, 0)), nullptr);
        EXPECT_EQ(errno, EREMOTEIO);
        EXPECT_EQ(out[0], 0x3);
    }
}

TEST_F(Aso, ActionsTakeObjectsOfTheirKindOnly) {
    mlx5dv_dr_domain* domain = mlx5dv_dr_domain_create(open.context, MLX5DV_DR_DOMAIN_TYPE_FDB);
    mlx5dv_devx_obj* meters = create(create_command(flow_meter, 0));
    mlx5dv_dr_action* action =
        mlx5dv_dr_action_create_aso(domain, meters, 1, MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_GREEN, 5);
    ASSERT_NE(action, nullptr);
    EXPECT_EQ(mlx5dv_dr_action_modify_aso(action, 0, MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_RED, 1), 0);
    EXPECT_EQ(mlx5dv_dr_action_modify_aso(action, 2, MLX5DV_DR_ACTION_FLAGS_ASO_FLOW_METER_RED, 1), EINVAL);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_link(meters, domain, domain, 1, 3), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_unlink(meters, domain), EINVAL);
    EXPECT_EQ(mlx5dv_dr_action_destroy(action), 0);
    Bytes counters(16);
    counters[0] = 0x09;
    counters[1] = 0x39;
    mlx5dv_devx_obj* counter = create(counters);
    ASSERT_NE(counter, nullptr);
    EXPECT_EQ(mlx5dv_dr_action_create_aso(domain, counter, 0, 1, 3), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    mlx5dv_dr_action* drop = mlx5dv_dr_action_create_drop();
    EXPECT_EQ(mlx5dv_dr_action_modify_aso(drop, 0, 1, 3), EINVAL);
    EXPECT_EQ(mlx5dv_dr_action_destroy(drop), 0);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(counter), 0);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(meters), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(domain), 0);
}

TEST_F(Aso, ConnectionsAreWrittenReadAndLinked) {
    mlx5dv_devx_obj* connections = create(create_command(connection_tracking, 1));
    ASSERT_NE(connections, nullptr);
    Request write{.opmod = 1, .object = number() + 1};
    write.data.fill(0x5a);
    ASSERT_EQ(access(write), 0);
    EXPECT_EQ(read(number() + 1, 1), write.data);
    EXPECT_EQ(read(number(), 1), (std::array<std::uint8_t, 64>{}));
    EXPECT_EQ(access({.opmod = 2, .object = number()}), EINVAL) << "it is no meter";
    constexpr std::uint32_t initiator = MLX5DV_DR_ACTION_FLAGS_ASO_CT_DIRECTION_INITIATOR,
                            responder = MLX5DV_DR_ACTION_FLAGS_ASO_CT_DIRECTION_RESPONDER;
    mlx5dv_dr_domain* domain = mlx5dv_dr_domain_create(open.context, MLX5DV_DR_DOMAIN_TYPE_FDB);
    mlx5dv_dr_domain* other = mlx5dv_dr_domain_create(open.context, MLX5DV_DR_DOMAIN_TYPE_FDB);
    mlx5dv_dr_action* action = mlx5dv_dr_action_create_aso(domain, connections, 1, initiator, 3);
    ASSERT_NE(action, nullptr);
    EXPECT_EQ(mlx5dv_dr_action_modify_aso(action, 0, responder, 5), 0);
    EXPECT_EQ(mlx5dv_dr_action_modify_aso(action, 0, 0, 5), EINVAL);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_link(connections, domain, other, 0, 3), EINVAL);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_unlink(connections, other), EINVAL);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_link(connections, domain, other, initiator, 3), 0);
    EXPECT_EQ(mlx5dv_dr_action_modify_aso(action, 0, initiator, 5), EOPNOTSUPP) << "linked";
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_unlink(connections, other), 0);
    EXPECT_EQ(mlx5dv_dr_action_destroy(action), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(other), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(domain), 0);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(connections), 0);
}

TEST_F(OldAso, ConnectX5RefusesActionsAndUnlinking) {
    mlx5dv_dr_domain* domain = mlx5dv_dr_domain_create(open.context, MLX5DV_DR_DOMAIN_TYPE_FDB);
    Bytes counters(16);
    counters[0] = 0x09;
    counters[1] = 0x39;
    mlx5dv_devx_obj* counter = create(counters);
    EXPECT_EQ(mlx5dv_dr_action_create_aso(domain, counter, 0, 1, 3), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_unlink(counter, domain), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(counter), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(domain), 0);
}

}  // namespace
}  // namespace ovsdr::soft::test
