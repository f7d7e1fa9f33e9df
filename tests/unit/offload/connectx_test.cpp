// offload/ on the system's own libibverbs and libmlx5, over the emulated ConnectX. Runs under tests/connectx/run, for
// each profile.
//
// Nothing carries packets here: counters show what the test counts on them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <string>
#include <thread>

#include "offload/dr/device/device.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/dr/device/ib_port.hpp"
#include "offload/dr/device/leak.hpp"
#include "offload/dr/vport.hpp"
#include "offload/slowpath/attached_port.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "tests/connectx/device.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::dr {
namespace {

using slowpath::PortQueue;
using test::MegaflowBuilder;
using Counts = std::map<std::string, std::uint64_t>;

struct Port {
    VportId vport;
    OdpPort odp;
};
constexpr Port ports[] = {{{1}, {1}}, {{2}, {2}}, {{0xFFFF}, {9}}};

/// An Eswitch with its ports and their slow-path queues.
class Host {
public:
    /// An error's text, or nothing.
    [[nodiscard]] std::string open() {
        auto opened = Eswitch::open("mlx5_0");
        if (!opened) return opened.error().what;
        eswitch_ = *opened;
        for (const Port& port : ports) {
            if (std::string error = attach(port); !error.empty()) return error;
        }
        return {};
    }
    ~Host() {
        if (eswitch_ == nullptr) return;
        eswitch_->flush(std::nullopt);
        for (const Port& port : ports) eswitch_->detach_port(port.vport);
    }
    [[nodiscard]] Eswitch& eswitch() const { return *eswitch_; }
    [[nodiscard]] PortQueue& queue(std::size_t port) const { return *queues_[port]; }

private:
    [[nodiscard]] std::string attach(const Port& port) {
        const auto ib_port = find_ib_port(eswitch_->context(), port.vport);
        if (!ib_port) return ib_port.error().what;
        auto queue =
            PortQueue::create({.context = eswitch_->context(), .pd = eswitch_->pd(), .ib_port = ib_port->number});
        if (!queue) return queue.error().what;
        queues_.push_back(std::move(*queue));
        const auto attached =
            eswitch_->attach_port({port.odp, port.vport, "p", queues_.back()->qp(), queues_.back()->sqn()});
        return attached ? std::string() : attached.error().what;
    }

    std::shared_ptr<Eswitch> eswitch_;   // gone last: queues are on its protection domain
    std::vector<std::unique_ptr<PortQueue>> queues_;
};

class OffloadOnConnectX : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_NE(device(), nullptr) << "not under tests/connectx/run";
        shared_before_ = device()->shared_root_entries();
    }
    void TearDown() override {
        EXPECT_EQ(device()->alive(), Counts{});
        EXPECT_EQ(device()->left_behind(), Counts{});
        EXPECT_EQ(device()->icm_bytes_alive(), 0U);
        EXPECT_EQ(device()->not_emulated(), std::vector<std::string>{});
        EXPECT_EQ(leaked_objects(), 0U);
        EXPECT_EQ(device()->shared_root_entries(), shared_before_) << "packets go to the destinations of both rules";
    }
    static connectx::Device* device() { return connectx::device(); }

private:
    std::uint64_t shared_before_ = 0;
};

