"""Real storage through the switch, mirrored: tgtd behind one port, qemu-io (libiscsi) behind another, the collector
behind the uplink. Of what was written and read nothing is missing in the collector's files.

64 MiB, in CI; `tools/test --all`: a gigabyte, by several connections.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers import figure
from lab.iscsi import Target, disk_of, write_and_read
from lab.command import run
from lab.workspace import Workspace
from lab.mirror_lab import MirrorLab

pytestmark = pytest.mark.dr_only

MIB = 1024 if os.environ.get("OVSDR_ALL") else 64
SIZE, PART = MIB << 20, 128 << 20   # bytes, of all and at most of one connection
# Frames wait in the ring while the disk syncs: what a gigabit a second brings in two seconds.
RING = {"segment": "262144", "ring": "1024"}
# A load, and not all that the path carries: a mirror loses copies when its thread gets no core for longer than its
# queue lasts, which is half a second then. tests/bench/storage is about full speed.
RATE = 16 << 20   # bytes a second


def merged(files: list[Path], folder: Path) -> Path:
    """The files of one session as one capture."""
    whole = folder / "whole.pcapng"
    run(["mergecap", "-a", "-w", str(whole), *map(str, files)], timeout=300)
    return whole


def test_what_is_written_and_read_is_in_the_files(workspace: Workspace) -> None:
    mirrored = MirrorLab(workspace)
    mirrored.collector.arguments = (*mirrored.collector.arguments, "--largest-ring", "512")
    mirrored.collector.start()
    initiator, target_guest = mirrored.first, mirrored.second
    mirrored.add_port(filter="iscsi", **RING)
    mirrored.mirror_all()
    mirrored.wait_connected()
    target = Target(target_guest.namespace, target_guest.address, workspace.folder, SIZE)
    workspace.defer(target.stop)
    data = os.urandom(SIZE)
    for begin in range(0, SIZE, PART):
        write_and_read(initiator.namespace, target, workspace.folder, data[begin:begin + PART], RATE, begin)
    mirror = mirrored.wait_delivered(1)
    assert mirror["dropped"] == mirror["damaged"] == 0, mirror
    assert mirrored.by_device("lost") == 0, mirror
    assert "sound" in mirrored.collector.verify()
    disk = disk_of(merged(mirrored.collector.files(), workspace.folder))
    assert target.file.read_bytes() == data
    assert disk.written_bytes(SIZE) == data
    assert disk.read_bytes(SIZE) == data
    figure(f"iSCSI, {MIB} MiB written and read at {RATE >> 20} MiB a second: {mirror['frames']} frames, "
           f"{mirrored.by_device('taken')} by the NIC, {sum(disk.units.values())} PDUs, all in the files")
