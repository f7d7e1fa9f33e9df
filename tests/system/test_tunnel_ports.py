"""What comes in through a tunnel: taken out of it in the NIC, delivered and counted as stock OVS does.

The lab is test_tunnels.py's. The other end is a namespace behind the uplink, which sends frames of our own making, or
has a switch of its own: Debian's, with the same kind of tunnel.
"""

from __future__ import annotations

import random
import re
import signal
import socket
import threading
import time
from dataclasses import dataclass, field, replace

import pytest
from helpers import figure, introduce_threads
from lab import stats, traffic
from lab.command import wait_until
from lab.lab import Guest
from lab.switch import STOCK_DAEMON, Switch
from lab.workspace import Workspace
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from test_tunnels import (FAR, FAR_MAC, HERE, HERE_6, INTEGRATION, PEER, PEER_6, UNDERLAY, Tunnelled,
                          make_tunnelled)


@pytest.fixture
def tunnelled(workspace: Workspace, lab_kind: str) -> Tunnelled:
    return make_tunnelled(workspace, lab_kind)


@pytest.fixture
def recirculating(workspace: Workspace, lab_kind: str) -> Tunnelled:
    """With OVS's own test actions. Megaflows are read long after their last packet, on a busy host."""
    made = make_tunnelled(workspace, lab_kind, daemon_arguments=["--enable-dummy"])
    made.switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000")
    return made


@dataclass(frozen=True)
class Kind:
    type: str
    header: str                                     # between the outer IP, or UDP, and the inner frame: hexadecimal
    options: dict[str, str] = field(default_factory=dict)
    udp_port: int = 0                               # 0: GRE
    checksum: bool = False                          # of the outer UDP
    match: str = ""                                 # what the OpenFlow flow asks of the tunnel besides
    offloaded: bool = True

    @property
    def ipv6(self) -> bool:
        return self.options.get("remote_ip") == PEER_6


VXLAN_5, GENEVE_5 = "0800000000000500", "0000655800000500"
OPTION_MAP = "{class=0x102,type=0x80,len=4}->tun_metadata0"

KINDS = {
    "vxlan": Kind("vxlan", VXLAN_5, udp_port=4789),
    "vxlan with a checksum": Kind("vxlan", VXLAN_5, udp_port=4789, checksum=True),
    "vxlan over IPv6": Kind("vxlan", VXLAN_5, {"remote_ip": PEER_6}, udp_port=4789, checksum=True),
    "vxlan on another port": Kind("vxlan", VXLAN_5, {"dst_port": "8472"}, udp_port=8472, offloaded=False),
    "geneve": Kind("geneve", GENEVE_5, udp_port=6081),
    "geneve with an option": Kind("geneve", "024065580000050001028001" + "00010003", udp_port=6081,
                                  match="tun_metadata0=0x10003/0x7fff0000,"),
    "gre": Kind("gre", "2000655800000005"),
    "gre without a key": Kind("gre", "00006558", {"key": "0"}),
    "gre over IPv6": Kind("gre", "2000655800000005", {"remote_ip": PEER_6}),
}


def outside(lab: Tunnelled, kind: Kind, inner: bytes, *, source: str = PEER, source_port: int = 40000) -> bytes:
    """The packet that the other end sends."""
    protocol = 17 if kind.udp_port else 47
    ip = (IPv6(src=PEER_6, dst=HERE_6, nh=protocol) if kind.ipv6
          else IP(src=source, dst=HERE, proto=protocol, flags="DF", id=0))
    payload = bytes.fromhex(kind.header) + inner
    packet = Ether(src=lab.uplink.mac, dst=underlay_mac(lab)) / ip
    if kind.udp_port:
        packet /= UDP(sport=source_port, dport=kind.udp_port, chksum=None if kind.checksum else 0)
    return bytes(packet / payload)


def underlay_mac(lab: Tunnelled) -> str:
    return str(lab.switch.interface(UNDERLAY, "mac_in_use"))


