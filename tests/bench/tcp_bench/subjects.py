"""The switches that are compared, by the names that the report has, and how one is started."""

from __future__ import annotations

from typing import Sequence

from lab.lab import BRIDGE, Lab
from lab.switch import stock_dpdk_daemon

OURS, STOCK, KERNEL = "ovs-dr", "userspace datapath", "kernel's bridge"
TSO, TSO_SLEEPS = "with userspace-tso", "with userspace-tso, pmd-maxsleep"
WITH_TSO = (TSO, TSO_SLEEPS)


def start_switch(lab: Lab, subject: str, ports: Sequence[str], settings: Sequence[str] = ()) -> None:
    """`ports`: the interfaces in the switch's namespace, for the kernel's bridge. `settings`: for OVS's database."""
    if subject == KERNEL:
        lab.namespace.run(["ip", "link", "add", BRIDGE, "up", "type", "bridge"])
        for port in ports:
            lab.namespace.run(["ip", "link", "set", port, "master", BRIDGE])
        return
    all_settings = list(settings)
    if subject in WITH_TSO:
        lab.switch.daemon_path = stock_dpdk_daemon(lab.workspace.folder)
        all_settings.append("other_config:userspace-tso-enable=true")
    if subject == OURS:
        all_settings.append("other_config:hw-offload=true")
        lab.nic.write()
    lab.workspace.defer(lab.switch.stop)
    lab.switch.start_database()
    if all_settings:
        lab.switch.vsctl("--no-wait", "set", "Open_vSwitch", ".", *all_settings)
    lab.switch.start_daemon()
    lab.add_bridge()
