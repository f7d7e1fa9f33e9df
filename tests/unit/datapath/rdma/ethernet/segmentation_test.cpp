// Segmentation and checksums of what a queue sends, tags and check sequences of what it receives: every header field of
// every packet is worked out here again, from the request and nothing else.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "datapath/rdma/dr_seam.hpp"
#include "datapath/rdma/ethernet/segmentation.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// RFC 1071, word by word.
[[nodiscard]] std::uint16_t ones_complement(const Bytes& bytes) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
        sum += bytes[i] * 256u + (i + 1 < bytes.size() ? bytes[i + 1] : 0);
        if (sum > 0xffff) sum -= 0xffff;
    }
    return static_cast<std::uint16_t>(sum);
}

struct Shape {
    bool v4, tagged;
    std::uint8_t protocol = 6;
    [[nodiscard]] std::size_t l3() const { return tagged ? 18 : 14; }
    [[nodiscard]] std::size_t l4() const { return l3() + (v4 ? 20 : 40); }
    [[nodiscard]] std::size_t size() const { return l4() + (protocol == 6 ? 20 : 8); }
};

[[nodiscard]] Bytes header_of(const Shape& shape, std::uint32_t sequence, std::uint16_t id, std::uint8_t flags) {
    Bytes header(12);
    std::iota(header.begin(), header.end(), std::uint8_t{2});
    if (shape.tagged) header.insert(header.end(), {0x81, 0x00, 0x20, 0x05});
    if (shape.v4) {
        header.insert(header.end(), {0x08,
                                     0x00,
                                     0x45,
                                     0,
                                     0,
                                     0,
                                     std::uint8_t(id >> 8),
                                     std::uint8_t(id),
                                     0x40,
                                     0,
                                     64,
                                     shape.protocol,
                                     0,
                                     0,
                                     10,
                                     1,
                                     2,
                                     3,
                                     10,
                                     4,
                                     5,
                                     6});
    } else {
        header.insert(header.end(), {0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, shape.protocol, 64});
        for (std::uint8_t i = 0; i < 32; ++i) header.push_back(static_cast<std::uint8_t>(i * 9));
    }
    if (shape.protocol == 6) {
        header.insert(header.end(), {0x12, 0x34, 0x00, 0x50});
        for (int shift = 24; shift >= 0; shift -= 8) header.push_back(static_cast<std::uint8_t>(sequence >> shift));
        header.insert(header.end(), {1, 2, 3, 4, 0x50, flags, 0x20, 0x00, 0, 0, 0, 0});
    } else {
        header.insert(header.end(), {0x12, 0x34, 0x00, 0x35, 0, 0, 0, 0});
    }
    return header;
}

/// Whether the IP header's checksum and the transport's with its pseudo header are right.
void expect_checksums(const Bytes& frame, const Shape& shape) {
    if (shape.v4) {
        const Bytes ip(frame.begin() + static_cast<long>(shape.l3()), frame.begin() + static_cast<long>(shape.l4()));
        EXPECT_EQ(ones_complement(ip), 0xffff);
    }
    const std::size_t first = shape.l3() + (shape.v4 ? 12 : 8);
    Bytes all(frame.begin() + static_cast<long>(first), frame.begin() + static_cast<long>(shape.l4()));
    const std::size_t length = frame.size() - shape.l4();
    all.insert(all.end(), {0, shape.protocol, std::uint8_t(length >> 8), std::uint8_t(length)});
    all.insert(all.end(), frame.begin() + static_cast<long>(shape.l4()), frame.end());
    EXPECT_EQ(ones_complement(all), 0xffff);
}

