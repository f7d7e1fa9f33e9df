"""Ports that are plain functions, without rights on an eSwitch (docs/nic-mode.md). Each guest is on a device of its
own."""

from __future__ import annotations

import errno
import json
import re
import threading
from dataclasses import dataclass
from typing import Iterator

import pytest
from helpers import assert_alive, assert_reaches, figure, stream, wait_counts
from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.softnic import DEVICE, UPLINK
from lab.traffic import iperf, ping, send_frames, udp_frame
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

PATIENCE = 20.0   # for a state that comes by itself
VLAN = 7


def device_of(wire: Guest) -> str:
    return f"mlx5_{wire.vport}"


class FunctionLab(Lab):
    """Each guest's port is the only function of a device."""

    vlan = 0   # of each port, outside

    def plug(self, guest: Guest, addressed: bool = True) -> Guest:
        super().plug(guest, addressed)
        port = {**self.nic.ports.pop(), "vport": UPLINK}
        self.nic.more_devices.append({"name": device_of(guest), "eswitch": False, "ports": [port]})
        return guest

    def interface_settings(self, guest: Guest) -> list[str]:   # type: ignore[override]
        tag = [f"options:vlan={self.vlan}"] if self.vlan else []
        return ["type=dr", f"options:device={device_of(guest)}", *tag]


@pytest.fixture
def functions(workspace: Workspace) -> Iterator[FunctionLab]:
    lab = FunctionLab(workspace)
    lab.wire_all(vms=2, uplink=False)
    lab.fix_neighbours()
    lab.start(fail_mode="secure")
    yield lab
    assert_alive(lab)
    assert json.loads(lab.switch.appctl("dr/show", "--json"))["leaked_objects"] == 0


@dataclass(frozen=True)
class Done:
    """What a function's NIC_RX and NIC_TX have done, as dr/show says it."""

    dropped: int
    marked: int
    sent_up: int
    received_down: int
    sent: int
    sent_down: int


def done(lab: Lab, guest: Guest) -> Done:
    shown = {device["device"]: device for device in json.loads(lab.switch.appctl("dr/show", "-j"))["devices"]}
    text = shown[device_of(guest)]["tables"]
    assert "NIC_RX level 0" in text and "NIC_TX level 0" in text
    received = re.search(r"NIC_RX: (\d+) packets dropped by megaflows, (\d+) marked, (\d+) sent up, "
                         r"(\d+) dropped while", text)
    sent = re.search(r"NIC_TX: (\d+) packets sent, (\d+) dropped while down", text)
    assert received and sent, text
    return Done(*map(int, (*received.groups(), *sent.groups())))


def phwol_hits(lab: Lab) -> int:
    return sum(map(int, re.findall(r"phwol hits: (\d+)", lab.switch.appctl("dpif-netdev/pmd-stats-show"))))


def kinds_of(lab: Lab, guest: Guest) -> set[tuple[str, str]]:
    return {(flow.offloaded, flow.layer) for flow in stats.megaflows(lab.switch)
            if f"in_port({guest.port})" in flow.match}


def wait_kind(lab: Lab, guest: Guest, kind: tuple[str, str]) -> None:
    wait_until(lambda: kind in kinds_of(lab, guest), PATIENCE, f"a megaflow of {guest.name} is {kind}")


PARTIAL, WHOLE = ("partial", "ovs"), ("yes", "dr")
BOTH_WAYS = ["in_port=1,actions=output:2", "in_port=2,actions=output:1"]


def test_packets_come_up_with_their_megaflows_mark(functions: FunctionLab) -> None:
    """OVS classifies none of them, counts them itself, and does what their flow says, also after that has changed."""
    lab, (first, second) = functions, functions.guests
    lab.switch.add_flows(BRIDGE, BOTH_WAYS)
    assert_reaches(first, second)
    with stream(first, second, rate=300) as traffic:
        wait_kind(lab, first, PARTIAL)
        before, hits = done(lab, first), phwol_hits(lab)
        wait_until(lambda: done(lab, first).marked >= before.marked + 100, PATIENCE, "100 packets are marked")
        wait_until(lambda: phwol_hits(lab) >= hits + 100, PATIENCE, "OVS takes the marks")
        lab.switch.ofctl("mod-flows", BRIDGE, "in_port=1,actions=mod_vlan_vid:5,output:2")
        with second.capture() as seen:
            wait_until(lambda: any(frame[12:16] == b"\x81\x00\x00\x05" for frame in list(seen.frames)), PATIENCE,
                       "the new actions are done to marked packets")
    sent = traffic.sent
    wait_until(lambda: stats.openflow_counts(lab.switch, BRIDGE, "in_port=1")[0] >= sent, PATIENCE, "all are counted")
    in_nic = done(lab, first)
    figure(f"NIC_RX of {first.name}: {in_nic.marked} of {in_nic.sent_up} packets marked; "
           f"NIC_TX of {second.name}: {done(lab, second).sent} sent")
    assert in_nic.dropped == 0


