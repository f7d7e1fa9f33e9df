"""Bonds of two dr ports, as OVS makes them of any two: who is behind them is a stock OVS on two wires.

    vm1, vm2 ── our bridge ── bond of m1, m2 ══ peer's bridge ── far
"""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import Callable

import pytest
from helpers import WITHIN, assert_alive, figure, is_offloaded
from lab import stats
from lab.capture import Capture
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.namespace import Namespace, make_veth
from lab.softnic import DEVICE
from lab.switch import STOCK_DAEMON, Switch
from lab.traffic import Stream, ping, send_frames, stream_number, udp_frame
from lab.workspace import Workspace

BOND = "bond0"
OTHER_DEVICE = "mlx5_1"
SETTLED = 3 * WITHIN


@dataclass
class Bonded:
    lab: Lab
    members: list[Guest]
    vms: list[Guest]
    peer: Switch
    far: Namespace
    far_mac: str = "02:0d:00:00:00:f0"
    far_address: str = "10.99.0.240"

    def bond(self, *settings: str) -> None:
        """Joins the members at our end."""
        interfaces = list(chain.from_iterable(
            ["--", "set", "interface", member.port, *self.interface_settings(member)] for member in self.members))
        self.lab.switch.vsctl("add-bond", BRIDGE, BOND, *(member.port for member in self.members), *settings,
                              *interfaces)
        wait_until(lambda: all(f"member {member.port}: enabled" in self.show() for member in self.members), 15,
                   f"both members are enabled: {self.show()}")

    def interface_settings(self, member: Guest) -> list[str]:
        settings = self.lab.interface_settings(member)
        if any(member.name == port["name"] for device in self.lab.nic.more_devices for port in device["ports"]):
            return [word.replace(DEVICE, OTHER_DEVICE) for word in settings]
        return settings

    def wire_peer(self, *settings: str) -> None:
        """The members at the far end: two ports of a learning switch, or with settings a bond."""
        ports = [["add-bond", BRIDGE, BOND, *(member.device for member in self.members), *settings]] if settings else \
            [["add-port", BRIDGE, member.device] for member in self.members]
        ports.append(["add-port", BRIDGE, "far-p"])
        self.peer.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev",
                        *chain.from_iterable(["--", *port] for port in ports))

    def show(self) -> str:
        return self.lab.switch.appctl("bond/show", BOND)

    def active(self) -> Guest:
        name = re.search(r"^member (\S+): enabled\n\s+active member", self.show(), re.MULTILINE)
        assert name, self.show()
        return next(member for member in self.members if member.port == name.group(1))

    def stream_out(self, vm: Guest, *, mac: str | None = None, rate: float = 1000, size: int = 100) -> Stream:
        return Stream(vm.namespace, vm.device, source_mac=mac or vm.mac, target_mac=self.far_mac, source=vm.address,
                      target=self.far_address, rate=rate, size=size)

    def stream_in(self, vm: Guest, *, rate: float = 1000) -> Stream:
        return Stream(self.far, "eth0", source_mac=self.far_mac, target_mac=vm.mac, source=self.far_address,
                      target=vm.address, rate=rate)

    def forwards(self, what: Callable[[stats.Megaflow], bool]) -> bool:
        return any(what(flow) for flow in stats.megaflows(self.lab.switch))

    def offloaded(self, source: str, target: str) -> bool:
        """A megaflow with an output from one of our ports to another is in the NIC."""
        return self.lab.kind != "dr" or self.forwards(
            lambda flow: flow.offloaded == "yes" and f"in_port({source})" in flow.match
            and target in re.split(r"[ ,]", flow.actions.strip()))


@pytest.fixture
def bonded(workspace: Workspace, lab_kind: str, request: pytest.FixtureRequest) -> Bonded:
    """Not bonded yet. With the parameter "two devices" the members are ports of two."""
    lab = Lab(workspace, kind=lab_kind)
    peer_namespace, far = workspace.namespace("peer"), workspace.namespace("far")
    vms = [lab.wire(name, number) for number, name in enumerate(("vm1", "vm2"), start=1)]
    members = [lab.wire(name, number, inside=peer_namespace) for number, name in enumerate(("m1", "m2"), start=3)]
    if getattr(request, "param", "") == "two devices":
        lab.nic.more_devices = [{"name": OTHER_DEVICE, "ports": [lab.nic.ports.pop()]}]
    lab.wires = vms[:]      # what the bridge has as ports of its own
    made = Bonded(lab, members, vms, Switch(peer_namespace, workspace.folder / "peer", STOCK_DAEMON,
                                            daemon_arguments=["--disable-system"]), far)
    make_veth(far, "eth0", peer_namespace, "far-p", mac=made.far_mac, address=f"{made.far_address}/24")
    for vm in vms:
        vm.namespace.run(["ip", "neigh", "replace", made.far_address, "lladdr", made.far_mac, "dev", vm.device])
        far.run(["ip", "neigh", "replace", vm.address, "lladdr", vm.mac, "dev", "eth0"])
    workspace.defer(made.peer.stop)
    made.peer.start()
    lab.start()
    return made


