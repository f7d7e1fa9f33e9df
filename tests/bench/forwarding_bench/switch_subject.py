"""What both switches have in common: bridges, ports, a tunnel and rules, and megaflows that come and go."""

from __future__ import annotations

import dataclasses
import re
import time

from changes import Changes, changes_made
from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE
from lab.switch import Switch
from subject import Clock, Sample, Subject
from traffics import BRIDGE_MAC, HERE, PEER, UNDERLAY, UNDERLAY_MAC, VNI, VXLAN, VXLAN_NUMBER, Port

FLOW_LIMIT = 200_000


class SwitchSubject(Subject):
    def start(self) -> Switch:
        """A daemon without bridges."""
        raise NotImplementedError

    def interface(self, port: Port) -> list[str]:
        """Settings of its row in the database."""
        raise NotImplementedError

    def sample(self, seconds: float) -> Sample:
        raise NotImplementedError

    def installed(self) -> int:
        """Megaflows where they are meant to be."""
        return len({flow.ufid for flow in stats.megaflows(self.switch)})

    def begin(self) -> None:
        self.namespace = self.workspace.namespace("switch")
        self.switch = self.start()
        # Idle megaflows stay: nothing but the traffic decides.
        self.switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000",
                          f"other_config:flow-limit={FLOW_LIMIT}")
        self.add_bridges()
        self.switch.appctl("upcall/set-flow-limit", str(FLOW_LIMIT))
        for port in reversed(self.traffic.ports):   # sinks first
            self.switch.vsctl("add-port", port.bridge, port.name, "--", "set", "interface", port.name,
                              *self.interface(port), f"ofport_request={port.number}")
        if self.traffic.tunnel:
            self.add_tunnel()
        for megaflow in self.traffic.unmet:
            self.switch.appctl("dpctl/add-flow", *megaflow.format(**self.datapath_ports()).split(" "))
        wait_until(lambda: self.installed() >= self.traffic.installed, 60, f"{self.traffic.installed} megaflows",
                   interval=0.5)

    def add_bridges(self) -> None:
        for bridge, rules in self.traffic.rules().items():
            # Secure: a megaflow of NORMAL from the first moments would keep simple match away.
            mac = UNDERLAY_MAC if bridge == UNDERLAY else BRIDGE_MAC
            self.switch.vsctl("add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev",
                              "fail_mode=secure", f"other_config:hwaddr={quoted(mac)}")
            if bridge == BRIDGE and self.traffic.meter:
                self.switch.ofctl("-O", "OpenFlow13", "add-meter", bridge, f"meter=1,{self.traffic.meter}")
            (self.switch.folder / "rules").write_text("\n".join(rules) + "\n")
            self.switch.ofctl("-O", "OpenFlow13", "add-flows", bridge, str(self.switch.folder / "rules"))

    def add_tunnel(self) -> None:
        self.namespace.run(["ip", "address", "add", f"{HERE}/24", "dev", UNDERLAY])
        self.namespace.run(["ip", "link", "set", UNDERLAY, "up"])
        self.switch.vsctl("add-port", BRIDGE, VXLAN, "--", "set", "interface", VXLAN, "type=vxlan",
                          f"options:remote_ip={PEER}", f"options:key={VNI}", f"ofport_request={VXLAN_NUMBER}")
        wait_until(lambda: HERE in self.switch.appctl("tnl/ports/show", "-v"), 10, "the tunnel's address")

    def datapath_ports(self) -> dict[str, int]:
        """Numbers by names."""
        found = re.findall(r"port (\d+): (\S+)", self.switch.appctl("dpctl/show"))
        return {name: int(number) for number, name in found}

    def measure(self, seconds: float) -> Sample:
        still = self.sample(seconds)
        if not self.traffic.changes:
            return still
        with Changes(self.switch, self.traffic.changes, str(self.datapath_ports()["sink"])):
            before, begin = self.changed(), time.monotonic()
            sample = self.sample(seconds)
            after, took = self.changed(), time.monotonic() - begin
        return dataclasses.replace(sample, changes_per_second=(after - before) / took,
                                   left=sample.packets_per_second / still.packets_per_second)

    def changed(self) -> int:
        """Megaflows that have come or gone where they are meant to be."""
        return changes_made(self.switch)

    def clock(self) -> Clock:
        assert self.switch.daemon is not None
        return Clock(self.switch.daemon.pid, self.threads)

    def finish(self) -> str:
        left = self.installed()
        return "" if left >= self.traffic.installed else f"{left} of {self.traffic.installed} megaflows are left"


def quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
