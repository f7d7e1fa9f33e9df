// Copies for software on the system's own libmlx5: the entries that it writes are executed on packets. Runs under
// tests/connectx/run, for each profile.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "offload/dr/device/ib_port.hpp"
#include "offload/dr/device/leak.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "tests/connectx/entries/forwarder.hpp"
#include "tests/unit/connectx/tunnel_frames.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/software_actions.hpp"

namespace ovsdr::dr {
namespace {

using connectx::entries::Delivery;
using connectx::entries::test::frame_of;
using connectx::test::encapsulated;
using connectx::test::readdressed;
using connectx::test::tagged;
using slowpath::PortQueue;
using test::MegaflowBuilder, test::tap;
using Bytes = connectx::test::Bytes;
using Frames = std::vector<Bytes>;

constexpr std::uint32_t uplink = 9, vxlan_port = 20;
constexpr std::uint16_t wire = 0xFFFF;

class CopiesOnConnectX : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_NE(device(), nullptr) << "not under tests/connectx/run";
        auto opened = Eswitch::open("mlx5_0");
        ASSERT_TRUE(opened) << opened.error().what;
        eswitch_ = *opened;
        for (const auto& [vport, odp] : {std::pair{1, 1}, {2, 2}, {0xFFFF, 9}}) {
            const VportId number{static_cast<std::uint16_t>(vport)};
            PortQueue& queue = add_queue(number);
            ASSERT_TRUE(eswitch_->attach_port(
                {OdpPort{static_cast<std::uint32_t>(odp)}, number, "p", queue.qp(), queue.sqn()}));
            attached_.push_back(number);
        }
        eswitch_->set_tunnel_port({OdpPort{vxlan_port}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
        const auto led = eswitch_->lead_copies(CopyKind::other, add_queue(VportId{0}).qp());
        ASSERT_TRUE(led) << led.error().what;
    }
    void TearDown() override {
        if (eswitch_ == nullptr) return;
        eswitch_->flush(std::nullopt);
        eswitch_->stop_copies(CopyKind::other);
        for (const VportId vport : attached_) eswitch_->detach_port(vport);
        queues_.clear();
        eswitch_.reset();
        EXPECT_EQ(device()->alive(), (std::map<std::string, std::uint64_t>{}));
        EXPECT_EQ(device()->not_emulated(), std::vector<std::string>{});
        EXPECT_EQ(leaked_objects(), 0U);
    }
    PortQueue& add_queue(VportId vport) {
        const auto ib_port = find_ib_port(eswitch_->context(), vport);
        EXPECT_TRUE(ib_port);
        auto queue = PortQueue::create({.context = eswitch_->context(), .pd = eswitch_->pd(),
                                        .ib_port = ib_port->number});
        EXPECT_TRUE(queue);
        queues_.push_back(std::move(*queue));
        return *queues_.back();
    }
    static connectx::Device* device() { return connectx::device(); }
    [[nodiscard]] static bool is_connectx5() { return device()->steering_format() == 0; }

    void put(const Ufid& ufid, const ovsdr_megaflow& flow) {
        (void)eswitch_->put(ufid, flow);
        const auto report = eswitch_->explain(ufid);
        EXPECT_TRUE(report->offloaded) << report->text;
    }
    static MegaflowBuilder flow(std::uint32_t in_port) { return MegaflowBuilder(in_port).ipv4(); }
    /// What went to vports, and the copies, by what software is to do.
    struct Outcome {
        Frames forwarded, to_tap, of_bytes;
    };
    Outcome sent(connectx::entries::Forwarder& forwarder, std::uint16_t from, const Bytes& frame) {
        Outcome outcome;
        for (const Delivery& each : forwarder.from_port(from, frame)) {
            if (each.kind == Delivery::Kind::dropped) continue;
            if (each.kind == Delivery::Kind::vport) {
                outcome.forwarded.push_back(each.packet.bytes);
                continue;
            }
            EXPECT_EQ(each.kind, Delivery::Kind::queue_pair);
            const auto work = eswitch_->work_of(each.packet.flow_tag);
            if (work == nullptr) {
                ADD_FAILURE() << "a miss, or no work of ours: tag " << each.packet.flow_tag;
                continue;
            }
            last_work_ = *work;
            (std::holds_alternative<SoftwareWork::Ports>(work->work) ? outcome.to_tap : outcome.of_bytes)
                .push_back(each.packet.bytes);
        }
        return outcome;
    }
    Outcome sent(std::uint16_t from, const Bytes& frame) {
        connectx::entries::Forwarder forwarder(*device());
        return sent(forwarder, from, frame);
    }

    std::shared_ptr<Eswitch> eswitch_;
    std::vector<std::unique_ptr<PortQueue>> queues_;
    std::vector<VportId> attached_;
    SoftwareWork last_work_;
};

TEST_F(CopiesOnConnectX, EachPacketGoesOnAndComesUpOnceForEachWork) {
    const Bytes frame = frame_of({});
    for (const std::uint16_t from : {std::uint16_t{1}, wire}) {
        const std::uint32_t in_port = from == wire ? uplink : 1;
        put({1, from}, flow(in_port).output(2).software(test::bytes).output(tap));
        const Outcome out = sent(from, frame);
        EXPECT_EQ(out.forwarded, Frames{frame});
        EXPECT_EQ(out.to_tap, Frames{frame});
        EXPECT_EQ(out.of_bytes, Frames{frame});
        EXPECT_EQ(last_work_.in_port.value, in_port);
        const auto last = eswitch_->del({1, from});
        EXPECT_EQ(last->packets, 1U);
        EXPECT_EQ(last->bytes, frame.size());
    }
    EXPECT_EQ(eswitch_->totals().copies, 4U);
    EXPECT_EQ(eswitch_->totals().misses, 0U);
}

/// Its meters lead to a table at one level.
TEST_F(CopiesOnConnectX, OnAConnectX5SoftwareMetersCopies) {
    if (!is_connectx5()) return;
    const Bytes frame = frame_of({});
    eswitch_->set_meter(5, {.rate = 1000, .burst = 1000});
    put({6, 1}, flow(1).software(std::string_view("\x07\x05\x0c\x01", 4)).behind_meter(5, 2).output(2));
    const Outcome out = sent(1, frame);
    EXPECT_EQ(out.forwarded, Frames{frame});
    EXPECT_EQ(out.of_bytes, Frames{frame});
    EXPECT_EQ(std::get<SoftwareWork::Actions>(last_work_.work).size(), 4U);
    (void)eswitch_->del({6, 1});
    eswitch_->remove_meter(5);
}

TEST_F(CopiesOnConnectX, ACopyIsOfThePacketAsItIsAtItsPlace) {
    const Bytes frame = frame_of({});
    put({2, 1}, flow(1).software(test::bytes).push(7).output(tap).output(2));
    const Outcome out = sent(1, frame);
    EXPECT_EQ(out.of_bytes, Frames{frame});
    EXPECT_EQ(out.to_tap, Frames{tagged(frame)});
    EXPECT_EQ(out.forwarded, Frames{tagged(frame)});
}

TEST_F(CopiesOnConnectX, OneOfSeveralComesUpAndAllGoOn) {
    if (is_connectx5()) {
        const PutOutcome outcome = eswitch_->put({3, 1}, flow(1).software(test::bytes, 4).output(2));
        ASSERT_TRUE(std::holds_alternative<Reject>(outcome));
        EXPECT_EQ(text_of(std::get<Reject>(outcome)),
                  "device limit: userspace of one in several packets (the device has no sampler)");
        return;
    }
    const Bytes frame = frame_of({});
    for (const std::uint16_t from : {std::uint16_t{1}, wire}) {
        put({3, from}, flow(from == wire ? uplink : 1).software(test::bytes, 4).push(7).output(2));
        connectx::entries::Forwarder forwarder(*device());
        std::size_t forwarded = 0, copies = 0;
        for (int i = 0; i < 40; ++i) {
            const Outcome out = sent(forwarder, from, frame);
            EXPECT_EQ(out.forwarded, Frames{tagged(frame)});
            for (const Bytes& copy : out.of_bytes) EXPECT_EQ(copy, frame) << "as it was before the tag";
            forwarded += out.forwarded.size();
            copies += out.of_bytes.size();
        }
        EXPECT_EQ(forwarded, 40U);
        EXPECT_EQ(copies, 10U);
        EXPECT_EQ(eswitch_->del({3, from})->packets, 40U);
    }
}

/// Ports of the frames: 1000 and 2000.
TEST_F(CopiesOnConnectX, AMirrorsFilterTakesItsServicesFromEitherSide) {
    constexpr CopyKind mirror = mirror_kind(1);
    ASSERT_TRUE(eswitch_->lead_copies(mirror, add_queue(VportId{0}).qp()));
    ASSERT_TRUE(eswitch_->set_mirror_port(OdpPort{test::stor0}, mirror, {}));
    put({5, 1}, flow(1).output(2).output(test::stor0));
    MegaflowBuilder over_ipv6(uplink);
    put({5, 2}, over_ipv6.ipv6().output(test::stor0));
    const auto came = [&](std::uint16_t from, const connectx::entries::test::FrameKind& kind) {
        const Bytes frame = frame_of(kind);
        connectx::entries::Forwarder forwarder(*device());
        Frames up;
        for (const Delivery& each : forwarder.from_port(from, frame)) {
            if (each.kind != Delivery::Kind::queue_pair) continue;
            const auto work = eswitch_->work_of(each.packet.flow_tag);
            EXPECT_TRUE(work != nullptr && work->kind == mirror);
            EXPECT_EQ(each.packet.bytes, frame);
            up.push_back(each.packet.bytes);
        }
        return up.size();
    };
    std::uint64_t led = 0, filtered = 0;
    using Services = std::vector<MirrorSteering::Service>;
    for (const Services& services : {Services{{6, 1000}}, {{6, 2000}}, {{17, 1000}}, {{17, 2000}, {6, 999}}, {}}) {
        ASSERT_TRUE(eswitch_->set_mirror_port(OdpPort{test::stor0}, mirror, {.services = services}));
        for (const std::uint8_t protocol : {std::uint8_t{6}, std::uint8_t{17}, std::uint8_t{1}}) {
            for (const bool ipv6 : {false, true}) {
                if (ipv6 && protocol == 1) continue;
                const bool wanted = services.empty() || services.front().ip_protocol == protocol;
                EXPECT_EQ(came(ipv6 ? wire : 1, {.ipv6 = ipv6, .protocol = protocol}), wanted ? 1U : 0U)
                    << "protocol " << int{protocol} << ", IPv6 " << ipv6;
                ++(wanted ? led : filtered);
            }
        }
    }
    EXPECT_EQ(eswitch_->copies(mirror), led);
    EXPECT_EQ(eswitch_->filtered_copies(mirror), filtered);
    EXPECT_EQ(eswitch_->totals().misses, 0U);
    eswitch_->flush(std::nullopt);
    eswitch_->remove_mirror_port(OdpPort{test::stor0});
    eswitch_->stop_copies(mirror);
}

/// What no root rule of NIC_RX takes is the kernel's, or the manager's own transport's.
TEST_F(CopiesOnConnectX, TheManagersRoceGoesToTheManagerAndOfArpTheSwitchGetsItsCopy) {
    const RoceAddress ipv4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2}, {2, 0, 0, 0, 0, 2}};
    RoceAddress ipv6{{}, ipv4.mac};   // where frame_of() has it
    for (std::size_t i = 0; i < ipv6.gid.size(); ++i) ipv6.gid[i] = static_cast<std::uint8_t>(0x20 + 5 * (16 + i));
    put({6, 1}, flow(uplink).output(2));
    MegaflowBuilder over_ipv6(uplink);
    put({6, 2}, over_ipv6.ipv6().output(2));
    const auto to_port = [](const connectx::entries::test::FrameKind& kind, std::uint16_t number) {
        Bytes frame = frame_of(kind);
        frame[kind.l4() + 2] = static_cast<std::uint8_t>(number >> 8);
        frame[kind.l4() + 3] = static_cast<std::uint8_t>(number);
        return frame;
    };
    const auto arp = [](std::uint8_t to) {
        Bytes frame(60, to);
        std::copy_n(frame_of({}).begin() + 6, 6, frame.begin() + 6);
        frame[12] = 8, frame[13] = 6;
        return frame;
    };
    const auto ends = [&](const Bytes& frame) {
        connectx::entries::Forwarder forwarder(*device());
        std::multiset<Delivery::Kind> kinds;
        for (const Delivery& each : forwarder.from_port(wire, frame)) kinds.insert(each.kind);
        return kinds;
    };
    using Kind = Delivery::Kind;
    const Bytes roce = to_port({.protocol = 17}, 4791), roce6 = to_port({.ipv6 = true, .protocol = 17}, 4791);
    EXPECT_EQ(ends(roce), std::multiset{Kind::vport});
    ASSERT_TRUE(eswitch_->let_roce_in(ipv4));
    ASSERT_TRUE(eswitch_->let_roce_in(ipv6));
    EXPECT_EQ(ends(roce), std::multiset{Kind::kernel});
    EXPECT_EQ(ends(roce6), std::multiset{Kind::kernel});
    EXPECT_EQ(ends(to_port({.protocol = 17}, 4790)), std::multiset{Kind::vport});
    EXPECT_EQ(ends(to_port({.protocol = 6}, 4791)), std::multiset{Kind::vport});
    EXPECT_EQ(ends(to_port({.protocol = 17, .tagged = true}, 4791)), std::multiset{Kind::queue_pair})
        << "another VLAN, a miss of the switch's";
    Bytes to_other_mac = roce, other_mac6 = roce6;
    to_other_mac[5] = other_mac6[5] = 9;
    EXPECT_EQ(ends(to_other_mac), std::multiset{Kind::vport});
    EXPECT_EQ(ends(other_mac6), std::multiset{Kind::vport});
    EXPECT_EQ(ends(arp(0xff)), (std::multiset{Kind::kernel, Kind::queue_pair})) << "a miss of the switch's";
    EXPECT_EQ(ends(arp(0x02)), std::multiset{Kind::queue_pair}) << "to somebody else";
    eswitch_->forget_roce(ipv4);
    EXPECT_EQ(ends(roce), std::multiset{Kind::vport});
    EXPECT_EQ(ends(roce6), std::multiset{Kind::kernel});
    eswitch_->forget_roce(ipv6);
    EXPECT_EQ(ends(arp(0xff)), std::multiset{Kind::queue_pair});
}

TEST_F(CopiesOnConnectX, ACopyOutOfATunnelHasNoOuterHeaders) {
    put({4, 1}, [] {
        MegaflowBuilder parent = flow(uplink).proto(17).ports(0, 4789);
        parent.raw().mask.be_tp_src = 0;
        return parent.tunnel_pop(vxlan_port);
    }());
    put({4, 2}, MegaflowBuilder(vxlan_port).from_tunnel(5).ipv4().output(2).output(tap));
    const Bytes inside = readdressed(frame_of({}));
    const Outcome out = sent(wire, encapsulated(test::vxlan(), inside));
    EXPECT_EQ(out.forwarded, Frames{inside});
    EXPECT_EQ(out.to_tap, Frames{inside});
    EXPECT_EQ(last_work_.in_port.value, vxlan_port);
    EXPECT_EQ(last_work_.tunnel.key.be_id, htobe64(5));
    eswitch_->flush(std::nullopt);
}

}  // namespace
}  // namespace ovsdr::dr
