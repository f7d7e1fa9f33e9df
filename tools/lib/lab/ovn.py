"""OVN: a central, hypervisors whose uplinks meet on a wire, and VMs that logical networks connect.

A hypervisor is a Lab with two bridges: br-int with its VMs, br-phy with its uplink and the tunnels' address; and an
ovn-controller of its own. The central is one database server for both databases, and ovn-northd. The wire is a
kernel bridge in a namespace, with one more host on it, which no hypervisor knows: `outside`. Databases, sockets,
pids and logs are in the workspace's folder.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from .command import Background, run, wait_until
from .lab import Guest, Lab
from .namespace import Namespace, make_veth
from .softnic import UPLINK
from .workspace import Workspace

SCHEMAS = Path("/usr/share/ovn")
INTEGRATION, UNDERLAY = "br-int", "br-phy"
PHYSICAL_NETWORK = "physical"
GUEST_MTU = 1442   # a Geneve header with OVN's option fits into the wire's 1,500
OUTSIDE, OUTSIDE_MAC = "172.16.0.254", "02:00:00:00:ff:fe"


def missing_programs() -> list[str]:
    return [name for name in ("ovn-northd", "ovn-controller", "ovn-nbctl") if shutil.which(name) is None]


def keep_neighbours(namespace: Namespace, device: str) -> None:
    """For an hour: whoever counts another traffic's packets has no ARP and ND among them."""
    namespace.run(["sysctl", "-qw", *(f"net.{family}.neigh.{device}.base_reachable_time_ms=7200000"
                                      for family in ("ipv4", "ipv6"))])


@dataclass(frozen=True)
class Vm:
    """Where a VM is, and what it is called in its network: number N of network S is 10.S.0.N, fd00:S::N."""

    name: str
    hypervisor: str
    network: int
    number: int

    @property
    def mac(self) -> str:
        return f"02:00:00:00:{self.network:02x}:{self.number:02x}"

    @property
    def address(self) -> str:
        return f"10.{self.network}.0.{self.number}"

    @property
    def address_6(self) -> str:
        return f"fd00:{self.network}::{self.number}"


class Central:
    """Both databases and ovn-northd."""

    def __init__(self, workspace: Workspace) -> None:
        self.folder = workspace.folder / "central"
        self.namespace = workspace.namespace("central")
        self.remote = f"unix:{self.folder}/ovn.sock"
        self.environment = {"OVN_RUNDIR": str(self.folder), "OVN_LOGDIR": str(self.folder),
                            "OVN_DBDIR": str(self.folder), "OVS_RUNDIR": str(self.folder)}
        self._programs: list[Background] = []
        workspace.defer(self.stop)

    def start(self) -> None:
        self.folder.mkdir(parents=True)
        databases = []
        for name in ("nb", "sb"):
            databases.append(str(self.folder / f"{name}.db"))
            run(["ovsdb-tool", "create", databases[-1], str(SCHEMAS / f"ovn-{name}.ovsschema")])
        self._start("ovsdb-server", [*databases, f"--remote=p{self.remote}"])
        wait_until((self.folder / "ovn.sock").exists, 10, "OVN's database server's socket")
        self._start("ovn-northd", [f"--ovnnb-db={self.remote}", f"--ovnsb-db={self.remote}"])

    def _start(self, program: str, arguments: Sequence[str]) -> None:
        self._programs.append(self.namespace.start(
            [program, *arguments, "--pidfile", f"--log-file={self.folder}/{program}.log", "-vconsole:off"],
            self.folder / f"{program}.out", self.environment))

    def stop(self) -> None:
        while self._programs:
            self._programs.pop().stop()

    def nbctl(self, *arguments: str, wait: str = "hv") -> str:
        """With wait=hv it returns when every hypervisor has what it says."""
        return run(["ovn-nbctl", f"--db={self.remote}", "--timeout=60", f"--wait={wait}", *arguments], timeout=70,
                   env=self.environment)


