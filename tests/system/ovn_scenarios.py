"""What the OVN tests do in the networks of ovn_networks.py, and which of it belongs into the NIC."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Iterator

from lab.ovn import OUTSIDE, OUTSIDE_MAC, UNDERLAY, OvnLab
from lab.workspace import Workspace
from ovn_networks import BRIDGED, FLOATING_IP, GATEWAY, ROUTED, SINK, VMS, networks, words
from ovn_traffic import Scenario

Lines = tuple[tuple[str, ...], ...]


def lines(text: str) -> Lines:
    return tuple(map(tuple, words(text)))


def during(commands: str, undo: str) -> dict[str, Lines]:
    """For as long as a scenario or a group lasts; ovn-nbctl's commands, one a line."""
    return {"commands": lines(commands), "undo": lines(undo)}


def why(*reasons: str) -> dict[str, frozenset[str]]:
    return {"reasons": frozenset(f"unsupported {reason}" for reason in reasons)}


PLAIN_L2 = Scenario("L2", "plain1", "plain2", "10.1.0.2")
PLAIN_L3 = Scenario("L3", "left1", "right1", "10.4.0.1")
STATELESS = Scenario("stateless ACLs", "filtered1", "filtered2", "10.5.0.2")
OUT = Scenario("gateway, out", "inside1", "outside", OUTSIDE)
FLOATING_IN = Scenario("stateless floating IP, in", "outside", "floating1", FLOATING_IP)
RATED = 'inport == "marked1"'
LOGGED = 'inport == "filtered1" && ip4'

LOCAL = [
    PLAIN_L2,
    Scenario("L2, IPv6", "plain1", "plain2", "fd00:1::2"),
    Scenario("port security", "secure1", "secure2", "10.2.0.2"),
    Scenario("port security, IPv6", "secure1", "secure2", "fd00:2::2"),
    PLAIN_L3,
    Scenario("L3, IPv6", "left1", "right1", "fd00:4::1"),
    STATELESS,
    Scenario("DSCP", "marked1", "marked2", "10.6.0.2"),
    Scenario("localnet with VLAN", "tagged1", "tagged2", "10.7.0.2"),
    OUT,
    Scenario("gateway, in", "outside", "inside1", "10.8.0.1"),
    FLOATING_IN,
    Scenario("stateless floating IP, out", "floating1", "outside", OUTSIDE),
    Scenario("QoS with a rate", "marked1", "marked2", "10.6.0.2",
             **during(f"qos-add marked from-lport 200 '{RATED}' rate=400000 burst=40000",
                      f"qos-del marked from-lport 200 '{RATED}'")),
    Scenario("ACL with a log", "filtered1", "filtered2", "10.5.0.2",
             **during("meter-add logs drop 10 pktps\n"
                      f"--log --meter=logs acl-add filtered from-lport 1002 '{LOGGED}' allow-stateless",
                      f"acl-del filtered from-lport 1002 '{LOGGED}'\nmeter-del logs")),
]

BETWEEN = [
    Scenario("L2", "plain1", "plain3", "10.1.0.3"),
    Scenario("L2, IPv6", "plain1", "plain3", "fd00:1::3"),
    Scenario("L3", "left1", "right2", "10.4.0.2"),
]

