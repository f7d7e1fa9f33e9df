// The address by which a manager function speaks RoCE, read from verbs of the test's own: what a device says of its
// GIDs, and what becomes of it when a call fails.
#include "offload/dr/roce_address.hpp"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>

namespace ovsdr::dr {
namespace {

constexpr std::uint8_t ib_port = 1;
constexpr int link_local_index = 0, ipv4_index = 1;
constexpr std::array<std::uint8_t, 16> link_local{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x79, 0xff, 0xfe, 1, 2, 3};
constexpr std::array<std::uint8_t, 16> ipv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1};

/// What the device says.
struct Verbs {
    std::uint32_t ifindex = 0;
    int resolved = 0, resolved_errno = 0;   ///< returned by ibv_resolve_eth_l2_from_gid(), and errno
    std::uint16_t vlan = 0xffff;
    unsigned asked = 0;                     ///< whose tag
};
Verbs verbs;

class RoceAddressTest : public ::testing::Test {
protected:
    RoceAddressTest() { context_.device = &device_; }
    ~RoceAddressTest() override { verbs = {}; }
    Result<RoceAddress> address() { return roce_address(&context_, ib_port, ipv4_index); }

    ibv_device device_{};
    ibv_context context_{};
};

TEST_F(RoceAddressTest, IsTheGidTheMacAndTheVlan) {
    verbs.vlan = 7;
    const auto found = address();
    ASSERT_TRUE(found) << found.error().what;
    EXPECT_EQ(found->gid, ipv4);
    EXPECT_EQ(found->mac, (std::array<std::uint8_t, 6>{2, 0, 0x79, 1, 2, 3}));
    EXPECT_EQ(found->vlan, 7U);
}

TEST_F(RoceAddressTest, ADeviceWithoutInterfacesHasNoVlan) {
    for (const std::uint16_t none : {std::uint16_t{0xffff}, std::uint16_t{4095}, std::uint16_t{0}}) {
        verbs.vlan = none;
        ASSERT_TRUE(address());
        EXPECT_EQ(address()->vlan, 0U) << none;
    }
    verbs.vlan = 7;   // which a call that fails has not said
    for (const int code : {EINVAL, ENODEV}) {
        verbs.resolved = -code;
        const auto found = address();
        ASSERT_TRUE(found) << found.error().what;
        EXPECT_EQ(found->vlan, 0U);
    }
}

TEST_F(RoceAddressTest, AVlanThatCannotBeToldRefusesTheAddress) {
    struct Failure {
        int returned, left_in_errno, code;
    };
    for (const Failure& failure : {Failure{-ENOMEM, 0, ENOMEM}, Failure{-1, ENOMEM, ENOMEM}, Failure{-1, 0, 1},
                                   Failure{-EHOSTUNREACH, EINVAL, EHOSTUNREACH}, Failure{ETIMEDOUT, 0, ETIMEDOUT}}) {
        verbs.resolved = failure.returned;
        verbs.resolved_errno = failure.left_in_errno;
        const auto found = address();
        ASSERT_FALSE(found) << failure.returned;
        EXPECT_EQ(found.error().code, failure.code);
        EXPECT_NE(found.error().what.find("VLAN"), std::string::npos) << found.error().what;
    }
}

TEST_F(RoceAddressTest, AnInterfaceIsAskedItself) {
    verbs.ifindex = if_nametoindex("lo");
    ASSERT_NE(verbs.ifindex, 0U);
    verbs.resolved = -ENOMEM;
    const auto found = address();
    ASSERT_TRUE(found) << found.error().what;
    EXPECT_EQ(found->vlan, 0U) << "a loopback interface is no VLAN's";
    EXPECT_EQ(verbs.asked, 0U);
    verbs.ifindex = 0x7ffffff0;
    EXPECT_EQ(address().error().code, ENXIO) << "the interface has gone";
}

}  // namespace
}  // namespace ovsdr::dr

using ovsdr::dr::verbs;

extern "C" {
#undef ibv_query_port

const char* ibv_get_device_name(ibv_device*) { return "fake_0"; }

int ibv_query_port(ibv_context*, std::uint8_t, _compat_ibv_port_attr* port) {
    reinterpret_cast<ibv_port_attr*>(port)->gid_tbl_len = 2;
    return 0;
}

int ibv_query_gid(ibv_context*, std::uint8_t, int index, ibv_gid* gid) {
    std::ranges::copy(index == ovsdr::dr::link_local_index ? ovsdr::dr::link_local : ovsdr::dr::ipv4, gid->raw);
    return 0;
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry,
                      std::uint32_t, std::size_t) {
    *entry = {};
    entry->gid_index = index;
    entry->port_num = port;
    entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    entry->ndev_ifindex = verbs.ifindex;
    return ibv_query_gid(context, static_cast<std::uint8_t>(port), static_cast<int>(index), &entry->gid);
}

int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr* attr, std::uint8_t*, std::uint16_t* vlan) {
    ++verbs.asked;
    EXPECT_EQ(attr->grh.sgid_index, ovsdr::dr::ipv4_index);
    EXPECT_TRUE(std::ranges::equal(attr->grh.dgid.raw, ovsdr::dr::ipv4)) << "the way to itself";
    *vlan = verbs.vlan;
    errno = verbs.resolved_errno;
    return verbs.resolved;
}
}
