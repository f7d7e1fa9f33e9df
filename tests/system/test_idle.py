"""An idle switch sleeps, and wakes at once.

A percentile takes many samples, each after 10 s in which the switch had nothing to do. One switch gives six in a minute; so
ten switches idle side by side, and one of them is woken each second. Beside each switch its two guests share a veth pair
of the kernel's, which is asked too: what that takes is the machine's part.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from typing import Iterator

import pytest
from helpers import figure
from lab.lab import Lab
from lab.namespace import make_veth
from lab.traffic import ping
from lab.workspace import Workspace

CPU_LIMIT = 0.05
LATENCY_LIMIT_MS = 2.0
IDLE_SECONDS = 10
SWITCHES = 10
ENOUGH_ROUNDS = 11   # 110 samples: the 99th percentile is the second largest
CI_ROUNDS = 3


def test_an_idle_daemon_sleeps(normal_lab: Lab) -> None:
    lab = normal_lab
    first, second = lab.guests[:2]
    ping(first.namespace, second.address, count=2)
    begin, cpu = time.monotonic(), lab.switch.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    share = (lab.switch.cpu_seconds() - cpu) / (time.monotonic() - begin)
    figure(f"idle with {len(lab.guests)} vports: {share:.1%} of a core")
    assert share <= CPU_LIMIT


def start(workspace: Workspace, kind: str) -> Lab:
    lab = Lab(workspace, kind=kind)
    lab.nic.memory_mb = 128
    lab.wire_all(vms=2, uplink=False)
    lab.fix_neighbours()
    lab.start()
    wire_directly(lab)
    return lab


DIRECT_ADDRESS = "10.98.0.2"


def wire_directly(lab: Lab) -> None:
    first, second = (guest.namespace for guest in lab.guests)
    macs = ("02:0d:00:00:98:01", "02:0d:00:00:98:02")
    make_veth(first, "direct", second, "direct", mac=macs[0], address="10.98.0.1/24")
    second.run(["ip", "link", "set", "direct", "address", macs[1]])
    second.run(["ip", "address", "add", f"{DIRECT_ADDRESS}/24", "dev", "direct"])
    first.run(["ip", "neigh", "replace", DIRECT_ADDRESS, "lladdr", macs[1], "dev", "direct", "nud", "permanent"])
    second.run(["ip", "neigh", "replace", "10.98.0.1", "lladdr", macs[0], "dev", "direct", "nud", "permanent"])


@pytest.fixture
def idle_labs(lab_kind: str) -> Iterator[list[Lab]]:
    with contextlib.ExitStack() as workspaces:
        yield [start(workspaces.enter_context(Workspace("idle")), lab_kind) for _ in range(SWITCHES)]


def latency_ms(lab: Lab, address: str) -> float:
    result = ping(lab.guests[0].namespace, address, count=1)
    assert result.received == 1, lab.switch.messages()
    return result.times_ms[0]


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def percentile(sorted_values: list[float], share: float) -> float:
    return sorted_values[math.ceil(share * len(sorted_values)) - 1]


def test_an_idle_switch_wakes_at_once(idle_labs: list[Lab]) -> None:
    default = CI_ROUNDS if os.environ.get("CI") else ENOUGH_ROUNDS
    rounds = int(os.environ.get("OVSDR_IDLE_ROUNDS", default))
    for lab in idle_labs:
        latency_ms(lab, lab.guests[1].address)
    begin = time.monotonic() + IDLE_SECONDS
    times: list[float] = []
    direct: list[float] = []
    for turn in range(rounds):
        for number, lab in enumerate(idle_labs):
            sleep_until(begin + (turn * SWITCHES + number) * (IDLE_SECONDS / SWITCHES))
            times.append(latency_ms(lab, lab.guests[1].address))
            direct.append(latency_ms(lab, DIRECT_ADDRESS))
    few = "" if rounds >= ENOUGH_ROUNDS else f" ({rounds} rounds of {ENOUGH_ROUNDS}: OVSDR_IDLE_ROUNDS)"
    for name, values in (("a kernel's veth pair", direct), ("the switch", times)):
        values.sort()
        figure(f"ping by {name} after {IDLE_SECONDS} s of idleness, {len(values)} of them{few}: "
               f"p50 {percentile(values, 0.5):.2f} ms, p99 {percentile(values, 0.99):.2f} ms, at most {values[-1]:.2f} ms")
    # Few samples have no 99th percentile, and a shared machine has hiccups of its own: there the middle one is judged.
    assert percentile(times, 0.99 if rounds >= ENOUGH_ROUNDS else 0.5) <= LATENCY_LIMIT_MS
