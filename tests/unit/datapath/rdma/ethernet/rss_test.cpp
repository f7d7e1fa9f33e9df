// Receive-side scaling: the hash against Microsoft's published vectors and bit by bit, the spread against the hash, and
// the objects' refusals.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

using Key = std::array<std::uint8_t, 40>;

/// "Verifying the RSS Hash Calculation", Microsoft.
constexpr Key published_key{0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
                            0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
                            0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

struct Vector {
    std::vector<std::uint8_t> source, destination;
    std::uint16_t source_port, destination_port;
    std::uint32_t addresses_hash, ports_hash;
};

const std::vector<Vector> published{
    {{66, 9, 149, 187}, {161, 142, 100, 80}, 2794, 1766, 0x323e8fc2, 0x51ccc178},
    {{199, 92, 111, 2}, {65, 69, 140, 83}, 14230, 4739, 0xd718262a, 0xc626b0ea},
    {{24, 19, 198, 95}, {12, 22, 207, 184}, 12898, 38024, 0xd2d0a5de, 0x5c2b394a},
    {{38, 27, 205, 30}, {209, 142, 163, 6}, 48228, 2217, 0x82989176, 0xafc7327f},
    {{153, 39, 163, 191}, {202, 188, 127, 2}, 44251, 1303, 0x5d1809c5, 0x10e828a2},
    {{0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 7},
     {0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x00, 0x03, 0, 0, 0, 0, 0, 0, 0, 1},
     2794,
     1766,
     0x2cc18cd5,
     0x40207d3d},
    {{0x3f, 0xfe, 0x19, 0x00, 0x45, 0x45, 0x00, 0x03, 0x02, 0x00, 0xf8, 0xff, 0xfe, 0x21, 0x67, 0xcf},
     {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x00, 0xf8, 0xff, 0xfe, 0x21, 0x67, 0xcf},
     44251,
     38024,
     0x4b61e985,
     0x02d1feef},
};

void put16(std::vector<std::uint8_t>& bytes, std::uint16_t value) {
    bytes.push_back(static_cast<std::uint8_t>(value >> 8));
    bytes.push_back(static_cast<std::uint8_t>(value));
}

std::vector<std::uint8_t> joined(const Vector& vector, bool ports) {
    std::vector<std::uint8_t> input = vector.source;
    input.insert(input.end(), vector.destination.begin(), vector.destination.end());
    if (ports) {
        put16(input, vector.source_port);
        put16(input, vector.destination_port);
    }
    return input;
}

/// The definition: for each set bit, the 32 bits of the key that begin there.
std::uint32_t bit_by_bit(const Key& key, const std::vector<std::uint8_t>& input) {
    const auto bit_of = [](const auto& bytes, std::size_t bit) { return bytes[bit / 8] >> (7 - bit % 8) & 1; };
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < input.size() * 8; ++i) {
        if (!bit_of(input, i)) continue;
        std::uint32_t window = 0;
        for (std::size_t k = i; k < i + 32; ++k) window = window << 1 | static_cast<std::uint32_t>(bit_of(key, k));
        sum ^= window;
    }
    return sum;
}

std::vector<std::uint8_t> frame_of(const Vector& vector, std::uint8_t protocol, bool tagged = false,
                                   std::uint16_t fragment = 0) {
    const bool v4 = vector.source.size() == 4;
    std::vector<std::uint8_t> frame(12, 2);
    if (tagged) {
        put16(frame, 0x8100);
        put16(frame, 5);
    }
    put16(frame, v4 ? 0x0800 : 0x86dd);
    if (v4) {
        put16(frame, 0x4500);
        put16(frame, 40);
        put16(frame, 0);
        put16(frame, fragment);
        frame.push_back(64);
        frame.push_back(protocol);
        put16(frame, 0);
    } else {
        put16(frame, 0x6000);
        put16(frame, 0);
        put16(frame, 20);
        frame.push_back(protocol);
        frame.push_back(64);
    }
    frame.insert(frame.end(), vector.source.begin(), vector.source.end());
    frame.insert(frame.end(), vector.destination.begin(), vector.destination.end());
    put16(frame, vector.source_port);
    put16(frame, vector.destination_port);
    frame.resize(frame.size() + 16);
    return frame;
}

