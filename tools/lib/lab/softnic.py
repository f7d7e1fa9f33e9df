"""The soft NIC of one lab: its configuration file and its control socket."""

from __future__ import annotations

import json
from pathlib import Path

from . import build
from .command import run

DEVICE = "mlx5_0"
UPLINK = 65535


class SoftNic:
    """Writes the configuration that the daemon's process reads, and speaks to its control socket while it runs."""

    def __init__(self, folder: Path, *, profile: str = "connectx-6dx", workers: int = 1) -> None:
        self.file = folder / "softnic.json"
        self.control = folder / "softnic.sock"
        self.profile = profile
        self.workers = workers
        self.ports: list[dict[str, object]] = []

    def add_port(self, vport: int, dpdk: str, name: str, mac: str) -> None:
        self.ports.append({"vport": vport, "dpdk": dpdk, "name": name, "mac": mac})

    def write(self) -> None:
        self.file.write_text(json.dumps({
            "control": str(self.control),
            "workers": self.workers,
            "devices": [{"name": DEVICE, "profile": self.profile, "ports": self.ports}],
        }, indent=2) + "\n")

    def environment(self) -> dict[str, str]:
        return {"OVSDR_SOFTNIC": str(self.file)}

    def drnic(self, *arguments: str, check: bool = True) -> str:
        return run([str(build.drnic()), "--socket", str(self.control), *arguments], check=check)
