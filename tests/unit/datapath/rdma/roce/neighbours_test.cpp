// Who has an address: frames of ARP (RFC 826) and neighbour discovery (RFC 4861) byte by byte, and frames that are
// none.
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

using Octets = std::vector<std::uint8_t>;
using Frames = std::vector<Octets>;

const Octets own_mac{2, 0, 0, 0, 7, 1}, peer_mac{2, 0, 0, 0, 9, 9}, other_mac{2, 0, 0, 0, 8, 8};
const Octets multicast_mac{3, 0, 0, 0, 9, 9};
const Octets everyone{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, nobody(6);
const Octets own_v4{192, 0, 2, 1}, peer_v4{192, 0, 2, 77};
const Octets own_v6{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
const Octets peer_v6{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56, 0x77};
const Octets peer_node{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x34, 0x56, 0x77};
const Octets own_node{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 1};
const Octets all_nodes{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, unspecified(16);

Octets joined(std::initializer_list<Octets> parts) {
    Octets all;
    for (const Octets& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
}

Octets arp(const Octets& to, const Octets& from, std::uint8_t operation, const Octets& sender_mac, const Octets& sender,
           const Octets& target_mac, const Octets& target) {
    return joined({to, from, {8, 6, 0, 1, 8, 0, 6, 4, 0, operation}, sender_mac, sender, target_mac, target});
}

struct Discovery {
    Octets to, from, source, destination, target;
    std::uint8_t type;                ///< 135 solicitation, 136 advertisement
    std::uint8_t flags = 0;           ///< solicited 0x40, overrides 0x20
    Octets option{};                  ///< type, length, address
    std::uint8_t hops = 255, code = 0, next = 58, version = 0x60;
    unsigned wrong = 0;               ///< added to the checksum
};
Octets frame_of(const Discovery& said) {
    Octets message = joined({{said.type, said.code, 0, 0, said.flags, 0, 0, 0}, said.target, said.option});
    const auto size = static_cast<std::uint8_t>(message.size());
    const Octets covered = joined({said.source, said.destination, {0, 0, 0, size, 0, 0, 0, 58}, message});
    std::uint32_t sum = said.wrong;
    for (std::size_t i = 0; i < covered.size(); i += 2) sum += covered[i] * 256U + covered[i + 1];
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    message[2] = static_cast<std::uint8_t>(~sum >> 8);
    message[3] = static_cast<std::uint8_t>(~sum);
    return joined({said.to, said.from, {0x86, 0xdd, said.version, 0, 0, 0, 0, size, said.next, said.hops}, said.source,
                   said.destination, message});
}
Octets link_option(std::uint8_t type, const Octets& mac) { return joined({{type, 1}, mac}); }

/// 02:..:09:09 asks who has our IPv6 address.
Discovery solicitation() {
    return {.to = {0x33, 0x33, 0xff, 0, 0, 1}, .from = peer_mac, .source = peer_v6, .destination = own_node,
            .target = own_v6, .type = 135, .option = link_option(1, peer_mac)};
}
/// It tells us, who have asked, that it has 2001:db8::1234:5677.
Discovery advertisement(const Octets& mac) {
    return {.to = own_mac, .from = other_mac, .source = peer_v6, .destination = own_v6, .target = peer_v6, .type = 136,
            .flags = 0x60, .option = link_option(2, mac)};
}

struct NeighboursTest : TwoNodes {
    void hear(const Octets& octets, VportId vport = uplink_vport) {
        const auto bytes = std::as_bytes(std::span(octets));
        left.receive({bytes.begin(), bytes.end()}, vport);
    }
    /// What is said in answer.
    Frames answers(const Octets& octets) {
        hear(octets);
        return said();
    }
    Frames said() {
        (void)left.turn(now += 1000);
        Frames all;
        for (const Frame& frame : left.sent) {
            const auto* const begin = reinterpret_cast<const std::uint8_t*>(frame.data());
            all.emplace_back(begin, begin + frame.size());
        }
        left.sent.clear();
        return all;
    }
    /// Asks for an address, hears `frames` in answer, and says what it was asked with and what was found.
    struct Found {
        Frames questions;
        int error;
        Octets mac;
    };
    Found find(const Octets& address, const Frames& frames) {
        const bool v4 = address.size() == 4;
        ibv_gid wanted{};
        if (v4) wanted.raw[10] = wanted.raw[11] = 0xff;
        std::copy(address.begin(), address.end(), wanted.raw + (v4 ? 12 : 0));
        Mac mac{};
        auto result = std::async(std::launch::async, [&] {
            return left.transport().neighbours().resolve(wanted, left.transport().addresses().gids.at(v4 ? 1 : 2), mac);
        });
        Found found{};
        const auto listen = [&] {
            for (const Octets& question : said()) found.questions.push_back(question);
            return result.wait_for(std::chrono::milliseconds(0)) == std::future_status::ready;
        };
        while (found.questions.empty() && !listen()) {
        }
        for (const Octets& frame : frames) hear(frame);
        while (!listen()) {
        }
        found.error = result.get();
        found.mac.assign(mac.begin(), mac.end());
        return found;
    }
};

TEST_F(NeighboursTest, WhoAsksForOurIpv4AddressIsAnswered) {
    const Octets question = arp(everyone, peer_mac, 1, peer_mac, peer_v4, nobody, own_v4);
    EXPECT_EQ(answers(question), Frames{arp(peer_mac, own_mac, 2, own_mac, own_v4, peer_mac, peer_v4)});
}

TEST_F(NeighboursTest, OtherArpIsNotOurs) {
    const Octets question = arp(everyone, peer_mac, 1, peer_mac, peer_v4, nobody, own_v4);
    // Hardware, protocol, sizes, operation, address.
    for (const std::size_t at : {15UL, 17UL, 18UL, 19UL, 21UL, 41UL}) {
        Octets other = question;
        other[at] ^= 8;
        EXPECT_TRUE(answers(other).empty()) << at;
    }
    EXPECT_TRUE(answers(Octets(question.begin(), question.end() - 1)).empty()) << "cut";
    EXPECT_TRUE(answers(arp(everyone, own_mac, 1, own_mac, peer_v4, nobody, own_v4)).empty()) << "our own";
    EXPECT_TRUE(answers(arp(own_mac, peer_mac, 2, peer_mac, peer_v4, own_mac, own_v4)).empty()) << "a reply";
}

TEST_F(NeighboursTest, WhatIsNotOursGoesWhereItWentBefore) {
    const auto missed = [&] { return left.device().steering().drops().nic_rx_miss; };
    const auto before = missed();
    hear(arp(everyone, peer_mac, 1, peer_mac, peer_v4, nobody, peer_v4));
    EXPECT_EQ(missed(), before + 1);
    hear(arp(everyone, peer_mac, 1, peer_mac, peer_v4, nobody, own_v4), VportId{1});
    EXPECT_EQ(missed(), before + 2) << "a VF's frame";
    EXPECT_TRUE(said().empty());
    hear(arp(everyone, peer_mac, 1, peer_mac, peer_v4, nobody, own_v4));
    EXPECT_EQ(missed(), before + 2) << "ours";
}

TEST_F(NeighboursTest, AnIpv4AddressIsAskedForByBroadcast) {
    const Found found = find(peer_v4, {arp(own_mac, peer_mac, 2, peer_mac, peer_v4, own_mac, own_v4)});
    EXPECT_EQ(found.questions, Frames{arp(everyone, own_mac, 1, own_mac, own_v4, nobody, peer_v4)});
    EXPECT_EQ(found.error, 0);
    EXPECT_EQ(found.mac, peer_mac);
}

TEST_F(NeighboursTest, WhatIsKnownIsNotAskedForAgain) {
    (void)find(peer_v4, {arp(own_mac, peer_mac, 2, peer_mac, peer_v4, own_mac, own_v4)});
    EXPECT_TRUE(find(peer_v4, {}).questions.empty());
    hear(arp(everyone, other_mac, 1, other_mac, peer_v4, nobody, own_v4));  // it has moved, and asks for us
    EXPECT_EQ(find(peer_v4, {}).mac, other_mac);
}

TEST_F(NeighboursTest, AQuestionSaysWhereTheAskerIs) {
    EXPECT_EQ(find(peer_v4, {arp(everyone, peer_mac, 1, peer_mac, peer_v4, nobody, own_v4)}).mac, peer_mac);
    EXPECT_EQ(find(peer_v6, {frame_of(solicitation())}).mac, peer_mac);
}

TEST_F(NeighboursTest, NobodyIsBelievedWhoWasNotAsked) {
    hear(arp(own_mac, other_mac, 2, other_mac, peer_v4, own_mac, own_v4));
    const Found found = find(peer_v4, {arp(own_mac, multicast_mac, 2, multicast_mac, peer_v4, own_mac, own_v4),
                                       arp(own_mac, other_mac, 2, other_mac, peer_v4, own_mac, {192, 0, 2, 50}),
                                       arp(own_mac, peer_mac, 2, peer_mac, peer_v4, own_mac, own_v4)});
    EXPECT_FALSE(found.questions.empty());
    EXPECT_EQ(found.mac, peer_mac) << "nor a multicast address, nor who speaks to others";
}

TEST_F(NeighboursTest, AnIpv6AddressIsAskedForAtItsNodesGroup) {
    const Found found = find(peer_v6, {frame_of(advertisement(peer_mac))});
    const Discovery asked{.to = {0x33, 0x33, 0xff, 0x34, 0x56, 0x77}, .from = own_mac, .source = own_v6,
                          .destination = peer_node, .target = peer_v6, .type = 135, .option = link_option(1, own_mac)};
    EXPECT_EQ(found.questions, Frames{frame_of(asked)});
    EXPECT_EQ(found.mac, peer_mac);
}

TEST_F(NeighboursTest, AnAdvertisementWithoutItsOptionIsOfItsSender) {
    Discovery bare = advertisement(peer_mac);
    bare.option = {};
    EXPECT_EQ(find(peer_v6, {frame_of(bare)}).mac, other_mac);
}

TEST_F(NeighboursTest, OtherOptionsSayNothingOfAnAddress) {
    Discovery source_option = advertisement(peer_mac), long_option = advertisement(peer_mac);
    Discovery target_option = solicitation();
    source_option.option[0] = 1;
    EXPECT_EQ(find(peer_v6, {frame_of(source_option)}).mac, other_mac);
    hear(frame_of(advertisement(peer_mac)));
    EXPECT_EQ(find(peer_v6, {}).mac, peer_mac);
    long_option.option[1] = 2;
    hear(frame_of(long_option));
    EXPECT_EQ(find(peer_v6, {}).mac, other_mac);
    target_option.option = link_option(2, other_mac);
    hear(frame_of(target_option));
    EXPECT_EQ(find(peer_v6, {}).mac, peer_mac) << "the sender's";
}

TEST_F(NeighboursTest, FramesThatAreCutOffAreNotOurs) {
    Neighbours& neighbours = left.transport().neighbours();
    const Octets question = arp(everyone, peer_mac, 1, peer_mac, peer_v4, nobody, own_v4);
    const Octets asked = frame_of(solicitation());
    Octets tagged = question;
    tagged.insert(tagged.begin() + 12, {0x81, 0, 0, 0});
    for (const auto& [whole, least] : {std::pair{question, 42UL}, std::pair{tagged, 46UL}, std::pair{asked, 78UL}}) {
        const auto bytes = std::as_bytes(std::span(whole));
        for (std::size_t size = 0; size <= whole.size(); ++size) {
            EXPECT_EQ(neighbours.take(bytes.first(size)), size >= least) << size;
            (void)said();
        }
    }
}

TEST_F(NeighboursTest, OnlyWhatWasSaidToUsIsLearned) {
    Discovery to_another = advertisement(peer_mac), of_another = advertisement(peer_mac);
    to_another.to = other_mac;
    of_another.destination = peer_v6;
    EXPECT_EQ(find(peer_v6, {frame_of(to_another), frame_of(of_another), frame_of(advertisement(other_mac))}).mac,
              other_mac);
}

TEST_F(NeighboursTest, WhoAsksForOurIpv6AddressIsAnswered) {
    const Discovery answer{.to = peer_mac, .from = own_mac, .source = own_v6, .destination = peer_v6, .target = own_v6,
                           .type = 136, .flags = 0x60, .option = link_option(2, own_mac)};
    EXPECT_EQ(answers(frame_of(solicitation())), Frames{frame_of(answer)});
    Discovery bare = solicitation();
    bare.option = {};
    EXPECT_EQ(answers(frame_of(bare)), Frames{frame_of(answer)}) << "without an option, too";
    Discovery longer = solicitation();
    longer.option = joined({longer.option, {14, 1, 1, 2, 3, 4, 5, 6}});
    EXPECT_EQ(answers(frame_of(longer)), Frames{frame_of(answer)}) << "and with a nonce (RFC 3971)";
}

TEST_F(NeighboursTest, DuplicateAddressesAreFoundByEveryone) {
    Discovery probe = solicitation();
    probe.source = unspecified;
    probe.option = {};
    const Discovery answer{.to = {0x33, 0x33, 0, 0, 0, 1}, .from = own_mac, .source = own_v6, .destination = all_nodes,
                           .target = own_v6, .type = 136, .flags = 0x20, .option = link_option(2, own_mac)};
    EXPECT_EQ(answers(frame_of(probe)), Frames{frame_of(answer)});
}

TEST_F(NeighboursTest, OtherIpv6IsNotOurs) {
    const auto unanswered = [&](auto change) {
        Discovery changed = solicitation();
        change(changed);
        return answers(frame_of(changed)).empty();
    };
    EXPECT_TRUE(unanswered([](Discovery& it) { it.target = peer_v6; }));
    EXPECT_TRUE(unanswered([](Discovery& it) { it.from = own_mac; })) << "our own";
    EXPECT_TRUE(unanswered([](Discovery& it) { it.type = 133; })) << "a router is asked for";
    EXPECT_TRUE(unanswered([](Discovery& it) { it.code = 1; }));
    EXPECT_TRUE(unanswered([](Discovery& it) { it.hops = 254; })) << "from beyond a router";
    EXPECT_TRUE(unanswered([](Discovery& it) { it.next = 17; }));
    EXPECT_TRUE(unanswered([](Discovery& it) { it.version = 0x50; }));
    EXPECT_TRUE(unanswered([](Discovery& it) { it.wrong = 1; })) << "a wrong checksum";
    Octets cut = frame_of(solicitation());
    cut.resize(14 + 40 + 23);
    EXPECT_TRUE(answers(cut).empty());
    EXPECT_TRUE(answers(Octets(cut.begin(), cut.begin() + 14)).empty());
}

TEST_F(NeighboursTest, WhoDoesNotAnswerIsAskedTwelveTimes) {
    const Found found = find(peer_v4, {});
    EXPECT_EQ(found.error, ETIMEDOUT);
    EXPECT_EQ(found.questions.size(), 12U);
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
