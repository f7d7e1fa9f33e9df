"""What a pair of hosts in a logical network does, and who carried it: ping, then iperf3 over TCP and UDP."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from lab import stats, traffic
from lab.command import CommandError, wait_until
from lab.ovn import Hypervisor, OvnLab

UDP_SIZE = 1300   # with IPv6 it still fits into a guest's MTU


@dataclass(frozen=True)
class Scenario:
    name: str
    source: str       # a VM's name, or outside
    target: str
    address: str      # by which the source reaches the target
    commands: tuple[tuple[str, ...], ...] = ()   # ovn-nbctl's, before it
    undo: tuple[tuple[str, ...], ...] = ()       # and after it


@dataclass(frozen=True)
class Effort:
    seconds: int = 5
    udp_megabits: int = 100


@dataclass
class Outcome:
    scenario: Scenario
    pings: int = 0
    answers: int = 0
    tcp_megabits: float = 0
    udp_megabits: float = 0
    udp_lost: float = 0                  # share, on the way
    packets: int = 0                     # of iperf3's, on the hypervisor with the larger share in software
    in_software: int = 0
    offloaded: int = 0                   # megaflows
    control: int = 0                     # of the others: ARP, ND, and what goes to the controller
    reasons: Counter[str] = field(default_factory=Counter)   # of the rest: megaflows by reason
    megaflows: list[str] = field(default_factory=list)       # that rest, as dpctl/dump-flows prints it

    @property
    def share(self) -> float:
        return self.in_software / self.packets if self.packets else 0.0

    @property
    def rejected(self) -> int:
        return len(self.megaflows)


class Meter:
    """Packets that came from the vports, and those that came up, for each hypervisor."""

    def __init__(self, lab: OvnLab) -> None:
        self._lab = lab
        self._start = self._now()

    def _now(self) -> list[tuple[int, int]]:
        counts = []
        for hypervisor in self._lab.hypervisors:
            ports = json.loads(hypervisor.switch.appctl("dr/ports", "-j"))["ports"]
            counts.append((sum(port["rx_packets"] for port in ports), sum(port["slow_path_rx"] for port in ports)))
        return counts

    def worst(self) -> tuple[int, int]:
        """Packets and those in software since the meter was made, where the share in software is largest."""
        return max(((now[0] - then[0], now[1] - then[1]) for now, then in zip(self._now(), self._start)),
                   key=lambda counts: counts[1] / max(1, counts[0]))


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
    meter = Meter(lab) if lab.kind == "dr" else None
    folder = lab.workspace.folder
    tcp = traffic.iperf(source, target, scenario.address, folder, seconds=effort.seconds)
    udp = traffic.iperf(source, target, scenario.address, folder, seconds=effort.seconds,
                        udp_megabits=effort.udp_megabits, udp_size=UDP_SIZE)
    outcome.tcp_megabits, outcome.udp_megabits = tcp.megabits_per_second, udp.megabits_per_second
    outcome.udp_lost = udp.lost / max(1, udp.packets)
    if meter is not None:
        outcome.packets, outcome.in_software = meter.worst()
        for hypervisor in lab.hypervisors:
            _explain(hypervisor, outcome)
    return outcome


def _explain(hypervisor: Hypervisor, outcome: Outcome) -> None:
    """Sorts the megaflows that there are."""
    for flow in stats.megaflows(hypervisor.switch):
        if flow.offloaded == "yes":
            outcome.offloaded += 1
        elif _is_control(flow):
            outcome.control += 1
        else:
            outcome.megaflows.append(f"{hypervisor.name}: {flow.match}, packets:{flow.packets}, actions:{flow.actions}")
            outcome.reasons.update(_reasons(hypervisor, flow))


def _is_control(flow: stats.Megaflow) -> bool:
    return any(sign in flow.text for sign in ("eth_type(0x0806)", "nd(target", "userspace(", "slow_path("))


def _reasons(hypervisor: Hypervisor, flow: stats.Megaflow) -> list[str]:
    try:
        return json.loads(hypervisor.switch.appctl("dr/explain", "--json", f"ufid:{flow.ufid}"))["reasons"]
    except CommandError:
        return ["gone, or not offered yet"]
