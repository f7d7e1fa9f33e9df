#!/usr/bin/python3
"""Tunnels by scapy: frames before and behind an encapsulation, for tunnel_vector_test.cpp.

    tunnel_vectors.py           writes data/tunnel_vectors.csv and data/field_vectors.csv
    tunnel_vectors.py --check   compares them with the files that are there; 77 (skipped) where scapy is missing

A row of field_vectors.csv: its name; a frame; whether it has the Geneve option of class 0x102 and type 0x80 with four
bytes of data, and that; the inner packet's source (its last 32 bits) and protocol, 0 where there is none.

A row of tunnel_vectors.csv: its name; the kind (l2: the whole frame is carried, l3: its IP packet); the frame; the
header as an application gives it, with lengths and checksums 0; the frame on the wire with scapy's lengths and
checksums. UDP's checksum is 0 on the wire.
"""

import sys
from pathlib import Path

try:
    from scapy.contrib.geneve import GENEVE, GeneveOptions
    from scapy.contrib.gtp import GTP_U_Header, GTPPDUSessionContainer
    from scapy.layers.inet import ICMP, IP, TCP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import GRE, Dot1Q, Ether
    from scapy.layers.vxlan import VXLAN
    from scapy.packet import Raw
except ImportError:
    print("skipped: no scapy (package python3-scapy)")
    sys.exit(77)

DATA = Path(__file__).resolve().parent / "data"
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
        "geneve_options": udp(6081) / GENEVE(vni=1, proto=0x6558,
                                             options=GeneveOptions(classid=0x102, type=0x80, data=b"12345678")),
        "nvgre": GRE(proto=0x6558, key_present=1, key=0x12345677),
        "gre_version_1": GRE(proto=0x6558, version=1, key_present=1, key=0x12345678),
    },
    "l3": {
        "gre": {4: GRE(proto=0x0800), 6: GRE(proto=0x86DD)},
        "gre_version_1": {4: GRE(proto=0x0800, version=1, key_present=1, key=0x12345678),
                          6: GRE(proto=0x86DD, version=1, key_present=1, key=0x12345678)},
        "gre_all": {4: GRE(proto=0x0800, key_present=1, key=7, seqnum_present=1, sequence_number=9),
                    6: GRE(proto=0x86DD, key_present=1, key=7, seqnum_present=1, sequence_number=9)},
        "geneve": {4: udp(6081) / GENEVE(vni=5, proto=0x0800), 6: udp(6081) / GENEVE(vni=5, proto=0x86DD)},
        "gtpu": dict.fromkeys((4, 6), udp(2152) / GTP_U_Header(teid=0x1020304, gtp_type=255)),
        "gtpu_session": dict.fromkeys(
            (4, 6), udp(2152) / GTP_U_Header(teid=5, gtp_type=255, E=1) / GTPPDUSessionContainer(type=1, QFI=9)),
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
    outers = {"ipv4": L2 / IPV4, "ipv4_options": L2 / IPV4_OPTIONS, "ipv6": L2 / IPV6,
              "tagged": L2 / Dot1Q(vlan=7) / IPV4}
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


def option(data: bytes, classid: int = 0x102, kind: int = 0x80) -> GeneveOptions:
    return GeneveOptions(classid=classid, type=kind, data=data)


def field_rows():
    inner = INNER["udp"]
    packet = inner.getlayer(IP)
    source, protocol = int.from_bytes(bytes(packet)[12:16], "big"), packet.proto
    options = {
        "none": ([], 0),
        "alone": ([option(b"\x12\x34\x56\x78")], 0x12345678),
        "behind": ([option(b"", 1, 2), option(b"12345678", 0x102, 0x81), option(b"\xaa\xbb\xcc\xdd")], 0xAABBCCDD),
        "twice": ([option(b"\1\1\1\1"), option(b"\2\2\2\2")], 0x1010101),
        "longer": ([option(b"\1\1\1\1\1\1\1\1")], 0),
        "other_class": ([option(b"\1\1\1\1", 0x103)], 0),
        "other_type": ([option(b"\1\1\1\1", 0x102, 0x00)], 0),
    }
    for outer_name, outer in {"ipv4": L2 / IPV4, "ipv6": L2 / IPV6}.items():
        for name, (list_of, data) in options.items():
            frame = outer / udp(6081) / GENEVE(vni=1, proto=0x6558, options=list_of) / Raw(bytes(inner))
            yield f"{outer_name}_geneve_{name},{bytes(frame).hex()},{int(data != 0)},{data:#x},{source:#x},{protocol}"
        headers = {
            "plain": (GTP_U_Header(teid=1, gtp_type=255), True),
            "numbered": (GTP_U_Header(teid=1, gtp_type=255, S=1, seq=7), True),
            "session": (GTP_U_Header(teid=1, gtp_type=255, E=1) / GTPPDUSessionContainer(type=0, QFI=3), True),
            "end_marker": (GTP_U_Header(teid=1, gtp_type=254), False),
        }
        for name, (header, carries) in headers.items():
            frame = outer / udp(2152) / header / Raw(bytes(packet))
            inside = (source, protocol) if carries else (0, 0)
            yield f"{outer_name}_gtpu_{name},{bytes(frame).hex()},0,0x0,{inside[0]:#x},{inside[1]}"


def main() -> int:
    files = {
        "tunnel_vectors.csv": ("name,kind,frame,header,written", rows()),
        "field_vectors.csv": ("name,frame,option exists,its data,inner source,inner protocol", field_rows()),
    }
    different = 0
    for name, (columns, lines) in files.items():
        text = f"# Made by tunnel_vectors.py (scapy): {columns}\n" + "\n".join(lines) + "\n"
        if sys.argv[1:] != ["--check"]:
            (DATA / name).write_text(text, encoding="ascii")
        elif text != (DATA / name).read_text(encoding="ascii"):
            print(f"{name} is not what scapy makes")
            different = 1
    return different


if __name__ == "__main__":
    sys.exit(main())
