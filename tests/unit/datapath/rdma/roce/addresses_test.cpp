// What an address handle says, and what the wire shows of it.
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

struct AddressesTest : TwoNodes, testing::WithParamInterface<unsigned> {
    static constexpr std::uint32_t label = 0x12345;
    static constexpr std::uint8_t traffic_class = 0x48, hop_limit = 9;

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
    void expect_route(const Frame& frame) {
        const auto byte = [&frame](std::size_t at) { return std::to_integer<unsigned>(frame.at(at)); };
        const bool ipv4 = byte(12) == 0x08;
        if (ipv4) {
            EXPECT_EQ(byte(15), traffic_class);
            EXPECT_EQ(byte(22), hop_limit);
        } else {
            EXPECT_EQ(byte(14) << 24 | byte(15) << 16 | byte(16) << 8 | byte(17), 6u << 28 | traffic_class << 20 | label);
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
    mlx5_wqe_av vector{};
    ASSERT_EQ(resolve(left.state(), attr, vector), 0);
    vector.key.qkey.qkey = htobe32(Queue::usual().qkey);
    vector.dqp_dct = htobe32(server.number());
    expect_route(first_frame([&] { client.post({.sges = {client.piece(0, 8)}, .address = &vector}); }));
    EXPECT_EQ(client.sends().size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Gids, AddressesTest, testing::Values(1u, 2u));

}  // namespace
}  // namespace ovsdr::soft::roce::test
