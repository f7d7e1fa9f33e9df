// The flow-API provider between dpif-netdev's offload threads and the threads that delete flows.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "ctrl/flow.h"
#include "ctrl/insertion_times.hpp"
#include "ctrl/tunnel_port.h"
#include "flow_api_probe.h"

namespace {

/// What the provider wants to be told of marks.
void (*hold_mark)(std::uint32_t) = nullptr;
void (*let_go_of_mark)(std::uint32_t) = nullptr;

}  // namespace

/// A device that knows ufids, what they counted, and the marks that it holds for them.
struct ovsdr_port {
    std::map<std::uint64_t, std::uint64_t> packets;
    std::map<std::uint64_t, std::uint32_t> marks;

    void mark(std::uint64_t ufid, std::uint32_t mark) {
        if (hold_mark != nullptr && marks.try_emplace(ufid, mark).second) hold_mark(mark);
    }
    void forget_mark(std::uint64_t ufid) {
        const auto found = marks.find(ufid);
        if (found == marks.end()) return;
        let_go_of_mark(found->second);
        marks.erase(found);
    }
    ~ovsdr_port() {
        while (!marks.empty()) forget_mark(marks.begin()->first);
    }
};

namespace {

/// Stands for all devices, of which tunnel ports are.
ovsdr_port all_devices;

ovsdr_port& device_of(ovsdr_port* port) { return port != nullptr ? *port : all_devices; }
const ovsdr_port& device_of(const ovsdr_port* port) { return port != nullptr ? *port : all_devices; }

/// What the NIC was asked for in one call.
std::vector<std::size_t> deletion_sizes;

/// Of the tables whose misses come up.
constexpr std::uint32_t known_tag = 2, recirc_id_of_known_tag = 7, tunnel_tag = 3, tunnel_recirc_id = 9;
/// Of the only tunnel port; and one that there is no more.
constexpr std::uint32_t tunnel_port = 4, tag_of_gone_port = 5;

/// Of a megaflow that a plain function has marked.
constexpr std::uint32_t tag_of_megaflow = 6, mark_of_megaflow = 11;
/// Of what the probe puts.
constexpr std::uint32_t mark_of_put = 1;

/// What the datapath's tunnel port is.
ovsdr_tunnel_port tunnel{.odp_port = tunnel_port, .kind = OVSDR_TUNNEL_VXLAN, .udp_port = 4789};

}  // namespace

extern "C" {

ovsdr_put_outcome ovsdr_flow_put(ovsdr_port* port, const ovsdr_ufid* ufid, const ovsdr_megaflow*, std::uint16_t,
                                 std::uint32_t mark, char** error) noexcept {
    *error = nullptr;
    if (port != nullptr) port->mark(ufid->value[0], mark);
    device_of(port).packets.try_emplace(ufid->value[0], 0);
    return OVSDR_PUT_INSTALLED;
}

bool ovsdr_flow_known(const ovsdr_port* port, const ovsdr_ufid* ufid) noexcept {
    return device_of(port).packets.contains(ufid->value[0]);
}

bool ovsdr_flow_get(const ovsdr_port* port, const ovsdr_ufid* ufid, ovsdr_flow_stats* stats) noexcept {
    const auto& packets = device_of(port).packets;
    const auto found = packets.find(ufid->value[0]);
    if (found == packets.end()) return false;
    *stats = {.packets = found->second, .bytes = 0, .used_ms = 0, .partly = false, .offloaded = true};
    return true;
}

void ovsdr_flows_del(ovsdr_flow_deletion* deletions, size_t n) noexcept {
    deletion_sizes.push_back(n);
    for (std::size_t i = 0; i < n; ++i) {
        auto& packets = device_of(deletions[i].port).packets;
        const auto found = packets.find(deletions[i].ufid.value[0]);
        deletions[i].had_stats = found != packets.end();
        if (!deletions[i].had_stats) continue;
        deletions[i].last.packets = found->second;
        packets.erase(found);
        device_of(deletions[i].port).forget_mark(deletions[i].ufid.value[0]);
    }
}

void ovsdr_flow_flush(ovsdr_port*) noexcept {}
void ovsdr_on_marks(void (*hold)(std::uint32_t), void (*let_go)(std::uint32_t)) noexcept {
    hold_mark = hold;
    let_go_of_mark = let_go;
}
bool ovsdr_missed_in(const ovsdr_port*, std::uint32_t tag, ovsdr_missed* missed) noexcept {
    switch (tag) {
        case known_tag: *missed = {.recirc_id = recirc_id_of_known_tag, .tunnel_port = 0, .mark = 0}; return true;
        case tunnel_tag: *missed = {.recirc_id = tunnel_recirc_id, .tunnel_port = tunnel_port, .mark = 0}; return true;
        case tag_of_gone_port: *missed = {.recirc_id = 0, .tunnel_port = tunnel_port + 1, .mark = 0}; return true;
        case tag_of_megaflow: *missed = {.recirc_id = 0, .tunnel_port = 0, .mark = mark_of_megaflow}; return true;
        default: return false;
    }
}
bool ovsdr_tunnel_port_get(std::uint32_t odp_port, ovsdr_tunnel_port* port) noexcept {
    *port = tunnel;
    return odp_port == tunnel_port;
}
bool ovsdr_tunnel_port_find(const char*, ovsdr_tunnel_port*) noexcept { return false; }
void ovsdr_tunnel_port_set(const ovsdr_tunnel_port*, const char*) noexcept {}
void ovsdr_tunnel_port_remove(std::uint32_t) noexcept {}
std::uint64_t ovsdr_flow_count_of_device(const ovsdr_port*) noexcept { return 0; }

// Of the netdev class, which is not linked.
struct netdev;
struct netdev_dr;
bool is_netdev_dr(const netdev* netdev) { return !probe_is_tunnel(netdev); }
void netdev_dr_set_odp_port(netdev_dr*, std::uint32_t) {}

}  // extern "C"

