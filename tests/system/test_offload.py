"""Traffic runs in the NIC when offload is on, in software when it is off.

How fast it is, and how much a receiver or the host could not keep up with, is for tools/demo to judge: here somebody
else may have the processor.
"""

from __future__ import annotations

import pytest
from helpers import figure, wait_offloaded
from lab import stats, traffic
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.workspace import Workspace

SLOW_PATH_LIMIT = 0.001
LOSS_LIMIT = 0.001


def counts(lab: Lab, guest: Guest) -> stats.PortCounts:
    return stats.port_counts(lab.switch, BRIDGE, guest.port)


def packets_in(lab: Lab) -> int:
    return sum(counts(lab, guest).received_packets for guest in lab.guests)


@pytest.mark.dr_only
@pytest.mark.parametrize("udp", [None, 260], ids=["tcp", "udp"])
def test_iperf_adds_at_most_a_thousandth_to_the_slow_path(normal_lab: Lab, udp: int | None) -> None:
    lab = normal_lab
    client, server = lab.guests[:2]
    before = (0, 0)
    client_before, server_before = counts(lab, client), counts(lab, server)
    resets_before = traffic.resets(client.namespace, server.namespace)

    def look() -> tuple[int, int]:
        return packets_in(lab), stats.slow_path(lab.switch).received

    def is_settled() -> bool:
        """On a busy host iperf3's first packets, and then their rules, may take longer than its first second."""
        nonlocal before
        earlier, before = before, look()
        return before[0] - earlier[0] > 100 and before[1] == earlier[1]

    def begin() -> None:
        nonlocal before
        before = look()
        wait_until(is_settled, 5, "iperf3's packets are the NIC's", interval=0.1)

    result = traffic.iperf(client.namespace, server.namespace, server.address, lab.workspace.folder, seconds=11,
                           udp_megabits=udp, after_first_second=begin)
    packets, slow = (after - then for after, then in zip(look(), before))
    resets = traffic.resets(client.namespace, server.namespace) - resets_before
    came, went = counts(lab, client), counts(lab, server)
    figure(f"{'UDP' if udp else 'TCP'} {result.megabits_per_second:.0f} Mb/s: {slow} of {packets} packets took the "
           f"slow path ({slow / packets:.4%}), {resets} of them RST; lost {result.lost}, "
           f"{came.dropped - client_before.dropped} of them before the switch, unread by the receiver {result.unread}")
    assert packets > 10000
    assert slow - resets <= SLOW_PATH_LIMIT * packets
    assert result.megabits_per_second > 0
    entered = came.received_packets - client_before.received_packets
    left = went.sent_packets - server_before.sent_packets
    assert left >= (1 - LOSS_LIMIT) * entered, f"of {entered} packets of the client's {left} went to the server"


@pytest.mark.dr_only
def test_dump_flows_shows_what_is_offloaded(normal_lab: Lab) -> None:
    lab = normal_lab
    first, second = lab.guests[:2]
    traffic.ping(first.namespace, second.address, count=10)
    wait_offloaded(lab, first)
    flows = stats.megaflows(lab.switch, kind="offloaded")
    assert flows
    assert {(flow.offloaded, flow.layer) for flow in flows} == {("yes", "dr")}
    for flow in flows:
        assert flow.match and "actions" in flow.text
        assert lab.switch.appctl("dr/explain", f"ufid:{flow.ufid}").strip()
    figure(f"{len(flows)} megaflows offloaded:yes, dp:dr")


def test_without_offload_all_goes_through_software(workspace: Workspace, lab_kind: str) -> None:
    lab = Lab(workspace, kind=lab_kind)
    lab.wire_all(vms=2, uplink=False)
    lab.fix_neighbours()
    lab.start(offload=False)
    first, second = lab.guests
    result = traffic.ping(first.namespace, second.address, count=100, interval=0.01)
    assert result.received == 100
    received = stats.slow_path(lab.switch).received
    assert received >= 200
    assert not stats.megaflows(lab.switch, kind="offloaded")
    figure(f"200 packets of 100 pings: the slow path received {received}")
