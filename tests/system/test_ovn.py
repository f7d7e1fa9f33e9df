"""OVN on two hypervisors: logical networks side by side, and who carries their packets. Figures: tests/system/ovn."""

from __future__ import annotations

import json
import time
from typing import Iterator

import pytest
from helpers import figure
from lab import stats
from lab.command import wait_until
from lab.ovn import OvnLab, missing_programs
from lab.traffic import ping, send_frames, udp_frame
from lab.workspace import Workspace
from ovn_networks import TAG
from ovn_scenarios import (BESIDE, BETWEEN, CHECKSUM, FAR_GATEWAY, FEATURES, GENEVE, GROUPS, LOCAL, SOFTWARE, VXLAN,
                           make_lab, prepared)
from ovn_traffic import LIMIT, Effort, Outcome, Scenario, run
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import Dot1Q, Ether

QUICK = Effort(seconds=1, udp_megabits=50, pings=4, together=True)

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


def run_quickly(lab: OvnLab, scenario: Scenario) -> Outcome:
    outcome = run(lab, scenario, QUICK)
    assert outcome.answers == outcome.pings
    if not scenario.only_ping:
        assert outcome.tcp_megabits > 5
        assert outcome.udp_megabits > 5
    figure(f"{scenario.name}: TCP {outcome.tcp_megabits:.0f} Mb/s, {outcome.settled_count}, with beginning and end "
           f"{outcome.whole_count}, {outcome.resets} of them RST")
    return outcome


def assert_in_the_nic(lab: OvnLab, scenario: Scenario) -> None:
    outcome = run_quickly(lab, scenario)
    if lab.kind == "dr":
        assert outcome.settled_count.packets >= QUICK.least
        assert outcome.settled_count.share <= LIMIT, (outcome.settled, outcome.reasons)
        assert not outcome.software


def assert_in_software(lab: OvnLab, scenario: Scenario) -> Outcome:
    """All of it that goes one way, and for exactly these reasons. TCP's acknowledgements may be the NIC's."""
    outcome = run_quickly(lab, scenario)
    if lab.kind == "dr":
        assert outcome.whole_count.share >= 0.5, outcome.whole
        assert outcome.causes == scenario.reasons
    return outcome


def named(scenario: object) -> str:
    return scenario.name if isinstance(scenario, Scenario) else ""


@pytest.mark.parametrize("scenario", LOCAL, ids=named)
def test_on_one_hypervisor(ovn: OvnLab, scenario: Scenario) -> None:
    assert_in_the_nic(ovn, scenario)


@pytest.mark.parametrize(("settings", "scenario"),
                         [(settings, scenario) for settings in (GENEVE, VXLAN) for scenario in BETWEEN
                          if settings is GENEVE or "IPv6" not in scenario.name],
                         ids=lambda each: each.name if isinstance(each, Scenario) else each["ovn-encap-type"])
def test_between_hypervisors(ovn: OvnLab, settings: dict[str, str], scenario: Scenario) -> None:
    ovn.encapsulate(settings)
    assert_in_the_nic(ovn, scenario)


# A standby's BFD has deadlines, which a busy machine misses: tests/system/ovn has it.
@pytest.mark.parametrize("scenario", [one for one in FEATURES if "BFD" not in one.name], ids=named)
def test_features_in_the_nic(ovn: OvnLab, scenario: Scenario) -> None:
    ovn.encapsulate(GENEVE)
    assert_in_the_nic(ovn, scenario)


@pytest.fixture
def beside_tracking(ovn: OvnLab) -> Iterator[OvnLab]:
    """SNAT, a floating IP, a load balancer and stateful ACLs on the router and switches beside."""
    with prepared(ovn, next(group for group in GROUPS if group.scenarios is BESIDE)):
        yield ovn


@pytest.mark.parametrize("scenario", BESIDE, ids=named)
def test_others_connection_tracking_turns_nothing_off(beside_tracking: OvnLab, scenario: Scenario) -> None:
    if scenario.offloaded:
        assert_in_the_nic(beside_tracking, scenario)
    else:
        assert_in_software(beside_tracking, scenario)


def test_a_tunnels_checksum_keeps_it_in_software(ovn: OvnLab) -> None:
    ovn.encapsulate({**GENEVE, "ovn-encap-csum": "true"})
    assert_in_software(ovn, CHECKSUM)
    ovn.encapsulate(GENEVE)


def test_a_gateway_does_not_turn_packets_round_in_the_nic(ovn: OvnLab) -> None:
    """The gateway's uplink is where they come from and where they go; on the VM's hypervisor the NIC has them."""
    ovn.encapsulate(GENEVE)
    outcome = assert_in_software(ovn, FAR_GATEWAY)
    if ovn.kind == "dr":
        [settled] = outcome.settled
        assert outcome.whole["hv1"].share >= 0.99
        assert settled["hv2"].packets >= QUICK.least
        assert settled["hv2"].share <= LIMIT, settled


@pytest.mark.parametrize("scenario", SOFTWARE, ids=named)
def test_what_stays_in_software_works_and_says_why(ovn: OvnLab, scenario: Scenario) -> None:
    ovn.encapsulate(GENEVE)
    assert_in_software(ovn, scenario)


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


def test_a_logged_acl_is_logged_and_its_meter_limits_the_log(ovn: OvnLab) -> None:
    """All packets pass, in the NIC. As with stock OVS, its megaflow has only the log's lines metered; by the NIC, so
    that what exceeds the rate does not come up."""
    scenario = next(one for one in LOCAL if one.name == "ACL with a log")
    log = ovn.hypervisors[0].switch.folder / "ovn-controller.log"

    def lines() -> int:
        return log.read_text(errors="replace").count("|acl_log(")

    ovn.configure(scenario.commands)
    before, copies_before = lines(), copies_of(ovn)
    start = time.monotonic()
    result = ping(ovn.namespace(scenario.source), scenario.address, count=100, interval=0.01)
    seconds = time.monotonic() - start
    wait_until(lambda: lines() >= before + 10, 10, "a burst of the log's lines")
    copies = copies_of(ovn) - copies_before
    ovn.configure(scenario.undo)
    logged = lines() - before
    figure(f"a log at 10 lines a second: {logged} lines of {result.sent} packets in {seconds:.1f} s; {copies} copies")
    assert result.received == result.sent
    assert logged <= 10 + 10 * (seconds + 1)
    assert copies <= logged


def copies_of(ovn: OvnLab) -> int:
    """That came up on the hypervisor."""
    if ovn.kind != "dr":
        return 0
    devices = json.loads(ovn.hypervisors[0].switch.appctl("dr/copies", "-j"))["devices"]
    return sum(device["copies"] for device in devices)


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
