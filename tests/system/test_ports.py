"""Vports of every kind: what goes in comes out, once, on the other side of the bridge."""

from __future__ import annotations

import json
import socket
import time

import pytest

from helpers import figure, wait_counts
from lab import build, stats
from lab.command import run, wait_until
from lab.lab import BRIDGE, Lab, Wire
from lab.namespace import Namespace
from lab.traffic import Stream, iperf, ping, stream_number
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only
FRAMES = 2000
CPU_LIMIT = 0.05
ETH_P_ALL = 3
SO_RCVBUFFORCE = 33


def cross(lab: Lab, first: Wire, second: Wire) -> None:
    """One OpenFlow flow each way."""
    lab.switch.add_flows(BRIDGE, [f"in_port={lab.ofport(one)},actions=output:{lab.ofport(other)}"
                                  for one, other in ((first, second), (second, first))])


def move_tap(lab: Lab, wire: Wire, namespace: Namespace) -> None:
    """The port's interface becomes a container's eth0."""
    wait_until(lambda: wire.name in lab.namespace.run(["ip", "-o", "link", "show"]), 10, f"the tap {wire.name}")
    lab.namespace.run(["ip", "link", "set", wire.name, "netns", namespace.name, "name", "eth0"])
    namespace.run(["ip", "address", "add", f"{wire.address}/24", "dev", "eth0"])
    namespace.run(["ip", "link", "set", "eth0", "up"])


def open_sink(namespace: Namespace) -> socket.socket:
    """Somebody must have the stream's UDP port open, or the kernel answers with ICMP."""
    with namespace.entered():
        sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sink.bind(("", 7001))
    return sink


def test_a_tap_moves_into_a_container_and_carries_all_frames(workspace: Workspace) -> None:
    lab = Lab(workspace)
    tap = lab.wire_port("tap1", 1, "net_tap,iface=tap1")
    other = lab.wire("vm2", 2)
    inside = workspace.namespace("container")
    lab.fix_neighbours()
    lab.start(offload=True, fail_mode="secure")
    cross(lab, tap, other)
    move_tap(lab, tap, inside)
    inside.run(["ip", "neigh", "replace", other.address, "lladdr", other.mac, "dev", "eth0", "nud", "permanent"])
    assert tap.mac in inside.run(["ip", "link", "show", "eth0"]), "the interface has the vport's MAC"
    wait_until(lambda: lab.switch.interface(tap.port, "link_state") == "up", 10, "the tap's link")

    streams = [
        Stream(inside, "eth0", source_mac=tap.mac, target_mac=other.mac, source=tap.address, target=other.address,
               rate=2000, size=200, limit=FRAMES),
        Stream(other.namespace, other.device, source_mac=other.mac, target_mac=tap.mac, source=other.address,
               target=tap.address, rate=2000, size=200, limit=FRAMES)]
    sinks = [open_sink(inside), open_sink(other.namespace)]
    received = {"tap": inside.counters("eth0")["rx_packets"], "veth": other.namespace.counters("eth0")["rx_packets"]}
    for stream in streams:
        stream.__enter__()
    for stream in streams:
        stream.join()
        stream.stop()
    time.sleep(0.5)
    received = {"tap": inside.counters("eth0")["rx_packets"] - received["tap"],
                "veth": other.namespace.counters("eth0")["rx_packets"] - received["veth"]}
    for sink in sinks:
        sink.close()
    assert received == {"tap": FRAMES, "veth": FRAMES}
    for wire in (tap, other):
        wait_counts(lab, f"in_port={lab.ofport(wire)}", FRAMES, FRAMES * 200)
    assert any(flow.offloaded == "yes" and f"in_port({tap.port})" in flow.match for flow in stats.megaflows(lab.switch))
    # The kernel finishes checksums before a packet leaves the tap: TCP works both ways with all its offloads on.
    tcp = [iperf(inside, other.namespace, other.address, workspace.folder, seconds=2),
           iperf(other.namespace, inside, tap.address, workspace.folder, seconds=2, port=5202)]
    figure(f"tap: {FRAMES} of {FRAMES} frames each way; TCP out {tcp[0].megabits_per_second:.0f} Mb/s, "
           f"in {tcp[1].megabits_per_second:.0f} Mb/s")
    assert all(one.megabits_per_second > 10 for one in tcp)


def drgen(lab: Lab, ports: list[str], *, count: int, rate: float = 2000) -> list[dict[str, object]]:
    """Frames both ways between two ports of DPDK's own, each expected once and unharmed. Returns the report's streams.

    Rings hold half a second of them: none is lost because somebody else had the processor."""
    arguments = [str(build.drgen()), "--count", str(count), "--rate", str(rate), "--nap-us", "50", "--drain-ms", "3000",
                 "--size", "64,1514", "--duration", "0", "--flows", "8", "--strict", "--json", "-"]
    for port in ports:
        arguments += ["--port", port]
    for stream in ("0:1", "1:0"):
        arguments += ["--stream", stream]
    output = run(lab.namespace.command(arguments), timeout=120)
    report = json.loads(output[output.index("{"):])
    return report["streams"]


def idle_share(lab: Lab, seconds: float = 4) -> float:
    begin, cpu = time.monotonic(), lab.switch.cpu_seconds()
    time.sleep(seconds)
    return (lab.switch.cpu_seconds() - cpu) / (time.monotonic() - begin)