def numbers(frames: list[bytes]) -> list[int]:
    """Of the streams' frames; the ICMP errors that answer them quote them."""
    udp = 17
    return [number for frame in frames if frame[23] == udp and (number := stream_number(frame)) is not None]


def longest_gap(capture: Capture, since: float) -> float:
    """Seconds without a frame of the stream."""
    moments = [moment for moment, frame in zip(list(capture.times), list(capture.frames))
               if moment > since and stream_number(frame) is not None]
    return max((later - earlier for earlier, later in zip([since, *moments], moments)), default=float("inf"))


def pull(member: Guest) -> float:
    """Takes the member's wire away; the moment at which it is gone."""
    member.namespace.run(["ip", "link", "set", member.device, "down"])
    return time.monotonic()


@pytest.mark.parametrize("bonded", ["one device", "two devices"], indirect=True)
def test_active_backup_fails_over_while_traffic_runs(bonded: Bonded, request: pytest.FixtureRequest) -> None:
    two_devices = bool(bonded.lab.nic.more_devices)
    if two_devices and bonded.lab.kind != "dr":
        pytest.skip("a stock switch has no devices")
    bonded.bond("bond_mode=active-backup", "other_config:bond-primary=" + bonded.members[0].port)
    bonded.wire_peer()
    vm = bonded.vms[0]
    first, second = bonded.members
    assert bonded.active() == first
    with Capture(bonded.far, "eth0") as outside, vm.capture() as inside, \
            bonded.stream_out(vm) as out, bonded.stream_in(vm) as back:
        wait_until(lambda: bonded.offloaded(vm.port, first.port) and bonded.offloaded(first.port, vm.port), 5,
                   "both ways are in the NIC")
        moment = pull(first)
        time.sleep(SETTLED)
        assert bonded.active() == second
        gaps = {name: longest_gap(capture, moment) for name, capture in (("out", outside), ("in", inside))}
        figure(f"active-backup, {request.node.name}: the longest gap " +
               ", ".join(f"{name} {gap * 1000:.0f} ms" for name, gap in gaps.items()))
        assert gaps["out"] < WITHIN
        assert gaps["in"] < WITHIN + 1, "the peer learns from what comes the other way"
        if not two_devices:
            assert bonded.offloaded(vm.port, second.port) and bonded.offloaded(second.port, vm.port)
        else:
            assert not bonded.offloaded(vm.port, second.port)
            assert "output not offloaded" in bonded.lab.switch.appctl("dr/explain")
        sent = out.stop(), back.stop()
        for capture in (outside, inside):
            capture.settle()
    for way, count, capture in (("out", sent[0], outside), ("in", sent[1], inside)):
        arrived = numbers(capture.frames)
        twice = [number for number, times in Counter(arrived).items() if times > 1]
        assert not twice, f"{way}: frames came twice: {twice}"
        assert count - len(arrived) < 2000 * WITHIN
    assert_alive(bonded.lab)


def test_balance_slb_moves_load_that_the_nic_carries(bonded: Bonded) -> None:
    """Ten guests' load, all on one member at first. What OVS knows of it is what the NIC has counted."""
    bonded.bond("bond_mode=balance-slb", "other_config:bond-rebalance-interval=1000")
    bonded.wire_peer()
    vm = bonded.vms[0]
    macs = [f"02:0d:00:01:00:{number:02x}" for number in range(10)]
    first, second = bonded.members
    streams = [bonded.stream_out(vm, mac=mac, rate=200, size=1000) for mac in macs]

    def received() -> dict[Guest, int]:
        return {member: member.namespace.counters(member.device)["rx_packets"] for member in bonded.members}

    at_first = received()
    with Capture(bonded.far, "eth0") as outside:
        try:
            for stream in streams:
                stream.__enter__()
            wait_until(lambda: bonded.offloaded(vm.port, first.port) or bonded.offloaded(vm.port, second.port), 5,
                       "they are in the NIC")
            for bucket in range(256):
                bonded.lab.switch.appctl("bond/migrate", BOND, str(bucket), first.port)
            wait_until(lambda: bonded.offloaded(vm.port, first.port) and bonded.offloaded(vm.port, second.port), 15,
                       "load has moved to the other member")
            before = received()
            time.sleep(2)
            carried = {member: count - before[member] for member, count in received().items()}
        finally:
            sent = sum(stream.stop() for stream in streams)
        outside.settle()
    arrived = len(numbers(outside.frames))
    on_the_wires = sum(received().values()) - sum(at_first.values())
    figure("balance-slb: " + ", ".join(f"{member.name} {count}" for member, count in carried.items()) +
           f" frames in 2 s; {on_the_wires} of {sent} on the wires, {arrived} through the peer")
    assert min(carried.values()) > 0.2 * sum(carried.values())
    assert on_the_wires >= sent - 50 and arrived <= sent
    assert_alive(bonded.lab)


