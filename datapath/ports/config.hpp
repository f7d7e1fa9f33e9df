// The soft NIC's configuration: one JSON file, read once when the NIC starts.
//
// The file is the one that the environment variable OVSDR_SOFTNIC names, /etc/ovs-dr/softnic.json otherwise. A complete
// example is softnic.example.json beside this header. Options (those with a default may be left out):
//
//   workers         threads that move packets, 1 to 16. A number or {"count": N, "cpus": [CPU…], "rebalance": BOOL}:
//                   the workers are pinned to these CPUs in turn; with rebalance false a port's receive queue stays on
//                   the worker that it began on (docs/ports.md). Default 1, not pinned, true.
//   memory_mb       packet memory in MB, 128 to 1048576. Default 512. Without hugepages it is
//                   taken as it is needed, and kept; whole, once a PCI device is a port. Each queue of a
//                   net_af_xdp port takes 21 MB of its own out of 30 % of this: the default is enough for seven.
//   hugepages       true: memory out of hugepages, of 2 MB or 1 GB. Default false.
//   control_socket  where `drnic` finds this NIC. Default /run/ovs-dr/softnic.sock; "" for none.
//   devices         at least one:
//     name          as ibv_get_device_list() shows it: letters, digits, '_', '-', at most 31. Unique.
//     profile       connectx-5, connectx-6dx or connectx-7. Default connectx-6dx.
//     flex_parser_profile   what the flexible parser reads, as mlxconfig's FLEX_PARSER_PROFILE_ENABLE: 0 as shipped
//                   (the default), 1 MPLS over GRE and UDP, 2 VXLAN-GPE and ICMP, 3 GTP-U.
//     eswitch       false: a plain function, such as a VF, whose owner has no rights on the eSwitch it is part of: no
//                   FDB, no vports but itself, and one port, vport 65535, the wire that it is on. Default true.
//     mac           of the manager function, and so of its RoCE packets and its link-local GID. Default: derived from
//                   this machine and the device's name; two NICs of one machine that meet on a wire need different
//                   ones.
//     limits        what the device has room for, as docs/scale.md explains: an object; any of flow_counters, tables,
//                   matchers, rules, modify_headers, reformats, dest_arrays, samplers, meters, each from 0 to 2^32 - 1.
//                   `drnic limits` shows how many there are, and changes these. Default: as many as memory holds.
//     ports         vports; `drnic add` makes more, and `drnic save` writes them into this file. Default none.
//       vport       1 to 65279 for a VF, 65535 for the uplink. Unique. (0, the manager, is always there.)
//       dpdk        device arguments as DPDK has them, without an instance number:
//                   net_af_packet,iface=NAME   a network interface, by packet sockets; with qdisc_bypass=1 tcpdump on
//                                              the interface does not see what the vport gets, nor does its queueing
//                                              discipline; with gro=0 TCP packets leave one by one; qpairs=N: so many
//                                              receive queues, 1 to 16
//                   net_af_xdp,iface=NAME      the same, by AF_XDP: every queue of the interface
//                   net_tap,iface=NAME         a network interface that the port makes, with the vport's MAC; gro=0
//                                              too; queues=N
//                   net_vhost,iface=PATH       a guest: a vhost-user socket where QEMU connects (give its chardev
//                                              reconnect=1, and the guest outlives the switch); with client=1 the
//                                              switch connects to QEMU's socket, and again when either restarts;
//                                              queues=N: at most so many pairs; with gro=0 TCP packets go to the
//                                              guest one by one
//                   net_memif,socket=PATH      another process (VPP, DPDK) by shared memory; role=server (default) or
//                                              client, id=N, queues=N: at most so many rings each way, 1 to 16,
//                                              secret=TEXT; as a client rsize=LOG2, bsize=BYTES too
//                   0000:03:00.0               a network controller by its whole PCI address, bound to vfio-pci, see
//                                              pci_port.hpp; queues=N: receive queues
//                   net_pcap, net_null, net_ring  files, nothing, itself: for tests and benchmarks
//                   A socket's folder must be there, but for its last part; its rights say who may connect.
//                   The uplink may have a list of two: two ports in LAG, see lag.hpp. Options beside it are of both.
//       name        what people call it. Default "vport N".
//       mac         "02:00:00:00:00:01", unicast. Default: a PCI device's own, else derived from this machine, the
//                   device and the vport.
//       mtu         68 to 9978. Default: that of the network interface behind the port, 1500 where there is none. One
//                   that is given is also set on that interface, or device.
//       roce_address  "192.0.2.1/24", "2001:db8::1/64", or a list of such: addresses of the RoCE transport, which is
//                   the manager function's and goes out by the uplink. Only the uplink (vport 65535) may have any.
//                   Default none: the link-local address alone.
//     cotenant      plays the kernel of a switchdev host, see cotenant.hpp. Default: none.
//       vports      VFs (of `ports`) that the kernel bridges among themselves. Default none.
//       lacp        true: LACP on the uplink (in LAG on both its ports) is the kernel's. Default false.
//       period_ms   10 to 60000: how often the kernel sends on each. Default 1000.
//
// Every mistake is an error that names the option, the value, and what would be right; an unknown option is a mistake.
// Parsing is pure: it changes nothing, so a bad file leaves a NIC as it was.
#pragma once

