// What actions do to bytes. Expected frames are built anew with the changed fields, so their checksums are computed
// from scratch rather than fixed up.
#include "datapath/steering/rewrite.hpp"

#include <cstring>

#include "frames.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {
namespace {

class Rewrite : public SteeringTest {
protected:
    explicit Rewrite(const Profile& profile = connectx_6dx) : SteeringTest(profile) {
        attach({1, 2, 0xffff});
        enter_vport_ = make_rule(*root_, Parameters{}.set(field::source_port, 1), {&jump_});
        enter_wire_ = make_rule(*root_, Parameters{}.set(field::source_port, 0xffff), {&jump_});
    }

    /// What vport 2 gets when `frame` comes from `from` under a rule with these actions; checks hit and miss alike.
    Frame through(const Frame& frame, std::initializer_list<const Action::Created*> actions, std::uint16_t from = 1) {
        const auto matcher = make_matcher(table, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff));
        std::vector<Action*> list;
        for (const Action::Created* action : actions) list.push_back(action->get());
        list.push_back(out_.get());
        std::unique_ptr<Rule> rule;
        EXPECT_EQ(Rule::create(*matcher, Parameters{}.set(field::source_port, from).bytes(), list, rule), 0);
        vports[2].taken.clear();
        send(from, frame, 3);
        if (vports[2].taken.size() != 3) {
            ADD_FAILURE() << vports[2].taken.size() << " of 3 packets";
            return {};
        }
        EXPECT_EQ(vports[2].taken[0].frame, vports[2].taken[2].frame) << "the flow cache does something else";
        return vports[2].taken[0].frame;
    }
    Frame modified(const FrameSpec& spec, std::initializer_list<std::uint64_t> commands) {
        const auto edit = modifying(fdb, commands);
        const Frame now = through(make_frame(spec), {&edit});
        EXPECT_TRUE(checksums_right(now));
        return now;
    }

    Domain fdb{steering, DomainType::fdb, nullptr};
    Table root_table{fdb, 0};
    Table table{fdb, 1};

private:
    MadeMatcher root_ = make_matcher(root_table, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff));
    Action::Created jump_ = to_table(table);
    Action::Created out_ = to_vport(fdb, 2);
    MadeRule enter_vport_, enter_wire_;
};

class OldRewrite : public Rewrite {
protected:
    OldRewrite() : Rewrite(connectx_5) {}
};

TEST_F(Rewrite, PushesOneOrTwoTags) {
    const auto push = pushing(0x81006005);
    EXPECT_EQ(through(make_frame({}), {&push}), make_frame({.tags = {0x81006005}}));
    const auto service = pushing(0x88a80007);
    EXPECT_EQ(through(make_frame({}), {&push, &service}), make_frame({.tags = {0x88a80007, 0x81006005}}));
}

TEST_F(Rewrite, PopsOneOrTwoTagsAndLeavesUntaggedFramesAlone) {
    const auto pop = Action::pop_vlan();
    EXPECT_EQ(through(make_frame({.tags = {0x81000005}}), {&pop}), make_frame({}));
    EXPECT_EQ(through(make_frame({.tags = {0x88a80007, 0x81000005}}), {&pop, &pop}), make_frame({}));
    EXPECT_EQ(through(make_frame({}), {&pop}), make_frame({}));
}

TEST_F(Rewrite, PopComesBeforePushWhateverTheOrderOnPaper) {
    const auto pop = Action::pop_vlan();
    const auto push = pushing(0x81000009);
    EXPECT_EQ(through(make_frame({.tags = {0x81000005}}), {&pop, &push}), make_frame({.tags = {0x81000009}}));
}

TEST_F(Rewrite, SetsAddresses) {
    EXPECT_EQ(modified({}, {set_command(id::dmac_47_16, 0, 32, 0xaabbccdd), set_command(id::dmac_15_0, 0, 16, 0xeeff),
                            set_command(id::smac_47_16, 0, 32, 0x11223344), set_command(id::smac_15_0, 0, 16, 0x5566)}),
              make_frame({.dmac = 0xaabbccddeeff, .smac = 0x112233445566}));
    EXPECT_EQ(modified({}, {set_command(id::sipv4, 0, 32, 0xc0a80001), set_command(id::dipv4, 0, 32, 0xc0a80002)}),
              make_frame({.source = 0xc0a80001, .destination = 0xc0a80002}));
    EXPECT_EQ(modified({.version = 6, .protocol = 6}, {set_command(id::sipv6_31_0, 0, 32, 0xffff0000)}),
              make_frame({.version = 6, .protocol = 6, .source = 0xffff0000}));
    EXPECT_EQ(modified({.version = 6, .protocol = 58}, {set_command(id::sipv6_31_0, 0, 32, 0x12345678)}),
              make_frame({.version = 6, .protocol = 58, .source = 0x12345678}));
}