def inner_frames(target: Guest, sizes: list[int], *, port: int = 7001) -> list[bytes]:
    draw = random.Random(len(sizes))
    return [bytes(Ether(src=FAR_MAC, dst=target.mac) / IP(src=FAR, dst=target.address, id=number % 65536) /
                  UDP(sport=7000, dport=port) / draw.randbytes(size)) for number, size in enumerate(sizes)]


def add_tunnel(lab: Tunnelled, kind: Kind, name: str = "tun") -> int:
    port = lab.add_tunnel(name, kind.type, **kind.options)
    if kind.match:
        lab.switch.ofctl("add-tlv-map", INTEGRATION, OPTION_MAP)
    return port


def deliver(lab: Tunnelled, port: int, match: str = "") -> None:
    """What comes through the tunnel goes to vm1; the underlay's flow counts what comes from the peer."""
    lab.switch.add_flows(INTEGRATION, [f"in_port={port},{match}actions=output:1"])
    for family in ("ip", "ipv6"):
        lab.switch.add_flows(UNDERLAY, [f"priority=40000,in_port={lab.ofport(lab.uplink)},{family},actions=NORMAL"])


def offloaded(lab: Tunnelled) -> list[stats.Megaflow]:
    return [flow for flow in stats.megaflows(lab.switch) if flow.layer == "dr"]


def wait_offloaded(lab: Tunnelled, children: int = 1) -> None:
    """A megaflow that takes packets out of the tunnel, and so many for what is inside."""
    def is_so() -> bool:
        flows = offloaded(lab)
        return (any("tnl_pop" in flow.actions for flow in flows)
                and sum(flow.match.count("tunnel(") for flow in flows) >= children)

    if lab.kind == "dr":
        wait_until(is_so, 10, f"a tnl_pop and {children} megaflows of the tunnel are offloaded")


def send(lab: Tunnelled, frames: list[bytes], *, pace: int = 10) -> None:
    """From the peer, so many at once."""
    for start in range(0, len(frames), pace):
        traffic.send_frames(lab.uplink.namespace, lab.uplink.device, frames[start:start + pace])
        time.sleep(0.01)


def wait_counts(lab: Tunnelled, bridge: str, match: str, expected: tuple[int, int], timeout: float = 5) -> None:
    try:
        wait_until(lambda: stats.openflow_counts(lab.switch, bridge, match) == expected, timeout, "counts")
    except TimeoutError:
        pass
    assert stats.openflow_counts(lab.switch, bridge, match) == expected, f"{bridge}, {match}"


def sizes_of(frames: list[bytes]) -> tuple[int, int]:
    return len(frames), sum(map(len, frames))


def warm_up(lab: Tunnelled, kind: Kind, inner: bytes) -> None:
    """Until both megaflows are in the NIC. One packet, for exact counts."""
    send(lab, [outside(lab, kind, inner)])
    if kind.offloaded:
        wait_offloaded(lab)


@pytest.mark.parametrize("name", KINDS)
def test_is_delivered_and_counted_as_by_stock(tunnelled: Tunnelled, name: str) -> None:
    lab, kind = tunnelled, KINDS[name]
    target = lab.guests[0]
    port = add_tunnel(lab, kind)
    deliver(lab, port, kind.match)
    draw = random.Random(name)
    inner = inner_frames(target, [draw.randrange(18, 1300) for _ in range(200)])
    outer = [outside(lab, kind, frame, source_port=33000 + number) for number, frame in enumerate(inner)]
    with target.capture() as seen:
        send(lab, outer[:1])
        if kind.offloaded:
            wait_offloaded(lab)
        send(lab, outer[1:])
        seen.settle()
    assert [frame for frame in seen.frames if frame in set(inner)] == inner
    if lab.kind == "dr":
        assert (stats.slow_path(lab.switch).received < 20) == kind.offloaded
    wait_counts(lab, INTEGRATION, f"in_port={port}", sizes_of(inner))
    wait_counts(lab, UNDERLAY, "ipv6" if kind.ipv6 else "ip", sizes_of(outer))
    where = "the first in software, the rest in the NIC" if kind.offloaded else "all in software"
    figure(f"{name}: {len(inner)} packets, {where}")


