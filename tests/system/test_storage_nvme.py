"""NVMe over TCP between two QEMU machines on vhost-user vports, with header and data digests, mirrored to a collector.

Oracles: tshark checks every digest in the collector's files; the streams have no gap, and the disk that is put together
out of them has the checksums that both machines' kernels tell; each frame in the files is one that came in by a vport,
byte for byte, and has whole checksums. What the checks are worth is shown on copies of the files that were harmed.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from pathlib import Path

import pytest
from helpers import assert_alive, figure, is_offloaded
from lab.command import CommandError, run, wait_until
from lab.collector import Collector
from lab.lab import Wire
from lab.machine import Machine
from lab.mirror_lab import MirrorLab
from lab.nic_capture import NicCapture, fields, frames
from lab.nvme import BLOCK, PORT, Captured, Host, Target, Type, Verdict, disk_of, dissect
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

SIZE, DISK = 4 << 20, 8 << 20            # bytes, of the data and of the disk
IN_CAPSULE, WRITTEN_SO = 16 << 10, 1 << 20   # bytes of a write whose data is in its command's capsule, and of all of these
AT_ONCE = 256 << 10                      # bytes of the other writes, whose data the target asks for, and of reads
# All of it fits into the ring: what the disk does meanwhile is another test's business.
RING = {"segment": "262144", "ring": "128"}
GOOD = "1"                               # tshark's word for a checksum
# A driver that has one of these leaves checksums or segments to its NIC, or takes such packets; virtio 1.1, 5.1.3.
UNFINISHED = {0: "CSUM", 1: "GUEST_CSUM", 7: "GUEST_TSO4", 8: "GUEST_TSO6", 9: "GUEST_ECN", 10: "GUEST_UFO",
              11: "HOST_TSO4", 12: "HOST_TSO6", 13: "HOST_ECN", 14: "HOST_UFO"}


class Storage:
    """A host and a target, machines that know each other's MAC, on ports that are mirrored; and what comes in there."""

    def __init__(self, workspace: Workspace) -> None:
        self.folder = workspace.folder
        self.mirrored = MirrorLab(workspace, machines=True)
        self.mirrored.collector.start()
        self.mirrored.add_port(filter="nvme-tcp", **RING)
        self.mirrored.mirror_all()
        self.wires: tuple[Wire, Wire] = (self.mirrored.first, self.mirrored.second)
        self.machines = [Machine(workspace, wire.name, MirrorLab.socket(workspace, wire.name), mac=wire.mac,
                                 address=wire.address) for wire in self.wires]
        for machine in self.machines:
            machine.launch()
        for machine, other in zip(self.machines, reversed(self.wires)):
            machine.wait_ready(300)
            machine.set_neighbour(other.address, other.mac)
        self.mirrored.wait_connected()
        self.captures = [NicCapture(self.mirrored.lab.nic, wire.name, self.folder / f"{wire.name}.pcapng",
                                    "--direction", "in", "--buffer", "32768", f"tcp port {PORT}")
                         for wire in self.wires]

    def frames_that_came_in(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        for capture in self.captures:
            summary = capture.stop()
            assert summary.dropped == 0, summary
            found.update(frames(capture.file))
        return found


@pytest.fixture
def storage(workspace: Workspace) -> Storage:
    return Storage(workspace)


def merged(files: list[Path], whole: Path) -> Path:
    """The files of one session as one capture."""
    run(["mergecap", "-a", "-w", str(whole), *map(str, files)])
    return whole


def wrong_checksums(capture: Path) -> int:
    """Of frames' IPv4 headers and TCP segments; those that tshark has no verdict on are wrong."""
    text = run(["tshark", "-r", str(capture), "-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE",
                "-T", "fields", "-e", "ip.checksum.status", "-e", "tcp.checksum.status"], timeout=300)
    return sum(line.split("\t") != [GOOD, GOOD] for line in text.splitlines())


def assert_all_digests_are_good(capture: Path, captured: Captured) -> Verdict:
    """tshark finds the units that are there, and each of their digests good. Returns how many."""
    said = dissect(capture)
    assert said.units == captured.units
    assert said.bad == Verdict(0, 0), said
    assert said.good == captured.digests
    with_digest = sum(count for kind, count in captured.units.items() if kind > Type.ICRESP)
    assert captured.digests.headers == with_digest, "both ends agreed to have a digest in each header"
    # Host and target are one computer's kernel each, and the wire is between them: nobody ended the connection early.
    assert not {Type.H2C_TERM_REQ, Type.C2H_TERM_REQ} & set(captured.units)
    return said.good


def test_every_digest_is_good_and_the_data_is_in_the_files(storage: Storage) -> None:
    mirrored, (host_machine, target_machine) = storage.mirrored, storage.machines
    for machine in storage.machines:
        agreed = {name for bit, name in UNFINISHED.items() if bit in machine.features()}
        assert not agreed, f"{machine.name} and its vport have agreed upon {agreed}"
    target = Target(target_machine, storage.wires[1].address, DISK)
    host = Host(host_machine)
    host.connect(storage.wires[1].address)
    written = host.make_data(SIZE)
    host.write(0, WRITTEN_SO, IN_CAPSULE)
    host.write(WRITTEN_SO, SIZE - WRITTEN_SO, AT_ONCE)
    offloaded = [is_offloaded(mirrored.lab, wire) for wire in storage.wires]
    assert host.read(SIZE, AT_ONCE) == written
    on_disk = target.checksum()
    host.disconnect()

    mirror = mirrored.wait_delivered(1)
    assert all(offloaded)
    assert mirror["dropped"] == mirror["damaged"] == mirrored.by_device("lost") == 0, mirror
    came_in = storage.frames_that_came_in()
    collector = mirrored.collector
    assert "sound" in collector.verify()
    whole = merged(collector.files(), storage.folder / "whole.pcapng")
    kept = Counter(frames(whole))
    assert kept == came_in, f"{(kept - came_in).total()} frames that never came in, {(came_in - kept).total()} missing"
    assert wrong_checksums(whole) == 0
    assert max(map(len, kept)) <= 1514, "a machine cuts its segments itself"
    captured = disk_of(whole)
    digests = assert_all_digests_are_good(whole, captured)
    assert hashlib.sha256(captured.written_bytes(SIZE)).hexdigest() == written
    assert hashlib.sha256(captured.written_bytes(SIZE) + bytes(DISK - SIZE)).hexdigest() == on_disk
    assert hashlib.sha256(captured.read_bytes(SIZE)).hexdigest() == written
    assert captured.units[Type.H2C_DATA] >= (SIZE - WRITTEN_SO) // AT_ONCE
    assert digests.data >= captured.units[Type.H2C_DATA] + captured.units[Type.C2H_DATA] + WRITTEN_SO // IN_CAPSULE
    figure(f"NVMe/TCP, {SIZE >> 20} MiB written and read: {mirror['frames']} frames, {mirrored.by_device('taken')} by "
           f"the NIC, {captured.units.total()} PDUs, {digests.headers} header digests and {digests.data} data digests, "
           "all good")
    assert_alive(mirrored.lab)
