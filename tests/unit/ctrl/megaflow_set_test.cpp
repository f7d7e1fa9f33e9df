// What the actions of a set say that is written, against what OVS writes into a packet.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "netlink_attribute.hpp"
#include "ovs_probe.h"

namespace megaflow_set {
namespace {

using Frame = std::array<std::uint8_t, 128>;

constexpr std::size_t ip = 14, ipv4_l4 = ip + 20, ipv6_l4 = ip + 40;
constexpr std::uint8_t tcp = 6, udp = 17;

/// A frame whose other bytes are at random.
Frame make_frame(bool v6, std::uint8_t proto, std::mt19937& random) {
    Frame frame;
    for (std::uint8_t& byte : frame) byte = static_cast<std::uint8_t>(random());
    frame[12] = v6 ? 0x86 : 0x08;
    frame[13] = v6 ? 0xdd : 0x00;
    frame[ip] = v6 ? 0x60 | (frame[ip] & 0xf) : 0x45;
    const std::size_t size = v6 ? frame.size() - ipv6_l4 : frame.size() - ip;
    frame[v6 ? ip + 4 : ip + 2] = 0;
    frame[v6 ? ip + 5 : ip + 3] = static_cast<std::uint8_t>(size);
    if (!v6) frame[ip + 6] = frame[ip + 7] = 0;   // no fragment
    frame[v6 ? ip + 6 : ip + 9] = proto;
    const std::size_t l4 = v6 ? ipv6_l4 : ipv4_l4;
    if (proto == tcp) frame[l4 + 12] = 0x50;
    return frame;
}

void clear_checksums(bool v6, std::uint8_t proto, Frame& frame) {
    const std::size_t l4 = (v6 ? ipv6_l4 : ipv4_l4) + (proto == tcp ? 16 : 6);
    if (!v6) frame[ip + 10] = frame[ip + 11] = 0;
    frame[l4] = frame[l4 + 1] = 0;
}

struct Place {
    std::size_t offset, size;
};

Place place_of(std::uint8_t field, bool v6) {
    const std::size_t l4 = v6 ? ipv6_l4 : ipv4_l4;
    switch (field) {
        case OVSDR_HEADER_ETH_DST: return {0, 6};
        case OVSDR_HEADER_ETH_SRC: return {6, 6};
        case OVSDR_HEADER_IP_SRC: return {ip + 12, 4};
        case OVSDR_HEADER_IP_DST: return {ip + 16, 4};
        case OVSDR_HEADER_IPV6_SRC: return {ip + 8, 16};
        case OVSDR_HEADER_IPV6_DST: return {ip + 24, 16};
        case OVSDR_HEADER_IP_TOS: return {ip + 1, 1};
        case OVSDR_HEADER_IP_TTL: return {v6 ? ip + 7 : ip + 8, 1};
        case OVSDR_HEADER_TCP_SRC:
        case OVSDR_HEADER_UDP_SRC: return {l4, 2};
        case OVSDR_HEADER_TCP_DST:
        case OVSDR_HEADER_UDP_DST: return {l4 + 2, 2};
    }
    ADD_FAILURE() << "field " << int{field};
    return {0, 0};
}

void write(std::uint8_t* bytes, const ovsdr_set& set, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
        bytes[i] = static_cast<std::uint8_t>((bytes[i] & ~set.mask[i]) | set.value[i]);
    }
}

void apply(const ovsdr_set& set, bool v6, Frame& frame) {
    const Place place = place_of(set.field, v6);
    if (v6 && set.field == OVSDR_HEADER_IP_TOS) {
        // Across two bytes.
        auto tos = static_cast<std::uint8_t>(frame[ip] << 4 | frame[ip + 1] >> 4);
        write(&tos, set, 1);
        frame[ip] = static_cast<std::uint8_t>((frame[ip] & 0xf0) | tos >> 4);
        frame[ip + 1] = static_cast<std::uint8_t>((frame[ip + 1] & 0x0f) | tos << 4);
    } else {
        write(frame.data() + place.offset, set, place.size);
    }
}

/// A struct ovs_key_* at random, with its mask behind it; members are whole, absent or in part.
std::string random_key(std::size_t size, bool masked, std::mt19937& random) {
    std::string key(size, 0), mask(size, 0);
    for (std::size_t i = 0; i < size; ++i) {
        if (!masked) {
            mask[i] = '\xff';
        } else if (i % 2 == 1 && random() % 4 != 0) {
            mask[i] = mask[i - 1];
        } else {
            mask[i] = static_cast<char>(random() % 3 == 0 ? random() : random() % 2 * 0xff);
        }
        key[i] = static_cast<char>(random() & static_cast<unsigned char>(mask[i]));
    }
    return masked ? key + mask : key;
}

TEST(MegaflowSet, WritesWhatOvsWrites) {
    struct Header {
        int key;
        std::size_t size;
        bool v6;
        std::uint8_t proto;
    };
    const Header headers[] = {{probe_key_ethernet, 12, false, tcp}, {probe_key_ipv4, 12, false, tcp},
                              {probe_key_ipv4, 12, false, udp},     {probe_key_ipv6, 40, true, tcp},
                              {probe_key_ipv6, 40, true, udp},      {probe_key_tcp, 4, false, tcp},
                              {probe_key_tcp, 4, true, tcp},        {probe_key_udp, 4, false, udp},
                              {probe_key_udp, 4, true, udp}};
    std::mt19937 random(1);
    int compared = 0;
    for (int round = 0; round < 4000; ++round) {
        for (const Header& header : headers) {
            const bool masked = round % 4 != 0;
            std::string key = random_key(header.size, masked, random);
            // The label is not carried over; half of the time it is not written either.
            if (header.key == probe_key_ipv6 && masked && random() % 2) {
                std::fill_n(key.begin() + 32, 4, '\0');
                std::fill_n(key.begin() + 72, 4, '\0');
            }
            const std::string bytes = attribute(masked ? probe_set_masked : probe_set, attribute(header.key, key));
            const std::vector<char> actions(bytes.begin(), bytes.end());
            ovsdr_megaflow megaflow{};
            probe_actions(actions.data(), actions.size(), &megaflow);
            Frame expected = make_frame(header.v6, header.proto, random);
            Frame frame = expected;
            bool all = true;
            for (std::uint32_t i = 0; i < megaflow.n_actions; ++i) {
                all = all && megaflow.actions[i].type == OVSDR_ACTION_SET;
                if (all) apply(megaflow.actions[i].set, header.v6, frame);
            }
            if (!all) continue;
            probe_execute(actions.data(), actions.size(), expected.data(), expected.size());
            clear_checksums(header.v6, header.proto, expected);
            clear_checksums(header.v6, header.proto, frame);
            ASSERT_EQ(frame, expected) << "key " << header.key << ", round " << round;
            ++compared;
        }
    }
    EXPECT_GT(compared, 25000);
}

}  // namespace
}  // namespace megaflow_set