# Headers of each kind: the tunnel's own, and whether OVS takes the Ethernet frame behind it out of the tunnel. Most of
# these are such as no switch sends.
HEADERS = {
    "vxlan": {
        "0800000000000500": True, "0000000000000500": False,    # the I flag, or none
        "0c00000300000500": True, "0c00000100000500": False,    # GPE: Ethernet, IPv4
        "0c00000500000500": False, "0d00000300000500": False,   # a protocol that OVS does not know; OAM
        "2c00000300000500": True,                               # a version of GPE
        "8800000000000500": False, "1800000000000500": False, "0880000000000500": False,
        "0800000300000500": False, "0800000000000501": False,
    },
    "geneve": {
        "0000655800000500": True, "4000655800000500": False,    # versions
        "0040655800000500": True, "0080655800000500": True,     # critical options, OAM
        "003f655800000500": True, "00006558000005ff": True,     # reserved
        "0000080000000500": False,
    },
    "gre": {
        "2000655800000005": True, "3000655800000005" + "00000009": True,    # a sequence number
        "6000655800000005": False, "2800655800000005": False, "2080655800000005": False, "2001655800000005": False,
        "2000080000000005": False,
    },
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_are_read_as_by_stock(tunnelled: Tunnelled, name: str) -> None:
    """Each behind one of the usual kind, whose megaflows are in the NIC."""
    lab, kind, headers = tunnelled, KINDS[name], HEADERS[name]
    target = lab.guests[0]
    port = add_tunnel(lab, kind)
    deliver(lab, port)
    inner = inner_frames(target, [100] * (3 * len(headers) + 1))
    warm_up(lab, kind, inner[0])
    outer, expected = [outside(lab, kind, inner[0])], [inner[0]]
    with target.capture() as seen:
        for number, (header, taken) in enumerate(headers.items()):
            frames = inner[1 + 3 * number:4 + 3 * number]
            packets = [outside(lab, replace(kind, header=header), frame) for frame in frames]
            send(lab, packets)
            outer += packets
            expected += frames if taken else []
        seen.settle()
    arrived = [frame for frame in seen.frames if frame in set(inner)]
    assert sorted(arrived) == sorted(expected[1:])
    wait_counts(lab, INTEGRATION, f"in_port={port}", sizes_of(expected))
    wait_counts(lab, UNDERLAY, "ip", sizes_of(outer))
    if lab.kind == "dr":
        assert lab.switch.appctl("coverage/read-counter", "datapath_drop_hw_miss_recover").strip() == "0"
    figure(f"{name}: {sum(headers.values())} of {len(headers)} kinds of header lead to an Ethernet frame")


def test_what_misses_in_the_tunnels_table_is_counted_once_and_not_lost(tunnelled: Tunnelled) -> None:
    """The outer headers' megaflow is in the NIC, those of the inner packets are not yet, or no more."""
    lab, kind = tunnelled, KINDS["vxlan"]
    target = lab.guests[0]
    port = add_tunnel(lab, kind)
    deliver(lab, port)
    lab.switch.add_flows(INTEGRATION, [f"priority=40000,in_port={port},udp,tp_dst={7000 + number},actions=output:1"
                                       for number in range(40)])
    flows = [inner_frames(target, [100] * 5, port=7000 + number) for number in range(40)]
    warm_up(lab, kind, inner_frames(target, [90])[0])
    sent = inner_frames(target, [90])
    with target.capture() as seen:
        for turn in range(5):
            now = [frames[turn] for frames in flows]
            sent += now
            send(lab, [outside(lab, kind, frame) for frame in now], pace=40)
            if turn == 2:
                # Deleted behind OVS's back, and by OVS.
                for flow in stats.megaflows(lab.switch):
                    if "tunnel(" in flow.match and "tp_dst=7001" not in flow.match:
                        lab.switch.appctl("dpctl/del-flow", f"ufid:{flow.ufid}", check=False)
            if turn == 3:
                lab.switch.appctl("revalidator/purge")
        seen.settle()
    arrived = [frame for frame in seen.frames if frame in set(sent)]
    assert sorted(arrived) == sorted(sent[1:])
    wait_counts(lab, UNDERLAY, "ip", sizes_of([outside(lab, kind, frame) for frame in sent]))
    if lab.kind == "dr":
        assert lab.switch.appctl("coverage/read-counter", "datapath_drop_hw_miss_recover").strip() == "0"
    figure(f"{len(flows)} inner flows, {len(sent)} packets: each delivered, each counted once by the underlay")


class Steady:
    """The same packet again and again, from a thread of its own."""

    def __init__(self, lab: Tunnelled, packet: bytes, rate: int = 3000) -> None:
        self.sent = 0
        self._packet, self._interval = packet, 1 / rate
        self._end = threading.Event()
        with lab.uplink.namespace.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((lab.uplink.device, 0))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Steady":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        start = time.monotonic()
        while not self._end.is_set():
            self._socket.send(self._packet)
            self.sent += 1
            self._end.wait(max(0.0, start + self.sent * self._interval - time.monotonic()))


def test_openflow_counts_of_a_tunnel_lose_nothing_when_its_megaflows_go(tunnelled: Tunnelled) -> None:
    lab, kind = tunnelled, KINDS["geneve"]
    target = lab.guests[0]
    port = add_tunnel(lab, kind)
    deliver(lab, port)
    frame = inner_frames(target, [100])[0]
    packet = outside(lab, kind, frame)
    warm_up(lab, kind, frame)
    with Steady(lab, packet) as traffic_in:
        for _ in range(20):
            time.sleep(0.1)
            lab.switch.appctl("revalidator/purge")
    sent = 1 + traffic_in.sent
    wait_counts(lab, INTEGRATION, f"in_port={port}", (sent, sent * len(frame)))
    wait_counts(lab, UNDERLAY, "ip", (sent, sent * len(packet)))
    figure(f"{sent} packets while all megaflows were deleted 20 times: each counted once, inside and outside")


@pytest.mark.parametrize("first", ["plain", "tunnelled"])
def test_a_mixed_batch_is_sorted_by_port(tunnelled: Tunnelled, first: str) -> None:
    """ARP of the underlay goes to the switch itself, ARP inside of the tunnel to a VM: no port but its own says where a
    packet goes. None of the megaflows is of use to the NIC, which has but the tnl_pop: all come up together."""
    lab, kind = tunnelled, KINDS["vxlan"]
    target = lab.guests[0]
    port = add_tunnel(lab, kind)
    deliver(lab, port)
    lab.switch.add_flows(INTEGRATION, [f"priority=40000,in_port={port},arp,actions=output:1,LOCAL"])
    lab.switch.add_flows(UNDERLAY, [f"priority=40000,in_port={lab.ofport(lab.uplink)},arp,actions=LOCAL"])

    def request(number: int) -> bytes:
        return bytes(Ether(src=FAR_MAC, dst=target.mac) /
                     ARP(hwsrc=FAR_MAC, psrc=FAR, pdst=target.address, op=2, hwdst=f"02:00:00:00:00:{number:02x}"))

    inner = [request(number) for number in range(10)]
    plain = [request(number) for number in range(100, 110)]
    warm_up(lab, kind, inner_frames(target, [90])[0])
    send(lab, [outside(lab, kind, request(50)), request(150)])
    send(lab, [outside(lab, kind, request(50)), request(150)])
    pairs = [pair if first == "plain" else pair[::-1]
             for pair in zip(plain, (outside(lab, kind, frame) for frame in inner))]
    assert lab.switch.daemon is not None
    with target.capture() as seen:
        lab.switch.daemon.signal(signal.SIGSTOP)
        try:
            send(lab, [frame for pair in pairs for frame in pair], pace=20)
            time.sleep(0.3)
        finally:
            lab.switch.daemon.signal(signal.SIGCONT)
        seen.settle()
    assert [frame for frame in seen.frames if frame in set(inner)] == inner
    assert not [frame for frame in seen.frames if frame in set(plain)]


def test_a_recirculation_inside_of_a_tunnel(recirculating: Tunnelled) -> None:
    lab, kind = recirculating, KINDS["vxlan"]
    target = lab.guests[0]
    port = add_tunnel(lab, kind)
    lab.switch.add_flows(INTEGRATION, [f"in_port={port},udp,actions=debug_recirc,resubmit(,1)", "table=1,actions=drop",
                                       *(f"table=1,priority=40000,udp,tp_dst={7000 + number},actions=dec_ttl,output:1"
                                         for number in range(20))])
    lab.switch.add_flows(UNDERLAY, [f"priority=40000,in_port={lab.ofport(lab.uplink)},ip,actions=NORMAL"])
    flows = [inner_frames(target, [100] * 5, port=7000 + number) for number in range(20)]
    warm_up(lab, kind, flows[0][0])
    wait_offloaded(lab, 2)
    sent = [frames[turn] for turn in range(5) for frames in flows][1:]
    with target.capture() as seen:
        send(lab, [outside(lab, kind, frame) for frame in sent], pace=20)
        seen.settle()

    def expected(frame: bytes) -> bytes:
        packet = Ether(frame)
        packet[IP].ttl -= 1
        del packet[IP].chksum
        return bytes(packet)

    arrived = [frame for frame in seen.frames if Ether(frame).src == FAR_MAC]
    assert sorted(arrived) == sorted(map(expected, sent))
    wait_counts(lab, UNDERLAY, "ip", sizes_of([outside(lab, kind, frame) for frame in [flows[0][0], *sent]]))

    def steps() -> tuple[int, int]:
        """Packets at each of the two."""
        counts = [0, 0]
        for flow in stats.megaflows(lab.switch):
            if "tunnel(" in flow.match:
                counts["recirc_id(0)" not in flow.match] += flow.packets
        return counts[0], counts[1]

    # The first packet of each megaflow is not counted by it.
    def counted() -> bool:
        first, second = steps()
        return first == len(sent) and len(sent) - 20 < second <= len(sent)

    wait_until(counted, 5, lambda: f"each packet is counted once at each step: {steps()} of {len(sent)}")
    if lab.kind == "dr":
        assert any("recirc_id(0)" not in flow.match and "tunnel(" in flow.match for flow in offloaded(lab))


@pytest.mark.dr_only
def test_a_megaflow_of_two_threads_is_in_the_nic_for_both(tunnelled: Tunnelled) -> None:
    """Its first packets come in by two queues at once, and each thread has a flow for it."""
    lab, kind = tunnelled, KINDS["vxlan"]
    target, queues = lab.guests[0], 2
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=3", "other_config:pmd-maxsleep=500")
    lab.switch.vsctl("set", "interface", lab.uplink.port, f"options:n_rxq={queues}")
    wait_until(lambda: lab.switch.appctl("dpif-netdev/pmd-rxq-show").count(f"port: {lab.uplink.port} ") == queues, 10,
               f"{queues} queues")
    introduce_threads(lab, UNDERLAY, lab.ofport(lab.uplink), lab.uplink)
    port = add_tunnel(lab, kind)
    deliver(lab, port)
    inner = inner_frames(target, [100] * 640)
    outer = [outside(lab, kind, frame, source_port=33000 + number % 32) for number, frame in enumerate(inner)]

    def inside() -> list[stats.Megaflow]:
        return [flow for flow in stats.megaflows(lab.switch)
                if "tunnel(" in flow.match and "eth_type(0x0800)" in flow.match]

    with target.capture() as seen:
        send(lab, outer[:64], pace=64)
        wait_until(lambda: bool(inside()) and all(flow.layer == "dr" for flow in inside()), 5, "all are in the NIC")
        figure(f"one megaflow of the tunnel in {len(inside())} threads, each with a rule")
        assert "differs in nothing" not in lab.switch.appctl("dr/explain")
        send(lab, outer[64:], pace=64)
        seen.settle()
    assert sorted(frame for frame in seen.frames if frame in set(inner)) == sorted(inner)
    wait_counts(lab, INTEGRATION, f"in_port={port}", sizes_of(inner))
    wait_counts(lab, UNDERLAY, "ip", sizes_of(outer))


@pytest.mark.dr_only
def test_flags_that_the_nic_does_not_see_are_obeyed_where_that_is_wanted(tunnelled: Tunnelled) -> None:
    lab, kind = tunnelled, KINDS["vxlan"]
    target = lab.guests[0]
    port = add_tunnel(lab, kind)
    deliver(lab, port)
    inner = inner_frames(target, [100] * 50)
    warm_up(lab, kind, inner[0])

    def in_software() -> bool:
        return not any("tunnel(" in flow.match for flow in offloaded(lab))

    def setting(value: str) -> None:
        lab.switch.vsctl("set", "Open_vSwitch", ".", f"other_config:dr-tunnel-flags={value}")

    setting("exact")
    wait_until(in_software, 3, "what matches flags is in software")
    send(lab, [outside(lab, kind, frame) for frame in inner[1:]])
    wait_counts(lab, INTEGRATION, f"in_port={port}", sizes_of(inner))
    assert "tun_flags" in lab.switch.appctl("dr/explain")
    setting("ignore")
    wait_offloaded(lab)
    setting("maybe")
    wait_until(in_software, 3, "what is unclear is not done")
    message = "other_config:dr-tunnel-flags=maybe is neither ignore nor exact: taken as exact"
    wait_until(lambda: lab.switch.vsctl("show").count(message) == len(lab.guests), 5, "each dr port shows the error")
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:dr-tunnel-source-port=any")
    wait_until(lambda: lab.switch.vsctl("show").count(f"{message}") == len(lab.guests)
               and lab.switch.vsctl("show").count("dr-tunnel-source-port=any") == len(lab.guests), 5, "both show")
    lab.switch.vsctl("remove", "Open_vSwitch", ".", "other_config", "dr-tunnel-flags", "dr-tunnel-source-port")
    wait_until(lambda: "neither" not in lab.switch.vsctl("show"), 5, "the errors go")
    wait_offloaded(lab)


@pytest.mark.dr_only
def test_commands_know_tunnel_ports(tunnelled: Tunnelled) -> None:
    lab, kind = tunnelled, KINDS["vxlan"]
    port = add_tunnel(lab, kind)
    deliver(lab, port)
    assert re.search(r"^vxlan_sys_4789: type=vxlan odp_port=\d+ udp_port=4789$", lab.switch.appctl("dr/ports"), re.M)
    warm_up(lab, kind, inner_frames(lab.guests[0], [90])[0])
    text = lab.switch.appctl("dr/explain")
    assert re.search(r"[1-9]\d* of them from dr ports and [1-9]\d* from tunnel ports", text), text
    assert "vxlan_sys" not in text, text
    child = next(flow for flow in offloaded(lab) if "tunnel(" in flow.match)
    assert ": offloaded" in lab.switch.appctl("dr/explain", f"ufid:{child.ufid}")
    lab.switch.vsctl("del-port", "tun")
    wait_until(lambda: "vxlan_sys" not in lab.switch.appctl("dr/ports"), 5, "the port is gone")


class FarSwitch:
    """Debian's, behind the uplink: a tunnel back, and an address inside of it."""

    def __init__(self, lab: Tunnelled, kind: Kind) -> None:
        peer = lab.uplink.namespace
        folder = lab.workspace.folder / "far"
        self.switch = Switch(peer, folder, STOCK_DAEMON, daemon_arguments=["--disable-system"])
        lab.workspace.defer(self.switch.stop)
        self.switch.start()
        device = lab.uplink.device
        peer.run(["ip", "address", "flush", "dev", device])
        self.switch.vsctl("add-br", "far-phy", "--", "set", "bridge", "far-phy", "datapath_type=netdev",
                          f'other_config:hwaddr="{lab.uplink.mac}"', "--", "add-port", "far-phy", device)
        peer.run(["ip", "address", "add", f"{PEER}/24", "dev", "far-phy"])
        peer.run(["ip", "link", "set", "far-phy", "up"])
        self.switch.vsctl("add-br", "far-int", "--", "set", "bridge", "far-int", "datapath_type=netdev",
                          f'other_config:hwaddr="{FAR_MAC}"', "--", "add-port", "far-int", "back", "--", "set",
                          "interface", "back", f"type={kind.type}", f"options:remote_ip={HERE}", "options:key=5")
        peer.run(["ip", "address", "add", f"{FAR}/24", "dev", "far-int"])
        peer.run(["ip", "link", "set", "far-int", "up", "mtu", "1400"])
        self.switch.appctl("tnl/neigh/set", "far-phy", HERE, underlay_mac(lab))


@pytest.mark.parametrize("name", ["vxlan", "geneve", "gre"])
def test_two_switches_talk_through_a_tunnel(tunnelled: Tunnelled, name: str) -> None:
    lab, kind = tunnelled, KINDS[name]
    source = lab.guests[0]
    add_tunnel(lab, kind)
    lab.switch.add_flows(INTEGRATION, ["actions=NORMAL"])
    FarSwitch(lab, kind)
    source.namespace.run(["ip", "link", "set", source.device, "mtu", "1400"])
    source.namespace.run(["ip", "neigh", "flush", "dev", source.device], check=False)
    result = traffic.ping(source.namespace, FAR, count=10)
    assert result.received >= 9, result
    wait_offloaded(lab)

    def both_ways() -> bool:
        flows = offloaded(lab)
        return any("tnl_push" in flow.actions for flow in flows) and any("tunnel(" in flow.match for flow in flows)

    if lab.kind == "dr":
        wait_until(both_ways, 3, "both directions are offloaded")
    said = []
    for way, client, server, address in (("there", source.namespace, lab.uplink.namespace, FAR),
                                         ("back", lab.uplink.namespace, source.namespace, source.address)):
        counts: list[tuple[int, int]] = []

        def count_in_the_middle() -> None:
            """Without the first packets, and without the RST that answers each packet after the end: those come up."""
            counts.append(so_far(lab))
            time.sleep(2)
            counts.append(so_far(lab))

        speed = traffic.iperf(client, server, address, lab.workspace.folder, seconds=4,
                              after_first_second=count_in_the_middle)
        slow, packets = (end - begin for begin, end in zip(*counts))
        assert speed.megabits_per_second > 10, speed
        if lab.kind == "dr":
            assert slow <= max(10, 0.001 * packets), f"{way}: {slow} of {packets} packets took the slow path"
        said.append(f"{way} {speed.megabits_per_second:.0f} Mb/s, {slow} of {packets} packets in software")
    figure(f"{name}: {'; '.join(said)}")


def so_far(lab: Tunnelled) -> tuple[int, int]:
    """Packets in the slow path, and all that vm1 has sent and got."""
    counts = stats.port_counts(lab.switch, INTEGRATION, lab.guests[0].port)
    return stats.slow_path(lab.switch).received, counts.received_packets + counts.sent_packets
