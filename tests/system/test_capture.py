"""`drnic capture`: what passes a vport, offloaded packets too, and nothing that forwarding would notice."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

import pytest
from helpers import figure, is_offloaded, stream, wait_offloaded
from lab import build, stats, traffic
from lab.command import Background, run, wait_until
from lab.lab import Lab
from lab.nic_capture import NicCapture, Tcpdump, fields, frames, statistics
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

LARGE = ("-B", "65536")   # KiB: what a busy machine cannot fill


@pytest.fixture(scope="module")
def shared_lab(built: None) -> Iterator[Lab]:
    """A learning switch that the tests which leave it as it was have in common."""
    with Workspace("test") as workspace:
        made = Lab(workspace)
        made.wire_all(vms=3, uplink=False)
        made.fix_neighbours()
        made.start(fail_mode="standalone")
        yield made


def captures(lab: Lab) -> list[dict[str, Any]]:
    return json.loads(lab.nic.drnic("stats", "--json"))["captures"]


def vport(lab: Lab, number: int) -> dict[str, Any]:
    device = json.loads(lab.nic.drnic("stats", "--json"))["devices"][0]
    return next(vport for vport in device["vports"] if vport["vport"] == number)


def by_direction(file: Path) -> tuple[list[bytes], list[bytes]]:
    """Frames in, and frames out."""
    directions = [int(line[0], 16) for line in fields(file, "frame.packet_flags_direction")]
    pairs = list(zip(frames(file), directions, strict=True))
    assert {direction for _, direction in pairs} <= {1, 2}
    return ([frame for frame, direction in pairs if direction == 1],
            [frame for frame, direction in pairs if direction == 2])


def test_a_capture_sees_what_the_guest_sees(shared_lab: Lab) -> None:
    """The same frames, bytes and order in each direction, of pings that the NIC forwards."""
    lab = shared_lab
    first, second = lab.guests[:2]
    folder = lab.workspace.folder
    traffic.ping(first.namespace, second.address, count=10)
    wait_offloaded(lab, first)
    upcalls = stats.slow_path(lab.switch).received
    at_nic = NicCapture(lab.nic, "vm1", folder / "nic.pcapng", *LARGE)
    sent = Tcpdump(first.namespace, "eth0", folder / "sent.pcap", "-Q", "out")
    received = Tcpdump(first.namespace, "eth0", folder / "received.pcap", "-Q", "in")
    result = traffic.ping(first.namespace, second.address, count=300, interval=0.005)
    assert result.received == 300
    assert sent.stop() == received.stop() == 0
    summary = at_nic.stop()
    inbound, outbound = by_direction(at_nic.file)
    assert inbound == frames(sent.file)
    assert outbound == frames(received.file)
    assert len(inbound) == len(outbound) == 300
    assert (summary.captured, summary.dropped) == (600, 0)
    assert stats.slow_path(lab.switch).received - upcalls < 10
    text = run(["tcpdump", "-nr", str(at_nic.file), "icmp[icmptype] == icmp-echo"])
    assert len(text.splitlines()) == 300
    figure(f"300 pings: {summary.captured} frames at the NIC, the guest's own; "
           f"{stats.slow_path(lab.switch).received - upcalls} of them seen by the slow path")


def test_a_capture_of_a_stream_is_exact(normal_lab: Lab) -> None:
    """iperf3: what the vport counted is what the capture has; whatever the guest's kernel and tcpdump still had is in
    it."""
    lab = normal_lab
    client, server = lab.guests[:2]
    folder = lab.workspace.folder
    traffic.ping(client.namespace, server.address, count=3)
    before = vport(lab, 2)
    ways = [NicCapture(lab.nic, "2", folder / f"{way}.pcapng", "--direction", way, *LARGE) for way in ("in", "out")]
    at_guest = Tcpdump(server.namespace, "eth0", folder / "guest.pcap", "-Q", "in")
    result = traffic.iperf(client.namespace, server.namespace, server.address, folder, seconds=1)
    lost = at_guest.stop()
    after = vport(lab, 2)
    assert [capture.stop().dropped for capture in ways] == [0, 0]
    inbound, outbound = (frames(capture.file) for capture in ways)
    assert len(outbound) == after["received_packets"] - before["received_packets"]
    assert sum(map(len, outbound)) == after["received_bytes"] - before["received_bytes"]
    assert len(inbound) == after["sent_packets"] - before["sent_packets"]
    assert sum(map(len, inbound)) == after["sent_bytes"] - before["sent_bytes"]
    received = frames(at_guest.file)
    assert received and not Counter(received) - Counter(outbound)
    figure(f"iperf3 {result.megabits_per_second:.0f} Mb/s: {len(outbound)} frames to the guest, "
           f"{len(received)} of them seen by its tcpdump, which lost {lost}; {len(inbound)} from it")


def test_a_filter_is_tcpdumps(shared_lab: Lab) -> None:
    lab = shared_lab
    first, second, third = lab.guests[:3]
    folder = lab.workspace.folder
    expression = f"icmp and src host {second.address} and icmp[icmptype] == 0"
    whole = NicCapture(lab.nic, "vm1", folder / "whole.pcapng", *LARGE)
    filtered = NicCapture(lab.nic, "vm1", folder / "filtered.pcapng", *expression.split())
    assert expression in lab.nic.drnic("list")
    short = NicCapture(lab.nic, "vm1", folder / "short.pcapng", "--direction", "in", "-s", "34", "ip")
    for guest in (second, third):
        assert traffic.ping(first.namespace, guest.address, count=20, interval=0.01).received == 20
    summary = filtered.stop()
    short.stop()
    whole.stop()
    assert (summary.captured, summary.accepted) == (20, 20)
    assert summary.seen >= 80
    by_tcpdump = folder / "by-tcpdump.pcap"
    run(["tcpdump", "-r", str(whole.file), "-w", str(by_tcpdump), expression])
    assert frames(filtered.file) == frames(by_tcpdump)
    assert {(line[0], line[1]) for line in fields(short.file, "frame.cap_len", "frame.len")} == {("34", "98")}
    assert len(frames(short.file)) == 40
    figure(f"{summary.seen} frames passed, {summary.captured} were echo replies of one guest")


def test_a_capture_ends_after_so_many(shared_lab: Lab) -> None:
    lab = shared_lab
    first, second = lab.guests[:2]
    capture = NicCapture(lab.nic, "vm1", lab.workspace.folder / "five.pcapng", "--count", "5", "icmp")
    traffic.ping(first.namespace, second.address, count=20, interval=0.01)
    assert capture.wait() == 0, capture.output()
    assert capture.summary().captured == len(frames(capture.file)) == 5
    assert captures(lab) == []


def test_a_reader_that_sleeps_loses_packets_and_forwarding_none(shared_lab: Lab) -> None:
    """The ring of a stopped drnic is full after 60 packets; all packets arrive, and the file says what is not in it."""
    lab = shared_lab
    first, second = lab.guests[:2]
    traffic.ping(second.namespace, first.address, count=2)   # the switch has learnt where they are
    capture = NicCapture(lab.nic, "vm2", lab.workspace.folder / "small.pcapng", "-B", "64", "udp")
    capture.process.signal(signal.SIGSTOP)
    try:
        with second.capture() as seen, stream(first, second, rate=4000, size=1000, limit=4000) as sender:
            sender.join()
            seen.settle()
        running = captures(lab)
    finally:
        capture.process.signal(signal.SIGCONT)
    assert len(seen.matching(b"ovs-dr stream")) == 4000
    assert is_offloaded(lab, first)
    assert running[0]["dropped"] > 3900
    summary = capture.stop()
    assert (summary.accepted, summary.captured + summary.dropped) == (4000, 4000)
    assert statistics(capture.file) == [{"received": summary.seen, "accepted": 4000, "dropped": summary.dropped,
                                         "delivered": summary.captured}]
    assert len(frames(capture.file)) == summary.captured > 0
    figure(f"4000 frames arrived; the capture has {summary.captured} and says that it dropped {summary.dropped}")


@contextmanager
def into_a_pipe(lab: Lab, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`drnic capture -w -`, with what it writes as standard output; it is killed at the end if it has not ended."""
    command = [str(build.drnic()), "--socket", str(lab.nic.control), "capture", *arguments, "-w", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            wait_until(lambda: len(captures(lab)) == 1, 10, "drnic captures")
            yield process
        finally:
            process.kill()


def wait_for_drops(lab: Lab) -> None:
    wait_until(lambda: captures(lab)[0]["dropped"] > 0, 20, "the capture drops packets")


def test_ctrl_c_ends_a_capture_that_cannot_keep_up(shared_lab: Lab, tmp_path: Path) -> None:
    """Packets come faster than the pipe takes them, and drnic's buffer is filled from the ring without emptying it."""
    lab = shared_lab
    first, second = lab.guests[:2]
    traffic.ping(second.namespace, first.address, count=2)
    with into_a_pipe(lab, "vm2", "-B", "1024", "udp") as process, stream(first, second, rate=4000, size=1000):
        assert process.stdout is not None and process.stderr is not None
        taken = bytearray()

        def taken_so_far() -> int:
            taken.extend(os.read(process.stdout.fileno(), 16384))
            return len(taken)

        def capture_has_ended() -> bool:
            taken_so_far()
            return captures(lab) == []

        wait_for_drops(lab)
        wait_until(lambda: taken_so_far() > 1 << 20, 20, "drnic's buffer has been emptied a few times", interval=0.01)
        process.send_signal(signal.SIGINT)
        wait_until(capture_has_ended, 20, "the capture has ended", interval=0.01)
        taken += process.stdout.read()
        assert process.wait(20) == 0, process.stderr.read()
    (tmp_path / "taken.pcapng").write_bytes(taken)
    assert statistics(tmp_path / "taken.pcapng")[0]["delivered"] == len(frames(tmp_path / "taken.pcapng")) > 0


def test_a_second_ctrl_c_ends_a_capture_that_nobody_reads(shared_lab: Lab) -> None:
    """The first one waits for the reader, so that the file is whole."""
    lab = shared_lab
    first, second = lab.guests[:2]
    traffic.ping(second.namespace, first.address, count=2)
    with into_a_pipe(lab, "vm2", "-B", "64", "udp") as process:
        with stream(first, second, rate=4000, size=1000):
            wait_for_drops(lab)

        def has_ended() -> bool:
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        wait_until(has_ended, 10, "drnic has ended", interval=0.3)
        assert process.returncode == -signal.SIGINT
    wait_until(lambda: captures(lab) == [], 10, "the capture is gone")


def test_a_file_that_nobody_reads_can_be_given_up(shared_lab: Lab, tmp_path: Path) -> None:
    """A named pipe is opened when somebody reads it, which need not be ever."""
    lab = shared_lab
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [str(build.drnic()), "--socket", str(lab.nic.control), "capture", "vm1", "-w", str(pipe)]
    capture = Background(command, tmp_path / "pipe.log")
    try:
        wait_until(lambda: len(captures(lab)) == 1, 10, "drnic captures")
        capture.signal(signal.SIGINT)
        assert capture.wait(10) == 1
    finally:
        capture.process.kill()
    assert f"{pipe}: given up before anybody read it" in capture.output()


def test_a_capture_survives_its_terminal_under_nohup(shared_lab: Lab, tmp_path: Path) -> None:
    lab = shared_lab
    first, second = lab.guests[:2]
    capture = NicCapture(lab.nic, "vm1", tmp_path / "nohup.pcapng", "icmp", under=["nohup"])
    capture.process.signal(signal.SIGHUP)
    assert traffic.ping(first.namespace, second.address, count=3).received == 3
    assert capture.stop().captured == 6


def daemon_holds_captures(lab: Lab) -> bool:
    assert lab.switch.daemon is not None
    process = Path("/proc", str(lab.switch.daemon.pid))
    descriptors = [os.readlink(file) for file in (process / "fd").iterdir()]
    return any("ovs-dr-capture" in text for text in [*descriptors, (process / "maps").read_text()])


def test_a_killed_drnic_leaves_nothing(shared_lab: Lab) -> None:
    lab = shared_lab
    first, second = lab.guests[:2]
    capture = NicCapture(lab.nic, "vm1", lab.workspace.folder / "killed.pcapng")
    traffic.ping(first.namespace, second.address, count=3)
    assert len(captures(lab)) == 1 and daemon_holds_captures(lab)
    capture.process.signal(signal.SIGKILL)
    capture.wait()
    wait_until(lambda: captures(lab) == [], 10, "the capture is gone")
    assert not daemon_holds_captures(lab)
    assert traffic.ping(first.namespace, second.address, count=3).received == 3


@pytest.mark.parametrize("how", ["port", "daemon"])
def test_a_capture_ends_with_what_it_captures(normal_lab: Lab, how: str) -> None:
    lab = normal_lab
    first, second = lab.guests[:2]
    capture = NicCapture(lab.nic, "vm1", lab.workspace.folder / "ended.pcapng", "icmp")
    assert traffic.ping(first.namespace, second.address, count=5).received == 5
    if how == "port":
        lab.nic.drnic("del", "1")
    else:
        lab.switch.kill_daemon()
    assert capture.wait() == 1
    reason = "vport 1 of mlx5_0 was removed" if how == "port" else "the soft NIC's process has ended"
    assert reason in capture.output()
    assert capture.summary().captured == len(frames(capture.file)) == 10


def drnic(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(build.drnic()), "--socket", str(lab.nic.control), "capture", *arguments], timeout=30,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def test_what_cannot_be_captured_is_said(shared_lab: Lab) -> None:
    lab = shared_lab
    for arguments, reason in {
        ("vm1", "-w", "/nowhere/x", "ip"): "/nowhere/x: No such file or directory",
        ("vm1", "tcp", "prot", "80"): 'filter "tcp prot 80": ',
        ("vm1", "ip protochain 6"): "protochain",
        ("vm9",): '"vm9" is no vport of mlx5_0; there are 0 (manager), 1 (vm1)',
        ("0",): "manager, which has no port",
        ("vm1", "--direction", "up"): "--direction",
        ("vm1", "-c", "0"): "--count",
        ("vm1", "-w", "/dev/full", "-c", "1"): "/dev/full: No space left on device",
    }.items():
        done = drnic(lab, *arguments)
        assert done.returncode != 0 and reason in done.stderr, (arguments, done)
    assert captures(lab) == []


def test_a_terminal_is_shown_no_capture(shared_lab: Lab) -> None:
    lab = shared_lab
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run([str(build.drnic()), "--socket", str(lab.nic.control), "capture", "vm1"], timeout=30,
                              stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 1
    assert "drnic capture PORT -w - | tcpdump -nr -" in done.stderr


def test_a_pipe_shows_packets_as_they_come(shared_lab: Lab) -> None:
    """As its message advises; when tcpdump has enough, drnic ends too."""
    lab = shared_lab
    first, second = lab.guests[:2]
    line = f"{build.drnic()} --socket {lab.nic.control} capture vm1 icmp | tcpdump -lnr - -c 4"
    with subprocess.Popen(["bash", "-o", "pipefail", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as pipe:
        wait_until(lambda: len(captures(lab)) == 1, 10, "drnic captures")
        end = threading.Event()
        pinging = threading.Thread(target=lambda: [traffic.ping(first.namespace, second.address, count=2)
                                                   for _ in iter(end.is_set, True)])
        pinging.start()
        try:
            output, errors = pipe.communicate(timeout=30)
        finally:
            end.set()
            pinging.join()
    assert pipe.returncode == 0, errors
    assert len([line for line in output.splitlines() if "ICMP echo" in line]) == 4
    assert "packets captured at vm1" in errors


def test_an_older_soft_nic_is_recognised(tmp_path: Path) -> None:
    old = {"ok": False, "error": 'command: "capture" is not list, stats, add, del, set, fault or faults'}
    other = {"ok": True, "layout": 99, "interfaces": ["vm1"], "vport": 1, "device": "mlx5_0"}
    for answer, reason in ((old, "is older than this drnic"), (other, "of different versions")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            path = tmp_path / f"{reason[:4]}.sock"
            listener.bind(str(path))
            listener.listen()
            with subprocess.Popen([str(build.drnic()), "--socket", str(path), "capture", "vm1", "-w", "/dev/null"],
                                  stderr=subprocess.PIPE, text=True) as process:
                client, _ = listener.accept()
                with client:
                    client.recv(65536)
                    client.sendall(json.dumps(answer).encode() + b"\n")
                    _, errors = process.communicate(timeout=20)
            assert process.returncode == 1 and reason in errors