TEST_F(Rewrite, SetsAWordOfAnAddressBehindExtensionHeaders) {
    EXPECT_EQ(modified({.version = 6, .hop_by_hop = true}, {set_command(id::sipv6_31_0, 0, 32, 99)}),
              make_frame({.version = 6, .hop_by_hop = true, .source = 99}));
}

TEST_F(Rewrite, SetsPartsOfTosAndTtl) {
    EXPECT_EQ(modified({.tos = 0xff}, {set_command(id::ip_dscp, 0, 6, 0x15)}), make_frame({.tos = 0x15 << 2 | 3}));
    EXPECT_EQ(modified({.tos = 0xfc}, {set_command(id::ip_ecn, 0, 2, 1)}), make_frame({.tos = 0xfd}));
    EXPECT_EQ(modified({.version = 6, .tos = 0x5a}, {set_command(id::ip_dscp, 0, 6, 0x2b)}),
              make_frame({.version = 6, .tos = 0x2b << 2 | 2}));
    EXPECT_EQ(modified({}, {set_command(id::ip_ttl, 0, 8, 7)}), make_frame({.ttl = 7}));
    EXPECT_EQ(modified({}, {add_command(id::ip_ttl, 0xff)}), make_frame({.ttl = 63}));
    EXPECT_EQ(modified({.version = 6}, {add_command(id::hoplimit, 0xff)}), make_frame({.version = 6, .ttl = 63}));
}

TEST_F(Rewrite, SetsPortsAndFlags) {
    EXPECT_EQ(modified({}, {set_command(id::udp_sport, 0, 16, 5), set_command(id::udp_dport, 0, 16, 6)}),
              make_frame({.sport = 5, .dport = 6}));
    EXPECT_EQ(modified({.udp_checksum = false}, {set_command(id::udp_dport, 0, 16, 6)}),
              make_frame({.dport = 6, .udp_checksum = false}));
    EXPECT_EQ(
        modified({.protocol = 6}, {set_command(id::tcp_sport, 0, 16, 5), set_command(id::tcp_flags, 0, 9, 0x112)}),
        make_frame({.protocol = 6, .sport = 5, .tcp_flags = 0x112}));
}

TEST_F(Rewrite, LeavesAloneWhatThePacketDoesNotHave) {
    EXPECT_EQ(modified({.protocol = 6}, {set_command(id::udp_dport, 0, 16, 6)}), make_frame({.protocol = 6}));
    EXPECT_EQ(modified({.version = 6}, {set_command(id::sipv4, 0, 32, 6)}), make_frame({.version = 6}));
    EXPECT_EQ(modified({.version = 0}, {set_command(id::ip_ttl, 0, 8, 6)}), make_frame({.version = 0}));
    EXPECT_EQ(modified({}, {set_command(id::first_vid, 0, 12, 6)}), make_frame({}));
    EXPECT_EQ(modified({.tags = {0x81006005}}, {set_command(id::first_vid, 0, 12, 6)}),
              make_frame({.tags = {0x81006006}}));
}

TEST_F(Rewrite, KeepsAFirstFragmentsChecksumRightAndItsPortsUntouched) {
    const FrameSpec fragment{.place = 0x2000};
    Frame before = make_frame(fragment);
    Frame expected = before;
    const auto edit = modifying(fdb, {set_command(id::sipv4, 0, 32, 0x0a000003), set_command(id::udp_dport, 0, 16, 9)});
    const Frame now = through(before, {&edit});
    ASSERT_EQ(now.size(), expected.size());
    expected[29] = 3;  // the address's last byte: two more than before
    fix_checksums(expected);
    // The whole datagram's checksum (0 here by make_frame: fragments get none) stays absent.
    EXPECT_EQ(now, expected);
}

