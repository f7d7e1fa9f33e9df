"""What the rounds have shown: the table, and which rows fall short of what is asked."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from ovs_dpdk import OvsDpdkSubject
from ovs_dr import SoftNicSubject
from subject import Sample
from testpmd import TestpmdSubject
from traffics import SMALL, Traffic

OURS, STOCK, FLOOR = SoftNicSubject.name, OvsDpdkSubject.name, TestpmdSubject.name

# Of 64-byte frames.
TIMES_PACKETS = 1.4        # of stock's, in a second
TIMES_CYCLES = 2.0         # as many of stock's beyond testpmd's as of ours
# Of the packets a second that there were before, in the same run.
CHANGES_LEAVE = 0.8
CHANGES_REACHED = 0.95     # of those that a row asks for

Rounds = dict[str, list[Sample]]   # by subject


@dataclass(frozen=True)
class Comparison:
    """Medians of the rounds' own ratios: what the machine does meanwhile is in both sides of each."""

    packets: float
    cycles: float      # beyond testpmd's. 0 where ours are within testpmd's: the machine was busy


def compared(rounds: Rounds) -> Comparison:
    return Comparison(
        median(ours.packets_per_second / stock.packets_per_second
               for ours, stock in zip(rounds[OURS], rounds[STOCK])),
        median(beyond(stock, floor) / beyond(ours, floor) if beyond(ours, floor) > 0 else 0.0
               for ours, stock, floor in zip(rounds[OURS], rounds[STOCK], rounds[FLOOR])))


def beyond(sample: Sample, floor: Sample) -> float:
    return sample.cycles_per_packet - floor.cycles_per_packet


def table(results: dict[str, Rounds]) -> str:
    lines = [f"| traffic | {OURS} Mpps | {STOCK} Mpps | times as many | {OURS} cycles/packet | {STOCK} | {FLOOR} | "
             f"{STOCK} beyond {FLOOR} / {OURS} beyond {FLOOR} |", "|---|---|---|---|---|---|---|---|"]
    for name, rounds in results.items():
        mpps = {subject: median(sample.packets_per_second for sample in samples) / 1e6
                for subject, samples in rounds.items()}
        cycles = {subject: median(sample.cycles_per_packet for sample in samples)
                  for subject, samples in rounds.items()}
        ratios = compared(rounds)
        lines.append(f"| {name} | {mpps[OURS]:.2f} | {mpps[STOCK]:.2f} | {ratios.packets:.2f} | {cycles[OURS]:.0f} | "
                     f"{cycles[STOCK]:.0f} | {cycles[FLOOR]:.0f} | {ratios.cycles:.2f} |")
    return "\n".join(lines)


def table_of_two(results: dict[str, Rounds]) -> str:
    """Of two subjects by themselves."""
    one, other = next(iter(results.values()))
    lines = [f"| traffic | {one} Mpps | cycles/packet | {other} Mpps | cycles/packet | ratio |",
             "|---|---|---|---|---|---|"]
    for name, rounds in results.items():
        rates = [median(sample.packets_per_second for sample in rounds[subject]) / 1e6 for subject in (one, other)]
        cycles = [median(sample.cycles_per_packet for sample in rounds[subject]) for subject in (one, other)]
        lines.append(f"| {name} | {rates[0]:.2f} | {cycles[0]:.0f} | {rates[1]:.2f} | {cycles[1]:.0f} | "
                     f"{rates[0] / rates[1]:.2f} |")
    return "\n".join(lines)


def shortcomings(traffic: Traffic, rounds: Rounds) -> list[str]:
    """What the row falls short of, in words."""
    said = []
    if traffic.sizes == SMALL:
        ratios = compared(rounds)
        if ratios.packets < TIMES_PACKETS:
            said.append(f"{ratios.packets:.2f} times as many packets ({TIMES_PACKETS} asked)")
        if ratios.cycles < TIMES_CYCLES:
            said.append(f"stock's cycles beyond {FLOOR} are {ratios.cycles:.2f} times ours ({TIMES_CYCLES} asked)")
    if traffic.changes:
        for subject in (OURS, STOCK):
            reached = median(sample.changes_per_second for sample in rounds[subject])
            if reached < CHANGES_REACHED * traffic.changes:
                said.append(f"{subject} had {reached:.0f} changes a second")
        left = median(sample.left for sample in rounds[OURS])
        if left < CHANGES_LEAVE:
            said.append(f"{left:.1%} of the packets before the changes ({CHANGES_LEAVE:.0%} asked)")
    return said
