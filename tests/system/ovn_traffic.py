"""What a pair of hosts in a logical network does, and who carried it: ping, then iperf3 over TCP and UDP."""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event

from lab import stats, traffic
from lab.command import CommandError, wait_until
from lab.namespace import Namespace
from lab.ovn import Hypervisor, OvnLab
from ovn_networks import IPERF_PORTS

LIMIT = 0.001     # share of iperf3's packets that may come up
LOOK = 0.1        # seconds from one look at the counters to the next
END = 0.3         # seconds before a run's end when the last look is due: what closes a connection comes up
MANY = 100        # packets between two looks: iperf3 is sending
TRIES = 3
UDP_SIZE = 1300   # with IPv6 it still fits into a guest's MTU

UNKNOWN = "gone, or not offered yet"

# Of OVN and the kernels, not of the hosts: ARP, ND, and BFD between gateways. Nobody offloads it.
CONTROL = ("eth_type(0x0806)", "nd(target", "udp(src=49152/0,dst=3784)")


@dataclass(frozen=True)
class Scenario:
    name: str
    source: str       # a VM's name, or outside
    target: str
    address: str      # by which the source reaches the target
    commands: tuple[tuple[str, ...], ...] = ()   # ovn-nbctl's, before it
    undo: tuple[tuple[str, ...], ...] = ()       # and after it
    only_ping: bool = False
    reasons: frozenset[str] = frozenset()        # why it stays in software, as dr/explain says; none: the NIC's

    @property
    def offloaded(self) -> bool:
        return not self.reasons


@dataclass(frozen=True)
class Effort:
    seconds: int = 10
    udp_megabits: int = 100
    pings: int = 10
    together: bool = False   # TCP and UDP at the same time: quicker, and their rates say nothing
    least: int = 1000        # packets to be counted of a run once it has settled


@dataclass
class Count:
    """Packets that came from a hypervisor's vports, and those of them that came up."""

    packets: int = 0
    in_software: int = 0

    @property
    def share(self) -> float:
        return min(1.0, self.in_software / self.packets) if self.packets else 0.0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.packets + other.packets, self.in_software + other.in_software)

    def __sub__(self, other: "Count") -> "Count":
        return Count(self.packets - other.packets, self.in_software - other.in_software)


Counts = dict[str, Count]   # by the hypervisor's name


def worst(counts: Counts) -> Count:
    """Of the hypervisors that carry the traffic the one with the largest share in software."""
    most = max((count.packets for count in counts.values()), default=0)
    return max((count for count in counts.values() if count.packets >= most / 100),
               key=lambda count: (count.share, count.packets), default=Count())


@dataclass
class Outcome:
    scenario: Scenario
    pings: int = 0
    answers: int = 0
    tcp_megabits: float = 0
    udp_megabits: float = 0
    udp_lost: float = 0                               # share, on the way
    whole: Counts = field(default_factory=dict)       # of both runs of iperf3; of the pings where there are only pings
    settled: list[Counts] = field(default_factory=list)   # of each run, from when nothing came up any more to its end
    resets: int = 0                                   # RSTs that both ends sent
    offloaded: int = 0                                # megaflows
    control: Counter[str] = field(default_factory=Counter)   # of those of CONTROL: megaflows by reason
    reasons: Counter[str] = field(default_factory=Counter)   # of the others
    software: list[str] = field(default_factory=list)        # and those, as dpctl/dump-flows prints them

    @property
    def causes(self) -> set[str]:
        """The reasons, without what becomes of a megaflow whose parent is in software."""
        return {reason for reason in self.reasons if not reason.startswith("recirculation: ")}

    @property
    def whole_count(self) -> Count:
        return worst(self.whole)

    @property
    def settled_count(self) -> Count:
        return worst(_sum(self.settled))


def _sum(counts: list[Counts]) -> Counts:
    total: Counts = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, Count()) + count
    return total


def _look(lab: OvnLab, scenario: Scenario) -> Counts:
    """What came from the scenario's two ends and from the uplinks so far."""
    names = {scenario.source, scenario.target, "uplink"}
    counts = {}
    for hypervisor in lab.hypervisors if lab.kind == "dr" else ():
        ports = [port for port in json.loads(hypervisor.switch.appctl("dr/ports", "-j"))["ports"]
                 if port["name"] in names]
        counts[hypervisor.name] = Count(sum(port["rx_packets"] for port in ports),
                                        sum(port["slow_path_rx"] for port in ports))
    return counts


