// Which frames are of a service, and under which names their ports stand in the file.
#include "offload/mirror/service_filter.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "offload/mirror/interface_list.hpp"

namespace ovsdr::mirror {
namespace {

using Service = dr::MirrorSteering::Service;
using Bytes = std::vector<std::byte>;

constexpr std::uint8_t tcp = 6, udp = 17;

Bytes bytes(std::initializer_list<unsigned> values) {
    Bytes all;
    for (const unsigned value : values) all.push_back(static_cast<std::byte>(value));
    return all;
}
Bytes operator+(Bytes left, const Bytes& right) {
    left.insert(left.end(), right.begin(), right.end());
    return left;
}

const Bytes macs(12, std::byte{2});
const Bytes cvlan = bytes({0x81, 0, 0, 5}), svlan = bytes({0x88, 0xA8, 0, 7});

Bytes ports(std::uint16_t source, std::uint16_t destination) {
    return bytes({source / 256u, source & 0xFFu, destination / 256u, destination & 0xFFu}) + Bytes(16);
}
/// With the type in front. `fragment`: flags and offset.
Bytes ipv4(std::uint8_t protocol, std::uint16_t fragment = 0, unsigned words = 5) {
    Bytes header = bytes({0x08, 0x00, 0x40u | words, 0, 0, 40, 0, 0, fragment / 256u, fragment & 0xFFu, 64, protocol});
    return header + Bytes(words * 4 - 10);
}
Bytes ipv6(std::uint8_t next) {
    return bytes({0x86, 0xDD, 0x60, 0, 0, 0, 0, 20, next, 64}) + Bytes(32);
}

bool is(const Bytes& frame, std::vector<Service> services) { return passes(services, frame); }

TEST(ServiceFilter, LooksAtProtocolAndBothPorts) {
    const Bytes request = macs + ipv4(tcp) + ports(50000, 3260), answer = macs + ipv6(tcp) + ports(3260, 50000);
    for (const Bytes& frame : {request, answer}) {
        EXPECT_TRUE(is(frame, {{tcp, 3260}}));
        EXPECT_TRUE(is(frame, {{udp, 4791}, {tcp, 3260}}));
        EXPECT_TRUE(is(frame, {}));
        EXPECT_FALSE(is(frame, {{udp, 3260}}));
        EXPECT_FALSE(is(frame, {{tcp, 3261}}));
    }
    EXPECT_TRUE(is(macs + ipv4(udp) + ports(1, 4791), {{udp, 4791}}));
    EXPECT_FALSE(is(macs + ipv4(132) + ports(1, 4791), {{udp, 4791}, {tcp, 4791}})) << "SCTP has ports, too";
}

TEST(ServiceFilter, PassesOverTagsOptionsAndExtensionHeaders) {
    EXPECT_TRUE(is(macs + cvlan + ipv4(tcp) + ports(1, 2049), {{tcp, 2049}}));
    EXPECT_TRUE(is(macs + svlan + cvlan + ipv4(tcp, 0, 7) + ports(1, 2049), {{tcp, 2049}}));
    EXPECT_FALSE(is(macs + svlan + cvlan + cvlan + ipv4(tcp) + ports(1, 2049), {{tcp, 2049}})) << "a third tag";
    const Bytes options = bytes({tcp, 1}) + Bytes(14);
    EXPECT_TRUE(is(macs + ipv6(0) + bytes({60, 0}) + Bytes(6) + options + ports(1, 2049), {{tcp, 2049}}));
    EXPECT_TRUE(is(macs + ipv6(51) + bytes({tcp, 4}) + Bytes(22) + ports(1, 2049), {{tcp, 2049}})) << "AH";
}

TEST(ServiceFilter, FragmentsAreOfNoService) {
    constexpr std::uint16_t more = 0x2000, later = 0x0010, whole = 0x4000;
    EXPECT_TRUE(is(macs + ipv4(udp, whole) + ports(1, 4791), {{udp, 4791}})) << "may not be fragmented";
    EXPECT_FALSE(is(macs + ipv4(udp, more) + ports(1, 4791), {{udp, 4791}}));
    EXPECT_FALSE(is(macs + ipv4(udp, later) + ports(1, 4791), {{udp, 4791}}));
    const auto fragment = [](std::uint16_t offset) {
        return bytes({udp, 0, offset / 256u, offset & 0xFFu}) + Bytes(4);
    };
    EXPECT_TRUE(is(macs + ipv6(44) + fragment(0) + ports(1, 4791), {{udp, 4791}})) << "the only one";
    EXPECT_FALSE(is(macs + ipv6(44) + fragment(1) + ports(1, 4791), {{udp, 4791}}));
    EXPECT_FALSE(is(macs + ipv6(44) + fragment(0x0100) + ports(1, 4791), {{udp, 4791}}));
}

TEST(ServiceFilter, FramesThatEndEarlyAreOfNoService) {
    const std::vector<Bytes> whole{macs + ipv4(tcp) + ports(1, 2049), macs + cvlan + ipv6(tcp) + ports(1, 2049),
                                   macs + ipv6(0) + bytes({tcp, 0}) + Bytes(6) + ports(1, 2049)};
    for (const Bytes& frame : whole) {
        const std::size_t needed = frame.size() - 16;
        EXPECT_TRUE(passes(std::vector{Service{tcp, 2049}}, std::span(frame).first(needed)));
        for (std::size_t size = 0; size < needed; ++size) {
            // Memory of its own: a sanitizer sees what is read behind it.
            const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
            EXPECT_FALSE(is(cut, {{tcp, 2049}})) << size;
        }
    }
    EXPECT_FALSE(is(macs + bytes({0x08, 0x00, 0x41}) + Bytes(40), {{tcp, 0}})) << "a header shorter than it can be";
}

class InterfacesTest : public ::testing::Test {
protected:
    void SetUp() override {
        names_.set({1}, "vm1");
        names_.set({2}, "vm2");
    }
    static std::vector<std::string> names_of(const InterfaceList& list) {
        std::vector<std::string> names;
        for (const MirrorInterface& one : list.all()) names.push_back(one.name);
        return names;
    }
    PortNames names_;
};

TEST_F(InterfacesTest, HaveTheNamesOfPorts) {
    InterfaceList list(names_, 100);
    EXPECT_EQ(names_of(list), (std::vector<std::string>{"other", "vm1", "vm2"}));
    EXPECT_EQ(list.all()[1].snap_length, 100u);
    EXPECT_EQ(list.place_of({2}), 2u);
    EXPECT_EQ(list.place_of({1}), 1u);
    EXPECT_EQ(list.place_of({77}), InterfaceList::other);
    EXPECT_EQ(list.place_of({0xFFFFFFFF}), InterfaceList::other);
    EXPECT_EQ(list.all().size(), 3u);
}

TEST_F(InterfacesTest, GrowOnceForPortsThatCameWhenOneOfThemHasAFrame) {
    InterfaceList list(names_, 100);
    names_.set({3}, "vm3");
    names_.set({4}, "vm4");
    EXPECT_EQ(list.place_of({1}), 1u);
    EXPECT_EQ(list.all().size(), 3u) << "the new ones have no frames yet";
    EXPECT_EQ(list.place_of({4}), 4u);
    EXPECT_EQ(names_of(list), (std::vector<std::string>{"other", "vm1", "vm2", "vm3", "vm4"}));
}

TEST_F(InterfacesTest, AreFoundByNameWhateverTheNumber) {
    InterfaceList list(names_, 100);
    names_.remove({1});
    names_.remove({2});
    names_.set({1}, "vm2");
    EXPECT_EQ(list.place_of({1}), 2u);
    EXPECT_EQ(list.place_of({2}), InterfaceList::other);
    names_.set({7}, "vm1");
    EXPECT_EQ(list.place_of({7}), 1u);
    EXPECT_EQ(list.all().size(), 3u);
}

TEST_F(InterfacesTest, WhatTheHandshakeCannotTellIsOther) {
    names_.set({3}, std::string(longest_name + 1, 'x'));
    names_.set({4}, "a\nb");
    for (std::uint32_t port = 5; port < 400; ++port) names_.set({port}, "p" + std::to_string(port));
    InterfaceList list(names_, 100);
    EXPECT_EQ(list.place_of({3}), InterfaceList::other);
    EXPECT_EQ(list.place_of({4}), InterfaceList::other);
    EXPECT_EQ(list.all().size(), most_interfaces);
    EXPECT_NE(list.place_of({5}), InterfaceList::other);
    EXPECT_EQ(list.place_of({399}), InterfaceList::other);
    EXPECT_EQ(list.all().size(), most_interfaces);
}

}  // namespace
}  // namespace ovsdr::mirror
