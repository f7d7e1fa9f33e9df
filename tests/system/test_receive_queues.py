"""options:n_rxq: several receive queues of a port in the slow path, polled by OVS's PMD threads."""

from __future__ import annotations

import contextlib
import errno
import json
import re
import time
from collections import Counter
from typing import Iterator

import pytest
from helpers import (assert_alive, assert_reaches, figure, introduce_threads, is_offloaded, received_by_threads, stream,
                     wait_counts, wait_offloaded)
from lab import stats
from lab.capture import Capture
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import Stream, send_frames, stream_number, udp_frame
from lab.workspace import Workspace

from test_slow_path import losses

pytestmark = pytest.mark.dr_only

QUEUES = 2
RATE = 500
SLOW = "actions=output(port={},max_len=9100)"   # what the NIC does not do


def set_queues(lab: Lab, guest: Guest, queues: int) -> None:
    lab.switch.vsctl("set", "interface", guest.port, f"options:n_rxq={queues}")
    wait_until(lambda: queues_of(lab, guest) == (queues if queues > 1 else 0), 10, f"{queues} queues")


def queues_of(lab: Lab, guest: Guest) -> int:
    """That PMD threads poll."""
    return len(re.findall(rf"port: {guest.port} +queue-id:", lab.switch.appctl("dpif-netdev/pmd-rxq-show")))


def pmd_threads(lab: Lab) -> int:
    return lab.switch.appctl("dpif-netdev/pmd-rxq-show").count("pmd thread ")


@pytest.fixture
def two(workspace: Workspace) -> Iterator[Lab]:
    """Two guests; PMD threads on two cores, which sleep when there is little to do: the guests need the cores too."""
    lab = Lab(workspace, mtu=9000)
    lab.wire_all(vms=2, uplink=False)
    lab.fix_neighbours()
    lab.start(fail_mode="secure")
    for guest in lab.guests:
        lab.switch.vsctl("del-port", BRIDGE, guest.port)
        lab.nic.drnic("set", str(guest.vport), "--mtu", "1500")
        lab.add_port(guest)
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=3", "other_config:pmd-maxsleep=500")
    yield lab
    assert_alive(lab)
    assert json.loads(lab.switch.appctl("dr/show", "--json"))["leaked_objects"] == 0


def datagrams(source: Guest, target: Guest, ports: range, payload: bytes = b"x" * 58) -> list[bytes]:
    return [udp_frame(source.mac, target.mac, source.address, target.address, payload, target_port=port)
            for port in ports]


def numbers(frames: list[bytes]) -> list[int]:
    udp = 17
    return [number for frame in frames if frame[23] == udp and (number := stream_number(frame)) is not None]


def assert_each_once(capture: Capture, sent: int, what: str) -> None:
    arrived = Counter(numbers(capture.frames))
    lost = set(range(sent)) - set(arrived)
    twice = [number for number, times in arrived.items() if times > 1]
    assert not lost and not twice, f"{what}: lost {sorted(lost)[:20]}, twice {twice[:20]}"


def test_flows_are_spread_over_pmd_threads(two: Lab) -> None:
    first, second = two.guests
    two.switch.add_flows(BRIDGE, ["in_port=1," + SLOW.format(2), "in_port=2," + SLOW.format(1)])
    set_queues(two, first, QUEUES)
    introduce_threads(two, BRIDGE, 1, first)
    flows, each = 64, 20
    with second.capture() as seen:
        before = received_by_threads(two)
        for turn in range(1, each + 1):
            send_frames(first.namespace, first.device, datagrams(first, second, range(9000, 9000 + flows)))
            # All of them at once are more than the rings hold that a thread without a core leaves alone.
            wait_until(lambda: len(seen.frames) >= turn * flows, 10, f"{turn * flows} frames arrive")
        seen.settle()
        received = [now - then for now, then in zip(received_by_threads(two), before)]
    figure(f"{flows} flows of {each} frames, received by PMD threads and the main thread: {received}")
    assert Counter(seen.frames) == Counter(datagrams(first, second, range(9000, 9000 + flows)) * each)
    assert sum(received) >= flows * each
    # By RSS a flow is in one queue, and both have some: all in one of them has a probability of 2 to the -63.
    assert min(received[:QUEUES]) > 0.15 * flows * each, received
    assert received[-1] < 10, "the main thread does not receive"
    assert_reaches(first, second)
    assert_reaches(second, first)


