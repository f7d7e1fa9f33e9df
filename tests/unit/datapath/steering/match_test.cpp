// Masks bit by bit: which ones a generation takes in which table, what they become, and that packets are matched by
// them.
#include "datapath/steering/match.hpp"

#include <cerrno>
#include <vector>

#include "datapath/steering/masked_words.hpp"
#include "datapath/steering/parser.hpp"
#include "datapath/steering/tunnel.hpp"
#include "frames.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"
#include "spread.hpp"

namespace ovsdr::soft::test {
namespace {


/// What a field of a non-root mask needs beside it: an IP version of the same block.
enum class Needs { nothing, ip, v4, v6 };

struct Known {
    Field field;
    Needs needs = Needs::nothing;
    bool deep = true;
};

/// Fields of the outer block; those of the inner one are 1024 bits further.
constexpr Known in_block[] = {{field::smac_47_16},
                              {field::smac_15_0},
                              {field::ethertype},
                              {field::dmac_47_16},
                              {field::dmac_15_0},
                              {field::first_prio},
                              {field::first_cfi},
                              {field::first_vid},
                              {field::ip_protocol, Needs::ip},
                              {field::ip_dscp, Needs::ip},
                              {field::ip_ecn, Needs::ip},
                              {field::cvlan_tag},
                              {field::svlan_tag},
                              {field::frag, Needs::ip},
                              {field::tcp_flags, Needs::ip},
                              {field::tcp_sport, Needs::ip},
                              {field::tcp_dport, Needs::ip},
                              {field::ipv4_ihl, Needs::v4},
                              {field::ttl, Needs::ip},
                              {field::udp_sport, Needs::ip},
                              {field::udp_dport, Needs::ip},
                              {field::src_127_96, Needs::v6},
                              {field::src_95_64, Needs::v6},
                              {field::src_63_32, Needs::v6},
                              {field::src_31_0, Needs::ip},
                              {field::dst_127_96, Needs::v6},
                              {field::dst_95_64, Needs::v6},
                              {field::dst_63_32, Needs::v6},
                              {field::dst_31_0, Needs::ip}};

constexpr Known elsewhere[] = {{field::gre_c},
                               {field::gre_k},
                               {field::gre_s},
                               {field::source_sqn, Needs::nothing, false},
                               {field::source_port, Needs::nothing, false},
                               {field::second_prio, Needs::nothing, false},
                               {field::second_cfi, Needs::nothing, false},
                               {field::second_vid, Needs::nothing, false},
                               {field::inner_second_prio},
                               {field::inner_second_cfi},
                               {field::inner_second_vid},
                               {field::second_cvlan, Needs::nothing, false},
                               {field::second_svlan, Needs::nothing, false},
                               {field::inner_second_cvlan},
                               {field::inner_second_svlan},
                               {field::gre_protocol},
                               {field::gre_key_h},
                               {field::gre_key_l},
                               {field::vxlan_vni},
                               {field::geneve_vni},
                               {field::geneve_exists},
                               {field::geneve_oam},
                               {field::outer_label, Needs::v6},
                               {field::inner_label, Needs::v6},
                               {field::geneve_opt_len},
                               {field::geneve_protocol},
                               {field::outer_mpls},
                               {field::inner_mpls},
                               {field::mpls_over_gre},
                               {field::mpls_over_udp},
                               {{field::reg_c_7.bit, 8 * 32}, Needs::nothing, false},
                               {field::reg_a, Needs::nothing, false},
                               {field::inner_seq},
                               {field::outer_seq},
                               {field::inner_ack},
                               {field::outer_ack},
                               {field::gpe_vni},
                               {field::gpe_next},
                               {field::gpe_flags},
                               {field::icmp_data, Needs::nothing, false},
                               {field::icmpv6_data, Needs::nothing, false},
                               {field::icmp_type, Needs::nothing, false},
                               {field::icmp_code, Needs::nothing, false},
                               {field::icmpv6_type, Needs::nothing, false},
                               {field::icmpv6_code, Needs::nothing, false},
                               {field::geneve_option},
                               {field::gtpu_teid},
                               {field::gtpu_type},
                               {field::gtpu_flags},
                               {field::gtpu_dw_2},
                               {field::gtpu_extension},
                               {field::gtpu_dw_0},
                               {field::tunnel_0},
                               {field::tunnel_1}};

/// A known field with the bit, and whether it is one of the inner packet's.
struct Place {
    const Known* known = nullptr;
    bool inner = false;
};

[[nodiscard]] bool holds(const Field& field, unsigned bit) { return bit >= field.bit && bit < field.bit + field.width; }
[[nodiscard]] bool holds_any(std::initializer_list<Field> fields, unsigned bit) {
    return std::any_of(fields.begin(), fields.end(), [bit](const Field& field) { return holds(field, bit); });
}

[[nodiscard]] Place place_of(unsigned bit) {
    for (const Known& known : in_block) {
        if (holds(known.field, bit)) return {&known, false};
        if (bit >= 1024 && holds(known.field, bit - 1024)) return {&known, true};
    }
    for (const Known& known : elsewhere) {
        if (holds(known.field, bit)) return {&known, holds(field::inner_label, bit)};
    }
    return {};
}

/// The parser profile that has a field which not every device reads, or -1.
[[nodiscard]] int parser_profile_of(unsigned bit) {
    if (holds_any({field::mpls_over_gre, field::mpls_over_udp}, bit)) return 1;
    if (holds_any({field::geneve_option, field::geneve_exists}, bit)) return 0;
    const Field gtpu{field::gtpu_teid.bit, field::geneve_option.width * 5};
    return holds(gtpu, bit) ? 3 : -1;
}

[[nodiscard]] Parameters bit_mask(unsigned bit) { return Parameters{}.set({bit, 1}, 1); }

[[nodiscard]] int error_of(const Profile& profile, bool root, const Parameters& mask,
                           DomainType domain = DomainType::fdb, std::uint8_t criteria = every) {
    MatchMask made;
    return make_mask({.domain = domain, .root = root, .criteria = criteria, .profile = &profile}, mask.bytes(), made);
}

[[nodiscard]] bool same(const Parameters& one, const Parameters& other) {
    return std::equal(one.bytes().begin(), one.bytes().end(), other.bytes().begin());
}

const Profile all_parsers = [] {
    Profile profile = connectx_6dx;
    profile.flex_parsers = ~0U;
    return profile;
}();

TEST(Masks, RootTablesTakeEachKnownBitByItself) {
    for (unsigned number = 0; number < flex_parser_profiles; ++number) {
        const Profile profile = with_flex_parser_profile(connectx_6dx, number);
        for (unsigned bit = 0; bit < parameters_size * 8; ++bit) {
            const Place place = place_of(bit);
            const int parser = parser_profile_of(bit);
            const bool version = holds(field::ip_version, bit) || holds(field::inner_version, bit);
            const bool taken = (place.known != nullptr || version) &&
                               (parser < 0 || parser == static_cast<int>(number)) &&
                               !holds(field::source_port, bit);  // only whole
            ASSERT_EQ(error_of(profile, true, bit_mask(bit)), taken ? 0 : EOPNOTSUPP)
                << "bit " << bit << " profile " << number;
        }
    }
}

/// Whether libmlx5 begins a look-up for a bit that nothing takes: EOPNOTSUPP. It finds none for the others: EINVAL.
[[nodiscard]] bool begins_a_look_up(unsigned bit) {
    constexpr unsigned samples = 5 * 512, word = 32;
    if (bit >= samples && bit < samples + 512) {
        const bool id = (bit / word & 1) != 0;
        return !id || bit % word >= word - 3;  // ids below eight
    }
    return holds_any({field::source_port, {field::tunnel_0.bit, 128}}, bit);
}

TEST(Masks, OtherTablesTakeBitsUnderTheIpVersionThatHasThem) {
    for (const unsigned outer : {0U, 4U, 6U}) {
        for (const unsigned inner : {0U, 4U, 6U}) {
            for (unsigned bit = 0; bit < parameters_size * 8; ++bit) {
                if (holds(field::ip_version, bit) || holds(field::inner_version, bit)) continue;
                const Place place = place_of(bit);
                const unsigned version = place.inner ? inner : outer;
                bool taken = place.known != nullptr && !holds_any({field::source_port, field::geneve_exists}, bit) &&
                             (parser_profile_of(bit) < 1);
                if (taken && place.known->needs == Needs::ip) taken = version != 0;
                if (taken && place.known->needs == Needs::v4) taken = version == 4;
                if (taken && place.known->needs == Needs::v6) taken = version == 6;
                Parameters mask = bit_mask(bit);
                mask.set(field::ip_version, outer).set(field::inner_version, inner);
                const bool look_up = outer != 0 || inner != 0 || begins_a_look_up(bit);
                ASSERT_EQ(error_of(connectx_6dx, false, mask), taken ? 0 : look_up ? EOPNOTSUPP : EINVAL)
                    << "bit " << bit << ' ' << outer << ' ' << inner;
            }
        }
    }
    for (unsigned version = 1; version < 16; ++version) {
        const int expected = version == 4 || version == 6 ? 0 : EOPNOTSUPP;
        EXPECT_EQ(error_of(connectx_6dx, false, Parameters{}.set(field::ip_version, version)), expected) << version;
        EXPECT_EQ(error_of(connectx_6dx, false, Parameters{}.set(field::inner_version, version)), expected) << version;
    }
}

TEST(Masks, OnlyBlocksOfTheCriteriaCount) {
    const unsigned samples[] = {field::dmac_47_16.bit, field::vxlan_vni.bit, field::inner_dmac.bit, field::reg_c_0.bit,
                                field::icmp_data.bit, 0, field::tunnel_0.bit};
    for (unsigned block = 0; block < 7; ++block) {
        Parameters others;
        for (unsigned bit = 0; bit < parameters_size * 8; ++bit) others.set({bit, 1}, bit / 512 != block);
        const auto criteria = static_cast<std::uint8_t>(1U << block);
        EXPECT_EQ(error_of(connectx_6dx, true, others, DomainType::fdb, criteria), EINVAL)
            << "nothing in block " << block;
        if (samples[block] == 0) continue;
        EXPECT_EQ(error_of(connectx_6dx, true, others.set({samples[block], 1}, 1), DomainType::fdb, criteria), 0)
            << block;
        MatchMask mask;
        ASSERT_EQ(make_mask({DomainType::fdb, true, criteria, &connectx_6dx}, others.bytes(), mask), 0);
        EXPECT_TRUE(same(spread(mask.given), bit_mask(samples[block])));
        EXPECT_EQ(mask.criteria, criteria);
        EXPECT_TRUE(mask.root);
    }
}

TEST(Masks, IcmpOfOneVersionAtATimeAndWithAParser) {
    const Field v4[] = {field::icmp_type, field::icmp_code, field::icmp_data};
    const Field v6[] = {field::icmpv6_type, field::icmpv6_code, field::icmpv6_data};
    const Profile with_parser = with_flex_parser_profile(connectx_5, 2);
    for (unsigned i = 0; i < 3; ++i) {
        for (const Field one : {v4[i], v6[i]}) {
            EXPECT_EQ(error_of(connectx_6dx, false, Parameters{}.set(one, 1)), 0) << one.bit;
            EXPECT_EQ(error_of(with_parser, false, Parameters{}.set(one, 1)), 0) << one.bit;
            EXPECT_EQ(error_of(connectx_5, false, Parameters{}.set(one, 1)), EINVAL) << one.bit;
            EXPECT_EQ(error_of(connectx_5, false, Parameters{}.set(one, 1).set(field::vxlan_vni, 1)), EOPNOTSUPP)
                << one.bit;
            EXPECT_EQ(error_of(connectx_5, true, Parameters{}.set(one, 1)), 0) << one.bit;
        }
        for (const Field other : v6) {
            EXPECT_EQ(error_of(connectx_6dx, false, Parameters{}.set(v4[i], 1).set(other, 1)), EOPNOTSUPP);
            EXPECT_EQ(error_of(connectx_6dx, true, Parameters{}.set(v4[i], 1).set(other, 1)), 0);
        }
    }
}

TEST(Masks, TunnelsThatShareAPlaceInTheDeviceAreRefusedTogether) {
    const std::vector<std::vector<Field>> groups{
        {field::gpe_vni, field::gpe_next, field::gpe_flags},
        {field::geneve_vni, field::geneve_oam, field::geneve_opt_len, field::geneve_protocol, field::geneve_option},
        {field::tunnel_0, field::tunnel_1},
        {field::gtpu_teid, field::gtpu_type, field::gtpu_flags, field::gtpu_dw_2, field::gtpu_extension,
         field::gtpu_dw_0}};
    for (std::size_t a = 0; a < groups.size(); ++a) {
        for (const Field one : groups[a]) {
            const auto exists = Parameters{}.set(one, 1).set(field::geneve_exists, 1);
            EXPECT_EQ(error_of(all_parsers, false, exists), a == 1 ? 0 : EOPNOTSUPP) << one.bit;
            EXPECT_EQ(error_of(all_parsers, true, exists), 0) << one.bit;
            for (std::size_t b = 0; b < groups.size(); ++b) {
                for (const Field other : groups[b]) {
                    const auto both = Parameters{}.set(one, 1).set(other, 1);
                    EXPECT_EQ(error_of(all_parsers, false, both), a == b ? 0 : EOPNOTSUPP)
                        << one.bit << ' ' << other.bit;
                    EXPECT_EQ(error_of(all_parsers, true, both), 0);
                }
            }
        }
    }
    // The first format reads them by parsers; one is set up for either.
    for (const Field one : groups[0]) {
        EXPECT_EQ(error_of(connectx_5, false, Parameters{}.set(one, 1)), 0);
        EXPECT_EQ(error_of(with_flex_parser_profile(connectx_5, 1), false, Parameters{}.set(one, 1)), EINVAL);
        EXPECT_EQ(error_of(with_flex_parser_profile(connectx_5, 1), true, Parameters{}.set(one, 1)), 0);
    }
    for (const Field one : groups[1]) {
        EXPECT_EQ(error_of(connectx_5, false, Parameters{}.set(one, 1)), 0);
        if (one.bit == field::geneve_option.bit) continue;
        EXPECT_EQ(error_of(with_flex_parser_profile(connectx_5, 2), false, Parameters{}.set(one, 1)), EINVAL);
    }
}

TEST(Masks, SendersHaveNoSource) {
    for (const DomainType domain : {DomainType::fdb, DomainType::nic_rx, DomainType::nic_tx}) {
        for (const bool root : {false, true}) {
            const int expected = domain != DomainType::nic_tx ? 0 : root ? EOPNOTSUPP : EINVAL;
            EXPECT_EQ(error_of(connectx_6dx, root, Parameters{}.set(field::source_port, 0xffff), domain), expected);
            for (unsigned i = 0; i < 24; ++i) {
                EXPECT_EQ(error_of(connectx_6dx, root, bit_mask(field::source_sqn.bit + i), domain), expected) << i;
            }
            EXPECT_EQ(error_of(connectx_6dx, root, Parameters{}.set(field::source_port, 0xfffe), domain), EOPNOTSUPP);
        }
    }
}

TEST(Masks, TheFragmentBitRidesAlongWithALookUpOfEthernetHeaders) {
    const auto error = [](std::initializer_list<Field> fields) {
        Parameters mask;
        for (const Field one : fields) mask.set(one, 1);
        return error_of(connectx_6dx, false, mask);
    };
    EXPECT_EQ(error({field::frag}), EINVAL);
    EXPECT_EQ(error({field::frag, field::vxlan_vni}), EOPNOTSUPP) << "the outer bit with the inner headers' look-up";
    for (const Field one : {field::smac_47_16, field::smac_15_0, field::dmac_15_0, field::first_vid, field::svlan_tag,
                            field::ethertype, field::second_vid, field::second_cvlan}) {
        EXPECT_EQ(error({field::frag, one}), 0) << one.bit;
    }
    EXPECT_EQ(error({field::frag, field::smac_15_0, field::first_vid}), 0);
    EXPECT_EQ(error({field::frag, field::smac_47_16, field::dmac_47_16}), EOPNOTSUPP)
        << "both have a look-up without it";
    EXPECT_EQ(error({field::frag, field::smac_47_16, field::dmac_47_16, field::first_vid}), EOPNOTSUPP);
    EXPECT_EQ(error({field::frag, field::smac_47_16, field::dmac_47_16, field::ethertype}), 0);
    EXPECT_EQ(error({field::frag, field::inner_dmac}), EOPNOTSUPP);
    const Field inner_frag{field::frag.bit + 1024, 1}, inner_smac{field::smac_15_0.bit + 1024, 16};
    EXPECT_EQ(error({inner_frag, inner_smac}), 0);
    EXPECT_EQ(error({inner_frag, inner_smac, field::inner_dmac}), EOPNOTSUPP);
    EXPECT_EQ(error({inner_frag, inner_smac, field::inner_dmac, field::vxlan_vni}), 0);
    EXPECT_EQ(error({inner_frag, field::inner_second_vid}), 0);
    EXPECT_EQ(error({inner_frag, field::second_vid}), EOPNOTSUPP);
}

TEST(Masks, WhatADefinerCoversNeedsNoIpVersion) {
    const auto error = [](const Parameters& mask, DomainType domain = DomainType::fdb) {
        EXPECT_NE(error_of(connectx_6dx, false, mask, domain), 0) << "without definers";
        return error_of(connectx_7, false, mask, domain);
    };
    const auto bits = [](std::initializer_list<Field> fields) {
        Parameters mask;
        for (const Field one : fields) mask.set(one, 1);
        return mask;
    };
    EXPECT_EQ(error({}), 0) << "nothing, with criteria";
    EXPECT_EQ(error(bits({field::ip_protocol, field::ttl, field::ip_dscp, field::ip_ecn, field::udp_dport, field::frag,
                          field::tcp_flags, field::reg_a, field::ipv4_ihl})), 0) << "format 2";
    EXPECT_EQ(error(bits({field::tcp_dport, field::smac_15_0, field::dmac_47_16, field::first_vid, field::reg_c_0})), 0)
        << "format 22";
    EXPECT_EQ(error(bits({field::udp_sport, field::ip_protocol, field::dmac_15_0})), 0) << "22 tells UDP from TCP";
    EXPECT_EQ(error(bits({field::ip_protocol, field::dmac_15_0})), EOPNOTSUPP) << "and no more";
    EXPECT_EQ(error(Parameters{}.set(field::ip_protocol, 17).set(field::dmac_15_0, 1)), 0);
    EXPECT_EQ(error(bits({field::tcp_dport, field::ethertype, field::smac_15_0})), EOPNOTSUPP) << "22 has no ethertype";
    EXPECT_EQ(error(bits({field::ip_protocol, field::udp_sport, field::inner_version}).set(field::inner_version, 4)), 0)
        << "24";
    EXPECT_EQ(error(bits({field::ip_protocol, field::udp_sport, field::reg_c_1})), 0) << "24";
    EXPECT_EQ(error(bits({field::ip_protocol, field::vxlan_vni})), EOPNOTSUPP) << "in none";
    EXPECT_EQ(error(bits({field::src_31_0, field::tcp_sport, field::reg_c_0})), EOPNOTSUPP)
        << "addresses still need one";
    EXPECT_EQ(error(bits({field::udp_sport}).set(field::source_port, 0xffff)), EOPNOTSUPP)
        << "nor has one a source port";
    EXPECT_EQ(error(bits({field::udp_sport, field::source_sqn}), DomainType::nic_rx), EOPNOTSUPP);
    EXPECT_EQ(error(bits({field::udp_sport}).set(field::ip_version, 5)), EOPNOTSUPP);
}

TEST(Masks, LookDeepWhereTheFirstReadingOfAPacketHasNothing) {
    const auto deep = [](unsigned bit) {
        MatchMask mask;
        EXPECT_EQ(make_mask({DomainType::fdb, true, every, &all_parsers}, bit_mask(bit).bytes(), mask), 0) << bit;
        return MaskedWords(mask.key).deep;
    };
    for (unsigned bit = 0; bit < parameters_size * 8; ++bit) {
        const Place place = place_of(bit);
        if (place.known == nullptr || holds(field::source_port, bit)) continue;
        const bool expected = bit < 512 ? false : place.known->deep;
        EXPECT_EQ(deep(bit), expected) << bit;
    }
}

/// The four qualifiers: a customer's tag, a service provider's, or none.
constexpr std::pair<Field, Field> qualifiers[] = {{field::cvlan_tag, field::svlan_tag},
                                                  {field::inner_cvlan, field::inner_svlan},
                                                  {field::second_cvlan, field::second_svlan},
                                                  {field::inner_second_cvlan, field::inner_second_svlan}};

TEST(Masks, QualifiersAndIpVersionsAreMatchedWhole) {
    for (const auto& [customer, service] : qualifiers) {
        for (const Field one : {customer, service}) {
            for (const bool root : {false, true}) {
                MatchMask mask;
                ASSERT_EQ(make_mask({DomainType::fdb, root, every, &connectx_6dx}, Parameters{}.set(one, 1).bytes(),
                                    mask), 0);
                EXPECT_TRUE(same(spread(mask.given), Parameters{}.set(one, 1)));
                EXPECT_TRUE(same(spread(mask.key),
                                 root ? Parameters{}.set(one, 1) : Parameters{}.set(customer, 1).set(service, 1)));
            }
        }
    }
    for (const Field version : {field::ip_version, field::inner_version}) {
        for (const bool root : {false, true}) {
            MatchMask mask;
            ASSERT_EQ(make_mask({DomainType::fdb, root, every, &connectx_6dx}, Parameters{}.set(version, 4).bytes(),
                                mask), 0);
            EXPECT_TRUE(same(spread(mask.key), Parameters{}.set(version, root ? 4 : 15)));
        }
    }
}

[[nodiscard]] MatchMask mask_of(const Parameters& mask, bool root) {
    MatchMask made;
    EXPECT_EQ(make_mask({DomainType::fdb, root, every, &connectx_6dx}, mask.bytes(), made), 0);
    return made;
}

TEST(Values, OfBothTagsTheCustomersCounts) {
    for (const auto& [customer, service] : qualifiers) {
        const auto both = Parameters{}.set(customer, 1).set(service, 1);
        for (const bool root : {false, true}) {
            const MatchMask mask = mask_of(both, root);
            for (const unsigned bits : {0U, 1U, 2U, 3U}) {
                const auto value = Parameters{}.set(customer, bits & 1).set(service, bits >> 1);
                Key key;
                ASSERT_EQ(make_value(mask, value.bytes(), key), 0);
                const auto expected = bits == 3 && !root ? Parameters{}.set(customer, 1) : value;
                EXPECT_TRUE(same(spread(key), expected)) << customer.bit << ' ' << bits << ' ' << root;
            }
        }
    }
}

TEST(Values, KeepToTheirMaskAndToItsSize) {
    const auto fields =
        Parameters{}.set(field::dmac_15_0, 0xff00).set(field::ip_version, 4).set(field::inner_version, 6);
    const auto good = Parameters{}.set(field::dmac_15_0, 0x1200).set(field::ip_version, 4).set(field::inner_version, 6);
    for (const bool root : {false, true}) {
        const MatchMask mask = mask_of(fields, root);
        const auto error = [&](const Parameters& value) {
            Key key;
            return make_value(mask, value.bytes(), key);
        };
        EXPECT_EQ(error(good), 0);
        EXPECT_EQ(error(Parameters{good}.set(field::dmac_15_0, 0x1201)), EINVAL);
        EXPECT_EQ(error(Parameters{good}.set(field::vxlan_vni, 1)), EINVAL);
        EXPECT_EQ(error(Parameters{good}.set(field::sample_0, 1)), EINVAL) << "a bit that nothing matches on";
        EXPECT_EQ(error(Parameters{good}.set(field::ip_version, 0)), root ? 0 : EOPNOTSUPP);
        EXPECT_EQ(error(Parameters{good}.set(field::inner_version, 4)), root ? 0 : EOPNOTSUPP);
        std::vector<std::uint8_t> longer(good.bytes().begin(), good.bytes().end());
        Key key;
        longer.resize(452);
        EXPECT_EQ(make_value(mask, longer, key), EINVAL);
        longer.resize(447);
        EXPECT_EQ(make_value(mask, longer, key), root ? 0 : EINVAL) << "the kernel takes any length";
    }
    MatchMask made;
    const std::vector<std::uint8_t> too_long(449);
    EXPECT_EQ(make_mask({DomainType::fdb, true, 0, &connectx_6dx}, too_long, made), EINVAL);
    EXPECT_EQ(make_mask({DomainType::fdb, true, 0, &connectx_6dx}, std::span(too_long).first(448), made), 0);
    EXPECT_EQ(make_mask({DomainType::fdb, true, 0x80, &connectx_6dx}, {}, made), EINVAL);
}

/// Root rules of one field each, against frames that have it.
class MatchedFields : public SteeringTest {
protected:
    MatchedFields() : SteeringTest(all_parsers) {
        attach({1, 2});
        EXPECT_EQ(steering.set_geneve_option({.option_class = 0x0102, .type = 0x80, .length = 1}), 0);
    }
    [[nodiscard]] bool takes(Field field, std::uint64_t value, const Frame& frame) {
        const std::uint64_t ones = field.width == 64 ? ~0ULL : (1ULL << field.width) - 1;
        const auto matcher = make_matcher(root, 0, every, Parameters{}.set(field, ones));
        EXPECT_EQ(matcher.error, 0) << field.bit;
        const auto rule = make_rule(*matcher, Parameters{}.set(field, value), {&jump});
        EXPECT_EQ(rule.error, 0) << field.bit;
        vports[2].taken.clear();
        send(1, frame, 2);
        return vports[2].taken.size() == 2;
    }
    Domain fdb{steering, DomainType::fdb, nullptr};
    Table root{fdb, 0}, first{fdb, 1};
    MadeMatcher all = match_all(first);
    Action::Created jump = to_table(first), out = to_vport(fdb, 2);
    MadeRule leave = make_rule(*all, {}, {&out});
};

[[nodiscard]] Bytes in_tunnel(FrameSpec outer, Bytes header, const FrameSpec& inner, unsigned cut = 0) {
    const Bytes inside = make_frame(inner);
    header.insert(header.end(), inside.begin() + cut, inside.end());
    return make_frame(outer, header);
}

[[nodiscard]] Bytes labelled(std::uint16_t type) {
    Bytes frame = make_frame({.version = 0});
    frame[12] = static_cast<std::uint8_t>(type >> 8);
    frame[13] = static_cast<std::uint8_t>(type);
    return frame;
}

TEST_F(MatchedFields, TakePacketsThatHaveTheirValueAndNoOthers) {
    const FrameSpec tcp{.tags = {0x88a85fff, 0x8100b123}, .protocol = 6, .tos = 0xb9, .tcp_flags = 0x1d3};
    const FrameSpec tcp6{
        .tags = {0x8100b123, 0x88a85fff}, .version = 6, .protocol = 6, .tos = 0xb9, .tcp_flags = 0x1d3};
    const Bytes vxlan{8, 0, 0, 0, 0x12, 0x34, 0x56, 0}, gpe{0x0c, 0, 0, 3, 1, 2, 3, 0};
    const Bytes geneve{0x02, 0x80, 0x65, 0x58, 9, 8, 7, 0, 1, 2, 0x80, 1, 4, 5, 6, 7};
    const Bytes gre{0xb0, 0, 0x65, 0x58, 1, 2, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10};
    const Bytes gtpu{0x34, 0xff, 0, 26, 1, 2, 3, 4, 0, 7, 9, 0x85, 1, 0x10, 5, 0};
    const Bytes labels{0x12, 0x34, 0x51, 0x40};
    Bytes inner_label = vxlan;
    const Bytes mpls_frame = labelled(0x8848);
    inner_label.insert(inner_label.end(), mpls_frame.begin(), mpls_frame.end());
    Bytes gre_labels{0, 0, 0x88, 0x48};
    gre_labels.insert(gre_labels.end(), labels.begin(), labels.end());
    Bytes frames[] = {make_frame(tcp), make_frame(tcp6), make_frame({.place = 0x2000}), make_frame({.protocol = 1}),
                            make_frame({.version = 6, .protocol = 58}), labelled(0x8847), labelled(0x8848),
                            in_tunnel({.dport = 4789}, vxlan, tcp),
                            in_tunnel({.version = 6, .dport = 4789}, vxlan, tcp6),
                            in_tunnel({.dport = 4789}, vxlan, {.place = 0x2000}), in_tunnel({.dport = 4790}, gpe, {}),
                            in_tunnel({.dport = 6081}, geneve, {}), in_tunnel({.protocol = 47}, gre, {}),
                            in_tunnel({.dport = 2152}, gtpu, {}, 14), make_frame({.dport = 4789}, inner_label),
                            make_frame({.dport = 6635}, labels), make_frame({.protocol = 47}, gre_labels)};
    // Addresses without a byte of 0: the outer ones behind two tags, the inner ones in a tunnel.
    for (const auto& [number, source] : {std::pair{1U, 30U}, std::pair{8U, 100U}}) {
        for (unsigned i = 0; i < 32; ++i) frames[number][source + i] = static_cast<std::uint8_t>(i + 1);
    }
    std::vector<Field> fields;
    for (const Known& known : in_block) {
        fields.push_back(known.field);
        fields.push_back({known.field.bit + 1024, known.field.width});
    }
    for (const Known& known : elsewhere) {
        if (known.field.width <= 32 && known.field.bit != field::source_sqn.bit &&
            known.field.bit != field::source_port.bit) {
            fields.push_back(known.field);
        }
    }
    const NaiveParser parser{.gtpu = true, .option = NaiveParser::Option{.kind = 0x010280, .length = 4}};
    for (const Field one : fields) {
        bool seen = holds(field::reg_a, one.bit);
        for (const Bytes& frame : frames) {
            const std::uint64_t value = take_apart(frame, parser)->get(one);
            if (value == 0 || seen) continue;
            seen = true;
            EXPECT_TRUE(takes(one, value, frame)) << one.bit;
            EXPECT_FALSE(takes(one, 0, frame)) << one.bit;
            EXPECT_FALSE(takes(one, value ^ 1ULL << (one.width - 1), frame) && one.width > 1) << one.bit;
        }
        EXPECT_TRUE(seen) << "no frame has " << one.bit;
    }
}

}  // namespace
}  // namespace ovsdr::soft::test
