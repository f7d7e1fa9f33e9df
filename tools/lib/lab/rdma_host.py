"""Hosts with a soft NIC of their own each, for what RDMA's programs do between them."""

from __future__ import annotations

import json
import os

from . import build
from .command import Background
from .namespace import Namespace, make_veth
from .workspace import Workspace


class Node:
    """A host: a namespace with a soft NIC's uplink in it, and an address of the kernel's for everything else.
    Several may share a namespace and its devices: each has a MAC and addresses of its own."""

    def __init__(self, workspace: Workspace, number: int, namespace: Namespace | None = None) -> None:
        self.namespace = namespace or workspace.namespace(f"host{number}")
        self.number = number
        self.uplink, self.control = f"roce{number}", f"ctl{number}"
        self.control_address = f"10.77.0.{number}"
        self.file = workspace.folder / f"roce{number}.json"
        self.log = workspace.folder / f"roce{number}.log"

    def configure(self, dpdk: str | None = None) -> None:
        port = {"vport": 65535, "dpdk": dpdk or f"net_af_packet,iface={self.uplink}",
                "roce_address": [f"192.0.2.{self.number}/24", f"2001:db8::{self.number}/64"]}
        self.file.write_text(json.dumps({"workers": 1, "memory_mb": 128, "control_socket": "",
                                         "devices": [{"name": "mlx5_0", "mac": f"02:00:00:00:79:0{self.number}",
                                                      "ports": [port]}]}))

    def environment(self) -> dict[str, str]:
        library = build.build_folder() / "datapath" / "verbs" / "lib"
        return {"OVSDR_SOFTNIC": str(self.file),
                "LD_LIBRARY_PATH": os.environ.get("OVSDR_SOFTNIC_LIBRARY", str(library))}

    def start(self, *argv: str) -> Background:
        return self.namespace.start(list(argv), self.log, env=self.environment())

    def run(self, *argv: str, timeout: float = 60) -> str:
        return self.namespace.run(list(argv), env=self.environment(), timeout=timeout)


def join_controls(one: Node, two: Node) -> None:
    make_veth(one.namespace, one.control, two.namespace, two.control, mac="02:00:00:00:78:01",
              address=f"{one.control_address}/24")
    two.namespace.run(["ip", "address", "add", f"{two.control_address}/24", "dev", two.control])