FEATURES = [
    Scenario("policy route", "left1", "routed1", ROUTED,
             **during(f"lr-policy-add core 100 'ip4.dst == {ROUTED}' reroute 10.4.0.3\n"
                      "lr-route-add core 10.77.0.0/24 10.4.0.2",
                      "lr-policy-del core\nlr-route-del core 10.77.0.0/24")),
    Scenario("port group with a reject", "plain1", "plain2", "10.1.0.2",
             **during("pg-add group plain2\nacl-add group to-lport 1001 'outport == @group && tcp.dst == 81' reject",
                      "pg-del group")),
    Scenario("multicast snooping", "plain1", "plain2", "10.1.0.2",
             **during("set logical_switch plain other_config:mcast_snoop=true other_config:mcast_querier=false",
                      "remove logical_switch plain other_config mcast_snoop\n"
                      "remove logical_switch plain other_config mcast_querier")),
    Scenario("localport", "plain1", "service1", "10.1.0.9"),
    Scenario("L2 gateway port", "plain1", "outside", BRIDGED,
             **during("lsp-add plain bridged\nlsp-set-type bridged l2gateway\nlsp-set-addresses bridged unknown\n"
                      "lsp-set-options bridged network_name=physical l2gateway-chassis=hv1",
                      "lsp-del bridged")),
    Scenario("mirror over GRE", "plain1", "plain2", "10.1.0.2",
             **during(f"mirror-add mirror gre 5 from-lport {SINK}\nlsp-attach-mirror plain2 mirror",
                      "lsp-detach-mirror plain2 mirror\nmirror-del mirror")),
    replace(OUT, name="gateway with a standby (BFD)",
            **during("lrp-set-gateway-chassis edge-public hv1 20\nlrp-set-gateway-chassis edge-public hv2 10",
                     "lrp-del-gateway-chassis edge-public hv2")),
]

TRACKING = ("action: ct", "match: ct_mark", "match: ct_state")

# Other networks' business: connections are tracked on the switch `tracked` and for its addresses on the router `edge`.
STATEFUL_BESIDE = during(
    f"""
    acl-add tracked from-lport 1001 ip4 allow-related
    acl-add tracked to-lport 1001 'ip4 && tcp.dst == 23' drop
    lb-add beside 10.99.0.2 10.10.0.1,10.10.0.2
    ls-lb-add tracked beside
    lr-lb-add core beside
    lr-nat-add edge snat {GATEWAY} 10.10.0.0/24
    lr-nat-add edge dnat_and_snat 172.16.0.7 10.10.0.2
    """,
    """
    lr-nat-del edge dnat_and_snat 172.16.0.7
    lr-nat-del edge snat 10.10.0.0/24
    lr-lb-del core beside
    ls-lb-del tracked beside
    lb-del beside
    acl-del tracked
    """)

BESIDE = [
    Scenario("what is tracked", "tracked1", "outside", OUTSIDE, only_ping=True,
             **why(*TRACKING, "action: ct_clear")),
    PLAIN_L2, PLAIN_L3, STATELESS, OUT, FLOATING_IN,
    replace(BETWEEN[0], name="Geneve: L2"), replace(BETWEEN[2], name="Geneve: L3"),
]


FAR_GATEWAY = Scenario("gateway on another chassis", "inside2", "outside", OUTSIDE, reasons=frozenset((
    "output not offloaded: output to the in_port: uplink",
    "output not offloaded: output to the uplink of packets from a tunnel: uplink")))
CHECKSUM = replace(BETWEEN[0], **why("action: tnl_push with an outer UDP checksum (set options:csum=false, or OVN's "
                                     "external_ids:ovn-encap-csum=false)"))

