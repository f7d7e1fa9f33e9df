#include "offload/dr/roce_address.hpp"

#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <linux/if_vlan.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

namespace ovsdr::dr {

namespace {

using Gid = std::array<std::uint8_t, 16>;

std::optional<Gid> gid_at(ibv_context* context, std::uint8_t ib_port, int index) noexcept {
    ibv_gid gid{};
    if (ibv_query_gid(context, ib_port, index, &gid) != 0) return std::nullopt;
    Gid bytes;
    std::ranges::copy(gid.raw, bytes.begin());
    if (bytes == Gid{}) return std::nullopt;   // an empty place of the table
    return bytes;
}

/// fe80::/64 with an interface identifier that was made of a MAC (RFC 4291, appendix A).
bool is_made_of_a_mac(const Gid& gid) noexcept {
    constexpr std::array<std::uint8_t, 8> prefix{0xfe, 0x80};
    return std::equal(prefix.begin(), prefix.end(), gid.begin()) && gid[11] == 0xff && gid[12] == 0xfe;
}

Result<std::uint16_t> not_known(int code, const char* call) {
    return tl::unexpected(Error{code, fmt::format("whether a GID is of a VLAN cannot be told: {}", call)});
}

/// Of a network interface; 0: it is no VLAN's.
Result<std::uint16_t> vlan_of_interface(std::uint32_t ifindex) {
    vlan_ioctl_args asked{};
    asked.cmd = GET_VLAN_VID_CMD;
    char name[IF_NAMESIZE];
    if (if_indextoname(ifindex, name) == nullptr) return not_known(errno, "if_indextoname");
    std::strncpy(asked.device1, name, sizeof asked.device1 - 1);
    const int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket_fd < 0) return not_known(errno, "socket");
    const int code = ioctl(socket_fd, SIOCGIFVLAN, &asked) == 0 ? 0 : errno;
    close(socket_fd);
    if (code == ENODEV || code == ENOMEM) return not_known(code, "SIOCGIFVLAN");
    // EINVAL: it is another kind of interface. ENOPKG and others: the kernel has no VLANs.
    return code == 0 ? static_cast<std::uint16_t>(asked.u.VID) : std::uint16_t{0};
}

/// libibverbs returns a negative errno, or -1 and sets errno.
int errno_of(int returned) noexcept { return returned == -1 && errno != 0 ? errno : std::abs(returned); }

/// A device without network interfaces says whose tag it would send with to the address itself.
Result<std::uint16_t> vlan_of(ibv_context* context, std::uint8_t ib_port, const ibv_gid_entry& entry) {
    if (entry.ndev_ifindex != 0) return vlan_of_interface(entry.ndev_ifindex);
    ibv_ah_attr itself{};
    itself.is_global = 1;
    itself.port_num = ib_port;
    itself.grh.sgid_index = static_cast<std::uint8_t>(entry.gid_index);
    itself.grh.dgid = entry.gid;
    std::uint8_t mac[6];
    std::uint16_t vlan = 0;
    constexpr std::uint16_t last_vlan = 4094;
    errno = 0;
    const int code = errno_of(ibv_resolve_eth_l2_from_gid(context, &itself, mac, &vlan));
    // libibverbs says EINVAL where no interface has the GID's address, and so none of a VLAN.
    if (code == EINVAL || code == ENODEV) return std::uint16_t{0};
    if (code != 0) return not_known(code, "ibv_resolve_eth_l2_from_gid");
    return vlan > last_vlan ? std::uint16_t{0} : vlan;
}

}  // namespace

bool RoceAddress::is_ipv4() const noexcept {
    constexpr std::array<std::uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::equal(mapped.begin(), mapped.end(), gid.begin());
}

Result<RoceAddress> roce_address(ibv_context* context, std::uint8_t ib_port, int gid_index) noexcept try {
    const char* const name = ibv_get_device_name(context->device);
    ibv_gid_entry entry{};
    const bool is_there = gid_index >= 0 &&
        ibv_query_gid_ex(context, ib_port, static_cast<std::uint32_t>(gid_index), &entry, 0) == 0;
    if (!is_there) return tl::unexpected(Error{ENOENT, fmt::format("{} has no GID of index {}", name, gid_index)});
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) {
        return tl::unexpected(Error{EPROTONOSUPPORT, fmt::format("{}: GID {} is of RoCE v1 or InfiniBand, and only "
                                                                 "RoCE v2 will do", name, gid_index)});
    }
    Gid gid;
    std::ranges::copy(entry.gid.raw, gid.begin());
    ibv_port_attr port{};
    if (const int code = ibv_query_port(context, ib_port, &port); code != 0) {
        return tl::unexpected(Error{code, fmt::format("ibv_query_port: {}, port {}", name, ib_port)});
    }
    for (int index = 0; index < port.gid_tbl_len; ++index) {
        const auto link_local = gid_at(context, ib_port, index);
        if (!link_local || !is_made_of_a_mac(*link_local)) continue;
        const auto vlan = vlan_of(context, ib_port, entry);
        if (!vlan) return tl::unexpected(vlan.error());
        const Gid& from = *link_local;
        constexpr std::uint8_t universal = 2;   // the identifier has this bit of the MAC turned
        return RoceAddress{gid, {static_cast<std::uint8_t>(from[8] ^ universal), from[9], from[10], from[13], from[14],
                                 from[15]}, *vlan};
    }
    return tl::unexpected(Error{ENOENT, fmt::format("{} has no link-local GID that was made of its MAC", name)});
} catch (const std::bad_alloc&) {
    return tl::unexpected(Error{ENOMEM, {}});
}

}  // namespace ovsdr::dr
