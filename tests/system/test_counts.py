"""Counts are exact: what was sent is what OpenFlow shows, whatever became of the megaflow in between."""

from __future__ import annotations

import time

import pytest
from helpers import ROUNDS, figure, stream, wait_counts, wait_offloaded
from lab import stats, traffic
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.workspace import Workspace

PING_SIZE = 98   # 14 Ethernet, 20 IPv4, 8 ICMP, 56 payload


def test_pings_are_counted_exactly(lab: Lab) -> None:
    first, second = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["in_port=1,icmp,actions=output:2", "in_port=2,icmp,actions=output:1"])
    result = traffic.ping(first.namespace, second.address, count=50, interval=0.01)
    assert result.received == 50
    for port in (1, 2):
        wait_counts(lab, f"in_port={port},icmp", 50, 50 * PING_SIZE)
    figure("50 pings: 50 packets each way")


def test_generated_frames_are_counted_exactly(lab: Lab) -> None:
    first, second = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output:2"])
    with second.capture() as seen, stream(first, second, rate=5000, size=256, limit=10000) as sender:
        sender.join()
        seen.settle()
    numbers = [traffic.stream_number(frame) for frame in seen.frames]
    assert sorted(number for number in numbers if number is not None) == list(range(10000))
    wait_counts(lab, "in_port=1,udp", 10000, 10000 * 256)
    figure("10000 frames of 256 bytes: 10000 arrived, 10000 counted")


def test_counts_survive_an_idle_timeout(lab: Lab) -> None:
    first, second = lab.guests[:2]
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=1000")
    lab.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output:2"])
    total = 0
    for _ in range(2):
        with stream(first, second, rate=2000, limit=1000) as sender:
            wait_offloaded(lab, first)
            total += sender.join()
        wait_until(lambda: not stats.megaflows(lab.switch), 10, "the megaflow idles out")
        wait_counts(lab, "in_port=1,udp", total, total * 100)
    figure(f"{total} frames in two bursts with the megaflow gone in between: {total} counted")


def test_counts_survive_modifications_while_hit(lab: Lab) -> None:
    first, second, third = lab.guests[:3]
    lab.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output:2"])
    with second.capture() as at_second, third.capture() as at_third:
        with stream(first, second, rate=2000) as sender:
            wait_offloaded(lab, first)
            for turn in range(6):
                time.sleep(0.5)
                lab.switch.ofctl("mod-flows", BRIDGE, f"in_port=1,udp,actions=output:{2 + (turn + 1) % 2}")
            time.sleep(0.5)
        at_second.settle()
        at_third.settle()
        numbers = [traffic.stream_number(frame) for frame in at_second.frames + at_third.frames]
    assert sorted(number for number in numbers if number is not None) == list(range(sender.sent))
    wait_counts(lab, "in_port=1,udp", sender.sent, sender.sent * 100)
    figure(f"{sender.sent} frames under 6 mod-flows: all arrived once, {sender.sent} counted")


def test_counts_survive_megaflows_that_the_revalidator_replaces(lab: Lab) -> None:
    """A rule of higher priority with another match comes and goes: the megaflow's mask is wrong each time, and the
    revalidator deletes it while it is hit."""
    first, second = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["priority=1,in_port=1,udp,actions=output:2"])
    narrow = "priority=9,in_port=1,udp,nw_src=10.1.2.3,tp_src=9"
    with second.capture() as seen:
        with stream(first, second, rate=2000) as sender:
            wait_offloaded(lab, first)
            for _ in range(4):
                lab.switch.ofctl("add-flow", BRIDGE, f"{narrow},actions=drop")
                time.sleep(0.7)
                lab.switch.ofctl("--strict", "del-flows", BRIDGE, narrow)
                time.sleep(0.7)
        seen.settle()
        numbers = [traffic.stream_number(frame) for frame in seen.frames]
    assert sorted(number for number in numbers if number is not None) == list(range(sender.sent))
    wait_counts(lab, "in_port=1,udp", sender.sent, sender.sent * 100)
    figure(f"{sender.sent} frames under 8 changes of the mask: all arrived once, {sender.sent} counted")


