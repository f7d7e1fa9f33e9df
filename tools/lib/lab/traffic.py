"""Traffic between guests: ping, iperf3, and frames of our own making."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

from .command import CommandError, wait_until
from .namespace import Namespace


_SOME_DO_NOT_ANSWER = 1   # fping's exit status


@dataclass(frozen=True)
class Ping:
    sent: int
    received: int
    times_ms: tuple[float, ...]


def ping(namespace: Namespace, target: str, *, count: int = 3, interval: float = 0.2, wait: float = 2, size: int = 56,
         device: str = "") -> Ping:
    """Each answer has `wait` seconds, the last one too: iputils' ping ends `interval` after its last request, so that a
    switch whose host was busy for a moment would seem to lose it. `size`: of the payload; larger ones are not cut."""
    arguments = ["fping", "-C", str(count), "-p", str(round(interval * 1000)), "-i", "1", "-t", str(round(wait * 1000)),
                 "-b", str(size), *(["-M"] if size > 56 else []), *(["-I", device] if device else []), target]
    try:
        text = namespace.run(arguments, timeout=count * (interval + wait) + 20)
    except CommandError as error:
        if error.code != _SOME_DO_NOT_ANSWER:
            raise
        text = error.output
    times = re.findall(r"\[\d+\], \d+ bytes, ([0-9.]+) ms", text)
    return Ping(count, len(times), tuple(map(float, times)))


@dataclass(frozen=True)
class Iperf:
    """What the receiver got."""

    megabits_per_second: float
    seconds: float
    packets: int       # UDP only
    lost: int          # UDP only: on the way
    unread: int        # UDP only: arrived, but the receiver's socket was full
    retransmits: int   # TCP only


def iperf(client: Namespace, server: Namespace, server_address: str, folder: Path, *, seconds: int = 10,
          udp_megabits: int | None = None, udp_size: int = 1400, port: int = 5201,
          after_first_second: Callable[[], None] | None = None) -> Iperf:
    """One run from client to server. `udp_size` is a datagram's payload in bytes; `after_first_second` is called while
    it runs, a second after its start."""
    log, report = folder / f"iperf3-server-{port}.log", folder / f"iperf3-client-{port}.json"
    for file in (log, report):
        file.unlink(missing_ok=True)
    arguments = ["iperf3", "-c", server_address, "-p", str(port), "-t", str(seconds), "-J", "--connect-timeout",
                 "5000", *(["-u", "-b", f"{udp_megabits}M", "-l", str(udp_size)] if udp_megabits else [])]
    full_before = _full_sockets(server)
    daemon = server.start(["iperf3", "-s", "-1", "-p", str(port), "--forceflush"], log)
    try:
        wait_until(lambda: "listening" in daemon.output(), 10, "iperf3 server")
        sender = client.start(arguments, report)
        try:
            if after_first_second:
                time.sleep(1)
                after_first_second()
            sender.wait(seconds + 30)
        finally:
            sender.stop()
    finally:
        daemon.stop()
    return iperf_result(arguments, sender.output(), _full_sockets(server) - full_before if udp_megabits else None)


def _full_sockets(namespace: Namespace) -> int:
    """Datagrams that this guest's kernel threw away because the program did not read fast enough."""
    lines = namespace.run(["cat", "/proc/net/snmp", "/proc/net/snmp6"]).splitlines()
    names, values = [line.split() for line in lines if line.startswith("Udp:")]
    over_ipv6 = next(line.split()[1] for line in lines if line.startswith("Udp6RcvbufErrors"))
    return int(values[names.index("RcvbufErrors")]) + int(over_ipv6)


def resets(*namespaces: Namespace) -> int:
    """RSTs that these hosts have sent: each comes up, and a receiver that closes early sends one for each segment."""
    total = 0
    for namespace in namespaces:
        names, values = [line.split() for line in namespace.run(["cat", "/proc/net/snmp"]).splitlines()
                         if line.startswith("Tcp:")]
        total += int(values[names.index("OutRsts")])
    return total


