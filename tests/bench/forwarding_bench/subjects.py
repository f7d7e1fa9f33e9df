"""The two that are compared: our daemon on the soft NIC, and Debian's ovs-vswitchd-dpdk, each on one core."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

from cycles import worker_thread
from lab import build, stats
from lab.command import wait_until
from lab.lab import BRIDGE
from lab.namespace import Namespace, make_veth
from lab.softnic import DEVICE, SoftNic
from lab.switch import STOCK_DPDK_DAEMON, Switch
from lab.workspace import Workspace
from traffics import Traffic, write_pcap

MEMORY_MB = 1024


@dataclass(frozen=True)
class Sample:
    packets_per_second: float
    cycles_per_packet: float
    note: str = ""


class Subject:
    """A switch with port 1 (net_pcap, the same frames for ever) and port 2 (net_null, which takes everything)."""

    name = ""

    def __init__(self, workspace: Workspace, traffic: Traffic, core: int) -> None:
        self.workspace = workspace
        self.traffic = traffic
        self.core = core
        self.pcap = workspace.folder / "frames.pcap"
        write_pcap(self.pcap, traffic.frames())

    def source_arguments(self) -> str:
        return f"rx_pcap={self.pcap},infinite_rx=1"

    def begin(self) -> None:
        raise NotImplementedError

    def measure(self, seconds: float) -> Sample:
        raise NotImplementedError

    def finish(self) -> str:
        """Checks what can be checked when the measuring is over; what is wrong, or nothing."""
        return ""

    def add_bridge(self, switch: Switch) -> None:
        # Idle megaflows stay: nothing but the traffic decides.
        switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000", "other_config:flow-limit=200000")
        # Secure: a megaflow of NORMAL from the first moments would keep simple match away.
        switch.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure")
        switch.add_flows(BRIDGE, self.traffic.rules())


class SoftNicSubject(Subject):
    name = "ovs-dr"

    def begin(self) -> None:
        namespace = self.workspace.namespace("switch")
        self.nic = SoftNic(self.workspace.folder)
        self.nic.workers = {"count": 1, "cpus": [self.core]}
        self.nic.memory_mb = MEMORY_MB
        self.nic.add_port(1, f"net_pcap,{self.source_arguments()}", "source", "02:0d:00:00:01:01")
        self.nic.add_port(2, self.sink_arguments(namespace), "sink", "02:0d:00:00:01:02")
        self.add_more_ports()
        self.nic.write()
        self.switch = Switch(namespace, self.workspace.folder, str(build.daemon()),
                             environment=self.nic.environment(), daemon_arguments=["--disable-system"])
        self.workspace.defer(self.switch.stop)
        self.switch.start()
        self.switch.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
        self.add_bridge(self.switch)
        for number, name in ((2, "sink"), (1, "source")):
            self.switch.vsctl("add-port", BRIDGE, name, "--", "set", "interface", name, "type=dr",
                              f"options:device={DEVICE}", f"options:vport={number}", f"ofport_request={number}")
        wait_until(lambda: len(stats.megaflows(self.switch, kind="offloaded")) >= self.traffic.megaflows, 60,
                   f"{self.traffic.megaflows} megaflows are offloaded", interval=0.5)
        self._pause()
        self._counted = self._counters()
        self._resume()

    def sink_arguments(self, _: Namespace) -> str:
        """The port that takes everything; it is opened in this namespace."""
        return "net_null,no-rx=1"

    def add_more_ports(self) -> None:
        """Of the soft NIC, beside source and sink."""

    def measure(self, seconds: float) -> Sample:
        before, begin = self._nic_state(), time.monotonic()
        time.sleep(seconds)
        after, took = self._nic_state(), time.monotonic() - begin
        packets = after[0] - before[0]
        return Sample(packets / took, (after[1] - before[1]) / max(1, packets))

    def finish(self) -> str:
        """With the traffic stopped, OpenFlow's counters must have grown by exactly what the source sent."""
        self._pause()

        def difference() -> int:
            vport, openflow = self._counters()
            return (vport - self._counted[0]) - (openflow - self._counted[1])

        try:
            wait_until(lambda: difference() == 0, 20, "counters", interval=0.5)
        except TimeoutError:
            return f"OpenFlow's counters differ from what was sent by {difference()} packets"
        return ""

    def _pause(self) -> None:
        self.nic.drnic("set", "--vport", "1", "--link", "down")
        previous = (-1, -1)
        while (now := self._counters()) != previous:
            previous = now
            time.sleep(2)

    def _resume(self) -> None:
        self.nic.drnic("set", "--vport", "1", "--link", "up")
        time.sleep(0.5)

    def _counters(self) -> tuple[int, int]:
        """What came from the source; what OpenFlow has counted."""
        return self._nic_state()[0], stats.openflow_counts(self.switch, BRIDGE)[0]

    def _nic_state(self) -> tuple[int, int]:
        """Packets that came from the source, busy cycles of the worker."""
        state = json.loads(self.nic.drnic("stats", "--json"))
        vport = next(port for port in state["devices"][0]["vports"] if port["vport"] == 1)
        return int(vport["sent_packets"]), sum(int(worker["busy_cycles"]) for worker in state["workers"])