def test_dropped_frames_are_counted_exactly(lab: Lab) -> None:
    first, second = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=drop"])
    with second.capture() as seen, stream(first, second, rate=3000, limit=3000) as sender:
        sender.join()
        seen.settle()
    assert not [frame for frame in seen.frames if traffic.stream_number(frame) is not None]
    wait_counts(lab, "in_port=1,udp", 3000, 300000)
    figure("3000 frames dropped, 3000 counted, none arrived")


def assert_port_goes_with_exact_counts(lab: Lab, leaving: Guest, *, packets: int) -> float:
    """From the first guest to the second: `packets` frames, all arrived, and at once a port goes. Seconds that took."""
    first, second = lab.guests[:2]
    lab.switch.ofctl("del-flows", BRIDGE)
    lab.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output:2"])
    time.sleep(ROUNDS)   # megaflows of the round before are gone
    with second.capture() as seen:
        with stream(first, second, rate=5000, limit=packets) as sender:
            sender.join()
        wait_until(lambda: len(seen.frames) >= packets, 5, "all frames arrived")
        begin = time.monotonic()
        lab.switch.vsctl("del-port", BRIDGE, leaving.port)
        took = time.monotonic() - begin
    time.sleep(ROUNDS)
    assert stats.openflow_counts(lab.switch, BRIDGE, "in_port=1,udp") == (packets, packets * 100)
    lab.add_port(leaving)
    return took


@pytest.mark.parametrize("leaves", ["source", "target"])
def test_counts_survive_a_port_that_goes(lab: Lab, leaves: str) -> None:
    """Before the revalidators' first look at the flow (they look twice a second), and after some."""
    leaving = lab.guests[0 if leaves == "source" else 1]
    sizes = (100, 300, 1000, 1700, 3000, 7000)
    longest = max(assert_port_goes_with_exact_counts(lab, leaving, packets=packets) for packets in sizes)
    figure(f"del-port of the {leaves} right after {', '.join(map(str, sizes))} frames: all counted; del-port took "
           f"{longest * 1000:.0f} ms at most")


@pytest.mark.dr_only
def test_counts_survive_a_source_that_moves_to_another_device(workspace: Workspace) -> None:
    lab = Lab(workspace)
    first, second = lab.wire("vm1", 1), lab.wire("vm2", 2)
    lab.nic.more_devices = [{"name": "mlx5_1", "ports": [{"vport": 1, "dpdk": "net_null", "name": "elsewhere"}]}]
    lab.fix_neighbours()
    lab.start(fail_mode="secure")
    lab.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output:2"])
    with second.capture() as seen:
        with stream(first, second, rate=5000, limit=2000) as sender:
            sender.join()
        wait_until(lambda: len(seen.frames) >= 2000, 5, "all frames arrived")
        lab.switch.vsctl("set", "interface", first.port, "options:device=mlx5_1")
    time.sleep(ROUNDS)
    assert "device=mlx5_1 vport=1" in lab.switch.appctl("dr/ports")
    assert stats.openflow_counts(lab.switch, BRIDGE, "in_port=1,udp") == (2000, 200000)
    figure("a port moved to another device right after 2000 frames: all counted")


def test_counts_survive_a_source_that_goes_under_load(lab: Lab) -> None:
    """What the target got is what OpenFlow counted."""
    first, second = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output:2"])
    with second.capture() as seen:
        with stream(first, second, rate=5000):
            wait_offloaded(lab, first)
            time.sleep(0.7)
            lab.switch.vsctl("del-port", BRIDGE, first.port)
            time.sleep(0.3)
        seen.settle()
        arrived = len(seen.matching(b"ovs-dr stream"))
    time.sleep(ROUNDS)
    assert stats.openflow_counts(lab.switch, BRIDGE, "in_port=1,udp") == (arrived, arrived * 100)
    figure(f"del-port of a source that sends: {arrived} frames arrived, {arrived} counted")
