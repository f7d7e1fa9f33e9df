"""Under a constant rate below what the ports can carry, rules that come and go lose and duplicate nothing."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Iterator

import pytest
from helpers import figure, wait_counts
from lab import build, stats
from lab.command import Background, wait_until
from lab.lab import BRIDGE, Guest, Lab

RATE = 5000   # frames per second of each stream
SECONDS = 8
SIZE = 200


@dataclass
class Load:
    """drgen beside two guests, on the ends of their veths: it accounts for each frame."""

    lab: Lab
    source: Guest
    target: Guest
    process: Background

    def report(self) -> dict[str, Any]:
        self.process.wait(SECONDS + 60)
        return json.loads((self.lab.workspace.folder / "drgen.json").read_text())


def start_load(lab: Lab, source: Guest, target: Guest, flows: int = 1) -> Load:
    """Moves the guests' ends into one namespace, where one process sees both."""
    drgen = build.drgen()
    assert drgen.exists(), f"not built: {drgen}"
    namespace = lab.workspace.namespace("drgen")
    for guest in (source, target):
        guest.namespace.run(["ip", "link", "set", guest.device, "netns", namespace.name, "name", guest.name])
        namespace.run(["ip", "link", "set", guest.name, "up"])
    process = namespace.start(
        [str(drgen), "--port", f"net_af_packet,iface={source.name}", "--port", f"net_af_packet,iface={target.name}",
         "--stream", "0:1", "--size", str(SIZE), "--flows", str(flows), "--rate", str(RATE),
         "--duration", str(SECONDS), "--src-mac", source.mac, "--dst-mac", target.mac, "--nap-us", "50",
         "--json", str(lab.workspace.folder / "drgen.json")], lab.workspace.folder / "drgen.out")
    lab.workspace.defer(process.stop)
    wait_until(lambda: stats.port_counts(lab.switch, BRIDGE, source.port).received_packets > 0, 20, "drgen's frames")
    return Load(lab, source, target, process)


def changes_while_running(lab: Lab, load: Load, commands: list[tuple[str, ...]]) -> int:
    """Runs the commands over and over while the load runs; returns how many were run."""
    done = 0
    while load.process.running():
        lab.switch.ofctl(*commands[done % len(commands)])
        done += 1
        time.sleep(0.4)
    return done


@pytest.fixture
def load_lab(lab: Lab) -> Iterator[Lab]:
    lab.switch.add_flows(BRIDGE, ["priority=1,in_port=1,actions=output:2"])
    yield lab


CHANGES = {
    # Nothing changes but the first packets' way: the slow path, then the NIC.
    "first-packets": [],
    # The rule of the traffic is modified without a change of what it does.
    "same-actions-again": [("mod-flows", BRIDGE, "in_port=1,actions=output:2")],
    # Rules of other masks come and go: the megaflow is replaced each time.
    "masks-come-and-go": [("add-flow", BRIDGE, "priority=9,in_port=1,udp,nw_src=192.0.2.77,actions=drop"),
                          ("--strict", "del-flows", BRIDGE, "priority=9,in_port=1,udp,nw_src=192.0.2.77")],
    # Another matcher in the same table comes and goes.
    "other-ports-rules": [("add-flow", BRIDGE, "priority=5,in_port=3,tcp,tp_src=80,actions=output:2"),
                          ("del-flows", BRIDGE, "in_port=3")],
}


@pytest.mark.dr_only
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("flows", [1, 200])
def test_rules_in_and_out_lose_and_duplicate_nothing(load_lab: Lab, name: str, flows: int) -> None:
    lab = load_lab
    load = start_load(lab, lab.guests[0], lab.guests[1], flows)
    done = changes_while_running(lab, load, CHANGES[name]) if CHANGES[name] else 0
    report = load.report()
    arrivals = report["streams"][0]["arrivals"][0]
    figure(f"{name}, {flows} flows: {report['sent']} frames under {done} changes: {report['lost']} lost, "
           f"{report['duplicated']} duplicated, {report['overtaken']} overtaken; "
           f"latency p99 {arrivals['latency_ns']['p99'] / 1000:.0f} us")
    assert report["sent"] > RATE * SECONDS * 0.9
    assert (report["lost"], report["duplicated"], report["corrupted"], report["stray"]) == (0, 0, 0, 0)
    wait_counts(lab, "in_port=1", report["sent"], report["sent"] * SIZE)
