"""ingress_policing_rate and ingress_policing_kpkts_rate: nothing that comes in from a policed port passes by its
policer, offloaded before or not."""

from __future__ import annotations

import time

import pytest
from helpers import assert_alive, figure, is_offloaded, stream, wait_offloaded
from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import stream_number

# Stock OVS polices system devices by tc, whose classifiers the kernel here does not have.
pytestmark = pytest.mark.dr_only

RATE, SIZE = 4000, 1000     # the stream: 32,000 kbit/s
OVER = 3.0                  # seconds
REASON = "policed port: in_port has a policer, which is in the slow path"

LIMITS = {
    # Columns, and how many of the stream's frames they let pass at once and each second.
    "bits": (["ingress_policing_rate=4000", "ingress_policing_burst=800"], 100, 500),
    "packets": (["ingress_policing_kpkts_rate=1", "ingress_policing_kpkts_burst=1"], 1000, 1000),
}
NONE = ["ingress_policing_rate=0", "ingress_policing_burst=0", "ingress_policing_kpkts_rate=0",
        "ingress_policing_kpkts_burst=0"]


def police(lab: Lab, guest: Guest, columns: list[str]) -> None:
    lab.switch.vsctl("set", "interface", guest.port, *columns)


def reasons(lab: Lab, guest: Guest) -> list[str]:
    """Of megaflows from the guest, why they stay in software; nothing of one that has just come."""
    return [lab.switch.appctl("dr/explain", f"ufid:{flow.ufid}", check=False) for flow in stats.megaflows(lab.switch)
            if f"in_port({guest.port})" in flow.match]


@pytest.mark.parametrize("kind", LIMITS)
def test_an_offloaded_flow_is_policed_from_the_moment_it_is_set(lab: Lab, kind: str) -> None:
    columns, burst, rate = LIMITS[kind]
    first, second, third = lab.guests[:3]
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2", "in_port=3,actions=output:1"])
    with second.capture() as seen, stream(first, second, rate=RATE, size=SIZE), stream(third, first):
        wait_offloaded(lab, first)
        wait_offloaded(lab, third)
        police(lab, first, columns)
        start = time.monotonic()
        time.sleep(OVER)
        end = time.monotonic()
        arrived = sum(start <= moment < end and stream_number(frame) is not None
                      for moment, frame in zip(list(seen.times), list(seen.frames)))
        most = burst + rate * (end - start)
        figure(f"{kind}: {arrived} of {RATE * OVER:.0f} frames passed in {end - start:.2f} s, {most:.0f} may")
        # Of the burst a part may be gone when ovs-vsctl returns.
        assert rate * (end - start) * 0.98 <= arrived <= most * 1.01 + 1
        assert not is_offloaded(lab, first)
        assert is_offloaded(lab, third), "what goes to a policed port is not policed"
        assert all(REASON in text for text in reasons(lab, first)), reasons(lab, first)
        assert REASON.split(": ")[1] in lab.switch.appctl("dr/explain")
        assert lab.switch.interface(first.port, "error") is None

        police(lab, first, NONE)
        wait_offloaded(lab, first)
        before = len(seen.frames)
        time.sleep(1)
        assert len(seen.frames) - before > RATE * 0.8
    assert_alive(lab)


def test_what_the_policer_drops_is_counted(lab: Lab) -> None:
    first, second = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2"])
    police(lab, first, ["ingress_policing_rate=8", "ingress_policing_burst=80"])   # a frame a second, ten at once
    sent = 500
    with second.capture() as seen, stream(first, second, rate=RATE, size=SIZE, limit=sent) as sender:
        sender.join()
        seen.settle()
        arrived = len([frame for frame in seen.frames if stream_number(frame) is not None])
    assert 10 <= arrived <= 12

    def counted() -> tuple[object, object]:
        statistics = lab.switch.interface(first.port, "statistics")
        assert isinstance(statistics, dict)
        return statistics["rx_dropped"], statistics.get("slow_path_rx_policed")

    wait_until(lambda: counted() == (sent - arrived, sent - arrived), 12, f"{sent - arrived} drops are counted")


def test_a_policer_goes_with_its_interface(lab: Lab) -> None:
    """To another vport, while the old one's traffic goes on; and it is there after a restart of the daemon."""
    first, second, third = lab.guests[:3]
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2"])
    lab.switch.vsctl("del-port", BRIDGE, third.port)
    police(lab, first, LIMITS["bits"][0])
    lab.switch.vsctl("set", "interface", first.port, f"options:vport={third.vport}")
    with stream(third, second, rate=RATE, size=SIZE):
        wait_until(lambda: any(REASON in text for text in reasons(lab, first)), 5, "a megaflow is refused")
        assert not is_offloaded(lab, first)
        lab.switch.appctl("exit", "--cleanup")
        assert lab.switch.daemon is not None
        lab.switch.daemon.wait(15)
        lab.switch.start_daemon()
        lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2"])
        wait_until(lambda: any(REASON in text for text in reasons(lab, first)), 10, "a megaflow is refused")
        assert not is_offloaded(lab, first)
    police(lab, first, NONE)
    assert_reaches_one_way(lab, third, second)


def assert_reaches_one_way(lab: Lab, source: Guest, target: Guest) -> None:
    with target.capture() as seen, stream(source, target, limit=20) as sender:
        sender.join()
        seen.settle()
    assert sum(stream_number(frame) is not None for frame in seen.frames) == 20, lab.switch.messages()
