"""The logical networks of the OVN tests, all of them side by side, and who is on them.

Network S has the addresses 10.S.0.0/24 and fd00:S::/64 (lab.ovn.Vm); routers are .254 and ::fe there.
"""

from __future__ import annotations

from typing import Sequence

from lab.ovn import PHYSICAL_NETWORK, Vm

PLAIN, SECURE, LEFT, RIGHT, FILTERED, MARKED, TAGGED, INSIDE, FLOATING, TRACKED = range(1, 11)
NAMES = {PLAIN: "plain", SECURE: "secure", LEFT: "left", RIGHT: "right", FILTERED: "filtered", MARKED: "marked",
         TAGGED: "tagged", INSIDE: "inside", FLOATING: "floating", TRACKED: "tracked"}

VMS = [
    Vm("plain1", "hv1", PLAIN, 1), Vm("plain2", "hv1", PLAIN, 2), Vm("plain3", "hv2", PLAIN, 3),
    Vm("secure1", "hv1", SECURE, 1), Vm("secure2", "hv1", SECURE, 2),
    Vm("left1", "hv1", LEFT, 1), Vm("right1", "hv1", RIGHT, 1), Vm("right2", "hv2", RIGHT, 2),
    Vm("filtered1", "hv1", FILTERED, 1), Vm("filtered2", "hv1", FILTERED, 2),
    Vm("marked1", "hv1", MARKED, 1), Vm("marked2", "hv1", MARKED, 2),
    Vm("tagged1", "hv1", TAGGED, 1), Vm("tagged2", "hv2", TAGGED, 2),
    Vm("inside1", "hv1", INSIDE, 1), Vm("inside2", "hv2", INSIDE, 2),
    Vm("floating1", "hv1", FLOATING, 1),
    Vm("tracked1", "hv1", TRACKED, 1), Vm("tracked2", "hv1", TRACKED, 2),
    Vm("service1", "hv1", PLAIN, 9), Vm("routed1", "hv1", RIGHT, 3),
]

TAG = 42
GATEWAY = "172.16.0.1"       # edge's, on hv1; outside's way to 10.0.0.0/8
FLOATING_IP = "172.16.0.9"   # floating1's
BRIDGED = "10.1.0.99"        # outside's, as if it were on the network plain
ROUTED = "10.77.0.1"         # routed1's second address, from which it answers
IPERF_PORTS = 5201, 5202
SINK = "172.31.0.99"         # where mirrors go; nobody has the address, and what is sent there ends at outside

Commands = Sequence[Sequence[str]]


def words(text: str) -> list[list[str]]:
    """A command a line; what is in 'quotes' is one word."""
    commands = []
    for line in filter(str.strip, text.splitlines()):
        parts = line.split("'")
        commands.append([word for number, part in enumerate(parts)
                         for word in ([part] if number % 2 else part.split())])
    return commands


def switches() -> Commands:
    commands = [["ls-add", name] for name in NAMES.values()]
    for vm in VMS:
        addresses = f"{vm.mac} {vm.address} {vm.address_6}"
        commands += [["lsp-add", NAMES[vm.network], vm.name], ["lsp-set-addresses", vm.name, addresses]]
        if vm.network == SECURE:
            commands.append(["lsp-set-port-security", vm.name, addresses])
    return commands


def attached(router: str, network: int) -> Commands:
    """A router's port on a network."""
    name, mac = NAMES[network], f"02:00:00:00:{network:02x}:fe"
    return words(f"""
        lrp-add {router} {router}-{name} {mac} 10.{network}.0.254/24 fd00:{network}::fe/64
        lsp-add {name} {name}-{router}
        lsp-set-type {name}-{router} router
        lsp-set-addresses {name}-{router} router
        lsp-set-options {name}-{router} router-port={router}-{name}
    """)


def localnet(switch: str) -> Commands:
    return words(f"""
        lsp-add {switch} {switch}-physical
        lsp-set-type {switch}-physical localnet
        lsp-set-addresses {switch}-physical unknown
        lsp-set-options {switch}-physical network_name={PHYSICAL_NETWORK}
    """)


def gateway(router: str, address: str, mac: str) -> Commands:
    """A distributed router's port on the physical network; hv1 is its gateway chassis."""
    return words(f"""
        lrp-add {router} {router}-public {mac} {address}/24
        lrp-set-gateway-chassis {router}-public hv1
        lsp-add public public-{router}
        lsp-set-type public-{router} router
        lsp-set-addresses public-{router} router
        lsp-set-options public-{router} router-port={router}-public
    """)


def filters() -> Commands:
    """Stateless ACLs: pings and iperf3, nothing else of IPv4."""
    ports = f"{{{', '.join(map(str, IPERF_PORTS))}}}"
    allowed = ["icmp4", *(f"{protocol} && ({protocol}.src == {ports} || {protocol}.dst == {ports})"
                          for protocol in ("tcp", "udp"))]
    commands = []
    for direction, port in (("from-lport", "inport"), ("to-lport", "outport")):
        who = f'{port} == {{"filtered1", "filtered2"}} && ip4'
        commands.append(["acl-add", "filtered", direction, "1000", who, "drop"])
        commands += [["acl-add", "filtered", direction, "1001", f"{who} && {what}", "allow-stateless"]
                     for what in allowed]
    return commands


def networks() -> Commands:
    return [
        *switches(),
        ["lsp-set-type", "service1", "localport"],
        ["lr-add", "core"], *attached("core", LEFT), *attached("core", RIGHT),
        *filters(),
        ["qos-add", "marked", "from-lport", "100", 'inport == "marked1" && ip4', "dscp=46"],
        *localnet("tagged"), ["set", "logical_switch_port", "tagged-physical", f"tag_request={TAG}"],
        ["ls-add", "public"], *localnet("public"),
        ["lr-add", "edge"], *attached("edge", INSIDE), *attached("edge", TRACKED),
        *gateway("edge", GATEWAY, "02:00:00:00:ff:11"),
        ["lr-add", "float"], *attached("float", FLOATING), *gateway("float", "172.16.0.2", "02:00:00:00:ff:12"),
        ["--stateless", "lr-nat-add", "float", "dnat_and_snat", FLOATING_IP, f"10.{FLOATING}.0.1", "floating1",
         "02:00:00:00:ff:13"],
    ]
