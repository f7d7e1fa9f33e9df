"""Traffic between guests: ping, iperf3, and frames of our own making."""

from __future__ import annotations

import json
import re
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Sequence

from .command import CommandError, wait_until
from .namespace import Namespace


@dataclass(frozen=True)
class Ping:
    sent: int
    received: int
    times_ms: tuple[float, ...]


def ping(namespace: Namespace, target: str, *, count: int = 3, interval: float = 0.2, wait: float = 1) -> Ping:
    text = namespace.run(["ping", "-n", "-c", str(count), "-i", str(interval), "-W", str(wait), target], check=False,
                         timeout=count * (interval + wait) + 20)
    summary = re.search(r"(\d+) packets transmitted, (\d+) received", text)
    if not summary:
        raise CommandError(["ping", target], -1, text)
    return Ping(int(summary.group(1)), int(summary.group(2)),
                tuple(map(float, re.findall(r"time=([0-9.]+) ms", text))))


@dataclass(frozen=True)
class Iperf:
    """What the receiver got."""

    megabits_per_second: float
    seconds: float
    packets: int       # UDP only
    lost: int          # UDP only
    retransmits: int   # TCP only


def iperf(client: Namespace, server: Namespace, server_address: str, folder: Path, *, seconds: int = 10,
          udp_megabits: int | None = None, port: int = 5201, after_first_second: Callable[[], None] | None = None
          ) -> Iperf:
    """One run from client to server. `after_first_second` is called while it runs, a second after its start."""
    log, report = folder / f"iperf3-server-{port}.log", folder / f"iperf3-client-{port}.json"
    for file in (log, report):
        file.unlink(missing_ok=True)
    arguments = ["iperf3", "-c", server_address, "-p", str(port), "-t", str(seconds), "-J", "--connect-timeout",
                 "5000", *(["-u", "-b", f"{udp_megabits}M", "-l", "1400"] if udp_megabits else [])]
    daemon = server.start(["iperf3", "-s", "-1", "-p", str(port), "--forceflush"], log)
    try:
        wait_until(lambda: "listening" in daemon.output(), 10, "iperf3 server")
        sender = client.start(arguments, report)
        try:
            if after_first_second:
                time.sleep(1)
                after_first_second()
            sender.wait(seconds + 30)
        finally:
            sender.stop()
    finally:
        daemon.stop()
    return _iperf_result(arguments, sender.output(), udp=udp_megabits is not None)


def _iperf_result(arguments: Sequence[str], output: str, *, udp: bool) -> Iperf:
    try:
        report = json.loads(output)
    except json.JSONDecodeError as error:
        raise CommandError(arguments, -1, output) from error
    if "error" in report:
        raise CommandError(arguments, -1, report["error"])
    end = report["end"]
    if udp:
        total = end["sum"]
        lost, packets = total["lost_packets"], total["packets"]
        rate = total["bits_per_second"] / 1e6 * (1 - lost / packets if packets else 0)
        return Iperf(rate, total["seconds"], packets, lost, 0)
    received = end["sum_received"]
    return Iperf(received["bits_per_second"] / 1e6, received["seconds"], 0, 0, end["sum_sent"].get("retransmits", 0))


def send_frames(namespace: Namespace, device: str, frames: Sequence[bytes]) -> None:
    """Sends whole Ethernet frames as a guest would."""
    with namespace.entered():
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    with sender:
        sender.bind((device, 0))
        for frame in frames:
            sender.send(frame)
