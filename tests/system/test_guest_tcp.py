"""TCP of guests on vhost-user vports, under User Mode Linux: what they get joined, and what they make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import figure, tcp_sum
from lab import uml_guest
from lab.command import wait_until
from lab.lab import BRIDGE, Lab
from lab.traffic import Iperf
from lab.uml_guest import UmlGuest, make_initramfs, vhost_nic
from lab.vhost_relay import VhostRelay
from lab.workspace import Workspace

pytestmark = [pytest.mark.dr_only, pytest.mark.skipif(bool(uml_guest.missing()), reason=uml_guest.missing() or "-")]
SECONDS = 1
CAPTURED = 20000   # frames


class Guests:
    """vm1 and vm2 on vhost-user vports, and a namespace, outside, on a veth; a learning switch."""

    def __init__(self, workspace: Workspace, *, options: str = "") -> None:
        self.lab = Lab(workspace, dpdk_port="net_af_packet,gro=0")
        initramfs = make_initramfs(workspace.folder)
        self.one, self.two = (self._add(workspace, number, options, initramfs) for number in (1, 2))
        self.outside = self.lab.wire("outside", 3)
        self.lab.fix_neighbours()
        for guest in (self.one, self.two):
            guest.launch()
        self.lab.start(offload=True, fail_mode="secure")
        self.lab.switch.add_flows(BRIDGE, ["actions=NORMAL"])
        for guest in (self.one, self.two):
            workspace.defer(guest.stop)   # before the switch
            guest.wait_ready()
            for wire in self.lab.wires:
                if wire.name != guest.name:
                    guest.set_neighbour(wire.address, wire.mac)
        wait_until(lambda: "1 packets received" in self.one.run(f"ping -c 1 -W 1 {self.two.address}", check=False), 20,
                   "the guests reach each other")

    def _add(self, workspace: Workspace, number: int, options: str, initramfs: Path) -> UmlGuest:
        relay = VhostRelay(workspace, f"vm{number}")
        wire = self.lab.wire_port(f"vm{number}", number, f"net_vhost,iface={relay.switch},client=1{options}")
        return UmlGuest(workspace, wire.name, self.lab.namespace, vhost_nic(relay), initramfs=initramfs, mac=wire.mac,
                        address=wire.address)

    def received(self, guest: UmlGuest) -> tuple[int, int]:
        """Packets to the guest as the eSwitch counts them, and as the guest does."""
        number = int(guest.name[2:])
        line = next(line.split() for line in self.lab.nic.drnic("stats").splitlines()
                    if line.split()[:2] == [str(number), guest.name])
        return int(line[2]), int(guest.run("cat /sys/class/net/eth0/statistics/rx_packets"))

    def tcp(self) -> tuple[Iperf, int, int]:
        """From one to the other; with the packets that the eSwitch and the guest got meanwhile."""
        before = self.received(self.two)
        result = self.one.send_to(self.two.address, SECONDS)
        after = self.received(self.two)
        return result, after[0] - before[0], after[1] - before[1]


def test_a_guest_gets_tcp_packets_joined(workspace: Workspace) -> None:
    guests = Guests(workspace)
    guests.two.serve()
    result, packets, taken = guests.tcp()
    figure(f"{result.megabits_per_second:.0f} Mb/s from guest to guest: {packets} packets, of which vm2 got {taken}")
    assert result.megabits_per_second > 10
    assert packets > 1000
    assert taken < packets / 4


def test_a_guest_on_a_port_without_gro_gets_packets_as_they_are(workspace: Workspace) -> None:
    guests = Guests(workspace, options=",gro=0")
    guests.two.serve()
    result, packets, taken = guests.tcp()
    figure(f"{result.megabits_per_second:.0f} Mb/s with gro=0: {packets} packets, vm2 got {taken}")
    assert result.megabits_per_second > 10
    assert taken == packets


@pytest.mark.parametrize("cut", ["by its NIC", "by its kernel"])
def test_a_guest_forwards_what_it_got_joined(workspace: Workspace, cut: str) -> None:
    """vm2 is a router between vm1 and outside: each checksum of what leaves it is right."""
    guests = Guests(workspace)
    target = "10.98.0.9"
    outside = guests.outside
    outside.namespace.run(["ip", "address", "add", f"{target}/32", "dev", outside.device])
    guests.one.run(f"ip route add {target} via {guests.two.address}")
    guests.two.run("echo 1 >/proc/sys/net/ipv4/ip_forward; echo 0 >/proc/sys/net/ipv4/conf/all/send_redirects; "
                   "echo 0 >/proc/sys/net/ipv4/conf/eth0/send_redirects; "
                   f"ip route add {target} via {outside.address}")
    if cut == "by its kernel":
        guests.two.run("ethtool -K eth0 tx off tso off gso off")
    server = outside.namespace.start(["iperf3", "-s", "--forceflush"], workspace.folder / "server")
    workspace.defer(server.stop)
    wait_until(lambda: "listening" in (workspace.folder / "server").read_text(), 10, "the server listens")
    before = guests.received(guests.two)
    with outside.capture() as capture:
        result = guests.one.send_to(target, SECONDS)
        capture.settle()
    packets, taken = (after - earlier for after, earlier in zip(guests.received(guests.two), before))
    checked = [frame for frame in capture.frames[:CAPTURED]
               if frame[12:14] == b"\x08\x00" and frame[23] == 6 and frame[30:34] == bytes([10, 98, 0, 9])]
    wrong = sum(tcp_sum(frame) != 0xFFFF for frame in checked)
    figure(f"{result.megabits_per_second:.0f} Mb/s by way of vm2, which got {packets} packets as {taken}, cut {cut}: "
           f"{len(checked)} frames checked, {wrong} wrong")
    assert len(checked) > 100
    assert wrong == 0
    assert taken < packets / 2, "vm2 got them joined"
    assert max(map(len, checked)) <= 1514
