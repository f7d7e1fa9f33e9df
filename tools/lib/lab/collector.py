"""drcollect in a namespace of its own, and what its files hold."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from . import build
from .command import Background, run, wait_until
from .pki import drcollect_options
from .rdma_host import Node

PORT = 4180


class Collector:
    """drcollect in a node's namespace; it can be killed and started again."""

    def __init__(self, node: Node, folder: Path, *arguments: str, tls: tuple[str, ...] = ("--plain",)) -> None:
        self.node, self.folder, self.tls, self.arguments = node, folder, tls, arguments
        self.control = node.file.with_suffix(".drcollect")
        folder.mkdir(exist_ok=True)
        self.background: Background | None = None

    @staticmethod
    def program() -> str:
        return str(build.build_folder() / "tools" / "drcollect" / "drcollect")

    @property
    def address(self) -> str:
        return f"{self.node.control_address}:{PORT}"

    def tls_files(self, files: tuple[str, str, str] | None) -> "Collector":
        """From the next start on: private key, certificate and the CA of switches; None: plain."""
        self.tls = ("--plain",) if files is None else drcollect_options(files)
        return self

    def start(self) -> "Collector":
        self.background = self.node.start(self.program(), "run", "--listen", self.address,
                                          "--folder", str(self.folder), "--control", str(self.control),
                                          *self.tls, *self.arguments)
        wait_until(lambda: bool(self.node.namespace.run(["ss", "-Hltn", "src", self.address]))
                   or not self.background.running(), 20, "the collector listens")
        assert self.background.running(), self.background.output()
        return self

    def kill(self) -> None:
        os.kill(self.background.pid, signal.SIGKILL)
        self.background.wait(10)

    def stop(self) -> None:
        """As systemd would."""
        os.kill(self.background.pid, signal.SIGTERM)
        assert self.background.wait(20) == 0, self.background.output()

    def stats(self) -> dict:
        return json.loads(run([self.program(), "stats", "--json", "--control", str(self.control)]))

    def sessions(self) -> list[dict]:
        return self.stats()["sessions"]

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.pcapng"))

    def verify(self) -> str:
        return run([self.program(), "verify", *map(str, self.files())])

    def numbers(self) -> list[int]:
        """What tshark reads: the number in each frame. A file that it finds damaged is an error."""
        found = []
        for file in self.files():
            said = run(["tshark", "-r", str(file), "-T", "fields", "-e", "udp.payload"], timeout=120)
            found += [int(line[:8], 16) for line in said.splitlines()]
        return found
