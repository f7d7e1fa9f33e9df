"""OVN on two hypervisors: logical networks side by side, and who carries their packets. Figures: tests/system/ovn."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Iterator

import pytest
from helpers import figure
from lab import stats
from lab.ovn import OvnLab, missing_programs
from lab.traffic import ping, send_frames, udp_frame
from lab.workspace import Workspace
from ovn_networks import TAG
from ovn_scenarios import BETWEEN, FAR_GATEWAY, GENEVE, LOCAL, SOFTWARE, VXLAN, make_lab
from ovn_traffic import LIMIT, Effort, Scenario, run
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import Dot1Q, Ether

TCP = Effort(seconds=2, udp_megabits=0, enough=10_000)
BOTH = replace(TCP, udp_megabits=100)
STRAY = 5   # of ARP and the like, within a second or two
UDP_TOO = ("L2", "L3", "stateless ACLs", "gateway, in")

# What dr/explain must say of each: at least this is in a reason.
WHY = {"stateful ACLs": "action: ct", "ACL with a log": "action: userspace", "load balancer": "action: ct",
       "SNAT": "action: ct", "stateful floating IP": "action: ct", "ECMP": "action: hash",
       "gateway_mtu": "action: check_pkt_len"}


@pytest.fixture(scope="module")
def ovn(lab_kind: str, request: pytest.FixtureRequest) -> Iterator[OvnLab]:
    if missing := missing_programs():
        pytest.skip(f"missing: {' '.join(missing)} (packages ovn-central, ovn-host)")
    with Workspace("ovn") as workspace:
        lab = make_lab(workspace, lab_kind)
        failed = request.session.testsfailed
        yield lab
        if request.session.testsfailed > failed:
            print(*(f"\n--- {one.name}\n{one.switch.messages()}" for one in lab.hypervisors))


def assert_in_the_nic(lab: OvnLab, scenario: Scenario) -> None:
    outcome = run(lab, scenario, BOTH if scenario.name in UDP_TOO else TCP)
    assert outcome.answers == outcome.pings
    assert outcome.tcp_megabits > 10
    assert outcome.udp_megabits > 10 or scenario.name not in UDP_TOO
    if lab.kind == "dr":
        assert outcome.settled.packets > 100
        few = outcome.settled.in_software <= STRAY
        assert few or outcome.settled.share <= LIMIT, (outcome.settled, outcome.reasons, outcome.software)
    figure(f"{scenario.name}: TCP {outcome.tcp_megabits:.0f} Mb/s, {outcome.settled.in_software} of "
           f"{outcome.settled.packets} packets in software, with beginning and end {outcome.whole.in_software} of "
           f"{outcome.whole.packets}")


@pytest.mark.parametrize("scenario", LOCAL, ids=lambda scenario: scenario.name)
def test_on_one_hypervisor(ovn: OvnLab, scenario: Scenario) -> None:
    assert_in_the_nic(ovn, scenario)


@pytest.mark.parametrize(("settings", "scenario"),
                         [(settings, scenario) for settings in (GENEVE, VXLAN) for scenario in BETWEEN
                          if settings is GENEVE or "IPv6" not in scenario.name],
                         ids=lambda each: each.name if isinstance(each, Scenario) else each["ovn-encap-type"])
def test_between_hypervisors(ovn: OvnLab, settings: dict[str, str], scenario: Scenario) -> None:
    ovn.encapsulate(settings)
    assert_in_the_nic(ovn, scenario)


def test_a_tunnels_checksum_keeps_it_in_software(ovn: OvnLab) -> None:
    ovn.encapsulate({**GENEVE, "ovn-encap-csum": "true"})
    assert_in_software(ovn, BETWEEN[0], "tnl_push with an outer UDP checksum")
    ovn.encapsulate(GENEVE)


def test_a_gateway_does_not_turn_packets_round_in_the_nic(ovn: OvnLab) -> None:
    ovn.encapsulate(GENEVE)
    assert_in_software(ovn, FAR_GATEWAY, "output to the in_port")


@pytest.mark.parametrize("scenario", SOFTWARE, ids=lambda scenario: scenario.name)
def test_what_stays_in_software_works_and_says_why(ovn: OvnLab, scenario: Scenario) -> None:
    assert_in_software(ovn, scenario, WHY[scenario.name])


def assert_in_software(lab: OvnLab, scenario: Scenario, why: str) -> None:
    outcome = run(lab, replace(scenario, only_ping=True), TCP)
    assert outcome.answers == outcome.pings
    if lab.kind == "dr":
        assert any(why in reason for reason in outcome.reasons), outcome.reasons
    figure(f"{scenario.name}: {'; '.join(outcome.reasons)}")


def echo_requests(lab: OvnLab, source: str, target: str, address: str) -> list[IP]:
    """What `target` receives of ten pings; the NIC has the last of them."""
    guest = lab.guest(target)
    with guest.capture() as seen:
        result = ping(lab.namespace(source), address, count=10, interval=0.1)
        assert result.received == result.sent
        seen.settle()
    packets = [Ether(frame) for frame in seen.frames]
    return [packet[IP] for packet in packets if ICMP in packet and packet[ICMP].type == 8]


def test_packets_are_marked_and_routed(ovn: OvnLab) -> None:
    marked = echo_requests(ovn, "marked1", "marked2", "10.6.0.2")
    assert [packet.tos for packet in marked] == [46 << 2] * 10
    routed = echo_requests(ovn, "left1", "right1", "10.4.0.1")
    assert [packet.ttl for packet in routed] == [63] * 10


def test_a_localnet_has_its_tag_on_the_wire(ovn: OvnLab) -> None:
    uplink = ovn.hypervisors[0].uplink
    with uplink.capture() as seen:
        result = ping(ovn.namespace("tagged1"), "10.7.0.2", count=10, interval=0.1)
        assert result.received == result.sent
        seen.settle()
    tags = [packet[Dot1Q].vlan if Dot1Q in packet else None for packet in map(Ether, seen.frames) if ICMP in packet]
    assert tags == [TAG] * 10


def test_port_security_drops_what_is_forged(ovn: OvnLab) -> None:
    source, target = ovn.guest("secure1"), ovn.guest("secure2")
    forged = [udp_frame(mac, target.mac, address, target.address, b"forged" * 5)
              for mac, address in (("02:00:00:00:02:77", source.address), (source.mac, "10.2.0.77"))]
    honest = udp_frame(source.mac, target.mac, source.address, target.address, b"honest" * 5)
    with target.capture() as seen:
        for _ in range(20):
            send_frames(source.namespace, source.device, [*forged, honest])
            time.sleep(0.05)
        seen.settle()
    assert len(seen.matching(b"honest")) == 20
    assert not seen.matching(b"forged")
    if ovn.kind == "dr":
        drops = [flow for flow in stats.megaflows(ovn.hypervisors[0].switch)
                 if "in_port(secure1)" in flow.match and flow.actions == "drop"]
        assert drops and all(flow.offloaded == "yes" for flow in drops), drops
