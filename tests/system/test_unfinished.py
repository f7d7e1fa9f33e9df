"""Guests whose NICs do what NICs do by default: they leave checksums to be made, and TCP and UDP to be cut. The switch
sees whole packets, and guests get them joined."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Iterator

import pytest
from helpers import figure
from lab.command import run, wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.namespace import Namespace
from lab.nic_capture import NicCapture
from lab.traffic import send_by_tcp
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

PORT, MTU = 5021, 1500
DATA = os.urandom(4 << 20)
KERNEL = tuple(map(int, os.uname().release.split(".")[:2]))
UDP_SEGMENT = 103   # include/uapi/linux/udp.h


def made_lab(workspace: Workspace, dpdk_port: str = "net_af_packet") -> Lab:
    lab = Lab(workspace, offloads=True, dpdk_port=dpdk_port)
    lab.wire_all(vms=2, uplink=False)
    lab.start(offload=True, fail_mode="secure")
    lab.switch.add_flows(BRIDGE, ["actions=NORMAL"])
    return lab


@pytest.fixture
def unfinished_lab(workspace: Workspace) -> Iterator[Lab]:
    yield made_lab(workspace)


def packets_into(namespace: Namespace, device: str) -> int:
    return namespace.counters(device)["rx_packets"]


def bad_frames(file: Path) -> str:
    """By tshark, which has no part in making them: wrong checksums, and what is longer than the MTU."""
    checks = [word for protocol in ("ip", "tcp", "udp") for word in ("-o", f"{protocol}.check_checksum:TRUE")]
    wrong = " or ".join(f"{protocol}.checksum.status == 0" for protocol in ("ip", "tcp", "udp"))
    return run(["tshark", "-r", str(file), *checks, "-Y", f"{wrong} or frame.len > {MTU + 18}"])


def assert_carries(lab: Lab, address: str, name: str) -> None:
    """DATA from the first to the second guest. At the vport there are whole packets, in the second guest few."""
    one, two = lab.guests
    file = lab.workspace.folder / f"{name}.pcapng"
    before = packets_into(two.namespace, two.device)
    capture = NicCapture(lab.nic, "vm2", file, "--snaplen", "65535")
    assert send_by_tcp(one.namespace, two.namespace, address, DATA) == DATA
    summary = capture.stop()
    came = packets_into(two.namespace, two.device) - before
    figure(f"{name}: {summary.seen} packets at the vport, {came} in the guest")
    assert summary.captured == summary.seen > len(DATA) / MTU
    assert came < summary.seen / 3, "packets have been joined"
    assert bad_frames(file) == ""


def add_ipv6(guest: Guest, number: int) -> str:
    address = f"fd00:99::{number}"
    guest.namespace.run(["ip", "-6", "address", "add", f"{address}/64", "dev", guest.device, "nodad"])
    return address


def test_tcp_of_ipv4_and_ipv6(unfinished_lab: Lab) -> None:
    one, two = unfinished_lab.guests
    assert_carries(unfinished_lab, two.address, "ipv4")
    addresses = [add_ipv6(guest, number) for number, guest in ((1, one), (2, two))]
    assert_carries(unfinished_lab, addresses[1], "ipv6")


def add_vxlan(guest: Guest, peer: Guest, number: int, settings: list[str]) -> str:
    """The guest's own tunnel, whose kernel leaves the cut of what is inside to the NIC as well."""
    guest.namespace.run(["ip", "link", "add", "inside", "type", "vxlan", "id", "5", "dev", guest.device, *settings,
                         "local", guest.address, "remote", peer.address])
    guest.namespace.run(["ip", "address", "add", f"10.97.0.{number}/24", "dev", "inside"])
    guest.namespace.run(["ip", "link", "set", "inside", "up"])
    return f"10.97.0.{number}"


@pytest.mark.parametrize("settings", [["dstport", "4789"], ["dstport", "8472", "udpcsum"]])
def test_tcp_in_a_guests_own_tunnel(unfinished_lab: Lab, settings: list[str]) -> None:
    one, two = unfinished_lab.guests
    addresses = [add_vxlan(guest, peer, number, settings)
                 for number, guest, peer in ((1, one, two), (2, two, one))]
    file = unfinished_lab.workspace.folder / "tunnel.pcapng"
    capture = NicCapture(unfinished_lab.nic, "vm2", file, "--snaplen", "65535")
    assert send_by_tcp(one.namespace, two.namespace, addresses[1], DATA) == DATA
    summary = capture.stop()
    figure(f"VXLAN with {' '.join(settings)}: {summary.seen} packets at the vport")
    assert summary.captured == summary.seen > len(DATA) / MTU
    assert bad_frames(file) == ""


@pytest.mark.skipif(KERNEL < (6, 2), reason="before Linux 6.2 packet sockets lose datagrams that are to be cut")
def test_datagrams_are_cut(unfinished_lab: Lab) -> None:
    """UDP_SEGMENT, as QUIC's senders use it."""
    one, two = unfinished_lab.guests
    sizes: list[int] = []
    with two.namespace.entered():
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with one.namespace.entered():
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with server, client:
        server.bind((two.address, PORT))
        server.settimeout(5)
        client.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
        client.sendto(DATA[:10500], (two.address, PORT))
        received = b""
        while len(received) < 10500:
            datagram = server.recv(65536)
            sizes.append(len(datagram))
            received += datagram
    assert sizes == [1000] * 10 + [500]
    assert received == DATA[:10500]


def test_without_gro_packets_leave_as_they_are(workspace: Workspace) -> None:
    lab = made_lab(workspace, dpdk_port="net_af_packet,gro=0")
    one, two = lab.guests
    before = packets_into(two.namespace, two.device)
    assert send_by_tcp(one.namespace, two.namespace, two.address, DATA) == DATA
    assert packets_into(two.namespace, two.device) - before > len(DATA) / MTU


def test_taps(workspace: Workspace) -> None:
    lab = Lab(workspace)
    wires = [lab.wire_port(f"tap{number}", number, f"net_tap,iface=tap{number}") for number in (1, 2)]
    lab.start(offload=True, fail_mode="secure")
    lab.switch.add_flows(BRIDGE, ["actions=NORMAL"])
    homes = []
    for wire in wires:
        home = workspace.namespace(f"container{wire.vport}")
        wait_until(lambda name=wire.name: name in lab.namespace.run(["ip", "-o", "link", "show"]), 10, "the tap")
        lab.namespace.run(["ip", "link", "set", wire.name, "netns", home.name, "name", "eth0"])
        home.run(["ip", "address", "add", f"{wire.address}/24", "dev", "eth0"])
        home.run(["ip", "link", "set", "eth0", "up"])
        homes.append(home)
    file = workspace.folder / "taps.pcapng"
    capture = NicCapture(lab.nic, "tap2", file, "--snaplen", "65535")
    before = packets_into(homes[1], "eth0")
    assert send_by_tcp(homes[0], homes[1], wires[1].address, DATA) == DATA
    summary, came = capture.stop(), packets_into(homes[1], "eth0") - before
    figure(f"taps: {summary.seen} packets at the vport, {came} in the container")
    assert summary.captured == summary.seen > len(DATA) / MTU
    assert came < summary.seen / 3
    assert bad_frames(file) == ""