def test_iperf_and_what_the_domains_did_per_packet(functions: FunctionLab, workspace: Workspace) -> None:
    lab, (first, second) = functions, functions.guests
    lab.switch.add_flows(BRIDGE, BOTH_WAYS)
    assert_reaches(first, second)
    up = {guest.name: done(lab, guest) for guest in lab.guests}
    ports = {guest.name: stats.port_counts(lab.switch, BRIDGE, guest.port) for guest in lab.guests}
    hits = phwol_hits(lab)
    result = iperf(first.namespace, second.namespace, second.address, workspace.folder, seconds=3)
    lines = []
    for guest in lab.guests:
        before, after = up[guest.name], done(lab, guest)
        port = stats.port_counts(lab.switch, BRIDGE, guest.port)
        received = after.sent_up - before.sent_up
        marked = after.marked - before.marked
        assert after.sent - before.sent == port.sent_packets - ports[guest.name].sent_packets
        assert marked > received * 0.8, "all but the first packets and the last have a mark"
        lines.append(f"{guest.name}: NIC_RX marked {marked} of {received}, NIC_TX sent {after.sent - before.sent}")
    figure(f"iperf3 {result.megabits_per_second:.0f} Mb/s; {'; '.join(lines)}; "
           f"marks that OVS took {phwol_hits(lab) - hits}")
    assert result.megabits_per_second > 0


def test_a_drop_is_whole_in_the_nic_and_exact(functions: FunctionLab) -> None:
    lab, (first, second) = functions, functions.guests
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=drop", "in_port=2,actions=output:1"])
    limit, size = 400, 100
    with stream(first, second, rate=200, size=size, limit=limit) as traffic:
        wait_kind(lab, first, WHOLE)
        came_up = stats.slow_path(lab.switch).received
        traffic.join()
    wait_counts(lab, "in_port=1", limit, limit * size)
    dropped = done(lab, first).dropped
    figure(f"{dropped} of {limit} packets dropped in NIC_RX")
    assert 0 < dropped <= limit
    assert stats.slow_path(lab.switch).received - came_up < limit / 2
    # What it counted stays when the megaflow goes.
    lab.switch.appctl("revalidator/purge")
    wait_counts(lab, "in_port=1", limit, limit * size)


def datagrams(source: Guest, target: Guest, count: int, vlan: int | None) -> list[bytes]:
    return [udp_frame(source.mac, target.mac, source.address, target.address, bytes([number]) * 50, vlan=vlan)
            for number in range(count)]


def test_a_ports_vlan_is_taken_off_and_put_on_by_the_nic(workspace: Workspace) -> None:
    lab = FunctionLab(workspace)
    lab.vlan = VLAN
    lab.wire_all(vms=2, uplink=False)
    lab.fix_neighbours()
    lab.start(fail_mode="secure")
    first, second = lab.guests
    lab.switch.add_flows(BRIDGE, ["in_port=1,vlan_tci=0,actions=output:2"])   # no packet with a tag passes
    sent = datagrams(first, second, 20, VLAN)
    with second.capture() as seen:
        send_frames(first.namespace, first.device, sent)
        wait_until(lambda: set(sent) <= set(seen.frames), PATIENCE, "they arrive as they were sent")
        assert all("vlan(vid" not in flow.match for flow in stats.megaflows(lab.switch))
        # Those without the tag, or with another one, are somebody else's.
        up = done(lab, first).sent_up
        for other in (None, VLAN + 1):
            send_frames(first.namespace, first.device, datagrams(first, second, 20, other))
        last = datagrams(first, second, 21, VLAN)[20:]
        send_frames(first.namespace, first.device, last)
        wait_until(lambda: last[0] in seen.frames, PATIENCE, "the last one")
        assert done(lab, first).sent_up == up + 1
        # Another VLAN from now on: what the guest sends is not the port's any more, and then is again.
        lab.switch.vsctl("set", "interface", second.port, f"options:vlan={VLAN + 1}")
        moved = datagrams(first, second, 20, VLAN + 1)

        def arrives_moved() -> bool:
            send_frames(first.namespace, first.device, sent)
            return set(moved) <= set(seen.frames)

        wait_until(arrives_moved, PATIENCE, "the tag outside of the second port is the new one")
    # A port that is down stays down.
    lab.switch.ofctl("mod-port", BRIDGE, second.port, "down")
    lab.switch.vsctl("set", "interface", second.port, f"options:vlan={VLAN}")
    before = done(lab, second).received_down

    def drops_more() -> bool:
        send_frames(second.namespace, second.device, datagrams(second, first, 20, VLAN))
        return done(lab, second).received_down >= before + 20

    assert f"VLAN {VLAN}" in lab.switch.appctl("dr/show")
    wait_until(drops_more, PATIENCE, "NIC_RX drops and counts")
    assert lab.switch.interface(second.port, "error") is None
    assert_alive(lab)