Vector turned(Vector vector) {
    std::swap(vector.source, vector.destination);
    std::swap(vector.source_port, vector.destination_port);
    return vector;
}

TEST(Toeplitz, HashesAsPublished) {
    const Toeplitz toeplitz(published_key);
    for (const Vector& vector : published) {
        EXPECT_EQ(toeplitz.hash(joined(vector, false)), vector.addresses_hash);
        EXPECT_EQ(toeplitz.hash(joined(vector, true)), vector.ports_hash);
    }
}

TEST(Toeplitz, HashesAsDefined) {
    std::mt19937 random(7);
    for (int round = 0; round < 50; ++round) {
        Key key;
        for (auto& byte : key) byte = static_cast<std::uint8_t>(random());
        std::vector<std::uint8_t> input(random() % 37);
        for (auto& byte : input) byte = static_cast<std::uint8_t>(random());
        EXPECT_EQ(Toeplitz(key).hash(input), bit_by_bit(key, input));
    }
}

class RssTest : public ::testing::Test {
protected:
    static RssFields fields(std::uint64_t mask) {
        RssFields parsed;
        EXPECT_EQ(parse_rss_fields(mask, parsed), 0);
        return parsed;
    }
    static std::uint32_t hash(std::uint64_t mask, const std::vector<std::uint8_t>& frame) {
        return RssReceiver(fields(mask), published_key, {nullptr}).hash(frame);
    }
    static constexpr std::uint64_t v4 = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
    static constexpr std::uint64_t v6 = IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
    static constexpr std::uint64_t tcp = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
};

TEST_F(RssTest, AFramesAddressesAreHashedLowerFirst) {
    EXPECT_EQ(hash(v4, frame_of(published[0], 6)), 0x323e8fc2u);
    EXPECT_EQ(hash(v4, frame_of(published[0], 6, true)), 0x323e8fc2u) << "behind a tag";
    EXPECT_EQ(hash(v4, frame_of(turned(published[0]), 17)), 0x323e8fc2u) << "the other direction";
    EXPECT_EQ(hash(v6, frame_of(turned(published[5]), 6)), hash(v6, frame_of(published[5], 6)));
    EXPECT_EQ(hash(v6, frame_of(published[6], 6)), 0x4b61e985u);
}

TEST_F(RssTest, OneFieldAloneIsHashedAlone) {
    EXPECT_EQ(hash(IBV_RX_HASH_DST_IPV4, frame_of(published[1], 6)), bit_by_bit(published_key, {65, 69, 140, 83}));
    EXPECT_EQ(hash(IBV_RX_HASH_SRC_PORT_TCP, frame_of(published[1], 6)), bit_by_bit(published_key, {0x37, 0x96}));
}

TEST_F(RssTest, ConnectionsMeetOneQueueBothWays) {
    for (const Vector& vector : published) {
        const std::uint64_t mask = (vector.source.size() == 4 ? v4 : v6) | tcp;
        EXPECT_EQ(hash(mask, frame_of(vector, 6)), hash(mask, frame_of(turned(vector), 6)));
        EXPECT_NE(hash(mask, frame_of(vector, 6)), 0u);
    }
}

TEST_F(RssTest, UdpPortsAreHashedToo) {
    constexpr std::uint64_t udp = IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;
    EXPECT_EQ(hash(v4 | udp, frame_of(published[0], 17)), hash(v4 | udp, frame_of(turned(published[0]), 17)));
    EXPECT_NE(hash(v4 | udp, frame_of(published[0], 17)), hash(v4, frame_of(published[0], 17)));
    EXPECT_EQ(hash(IBV_RX_HASH_SRC_PORT_UDP, frame_of(published[1], 17)), bit_by_bit(published_key, {0x37, 0x96}));
    EXPECT_EQ(hash(v4 | udp, frame_of(published[0], 6)), 0u);
}