class SegmentationTest : public ::testing::Test {
protected:
    SegmentationTest() { std::iota(memory.begin(), memory.end(), std::uint8_t{1}); }
    ~SegmentationTest() override {
        if (qp) {
            EXPECT_EQ(ibv_destroy_qp(qp), 0);
        }
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
    }
    void create(std::uint32_t flags = 0, std::uint16_t max_header = 128) {
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.qp_type = IBV_QPT_RAW_PACKET;
        attr.cap = {8, 8, 5, 2, 64};
        attr.sq_sig_all = 1;
        attr.pd = open.pd;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
                         IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.create_flags = flags;
        attr.max_tso_header = max_header;
        attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
        qp = ibv_create_qp_ex(open.context, &attr);
        ASSERT_NE(qp, nullptr);
        ibv_qp_attr state{};
        state.port_num = 1;
        for (const auto& [to, mask] :
             {std::pair{IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PORT}, std::pair{IBV_QPS_RTR, int{IBV_QP_STATE}},
              std::pair{IBV_QPS_RTS, int{IBV_QP_STATE}}}) {
            state.qp_state = to;
            ASSERT_EQ(ibv_modify_qp(qp, &state, mask), 0);
        }
    }
    [[nodiscard]] ibv_sge piece(std::size_t offset, std::uint32_t size) const {
        return {reinterpret_cast<std::uintptr_t>(memory.data()) + offset, size, mr->lkey};
    }
    int post(Bytes header, std::vector<ibv_sge> pieces, std::uint16_t mss, unsigned flags = IBV_SEND_IP_CSUM) {
        ibv_send_wr wr{};
        wr.wr_id = 5;
        wr.sg_list = pieces.data();
        wr.num_sge = static_cast<int>(pieces.size());
        wr.opcode = mss ? IBV_WR_TSO : IBV_WR_SEND;
        wr.send_flags = flags;
        if (mss) {
            wr.tso.hdr = header.data();
            wr.tso.hdr_sz = static_cast<std::uint16_t>(header.size());
            wr.tso.mss = mss;
        }
        ibv_send_wr* bad = nullptr;
        return ibv_post_send(qp, &wr, &bad);
    }
    /// `length` packets a poll, as many polls as it takes.
    std::vector<Bytes> sent(unsigned length = batch_length) {
        std::vector<Bytes> frames;
        std::array<rte_mbuf*, batch_length> packets;
        while (const unsigned got = open.device.poll(Qp::of(qp).raw->spec().sqn, packets.data(), length)) {
            for (unsigned i = 0; i < got; ++i) {
                const auto* const data = rte_pktmbuf_mtod(packets[i], const std::uint8_t*);
                frames.emplace_back(data, data + packets[i]->data_len);
                rte_pktmbuf_free(packets[i]);
            }
        }
        return frames;
    }
    void expect_segments(const Shape& shape, const Bytes& payload, std::uint16_t mss, std::uint32_t sequence,
                         std::uint16_t id, std::uint8_t flags, const std::vector<Bytes>& frames) {
        ASSERT_EQ(frames.size(), std::max<std::size_t>(1, (payload.size() + mss - 1) / mss));
        Bytes all;
        for (std::size_t i = 0; i < frames.size(); ++i) {
            const Bytes& frame = frames[i];
            const bool last = i + 1 == frames.size();
            const std::size_t size = frame.size() - shape.size();
            EXPECT_EQ(size, last ? payload.size() - i * mss : mss);
            Bytes expected =
                header_of(shape, sequence + static_cast<std::uint32_t>(i * mss), static_cast<std::uint16_t>(id + i), 0);
            const std::size_t ip_size = frame.size() - shape.l3() - (shape.v4 ? 0 : 40);
            const std::size_t length_at = shape.l3() + (shape.v4 ? 2 : 4);
            expected[length_at] = static_cast<std::uint8_t>(ip_size >> 8);
            expected[length_at + 1] = static_cast<std::uint8_t>(ip_size);
            expected[shape.l4() + 13] = static_cast<std::uint8_t>(flags & ~(last ? 0 : 0x09) & ~(i ? 0x80 : 0));
            Bytes got(frame.begin(), frame.begin() + static_cast<long>(shape.size()));
            expect_checksums(frame, shape);
            if (shape.v4) got[shape.l3() + 10] = got[shape.l3() + 11] = 0;
            got[shape.l4() + 16] = got[shape.l4() + 17] = 0;
            EXPECT_EQ(got, expected) << "packet " << i;
            all.insert(all.end(), frame.begin() + static_cast<long>(shape.size()), frame.end());
        }
        EXPECT_EQ(all, payload);
    }
    ibv_wc completion() {
        ibv_poll_cq_attr attr{};
        ibv_wc done{};
        EXPECT_EQ(ibv_start_poll(extended, &attr), 0);
        done.status = extended->status;
        done.opcode = ibv_wc_read_opcode(extended);
        done.byte_len = ibv_wc_read_byte_len(extended);
        done.wc_flags = ibv_wc_read_wc_flags(extended);
        stripped = ibv_wc_read_cvlan(extended);
        ibv_end_poll(extended);
        return done;
    }

