"""What tests/bench/forwarding says of its rows: which fall short, and by what."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench" / "forwarding_bench"))

import forwarding_report as report  # noqa: E402
from subject import Sample  # noqa: E402
from traffics import TRAFFICS, Traffic  # noqa: E402

CHANGING = next(traffic for traffic in TRAFFICS if traffic.changes == 10_000)
SMALL, LARGE = Traffic("small", 1), Traffic("large", 1, sizes=(1500,))


def rounds(ours: tuple[float, float], stock: tuple[float, float] = (10.0, 250.0), floor: float = 50.0,
           changes: tuple[float, float] = (0, 0), left: float = 1) -> report.Rounds:
    """Of packets a second and cycles per packet. The machine is half as fast in the second of three rounds, and ours
    by itself in the third."""
    sides = ((report.OURS, ours, changes[0], (1, 2, 4)), (report.STOCK, stock, changes[1], (1, 2, 1)),
             (report.FLOOR, (30.0, floor), 0, (1, 2, 1)))
    shares = {report.OURS: (left, 0.1, 1)}
    return {name: [Sample(packets / pace, cycles * pace, changed, share)
                   for pace, share in zip(paces, shares.get(name, (1, 1, 1)))]
            for name, (packets, cycles), changed, paces in sides}


@pytest.mark.parametrize("ours, short", [
    ((14.1, 149.0), []), ((13.9, 149.0), ["1.39 times as many packets (1.4 asked)"]),
    ((14.1, 151.0), ["stock's cycles beyond testpmd are 1.98 times ours (2.0 asked)"]),
    ((14.1, 49.0), ["stock's cycles beyond testpmd are 0.00 times ours (2.0 asked)"]),
])
def test_a_row_of_small_frames_is_judged_by_packets_and_by_cycles_beyond_the_ports(
        ours: tuple[float, float], short: list[str]) -> None:
    assert report.shortcomings(SMALL, rounds(ours)) == short
    assert report.shortcomings(LARGE, rounds(ours)) == []


@pytest.mark.parametrize("left, changes, short", [
    (0.81, (9_600, 9_600), []),
    (0.79, (9_600, 9_600), ["79.0% of the packets before the changes (80% asked)"]),
    (0.81, (9_400, 9_600), ["ovs-dr had 9400 changes a second"]),
    (0.81, (9_600, 9_400), ["ovs-vswitchd-dpdk had 9400 changes a second"]),
])
def test_changes_have_to_come_at_their_rate_and_leave_most_packets(
        left: float, changes: tuple[float, float], short: list[str]) -> None:
    assert report.shortcomings(CHANGING, rounds((20.0, 100.0), changes=changes, left=left)) == short


def test_each_row_has_a_name_of_its_own_and_frames_of_its_sizes() -> None:
    assert len({traffic.name for traffic in TRAFFICS}) == len(TRAFFICS)
    for traffic in TRAFFICS:
        if not traffic.out_of_tunnel:
            assert {len(frame) for frame in traffic.frames()} == set(traffic.sizes), traffic.name