namespace {

using Netdev = std::unique_ptr<probe_netdev, decltype(&probe_netdev_free)>;
using Flow = std::unique_ptr<probe_flow, decltype(&probe_flow_free)>;
using Watch = std::unique_ptr<probe_watch, decltype(&probe_watch_free)>;

constexpr std::uint64_t ufid = 0x1234;

class FlowApi : public testing::Test {
protected:
    ovsdr_port port, other_port;
    Netdev netdev{probe_netdev_new(&port), probe_netdev_free};
    Netdev other_netdev{probe_netdev_new(&other_port), probe_netdev_free};
    Flow old{probe_flow_new(ufid), probe_flow_free};
    Flow next{probe_flow_new(ufid), probe_flow_free};

    FlowApi() {
        deletion_sizes.clear();
        all_devices.packets.clear();
    }

    [[nodiscard]] Watch watch(const Flow& flow) const {
        return {probe_watch_new(netdev.get(), flow.get()), probe_watch_free};
    }

    /// As the deleting thread does at last. False: it learned nothing of the rule's end.
    static bool finish(const Watch& deletion, std::uint64_t& last) {
        probe_watch* one = deletion.get();
        probe_delete(&one, 1);
        return probe_watch_has_last(one, &last);
    }
};

TEST_F(FlowApi, APutIsTimedOnce) {
    const auto puts = [] {
        const auto buckets = ovsdr::ctrl::insertion_times(OVSDR_PUT_INSTALLED).buckets;
        return std::reduce(buckets.begin(), buckets.end());
    };
    const std::uint64_t before = puts();
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    EXPECT_EQ(puts(), before + 1);
}

TEST_F(FlowApi, ADeletionTakesTheRuleAndLearnsItsLastHits) {
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    const Watch deletion = watch(old);
    probe_flow_dies(old.get());
    port.packets[ufid] = 7;
    std::uint64_t last = 0;
    EXPECT_TRUE(finish(deletion, last));
    EXPECT_EQ(last, 7U);
    EXPECT_TRUE(port.packets.empty());
    probe_del(netdev.get(), old.get());   // the offload thread comes late
    EXPECT_TRUE(probe_watch_has_last(deletion.get(), &last));
    EXPECT_EQ(last, 7U);
}

TEST_F(FlowApi, ALateDeletionLeavesTheRuleOfTheNextFlowAndLearnsTheLastHitsOfItsOwn) {
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    port.packets[ufid] = 7;
    const Watch deletion = watch(old);
    probe_flow_dies(old.get());
    // The gate is open: a packet makes the next flow, and the offload thread is through with both.
    probe_del(netdev.get(), old.get());
    ASSERT_EQ(probe_put(netdev.get(), next.get()), 0);
    port.packets[ufid] = 3;
    std::uint64_t last = 0;
    EXPECT_TRUE(finish(deletion, last));
    EXPECT_EQ(last, 7U);
    ASSERT_EQ(port.packets.count(ufid), 1U) << "the next flow lost its rule";
    EXPECT_EQ(port.packets[ufid], 3U);
}

TEST_F(FlowApi, ALateDeletionOfAFlowThatWasNeverPutLeavesTheRuleOfTheNextFlow) {
    const Watch deletion = watch(old);
    probe_flow_dies(old.get());
    ASSERT_EQ(probe_put(netdev.get(), next.get()), 0);
    std::uint64_t last = 0;
    EXPECT_FALSE(finish(deletion, last));
    EXPECT_EQ(port.packets.count(ufid), 1U);
}

TEST_F(FlowApi, AFlowThatIsNotPutYetHasNoneOfTheCountsOfTheOneBefore) {
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    port.packets[ufid] = 7;
    std::uint64_t packets = 0;
    EXPECT_TRUE(probe_get(netdev.get(), old.get(), &packets));
    EXPECT_EQ(packets, 7U);
    probe_flow_dies(old.get());
    // The offload thread has not heard of either yet.
    EXPECT_FALSE(probe_get(netdev.get(), next.get(), &packets));
    EXPECT_EQ(packets, 0U);
    probe_del(netdev.get(), old.get());
    ASSERT_EQ(probe_put(netdev.get(), next.get()), 0);
    port.packets[ufid] = 3;
    EXPECT_TRUE(probe_get(netdev.get(), next.get(), &packets));
    EXPECT_EQ(packets, 3U);
}

TEST_F(FlowApi, ARuleOfAnotherDatapathIsNoConcern) {
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    const Watch deletion = watch(old);
    probe_flow_dies(old.get());
    ASSERT_EQ(probe_put(other_netdev.get(), next.get()), 0);
    probe_del(other_netdev.get(), next.get());
    port.packets[ufid] = 7;
    std::uint64_t last = 0;
    EXPECT_TRUE(finish(deletion, last));
    EXPECT_EQ(last, 7U);
}

TEST_F(FlowApi, AModificationOfTheFlowItselfLeavesTheRuleItsOwn) {
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    const Watch deletion = watch(old);
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    probe_flow_dies(old.get());
    std::uint64_t last = 0;
    EXPECT_TRUE(finish(deletion, last));
    EXPECT_TRUE(port.packets.empty());
}

TEST_F(FlowApi, TheOffloadThreadLeavesAWatchedRuleToTheDeletion) {
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    const Watch deletion = watch(old);
    probe_flow_dies(old.get());
    port.packets[ufid] = 7;
    probe_del(netdev.get(), old.get());
    EXPECT_TRUE(deletion_sizes.empty());
    EXPECT_EQ(port.packets.count(ufid), 1U);
    std::uint64_t last = 0;
    EXPECT_TRUE(finish(deletion, last));
    EXPECT_EQ(last, 7U);
    EXPECT_TRUE(port.packets.empty());
}

TEST_F(FlowApi, ARuleThatWasLeftGoesBeforeTheNextFlowsComes) {
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    const Watch deletion = watch(old);
    probe_flow_dies(old.get());
    port.packets[ufid] = 7;
    probe_del(netdev.get(), old.get());
    ASSERT_EQ(probe_put(netdev.get(), next.get()), 0);
    EXPECT_EQ(port.packets[ufid], 0U) << "the next flow inherited what the one before had counted";
    std::uint64_t last = 0;
    EXPECT_TRUE(finish(deletion, last));
    EXPECT_EQ(last, 7U);
}

TEST_F(FlowApi, AWatchThatEndsTakesOutWhatWasLeftToIt) {
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    {
        const Watch look = watch(old);   // of a thread that does not delete, or whose deletion came second
        probe_flow_dies(old.get());
        probe_del(netdev.get(), old.get());
        EXPECT_EQ(port.packets.count(ufid), 1U);
    }
    EXPECT_TRUE(port.packets.empty());
}

TEST_F(FlowApi, AWatchThatGoesOnToAnotherFlowTakesOutWhatWasLeftToIt) {
    const Flow other{probe_flow_new(ufid + 1), probe_flow_free};
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    const Watch deletion{probe_watch_of_two(netdev.get(), old.get(), other.get()), probe_watch_free};
    EXPECT_TRUE(port.packets.empty()) << "nobody else will take it out";
}

TEST_F(FlowApi, WithoutAWatchTheOffloadThreadTakesTheRuleOut) {
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    probe_flow_dies(old.get());
    probe_del(netdev.get(), old.get());
    EXPECT_TRUE(port.packets.empty());
    probe_del(netdev.get(), old.get());
    EXPECT_EQ(deletion_sizes.size(), 1U) << "nothing is asked of the NIC for a megaflow that it does not know";
}

TEST_F(FlowApi, RefusesARuleForADeadFlow) {
    probe_flow_dies(old.get());
    EXPECT_NE(probe_put(netdev.get(), old.get()), 0);
    EXPECT_TRUE(port.packets.empty());
}

TEST_F(FlowApi, ManyDeletionsAreOneCallOfTheNic) {
    std::vector<Flow> flows;
    std::vector<Watch> watches;
    std::vector<probe_watch*> all;
    for (std::uint64_t i = 0; i < probe_many; ++i) {
        flows.emplace_back(probe_flow_new(i), probe_flow_free);
        const Netdev& of = i % 2 != 0 ? other_netdev : netdev;
        ASSERT_EQ(probe_put(of.get(), flows[i].get()), 0);
        (i % 2 != 0 ? other_port : port).packets[i] = i;
        watches.emplace_back(probe_watch_new(of.get(), flows[i].get()), probe_watch_free);
        probe_flow_dies(flows[i].get());
        all.push_back(watches[i].get());
    }
    probe_delete(all.data(), all.size());
    EXPECT_EQ(deletion_sizes, std::vector<std::size_t>{probe_many});
    for (std::uint64_t i = 0; i < probe_many; ++i) {
        std::uint64_t last = 0;
        EXPECT_TRUE(probe_watch_has_last(all[i], &last));
        EXPECT_EQ(last, i);
    }
    EXPECT_TRUE(port.packets.empty() && other_port.packets.empty());
}

TEST_F(FlowApi, APacketThatMissedGoesOnBehindItsRecirculation) {
    const probe_recovered recovered = probe_recover(netdev.get(), known_tag);
    EXPECT_EQ(recovered.error, 0);
    EXPECT_FALSE(recovered.gone);
    EXPECT_EQ(recovered.recirc_id, recirc_id_of_known_tag);
    EXPECT_FALSE(recovered.has_mark) << "dpif-netdev takes marks for its own";
}

TEST_F(FlowApi, APacketOfATableThatNobodyKnowsIsFreedAndReported) {
    const probe_recovered recovered = probe_recover(netdev.get(), known_tag + 1);
    EXPECT_NE(recovered.error, 0);
    EXPECT_TRUE(recovered.gone) << "dpif-netdev forgets a packet that could not be recovered";
}

/// A tunnel port beside the two dr ports.
class TunnelFlowApi : public FlowApi {
protected:
    Netdev vxlan{probe_tunnel_new("vxlan", tunnel_port), probe_netdev_free};

