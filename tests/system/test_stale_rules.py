"""What OVS takes out or changes is taken out or changed in the NIC, whichever way OVS came by it."""

from __future__ import annotations

import pytest
from helpers import assert_alive, stream, wait_offloaded
from lab import stats, traffic
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from scapy.layers.inet import UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

pytestmark = pytest.mark.dr_only


def send(source: Guest, *frames: bytes) -> None:
    traffic.send_frames(source.namespace, source.device, frames)


def udp(source: Guest, target: Guest, port: int) -> bytes:
    return traffic.udp_frame(source.mac, target.mac, source.address, target.address, b"overlap", source_port=port)


def megaflows(lab: Lab, *words: str) -> list[stats.Megaflow]:
    """Of what the first guest sends."""
    return [flow for flow in stats.megaflows(lab.switch)
            if all(word in flow.match for word in (f"in_port({lab.guests[0].port})", *words))]


def test_a_modification_reaches_its_own_of_two_megaflows_that_overlap(lab: Lab) -> None:
    """A narrow OpenFlow rule makes megaflows narrow. They stay when it has gone, and a wide one is made beside them.
    What changes then changes for both; dpif-netdev by itself would take the one for the other."""
    source, before, after = lab.guests[:3]
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000")
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2"])
    # The wide mask is looked at first.
    send(source, bytes(Ether(src=source.mac, dst=before.mac) / IPv6(src="fe80::1", dst="fe80::2") / UDP() / b"first"))
    wait_until(lambda: bool(megaflows(lab, "eth_type(0x86dd)")), 5, "a megaflow of IPv6")
    lab.switch.add_flows(BRIDGE, ["priority=40000,in_port=1,udp,tp_src=7001,actions=drop"])
    narrow, wide = udp(source, before, 7000), udp(source, before, 9000)
    send(source, narrow)
    wait_until(lambda: any(flow.layer == "dr" for flow in megaflows(lab, "eth_type(0x0800)", "udp(src=7000,")), 5,
               "the narrow one is in the NIC")
    lab.switch.ofctl("--strict", "del-flows", BRIDGE, "priority=40000,in_port=1,udp,tp_src=7001")
    lab.switch.appctl("revalidator/wait")
    send(source, wide)
    wait_until(lambda: [flow.layer for flow in megaflows(lab, "eth_type(0x0800)")] == ["dr"] * 2, 5,
               lambda: f"both are in the NIC: {megaflows(lab)}")
    assert len(megaflows(lab, "eth_type(0x0800)", "udp(src=7000,")) == 1

    lab.switch.ofctl("mod-flows", BRIDGE, "in_port=1,actions=output:3")
    lab.switch.appctl("revalidator/wait")
    wait_until(lambda: {flow.actions for flow in megaflows(lab)} == {after.port}, 5,
               lambda: f"each outputs to {after.port}: {megaflows(lab)}")
    frames = [frame for _ in range(20) for frame in (narrow, wide)]
    with before.capture() as at_before, after.capture() as at_after:
        send(source, *frames)
        at_after.settle()
        at_before.settle()
    assert sorted(at_after.matching(b"overlap")) == sorted(frames)
    assert not at_before.matching(b"overlap")
    assert_alive(lab)


def test_ports_that_swap_their_vports_take_no_rules_along(lab: Lab) -> None:
    """In one transaction: OVS closes a port that is the datapath's still, with all its megaflows."""
    first, second, third = lab.guests[:3]
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:3", "in_port=2,actions=output:3"])
    with third.capture() as seen, stream(first, third, limit=300) as one, stream(second, third, limit=300) as two:
        wait_offloaded(lab, first)
        wait_offloaded(lab, second)
        assert one.join() == two.join() == 300
        seen.settle()
    assert len(seen.frames) >= 600
    lab.switch.vsctl("set", "interface", first.port, f"options:vport={second.vport}", "--",
                     "set", "interface", second.port, f"options:vport={first.vport}")
    for port in (first.port, second.port):
        wait_until(lambda port=port: not lab.switch.interface(port, "error")  # type: ignore[misc]
                   and lab.switch.interface(port, "link_state") == "up", 10,
                   lambda port=port: f"{port} works: {lab.switch.interface(port, 'error')}")   # type: ignore[misc]
    counted = [stats.openflow_counts(lab.switch, BRIDGE, f"in_port={port}")[0] for port in (1, 2)]
    assert counted == [300, 300], "what was counted stays counted"
    number = lab.switch.interface(first.port, "ofport")
    lab.switch.add_flows(BRIDGE, [f"in_port={number},actions=drop"])
    lab.switch.appctl("revalidator/wait")
    with third.capture() as seen, stream(second, third, limit=200) as sender:
        assert sender.join() == 200
        seen.settle()
    assert not [frame for frame in seen.frames if Ether(frame).src == second.mac], "the port's rule is to drop now"
    assert_alive(lab)
