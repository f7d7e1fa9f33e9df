"""Pipelines of several steps: rewriting, and recirculation with misses in the middle.

debug_recirc freezes a translation and goes on behind a recirculation, without connection tracking. It is an action of
OVS's own tests and wants --enable-dummy.
"""

from __future__ import annotations

import random
import re
import time

import pytest
from helpers import figure, stream, wait_counts
from lab import stats, traffic
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.workspace import Workspace
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet

ROUTER = "02:0d:00:00:0f:01"


@pytest.fixture
def recirculating(workspace: Workspace, lab_kind: str) -> Lab:
    """Like `lab`, with OVS's own test actions. Megaflows are read long after their last packet, on a busy host."""
    made = Lab(workspace, kind=lab_kind)
    made.switch.daemon_arguments.append("--enable-dummy")
    made.wire_all(vms=3)
    made.fix_neighbours()
    made.start(offload=True, fail_mode="secure")
    made.switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000")
    return made


def wait_offloaded(lab: Lab, count: int) -> None:
    if lab.kind == "dr":
        wait_until(lambda: sum(flow.layer == "dr" for flow in stats.megaflows(lab.switch)) >= count, 3,
                   f"{count} megaflows are offloaded")


def step_counts(lab: Lab, guest: Guest) -> list[int]:
    """Packets by step of the pipeline, ascending by recirc_id. (OpenFlow's counts stand still behind debug_recirc.)"""
    counts: dict[int, int] = {}
    for flow in stats.megaflows(lab.switch):
        behind = re.search(r"recirc_id\((0x[0-9a-f]+|0)\)", flow.match)
        if behind and f"in_port({guest.port})" in flow.match and "proto=17" in flow.match:
            recirc_id = int(behind[1], 0)
            counts[recirc_id] = counts.get(recirc_id, 0) + flow.packets
    return [counts[recirc_id] for recirc_id in sorted(counts)]


def wait_step_counts(lab: Lab, guest: Guest, expected: list[int]) -> None:
    try:
        wait_until(lambda: step_counts(lab, guest) == expected, 5, "counts")
    except TimeoutError:
        pass
    assert step_counts(lab, guest) == expected


def numbers(frames: list[bytes]) -> list[int]:
    return sorted(number for frame in frames if (number := traffic.stream_number(frame)) is not None)


def is_whole(packet: Packet) -> bool:
    """Every checksum is what scapy computes."""
    again = packet.copy()
    for layer in (IP, TCP, UDP):
        if layer in again:
            del again[layer].chksum
    return bytes(again.__class__(bytes(again))) == bytes(packet)


def l4(packet: Packet) -> Packet:
    return packet[TCP] if TCP in packet else packet[UDP]


REWRITES = {
    "routed": ("ip,udp", f"mod_dl_src:{ROUTER},mod_dl_dst:{{mac}},dec_ttl,output:2",
               lambda p: p.src == ROUTER and p[IP].ttl == 63),
    "nat": ("ip,udp", "mod_nw_src:192.0.2.1,mod_nw_dst:192.0.2.2,mod_tp_src:1234,mod_tp_dst:4321,output:2",
            lambda p: (p[IP].src, p[IP].dst, p[UDP].sport, p[UDP].dport) == ("192.0.2.1", "192.0.2.2", 1234, 4321)),
    "nat of TCP": ("ip,tcp", "mod_nw_src:192.0.2.1,mod_tp_dst:4321,output:2",
                   lambda p: (p[IP].src, p[TCP].dport) == ("192.0.2.1", 4321)),
    "DSCP": ("ip,udp", "mod_nw_tos:184,output:2", lambda p: p[IP].tos == 184),
    "tagged": ("ip,udp", "dec_ttl,mod_vlan_vid:7,output:2", lambda p: p[IP].ttl == 63 and p.vlan == 7),
    "routed IPv6": ("ipv6,udp6", f"mod_dl_src:{ROUTER},dec_ttl,output:2",
                    lambda p: p.src == ROUTER and p[IPv6].hlim == 63),
    "nat of IPv6": ("ipv6,udp6", "set_field:2001:db8::1->ipv6_src,mod_tp_dst:4321,output:2",
                    lambda p: p[IPv6].src == "2001:db8::1" and p[UDP].dport == 4321),
}


