"""Two guests under User Mode Linux, and a namespace on a veth, which is the wire: behind each of the switches that
tests/bench/tcp compares.

A guest's port is vhost-user at ovs-dr and at ovs-vswitchd-dpdk. Debian's userspace datapath without DPDK has no such
port, and the kernel's bridge none either: there it is a tap, which the guest's kernel opens by its vector driver.
"""

from __future__ import annotations

import time

from lab.command import wait_until
from lab.lab import BRIDGE, Lab, Wire
from lab.switch import stock_dpdk_daemon
from lab.traffic import Iperf
from lab.uml_guest import Nic, UmlGuest, make_initramfs, tap_nic, vhost_nic
from lab.vhost_relay import VhostRelay
from lab.workspace import Workspace
from subjects import KERNEL, OURS, STOCK, TSO

MEMORY_MB = 3072   # of OVS's DPDK
PORT = 5201


class GuestLab(Lab):
    def __init__(self, workspace: Workspace, subject: str) -> None:
        super().__init__(workspace, kind="dr" if subject == OURS else "stock", offloads=subject != STOCK)
        self.subject = subject
        self.relays: dict[str, VhostRelay] = {}
        initramfs = make_initramfs(workspace.folder)
        self.virtual = [self._add_guest(f"vm{number}", number, initramfs) for number in (1, 2)]
        self.outside = self.wire("outside", 3)

    def _add_guest(self, name: str, vport: int, initramfs: object) -> UmlGuest:
        nic: Nic
        if self.subject in (OURS, TSO):
            relay = self.relays[name] = VhostRelay(self.workspace, name)
            nic, dpdk = vhost_nic(relay), f"net_vhost,iface={relay.switch},client=1"
        else:
            header = ["vnet_hdr"] if self.offloads else []
            self.namespace.run(["ip", "tuntap", "add", "dev", name, "mode", "tap", *header])
            self.namespace.run(["ip", "link", "set", name, "up"])
            nic, dpdk = tap_nic(name, offloads=self.offloads), ""
        wire = self.wire_port(name, vport, dpdk)
        return UmlGuest(self.workspace, name, self.namespace, nic, initramfs=initramfs, mac=wire.mac,
                        address=wire.address)

    def interface_settings(self, guest: Wire) -> list[str]:
        if self.subject == TSO and guest.name in self.relays:
            return ["type=dpdkvhostuserclient", f"options:vhost-server-path={self.relays[guest.name].switch}"]
        return super().interface_settings(guest)

    def begin(self) -> None:
        """Starts all, until TCP could flow."""
        for guest in self.virtual:
            guest.launch()   # they wait for the switch's end of their sockets
        self._start_switch()
        for guest in self.virtual:
            guest.wait_ready()
            for wire in self.wires:
                if wire.name != guest.name:
                    guest.set_neighbour(wire.address, wire.mac)
        self.fix_neighbours()
        self.virtual[1].serve(PORT)
        self.outside.namespace.start(["iperf3", "-s", "-p", str(PORT), "--forceflush"],
                                     self.workspace.folder / "iperf3-outside.log")
        for target in (self.virtual[1].address, self.outside.address):
            wait_until(lambda: "1 packets received" in self.virtual[0].run(f"ping -c 1 -W 1 {target}", check=False), 20,
                       f"{self.subject}: {target} answers the guest")
        time.sleep(0.5)

    def _start_switch(self) -> None:
        if self.subject == KERNEL:
            self.namespace.run(["ip", "link", "add", BRIDGE, "up", "type", "bridge"])
            for port in [*(guest.name for guest in self.virtual), self.outside.veth]:
                self.namespace.run(["ip", "link", "set", port, "master", BRIDGE])
            return
        settings = []
        if self.subject == TSO:
            self.switch.daemon_path = stock_dpdk_daemon(self.workspace.folder)
            extra = f"--no-huge --legacy-mem -m {MEMORY_MB} --no-pci --file-prefix={self.workspace.name}"
            settings = ["other_config:userspace-tso-enable=true", "other_config:dpdk-init=true",
                        f'other_config:dpdk-extra="{extra}"']
        if self.subject == OURS:
            settings = ["other_config:hw-offload=true"]
            self.nic.write()
        self.workspace.defer(self.switch.stop)
        self.switch.start_database()
        if settings:
            self.switch.vsctl("--no-wait", "set", "Open_vSwitch", ".", *settings)
        self.switch.start_daemon()
        self.add_bridge()

    def guest_to_guest(self, seconds: int) -> Iperf:
        return self.virtual[0].send_to(self.virtual[1].address, seconds, PORT)

    def guest_to_wire(self, seconds: int) -> Iperf:
        return self.virtual[0].send_to(self.outside.address, seconds, PORT)
