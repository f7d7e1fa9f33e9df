"""OVS's port mirrors while the NIC forwards: to ports of the NIC, to a VLAN, to taps, whole and cut."""

from __future__ import annotations

import json
import time

import pytest
from copies import Copies, copies, numbers, wait_done
from helpers import assert_alive, figure, is_offloaded, stream, wait_offloaded
from lab.capture import Capture
from lab.command import wait_until
from lab.lab import BRIDGE, Lab
from lab.traffic import iperf
from lab.workspace import Workspace
from test_tunnels import make_tunnelled

LENGTH, RATE, SIZE = 1000, 800, 200


def mirror(lab: Lab, name: str, source: str, *columns: str) -> None:
    """Of all that comes from this port and goes to it."""
    lab.switch.vsctl("--", f"--id=@{source}", "get", "port", source, "--", "--id=@m", "create", "mirror",
                     f"name={name}", f"select_src_port=@{source}", f"select_dst_port=@{source}", *columns,
                     "--", "add", "bridge", BRIDGE, "mirrors", "@m")


def to(lab: Lab, port: str) -> str:
    return "output_port=" + lab.switch.vsctl("get", "port", port, "_uuid").strip()


def came_up(lab: Lab) -> int:
    """Packets in the slow path; copies are none of them."""
    return sum(port["slow_path_rx"] for port in json.loads(lab.switch.appctl("dr/ports", "-j"))["ports"])


def came(lab: Lab) -> int:
    """Packets from guests, those that the NIC forwarded and those in the slow path."""
    return sum(port["rx_packets"] for port in json.loads(lab.switch.appctl("dr/ports", "-j"))["ports"])


def test_mirrors_to_ports_of_the_nic(lab: Lab) -> None:
    """Two mirrors of one packet, to a guest and to the uplink."""
    first, second, third, uplink = lab.guests
    mirror(lab, "one", first.port, to(lab, third.port))
    mirror(lab, "two", first.port, to(lab, uplink.port))
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2"])
    with second.capture() as forwarded, third.capture() as one, uplink.capture() as two, \
            stream(first, second, rate=RATE, size=SIZE, limit=LENGTH) as sender:
        wait_offloaded(lab, first)
        assert sender.join() == LENGTH
        for capture in (forwarded, one, two):
            capture.settle()
    for capture in (forwarded, one, two):
        assert numbers(capture.frames) == list(range(LENGTH))
    assert copies(lab).copies == 0, "no copy is software's"


@pytest.mark.parametrize("kind", ["vxlan", "gre"])
def test_a_mirror_into_a_tunnel(workspace: Workspace, lab_kind: str, kind: str) -> None:
    lab = make_tunnelled(workspace, lab_kind)
    first, second = lab.guests[:2]
    lab.add_tunnel("tun", kind)
    mirror(lab, "far", first.port, to(lab, "tun"))
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2"])
    with second.capture() as forwarded, lab.uplink.capture() as far, \
            stream(first, second, rate=RATE, size=SIZE, limit=LENGTH) as sender:
        wait_offloaded(lab, first)
        assert sender.join() == LENGTH
        forwarded.settle()
        far.settle()
    assert numbers(forwarded.frames) == list(range(LENGTH))
    assert numbers(far.frames) == list(range(LENGTH))
    assert all(len(frame) > SIZE for frame in far.frames if numbers([frame]))
    assert copies(lab).copies == 0, "no copy is software's"


def test_a_mirror_into_a_vlan(lab: Lab) -> None:
    """RSPAN: copies carry the VLAN's tag to the ports that trunk it."""
    first, second, third, uplink = lab.guests
    for guest in (first, second):
        lab.switch.vsctl("set", "port", guest.port, "tag=10")
    lab.switch.vsctl("set", "port", third.port, "trunks=99")
    lab.switch.vsctl("set", "port", uplink.port, "trunks=99")
    mirror(lab, "rspan", first.port, "output_vlan=99")
    lab.switch.vsctl("set", "bridge", BRIDGE, "flood_vlans=99")
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2"])
    with second.capture() as forwarded, uplink.capture() as trunk, \
            stream(first, second, rate=RATE, size=SIZE, limit=LENGTH) as sender:
        wait_offloaded(lab, first)
        assert sender.join() == LENGTH
        forwarded.settle()
        trunk.settle()
    assert numbers(forwarded.frames) == list(range(LENGTH))
    assert numbers(trunk.frames) == list(range(LENGTH))
    tags = {frame[12:16] for frame in trunk.frames if numbers([frame])}
    assert tags == {b"\x81\x00\x00\x63"}