/// What OVS makes of traffic between three ports: by protocol, ports, tags and what is done.
std::vector<ovsdr_megaflow> megaflows_of_all_forms() {
    std::vector<ovsdr_megaflow> all;
    static const test::HeaderBytes vxlan = test::vxlan(), gre = test::gre(test::outer_ipv6(47)),
                                   geneve = test::geneve(19);
    const auto act = [](MegaflowBuilder& flow, unsigned form, std::uint32_t in) {
        const std::uint32_t one = in == 1 ? 2 : 1, two = in == 9 ? 2 : 9;
        switch (form) {
            case 0:
                break;   // drop
            case 1:
                flow.output(one);
                break;
            case 2:
                flow.output(two);
                break;
            case 3:
                flow.output(one).output(two);
                break;
            case 4:
                flow.push(7).output(one);
                break;
            case 5:
                flow.push(7).output(two);
                break;
            case 6:
                flow.pop().output(one);
                break;
            case 7:
                flow.pop().output(two);
                break;
            case 8:
                flow.pop().push(9).output(two);
                break;
            case 9:
                flow.output(one).push(7).output(two);
                break;
            case 10:
                flow.push(7, 0x88a8).push(8).output(two);
                break;
            case 11:
                flow.pop().pop().output(two);
                break;
            case 12:
                flow.tunnel(vxlan).output(two);
                break;
            case 13:
                flow.push(7).tunnel(geneve).output(two);
                break;
            case 14:
                flow.copy().tunnel(gre).push(9).output(two).end_copy().output(one).tunnel(vxlan).output(two);
                break;
            default:
                flow.output(in);
                break;
        }
    };
    for (const std::uint32_t in : {9U, 1U, 2U}) {
        for (unsigned l3 = 0; l3 < 6; ++l3) {
            const bool is_ip = l3 == 1 || l3 == 2;
            for (unsigned l4 = 0; l4 < (is_ip ? 5U : 1U); ++l4) {
                for (unsigned vlan = 0; vlan < 5; ++vlan) {
                    for (unsigned form = 0; form < 16; ++form) {
                        MegaflowBuilder flow(in);
                        if (vlan != 0) flow.vlan(5, vlan == 1 ? 0x8100 : 0x88a8);
                        if (vlan == 3) flow.second_vlan(6);
                        if (vlan == 4) flow.vlan_limit(2);
                        if (l3 == 1) flow.ipv4();
                        if (l3 == 2) flow.ipv6();
                        if (l3 == 3) flow.arp();
                        if (l3 >= 4) flow.eth_type(l3 == 4 ? 0x88b5 : 0x0800);
                        const std::uint8_t protocols[] = {0, 6, 17, static_cast<std::uint8_t>(l3 == 1 ? 1 : 58), 132};
                        if (l4 != 0) flow.proto(protocols[l4]);
                        if (l4 == 1 || l4 == 2) flow.ports(1000, 2000);
                        act(flow, form, in);
                        all.push_back(flow);
                    }
                }
            }
        }
    }
    return all;
}

TEST_F(OffloadOnConnectX, TakesMegaflowsOfAllFormsOrRejectsThem) {
    Host host;
    ASSERT_EQ(host.open(), "");
    const auto megaflows = megaflows_of_all_forms();
    unsigned installed = 0, rejected = 0;
    for (std::uint64_t i = 0; i < megaflows.size(); ++i) {
        const PutOutcome outcome = host.eswitch().put({1, i}, megaflows[i]);
        const auto* error = std::get_if<Error>(&outcome);
        EXPECT_EQ(error, nullptr) << "megaflow " << i << ": " << error->what;
        std::holds_alternative<std::monostate>(outcome) ? ++installed : ++rejected;
    }
    EXPECT_EQ(host.eswitch().totals().offloaded, installed);
    std::printf("FIGURE %zu megaflows, %u installed, %u rejected\n", megaflows.size(), installed, rejected);
    EXPECT_GT(installed, megaflows.size() / 2);
    for (std::uint64_t i = 0; i < megaflows.size(); i += 2) host.eswitch().del({1, i});
    // Modified: each becomes what another was.
    for (std::uint64_t i = 1; i < megaflows.size(); i += 2) {
        const PutOutcome outcome = host.eswitch().put({1, i}, megaflows[megaflows.size() - i]);
        EXPECT_FALSE(std::holds_alternative<Error>(outcome)) << "megaflow " << i;
    }
}

/// Packets of tunnel ports, by kind, outer IP version, options, and what is inside and done with it.
std::vector<ovsdr_megaflow> megaflows_from_tunnels() {
    static const test::HeaderBytes gre = test::gre(test::outer_ipv4(47));
    std::vector<ovsdr_megaflow> all;
    for (const std::uint32_t tunnel : {20U, 21U, 22U}) {
        for (unsigned outer = 0; outer < 4; ++outer) {
            for (unsigned inner = 0; inner < 6; ++inner) {
                for (unsigned form = 0; form < 9; ++form) {
                    MegaflowBuilder flow(tunnel);
                    flow.from_tunnel(100 * form + outer);
                    if ((outer & 1) != 0) flow.over_ipv6();
                    if ((outer & 2) != 0 && tunnel == 21) flow.option(0x102, 0x80, 0x30001, 0x7FFFFFFF);
                    if ((outer & 2) != 0 && tunnel != 21) {
                        flow.raw().tunnel_key.ttl = 64, flow.raw().tunnel_mask.ttl = 0xFF;
                    }
                    if (inner >= 3) flow.vlan(5, inner == 3 ? 0x8100 : 0x88a8);
                    if (inner == 5) flow.second_vlan(6);
                    if (inner % 3 == 0) flow.ipv4().proto(6).ports(1, 2);
                    if (inner % 3 == 1) flow.ipv6().proto(17).ports(1, 2);
                    if (inner % 3 == 2) flow.eth_type(0x88b5);
                    switch (form) {
                        case 0: break;   // drop
                        case 1: flow.output(1); break;
                        case 2: flow.output(1).output(2); break;
                        case 3: flow.pop().output(1); break;
                        case 4: flow.set(OVSDR_HEADER_ETH_DST, {2, 0, 0, 0, 0, 9}).output(2); break;
                        case 5: flow.push(7).output(1); break;
                        case 6: flow.recirc(9); break;
                        case 7: flow.output(2).recirc(9); break;
                        default: flow.tunnel(gre).output(1); break;
                    }
                    all.push_back(flow);
                }
            }
        }
    }
    return all;
}

