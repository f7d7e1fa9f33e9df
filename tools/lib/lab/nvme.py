"""NVMe over TCP between two machines, and what a capture of it holds: one kernel's nvmet serves a RAM disk, the other's
nvme-tcp writes and reads it with header and data digests, and the disk's contents are put together again out of the
capture.

captured_disk.py reads the capture and its TCP. The protocol data units (NVMe/TCP transport specification 1.0, section
3) are told apart here, and tshark tells which of their digests are good.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Iterator

from .captured_disk import Disk, connections
from .command import run, wait_until
from .machine import Machine

PORT = 4420
NAME = "nqn.2026-11.org.example:disk"
DEVICE = "/dev/nvme0n1"
BLOCK = 512
PATIENCE = 300                 # seconds: of the host for a command, and of us for the host
HEADER_DIGEST, DATA_DIGEST, SUCCESS = 1, 2, 8   # flags of a unit
COMMON_HEADER, DIGEST = struct.Struct("<BBBBI"), 4
WRITE, READ, FABRICS, CONNECT = 0x01, 0x02, 0x7F, 0x01   # opcodes of an I/O queue; Fabrics, and its command type


class Target:
    """nvmet in a machine, with one RAM disk for anybody."""

    def __init__(self, machine: Machine, address: str, size: int) -> None:
        self.machine = machine
        tree = "/sys/kernel/config/nvmet"
        subsystem, port = f"{tree}/subsystems/{NAME}", f"{tree}/ports/1"
        for command in (
                f"insmod /lib/brd.ko rd_nr=1 rd_size={size >> 10} && load configfs nvmet nvmet-tcp",
                "mount -t configfs none /sys/kernel/config",
                f"mkdir {subsystem} {subsystem}/namespaces/1 {port}",
                f"echo 1 >{subsystem}/attr_allow_any_host",
                f"echo -n /dev/ram0 >{subsystem}/namespaces/1/device_path && echo 1 >{subsystem}/namespaces/1/enable",
                f"cd {port} && echo tcp >addr_trtype && echo ipv4 >addr_adrfam && echo {address} >addr_traddr && "
                f"echo {PORT} >addr_trsvcid && cd /",
                f"ln -s {subsystem} {port}/subsystems/{NAME}"):
            machine.run(command)

    def checksum(self) -> str:
        """SHA-256 of the whole disk."""
        return self.machine.run("sha256sum /dev/ram0", timeout=PATIENCE).split()[0]

    def wait_closed(self) -> None:
        """No connection is left, not even one that waits for the last acknowledgement: no more frames come."""
        # Of each socket its own port, hexadecimal, and its state: 0A is who listens.
        left = f"awk '$2 ~ /:{PORT:04X}$/ && $4 != \"0A\"' /proc/net/tcp"
        wait_until(lambda: not self.machine.run(left).strip(), PATIENCE, "the connections are closed", interval=0.2)


class Host:
    """nvme-tcp in a machine. It keeps what it writes in /tmp/written and what it reads in /tmp/read."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        machine.run("load nvme-fabrics nvme-tcp")
        # An emulated processor may be slow to answer: no command is given up for that.
        machine.run(f"cd /sys/module/nvme_core/parameters && echo {PATIENCE} >io_timeout && "
                    f"echo {PATIENCE} >admin_timeout && cd /")

    def connect(self, address: str) -> None:
        """With both digests, one queue for the administrator's commands and one for the disk's."""
        options = (f"transport=tcp,traddr={address},trsvcid={PORT},nqn={NAME},nr_io_queues=1,keep_alive_tmo=0,"
                   "hdr_digest,data_digest")
        self.machine.run(f"echo {options} >/dev/nvme-fabrics", timeout=PATIENCE)
        wait_until(lambda: "yes" in self.machine.run(f"[ -b {DEVICE} ] && echo yes; true"), PATIENCE,
                   "the disk is there", interval=0.2)
        size = self.machine.run("cat /sys/block/nvme0n1/queue/logical_block_size").strip()
        assert size == str(BLOCK), f"blocks of {size} bytes"

    def disconnect(self) -> None:
        self.machine.run("echo 1 >/sys/class/nvme/nvme0/delete_controller", timeout=PATIENCE)

    def make_data(self, size: int) -> str:
        """Random bytes to write; their SHA-256."""
        self.machine.run(f"head -c {size} /dev/urandom >/tmp/written")
        return self._checksum("/tmp/written")

    def write(self, begin: int, size: int, at_once: int) -> None:
        """Bytes of the data to their place on the disk, so many of them by a command."""
        self._copy(f"if=/tmp/written of={DEVICE} oflag=direct", begin, size, at_once)

    def read(self, begin: int, size: int, at_once: int) -> None:
        self._copy(f"if={DEVICE} iflag=direct of=/tmp/read conv=notrunc", begin, size, at_once)

    def checksum_of_read(self) -> str:
        return self._checksum("/tmp/read")

    def _checksum(self, file: str) -> str:
        return self.machine.run(f"sha256sum {file}", timeout=PATIENCE).split()[0]

    def _copy(self, words: str, begin: int, size: int, at_once: int) -> None:
        assert begin % at_once == size % at_once == 0
        block = begin // at_once
        self.machine.run(f"dd {words} bs={at_once} skip={block} seek={block} count={size // at_once}", timeout=PATIENCE)