/// `frame` behind an outer Ethernet, IPv4, UDP and VXLAN header.
std::vector<std::uint8_t> in_vxlan(const std::vector<std::uint8_t>& frame) {
    const auto size = static_cast<std::uint8_t>(frame.size());
    std::vector<std::uint8_t> all{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0,
                                  0x45, 0, 0, static_cast<std::uint8_t>(size + 36), 0, 0, 0, 0, 64, 17, 0, 0,
                                  10, 0, 0, 1, 10, 0, 0, 2,
                                  0xc0, 0, 0x12, 0xb5, 0, static_cast<std::uint8_t>(size + 16), 0, 0,
                                  8, 0, 0, 0, 0, 0, 9, 0};
    all.insert(all.end(), frame.begin(), frame.end());
    return all;
}

TEST_F(RssTest, ThePacketInsideATunnelIsHashedWhereThatIsAskedFor) {
    RssFields inner = fields(v4 | tcp);
    const auto of_inner = [&](const std::vector<std::uint8_t>& frame) {
        return RssReceiver(inner, published_key, {nullptr}, true).hash(frame);
    };
    inner.inner = true;
    inner.symmetric = false;
    const std::vector<std::uint8_t> frame = frame_of(published[0], 6);
    EXPECT_EQ(of_inner(in_vxlan(frame)), published[0].ports_hash);
    EXPECT_EQ(of_inner(frame), 0u) << "carries nothing";
    EXPECT_NE(hash(v4, in_vxlan(frame)), 0u) << "the outer header";
    EXPECT_NE(hash(v4, in_vxlan(frame)), published[0].addresses_hash);
}

TEST_F(RssTest, EspsSpiStandsInThePlaceOfPorts) {
    std::vector<std::uint8_t> frame{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 50, 0, 0,
                                    66, 9, 149, 187, 161, 142, 100, 80, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 1};
    RssFields spi = fields(v4);
    spi.symmetric = false;
    spi.spi = true;
    const auto of_spi = [&] { return RssReceiver(spi, published_key, {nullptr}).hash(frame); };
    EXPECT_EQ(of_spi(), bit_by_bit(published_key, {66, 9, 149, 187, 161, 142, 100, 80, 0x12, 0x34, 0x56, 0x78}));
    frame[23] = 51;
    EXPECT_EQ(of_spi(), 0u) << "not ESP";
}

TEST_F(RssTest, WhatTheFieldsDoNotFitIsNotHashed) {
    EXPECT_EQ(hash(v6, frame_of(published[0], 6)), 0u);
    EXPECT_EQ(hash(v4 | tcp, frame_of(published[0], 17)), 0u);
    EXPECT_EQ(hash(v4 | tcp, frame_of(published[0], 6, false, 0x2000)), 0u) << "a fragment";
    EXPECT_EQ(hash(v4, std::vector<std::uint8_t>(20, 1)), 0u);
}

TEST_F(RssTest, RefusesFieldsThatExcludeEachOther) {
    RssFields parsed;
    EXPECT_EQ(parse_rss_fields(IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV6, parsed), EINVAL);
    EXPECT_EQ(parse_rss_fields(IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_SRC_PORT_UDP, parsed), EINVAL);
    EXPECT_EQ(parse_rss_fields(v4 | IBV_RX_HASH_IPSEC_SPI, parsed), EOPNOTSUPP);
    EXPECT_EQ(parse_rss_fields(v4 | std::uint64_t{IBV_RX_HASH_INNER}, parsed), EOPNOTSUPP);
}

