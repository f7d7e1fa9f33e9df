"""An idle switch sleeps, and wakes at once."""

from __future__ import annotations

import time

from helpers import figure
from lab.lab import Lab
from lab.traffic import ping

CPU_LIMIT = 0.05
LATENCY_LIMIT_MS = 2.0
ROUNDS = 5
IDLE_SECONDS = 10


def test_an_idle_daemon_sleeps_and_wakes_at_once(normal_lab: Lab) -> None:
    lab = normal_lab
    first, second = lab.guests[:2]
    ping(first.namespace, second.address, count=2)
    lab.fix_neighbours()
    times: list[float] = []
    shares: list[float] = []
    for _ in range(ROUNDS):
        begin, cpu = time.monotonic(), lab.switch.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        shares.append((lab.switch.cpu_seconds() - cpu) / (time.monotonic() - begin))
        result = ping(first.namespace, second.address, count=1)
        assert result.received == 1
        times += result.times_ms
    figure(f"idle with {len(lab.guests)} vports: {max(shares):.1%} of a core at most; ping after {IDLE_SECONDS} s of "
           f"idleness: {max(times):.2f} ms at most of {len(times)}")
    assert max(shares) <= CPU_LIMIT
    assert max(times) <= LATENCY_LIMIT_MS
