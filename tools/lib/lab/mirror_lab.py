"""A switch whose mirror goes to a collector: two VMs in a bridge, and the collector's host behind the uplink."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .collector import Collector
from .command import run, wait_until
from .lab import BRIDGE, Lab
from .namespace import make_veth
from .pki import Pki, drcollect_options
from .rdma_host import Node
from .softnic import UPLINK
from .traffic import stream_number
from .workspace import Workspace

SWITCH_ADDRESS = "192.0.2.1/24"


@dataclass(frozen=True)
class Kept:
    """A frame in the collector's files."""

    interface: str
    number: int | None      # of a stream
    port: int               # that it goes to
    length: int


def kept_in(files: list[Path]) -> list[Kept]:
    """All that is in a collector's files, by tshark."""
    found = []
    for file in files:
        said = run(["tshark", "-r", str(file), "-T", "fields", "-e", "frame.interface_name", "-e", "udp.dstport",
                    "-e", "udp.payload", "-e", "frame.len", "-e", "icmp.type"], timeout=120)
        for line in said.splitlines():
            interface, port, payload, length, quoted = line.split("\t")
            # A guest's kernel answers some of a stream with ICMP, which quotes them.
            number = stream_number(bytes.fromhex(payload)) if payload and not quoted else None
            found.append(Kept(interface, number, int(port.split(",")[0]) if port and not quoted else 0, int(length)))
    return found


def numbers_of(interface: str, kept: list[Kept]) -> list[int]:
    """A stream's, sorted: at its beginning the NIC may overtake software."""
    return sorted(one.number for one in kept if one.interface == interface and one.number is not None)


class MirrorLab:
    """Two VMs in a bridge, which forwards between them; the collector's host is behind the uplink, which is a dr port
    of the same bridge or none. The VMs are namespaces on veths; with `machines` nobody yet: first and second are vports
    with a vhost-user socket, which a Machine is given. With `pki` the handshake has TLS; the switch's end of it is
    set_ssl()'s. Without it the handshake is plain at both ends."""

    def __init__(self, workspace: Workspace, uplink_in_bridge: bool = False, machines: bool = False,
                 pki: Pki | None = None, daemon_environment: dict[str, str] | None = None) -> None:
        self.workspace, self.pki = workspace, pki
        self.lab = Lab(workspace)
        self.lab.switch.daemon_environment.update(daemon_environment or {})
        for number in (1, 2):
            name = f"vm{number}"
            if machines:
                self.lab.wire_port(name, number, f"net_vhost,iface={self.socket(workspace, name)}")
            else:
                self.lab.wire(name, number)
        self.first, self.second = self.lab.wires
        self.far = Node(workspace, 2)
        self.far.uplink = "uplink"
        switch = self.lab.namespace
        if uplink_in_bridge:
            self.lab.wire("uplink", UPLINK, inside=self.far.namespace)
        else:
            make_veth(self.far.namespace, self.far.uplink, switch, "uplink-p", mac="02:0d:00:00:00:77")
            self.lab.nic.add_port(UPLINK, "net_af_packet,iface=uplink-p", "uplink", "02:0d:00:00:00:77")
        self.lab.nic.ports[-1]["roce_address"] = SWITCH_ADDRESS
        make_veth(self.far.namespace, self.far.control, switch, "ctl1", mac="02:00:00:00:78:01",
                  address=f"{self.far.control_address}/24")
        switch.run(["ip", "address", "add", "10.77.0.1/24", "dev", "ctl1"])
        self.far.configure()
        self.collector = self._collector(self.far, "files")
        self.lab.start(offload=True, fail_mode="secure")
        self.forward()

    def _collector(self, node: Node, folder: str) -> Collector:
        tls = ("--plain",) if self.pki is None else drcollect_options(self.pki.collector())
        made = Collector(node, self.workspace.folder / folder, tls=tls)
        self.workspace.defer(lambda: made.background and made.background.stop())
        return made

    def another_collector(self) -> Collector:
        """On the same wire, with a soft NIC and addresses of its own; not started."""
        node = Node(self.workspace, 3, self.far.namespace)
        node.uplink = self.far.uplink
        node.namespace.run(["ip", "address", "add", f"{node.control_address}/24", "dev", self.far.control])
        node.configure()
        return self._collector(node, "standby-files")

    def set_ssl(self, files: tuple[str, str, str] | None = None, *options: str) -> None:
        self.lab.switch.vsctl(*options, "set-ssl", *(files or self.pki.switch()))

    @staticmethod
    def socket(workspace: Workspace, name: str) -> Path:
        """Of a VM that is a machine."""
        return workspace.folder / f"{name}.vhost"

    def forward(self, *more: str) -> None:
        """Between the VMs, `more` first."""
        self.lab.switch.add_flows(BRIDGE, [f"in_port={one},actions={''.join(word + ',' for word in more)}output:{other}"
                                           for one, other in ((1, 2), (2, 1))])

    def add_port(self, name: str = "stor0", **options: str) -> None:
        """Waits for the port, not for the collector."""
        given = {"collector": self.collector.address, **({} if self.pki else {"plain": "true"}), **options}
        self.lab.switch.vsctl("add-port", BRIDGE, name, "--", "set", "interface", name, "type=drmirror",
                              *(f"options:{key}=\"{value}\"" for key, value in given.items()))
        wait_until(lambda: (self.lab.switch.interface(name, "ofport") or -1) > 0, 10,
                   f"port {name} is there ({self.lab.switch.interface(name, 'error')})")

    def mirror_all(self, name: str = "stor0") -> None:
        self.lab.switch.vsctl("--", "--id=@p", "get", "port", name, "--", "--id=@m", "create", "mirror", f"name={name}",
                              "select_all=true", "output-port=@p", "--", "add", "bridge", BRIDGE, "mirrors", "@m")
        # OVS 3.1 changes no megaflow for a new Mirror, on whatever datapath.
        self.lab.switch.appctl("revalidator/purge")

    def said(self, name: str = "stor0") -> dict:
        mirrors = json.loads(self.lab.switch.appctl("dr/mirror", "-j"))["mirrors"]
        return next(mirror for mirror in mirrors if mirror["name"] == name)

    def wait_connected(self) -> None:
        wait_until(lambda: self.said()["connected"], 40, "the mirror is connected")

    def wait_taken(self) -> None:
        """Nothing waits in the devices' queues: who sends no more than a queue holds between two of these loses
        nothing, however busy the machine is."""
        wait_until(lambda: self.by_device("waiting") == 0, 60, "the mirror has taken all copies")

    def wait_delivered(self, frames: int) -> dict:
        """So many are taken, and all of them are in the files; what dr/mirror says then."""
        wait_until(lambda: self.said()["frames"] >= frames, 20, f"{frames} frames are taken")
        wait_until(lambda: sum(session["frames"] for session in self.collector.sessions())
                   >= self.said()["frames"], 40, "the collector has them")
        return self.said()

    def kept(self) -> list[Kept]:
        return kept_in(self.collector.files())

    def numbers_of(self, interface: str) -> list[int]:
        return numbers_of(interface, self.kept())

    def by_device(self, key: str) -> int:
        return sum(device.get(key, 0) for device in self.said()["devices"])
