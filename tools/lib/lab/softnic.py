"""The soft NIC of one lab: its configuration file and its control socket. Options: datapath/ports/config.hpp."""

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
        self.workers: int | dict[str, object] = workers
        self.memory_mb = 512
        self.ports: list[dict[str, object]] = []
        self.limits: dict[str, int] = {}
        self.cotenant: dict[str, object] | None = None
        self.more_devices: list[dict[str, object]] = []   # beside DEVICE

    def add_port(self, vport: int, dpdk: str, name: str, mac: str) -> None:
        self.ports.append({"vport": vport, "dpdk": dpdk, "name": name, "mac": mac})

    def write(self) -> None:
        device: dict[str, object] = {"name": DEVICE, "profile": self.profile, "ports": self.ports}
        if self.limits:
            device["limits"] = self.limits
        if self.cotenant is not None:
            device["cotenant"] = self.cotenant
        configuration = {"workers": self.workers, "memory_mb": self.memory_mb, "control_socket": str(self.control),
                         "devices": [device, *self.more_devices]}
        self.file.write_text(json.dumps(configuration, indent=2) + "\n")

    def environment(self) -> dict[str, str]:
        return {"OVSDR_SOFTNIC": str(self.file)}

    def drnic(self, *arguments: str, check: bool = True) -> str:
        return run([str(build.drnic()), "--socket", str(self.control), *arguments], check=check)
