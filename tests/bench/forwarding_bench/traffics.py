"""The rows: frames in a pcap file that net_pcap repeats for ever, and the OpenFlow rules that carry them.

A row is an entry of TRAFFICS, the same for each switch; how a switch makes ports, bridges and tunnels of it is told
elsewhere.
"""

from __future__ import annotations

import ipaddress
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools" / "lib"))

from lab.lab import BRIDGE  # noqa: E402
from lab.softnic import UPLINK  # noqa: E402
from lab.traffic import udp_frame  # noqa: E402

SOURCE_MAC, SINK_MAC = "02:0d:00:00:00:01", "02:0d:00:00:00:02"
BRIDGE_MAC, UNDERLAY_MAC = "02:0d:00:00:00:66", "02:0d:00:00:00:77"
TARGET = "192.168.0.1"
SOURCES = ipaddress.IPv4Address("10.0.0.0")
CHANGING = ipaddress.IPv4Address("10.128.0.0")   # and up: sources of megaflows that come and go, of no packet
SMALL = (64,)                                    # bytes of each frame in turn, without FCS
IMIX = (60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60)   # 7 x 64, 4 x 594 and 1 x 1518 with FCS

UNDERLAY = "br-phy"                              # the bridge of the uplink, with this end's address of the tunnel
VXLAN, VXLAN_NUMBER, VXLAN_PORT = "vx0", 9, "vxlan_sys_4789"   # its name, OpenFlow's number, the datapath's name
HERE, PEER, VNI = "172.31.0.1", "172.31.0.2", 5


@dataclass(frozen=True)
class Port:
    """A port with a sink gives the row's frames for ever. The others take everything, and give nothing."""

    name: str
    number: int              # of OpenFlow, and of the vport
    sink: int = 0            # the port where its packets go
    bridge: str = BRIDGE

    @property
    def vport(self) -> int:
        return UPLINK if self.bridge == UNDERLAY else self.number


SOURCE, SINK = Port("source", 1, sink=2), Port("sink", 2)
# Sources first: workers take ports in turn.
TWO_PAIRS = (Port("source", 1, sink=3), Port("source2", 2, sink=4), Port("sink", 3), Port("sink2", 4))


