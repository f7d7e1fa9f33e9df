// Encapsulation through the system's own libmlx5: what the entries that it writes for a reformat do to packets, and
// what a rule's counter counts of them. Runs under tests/connectx/run, for each profile.
#include <algorithm>
#include <array>
#include <string>

#include "tests/unit/connectx/forwarding.hpp"
#include "tests/unit/connectx/tunnel_frames.hpp"

namespace ovsdr::connectx {
namespace {

using namespace test;
using entries::test::Bytes;
using entries::test::frame_of;
using entries::test::put_sum;
using entries::test::sum_of;

class Encapsulating : public Forwarding {
protected:
    void SetUp() override {
        MatchParam ports;
        ports.number(source_port_at, 0xFFFF, 2);
        ASSERT_NO_FATAL_FAILURE(make_tables(ports, misc));
        std::array<std::uint32_t, 4> command{htobe32(0x939 << 16)}, answer{};   // ALLOC_FLOW_COUNTER
        counter_.reset(mlx5dv_devx_obj_create(context_.get(), command.data(), sizeof command, answer.data(),
                                              sizeof answer));
        ASSERT_NE(counter_, nullptr) << strerror(errno);
        counter_id_ = be32toh(answer[2]);
        count_.reset(mlx5dv_dr_action_create_flow_counter(counter_.get(), 0));
        push_.reset(mlx5dv_dr_action_create_push_vlan(domain_.get(), htobe32(0x81000007)));
        std::array<__be64, 1> ttl{htobe64(std::uint64_t{0x100A0008} << 32 | 9)};
        ttl_.reset(mlx5dv_dr_action_create_modify_header(domain_.get(), 0, sizeof ttl, ttl.data()));
        ASSERT_NE(ttl_, nullptr) << strerror(errno);
    }

    Action reformat(Bytes headers) {
        return Action(mlx5dv_dr_action_create_packet_reformat(
            domain_.get(), 0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL, headers.size(), headers.data()));
    }
    Rule rule(std::uint16_t source, std::vector<mlx5dv_dr_action*> actions) {
        MatchParam value;
        value.number(source_port_at, source, 2);
        actions.insert(actions.begin(), count_.get());
        return rule_for(value, std::move(actions));
    }
    struct Sent {
        Bytes bytes;
        std::uint64_t counted;
    };
    Sent send(std::uint16_t source, const Bytes& frame) {
        const std::uint64_t before = device()->counted(counter_id_)->bytes;
        entries::Packet packet = forwarded(source, frame);
        return {std::move(packet.bytes), device()->counted(counter_id_)->bytes - before};
    }
    /// ConnectX-5 puts nothing around what the wire brings.
    static std::vector<std::uint16_t> sources() {
        if (device()->steering_format() == 0) return {from_vf};
        return {from_vf, wire};
    }

    DevxObj counter_;
    Action count_, push_, ttl_;
    std::uint32_t counter_id_ = 0;
};

TEST_F(Encapsulating, PutsTheHeadersInFrontAndCountsThePacketWithout) {
    for (const Bytes& headers : {tunnel::vxlan(), tunnel::geneve(0), tunnel::geneve(19),
                                 tunnel::gre(tunnel::outer_ipv4(47)), tunnel::gre(tunnel::outer_ipv6(47)),
                                 tunnel::vxlan_over(tunnel::outer_ipv6(17))}) {
        const Action encapsulate = reformat(headers);
        ASSERT_NE(encapsulate, nullptr) << strerror(errno);
        for (const std::uint16_t source : sources()) {
            const Rule made = rule(source, {encapsulate.get()});
            ASSERT_NE(made, nullptr) << strerror(errno);
            for (const bool v6 : {false, true}) {
                const Bytes frame = frame_of({.ipv6 = v6, .protocol = 17});
                const Sent sent = send(source, frame);
                EXPECT_EQ(sent.bytes, encapsulated(headers, frame));
                EXPECT_EQ(sent.counted, frame.size());
            }
        }
    }
}

TEST_F(Encapsulating, ComesLastAndCountsATagWhereTheCompilerBelievesSo) {
    const Bytes headers = tunnel::vxlan(), frame = frame_of({.protocol = 17});
    Bytes routed = frame;
    routed[22] = 9;
    put(routed, 24, 0);
    put_sum(routed, 24, sum_of(routed, 14, 34));
    const Action encapsulate = reformat(headers);
    ASSERT_NE(encapsulate, nullptr) << strerror(errno);
    const bool counts_the_tag_of_vports = device()->steering_format() == 0;
    for (const std::uint16_t source : sources()) {
        const Rule rewritten = rule(source, {ttl_.get(), encapsulate.get()});
        ASSERT_NE(rewritten, nullptr) << strerror(errno);
        Sent sent = send(source, frame);
        EXPECT_EQ(sent.bytes, encapsulated(headers, routed));
        EXPECT_EQ(sent.counted, frame.size());
    }
    for (const std::uint16_t source : sources()) {
        const Rule pushed = rule(source, {push_.get(), encapsulate.get()});
        ASSERT_NE(pushed, nullptr) << strerror(errno);
        const Sent sent = send(source, frame);
        EXPECT_EQ(sent.bytes, encapsulated(headers, tagged(frame)));
        EXPECT_EQ(sent.counted, frame.size() + (source == from_vf && counts_the_tag_of_vports ? 4 : 0));
    }
}

TEST_F(Encapsulating, ConnectX5RefusesItOnTheWiresSide) {
    const Action encapsulate = reformat(tunnel::vxlan());
    ASSERT_NE(encapsulate, nullptr);
    EXPECT_EQ(rule(wire, {encapsulate.get()}) != nullptr, device()->steering_format() != 0);
}

}  // namespace
}  // namespace ovsdr::connectx
