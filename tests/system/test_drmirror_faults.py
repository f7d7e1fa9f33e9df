"""What fails around an interface of type=drmirror in the daemon: its collector dies and another one stands by; the
daemon dies; the clock jumps. What was acknowledged is in the files, and no forwarded frame is touched.

Oracles: the numbers of the frames as tshark reads them out of the files, `drcollect verify`, captures behind the ports
that forward.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from copies import numbers
from helpers import assert_alive, figure, stream, wait_offloaded
from lab.command import run, wait_until
from lab.mirror_lab import MirrorLab, kept_in, numbers_of
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

LENGTH, RATE, SIZE = 1000, 800, 200     # of a stream
CLOCK = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"


@pytest.fixture
def mirrored(workspace: Workspace) -> MirrorLab:
    made = MirrorLab(workspace)
    made.collector.start()
    return made


def in_use(mirrored: MirrorLab) -> str:
    return mirrored.lab.switch.interface("stor0", "status")["collector"]


def test_a_standby_takes_over_when_the_collector_is_killed(mirrored: MirrorLab) -> None:
    """kill -9 in the middle of a stream. The session goes on in the other's file, at the first segment that the ring
    still has; and back again when that one is killed."""
    first, standby = mirrored.collector, mirrored.another_collector().start()
    mirrored.add_port(standby=f"192.0.2.200:1,{standby.address}", ring="256")
    mirrored.mirror_all()
    mirrored.wait_connected()
    assert in_use(mirrored) == first.address
    session = mirrored.said()["session"]
    length = 12 * LENGTH
    with mirrored.second.capture() as forwarded, \
            stream(mirrored.first, mirrored.second, rate=RATE, size=SIZE, limit=length) as sender:
        wait_until(lambda: len(first.sessions()) == 1 and first.sessions()[0]["frames"] > LENGTH, 20, "frames arrive")
        first.kill()
        killed = time.monotonic()
        wait_until(lambda: in_use(mirrored) == standby.address and mirrored.said()["connected"], 40,
                   "the status names the standby")
        took = time.monotonic() - killed
        assert sender.join() == length
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(length))
    wait_until(lambda: mirrored.said()["acknowledged"] == mirrored.said()["sealed"], 30, "all is acknowledged")
    said = mirrored.said()
    assert said["session"] == session and said["dropped"] == said["damaged"] == 0, said
    in_standby = kept_in(standby.files())
    before, after = mirrored.numbers_of("vm1"), numbers_of("vm1", in_standby)
    assert before == list(range(len(before))) and before, "what the first has is whole"
    # What it had written, but not acknowledged, is in both.
    assert after == list(range(after[0], length)) and 0 < after[0] <= len(before), (after[0], len(before))
    other, = standby.sessions()
    assert other["session"] == session and other["frames"] == len(in_standby)
    assert "sound" in first.verify() and "sound" in standby.verify()
    together = standby.node.namespace.run([standby.program(), "verify", *map(str, first.files() + standby.files())],
                                          check=False)
    assert "are missing" not in together, together
    first.start()
    standby.kill()
    wait_until(lambda: in_use(mirrored) == first.address and mirrored.said()["connected"], 40, "back again")
    figure(f"standby: {len(before)} frames in the first one's file, {len(after)} in the standby's, {length} sent; it "
           f"took over after {took:.1f} s")
    assert_alive(mirrored.lab)


def test_a_daemon_that_is_killed(mirrored: MirrorLab) -> None:
    """kill -9 while segments are written. The file opens and has the beginning of the stream without a gap; the daemon
    that follows begins a session of its own, in a file of its own, and the old file stays as it is."""
    switch = mirrored.lab.switch
    mirrored.add_port()
    mirrored.mirror_all()
    mirrored.wait_connected()
    session = mirrored.said()["session"]
    with stream(mirrored.first, mirrored.second, rate=4000, size=SIZE, limit=100 * LENGTH):
        wait_until(lambda: mirrored.collector.sessions()[0]["frames"] > 4 * LENGTH, 30, "frames arrive")
        acknowledged = mirrored.said()["acknowledged"]
        switch.kill_daemon()
    wait_until(lambda: not mirrored.collector.sessions()[0]["connected"], 30, "the collector notices")
    counted, = mirrored.collector.sessions()
    assert counted["session"] == session and not counted["finished"]
    assert counted["segments"] >= acknowledged, "what was acknowledged is there"
    cut, = mirrored.collector.files()
    assert len(mirrored.kept()) == counted["frames"]
    kept = mirrored.numbers_of("vm1")
    assert kept == list(range(len(kept))) and len(kept) > 4 * LENGTH, "each once, without a gap"
    assert "sound" in mirrored.collector.verify()
    contents = cut.read_bytes()

    switch.start_daemon()
    mirrored.forward()
    mirrored.wait_connected()
    assert mirrored.said()["session"] != session
    with mirrored.second.capture() as forwarded, \
            stream(mirrored.first, mirrored.second, rate=RATE, size=SIZE, limit=LENGTH) as sender:
        wait_offloaded(mirrored.lab, mirrored.first)
        assert sender.join() == LENGTH
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(LENGTH))
    wait_until(lambda: mirrored.said()["acknowledged"] == mirrored.said()["sealed"] > 0, 30, "all is acknowledged")
    assert cut.read_bytes() == contents
    other, = set(mirrored.collector.files()) - {cut}
    again = numbers_of("vm1", kept_in([other]))
    assert again == list(range(LENGTH)) and mirrored.said()["dropped"] == 0
    assert "sound" in mirrored.collector.verify()
    figure(f"kill -9 of the daemon: {counted['segments']} segments in the file, {acknowledged} acknowledged at the "
           f"last look, {len(kept)} frames of the stream without a gap; the next session has {len(again)}")


def test_a_signal_in_the_daemons_last_seconds(mirrored: MirrorLab) -> None:
    """Init scripts send SIGTERM two seconds behind the command "exit". The mirror still waits for a collector that is
    away, and nothing has been cleared away yet: the daemon ends as if there had been no signal."""
    switch = mirrored.lab.switch
    mirrored.add_port()
    mirrored.mirror_all()
    mirrored.wait_connected()
    mirrored.collector.kill()
    with stream(mirrored.first, mirrored.second, rate=RATE, size=SIZE, limit=LENGTH) as sender:
        assert sender.join() == LENGTH
    assert switch.daemon is not None
    begin = time.monotonic()
    switch.appctl("exit", "--cleanup", timeout=15)
    time.sleep(1)
    assert switch.daemon.running(), "the mirror waits"
    switch.daemon.signal(signal.SIGTERM)
    assert switch.daemon.wait(15) == 0
    figure(f"it ended {time.monotonic() - begin:.1f} s behind the command")
    assert not mirrored.lab.nic.control.exists()
    switch.start_daemon()


class Clock:
    """The realtime clock of a program, off by so many seconds; the monotonic one stays."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.set(0)

    def set(self, seconds: int) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.rename(self.file)

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": CLOCK, "FAKETIME_TIMESTAMP_FILE": str(self.file), "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def test_a_clock_that_jumps(workspace: Workspace) -> None:
    """The daemon's, by an hour in both directions, while a stream is mirrored: no frame is held up, lost or there
    twice, and the connection stays. Times in the file are those of the clock."""
    if not Path(CLOCK).exists():
        pytest.skip("Debian's package libfaketime is missing")
    clock = Clock(workspace.folder / "clock")
    mirrored = MirrorLab(workspace, daemon_environment=clock.environment())
    mirrored.collector.start()
    # None becomes full while it is waited for: each is sealed for its age.
    mirrored.add_port(segment="4194304", ring="8")
    mirrored.mirror_all()
    mirrored.wait_connected()
    late = 0.0
    length = 12 * LENGTH
    with mirrored.second.capture() as forwarded, \
            stream(mirrored.first, mirrored.second, rate=RATE, size=SIZE, limit=length) as sender:
        wait_offloaded(mirrored.lab, mirrored.first)
        for seconds in (0, 3600, -3600, 0):
            clock.set(seconds)
            time.sleep(2.5)   # it is read once a second
            taken = mirrored.said()["frames"]
            began = time.monotonic()
            wait_until(lambda: mirrored.collector.sessions()[0]["frames"] >= taken, 10, "frames arrive at once")
            late = max(late, time.monotonic() - began)
        assert sender.join() == length
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(length))
    said = mirrored.wait_delivered(length)
    assert mirrored.numbers_of("vm1") == list(range(length))
    assert said["dropped"] == said["damaged"] == 0 and said["connections"] == 1, said
    assert "sound" in mirrored.collector.verify()
    file, = mirrored.collector.files()
    times = [float(line) for line in run(["tshark", "-r", str(file), "-Y", "udp.dstport == 7001", "-T", "fields", "-e",
                                          "frame.time_epoch"], timeout=120).split()]
    jumps = [round((after - before) / 3600) for before, after in zip(times, times[1:]) if abs(after - before) > 1800]
    assert jumps == [1, -2, 1], jumps
    assert_alive(mirrored.lab)
    figure(f"a clock that jumps by {jumps} hours: {length} frames, each once; the latest was there after {late:.2f} s")