def test_megaflows_of_several_threads_are_counted_once(two: Lab) -> None:
    """One wide megaflow whose first packets come to both threads: offloaded, and counted to the packet."""
    first, second = two.guests
    two.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output:2"])
    set_queues(two, first, QUEUES)
    introduce_threads(two, BRIDGE, 1, first)
    flows, each = 32, 40
    frames = datagrams(first, second, range(9000, 9000 + flows))
    with second.capture() as seen:
        for _ in range(each):
            send_frames(first.namespace, first.device, frames)
            time.sleep(0.05)
        seen.settle()
        wait_offloaded(two, first)
        megaflows = [flow for flow in stats.megaflows(two.switch) if "in_port(vm1)" in flow.match]
        figure(f"the megaflow is in {len(megaflows)} threads: " +
               ", ".join(f"{flow.packets} packets ({flow.layer})" for flow in megaflows))
        assert sum(flow.packets for flow in megaflows) == flows * each - len(megaflows), "the first is an upcall's"
        told = json.loads(two.switch.appctl("dr/explain", "--json"))["megaflows"]
        known = told["offloaded"] + told["rejected"] + told["failed"]
        assert told["from_dr_ports"] == known >= len(megaflows), f"each thread's own counts: {told}"
        wait_counts(two, "udp", flows * each, flows * each * len(frames[0]))
        # When one thread's flow ends the other's goes on in the NIC, and nothing is lost or counted again.
        two.switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=500")
        for _ in range(4):
            time.sleep(0.4)
            send_frames(first.namespace, first.device, frames)
        seen.settle()
        assert len(seen.frames) == flows * (each + 4)
        wait_counts(two, "udp", flows * (each + 4), flows * (each + 4) * len(frames[0]))


@contextlib.contextmanager
def both_ways(lab: Lab) -> Iterator[tuple[Capture, Capture, Stream, Stream]]:
    """The first guest's frames go up, the second one's stay in the NIC. One PMD thread: a core is the guests'."""
    first, second = lab.guests
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=1")
    lab.switch.add_flows(BRIDGE, ["in_port=1," + SLOW.format(2), "in_port=2,ip,actions=output:1"])
    with second.capture() as slow, first.capture() as offloaded, \
            stream(first, second, rate=RATE) as up, stream(second, first, rate=RATE) as down:
        wait_offloaded(lab, second)
        yield slow, offloaded, up, down


def test_the_number_of_queues_changes_while_packets_move(two: Lab) -> None:
    first, second = two.guests
    with both_ways(two) as (slow, offloaded, up, down):
        dropped = losses(two)
        for queues in (2, 5, 3, 1, 4, 1):
            set_queues(two, first, queues)
            sent = up.sent
            wait_until(lambda: up.sent > sent + 200, 5, "packets go on")
            assert is_offloaded(two, second)
        sent_up, sent_down = up.stop(), down.stop()
        slow.settle()
        offloaded.settle()
    figure(f"six changes of the number of queues: {len(numbers(slow.frames))} of {sent_up} frames by the slow path, "
           f"{len(numbers(offloaded.frames))} of {sent_down} in the NIC")
    assert losses(two) == dropped
    assert_each_once(slow, sent_up, "slow path")
    assert_each_once(offloaded, sent_down, "offloaded")


def test_queues_that_threads_poll_are_replaced_under_traffic(two: Lab) -> None:
    """By larger ones, and by ones that work."""
    first, second = two.guests
    for guest in two.guests:
        set_queues(two, guest, QUEUES)
    with both_ways(two) as (slow, offloaded, up, down):
        dropped = losses(two)
        for mtu in range(2300, 7300, 500):
            for guest in two.guests:
                two.switch.vsctl("set", "interface", guest.port, f"mtu_request={mtu}")
            sent = up.sent
            wait_until(lambda: up.sent > sent + 200, 5, "packets go on")
            assert two.switch.interface(first.port, "error") is None
        sent_up, sent_down = up.stop(), down.stop()
        slow.settle()
        offloaded.settle()
    assert losses(two) == dropped
    assert_each_once(slow, sent_up, "slow path")
    assert_each_once(offloaded, sent_down, "offloaded")

    two.nic.drnic("fault", "work_request_receive", str(errno.EFAULT), "5")
    with second.capture() as seen, stream(first, second, rate=RATE):
        wait_until(lambda: "works again" in two.switch.log.read_text(errors="replace"), 10, "a queue is restarted")
        before = len(seen.frames)
        wait_until(lambda: len(seen.frames) > before + 300, 5, "packets go on")