class Hypervisor(Lab):
    def __init__(self, workspace: Workspace, central: Central, wire: Namespace, number: int, *, kind: str,
                 encapsulation: str) -> None:
        super().__init__(workspace, kind=kind, name=f"hv{number}", mtu=GUEST_MTU)
        self.name = f"hv{number}"
        self.central = central
        self.address = f"172.31.0.{number}"
        self.encapsulation = encapsulation
        self.controller: Background | None = None
        self.uplink = self._wire_uplink(wire, number)

    def _wire_uplink(self, wire: Namespace, number: int) -> Guest:
        """Whoever is behind the uplink is a port of the wire's bridge."""
        uplink = Guest(name="uplink", namespace=wire, mac=f"02:00:00:00:ff:{number:02x}", address="", vport=UPLINK,
                       port=self.port_name("uplink"), veth="uplink-p", device=self.name)
        make_veth(wire, uplink.device, self.namespace, uplink.veth, mac=uplink.mac)
        wire.run(["ip", "link", "set", uplink.device, "master", "wire"])
        self.nic.add_port(UPLINK, self.dpdk_arguments(uplink), uplink.name, uplink.mac)
        self.wires.append(uplink)
        return uplink

    def add_vm(self, vm: Vm) -> Guest:
        guest = self.plug(Guest(name=vm.name, namespace=self.workspace.namespace(vm.name), mac=vm.mac,
                                address=vm.address, vport=len(self.guests) + 1, port=self.port_name(vm.name),
                                veth=f"{vm.name}-p"))
        gateways = ((f"10.{vm.network}.0.254", "-4"), (f"fd00:{vm.network}::fe", "-6"))
        guest.namespace.run(["ip", "address", "add", f"{vm.address_6}/64", "dev", guest.device, "nodad"])
        for gateway, family in gateways:
            guest.namespace.run(["ip", family, "route", "add", "default", "via", gateway, "dev", guest.device])
        keep_neighbours(guest.namespace, guest.device)
        return guest

    def add_bridge(self, fail_mode: str = "standalone") -> None:
        self._describe()
        vms = [word for guest in self.guests for word in (
            "--", "add-port", INTEGRATION, guest.port, "--", "set", "interface", guest.port,
            *self.interface_settings(guest), f"external_ids:iface-id={guest.name}")]
        self.switch.vsctl("add-br", INTEGRATION, "--", "set", "bridge", INTEGRATION, "datapath_type=netdev",
                          f"fail_mode={fail_mode}", "other_config:disable-in-band=true", *vms)
        self.switch.vsctl("add-br", UNDERLAY, "--", "set", "bridge", UNDERLAY, "datapath_type=netdev",
                          "other_config:disable-in-band=true", "--", "add-port", UNDERLAY, self.uplink.port, "--",
                          "set", "interface", self.uplink.port, *self.interface_settings(self.uplink))
        self.namespace.run(["ip", "address", "add", f"{self.address}/24", "dev", UNDERLAY])
        self.namespace.run(["ip", "link", "set", UNDERLAY, "up"])

    def _describe(self) -> None:
        """What ovn-controller reads (ovn-controller(8), "CONFIGURATION"), and that megaflows stay to be looked at."""
        self.switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=60000")
        self.configure({"system-id": self.name, "hostname": self.name, "ovn-remote": self.central.remote,
                        "ovn-encap-type": self.encapsulation, "ovn-encap-ip": self.address, "ovn-encap-csum": "false",
                        "ovn-bridge": INTEGRATION, "ovn-bridge-datapath-type": "netdev",
                        "ovn-bridge-mappings": f"{PHYSICAL_NETWORK}:{UNDERLAY}"})

    def configure(self, external_ids: dict[str, str]) -> None:
        self.switch.vsctl("set", "Open_vSwitch", ".",
                          *(f'external_ids:{name}="{value}"' for name, value in external_ids.items()))

    def tunnel(self) -> tuple[str, str] | None:
        """Type and csum of ovn-controller's one tunnel port."""
        rows = self.switch.vsctl("--format=csv", "--no-headings", "--data=bare", "--columns=type,options", "find",
                                 "interface", "options:remote_ip!=0.0.0.0").splitlines()
        if len(rows) != 1:
            return None
        kind, options = rows[0].split(",", 1)
        return kind, "true" if "csum=true" in options else "false"

    def start_controller(self) -> None:
        folder = str(self.switch.folder)
        environment = {**self.switch.environment, "OVN_RUNDIR": folder, "OVN_LOGDIR": folder, "OVN_SYSCONFDIR": folder}
        self.controller = self.namespace.start(
            ["ovn-controller", f"unix:{folder}/db.sock", "--pidfile", f"--log-file={folder}/ovn-controller.log",
             "-vconsole:off"], self.switch.folder / "ovn-controller.out", environment)
        self.workspace.defer(self.controller.stop)


class OvnLab:
    """All of it. Made with its VMs and the commands that make the logical networks (ovn-nbctl's, one a list)."""

    def __init__(self, workspace: Workspace, vms: Sequence[Vm], *, kind: str = "dr",
                 encapsulation: str = "geneve") -> None:
        self.workspace = workspace
        self.kind = kind
        self.central = Central(workspace)
        self.wire = workspace.namespace("wire")
        self.wire.run(["ip", "link", "add", "wire", "type", "bridge"])
        self.wire.run(["ip", "link", "set", "wire", "up"])
        self.hypervisors = [Hypervisor(workspace, self.central, self.wire, number, kind=kind,
                                       encapsulation=encapsulation) for number in (1, 2)]
        self.outside = self._add_outside()
        for vm in vms:
            next(one for one in self.hypervisors if one.name == vm.hypervisor).add_vm(vm)

    def _add_outside(self) -> Namespace:
        outside = self.workspace.namespace("outside")
        make_veth(outside, "eth0", self.wire, "outside", mac=OUTSIDE_MAC, address=f"{OUTSIDE}/24")
        self.wire.run(["ip", "link", "set", "outside", "master", "wire"])
        # What is sent to it does not come by at the hypervisors, even if it says nothing itself.
        self.wire.run(["bridge", "fdb", "replace", OUTSIDE_MAC, "dev", "outside", "master", "static"])
        outside.run(["ip", "route", "add", "10.0.0.0/8", "via", "172.16.0.1"])
        keep_neighbours(outside, "eth0")
        return outside

    def start(self, networks: Sequence[Sequence[str]]) -> None:
        self.central.start()
        for hypervisor in self.hypervisors:
            hypervisor.start(fail_mode="secure")
            hypervisor.start_controller()
        self.configure(networks)

    def configure(self, commands: Sequence[Sequence[str]]) -> None:
        """One transaction; returns when all hypervisors follow it."""
        self.central.nbctl(*(word for command in commands for word in ("--", *command)))

    def encapsulate(self, settings: dict[str, str]) -> None:
        """ovn-encap-type and ovn-encap-csum (external_ids); returns when the tunnels are such."""
        wanted = settings["ovn-encap-type"], settings["ovn-encap-csum"]
        for hypervisor in self.hypervisors:
            hypervisor.configure(settings)
        for hypervisor in self.hypervisors:
            wait_until(lambda: hypervisor.tunnel() == wanted, 20, f"{hypervisor.name} has a tunnel of {wanted}")

    def namespace(self, name: str) -> Namespace:
        """Of a VM, or of `outside`."""
        return self.outside if name == "outside" else self.guest(name).namespace

    def guest(self, name: str) -> Guest:
        return next(guest for one in self.hypervisors for guest in one.guests if guest.name == name)
