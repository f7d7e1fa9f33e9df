"""What the host itself sends by OVS's own port with other_config:userspace-tso-enable=true: its kernel leaves checksums
to be made and TCP to be cut, and what leaves a dr port is whole."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from typing import Iterator

import pytest
from helpers import figure
from lab.capture import Capture
from lab.command import run, wait_until
from lab.lab import BRIDGE, Lab
from lab.traffic import send_by_tcp
from lab.workspace import Workspace
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

pytestmark = pytest.mark.dr_only

HOST, PORT, MTU = "10.99.0.100", 5020, 1500
DATA = os.urandom(1 << 20)


@pytest.fixture
def host_lab(workspace: Workspace) -> Iterator[Lab]:
    """OVS reads the option once, before its first bridge."""
    made = Lab(workspace, dpdk_port="net_af_packet,gro=0")
    made.wire_all(vms=1, uplink=False)
    made.nic.write()
    workspace.defer(made.switch.stop)
    made.switch.start_database()
    made.switch.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:userspace-tso-enable=true",
                      "other_config:hw-offload=true")
    made.switch.start_daemon()
    made.add_bridge()
    made.namespace.run(["ip", "address", "add", f"{HOST}/24", "dev", BRIDGE])
    made.namespace.run(["ip", "link", "set", BRIDGE, "up"])
    yield made


def from_host(frames: list[bytes]) -> list[Ether]:
    packets = [Ether(frame) for frame in frames]
    return [packet for packet in packets if IP in packet and packet[IP].src == HOST]


def bad_checksums(lab: Lab, packets: list[Ether]) -> str:
    """By tshark, which has no part in making them."""
    file = lab.workspace.folder / "host.pcap"
    wrpcap(str(file), packets)
    checks = [word for protocol in ("ip", "tcp", "udp") for word in ("-o", f"{protocol}.check_checksum:TRUE")]
    wrong = " or ".join(f"{protocol}.checksum.status == 0" for protocol in ("ip", "tcp", "udp"))
    return run(["tshark", "-r", str(file), *checks, "-Y", wrong])


def counted(lab: Lab, event: str) -> int:
    found = re.search(rf"^{event}\s.*total: (\d+)", lab.switch.appctl("coverage/show"), re.MULTILINE)
    return int(found[1]) if found else 0


def test_what_the_host_sends_leaves_whole(host_lab: Lab) -> None:
    [guest] = host_lab.guests
    with Capture(guest.namespace, guest.device) as seen:
        received = send_by_tcp(host_lab.namespace, guest.namespace, guest.address, DATA)
        assert hashlib.sha256(received).digest() == hashlib.sha256(DATA).digest()
        with host_lab.namespace.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            for size in (1, 2, 1000):
                datagrams.sendto(bytes(size), (guest.address, PORT))
        seen.settle()
    packets = from_host(seen.frames)
    by_tcp, by_udp = ([each for each in packets if protocol in each] for protocol in (TCP, UDP))
    payload = sum(len(each[TCP].payload) for each in by_tcp)
    # A thread's counts are told when it next looks at the time.
    wait_until(lambda: counted(host_lab, "dr_segmented") > 0, 10, "packets have been cut")
    longest, segmented = max(each[IP].len for each in packets), counted(host_lab, "dr_segmented")
    figure(f"{payload} bytes by TCP in {len(by_tcp)} packets, the longest of {longest} bytes; {segmented} were cut")
    assert len(by_udp) == 3
    assert payload >= len(DATA) and longest <= MTU
    assert 0 < segmented < len(by_tcp)
    assert bad_checksums(host_lab, packets) == ""
    assert counted(host_lab, "dr_unfinished") == counted(host_lab, "netdev_send_prepare_drops") == 0
