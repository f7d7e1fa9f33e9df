// Any packets for queue pairs that are connected: reliable, unreliable, datagrams. From the BTH on the input says what
// is in them, mostly with the right queue pair and ICRC; now and then a whole frame is the input's. Nothing outside the
// memory that was registered is touched, completions are possible ones, and all packet buffers come back.
#include <memory>
#include <vector>

#include "tests/fuzz/check.hpp"
#include "tests/unit/datapath/rdma/roce/two_nodes.hpp"

using namespace ovsdr::soft::roce;
using ovsdr::soft::roce::test::Frame;
using ovsdr::soft::roce::test::Queue;
using ovsdr::soft::roce::test::TwoNodes;
using ovsdr::soft::test::packet_pool;

namespace {

struct World : TwoNodes {
    void TestBody() override {}

    Path path() {
        PathSpec spec{};
        spec.source_mac = {2, 0, 0, 0, 7, 1};
        spec.destination_mac = {2, 0, 0, 0, 7, 2};
        spec.source = left.gid();
        spec.destination = right.gid();
        spec.hop_limit = 64;
        spec.udp_source = 0xc000;
        return make_path(spec);
    }
};

World& world() {
    static auto* made = new World;
    return *made;
}

// A frame with `packet` from the BTH on, its ICRC made right.
Frame frame_around(World& world, std::vector<std::uint8_t> packet) {
    packet.resize((packet.size() + 3) & ~std::size_t{3});
    const Path path = world.path();
    Frame frame(path.size + packet.size() + 4);
    std::byte* bth = write_front(path, frame.data(), static_cast<unsigned>(packet.size() + 4));
    std::memcpy(bth, packet.data(), packet.size());
    const std::uint32_t check = icrc(frame.data() + ethernet_size, path.ipv4, frame.size() - ethernet_size - 4);
    for (unsigned i = 0; i < 4; ++i) frame[frame.size() - 4 + i] = static_cast<std::byte>(check >> 8 * i);
    return frame;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    World& here = world();
    FuzzedDataProvider input(data, size);
    const ibv_qp_type type = input.PickValueInArray({IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD});
    const unsigned buffers = rte_mempool_avail_count(packet_pool());
    {
        Queue client(here.left, {.type = type, .memory = 8192}), server(here.right, {.type = type, .memory = 8192});
        client.connect(server);
        server.connect(client);
        for (unsigned i = 0; i < 8; ++i)
            server.post_receive(i, {server.piece(i * 512, 256), server.piece(i * 512 + 256, 256)});
        // Something to acknowledge, answer, or refuse.
        if (type != IBV_QPT_UD && input.ConsumeBool()) {
            server.post({.opcode = MLX5_OPCODE_RDMA_WRITE,
                         .sges = {server.piece(0, 3000)},
                         .remote = client.address(),
                         .rkey = client.region.key});
            if (type == IBV_QPT_RC) {
                server.post({.opcode = MLX5_OPCODE_RDMA_READ,
                             .sges = {server.piece(4096, 2048)},
                             .remote = client.address(),
                             .rkey = client.region.key});
            }
        }
        for (unsigned step = 0; step < 16 && input.remaining_bytes() > 0; ++step) {
            auto packet = input.ConsumeBytes<std::uint8_t>(input.ConsumeIntegralInRange<std::size_t>(0, 1200));
            if (packet.empty()) continue;
            if (input.ConsumeProbability<float>() < 0.05F) {
                here.right.receive(Frame(reinterpret_cast<const std::byte*>(packet.data()),
                                         reinterpret_cast<const std::byte*>(packet.data() + packet.size())));
            } else if (packet.size() >= 12) {
                // BTH: the queue pair at byte 5, the PSN at byte 9; RETH's and AtomicETH's key and address follow it.
                for (unsigned i = 0; i < 3; ++i)
                    packet[5 + i] = static_cast<std::uint8_t>(server.number() >> 8 * (2 - i));
                const std::uint32_t psn = 0xfffff0 + input.ConsumeIntegralInRange<std::uint32_t>(0, 24);
                for (unsigned i = 0; i < 3; ++i) packet[9 + i] = static_cast<std::uint8_t>(psn >> 8 * (2 - i));
                if (packet.size() >= 28 && input.ConsumeBool()) {
                    const std::uint64_t address =
                        htobe64(server.address(input.ConsumeIntegralInRange<std::size_t>(0, 9000)));
                    const std::uint32_t key = htobe32(server.region.key);
                    std::memcpy(packet.data() + 12, &address, sizeof address);
                    std::memcpy(packet.data() + 20, &key, sizeof key);
                }
                here.right.receive(frame_around(here, packet));
            }
            for (unsigned turn = 0; turn < 4; ++turn) here.right.turn(here.now += 1000);
            here.right.sent.clear();
        }
        for (const auto& completion : server.receives_done()) FUZZ_CHECK(completion.wr_id < 8);
        (void)server.sends();
    }
    (void)here.left.turn(here.now += 1000);
    (void)here.right.turn(here.now += 1000);
    here.left.sent.clear();
    here.right.sent.clear();
    FUZZ_CHECK(rte_mempool_avail_count(packet_pool()) == buffers);
    return 0;
}
