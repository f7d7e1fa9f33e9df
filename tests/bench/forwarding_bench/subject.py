"""What is measured: something with ports that forwards a row's packets, on one core or on two."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from cycles import threads_of

from lab.workspace import Workspace
from traffics import Port, Traffic, write_pcap

MEMORY_MB = 1024


@dataclass(frozen=True)
class Sample:
    packets_per_second: float     # of Clock
    cycles_per_packet: float
    changes_per_second: float = 0
    left: float = 1               # of the packets a second that the same run had before the changes
    note: str = ""                # what is wrong with it


class Subject:
    """begin(), measure(), finish(), once each, in a workspace of its own: nothing of the run before is left."""

    name = ""
    threads = ""     # how the names of the threads begin that forward

    def __init__(self, workspace: Workspace, traffic: Traffic, core: int) -> None:
        self.workspace = workspace
        self.traffic = traffic
        self.cores = [core, other(core)][:len(traffic.sources) * traffic.queues]
        self.pcap = workspace.folder / "frames.pcap"
        write_pcap(self.pcap, traffic.frames())

    def driver(self, port: Port) -> tuple[str, str]:
        """DPDK's driver of the port, and its arguments."""
        if not port.sink:
            return "net_null", "no-rx=1"
        return "net_pcap", f"rx_pcap={self.pcap}," * self.traffic.queues + "infinite_rx=1"

    def begin(self) -> None:
        raise NotImplementedError

    def measure(self, seconds: float) -> Sample:
        raise NotImplementedError

    def finish(self) -> str:
        """Checks what can be checked when the measuring is over; what is wrong, or nothing."""
        return ""


class Clock:
    """Time of the threads that forward: what passes, but not while they are ready to run and something else does."""

    def __init__(self, pid: int, threads: str) -> None:
        self._schedules = [Path(f"/proc/{pid}/task/{thread}/schedstat") for thread, name in threads_of(pid).items()
                           if name.startswith(threads)]
        self._begin = self._now()

    def stop(self) -> None:
        passed, waited = (after - before for after, before in zip(self._now(), self._begin))
        self.seconds = passed - waited          # of one thread
        self.share = self.seconds / passed      # theirs, of the cycles that they have counted meanwhile

    def _now(self) -> tuple[float, float]:
        waited = [int(file.read_text().split()[1]) / 1e9 for file in self._schedules]
        return time.monotonic(), sum(waited) / len(waited)


def other(core: int) -> int:
    """Where all runs that does not forward."""
    return 0 if core else 1
