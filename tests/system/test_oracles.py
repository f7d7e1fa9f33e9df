"""A packet reaches exactly the ports it should, as the OpenFlow rule changed it; each port has an oracle of its own."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import Any, Iterator

import pytest
from helpers import assert_reaches, figure, wait_counts, wait_offloaded
from lab.capture import Capture
from lab.command import wait_until
from lab.lab import BRIDGE, Lab
from lab.traffic import send_frames, udp_frame
from lab.workspace import Workspace

COUNT = 400


@dataclass(frozen=True)
class Case:
    actions: str
    sent_vlan: int | None = None
    # Who receives it, and with which VLAN (None: untagged).
    received: dict[str, int | None] = field(default_factory=dict)
    # Why it stays in software, where it does: what dr/explain must say.
    software: str = ""


CASES = {
    "unicast": Case("output:2", received={"vm2": None}),
    "to-the-uplink": Case("output:4", received={"uplink": None}),
    "two-outputs": Case("output:2,output:4", received={"vm2": None, "uplink": None}),
    "three-outputs": Case("output:2,output:3,output:4", received={"vm2": None, "vm3": None, "uplink": None}),
    "push": Case("push_vlan:0x8100,set_field:4196->vlan_vid,output:4", received={"uplink": 100}),
    "plain-and-push": Case("output:2,push_vlan:0x8100,set_field:4196->vlan_vid,output:4",
                           received={"vm2": None, "uplink": 100}),
    "pop": Case("pop_vlan,output:2", 5, {"vm2": None}),
    "pop-and-tagged": Case("output:3,pop_vlan,output:2", 5, {"vm3": 5, "vm2": None}),
    "tagged-as-it-is": Case("output:3", 5, {"vm3": 5}),
    "other-tag": Case("pop_vlan,push_vlan:0x8100,set_field:4103->vlan_vid,output:3", 5, {"vm3": 7}),
    "hairpin": Case("in_port", received={"vm1": None}, software="output to the in_port"),
    "drop": Case("drop"),
}


@contextlib.contextmanager
def oracles(lab: Lab) -> Iterator[dict[str, Capture]]:
    with contextlib.ExitStack() as stack:
        yield {guest.name: stack.enter_context(guest.capture()) for guest in lab.guests}


def frame(lab: Lab, vlan: int | None) -> bytes:
    first, second = lab.guests[:2]
    return udp_frame(first.mac, second.mac, first.address, second.address, b"oracle" * 20, vlan=vlan)


def send(lab: Lab, sent: bytes, software: str) -> dict[str, dict[bytes, int]]:
    """Sends the frame from vm1 COUNT times: the first four, then the rest once the rule is in the NIC (or the reason
    why not is known). Returns what each guest received."""
    first = lab.guests[0]
    with oracles(lab) as seen:
        send_frames(first.namespace, first.device, [sent] * 4)
        if software and lab.kind == "dr":
            wait_until(lambda: software in lab.switch.appctl("dr/explain"), 1, f"dr/explain says: {software}")
        else:
            wait_offloaded(lab, first)
        for _ in range((COUNT - 4) // 12):
            send_frames(first.namespace, first.device, [sent] * 12)
        for capture in seen.values():
            capture.settle()
        return {name: dict(capture.count()) for name, capture in seen.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_frame_reaches_exactly_its_ports(lab: Lab, name: str) -> None:
    case = CASES[name]
    tagged = ",vlan_vid=0x1000/0x1000" if case.sent_vlan is not None else ""
    lab.switch.ofctl("add-flow", "-OOpenFlow13", BRIDGE, f"in_port=1{tagged},actions={case.actions}")
    sent = frame(lab, case.sent_vlan)
    received = send(lab, sent, case.software)
    expected = {guest.name: {frame(lab, case.received[guest.name]): COUNT} if guest.name in case.received else {}
                for guest in lab.guests}
    assert received == expected
    wait_counts(lab, "in_port=1", COUNT, COUNT * len(sent))
    figure(f"{name}: {COUNT} frames to {', '.join(case.received) or 'nobody'}, none elsewhere")


def cotenant(lab: Lab) -> dict[str, Any]:
    return json.loads(lab.nic.drnic("stats", "--json"))["devices"][0]["cotenant"]


@pytest.mark.dr_only
def test_the_cotenant_is_not_touched(workspace: Workspace) -> None:
    """The soft NIC plays the kernel for two more vports and for LACP on the uplink: its traffic flows beside ours,
    and neither our rules nor our slow path take a packet of it."""
    lab = Lab(workspace)
    lab.wire_all(vms=2)
    ours = list(lab.guests)
    kernel = [lab.wire(f"kernel{vport}", vport) for vport in (11, 12)]
    lab.guests, lab.wires = ours, list(ours)   # the kernel's are no ports of the bridge
    lab.nic.cotenant = {"vports": [guest.vport for guest in kernel], "lacp": True, "period_ms": 1000}
    lab.fix_neighbours()
    lab.start(fail_mode="standalone")
    assert_reaches(kernel[0], kernel[1])
    before = cotenant(lab)
    with kernel[0].capture() as at_kernel, ours[2].capture() as at_uplink:
        assert_reaches(ours[0], ours[1], 20)
        assert_reaches(ours[0], ours[2], 20)
        assert_reaches(kernel[1], kernel[0], 20)
        strays = [seen for seen in at_kernel.frames if any(bytes.fromhex(guest.mac.replace(":", "")) in seen
                                                          for guest in ours)]
        lacp = [seen for seen in at_uplink.frames if seen[12:14] == b"\x88\x09"]
    after = cotenant(lab)
    assert not strays
    assert after["foreign"] == before["foreign"], "packets of ours reached the kernel"
    assert all(port["missed"] == 0 for port in after["vports"]), "packets of the kernel's were taken"
    assert lacp, "no LACPDU of the kernel's left by the uplink"
    addresses = {guest.address for guest in kernel}
    text = lab.switch.appctl("dpctl/dump-flows", "-m")
    assert not [address for address in addresses if address in text]
    figure(f"{len(at_kernel.frames)} frames at the kernel's vport, none of ours; {len(lacp)} LACPDUs at the uplink")