    OpenDevice open;
    ibv_cq_init_attr_ex cq_attr{.cqe = 63, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_CVLAN};
    ibv_cq_ex* extended = ibv_create_cq_ex(open.context, &cq_attr);
    ibv_cq* cq = ibv_cq_ex_to_cq(extended);
    std::uint16_t stripped = 0;  ///< of the last completion: a tag's TCI
    Bytes memory = Bytes(8192);
    ibv_mr* mr = ibv_reg_mr(open.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    ibv_qp* qp = nullptr;
};

TEST_F(SegmentationTest, EachPacketOfALargeSegmentIsWhole) {
    create();
    for (const Shape& shape : {Shape{true, false}, Shape{true, true}, Shape{false, false}, Shape{false, true}}) {
        for (const std::uint16_t mss : {100, 536, 1460, 5000}) {
            // Pieces whose ends fall nowhere near a segment's.
            ASSERT_EQ(post(header_of(shape, 0xfffffff0, 0xffff, 0x99),
                           {piece(3, 777), piece(2000, 1), piece(2500, 2001)}, mss),
                      0);
            Bytes payload(memory.begin() + 3, memory.begin() + 780);
            payload.push_back(memory[2000]);
            payload.insert(payload.end(), memory.begin() + 2500, memory.begin() + 4501);
            expect_segments(shape, payload, mss, 0xfffffff0, 0xffff, 0x99, sent(3));
            const ibv_wc done = completion();
            EXPECT_EQ(done.status, IBV_WC_SUCCESS);
            EXPECT_EQ(done.opcode, IBV_WC_TSO);
        }
    }
}

TEST_F(SegmentationTest, TheBuilderSegmentsToo) {
    create();
    const Shape shape{true, false};
    ibv_qp_ex* const builder = ibv_qp_to_qp_ex(qp);
    Bytes header = header_of(shape, 7, 1, 0x18);
    ibv_wr_start(builder);
    builder->wr_id = 9;
    builder->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_IP_CSUM;
    ibv_wr_send_tso(builder, header.data(), static_cast<std::uint16_t>(header.size()), 1000);
    std::fill(header.begin(), header.end(), 0);  // It was copied.
    ibv_wr_set_sge(builder, mr->lkey, reinterpret_cast<std::uintptr_t>(memory.data()), 2500);
    ASSERT_EQ(ibv_wr_complete(builder), 0);
    expect_segments(shape, {memory.begin(), memory.begin() + 2500}, 1000, 7, 1, 0x18, sent());
    ibv_wr_start(builder);
    ibv_wr_send_tso(builder, header.data(), 500, 1000);
    ibv_wr_set_sge(builder, mr->lkey, 0, 1);
    EXPECT_EQ(ibv_wr_complete(builder), EINVAL) << "a header larger than was said";
}

/// Each packet is cut as the header says behind the tags that the device follows, and never looked at beyond its end.
TEST(SegmentHeaderTest, FollowsAsManyTagsAsTheParser) {
    constexpr std::size_t page = 4096;
    auto* const pages = static_cast<std::uint8_t*>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(static_cast<void*>(pages), MAP_FAILED);
    ASSERT_EQ(mprotect(pages + page, page, PROT_NONE), 0);
    for (const std::uint8_t type : {0x81, 0x88}) {
        for (std::size_t tags = 0; tags <= 20; ++tags) {
            for (std::size_t size = 14; size < 100; ++size) {
                Bytes frame = header_of({.v4 = true, .tagged = false}, 1000, 7, 0x10);
                frame.resize(54);
                for (std::size_t i = 0; i < tags; ++i) {
                    const Bytes tag{type, std::uint8_t(type == 0x81 ? 0 : 0xa8), 0, 5};
                    frame.insert(frame.begin() + 12, tag.begin(), tag.end());
                }
                frame.resize(size);
                std::uint8_t* const at = pages + page - size;
                std::copy(frame.begin(), frame.end(), at);
                write_segment_header({at, size}, {.offset = 5, .size = 5, .index = 1, .last = false});
                const std::size_t l3 = 14 + 4 * tags;
                if (tags <= 2 && size >= l3 + 20) {
                    EXPECT_EQ(at[l3 + 2] << 8 | at[l3 + 3], static_cast<int>(size - l3)) << tags;
                    EXPECT_EQ(at[l3 + 4] << 8 | at[l3 + 5], 8);
                } else {
                    EXPECT_TRUE(std::equal(frame.begin(), frame.end(), at)) << tags << " tags, " << size;
                }
            }
        }
    }
    munmap(pages, 2 * page);
}

TEST_F(SegmentationTest, RefusesWhatItCannotSegment) {
    create();
    const Bytes header = header_of({true, false}, 0, 0, 0);
    EXPECT_EQ(post(Bytes(13), {piece(0, 10)}, 100), EINVAL);
    EXPECT_EQ(post(Bytes(129), {piece(0, 10)}, 100), EINVAL);
    EXPECT_EQ(post(header, {piece(0, 10)}, 100, IBV_SEND_INLINE), EINVAL);
    ASSERT_EQ(post(header, {piece(0, 100), {0, 10, mr->lkey}}, 60), 0);
    EXPECT_EQ(sent().size(), 1u) << "the first is whole, the second is not";
    EXPECT_EQ(completion().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    create();
    Bytes large(1 << 16);
    ibv_mr* const region = ibv_reg_mr(open.pd, large.data(), large.size(), 0);
    const ibv_sge quarter{reinterpret_cast<std::uintptr_t>(large.data()), 1 << 16, region->lkey};
    ASSERT_EQ(post(header, {quarter, quarter, quarter, quarter}, 8192), 0);
    EXPECT_EQ(sent().size(), 32u) << "max_tso";
    EXPECT_EQ(completion().status, IBV_WC_SUCCESS);
    ASSERT_EQ(post(header, {quarter, quarter, quarter, quarter, piece(0, 1)}, 8192), 0);
    EXPECT_EQ(sent().size(), 0u) << "a byte more";
    EXPECT_EQ(completion().status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(ibv_dereg_mr(region), 0);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    create(0, 0);
    EXPECT_EQ(post(header, {piece(0, 10)}, 100), EINVAL) << "a queue without segmentation";
}

TEST_F(SegmentationTest, ChecksumsAreFilledInOnDemandOnly) {
    create();
    for (const Shape& shape :
         {Shape{true, false}, Shape{true, true, 17}, Shape{false, false, 17}, Shape{false, true}}) {
        Bytes frame = header_of(shape, 1, 2, 0x10);
        frame.insert(frame.end(), {1, 2, 3, 4, 5});
        const std::size_t ip_size = frame.size() - shape.l3() - (shape.v4 ? 0 : 40);
        frame[shape.l3() + (shape.v4 ? 3 : 5)] = static_cast<std::uint8_t>(ip_size);
        std::copy(frame.begin(), frame.end(), memory.begin());
        ASSERT_EQ(post({}, {piece(0, static_cast<std::uint32_t>(frame.size()))}, 0, 0), 0);
        EXPECT_EQ(sent().at(0), frame) << "as it was given";
        ASSERT_EQ(post({}, {piece(0, static_cast<std::uint32_t>(frame.size()))}, 0), 0);
        expect_checksums(sent().at(0), shape);
    }
}

class ReceiveFlagsTest : public SegmentationTest {
protected:
    /// What lies in the buffer after the frame has come, and its completion.
    Bytes receive(const Bytes& frame) {
        std::fill(memory.begin(), memory.end(), std::uint8_t{0xee});
        std::array<ibv_sge, 2> pieces{piece(0, 10), piece(10, 1000)};
        ibv_recv_wr wr{1, nullptr, pieces.data(), 2};
        ibv_recv_wr* bad = nullptr;
        EXPECT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
        rte_mbuf* packet = rte_pktmbuf_alloc(packet_pool());
        std::copy(frame.begin(), frame.end(), rte_pktmbuf_mtod(packet, std::uint8_t*));
        packet->data_len = static_cast<std::uint16_t>(frame.size());
        packet->pkt_len = packet->data_len;
        set_source(packet, manager_vport);
        const Sink sink = receive_sink_of(qp);
        sink.deliver(sink.self, 0, &packet, 1);
        done = completion();
        EXPECT_EQ(memory[done.byte_len], 0xee);
        return {memory.begin(), memory.begin() + done.byte_len};
    }
    ibv_wc done{};
};

TEST_F(ReceiveFlagsTest, ACvlanTagIsStripped) {
    create(IBV_QP_CREATE_CVLAN_STRIPPING);
    const Bytes plain = header_of({true, false}, 0, 0, 0);
    Bytes tagged = header_of({true, true}, 0, 0, 0);
    tagged[14] = 0x6a;
    tagged[15] = 0xbc;
    EXPECT_EQ(receive(tagged), plain);
    EXPECT_EQ(stripped, 0x6abc);
    EXPECT_EQ(receive(plain), plain);
    EXPECT_EQ(stripped, 0);
    Bytes service = header_of({true, true}, 0, 0, 0);
    service[12] = 0x88;
    service[13] = 0xa8;
    EXPECT_EQ(receive(service), service);
}

TEST_F(ReceiveFlagsTest, TheCheckSequenceFollowsTheData) {
    create(IBV_QP_CREATE_SCATTER_FCS);
    Bytes frame{'1', '2', '3', '4', '5', '6', '7', '8', '9'};
    Bytes expected = frame;
    expected.insert(expected.end(), {0x26, 0x39, 0xf4, 0xcb});  // CRC-32's check value, as Ethernet sends it
    EXPECT_EQ(receive(frame), expected);
}

TEST_F(ReceiveFlagsTest, TheFlagSaysWhetherChecksumsAreRight) {
    create();
    const Shape shape{true, false};
    Bytes frame = header_of(shape, 1, 2, 0x10);
    frame[shape.l3() + 3] = 40;
    std::copy(frame.begin(), frame.end(), memory.begin());
    ASSERT_EQ(post({}, {piece(0, static_cast<std::uint32_t>(frame.size()))}, 0), 0);
    const Bytes right = sent().at(0);
    static_cast<void>(completion());
    receive(right);
    EXPECT_TRUE(done.wc_flags & IBV_WC_IP_CSUM_OK);
    for (const std::size_t at : {shape.l3() + 8, shape.l4() + 5}) {
        Bytes wrong = right;
        wrong[at] ^= 1;
        receive(wrong);
        EXPECT_FALSE(done.wc_flags & IBV_WC_IP_CSUM_OK) << at;
    }
}

TEST_F(ReceiveFlagsTest, FlagsThatThereAreNotAreRefused) {
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.cap = {1, 1, 1, 1, 0};
    attr.pd = open.pd;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    for (const auto& [flag, error] : {std::pair{IBV_QP_CREATE_SOURCE_QPN, EINVAL},
                                      std::pair{IBV_QP_CREATE_PCI_WRITE_END_PADDING, EOPNOTSUPP},
                                      std::pair{static_cast<ibv_qp_create_flags>(1 << 2), EINVAL}}) {
        attr.create_flags = flag;
        EXPECT_EQ(ibv_create_qp_ex(open.context, &attr), nullptr);
        EXPECT_EQ(errno, error) << flag;
    }
}

TEST_F(ReceiveFlagsTest, OwnMulticastsAreNotHeardOnDemand) {
    const auto heard = [&](std::uint8_t first, bool own) {
        memory[0] = first;
        rte_mbuf* packet = nullptr;
        if (own) {
            EXPECT_EQ(post({}, {piece(0, 60)}, 0, 0), 0);
            EXPECT_EQ(open.device.poll(Qp::of(qp).raw->spec().sqn, &packet, 1), 1u);
            EXPECT_EQ(completion().opcode, IBV_WC_SEND);
        } else {
            packet = rte_pktmbuf_alloc(packet_pool());
            std::copy_n(memory.begin(), 60, reinterpret_cast<std::uint8_t*>(rte_pktmbuf_append(packet, 60)));
        }
        set_source(packet, manager_vport);
        const Sink sink = receive_sink_of(qp);
        sink.deliver(sink.self, 0, &packet, 1);
        ibv_wc received{};
        return ibv_poll_cq(cq, 1, &received) == 1;
    };
    for (const std::uint32_t flag : {0u, unsigned{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB}}) {
        create(flag);
        for (unsigned i = 0; i < 4; ++i) {
            ibv_sge place = piece(100, 1000);
            ibv_recv_wr wr{1, nullptr, &place, 1};
            ibv_recv_wr* bad = nullptr;
            ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
        }
        EXPECT_EQ(heard(0x01, true), flag == 0);
        EXPECT_TRUE(heard(0x02, true)) << "unicast";
        EXPECT_TRUE(heard(0x01, false)) << "another's";
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
        qp = nullptr;
    }
}

}  // namespace
}  // namespace ovsdr::soft::test