def test_a_port_that_is_down_drops_both_ways_in_the_nic(functions: FunctionLab) -> None:
    lab, (first, second) = functions, functions.guests
    lab.switch.add_flows(BRIDGE, BOTH_WAYS)
    assert_reaches(first, second)
    lab.switch.ofctl("mod-port", BRIDGE, first.port, "down")
    wait_until(lambda: ping(first.namespace, second.address, count=1).received == 0, PATIENCE, "nothing passes")
    before = done(lab, first)
    with stream(first, second, rate=200, limit=40) as traffic:
        traffic.join()
    wait_until(lambda: done(lab, first).received_down >= before.received_down + 40, PATIENCE, "NIC_RX drops and counts")
    assert done(lab, first).sent_up == before.sent_up
    lab.switch.ofctl("mod-port", BRIDGE, first.port, "up")
    wait_until(lambda: ping(first.namespace, second.address, count=1).received == 1, PATIENCE, "it passes again")


def custom_statistics(lab: Lab, guest: Guest) -> dict[str, int]:
    shown = lab.switch.interface(guest.port, "statistics")
    assert isinstance(shown, dict)
    return {name: value for name, value in shown.items() if name.startswith("nic_")}


def wait_statistics(lab: Lab, guest: Guest, expected: dict[str, int]) -> None:
    """vswitchd writes them every few seconds."""
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:stats-update-interval=5000")
    try:
        wait_until(lambda: custom_statistics(lab, guest) == expected, PATIENCE, "the statistics are those")
    except TimeoutError:
        assert custom_statistics(lab, guest) == expected


def test_the_interfaces_statistics_say_what_nic_rx_and_nic_tx_did(functions: FunctionLab) -> None:
    lab, (first, second) = functions, functions.guests
    lab.switch.add_flows(BRIDGE, [*BOTH_WAYS, "priority=40000,in_port=1,udp,actions=drop"])
    assert_reaches(first, second)
    with stream(first, second, rate=200, limit=60) as traffic:
        traffic.join()
    lab.switch.ofctl("mod-port", BRIDGE, first.port, "down")
    wait_until(lambda: ping(first.namespace, second.address, count=1).received == 0, PATIENCE, "nothing passes")
    with stream(first, second, rate=200, limit=40) as traffic:
        traffic.join()
    wait_until(lambda: done(lab, first).received_down >= 40, PATIENCE, "NIC_RX drops and counts")
    nic = done(lab, first)
    assert nic.dropped > 0 and nic.sent > 0 and nic.marked > 0
    wait_statistics(lab, first, {"nic_rx_megaflow_drops": nic.dropped, "nic_rx_marked_packets": nic.marked,
                                 "nic_rx_down_drops": nic.received_down, "nic_tx_packets": nic.sent,
                                 "nic_tx_down_drops": nic.sent_down})


def partial_flows(lab: Lab, guest: Guest) -> int:
    return sum((flow.offloaded, flow.layer) == PARTIAL and f"in_port({guest.port})" in flow.match
               for flow in stats.megaflows(lab.switch))


class Repeated:
    """Sends the frames again and again, as long as it is entered."""

    def __init__(self, source: Guest, frames: list[bytes]) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(source, frames), daemon=True)

    def __enter__(self) -> "Repeated":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self, source: Guest, frames: list[bytes]) -> None:
        while not self._end.wait(0.002):
            send_frames(source.namespace, source.device, frames)


