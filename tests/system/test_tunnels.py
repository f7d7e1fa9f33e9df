"""Tunnels: what leaves through one is encapsulated in the NIC, as stock OVS would encapsulate it.

br-int has the VMs and the tunnel ports, br-phy the uplink and the tunnels' own address. The other end is a namespace
behind the uplink.
"""

from __future__ import annotations

import errno
import json
import random
import re
import socket
import time
from dataclasses import dataclass
from typing import Sequence

import pytest
from helpers import figure
from lab import stats, traffic
from lab.command import wait_until
from lab.lab import Guest, Lab
from lab.workspace import Workspace
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether

INTEGRATION, UNDERLAY = "br0", "br-phy"
HERE, PEER = "172.31.0.1", "172.31.0.2"
HERE_6, PEER_6 = "fd31::1", "fd31::2"
FAR_MAC, FAR = "02:0d:00:00:0f:09", "10.99.0.9"   # behind the tunnel
SOURCE_PORTS = range(32768, 61000)
REFORMAT = "mlx5dv_dr_action_create_packet_reformat"


class Tunnelled(Lab):
    """VMs on br-int, the uplink on br-phy, where this end of the tunnels has its address."""

    def add_bridge(self, fail_mode: str = "standalone") -> None:
        vms = [guest for guest in self.guests if guest.name != "uplink"]
        for bridge, guests in ((INTEGRATION, vms), (UNDERLAY, [self.uplink])):
            ports = [word for guest in guests for word in ("--", *self._addition_to(bridge, guest))]
            self.switch.vsctl("add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev",
                              f"fail_mode={fail_mode}", "other_config:disable-in-band=true", *ports)
            for guest in guests:
                self._wait_for(guest)
        # Addresses by hand: the underlay's bridge answers no ARP for an exact count.
        self.namespace.run(["ip", "address", "add", f"{HERE}/24", "dev", UNDERLAY])
        self.namespace.run(["ip", "address", "add", f"{HERE_6}/64", "dev", UNDERLAY, "nodad"])
        self.namespace.run(["ip", "link", "set", UNDERLAY, "up"])
        self.switch.add_flows(UNDERLAY, ["actions=NORMAL"])
        for address in (PEER, PEER_6):
            self.switch.appctl("tnl/neigh/set", UNDERLAY, address, self.uplink.mac)
        self.uplink.namespace.run(["ip", "address", "add", f"{PEER}/24", "dev", self.uplink.device])

    def _addition_to(self, bridge: str, guest: Guest) -> list[str]:
        words = self._addition(guest)
        words[1] = bridge
        return words

    @property
    def uplink(self) -> Guest:
        return self.guest("uplink")

    def add_tunnel(self, name: str, kind: str, **options: str) -> int:
        """Its OpenFlow port."""
        settings = {"remote_ip": PEER, "key": "5", **options}
        self.switch.vsctl("add-port", INTEGRATION, name, "--", "set", "interface", name, f"type={kind}",
                          *(f'options:{key}="{value}"' for key, value in settings.items()))
        wait_until(lambda: isinstance(self.switch.interface(name, "ofport"), int), 10, f"{name} is there")
        return int(str(self.switch.interface(name, "ofport")))


def make_tunnelled(workspace: Workspace, kind: str, profile: str = "connectx-6dx",
                   daemon_arguments: Sequence[str] = (), offload: bool = True) -> Tunnelled:
    made = Tunnelled(workspace, kind=kind, profile=profile)
    made.switch.daemon_arguments += daemon_arguments
    made.wire_all(vms=2)
    made.fix_neighbours()
    made.start(offload=offload, fail_mode="secure")
    return made


@pytest.fixture
def tunnelled(workspace: Workspace, lab_kind: str) -> Tunnelled:
    return make_tunnelled(workspace, lab_kind)


def wait_offloaded(lab: Lab, count: int = 1) -> None:
    def offloaded() -> int:
        return sum(flow.layer == "dr" and "tnl_push" in flow.actions for flow in stats.megaflows(lab.switch))

    if lab.kind == "dr":
        wait_until(lambda: offloaded() >= count, 3, f"{count} megaflows with a tunnel are offloaded")