@pytest.mark.parametrize("snaplen", [0, 64])
def test_a_mirror_to_a_tap(lab: Lab, snaplen: int) -> None:
    first, second = lab.guests[:2]
    lab.switch.vsctl("add-port", BRIDGE, "span", "--", "set", "interface", "span", "type=internal")
    lab.namespace.run(["ip", "link", "set", "span", "up"])
    mirror(lab, "span", first.port, to(lab, "span"), *([f"snaplen={snaplen}"] if snaplen else []))
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2"])
    with second.capture() as forwarded, Capture(lab.namespace, "span") as mirrored, \
            stream(first, second, rate=RATE, size=SIZE, limit=LENGTH) as sender:
        wait_offloaded(lab, first)
        assert sender.join() == LENGTH
        done = wait_done(lab)
        forwarded.settle()
        mirrored.settle()
    assert numbers(forwarded.frames) == list(range(LENGTH))
    assert done.lost == 0
    sizes = {len(frame) for frame in mirrored.frames}
    if snaplen:
        # The mark of a stream's frame is cut in two, its number is gone.
        of_stream = [frame for frame in mirrored.frames if b"ovs-dr str" in frame]
        assert len(of_stream) == LENGTH and {len(frame) for frame in of_stream} == {snaplen}
    else:
        assert numbers(mirrored.frames) == list(range(LENGTH)) and SIZE in sizes
    figure(f"mirror to a tap{f', cut at {snaplen}' if snaplen else ''}: {LENGTH} frames, {done.copies} copies")


def test_a_mirror_of_a_mirrors_port(lab: Lab) -> None:
    """Stock OVS mirrors on what a mirror sends, once, and drops what comes in by a mirror's port."""
    first, second, third, uplink = lab.guests
    mirror(lab, "one", first.port, to(lab, third.port))
    mirror(lab, "two", third.port, to(lab, uplink.port))
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2", "in_port=3,actions=output:2"])
    with second.capture() as forwarded, third.capture() as one, uplink.capture() as two, \
            stream(first, second, rate=RATE, size=SIZE, limit=LENGTH) as sender:
        wait_offloaded(lab, first)
        assert sender.join() == LENGTH
        for capture in (forwarded, one, two):
            capture.settle()
    assert numbers(forwarded.frames) == numbers(one.frames) == numbers(two.frames) == list(range(LENGTH))
    with second.capture() as dropped, stream(third, second, limit=100) as sender:
        assert sender.join() == 100
        dropped.settle()
    assert not numbers(dropped.frames)


@pytest.mark.dr_only
def test_ovs_tcpdump_takes_no_traffic_off_the_nic(normal_lab: Lab) -> None:
    """iperf3 goes on in the NIC while ovs-tcpdump looks at its port."""
    lab = normal_lab
    first, second = lab.guests[:2]
    log = lab.workspace.folder / "ovs-tcpdump.log"
    file = lab.workspace.folder / "ovs-tcpdump.pcap"
    tcpdump = lab.namespace.start(["ovs-tcpdump", "--db-sock", f"unix:{lab.workspace.folder}/db.sock", "-i", first.port,
                                   "-n", "-w", str(file), "-s", "96", "tcp"], log, lab.switch.environment)
    lab.workspace.defer(tcpdump.stop)
    wait_until(lambda: "listening on" in tcpdump.output(), 20, "ovs-tcpdump listens")
    looks: list[tuple[Copies, int, int]] = []

    def look() -> None:
        """Twice while iperf3 sends: what closes its connections comes up."""
        wait_until(lambda: is_offloaded(lab, first) and is_offloaded(lab, second), 10, "iperf3 is in the NIC")
        looks.append((copies(lab), came_up(lab), came(lab)))
        time.sleep(2)
        looks.append((copies(lab), came_up(lab), came(lab)))

    result = iperf(first.namespace, second.namespace, second.address, lab.workspace.folder, seconds=5,
                   after_first_second=look)
    (before, up_before, came_before), (after, up_after, came_after) = looks
    done, up = after - before, up_after - up_before
    forwarded = came_after - came_before - up
    figure(f"ovs-tcpdump beside iperf3: {result.megabits_per_second:.0f} Mb/s; {forwarded} packets forwarded in 2 s, "
           f"{up} in the slow path ({up / max(1, forwarded):.4%} of them); {done.copies} copies, {done.lost} of them "
           f"lost for want of room")
    # A copy is of a packet that the NIC forwarded.
    assert 1000 < done.copies <= forwarded * 1.1
    assert up < 0.001 * forwarded
    assert_alive(lab)
