"""Real guests: QEMU machines on vhost-user vports, behind the bridge, with their flows in the NIC."""

from __future__ import annotations

import re
import signal
import socket
import time
from pathlib import Path

import pytest

from helpers import assert_alive, figure, tcp_sum
from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE, Lab, Wire
from lab.machine import Machine
from lab.traffic import ping
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only
PINGS = 20
CPU_LIMIT = 0.05


class Guests:
    """A machine on vport 1, a namespace on vport 2, static neighbours, one OpenFlow flow each way."""

    def __init__(self, workspace: Workspace, *, machine_serves: bool = False,
                 dpdk_port: str = "net_af_packet") -> None:
        self.socket: Path = workspace.folder / "vm1.vhost"
        self.lab = Lab(workspace, dpdk_port=dpdk_port)
        self.wire: Wire = self.lab.wire_port(
            "vm1", 1, f"net_vhost,iface={self.socket}" + (",client=1" if machine_serves else ""))
        self.other = self.lab.wire("vm2", 2)
        self.lab.fix_neighbours()
        self.lab.start(offload=True, fail_mode="secure")
        first, second = (self.lab.ofport(wire) for wire in (self.wire, self.other))
        self.lab.switch.add_flows(BRIDGE, [f"in_port={first},actions=output:{second}",
                                           f"in_port={second},actions=output:{first}"])
        self.machine = Machine(workspace, self.wire.name, self.socket, mac=self.wire.mac, address=self.wire.address,
                               serves=machine_serves)

    def boot(self) -> float:
        seconds = self.machine.boot()
        self.machine.set_neighbour(self.other.address, self.other.mac)
        return seconds

    def link_is_up(self) -> bool:
        return self.lab.switch.interface(self.wire.port, "link_state") == "up"

    def counts(self) -> list[int]:
        """OpenFlow's packets from the machine and to it."""
        return [stats.openflow_counts(self.lab.switch, BRIDGE, f"in_port={self.lab.ofport(wire)}")[0]
                for wire in (self.wire, self.other)]

    def offloaded_from(self, wire: Wire) -> bool:
        return any(flow.offloaded == "yes" and flow.layer == "dr" and f"in_port({wire.port})" in flow.match
                   for flow in stats.megaflows(self.lab.switch, kind="offloaded"))


def test_a_guest_pings_through_the_bridge_with_its_flows_in_the_nic(workspace: Workspace) -> None:
    guests = Guests(workspace)
    seconds = guests.boot()
    wait_until(guests.link_is_up, 10, "the vport's link")
    assert guests.machine.ping(guests.other.address) == 3
    for wire in (guests.wire, guests.other):
        wait_until(lambda: guests.offloaded_from(wire), 2, f"a megaflow from {wire.name} in the NIC")
    slow_before = stats.slow_path(guests.lab.switch).received
    answers = guests.machine.ping(guests.other.address, PINGS)
    assert answers == PINGS
    expected = [3 + PINGS] * 2
    try:
        wait_until(lambda: guests.counts() == expected, 8, "counts")
    except TimeoutError:
        pass
    assert guests.counts() == expected
    slow = stats.slow_path(guests.lab.switch).received - slow_before
    assert slow == 0, f"{slow} packets took the slow path"
    figure(f"guest booted in {seconds:.1f} s, {answers} of {PINGS} pings, OpenFlow counts {expected}, "
           f"{slow} by the slow path")


def test_what_a_guest_leaves_to_its_nic_is_done(workspace: Workspace) -> None:
    """TCP in large packets without checksums, which arrive whole and cut."""
    guests = Guests(workspace, dpdk_port="net_af_packet,gro=0")
    guests.boot()
    machine, other = guests.machine, guests.other
    assert machine.unfinished() == {"CSUM", "GUEST_CSUM", "GUEST_TSO4", "GUEST_TSO6", "HOST_TSO4", "HOST_TSO6",
                                    "HOST_ECN"}
    server = other.namespace.start(["nc", "-l", "-p", "7777"], workspace.folder / "received")
    with other.capture() as capture:
        time.sleep(0.5)
        server.signal(signal.SIGSTOP)   # until the guest has a lot to send at once
        machine.run(f"dd if=/dev/zero bs=1024 count=512 2>/dev/null | nc {other.address} 7777 >/dev/null 2>&1 &")
        time.sleep(2)
        server.signal(signal.SIGCONT)
        server.wait(20)
        capture.settle()
    received = (workspace.folder / "received").stat().st_size
    assert received == 512 * 1024
    checked = [frame for frame in capture.frames if frame[12:14] == b"\x08\x00" and frame[23] == 6]
    assert checked
    wrong = [frame for frame in checked if tcp_sum(frame) != 0xFFFF]
    sent = int(machine.run("cat /sys/class/net/eth0/statistics/tx_packets"))
    cut = [frame for frame in checked if frame[26:30] == socket.inet_aton(guests.wire.address)]
    figure(f"{received} bytes by TCP: {sent} packets of the guest's, {len(cut)} frames, {len(wrong)} with a wrong "
           "checksum")
    assert not wrong
    assert max(map(len, checked)) <= 1514
    assert sent + 20 < len(cut), "the guest leaves the cut to its NIC"