class RssQpTest : public ::testing::Test {
protected:
    static constexpr unsigned queues = 4;
    RssQpTest() {
        for (unsigned i = 0; i < queues; ++i) {
            cqs[i] = ibv_create_cq(open.context, 64, nullptr, nullptr, 0);
            ibv_wq_init_attr attr{};
            attr.wq_type = IBV_WQT_RQ;
            attr.max_wr = 64;
            attr.max_sge = 1;
            attr.pd = open.pd;
            attr.cq = cqs[i];
            wqs[i] = ibv_create_wq(open.context, &attr);
            ibv_wq_attr ready{};
            ready.attr_mask = IBV_WQ_ATTR_STATE;
            ready.wq_state = IBV_WQS_RDY;
            EXPECT_EQ(ibv_modify_wq(wqs[i], &ready), 0);
            for (unsigned k = 0; k < 64; ++k) {
                ibv_sge sge{reinterpret_cast<std::uintptr_t>(memory.data()), 256, mr->lkey};
                ibv_recv_wr wr{k, nullptr, &sge, 1};
                ibv_recv_wr* bad = nullptr;
                EXPECT_EQ(ibv_post_wq_recv(wqs[i], &wr, &bad), 0);
            }
        }
        ibv_rwq_ind_table_init_attr attr{2, wqs.data(), 0};
        table = ibv_create_rwq_ind_table(open.context, &attr);
    }
    ~RssQpTest() override {
        EXPECT_EQ(ibv_destroy_rwq_ind_table(table), 0);
        for (ibv_wq* wq : wqs) EXPECT_EQ(ibv_destroy_wq(wq), 0);
        for (ibv_cq* cq : cqs) EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
    }
    ibv_qp_init_attr_ex attributes() {
        ibv_qp_init_attr_ex attr{};
        attr.qp_type = IBV_QPT_RAW_PACKET;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
        attr.pd = open.pd;
        attr.rwq_ind_tbl = table;
        attr.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, Toeplitz::key_size, key.data(),
                             IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4};
        return attr;
    }

    OpenDevice open;
    std::vector<std::byte> memory = std::vector<std::byte>(256);
    ibv_mr* mr = ibv_reg_mr(open.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    Key key = published_key;
    std::array<ibv_cq*, queues> cqs;
    std::array<ibv_wq*, queues> wqs;
    ibv_rwq_ind_table* table;
};