def frames_of(kind: str, source: Guest, target: Guest, count: int) -> list[bytes]:
    draw = random.Random(kind)
    made = []
    for number in range(count):
        packet = Ether(src=source.mac, dst=target.mac)
        if "ipv6" in kind:
            packet /= IPv6(src="fd00::1", dst="fd00::2", hlim=64)
        else:
            packet /= IP(src=source.address, dst=target.address, ttl=64, id=number)
        packet /= (TCP if "tcp" in kind else UDP)(sport=7000, dport=7001)
        made.append(bytes(packet / draw.randbytes(draw.randrange(20, 400))))
    return made


@pytest.mark.parametrize("name", REWRITES)
def test_a_rewritten_packet_is_whole(lab: Lab, name: str) -> None:
    kind, actions, is_right = REWRITES[name]
    source, target = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, [f"in_port=1,{kind.split(',')[1]},actions={actions.format(mac=target.mac)}"])
    frames = frames_of(kind, source, target, 200)
    with target.capture() as seen:
        traffic.send_frames(source.namespace, source.device, frames[:1])
        wait_offloaded(lab, 1)
        traffic.send_frames(source.namespace, source.device, frames[1:])
        wait_until(lambda: len(seen.frames) >= len(frames), 5, "all arrive")
        seen.settle()
    packets = [Ether(frame) for frame in seen.frames]
    assert len(packets) == len(frames)
    assert all(is_right(packet) for packet in packets), packets[-1].show(dump=True)
    assert all(is_whole(packet) for packet in packets), packets[-1].show(dump=True)
    assert sorted(bytes(l4(packet).payload) for packet in packets) == \
        sorted(bytes(l4(Ether(frame)).payload) for frame in frames)
    wait_counts(lab, f"in_port=1,{kind.split(',')[1]}", len(frames), sum(map(len, frames)))
    if lab.kind == "dr":
        assert stats.slow_path(lab.switch).received < 20
    figure(f"{name}: {len(frames)} packets, first in software, the rest in the NIC: all whole")


def test_a_chain_runs_in_the_nic(recirculating: Lab) -> None:
    lab = recirculating
    source, target = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=dec_ttl,debug_recirc,dec_ttl,debug_recirc,dec_ttl,output:2"])
    with target.capture() as seen:
        with stream(source, target, rate=2000) as sender:
            wait_offloaded(lab, 3)
            before = stats.slow_path(lab.switch).received
            time.sleep(1)
            after = stats.slow_path(lab.switch).received
        seen.settle()
    assert numbers(seen.frames) == list(range(sender.sent))
    assert {Ether(frame)[IP].ttl for frame in seen.frames} == {64 - 3}
    if lab.kind == "dr":
        assert after - before < 20
    # The packets that made a megaflow are nobody's: dpif-netdev counts from the next one on.
    wait_step_counts(lab, source, [sender.sent - 1] * 3)
    figure(f"{sender.sent} packets through three megaflows: all arrived once, changed thrice and counted once each")


