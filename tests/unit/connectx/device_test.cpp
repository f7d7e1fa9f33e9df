// The emulated ConnectX under the system's own libibverbs and libmlx5: runs under tests/connectx/run, for each profile.
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <thread>

#include "tests/connectx/address_plan.hpp"
#include "tests/unit/connectx/emulated_device.hpp"

namespace ovsdr::connectx {
namespace {

using namespace test;

constexpr mlx5dv_dr_domain_type domain_types[] = {MLX5DV_DR_DOMAIN_TYPE_NIC_RX, MLX5DV_DR_DOMAIN_TYPE_NIC_TX,
                                                  MLX5DV_DR_DOMAIN_TYPE_FDB};

TEST_F(EmulatedDevice, IsOfItsProfile) {
    const std::string profile = std::getenv("OVSDR_CONNECTX_PROFILE");
    const std::map<std::string, unsigned> formats{{"cx5", 0}, {"cx6dx", 1}, {"cx7", 2}};
    EXPECT_EQ(device()->steering_format(), formats.at(profile));
    ibv_device_attr attributes{};
    ASSERT_EQ(ibv_query_device(context_.get(), &attributes), 0);
    const std::map<std::string, std::uint32_t> parts{{"cx5", 0x1017}, {"cx6dx", 0x101d}, {"cx7", 0x1021}};
    EXPECT_EQ(attributes.vendor_part_id, parts.at(profile));
}

TEST_F(EmulatedDevice, ShowsTheWireTheManagerAndItsVfsAsIbPorts) {
    std::vector<std::uint16_t> vports;
    mlx5dv_port port{};
    for (std::uint32_t number = 1; mlx5dv_query_port(context_.get(), number, &port) == 0; ++number) {
        vports.push_back(port.vport);
        EXPECT_EQ((port.flags & MLX5DV_QUERY_PORT_VPORT_VHCA_ID) == 0, port.vport == 0xFFFF);
        EXPECT_EQ(port.reg_c0.value & ~port.reg_c0.mask, 0U);
    }
    EXPECT_EQ(vports, (std::vector<std::uint16_t>{0xFFFF, 0, 1, 2}));
    device()->set_vport(2, false);
    EXPECT_EQ(mlx5dv_query_port(context_.get(), 4, &port), EOPNOTSUPP);
    device()->set_vport(2, true);
    EXPECT_EQ(mlx5dv_query_port(context_.get(), 4, &port), 0);
}

TEST_F(EmulatedDevice, TakesRulesOfEachDomainAndLeavesNothing) {
    for (const auto type : domain_types) {
        const std::uint64_t written = device()->icm_bytes_written();
        Rules rules(context_.get(), type);
        ASSERT_NE(rules.matcher, nullptr) << type << strerror(errno);
        mlx5dv_dr_action* drop = rules.add(mlx5dv_dr_action_create_drop());
        for (std::uint64_t i = 1; i <= 1000; ++i) {
            rules.rules.push_back(rules.rule(i, {drop}));
            ASSERT_NE(rules.rules.back(), nullptr) << strerror(errno);
        }
        EXPECT_GT(device()->icm_bytes_written(), written + 1000 * 64);
        const auto tables = device()->tables();
        ASSERT_EQ(tables.size(), 1U);
        EXPECT_TRUE(tables[0].sw_owner);
        EXPECT_EQ(tables[0].level, 63U);   // whatever the level that libmlx5 was asked for
        EXPECT_NE(device()->icm(tables[0].icm[0], 64), nullptr);
        EXPECT_EQ(device()->owner_of(tables[0].icm[0]).kind, AddressOwner::Kind::entries);
        EXPECT_EQ(device()->icm(tables[0].icm[1], 64) != nullptr, type == MLX5DV_DR_DOMAIN_TYPE_FDB);
    }
}

TEST_F(EmulatedDevice, HasTheValueOfARuleInItsMemory) {
    constexpr std::uint64_t smac = 0x02A1B2C3D4E5;
    const std::uint8_t bytes[] = {0x02, 0xA1, 0xB2, 0xC3, 0xD4, 0xE5};
    Rules rules(context_.get(), MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
    mlx5dv_dr_action* drop = rules.add(mlx5dv_dr_action_create_drop());
    const auto holds = [&] {
        // All that was allocated: regions begin at multiples of their size.
        for (std::uint64_t at = address_plan::steering; at < address_plan::steering + (1U << 26); at += 4096) {
            const std::uint8_t* page = device()->icm(at, 4096);
            if (page != nullptr && std::search(page, page + 4096, bytes, bytes + 4) != page + 4096) return true;
        }
        return false;
    };
    EXPECT_FALSE(holds());
    const Rule rule = rules.rule(smac, {drop});
    ASSERT_NE(rule, nullptr);
    EXPECT_TRUE(holds());
}

TEST_F(EmulatedDevice, ShowsRulesOfRootTablesAsTheyCame) {
    Rules root(context_.get(), MLX5DV_DR_DOMAIN_TYPE_FDB, 0);
    ASSERT_NE(root.matcher, nullptr) << strerror(errno);
    const Rule rule = root.rule(0x020000000007, {root.to_table(1)});
    ASSERT_NE(rule, nullptr) << strerror(errno);
    const auto matchers = device()->root_matchers();
    ASSERT_EQ(matchers.size(), 1U);
    EXPECT_EQ(matchers[0].type, TableType::fdb);
    EXPECT_EQ(matchers[0].criteria, outer);
    ASSERT_GE(matchers[0].mask.size(), 6U);
    EXPECT_EQ(matchers[0].mask[5], 0xFF);
    const auto rules = device()->root_rules();
    ASSERT_EQ(rules.size(), 1U);
    EXPECT_EQ(rules[0].matcher, matchers[0].handle);
    EXPECT_EQ(rules[0].value[5], 7);
    EXPECT_EQ(rules[0].table, device()->tables().at(0).id);
    EXPECT_FALSE(rules[0].drop);
}

/// mlx5dv_dr's flow counters are DEVX objects of the application.
DevxObj make_counters(ibv_context* context, std::uint8_t bulk) {
    std::uint8_t in[16] = {0x09, 0x39}, out[16] = {};
    in[15] = bulk;
    return DevxObj(mlx5dv_devx_obj_create(context, in, sizeof in, out, sizeof out));
}

TEST_F(EmulatedDevice, CountsWhatATestCounts) {
    Rules rules(context_.get(), MLX5DV_DR_DOMAIN_TYPE_FDB);
    const DevxObj counters = make_counters(context_.get(), 1);
    ASSERT_NE(counters, nullptr);
    mlx5dv_dr_action* count = rules.add(mlx5dv_dr_action_create_flow_counter(counters.get(), 5));
    mlx5dv_dr_action* drop = rules.add(mlx5dv_dr_action_create_drop());
    const Rule rule = rules.rule(1, {count, drop});
    ASSERT_NE(rule, nullptr) << strerror(errno);

    const auto objects = device()->devx_objects();
    const auto found =
        std::find_if(objects.begin(), objects.end(), [](const DevxObject& one) { return one.opcode == 0x939; });
    ASSERT_NE(found, objects.end());
    EXPECT_EQ(found->id_length, 128U);
    EXPECT_TRUE(device()->count(found->id + 5, {3, 300}));
    EXPECT_TRUE(device()->count(found->id + 5, {1, 64}));
    EXPECT_FALSE(device()->count(found->id + 128, {1, 1}));
    EXPECT_EQ(device()->counted(found->id + 5)->bytes, 364U);

    std::array<std::uint8_t, 32> in{0x09, 0x3b};
    in[27] = 8;   // num_of_counters
    for (int i = 0; i < 4; ++i)
        in[28 + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(found->id >> (24 - 8 * i));
    std::array<std::uint8_t, 16 + 8 * 16> out{};
    ASSERT_EQ(mlx5dv_devx_obj_query(counters.get(), in.data(), in.size(), out.data(), out.size()), 0);
    EXPECT_EQ(out[16 + 5 * 16 + 7], 4);                                   // packets
    EXPECT_EQ(out[16 + 5 * 16 + 14] << 8 | out[16 + 5 * 16 + 15], 364);   // octets
    const auto refused_with = [&] {
        return mlx5dv_devx_obj_query(counters.get(), in.data(), in.size(), out.data(), out.size());
    };
    in[26] = 1;   // 256 + 8 counters: more than there are
    EXPECT_EQ(refused_with(), EREMOTEIO);
    in[26] = 0;
    in[27] = 6;   // not a multiple of four
    EXPECT_EQ(refused_with(), EREMOTEIO);
    in[27] = 8;
    in[31] ^= 4;   // another id than the handle's object has
    EXPECT_EQ(refused_with(), EINVAL);
}

TEST_F(EmulatedDevice, ShowsTheCopiesOfADestinationArray) {
    Rules rules(context_.get(), MLX5DV_DR_DOMAIN_TYPE_FDB);
    const std::uint8_t header[50] = {1, 2, 3};
    mlx5dv_dr_action* vports[] = {rules.add(mlx5dv_dr_action_create_dest_vport(rules.domain.get(), 1)),
                                  rules.add(mlx5dv_dr_action_create_dest_vport(rules.domain.get(), 2))};
    mlx5dv_dr_action* push = rules.add(mlx5dv_dr_action_create_packet_reformat(
        rules.domain.get(), 0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL, sizeof header,
        const_cast<std::uint8_t*>(header)));
    ASSERT_NE(push, nullptr) << strerror(errno);
    mlx5dv_dr_action_dest_reformat tunnel{.reformat = push, .dest = vports[1]};
    mlx5dv_dr_action_dest_attr plain{.type = MLX5DV_DR_ACTION_DEST, .dest = vports[0]};
    mlx5dv_dr_action_dest_attr encapsulated{.type = MLX5DV_DR_ACTION_DEST_REFORMAT, .dest_reformat = &tunnel};
    mlx5dv_dr_action_dest_attr* list[] = {&plain, &encapsulated};
    const Action array(mlx5dv_dr_action_create_dest_array(rules.domain.get(), 2, list));
    ASSERT_NE(array, nullptr) << strerror(errno);

    const auto entries = device()->table_entries();
    ASSERT_EQ(entries.size(), 1U);
    ASSERT_EQ(entries[0].destinations.size(), 2U);
    const auto [first, second] = std::pair{entries[0].destinations[0], entries[0].destinations[1]};
    EXPECT_EQ(std::max(first.id, second.id), 2U);
    const Destination& encapsulating = first.reformat_id ? first : second;
    ASSERT_TRUE(encapsulating.reformat_id);
    EXPECT_EQ(encapsulating.id, 2U);
    const auto reformat = device()->reformat(*encapsulating.reformat_id);
    ASSERT_TRUE(reformat);
    EXPECT_EQ(reformat->data, std::vector<std::uint8_t>(header, header + sizeof header));
    const auto tables = device()->tables();
    const auto table =
        std::find_if(tables.begin(), tables.end(), [&](const Table& one) { return one.id == entries[0].table_id; });
    ASSERT_NE(table, tables.end());
    EXPECT_FALSE(table->sw_owner);
    EXPECT_EQ(device()->owner_of(table->icm[1]).kind, AddressOwner::Kind::table);
    EXPECT_EQ(device()->owner_of(table->icm[1]).number, table->id);
    EXPECT_EQ(device()->owner_of(table->icm[1]).side, 1U);
}

TEST_F(EmulatedDevice, KeepsModifyHeaderArgumentsApart) {
    if (device()->steering_format() != 2) return;   // no modify-header arguments there;
    Rules rules(context_.get(), MLX5DV_DR_DOMAIN_TYPE_FDB);
    std::vector<Action> edits;
    // Several lists of several actions: they become patterns in ICM and arguments by number.
    for (std::uint64_t i = 0; i < 20; ++i) {
        const std::uint64_t set_smac = 1ULL << 60 | 1ULL << 48, set_dmac = 1ULL << 60 | 4ULL << 48;
        __be64 list[] = {htobe64(set_smac | (0x1000 + i)), htobe64(set_dmac | (0x2000 + i))};
        edits.emplace_back(mlx5dv_dr_action_create_modify_header(rules.domain.get(), 0, sizeof list, list));
        ASSERT_NE(edits.back(), nullptr) << strerror(errno);
    }
    EXPECT_GE(device()->calls().at("REQUEST:FLOW_TBL_ACCESS"), 20U);
    const auto objects = device()->devx_objects();
    std::vector<std::uint8_t> seen;
    std::uint32_t behind = 0;
    for (const DevxObject& object : objects) {
        if (object.general_type != 0x23) continue;
        behind = std::max(behind, object.id + object.id_length);
        for (std::uint32_t id = object.id; id < object.id + object.id_length; ++id) {
            const auto argument = device()->argument(id);
            ASSERT_TRUE(argument);
            if ((*argument)[6] == 0x10) seen.push_back((*argument)[7]);
        }
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen.size(), 20U);
    EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
    EXPECT_FALSE(device()->argument(behind));
}

/// A steering entry has 8 bits for it, and libmlx5 puts the id in without a look.
TEST_F(EmulatedDevice, GivesDefinersIdsThatFitIntoAnEntry) {
    if (device()->steering_format() != 2) return;   // no definers there
    const Rules rules(context_.get(), MLX5DV_DR_DOMAIN_TYPE_FDB);
    unsigned definers = 0;
    for (const DevxObject& object : device()->devx_objects()) {
        if (object.general_type != 0x18) continue;
        ++definers;
        EXPECT_LT(object.id, 0x100U);
    }
    EXPECT_GT(definers, 0U);
}

TEST_F(EmulatedDevice, DestroysNothingThatIsInUse) {
    const Pd pd(ibv_alloc_pd(context_.get()));
    std::array<char, 64> bytes{};
    const Mr region(ibv_reg_mr(pd.get(), bytes.data(), bytes.size(), 0));
    ASSERT_NE(region, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(pd.get()), EBUSY);
    EXPECT_EQ(device()->alive().at("PD"), 1U);
}

TEST_F(EmulatedDevice, SaysWhatItDoesNotEmulate) {
    const std::size_t before = device()->not_emulated().size();
    const Pd pd(ibv_alloc_pd(context_.get()));
    const Cq queue(ibv_create_cq(context_.get(), 16, nullptr, nullptr, 0));
    ASSERT_NE(queue, nullptr) << strerror(errno);
    ibv_qp_init_attr attributes{};
    attributes.send_cq = attributes.recv_cq = queue.get();
    attributes.cap = {16, 16, 1, 1, 0};
    attributes.qp_type = IBV_QPT_RC;
    EXPECT_EQ(ibv_create_qp(pd.get(), &attributes), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    const auto missing = device()->not_emulated();
    ASSERT_EQ(missing.size(), before + 1);
    EXPECT_NE(missing.back().find("QP_CREATE"), std::string::npos);
    std::uint8_t in[16] = {0x0b, 0x04}, out[16] = {};   // of those that the kernel passes
    EXPECT_NE(mlx5dv_devx_general_cmd(context_.get(), in, sizeof in, out, sizeof out), 0);
    EXPECT_EQ(device()->not_emulated().size(), before + 2);
}

/// An attribute that the device does not know and the caller calls mandatory.
TEST_F(EmulatedDevice, MakesNothingOfACallThatItDoesNotUnderstand) {
    std::uint64_t offset = 0;
    std::uint32_t length = 0, page = 0;
    constexpr std::size_t length_of_call = sizeof(ib_uverbs_ioctl_hdr) + 5 * sizeof(ib_uverbs_attr);
    alignas(ib_uverbs_ioctl_hdr) std::array<std::uint8_t, length_of_call> bytes{};
    auto& call = *reinterpret_cast<ib_uverbs_ioctl_hdr*>(bytes.data());
    const auto attribute = [&](std::size_t i, std::uint16_t id, std::uint16_t size, void* answer) {
        call.attrs[i].attr_id = id;
        call.attrs[i].len = size;
        call.attrs[i].flags = UVERBS_ATTR_F_MANDATORY;
        call.attrs[i].data = reinterpret_cast<std::uintptr_t>(answer);
    };
    attribute(0, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0, nullptr);
    attribute(1, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, sizeof offset, &offset);
    attribute(2, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, sizeof length, &length);
    attribute(3, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, sizeof page, &page);
    attribute(4, 0x1ABC, 8, nullptr);
    call.length = length_of_call;
    call.object_id = MLX5_IB_OBJECT_UAR;
    call.method_id = MLX5_IB_METHOD_UAR_OBJ_ALLOC;
    call.num_attrs = 5;
    const auto before = device()->alive();
    EXPECT_EQ(ioctl(context_->cmd_fd, RDMA_VERBS_IOCTL, &call), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(device()->alive(), before);
    EXPECT_NE(device()->not_emulated().back().find("0x1abc"), std::string::npos);
}

TEST_F(EmulatedDevice, KnowsTheCallsThatCanFail) {
    for (const char* name : {"*", "QP_CREATE", "REG_MR", "REQUEST:SEND", "DEVX_OBJ_CREATE:CREATE_FLOW_TABLE"}) {
        EXPECT_TRUE(device()->fail(name, 1000, EIO)) << name;
    }
    for (const char* name : {"", "QP_MAKE", "REQUEST:", "REQUEST:SENT", "DEVX_OBJ_CREATE", "DEVX_OBJ_CREATE:QP"}) {
        EXPECT_FALSE(device()->fail(name, 1000, EIO)) << name;
    }
    EXPECT_EQ(device()->clear_faults(), 5U);
}

TEST_F(EmulatedDevice, CarriesOutParallelDoorbells) {
    Rules rules(context_.get(), MLX5DV_DR_DOMAIN_TYPE_FDB);
    mlx5dv_dr_action* drop = rules.add(mlx5dv_dr_action_create_drop());
    std::array<std::vector<Rule>, 4> made;
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < made.size(); ++t) {
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < 2000; ++i) made[t].push_back(rules.rule(t << 32 | i, {drop}));
            for (std::size_t i = 0; i < made[t].size(); i += 2) made[t][i].reset();
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& some : made) {
        EXPECT_EQ(std::count(some.begin(), some.end(), nullptr), 1000);
    }
}

using EmulatedDeviceDeathTest = EmulatedDevice;

/// A write that fails leaves its queue pair in error, and libmlx5 says so when it next looks at completions. Once it
/// has read them all it waits for more for ever, as it would on a card (dr_handle_pending_wc()): so the process ends
/// here.
TEST_F(EmulatedDeviceDeathTest, TellsOfAWriteThatFailed) {
    ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
    constexpr int told = 3;
    const auto write_until_told = [this] {
        Rules rules(context_.get(), MLX5DV_DR_DOMAIN_TYPE_FDB);
        mlx5dv_dr_action* drop = rules.add(mlx5dv_dr_action_create_drop());
        const bool armed = device()->fail("REQUEST:RDMA_WRITE", 10, EIO);
        for (std::uint64_t i = 1; armed && i <= 100; ++i) {
            rules.rules.push_back(rules.rule(i, {drop}));
            if (rules.rules.back() == nullptr) _exit(told);
        }
        _exit(0);
    };
    EXPECT_EXIT(write_until_told(), ::testing::ExitedWithCode(told), "");
}

TEST_F(EmulatedDeviceDeathTest, LeavesOtherFaultsToTheProcess) {
    ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
    // The store that a doorbell is made of, to pages that are none: the first, which a null pointer points into, and
    // one that nothing is mapped to.
    for (const std::uintptr_t address : {std::uintptr_t{0}, std::uintptr_t{0x20}, std::uintptr_t{0x7000'0000}}) {
        const std::uint64_t value = address + 1;
        const auto store = [&] { *reinterpret_cast<volatile std::uint64_t*>(address) = value; };
        EXPECT_EXIT((store(), _exit(0)), ::testing::KilledBySignal(SIGSEGV), "");
    }
}

}   // namespace
}   // namespace ovsdr::connectx
