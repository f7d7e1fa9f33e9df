"""OpenFlow meters in the NIC: what passes, what is counted, and what happens when a meter changes or goes."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import pytest
from helpers import assert_alive, figure, is_offloaded, stream, wait_offloaded
from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import stream_number

pytestmark = pytest.mark.dr_only

OFCTL = ("-O", "OpenFlow13")
RATE, SIZE = 3000, 1000     # a stream: 24,000 kbit/s

KINDS = {
    # A meter, and how many of the stream's frames it lets pass at once and each second.
    "kbps": ("kbps,burst,bands=type=drop,rate=4000,burst_size=800", 100, 500),
    "pktps": ("pktps,burst,bands=type=drop,rate=600,burst_size=100", 100, 600),
    "its default burst": ("pktps,bands=type=drop,rate=400", 400, 400),
}


def add_meter(lab: Lab, number: int, text: str, command: str = "add-meter") -> None:
    lab.switch.ofctl(*OFCTL, command, BRIDGE, f"meter={number},{text}")


def add_flows(lab: Lab, flows: list[str]) -> None:
    for flow in flows:
        lab.switch.ofctl(*OFCTL, "add-flow", BRIDGE, flow)


@dataclass(frozen=True)
class Counted:
    packets: int
    bytes: int
    dropped_packets: int
    dropped_bytes: int


def counted(lab: Lab, number: int) -> Counted:
    text = lab.switch.ofctl(*OFCTL, "meter-stats", BRIDGE, f"meter={number}")
    found = re.search(r"packet_in_count:(\d+) byte_in_count:(\d+).*?0: packet_count:(\d+) byte_count:(\d+)", text,
                      re.DOTALL)
    assert found, text
    return Counted(*(int(group) for group in found.groups()))


def in_software(lab: Lab, guest: Guest) -> list[str]:
    """Of megaflows from the guest, why they stay in software; nothing of one that has just come."""
    return [lab.switch.appctl("dr/explain", f"ufid:{flow.ufid}", check=False) for flow in stats.megaflows(lab.switch)
            if f"in_port({guest.port})" in flow.match]


@pytest.mark.parametrize("kind", KINDS)
def test_a_metered_flow_keeps_its_rate_and_is_counted_to_the_packet(lab: Lab, kind: str) -> None:
    meter, burst, rate = KINDS[kind]
    first, second = lab.guests[:2]
    add_meter(lab, 1, meter)
    add_flows(lab, ["in_port=1,actions=meter:1,output:2"])
    with second.capture() as seen, stream(first, second, rate=RATE, size=SIZE) as sender:
        start = time.monotonic()
        wait_offloaded(lab, first)
        time.sleep(4)
        sent = sender.stop()
        elapsed = time.monotonic() - start
        seen.settle()
    arrived = sum(stream_number(frame) is not None for frame in seen.frames)
    figure(f"{kind}: {arrived} of {sent} frames passed in {elapsed:.2f} s, a burst of {burst}, {rate} a second")
    # Software's meter was full as well, and let pass what came before the NIC had the megaflow.
    assert arrived <= 2 * burst + 1.004 * rate * (elapsed + 0.4) + 2
    assert arrived >= min(sent, burst + 0.9 * rate * (elapsed - 1))
    wait_until(lambda: counted(lab, 1).packets == sent, 3, f"{sent} packets are counted")
    assert counted(lab, 1) == Counted(sent, sent * SIZE, sent - arrived, (sent - arrived) * SIZE)
    wait_until(lambda: stats.openflow_counts(lab.switch, BRIDGE, "in_port=1") == (sent, sent * SIZE), 8,
               "the flow has counted what it matched")
    assert_alive(lab)


def test_flows_share_one_meter(lab: Lab) -> None:
    first, second, third = lab.guests[:3]
    add_meter(lab, 1, "pktps,burst,bands=type=drop,rate=500,burst_size=100")
    add_flows(lab, ["in_port=1,actions=meter:1,output:2", "in_port=3,actions=meter:1,push_vlan:0x8100,output:2"])
    with second.capture() as seen, stream(first, second, rate=RATE) as one, stream(third, second, rate=RATE) as other:
        wait_offloaded(lab, first)
        wait_offloaded(lab, third)
        start, before = time.monotonic(), len(seen.frames)
        time.sleep(3)
        elapsed, arrived = time.monotonic() - start, len(seen.frames) - before
        sent = one.stop() + other.stop()
        seen.settle()
    figure(f"two flows: {arrived} frames passed in {elapsed:.2f} s at 500 a second")
    assert 500 * 0.9 * elapsed <= arrived <= 100 + 500 * 1.01 * elapsed + 100
    wait_until(lambda: counted(lab, 1).packets == sent, 3, f"{sent} packets are counted")


def test_a_meter_is_changed_and_deleted_under_traffic(lab: Lab) -> None:
    first, second = lab.guests[:2]
    add_meter(lab, 1, "pktps,burst,bands=type=drop,rate=300,burst_size=50")
    add_flows(lab, ["in_port=1,actions=meter:1,output:2"])
    with second.capture() as seen, stream(first, second, rate=RATE):
        wait_offloaded(lab, first)
        time.sleep(1)
        add_meter(lab, 1, "pktps,burst,bands=type=drop,rate=600,burst_size=50", "mod-meter")
        assert counted(lab, 1).packets < RATE, "its statistics begin anew"
        time.sleep(1.5)
        add_meter(lab, 1, "pktps,burst,bands=type=drop,rate=200,burst_size=50", "mod-meter")
        time.sleep(1.5)
        times = [moment for moment, frame in zip(list(seen.times), list(seen.frames))
                 if stream_number(frame) is not None]
        for moment in times:
            within = sum(moment <= other < moment + 1 for other in times)
            assert within <= 600 * 1.01 + 4 * 50 + 2, f"{within} frames in a second"
        lab.switch.ofctl(*OFCTL, "del-meters", BRIDGE)   # the flow goes with it
        time.sleep(1)
        seen.settle()
        before = len(seen.frames)
        time.sleep(0.5)
        assert len(seen.frames) == before, "nothing passes without the flow"
        assert "meter" not in " ".join(flow.actions for flow in stats.megaflows(lab.switch))
    assert_alive(lab)


def test_what_the_nic_cannot_do_stays_in_software_and_comes_back(lab: Lab) -> None:
    first, second = lab.guests[:2]
    add_meter(lab, 1, "pktps,bands=type=drop,rate=300 type=drop,rate=500")
    add_flows(lab, ["in_port=1,actions=meter:1,output:2"])
    with second.capture(), stream(first, second, rate=500):
        wait_until(lambda: any("a meter with several bands: 2" in text for text in in_software(lab, first)), 5,
                   "the reason is told")
        assert not is_offloaded(lab, first)
        add_meter(lab, 1, "pktps,bands=type=drop,rate=300", "mod-meter")
        wait_offloaded(lab, first)
        assert any("meter 0" in text for text in in_software(lab, first)), in_software(lab, first)
        add_meter(lab, 1, "kbps,burst,bands=type=drop,rate=8,burst_size=8", "mod-meter")
        wait_until(lambda: any("burst shorter than a packet" in text for text in in_software(lab, first)), 5,
                   "the reason is told")
        assert not is_offloaded(lab, first)
    assert_alive(lab)


def test_software_and_the_nic_do_not_give_the_rate_twice(lab: Lab) -> None:
    """Two flows of one meter, of which the NIC can have one only: the other's connections are tracked."""
    first, second, third = lab.guests[:3]
    rate, burst = 500, 50
    add_meter(lab, 1, f"pktps,burst,bands=type=drop,rate={rate},burst_size={burst}")
    add_flows(lab, ["in_port=1,actions=meter:1,output:2", "in_port=3,udp,actions=meter:1,ct(commit),output:2"])
    with second.capture() as seen, stream(first, second, rate=2000), stream(third, second, rate=2000):
        wait_offloaded(lab, first)
        time.sleep(1.5)
        assert is_offloaded(lab, first) and not is_offloaded(lab, third)
        start, before = time.monotonic(), len(seen.frames)
        time.sleep(4)
        elapsed, arrived = time.monotonic() - start, len(seen.frames) - before
    figure(f"software and NIC: {arrived} frames passed in {elapsed:.2f} s at {rate} a second")
    assert arrived <= rate * 1.01 * elapsed + 2 * burst + rate * 0.6, "twice the rate"
    assert arrived >= rate * 0.8 * elapsed
