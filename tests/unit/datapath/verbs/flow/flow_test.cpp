// Verbs flows end to end on a device without ports: specifications, packets, what arrives in which queue; and refusals.
// The translation is held against offsets written down here from the PRM's fte_match_param, not the front's own.
#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <vector>

#include "datapath/verbs/flow/flow_spec.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

/// An ibv_flow_attr with specifications behind it.
class FlowList {
public:
    explicit FlowList(std::uint8_t port = 1) { attr().port = port; }
    [[nodiscard]] ibv_flow_attr& attr() { return *reinterpret_cast<ibv_flow_attr*>(bytes_.data()); }
    template <typename Spec>
    Spec& add(unsigned type) {
        const std::size_t at = size_;
        size_ += sizeof(Spec);
        auto& spec = *reinterpret_cast<Spec*>(bytes_.data() + at);
        spec.type = static_cast<ibv_flow_spec_type>(type);
        spec.size = sizeof(Spec);
        ++attr().num_of_specs;
        return spec;
    }

private:
    alignas(8) std::array<std::byte, 1024> bytes_{};
    std::size_t size_ = sizeof(ibv_flow_attr);
};

class FlowSpecTest : public ::testing::Test {
protected:
    /// Bits [at, at + width) of the match parameters.
    [[nodiscard]] static std::uint64_t bits(const std::array<std::uint8_t, match_param_size>& bytes, unsigned at,
                                            unsigned width) {
        std::uint64_t value = 0;
        for (unsigned bit = at; bit < at + width; ++bit) value = value << 1 | (bytes[bit / 8] >> (7 - bit % 8) & 1);
        return value;
    }
    void expect(unsigned at, unsigned width, std::uint64_t mask, std::uint64_t value) {
        EXPECT_EQ(bits(plan.mask, at, width), mask) << "mask at bit " << at;
        EXPECT_EQ(bits(plan.value, at, width), value) << "value at bit " << at;
    }
    FlowPlan plan;
    FlowList list;
};

TEST_F(FlowSpecTest, EthernetAndItsTag) {
    auto& eth = list.add<ibv_flow_spec_eth>(IBV_FLOW_SPEC_ETH);
    eth.val = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}, htobe16(0x1234), htobe16(0xb00c)};
    eth.mask = {{255, 255, 255, 255, 255, 255}, {255, 0, 0, 0, 0, 15}, 0xffff, htobe16(0xffff)};
    ASSERT_EQ(plan_flow(list.attr(), plan), 0);
    expect(0, 48, 0xff000000000f, 0x07000000000c);
    expect(48, 16, 0xffff, 0x1234);
    expect(64, 48, 0xffffffffffff, 0x010203040506);
    expect(112, 3, 7, 5);
    expect(115, 1, 1, 1);
    expect(116, 12, 0xfff, 0xc);
    expect(144, 1, 1, 1);
    EXPECT_EQ(plan.criteria(), 1);
}

TEST_F(FlowSpecTest, Ipv4WithPorts) {
    auto& ip = list.add<ibv_flow_spec_ipv4_ext>(IBV_FLOW_SPEC_IPV4_EXT);
    ip.val = {htobe32(0x01020304), htobe32(0x05060708), 6, 0xb9, 0, 0};
    ip.mask = {htobe32(0xffffff00), htobe32(0xffffffff), 0xff, 0xff, 0, 0};
    auto& tcp = list.add<ibv_flow_spec_tcp_udp>(IBV_FLOW_SPEC_TCP);
    tcp.val = {htobe16(80), htobe16(1024)};
    tcp.mask = {0xffff, htobe16(0xff00)};
    ASSERT_EQ(plan_flow(list.attr(), plan), 0);
    expect(128, 8, 0xff, 6);
    expect(136, 6, 0x3f, 0xb9 >> 2);
    expect(142, 2, 3, 1);
    expect(147, 4, 15, 4);
    expect(160, 16, 0xff00, 1024);
    expect(176, 16, 0xffff, 80);
    expect(352, 32, 0xffffff00, 0x01020300);
    expect(480, 32, 0xffffffff, 0x05060708);
}

