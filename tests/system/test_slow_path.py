"""The slow path's queues while packets move: replaced by larger ones, failing, restarted. Every packet is counted."""

from __future__ import annotations

import errno
import json
import re
import statistics
import time
from typing import Iterator

import pytest
from helpers import assert_alive, assert_reaches, figure, is_offloaded, stream
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import ping, stream_number, udp_frame
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

RATE = 1000          # frames a second, in each direction
MTU_CHANGES = 10


@pytest.fixture
def two(workspace: Workspace, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Two guests of MTU 9000, their vports of 1500. The first one's frames are forwarded by the NIC, the second one's
    need what the NIC cannot do: they go up and are sent down again. Its parameter: how many workers there are."""
    lab = Lab(workspace, mtu=9000)
    lab.nic.workers = getattr(request, "param", 1)
    lab.wire_all(vms=2, uplink=False)
    lab.fix_neighbours()
    lab.start()
    for guest in lab.guests:
        lab.switch.vsctl("del-port", BRIDGE, guest.port)
        lab.nic.drnic("set", str(guest.vport), "--mtu", "1500")
        lab.add_port(guest)
    lab.switch.add_flows(BRIDGE, ["in_port=1,ip,actions=output:2", "in_port=2,ip,actions=output(port=1,max_len=9100)"])
    assert_reaches(*lab.guests, count=2)
    yield lab
    assert_alive(lab)
    assert json.loads(lab.switch.appctl("dr/show", "--json"))["leaked_objects"] == 0


def port_of(lab: Lab, guest: Guest) -> dict[str, object]:
    ports = json.loads(lab.switch.appctl("dr/ports", "--json"))["ports"]
    return next(port for port in ports if port["name"] == guest.port)


def send_queues(lab: Lab) -> set[str]:
    """The numbers of the slow path's queues now."""
    return set(re.findall(r"slow-path SQ (0x[0-9a-f]+)", lab.switch.appctl("dr/show")))


def installs(lab: Lab) -> int:
    """Megaflows that became offloaded, again or for the first time, since the device was opened."""
    rows = json.loads(lab.switch.appctl("dr/explain", "--json"))["reasons"]
    return sum(row["total"] for row in rows if row["reason"] == "offloaded")


def losses(lab: Lab) -> dict[str, int]:
    """What the soft NIC says that it dropped."""
    device = json.loads(lab.nic.drnic("stats", "--json"))["devices"][0]
    found = {name: count for name, count in device["drops"].items() if count}
    for vport in device["vports"]:
        for name in ("receive_drops", "send_drops", "oversize", "down", "overruns"):
            if vport[name]:
                found[f"{vport['name']} {name}"] = vport[name]
    return found


def numbers(frames: list[bytes]) -> list[int]:
    """Of the streams' frames; the ICMP errors that answer them quote them."""
    udp = 17
    return [number for frame in frames if frame[23] == udp and (number := stream_number(frame)) is not None]


def sleeps_ended(lab: Lab) -> int:
    """By packets, of the main loop's."""
    return int(lab.switch.appctl("coverage/read-counter", "dr_packet_poll"))


def test_packets_are_taken_before_the_main_loop_goes_on(two: Lab) -> None:
    """And it goes on: whatever else it is asked is answered meanwhile."""
    first, second = two.guests
    before = sleeps_ended(two)
    with stream(second, first, rate=RATE):
        wait_until(lambda: sleeps_ended(two) > before + RATE / 10, 10, "packets end the loop's sleep")
        begin = time.monotonic()
        for _ in range(20):
            two.switch.ofctl("dump-flows", BRIDGE)
        assert time.monotonic() - begin < 10


@pytest.mark.parametrize("two", [1, 2], indirect=True, ids=["one worker", "two workers"])
def test_answers_do_not_wait_for_the_main_loop(two: Lab) -> None:
    """The loop goes on one or two milliseconds behind a packet. Where there is one worker the main thread receives in
    its place, and is woken by the port; otherwise by a completion event."""
    first, second = two.guests
    two.switch.add_flows(BRIDGE, ["priority=60000,in_port=1,icmp,actions=output(port=2,max_len=9100)"])
    before = sleeps_ended(two)
    trips = ping(second.namespace, first.address, count=200, interval=0.005).times_ms
    figure(f"round trips in software: median {statistics.median(trips):.2f} ms")
    assert len([took for took in trips if took < 0.9]) >= 20, sorted(trips)[:20]
    assert sleeps_ended(two) >= before + len(trips) / 2


def test_mtu_changes_lose_and_double_nothing(two: Lab) -> None:
    first, second = two.guests
    with second.capture() as offloaded, first.capture() as slow, \
            stream(first, second, rate=RATE) as down, stream(second, first, rate=RATE) as up:
        wait_until(lambda: is_offloaded(two, first), 5, "the megaflow is in the NIC")
        wait_until(lambda: up.sent > 100, 5, "the slow path is busy")
        before, dropped = installs(two), losses(two)
        queues = send_queues(two)
        for change in range(MTU_CHANGES):
            for guest in two.guests:
                two.switch.vsctl("set", "interface", guest.port, f"mtu_request={2300 + 500 * change}")
            sent = up.sent
            wait_until(lambda: up.sent > sent + 100, 5, "packets go on")
            assert len(queues | send_queues(two)) == len(queues) + 2, "no new queues for longer frames"
            queues = send_queues(two)
        for guest in two.guests:
            assert two.switch.interface(guest.port, "mtu") == 2300 + 500 * (MTU_CHANGES - 1)
        assert is_offloaded(two, first)
        assert installs(two) == before, "megaflows were installed again"
        sent = {"offloaded": down.stop(), "slow path": up.stop()}
        for capture in (offloaded, slow):
            capture.settle()
        arrived = {"offloaded": numbers(offloaded.frames), "slow path": numbers(slow.frames)}
    figure(f"{MTU_CHANGES} MTU changes of two ports: " + ", ".join(
        f"{kind} {len(arrived[kind])} of {sent[kind]} frames" for kind in sent))
    assert losses(two) == dropped
    for kind in sent:
        lost = set(range(sent[kind])) - set(arrived[kind])
        assert not lost, f"{kind}: lost {sorted(lost)[:20]}"
        assert len(arrived[kind]) == sent[kind], f"{kind}: frames came twice"
    for guest in two.guests:
        port = port_of(two, guest)
        assert port["problem"] == ""
        assert port["slow_path_rx_missed"] == port["slow_path_tx_errors"] == port["slow_path_restarts"] == 0


@pytest.mark.parametrize("fault", ["work_request_send", "work_request_receive"])
def test_a_queue_that_fails_is_restarted_and_its_losses_counted(two: Lab, fault: str) -> None:
    first, second = two.guests
    failing = first if fault == "work_request_send" else second
    frames = 1500
    before = {guest: two.switch.interface(guest.port, "statistics") for guest in two.guests}
    with first.capture() as seen, stream(second, first, rate=RATE, limit=frames) as sender:
        wait_until(lambda: sender.sent > 200, 5, "the slow path is busy")
        two.nic.drnic("fault", fault, str(errno.EFAULT), "10")
        wait_until(lambda: port_of(two, failing)["slow_path_restarts"] == 1, 10, "the slow path is restarted")
        assert sender.join() == frames
        seen.settle()
        arrived = numbers(seen.frames)
    assert len(set(arrived)) == len(arrived), "frames came twice"
    receiver, transmitter = port_of(two, second), port_of(two, first)
    lost = receiver["slow_path_rx_missed"] + receiver["slow_path_rx_errors"] + transmitter["slow_path_tx_errors"]
    figure(f"{fault}: {len(arrived)} of {frames} frames arrived, {lost} counted as lost")
    assert 1 <= lost == frames - len(arrived)
    assert port_of(two, failing)["problem"] == ""
    assert max(arrived) == frames - 1, "it works again"
    assert "local protection error) and works again" in two.switch.messages() + two.switch.log.read_text()

    # OVS's own counters have them too, once they are written to the database again.
    def counted() -> int:
        now = {guest: two.switch.interface(guest.port, "statistics") for guest in two.guests}
        return sum(now[guest][name] - before[guest][name] for guest, name in
                   ((second, "rx_dropped"), (second, "rx_errors"), (first, "tx_errors")))

    wait_until(lambda: counted() == lost, 12, "Interface statistics tell of the loss")


def test_a_queue_that_cannot_be_restarted_says_so_until_it_can(two: Lab) -> None:
    first, second = two.guests
    with stream(second, first, rate=200):
        two.nic.drnic("fault", "ibv_create_qp", str(errno.ENOMEM), "1")
        two.nic.drnic("fault", "work_request_receive", str(errno.EFAULT), "1")
        deadline = time.monotonic() + 20
        while not (error := str(two.switch.interface(second.port, "error") or "")):
            # It is tried again every second: it must fail each time.
            two.nic.drnic("fault", "ibv_create_qp", str(errno.ENOMEM), "1")
            assert time.monotonic() < deadline, "the interface never shows the error"
            time.sleep(0.02)
        assert "slow path has stopped" in error and "ibv_create_qp" in error, error
        two.nic.drnic("faults", "--disarm")
        wait_until(lambda: not two.switch.interface(second.port, "error"), 10, "the error goes when its cause has gone")
    port = port_of(two, second)
    assert port["problem"] == "" and port["slow_path_restarts"] == 1
    assert_reaches(first, second)
    figure(f"while it lasted: {error}")


def tx_drops(lab: Lab, guest: Guest) -> dict[str, int]:
    """What the database says of packets that OVS had for the port and the NIC never got."""
    shown = lab.switch.interface(guest.port, "statistics")
    assert isinstance(shown, dict)
    return {name: shown[name] for name in ("tx_dropped", "slow_path_tx_drops", "slow_path_tx_size_drops",
                                           "slow_path_tx_errors", "slow_path_tx_packets")}


def packet_out(lab: Lab, frame: bytes, actions: str) -> None:
    lab.switch.ofctl("packet-out", BRIDGE, f"in_port=controller packet={frame.hex()} actions={actions}")


def long_frame(source: Guest, target: Guest, size: int) -> bytes:
    return udp_frame(source.mac, target.mac, source.address, target.address, bytes(size - 42))


def test_frames_that_are_too_long_for_a_port_are_counted(lab: Lab) -> None:
    """In the database and in OpenFlow, once each; what just fits arrives."""
    first, second = lab.guests[:2]
    length = 5
    fits, too_long = 1500 + 14, 1500 + 14 + 8 + 1
    with second.capture() as seen:
        for size in (fits, too_long):
            for _ in range(length):
                packet_out(lab, long_frame(first, second, size), "output:2")
        seen.settle()
    assert [len(frame) for frame in seen.frames if len(frame) > 1000] == [fits] * length
    wait_until(lambda: tx_drops(lab, second)["slow_path_tx_size_drops"] == length, 12, "they are counted")
    told = tx_drops(lab, second)
    assert told["tx_dropped"] == length and told["slow_path_tx_drops"] == told["slow_path_tx_errors"] == 0
    counts = re.search(r"tx pkts=\d+, bytes=\d+, drop=(\d+)", lab.switch.ofctl("dump-ports", BRIDGE, second.port))
    assert counts is not None and int(counts.group(1)) == length
    assert tx_drops(lab, first)["tx_dropped"] == 0
    figure(f"{length} frames of {fits} bytes arrived, {length} of {too_long} are in slow_path_tx_size_drops")


def test_what_finds_the_ring_full_is_counted(lab: Lab) -> None:
    """One packet to a port thousands of times, faster than its vport can send: what does not arrive is a drop."""
    first, second = lab.guests[:2]
    copies, most_tries = 3000, 20
    frame = long_frame(first, second, 1500)
    sent = 0
    with second.capture() as seen:
        for _ in range(most_tries):
            packet_out(lab, frame, ",".join(["output:2"] * copies))
            sent += copies
            if port_of(lab, second)["slow_path_tx_drops"]:
                break
        seen.settle()
        arrived = sum(len(each) == len(frame) for each in list(seen.frames))
    port = port_of(lab, second)
    dropped = port["slow_path_tx_drops"]
    figure(f"{sent} packets to one port: {arrived} arrived, {dropped} found the ring full")
    assert isinstance(dropped, int) and dropped > 0, f"{sent} packets never filled the ring"
    assert arrived + dropped == sent
    wait_until(lambda: tx_drops(lab, second)["slow_path_tx_drops"] == dropped, 12, "the database tells them")
    told = tx_drops(lab, second)
    assert told["tx_dropped"] == dropped and told["slow_path_tx_size_drops"] == told["slow_path_tx_errors"] == 0
    # The ring goes on.
    with second.capture() as seen:
        packet_out(lab, frame, "output:2")
        wait_until(lambda: any(len(each) == len(frame) for each in list(seen.frames)), 5, "the next one arrives")
    assert_alive(lab)
