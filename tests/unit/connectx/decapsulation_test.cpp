// Tunnels through the system's own libmlx5: which packets the entries that it writes for tunnels and for what is inside
// them recognise, what a decapsulation makes of them, and what a rule's counter counts. Runs under tests/connectx/run,
// for each profile.
#include <endian.h>

#include <array>
#include <string>

#include "tests/connectx/entries/stopped.hpp"
#include "tests/unit/connectx/forwarding.hpp"
#include "tests/unit/connectx/tunnel_frames.hpp"

namespace ovsdr::connectx {
namespace {

using namespace test;
using entries::Delivery;
using entries::test::frame_of;
using entries::test::put_sum;
using entries::test::sum_of;

/// Blocks of match parameters, in bits: their criteria bits are in the same order.
constexpr unsigned block = 512, in_outer = 0, in_misc = block, in_inner = 2 * block, in_misc3 = 4 * block,
                   in_misc5 = 6 * block;
constexpr unsigned ip_version = 147;

/// A DEVX command out of 32-bit words, the rest is 0.
template <std::size_t size>
DevxObj make_object(ibv_context* context, std::initializer_list<std::pair<std::size_t, std::uint32_t>> words) {
    std::array<std::uint8_t, size> in{}, out{};
    for (const auto& [at, value] : words) {
        const std::uint32_t big = htobe32(value);
        std::memcpy(in.data() + at, &big, sizeof big);
    }
    errno = 0;
    return DevxObj(mlx5dv_devx_obj_create(context, in.data(), in.size(), out.data(), out.size()));
}

class Decapsulating : public Forwarding {
protected:
    void SetUp() override {
        MatchParam ports;
        ports.number(source_port_at, 0xFFFF, 2);
        ASSERT_NO_FATAL_FAILURE(make_tables(ports, misc));
        counter_ = make_object<16>(context_.get(), {{0, 0x0939'0000}});
        ASSERT_NE(counter_, nullptr) << strerror(errno);
        for (const DevxObject& object : device()->devx_objects()) {
            if (object.opcode == 0x939) counter_id_ = object.id;
        }
        count_.reset(mlx5dv_dr_action_create_flow_counter(counter_.get(), 0));
        decap_.reset(mlx5dv_dr_action_create_packet_reformat(
            domain_.get(), 0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2, 0, nullptr));
        ASSERT_NE(decap_, nullptr) << strerror(errno);
        pop_.reset(mlx5dv_dr_action_create_pop_vlan());
        push_.reset(mlx5dv_dr_action_create_push_vlan(domain_.get(), htobe32(0x81000007)));
        std::array<__be64, 1> ttl{htobe64(std::uint64_t{0x100A0008} << 32 | 9)};
        ttl_.reset(mlx5dv_dr_action_create_modify_header(domain_.get(), 0, sizeof ttl, ttl.data()));
        ASSERT_NE(ttl_, nullptr) << strerror(errno);
    }

    /// For all that the wire brings.
    Rule rule(std::vector<mlx5dv_dr_action*> actions) {
        MatchParam value;
        value.number(source_port_at, wire, 2);
        actions.insert(actions.begin(), count_.get());
        return rule_for(value, std::move(actions));
    }
    struct Sent {
        Bytes bytes;
        std::uint64_t counted;
    };
    Sent send(const Bytes& frame) {
        const std::uint64_t before = device()->counted(counter_id_)->bytes;
        entries::Packet packet = forwarded(wire, frame);
        return {std::move(packet.bytes), device()->counted(counter_id_)->bytes - before};
    }
    void expect_stop(const Bytes& frame, const std::string& name) {
        try {
            (void)entries::Forwarder(*device()).from_port(wire, frame);
            ADD_FAILURE() << "went on past: " << name;
        } catch (const entries::Stopped& stopped) {
            EXPECT_NE(std::string(stopped.what()).find(name), std::string::npos) << stopped.what();
        }
    }
    /// The option that the flexible parser looks for: class 0x0102, type 0x80, one word.
    DevxObj geneve_option(std::uint32_t length = 1, std::uint32_t option_class = 0x0102) {
        return make_object<80>(context_.get(),
                               {{0, 0x0A00'0000}, {4, 0xB}, {16 + 12, option_class << 16 | 0x8000 | length}});
    }
    static bool counts_before() { return device()->steering_format() == 0; }

    DevxObj counter_;
    Action count_, decap_, pop_, push_, ttl_;
    std::uint32_t counter_id_ = 0;
};

const Bytes geneve_option_of_one_word{1, 2, 0x80, 1, 0xA1, 0xA2, 0xA3, 0xA4};

std::vector<Bytes> all_headers() {
    return {tunnel::vxlan(),
            tunnel::vxlan_over(tunnel::outer_ipv6(17)),
            tunnel::geneve(0),
            geneve_with(geneve_option_of_one_word),
            tunnel::gre(tunnel::outer_ipv4(47), 0),
            tunnel::gre(tunnel::outer_ipv4(47)),
            tunnel::gre(tunnel::outer_ipv4(47), 0xB000),
            tunnel::gre(tunnel::outer_ipv6(47))};
}

Bytes with_ttl_9(Bytes frame) {
    frame[22] = 9;
    put(frame, 24, 0);
    put_sum(frame, 24, sum_of(frame, 14, 34));
    return frame;
}

TEST_F(Decapsulating, LeavesTheFrameInsideAndCountsItButOnConnectX5WithItsHeaders) {
    const Rule made = rule({decap_.get()});
    ASSERT_NE(made, nullptr) << strerror(errno);
    const Bytes arp = [] {
        Bytes frame{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0, 0, 1, 8, 6};
        frame.resize(42, 3);
        return frame;
    }();
    for (const Bytes& headers : all_headers()) {
        for (const Bytes& inside : {frame_of({.protocol = 17}), frame_of({.ipv6 = true}), frame_of({.tagged = true}),
                                    tagged(frame_of({.tagged = true}), 0x88), arp}) {
            const Bytes plain = encapsulated(headers, inside);
            for (const Bytes& outside : {plain, tagged(plain), tagged(tagged(plain), 0x88)}) {
                const Sent sent = send(outside);
                EXPECT_EQ(sent.bytes, inside);
                EXPECT_EQ(sent.counted, counts_before() ? outside.size() : inside.size());
            }
        }
    }
}

TEST_F(Decapsulating, ComesFirstAndWhatFollowsIsDoneToTheFrameInside) {
    const Bytes inside = frame_of({.protocol = 17}), outside = encapsulated(tunnel::vxlan(), inside);
    const Bytes inside_tag = encapsulated(tunnel::vxlan(), tagged(inside));
    {
        const Rule made = rule({decap_.get(), ttl_.get()});
        ASSERT_NE(made, nullptr) << strerror(errno);
        const Sent sent = send(outside);
        EXPECT_EQ(sent.bytes, with_ttl_9(inside));
        EXPECT_EQ(sent.counted, counts_before() ? outside.size() : inside.size());
    }
    {
        const Rule made = rule({decap_.get(), pop_.get(), ttl_.get()});
        ASSERT_NE(made, nullptr) << strerror(errno);
        const Sent sent = send(inside_tag);
        EXPECT_EQ(sent.bytes, with_ttl_9(inside));
        EXPECT_EQ(sent.counted, counts_before() ? inside_tag.size() : inside.size());
    }
    EXPECT_EQ(rule({decap_.get(), push_.get()}) != nullptr, !counts_before())
        << "ConnectX-5 pushes no tag onto what the wire brings";
}

/// Where the counter stands from ConnectX-6 Dx on depends on the actions between the decapsulation and it.
TEST_F(Decapsulating, CountsTagsThatItPushesButNotBehindARewrite) {
    if (counts_before()) return;
    const Bytes inside = frame_of({.protocol = 17}), outside = encapsulated(tunnel::vxlan(), inside);
    const Bytes outside_tag = encapsulated(tunnel::vxlan(), tagged(inside));
    const struct {
        const char* name;
        std::vector<mlx5dv_dr_action*> actions;
        Bytes from, to;
        std::size_t counted_tags;
    } cases[] = {
        {"push", {push_.get()}, outside, tagged(inside), 1},
        {"push, push", {push_.get(), push_.get()}, outside, tagged(tagged(inside)), 2},
        {"rewrite, push", {ttl_.get(), push_.get()}, outside, tagged(with_ttl_9(inside)), 0},
        {"rewrite, push, push", {ttl_.get(), push_.get(), push_.get()}, outside, tagged(tagged(with_ttl_9(inside))), 1},
        {"pop, rewrite, push", {pop_.get(), ttl_.get(), push_.get()}, outside_tag, tagged(with_ttl_9(inside)), 0},
    };
    EXPECT_EQ(rule({decap_.get(), pop_.get(), push_.get()}), nullptr);
    for (const auto& one : cases) {
        std::vector<mlx5dv_dr_action*> actions = one.actions;
        actions.insert(actions.begin(), decap_.get());
        const Rule made = rule(std::move(actions));
        ASSERT_NE(made, nullptr) << one.name << ": " << strerror(errno);
        const Sent sent = send(one.from);
        EXPECT_EQ(sent.bytes, one.to) << one.name;
        EXPECT_EQ(sent.counted, inside.size() + 4 * one.counted_tags) << one.name;
    }
}

TEST_F(Decapsulating, ReadsTheNextTablesMatchOfTheFrameThatWasInside) {
    const DrTable next(mlx5dv_dr_table_create(domain_.get(), 2));
    const Action on(mlx5dv_dr_action_create_dest_table(next.get()));
    MatchParam mask, value;
    mask.bits(in_outer + ip_version, 4, 6).bits(in_outer + 216, 8, 0xFF).number(source_port_at, 0xFFFF, 2);
    value.bits(in_outer + ip_version, 4, 6).bits(in_outer + 216, 8, 64).number(source_port_at, wire, 2);
    const Matcher matcher(mlx5dv_dr_matcher_create(next.get(), 0, outer_and_misc, mask.get()));
    ASSERT_NE(matcher, nullptr) << strerror(errno);
    mlx5dv_dr_action* to_vport[] = {out_.get()};
    const Rule second(mlx5dv_dr_rule_create(matcher.get(), value.get(), 1, to_vport));
    MatchParam from_wire;
    from_wire.number(source_port_at, wire, 2);
    mlx5dv_dr_action* actions[] = {decap_.get(), on.get()};
    const Rule first(mlx5dv_dr_rule_create(matcher_.get(), from_wire.get(), 2, actions));
    ASSERT_NE(first, nullptr) << strerror(errno);
    const Bytes inside = frame_of({.ipv6 = true});
    EXPECT_EQ(forwarded(wire, encapsulated(tunnel::vxlan(), inside)).bytes, inside);
    const auto other = entries::Forwarder(*device()).from_port(wire, encapsulated(tunnel::vxlan(), frame_of({})));
    ASSERT_EQ(other.size(), 1U);
    EXPECT_EQ(other[0].kind, Delivery::Kind::kernel);
    EXPECT_EQ(other[0].packet.bytes, frame_of({}));
}

TEST_F(Decapsulating, IsForTheWireOnly) {
    MatchParam value;
    value.number(source_port_at, from_vf, 2);
    EXPECT_EQ(rule_for(value, {decap_.get()}), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(Decapsulating, StopsAtWhatIsInNoTunnel) {
    const Rule made = rule({decap_.get()});
    ASSERT_NE(made, nullptr);
    const std::string name = "in no known tunnel";
    const Bytes inside = frame_of({.protocol = 17}), good = encapsulated(tunnel::vxlan(), inside);
    const auto broken = [&good](std::size_t at, std::uint8_t byte) {
        Bytes frame = good;
        frame[at] = byte;
        return frame;
    };
    EXPECT_EQ(send(good).bytes, inside);
    expect_stop(inside, name);
    expect_stop(broken(42, 0), name);        // no I flag
    expect_stop(broken(37, 0xB6), name);     // port 4790
    expect_stop(broken(39, good[39] - 1), name);   // UDP's length
    expect_stop(broken(20, 0x20), name);     // a fragment
    Bytes longer = good;
    longer.resize(good.size() + 1);
    expect_stop(longer, "bytes behind its IP packet");
    Bytes ip = tunnel::geneve(0);
    put(ip, 44, 0x0800);
    expect_stop(encapsulated(ip, Bytes(inside.begin() + 14, inside.end())), name);
}

/// A field of a packet, and where match parameters have it.
struct FieldCase {
    const char* name;
    Bytes frame;
    unsigned offset, length;
    std::uint64_t value;
    unsigned inner_version = 0;   ///< asked for too: libmlx5 looks for IP fields by it
    bool beside_vni = false;      ///< of a VXLAN: libmlx5 looks for some fields in one place with it
};

class Looking : public Decapsulating {
protected:
    MatchParam parameter(const FieldCase& one, std::uint64_t value, bool is_mask) {
        MatchParam parameter;
        parameter.number(source_port_at, is_mask ? 0xFFFF : wire, 2);
        parameter.bits(one.offset, one.length, value);
        if (one.inner_version != 0) parameter.bits(in_inner + ip_version, 4, one.inner_version);
        if (one.beside_vni) parameter.bits(in_misc + 160, 24, is_mask ? 0xFFFFFF : 5);
        return parameter;
    }
    Matcher matcher(const FieldCase& one) {
        const auto criteria = static_cast<std::uint8_t>(misc | 1U << one.offset / block |
                                                        (one.inner_version != 0 ? 4U : 0U));
        MatchParam mask = parameter(one, ~std::uint64_t{0}, true);
        return Matcher(mlx5dv_dr_matcher_create(table_.get(), 1, criteria, mask.get()));
    }
    /// The frame is led to where it comes out, whole, by the rule for `value`.
    bool matches(const FieldCase& one, std::uint64_t value) {
        const Matcher by = matcher(one);
        EXPECT_NE(by, nullptr) << one.name << ": " << strerror(errno);
        MatchParam wanted = parameter(one, value, false);
        mlx5dv_dr_action* actions[] = {out_.get()};
        const Rule made(mlx5dv_dr_rule_create(by.get(), wanted.get(), 1, actions));
        EXPECT_NE(made, nullptr) << one.name << ": " << strerror(errno);
        const auto out = entries::Forwarder(*device()).from_port(wire, one.frame);
        EXPECT_EQ(out.size(), 1U);
        EXPECT_EQ(out[0].packet.bytes, one.frame);
        EXPECT_TRUE(out[0].kind == Delivery::Kind::vport || out[0].kind == Delivery::Kind::kernel);
        return out[0].kind == Delivery::Kind::vport;
    }
    void expect_found(const FieldCase& one) {
        EXPECT_TRUE(matches(one, one.value)) << one.name;
        for (unsigned bit = 0; bit < one.length; bit += one.length < 8 ? 1 : 7) {
            EXPECT_FALSE(matches(one, one.value ^ std::uint64_t{1} << bit)) << one.name << ", bit " << bit;
        }
    }
};

TEST_F(Looking, FindsTheFieldsOfTunnels) {
    const DevxObj option = geneve_option();
    ASSERT_NE(option, nullptr) << strerror(errno);
    const Bytes inside = frame_of({});
    const Bytes vxlan = encapsulated(tunnel::vxlan(0xA1B2C3), inside);
    const Bytes vxlan6 = tagged(encapsulated(tunnel::vxlan_over(tunnel::outer_ipv6(17), 0xA1B2C3), inside));
    Bytes with = geneve_with(geneve_option_of_one_word);
    with[43] = 0x80;
    const Bytes geneve = encapsulated(with, inside);
    const Bytes gre = encapsulated(tunnel::gre(tunnel::outer_ipv4(47), 0xB000), inside);
    const Bytes gre6 = encapsulated(tunnel::gre(tunnel::outer_ipv6(47), 0x2000), inside);
    const Bytes plain_gre = encapsulated(tunnel::gre(tunnel::outer_ipv4(47), 0), inside);
    const FieldCase cases[] = {
        {"vxlan_vni", vxlan, in_misc + 160, 24, 0xA1B2C3},
        {"vxlan_vni over IPv6, tagged", vxlan6, in_misc + 160, 24, 0xA1B2C3},
        {"geneve_vni", geneve, in_misc + 192, 24, 0x000001},
        {"geneve_oam", geneve, in_misc + 223, 1, 1},
        {"geneve_opt_len", geneve, in_misc + 298, 6, 2},
        {"geneve_protocol_type", geneve, in_misc + 304, 16, 0x6558},
        {"geneve_tlv_option_0_data", geneve, in_misc3 + 288, 32, 0xA1A2A3A4},
        {"gre_c_present", gre, in_misc + 0, 1, 1},
        {"gre_c_present", gre6, in_misc + 0, 1, 0},
        {"gre_k_present", gre, in_misc + 2, 1, 1},
        {"gre_k_present", gre6, in_misc + 2, 1, 1},
        {"gre_k_present", plain_gre, in_misc + 2, 1, 0},
        {"gre_s_present", gre, in_misc + 3, 1, 1},
        {"gre_s_present", gre6, in_misc + 3, 1, 0},
        {"gre_protocol", gre, in_misc + 112, 16, 0x6558},
        {"gre_key", gre, in_misc + 128, 32, 7},
        {"gre_key over IPv6", gre6, in_misc + 128, 32, 7},
        {"no gre_key", plain_gre, in_misc + 128, 32, 0},
        {"VXLAN's header", vxlan, in_misc5 + 128, 32, 0x08000000},
        {"VXLAN's header, second word", vxlan6, in_misc5 + 160, 32, 0xA1B2C300},
        {"Geneve's header", geneve, in_misc5 + 128, 32, 0x02806558},
        {"GRE's header", gre, in_misc5 + 128, 32, 0xB0006558},
    };
    for (const FieldCase& one : cases) expect_found(one);
}

TEST_F(Looking, FindsTheFieldsOfTheFrameInside) {
    // Nothing inside has the value of its field outside.
    const auto in = [](const Bytes& inside, bool over_ipv6 = true) {
        const Bytes around = over_ipv6 ? tunnel::vxlan_over(tunnel::outer_ipv6(17)) : tunnel::vxlan();
        return encapsulated(around, readdressed(inside));
    };
    const Bytes v4 = in(frame_of({})), v6 = in(frame_of({.ipv6 = true, .protocol = 6}), false);
    Bytes tag = frame_of({.tagged = true});
    tag[14] = 0x70;   // priority 3, CFI
    const Bytes one_tag = in(tag), two_tags = in(tagged(tag, 0x88, 9));
    Bytes service_inside = tag;
    put(service_inside, 12, 0x88A8);
    Bytes piece = frame_of({.protocol = 17});
    put(piece, 20, 0x2000);
    const FieldCase cases[] = {
        {"smac", v4, in_inner + 0, 48, 0x0A1B2C3D4E5F},
        {"dmac", v6, in_inner + 64, 48, 0x0E1D2C3B4A59},
        {"ethertype", one_tag, in_inner + 48, 16, 0x0800},
        {"first_prio", one_tag, in_inner + 112, 3, 3},
        {"first_cfi", one_tag, in_inner + 115, 1, 1},
        {"first_vid", one_tag, in_inner + 116, 12, 5},
        {"cvlan_tag", one_tag, in_inner + 144, 1, 1},
        {"svlan_tag", two_tags, in_inner + 145, 1, 1},
        {"second_vid", two_tags, in_misc + 84, 12, 5},
        {"second_prio", two_tags, in_misc + 80, 3, 3},
        {"second_cfi", two_tags, in_misc + 83, 1, 1},
        {"second_cvlan_tag", two_tags, in_misc + 97, 1, 1},
        {"second_svlan_tag", in(tagged(service_inside)), in_misc + 99, 1, 1},
        {"frag", in(piece), in_inner + 146, 1, 1, 4},
        {"not frag", v4, in_inner + 146, 1, 0, 4},
        {"IPv4's protocol", v4, in_inner + 128, 8, 6, 4},
        {"IPv4's dscp", v4, in_inner + 136, 6, 0x2E, 4},
        {"IPv4's ecn", v4, in_inner + 142, 2, 1, 4},
        {"IPv4's ihl", v4, in_inner + 208, 4, 5, 4},
        {"IPv4's ttl", v4, in_inner + 216, 8, 64, 4},
        {"IPv4's source", v4, in_inner + 352, 32, 0x0A000001, 4},
        {"IPv4's destination", v4, in_inner + 480, 32, 0x0A000002, 4},
        {"tcp_flags", v4, in_inner + 151, 9, 0x18, 4},
        {"tcp_sport", v4, in_inner + 160, 16, 1000, 4},
        {"tcp_dport", v4, in_inner + 176, 16, 2000, 4},
        {"IPv6's protocol", v6, in_inner + 128, 8, 6, 6},
        {"IPv6's dscp", v6, in_inner + 136, 6, 0x2E, 6},
        {"IPv6's ecn", v6, in_inner + 142, 2, 1, 6},
        {"IPv6's hop limit", v6, in_inner + 216, 8, 64, 6},
        {"IPv6's source, first", v6, in_inner + 256, 64, 0x20252A2F34393E43, 6},
        {"IPv6's source, last", v6, in_inner + 320, 64, 0x484D52575C61666B, 6},
        {"IPv6's destination, first", v6, in_inner + 384, 64, 0x70757A7F84898E93, 6},
        {"IPv6's destination, last", v6, in_inner + 448, 64, 0x989DA2A7ACB1B6BB, 6},
        {"flow label", v6, in_misc + 268, 20, 0xABCDE, 6},
        {"TCP flags over IPv6", v6, in_inner + 151, 9, 0x18, 6},
        {"udp_sport", v6, in_inner + 224, 16, 1000, 6},
        {"udp_dport", v6, in_inner + 240, 16, 2000, 6},
        {"no frag over IPv6", v6, in_inner + 146, 1, 0, 6},
    };
    for (FieldCase one : cases) {
        expect_found(one);
        one.beside_vni = true;
        expect_found(one);
    }
}

/// All of them at once, beside a VNI: the look-ups of both MAC addresses, and what stands with the tunnel's number.
TEST_F(Looking, FindsManyFieldsOfATunnelTogether) {
    const Bytes frame = encapsulated(tunnel::vxlan(), frame_of({.tagged = true}));
    const auto parameter = [](bool is_mask, std::uint64_t smac) {
        const auto value = [is_mask](std::uint64_t number) { return is_mask ? ~std::uint64_t{0} : number; };
        MatchParam all;
        all.number(source_port_at, is_mask ? 0xFFFF : wire, 2).bits(in_misc + 160, 24, value(5));
        all.bits(in_outer + ip_version, 4, 4).bits(in_outer + 352, 32, value(0xAC100001));
        all.bits(in_outer + 128, 8, value(17)).bits(in_outer + 240, 16, value(4789));
        all.bits(in_inner + 0, 48, value(smac)).bits(in_inner + 64, 48, value(0x020000000002));
        all.bits(in_inner + 48, 16, value(0x0800)).bits(in_inner + ip_version, 4, 4);
        all.bits(in_inner + 116, 12, value(5)).bits(in_inner + 144, 1, 1);
        all.bits(in_inner + 352, 32, value(0x0A000001)).bits(in_inner + 128, 8, value(6));
        return all;
    };
    MatchParam mask = parameter(true, ~std::uint64_t{0});
    const Matcher by(mlx5dv_dr_matcher_create(table_.get(), 1, 1 | 2 | 4, mask.get()));
    ASSERT_NE(by, nullptr) << strerror(errno);
    std::vector<Rule> made;
    for (const std::uint64_t smac : {0x020000000003, 0x020000000001, 0x020000000005}) {
        MatchParam value = parameter(false, smac);
        mlx5dv_dr_action* actions[] = {decap_.get(), out_.get()};
        made.emplace_back(mlx5dv_dr_rule_create(by.get(), value.get(), 2, actions));
        ASSERT_NE(made.back(), nullptr) << strerror(errno);
    }
    EXPECT_EQ(forwarded(wire, frame).bytes, frame_of({.tagged = true}));
    Bytes other = frame;
    other[50 + 11] = 9;   // the last byte of the inner source
    EXPECT_EQ(entries::Forwarder(*device()).from_port(wire, other)[0].kind, Delivery::Kind::kernel);
}

/// Beside whatever else of a tunnel: libmlx5 has one look-up of ICMP, and that is of the outer packet.
TEST_F(Looking, FindsIcmpOfTheOuterPacketOnly) {
    if (counts_before()) return;   // ConnectX-5 as shipped has no parser for it
    const Bytes echo = frame_of({.protocol = 1}), in_tunnel = encapsulated(tunnel::vxlan(), echo);
    const std::uint64_t type = echo[34];
    ASSERT_NE(type, 0U);
    EXPECT_TRUE(matches({"icmp_type", echo, in_misc3 + 256, 8, type}, type));
    EXPECT_FALSE(matches({"inner icmp_type", in_tunnel, in_misc3 + 256, 8, type, 4, true}, type));
    EXPECT_TRUE(matches({"no inner icmp_type", in_tunnel, in_misc3 + 256, 8, 0, 4, true}, 0));
}

/// libmlx5 44 looks for the inner numbers among the outer ones from ConnectX-6 Dx on.
TEST_F(Looking, FindsInnerTcpNumbersOnConnectX5Only) {
    const Bytes frame = encapsulated(tunnel::vxlan(), frame_of({}));
    EXPECT_EQ(matches({"inner_tcp_seq_num", frame, in_misc3 + 0, 32, 0x01020304, 4}, 0x01020304), counts_before());
    EXPECT_EQ(matches({"inner_tcp_ack_num", frame, in_misc3 + 64, 32, 0x05060708, 4}, 0x05060708), counts_before());
}

TEST_F(Looking, TellsWhetherAGeneveOptionIsThereButOnConnectX5) {
    const DevxObj option = geneve_option();
    ASSERT_NE(option, nullptr) << strerror(errno);
    const Bytes other{1, 2, 0x81, 1, 0, 0, 0, 1};
    Bytes twice = geneve_option_of_one_word;
    twice.insert(twice.end(), geneve_option_of_one_word.begin(), geneve_option_of_one_word.end());
    const Bytes behind{9, 9, 9, 2, 1, 2, 0x80, 1, 1, 2, 0x80, 1, 1, 2, 0x80, 1, 0xA1, 0xA2, 0xA3, 0xA4};
    const auto frame = [](const Bytes& options) { return encapsulated(geneve_with(options), frame_of({})); };
    const auto data_is = [&](const Bytes& options, std::uint32_t data) {
        return matches({"data", frame(options), in_misc3 + 288, 32, 0}, data);
    };
    EXPECT_TRUE(data_is(geneve_option_of_one_word, 0xA1A2A3A4));
    EXPECT_TRUE(data_is(behind, 0xA1A2A3A4)) << "behind another one";
    EXPECT_FALSE(data_is(other, 0xA1A2A3A4));
    EXPECT_TRUE(data_is(other, 0)) << "one that is not there reads 0";
    EXPECT_THROW((void)data_is(twice, 0xA1A2A3A4), entries::Stopped);
    EXPECT_THROW((void)data_is({1, 2, 0x80, 0, 9, 9, 9, 0}, 1), entries::Stopped) << "another length";
    EXPECT_THROW((void)data_is({9, 9, 9, 2, 0, 0, 0, 0}, 1), entries::Stopped) << "beyond the options' end";

    // libmlx5 takes it beside another field of Geneve only.
    MatchParam mask, value;
    mask.number(source_port_at, 0xFFFF, 2).bits(in_misc + 222, 1, 1).bits(in_misc + 192, 24, 0xFFFFFF);
    value.number(source_port_at, wire, 2).bits(in_misc + 222, 1, 1).bits(in_misc + 192, 24, 1);
    const Matcher by(mlx5dv_dr_matcher_create(table_.get(), 1, misc, mask.get()));
    ASSERT_EQ(by != nullptr, !counts_before());
    if (by == nullptr) return;
    mlx5dv_dr_action* actions[] = {out_.get()};
    const Rule made(mlx5dv_dr_rule_create(by.get(), value.get(), 1, actions));
    ASSERT_NE(made, nullptr) << strerror(errno);
    const auto kind_of = [&](const Bytes& options) {
        return entries::Forwarder(*device()).from_port(wire, frame(options))[0].kind;
    };
    EXPECT_EQ(kind_of(geneve_option_of_one_word), Delivery::Kind::vport);
    EXPECT_EQ(kind_of(other), Delivery::Kind::kernel);
    EXPECT_EQ(kind_of({}), Delivery::Kind::kernel);
}

TEST_F(Looking, StopsAtAnOptionThatNoObjectNames) {
    const Bytes frame = encapsulated(geneve_with(geneve_option_of_one_word), frame_of({}));
    const FieldCase one{"data", frame, in_misc3 + 288, 32, 0xA1A2A3A4};
    EXPECT_THROW((void)matches(one, one.value), entries::Stopped);
    const DevxObj option = geneve_option();
    EXPECT_TRUE(matches(one, one.value));
}

TEST_F(Looking, StopsAtATunnelThatThePacketIsNotIn) {
    const Bytes plain = frame_of({.protocol = 17}), vxlan = encapsulated(tunnel::vxlan(), frame_of({}));
    const Bytes geneve = encapsulated(tunnel::geneve(0), frame_of({}));
    const auto stops = [&](const char* name, const Bytes& frame, unsigned offset, unsigned length) {
        EXPECT_THROW((void)matches({name, frame, offset, length, 0}, 1), entries::Stopped) << name;
    };
    stops("a VNI of no tunnel", plain, in_misc + 160, 24);
    stops("a VXLAN's VNI of Geneve", geneve, in_misc + 160, 24);
    if (counts_before()) stops("Geneve of VXLAN", vxlan, in_misc + 192, 24);   // later it is the header as it is
    stops("a tunnel's header of no tunnel", plain, in_misc5 + 128, 32);
    stops("GRE of VXLAN", vxlan, in_misc + 112, 16);
    stops("an inner address of no tunnel", plain, in_inner + 64, 48);
}

TEST_F(Looking, HasOneGeneveOptionOfOneWord) {
    EXPECT_EQ(geneve_option(0), nullptr);
    EXPECT_EQ(errno, EREMOTEIO);
    EXPECT_EQ(geneve_option(2), nullptr);
    {
        const DevxObj option = geneve_option();
        ASSERT_NE(option, nullptr) << strerror(errno);
        EXPECT_EQ(geneve_option(1, 0x0103), nullptr);
        EXPECT_EQ(errno, EREMOTEIO);
        std::array<std::uint32_t, 4> in{htobe32(0x0A02'0000), htobe32(0xB)};
        std::array<std::uint8_t, 80> answer{};
        for (const DevxObject& object : device()->devx_objects()) {
            if (object.general_type == 0xB) in[2] = htobe32(object.id);
        }
        ASSERT_EQ(mlx5dv_devx_obj_query(option.get(), in.data(), sizeof in, answer.data(), sizeof answer), 0);
        EXPECT_EQ(Bytes(answer.begin() + 28, answer.begin() + 32), (Bytes{1, 2, 0x80, 1}));
    }
    EXPECT_NE(geneve_option(1, 0x0103), nullptr) << "there is none any more";
}

}  // namespace
}  // namespace ovsdr::connectx
