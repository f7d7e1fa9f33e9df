#include "random_pipeline.hpp"

#include <algorithm>

#include "datapath/steering/steering_impl.hpp"
#include "datapath/steering/tunnel.hpp"
#include "tracked.hpp"

namespace ovsdr::soft::test {
namespace {

constexpr unsigned all_criteria =
    criteria::outer | criteria::misc | criteria::misc2 | criteria::misc3 | criteria::inner | criteria::misc5;

/// What random masks are put together from.
struct Candidate {
    Field field;
    unsigned version;  ///< the IP version that it needs, 0 for none, 10 for any; 16, 20 the same of the inner packet
    bool whole;        ///< only a full mask
};
constexpr Candidate candidates[] = {
    {field::dmac_15_0, 0, false}, {field::smac_15_0, 0, false}, {field::ethertype, 0, true},
    {field::first_vid, 0, false}, {field::first_prio, 0, false}, {field::cvlan_tag, 0, true},
    {field::svlan_tag, 0, true}, {field::second_vid, 0, false}, {field::second_cvlan, 0, true},
    {field::ip_protocol, 10, false}, {field::ip_dscp, 10, false}, {field::ip_ecn, 10, true}, {field::frag, 10, true},
    {field::ttl, 10, false}, {field::tcp_sport, 10, false}, {field::tcp_dport, 10, true}, {field::tcp_flags, 10, false},
    {field::udp_sport, 10, false}, {field::udp_dport, 10, true}, {field::src_31_0, 10, false},
    {field::dst_31_0, 10, false}, {field::src_127_96, 6, false}, {field::source_port, 0, true},
    {field::reg_c_0, 0, true}, {field::reg_c_1, 0, false}, {field::icmp_type, 0, true}, {field::icmpv6_type, 0, true},
    {field::vxlan_vni, 0, false}, {field::geneve_vni, 0, true}, {field::gre_key_l, 0, false},
    {field::gre_protocol, 0, true}, {field::tunnel_0, 0, true}, {field::outer_label, 6, false},
    {field::inner_label, 16, false}, {field::inner_dmac_15_0, 0, false}, {field::inner_smac_15_0, 0, false},
    {field::inner_ethertype, 0, true}, {field::inner_first_vid, 0, false}, {field::inner_second_vid, 0, false},
    {field::inner_protocol, 20, false}, {field::inner_ttl, 20, false}, {field::inner_tcp_sport, 20, false},
    {field::inner_udp_dport, 20, true}, {field::inner_src_31_0, 20, false}, {field::inner_dst_31_0, 20, false},
    {field::inner_frag, 20, true}, {field::outer_seq, 0, false}, {field::inner_seq, 0, false},
    {field::mpls_over_gre, 0, false}, {field::mpls_over_udp, 0, false}, {field::gtpu_teid, 0, false},
    {field::gtpu_type, 0, true}, {field::gtpu_dw_2, 0, false}, {field::gtpu_extension, 0, false},
    {field::geneve_option, 0, false}, {field::geneve_exists, 0, true}};

using Kind = Reformat::Kind;

/// Headers to put before packets, with lengths and checksum for the device to write.
const Frame encapsulations[] = {
    {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
     0, 1, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0},
    {2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 47, 0, 0, 10, 0, 0, 1, 10, 0, 0, 3,
     0x20, 0, 0x65, 0x58, 0, 0, 0, 2},
    {2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64, 0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
     0, 0, 0, 1, 0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x17, 0xc1, 0, 0, 0, 0,
     0, 0, 0x65, 0x58, 0, 0, 1, 0}};

/// Each parser profile has fields of its own.
const Profile profiles[] = {connectx_6dx, with_flex_parser_profile(connectx_6dx, 1),
                            with_flex_parser_profile(connectx_6dx, 3)};

}  // namespace

std::string hex(const Frame& frame) {
    std::string text;
    for (const std::uint8_t byte : frame) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

std::vector<std::string> sorted(const std::vector<Frame>& frames) {
    std::vector<std::string> texts;
    for (const Frame& frame : frames) texts.push_back(hex(frame));
    std::sort(texts.begin(), texts.end());
    return texts;
}

RandomPipeline::RandomPipeline(unsigned seed, bool remembers)
    : SteeringTest(profiles[seed % std::size(profiles)]), random_(seed), remembers_(remembers) {
    EXPECT_EQ(steering.set_geneve_option({.option_class = 0x0102, .type = 3, .length = 1}), 0);
    naive.parser = {.gtpu = steering.profile().has_parser(flex_parser::gtpu),
                    .option = NaiveParser::Option{.kind = 0x010203, .length = 4}};
    steering.impl().stopped_clock = 1'000'000'000;
    naive.ask = [this](const NaiveState& asked, std::uint8_t held, const Frame& frame) -> std::uint8_t {
        AsoBulk& objects = *naive_state[static_cast<unsigned>(asked.what)];
        const auto size = static_cast<std::uint32_t>(frame.size());
        switch (asked.what) {
            case NaiveState::What::first_hit: return objects.hit(asked.number, asked.flags == 1);
            case NaiveState::What::connection:
                return objects.connection(asked.number)
                    .track(static_cast<ConnTrack::Direction>(asked.flags - 1), frame.data(), size);
            default: break;
        }
        Meter& meter = objects.meter(asked.number);
        std::uint8_t colour = asked.flags == 8 ? static_cast<std::uint8_t>(meter.start_colour())
                                               : static_cast<std::uint8_t>(asked.flags / 2);  // red, yellow, green
        if (colour == 3) colour = held & 3;
        const std::uint64_t now = steering.impl().stopped_clock;
        return static_cast<std::uint8_t>(meter.mark(now, static_cast<Colour>(colour), frame.data(), size));
    };
    renew_state();
    for (const std::uint16_t port : ports) EXPECT_EQ(steering.attach(VportId{port}, vports[port].sink()), 0);
    steering.set_cotenant_sink(vports[0].sink());
    for (unsigned level = 1; level <= tables; ++level) tables_.push_back(std::make_unique<Table>(fdb_, level));
    for (const auto& table : tables_) to_tables_.push_back(to_table(*table));
    for (const std::uint16_t port : ports) to_ports_.push_back(to_vport(fdb_, port));
    enter_ = make_rule(*root_matcher_, {}, {&to_tables_[0]});
    EXPECT_EQ(enter_.error, 0);
}

RandomPipeline::~RandomPipeline() {
    rules_.clear();
    matchers_.clear();
}

Frame RandomPipeline::random_frame() { return chance(3) ? random_tunnel() : random_plain_frame(); }

/// A frame in one of the three kinds of tunnels, now and then with a header that carries nothing.
Frame RandomPipeline::random_tunnel() {
    const Frame inside = random_plain_frame();
    FrameSpec outer;
    outer.dmac += pick(2);
    outer.source += pick(2);
    outer.version = chance(3) ? 6 : 4;
    const auto vni = static_cast<std::uint8_t>(pick(3));
    Frame content;
    switch (pick(6)) {
        case 0:
            outer.dport = 2152;
            content = {static_cast<std::uint8_t>(0x30 | pick(8)), static_cast<std::uint8_t>(chance(4) ? 1 : 255), 0, 9,
                       0, 0, 0, vni, 0, vni, 0, static_cast<std::uint8_t>(pick(2)), 1, vni, 0, 0};
            if ((content[0] & 4) == 0 || content[11] == 0) content.resize((content[0] & 7) == 0 ? 8 : 12);
            break;
        case 1:
            outer.dport = 6635;
            content = {0, 0, vni, 0x40};
            break;
        case 2:
            outer.protocol = 47;
            content = {0, 0, 0x88, 0x47, 0, 0, vni, 0x40};
            break;
        case 3:
            outer.dport = 4789;
            content = {static_cast<std::uint8_t>(chance(8) ? 0 : 8), 0, 0, 0, 0, 0, vni, 0};
            break;
        case 4:
            outer.dport = 6081;
            content = {2, 0, 0x65, 0x58, 0, 0, vni, 0, 1, 2, static_cast<std::uint8_t>(3 + pick(2)), 1, 0, 0, 0, vni};
            break;
        default:
            outer.protocol = 47;
            content = {0x20, 0, 0x65, static_cast<std::uint8_t>(chance(8) ? 0x59 : 0x58), 0, 0, 0, vni};
    }
    const bool carries_ip = outer.dport == 2152 && inside.size() > 14 && chance(2);
    content.insert(content.end(), inside.begin() + (carries_ip ? 14 : 0), inside.end());
    Frame frame = make_frame(outer, content);
    if (chance(6)) frame.resize(frame.size() + pick(9), 0xee);
    return frame;
}

Frame RandomPipeline::random_plain_frame() {
    FrameSpec spec;
    spec.dmac += pick(3);
    spec.smac += pick(3) << 4;
    for (unsigned tags = pick(5); tags > 1; --tags) {
        spec.tags.push_back((chance(2) ? 0x81000000 : 0x88a80000) | pick(3) << 13 | (1 + pick(3)));
    }
    spec.version = chance(10) ? 0 : chance(3) ? 6 : 4;
    constexpr std::uint8_t protocols[] = {6, 17, 1, 58, 47};
    spec.protocol = protocols[pick(5)];
    spec.tos = static_cast<std::uint8_t>(pick(3) * 0x55);
    spec.ttl = static_cast<std::uint8_t>(1 + pick(4));
    spec.source += pick(3);
    spec.destination += pick(3);
    spec.sport = static_cast<std::uint16_t>(pick(3) * 0x101 + 1);
    spec.dport = static_cast<std::uint16_t>(pick(3));
    spec.tcp_flags = static_cast<std::uint16_t>(pick(2) * 0x112 + 1);
    spec.udp_checksum = !chance(4);
    spec.payload = pick(20);
    if (chance(6)) {
        // A fragment's checksum is its datagram's: none, so that there is one answer.
        spec.protocol = 17;
        spec.udp_checksum = false;
        spec.place = chance(2) ? 0x2000 : 0x0008;
        if (spec.version == 6) {
            spec.fragment_header = true;
            spec.place = chance(3) ? 0 : chance(2) ? 1 : 8;
        }
    }
    spec.hop_by_hop = !spec.fragment_header && chance(4);
    Frame frame = make_frame(spec);
    if (chance(6)) {
        // An IPv6 packet is what its header says, however short the frame; but of a datagram that is not all there no
        // checksum can be told, so the cut falls into the header.
        const auto headers = static_cast<unsigned>(14 + 4 * spec.tags.size() + 40);
        frame.resize(pick(spec.version == 6 ? headers : static_cast<unsigned>(frame.size())));
    } else if (chance(6)) {
        frame.resize(frame.size() + pick(9), 0xee);  // an Ethernet trailer
    }
    return frame;
}

Parameters RandomPipeline::random_mask() {
    Parameters mask;
    const unsigned version = chance(3) ? 6 : 4;
    if (remembers_ && chance(2)) {  // and little else, so that packets meet such rules
        const unsigned bits[] = {0xff, 0x03, 0x02, 0xc0};
        mask.set(chance(4) ? field::reg_c_3_low : field::reg_c_5_low, bits[pick(4)]);
        return chance(3) ? mask.set(field::source_port, 0xffff) : mask;
    }
    if (chance(2)) mask.set(field::source_port, 0xffff);  // without it nothing is decapsulated
    for (unsigned fields = 1 + pick(4); fields > 0; --fields) {
        const Candidate& candidate = candidates[pick(std::size(candidates))];
        if (candidate.version % 10 == 6 && version != 6) continue;
        if (candidate.version != 0) {
            mask.set(candidate.version > 10 ? field::inner_version : field::ip_version, version);
        }
        const std::uint64_t ones = (1ULL << candidate.field.width) - 1;
        mask.set(candidate.field, candidate.whole || chance(2) ? ones : random_() & ones);
    }
    return mask;
}

/// Of a packet that there may be, so that rules are hit.
Parameters RandomPipeline::random_value(const Parameters& mask) {
    std::optional<Parameters> parts;
    while (!parts) parts = take_apart(random_frame());
    const unsigned port = ports[pick(4)];
    parts->set(field::source_port, port).set(field::reg_c_0, static_cast<std::uint64_t>(port) << 16);
    parts->set(field::reg_c_1, pick(3));
    Parameters value;
    for (const Field outcome : {field::reg_c_3_low, field::reg_c_5_low}) {
        constexpr std::uint8_t outcomes[] = {0, 1, 2, 2, 3, 0x40, 0x41, 0x80};
        value.set(outcome, outcomes[pick(8)] & mask.get(outcome));
    }
    for (const Candidate& candidate : candidates) {
        value.set(candidate.field, parts->get(candidate.field) & mask.get(candidate.field));
    }
    value.set(field::inner_version, mask.get(field::inner_version));
    return value.set(field::ip_version, mask.get(field::ip_version));
}

std::vector<NaiveEdit> RandomPipeline::random_edits() {
    using What = NaiveEdit::What;
    std::vector<NaiveEdit> edits;
    if (chance(2)) edits.push_back({What::reg_c_1, pick(3)});
    if (chance(2)) edits.push_back({What::dmac_15_0, 2 + pick(3)});
    if (chance(4)) edits.push_back({What::dscp, pick(64)});
    if (chance(4)) edits.push_back({What::first_vid, 1 + pick(3)});
    if (chance(3)) edits.push_back({chance(2) ? What::ttl : What::ttl_add, chance(2) ? 255 : 1 + pick(3)});
    if (chance(4)) edits.push_back({What::ipv4_source, 0x0a000001 + pick(3)});
    if (chance(4)) edits.push_back({chance(2) ? What::udp_dport : What::tcp_sport, pick(3)});
    return edits;
}

RandomPipeline::State RandomPipeline::make_state() {
    // Two meters are an object, 512 first hits, or one connection.
    return {std::make_shared<AsoBulk>(AsoKind::flow_meter, 0, nullptr),
            std::make_shared<AsoBulk>(AsoKind::first_hit, 0, nullptr),
            std::make_shared<AsoBulk>(AsoKind::connection, 1, nullptr)};
}

void RandomPipeline::renew_state() {
    steering.impl().stopped_clock += 1000;
    AsoBulk::Image meters{};
    for (unsigned at = 0; at < meters.size(); at += Meter::size) {
        // Valid or not, any colour and mode; buckets that are empty after a few packets.
        meters[at] = static_cast<std::uint8_t>((chance(8) ? 0 : 0x80) | pick(0x80));
        meters[at + 8] = meters[at + 16] = 10;
        meters[at + 9] = static_cast<std::uint8_t>(chance(8) ? 0 : 255);
        meters[at + 17] = static_cast<std::uint8_t>(chance(3) ? 0 : 255);
        store_be32(&meters[at + 12], pick(40) * 128);
        store_be32(&meters[at + 20], pick(20) * 128);
        meters[at + 31] = 1;
    }
    AsoBulk::Image hits{};
    hits[63] = static_cast<std::uint8_t>(pick(4));
    for (State* of : {&state, &naive_state}) {
        (*of)[0]->exchange(0, meters, ~0ULL);
        (*of)[1]->exchange(0, hits, 1);
    }
    for (unsigned i = 0; i < state_objects; ++i) {
        tracked::Object object = tracked::after_syn_ack();
        object.set(tracked::object_valid, chance(6) ? 0 : 1).set(tracked::state, pick(2));
        object.set(tracked::original_liberal, pick(2)).set(tracked::reply_liberal, pick(2));
        for (State* of : {&state, &naive_state}) (*of)[2]->exchange(i, object.image, ~0ULL);
    }
}

std::vector<NaiveState> RandomPipeline::random_states() {
    using What = NaiveState::What;
    constexpr unsigned registers[] = {3, 5, 5};   // that masks look at
    std::vector<NaiveState> states;
    const auto add = [&](What what, std::uint32_t flags) {
        states.push_back({what, pick(state_objects), flags, registers[pick(3)]});
    };
    if (chance(2)) add(What::meter, 1U << pick(4));
    if (chance(4)) add(What::first_hit, pick(2));
    if (chance(4)) add(What::connection, 1 + pick(2));
    return states;
}

NaiveProgram RandomPipeline::random_program(unsigned table) {
    NaiveProgram program;
    if (remembers_ && chance(2)) program.states = random_states();
    if (chance(2)) program.counter = pick(counters);
    const auto random_end = [&]() -> NaiveEnd {
        if (table < tables && (!program.states.empty() || chance(2))) {
            return {NaiveEnd::Kind::table, table + 1 + pick(tables - table)};
        }
        return {NaiveEnd::Kind::vport, ports[pick(4)]};
    };
    if (chance(8)) {
        program.ends.push_back({NaiveEnd::Kind::drop, 0});
        return program;
    }
    program.decapsulates = chance(3);
    if (chance(4)) program.pops = 1 + pick(2);
    if (chance(2)) program.edits = random_edits();
    if (chance(4)) program.pushes.assign(1 + pick(2), 0x81000000 | (1 + pick(3)));
    if (chance(4)) program.encapsulation = encapsulations[pick(std::size(encapsulations))];
    const bool plain = program.encapsulation.empty() && !program.decapsulates;
    if (chance(8) && plain && program.edits.empty() && program.pops == 0 && program.pushes.empty()) {
        program.ends.push_back({});
        return program;
    }
    for (unsigned branches = chance(4) ? 2 + pick(3) : 1; branches > 0; --branches) {
        program.ends.push_back(random_end());
    }
    return program;
}

Action* RandomPipeline::end_action(const NaiveEnd& end, std::vector<Action::Created>& made) {
    switch (end.kind) {
        case NaiveEnd::Kind::drop: return drop_.get();
        case NaiveEnd::Kind::table: return to_tables_[end.number - 1].get();
        case NaiveEnd::Kind::vport:
            return to_ports_[static_cast<std::size_t>(std::find(std::begin(ports), std::end(ports), end.number) -
                                                      ports)]
                .get();
        case NaiveEnd::Kind::miss: break;
    }
    made.push_back(Action::default_miss());
    return made.back().get();
}

std::uint64_t command_of(const NaiveEdit& edit) {
    using What = NaiveEdit::What;
    switch (edit.what) {
        case What::dmac_15_0: return set_command(id::dmac_15_0, 0, 16, edit.value);
        case What::ttl: return set_command(id::ip_ttl, 0, 8, edit.value);
        case What::ttl_add: return add_command(id::ip_ttl, edit.value);
        case What::dscp: return set_command(id::ip_dscp, 0, 6, edit.value);
        case What::ipv4_source: return set_command(id::sipv4, 0, 32, edit.value);
        case What::udp_dport: return set_command(id::udp_dport, 0, 16, edit.value);
        case What::tcp_sport: return set_command(id::tcp_sport, 0, 16, edit.value);
        case What::first_vid: return set_command(id::first_vid, 0, 12, edit.value);
        default: return set_command(id::reg_c_1, 0, 32, edit.value);
    }
}

std::vector<Action::Created> RandomPipeline::actions_of(const NaiveProgram& program, bool received,
                                                        std::vector<Action*>& list) {
    std::vector<Action::Created> made;
    const auto keep = [&](Action::Created action) {
        list.push_back(action.get());
        made.push_back(std::move(action));
    };
    const auto keep_states = [&] {
        for (const NaiveState& one : program.states) {
            Action::Created action;
            EXPECT_EQ(Action::aso(fdb_, state[static_cast<unsigned>(one.what)], one.number, one.flags,
                                  static_cast<std::uint8_t>(one.reg_c), action),
                      0);
            keep(std::move(action));
        }
    };
    if (!received) keep_states();
    if (program.decapsulates) keep(reformatting(fdb_, Kind::decap_l2, {}));
    for (unsigned i = 0; i < program.pops; ++i) keep(Action::pop_vlan());
    if (!program.edits.empty()) {
        std::vector<std::uint64_t> commands;
        for (const NaiveEdit& edit : program.edits) commands.push_back(__builtin_bswap64(command_of(edit)));
        Action::Created action;
        EXPECT_EQ(Action::modify_header(fdb_, false, commands, action), 0);
        keep(std::move(action));
    }
    for (const std::uint32_t header : program.pushes) keep(pushing(header));
    if (!program.encapsulation.empty()) keep(reformatting(fdb_, Kind::encap_l2, program.encapsulation));
    if (program.counter) keep(counting(bulk, *program.counter));
    if (received) keep_states();
    if (program.ends.size() == 1) {
        list.push_back(end_action(program.ends[0], made));
    } else {
        std::vector<Action*> branches;
        for (const NaiveEnd& end : program.ends) branches.push_back(end_action(end, made));
        Action::Created array;
        EXPECT_EQ(Action::dest_array(fdb_, branches, array), 0);
        keep(std::move(array));
    }
    return made;
}

void RandomPipeline::add_matcher() {
    NaiveMatcher matcher{next_id_++, 1 + pick(tables), pick(3), random_mask(), {}};
    std::unique_ptr<Matcher> made;
    if (Matcher::create(*tables_[matcher.table - 1], static_cast<std::uint16_t>(matcher.priority), all_criteria,
                        matcher.mask.bytes(), made) != 0) {
        return;
    }
    matchers_.push_back({matcher.id, std::move(made)});
    naive.matchers.push_back(std::move(matcher));
}

void RandomPipeline::remove_matcher() {
    if (naive.matchers.size() < 4) return;
    const unsigned at = pick(static_cast<unsigned>(naive.matchers.size()));
    const unsigned id = naive.matchers[at].id;
    std::erase_if(rules_, [id](const RulePair& rule) { return rule.matcher_id == id; });
    std::erase_if(matchers_, [id](const MatcherPair& matcher) { return matcher.id == id; });
    naive.matchers.erase(naive.matchers.begin() + at);
}

void RandomPipeline::add_rule() {
    if (naive.matchers.empty()) return;
    NaiveMatcher& matcher = naive.matchers[pick(static_cast<unsigned>(naive.matchers.size()))];
    NaiveRule rule{next_id_++, random_value(matcher.mask), random_program(matcher.table)};
    RulePair pair{rule.id, matcher.id, {}, nullptr};
    std::vector<Action*> list;
    pair.actions = actions_of(rule.program, rule.value.get(field::source_port) == wire, list);
    const auto found =
        std::find_if(matchers_.begin(), matchers_.end(), [&](const MatcherPair& one) { return one.id == matcher.id; });
    if (Rule::create(*found->matcher, rule.value.bytes(), list, pair.rule) != 0) return;
    ++accepted;
    rules_.push_back(std::move(pair));
    matcher.rules.push_back(std::move(rule));
}

void RandomPipeline::remove_rule() {
    if (rules_.empty()) return;
    const auto victim = std::next(rules_.begin(), pick(static_cast<unsigned>(rules_.size())));
    const unsigned id = victim->id;
    rules_.erase(victim);
    for (NaiveMatcher& matcher : naive.matchers) {
        std::erase_if(matcher.rules, [id](const NaiveRule& rule) { return rule.id == id; });
    }
}

}  // namespace ovsdr::soft::test