def inner_frames(source: Guest, sizes: list[int], *, tos: int = 0) -> list[bytes]:
    draw = random.Random(len(sizes))
    return [bytes(Ether(src=source.mac, dst=FAR_MAC) / IP(src=source.address, dst=FAR, tos=tos, id=number) /
                  UDP(sport=7000, dport=7001) / draw.randbytes(size)) for number, size in enumerate(sizes)]


@dataclass(frozen=True)
class Kind:
    type: str
    options: dict[str, str]
    header: str          # what comes behind the outer Ethernet, as hexadecimal digits: "...." is checked apart
    offloaded: bool = True
    tos: int = 0
    metadata: str = ""   # an option of OVN's kind (class 0x102, type 0x80, 4 bytes) with this value


#       version tos     id  flags ttl proto    addresses
IPV4 = "45 {tos} .... 0000 {df} {ttl} {proto} .... ac1f0001 ac1f0002"
UDP_HEADER = ".... {port} .... {checksum}"


def ipv4(proto: str, *, tos: str = "00", df: str = "4000", ttl: str = "40") -> str:
    return IPV4.format(tos=tos, df=df, ttl=ttl, proto=proto)


def udp(port: str, checksum: str = "0000") -> str:
    return UDP_HEADER.format(port=port, checksum=checksum)


IPV6 = "6{tos}00000 .... {proto} 40 fd310000000000000000000000000001 fd310000000000000000000000000002"

KINDS = {
    "vxlan": Kind("vxlan", {}, ipv4("11") + udp("12b5") + "08000000 00000500"),
    "vxlan on another port": Kind("vxlan", {"dst_port": "8472", "key": "1234567"},
                                  ipv4("11") + udp("2118") + "08000000 12d68700"),
    "ttl and no df": Kind("vxlan", {"ttl": "9", "df_default": "false"},
                          ipv4("11", df="0000", ttl="09") + udp("12b5") + "08000000 00000500"),
    "tos inherited": Kind("vxlan", {"tos": "inherit"}, ipv4("11", tos="b9") + udp("12b5") + "08000000 00000500",
                          tos=0xB9),
    "geneve": Kind("geneve", {}, ipv4("11") + udp("17c1") + "00006558 00000500"),
    "geneve with an option": Kind("geneve", {}, ipv4("11") + udp("17c1") + "02406558 00000500 01028001 00010003",
                                  metadata="0x10003"),
    "gre": Kind("gre", {}, ipv4("2f") + "20006558 00000005"),
    "gre without a key": Kind("gre", {"key": "0"}, ipv4("2f") + "20006558 00000000"),
    "gre over IPv6": Kind("gre", {"remote_ip": PEER_6}, IPV6.format(tos="00", proto="2f") + "20006558 00000005"),
    "vxlan with a checksum": Kind("vxlan", {"csum": "true"}, ipv4("11") + udp("12b5", "....") + "08000000 00000500",
                                  offloaded=False),
    "vxlan over IPv6": Kind("vxlan", {"remote_ip": PEER_6},
                            IPV6.format(tos="00", proto="11") + udp("12b5", "....") + "08000000 00000500",
                            offloaded=False),
    "gre with a checksum": Kind("gre", {"csum": "true"}, ipv4("2f") + "a0006558 .... 0000 00000005", offloaded=False),
    "gre with a sequence": Kind("gre", {"seq": "true"}, ipv4("2f") + "30006558 00000005 ........", offloaded=False),
}


def is_like(frame: bytes, pattern: str) -> bool:
    digits = pattern.replace(" ", "")
    return re.match(digits, frame[14:].hex()) is not None


def assert_whole(frame: bytes) -> None:
    """Lengths and checksums of the outer headers are what scapy computes."""
    packet = Ether(frame)
    again = packet.copy()
    outer = again.payload
    if isinstance(outer, IP):
        del outer.len, outer.chksum
    elif isinstance(outer, IPv6):
        del outer.plen
    if isinstance(outer.payload, UDP):
        del outer.payload.len
        if outer.payload.chksum:
            del outer.payload.chksum
    assert bytes(again) == frame, packet.show(dump=True)


