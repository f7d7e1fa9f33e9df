// What libmlx5 (and the kernel behind root tables) refuses, with its errno.
#include <cerrno>

#include "datapath/steering/match.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {
namespace {

using criteria::misc;
using criteria::misc2;
using criteria::misc3;
using criteria::outer;

class Refusal : public SteeringTest {
protected:
    explicit Refusal(const Profile& profile = connectx_6dx) : SteeringTest(profile) {}

    Domain fdb{steering, DomainType::fdb, nullptr};
    Domain rx{steering, DomainType::nic_rx, nullptr};
    Domain tx{steering, DomainType::nic_tx, nullptr};
    Table fdb_root{fdb, 0}, fdb_table{fdb, 1}, fdb_next{fdb, 2};
    Table rx_root{rx, 0}, rx_table{rx, 1};
    Table tx_root{tx, 0}, tx_table{tx, 1};
    Collector queue;
    Action::Created drop = Action::drop();
    Action::Created miss = Action::default_miss();
    Action::Created pop = Action::pop_vlan();
    Action::Created push = pushing(0x81000005);
    Action::Created tag = Action::tag(1);
    Action::Created to_queue = to_sink(queue.sink());
    Action::Created out = to_vport(fdb, 1);
    Action::Created next = to_table(fdb_next);
    Action::Created rewrite = modifying(fdb, {set_command(id::dmac_15_0, 0, 16, 1)});
    std::shared_ptr<CounterBulk> bulk = std::make_shared<CounterBulk>(1);
    Action::Created count = counting(bulk);

