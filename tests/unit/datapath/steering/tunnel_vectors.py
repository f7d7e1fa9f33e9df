#!/usr/bin/python3
"""Tunnels by scapy: frames before and behind an encapsulation, for tunnel_vector_test.cpp.

    tunnel_vectors.py           prints data/tunnel_vectors.csv
    tunnel_vectors.py --check   compares it with the file that is there; 77 (skipped) where scapy is missing

A row: its name; the kind (l2: the whole frame is carried, l3: its IP packet); the frame; the header as an application gives it,
with lengths and checksums 0; the frame on the wire with scapy's lengths and checksums. UDP's checksum is 0 on the wire.
"""

import sys
from pathlib import Path

try:
    from scapy.contrib.geneve import GENEVE, GeneveOptions
    from scapy.layers.inet import ICMP, IP, TCP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import GRE, Dot1Q, Ether
    from scapy.layers.vxlan import VXLAN
    from scapy.packet import Raw
except ImportError:
    print("skipped: no scapy (package python3-scapy)")
    sys.exit(77)

DATA = Path(__file__).resolve().parent / "data" / "tunnel_vectors.csv"
L2 = Ether(src="02:00:00:00:00:b1", dst="02:00:00:00:00:b2")
IPV4 = IP(src="192.0.2.1", dst="198.51.100.2", ttl=61, tos=0xB8, id=0x1234, flags="DF")
IPV4_OPTIONS = IP(src="192.0.2.1", dst="198.51.100.2", ttl=9, options=[b"\x94\x04\x00\x00"])
IPV6 = IPv6(src="2001:db8::1", dst="2001:db8::2", hlim=63, tc=0x2E, fl=0x54321)

FRAME = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
INNER = {
    "udp": FRAME / IP(src="10.1.0.1", dst="10.1.0.2") / UDP(sport=7, dport=9) / Raw(b"x" * 30),
    "tcp6": FRAME / IPv6(src="fd00::1", dst="fd00::2") / TCP(sport=80, dport=4000, flags="SA") / Raw(b"odd"),
    "tagged": FRAME / Dot1Q(vlan=100, prio=3) / IP(src="10.1.0.1", dst="10.1.0.2") / ICMP() / Raw(b"y" * 190),
    "small": Ether(src="02:00:00:00:00:01", dst="ff:ff:ff:ff:ff:ff", type=0x88B5) / Raw(b"z"),
}


def udp(port: int) -> UDP:
    return UDP(sport=0xC123, dport=port, chksum=0)


OUTER = {
    "l2": {
        "vxlan": udp(4789) / VXLAN(vni=0x123456, flags=8),
        "geneve": udp(6081) / GENEVE(vni=0xABCDEF, proto=0x6558),
        "geneve_options": udp(6081) / GENEVE(vni=1, proto=0x6558, options=GeneveOptions(classid=0x102, type=0x80, data=b"12345678")),
        "nvgre": GRE(proto=0x6558, key_present=1, key=0x12345677),
    },
    "l3": {
        "gre": {4: GRE(proto=0x0800), 6: GRE(proto=0x86DD)},
        "gre_all": {4: GRE(proto=0x0800, key_present=1, key=7, seqnum_present=1, sequence_number=9),
                    6: GRE(proto=0x86DD, key_present=1, key=7, seqnum_present=1, sequence_number=9)},
        "geneve": {4: udp(6081) / GENEVE(vni=5, proto=0x0800), 6: udp(6081) / GENEVE(vni=5, proto=0x86DD)},
    },
}


def zeroed(header: bytes) -> bytes:
    """What the device fills in, taken out again."""
    at = 18 if header[12:14] == b"\x81\x00" else 14
    out = bytearray(header)
    if out[at] >> 4 == 4:
        size, protocol = (out[at] & 15) * 4, out[at + 9]
        out[at + 2:at + 4] = out[at + 10:at + 12] = b"\0\0"
    else:
        size, protocol = 40, out[at + 6]
        out[at + 4:at + 6] = b"\0\0"
    if protocol == 17:
        out[at + size + 4:at + size + 8] = b"\0\0\0\0"
    return bytes(out)


def rows():
    outers = {"ipv4": L2 / IPV4, "ipv4_options": L2 / IPV4_OPTIONS, "ipv6": L2 / IPV6, "tagged": L2 / Dot1Q(vlan=7) / IPV4}
    for kind, tunnels in OUTER.items():
        for tunnel_name, tunnel in tunnels.items():
            for outer_name, outer in outers.items():
                for inner_name, inner in INNER.items():
                    frame = bytes(inner)
                    if kind == "l2":
                        carried, head = frame, tunnel
                    else:
                        layer = inner.getlayer(IP) or inner.getlayer(IPv6)
                        if layer is None:
                            continue
                        carried, head = bytes(layer), tunnel[layer.version]
                    written = bytes(outer / head / Raw(carried))
                    header = zeroed(written[:len(written) - len(carried)])
                    if len(header) % 2:
                        raise ValueError(f"{outer_name} {tunnel_name}: an odd header")
                    yield f"{outer_name}_{tunnel_name}_{inner_name},{kind},{frame.hex()},{header.hex()},{written.hex()}"


def main() -> int:
    text = "# Made by tunnel_vectors.py (scapy): name,kind,frame,header,written\n" + "\n".join(rows()) + "\n"
    if sys.argv[1:] != ["--check"]:
        print(text, end="")
        return 0
    same = text == DATA.read_text(encoding="ascii")
    print("as scapy makes them" if same else f"{DATA} is not what scapy makes")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
