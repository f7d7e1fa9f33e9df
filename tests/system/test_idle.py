"""An idle switch sleeps, and each packet wakes it. How soon is tests/bench/idle's business."""

from __future__ import annotations

import json
import time

import pytest
from helpers import figure, wait_offloaded
from lab.lab import Lab
from lab.traffic import ping

CPU_LIMIT = 0.05
IDLE_SECONDS = 10
SLEEPS_LIMIT = 50     # a second of an idle worker; it has ten of 100 ms if its ports all have a socket
PINGS = 60
# Seconds between them: in that time the worker falls asleep, and five of them are its longest sleep.
PAUSE = 0.02


def sleeps(lab: Lab) -> int:
    return sum(worker["sleeps"] for worker in json.loads(lab.nic.drnic("stats", "--json"))["workers"])


@pytest.mark.dr_only
def test_an_idle_daemon_sleeps(normal_lab: Lab) -> None:
    lab = normal_lab
    first, second = lab.guests[:2]
    ping(first.namespace, second.address, count=2)
    before = sleeps(lab)
    begin, cpu = time.monotonic(), lab.switch.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    seconds = time.monotonic() - begin
    share, rate = (lab.switch.cpu_seconds() - cpu) / seconds, (sleeps(lab) - before) / seconds
    figure(f"idle with {len(lab.guests)} vports: {share:.1%} of a core, {rate:.1f} sleeps a second")
    assert share <= CPU_LIMIT
    assert rate <= SLEEPS_LIMIT


@pytest.mark.dr_only
def test_each_packet_wakes_an_idle_switch(normal_lab: Lab) -> None:
    """A worker that only looked when its time was up would have ten sleeps a second; one that is woken has one for each
    ping. On a machine so busy that the pings take long, both have enough: then this says nothing."""
    lab = normal_lab
    first, second = lab.guests[:2]
    ping(first.namespace, second.address, count=2)
    wait_offloaded(lab, first)
    before, begin = sleeps(lab), time.monotonic()
    answered = ping(first.namespace, second.address, count=PINGS, interval=PAUSE)
    slept = sleeps(lab) - before
    figure(f"{PINGS} pings, {time.monotonic() - begin:.1f} s: {slept} sleeps")
    assert answered.received == answered.sent
    assert slept >= PINGS / 2
