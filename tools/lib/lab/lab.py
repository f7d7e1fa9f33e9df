"""A lab: a switch in its namespace and guests in theirs, each on a port of the switch.

kind "dr": our daemon; each guest's veth is a DPDK port of the soft NIC, and the bridge's port is of type dr.
kind "stock": Debian's ovs-vswitchd with its userspace datapath on the same veths; to compare with.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import build
from .capture import Capture
from .command import run, wait_until
from .namespace import Namespace, make_veth
from .softnic import DEVICE, UPLINK, SoftNic
from .switch import STOCK_DAEMON, Switch
from .workspace import Workspace

BRIDGE = "br0"


@dataclass(frozen=True)
class Wire:
    """A vport, and the bridge's port that stands for it; whoever is behind it has this MAC and address."""

    name: str
    mac: str
    address: str   # without prefix length
    vport: int
    port: str      # the bridge's port


@dataclass(frozen=True)
class Guest(Wire):
    """A namespace that plays a VM (or what is behind the uplink), with one NIC, eth0."""

    namespace: Namespace
    veth: str      # the vport's end of the pair, in the switch's namespace
    device: str = "eth0"

    def capture(self) -> Capture:
        return Capture(self.namespace, self.device)


class Lab:
    def __init__(self, workspace: Workspace, *, kind: str = "dr", profile: str = "connectx-6dx", workers: int = 1,
                 mtu: int = 1500, dpdk_port: str = "net_af_packet", offloads: bool = False, name: str = "") -> None:
        """`name` tells the labs of one workspace apart. With `offloads` guests leave checksums and segments to their
        NIC."""
        folder = workspace.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        self.workspace = workspace
        self.kind = kind
        self.mtu = mtu
        self.dpdk_port = dpdk_port
        self.offloads = offloads
        self.namespace = workspace.namespace(name or "switch")
        self.nic = SoftNic(folder, profile=profile, workers=workers)
        self.wires: list[Wire] = []
        self.guests: list[Guest] = []  # those of them that are namespaces on a veth
        daemon = str(build.daemon()) if kind == "dr" else STOCK_DAEMON
        self.switch = Switch(self.namespace, folder, daemon,
                             environment=self.nic.environment() if kind == "dr" else None,
                             daemon_arguments=["--disable-system"])

    def wire(self, name: str, vport: int, *, inside: Namespace | None = None) -> Guest:
        """A guest on a veth; its vport is in the soft NIC's configuration from the start of the daemon on. With
        `inside` the other end is a device of that namespace, with the guest's name and no address."""
        number = len(self.wires) + 1
        return self.plug(Guest(name=name, namespace=inside or self.workspace.namespace(name),
                               mac=f"02:0d:00:00:00:{number:02x}", address=f"10.99.0.{number}", vport=vport,
                               port=self.port_name(name), veth=f"{name}-p", device=name if inside else "eth0"),
                         addressed=inside is None)

    def port_name(self, name: str) -> str:
        """A stock switch's port is the veth end itself."""
        return name if self.kind == "dr" else f"{name}-p"

    def plug(self, guest: Guest, addressed: bool = True) -> Guest:
        """Makes the veth pair of a guest whose namespace is there, and its vport."""
        make_veth(guest.namespace, guest.device, self.namespace, guest.veth, mac=guest.mac,
                  address=f"{guest.address}/24" if addressed else None, mtu=self.mtu, offloads=self.offloads)
        self.nic.add_port(guest.vport, self.dpdk_arguments(guest), guest.name, guest.mac)
        self.guests.append(guest)
        self.wires.append(guest)
        return guest

    def wire_port(self, name: str, vport: int, dpdk: str) -> Wire:
        """A vport with these device arguments; who is behind it is the test's business."""
        number = len(self.wires) + 1
        wire = Wire(name=name, mac=f"02:0d:00:00:00:{number:02x}", address=f"10.99.0.{number}", vport=vport, port=name)
        self.nic.add_port(vport, dpdk, name, wire.mac)
        self.wires.append(wire)
        return wire

    def dpdk_arguments(self, guest: Guest) -> str:
        return f"{self.dpdk_port},iface={guest.veth}"

    def wire_all(self, vms: int = 3, uplink: bool = True) -> None:
        for number in range(1, vms + 1):
            self.wire(f"vm{number}", number)
        if uplink:
            self.wire("uplink", UPLINK)

    def start(self, *, offload: bool = True, fail_mode: str = "standalone") -> None:
        """Starts the switch and its bridge with a port for each guest."""
        self.nic.write()
        self.workspace.defer(self.switch.stop)
        self.switch.start()
        if offload:
            self.switch.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
        self.add_bridge(fail_mode=fail_mode)

    def add_bridge(self, fail_mode: str = "standalone") -> None:
        ports = [word for wire in self.wires for word in ("--", *self._addition(wire))]
        self.switch.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev",
                          f"fail_mode={fail_mode}", "other_config:disable-in-band=true", *ports)
        for wire in self.wires:
            self._wait_for(wire)

    def add_port(self, guest: Wire) -> None:
        self.switch.vsctl(*self._addition(guest))
        self._wait_for(guest)

    def _addition(self, guest: Wire) -> list[str]:
        return ["add-port", BRIDGE, guest.port, "--", "set", "interface", guest.port, *self.interface_settings(guest),
                f"ofport_request={self.ofport(guest)}"]

    def _wait_for(self, guest: Wire) -> None:
        wait_until(lambda: self.switch.interface(guest.port, "ofport") == self.ofport(guest), 10,
                   f"port {guest.port} is there ({self.switch.interface(guest.port, 'error')})")

    def interface_settings(self, guest: Wire) -> list[str]:
        if self.kind == "dr":
            return ["type=dr", f"options:device={DEVICE}", f"options:vport={guest.vport}"]
        return ["type=system"]

    def ofport(self, guest: Wire) -> int:
        return self.wires.index(guest) + 1

    def guest(self, name: str) -> Guest:
        return next(guest for guest in self.guests if guest.name == name)

    def fix_neighbours(self) -> None:
        """Static ARP between all guests: no broadcast of the kernel's disturbs an exact count."""
        for guest in self.guests:
            run(guest.namespace.command(["ip", "-batch", "-"]), stdin="".join(
                f"neigh replace {other.address} lladdr {other.mac} dev {guest.device} nud permanent\n"
                for other in self.wires if other is not guest))