TEST_F(FlowSpecTest, InnerHeadersAndTunnels) {
    list.add<ibv_flow_spec_tcp_udp>(IBV_FLOW_SPEC_UDP);
    auto& tunnel = list.add<ibv_flow_spec_tunnel>(IBV_FLOW_SPEC_VXLAN_TUNNEL);
    tunnel.val.tunnel_id = htobe32(0xabcdef);
    tunnel.mask.tunnel_id = htobe32(0xffffff);
    auto& ip = list.add<ibv_flow_spec_ipv6>(IBV_FLOW_SPEC_IPV6 | IBV_FLOW_SPEC_INNER);
    ip.val.flow_label = htobe32(0x12345);
    ip.mask.flow_label = htobe32(0xfffff);
    ip.val.dst_ip[15] = 9;
    ip.mask.dst_ip[15] = 15;
    ASSERT_EQ(plan_flow(list.attr(), plan), 0);
    expect(128, 8, 0xff, 17);
    expect(512 + 160, 24, 0xffffff, 0xabcdef);
    expect(512 + 268, 20, 0xfffff, 0x12345);
    expect(1024 + 147, 4, 15, 6);
    expect(1024 + 504, 8, 15, 9);
    EXPECT_EQ(plan.criteria(), 1 | 2 | 4);
}

TEST_F(FlowSpecTest, GreMplsAndEspHaveTheirPlaces) {
    auto& gre = list.add<ibv_flow_spec_gre>(IBV_FLOW_SPEC_GRE);
    gre.val = {0, htobe16(0x8847), htobe32(0x11223344)};
    gre.mask = {0, 0xffff, 0xffffffff};
    auto& mpls = list.add<ibv_flow_spec_mpls>(IBV_FLOW_SPEC_MPLS);
    mpls.val.label = htobe32(0xabcde1ff);
    mpls.mask.label = htobe32(0xfffff000);
    auto& esp = list.add<ibv_flow_spec_esp>(IBV_FLOW_SPEC_ESP);
    esp.val.spi = htobe32(77);
    esp.mask.spi = 0xffffffff;
    ASSERT_EQ(plan_flow(list.attr(), plan), 0);
    expect(128, 8, 0xff, 47);
    expect(512 + 112, 16, 0xffff, 0x8847);
    expect(512 + 128, 32, 0xffffffff, 0x11223344);
    expect(1536 + 64, 20, 0xfffff, 0xabcde);
    expect(512 + 384, 32, 0xffffffff, 77);
}

TEST_F(FlowSpecTest, WhatMlx5DoesNotMatchOnIsNotSupported) {
    list.add<ibv_flow_spec_ipv4_ext>(IBV_FLOW_SPEC_IPV4_EXT).mask.ttl = 1;
    EXPECT_EQ(plan_flow(list.attr(), plan), EOPNOTSUPP);
    FlowList v6;
    v6.add<ibv_flow_spec_ipv6>(IBV_FLOW_SPEC_IPV6).mask.hop_limit = 1;
    EXPECT_EQ(plan_flow(v6.attr(), plan), EOPNOTSUPP);
    FlowList esp;
    esp.add<ibv_flow_spec_esp>(IBV_FLOW_SPEC_ESP).mask.seq = 1;
    EXPECT_EQ(plan_flow(esp.attr(), plan), EOPNOTSUPP);
    FlowList gre;
    gre.add<ibv_flow_spec_gre>(IBV_FLOW_SPEC_GRE).mask.c_ks_res0_ver = 1;
    EXPECT_EQ(plan_flow(gre.attr(), plan), EOPNOTSUPP);
}

TEST_F(FlowSpecTest, ContradictionsAreInvalid) {
    list.add<ibv_flow_spec_tcp_udp>(IBV_FLOW_SPEC_TCP);
    list.add<ibv_flow_spec_tcp_udp>(IBV_FLOW_SPEC_UDP);
    EXPECT_EQ(plan_flow(list.attr(), plan), EINVAL);
    FlowList types;
    auto& eth = types.add<ibv_flow_spec_eth>(IBV_FLOW_SPEC_ETH);
    eth.val.ether_type = htobe16(0x86dd);
    eth.mask.ether_type = 0xffff;
    types.add<ibv_flow_spec_ipv4>(IBV_FLOW_SPEC_IPV4);
    FlowPlan other;
    EXPECT_EQ(plan_flow(types.attr(), other), EINVAL);
    FlowList tag;
    tag.add<ibv_flow_spec_action_tag>(IBV_FLOW_SPEC_ACTION_TAG).tag_id = 1 << 24;
    EXPECT_EQ(plan_flow(tag.attr(), other), EINVAL);
    FlowList unknown;
    unknown.add<ibv_flow_spec_eth>(0x21);
    EXPECT_EQ(plan_flow(unknown.attr(), other), EINVAL);
    FlowList inner_tag;
    inner_tag.add<ibv_flow_spec_action_tag>(IBV_FLOW_SPEC_ACTION_TAG | IBV_FLOW_SPEC_INNER);
    EXPECT_EQ(plan_flow(inner_tag.attr(), other), EINVAL);
}