SOFTWARE = [
    Scenario("stateful ACLs", "plain1", "plain2", "10.1.0.2", **why(*TRACKING),
             **during("acl-add plain from-lport 1001 ip4 allow-related", "acl-del plain from-lport 1001 ip4")),
    Scenario("stateful ACL of another port of the switch", "plain1", "plain2", "10.1.0.2", **why(*TRACKING),
             **during("acl-add plain from-lport 1001 'inport == \"plain3\" && ip4' allow-related", "acl-del plain")),
    Scenario("stateful ACL for ICMP", "plain1", "plain2", "10.1.0.2", **why(*TRACKING),
             **during("acl-add plain from-lport 1001 icmp4 allow-related", "acl-del plain")),
    Scenario("load balancer", "left1", "right1", "10.99.0.1",
             **why(*TRACKING, "action: ct_clear", "action: hash", "match: dp_hash"),
             **during("lb-add balancer 10.99.0.1 10.4.0.1\nls-lb-add left balancer",
                      "ls-lb-del left balancer\nlb-del balancer")),
    Scenario("load balancer of the switch, other traffic", "plain1", "plain2", "10.1.0.2", **why(*TRACKING),
             **during("lb-add balancer 10.99.0.1 10.4.0.1\nls-lb-add plain balancer",
                      "ls-lb-del plain balancer\nlb-del balancer")),
    replace(OUT, name="SNAT", **why("action: ct", "action: ct_clear"),
            **during(f"lr-nat-add edge snat {GATEWAY} 10.8.0.0/24", "lr-nat-del edge snat 10.8.0.0/24")),
    Scenario("stateful floating IP", "outside", "inside1", "172.16.0.8", **why("action: ct", "action: ct_clear"),
             **during("lr-nat-add edge dnat_and_snat 172.16.0.8 10.8.0.1",
                      "lr-nat-del edge dnat_and_snat 172.16.0.8")),
    # Two next hops that are both routed1; its answers stay in the NIC.
    Scenario("ECMP", "left1", "routed1", ROUTED, **why("action: hash", "match: dp_hash"),
             **during("lsp-set-addresses routed1 '02:00:00:00:04:03 10.4.0.3 10.4.0.13 fd00:4::3'\n"
                      "--ecmp lr-route-add core 10.77.0.0/24 10.4.0.3\n"
                      "--ecmp lr-route-add core 10.77.0.0/24 10.4.0.13",
                      "lr-route-del core 10.77.0.0/24\n"
                      "lsp-set-addresses routed1 '02:00:00:00:04:03 10.4.0.3 fd00:4::3'")),
    replace(OUT, name="gateway_mtu", **why("action: check_pkt_len (branches differ)"),
            **during("set logical_router_port edge-public options:gateway_mtu=1400",
                     "remove logical_router_port edge-public options gateway_mtu")),
    Scenario("a port's qos_max_rate", "plain1", "plain2", "10.1.0.2", **why("action: set(skb_priority)"),
             **during("set logical_switch_port plain1 options:qos_max_rate=500000000",
                      "remove logical_switch_port plain1 options qos_max_rate")),
]


@dataclass(frozen=True)
class Group:
    """Scenarios with the same settings of the hypervisors (external_ids), and what is there while they run."""

    title: str
    scenarios: list[Scenario]
    settings: dict[str, str] = field(default_factory=dict)
    commands: Lines = ()
    undo: Lines = ()


GENEVE = {"ovn-encap-type": "geneve", "ovn-encap-csum": "false"}
VXLAN = {"ovn-encap-type": "vxlan", "ovn-encap-csum": "false"}
GROUPS = [
    Group("", LOCAL),
    Group("Geneve", [*BETWEEN, FAR_GATEWAY], GENEVE),
    Group("VXLAN", BETWEEN, VXLAN),
    Group("Geneve with a checksum", [CHECKSUM], {**GENEVE, "ovn-encap-csum": "true"}),
    Group("", FEATURES, GENEVE),
    Group("beside tracking", BESIDE, GENEVE, **STATEFUL_BESIDE),
    Group("", SOFTWARE, GENEVE),
]


@contextmanager
def prepared(lab: OvnLab, group: Group) -> Iterator[None]:
    if group.settings:
        lab.encapsulate(group.settings)
    if group.commands:
        lab.configure(group.commands)
    try:
        yield
    finally:
        if group.undo:
            lab.configure(group.undo)


def make_lab(workspace: Workspace, kind: str) -> OvnLab:
    """With all networks, started."""
    lab = OvnLab(workspace, VMS, kind=kind, encapsulation=GENEVE["ovn-encap-type"])
    for command in (f"address add {ROUTED}/32 dev lo", f"route replace default via 10.4.0.254 dev eth0 src {ROUTED}"):
        lab.namespace("routed1").run(["ip", *command.split()])
    lab.outside.run(["ip", "address", "add", f"{BRIDGED}/24", "dev", "eth0"])
    lab.start(networks())
    for hypervisor in lab.hypervisors:
        hypervisor.switch.appctl("tnl/neigh/set", UNDERLAY, SINK, OUTSIDE_MAC)
    return lab