    TunnelFlowApi() { tunnel.kind = OVSDR_TUNNEL_VXLAN; }
};

/// An IPv4 packet to a VXLAN port of this number, VNI 5, with an inner frame of this size.
std::vector<std::uint8_t> vxlan_packet(std::uint16_t port, std::size_t inner, std::uint8_t vxlan_flags = 8) {
    const auto byte = [](std::size_t value) { return static_cast<std::uint8_t>(value); };
    const std::size_t udp = 16 + inner, ip = 20 + udp;
    std::vector<std::uint8_t> packet{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 8, 0,
                                     0x45, 0, byte(ip >> 8), byte(ip), 0, 0, 0x40, 0, 64, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7,
                                     8, 0x80, 0, byte(port >> 8), byte(port), byte(udp >> 8), byte(udp), 0, 0,
                                     vxlan_flags, 0, 0, 0, 0, 0, 5, 0};
    std::uint32_t sum = 0;
    for (std::size_t i = 14; i < 34; i += 2) sum += packet[i] << 8 | packet[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    packet[24] = byte(~sum >> 8);
    packet[25] = byte(~sum);
    packet.resize(packet.size() + inner, 0x11);
    return packet;
}

TEST_F(TunnelFlowApi, IsOfferedTheMegaflowsOfTheUserspaceDatapathsTunnelPortsOnly) {
    EXPECT_TRUE(probe_takes(netdev.get()));
    EXPECT_TRUE(probe_takes(vxlan.get()));
    for (const char* type : {"geneve", "gre", "ip6gre"}) {
        EXPECT_TRUE(probe_takes(Netdev(probe_tunnel_new(type, 20), probe_netdev_free).get())) << type;
    }
    for (const char* type : {"erspan", "gtpu", "lisp"}) {
        EXPECT_FALSE(probe_takes(Netdev(probe_tunnel_new(type, 20), probe_netdev_free).get())) << type;
    }
    probe_tunnel_moves_to(vxlan.get(), "system");
    EXPECT_FALSE(probe_takes(vxlan.get()));
    probe_tunnel_moves_to(vxlan.get(), "netdev");
}

TEST_F(TunnelFlowApi, ATunnelsMegaflowsAreInAllDevicesAndNotInAPortsOwn) {
    ASSERT_EQ(probe_put(vxlan.get(), old.get()), 0);
    EXPECT_EQ(all_devices.packets.count(ufid), 1U);
    EXPECT_TRUE(port.packets.empty());
    const Watch deletion{probe_watch_new(vxlan.get(), old.get()), probe_watch_free};
    probe_flow_dies(old.get());
    all_devices.packets[ufid] = 7;
    probe_del(vxlan.get(), old.get());
    EXPECT_TRUE(deletion_sizes.empty()) << "the offload thread leaves it to the watch";
    std::uint64_t last = 0;
    EXPECT_TRUE(finish(deletion, last));
    EXPECT_EQ(last, 7U);
    EXPECT_TRUE(all_devices.packets.empty());
}

TEST_F(TunnelFlowApi, ARuleThatWasLeftGoesBeforeTheNextFlowsComes) {
    ASSERT_EQ(probe_put(vxlan.get(), old.get()), 0);
    const Watch deletion{probe_watch_new(vxlan.get(), old.get()), probe_watch_free};
    probe_flow_dies(old.get());
    all_devices.packets[ufid] = 7;
    probe_del(vxlan.get(), old.get());
    ASSERT_EQ(probe_put(vxlan.get(), next.get()), 0);
    EXPECT_EQ(all_devices.packets[ufid], 0U);
    std::uint64_t last = 0;
    EXPECT_TRUE(finish(deletion, last));
    EXPECT_EQ(last, 7U);
}

TEST_F(TunnelFlowApi, DeletionsOfDrPortsAndTunnelPortsAreOneCall) {
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    ASSERT_EQ(probe_put(vxlan.get(), next.get()), 0);
    port.packets[ufid] = 3;
    all_devices.packets[ufid] = 4;
    const Watch first = watch(old);
    const Watch second{probe_watch_new(vxlan.get(), next.get()), probe_watch_free};
    probe_watch* all[] = {first.get(), second.get()};
    probe_delete(all, 2);
    EXPECT_EQ(deletion_sizes, std::vector<std::size_t>{2});
    std::uint64_t last = 0;
    EXPECT_TRUE(probe_watch_has_last(first.get(), &last));
    EXPECT_EQ(last, 3U);
    EXPECT_TRUE(probe_watch_has_last(second.get(), &last));
    EXPECT_EQ(last, 4U);
}

TEST_F(TunnelFlowApi, WhatMissedInATunnelsTableIsTakenOutOfIt) {
    const auto packet = vxlan_packet(4789, 60);
    const probe_recovered recovered = probe_recover_packet(netdev.get(), tunnel_tag, packet.data(), packet.size());
    EXPECT_EQ(recovered.error, 0);
    ASSERT_FALSE(recovered.gone);
    EXPECT_EQ(recovered.recirc_id, tunnel_recirc_id);
    EXPECT_EQ(recovered.in_port, tunnel_port);
    EXPECT_EQ(recovered.tunnel_id, 5U);
    EXPECT_EQ(recovered.size, 60U);
    EXPECT_FALSE(recovered.has_mark);
}

TEST_F(TunnelFlowApi, WhatCannotBeTakenOutIsFreedAndReported) {
    const auto is_dropped = [&](std::uint32_t tag, const std::vector<std::uint8_t>& packet) {
        const probe_recovered recovered = probe_recover_packet(netdev.get(), tag, packet.data(), packet.size());
        return recovered.error != 0 && recovered.gone;
    };
    EXPECT_TRUE(is_dropped(tag_of_gone_port, vxlan_packet(4789, 60)));
    EXPECT_TRUE(is_dropped(tunnel_tag, vxlan_packet(4790, 60))) << "another port has got the number";
    EXPECT_TRUE(is_dropped(tunnel_tag, vxlan_packet(4789, 60, 0))) << "a header that OVS does not take";
    EXPECT_TRUE(is_dropped(tunnel_tag, vxlan_packet(4789, 13))) << "no Ethernet frame inside";
    EXPECT_TRUE(is_dropped(tunnel_tag, std::vector<std::uint8_t>(64)));
    tunnel.kind = OVSDR_TUNNEL_GRE;
    EXPECT_TRUE(is_dropped(tunnel_tag, vxlan_packet(4789, 60)));
    tunnel.kind = OVSDR_TUNNEL_VXLAN;
    EXPECT_FALSE(is_dropped(tunnel_tag, vxlan_packet(4789, 14)));
}

TEST_F(FlowApi, APlainFunctionsTagBecomesTheDatapathsMark) {
    const probe_recovered recovered = probe_recover(netdev.get(), tag_of_megaflow);
    EXPECT_EQ(recovered.error, 0);
    EXPECT_TRUE(recovered.has_mark);
    EXPECT_EQ(recovered.mark, mark_of_megaflow);
    EXPECT_FALSE(probe_recover(netdev.get(), known_tag).has_mark);
}

/// dpif-netdev's marks, and which of them are back in its pool.
class MarkOfAMegaflow : public FlowApi {
protected:
    MarkOfAMegaflow() {
        probe_marks_init();
        probe_quiesce();
        (void)probe_marks_back();
    }
};

TEST_F(MarkOfAMegaflow, ComesBackWhenEveryThreadHasBeenQuiescent) {
    probe_mark_free(mark_of_put);
    EXPECT_EQ(probe_marks_back(), 0U) << "a thread may have just read it";
    probe_quiesce();
    EXPECT_EQ(probe_marks_back(), 1U);
}

TEST_F(MarkOfAMegaflow, IsNoOthersWhileItsRuleIsLeftToADeletion) {
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    const Watch deletion = watch(old);
    probe_flow_dies(old.get());
    probe_del(netdev.get(), old.get());
    ASSERT_EQ(port.marks.count(ufid), 1U) << "the rule is left to the watch";
    probe_mark_free(mark_of_put);
    probe_quiesce();
    EXPECT_EQ(probe_marks_back(), 0U);
    std::uint64_t last = 0;
    EXPECT_TRUE(finish(deletion, last));
    EXPECT_EQ(probe_marks_back(), 0U) << "a thread may have just read it";
    probe_quiesce();
    EXPECT_EQ(probe_marks_back(), 1U);
}

TEST_F(MarkOfAMegaflow, IsFreeOnlyOnceTheLastHolderLetsGo) {
    ASSERT_EQ(probe_put(netdev.get(), old.get()), 0);
    hold_mark(mark_of_put);
    probe_mark_free(mark_of_put);
    probe_del(netdev.get(), old.get());
    probe_quiesce();
    EXPECT_EQ(probe_marks_back(), 0U);
    let_go_of_mark(mark_of_put);
    probe_quiesce();
    EXPECT_EQ(probe_marks_back(), 1U);
}

/// OVS would wait for that thread's next quiescent state, and it never has one.
TEST_F(MarkOfAMegaflow, MayBeLetGoOfByAThreadThatOvsHasNotStarted) {
    hold_mark(mark_of_put);
    probe_mark_free(mark_of_put);
    std::thread([] {
        let_go_of_mark(mark_of_put);
        EXPECT_TRUE(probe_is_quiescent());
    }).join();
    probe_quiesce();
    EXPECT_EQ(probe_marks_back(), 1U);
}

}  // namespace
