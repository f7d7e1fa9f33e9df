"""Our daemon on the soft NIC, with one worker for each core; and two ways of net_af_packet on it."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from cycles import worker_thread
from lab import build, stats
from lab.command import wait_until
from lab.namespace import make_veth
from lab.softnic import DEVICE, SoftNic
from lab.switch import Switch
from subject import MEMORY_MB, Sample
from switch_subject import SwitchSubject
from traffics import Port


@dataclass(frozen=True)
class NicState:
    sent: list[int]    # packets, by each source
    got: list[int]     # by the sink of each
    busy: list[int]    # cycles of each worker


class SoftNicSubject(SwitchSubject):
    name = "ovs-dr"
    threads = "softnic-"

    def start(self) -> Switch:
        self.nic = SoftNic(self.workspace.folder)
        self.nic.workers = {"count": len(self.cores), "cpus": self.cores, "rebalance": False}
        self.nic.memory_mb = MEMORY_MB
        for port in self.traffic.ports:
            self.nic.add_port(port.vport, ",".join(self.driver(port)), port.name, f"02:0d:00:00:01:{port.number:02x}")
        self.add_more_ports()
        self.nic.write()
        switch = Switch(self.namespace, self.workspace.folder, str(build.daemon()),
                        environment=self.nic.environment(), daemon_arguments=["--disable-system"])
        self.workspace.defer(switch.stop)
        switch.start()
        switch.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
        return switch

    def add_more_ports(self) -> None:
        """Of the soft NIC, beside the row's."""

    def interface(self, port: Port) -> list[str]:
        return ["type=dr", f"options:device={DEVICE}", f"options:vport={port.vport}"]

    def installed(self) -> int:
        return len(stats.megaflows(self.switch, kind="offloaded"))

    def changed(self) -> int:
        """In the NIC: all that ever came, and those of them that are not there any more."""
        told = json.loads(self.switch.appctl("dr/metrics"))
        came = sum(told["insertion"]["outcomes"]["installed"]["buckets"])
        return came + came - sum(device["megaflows"]["offloaded"] for device in told["devices"])

    def begin(self) -> None:
        super().begin()
        self._pause()
        self._balanced = self._balance()
        self._resume()

    def sample(self, seconds: float) -> Sample:
        before, clock = self._nic_state(), self.clock()
        time.sleep(seconds)
        after = self._nic_state()
        clock.stop()
        packets = sum(after.sent) - sum(before.sent)
        busy = [later - earlier for later, earlier in zip(after.busy, before.busy)]
        return Sample(packets / clock.seconds, sum(busy) * clock.share / max(1, packets),
                      note="" if all(busy) else "a worker had no packets")

    def finish(self) -> str:
        """With the traffic stopped, what OpenFlow has counted must have grown by exactly what the sources sent, in
        each bridge that it passes, and each sink must have got what its source sent."""
        self._pause()

        def wrong() -> dict[str, int]:
            return {name: packets - self._balanced[name] for name, packets in self._balance().items()
                    if packets != self._balanced[name]}

        try:
            wait_until(lambda: not wrong(), 20, "counters", interval=0.5)
        except TimeoutError:
            return ", ".join(f"{name}: {packets:+d} packets against what was sent" for name, packets in wrong().items())
        return super().finish()

    def _pause(self) -> None:
        self._set_links("down")
        previous: dict[str, int] = {}
        while (now := self._balance()) != previous:
            previous = now
            time.sleep(2)

    def _resume(self) -> None:
        self._set_links("up")
        time.sleep(0.5)

    def _set_links(self, state: str) -> None:
        for port in self.traffic.sources:
            self.nic.drnic("set", "--vport", str(port.vport), "--link", state)

    def _balance(self) -> dict[str, int]:
        """Packets that each sink has got and each bridge's OpenFlow has counted, less what came from the sources."""
        state = self._nic_state()
        passed = {port.bridge for source in self.traffic.sources for port in (source, self.traffic.sink_of(source))}
        sinks = {f"to port {source.sink}": got - sent
                 for source, got, sent in zip(self.traffic.sources, state.got, state.sent)}
        return sinks | {f"OpenFlow's of {bridge}": stats.openflow_counts(self.switch, bridge)[0] - sum(state.sent)
                        for bridge in passed}

    def _nic_state(self) -> NicState:
        state = json.loads(self.nic.drnic("stats", "--json"))
        vports = {port["vport"]: port for port in state["devices"][0]["vports"]}
        return NicState([int(vports[source.vport]["sent_packets"]) for source in self.traffic.sources],
                        [int(vports[source.sink]["received_packets"]) for source in self.traffic.sources],
                        [int(worker["busy_cycles"]) for worker in state["workers"]])


class PacketSocketSubject(SoftNicSubject):
    """The sink is a veth behind net_af_packet; its other end drops all, as nobody there has the frames' address.

    A packet is one that the kernel took, and a second is one of the worker's processor time, the kernel's share of it
    included: what else runs on the machine does not count.
    """

    name = "packet sockets that see it"
    options = ""

    def driver(self, port: Port) -> tuple[str, str]:
        return super().driver(port) if port.sink else ("net_af_packet", f"iface=sink-p{self.options}")

    def start(self) -> Switch:
        behind = self.workspace.namespace("sink")
        make_veth(behind, "eth0", self.namespace, "sink-p", mac="02:0d:00:00:02:02", address="192.0.2.1/24")
        return super().start()

    def sample(self, seconds: float) -> Sample:
        assert self.switch.daemon is not None
        clock = Path(f"/proc/{self.switch.daemon.pid}/task/{worker_thread(self.switch.daemon.pid)}/schedstat")

        def state() -> tuple[int, float, int]:
            """Packets that the kernel took, processor time, cycles since the start."""
            told = json.loads(self.nic.drnic("stats", "--json"))
            packets = next(int(port["received_packets"]) for port in told["devices"][0]["vports"] if port["vport"] == 2)
            worker = told["workers"][0]
            return (packets, int(clock.read_text().split()[0]) / 1e9,
                    sum(int(worker[kind]) for kind in ("busy_cycles", "idle_cycles", "asleep_cycles")))

        before, begin = state(), time.monotonic()
        time.sleep(seconds)
        after, wall = state(), time.monotonic() - begin
        packets, took, cycles = (later - earlier for later, earlier in zip(after, before))
        return Sample(packets / took, took * cycles / wall / max(1, packets))


class BypassSubject(PacketSocketSubject):
    name = "qdisc_bypass=1"
    options = ",qdisc_bypass=1"