class Type(IntEnum):
    """Of a protocol data unit."""

    ICREQ, ICRESP, H2C_TERM_REQ, C2H_TERM_REQ, CAPSULE_CMD, CAPSULE_RESP, H2C_DATA, C2H_DATA = range(8)
    R2T = 9


@dataclass
class Unit:
    """A protocol data unit: its header, and its data without digest."""

    header: bytes
    data: bytes

    @property
    def type(self) -> Type:
        return Type(self.header[0])

    @property
    def flags(self) -> int:
        return self.header[1]

    @property
    def entry(self) -> bytes:
        """Of a capsule: what would stand in a queue."""
        return self.header[COMMON_HEADER.size:]

    @property
    def command(self) -> bytes:
        """The identifier of the command that this is about."""
        begin = {Type.CAPSULE_CMD: 10, Type.CAPSULE_RESP: 20}.get(self.type, 8)
        return self.header[begin:begin + 2]

    @property
    def offset(self) -> int:
        """Of data in the command's."""
        return int.from_bytes(self.header[12:16], "little")


def units(stream: bytes) -> Iterator[Unit]:
    """Of one direction of a connection. Raises ValueError where the stream ends within one."""
    at = 0
    while at < len(stream):
        if len(stream) - at < COMMON_HEADER.size:
            raise ValueError(f"the stream ends within a header at {at}")
        kind, flags, header_size, data_begin, size = COMMON_HEADER.unpack_from(stream, at)
        if not COMMON_HEADER.size <= header_size <= size or at + size > len(stream):
            raise ValueError(f"the stream ends within a unit of type {kind} at {at}, or its sizes are wrong")
        end = at + size - (DIGEST if flags & DATA_DIGEST else 0)
        yield Unit(stream[at:at + header_size], stream[at + data_begin:end] if data_begin else b"")
        at += size


@dataclass
class Verdict:
    """Digests, of headers and of data."""

    headers: int = 0
    data: int = 0


@dataclass
class Captured(Disk):
    """The disk, and how many of the units say that they have a digest."""

    digests: Verdict = field(default_factory=Verdict)

    def count(self, unit: Unit) -> None:
        self.units[unit.type] += 1
        # The first two agree upon digests and have none, whatever their flags.
        if unit.type > Type.ICRESP:
            self.digests.headers += bool(unit.flags & HEADER_DIGEST)
            self.digests.data += bool(unit.flags & DATA_DIGEST)


def add_connection(captured: Captured, to_target: bytes, to_host: bytes) -> None:
    """One queue. An identifier is used again once its command has ended: what the target says of it is about its
    commands in their order. Only the disk's queue has reads and writes: the administrator's has other opcodes."""
    is_disk = False
    begins: dict[bytes, int] = {}                  # the byte of the disk that the last write begins at, by identifier
    commands: dict[bytes, list[int | None]] = {}   # where each read begins, None of others, by identifier
    for unit in units(to_target):
        captured.count(unit)
        if unit.type == Type.CAPSULE_CMD:
            opcode, begin = unit.entry[0], int.from_bytes(unit.entry[40:48], "little") * BLOCK
            if opcode == FABRICS and unit.entry[4] == CONNECT:
                is_disk = unit.entry[42:44] != b"\0\0"
            commands.setdefault(unit.command, []).append(begin if is_disk and opcode == READ else None)
            if is_disk and opcode == WRITE:
                begins[unit.command] = begin
                captured.written[begin] = unit.data
        elif unit.type == Type.H2C_DATA:
            captured.written[begins[unit.command] + unit.offset] = unit.data
    for unit in units(to_host):
        captured.count(unit)
        if unit.type == Type.C2H_DATA and (place := commands[unit.command][0]) is not None:
            captured.read[place + unit.offset] = unit.data
        if unit.type == Type.CAPSULE_RESP or unit.type == Type.C2H_DATA and unit.flags & SUCCESS:
            commands[unit.command].pop(0)


def disk_of(capture: Path) -> Captured:
    """Of all NVMe/TCP connections in the capture. Raises ValueError where something is missing in one of them."""
    captured = Captured()
    for to_target, to_host in connections(capture, PORT):
        add_connection(captured, to_target, to_host)
    return captured


@dataclass
class Dissection:
    """What tshark says of a capture: units by type, and digests that are good and bad."""

    units: Counter[int]
    good: Verdict
    bad: Verdict


def dissect(capture: Path) -> Dissection:
    """tshark's verdicts are 0 where a digest is bad, 1 where it is good."""
    names = ("nvme-tcp.type", "nvme-tcp.hdgst.status", "nvme-tcp.ddgst.status")
    settings = ("nvme-tcp.check_hdgst:TRUE", "nvme-tcp.check_ddgst:TRUE", f"nvme-tcp.subsystem_ports:{PORT}",
                "tcp.reassemble_out_of_order:TRUE")
    text = run(["tshark", "-n", "-r", str(capture), *(word for setting in settings for word in ("-o", setting)),
                "-Y", "nvme-tcp", "-T", "fields", *(word for name in names for word in ("-e", name))], timeout=PATIENCE)
    columns: list[Counter[int]] = [Counter() for _ in names]
    for line in text.splitlines():
        for column, values in zip(columns, line.split("\t")):
            column.update(int(value) for value in values.split(",") if value)
    kinds, headers, data = columns
    for verdicts in (headers, data):
        assert set(verdicts) <= {0, 1}, f"tshark has a verdict that is neither good nor bad: {verdicts}"
    return Dissection(kinds, Verdict(headers[1], data[1]), Verdict(headers[0], data[0]))