def _since(then: Counts, now: Counts) -> Counts:
    return {name: count - then[name] for name, count in now.items()}


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
    before, resets = _look(lab, scenario), traffic.resets(source, target)
    pings = traffic.ping(source, scenario.address, count=effort.pings, interval=0.05)
    outcome = Outcome(scenario, pings.sent, pings.received)
    if scenario.only_ping:
        outcome.whole = _since(before, _look(lab, scenario))
    else:
        if effort.together:
            tcp, udp = _iperf(lab, outcome, effort, None, effort.udp_megabits)
        else:
            [tcp], [udp] = (_iperf(lab, outcome, effort, megabits) for megabits in (None, effort.udp_megabits))
        outcome.tcp_megabits = tcp.megabits_per_second
        outcome.udp_megabits, outcome.udp_lost = udp.megabits_per_second, udp.lost / max(1, udp.packets)
        outcome.resets = traffic.resets(source, target) - resets
    for hypervisor in lab.hypervisors if lab.kind == "dr" else ():
        _explain(hypervisor, outcome)
    return outcome


def _iperf(lab: OvnLab, outcome: Outcome, effort: Effort, *udp_megabits: int | None) -> list[traffic.Iperf]:
    """TCP or a rate of UDP, at the same time. Once more when a busy machine had no time to count before the end."""
    scenario = outcome.scenario
    source, target = lab.namespace(scenario.source), lab.namespace(scenario.target)

    def iperf(number: int, megabits: int | None) -> traffic.Iperf:
        return traffic.iperf(source, target, scenario.address, lab.workspace.folder, seconds=effort.seconds,
                             udp_megabits=megabits, udp_size=UDP_SIZE, port=IPERF_PORTS[number])

    for _ in range(TRIES):
        before, over = _look(lab, scenario), Event()
        with ThreadPoolExecutor() as beside:
            looking = beside.submit(_look_on, lab, scenario, over)
            try:
                results = list(beside.map(iperf, range(len(udp_megabits)), udp_megabits))
            finally:
                over.set()
        settled = _settled(looking.result(), effort.seconds)
        if worst(settled).packets >= effort.least or not scenario.offloaded or lab.kind != "dr":
            break
    outcome.whole = _sum([outcome.whole, _since(before, _look(lab, scenario))])
    outcome.settled.append(settled)
    return results


def _look_on(lab: OvnLab, scenario: Scenario, over: Event) -> list[tuple[float, Counts]]:
    """Looks, and when each of them was done."""
    looks = []
    while not over.wait(LOOK):
        counts = _look(lab, scenario)
        looks.append((time.monotonic(), counts))
    return looks


def _settled(looks: list[tuple[float, Counts]], seconds: int) -> Counts:
    """What was counted from the first look on that finds iperf3 at work and nothing come up, until END before its end.
    Where each look finds something, from the first of them on."""
    steps = [_since(before, after) for (_, before), (_, after) in zip(looks, looks[1:])]
    sending = [number for number, step in enumerate(steps) if worst(step).packets > MANY]
    if not sending:
        return {}
    end = looks[sending[0]][0] + seconds - END
    last = max(number for number, (when, _) in enumerate(looks) if when <= end or number == sending[0])
    first = next((number for number in sending if worst(steps[number]).in_software == 0), sending[0])
    return _since(looks[first][1], looks[max(first, last)][1])


def _explain(hypervisor: Hypervisor, outcome: Outcome) -> None:
    """Sorts the megaflows that there are, when each has been offered to the NIC."""
    for _ in range(TRIES):
        flows = [(flow, _reasons(hypervisor, flow)) for flow in stats.megaflows(hypervisor.switch)]
        if [UNKNOWN] not in [reasons for _, reasons in flows]:
            break
        time.sleep(0.5)
    for flow, reasons in flows:
        if not reasons:
            outcome.offloaded += 1
        elif any(sign in flow.match for sign in CONTROL):
            outcome.control.update(reasons)
        else:
            outcome.reasons.update(reasons)
            outcome.software.append(f"{hypervisor.name}: {flow.match}, packets:{flow.packets}, actions:{flow.actions}")


def _reasons(hypervisor: Hypervisor, flow: stats.Megaflow) -> list[str]:
    """Why it is in software; nothing if the NIC has it."""
    if flow.offloaded == "yes":
        return []
    try:
        return json.loads(hypervisor.switch.appctl("dr/explain", "--json", f"ufid:{flow.ufid}"))["reasons"] or [UNKNOWN]
    except CommandError:
        return [UNKNOWN]
