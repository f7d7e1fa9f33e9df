"""Counts are exact: what was sent is what OpenFlow shows, whatever became of the megaflow in between."""

from __future__ import annotations

import time

from helpers import figure, stream, wait_counts, wait_offloaded
from lab import stats, traffic
from lab.command import wait_until
from lab.lab import BRIDGE, Lab

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