TEST_F(RssQpTest, EachPacketGoesToTheQueueOfItsHash) {
    ibv_qp_init_attr_ex attr = attributes();
    ibv_qp* const qp = ibv_create_qp_ex(open.context, &attr);
    ASSERT_NE(qp, nullptr);
    std::array<unsigned, queues> expected{};
    const Sink sink = Qp::of(qp).rss->sink();
    std::vector<rte_mbuf*> batch;
    for (std::uint8_t i = 0; i < batch_length; ++i) {
        Vector vector = published[0];
        vector.source[3] = i;
        ++expected[bit_by_bit(key, joined(vector, false)) % queues];
        const auto frame = frame_of(vector, 17);
        rte_mbuf* const packet = rte_pktmbuf_alloc(packet_pool());
        std::copy(frame.begin(), frame.end(), rte_pktmbuf_mtod(packet, std::uint8_t*));
        packet->data_len = static_cast<std::uint16_t>(frame.size());
        packet->pkt_len = packet->data_len;
        set_source(packet, manager_vport);
        batch.push_back(packet);
    }
    sink.deliver(sink.self, 0, batch.data(), batch_length);
    for (unsigned i = 0; i < queues; ++i) {
        ibv_wc done[64];
        EXPECT_EQ(ibv_poll_cq(cqs[i], 64, done), static_cast<int>(expected[i])) << "queue " << i;
        EXPECT_GT(expected[i], 0u) << "a table index that no packet has proves nothing";
    }
    EXPECT_EQ(ibv_destroy_rwq_ind_table(table), EBUSY);
    EXPECT_EQ(ibv_destroy_wq(wqs[0]), EBUSY);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(RssQpTest, HasNoStateAndTakesNoWork) {
    ibv_qp_init_attr_ex attr = attributes();
    ibv_qp* const qp = ibv_create_qp_ex(open.context, &attr);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(qp->qp_num, 0u);
    ibv_qp_attr state{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_modify_qp(qp, &state, IBV_QP_STATE), EOPNOTSUPP);
    EXPECT_EQ(ibv_query_qp(qp, &state, IBV_QP_STATE, &init), EOPNOTSUPP);
    ibv_send_wr send{};
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(qp, &send, &bad), EINVAL);
    EXPECT_EQ(bad, &send);
    ibv_recv_wr receive{};
    ibv_recv_wr* bad_receive = nullptr;
    EXPECT_EQ(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
    EXPECT_EQ(bad_receive, &receive);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(RssQpTest, RefusesWhatTheKernelRefuses) {
    const auto refused = [&](auto change) {
        ibv_qp_init_attr_ex attr = attributes();
        change(attr);
        EXPECT_EQ(ibv_create_qp_ex(open.context, &attr), nullptr);
        return errno;
    };
    EXPECT_EQ(refused([](auto& attr) { attr.rx_hash_conf.rx_hash_function = 2; }), EOPNOTSUPP) << "XOR";
    EXPECT_EQ(refused([](auto& attr) { attr.rx_hash_conf.rx_hash_key_len = 39; }), EINVAL);
    EXPECT_EQ(refused([](auto& attr) { attr.rx_hash_conf.rx_hash_fields_mask = 0; }), EINVAL);
    EXPECT_EQ(refused([](auto& attr) { attr.qp_type = IBV_QPT_RC; }), EOPNOTSUPP);
    EXPECT_EQ(refused([&](auto& attr) { attr.send_cq = cqs[0]; }), EINVAL);
    EXPECT_EQ(refused([&](auto& attr) { attr.recv_cq = cqs[0]; }), EINVAL);
    EXPECT_EQ(refused([](auto& attr) { attr.cap.max_recv_wr = 1; }), EINVAL);
    EXPECT_EQ(refused([](auto& attr) { attr.cap.max_recv_sge = 1; }), EINVAL);
    EXPECT_EQ(refused([](auto& attr) { attr.cap.max_send_wr = 1; }), EINVAL);
    EXPECT_EQ(refused([](auto& attr) { attr.rwq_ind_tbl = nullptr; }), EINVAL);
    EXPECT_EQ(refused([](auto& attr) { attr.pd = nullptr; }), EINVAL);
    EXPECT_EQ(refused([](auto& attr) { attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS; }), EINVAL);
    EXPECT_EQ(refused([](auto& attr) { attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER; }), EINVAL);
    EXPECT_EQ(refused([](auto& attr) {
        attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
        attr.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING;
    }), EINVAL);
    EXPECT_EQ(refused([](auto& attr) { attr.rx_hash_conf.rx_hash_fields_mask |= IBV_RX_HASH_INNER; }), EOPNOTSUPP);
    EXPECT_EQ(refused([](auto& attr) { attr.rx_hash_conf.rx_hash_fields_mask = IBV_RX_HASH_IPSEC_SPI; }), EOPNOTSUPP);
    EXPECT_EQ(refused([](auto& attr) { attr.comp_mask &= ~static_cast<unsigned>(IBV_QP_INIT_ATTR_RX_HASH); }), EINVAL);
    ibv_srq_init_attr shared{.srq_context = nullptr, .attr = {4, 1, 0}};
    ibv_srq* const srq = ibv_create_srq(open.pd, &shared);
    EXPECT_EQ(refused([&](auto& attr) { attr.srq = srq; }), EINVAL);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(RssQpTest, TablesAreOfTwoToTheEleventhAtMost) {
    const std::vector<ibv_wq*> same(1u << 12, wqs[0]);
    const auto made = [&](std::uint32_t log) {
        ibv_rwq_ind_table_init_attr attr{log, const_cast<ibv_wq**>(same.data()), 0};
        errno = 0;
        return ibv_create_rwq_ind_table(open.context, &attr);
    };
    for (const std::uint32_t log : {12U, 30U}) {
        EXPECT_EQ(made(log), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
    ibv_rwq_ind_table* const largest = made(11);
    ASSERT_NE(largest, nullptr);
    EXPECT_EQ(ibv_destroy_rwq_ind_table(largest), 0);
    ibv_rwq_ind_table* const of_one = made(0);
    ASSERT_NE(of_one, nullptr);
    ibv_qp_init_attr_ex attr = attributes();
    attr.rwq_ind_tbl = of_one;
    attr.rx_hash_conf.rx_hash_fields_mask = 0;
    ibv_qp* const qp = ibv_create_qp_ex(open.context, &attr);
    ASSERT_NE(qp, nullptr) << "a table of one needs no hash";
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_rwq_ind_table(of_one), 0);
}

}  // namespace
}  // namespace ovsdr::soft::test