def test_what_misses_in_the_middle_goes_on_there(recirculating: Lab) -> None:
    """Each UDP port has a megaflow of its own behind the recirculation: its first packet finds the table, no rule."""
    lab = recirculating
    source, target = lab.guests[:2]
    ports = random.Random(1).sample(range(1024, 65000), 600)
    lab.switch.add_flows(BRIDGE, ["table=0,in_port=1,udp,actions=dec_ttl,debug_recirc,resubmit(,1)",
                                  *(f"table=1,udp,tp_src={port},actions=mod_nw_tos:{4 * (port % 2)},output:2"
                                    for port in ports)])
    frames = [traffic.udp_frame(source.mac, target.mac, source.address, target.address, port.to_bytes(4, "big"),
                                source_port=port) for port in ports]
    with target.capture() as seen:
        traffic.send_frames(source.namespace, source.device, frames[:1])
        wait_offloaded(lab, 1)
        for start in range(1, len(frames), 50):
            traffic.send_frames(source.namespace, source.device, frames[start:start + 50])
            time.sleep(0.05)
        wait_until(lambda: len(seen.frames) >= len(frames), 10, "all arrive")
        seen.settle()
    packets = [Ether(frame) for frame in seen.frames]
    assert sorted(packet[UDP].sport for packet in packets) == sorted(ports), "each once"
    assert {(packet[IP].ttl, packet[IP].tos - 4 * (packet[UDP].sport % 2)) for packet in packets} == {(63, 0)}
    assert step_counts(lab, source)[0] == len(frames) - 1
    if lab.kind == "dr":
        assert stats.slow_path(lab.switch).received >= len(frames), "the test is about misses"
        assert stats.slow_path(lab.switch).recirculated < 20, "and they do not begin anew"
    figure(f"{len(frames)} packets that miss behind a recirculation: each arrived once, changed once")


def test_a_miss_in_the_middle_is_no_simple_match(recirculating: Lab) -> None:
    """With no megaflow behind the recirculation left, all of the port's megaflows are simple to dpif-netdev."""
    lab = recirculating
    source, target, third = lab.guests[:3]
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:3,debug_recirc,output:2"])
    frames = [traffic.udp_frame(source.mac, target.mac, source.address, target.address, bytes([number]) * 4)
              for number in range(10)]
    with target.capture() as at_target, third.capture() as at_third:
        for frame in frames:
            traffic.send_frames(source.namespace, source.device, [frame])
            wait_offloaded(lab, 2)
            for flow in stats.megaflows(lab.switch):
                if "recirc_id(0)" not in flow.match:
                    lab.switch.appctl("dpctl/del-flow", f"ufid:{flow.ufid}")
        at_target.settle()
        at_third.settle()
    for seen in (at_target, at_third):
        assert [frame[-4:] for frame in seen.frames if UDP in Ether(frame)] == [frame[-4:] for frame in frames]
    if lab.kind == "dr":
        assert stats.slow_path(lab.switch).recirculated < 5, "the first packets only: the others do not begin anew"
    figure(f"{len(frames)} packets whose megaflow behind the recirculation had gone: each arrived once")


def test_a_chain_loses_nothing_when_its_rules_change(recirculating: Lab) -> None:
    """The megaflow behind the recirculation, and then the one in front of it, are replaced while they are hit."""
    lab = recirculating
    source, target, third = lab.guests[:3]
    lab.switch.add_flows(BRIDGE, ["table=0,in_port=1,udp,actions=dec_ttl,debug_recirc,resubmit(,1)",
                                  "table=1,udp,actions=output:2"])
    with target.capture() as at_target, third.capture() as at_third:
        with stream(source, target, rate=2000) as sender:
            wait_offloaded(lab, 2)
            for turn in range(6):
                time.sleep(0.5)
                lab.switch.ofctl("mod-flows", BRIDGE, f"table=1,udp,actions=output:{2 + (turn + 1) % 2}")
            for turn in range(4):
                time.sleep(0.5)
                first = "dec_ttl," * (1 + turn % 2)
                lab.switch.ofctl("mod-flows", BRIDGE,
                                 f"table=0,in_port=1,udp,actions={first}debug_recirc,resubmit(,1)")
            time.sleep(0.5)
        at_target.settle()
        at_third.settle()
    assert numbers(at_target.frames + at_third.frames) == list(range(sender.sent))
    figure(f"{sender.sent} packets under ten changes of a chain: all arrived once")