@pytest.mark.parametrize("name", KINDS)
def test_leaves_as_stock_would_send_it(tunnelled: Tunnelled, name: str) -> None:
    lab, kind = tunnelled, KINDS[name]
    source = lab.guests[0]
    port = lab.add_tunnel("tun", kind.type, **kind.options)
    write = ""
    if kind.metadata:
        lab.switch.ofctl("add-tlv-map", INTEGRATION, "{class=0x102,type=0x80,len=4}->tun_metadata0")
        write = f"set_field:{kind.metadata}->tun_metadata0,"
    lab.switch.add_flows(INTEGRATION, [f"in_port=1,actions={write}output:{port}"])
    draw = random.Random(name)
    frames = inner_frames(source, [draw.randrange(18, 1300) for _ in range(200)], tos=kind.tos)
    with lab.uplink.capture() as seen:
        traffic.send_frames(source.namespace, source.device, frames[:1])
        if kind.offloaded:
            wait_offloaded(lab)
        for start in range(1, len(frames), 10):
            traffic.send_frames(source.namespace, source.device, frames[start:start + 10])
            time.sleep(0.01)
        seen.settle()
    outer = [frame for frame in seen.frames if is_like(frame, kind.header)]
    assert len(outer) == len(frames), {frame[14:80].hex() for frame in seen.frames}
    size = len(bytes.fromhex(re.sub(r"[^0-9a-f]", "0", kind.header.replace(" ", "")))) + 14
    assert [frame[size:] for frame in outer] == frames
    for frame in outer:
        assert_whole(frame)
        packet = Ether(frame)
        assert packet.dst == lab.uplink.mac
        if kind.type != "gre":
            assert packet[UDP].sport in SOURCE_PORTS
    assert len({frame[6:12] for frame in outer}) == 1
    if lab.kind == "dr":
        assert (stats.slow_path(lab.switch).received < 20) == kind.offloaded
    wait_until(lambda: stats.openflow_counts(lab.switch, INTEGRATION, "in_port=1") ==
               (len(frames), sum(map(len, frames))), 8, "counts")
    where = "the first in software, the rest in the NIC" if kind.offloaded else "all in software"
    figure(f"{name}: {len(frames)} packets, {where}")


def test_each_tunnel_of_a_flood_has_its_own_header(tunnelled: Tunnelled) -> None:
    lab = tunnelled
    source, target = lab.guests[:2]
    ports = [lab.add_tunnel(f"vx{key}", "vxlan", key=str(key)) for key in (10, 11)]
    ports += [lab.add_tunnel("gre12", "gre", key="12")]
    lab.switch.add_flows(INTEGRATION, [
        f"in_port=1,actions=output:{ports[0]},output:2,mod_dl_src:{FAR_MAC},output:{ports[1]},output:{ports[2]}"])
    frames = inner_frames(source, [random.Random(5).randrange(18, 1300) for _ in range(100)])
    with target.capture() as at_target, lab.uplink.capture() as seen:
        traffic.send_frames(source.namespace, source.device, frames[:1])
        wait_offloaded(lab)
        for frame in frames[1:]:
            traffic.send_frames(source.namespace, source.device, [frame])
            time.sleep(0.002)
        seen.settle()
    rewritten = [frame[:6] + bytes.fromhex(FAR_MAC.replace(":", "")) + frame[12:] for frame in frames]
    inside = {"vxlan": [], "gre": []}
    for frame in seen.frames:
        for kind, offset in (("vxlan", 50), ("gre", 42)):
            if is_like(frame, ipv4("11" if kind == "vxlan" else "2f")):
                assert_whole(frame)
                inside[kind].append((frame[offset - 4:offset].hex(), frame[offset:]))
    expected = [("00000a00", frame) for frame in frames] + [("00000b00", frame) for frame in rewritten]
    assert sorted(inside["vxlan"]) == sorted(expected)
    assert sorted(inside["gre"]) == sorted(("0000000c", frame) for frame in rewritten)
    assert [frame for frame in at_target.frames if frame in frames] == frames
    if lab.kind == "dr":
        assert stats.slow_path(lab.switch).received < 20
    figure(f"{len(frames)} packets, each to a VM and through three tunnels with headers of their own")