TEST_F(Rewrite, CopiesARegisterIntoAHeader) {
    const auto edit =
        modifying(fdb, {set_command(id::reg_c_1, 0, 32, 0x4242), copy_command(id::reg_c_1, id::dmac_15_0, 16)});
    EXPECT_EQ(through(make_frame({}), {&edit}), make_frame({.dmac = 0x020000004242}));
}

TEST_F(Rewrite, WhatWasRewrittenIsMatchedByTheNextTable) {
    Table next(fdb, 2);
    const auto to_next = to_table(next);
    const auto by_mac =
        make_matcher(next, 0, criteria::outer,
                     Parameters{}.set(field::dmac_15_0, 0xffff).set(field::ip_version, 4).set(field::ttl, 0xff));
    const auto out = to_vport(fdb, 2);
    const auto hit = make_rule(
        *by_mac, Parameters{}.set(field::dmac_15_0, 0x77).set(field::ip_version, 4).set(field::ttl, 9), {&out});
    ASSERT_EQ(hit.error, 0);
    const auto all = match_all(table);
    const auto edit = modifying(fdb, {set_command(id::dmac_15_0, 0, 16, 0x77), add_command(id::ip_ttl, 0xff)});
    const auto rule = make_rule(*all, {}, {&edit, &to_next});
    ASSERT_EQ(rule.error, 0);
    send(1, make_frame({.ttl = 10}), 2);
    EXPECT_EQ(vports[2].taken.size(), 2U);
    send(1, make_frame({.ttl = 11}), 2);
    EXPECT_EQ(vports[2].taken.size(), 2U);
}

TEST_F(Rewrite, APoppedFrameIsReadAnew) {
    Table next(fdb, 2);
    const auto to_next = to_table(next);
    const auto by_vid =
        make_matcher(next, 0, criteria::outer, Parameters{}.set(field::first_vid, 0xfff).set(field::cvlan_tag, 1));
    const auto out = to_vport(fdb, 2);
    const auto hit = make_rule(*by_vid, Parameters{}.set(field::first_vid, 5).set(field::cvlan_tag, 1), {&out});
    const auto all = match_all(table);
    const auto pop = Action::pop_vlan();
    const auto rule = make_rule(*all, {}, {&pop, &to_next});
    send(1, make_frame({.tags = {0x88a80007, 0x81000005}}), 2);
    EXPECT_EQ(vports[2].taken.size(), 2U);
    send(1, make_frame({.tags = {0x88a80007, 0x81000006}}), 2);
    EXPECT_EQ(vports[2].taken.size(), 2U);
    send(1, make_frame({.tags = {0x81000005}}), 2);
    EXPECT_EQ(vports[2].taken.size(), 2U);
}

TEST_F(Rewrite, BytesAreCountedAfterPopAndBeforePush) {
    const auto bulk = std::make_shared<CounterBulk>(1);
    const auto count = counting(bulk);
    const auto pop = Action::pop_vlan();
    const auto push = pushing(0x81000001);
    const std::size_t size = make_frame({}).size();
    (void)through(make_frame({.tags = {0x81000005}}), {&count, &pop}, 0xffff);
    EXPECT_EQ(bulk->read_and_clear(0).bytes, 3 * size);
    (void)through(make_frame({}), {&count, &push});
    EXPECT_EQ(bulk->read(0).bytes, 3 * size);
}

TEST_F(OldRewrite, ConnectX5CountsBeforePop) {
    const auto bulk = std::make_shared<CounterBulk>(1);
    const auto count = counting(bulk);
    const auto pop = Action::pop_vlan();
    (void)through(make_frame({.tags = {0x81000005}}), {&pop, &count}, 0xffff);
    EXPECT_EQ(bulk->read(0).bytes, 3 * (make_frame({}).size() + 4));
}

