"""Debian's ovs-vswitchd-dpdk, with one PMD thread for each core."""

from __future__ import annotations

import re
import time

from lab.switch import Switch, stock_dpdk_daemon
from subject import MEMORY_MB, Sample, other
from switch_subject import SwitchSubject, quoted
from traffics import Port

FORWARDED_AT_LEAST = 0.99   # of what came in: some is under way


class OvsDpdkSubject(SwitchSubject):
    name = "ovs-vswitchd-dpdk"
    threads = "pmd-"

    def start(self) -> Switch:
        switch = Switch(self.namespace, self.workspace.folder, stock_dpdk_daemon(self.workspace.folder),
                        daemon_arguments=["--disable-system"])
        self.workspace.defer(switch.stop)
        switch.start_database()
        extra = f"--no-huge --legacy-mem -m {MEMORY_MB * 2} --no-pci --file-prefix={self.workspace.name}"
        switch.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true",
                     f"other_config:dpdk-extra={quoted(extra)}",
                     f"other_config:dpdk-lcore-mask={1 << other(self.cores[0])}",
                     f"other_config:pmd-cpu-mask={sum(1 << core for core in self.cores):#x}")
        switch.start_daemon()
        return switch

    def interface(self, port: Port) -> list[str]:
        driver, arguments = self.driver(port)
        settings = ["type=dpdk", f"options:dpdk-devargs={quoted(f'{driver}{port.number},{arguments}')}"]
        if self.traffic.queues > 1 and port.sink:   # each queue is one thread's
            places = ",".join(f"{queue}:{core}" for queue, core in enumerate(self.cores))
            settings += [f"options:n_rxq={self.traffic.queues}", f"other_config:pmd-rxq-affinity={quoted(places)}"]
        elif len(self.traffic.sources) > 1:   # each pair is one thread's
            pair = next(number for number, source in enumerate(self.traffic.sources)
                        if port in (source, self.traffic.sink_of(source)))
            settings.append(f"other_config:pmd-rxq-affinity={quoted(f'0:{self.cores[pair]}')}")
        return settings

    def sample(self, seconds: float) -> Sample:
        before = self._forwarded()
        self.switch.appctl("dpif-netdev/pmd-stats-clear")
        clock = self.clock()
        time.sleep(seconds)
        text = self.switch.appctl("dpif-netdev/pmd-stats-show")
        clock.stop()
        forwarded = [(after[0] - earlier[0], after[1] - earlier[1])
                     for after, earlier in zip(self._forwarded(), before)]
        packets = sum(map(int, re.findall(r"packets received:\s+(\d+)", text)))
        cycles = sum(map(int, re.findall(r"avg cycles per packet:\s+[0-9.]+ \((\d+)/\d+\)", text)))
        note = ", ".join(f"{sent} of {received} packets were forwarded" for received, sent in forwarded
                         if not received or sent < FORWARDED_AT_LEAST * received)
        return Sample(packets / clock.seconds, cycles * clock.share / max(1, packets), note=note)

    def _forwarded(self) -> list[tuple[int, int]]:
        """Packets from each source, and to its sink, as of one moment."""
        text = self.switch.appctl("dpctl/show", "-s")

        def count(name: str, side: str) -> int:
            found = re.search(rf"port \d+: {name} .*?{side} packets:(\d+)", text, re.DOTALL)
            return int(found.group(1)) if found else 0

        return [(count(source.name, "RX"), count(self.traffic.sink_of(source).name, "TX"))
                for source in self.traffic.sources]