TEST_F(OffloadOnConnectX, TakesPacketsOutOfTunnels) {
    Host host;
    ASSERT_EQ(host.open(), "");
    Eswitch& eswitch = host.eswitch();
    eswitch.set_tunnel_port({OdpPort{20}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
    eswitch.set_tunnel_port({OdpPort{21}, TunnelKind::geneve, 6081, "genev_sys_6081"});
    eswitch.set_tunnel_port({OdpPort{22}, TunnelKind::gre, 0, "gre_sys"});
    std::uint64_t number = 0;
    for (const auto& [tunnel, udp_port] : {std::pair<std::uint32_t, std::uint16_t>{20, 4789}, {21, 6081}, {22, 0}}) {
        for (const bool ipv6 : {false, true}) {
            MegaflowBuilder parent(9);
            ipv6 ? parent.ipv6() : parent.ipv4();
            udp_port != 0 ? parent.proto(17).ports(0, udp_port) : parent.proto(47);
            parent.raw().mask.be_tp_src = 0;
            ASSERT_TRUE(std::holds_alternative<std::monostate>(
                eswitch.put({2, ++number}, parent.tunnel_pop(tunnel)))) << tunnel;
        }
    }
    const auto megaflows = megaflows_from_tunnels();
    unsigned installed = 0;
    for (std::uint64_t i = 0; i < megaflows.size(); ++i) {
        const PutOutcome outcome = eswitch.put({3, i}, megaflows[i]);
        const auto* error = std::get_if<Error>(&outcome);
        EXPECT_EQ(error, nullptr) << "megaflow " << i << ": " << error->what;
        installed += std::holds_alternative<std::monostate>(outcome) ? 1 : 0;
    }
    std::printf("FIGURE %zu megaflows of tunnels, %u installed\n", megaflows.size(), installed);
    EXPECT_GT(installed, megaflows.size() / 4);
}

/// Rates: of the only ASO object, in what the device was told.
TEST_F(OffloadOnConnectX, TakesAndChangesAsoMeters) {
    if (device()->steering_format() == 0) GTEST_SKIP() << "a ConnectX-5";
    Host host;
    ASSERT_EQ(host.open(), "");
    Eswitch& eswitch = host.eswitch();
    eswitch.set_meter(1, {.rate = 1000, .burst = 128});
    eswitch.set_meter(2, {.by_packets = true, .rate = 1000, .burst = 5});
    for (const std::uint64_t number : {1U, 2U}) {
        const auto outcome = eswitch.put({number, 0}, MegaflowBuilder(number).ipv4().meter(number).output(9));
        EXPECT_TRUE(std::holds_alternative<std::monostate>(outcome)) << eswitch.explain({number, 0})->text;
    }
    constexpr std::uint16_t aso_flow_meter = 0x24;
    const auto objects = device()->devx_objects();
    const auto object = std::ranges::find(objects, aso_flow_meter, &connectx::DevxObject::general_type);
    ASSERT_NE(object, objects.end());
    const auto bytes = [&](bool is_second) { return device()->meter({true, object->id, is_second}).value(); };
    const auto burst = [&](bool is_second) { return bytes(is_second)[9] << bytes(is_second)[8]; };
    EXPECT_EQ(burst(false), 128 * 125);
    EXPECT_EQ(burst(true), 4 * 128);
    EXPECT_NE(bytes(false)[11], 0);
    EXPECT_TRUE(eswitch.lower_meter(1, 0));
    EXPECT_EQ(bytes(false)[11], 0);
    EXPECT_NE(bytes(true)[11], 0);
    eswitch.set_meter(1, {.rate = 1000, .burst = 256});
    EXPECT_EQ(burst(false), 256 * 125);
    EXPECT_EQ(burst(true), 4 * 128);
}

TEST_F(OffloadOnConnectX, TakesAndChangesTheMetersOfAConnectX5) {
    if (device()->steering_format() != 0) GTEST_SKIP() << "not a ConnectX-5";
    Host host;
    ASSERT_EQ(host.open(), "");
    Eswitch& eswitch = host.eswitch();
    eswitch.set_meter(1, {.rate = 1000, .burst = 100});
    const auto put = [&eswitch](std::uint64_t number, const ovsdr_megaflow& megaflow) {
        EXPECT_TRUE(std::holds_alternative<std::monostate>(eswitch.put({number, 0}, megaflow)))
            << eswitch.explain({number, 0})->text;
    };
    put(1, MegaflowBuilder(1).ipv4().meter(1).output(2));
    put(2, MegaflowBuilder(1).ipv4().proto(17).meter(1).set(OVSDR_HEADER_IP_TTL, {63}).push(5).output(2).output(9));
    put(3, MegaflowBuilder(9).ipv4().vlan(5).meter(1).pop().output(2));
    put(4, MegaflowBuilder(2).ipv4().meter(1).recirc(7));
    put(5, MegaflowBuilder(2).ipv4().behind(7).output(1));
    put(6, MegaflowBuilder(2).eth_type(0x9000).meter(1));
    EXPECT_NE(eswitch.show(false, {}).find("a legacy meter; 5 megaflows"), std::string::npos);
    eswitch.set_meter(1, {.rate = 2000, .burst = 800});
    EXPECT_TRUE(eswitch.lower_meter(1, 1000));
    for (const std::uint64_t number : {1U, 2U, 3U, 4U, 6U}) {
        EXPECT_TRUE(eswitch.status({number, 0})->offloaded) << number;
    }
    (void)eswitch.remove_meter(1);
    EXPECT_FALSE(eswitch.status({1, 0})->offloaded);
}

TEST_F(OffloadOnConnectX, ReadsTheDevicesCounters) {
    Host host;
    ASSERT_EQ(host.open(), "");
    const Ufid ufid{7, 7};
    ASSERT_TRUE(std::holds_alternative<std::monostate>(host.eswitch().put(ufid, MegaflowBuilder(1).ipv4().output(2))));
    // Which counter is this megaflow's is offload/'s business: all of them count.
    for (const connectx::DevxObject& object : device()->devx_objects()) {
        if (object.opcode != 0x939) continue;
        for (std::uint32_t id = object.id; id < object.id + object.id_length; ++id)
            EXPECT_TRUE(device()->count(id, {5, 500}));
    }
    const auto last = host.eswitch().del(ufid);
    ASSERT_TRUE(last);
    EXPECT_EQ(last->packets, 5U);
    EXPECT_EQ(last->bytes, 500U);
}

TEST_F(OffloadOnConnectX, SendsFromTheSlowPath) {
    Host host;
    ASSERT_EQ(host.open(), "");
    const std::vector<std::uint8_t> frame(60, 1);
    const std::span<const std::uint8_t> one[] = {frame};
    const std::uint64_t before = device()->frames_sent();
    for (unsigned i = 0; i < 3000; ++i) ASSERT_EQ(host.queue(0).transmit(one), 1U) << i;
    EXPECT_EQ(device()->frames_sent(), before + 3000);
}

/// Each packet goes to one queue at any moment: two root rules of one match and priority would be one entry to the
/// kernel, which leads to both queues (TearDown() asks).
TEST_F(OffloadOnConnectX, ReplacesAQueueByARuleOfAnotherPriority) {
    const auto eswitch = Eswitch::open("mlx5_0");
    ASSERT_TRUE(eswitch) << eswitch.error().what;
    const VportId vport{1};
    auto port = slowpath::AttachedPort::open(*eswitch,
                                             {.odp_port = {1}, .vport = vport, .name = "p", .frame_size = 2048});
    ASSERT_TRUE(port) << port.error().what;
    const std::size_t rules = device()->root_rules().size();
    for (unsigned i = 0; i < 5; ++i) {
        const auto restarted = (*port)->restart();
        ASSERT_TRUE(restarted) << restarted.error().what;
    }
    ASSERT_TRUE((*port)->fit(9216));
    (*eswitch)->close_entrance(vport);
    ASSERT_TRUE((*eswitch)->set_odp_port(vport, {7}));
    (void)(*port)->receive();   // the last queue's rule for what it sent goes
    EXPECT_EQ(device()->root_rules().size(), rules);
}

TEST_F(OffloadOnConnectX, SeesItsVports) {
    Host host;
    ASSERT_EQ(host.open(), "");
    const auto state = query_vport(host.eswitch(), {1});
    ASSERT_TRUE(state);
    EXPECT_EQ(state->mtu, 1500);
    EXPECT_EQ(state->mac, (std::array<std::uint8_t, 6>{2, 0, 0, 0, 0, 2}));
    // The wire has no context of its own: it shows the manager's.
    const auto wire = query_vport(host.eswitch(), uplink_vport);
    ASSERT_TRUE(wire) << wire.error().what;
    EXPECT_EQ(wire->mac, (std::array<std::uint8_t, 6>{2, 0, 0, 0, 0, 1}));
    EXPECT_TRUE(query_vport_stats(host.eswitch(), {2}));
    device()->set_vport(2, false);
    EXPECT_FALSE(query_vport(host.eswitch(), {2}));
    device()->set_vport(2, true);
}

/// Linux keeps to itself the commands that change a vport.
TEST_F(OffloadOnConnectX, SaysWhatToDoWhereTheKernelLetsNothingBeChanged) {
    Host host;
    ASSERT_EQ(host.open(), "");
    const connectx::VportSettings before = device()->vport_settings(1);
    const struct {
        Result<void> outcome;
        const char* advice;
    } changes[] = {{set_vport_mtu(host.eswitch(), {1}, 4000), "the MTU of vport 1 of mlx5_0 be set by DEVX; its owner"},
                   {set_vport_mac(host.eswitch(), {1}, {2, 3, 4, 5, 6, 7}), "devlink port function set"},
                   {set_vport_admin_state(host.eswitch(), {1}, false), "ip link set REPRESENTOR up|down"},
                   {set_vport_admin_state(host.eswitch(), uplink_vport, false), "the state of vport 65535"}};
    for (const auto& [outcome, advice] : changes) {
        ASSERT_FALSE(outcome) << advice;
        EXPECT_EQ(outcome.error().code, EOPNOTSUPP) << outcome.error().what;
        EXPECT_NE(outcome.error().what.find(advice), std::string::npos) << outcome.error().what;
    }
    EXPECT_EQ(device()->vport_settings(1), before);
}

/// What no kernel knows of stays an error of the caller's.
TEST_F(OffloadOnConnectX, RefusesAnMtuThatNoFrameHas) {
    Host host;
    ASSERT_EQ(host.open(), "");
    const auto mtu = set_vport_mtu(host.eswitch(), {1}, UINT16_MAX);
    ASSERT_FALSE(mtu);
    EXPECT_EQ(mtu.error().code, EINVAL);
}

TEST_F(OffloadOnConnectX, SaysWhichEventsTheDeviceDoesNotGive) {
    Host host;
    ASSERT_EQ(host.open(), "");
    const auto watcher = VportWatcher::start(host.eswitch(), [] {});
    ASSERT_TRUE(watcher) << watcher.error().what;
    const std::string& missing = (*watcher)->missing_events();
    if (connectx::has_event_cap()) {
        EXPECT_EQ(missing, "");
    } else {
        EXPECT_NE(missing.find("(NIC_VPORT_CHANGE): Invalid argument)"), std::string::npos) << missing;
        EXPECT_EQ(missing.find("(PORT_CHANGE)"), std::string::npos) << missing;
    }
}

/// A representor that is set up: a query shows it, and no event tells of it.
TEST_F(OffloadOnConnectX, LooksAtVportsThatNobodyTellsOf) {
    Host host;
    ASSERT_EQ(host.open(), "");
    const connectx::VportSettings before = device()->vport_settings(1);
    std::atomic<bool> seen{false};
    std::promise<void> heard;
    const auto watcher = VportWatcher::start(
        host.eswitch(),
        [&] {
            const auto state = query_vport(host.eswitch(), {1});
            if (state && !state->admin_up && !state->link_up && state->mtu == 9000 && !seen.exchange(true)) {
                heard.set_value();
            }
        },
        {.with_events = std::chrono::milliseconds(20), .without = std::chrono::milliseconds(10)});
    ASSERT_TRUE(watcher) << watcher.error().what;
    device()->configure_vport(1, {.up = false, .mtu = 9000, .mac = before.mac});
    EXPECT_EQ(heard.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
    device()->configure_vport(1, before);
}

/// With events at once, long before it would look anyway; without them by looking.
TEST_F(OffloadOnConnectX, HearsOfAVportThatGoes) {
    Host host;
    ASSERT_EQ(host.open(), "");
    std::promise<void> heard;
    std::atomic<bool> once{false};
    const auto watcher = VportWatcher::start(
        host.eswitch(),
        [&] {
            if (!query_vport(host.eswitch(), {2}) && !once.exchange(true)) heard.set_value();
        },
        {.with_events = std::chrono::hours(1), .without = std::chrono::milliseconds(10)});
    ASSERT_TRUE(watcher) << watcher.error().what;
    EXPECT_FALSE(once);
    device()->set_vport(2, false);
    EXPECT_EQ(heard.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
    device()->set_vport(2, true);
}

TEST_F(OffloadOnConnectX, TakesPutsAndDeletesFromSeveralThreads) {
    Host host;
    ASSERT_EQ(host.open(), "");
    std::vector<std::thread> threads;
    std::atomic<unsigned> refused{0};
    for (std::uint64_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < 300; ++i) {
                const auto type = static_cast<std::uint16_t>(0x9000 + t * 0x400 + i);
                MegaflowBuilder flow(1);
                flow.eth_type(type);
                i % 3 == 0 ? flow.output(2).output(9) : flow.output(2);
                if (!std::holds_alternative<std::monostate>(host.eswitch().put({t, i}, flow))) ++refused;
                if (i % 2 == 0) host.eswitch().del({t, i / 2});
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(refused, 0U);
    EXPECT_EQ(host.eswitch().totals().offloaded, 4 * 150U);
}

/// What a megaflow with copies, a tag and a counter makes, and its modification; a chain with a rewrite, a tunnel and
/// a branch.
bool put_and_delete(Eswitch& eswitch) {
    const test::HeaderBytes vxlan = test::vxlan();
    const struct {
        std::uint64_t ufid;
        ovsdr_megaflow megaflow;
    } puts[] = {{0, MegaflowBuilder(1).ipv4().output(2).push(5).output(9)},
                {0, MegaflowBuilder(1).ipv4().output(9)},
                {1, MegaflowBuilder(9).arp().pop().output(1)},
                {2, MegaflowBuilder(1).ipv4().proto(17).copy().tunnel(vxlan).output(9).end_copy()
                        .set(OVSDR_HEADER_IP_TTL, {63}).output(2).push(5).recirc(7)},
                {3, MegaflowBuilder(1).ipv4().proto(17).vlan(5).behind(7).output(2)}};
    bool all = true;
    for (const auto& [ufid, megaflow] : puts) {
        all &= !std::holds_alternative<Error>(eswitch.put({1, ufid}, megaflow));
    }
    for (const std::uint64_t ufid : {0, 1, 2, 3}) eswitch.del({1, ufid});
    return all;
}

TEST_F(OffloadOnConnectX, LeavesNothingBehindWhicheverCallFails) {
    std::uint64_t nth = 1, told = 0;
    for (;; ++nth) {
        ASSERT_TRUE(device()->fail("*", nth, ENOMEM));
        {
            Host host;
            const std::string error = host.open();
            const bool all = error.empty() && put_and_delete(host.eswitch());
            if (!all) ++told;
        }
        EXPECT_EQ(device()->alive(), Counts{}) << "after call " << nth;
        EXPECT_EQ(device()->icm_bytes_alive(), 0U) << "after call " << nth;
        EXPECT_EQ(device()->left_behind(), Counts{}) << "after call " << nth;
        if (device()->clear_faults() != 0) break;
        if (HasFailure()) return;
    }
    EXPECT_EQ(leaked_objects(), 0U);
    std::printf("FIGURE %llu calls made to fail, %llu of them told\n", static_cast<unsigned long long>(nth - 1),
                static_cast<unsigned long long>(told));
    EXPECT_GT(told, nth * 9 / 10);
}

}   // namespace
}   // namespace ovsdr::dr
