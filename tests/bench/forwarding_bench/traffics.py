"""The six traffics: frames in a pcap file that net_pcap repeats for ever, and the OpenFlow rules that carry them."""

from __future__ import annotations

import ipaddress
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "lib"))

from lab.traffic import udp_frame  # noqa: E402

FRAME_SIZE = 64   # bytes in the file, without FCS
SOURCES = ipaddress.IPv4Address("10.0.0.0")


@dataclass(frozen=True)
class Traffic:
    """`tuples` UDP 5-tuples in turn. How OVS classifies them follows from the rules."""

    name: str
    tuples: int
    megaflows: int
    simple: bool   # a match that OVS's simple match takes (in_port and Ethernet type alone)

    def frames(self) -> list[bytes]:
        """With several megaflows the tuples differ in the source address, otherwise in address and port."""
        made = []
        for number in range(self.tuples):
            source = str(SOURCES + (number if self.megaflows > 1 else number // 100))
            port = 1000 if self.megaflows > 1 else 1000 + number % 100
            made.append(udp_frame("02:0d:00:00:00:01", "02:0d:00:00:00:02", source, "192.168.0.1",
                                  bytes(FRAME_SIZE - 42), source_port=port))
        return made

    def rules(self) -> list[str]:
        if self.megaflows > 1:
            return [f"in_port=1,ip,nw_src={SOURCES + number},actions=output:2" for number in range(self.megaflows)]
        if self.simple:
            return ["in_port=1,actions=output:2"]
        return ["in_port=1,udp,nw_dst=192.168.0.0/16,actions=output:2"]


TRAFFICS = [
    Traffic("1 tuple, 1 megaflow, simple match", 1, 1, True),
    Traffic("10k tuples, 1 megaflow, simple match", 10_000, 1, True),
    Traffic("100k tuples, 1 megaflow, simple match", 100_000, 1, True),
    Traffic("10k tuples, 1 megaflow, no simple match", 10_000, 1, False),
    Traffic("10k megaflows", 10_000, 10_000, False),
    Traffic("100k tuples, 1 megaflow, no simple match", 100_000, 1, False),
]


def write_pcap(path: Path, frames: list[bytes]) -> None:
    """At least 64 frames: net_pcap hands out whole bursts."""
    repeated = frames * max(1, -(-64 // len(frames)))
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for frame in repeated:
            file.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
