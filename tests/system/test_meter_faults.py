"""Each call of the NIC's that a meter takes fails once at the daemon: software meters meanwhile, what did not work says
why, no packet is counted twice, and the NIC takes the meter all the same a moment later.
"""

from __future__ import annotations

import itertools
import time
from typing import Iterator

import pytest
from helpers import assert_alive, figure, is_offloaded
from lab.command import wait_until
from lab.lab import Lab
from lab.workspace import Workspace
from meter_calls import ALL_GO, ALL_GO_SHARED, CHANGE, HARMLESS, OF_ASO, OF_LEGACY, REQUEST, SHARED
from test_device_faults import Faults, failures
from test_meters import add_meter, counted, make_lab

pytestmark = pytest.mark.dr_only

FRAMES, SIZE = 60, 1000
# By bytes, as both kinds of devices have it: 20 frames of 1,000 bytes at once, and one each four seconds.
BURST = 20
METER = "kbps,burst,bands=type=drop,rate=2,burst_size=160"
# Above what OVS lets pass: a device lets the packet pass that empties the bucket, and some time goes by.
SOME = 5


class MeterFaults(Faults):
    def __init__(self, lab: Lab, profile: str) -> None:
        super().__init__(lab)
        self.profile = profile
        self.meter = 0

    def new_metered_flow(self) -> None:
        self.meter += 1
        add_meter(self.lab, self.meter, METER)
        self.new_flow(f"meter:{self.meter},output:2")

    def reopen(self) -> None:
        """A device's first meter makes what others share."""
        self.lab.nic.drnic("faults", "--disarm")
        self.remove_ports()
        self.open_ports()

    def send_and_count(self) -> int:
        """How many of the frames have arrived at the second guest."""
        with self.lab.guests[1].capture() as seen:
            self.send(FRAMES, size=SIZE)
            seen.settle()
        return len(seen.matching(b"ovs-dr fault"))

    def wait_offloaded(self) -> None:
        wait_until(lambda: is_offloaded(self.lab, self.lab.guests[0]), 5, "the metered megaflow is in the NIC")

    def assert_counted_once(self, met: int, passed: int) -> None:
        """NIC and software together, of the newest meter."""
        wait_until(lambda: counted(self.lab, self.meter).packets == met, 5, f"the meter has met {met} packets")
        counts = counted(self.lab, self.meter)
        assert counts.packets - counts.dropped_packets == passed, counts


@pytest.fixture(params=["connectx-6dx", "connectx-5"])
def faults(request: pytest.FixtureRequest, workspace: Workspace) -> Iterator[MeterFaults]:
    made = MeterFaults(make_lab(workspace, profile=request.param), request.param)
    yield made
    assert_alive(made.lab)
    assert made.leaked() == 0


def test_each_call_that_fails_while_a_metered_flow_is_installed(faults: MeterFaults) -> None:
    legacy = faults.profile == "connectx-5"
    calls = OF_LEGACY | SHARED if legacy else OF_ASO | HARMLESS | SHARED | {REQUEST}
    asked: dict[str, int] = {}
    passed = 0
    for call in sorted(calls):
        for nth in itertools.count(1):
            faults.reopen()
            faults.new_metered_flow()
            told = failures(faults.lab, "")
            faults.arm(call, nth)
            first = faults.send_and_count()
            happened = faults.happened()
            faults.wait_offloaded()
            faults.assert_counted_once(FRAMES, first)
            second = faults.send_and_count()
            # Each of the two had a full bucket.
            assert BURST <= first + second <= 2 * BURST + 2 * SOME, f"{call} {nth}: {first} and {second} passed"
            faults.assert_counted_once(2 * FRAMES, first + second)
            assert faults.leaked() == 0
            if not happened:
                assert nth > 1 or call not in OF_ASO | OF_LEGACY | HARMLESS, f"{call} was not asked for"
                break
            assert (failures(faults.lab, "") > told) == (call not in HARMLESS), faults.lab.switch.appctl("dr/explain")
            asked[call], passed = nth, passed + first + second
    figure(f"{sum(asked.values())} calls of a metered flow failed once each; {passed} frames passed, as many as the "
           "meters say; " + ", ".join(f"{call} {nth}" for call, nth in asked.items()))


def test_a_change_of_a_meter_that_fails_is_another_object(faults: MeterFaults) -> None:
    """The flow goes by the new rate and by no other, and the counts begin anew."""
    [call] = CHANGE if faults.profile == "connectx-5" else [REQUEST]
    faults.new_metered_flow()
    first = faults.send_and_count()
    faults.wait_offloaded()
    faults.arm(call)
    add_meter(faults.lab, faults.meter, METER.replace("rate=2", "rate=1"), "mod-meter")
    wait_until(faults.happened, 3, f"{call} is asked for")
    passed = faults.send_and_count()
    faults.assert_counted_once(FRAMES, passed)
    faults.wait_offloaded()
    assert f"meter {faults.meter - 1}: 1 " in faults.lab.switch.appctl("dr/show")
    assert BURST - 1 <= passed <= 2 * BURST + 2 * SOME
    figure(f"{call}: of {FRAMES} frames {first} passed before the change, {passed} behind it, by another object")


def test_calls_that_fail_while_meters_go(faults: MeterFaults) -> None:
    calls = ALL_GO_SHARED | (ALL_GO if faults.profile != "connectx-5" else set())
    asked: dict[str, list[int]] = {}
    for call in sorted(calls):
        for nth in itertools.chain(range(1, 10), itertools.count(10, 7)):   # actions are many: of these some
            faults.reopen()
            faults.new_metered_flow()
            faults.send_and_count()
            faults.wait_offloaded()
            faults.arm(call, nth)
            faults.remove_ports()
            time.sleep(0.5)
            happened = faults.happened()
            faults.lab.nic.drnic("faults", "--disarm")
            assert_alive(faults.lab)
            assert faults.leaked() == 0, f"{call} {nth} failed once, and something stays for ever"
            if not happened:
                assert nth > 1, f"{call} was not asked for"
                break
            asked.setdefault(call, []).append(nth)
    faults.open_ports()
    figure(f"{sum(map(len, asked.values()))} calls failed once each while meters went, and nothing was left behind: "
           + ", ".join(f"{call} {nths}" for call, nths in asked.items()))
