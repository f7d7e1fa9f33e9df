"""What the OVN tests do in the networks of ovn_networks.py, and which of it belongs into the NIC."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.ovn import OUTSIDE, OvnLab
from lab.workspace import Workspace
from ovn_networks import FLOATING_IP, GATEWAY, VMS, networks
from ovn_traffic import Scenario

RATED = 'inport == "marked1"'

LOCAL = [
    Scenario("L2", "plain1", "plain2", "10.1.0.2"),
    Scenario("L2, IPv6", "plain1", "plain2", "fd00:1::2"),
    Scenario("port security", "secure1", "secure2", "10.2.0.2"),
    Scenario("port security, IPv6", "secure1", "secure2", "fd00:2::2"),
    Scenario("L3", "left1", "right1", "10.4.0.1"),
    Scenario("L3, IPv6", "left1", "right1", "fd00:4::1"),
    Scenario("stateless ACLs", "filtered1", "filtered2", "10.5.0.2"),
    Scenario("DSCP", "marked1", "marked2", "10.6.0.2"),
    Scenario("localnet with VLAN", "tagged1", "tagged2", "10.7.0.2"),
    Scenario("gateway, out", "inside1", "outside", OUTSIDE),
    Scenario("gateway, in", "outside", "inside1", "10.8.0.1"),
    Scenario("stateless floating IP, in", "outside", "floating1", FLOATING_IP),
    Scenario("stateless floating IP, out", "floating1", "outside", OUTSIDE),
    Scenario("QoS with a rate", "marked1", "marked2", "10.6.0.2",
             commands=(("qos-add", "marked", "from-lport", "200", RATED, "rate=400000", "burst=40000"),),
             undo=(("qos-del", "marked", "from-lport", "200", RATED),)),
]

BETWEEN = [
    Scenario("L2", "plain1", "plain3", "10.1.0.3"),
    Scenario("L2, IPv6", "plain1", "plain3", "fd00:1::3"),
    Scenario("L3", "left1", "right2", "10.4.0.2"),
]

FAR_GATEWAY = Scenario("gateway on another chassis", "inside2", "outside", OUTSIDE)


def acl(switch: str, priority: str, match: str, *options: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """For as long as the scenario lasts."""
    return {"commands": ((*options, "acl-add", switch, "from-lport", priority, match,
                          "allow-stateless" if options else "allow-related"),),
            "undo": (("acl-del", switch, "from-lport", priority, match),)}


SECOND_ADDRESS = "10.77.0.1"   # right1's, on its loopback: behind two next hops that are both right1

SOFTWARE = [
    Scenario("stateful ACLs", "plain1", "plain2", "10.1.0.2", **acl("plain", "1001", "ip4")),
    Scenario("ACL with a log", "filtered1", "filtered2", "10.5.0.2", only_ping=True,
             **acl("filtered", "1002", 'inport == "filtered1" && icmp4', "--log")),
    Scenario("load balancer", "left1", "right1", "10.99.0.1",
             commands=(("lb-add", "balancer", "10.99.0.1", "10.4.0.1"), ("ls-lb-add", "left", "balancer")),
             undo=(("ls-lb-del", "left", "balancer"), ("lb-del", "balancer"))),
    Scenario("SNAT", "inside1", "outside", OUTSIDE,
             commands=(("lr-nat-add", "edge", "snat", GATEWAY, "10.8.0.0/24"),),
             undo=(("lr-nat-del", "edge", "snat", "10.8.0.0/24"),)),
    Scenario("stateful floating IP", "outside", "inside1", "172.16.0.8",
             commands=(("lr-nat-add", "edge", "dnat_and_snat", "172.16.0.8", "10.8.0.1"),),
             undo=(("lr-nat-del", "edge", "dnat_and_snat", "172.16.0.8"),)),
    Scenario("ECMP", "left1", "right1", SECOND_ADDRESS, only_ping=True,
             commands=(("lsp-set-addresses", "right1", "02:00:00:00:04:01 10.4.0.1 10.4.0.11 fd00:4::1"),
                       ("--ecmp", "lr-route-add", "core", "10.77.0.0/24", "10.4.0.1"),
                       ("--ecmp", "lr-route-add", "core", "10.77.0.0/24", "10.4.0.11")),
             undo=(("lr-route-del", "core", "10.77.0.0/24"),
                   ("lsp-set-addresses", "right1", "02:00:00:00:04:01 10.4.0.1 fd00:4::1"))),
    Scenario("gateway_mtu", "inside1", "outside", OUTSIDE,
             commands=(("set", "logical_router_port", "edge-public", "options:gateway_mtu=1400"),),
             undo=(("remove", "logical_router_port", "edge-public", "options", "gateway_mtu"),)),
]


@dataclass(frozen=True)
class Group:
    """Scenarios with the same settings of the hypervisors (external_ids)."""

    title: str
    scenarios: list[Scenario]
    settings: dict[str, str] = field(default_factory=dict)
    offloaded: bool = True     # the NIC is to carry it


GENEVE = {"ovn-encap-type": "geneve", "ovn-encap-csum": "false"}
VXLAN = {"ovn-encap-type": "vxlan", "ovn-encap-csum": "false"}
GROUPS = [
    Group("", LOCAL),
    Group("Geneve", BETWEEN, GENEVE),
    Group("VXLAN", BETWEEN, VXLAN),
    Group("Geneve", [FAR_GATEWAY], GENEVE, offloaded=False),
    Group("Geneve with a checksum", BETWEEN[:1], {**GENEVE, "ovn-encap-csum": "true"}, offloaded=False),
    Group("", SOFTWARE, GENEVE, offloaded=False),
]


def make_lab(workspace: Workspace, kind: str) -> OvnLab:
    """With all networks, started."""
    lab = OvnLab(workspace, VMS, kind=kind, encapsulation=GENEVE["ovn-encap-type"])
    lab.namespace("right1").run(["ip", "address", "add", f"{SECOND_ADDRESS}/32", "dev", "lo"])
    lab.start(networks())
    return lab
