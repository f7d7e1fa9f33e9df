// What an address handle says, and what the wire shows of it.
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

struct AddressesTest : TwoNodes, testing::WithParamInterface<unsigned> {
    static constexpr std::uint32_t label = 0x12345;
    static constexpr std::uint8_t traffic_class = 0x48, hop_limit = 9, service_level = 6;

    ibv_global_route route() {
        return {.dgid = right.gid(GetParam()), .flow_label = label, .sgid_index = static_cast<std::uint8_t>(GetParam()),
                .hop_limit = hop_limit, .traffic_class = traffic_class};
    }
    /// The first frame that leaves the left node while `work` is done.
    Frame first_frame(const std::function<void()>& work) {
        Frame first;
        wire = [&first](const Frame& frame, bool from_left) {
            if (from_left && first.empty()) first = frame;
            return 1u;
        };
        work();
        run();
        return first;
    }
    /// The port's oracle: rdma-core's own function.
    void expect_route(Frame frame) {
        if (GetParam() >= 3) {
            const Frame tag(frame.begin() + 12, frame.begin() + 16);
            EXPECT_EQ(tag,
                      (Frame{std::byte{0x81}, std::byte{0}, std::byte{service_level << 5}, std::byte{Node::vlan}}));
            frame.erase(frame.begin() + 12, frame.begin() + 16);
        }
        const auto byte = [&frame](std::size_t at) { return std::to_integer<unsigned>(frame.at(at)); };
        const bool ipv4 = byte(12) == 0x08;
        if (ipv4) {
            EXPECT_EQ(byte(15), traffic_class);
            EXPECT_EQ(byte(22), hop_limit);
        } else {
            EXPECT_EQ(byte(14) << 24 | byte(15) << 16 | byte(16) << 8 | byte(17),
                      6u << 28 | traffic_class << 20 | label);
            EXPECT_EQ(byte(21), hop_limit);
        }
        const std::size_t udp = ipv4 ? 34 : 54;
        EXPECT_EQ(byte(udp) << 8 | byte(udp + 1), ibv_flow_label_to_udp_sport(label));
    }
};

TEST_P(AddressesTest, AConnectionsRouteIsOnTheWire) {
    Queue client{left, {}}, server{right, {}};
    ibv_qp_attr attr = Queue::usual();
    attr.ah_attr.grh = route();
    attr.ah_attr.sl = service_level;
    client.connect(server, GetParam(), attr);
    server.connect(client, GetParam(), attr);
    expect_route(first_frame([&] {
        client.post({.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 8)}, .remote = server.address(),
                     .rkey = server.region.key});
    }));
    EXPECT_EQ(client.sends().size(), 1U);
}

TEST_P(AddressesTest, ADatagramsRouteIsOnTheWire) {
    Queue client{left, {.type = IBV_QPT_UD}}, server{right, {.type = IBV_QPT_UD}};
    client.connect(server);
    server.connect(client);
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh = route();
    attr.sl = service_level;
    mlx5_wqe_av vector{};
    ASSERT_EQ(resolve(left.state(), attr, vector), 0);
    vector.key.qkey.qkey = htobe32(Queue::usual().qkey);
    vector.dqp_dct = htobe32(server.number());
    expect_route(first_frame([&] { client.post({.sges = {client.piece(0, 8)}, .address = &vector}); }));
    EXPECT_EQ(client.sends().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Gids, AddressesTest, testing::Values(1u, 2u, 3u, 4u));

struct VlanTest : TwoNodes {
    static constexpr unsigned gid = 3;

    static Frame tagged(Frame frame, std::uint16_t tag) {
        const Frame bytes{std::byte{0x81}, std::byte{0}, static_cast<std::byte>(tag >> 8), static_cast<std::byte>(tag)};
        frame.insert(frame.begin() + 12, bytes.begin(), bytes.end());
        return frame;
    }
    static Frame untagged(Frame frame) {
        frame.erase(frame.begin() + 12, frame.begin() + 16);
        return frame;
    }
};

TEST_F(VlanTest, PacketsForAnAddressOfAVlanMustCarryItsTag) {
    Queue client{left, {}}, server{right, {}};
    client.connect(server, gid);
    server.connect(client, gid);
    Frame sent;
    wire = [&sent](const Frame& frame, bool from_left) {
        if (from_left && sent.empty()) sent = frame;
        return 0u;
    };
    server.post_receive(1, {server.piece(0, 100)});
    client.post({.sges = {client.piece(0, 100)}});
    run([&] { return !sent.empty(); });
    const Frame plain = untagged(sent);
    for (const Frame& wrong : {plain, tagged(plain, 0), tagged(plain, Node::vlan + 1), tagged(sent, Node::vlan)}) {
        right.receive(wrong);
        run({}, 0);
        EXPECT_TRUE(server.receives_done().empty());
    }
    Frame foreign = tagged(plain, Node::vlan + 1);
    foreign.back() ^= std::byte{1};
    right.receive(foreign);
    EXPECT_EQ(right.transport().counters().bad_icrc, 0U) << "what is in another's VLAN is not judged";
    right.receive(tagged(plain, 3 << 13 | Node::vlan));
    run({}, 0);
    EXPECT_EQ(server.receives_done().size(), 1U) << "the priority is the sender's";
}

TEST_F(VlanTest, AnAddressWithoutAVlanTakesPriorityTagsAndNoOthers) {
    Queue client{left, {}}, server{right, {}};
    client.connect(server);
    server.connect(client);
    Frame sent;
    wire = [&sent](const Frame& frame, bool from_left) {
        if (from_left && sent.empty()) sent = frame;
        return 0u;
    };
    server.post_receive(1, {server.piece(0, 100)});
    client.post({.sges = {client.piece(0, 100)}});
    run([&] { return !sent.empty(); });
    right.receive(tagged(sent, Node::vlan));
    run({}, 0);
    EXPECT_TRUE(server.receives_done().empty());
    right.receive(tagged(sent, 5 << 13));
    run({}, 0);
    EXPECT_EQ(server.receives_done().size(), 1U);
}

TEST_F(VlanTest, WhoHasAnAddressOfAVlanIsAnsweredThereOnly) {
    Frame request;
    for (const unsigned byte :
         {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0,   0,  0,   9, 9, 8, 6, 0, 1, 8, 0,   6,  4,   0,
          1,    2,    0,    0,    0,    9,    9, 198, 51, 100, 9, 0, 0, 0, 0, 0, 0, 198, 51, 100, 2}) {
        request.push_back(static_cast<std::byte>(byte));
    }
    std::vector<Frame> answers;
    wire = [&answers](const Frame& frame, bool from_left) {
        if (!from_left) answers.push_back(frame);
        return 0u;
    };
    for (const Frame& wrong : {request, tagged(request, Node::vlan + 1)}) {
        right.receive(wrong);
        run({}, 0);
        EXPECT_TRUE(answers.empty());
    }
    right.receive(tagged(request, Node::vlan));
    run({}, 0);
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0], tagged(untagged(answers[0]), Node::vlan));
    EXPECT_EQ(answers[0].at(25), std::byte{2}) << "a reply";
}


}  // namespace
}  // namespace ovsdr::soft::roce::test