class FlowTest : public ::testing::Test {
protected:
    /// A raw packet QP that receives, with buffers posted.
    struct Queue {
        Queue(OpenDevice& open, unsigned buffers = 16) : memory(buffers * 256) {
            cq = ibv_create_cq(open.context, 64, nullptr, nullptr, 0);
            ibv_qp_init_attr attr{};
            attr.send_cq = attr.recv_cq = cq;
            attr.qp_type = IBV_QPT_RAW_PACKET;
            attr.cap = {4, 64, 1, 1, 0};
            qp = ibv_create_qp(open.pd, &attr);
            mr = ibv_reg_mr(open.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
            ibv_qp_attr state{};
            state.port_num = 1;
            state.qp_state = IBV_QPS_INIT;
            EXPECT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PORT), 0);
            state.qp_state = IBV_QPS_RTR;
            EXPECT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE), 0);
            for (unsigned i = 0; i < buffers; ++i) {
                ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory.data() + i * 256), 256, mr->lkey};
                ibv_recv_wr wr{i, nullptr, &sge, 1};
                ibv_recv_wr* bad = nullptr;
                EXPECT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
            }
        }
        ~Queue() {
            EXPECT_EQ(ibv_destroy_qp(qp), 0);
            EXPECT_EQ(ibv_dereg_mr(mr), 0);
            EXPECT_EQ(ibv_destroy_cq(cq), 0);
        }
        [[nodiscard]] int got() {
            ibv_wc done[32];
            return ibv_poll_cq(cq, 32, done);
        }
        std::vector<std::byte> memory;
        ibv_cq* cq;
        ibv_qp* qp;
        ibv_mr* mr;
    };

    /// One frame up from a vport.
    void arrive(std::uint16_t vport, std::uint8_t last_of_mac, std::uint8_t first_of_mac = 2) {
        rte_mbuf* packet = rte_pktmbuf_alloc(packet_pool());
        char* const bytes = rte_pktmbuf_append(packet, 64);
        ASSERT_NE(bytes, nullptr);
        std::memset(bytes, 0, 64);
        bytes[0] = static_cast<char>(first_of_mac);
        bytes[5] = static_cast<char>(last_of_mac);
        lane.online();
        lane.from_vport(VportId{vport}, &packet, 1);
        lane.flush();
        lane.offline();
    }
    static FlowList to_mac(std::uint8_t last, std::uint8_t port = 1) {
        FlowList list(port);
        auto& eth = list.add<ibv_flow_spec_eth>(IBV_FLOW_SPEC_ETH);
        eth.val.dst_mac[0] = 2;
        eth.val.dst_mac[5] = last;
        std::memset(eth.mask.dst_mac, 0xff, 6);
        return list;
    }

    OpenDevice open;
    Lane lane{open.device.steering(), 0};
};

TEST_F(FlowTest, AFlowTakesItsPortsPacketsOnly) {
    Queue queue(open);
    FlowList list = to_mac(7, 2);  // port 2: vport 1
    ibv_flow* const flow = ibv_create_flow(queue.qp, &list.attr());
    ASSERT_NE(flow, nullptr);
    arrive(1, 7);
    arrive(1, 8);
    arrive(0xffff, 7);
    EXPECT_EQ(queue.got(), 1);
    EXPECT_EQ(ibv_destroy_qp(queue.qp), EBUSY);
    EXPECT_EQ(ibv_destroy_flow(flow), 0);
    arrive(1, 7);
    EXPECT_EQ(queue.got(), 0);
}

TEST_F(FlowTest, DefaultsTakeWhatNobodyWants) {
    Queue all(open), multicast(open), one(open);
    FlowList list(2);
    list.attr().type = IBV_FLOW_ATTR_ALL_DEFAULT;
    ibv_flow* const all_flow = ibv_create_flow(all.qp, &list.attr());
    list.attr().type = IBV_FLOW_ATTR_MC_DEFAULT;
    ibv_flow* const multicast_flow = ibv_create_flow(multicast.qp, &list.attr());
    FlowList some = to_mac(7, 2);
    ibv_flow* const flow = ibv_create_flow(one.qp, &some.attr());
    ASSERT_TRUE(all_flow && multicast_flow && flow);
    arrive(1, 7);
    arrive(1, 8);
    arrive(1, 9, 1);
    EXPECT_EQ(one.got(), 1);
    EXPECT_EQ(all.got(), 2);
    EXPECT_EQ(multicast.got(), 1);
    for (ibv_flow* made : {flow, all_flow, multicast_flow}) EXPECT_EQ(ibv_destroy_flow(made), 0);
}