@pytest.mark.parametrize("value", ["0", "33", "two", "", "-1", "1.5"])
def test_a_wrong_number_is_refused(two: Lab, value: str) -> None:
    first = two.guests[0]
    two.switch.vsctl("set", "interface", first.port, f'options:n_rxq="{value}"', check=False)
    wait_until(lambda: "is not a number from 1 to 32" in str(two.switch.interface(first.port, "error")), 5, "the error")


def test_queues_that_cannot_be_had_are_told(two: Lab) -> None:
    first, second = two.guests
    two.switch.add_flows(BRIDGE, ["actions=NORMAL"])
    two.nic.drnic("fault", "ibv_create_rwq_ind_table", str(errno.ENOSPC), "1")
    two.switch.vsctl("set", "interface", first.port, f"options:n_rxq={QUEUES}")
    wait_until(lambda: "options:n_rxq=2: ibv_create_rwq_ind_table" in str(two.switch.interface(first.port, "error")), 5,
               "the error")
    assert_reaches(first, second)
    assert queues_of(two, first) == 0
    two.switch.vsctl("set", "interface", first.port, "options:n_rxq=3")
    wait_until(lambda: queues_of(two, first) == 3, 10, "three queues")
    assert_reaches(first, second)
    wait_until(lambda: two.switch.interface(first.port, "error") is None, 10, "no error")


def ask_for_refused(lab: Lab, guest: Guest, queues: int, call: str) -> None:
    """`call`: the one that fails, once. OVS's next configuration of anything would ask again, and get the queues."""
    lab.nic.drnic("fault", call, str(errno.ENOMEM), "1")
    lab.switch.vsctl("set", "interface", guest.port, f"options:n_rxq={queues}")
    wait_until(lambda: f"options:n_rxq={queues}: {call}" in str(lab.switch.interface(guest.port, "error")), 10,
               "the error")


def wait_no_error(lab: Lab, guest: Guest) -> None:
    wait_until(lambda: lab.switch.interface(guest.port, "error") is None, 10, "no error")


def test_threads_stay_until_the_device_has_granted_a_single_queue(two: Lab) -> None:
    first, second = two.guests
    two.switch.add_flows(BRIDGE, ["in_port=1," + SLOW.format(2), "in_port=2," + SLOW.format(1)])
    set_queues(two, first, QUEUES)
    introduce_threads(two, BRIDGE, 1, first)
    assert_reaches(first, second)
    threads = pmd_threads(two)
    assert threads > 0
    ask_for_refused(two, first, 1, "ibv_create_qp")
    assert (pmd_threads(two), queues_of(two, first)) == (threads, QUEUES), "of the only port that threads poll"
    assert_reaches(first, second)
    assert_reaches(second, first)
    two.switch.vsctl("set", "interface", first.port, f"options:n_rxq={QUEUES}")
    wait_no_error(two, first)
    assert (pmd_threads(two), queues_of(two, first)) == (threads, QUEUES)
    assert_reaches(first, second)
    set_queues(two, first, 1)
    wait_until(lambda: pmd_threads(two) == 0, 10, "the threads end that nobody needs")
    assert_reaches(first, second)
    assert_reaches(second, first)


def test_an_error_goes_when_what_is_in_force_is_asked_for(two: Lab) -> None:
    first, second = two.guests
    two.switch.add_flows(BRIDGE, ["actions=NORMAL"])
    for taken_back in (["set", "interface", first.port, "options:n_rxq=1"],
                       ["remove", "interface", first.port, "options", "n_rxq"]):
        ask_for_refused(two, first, 8, "ibv_create_rwq_ind_table")
        two.switch.vsctl(*taken_back)
        wait_no_error(two, first)
        wait_until(lambda: pmd_threads(two) == 0, 10, "the threads end that were made for eight queues")
        assert_reaches(first, second)


def test_an_error_stays_when_threads_end_for_another_port(two: Lab) -> None:
    """OVS reconfigures all ports then, without asking for other queues."""
    first, second = two.guests
    set_queues(two, second, QUEUES)
    ask_for_refused(two, first, 8, "ibv_create_rwq_ind_table")
    two.nic.drnic("fault", "ibv_create_rwq_ind_table", str(errno.ENOMEM), "1")
    set_queues(two, second, 1)
    wait_until(lambda: pmd_threads(two) == 0, 10, "the threads end")
    time.sleep(0.5)   # for an error that goes
    assert "options:n_rxq=8" in str(two.switch.interface(first.port, "error"))
    assert queues_of(two, first) == 0
