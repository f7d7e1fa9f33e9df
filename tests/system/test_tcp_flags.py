"""Who asks for the TCP flags of a flow's packets sees them although the NIC forwards them: fin_timeout and NetFlow."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager
from typing import Iterator

import pytest
from helpers import figure, is_offloaded
from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab

FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
PORT = 5010
SIZE = 2_000_000


@contextmanager
def listening(guest: Guest) -> Iterator[socket.socket]:
    with guest.namespace.entered():
        server = socket.socket()
    with server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((guest.address, PORT))
        server.listen()
        server.settimeout(30)
        yield server


def connection(lab: Lab, source: Guest, target: Guest, *, reset: bool) -> None:
    """SIZE bytes from source to target, the last of them when the NIC forwards both directions, then its end: FIN, or
    RST by the source."""
    with listening(target) as server:
        received: list[int] = []

        def drain() -> None:
            accepted, _ = server.accept()
            with accepted:
                try:
                    while chunk := accepted.recv(1 << 16):
                        received.append(len(chunk))
                except ConnectionResetError:
                    pass

        reader = threading.Thread(target=drain)
        reader.start()
        with source.namespace.entered():
            client = socket.socket()
        with client:
            client.settimeout(30)
            client.connect((target.address, PORT))
            client.sendall(bytes(SIZE - 1000))
            wait_until(lambda: all(is_offloaded(lab, guest) for guest in (source, target)), 15,
                       "both directions are in the NIC")
            client.sendall(bytes(1000))
            if reset:
                wait_until(lambda: sum(received) == SIZE, 30, "all has arrived")
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reader.join(30)
        assert sum(received) == SIZE


def ends(packets: list[bytes]) -> int:
    """TCP segments with FIN or RST among these IPv4 frames."""
    return sum(1 for frame in packets if frame[12:14] == b"\x08\x00" and frame[23] == 6 and
               frame[14 + 4 * (frame[14] & 15) + 13] & (FIN | RST))


def idle_timeout(lab: Lab, rule: str) -> int:
    """The rule's own, not that of its actions."""
    match, _, _ = lab.switch.ofctl("dump-flows", BRIDGE, rule).partition("actions=")
    return int(match.split("idle_timeout=")[1].split(",")[0])


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
def test_fin_timeout_works_on_offloaded_flows(lab: Lab, reset: bool) -> None:
    first, second = lab.guests[:2]
    rule = "in_port=1,tcp"
    lab.switch.add_flows(BRIDGE, [f"{rule},idle_timeout=3600,actions=fin_timeout(idle_timeout=1000),output:2",
                                  "in_port=2,tcp,actions=output:1"])
    slow_before = stats.slow_path(lab.switch)
    with second.capture() as seen:
        connection(lab, first, second, reset=reset)
        seen.settle()
    wait_until(lambda: idle_timeout(lab, rule) == 1000, 15, "fin_timeout shortens the rule's life")
    assert ends(seen.frames) >= 1
    sent = len([frame for frame in seen.frames if frame[12:14] == b"\x08\x00" and frame[6:12] != frame[0:6]])
    packets, _ = stats.openflow_counts(lab.switch, BRIDGE, rule)
    slow = stats.slow_path(lab.switch)
    figure(f"{packets} packets counted, {sent} seen, slow path {slow_before} to {slow}")


def test_a_connection_without_an_end_shortens_nothing(lab: Lab) -> None:
    """The rule of the test before is of use only if it does not always say so."""
    first, second = lab.guests[:2]
    rule = "in_port=1,tcp"
    lab.switch.add_flows(BRIDGE, [f"{rule},idle_timeout=3600,actions=fin_timeout(idle_timeout=1000),output:2",
                                  "in_port=2,tcp,actions=output:1"])
    with listening(second) as server:
        with first.namespace.entered():
            client = socket.socket()
        with client:
            client.settimeout(30)
            client.connect((second.address, PORT))
            accepted, _ = server.accept()
            with accepted:
                for _ in range(200):
                    client.sendall(bytes(1000))
                    accepted.recv(1 << 16)
                wait_until(lambda: stats.openflow_counts(lab.switch, BRIDGE, rule)[0] >= 100, 15,
                           "the packets are counted")
                assert idle_timeout(lab, rule) == 3600


class NetFlow:
    """A collector of NetFlow version 5 on loopback: (source port, destination port) → flags, ORed over its records."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        self.flags: dict[tuple[int, int], int] = {}

    def flags_to(self, port: int) -> int:
        while True:
            try:
                message = self.socket.recv(2048)
            except BlockingIOError:
                break
            for i in range(struct.unpack_from("!H", message, 2)[0]):
                record = message[24 + 48 * i:72 + 48 * i]
                key = struct.unpack_from("!2H", record, 32)
                self.flags[key] = self.flags.get(key, 0) | record[37]
        found = 0
        for (_, destination), flags in self.flags.items():
            found |= flags if destination == port else 0
        return found


def test_netflow_tells_how_a_connection_began_and_ended(lab: Lab) -> None:
    first, second = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["in_port=1,tcp,actions=output:2", "in_port=2,tcp,actions=output:1"])
    with lab.switch.namespace.entered():
        collector = NetFlow()
    with collector.socket:
        lab.switch.vsctl("--", "set", "bridge", BRIDGE, "netflow=@n", "--", "--id=@n", "create", "netflow",
                         f'targets="{collector.address}"', "active_timeout=2")
        connection(lab, first, second, reset=False)
        wait_until(lambda: collector.flags_to(PORT) & (SYN | FIN | ACK) == SYN | FIN | ACK, 30,
                   "NetFlow tells SYN, FIN and ACK")
        figure(f"NetFlow's flags of the connection: {collector.flags_to(PORT):#04x}")
