"""OpenFlow meters in the NIC: what passes, what is counted, and what happens when a meter changes or goes."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers import assert_alive, figure, is_offloaded, stream, wait_offloaded
from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import stream_number
from lab.workspace import Workspace
from test_tunnel_ports import KINDS as TUNNELS
from test_tunnel_ports import add_tunnel, deliver, inner_frames, outside, send, warm_up
from test_tunnels import INTEGRATION, make_tunnelled

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


def make_lab(workspace: Workspace, *, profile: str = "connectx-6dx", workers: int = 1) -> Lab:
    made = Lab(workspace, profile=profile, workers=workers)
    made.wire_all(vms=3)
    made.fix_neighbours()
    made.start(offload=True, fail_mode="secure")
    return made


@pytest.fixture
def connectx5_lab(workspace: Workspace) -> Lab:
    return make_lab(workspace, profile="connectx-5")


@pytest.mark.parametrize("kind", KINDS)
def test_a_metered_flow_keeps_its_rate_and_is_counted_to_the_packet(lab: Lab, kind: str) -> None:
    keeps_its_rate(lab, kind)


def test_a_connectx5_keeps_a_rate_in_kilobits(connectx5_lab: Lab) -> None:
    keeps_its_rate(connectx5_lab, "kbps")
    assert "a legacy meter; 1 megaflows" in connectx5_lab.switch.appctl("dr/show")


def test_a_connectx5_leaves_what_it_cannot_meter_to_software(connectx5_lab: Lab) -> None:
    first, second = connectx5_lab.guests[:2]
    add_meter(connectx5_lab, 1, "pktps,burst,bands=type=drop,rate=300,burst_size=50")
    add_meter(connectx5_lab, 2, KINDS["kbps"][0])
    add_flows(connectx5_lab, ["in_port=1,actions=meter:1,output:2"])
    with second.capture(), stream(first, second, rate=200):
        wait_until(lambda: any("a meter by packets" in text for text in in_software(connectx5_lab, first)), 5,
                   "the reason is told")
        assert "meter 0: in software: a meter by packets" in connectx5_lab.switch.appctl("dr/show")
        add_flows(connectx5_lab, ["in_port=1,actions=meter:2,output:2"])
        wait_until(lambda: is_offloaded(connectx5_lab, first), 5, "the other meter is in the NIC")


def keeps_its_rate(lab: Lab, kind: str) -> None:
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


@pytest.mark.parametrize("workers", [1, 2])
def test_flows_share_one_meter(workspace: Workspace, workers: int) -> None:
    """With two workers, of which each has one of the flows."""
    lab = make_lab(workspace, workers=workers)
    first, second, third = lab.guests[:3]
    add_meter(lab, 1, "pktps,burst,bands=type=drop,rate=500,burst_size=100")
    add_flows(lab, ["in_port=1,actions=meter:1,output:2", "in_port=3,actions=meter:1,push_vlan:0x8100,output:2"])
    with second.capture() as seen, stream(first, second, rate=RATE) as one, stream(third, second, rate=RATE) as other:
        wait_offloaded(lab, first)
        wait_offloaded(lab, third)
        time.sleep(0.6)   # what software let pass is paid
        start, before = time.monotonic(), len(seen.frames)
        time.sleep(3)
        elapsed, arrived = time.monotonic() - start, len(seen.frames) - before
        sent = one.stop() + other.stop()
        seen.settle()
    figure(f"two flows, {workers} workers: {arrived} frames passed in {elapsed:.2f} s at 500 a second")
    assert 500 * 0.9 * elapsed <= arrived <= 100 + 500 * 1.01 * elapsed + 100
    wait_until(lambda: counted(lab, 1).packets == sent, 3, f"{sent} packets are counted")
    came = sum(stream_number(frame) is not None for frame in seen.frames)
    assert counted(lab, 1).dropped_packets == sent - came


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


def test_two_devices_share_a_rate_and_neither_stands_still(workspace: Workspace) -> None:
    """Each looks at what the other has let pass: they could stop together and begin together."""
    lab = Lab(workspace)
    first, second, third, fourth = (lab.wire(f"vm{number}", number) for number in range(1, 5))
    lab.fix_neighbours()
    lab.nic.more_devices = [{"name": "mlx5_1", "ports": lab.nic.ports[2:]}]
    del lab.nic.ports[2:], lab.wires[2:]
    lab.start(fail_mode="secure")
    for number, guest in enumerate((third, fourth), 3):
        lab.switch.vsctl("add-port", BRIDGE, guest.port, "--", "set", "interface", guest.port, "type=dr",
                         "options:device=mlx5_1", f"options:vport={guest.vport}", f"ofport_request={number}")
    rate, offered, look = 600, 1200, 0.1
    add_meter(lab, 1, f"pktps,burst,bands=type=drop,rate={rate},burst_size=60")
    add_flows(lab, ["in_port=1,actions=meter:1,output:2", "in_port=3,actions=meter:1,output:4"])
    with second.capture() as here, fourth.capture() as there, \
            stream(first, second, rate=offered, size=SIZE) as one, \
            stream(third, fourth, rate=offered, size=SIZE) as two:
        wait_offloaded(lab, first)
        wait_offloaded(lab, third)
        time.sleep(2)
        looks = []
        for _ in range(60):
            looks.append((time.monotonic(), one.sent, len(here.frames), two.sent, len(there.frames)))
            time.sleep(look)
    steps = [tuple(after - before for before, after in zip(*pair)) for pair in zip(looks, looks[1:])]
    passed = [sum(looks[-1][place] - looks[0][place] for place in (2, 4)), looks[-1][0] - looks[0][0]]
    # Of a moment in which a busy host has sent little nothing can be said.
    sent = [(step[place], step[place + 1]) for step in steps for place in (1, 3) if step[place] > offered * look / 2]
    still = sum(arrived < rate / 2 * look / 4 for _, arrived in sent)
    figure(f"two devices: {passed[0]} frames passed in {passed[1]:.1f} s at {rate} a second; in {still} of {len(sent)} "
           f"looks a device let less than a quarter of its part pass")
    assert passed[0] <= 1.1 * rate * passed[1] + 60
    assert passed[0] >= 0.8 * rate * passed[1]
    assert still <= len(sent) / 8
    assert_alive(lab)


def test_of_a_tunnels_packets_the_frames_inside_are_metered(workspace: Workspace) -> None:
    """A bucket of 100 kilobits holds 125 of them, and 83 of the packets around them."""
    lab, kind = make_tunnelled(workspace, "dr"), TUNNELS["vxlan"]
    target = lab.guests[0]
    port = add_tunnel(lab, kind)
    lab.switch.ofctl(*OFCTL, "add-meter", INTEGRATION, "meter=1,kbps,burst,stats,bands=type=drop,rate=1,burst_size=100")
    deliver(lab, port)
    lab.switch.ofctl(*OFCTL, "mod-flows", INTEGRATION, f"in_port={port},actions=meter:1,output:{lab.ofport(target)}")
    frames = inner_frames(target, [58] * 400)
    assert {len(frame) for frame in frames} == {100}
    with target.capture() as seen:
        start = time.monotonic()
        warm_up(lab, kind, frames[0])
        send(lab, [outside(lab, kind, frame) for frame in frames[1:]])
        seen.settle()
        seconds = time.monotonic() - start
    arrived = sum(frame in set(frames) for frame in seen.frames)
    assert stats.slow_path(lab.switch).received < 20
    figure(f"{arrived} of {len(frames)} frames of a tunnel passed in {seconds:.1f} s")
    # The encoding's 0.4 % and one more; what came by software; a frame and a quarter a second.
    assert 124 <= arrived <= 127 + 20 + 1.25 * seconds

    def counts() -> str:
        return lab.switch.ofctl(*OFCTL, "meter-stats", INTEGRATION, "meter=1")

    dropped = len(frames) - arrived
    expected = [f"packet_in_count:{len(frames)} byte_in_count:{100 * len(frames)}",
                f"packet_count:{dropped} byte_count:{100 * dropped}"]
    wait_until(lambda: all(part in counts() for part in expected), 5, "the meter has counted the frames inside")
    assert_alive(lab)


def test_a_device_without_room_leaves_metering_to_software(lab: Lab) -> None:
    first, second = lab.guests[:2]
    rate, burst = 400, 50
    taken = json.loads(lab.nic.drnic("limits", "--json"))["devices"][0]["limits"]["tables"]["taken"]
    lab.nic.drnic("limits", f"tables={taken}")   # the table by colour is one more
    add_meter(lab, 1, f"pktps,burst,bands=type=drop,rate={rate},burst_size={burst}")
    add_flows(lab, ["in_port=1,actions=meter:1,output:2"])
    with second.capture() as seen, stream(first, second, rate=2000, size=SIZE) as sender:
        start = time.monotonic()
        wait_until(lambda: any("mlx5dv_dr_table_create" in text for text in in_software(lab, first)), 5,
                   "dr/explain tells what the device said")
        time.sleep(3)
        assert not is_offloaded(lab, first)
        elapsed, arrived = time.monotonic() - start, sum(stream_number(frame) is not None for frame in seen.frames)
        assert rate * 0.8 * (elapsed - 1) <= arrived <= burst + rate * 1.01 * elapsed + rate * 0.2
        assert "0 megaflows" in lab.switch.appctl("dr/show")
        lab.nic.drnic("limits", "tables=none")
        wait_until(lambda: is_offloaded(lab, first), 10, "it is in the NIC when there is room")
        sent = sender.stop()
    figure(f"{arrived} frames passed in {elapsed:.2f} s in software at {rate} a second")
    wait_until(lambda: counted(lab, 1).packets == sent, 3, f"{sent} packets are counted")
    assert_alive(lab)


def test_an_idle_switch_with_a_meter_sleeps(lab: Lab) -> None:
    """While no megaflow uses a meter nobody asks what has been counted."""
    first, second = lab.guests[:2]
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=500")
    seconds = 4.0

    def wakes() -> int:
        assert lab.switch.daemon is not None
        status = Path(f"/proc/{lab.switch.daemon.pid}/status").read_text()
        found = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.MULTILINE)
        assert found, status
        return int(found.group(1))

    def of_the_main_thread() -> int:
        before = wakes()
        time.sleep(seconds)
        return wakes() - before

    idle = of_the_main_thread()
    add_meter(lab, 1, KINDS["pktps"][0])
    add_flows(lab, ["in_port=1,actions=meter:1,output:2"])
    with second.capture(), stream(first, second, rate=500):
        wait_offloaded(lab, first)
        metering = of_the_main_thread()
    wait_until(lambda: not is_offloaded(lab, first), 10, "the megaflow idles out")
    assert "0 megaflows" in lab.switch.appctl("dr/show")
    # Whatever else wakes it now and then only adds to that.
    most = idle + 0.5 * 5 * seconds
    for _ in range(4):
        after = of_the_main_thread()
        if after <= most:
            break
    figure(f"the main thread slept {idle} times in {seconds:g} s without a meter, {metering} with metered packets, "
           f"{after} when they had ended")
    assert after <= most, "it is woken five times a second"
    # It wakes when the megaflow comes again.
    with second.capture(), stream(first, second, rate=500):
        wait_offloaded(lab, first)
        assert "1 megaflows" in lab.switch.appctl("dr/show")
        again = of_the_main_thread()
    figure(f"and {again} times when they had come again")
    assert again > after + 5
    assert_alive(lab)