@pytest.mark.parametrize("profile", ["connectx-5", "connectx-6dx", "connectx-7"])
def test_the_underlay_has_tags_of_its_own(workspace: Workspace, lab_kind: str, profile: str) -> None:
    lab = make_tunnelled(workspace, lab_kind, profile)
    source = lab.guests[0]
    port = lab.add_tunnel("tun", "vxlan")
    lab.switch.vsctl("set", "port", UNDERLAY, "tag=30")
    lab.switch.add_flows(INTEGRATION, [f"in_port=1,actions=mod_vlan_vid:7,output:{port}"])
    frames = inner_frames(source, [100] * 60)
    with lab.uplink.capture() as seen:
        traffic.send_frames(source.namespace, source.device, frames[:1])
        wait_offloaded(lab)
        traffic.send_frames(source.namespace, source.device, frames[1:])
        seen.settle()
    tagged = [Ether(frame) for frame in seen.frames if UDP in Ether(frame)]
    assert len(tagged) == len(frames)
    for frame, packet in zip(frames, tagged):
        assert packet[Dot1Q].vlan == 30
        outer = bytes(packet)[:12] + bytes(packet)[16:]
        assert_whole(outer)
        assert is_like(outer, KINDS["vxlan"].header)
        assert outer[50:] == frame[:12] + bytes.fromhex("81000007") + frame[12:]
    if lab.kind == "dr":
        assert stats.slow_path(lab.switch).received < 20
    wait_until(lambda: stats.openflow_counts(lab.switch, INTEGRATION, "in_port=1") ==
               (len(frames), sum(map(len, frames))), 8, "counts")
    figure(f"{profile}: {len(frames)} packets with a tag inside the tunnel and another outside")


def test_a_header_that_the_device_did_not_take_is_tried_again(tunnelled: Tunnelled) -> None:
    lab = tunnelled
    if lab.kind != "dr":
        pytest.skip("stock has no device")
    source = lab.guests[0]
    port = lab.add_tunnel("tun", "vxlan")
    lab.switch.add_flows(INTEGRATION, [f"in_port=1,actions=output:{port}"])
    lab.nic.drnic("fault", REFORMAT, str(errno.ENOMEM), "1")
    frames = inner_frames(source, [100] * 20)
    with lab.uplink.capture() as seen:
        traffic.send_frames(source.namespace, source.device, frames[:10])
        wait_offloaded(lab)
        traffic.send_frames(source.namespace, source.device, frames[10:])
        seen.settle()
    failed = [row for row in json.loads(lab.switch.appctl("dr/explain", "--json"))["reasons"]
              if row["reason"] == "device error" and REFORMAT in row["detail"]]
    assert [row["total"] for row in failed] == [1], failed
    assert [frame[50:] for frame in seen.frames if is_like(frame, KINDS["vxlan"].header)] == frames


def test_what_becomes_too_large_is_dropped(tunnelled: Tunnelled) -> None:
    lab = tunnelled
    source = lab.guests[0]
    port = lab.add_tunnel("tun", "vxlan")
    lab.switch.add_flows(INTEGRATION, [f"in_port=1,actions=output:{port}"])
    largest = 1500 - 36 - 42   # the uplink's MTU, what is outside but for Ethernet, what is inside
    with lab.uplink.capture() as seen:
        traffic.send_frames(source.namespace, source.device, inner_frames(source, [10]))
        wait_offloaded(lab)
        traffic.send_frames(source.namespace, source.device, inner_frames(source, [largest, largest + 1, 1472, 20]))
        seen.settle()
    assert sorted(len(frame) for frame in seen.frames if is_like(frame, KINDS["vxlan"].header)) == [102, 112, 1514]