@pytest.mark.parametrize("kind", ["memif", "vhost"])
def test_dpdks_own_drivers_on_the_other_end_get_each_frame_once(workspace: Workspace, kind: str) -> None:
    """memif in both roles; vhost-user with virtio_user for a guest."""
    lab = Lab(workspace)
    paths = [workspace.folder / f"{kind}{number}" for number in (1, 2)]
    if kind == "memif":
        ours = [f"net_memif,socket={paths[0]},id=3", f"net_memif,socket={paths[1]},role=client,bsize=512,rsize=12"]
        theirs = [f"net_memif,role=client,id=3,rsize=12,socket={paths[0]},socket-abstract=no",
                  f"net_memif,role=server,socket={paths[1]},socket-abstract=no"]
    else:
        ours = [f"net_vhost,iface={path}" for path in paths]
        theirs = [f"net_virtio_user,path={path},queues=1,queue_size=1024" for path in paths]
    first, second = (lab.wire_port(f"{kind}{number}", number, dpdk) for number, dpdk in enumerate(ours, 1))
    lab.start(offload=True, fail_mode="secure")
    cross(lab, first, second)
    total = 0
    for round_number in (1, 2):   # the second time the peers are new ones
        streams = drgen(lab, theirs, count=FRAMES)
        total += FRAMES
        assert len(streams) == 2
        for wire in (first, second):
            match = f"in_port={lab.ofport(wire)}"
            wait_until(lambda: stats.openflow_counts(lab.switch, BRIDGE, match)[0] >= total, 8, f"counts of {match}")
            assert stats.openflow_counts(lab.switch, BRIDGE, match)[0] == total
        wait_until(lambda: lab.switch.interface(first.port, "link_state") == "down", 10,
                   f"no link, round {round_number}")
    share = idle_share(lab)
    figure(f"{kind}: {total} of {total} frames each way over two connections; idle {share:.1%} of a core")
    assert share <= CPU_LIMIT


def test_ports_of_all_kinds_share_a_bridge(workspace: Workspace) -> None:
    """A namespace on a veth pings one on a tap, while memif and vhost-user vports without a peer stand by."""
    lab = Lab(workspace)
    veth = lab.wire("vm1", 1)
    tap = lab.wire_port("tap2", 2, "net_tap,iface=tap2")
    lab.wire_port("memif3", 3, f"net_memif,socket={workspace.folder}/memif3")
    lab.wire_port("vhost4", 4, f"net_vhost,iface={workspace.folder}/vhost4")
    lab.start(offload=True, fail_mode="secure")
    lab.switch.add_flows(BRIDGE, ["actions=NORMAL"])
    inside = workspace.namespace("container")
    move_tap(lab, tap, inside)
    assert ping(inside, veth.address, count=3).received >= 2   # the first may be waiting for ARP
    assert ping(inside, veth.address, count=10).received == 10
    share = idle_share(lab)
    figure(f"veth, tap, memif, vhost-user idle: {share:.1%} of a core")
    assert share <= CPU_LIMIT


@pytest.mark.parametrize("option, seen", [("", FRAMES), (",qdisc_bypass=1", 0)])
def test_packet_sockets_on_its_interface_see_what_a_port_sends(workspace: Workspace, option: str, seen: int) -> None:
    """tcpdump does, then. With the option, which is faster, it does not."""
    lab = Lab(workspace)
    source = lab.wire("vm1", 1)
    target = lab.wire("vm2", 2)
    lab.nic.ports[-1]["dpdk"] = lab.dpdk_arguments(target) + option
    lab.fix_neighbours()
    lab.start(offload=True, fail_mode="secure")
    cross(lab, source, target)
    with lab.namespace.entered():
        sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sniffer.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    sniffer.bind((target.veth, ETH_P_ALL))
    sniffer.settimeout(0.5)
    numbered = Stream(source.namespace, source.device, source_mac=source.mac, target_mac=target.mac,
                      source=source.address, target=target.address, rate=5000, limit=FRAMES)
    with target.capture() as capture, numbered:
        assert numbered.join() == FRAMES
        capture.settle()
    assert len([frame for frame in capture.frames if stream_number(frame) is not None]) == FRAMES
    outgoing = 0
    while True:
        try:
            frame, (*_, kind, _, _) = sniffer.recvfrom(65535)
        except TimeoutError:
            break
        outgoing += kind == socket.PACKET_OUTGOING and stream_number(frame) is not None
    sniffer.close()
    assert outgoing == seen


def test_ports_that_are_deleted_together_do_not_each_stop_the_switch(workspace: Workspace) -> None:
    """OVS has no revalidators while flows are restored: each port's deletion would wait a second for them."""
    lab = Lab(workspace)
    wires = [lab.wire_port(f"vm{number}", number, "net_null,no-rx=1") for number in range(1, 9)]
    lab.nic.write()
    workspace.defer(lab.switch.stop)
    lab.switch.start_database()
    lab.switch.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:hw-offload=true",
                     "other_config:flow-restore-wait=true")
    lab.switch.start_daemon()
    lab.add_bridge()
    begin = time.monotonic()
    lab.switch.vsctl(*(word for wire in wires for word in ("--", "del-port", BRIDGE, wire.port)))
    took = time.monotonic() - begin
    figure(f"{len(wires)} ports deleted at once without a revalidator: {took:.1f} s")
    assert "vport" not in lab.switch.appctl("dr/ports")
    wait_until(lambda: "the deletion of ports before it took too long" in lab.switch.messages(), 5, "a warning")
    assert lab.switch.messages().count("no revalidator deleted them") == 1
    assert took < 5