@dataclass(frozen=True)
class Traffic:
    """`tuples` UDP 5-tuples in turn. How OVS classifies them follows from the match."""

    name: str
    tuples: int
    megaflows: int = 1                      # several: one for each source address
    match: str = ""                         # beside in_port. Nothing: OVS's simple match, by in_port and Ethernet type
    actions: str = "output:{sink}"
    sizes: tuple[int, ...] = SMALL
    meter: str = ""                         # meter 1
    changes: int = 0                        # megaflows that come or go in a second, other ones than packets meet
    ports: tuple[Port, ...] = (SOURCE, SINK)
    queues: int = 1                         # of each source, which each gives all frames, to a thread of its own
    tunnel: bool = False                    # a VXLAN port. What an uplink sends is in VXLAN then
    unmet_rules: tuple[str, ...] = ()       # of ports that send nothing
    unmet: tuple[str, ...] = ()             # megaflows that no packet meets, as dpctl takes them; {PORT}: its number

    @property
    def sources(self) -> list[Port]:
        return [port for port in self.ports if port.sink]

    def sink_of(self, source: Port) -> Port:
        return next(port for port in self.ports if port.number == source.sink)

    @property
    def out_of_tunnel(self) -> bool:
        return self.sources[0].bridge == UNDERLAY

    @property
    def installed(self) -> int:
        """Megaflows that there are once it runs, without those that come and go."""
        return (self.megaflows + self.out_of_tunnel) * len(self.sources) + len(self.unmet)

    def frames(self) -> list[bytes]:
        """With several megaflows the tuples differ in the source address, otherwise in address and port."""
        made = []
        for number in range(self.tuples):
            source = str(SOURCES + (number if self.megaflows > 1 else number // 100))
            port = 1000 if self.megaflows > 1 else 1000 + number % 100
            made.append(udp_frame(SOURCE_MAC, SINK_MAC, source, TARGET,
                                  bytes(self.sizes[number % len(self.sizes)] - 42), source_port=port))
        return [in_vxlan(frame, number) for number, frame in enumerate(made)] if self.out_of_tunnel else made

    def rules(self) -> dict[str, list[str]]:
        """By bridge. What is sent meets one rule in each bridge that it passes."""
        matches = [self.match] if self.megaflows == 1 else [
            f"ip,nw_src={SOURCES + number}" for number in range(self.megaflows)]
        rules = {BRIDGE: [f"in_port={port.number},{match} actions={self.actions.format(sink=port.sink)}"
                          for port in self.sources if port.bridge == BRIDGE for match in matches]}
        rules[BRIDGE] += self.unmet_rules
        if self.changes:
            source = self.sources[0]
            rules[BRIDGE].append(f"in_port={source.number},ip,nw_src={CHANGING}/9 actions=output:{source.sink}")
        if self.tunnel:
            rules[BRIDGE].append(f"in_port={VXLAN_NUMBER},actions=output:2")
            rules[UNDERLAY] = ["actions=LOCAL"]
        return rules


def changing(number: int) -> str:
    """One of the megaflows that come and go, as dpctl takes it: of the mask of those that packets meet."""
    return (f"recirc_id(0),in_port(source),packet_type(ns=0,id=0),eth(),eth_type(0x0800),"
            f"ipv4(src={CHANGING + number},frag=no)")


def in_vxlan(frame: bytes, number: int) -> bytes:
    """From the tunnel's other end; the source port depends on `number`, as it does on a hash of the frame's headers."""
    return udp_frame(SOURCE_MAC, UNDERLAY_MAC, PEER, HERE, struct.pack("!II", 0x08000000, VNI << 8) + frame,
                     source_port=32768 + number % 16384, target_port=4789)


NOT_SIMPLE = "udp,nw_dst=192.168.0.0/16"
FIVE_TUPLE = "nw_src=10.9.9.9,nw_dst=192.168.0.1,tp_src=1000,tp_dst=7001"
METERED = "meter:1,output:{sink}"
# It drops nothing: its rate is forty times what flows.
WIDE_METER = "pktps,burst,bands=type=drop,rate=1000000000,burst_size=16000000"

TRAFFICS = [
    Traffic("1 tuple, 1 megaflow, simple match", 1),
    Traffic("10k tuples, 1 megaflow, simple match", 10_000),
    Traffic("100k tuples, 1 megaflow, simple match", 100_000),
    Traffic("10k tuples, 1 megaflow, no simple match", 10_000, match=NOT_SIMPLE),
    Traffic("10k megaflows", 10_000, megaflows=10_000),
    Traffic("100k tuples, 1 megaflow, no simple match", 100_000, match=NOT_SIMPLE),
    Traffic("100k tuples, beside a 5-tuple of another port", 100_000, ports=(SOURCE, SINK, Port("other", 3)),
            unmet_rules=(f"in_port=3,udp,{FIVE_TUPLE},actions=output:2",),
            unmet=("recirc_id(0),in_port(other),packet_type(ns=0,id=0),eth(),eth_type(0x0800),"
                   "ipv4(src=10.9.9.9,dst=192.168.0.1,proto=17,frag=no),udp(src=1000,dst=7001) {sink}",)),
    Traffic("100k tuples, beside a VXLAN port", 100_000, tunnel=True,
            ports=(SOURCE, SINK, Port("uplink", 3, bridge=UNDERLAY)),
            unmet=(f"recirc_id(0),in_port(uplink),packet_type(ns=0,id=0),eth(dst={UNDERLAY_MAC}),eth_type(0x0800),"
                   f"ipv4(dst={HERE},proto=17,frag=no),udp(dst=4789) tnl_pop({{{VXLAN_PORT}}})",
                   f"recirc_id(0),tunnel(tun_id={VNI:#x},src={PEER},dst={HERE},tos=0,ttl=64/0,flags(-df-csum+key)),"
                   f"in_port({VXLAN_PORT}),packet_type(ns=0,id=0),eth(),eth_type(0x0800),ipv4(frag=no) {{sink}}")),
    Traffic("10k tuples out of VXLAN", 10_000, tunnel=True, ports=(Port("uplink", 1, sink=2, bridge=UNDERLAY), SINK)),
    Traffic("10k tuples, routed", 10_000, match=NOT_SIMPLE,
            actions="mod_dl_src:02:0d:00:00:0f:01,mod_dl_dst:02:0d:00:00:0f:02,dec_ttl,output:{sink}"),
    Traffic("10k tuples, metered", 10_000, match=NOT_SIMPLE, actions=METERED, meter=WIDE_METER),
    Traffic("10k megaflows, 1,000 changes a second", 10_000, megaflows=10_000, changes=1_000),
    Traffic("10k megaflows, 10,000 changes a second", 10_000, megaflows=10_000, changes=10_000),
    Traffic("10k tuples, IMIX", 10_000, match=NOT_SIMPLE, sizes=IMIX),
    Traffic("10k tuples, 1,500 bytes", 10_000, match=NOT_SIMPLE, sizes=(1500,)),
    Traffic("10k tuples on each of two pairs, two threads", 10_000, match=NOT_SIMPLE, ports=TWO_PAIRS),
    Traffic("10k tuples on one pair, two threads", 10_000, match=NOT_SIMPLE, queues=2),
]

# What takes little time and has most of what rows are made of.
SMOKE = [
    next(traffic for traffic in TRAFFICS if traffic.out_of_tunnel),
    Traffic("100 megaflows, metered, 1,000 changes a second", 100, megaflows=100, changes=1_000, actions=METERED,
            meter=WIDE_METER),
]


def write_pcap(path: Path, frames: list[bytes]) -> None:
    """At least 64 frames: net_pcap hands out whole bursts."""
    repeated = frames * max(1, -(-64 // len(frames)))
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for frame in repeated:
            file.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
