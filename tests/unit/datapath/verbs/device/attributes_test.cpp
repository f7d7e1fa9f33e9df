// What the device and its ports say of themselves, each beside what they do.
#include <gtest/gtest.h>

#include <climits>

#include "datapath/rdma/roce/multicast.hpp"
#include "datapath/verbs/qp/srq.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

class AttributesTest : public ::testing::Test {
protected:
    [[nodiscard]] ibv_device_attr_ex attributes() {
        ibv_device_attr_ex attr{};
        EXPECT_EQ(ibv_query_device_ex(open.context, nullptr, &attr), 0);
        return attr;
    }
    OpenDevice open;
};

TEST_F(AttributesTest, FlagsAreThoseOfWhatThereIs) {
    const ibv_device_attr_ex attr = attributes();
    constexpr unsigned expected = IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
                                  IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_XRC | IBV_DEVICE_MEM_MGT_EXTENSIONS |
                                  IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_RAW_IP_CSUM |
                                  IBV_DEVICE_MANAGED_FLOW_STEERING;
    EXPECT_EQ(attr.orig_attr.device_cap_flags, expected);
    EXPECT_EQ(attr.device_cap_flags_ex, std::uint64_t{expected} | IBV_DEVICE_RAW_SCATTER_FCS);
    EXPECT_EQ(attr.orig_attr.atomic_cap, IBV_ATOMIC_HCA);
    EXPECT_EQ(attr.pci_atomic_caps.fetch_add, 0) << "there is no PCI";
    EXPECT_EQ(attr.pci_atomic_caps.swap, 0);
    EXPECT_EQ(attr.pci_atomic_caps.compare_swap, 0);
    EXPECT_EQ(attr.cq_mod_caps.max_cq_count, 0) << "no moderation";
    EXPECT_EQ(attr.tso_caps.max_tso, 1u << 18);
    EXPECT_EQ(attr.tso_caps.supported_qpts, 1u << IBV_QPT_RAW_PACKET);
    EXPECT_EQ(attr.raw_packet_caps, static_cast<unsigned>(IBV_RAW_PACKET_CAP_CVLAN_STRIPPING |
                                                          IBV_RAW_PACKET_CAP_SCATTER_FCS | IBV_RAW_PACKET_CAP_IP_CSUM));
    EXPECT_EQ(attr.rss_caps.supported_qpts, 1u << IBV_QPT_RAW_PACKET);
    EXPECT_EQ(attr.rss_caps.rx_hash_fields_mask, 0xffu) << "no inner headers, no SPI";
    EXPECT_EQ(attr.rss_caps.rx_hash_function, IBV_RX_HASH_FUNC_TOEPLITZ);
    EXPECT_EQ(attr.rss_caps.max_rwq_indirection_table_size, 2048u);
    EXPECT_EQ(ibv_get_device_index(open.context->device), -1) << "no kernel has given it a number";
}

TEST_F(AttributesTest, SharedReceiveQueuesAreWhatTheAttributesPromise) {
    const ibv_device_attr attr = attributes().orig_attr;
    EXPECT_GT(attr.max_srq, 0);
    ibv_srq_init_attr most{nullptr,
                           {static_cast<unsigned>(attr.max_srq_wr), static_cast<unsigned>(attr.max_srq_sge), 0}};
    ibv_srq* const srq = ibv_create_srq(open.pd, &most);
    ASSERT_NE(srq, nullptr);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    for (std::uint32_t ibv_srq_attr::*const field : {&ibv_srq_attr::max_wr, &ibv_srq_attr::max_sge}) {
        ibv_srq_init_attr more{nullptr, {1, 1, 0}};
        more.attr.*field = (field == &ibv_srq_attr::max_wr ? static_cast<unsigned>(attr.max_srq_wr)
                                                           : static_cast<unsigned>(attr.max_srq_sge)) + 1;
        EXPECT_EQ(ibv_create_srq(open.pd, &more), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
}

TEST_F(AttributesTest, QueuesAreWhatTheAttributesPromise) {
    const ibv_device_attr attr = attributes().orig_attr;
    EXPECT_EQ(attr.max_ah, INT_MAX);
    EXPECT_EQ(attr.max_mcast_grp, static_cast<int>(roce::MulticastGroups::most_groups));
    EXPECT_EQ(attr.max_mcast_qp_attach, static_cast<int>(roce::MulticastGroups::most_members));
    EXPECT_EQ(attr.max_total_mcast_qp_attach, attr.max_mcast_grp * attr.max_mcast_qp_attach);
    ibv_cq* const cq = ibv_create_cq(open.context, 7, nullptr, nullptr, 0);
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET}) {
        ibv_qp_init_attr most{};
        most.send_cq = most.recv_cq = cq;
        most.qp_type = type;
        most.cap = {1, static_cast<unsigned>(attr.max_qp_wr), static_cast<unsigned>(attr.max_sge),
                    static_cast<unsigned>(attr.max_sge), 0};
        ibv_qp* const qp = ibv_create_qp(open.pd, &most);
        EXPECT_NE(qp, nullptr) << type << " " << errno;
        if (qp) {
            EXPECT_EQ(ibv_destroy_qp(qp), 0);
        }
        most.cap.max_recv_wr = static_cast<unsigned>(attr.max_qp_wr) + 1;
        EXPECT_EQ(ibv_create_qp(open.pd, &most), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_create_cq(open.context, attr.max_cqe + 1, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(AttributesTest, APortsWidthAndSpeedAreItsLinks) {
    struct Case {
        std::uint32_t megabits;
        std::uint8_t width, speed;
    };
    for (const Case& expected : {Case{0, 2, 4}, {1'000, 1, 1}, {10'000, 1, 4}, {25'000, 1, 32}, {40'000, 2, 4},
                                 {50'000, 1, 64}, {100'000, 2, 32}, {200'000, 2, 64}, {400'000, 2, 128}}) {
        open.device.set_speed(uplink_vport, expected.megabits);
        open.device.set_speed(VportId{1}, 10'000);
        for (const std::uint8_t port : {1, 3}) {  // the manager, whose way out is the uplink, and the uplink
            ibv_port_attr attr{};
            ASSERT_EQ(ibv_query_port(open.context, port, &attr), 0);
            EXPECT_EQ(attr.active_width, expected.width) << expected.megabits;
            EXPECT_EQ(attr.active_speed, expected.speed) << expected.megabits;
        }
        ibv_port_attr other{};
        ASSERT_EQ(ibv_query_port(open.context, 2, &other), 0);
        EXPECT_EQ(other.active_speed, 4) << "a vport with a link of its own";
    }
}

TEST_F(AttributesTest, RoceIsWhatAPortHas) {
    ibv_port_attr attr{};
    ASSERT_EQ(ibv_query_port(open.context, 1, &attr), 0);
    EXPECT_EQ(attr.port_cap_flags, static_cast<unsigned>(IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS));
    EXPECT_EQ(attr.gid_tbl_len, 256);
    EXPECT_EQ(attr.pkey_tbl_len, 1);
    EXPECT_EQ(attr.max_msg_sz, 1u << 30);
    EXPECT_EQ(attr.phys_state, 5);
    EXPECT_EQ(attr.lid, 0);
    ASSERT_EQ(open.device.set_admin_state(manager_vport, false), 0);
    ASSERT_EQ(ibv_query_port(open.context, 1, &attr), 0);
    EXPECT_EQ(attr.phys_state, 3);
}

}  // namespace
}  // namespace ovsdr::soft::test
