"""Two guests under User Mode Linux, and a namespace on a veth, which is the wire: behind each of the switches that
tests/bench/tcp compares.

A guest's port is vhost-user at ovs-dr and at ovs-vswitchd-dpdk. Debian's userspace datapath without DPDK has no such
port, and the kernel's bridge none either: there it is a tap, with offloads at the bridge and without at the datapath.

Each guest has a core of its own, if there are two: its kernel and its programs are processes of this host that take
turns, and on two cores each turn would wake the other one up.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from lab.command import wait_until
from lab.lab import Lab, Wire
from lab.traffic import Iperf
from lab.uml_guest import Nic, UmlGuest, make_initramfs, tap_nic, vhost_nic
from lab.vhost_relay import VhostRelay
from lab.workspace import Workspace
from subjects import OURS, STOCK, TSO_SLEEPS, WITH_TSO, start_switch

MEMORY_MB = 3072   # of OVS's DPDK
PORT = 5201
MOST_SLEEP_US = 100   # of a PMD thread


class GuestLab(Lab):
    def __init__(self, workspace: Workspace, subject: str) -> None:
        super().__init__(workspace, kind="dr" if subject == OURS else "stock", offloads=subject != STOCK)
        self.subject = subject
        self.relays: dict[str, VhostRelay] = {}
        initramfs = make_initramfs(workspace.folder)
        self.virtual = [self._add_guest(f"vm{number}", number, initramfs) for number in (1, 2)]
        self.outside = self.wire("outside", 3)

    def _add_guest(self, name: str, vport: int, initramfs: Path) -> UmlGuest:
        nic: Nic
        if self.subject in (OURS, *WITH_TSO):
            relay = self.relays[name] = VhostRelay(self.workspace, name)
            nic, dpdk = vhost_nic(relay), f"net_vhost,iface={relay.switch},client=1"
        else:
            header = ["vnet_hdr"] if self.offloads else []
            self.namespace.run(["ip", "tuntap", "add", "dev", name, "mode", "tap", *header])
            self.namespace.run(["ip", "link", "set", name, "up"])
            nic, dpdk = tap_nic(name, offloads=self.offloads), ""
        wire = self.wire_port(name, vport, dpdk)
        cpus = sorted(os.sched_getaffinity(0))
        return UmlGuest(self.workspace, name, self.namespace, nic, initramfs=initramfs, mac=wire.mac,
                        address=wire.address, cpu=cpus[(vport - 1) % len(cpus)])

    def interface_settings(self, guest: Wire) -> list[str]:
        if self.subject != OURS and guest.name in self.relays:
            return ["type=dpdkvhostuserclient", f"options:vhost-server-path={self.relays[guest.name].switch}"]
        return super().interface_settings(guest)

    def begin(self) -> None:
        """Starts all, until TCP could flow."""
        for guest in self.virtual:
            guest.launch()   # they wait for the switch's end of their sockets
        start_switch(self, self.subject, [*(guest.name for guest in self.virtual), self.outside.veth], self._settings())
        for guest in self.virtual:
            self.workspace.defer(guest.stop)   # before the switch
            guest.wait_ready()
            for wire in self.wires:
                if wire.name != guest.name:
                    guest.set_neighbour(wire.address, wire.mac)
        self.fix_neighbours()
        self.virtual[1].serve(PORT)
        server = self.outside.namespace.start(["iperf3", "-s", "-p", str(PORT)],
                                              self.workspace.folder / "iperf3-outside.log")
        self.workspace.defer(server.stop)
        for target in (self.virtual[1].address, self.outside.address):
            wait_until(lambda: "1 packets received" in self.virtual[0].run(f"ping -c 1 -W 1 {target}", check=False), 20,
                       f"{self.subject}: {target} answers the guest")
        time.sleep(0.5)

    def _settings(self) -> list[str]:
        if self.subject not in WITH_TSO:
            return []
        extra = f"--no-huge --legacy-mem -m {MEMORY_MB} --no-pci --file-prefix={self.workspace.name}"
        sleeps = [f"other_config:pmd-maxsleep={MOST_SLEEP_US}"] if self.subject == TSO_SLEEPS else []
        return ["other_config:dpdk-init=true", f'other_config:dpdk-extra="{extra}"', *sleeps]

    def guest_to_guest(self, seconds: int) -> Iperf:
        return self.virtual[0].send_to(self.virtual[1].address, seconds, PORT)

    def guest_to_wire(self, seconds: int) -> Iperf:
        return self.virtual[0].send_to(self.outside.address, seconds, PORT)
