"""DPDK's own mlx5 driver, as Debian has it, on the soft NIC: an application that makes its queues by DEVX commands and
drives their rings itself. dpdk-testpmd is the application; the oracle is what it says of the packets that it got.

The driver looks for its device in sysfs: with_subfunction shows it one. Its netdev, which it takes address and MTU
from, is a veth that carries nothing. The soft NIC's uplink is another veth, on whose other end the frames are sent.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import struct
import time
from pathlib import Path

import pytest
from helpers import figure
from lab import build
from lab.command import Background, wait_until
from lab.namespace import Namespace, make_veth
from lab.workspace import Workspace

DRIVER = next(Path("/usr/lib").glob("*/dpdk/pmds-*/librte_net_mlx5.so*"), None)
NEEDED = (("dpdk-testpmd", shutil.which("dpdk-testpmd")), ("librte-net-mlx5", DRIVER))
MISSING = [name for name, there in NEEDED if not there]
pytestmark = [pytest.mark.dr_only, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {' '.join(MISSING)}")]

ADDRESS, SOURCE = "02:00:00:00:00:97", "02:00:00:00:00:99"
STARTED = "packet forwarding packets/burst"


class Application:
    def __init__(self, workspace: Workspace) -> None:
        self.namespace: Namespace = workspace.namespace("host")
        self.peer: Namespace = workspace.namespace("peer")
        make_veth(self.namespace, "pf0", self.peer, "idle", mac=ADDRESS)
        make_veth(self.namespace, "uplink", self.peer, "wire", mac="02:00:00:00:00:98")
        self.config = workspace.folder / "testpmd-nic.json"
        self.config.write_text(json.dumps({"workers": 1, "memory_mb": 256, "control_socket": "", "devices": [
            {"name": "mlx5_0", "profile": "connectx-6dx",
             "ports": [{"vport": 65535, "dpdk": "net_af_packet,iface=uplink", "mtu": 1500}]}]}))
        self.commands = workspace.folder / "testpmd.commands"
        self.log = workspace.folder / "testpmd.log"

    def start(self, mode: str, *arguments: str, verbose: bool = False) -> Background:
        self.commands.write_text("set verbose 1\n" if verbose else "")
        library = build.build_folder() / "datapath" / "verbs" / "lib"
        argv = [str(Path(__file__).parent / "with_subfunction"), "mlx5_0", "pf0", "dpdk-testpmd", "-l", "0,1",
                "--no-huge", "-m", "512", "--no-shconf", "--no-telemetry", "--no-pci", "-a", "auxiliary:mlx5_core.sf.1",
                "--", "--total-num-mbufs=4096", "--stats-period=1", f"--cmdline-file={self.commands}",
                f"--forward-mode={mode}", *arguments]
        running = self.namespace.start(argv, self.log, env={"OVSDR_SOFTNIC": str(self.config),
                                                            "LD_LIBRARY_PATH": str(library)})
        wait_until(lambda: STARTED in running.output() or not running.running(), 30, "testpmd starts")
        assert running.running(), running.output()
        return running

    def send(self, frames: list[bytes]) -> None:
        """From the wire."""
        with self.peer.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("wire", 0))
            for frame in frames:
                wire.send(frame)
                time.sleep(0.002)  # fewer than the receive queue's buffers at a time


def frame(number: int) -> bytes:
    def raw(address: str) -> bytes:
        return bytes.fromhex(address.replace(":", ""))
    payload = bytes([number % 256]) * (20 + number)
    udp = struct.pack("!4H", 1000 + number, 2000, 8 + len(payload), 0) + payload
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), number, 0, 64, 17, 0, bytes([10, 0, 0, 1]),
                     bytes([10, 0, 0, 2]))
    return raw(ADDRESS) + raw(SOURCE) + b"\x08\x00" + ip + udp


def counted(said: str, what: str) -> int:
    """What a port's last statistics say."""
    found = re.findall(rf"{what}: +(\d+)", said)
    return int(found[-1]) if found else 0


def test_frames_from_the_wire_come_to_dpdks_mlx5_driver(workspace: Workspace) -> None:
    testpmd = Application(workspace)
    running = testpmd.start("rxonly", "--rxq=2", "--txq=2", "--rss-udp", verbose=True)
    sent = [frame(number) for number in range(200)]
    try:
        testpmd.send(sent)
        wait_until(lambda: counted(running.output(), "RX-packets") >= len(sent), 10, "testpmd has counted the frames")
    finally:
        running.stop()
    lines = [line for line in running.output().splitlines() if f"src={SOURCE.upper()}" in line]
    lengths = [int(re.search(r"length=(\d+)", line)[1]) for line in lines]  # type: ignore[index]
    assert sorted(lengths) == [len(each) for each in sent]
    for line in lines:
        assert f"dst={ADDRESS.upper()}" in line and "type=0x0800" in line, line
        assert "L3_IPV4" in line and "L4_UDP" in line and "RSS hash" in line, line
    hashes = {re.search(r"RSS hash=(0x[0-9a-f]+)", line)[1] for line in lines}  # type: ignore[index]
    assert len(hashes) == len(sent), "ports are hashed"
    assert {re.search(r"Receive queue=(0x\d)", line)[1] for line in lines} == {"0x0", "0x1"}  # type: ignore[index]


def test_dpdks_mlx5_driver_sends_what_it_receives(workspace: Workspace) -> None:
    """No rule of the eSwitch takes what the driver sends anywhere: it misses, and comes to the manager's function
    again.

    Long enough that the driver's 16-bit counters wrap, that of send completions too (one for 32 frames).
    """
    testpmd = Application(workspace)
    running = testpmd.start("io")
    sent = [frame(number) for number in range(32)]
    try:
        testpmd.send(sent)
        wait_until(lambda: counted(running.output(), "RX-packets") > 2_500_000, 60, "the frames go round")
    finally:
        running.stop()
    said = running.output()
    received, went = counted(said, "RX-total"), counted(said, "TX-total")
    assert went == received and counted(said, "TX-dropped") == 0, said[-2000:]
    packets, octets = map(int, re.findall(r"RX-packets: (\d+) +RX-missed: 0 +RX-bytes: +(\d+)", said)[-1])
    size = octets / packets
    assert abs(size - sum(map(len, sent)) / len(sent)) < 8, "what goes round is what was sent"
    rates = [int(rate) for rate in re.findall(r"Rx-pps: +(\d+)", said)]
    figure(f"testpmd in io mode: {max(rates)} packets/s go round")
