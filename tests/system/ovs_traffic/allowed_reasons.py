"""Which reasons for staying in software each of OVS's own tests may have, and why.

A reason that is not listed for a test is a megaflow that should have been in the NIC: set, clone, recirculation,
tnl_push and tnl_pop are offloaded, and are reasons where something else is in the way. A test that has packets of dr
ports at all has some megaflow in the NIC (`nothing_expected`).

Numbers are those of OVS 3.1.0's system suite.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


def numbers(*ranges: int | tuple[int, int]) -> frozenset[int]:
    return frozenset(number for one in ranges
                     for number in (range(one[0], one[1] + 1) if isinstance(one, tuple) else [one]))


ANY = numbers((1, 170))
FRAGMENTS = numbers((1, 13), (77, 99), 162)     # pings of 3,200 bytes, and tests of reassembly
TUNNELS_OF_IP = numbers(162, 163, 166, 169)
MPLS = numbers((31, 38), (44, 49), 165)
NSH = numbers((158, 161))
CONNTRACK = numbers((51, 150), 152)
SELECT_GROUPS = numbers(144, 145)
WITHOUT_MEGAFLOWS = numbers(164, 167, 168, 170)  # no packet of theirs comes in by a dr port


@dataclass(frozen=True)
class Allowed:
    reason: str     # as dr/explain names it
    detail: str     # a regular expression for all of it
    tests: frozenset[int]
    why: str


ALLOWED = (
    Allowed("output not offloaded", r"output to a port that is no dr port of this device", ANY,
            "what goes to the host only: it takes part in tests of tunnels"),
    Allowed("unsupported match", r"(arp|nd)_\w+", ANY, "the device does not parse ARP and neighbour discovery"),
    Allowed("unsupported action", r"userspace", ANY, "to a controller only, or in OVS's own slow path"),
    Allowed("unsupported match", r"nw_frag", FRAGMENTS,
            "the device has one bit for both kinds of fragments, which have no transport fields"),
    Allowed("unsupported match", r"nw_proto", numbers(8, 9, (86, 96)),
            "of IPv6 extension headers, which the device steps over"),
    Allowed("unsupported action", r"set\(ipv6\) of addresses", numbers(9), "of ICMPv6, whose checksum covers them"),
    Allowed("unsupported action", r"(push|pop|add)_mpls", MPLS, "MPLS stays in software"),
    Allowed("unsupported match", r"mpls", MPLS, "MPLS stays in software"),
    Allowed("unsupported action", r"(push|pop)_nsh", NSH, "no NIC has NSH"),
    Allowed("unsupported match", r"nsh", NSH, "no NIC has NSH"),
    Allowed("unsupported action", r"(push|pop)_eth", MPLS | NSH | TUNNELS_OF_IP, "packets without Ethernet"),
    Allowed("unsupported match", r"packet_type", TUNNELS_OF_IP, "packets without Ethernet"),
    Allowed("recirculation", r"in_port is a tunnel port", numbers(169), "its tnl_pop is of packets that LOCAL sends"),
    Allowed("unsupported action", r"trunc", numbers((39, 41)), "the device cuts no packets, and there is nothing else"),
    Allowed("unsupported action", r"one action of software's twice on the same packet", numbers(39),
            "one copy of a packet is one truncated output"),
    Allowed("unsupported action", r"ct|ct_clear", CONNTRACK, "connections are tracked in software"),
    Allowed("unsupported match", r"ct_\w+", CONNTRACK, "connections are tracked in software"),
    Allowed("recirculation", r"recirc_id", CONNTRACK | numbers(48, 49, 159, 160),
            "what leads there is in software: ct, pop_mpls, pop_nsh"),
    Allowed("unsupported action", r"recirc twice to one recirc_id", numbers(100),
            "a rule leads a packet into a table once"),
    Allowed("unsupported action", r"hash", SELECT_GROUPS, "OVS hashes packets as the device does not"),
    Allowed("unsupported match", r"dp_hash", SELECT_GROUPS, "OVS hashes packets as the device does not"),
)


def why_allowed(test: int, reason: str, detail: str) -> str | None:
    """Why it may stay in software; None when it should have been offloaded."""
    return next((one.why for one in ALLOWED
                 if test in one.tests and reason == one.reason and re.fullmatch(one.detail, detail)), None)


def nothing_expected(test: int) -> bool:
    """Whether the test may end without a megaflow in the NIC."""
    return test in WITHOUT_MEGAFLOWS