def test_talks_with_the_kernels_vxlan(tunnelled: Tunnelled) -> None:
    lab = tunnelled
    source, peer = lab.guests[0], lab.uplink
    lab.add_tunnel("tun", "vxlan")
    lab.switch.add_flows(INTEGRATION, ["actions=NORMAL"])
    source.namespace.run(["ip", "link", "set", source.device, "mtu", "1400"])
    peer.namespace.run(["ip", "link", "add", "vxlan0", "address", FAR_MAC, "type", "vxlan", "id", "5", "dstport",
                        "4789", "local", PEER, "remote", HERE, "dev", peer.device])
    peer.namespace.run(["ip", "address", "add", f"{FAR}/24", "dev", "vxlan0"])
    peer.namespace.run(["ip", "link", "set", "vxlan0", "up", "mtu", "1400"])
    # That the uplink's own address lies in the same subnet is no way to it.
    peer.namespace.run(["ip", "address", "flush", "dev", peer.device, "to", "10.99.0.0/24"])
    source.namespace.run(["ip", "neigh", "flush", "dev", source.device], check=False)
    result = traffic.ping(source.namespace, FAR, count=5)
    assert result.received >= 4, result
    result = traffic.ping(peer.namespace, source.address, count=3)
    assert result.received == result.sent, result
    with peer.namespace.entered():
        sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sink.bind((FAR, 7001))
    with sink, traffic.Stream(source.namespace, source.device, source_mac=source.mac, target_mac=FAR_MAC,
                              source=source.address, target=FAR, rate=3000, size=200, limit=None) as sender:
        wait_offloaded(lab)
        time.sleep(0.5)
        before, sent = stats.slow_path(lab.switch).received, sender.sent
        time.sleep(4)
        after, sent = stats.slow_path(lab.switch).received, sender.sent - sent
    share = (after - before) / sent
    if lab.kind == "dr":
        assert share <= 0.001, f"{after - before} of {sent}"
    both = [traffic.iperf(client, server, address, lab.workspace.folder, seconds=2)
            for client, server, address in ((source.namespace, peer.namespace, FAR),
                                            (peer.namespace, source.namespace, source.address))]
    assert all(each.megabits_per_second > 10 for each in both), both
    figure(f"kernel's vxlan: {sent} packets sent, {after - before} of them in software; TCP there "
           f"{both[0].megabits_per_second:.0f} Mb/s, back {both[1].megabits_per_second:.0f} Mb/s")


@pytest.mark.dr_only
def test_source_ports_as_stock_has_them_are_to_be_had(tunnelled: Tunnelled) -> None:
    lab = tunnelled
    source = lab.guests[0]
    port = lab.add_tunnel("tun", "vxlan")
    lab.switch.add_flows(INTEGRATION, [f"in_port=1,actions=output:{port}"])
    # Streams of their own, which OVS tells apart by their ports.
    frames = [traffic.udp_frame(source.mac, FAR_MAC, source.address, FAR, number.to_bytes(4, "big") * 9,
                                source_port=1000 + number) for number in range(100)]

    def source_ports() -> set[int]:
        with lab.uplink.capture() as seen:
            traffic.send_frames(source.namespace, source.device, frames)
            seen.settle()
        outer = [Ether(frame) for frame in seen.frames if is_like(frame, KINDS["vxlan"].header)]
        assert len(outer) == len(frames)
        return {packet[UDP].sport for packet in outer}

    def setting(value: str) -> None:
        lab.switch.vsctl("set", "Open_vSwitch", ".", f"other_config:dr-tunnel-source-port={value}")

    def offloaded() -> bool:
        return any(flow.layer == "dr" for flow in stats.megaflows(lab.switch))

    traffic.send_frames(source.namespace, source.device, frames[:1])
    wait_offloaded(lab)
    assert len(source_ports()) == 1, "the megaflow's"
    setting("exact")
    wait_until(lambda: not offloaded(), 3, "the megaflow is in software")
    assert len(source_ports()) > 90
    assert "dr-tunnel-source-port=exact" in lab.switch.appctl("dr/explain")
    setting("flow")
    wait_offloaded(lab)
    assert len(source_ports()) == 1
    setting("exakt")
    wait_until(lambda: not offloaded(), 3, "what is unclear is not done")
    message = "other_config:dr-tunnel-source-port=exakt is neither flow nor exact: taken as exact"
    wait_until(lambda: lab.switch.vsctl("show").count(message) == len(lab.guests), 5, "each dr port shows the error")
    setting("flow")
    wait_until(lambda: "exakt" not in lab.switch.vsctl("show"), 5, "the error goes")
    wait_offloaded(lab)
