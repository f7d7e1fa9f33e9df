"""iSCSI between two namespaces, and what a capture of it holds: tgtd serves a disk out of a file, qemu-io (libiscsi)
writes and reads it, and the disk's contents are put together again out of the capture.

captured_disk.py reads the capture and its TCP; the protocol data units (RFC 7143) are told apart here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

from .captured_disk import Disk, connections
from .command import Background, run, wait_until
from .namespace import Namespace

PORT = 3260
NAME = "iqn.2026-11.org.example:disk"
BLOCK = 512
HEADER = 48                    # bytes of a basic header segment
COMMAND, DATA_OUT, RESPONSE, DATA_IN = 0x01, 0x05, 0x21, 0x25
# Opcodes of SBC-3: bytes of the logical block address, which begins at byte 2 of the CDB.
READS, WRITES = {0x28: 4, 0x88: 8}, {0x2a: 4, 0x8a: 8}


class Target:
    """tgtd with one disk, for anybody in its namespace's network. stop() ends it."""

    def __init__(self, namespace: Namespace, address: str, folder: Path, size: int) -> None:
        self.namespace, self.address, self.file = namespace, address, folder / "disk"
        self.control = str(os.getpid() % 30000 + 1000)
        with open(self.file, "wb") as file:
            file.truncate(size)
        self.daemon: Background = namespace.start(
            ["tgtd", "-f", "-C", self.control, "--iscsi", f"portal={address}:{PORT}"], folder / "tgtd.out")
        try:
            wait_until(lambda: f":{PORT}" in namespace.run(["ss", "-Hltn"]), 20, "tgtd listens")
            self._admin("--mode", "target", "--op", "new", "--tid", "1", "-T", NAME)
            self._admin("--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", str(self.file))
            self._admin("--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL")
        except BaseException:
            self.stop()
            raise

    def _admin(self, *words: str) -> None:
        run(["tgtadm", "-C", self.control, "--lld", "iscsi", *words])

    @property
    def url(self) -> str:
        return f"iscsi://{self.address}/{NAME}/1"

    def stop(self) -> None:
        self.daemon.stop()
        for left in Path("/var/run/tgtd").glob(f"socket.{self.control}*"):
            left.unlink(missing_ok=True)


PIECE = 1 << 20   # bytes of a request


def write_and_read(namespace: Namespace, target: Target, folder: Path, data: bytes, rate: int, begin: int = 0) -> None:
    """Data to the target's disk and back by one connection, from `begin` on: `rate` bytes a second at most. In pieces,
    since qemu-io lets a request through at once, however large it is."""
    commands, files = [], []
    for at in range(0, len(data), PIECE):
        files.append(folder / f"piece-{at}")
        files[-1].write_bytes(data[at:at + PIECE])
        commands.append(f"write -s {files[-1]} {begin + at} {files[-1].stat().st_size}")
    commands += [f"read {begin + at} {min(PIECE, len(data) - at)}" for at in range(0, len(data), PIECE)]
    portal, name, lun = target.url.removeprefix("iscsi://").rsplit("/", 2)
    disk = ("driver=throttle,throttle-group=load,file.driver=raw,file.file.driver=iscsi,file.file.transport=tcp,"
            f"file.file.portal={portal},file.file.target={name},file.file.lun={lun}")
    words = [word for command in commands for word in ("-c", command)]
    namespace.run(["qemu-io", "--object", f"throttle-group,id=load,x-bps-total={rate}", "--image-opts", "-t", "none",
                   disk, *words], timeout=300)
    for file in files:
        file.unlink()


@dataclass
class Unit:
    """A protocol data unit: header and data segment."""

    header: bytes
    data: bytes

    @property
    def opcode(self) -> int:
        return self.header[0] & 0x3F

    @property
    def task(self) -> bytes:
        return self.header[16:20]

    @property
    def offset(self) -> int:
        return int.from_bytes(self.header[40:44], "big")


def units(stream: bytes) -> Iterator[Unit]:
    """Of one direction of a connection without digests. Raises ValueError where the stream ends within one."""
    at = 0
    while at < len(stream):
        header = stream[at:at + HEADER]
        if len(header) < HEADER:
            raise ValueError(f"the stream ends within a header at {at}")
        additional, size = header[4] * 4, int.from_bytes(header[5:8], "big")
        begin = at + HEADER + additional
        if begin + size > len(stream):
            raise ValueError(f"the stream ends within the data of opcode {header[0] & 0x3f:#x} at {at}")
        yield Unit(header, stream[begin:begin + size])
        at = begin + (size + 3 & ~3)


def place_of(cdb: bytes, opcodes: dict[int, int]) -> int | None:
    """The byte of the disk that a command begins at; None: it is no such command."""
    size = opcodes.get(cdb[0])
    return None if size is None else int.from_bytes(cdb[2:2 + size], "big") * BLOCK


def add_connection(disk: Disk, to_target: bytes, to_initiator: bytes) -> None:
    """A task tag is used again once its command has ended: what the target says of a tag is about its commands in their
    order."""
    writes: dict[bytes, int] = {}                # the place of the last write, by tag
    commands: dict[bytes, list[int | None]] = {}   # the place of each read, None of others, by tag
    for unit in units(to_target):
        disk.units[unit.opcode] += 1
        if unit.opcode == COMMAND:
            cdb = unit.header[32:48]
            commands.setdefault(unit.task, []).append(place_of(cdb, READS))
            if (place := place_of(cdb, WRITES)) is not None:
                writes[unit.task] = place
                disk.written[place] = unit.data
        elif unit.opcode == DATA_OUT:
            disk.written[writes[unit.task] + unit.offset] = unit.data
    for unit in units(to_initiator):
        disk.units[unit.opcode] += 1
        if unit.opcode == DATA_IN and (place := commands[unit.task][0]) is not None:
            disk.read[place + unit.offset] = unit.data
        if unit.opcode == RESPONSE or unit.opcode == DATA_IN and unit.header[1] & 1:   # with status
            commands[unit.task].pop(0)


def disk_of(capture: Path) -> Disk:
    """Of all iSCSI connections in the capture. Raises ValueError where something is missing in one of them."""
    disk = Disk()
    for to_target, to_initiator in connections(capture, PORT):
        add_connection(disk, to_target, to_initiator)
    return disk
