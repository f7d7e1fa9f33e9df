"""What a capture of storage traffic holds: the bytes of its TCP connections, and the disk's contents as they went by.

tshark reads the file. The streams are put together here, by sequence number and not by the order of the frames (a
mirror's come by two ways), and a byte that is missing in one is an error.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

from .command import run

_SEQUENCES = 1 << 32
_SMALL = 64 << 20   # bytes of a file whose connections are read at once; of a larger one each by itself


@dataclass
class Disk:
    """What the capture says was written and read: bytes by place."""

    written: dict[int, bytes] = field(default_factory=dict)
    read: dict[int, bytes] = field(default_factory=dict)
    units: Counter[int] = field(default_factory=Counter)   # protocol data units, by the protocol's own code

    @staticmethod
    def _together(pieces: dict[int, bytes], size: int) -> bytes:
        """Missing bytes are 0xFF."""
        whole = bytearray(b"\xff" * size)
        for at, piece in pieces.items():
            whole[at:at + len(piece)] = piece
        return bytes(whole)

    def written_bytes(self, size: int) -> bytes:
        return self._together(self.written, size)

    def read_bytes(self, size: int) -> bytes:
        return self._together(self.read, size)


@dataclass
class _Side:
    """One direction of a connection."""

    opens: bool = False             # its SYN is the connection's first
    start: int | None = None        # sequence number of its SYN
    segments: dict[int, bytes] = field(default_factory=dict)   # the longest at each sequence number
    acknowledged: list[int] = field(default_factory=list)      # of the other direction's

    def add(self, sequence: int, payload: bytes) -> None:
        if len(payload) > len(self.segments.get(sequence, b"")):
            self.segments[sequence] = payload

    def offset(self, sequence: int) -> int:
        """Of a stream's byte; negative in front of the first one. A stream is shorter than 2 GiB."""
        if self.start is None:
            raise ValueError("the capture has no SYN of this direction")
        distance = (sequence - self.start - 1) % _SEQUENCES
        return distance - _SEQUENCES if distance >= _SEQUENCES // 2 else distance

    def stream(self) -> bytes:
        """Raises ValueError where bytes are missing."""
        whole = bytearray()
        for at, payload in sorted((self.offset(sequence), payload) for sequence, payload in self.segments.items()):
            if at > len(whole):
                raise ValueError(f"{at - len(whole)} bytes are missing at {len(whole)} of a stream")
            whole += payload[len(whole) - at:]
        return bytes(whole)


def _read(capture: Path, select: str) -> dict[int, tuple[_Side, _Side]]:
    """The TCP connections that tshark's display filter selects, by its number: that of who opened it, and the other."""
    names = ("tcp.stream", "tcp.srcport", "tcp.flags.syn", "tcp.seq_raw", "tcp.ack_raw", "tcp.flags.ack", "tcp.payload")
    text = run(["tshark", "-n", "-r", str(capture), "-Y", select, "-T", "fields",
                *(word for name in names for word in ("-e", name))], timeout=600)
    found: dict[int, dict[str, _Side]] = {}
    for line in text.splitlines():
        number, port, syn, sequence, acknowledged, has_acknowledged, payload = line.split("\t")
        side = found.setdefault(int(number), {}).setdefault(port, _Side())
        if syn == "1":
            side.start, side.opens = int(sequence), has_acknowledged == "0"
        side.add(int(sequence), bytes.fromhex(payload))
        if has_acknowledged == "1":
            side.acknowledged.append(int(acknowledged))
    return {number: _ordered(number, list(sides.values())) for number, sides in sorted(found.items())}


def _ordered(number: int, sides: list[_Side]) -> tuple[_Side, _Side]:
    sides.sort(key=lambda side: not side.opens)
    if len(sides) != 2 or not sides[0].opens:
        raise ValueError(f"TCP connection {number} has {len(sides)} directions, or no beginning")
    return sides[0], sides[1]


def _streams(sides: tuple[_Side, _Side]) -> tuple[bytes, bytes]:
    whole = sides[0].stream(), sides[1].stream()
    for side, receiver, stream in zip(sides, reversed(sides), whole):
        end = max(map(side.offset, receiver.acknowledged), default=0)
        if end > len(stream) + 1:   # a FIN counts as one
            raise ValueError(f"{end - len(stream)} bytes behind {len(stream)} of a stream were acknowledged and are "
                             "missing")
    return whole


def connections(capture: Path, port: int) -> Iterator[tuple[bytes, bytes]]:
    """Both directions of each TCP connection to a port, first that of who opened it. Raises ValueError where a byte is
    missing that is known to have been there: others followed it, or its receiver acknowledged it."""
    if capture.stat().st_size < _SMALL:
        yield from map(_streams, _read(capture, f"tcp.port == {port}").values())
        return
    opening = f"tcp.port == {port} && tcp.flags.syn == 1 && tcp.flags.ack == 0"
    numbers = run(["tshark", "-n", "-r", str(capture), "-Y", opening, "-T", "fields", "-e", "tcp.stream"], timeout=600)
    for number in sorted(set(map(int, numbers.split()))):
        yield _streams(_read(capture, f"tcp.stream == {number}")[number])