TEST_F(FlowTest, CountersAreReadByDescriptionAndIndex) {
    Queue queue(open);
    ibv_counters_init_attr init{};
    ibv_counters* const counters = ibv_create_counters(open.context, &init);
    FlowList list = to_mac(7, 2);
    list.add<ibv_flow_spec_counter_action>(IBV_FLOW_SPEC_ACTION_COUNT).counters = counters;
    EXPECT_EQ(ibv_create_flow(queue.qp, &list.attr()), nullptr);
    EXPECT_EQ(errno, EINVAL) << "nothing is attached";
    ibv_counter_attach_attr point{IBV_COUNTER_PACKETS, 2, 0};
    ASSERT_EQ(ibv_attach_counters_point_flow(counters, &point, nullptr), 0);
    point = {IBV_COUNTER_BYTES, 0, 0};
    ASSERT_EQ(ibv_attach_counters_point_flow(counters, &point, nullptr), 0);
    std::uint64_t values[3]{9, 9, 9};
    EXPECT_EQ(ibv_read_counters(counters, values, 3, 0), EINVAL) << "not bound";
    ibv_flow* const flow = ibv_create_flow(queue.qp, &list.attr());
    ASSERT_NE(flow, nullptr);
    EXPECT_EQ(ibv_attach_counters_point_flow(counters, &point, nullptr), EBUSY);
    EXPECT_EQ(ibv_attach_counters_point_flow(counters, &point, flow), ENOTSUP);
    arrive(1, 7);
    arrive(1, 7);
    EXPECT_EQ(ibv_read_counters(counters, values, 2, 0), EINVAL);
    ASSERT_EQ(ibv_read_counters(counters, values, 3, 0), 0);
    EXPECT_EQ(values[0], 128u);
    EXPECT_EQ(values[1], 0u);
    EXPECT_EQ(values[2], 2u);
    EXPECT_EQ(ibv_destroy_counters(counters), EBUSY);
    EXPECT_EQ(ibv_destroy_flow(flow), 0);
    EXPECT_EQ(ibv_destroy_counters(counters), 0);
}

