"""NVMe over TCP between two QEMU machines on vhost-user vports, with header and data digests, mirrored to a collector.

Oracles: tshark checks every digest in the collector's files; the streams have no gap, and the disk that is put together
out of them has the checksums that both machines' kernels tell; the frames in the files are those that came in by the
vports, byte for byte, and have whole checksums. What these checks are worth is shown on harmed copies of the files.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers import assert_alive, figure, is_offloaded
from lab.captured_disk import connections
from lab.command import CommandError, run, wait_until
from lab.lab import Wire
from lab.machine import Machine
from lab.mirror_lab import MirrorLab
from lab.nic_capture import NicCapture, fields, frames
from lab.nvme import PATIENCE, PORT, WRITE, Captured, Host, Target, Type, Verdict, disk_of, dissect, units
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

SIZE, DISK = 4 << 20, 8 << 20            # bytes, of the data and of the disk
PART = 512 << 10                         # bytes whose frames, and what answers them, a mirror's queue holds
IN_CAPSULE, WRITTEN_SO = 16 << 10, 1 << 20   # bytes of a write whose data is in its command's capsule, and of all these
AT_ONCE = 256 << 10                      # bytes of a read, and of a write whose data the target asks for
# All of it fits into the ring: what the collector's disk does meanwhile is another test's business.
RING = {"segment": "262144", "ring": "128"}
GOOD = "1"                               # tshark's word for a checksum
ETHERNET = 14                            # bytes of a frame beside the MTU


class Storage:
    """A host and a target, machines that know each other's MAC, on ports that are mirrored; and what comes in there."""

    def __init__(self, workspace: Workspace, mtu: int) -> None:
        self.folder = workspace.folder
        self.mirrored = MirrorLab(workspace, machines=True)
        self.mirrored.collector.start()
        self.mirrored.add_port(filter="nvme-tcp", **RING)
        self.mirrored.mirror_all()
        self.wires: tuple[Wire, Wire] = (self.mirrored.first, self.mirrored.second)
        for wire in self.wires:   # a vport whose MTU changes is opened anew: its machine comes later
            self.mirrored.lab.switch.vsctl("set", "interface", wire.port, f"mtu_request={mtu}")
        machines = [Machine(workspace, wire.name, MirrorLab.socket(workspace, wire.name), mac=wire.mac,
                            address=wire.address) for wire in self.wires]
        for machine in machines:
            machine.launch()
        for machine, other in zip(machines, reversed(self.wires)):
            machine.wait_ready(PATIENCE)
            machine.run(f"ip link set eth0 mtu {mtu}")
            machine.set_neighbour(other.address, other.mac)
        # The kernel asks twice for a connection of NVMe's and gives up.
        wait_until(lambda: machines[0].ping(self.wires[1].address, 1) == 1, PATIENCE, "the machines reach each other")
        self.mirrored.wait_connected()
        self.captures = [NicCapture(self.mirrored.lab.nic, wire.name, self.folder / f"{wire.name}.pcapng",
                                    "--direction", "in", "--buffer", "32768", f"tcp port {PORT}")
                         for wire in self.wires]
        self.host, self.target = Host(machines[0]), Target(machines[1], self.wires[1].address, DISK)

    def transfer(self) -> str:
        """Writes and reads the data; its SHA-256, once all connections are closed."""
        host, target = self.host, self.target
        host.connect(self.wires[1].address)
        checksum = host.make_data(SIZE)
        parts = range(0, SIZE, PART)
        for begin in parts:
            host.write(begin, PART, IN_CAPSULE if begin < WRITTEN_SO else AT_ONCE)
            self.mirrored.wait_taken()
        for begin in parts:
            host.read(begin, PART, AT_ONCE)
            self.mirrored.wait_taken()
        assert all(is_offloaded(self.mirrored.lab, wire) for wire in self.wires)
        assert host.checksum_of_read() == checksum
        host.disconnect()
        target.wait_closed()
        return checksum

    def frames_that_came_in(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        for capture in self.captures:
            summary = capture.stop()
            assert summary.dropped == 0, summary
            found.update(frames(capture.file))
        return found


def merged(files: list[Path], whole: Path) -> Path:
    """The files of one session as one capture."""
    run(["mergecap", "-a", "-w", str(whole), *map(str, files)])
    return whole


def wrong_checksums(capture: Path) -> int:
    """Frames whose IPv4 header or TCP segment has a wrong checksum, or one that tshark has no verdict on."""
    text = run(["tshark", "-n", "-r", str(capture), "-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE",
                "-T", "fields", "-e", "ip.checksum.status", "-e", "tcp.checksum.status"], timeout=300)
    return sum(line.split("\t") != [GOOD, GOOD] for line in text.splitlines())


def assert_all_digests_are_good(capture: Path, captured: Captured) -> Verdict:
    """tshark finds the units that are there, and each of their digests good. Returns how many."""
    said = dissect(capture)
    assert said.bad == Verdict(0, 0), said
    assert said.units == captured.units and said.good == captured.digests
    assert not {Type.H2C_TERM_REQ, Type.C2H_TERM_REQ} & set(captured.units), "nobody found fault with a unit"
    assert captured.digests.headers == sum(count for kind, count in captured.units.items() if kind > Type.ICRESP)
    by_themselves = captured.units[Type.H2C_DATA] + captured.units[Type.C2H_DATA]
    assert captured.units[Type.H2C_DATA] >= (SIZE - WRITTEN_SO) // AT_ONCE
    assert captured.digests.data >= by_themselves + WRITTEN_SO // IN_CAPSULE
    return said.good


def with_a_bit_flipped(files: list[Path], where: bytes, folder: Path) -> list[Path]:
    """Copies of the files in which the first byte of the first `where` is another one."""
    folder.mkdir()
    copies, flipped = [], 0
    for file in files:
        content = bytearray(file.read_bytes())
        if not flipped and (at := content.find(where)) >= 0:
            content[at] ^= 1
            flipped += 1
        copies.append(folder / file.name)
        copies[-1].write_bytes(content)
    assert flipped == 1
    return copies


@dataclass
class Kept:
    """What the collector has of a transfer."""

    mirror: dict                # what dr/mirror says
    whole: Path                 # all files in one
    captured: Captured
    digests: Verdict
    largest: int                # bytes of a frame


def transferred(storage: Storage) -> Kept:
    """Writes and reads, and holds what was collected against all that knows of it."""
    mirrored, collector = storage.mirrored, storage.mirrored.collector
    checksum = storage.transfer()
    came_in = storage.frames_that_came_in()
    mirror = mirrored.wait_delivered(came_in.total())
    assert mirror["dropped"] == mirror["damaged"] == mirrored.by_device("lost") == 0, mirror
    assert "sound" in collector.verify()

    whole = merged(collector.files(), storage.folder / "whole.pcapng")
    kept = Counter(frames(whole))
    foreign, missing = (kept - came_in).total(), (came_in - kept).total()
    assert (foreign, missing) == (0, 0), "frames that never came in, and frames that are missing"
    assert wrong_checksums(whole) == 0

    captured = disk_of(whole)
    digests = assert_all_digests_are_good(whole, captured)
    data = captured.written_bytes(SIZE)
    assert hashlib.sha256(data).hexdigest() == checksum
    assert hashlib.sha256(data + bytes(DISK - SIZE)).hexdigest() == storage.target.checksum()
    assert captured.read_bytes(SIZE) == data
    assert_alive(mirrored.lab)
    return Kept(mirror, whole, captured, digests, max(map(len, kept)))


def test_every_digest_is_good_and_the_data_is_in_the_files(workspace: Workspace) -> None:
    storage = Storage(workspace, 1500)
    kept = transferred(storage)
    assert kept.largest == ETHERNET + 1500, "a machine cuts its segments itself"
    figure(f"NVMe/TCP, {SIZE >> 20} MiB written and read: {kept.mirror['frames']} frames, "
           f"{storage.mirrored.by_device('taken')} by the NIC, {kept.captured.units.total()} PDUs, "
           f"{kept.digests.headers} header digests and {kept.digests.data} data digests, all good")


def test_large_frames_and_what_harm_the_checks_see(workspace: Workspace) -> None:
    """In copies of the files: a bit of data, a bit of a header, a frame that is missing."""
    storage = Storage(workspace, 9000)
    kept = transferred(storage)
    assert kept.largest == ETHERNET + 9000
    collector, folder, data = storage.mirrored.collector, storage.folder, kept.captured.written_bytes(SIZE)
    # Within a frame that is full of what was written.
    full = fields(kept.whole, "tcp.payload", select=f"tcp.dstport == {PORT} && tcp.len > 8000")
    inside = bytes.fromhex(full[len(full) // 2][0])[4000:4064]
    # A write's metadata pointer, which nobody looks at, begins at byte 24. A command without data has its own frame.
    header = next(unit.header for to_target, _ in connections(kept.whole, PORT) for unit in units(to_target)
                  if unit.type == Type.CAPSULE_CMD and unit.entry[0] == WRITE and not unit.data)
    for name, where, bad in (("data", inside, Verdict(headers=0, data=1)),
                             ("header", header[24:], Verdict(headers=1, data=0))):
        files = with_a_bit_flipped(collector.files(), where, folder / name)
        harmed = merged(files, folder / f"{name}.pcapng")
        said = dissect(harmed)
        assert said.bad == bad and said.units == kept.captured.units, said
        assert wrong_checksums(harmed) == 1
        assert (disk_of(harmed).written_bytes(SIZE) != data) == (name == "data")
        with pytest.raises(CommandError, match="segment"):
            run([collector.program(), "verify", *map(str, files)])
    numbers = [number for number, in fields(kept.whole, "frame.number", select="tcp.len > 1000")]
    run(["editcap", str(kept.whole), str(folder / "gap.pcapng"), numbers[len(numbers) // 2]])
    with pytest.raises(ValueError, match="missing"):
        disk_of(folder / "gap.pcapng")
    figure(f"NVMe/TCP in frames of {kept.largest} bytes: {kept.mirror['frames']}, {kept.captured.units.total()} PDUs, "
           f"{kept.digests.headers} header digests and {kept.digests.data} data digests, all good; one flipped bit is "
           "one bad digest")