def test_a_guest_that_restarts_is_back_on_its_vport(workspace: Workspace) -> None:
    guests = Guests(workspace)
    guests.boot()
    assert guests.machine.ping(guests.other.address) == 3
    guests.machine.stop()
    wait_until(lambda: not guests.link_is_up(), 10, "the link goes down with the guest")
    assert ping(guests.other.namespace, guests.wire.address, count=2, wait=0.5).received == 0
    seconds = guests.boot()
    wait_until(guests.link_is_up, 10, "the link is back")
    assert guests.machine.ping(guests.other.address) == 3
    assert_alive(guests.lab)
    figure(f"a guest pulled and booted again in {seconds:.1f} s answers")


@pytest.mark.parametrize("machine_serves", [False, True], ids=["switch-serves", "machine-serves"])
def test_a_guest_outlives_the_switch(workspace: Workspace, machine_serves: bool) -> None:
    guests = Guests(workspace, machine_serves=machine_serves)
    guests.boot()
    assert guests.machine.ping(guests.other.address) == 3
    lab = guests.lab
    lab.switch.kill_daemon()   # its socket file stays behind
    lab.switch.start_daemon()
    first, second = (lab.ofport(wire) for wire in (guests.wire, guests.other))
    lab.switch.add_flows(BRIDGE, [f"in_port={first},actions=output:{second}",
                                  f"in_port={second},actions=output:{first}"])
    seconds = wait_until(lambda: guests.machine.ping(guests.other.address, 1) == 1, 30, "the guest is back")
    assert guests.machine.ping(guests.other.address, PINGS) == PINGS
    wait_until(lambda: guests.offloaded_from(guests.wire), 2, "its megaflow is in the NIC again")
    figure(f"{seconds:.1f} s after the new daemon's start the guest has its network back")


def test_two_guests_reach_each_other_and_an_idle_switch_sleeps(workspace: Workspace) -> None:
    lab = Lab(workspace)
    wires = [lab.wire_port(f"vm{number}", number, f"net_vhost,iface={workspace.folder}/vm{number}.vhost")
             for number in (1, 2)]
    lab.start(offload=True, fail_mode="secure")
    lab.switch.add_flows(BRIDGE, ["actions=NORMAL"])
    machines = [Machine(workspace, wire.name, workspace.folder / f"{wire.name}.vhost", mac=wire.mac,
                        address=wire.address) for wire in wires]
    for machine in machines:
        machine.launch()
    for machine in machines:
        machine.wait_ready()
    assert machines[0].ping(wires[1].address) >= 2   # the first may be waiting for ARP
    assert machines[0].ping(wires[1].address, PINGS) == PINGS
    time.sleep(1)
    begin, cpu = time.monotonic(), lab.switch.cpu_seconds()
    time.sleep(5)
    share = (lab.switch.cpu_seconds() - cpu) / (time.monotonic() - begin)
    # The longest sleep is 100 ms: who is not woken by a guest's kick would add a part of it to each ping.
    output = machines[0].run(f"ping -c 9 -i 0.5 -W 2 {wires[1].address}")
    times = sorted(map(float, re.findall(r"time=([0-9.]+) ms", output)))
    figure(f"two idle guests: {share:.1%} of a core; ping {times[len(times) // 2]:.1f} ms, {max(times):.1f} at most")
    assert len(times) == 9
    assert share <= CPU_LIMIT
    assert times[len(times) // 2] < 25


def test_vports_for_guests_come_and_go_while_the_nic_runs(workspace: Workspace) -> None:
    lab = Lab(workspace)
    other = lab.wire("vm2", 2)
    lab.start(offload=True, fail_mode="secure")
    socket = workspace.folder / "late.vhost"
    for _ in range(2):
        lab.nic.drnic("add", "--vport", "1", "--dpdk", f"net_vhost,iface={socket}")
        assert socket.exists()
        lab.nic.drnic("del", "--vport", "1")
        assert not socket.exists()
    assert_alive(lab)
    assert other.name in lab.nic.drnic("list")