TEST_F(FlowTest, RefusesWhatTheKernelRefuses) {
    Queue queue(open);
    const auto refused = [&](auto change) {
        FlowList list = to_mac(7);
        change(list.attr());
        EXPECT_EQ(ibv_create_flow(queue.qp, &list.attr()), nullptr);
        return errno;
    };
    EXPECT_EQ(refused([](ibv_flow_attr& attr) { attr.port = 0; }), EINVAL);
    EXPECT_EQ(refused([](ibv_flow_attr& attr) { attr.port = 9; }), EINVAL);
    EXPECT_EQ(refused([](ibv_flow_attr& attr) { attr.priority = 16; }), ENOMEM);
    EXPECT_EQ(refused([](ibv_flow_attr& attr) { attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS; }), EINVAL);
    EXPECT_EQ(refused([](ibv_flow_attr& attr) { attr.flags = 1; }), EINVAL);
    EXPECT_EQ(refused([](ibv_flow_attr& attr) {
                  attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
                  attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
              }),
              EINVAL);
    ibv_flow_action_esp_attr esp{};
    EXPECT_EQ(ibv_create_flow_action_esp(open.context, &esp), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

/// mlx5's own format.
class Mlx5FlowTest : public FlowTest {
protected:
    struct Parameters {
        std::size_t size = 64;
        std::array<std::uint8_t, 64> bytes{};
        [[nodiscard]] mlx5dv_flow_match_parameters* get() {
            return reinterpret_cast<mlx5dv_flow_match_parameters*>(this);
        }
    };
    [[nodiscard]] mlx5dv_flow_matcher* mac_matcher(mlx5dv_flow_table_type table = MLX5DV_FLOW_TABLE_TYPE_NIC_RX) {
        Parameters mask;
        std::fill_n(mask.bytes.begin() + 8, 6, 0xff);
        mlx5dv_flow_matcher_attr attr{};
        attr.match_criteria_enable = 1;
        attr.match_mask = mask.get();
        attr.comp_mask = MLX5DV_FLOW_MATCHER_MASK_FT_TYPE;
        attr.ft_type = table;
        return mlx5dv_create_flow_matcher(open.context, &attr);
    }
    [[nodiscard]] ibv_flow* flow(mlx5dv_flow_matcher* matcher, std::vector<mlx5dv_flow_action_attr> actions) {
        Parameters value;
        value.bytes[8] = 2;
        value.bytes[13] = 7;
        return mlx5dv_create_flow(matcher, value.get(), actions.size(), actions.data());
    }
    static mlx5dv_flow_action_attr to(ibv_qp* qp) {
        mlx5dv_flow_action_attr attr{MLX5DV_FLOW_ACTION_DEST_IBV_QP, {}};
        attr.qp = qp;
        return attr;
    }
    static mlx5dv_flow_action_attr bare(mlx5dv_flow_action_type type) { return {type, {}}; }
};

TEST_F(Mlx5FlowTest, LeadsRewritesAndTags) {
    Queue queue(open);
    mlx5dv_flow_matcher* const matcher = mac_matcher();
    // SET dmac_15_0 (field 5, offset 0, length 16) to 0xabcd
    std::uint64_t edit = htobe64(std::uint64_t{1} << 60 | std::uint64_t{5} << 48 | std::uint64_t{16} << 32 | 0xabcd);
    ibv_flow_action* const modify =
        mlx5dv_create_flow_action_modify_header(open.context, sizeof edit, &edit, MLX5DV_FLOW_TABLE_TYPE_NIC_RX);
    ASSERT_NE(modify, nullptr);
    mlx5dv_flow_action_attr rewrite{MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION, {}};
    rewrite.action = modify;
    ibv_flow* const made = flow(matcher, {to(queue.qp), rewrite});
    ASSERT_NE(made, nullptr);
    arrive(1, 7);
    arrive(1, 8);
    EXPECT_EQ(queue.got(), 1);
    EXPECT_EQ(queue.memory[4], std::byte{0xab});
    EXPECT_EQ(queue.memory[5], std::byte{0xcd});
    EXPECT_EQ(mlx5dv_destroy_flow_matcher(matcher), EBUSY);
    EXPECT_EQ(open.context->ops.poll_cq(queue.cq, 0, nullptr), 0);
    EXPECT_EQ(ibv_destroy_flow_action(modify), EBUSY);
    EXPECT_EQ(ibv_destroy_flow(made), 0);
    EXPECT_EQ(ibv_destroy_flow_action(modify), 0);
    EXPECT_EQ(mlx5dv_destroy_flow_matcher(matcher), 0);
}

TEST_F(Mlx5FlowTest, RefusesWhatLibmlx5AndTheKernelRefuse) {
    Queue queue(open);
    mlx5dv_flow_matcher* const matcher = mac_matcher();
    mlx5dv_flow_matcher* const sending = mac_matcher(MLX5DV_FLOW_TABLE_TYPE_NIC_TX);
    mlx5dv_flow_matcher* const fdb = mac_matcher(MLX5DV_FLOW_TABLE_TYPE_FDB);
    const auto refused = [&](mlx5dv_flow_matcher* of, std::vector<mlx5dv_flow_action_attr> actions) {
        EXPECT_EQ(flow(of, std::move(actions)), nullptr);
        return errno;
    };
    EXPECT_EQ(refused(matcher, {to(queue.qp), bare(MLX5DV_FLOW_ACTION_DROP)}), EOPNOTSUPP);
    EXPECT_EQ(refused(matcher, {bare(MLX5DV_FLOW_ACTION_TAG), bare(MLX5DV_FLOW_ACTION_TAG)}), EINVAL);
    EXPECT_EQ(refused(matcher, {bare(MLX5DV_FLOW_ACTION_IBV_COUNTER)}), EOPNOTSUPP);
    EXPECT_EQ(refused(matcher, {}), EINVAL) << "a packet must go somewhere";
    EXPECT_EQ(refused(sending, {to(queue.qp)}), EINVAL);
    EXPECT_EQ(refused(fdb, {to(queue.qp)}), EINVAL);
    mlx5dv_flow_matcher_attr attr{};
    attr.type = IBV_FLOW_ATTR_SNIFFER;
    EXPECT_EQ(mlx5dv_create_flow_matcher(open.context, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    attr.type = IBV_FLOW_ATTR_NORMAL;
    attr.comp_mask = MLX5DV_FLOW_MATCHER_MASK_FT_TYPE;
    attr.ft_type = MLX5DV_FLOW_TABLE_TYPE_RDMA_RX;
    EXPECT_EQ(mlx5dv_create_flow_matcher(open.context, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    for (mlx5dv_flow_matcher* made : {matcher, sending, fdb}) EXPECT_EQ(mlx5dv_destroy_flow_matcher(made), 0);
}

}  // namespace
}  // namespace ovsdr::soft::test
