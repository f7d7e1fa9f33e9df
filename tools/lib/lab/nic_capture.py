"""A capture at the soft NIC, `drnic capture`, and what is in the files that it and tcpdump write."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from . import build
from .command import Background, run, wait_until
from .namespace import Namespace
from .softnic import SoftNic

# Wireshark's reader of the file itself, with each option of each block.
_FILE_BLOCKS = ["-X", "read_format:MIME Files Format", "-V"]


@dataclass(frozen=True)
class Summary:
    """What drnic says at the end."""

    captured: int   # written into the file
    seen: int
    accepted: int   # of these, by the filter
    dropped: int    # of these, for want of room


class NicCapture:
    """Runs from its construction until stop(), or until it ends by itself. `under`: a command that starts it."""

    def __init__(self, nic: SoftNic, port: str, file: Path, *arguments: str, under: Sequence[str] = ()) -> None:
        self.file = file
        self.log = file.with_suffix(".log")
        self.process = Background([*under, str(build.drnic()), "--socket", str(nic.control), "capture", port,
                                   "-w", str(file), *arguments], self.log)
        wait_until(lambda: "capturing at" in self.output() or not self.process.running(), 20, "drnic captures")

    def output(self) -> str:
        return self.process.output()

    def stop(self) -> Summary:
        self.process.signal(signal.SIGINT)
        assert self.wait() == 0, self.output()
        return self.summary()

    def wait(self, timeout: float = 30) -> int:
        return self.process.wait(timeout)

    def summary(self) -> Summary:
        found = re.search(r"(\d+) packets captured at .*; "
                          r"(\d+) passed by, (\d+) of them through the filter; (\d+) dropped", self.output())
        assert found, self.output()
        return Summary(*map(int, found.groups()))


class Tcpdump:
    """tcpdump in a namespace, from its construction until stop()."""

    def __init__(self, namespace: Namespace, device: str, file: Path, *arguments: str) -> None:
        self.file = file
        self.process = namespace.start(["tcpdump", "-ni", device, "-s", "65535", "-B", "65536", "--immediate-mode",
                                        "-U", "-w", str(file), *arguments], file.with_suffix(".log"))
        wait_until(lambda: "listening on" in self.process.output(), 20, "tcpdump listens")

    def stop(self, quiet: float = 0.5) -> int:
        """Once it has written nothing for `quiet` seconds: what it has not read when it is interrupted, is lost.
        Returns how many packets it says that it lost before."""
        before = -1
        while (size := self.file.stat().st_size) != before:
            before = size
            time.sleep(quiet)
        self.process.signal(signal.SIGINT)
        self.process.wait(20)
        dropped = re.search(r"(\d+) packets? dropped by kernel", self.process.output())
        assert dropped, self.process.output()
        return int(dropped.group(1))


def frames(file: Path) -> list[bytes]:
    """Of a pcap or pcapng file, by scapy."""
    from scapy.utils import RawPcapReader
    reader = RawPcapReader(str(file))
    try:
        return [bytes(packet[0]) for packet in reader]
    finally:
        reader.close()


def fields(file: Path, *names: str, select: str = "") -> list[list[str]]:
    """By tshark; `select` is one of its display filters."""
    wanted = [word for name in names for word in ("-e", name)]
    text = run(["tshark", "-r", str(file), *(["-Y", select] if select else []), "-T", "fields", *wanted])
    return [line.split("\t") for line in text.splitlines()]


def statistics(file: Path) -> list[dict[str, int]]:
    """Of each interface: received, accepted, dropped, delivered; from its statistics block."""
    text = run(["tshark", *_FILE_BLOCKS, "-r", str(file)])
    found = []
    for block in text.split("Block: Interface Statistics Block")[1:]:
        numbers = re.findall(r"^ +Number of (\w+)[\w ]*Packets: (\d+)", block, re.MULTILINE)
        found.append({name.lower(): int(number) for name, number in numbers})
    return found