class PacketSocketSubject(SoftNicSubject):
    """The sink is a veth behind net_af_packet; its other end drops all, as nobody there has the frames' address.

    A packet is one that the kernel took, and a second is one of the worker's processor time, the kernel's share of it
    included: what else runs on the machine does not count.
    """

    name = "packet sockets that see it"
    options = ""

    def sink_arguments(self, namespace: Namespace) -> str:
        behind = self.workspace.namespace("sink")
        make_veth(behind, "eth0", namespace, "sink-p", mac="02:0d:00:00:02:02", address="192.0.2.1/24")
        return f"net_af_packet,iface=sink-p{self.options}"

    def measure(self, seconds: float) -> Sample:
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


class OvsDpdkSubject(Subject):
    name = "ovs-vswitchd-dpdk"

    def begin(self) -> None:
        namespace = self.workspace.namespace("switch")
        # Its pidfile and control socket are named after argv[0]: the tools look for ovs-vswitchd.
        daemon = self.workspace.folder / "ovs-vswitchd"
        daemon.symlink_to(STOCK_DPDK_DAEMON)
        self.switch = Switch(namespace, self.workspace.folder, str(daemon), daemon_arguments=["--disable-system"])
        self.workspace.defer(self.switch.stop)
        self.switch.start_database()
        extra = f"--no-huge --legacy-mem -m {MEMORY_MB * 2} --no-pci --file-prefix={self.workspace.name}"
        self.switch.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true",
                          f'other_config:dpdk-extra="{extra}"', f"other_config:dpdk-lcore-mask={1 << other(self.core)}",
                          f"other_config:pmd-cpu-mask={1 << self.core:#x}")
        self.switch.start_daemon()
        self.add_bridge(self.switch)
        for number, name, arguments in ((2, "sink", "net_null0,no-rx=1"),
                                        (1, "source", f"net_pcap0,{self.source_arguments()}")):
            self.switch.vsctl("add-port", BRIDGE, name, "--", "set", "interface", name, "type=dpdk",
                              f"options:dpdk-devargs={_quoted(arguments)}", f"ofport_request={number}")
        wait_until(lambda: self._received() > 0, 20, f"packets ({self.switch.interface('source', 'error')})")
        wait_until(lambda: len(stats.megaflows(self.switch)) >= self.traffic.megaflows, 60,
                   f"{self.traffic.megaflows} megaflows", interval=0.5)

    def measure(self, seconds: float) -> Sample:
        self.switch.appctl("dpif-netdev/pmd-stats-clear")
        begin = time.monotonic()
        time.sleep(seconds)
        text, took = self.switch.appctl("dpif-netdev/pmd-stats-show"), time.monotonic() - begin
        packets = sum(map(int, re.findall(r"packets received:\s+(\d+)", text)))
        cycles = re.findall(r"avg cycles per packet:\s+([0-9.]+)", text)
        return Sample(packets / took, float(cycles[0]) if cycles else 0.0)

    def _received(self) -> int:
        return stats.slow_path(self.switch).received


def other(core: int) -> int:
    return 0 if core else 1


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


SUBJECTS: list[type[Subject]] = [SoftNicSubject, OvsDpdkSubject]
PACKET_SOCKETS: list[type[Subject]] = [PacketSocketSubject, BypassSubject]