LACP = ["lacp=active", "bond_mode=balance-tcp", "other_config:lacp-time=fast"]


def connect(bonded: Bonded, *more: str) -> None:
    bonded.wire_peer(*LACP)
    bonded.bond(*LACP, *more)
    wait_until(lambda: "lacp_status: negotiated" in bonded.show(), 15, bonded.show())
    partner = bonded.lab.switch.appctl("lacp/show", BOND)
    assert partner.count("current attached") == 2, partner
    # The member that was enabled first may have got all hashes: another basis shares them out anew.
    bonded.lab.switch.vsctl("set", "port", BOND, "other_config:bond-hash-basis=1")


def spread(bonded: Bonded, flows: int = 32) -> dict[Guest, int]:
    """Frames of as many UDP flows that each member's wire carried to the peer."""
    vm = bonded.vms[0]
    before = {member: member.namespace.counters(member.device)["rx_packets"] for member in bonded.members}
    for port in range(flows):
        send_frames(vm.namespace, vm.device, 4 * [udp_frame(vm.mac, bonded.far_mac, vm.address, bonded.far_address,
                                                            b"spread", target_port=9000 + port)])
    time.sleep(WITHIN)
    return {member: member.namespace.counters(member.device)["rx_packets"] - before[member]
            for member in bonded.members}


@pytest.mark.parametrize("way", ["recirculation", "lb_output"])
def test_balance_tcp_by_lacp(bonded: Bonded, way: str) -> None:
    """OVS's hash of a packet is no field of the device's: what goes out by such a bond stays in software."""
    connect(bonded, *(["other_config:lb-output-action=true"] if way == "lb_output" else []))
    vm = bonded.vms[0]
    with bonded.stream_out(vm, rate=200), bonded.stream_in(vm, rate=200):
        wait_until(lambda: any(bonded.offloaded(member.port, vm.port) for member in bonded.members), 5,
                   "what comes in is in the NIC")
        if bonded.lab.kind == "dr":
            action = "lb_output" if way == "lb_output" else "hash"
            wait_until(lambda: f"unsupported action: {action}" in explained(bonded), 5, f"{action} is named")
            assert not is_offloaded(bonded.lab, vm)
        carried = spread(bonded)
    figure(f"balance-tcp by {way}: " + ", ".join(f"{member.name} {count}" for member, count in carried.items()))
    assert min(carried.values()) > 0.1 * sum(carried.values())
    result = ping(vm.namespace, bonded.far_address, count=5)
    assert result.received == result.sent

    moment = pull(bonded.members[0])
    with Capture(bonded.far, "eth0") as outside, bonded.stream_out(vm):
        wait_until(lambda: f"member {bonded.members[0].port}: disabled" in bonded.show(), 5, "the member is disabled")
        time.sleep(SETTLED)
        gap = longest_gap(outside, moment + 0.1)
    figure(f"balance-tcp by {way}: the longest gap after a member went {gap * 1000:.0f} ms")
    assert gap < WITHIN
    assert_alive(bonded.lab)


def explained(bonded: Bonded) -> str:
    """The daemon's reasons, one a line: "count  reason: detail"."""
    return bonded.lab.switch.appctl("dr/explain")


def test_a_member_whose_partner_is_silent_is_out(bonded: Bonded) -> None:
    """Its wire is there: LACP alone says so, three seconds after the last that was heard. Packets of its partner's that
    come up go to LACP, whatever else is in the NIC."""
    connect(bonded)
    silent = bonded.members[1]
    bonded.peer.vsctl("--", "del-port", BRIDGE, BOND, "--", "add-port", BRIDGE, bonded.members[0].device, "--", "set",
                      "port", bonded.members[0].device, "lacp=active", "other_config:lacp-time=fast")
    took = wait_until(lambda: f"member {silent.port}: disabled" in bonded.show(), 8, bonded.show)
    figure(f"LACP: a silent partner's member is out after {took:.1f} s")
    bonded.peer.vsctl("del-port", BRIDGE, bonded.members[0].device, "--", "add-bond", BRIDGE, BOND,
                      *(member.device for member in bonded.members), *LACP)
    took = wait_until(lambda: bonded.show().count(": enabled") == 2, 8, bonded.show)
    figure(f"LACP: both members are back after {took:.1f} s")
    assert_alive(bonded.lab)
