"""Which reasons for not offloading are right for traffic of OVS's own tests, and why.

Offloaded are: in_port, Ethernet, VLAN (two tags), IPv4, IPv6, TCP, UDP, ICMP, fragments, TTL and TOS to outputs,
push_vlan, pop_vlan and drop. A reason that is not listed here is a flow within that vocabulary that did not get into
the NIC.
"""

from __future__ import annotations

import re

# Reason as dr/explain names it, what its detail begins with (a regular expression), why it may be.
ALLOWED = [
    ("recirculation", r"recirc_id$", "recirculated packets stay in software"),
    ("unsupported match", r"(arp_|nd_|ct_|tun_|mpls|nsh|dp_hash|skb_|pkt_mark|conj|regs?\b|metadata|packet_type)",
     "no such field in the vocabulary"),
    ("unsupported match", r"nw_proto$", "of IPv6 extension headers, which the device steps over"),
    ("unsupported match", r"eth_type$", "of LLC frames and third tags, which the device parses differently"),
    ("unsupported match", r"nw_frag$",
     "the device has one bit for both kinds of fragments, which have no transport fields"),
    ("unsupported action", r"(ct|recirc|userspace|set|set_masked|sample|meter|trunc|clone|hash|push_mpls|pop_mpls|"
     r"add_mpls|push_eth|pop_eth|push_nsh|pop_nsh|ct_clear|tunnel_push|tunnel_pop|tnl_push|tnl_pop|"
     r"check_pkt_len|lb_output|drop)\b",
     "no such action in the vocabulary"),
    ("in_port not offloaded", r"", "the packet came from a port that is no dr port: LOCAL, a tap, a tunnel"),
    ("output not offloaded", r"", "the packet goes to a port that is no dr port: LOCAL, a tap, a tunnel; or back"),
]


def why_allowed(reason: str, detail: str) -> str | None:
    """Why it may stay in software; None when it should have been offloaded."""
    for allowed, pattern, why in ALLOWED:
        if reason == allowed and re.match(pattern, detail):
            return why
    return None
