"""Flows that are there when other_config:hw-offload becomes true go into the NIC without a pause of their traffic."""

from __future__ import annotations

import socket
import time

import pytest
from helpers import ROUNDS, figure, stream
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.workspace import Workspace
from scapy.layers.inet6 import ICMPv6EchoRequest, ICMPv6ND_NS, IPv6
from scapy.layers.l2 import Ether

pytestmark = pytest.mark.dr_only

OTHER_BRIDGE, OTHER_DEVICE = "br1", "mlx5_1"
DATAPATHS = ("netdev@ovs-netdev", "dummy@ovs-dummy")


def stream_flows(lab: Lab, datapath: str) -> list[str]:
    return [line for line in lab.switch.appctl("dpctl/dump-flows", "-m", datapath).splitlines() if "proto=17" in line]


def add_other_bridge(lab: Lab, guests: list[Guest]) -> None:
    """A second datapath in the same process: OVS has one of each type, and type "dummy" is dpif-netdev too."""
    lab.switch.vsctl("add-br", OTHER_BRIDGE, "--", "set", "bridge", OTHER_BRIDGE, "datapath_type=dummy",
                     "fail_mode=secure", "other_config:disable-in-band=true")
    for number, guest in enumerate(guests, 1):
        lab.switch.vsctl("add-port", OTHER_BRIDGE, guest.port, "--", "set", "interface", guest.port, "type=dr",
                         f"options:device={OTHER_DEVICE}", f"options:vport={guest.vport}", f"ofport_request={number}")


def test_flows_of_each_datapath_are_adopted(workspace: Workspace) -> None:
    lab = Lab(workspace)
    first, second, third, fourth = (lab.wire(f"vm{number}", number) for number in range(1, 5))
    lab.fix_neighbours()
    lab.nic.more_devices = [{"name": OTHER_DEVICE, "ports": lab.nic.ports[2:]}]
    del lab.nic.ports[2:], lab.wires[2:]
    lab.switch.daemon_arguments += ["--enable-dummy"]
    lab.start(offload=False, fail_mode="secure")
    add_other_bridge(lab, [third, fourth])
    for bridge in (BRIDGE, OTHER_BRIDGE):
        lab.switch.add_flows(bridge, ["in_port=1,udp,actions=output:2"])

    with stream(first, second, rate=200), stream(third, fourth, rate=200):
        for datapath in DATAPATHS:
            wait_until(lambda: len(stream_flows(lab, datapath)) == 1, 5, f"{datapath} has a flow")
        lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
        for datapath in DATAPATHS:
            wait_until(lambda: "offloaded:yes, dp:dr" in stream_flows(lab, datapath)[0], 5,
                       f"the flow of {datapath} is offloaded")
    figure("two datapaths with a flow each: both offloaded when hw-offload was turned on")


def test_a_dump_does_not_tell_what_is_matched_of_nd(workspace: Workspace) -> None:
    """A megaflow of pings that matches zero of nd_target looks there as if it were for solicitations, too."""
    lab = Lab(workspace)
    first, second = lab.wire("vm1", 1), lab.wire("vm2", 2)
    lab.fix_neighbours()
    lab.start(offload=False, fail_mode="secure")
    lab.switch.add_flows(BRIDGE, ["priority=2,in_port=1,icmp6,icmp_type=135,nd_target=fd00::bad,actions=drop",
                                  "priority=1,in_port=1,icmp6,actions=output:2"])
    head = Ether(src=first.mac, dst=second.mac) / IPv6(src="fd00::1", dst="fd00::2", hlim=255)
    request = bytes(head / ICMPv6EchoRequest(data=b"x" * 20))
    solicitation = bytes(head / ICMPv6ND_NS(tgt="fd00::bad"))
    with first.namespace.entered():
        sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with sender, second.capture() as seen:
        sender.bind((first.device, 0))

        def pings() -> list[str]:
            sender.send(request)
            time.sleep(0.05)
            return [line for line in lab.switch.appctl("dpctl/dump-flows", "-m").splitlines()
                    if "icmpv6(type=128/" in line]

        wait_until(lambda: len(pings()) == 1, 5, "a megaflow that matches a part of the type")
        lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
        deadline = time.monotonic() + ROUNDS
        while time.monotonic() < deadline:
            assert not any("dp:dr" in line for line in pings())
        sender.send(solicitation)
        seen.settle()
    assert request in seen.frames and solicitation not in seen.frames