#include <array>
#include <cerrno>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "datapath/ports/nic.hpp"
#include "datapath/profile.hpp"
#include "datapath/steering/room.hpp"
#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

using MacAddress = std::array<std::uint8_t, 6>;

inline constexpr std::uint16_t min_mtu = 68;
inline constexpr std::uint16_t max_mtu = 9978;
inline constexpr unsigned most_roce_addresses = 64;
inline constexpr std::uint16_t last_vf_vport = 0xFEFF;  ///< above it, numbers with a meaning of their own

/// The text says which option is wrong, its value, and what would be right.
class ConfigError : public std::runtime_error {
public:
    /// `code`: the errno for callers that only understand errnos.
    explicit ConfigError(const std::string& text, int code = EINVAL) : std::runtime_error(text), code_(code) {}
    [[nodiscard]] int code() const noexcept { return code_; }

private:
    int code_;
};

struct PortConfig {
    VportId vport{};
    std::string name;
    std::string dpdk;
    std::string lag_dpdk;  ///< of an uplink's second port, in LAG; empty: none
    std::optional<MacAddress> mac;
    std::optional<std::uint16_t> mtu;
    std::vector<RoceAddress> roce_addresses;
};

struct CotenantConfig {
    std::vector<VportId> vports;
    bool lacp = false;
    unsigned period_ms = 1000;
};

struct DeviceConfig {
    std::string name;
    const Profile* profile = &connectx_6dx;
    unsigned flex_parser_profile = 0;
    bool eswitch = true;            ///< false: a plain function
    std::optional<MacAddress> mac;  ///< the manager function's
    Limits limits{};
    std::vector<PortConfig> ports;
    std::optional<CotenantConfig> cotenant;
};

struct NicConfig {
    unsigned workers = 1;
    std::vector<unsigned> cpus;  ///< empty: not pinned
    bool rebalance = true;       ///< receive queues move between workers by load
    unsigned memory_mb = 512;
    bool hugepages = false;
    std::string control_socket = "/run/ovs-dr/softnic.sock";
    std::vector<DeviceConfig> devices;
};

/// The name of the file to read, from the environment.
[[nodiscard]] std::string config_path();

/// The file's text. Throws ConfigError; its text begins with `path`.
[[nodiscard]] std::string read_config_text(const std::string& path);

/// Throws ConfigError; its text begins with `path`.
[[nodiscard]] NicConfig read_config(const std::string& path);

/// Throws ConfigError.
[[nodiscard]] NicConfig parse_config(std::string_view text);

/// The object `limits`; `where` names it in errors. Throws ConfigError.
[[nodiscard]] Limits parse_limits(const nlohmann::json& json, const std::string& where);

/// One object of `ports`; `where` names it in errors ("devices[0].ports[2]"). Throws ConfigError.
[[nodiscard]] PortConfig parse_port(const nlohmann::json& json, const std::string& where);

/// "aa:bb:cc:dd:ee:ff", unicast and not zero. Throws ConfigError.
[[nodiscard]] MacAddress parse_mac(std::string_view text, const std::string& where);
[[nodiscard]] std::string format_mac(const std::uint8_t (&mac)[6]);

/// Throws ConfigError for a driver that is not there, an instance number, or a missing interface.
void check_dpdk_arguments(std::string_view arguments, const std::string& where);

}  // namespace ovsdr::soft
