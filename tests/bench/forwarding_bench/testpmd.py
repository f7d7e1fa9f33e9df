"""dpdk-testpmd in io mode: what the ports cost by themselves."""

from __future__ import annotations

import re
import subprocess
import time

from lab.command import wait_until
from lab.switch import PRIORITY
from subject import MEMORY_MB, Clock, Sample, Subject, other

MORE_PACKETS = 16_384   # of its pool than those of the pcap files, which are held there


class TestpmdSubject(Subject):
    """Of the row's ports those that give packets and those that take them, without a look at a packet."""

    name = "testpmd"
    threads = "rte-worker-"

    def begin(self) -> None:
        self.log = self.workspace.folder / "testpmd.log"
        lcores = [f"0@{other(self.cores[0])}", *(f"{number}@{core}" for number, core in enumerate(self.cores, 1))]
        devices = []
        for number, source in enumerate(self.traffic.sources):   # of two neighbours each sends what the other one gets
            for port in (source, self.traffic.sink_of(source)):
                driver, arguments = self.driver(port)
                devices.append(f"--vdev={driver}{number},{arguments}")
        packets = max(self.traffic.tuples, 64) * len(self.cores) + MORE_PACKETS
        argv = [*PRIORITY, "stdbuf", "-oL", "dpdk-testpmd", f"--lcores={','.join(lcores)}", "--main-lcore=0",
                "--no-huge", "--legacy-mem", "-m", str(MEMORY_MB * 2), "--no-pci",
                f"--file-prefix={self.workspace.name}", *devices, "--", "--interactive", "--forward-mode=io",
                f"--nb-cores={len(self.cores)}", f"--total-num-mbufs={packets}", f"--rxq={self.traffic.queues}",
                f"--txq={self.traffic.queues}"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.workspace.namespace("testpmd").command(argv), stdin=subprocess.PIPE,
                                            stdout=log, stderr=log, start_new_session=True)
        self.workspace.defer(self._end)
        self._say("set record-core-cycles on", "start")
        wait_until(lambda: self.process.poll() is not None or "packets/burst" in self._said(), 60, "testpmd starts")
        if self.process.poll() is not None:
            raise RuntimeError(f"testpmd ended: {self._said()[-2000:]}")

    def measure(self, seconds: float) -> Sample:
        self._say("clear fwd stats all")
        clock = Clock(self.process.pid, self.threads)
        time.sleep(seconds)
        self._say("show fwd stats all")
        clock.stop()
        found = r"CPU cycles/packet=[0-9.]+ \(total cycles=(\d+) / total \w+ packets=(\d+)\)"
        wait_until(lambda: re.search(found, self._said()) is not None, 10, "testpmd tells what it has done")
        cycles, packets = map(int, re.search(found, self._said()).groups())
        return Sample(packets / clock.seconds, cycles * clock.share / max(1, packets))

    def _say(self, *commands: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{command}\n" for command in commands).encode())
        self.process.stdin.flush()

    def _said(self) -> str:
        return self.log.read_text(errors="replace")

    def _end(self) -> None:
        try:
            self.process.communicate(b"quit\n", timeout=10)
        except (subprocess.TimeoutExpired, OSError):
            self.process.kill()
            self.process.wait()
