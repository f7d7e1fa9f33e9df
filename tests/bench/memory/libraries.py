"""Who has a daemon's memory: bytes that each of its libraries has allocated, as by_library.c counts them."""

from __future__ import annotations

import struct
from pathlib import Path

from lab import build
from lab.switch import STOCK_DAEMON, Switch

TARGET = "tests/bench/memory/by_library.so"
OWNERS, SHARDS, NAME_SIZE, SHARD_SIZE = 8, 32, 56, 64   # struct counts

OVS, OURS, NIC = "Open vSwitch", "the daemon itself: offload/ and ctrl/", "the NIC's library"


class Libraries:
    """Of a switch whose daemon has not been started yet."""

    def __init__(self, switch: Switch, folder: Path) -> None:
        self.switch = switch
        self.file = folder / "memory.counts"
        switch.daemon_environment |= {"LD_PRELOAD": str(build.build_folder() / TARGET), "OVSDR_MEMORY": str(self.file)}

    def read(self) -> dict[str, int]:
        """Bytes by library. A stock daemon has Open vSwitch linked in: its own is that."""
        data = self.file.read_bytes()
        names = [data[at:at + NAME_SIZE].split(b"\0")[0].decode() for at in range(0, OWNERS * NAME_SIZE, NAME_SIZE)]
        sums: dict[str, int] = {}
        for shard in range(SHARDS):
            values = struct.unpack_from(f"{OWNERS}q", data, OWNERS * NAME_SIZE + shard * SHARD_SIZE)
            for name, value in zip(names, values):
                sums[name] = sums.get(name, 0) + value
        if self.switch.daemon_path == STOCK_DAEMON:
            sums[OVS], sums[OURS] = sums[OVS] + sums[OURS], 0
        return sums

    def resident(self) -> int:
        """Bytes of memory that the daemon has, whoever's."""
        assert self.switch.daemon is not None
        pages = int(Path(f"/proc/{self.switch.daemon.pid}/statm").read_text().split()[1])
        return pages * 4096