def test_a_packet_gets_its_own_flows_actions_while_megaflows_come_and_go(workspace: Workspace) -> None:
    """dpif-netdev gives the numbers of megaflows that it has deleted to others at once."""
    lab = FunctionLab(workspace)
    lab.wire_all(vms=3, uplink=False)
    lab.fix_neighbours()
    lab.start(fail_mode="secure")
    first, *targets = lab.guests
    by_target = [[udp_frame(first.mac, target.mac, first.address, target.address, bytes(58), target_port=port)
                  for port in range(8000 + number, 8064, 2)] for number, target in enumerate(targets)]
    frames = [frame for pair in zip(*by_target) for frame in pair]
    lab.switch.add_flows(BRIDGE, [f"in_port=1,udp,tp_dst={port},actions=output:{2 + port % 2}"
                                  for port in range(8000, 8064)])
    with targets[0].capture() as even, targets[1].capture() as odd, Repeated(first, frames):
        for _ in range(20):
            wait_until(lambda: partial_flows(lab, first) == len(frames), PATIENCE, "all megaflows are marked (again)")
            for _ in range(3):
                lab.switch.appctl("revalidator/purge")
        marked = done(lab, first).marked
        wait_until(lambda: done(lab, first).marked >= marked + len(frames), PATIENCE, "the marks are used")
    assert set(by_target[0]) <= set(even.frames) and not set(by_target[1]) & set(even.frames)
    assert set(by_target[1]) <= set(odd.frames) and not set(by_target[0]) & set(odd.frames)
    assert_alive(lab)


def test_megaflows_that_wait_for_room_do_not_stop_ovs(functions: FunctionLab) -> None:
    """A thread of our own puts them in, and takes out what does not fit; OVS's threads need not wait for it."""
    lab, (first, second) = functions, functions.guests
    device = device_of(first)

    def limit(rules: int | str) -> None:
        lab.nic.drnic("limits", "--device", device, f"rules={rules}")

    lab.switch.add_flows(BRIDGE, [f"in_port=1,udp,tp_dst={port},actions=output:2" for port in range(8000, 8064)])
    frames = [udp_frame(first.mac, second.mac, first.address, second.address, bytes(58), target_port=port)
              for port in range(8000, 8064)]
    taken = json.loads(lab.nic.drnic("limits", "--device", device, "--json"))["devices"][0]["limits"]["rules"]["taken"]
    limit(int(taken) + 20)
    with second.capture() as seen:
        def arrive() -> bool:
            send_frames(first.namespace, first.device, frames)
            return set(frames) <= set(seen.frames) and 0 < partial_flows(lab, first) < len(frames)
        wait_until(arrive, PATIENCE, "some are marked and all arrive")
        limit("none")

        def all_marked() -> bool:
            send_frames(first.namespace, first.device, frames)
            return partial_flows(lab, first) == len(frames)
        wait_until(all_marked, PATIENCE, "the others are put in when there is room")
    # A change of the datapath waits for a grace period.
    lab.switch.vsctl("add-port", BRIDGE, "inside", "--", "set", "interface", "inside", "type=internal", timeout=10)
    lab.switch.vsctl("del-port", BRIDGE, "inside", timeout=10)


def test_what_cannot_be_says_why(functions: FunctionLab) -> None:
    lab, (first, _) = functions, functions.guests
    for options, error in [([f"options:device={device_of(first)}", "options:vport=3"], "does not manage an eSwitch"),
                           ([f"options:device={DEVICE}"], "options:vport is missing"),
                           ([f"options:device={DEVICE}", "options:vport=3", "options:vlan=5"], "options:vlan is for"),
                           ([f"options:device={device_of(first)}", "options:vlan=4095"], "options:vlan=4095"),
                           ([f"options:device={device_of(first)}"], f"is taken by {first.port}")]:
        lab.switch.vsctl("add-port", BRIDGE, "wrong", "--", "set", "interface", "wrong", "type=dr", *options,
                         check=False)
        assert error in lab.switch.vsctl("show"), (options, lab.switch.vsctl("show"))
        lab.switch.vsctl("del-port", BRIDGE, "wrong")
    assert lab.switch.interface(first.port, "error") is None


# What is called when a megaflow is installed, one that marks and one that drops.
CALLS = ("mlx5dv_dr_matcher_create", "mlx5dv_dr_rule_create", "mlx5dv_dr_action_create_tag", "mlx5dv_dr_domain_sync",
         "mlx5dv_dr_action_create_flow_counter", "mlx5dv_dr_rule_destroy")


@pytest.mark.parametrize("call", CALLS)
def test_software_goes_on_when_a_call_fails(functions: FunctionLab, call: str) -> None:
    lab, (first, second) = functions, functions.guests
    lab.nic.drnic("fault", call, str(errno.ENOMEM), "1")
    lab.switch.add_flows(BRIDGE, BOTH_WAYS)
    assert_reaches(first, second)
    lab.switch.add_flows(BRIDGE, ["priority=40000,in_port=1,udp,actions=drop"])
    lab.switch.appctl("revalidator/wait")   # until then a megaflow of before takes packets, and counts them elsewhere
    limit, size = 60, 100
    with stream(first, second, rate=100, size=size, limit=limit) as traffic:
        traffic.join()
    wait_counts(lab, "in_port=1,udp", limit, limit * size)
    assert_reaches(first, second)
    lab.nic.drnic("faults", "--disarm")
    with stream(first, second, rate=100):
        wait_kind(lab, first, WHOLE)


