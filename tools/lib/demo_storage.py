"""The demo of mirrored storage: a guest writes to another's iSCSI disk and reads it back, a mirror's copies go to a
collector through signature MKEYs, and the collector's files are shown to hold it all, and to tell when they do not."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from lab.command import CommandError, run
from lab.iscsi import Target, disk_of, write_and_read
from lab.lab import Lab
from lab.mirror_lab import MirrorLab
from lab.pki import Pki
from lab.workspace import Workspace

SIZE = 32 << 20   # bytes written and read
RATE = 16 << 20   # of these a second, so that no copy is lost on a machine that does other things too
SECRET = b"a sentence that the guest wrote to its disk"


@dataclass
class StorageReport:
    """What was mirrored, how it was protected, and what is in the files."""

    handshake: str = ""
    signature: str = ""
    frames: int = 0
    by_nic: int = 0
    dropped: int = 0
    segments: int = 0
    files: list[str] = field(default_factory=list)
    verified: str = ""
    units: int = 0
    written_is_in_the_files: bool = False
    read_is_in_the_files: bool = False
    fault: str = ""
    problems: list[str] = field(default_factory=list)


def progress(text: str) -> None:
    print(f"demo: {text}", flush=True)


def mirror_storage(mirrored: MirrorLab, workspace: Workspace, report: StorageReport) -> None:
    initiator, disk = mirrored.first, mirrored.second
    progress(f"tgtd serves {SIZE >> 20} MiB in {disk.name}; qemu-io writes and reads them from {initiator.name}")
    target = Target(disk.namespace, disk.address, workspace.folder, SIZE)
    workspace.defer(target.stop)
    data = os.urandom(SIZE // 2) + SECRET + os.urandom(SIZE - SIZE // 2 - len(SECRET))
    write_and_read(initiator.namespace, target, workspace.folder, data, RATE)
    said = mirrored.wait_delivered(1)
    report.handshake = said["handshake"]
    report.signature = mirrored.collector.sessions()[0]["signature"]
    report.frames, report.dropped, report.segments = said["frames"], said["dropped"], said["acknowledged"]
    report.by_nic = mirrored.by_device("taken")
    report.files = [str(file) for file in mirrored.collector.files()]
    if report.dropped:
        report.problems.append(f"{report.dropped} frames found no room in the ring")
    progress("drcollect verify: each block again, out of the file")
    report.verified = mirrored.collector.verify().strip()
    progress("tshark puts the connection together, and the disk is built from it")
    found = disk_of(Path(report.files[0]))
    report.units = sum(found.units.values())
    report.written_is_in_the_files = found.written_bytes(SIZE) == data
    report.read_is_in_the_files = found.read_bytes(SIZE) == data


def damage(mirrored: MirrorLab, workspace: Workspace, report: StorageReport) -> None:
    """One bit of the sentence, in a copy of the file."""
    file = workspace.folder / "damaged.pcapng"
    shutil.copy(mirrored.collector.files()[0], file)
    contents = bytearray(file.read_bytes())
    at = contents.find(SECRET)
    if at < 0:
        report.problems.append("the sentence is in no single frame: no fault was injected")
        return
    contents[at] ^= 1
    file.write_bytes(contents)
    progress(f"one bit at byte {at} of a copy of the file is turned over; drcollect verify:")
    try:
        report.fault = run([mirrored.collector.program(), "verify", str(file)])
        report.problems.append("drcollect verify found nothing wrong with a damaged file")
    except CommandError as error:
        report.fault = error.output.strip()


def print_storage(report: StorageReport) -> None:
    print(f"""
Mirrored    {report.frames} frames, {report.by_nic} of them by the NIC, the others by software; {report.dropped} dropped
Protected   {report.segments} segments, {report.signature}: signed by the switch's NIC, checked by the collector's
Handshake   {report.handshake}, both ends with certificates of ovs-pki
Collected   {', '.join(Path(file).name for file in report.files)}
Verified    {report.verified.splitlines()[-1] if report.verified else 'nothing'}
Rebuilt     {report.units} iSCSI PDUs; written data is in the file: {report.written_is_in_the_files}, read data: {
        report.read_is_in_the_files}
Damaged     {report.fault or 'not tried'}""")
    for problem in report.problems:
        print(f"PROBLEM     {problem}")


def storage_job(workspace: Workspace) -> tuple[Lab, StorageReport]:
    report = StorageReport()
    progress("ovs-pki makes two CAs, and a private key and a certificate for the switch and for the collector")
    pki = Pki(workspace.folder / "pki")
    progress("two guests, and a collector behind the uplink: namespaces, soft NICs, switch")
    mirrored = MirrorLab(workspace, uplink_in_bridge=True, pki=pki)
    mirrored.collector.arguments = (*mirrored.collector.arguments, "--largest-ring", "512")
    mirrored.collector.start()
    progress("ovs-vsctl set-ssl PRIVATE-KEY CERTIFICATE CA-CERT")
    mirrored.set_ssl()
    progress("ovs-vsctl add-port br0 stor0 -- set interface stor0 type=drmirror options:filter=iscsi ..., and a Mirror")
    mirrored.add_port(filter="iscsi", signature="t10dif-crc", segment="262144", ring="1024")
    mirrored.mirror_all()
    mirrored.wait_connected()
    mirror_storage(mirrored, workspace, report)
    if not (report.written_is_in_the_files and report.read_is_in_the_files):
        report.problems.append("the file does not hold what was written and read")
    damage(mirrored, workspace, report)
    return mirrored.lab, report
