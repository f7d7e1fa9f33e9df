"""What a pair of hosts in a logical network does, and who carried it: ping, then iperf3 over TCP and UDP."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from lab import stats, traffic
from lab.command import CommandError, wait_until
from lab.ovn import Hypervisor, OvnLab

LIMIT = 0.001     # share of iperf3's packets that may come up
BEGIN = 1.0       # seconds of a run: connections and megaflows begin
END = 0.5         # and end: a TCP receiver that closes answers what is still under way with RST, and RST comes up
TRIES = 3
UDP_SIZE = 1300   # with IPv6 it still fits into a guest's MTU


@dataclass(frozen=True)
class Scenario:
    name: str
    source: str       # a VM's name, or outside
    target: str
    address: str      # by which the source reaches the target
    commands: tuple[tuple[str, ...], ...] = ()   # ovn-nbctl's, before it
    undo: tuple[tuple[str, ...], ...] = ()       # and after it
    only_ping: bool = False


@dataclass(frozen=True)
class Effort:
    seconds: int = 10
    udp_megabits: int = 100   # 0: no UDP
    enough: int = sys.maxsize   # packets to count: the rest of the run is not looked at


@dataclass
class Count:
    """Packets of iperf3's, as the busier hypervisor's vports gave them to it, and how often one came up on either."""

    packets: int = 0
    in_software: int = 0

    @property
    def share(self) -> float:
        """Of the packets that came up anywhere, at most."""
        return min(1.0, self.in_software / self.packets) if self.packets else 0.0

    def __iadd__(self, other: "Count") -> "Count":
        self.packets += other.packets
        self.in_software += other.in_software
        return self


@dataclass
class Outcome:
    scenario: Scenario
    pings: int = 0
    answers: int = 0
    tcp_megabits: float = 0
    udp_megabits: float = 0
    udp_lost: float = 0                             # share, on the way
    whole: Count = field(default_factory=Count)     # of both runs of iperf3
    settled: Count = field(default_factory=Count)   # of both without BEGIN and END
    offloaded: int = 0                              # megaflows
    control: Counter[str] = field(default_factory=Counter)   # ARP and ND, which nobody offloads: megaflows by reason
    reasons: Counter[str] = field(default_factory=Counter)   # of the others
    software: list[str] = field(default_factory=list)        # and those, as dpctl/dump-flows prints them


class Meter:
    """Counts from when it is made."""

    def __init__(self, lab: OvnLab) -> None:
        self._lab = lab
        self._start = self._now()

    def _now(self) -> list[tuple[int, int]]:
        """Packets that came from a hypervisor's vports, and those of them that came up."""
        counts = []
        for hypervisor in self._lab.hypervisors if self._lab.kind == "dr" else ():
            ports = json.loads(hypervisor.switch.appctl("dr/ports", "-j"))["ports"]
            counts.append((sum(port["rx_packets"] for port in ports), sum(port["slow_path_rx"] for port in ports)))
        return counts

    def read(self) -> Count:
        gone = [(now[0] - then[0], now[1] - then[1]) for now, then in zip(self._now(), self._start)]
        return Count(max((packets for packets, _ in gone), default=0), sum(up for _, up in gone))


def run(lab: OvnLab, scenario: Scenario, effort: Effort) -> Outcome:
    if scenario.commands:
        lab.configure(scenario.commands)
    try:
        return _run(lab, scenario, effort)
    finally:
        if scenario.undo:
            lab.configure(scenario.undo)


def _run(lab: OvnLab, scenario: Scenario, effort: Effort) -> Outcome:
    source, target = lab.namespace(scenario.source), lab.namespace(scenario.target)
    wait_until(lambda: traffic.ping(source, scenario.address, count=1).received == 1, 10,
               f"{scenario.name}: {scenario.address} answers {scenario.source}")
    for hypervisor in lab.hypervisors:
        hypervisor.switch.appctl("revalidator/purge")
    pings = traffic.ping(source, scenario.address, count=10, interval=0.05)
    outcome = Outcome(scenario, pings.sent, pings.received)
    if not scenario.only_ping:
        outcome.tcp_megabits = _iperf(lab, outcome, effort, None).megabits_per_second
    if effort.udp_megabits and not scenario.only_ping:
        udp = _iperf(lab, outcome, effort, effort.udp_megabits)
        outcome.udp_megabits, outcome.udp_lost = udp.megabits_per_second, udp.lost / max(1, udp.packets)
    for hypervisor in lab.hypervisors if lab.kind == "dr" else ():
        _explain(hypervisor, outcome)
    return outcome


def _iperf(lab: OvnLab, outcome: Outcome, effort: Effort, udp_megabits: int | None) -> traffic.Iperf:
    """Once more when a busy machine had no time to count before the run's end."""
    scenario = outcome.scenario
    for _ in range(TRIES):
        whole, settled = Meter(lab), Count()
        result = traffic.iperf(lab.namespace(scenario.source), lab.namespace(scenario.target), scenario.address,
                               lab.workspace.folder, seconds=effort.seconds, udp_megabits=udp_megabits,
                               udp_size=UDP_SIZE, after_first_second=lambda: _count(lab, effort, settled))
        if settled.packets or lab.kind != "dr":
            break
    outcome.whole += whole.read()
    outcome.settled += settled
    return result


def _count(lab: OvnLab, effort: Effort, settled: Count) -> None:
    """What was counted last before the end, or when it is enough."""
    end = time.monotonic() + effort.seconds - BEGIN - END
    meter = Meter(lab)
    while settled.packets < effort.enough:
        time.sleep(min(0.5, effort.seconds / 20))
        now = meter.read()
        if time.monotonic() > end:
            break
        settled.packets, settled.in_software = now.packets, now.in_software


def _explain(hypervisor: Hypervisor, outcome: Outcome) -> None:
    """Sorts the megaflows that there are."""
    for flow in stats.megaflows(hypervisor.switch):
        if flow.offloaded == "yes":
            outcome.offloaded += 1
        elif "eth_type(0x0806)" in flow.match or "nd(target" in flow.match:
            outcome.control.update(_reasons(hypervisor, flow))
        else:
            outcome.reasons.update(_reasons(hypervisor, flow))
            outcome.software.append(f"{hypervisor.name}: {flow.match}, packets:{flow.packets}, actions:{flow.actions}")


def _reasons(hypervisor: Hypervisor, flow: stats.Megaflow) -> list[str]:
    try:
        return json.loads(hypervisor.switch.appctl("dr/explain", "--json", f"ufid:{flow.ufid}"))["reasons"]
    except CommandError:
        return ["gone, or not offered yet"]
