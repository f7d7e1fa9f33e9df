// A switch that breaks the rules: it says and writes what a test wants.
#pragma once

#include <vector>

#include "tests/unit/tools/drcollect/collector.hpp"

namespace ovsdr::drcollect::test {

struct Rogue {
    Rogue(const std::string& port, Signature signature, std::uint16_t slots, std::uint64_t oldest = 0)
        : geometry{.segment_size = 16u * signature.block_size, .slots = slots, .signature = signature},
          memory(std::size_t{geometry.segment_size} * slots),
          ring(geometry, 77, 5, memory.bytes, 65535),
          connection(std::move(Connection::create(open_nic(), {}, geometry).value())),
          socket(std::move(MessageSocket::connect("127.0.0.1", port, 5s, -1).value())) {
        for (std::uint64_t sequence = 0; sequence < oldest; ++sequence) {
            seal();
            ring.release(sequence + 1);
        }
        EXPECT_TRUE(socket.send(Hello{.session = 77,
                                      .oldest = oldest,
                                      .application_tag = 5,
                                      .geometry = geometry,
                                      .endpoint = connection->local(),
                                      .mirror = "../../../rogue",
                                      .interfaces = {{"x", 100}}}));
        auto answer = socket.await(20s, -1);
        for (; answer && std::holds_alternative<Wait>(*answer); answer = socket.await(20s, -1)) {
            waits.push_back(std::get<Wait>(*answer));
        }
        accept = std::get<Accept>(*answer);
        EXPECT_TRUE(connection->connect(accept.endpoint));
    }
    /// A segment of one frame.
    void seal(std::uint32_t interface = 0) {
        const std::array<std::byte, 60> frame{};
        EXPECT_TRUE(ring.append({.interface = interface, .time = 1, .bytes = frame, .original_size = 60}));
        EXPECT_TRUE(ring.seal(2));
    }
    /// Writes segment `sequence` into the slot of `into`, under that one's name or its own.
    void write(std::uint64_t sequence, std::uint64_t into, std::uint64_t named) {
        const auto bytes = ring.blocks_of(sequence);
        // The tags are those of `sequence`; the immediate value follows from the number that is posted.
        const SlotMemory from{reinterpret_cast<std::uint64_t>(bytes.data()), memory.mr->lkey};
        const auto blocks = geometry.signature.blocks_of(bytes.size());
        EXPECT_TRUE(connection->post_write(named, from, blocks, tag, accept.keys[geometry.slot_of(into)]));
        EXPECT_EQ(mirror::test::completions(*connection, 1).size(), 1u);
    }
    template <typename T>
    T hear() {
        const auto message = socket.await(20s, -1);
        EXPECT_TRUE(message) << message.error().what;
        if (!message || !std::holds_alternative<T>(*message)) {
            ADD_FAILURE() << "something else";
            return {};
        }
        return std::get<T>(*message);
    }

    const Geometry geometry;
    mirror::test::Memory memory;
    SegmentRing ring;
    std::unique_ptr<Connection> connection;
    MessageSocket socket;
    std::vector<Wait> waits;
    Accept accept{};
    std::uint16_t tag = 5;   ///< of the fields
};

}  // namespace ovsdr::drcollect::test