def iperf_result(arguments: Sequence[str], output: str, unread: int | None) -> Iperf:
    """Out of what `iperf3 -J` wrote. `unread`: of UDP, what the receiver's socket had no room for."""
    try:
        report = json.loads(output)
    except json.JSONDecodeError as error:
        raise CommandError(arguments, -1, output) from error
    if "error" in report:
        raise CommandError(arguments, -1, report["error"])
    end = report["end"]
    if unread is not None:
        total = end["sum"]
        lost, packets = total["lost_packets"], total["packets"]
        rate = total["bits_per_second"] / 1e6 * (1 - lost / packets if packets else 0)
        return Iperf(rate, total["seconds"], packets, max(0, lost - unread), unread, 0)
    received = end["sum_received"]
    return Iperf(received["bits_per_second"] / 1e6, received["seconds"], 0, 0, 0, end["sum_sent"].get("retransmits", 0))


def send_by_tcp(source: Namespace, target: Namespace, address: str, data: bytes, port: int = 5001) -> bytes:
    """What `target`, which has that address, gets of it over one connection."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with target.entered():
        server = socket.create_server((address, port), family=family)
    received = bytearray()

    def drain() -> None:
        accepted, _ = server.accept()
        with accepted:
            while chunk := accepted.recv(1 << 16):
                received.extend(chunk)

    with server:
        reader = threading.Thread(target=drain)
        reader.start()
        with source.entered():
            client = socket.create_connection((address, port), timeout=30)
        with client:
            client.sendall(data)
        reader.join(60)
    return bytes(received)


def send_frames(namespace: Namespace, device: str, frames: Sequence[bytes]) -> None:
    """Sends whole Ethernet frames as a guest would."""
    with namespace.entered():
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    with sender:
        sender.bind((device, 0))
        for frame in frames:
            sender.send(frame)


_STREAM_MARK = b"ovs-dr stream "


class Stream:
    """Numbered UDP datagrams as whole frames at a constant rate, from a thread of its own.

    A frame is (destination MAC, source MAC, tags, IPv4, UDP 7000 to 7001, mark, number). `sent` counts.
    """

    def __init__(self, namespace: Namespace, device: str, *, source_mac: str, target_mac: str, source: str,
                 target: str, rate: float = 200, size: int = 100, limit: int | None = None, tags: bytes = b"") -> None:
        self.sent = 0
        self.size = size
        self._limit = limit
        self._interval = 1 / rate
        self._end = threading.Event()
        untagged = udp_frame(source_mac, target_mac, source, target, b"\0" * (size - len(tags) - 42))[:42]
        self._head = untagged[:12] + tags + untagged[12:] + _STREAM_MARK
        with namespace.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((device, 0))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Stream":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        self._end.set()
        self._thread.join()
        self._socket.close()
        return self.sent

    def join(self) -> int:
        """Waits until `limit` frames are sent."""
        self._thread.join()
        return self.sent

    def _run(self) -> None:
        start = time.monotonic()
        while not self._end.is_set() and self.sent != self._limit:
            frame = self._head + struct.pack("!I", self.sent)
            self._socket.send(frame + bytes(self.size - len(frame)))
            self.sent += 1
            ahead = start + self.sent * self._interval - time.monotonic()
            if ahead > 0.0005:
                self._end.wait(ahead)


def stream_number(frame: bytes) -> int | None:
    """The number of a Stream's frame; None for any other frame."""
    at = frame.find(_STREAM_MARK)
    if at < 0:
        return None
    return int(struct.unpack_from("!I", frame, at + len(_STREAM_MARK))[0])


def udp_frame(source_mac: str, target_mac: str, source: str, target: str, payload: bytes, *, source_port: int = 7000,
              target_port: int = 7001, vlan: int | None = None) -> bytes:
    """A UDP datagram over IPv4 in an Ethernet frame; checksum 0 in UDP, a right one in IPv4."""
    udp = struct.pack("!HHHH", source_port, target_port, 8 + len(payload), 0)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp) + len(payload), 0, 0x4000, 64, 17, 0,
                         socket.inet_aton(source), socket.inet_aton(target))
    words = sum(struct.unpack("!10H", header))
    words = (words & 0xFFFF) + (words >> 16)
    checksum = ~(words + (words >> 16)) & 0xFFFF
    header = header[:10] + struct.pack("!H", checksum) + header[12:]
    tag = struct.pack("!HH", 0x8100, vlan) if vlan is not None else b""
    macs = bytes.fromhex((target_mac + source_mac).replace(":", ""))
    return macs + tag + b"\x08\x00" + header + udp + payload
