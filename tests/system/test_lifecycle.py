"""Whatever the operator does, traffic follows what OpenFlow says within a second, and nothing stays behind."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import Iterator

import pytest
from helpers import WITHIN, assert_alive, assert_reaches, figure, is_offloaded, stream, wait_offloaded
from lab import stats
from lab.capture import Capture
from lab.command import Background, wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import stream_number

SETTLED = 1.5   # seconds of traffic after a change


class Follow:
    """A stream from vm1 with an oracle at each possible target; tells when traffic began and ended at each."""

    def __init__(self, lab: Lab, captures: dict[str, Capture]) -> None:
        self.lab = lab
        self._captures = captures

    def last(self, guest: Guest, since: float) -> float:
        """Seconds after `since` at which the guest got its last frame; 0 when none came."""
        return max((moment - since for moment in self._moments(guest) if moment > since), default=0.0)

    def first(self, guest: Guest, since: float) -> float | None:
        return min((moment - since for moment in self._moments(guest) if moment > since), default=None)

    def _moments(self, guest: Guest) -> list[float]:
        capture = self._captures[guest.name]
        return [moment for moment, frame in zip(list(capture.times), list(capture.frames))
                if stream_number(frame) is not None]

    def change(self, *command: str, tool: str = "ofctl") -> float:
        """Runs the command under traffic; returns the moment at which it returned."""
        time.sleep(0.3)
        getattr(self.lab.switch, tool)(*command)
        moment = time.monotonic()
        time.sleep(SETTLED)
        return moment


@contextlib.contextmanager
def following(lab: Lab, flow: str = "in_port=1,udp,actions=output:2") -> Iterator[Follow]:
    first, second, third = lab.guests[:3]
    lab.switch.add_flows(BRIDGE, [flow])
    with second.capture() as at_second, third.capture() as at_third, stream(first, second):
        wait_offloaded(lab, first)
        yield Follow(lab, {second.name: at_second, third.name: at_third})


def assert_stops(follow: Follow, guest: Guest, moment: float, what: str) -> None:
    last = follow.last(guest, moment)
    figure(f"{what}: the last frame reached {guest.name} {last * 1000:.0f} ms after the command")
    assert last <= WITHIN


def assert_starts(follow: Follow, guest: Guest, moment: float, what: str) -> None:
    first = follow.first(guest, moment)
    assert first is not None, f"{what}: nothing reached {guest.name}; {follow.lab.switch.messages()}"
    figure(f"{what}: the first frame reached {guest.name} {first * 1000:.0f} ms after the command")
    assert first <= WITHIN


def test_del_flows(lab: Lab) -> None:
    with following(lab) as follow:
        assert_stops(follow, lab.guests[1], follow.change("del-flows", BRIDGE), "del-flows")
    assert lab.kind != "dr" or not any(flow.actions.strip() != "drop"
                                       for flow in stats.megaflows(lab.switch, kind="offloaded"))


def test_mod_flows(lab: Lab) -> None:
    with following(lab) as follow:
        moment = follow.change("mod-flows", BRIDGE, "udp,actions=output:3")
        assert_stops(follow, lab.guests[1], moment, "mod-flows")
        assert_starts(follow, lab.guests[2], moment, "mod-flows")


def test_del_port_of_the_target(lab: Lab) -> None:
    second = lab.guests[1]
    with following(lab) as follow:
        assert_stops(follow, second, follow.change("del-port", BRIDGE, second.port, tool="vsctl"), "del-port")
    if lab.kind == "dr":
        assert second.port not in lab.switch.appctl("dr/ports")
    lab.add_port(second)
    with following(lab) as follow:
        time.sleep(0.5)
        assert follow.first(second, 0) is not None, "the port that came back gets nothing"


def test_del_port_of_the_source(lab: Lab) -> None:
    first, second = lab.guests[:2]
    with following(lab) as follow:
        moment = follow.change("del-port", BRIDGE, first.port, tool="vsctl")
        assert_stops(follow, second, moment, "del-port of the source")
    assert not [flow for flow in stats.megaflows(lab.switch) if f"in_port({first.port})" in flow.match]
    assert "vport 1," not in lab.switch.appctl("dr/show", check=False)


@pytest.mark.dr_only
def test_a_changed_vport(lab: Lab) -> None:
    """Two ports change places: what the flow sends to port 2 reaches the guest that is there now."""
    second, third = lab.guests[1:3]
    with following(lab) as follow:
        lab.switch.vsctl("del-port", BRIDGE, third.port)
        moment = follow.change("set", "interface", second.port, f"options:vport={third.vport}", tool="vsctl")
        assert_stops(follow, second, moment, "options:vport changed")
        assert_starts(follow, third, moment, "options:vport changed")
    assert is_offloaded(lab, lab.guests[0])


def test_port_down_and_up(lab: Lab) -> None:
    second = lab.guests[1]
    with following(lab) as follow:
        moment = follow.change("mod-port", BRIDGE, second.port, "down")
        assert_stops(follow, second, moment, "port down")
        moment = follow.change("mod-port", BRIDGE, second.port, "up")
        assert_starts(follow, second, moment, "port up")


def test_the_bridge_goes_and_comes(lab: Lab) -> None:
    first, second = lab.guests[:2]
    with following(lab) as follow:
        assert_stops(follow, second, follow.change("del-br", BRIDGE, tool="vsctl"), "del-br")
    if lab.kind == "dr":
        shown = lab.switch.appctl("dr/ports")
        assert not [guest.name for guest in lab.guests if guest.port in shown]
    lab.add_bridge("standalone")
    assert_reaches(first, second)


def leftovers(lab: Lab) -> list[str]:
    """Devices in the switch's namespace that are neither its loopback nor the guests' wires."""
    ours = {"lo", *(guest.veth for guest in lab.guests)}
    devices = [line.split(":")[1].strip().split("@")[0]
               for line in lab.namespace.run(["ip", "-o", "link", "show"]).splitlines()]
    return [device for device in devices if device not in ours]


def test_exit_with_cleanup_leaves_nothing(lab: Lab) -> None:
    with following(lab) as follow:
        moment = time.monotonic()
        lab.switch.appctl("exit", "--cleanup")
        assert lab.switch.daemon is not None
        lab.switch.daemon.wait(10)
        time.sleep(SETTLED)
        assert_stops(follow, lab.guests[1], moment, "exit --cleanup")
    assert lab.switch.daemon.process.returncode == 0
    assert leftovers(lab) == []


def test_kill_and_restart(lab: Lab) -> None:
    """The soft NIC lives in the daemon: traffic stops with it, and flows again a second after the restart."""
    second = lab.guests[1]
    with following(lab) as follow:
        lab.switch.kill_daemon()
        killed = time.monotonic()
        time.sleep(SETTLED)
        assert_stops(follow, second, killed, "kill -9")
        took = lab.switch.start_daemon()
        lab.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output:2"])
        restarted = time.monotonic()
        time.sleep(SETTLED)
        assert_starts(follow, second, restarted, f"restart (the daemon answered after {took:.1f} s)")
        wait_until(lambda: lab.kind != "dr" or is_offloaded(lab, lab.guests[0]), 3, "offloaded again")
    assert_alive(lab)


@contextlib.contextmanager
def standing(process: Background | None) -> Iterator[None]:
    assert process is not None
    process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.signal(signal.SIGCONT)


@pytest.mark.dr_only
def test_an_interface_that_opens_before_the_database_has_its_error(lab: Lab) -> None:
    """Two configurations while the database stands: the second one does not depend on what the first one wrote."""
    late = lab.wire_port("late", 7, "net_null,no-rx=1")
    with contextlib.ExitStack() as until_both_are_sent:
        with standing(lab.switch.daemon):
            lab.switch.vsctl("--no-wait", *lab._addition(late))
            time.sleep(0.5)   # the daemon's socket has the port
            until_both_are_sent.enter_context(standing(lab.switch.database))
        wait_until(lambda: "mlx5_0 has no vport 7" in lab.switch.log.read_text(), 10, "it cannot be opened")
        lab.nic.drnic("add", "7", "--dpdk", "net_null,no-rx=1")
        wait_until(lambda: f"added interface {late.port}" in lab.switch.log.read_text(), 10, "it is opened")
        time.sleep(0.5)       # the database's socket has both transactions
    wait_until(lambda: lab.switch.interface(late.port, "ofport") == lab.ofport(late), 10,
               lambda: f"the database has the port: {lab.switch.interface(late.port, 'ofport')}")
    wait_until(lambda: not lab.switch.interface(late.port, "error"), 10, "its error is cleared")
    wait_until(lambda: lab.switch.interface(late.port, "link_state") == "up", 10, "its link")
    lab.switch.vsctl("set", "interface", late.port, "external_ids:seen=yes", timeout=10)
