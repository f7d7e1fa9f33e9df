"""The daemon on the system's own libibverbs and libmlx5, over the emulated ConnectX (tests/connectx).

No packet passes: counters show what a file says, and megaflows come from dpctl.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
from pathlib import Path
from typing import Iterable

from . import build
from .switch import Switch
from .workspace import Workspace

DEVICE = "mlx5_0"
UPLINK = 65535
LAUNCHER = build.SOURCE / "tests" / "connectx" / "run"


def built() -> bool:
    return (build.build_folder() / "tests" / "connectx" / "libconnectx.so").exists()


def _replace(file: Path, text: str) -> None:
    """So that who reads it finds all of the text, or all of the one before."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


class ConnectXSwitch(Switch):
    """`log_of_calls` has what failed or was left behind, `counters` is what each flow counter shows, `vports` what the
    kernel's tools make of vports."""

    def __init__(self, workspace: Workspace, *, profile: str = "cx6dx", vfs: int = 2, events: int = 1,
                 fail: str = "") -> None:
        folder = workspace.folder
        self.log_of_calls = folder / "connectx.log"
        self.counters = folder / "counters"
        self.vports = folder / "vports"
        launcher = folder / "ovs-vswitchd-connectx"
        command = [str(LAUNCHER), "--profile", profile, "--vfs", str(vfs), "--events", str(events),
                   "--log", str(self.log_of_calls), "--counters", str(self.counters), "--vports", str(self.vports),
                   *(["--fail", fail] if fail else []), str(build.daemon())]
        launcher.parent.mkdir(parents=True, exist_ok=True)
        launcher.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        launcher.chmod(0o755)
        super().__init__(workspace.namespace("switch"), folder, str(launcher),
                         environment={"OVSDR_HARDWARE": "1", "OVSDR_BUILD": str(build.build_folder())},
                         daemon_arguments=["--disable-system"])
        workspace.defer(self.stop)

    def count(self, packets: int, bytes_: int) -> None:
        """What every counter of the device shows from now on."""
        _replace(self.counters, f"{packets} {bytes_}\n")

    def configure_vport(self, number: int, *, up: bool = True, mtu: int = 1500, mac: str = "02:00:00:00:00:77") -> None:
        """What the kernel's tools make of a vport from now on. Nobody tells the daemon."""
        _replace(self.vports, f"{number} {'up' if up else 'down'} {mtu} {mac.replace(':', '')}\n")

    def unixctl(self, calls: Iterable[tuple[str, list[str]]]) -> list[str]:
        """Many commands over one connection: ovs-appctl would take a process for each. Raises RuntimeError."""
        assert self.daemon is not None
        replies = []
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.folder / f"ovs-vswitchd.{self.daemon.pid}.ctl"))
            connection.settimeout(30)
            decoder, text = json.JSONDecoder(), ""
            for number, (method, parameters) in enumerate(calls):
                connection.sendall(json.dumps({"id": number, "method": method, "params": parameters}).encode())
                while True:
                    try:
                        reply, end = decoder.raw_decode(text)
                        break
                    except json.JSONDecodeError:
                        more = connection.recv(1 << 16)
                        if not more:
                            raise RuntimeError(f"{method}: the daemon closed the connection") from None
                        text += more.decode()
                text = text[end:].lstrip()
                if reply.get("error"):
                    raise RuntimeError(f"{method} {' '.join(parameters)}: {reply['error']}")
                replies.append(reply["result"])
        return replies

    def complaints(self) -> list[str]:
        """Lines of the daemon's log that are warnings or worse, without those on how busy the machine is, and all of
        the device's log but its closing figures, and that the wire is no vport with a context: after that offload/ asks
        for the function's own."""
        daemon = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        device = self.log_of_calls.read_text().splitlines() if self.log_of_calls.exists() else []
        return [line for line in daemon
                if re.search(r"\|(WARN|ERR|EMER)\|", line) and not re.search(r"\|(timeval|ovs_rcu)[|(]", line)] + \
               [line for line in device if " end: " not in line and not line.endswith(": no vport 65535")]