def give_two_queues(lab: Lab, guest: Guest) -> None:
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=3", "other_config:pmd-maxsleep=500")
    lab.switch.vsctl("set", "interface", guest.port, "options:n_rxq=2")
    wait_until(lambda: len(re.findall(rf"port: {guest.port} +queue-id:",
                                      lab.switch.appctl("dpif-netdev/pmd-rxq-show"))) == 2, PATIENCE, "two queues")


def test_several_receive_queues(functions: FunctionLab) -> None:
    """Flows are spread behind the megaflows; threads whose megaflow the NIC knows take the marks."""
    lab, (first, second) = functions, functions.guests
    give_two_queues(lab, first)
    lab.switch.add_flows(BRIDGE, BOTH_WAYS)
    assert_reaches(first, second)
    frames = [udp_frame(first.mac, second.mac, first.address, second.address, bytes(58), target_port=port)
              for port in range(8000, 8064)]
    hits = phwol_hits(lab)
    with second.capture() as seen:
        def all_marked() -> bool:
            send_frames(first.namespace, first.device, frames)
            return phwol_hits(lab) >= hits + 200
        wait_until(all_marked, PATIENCE, "marks are taken")
        assert set(frames) <= set(seen.frames)
    per_thread = re.findall(r"^\s+packets received: (\d+)", lab.switch.appctl("dpif-netdev/pmd-stats-show"),
                            re.MULTILINE)
    figure(f"packets by thread: {', '.join(per_thread)}; marks taken: {phwol_hits(lab) - hits}")
    assert_alive(lab)


def test_equal_megaflows_of_two_threads(functions: FunctionLab) -> None:
    """Both are in NIC_RX, where one of them gets the packets. A thread that gets a packet with the other one's mark
    looks at its headers: each packet is forwarded once and counted once."""
    lab, (first, second) = functions, functions.guests
    give_two_queues(lab, first)
    flow, rounds = "in_port=1,udp", 20
    lab.switch.add_flows(BRIDGE, [f"{flow},actions=output:2"])
    frames = [udp_frame(first.mac, second.mac, first.address, second.address, bytes(58), target_port=port)
              for port in range(8000, 8032)]
    size, sent = len(frames[0]), 0

    def send(length: int = len(frames)) -> None:
        nonlocal sent
        for begin in range(0, len(frames), length):
            send_frames(first.namespace, first.device, frames[begin:begin + length])
        sent += len(frames)

    def both_are(kind: tuple[str, str]) -> bool:
        send(1)   # new PMD threads have their first upcalls one after the other
        flows = [(each.offloaded, each.layer) for each in stats.megaflows(lab.switch)
                 if f"in_port({first.port})" in each.match and "proto=17" in each.match]
        return flows == [kind, kind]

    wait_until(lambda: both_are(PARTIAL), PATIENCE, "two threads have the same megaflow, and the NIC both")
    hits, marked = phwol_hits(lab), done(lab, first).marked
    with second.capture() as seen:
        for _ in range(rounds):
            send()
        wait_until(lambda: len(seen.frames) >= rounds * len(frames), PATIENCE, "all have arrived")
        seen.settle()
    assert seen.count() == {frame: rounds for frame in frames}
    wait_counts(lab, flow, sent, sent * size)
    hits, marked = phwol_hits(lab) - hits, done(lab, first).marked - marked
    figure(f"{marked} of {rounds * len(frames)} packets marked for one of two threads, {hits} marks taken")
    assert marked == rounds * len(frames) and 0 < hits < marked
    lab.switch.ofctl("mod-flows", BRIDGE, f"{flow},actions=drop")
    wait_until(lambda: both_are(WHOLE), PATIENCE, "both drop in the NIC")
    before = done(lab, first).dropped
    for _ in range(rounds):
        send()
    wait_until(lambda: done(lab, first).dropped == before + rounds * len(frames), PATIENCE, "the NIC drops each, once")
    lab.switch.appctl("revalidator/purge")
    send()
    wait_until(lambda: stats.openflow_counts(lab.switch, BRIDGE, flow)[0] == sent, PATIENCE, "each is counted once")