    int mask_error(Table& table, std::uint8_t criteria, const Parameters& mask) {
        return make_matcher(table, 0, criteria, mask).error;
    }
    int list_error(Table& table, std::initializer_list<const Action::Created*> actions) {
        const auto all = match_all(table);
        return make_rule(*all, {}, actions).error;
    }
    /// In FDB level 1, from one vport only.
    int list_error_from(std::uint16_t vport, std::initializer_list<const Action::Created*> actions) {
        const auto matcher = make_matcher(fdb_table, 0, misc, Parameters{}.set(field::source_port, 0xffff));
        return make_rule(*matcher, Parameters{}.set(field::source_port, vport), actions).error;
    }
};

class OldRefusal : public Refusal {
protected:
    OldRefusal() : Refusal(connectx_5) {}
};

TEST_F(Refusal, Masks) {
    const auto v4 = Parameters{}.set(field::ip_version, 4);
    EXPECT_EQ(mask_error(fdb_table, 0x80, {}), EINVAL);
    EXPECT_EQ(mask_error(fdb_table, outer, {}), EINVAL) << "empty with criteria";
    EXPECT_EQ(mask_error(fdb_table, 0, {}), 0);
    EXPECT_EQ(mask_error(fdb_table, outer, v4), 0);
    EXPECT_EQ(mask_error(fdb_table, outer, Parameters{}.set(field::ip_version, 15)), EOPNOTSUPP);
    EXPECT_EQ(mask_error(fdb_table, outer, Parameters{}.set(field::udp_dport, 0xffff)), EINVAL) << "no ip_version";
    EXPECT_EQ(mask_error(fdb_table, outer, Parameters{}.set(field::udp_dport, 0xffff).set(field::ethertype, 1)),
              EOPNOTSUPP);
    EXPECT_EQ(mask_error(fdb_table, outer, Parameters{v4}.set(field::udp_dport, 0xffff)), 0);
    EXPECT_EQ(mask_error(fdb_table, outer, Parameters{v4}.set(field::src_63_32, 1)), EOPNOTSUPP)
        << "IPv6 bits under IPv4";
    EXPECT_EQ(mask_error(fdb_table, outer, Parameters{}.set(Field{200, 4}, 1)), EINVAL) << "reserved";
    EXPECT_EQ(mask_error(fdb_table, outer, Parameters{v4}.set(Field{200, 4}, 1)), EOPNOTSUPP) << "reserved";
    EXPECT_EQ(mask_error(fdb_table, outer, Parameters{v4}.set(Field{213, 1}, 1)), EOPNOTSUPP) << "l4_ok";
    EXPECT_EQ(mask_error(fdb_table, misc, Parameters{}.set(field::source_port, 0xff)), EOPNOTSUPP) << "partial";
    EXPECT_EQ(mask_error(tx_table, misc, Parameters{}.set(field::source_sqn, 0xffffff)), EINVAL)
        << "NIC_TX has no source";
    EXPECT_EQ(mask_error(rx_table, misc, Parameters{}.set(field::source_sqn, 0xffffff)), 0);
    EXPECT_EQ(mask_error(fdb_table, misc3, Parameters{}.set(field::icmp_type, 255).set(field::icmpv6_type, 255)),
              EOPNOTSUPP);
    EXPECT_EQ(mask_error(fdb_table, misc3, Parameters{}.set(field::icmp_type, 255)), 0);
    // Bits of a block that the criteria leave out do not count.
    EXPECT_EQ(mask_error(fdb_table, outer, Parameters{v4}.set(field::vxlan_vni, 1)), 0);
}

TEST_F(Refusal, TunnelMasks) {
    using criteria::inner;
    constexpr std::uint8_t every = outer | misc | inner | misc2 | misc3 | criteria::misc4 | criteria::misc5;
    const auto error = [&](const Parameters& mask) { return mask_error(fdb_table, every, mask); };
    const auto one = [&](Field field) { return error(Parameters{}.set(field, 1)); };
    for (const Field field : {field::gre_c, field::gre_k, field::gre_s, field::gre_protocol, field::gre_key_h,
                              field::gre_key_l, field::vxlan_vni, field::geneve_vni, field::geneve_oam,
                              field::geneve_opt_len, field::geneve_protocol, field::gpe_vni, field::gpe_next,
                              field::gpe_flags, field::inner_dmac, field::inner_second_vid, field::inner_second_cvlan,
                              field::outer_mpls, field::inner_mpls, field::inner_seq, field::outer_seq,
                              field::inner_ack, field::outer_ack, field::tunnel_0, field::tunnel_1,
                              field::geneve_option}) {
        EXPECT_EQ(one(field), 0) << "bit " << field.bit;
    }
    for (const Field field : {field::geneve_exists, field::bth_dst_qp, field::inner_esp, field::outer_esp,
                              field::mpls_over_gre, field::mpls_over_udp, field::gtpu_teid, field::gtpu_type,
                              field::macsec_0}) {
        EXPECT_EQ(one(field), EINVAL) << "bit " << field.bit;
        EXPECT_EQ(error(Parameters{}.set(field, 1).set(field::inner_dmac, 1)), EOPNOTSUPP) << "bit " << field.bit;
    }
    for (const Field field : {field::sample_0, field::tunnel_2})
        EXPECT_EQ(one(field), EOPNOTSUPP) << "bit " << field.bit;
    EXPECT_EQ(one(field::inner_udp_dport), EINVAL) << "no inner ip_version";
    EXPECT_EQ(error(Parameters{}.set(field::inner_version, 4).set(field::inner_udp_dport, 1)), 0);
    EXPECT_EQ(error(Parameters{}.set(field::inner_version, 5)), EOPNOTSUPP);
    EXPECT_EQ(error(Parameters{}.set(field::ip_version, 4).set(field::outer_label, 1)), EOPNOTSUPP) << "IPv6's";
    EXPECT_EQ(error(Parameters{}.set(field::ip_version, 6).set(field::outer_label, 1)), 0);
    EXPECT_EQ(error(Parameters{}.set(field::ip_version, 6).set(field::inner_label, 1)), EOPNOTSUPP);
    EXPECT_EQ(error(Parameters{}.set(field::inner_version, 6).set(field::inner_label, 1)), 0);
    EXPECT_EQ(error(Parameters{}.set(field::gpe_vni, 1).set(field::geneve_vni, 1)), EOPNOTSUPP) << "one place for both";
    EXPECT_EQ(error(Parameters{}.set(field::tunnel_0, 1).set(field::geneve_vni, 1)), EOPNOTSUPP);
    EXPECT_EQ(error(Parameters{}.set(field::tunnel_0, 1).set(field::geneve_option, 1)), EOPNOTSUPP);
    EXPECT_EQ(error(Parameters{}.set(field::geneve_exists, 1).set(field::geneve_vni, 1)), 0) << "beside another field";
    EXPECT_EQ(error(Parameters{}.set(field::geneve_exists, 1).set(field::geneve_option, 1)), 0);
    EXPECT_EQ(error(Parameters{}.set(field::geneve_exists, 1).set(field::vxlan_vni, 1)), EOPNOTSUPP);
    EXPECT_EQ(error(Parameters{}.set(field::vxlan_vni, 1).set(field::geneve_vni, 1)), 0);
    EXPECT_EQ(mask_error(fdb_table, inner, Parameters{}.set(field::vxlan_vni, 1).set(field::inner_dmac, 1)), 0);
}

TEST(RefusalByParserProfile, FieldsOfOtherProtocols) {
    struct Case {
        Field field;
        unsigned number;  ///< of the parser profile that has it
    };
    const Case cases[] = {{field::mpls_over_gre, 1}, {field::mpls_over_udp, 1},  {field::gtpu_teid, 3},
                          {field::gtpu_type, 3},     {field::gtpu_flags, 3},     {field::gtpu_dw_0, 3},
                          {field::gtpu_dw_2, 3},     {field::gtpu_extension, 3}, {field::geneve_option, 0}};
    for (const Profile& generation : {connectx_5, connectx_6dx, connectx_7}) {
        for (unsigned number = 0; number < flex_parser_profiles; ++number) {
            const Profile profile = with_flex_parser_profile(generation, number);
            Steering steering(profile);
            Domain fdb(steering, DomainType::fdb, nullptr);
            Table root(fdb, 0), table(fdb, 1);
            for (const Case& one : cases) {
                const Parameters mask = Parameters{}.set(one.field, 1);
                const bool taken = one.number == number;
                EXPECT_EQ(make_matcher(table, 0, misc2 | misc3, mask).error, taken ? 0 : EINVAL)
                    << one.field.bit << ' ' << number;
                EXPECT_EQ(make_matcher(root, 0, misc2 | misc3, mask).error, taken ? 0 : EOPNOTSUPP)
                    << one.field.bit << ' ' << number;
            }
            const bool option = generation.steering_format >= 1 && number == 0;
            const Parameters exists = Parameters{}.set(field::geneve_exists, 1).set(field::geneve_vni, 1);
            const bool geneve = profile.parses(flex_parser::geneve);
            EXPECT_EQ(make_matcher(table, 0, misc, exists).error, option ? 0 : geneve ? EOPNOTSUPP : EINVAL)
                << profile.name << ' ' << number;
            EXPECT_EQ(make_matcher(root, 0, misc, exists).error, option ? 0 : EOPNOTSUPP)
                << profile.name << ' ' << number;
            const bool icmp = generation.steering_format >= 1 || number == 2;
            EXPECT_EQ(make_matcher(table, 0, misc3, Parameters{}.set(field::icmp_type, 1)).error, icmp ? 0 : EINVAL);
            if (number != 3) continue;
            EXPECT_EQ(make_matcher(table, 0, misc3, Parameters{}.set(field::gtpu_teid, 1).set(field::gpe_vni, 1)).error,
                      EOPNOTSUPP) << "one place for both";
        }
    }
}

TEST_F(Refusal, Reformats) {
    using Kind = Reformat::Kind;
    const std::vector<std::uint8_t> header(50, 0x11);
    const auto make = [&](Domain& domain, Kind kind, std::size_t size, bool root_level = false) {
        Action::Created action;
        std::vector<std::uint8_t> data(size, 0x11);
        return Action::packet_reformat(domain, root_level, kind, data, action);
    };
    EXPECT_EQ(make(fdb, Kind::encap_l2, 50), 0);
    EXPECT_EQ(make(fdb, Kind::encap_l2, 0), EINVAL);
    EXPECT_EQ(make(fdb, Kind::encap_l2, 51), EINVAL) << "half a word";
    EXPECT_EQ(make(fdb, Kind::encap_l3, 128), 0);
    EXPECT_EQ(make(fdb, Kind::encap_l3, 130), EINVAL);
    EXPECT_EQ(make(rx, Kind::encap_l2, 50), EINVAL);
    EXPECT_EQ(make(rx, Kind::encap_l3, 50), EINVAL);
    EXPECT_EQ(make(tx, Kind::decap_l2, 0), EINVAL);
    EXPECT_EQ(make(tx, Kind::decap_l3, 14), EINVAL);
    EXPECT_EQ(make(rx, Kind::decap_l2, 0), 0);
    EXPECT_EQ(make(fdb, Kind::decap_l3, 14), 0);
    EXPECT_EQ(make(fdb, Kind::decap_l3, 18), 0);
    EXPECT_EQ(make(fdb, Kind::decap_l3, 0), EINVAL);
    EXPECT_EQ(make(fdb, Kind::decap_l3, 16), EINVAL);
    EXPECT_EQ(make(fdb, Kind::decap_l3, 16, true), EOPNOTSUPP) << "the kernel has none in the FDB, of whatever size";

    const auto encap = reformatting(fdb, Kind::encap_l2, header);
    const auto decap = reformatting(fdb, Kind::decap_l2, {});
    EXPECT_EQ(list_error_from(0xffff, {&decap, &out}), 0);
    EXPECT_EQ(list_error_from(1, {&decap, &out}), EOPNOTSUPP) << "nothing is decapsulated on the vports' side";
    EXPECT_EQ(list_error(fdb_table, {&decap, &out}), EOPNOTSUPP) << "both sides";
    EXPECT_EQ(list_error_from(0xffff, {&decap, &drop}), EOPNOTSUPP);
    EXPECT_EQ(list_error_from(0xffff, {&decap, &pop, &rewrite, &push, &encap, &out}), 0);
    EXPECT_EQ(list_error_from(0xffff, {&pop, &decap, &out}), EOPNOTSUPP);
    EXPECT_EQ(list_error_from(0xffff, {&decap, &rewrite, &push, &encap, &out}), 0);
    EXPECT_EQ(list_error(fdb_table, {&encap, &count, &out}), 0);
    EXPECT_EQ(list_error(fdb_table, {&encap, &encap, &out}), EINVAL);
    EXPECT_EQ(list_error(fdb_table, {&encap, &rewrite, &out}), EOPNOTSUPP);
    EXPECT_EQ(list_error(fdb_table, {&encap, &miss}), EOPNOTSUPP);
    EXPECT_EQ(list_error(fdb_root, {&encap, &next}), EINVAL) << "not made for root tables";
    const auto root_encap = reformatting(tx, Kind::encap_l2, header, true);
    EXPECT_EQ(list_error(tx_root, {&root_encap}), 0);
    EXPECT_EQ(list_error(fdb_table, {&root_encap, &out}), EINVAL);

    Action::Created array;
    const auto array_error = [&](Domain& domain, const Action::Created& to, const Action::Created& reformat) {
        const Action::Branch branches[] = {{out.get()}, {to.get(), reformat.get()}};
        const int error = Action::dest_array(domain, branches, array);
        array.reset();
        return error;
    };
    EXPECT_EQ(array_error(fdb, out, encap), 0);
    EXPECT_EQ(array_error(fdb, next, encap), 0);
    EXPECT_EQ(array_error(fdb, miss, encap), 0);
    EXPECT_EQ(array_error(fdb, out, decap), EOPNOTSUPP);
    EXPECT_EQ(array_error(fdb, out, root_encap), EOPNOTSUPP);
    EXPECT_EQ(array_error(fdb, out, rewrite), EOPNOTSUPP);
    EXPECT_EQ(array_error(fdb, count, encap), EINVAL);
    EXPECT_FALSE(encap->busy());
}

TEST_F(OldRefusal, ConnectX5EncapsulatesOnlyFromVports) {
    const auto encap = reformatting(fdb, Reformat::Kind::encap_l2, std::vector<std::uint8_t>(50));
    EXPECT_EQ(list_error_from(1, {&encap, &out}), 0);
    EXPECT_EQ(list_error_from(0xffff, {&encap, &out}), EINVAL);
}

TEST_F(OldRefusal, ConnectX5HasNoIcmp) {
    EXPECT_EQ(mask_error(fdb_table, misc3, Parameters{}.set(field::icmp_type, 255)), EINVAL);
}

TEST_F(Refusal, ShortMasksAreTakenAndLongOnesAreNot) {
    std::unique_ptr<Matcher> matcher;
    const std::vector<std::uint8_t> ones(449, 0xff);
    EXPECT_EQ(Matcher::create(fdb_table, 0, outer, {ones.data(), 6}, matcher), 0);
    matcher.reset();
    EXPECT_EQ(Matcher::create(fdb_table, 0, outer, {ones.data(), 8}, matcher), 0);
    matcher.reset();
    EXPECT_EQ(Matcher::create(fdb_table, 0, outer, {ones.data(), 449}, matcher), EINVAL);
}

TEST_F(Refusal, Values) {
    const auto matcher =
        make_matcher(fdb_table, 0, outer, Parameters{}.set(field::ip_version, 4).set(field::udp_dport, 0xff00));
    const auto v4 = Parameters{}.set(field::ip_version, 4);
    EXPECT_EQ(make_rule(*matcher, Parameters{v4}.set(field::udp_dport, 0x1200), {&drop}).error, 0);
    EXPECT_EQ(make_rule(*matcher, Parameters{v4}.set(field::udp_dport, 0x1201), {&drop}).error, EINVAL);
    EXPECT_EQ(make_rule(*matcher, Parameters{v4}.set(field::udp_sport, 1), {&drop}).error, EINVAL);
    EXPECT_EQ(make_rule(*matcher, {}, {&drop}).error, EOPNOTSUPP) << "ip_version is the same in mask and value";
    std::unique_ptr<Rule> rule;
    EXPECT_EQ(Rule::create(*matcher, Parameters{v4}.first(30), {}, rule), EINVAL) << "no multiple of 4";
}

TEST_F(Refusal, Destinations) {
    Action::Created action;
    EXPECT_EQ(Action::table(fdb_root, action), EINVAL);
    EXPECT_EQ(Action::root_table(fdb_table, 0, action), EINVAL);
    EXPECT_EQ(Action::vport(rx, 1, action), EOPNOTSUPP);
    EXPECT_EQ(Action::vport(fdb, 0x10000, action), EINVAL);
    EXPECT_EQ(Action::push_vlan(0x91000001, action), EINVAL);
    EXPECT_EQ(Action::counter(bulk, 1, action), EINVAL);
    const auto same = to_table(fdb_table);
    EXPECT_EQ(list_error(fdb_table, {&same}), EINVAL) << "its own level";
    EXPECT_EQ(list_error(fdb_next, {&same}), EINVAL) << "a lower level";
    const auto foreign = to_table(rx_table);
    EXPECT_EQ(list_error(fdb_table, {&foreign}), EINVAL);
    const auto nowhere = to_sink({});
    EXPECT_EQ(list_error(rx_table, {&nowhere}), EINVAL);
    EXPECT_EQ(list_error(fdb_table, {&to_queue}), EOPNOTSUPP);
    EXPECT_EQ(list_error(rx_table, {&out}), EINVAL);
}

TEST_F(Refusal, Orders) {
    EXPECT_EQ(list_error(fdb_table, {}), 0);
    EXPECT_EQ(list_error(fdb_table, {&count, &out}), 0);
    EXPECT_EQ(list_error(fdb_table, {&out, &count}), 0);
    EXPECT_EQ(list_error(fdb_table, {&count, &count, &out}), EINVAL);
    EXPECT_EQ(list_error(fdb_table, {&out, &drop}), EOPNOTSUPP);
    EXPECT_EQ(list_error(fdb_table, {&rewrite, &drop}), EOPNOTSUPP);
    EXPECT_EQ(list_error(fdb_table, {&rewrite, &miss}), EOPNOTSUPP);
    EXPECT_EQ(list_error(fdb_table, {&rewrite, &pop, &out}), EOPNOTSUPP);
    EXPECT_EQ(list_error(fdb_table, {&tag, &out}), EOPNOTSUPP);
    EXPECT_EQ(list_error(fdb_table, {&pop, &pop, &out}), 0);
    EXPECT_EQ(list_error(fdb_table, {&pop, &pop, &pop, &out}), EINVAL);
    EXPECT_EQ(list_error(fdb_table, {&push, &push, &push, &out}), ENOTSUP);
    EXPECT_EQ(list_error(fdb_table, {&pop, &drop}), EOPNOTSUPP);
}

TEST_F(Refusal, BothSidesOfTheFdbAreCheckedUnlessTheSourceSettlesOne) {
    EXPECT_EQ(list_error(fdb_table, {&pop, &push, &out}), EOPNOTSUPP) << "no push right after pop on the wire's side";
    EXPECT_EQ(list_error_from(1, {&pop, &push, &out}), 0);
    EXPECT_EQ(list_error_from(0xffff, {&pop, &push, &out}), EOPNOTSUPP);
    const auto by_metadata = make_matcher(fdb_table, 0, misc2, Parameters{}.set(field::reg_c_0, 0xffff0000));
    EXPECT_EQ(make_rule(*by_metadata, Parameters{}.set(field::reg_c_0, 0x00010000), {&pop, &push, &out}).error, 0);
    EXPECT_EQ(make_rule(*by_metadata, Parameters{}.set(field::reg_c_0, 0xffff0000), {&pop, &push, &out}).error,
              EOPNOTSUPP);
    const auto by_free_bits = make_matcher(fdb_table, 0, misc2, Parameters{}.set(field::reg_c_0, 0xffff));
    EXPECT_EQ(make_rule(*by_free_bits, {}, {&pop, &push, &out}).error, EOPNOTSUPP);
}

TEST_F(OldRefusal, ConnectX5PopsOnlyFromTheWireAndPushesOnlyFromVports) {
    EXPECT_EQ(list_error_from(1, {&pop, &out}), EINVAL);
    EXPECT_EQ(list_error_from(0xffff, {&pop, &out}), 0);
    EXPECT_EQ(list_error_from(1, {&push, &out}), 0);
    EXPECT_EQ(list_error_from(0xffff, {&push, &out}), EINVAL);
}

TEST_F(Refusal, RootTablesTakeFewActions) {
    EXPECT_EQ(list_error(fdb_root, {&next}), 0);
    EXPECT_EQ(list_error(fdb_root, {&next, &count}), 0);
    EXPECT_EQ(list_error(fdb_root, {&drop}), 0);
    EXPECT_EQ(list_error(fdb_root, {&out}), ENOTSUP);
    EXPECT_EQ(list_error(fdb_root, {&push, &next}), ENOTSUP);
    EXPECT_EQ(list_error(fdb_root, {&pop, &next}), ENOTSUP);
    EXPECT_EQ(list_error(fdb_root, {&miss}), EINVAL);
    EXPECT_EQ(list_error(fdb_root, {&to_queue}), EINVAL);
    EXPECT_EQ(list_error(fdb_root, {&count}), EINVAL) << "no destination";
    EXPECT_EQ(list_error(fdb_root, {&next, &drop}), EOPNOTSUPP);
    EXPECT_EQ(list_error(fdb_root, {&rewrite, &next}), EINVAL) << "not made for root tables";
    const auto for_root = modifying(fdb, {set_command(id::reg_c_1, 0, 32, 1)}, true);
    EXPECT_EQ(list_error(fdb_root, {&for_root, &next}), 0);
    EXPECT_EQ(list_error(fdb_table, {&for_root, &out}), EINVAL) << "made for root tables only";
    EXPECT_EQ(list_error(rx_root, {&tag, &to_queue}), 0);
    EXPECT_EQ(list_error(rx_root, {&miss}), 0);
    EXPECT_EQ(list_error(rx_root, {&tag}), EINVAL);
    EXPECT_EQ(list_error(tx_root, {&count}), 0);
    EXPECT_EQ(list_error(tx_root, {&tag}), EINVAL);
    const auto all = match_all(fdb_root);
    const auto first = make_rule(*all, {}, {&drop});
    EXPECT_EQ(make_rule(*all, {}, {&next}).error, EEXIST);
}

TEST_F(Refusal, RootPrioritiesEndAtFifteen) {
    for (const std::uint16_t priority : {15, 16, 0xffff}) {
        const auto at_root = match_all(fdb_root, priority), elsewhere = match_all(fdb_table, priority);
        EXPECT_EQ(at_root.error, 0);
        EXPECT_EQ(make_rule(*at_root, {}, {&next}).error, priority == 15 ? 0 : ENOMEM) << priority;
        EXPECT_EQ(make_rule(*elsewhere, {}, {&out}).error, 0);
    }
}

TEST_F(Refusal, Arrays) {
    Action::Created array;
    std::vector<Action*> one{out.get()};
    EXPECT_EQ(Action::dest_array(fdb, one, array), EINVAL);
    std::vector<Action*> two{out.get(), count.get()};
    EXPECT_EQ(Action::dest_array(fdb, two, array), 0);
    array.reset();
    EXPECT_EQ(Action::dest_array(tx, two, array), EOPNOTSUPP);
    EXPECT_EQ(Action::dest_array(rx, two, array), EOPNOTSUPP) << "a vport in NIC_RX";
    std::vector<Action*> with_drop{out.get(), drop.get()};
    EXPECT_EQ(Action::dest_array(fdb, with_drop, array), EOPNOTSUPP);
    std::vector<Action*> with_queue{out.get(), to_queue.get()};
    EXPECT_EQ(Action::dest_array(fdb, with_queue, array), EINVAL);
    std::vector<Action*> with_both{to_queue.get(), drop.get()};
    EXPECT_EQ(Action::dest_array(fdb, with_both, array), EOPNOTSUPP)
        << "libmlx5 refuses the drop before firmware sees the queue";
    std::vector<Action*> long_in_tx(33, to_queue.get());
    EXPECT_EQ(Action::dest_array(tx, long_in_tx, array), EOPNOTSUPP);
    std::vector<Action*> queues{to_queue.get(), to_queue.get()};
    EXPECT_EQ(Action::dest_array(rx, queues, array), 0);
    array.reset();
    EXPECT_FALSE(out->busy());
}

TEST_F(Refusal, ModifyHeaderCommands) {
    Action::Created action;
    EXPECT_EQ(try_modify(fdb, {}, action), EINVAL);
    EXPECT_EQ(try_modify(fdb, {set_command(0x30, 0, 32, 1)}, action), EINVAL) << "no such field";
    EXPECT_EQ(try_modify(fdb, {set_command(id::dmac_15_0, 8, 16, 1)}, action), EINVAL) << "too long";
    EXPECT_EQ(try_modify(fdb, {set_command(id::dmac_15_0, 8, 8, 1)}, action), 0);
    EXPECT_EQ(try_modify(fdb, {set_command(id::reg_a, 0, 32, 1)}, action), EINVAL);
    EXPECT_EQ(try_modify(tx, {set_command(id::reg_a, 0, 32, 1)}, action), 0);
    EXPECT_EQ(try_modify(fdb, {set_command(id::reg_b, 0, 32, 1)}, action), EINVAL);
    EXPECT_EQ(try_modify(rx, {set_command(id::reg_b, 0, 32, 1)}, action), 0);
    EXPECT_EQ(try_modify(fdb, {add_command(id::dmac_15_0, 1)}, action), EINVAL);
    EXPECT_EQ(try_modify(fdb, {add_command(id::ip_ttl, 255)}, action), 0);
    EXPECT_EQ(try_modify(fdb, {set_command(id::sipv4, 0, 32, 1), set_command(id::sipv6_31_0, 0, 32, 1)}, action),
              ENOTSUP);
    EXPECT_EQ(try_modify(fdb, {set_command(id::tcp_sport, 0, 16, 1), set_command(id::udp_sport, 0, 16, 1)}, action),
              EINVAL);
    EXPECT_EQ(try_modify(fdb, {0x4ULL << 60}, action), EOPNOTSUPP);
    EXPECT_EQ(try_modify(fdb, {copy_command(id::reg_c_1, id::dmac_15_0, 16)}, action), 0);
    EXPECT_EQ(try_modify(fdb, {copy_command(id::reg_c_1, id::dmac_15_0, 17)}, action), EINVAL);
}

TEST_F(Refusal, BusyObjects) {
    EXPECT_TRUE(fdb.busy());
    EXPECT_TRUE(fdb_next.busy()) << "an action leads to it";
    EXPECT_FALSE(fdb_table.busy());
    const auto all = match_all(fdb_table);
    EXPECT_TRUE(fdb_table.busy());
    EXPECT_FALSE((*all).busy());
    {
        const auto rule = make_rule(*all, {}, {&out});
        EXPECT_TRUE((*all).busy());
        EXPECT_TRUE(out->busy());
    }
    EXPECT_FALSE((*all).busy());
    EXPECT_FALSE(out->busy());
    EXPECT_EQ(make_rule(*all, {}, {&out, &drop}).error, EOPNOTSUPP);
    EXPECT_FALSE((*all).busy()) << "a refused rule leaves nothing behind";
    EXPECT_FALSE(out->busy());
    Domain lone(steering, DomainType::fdb, nullptr);
    EXPECT_FALSE(lone.busy());
}

}  // namespace
}  // namespace ovsdr::soft::test