TEST_F(Rewrite, AnEmptyPoolDropsAndCounts) {
    // Two branches of which one rewrites need a copy; there is none to be had.
    Table branch(fdb, 2);
    const auto to_branch = to_table(branch);
    const auto branch_all = match_all(branch);
    const auto push = pushing(0x81000001);
    const auto out = to_vport(fdb, 2);
    const auto uplink = to_vport(fdb, 0xffff);
    const auto pushes = make_rule(*branch_all, {}, {&push, &out});
    const auto array = array_of(fdb, {&uplink, &to_branch});
    const auto all = match_all(table);
    const auto rule = make_rule(*all, {}, {&array});
    rte_mbuf* packet = packet_of(make_frame({}));
    std::vector<rte_mbuf*> hoard;
    while (rte_mbuf* one = rte_pktmbuf_alloc(pool())) hoard.push_back(one);
    lane.online();
    lane.from_vport(VportId{1}, &packet, 1);
    for (rte_mbuf* one : hoard) rte_pktmbuf_free(one);
    lane.offline();
    EXPECT_EQ(vports[0xffff].taken.size(), 1U);
    EXPECT_TRUE(vports[2].taken.empty());
    EXPECT_EQ(steering.drops().no_buffer, 1U);
    send(1, make_frame({}), 2);
    EXPECT_EQ(vports[2].taken.size(), 2U) << "its fate was no other's";
    // The trace is cached now; packets that it loses are lost alone.
    hoard.clear();
    std::vector<rte_mbuf*> batch{packet_of(make_frame({})), packet_of(make_frame({}))};
    while (rte_mbuf* one = rte_pktmbuf_alloc(pool())) hoard.push_back(one);
    lane.online();
    lane.from_vport(VportId{1}, batch.data(), 2);
    for (rte_mbuf* one : hoard) rte_pktmbuf_free(one);
    lane.offline();
    EXPECT_EQ(vports[0xffff].taken.size(), 5U);
    EXPECT_EQ(vports[2].taken.size(), 2U);
    EXPECT_EQ(steering.drops().no_buffer, 3U);
}

/// Packets as a pool's user may make them: little room before the frame, or none in the whole buffer.
TEST(RewriteBuffers, ATagFindsItsRoomOrIsNotPushed) {
    const Frame frame = make_frame({});
    const unsigned before = mbufs_in_use();
    for (const std::uint16_t headroom : {0, 3, 4, 5}) {
        rte_mbuf* packet = packet_of(frame);
        std::memmove(static_cast<std::uint8_t*>(packet->buf_addr) + headroom, rte_pktmbuf_mtod(packet, void*),
                     frame.size());
        packet->data_off = headroom;
        rte_mbuf* const pushed = push_vlan(packet, 0x81000005);
        ASSERT_NE(pushed, nullptr);
        EXPECT_EQ(pushed == packet, headroom >= 4) << "a copy has room";
        EXPECT_EQ(frame_of(pushed), make_frame({.tags = {0x81000005}}));
        rte_pktmbuf_free(pushed);
    }
    rte_mbuf* packet = packet_of(frame);
    packet->data_off = 0;
    std::vector<rte_mbuf*> hoard;
    while (rte_mbuf* one = rte_pktmbuf_alloc(pool())) hoard.push_back(one);
    EXPECT_EQ(push_vlan(packet, 0x81000005), nullptr) << "no buffer for a copy";
    for (rte_mbuf* one : hoard) rte_pktmbuf_free(one);
    EXPECT_EQ(mbufs_in_use(), before);
}

TEST(RewriteBuffers, OnlyWholeTagsArePopped) {
    for (const unsigned size : {13U, 16U, 17U, 18U, 19U}) {
        Frame frame = make_frame({.tags = {0x88a80005}});
        frame.resize(size);
        rte_mbuf* packet = packet_of(frame);
        pop_vlan(packet);
        EXPECT_EQ(packet->data_len, size < 18 ? size : size - 4);
        rte_pktmbuf_free(packet);
    }
}

TEST(RewriteBuffers, WhatOthersHoldIsCopied) {
    const Frame frame = make_frame({});
    rte_mbuf* packet = packet_of(frame);
    EXPECT_EQ(writable(packet), packet);
    rte_mbuf_refcnt_update(packet, 1);
    rte_mbuf* const copy = writable(packet);
    ASSERT_NE(copy, nullptr);
    EXPECT_NE(copy, packet);
    EXPECT_EQ(frame_of(copy), frame);
    EXPECT_EQ(rte_mbuf_refcnt_read(packet), 1);
    rte_mbuf* const indirect = rte_pktmbuf_alloc(pool());
    rte_pktmbuf_attach(indirect, packet);
    rte_mbuf* const direct = writable(indirect);
    ASSERT_NE(direct, nullptr);
    EXPECT_TRUE(RTE_MBUF_DIRECT(direct));
    EXPECT_EQ(frame_of(direct), frame);
    for (rte_mbuf* one : {packet, copy, direct}) rte_pktmbuf_free(one);
}

}  // namespace
}  // namespace ovsdr::soft::test
