"""RoCEv2 between two processes, each with a soft NIC of its own: rdma-core's examples in two namespaces, unmodified.

The uplinks are the two ends of a veth pair that carries nothing else; the examples' own TCP connection has another
pair. Oracles: the examples' exit codes, tshark's dissection of what was on the wire, and the ICRC of each packet by
scapy.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from pathlib import Path

import pytest
from helpers import figure
from lab.capture import Capture
from lab.command import Background, CommandError, run
from lab.namespace import make_veth
from lab.rdma_host import Node, join_controls
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

# The GID index that a soft NIC gives each of its addresses: 0 is the link-local one.
GIDS = {"link-local": 0, "ipv4": 1, "ipv6": 2}
EXAMPLES = {"ibv_rc_pingpong": ["-n", "200"], "ibv_uc_pingpong": ["-n", "200"],
            "ibv_ud_pingpong": ["-n", "200", "-s", "512"], "ibv_srq_pingpong": ["-n", "200", "-q", "8"],
            "ibv_xsrq_pingpong": ["-n", "200"]}


@pytest.fixture
def nodes(workspace: Workspace) -> tuple[Node, Node]:
    one, two = Node(workspace, 1), Node(workspace, 2)
    make_veth(one.namespace, one.uplink, two.namespace, two.uplink, mac="02:00:00:00:77:01")
    join_controls(one, two)
    for node in (one, two):
        node.configure()
    return one, two


def await_listener(server: Node, background: Background) -> None:
    """Until the server listens, or has ended: its NIC takes its time to start."""
    deadline = time.monotonic() + 20
    while background.running() and time.monotonic() < deadline:
        if server.namespace.run(["ss", "-Hltn", "sport", "=", ":18515"]):
            return
        time.sleep(0.1)


def pingpong(nodes: tuple[Node, Node], example: str, *arguments: str, timeout: float = 60) -> str:
    """Runs server and client; both must end well. Returns what the client said."""
    server, client = nodes
    background = server.start(example, *arguments)
    try:
        await_listener(server, background)
        said = client.run(example, *arguments, server.control_address, timeout=timeout)
        code = background.wait(20)
        assert code == 0, f"{example}: the server ended with {code}:\n{background.output()}"
        return said
    except CommandError as error:
        raise AssertionError(f"{error}\nserver: {background.output()}") from error
    finally:
        background.stop()


def bandwidth(said: str) -> str:
    return next((line for line in said.splitlines() if "Mbit/sec" in line), "no figure")


@pytest.mark.parametrize("kind", GIDS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_rdma_core_run_between_two_namespaces(nodes: tuple[Node, Node], example: str, kind: str) -> None:
    said = pingpong(nodes, example, "-g", str(GIDS[kind]), *EXAMPLES[example])
    figure(f"{example} {kind}: {bandwidth(said)}")


def icrc_is_right(frame: bytes) -> bool:
    """By scapy's contrib.roce; for IPv6, which that does not know, by the specification's words (IBTA A17.3.3) and
    zlib."""
    from scapy.contrib.roce import BTH
    from scapy.layers.l2 import Ether

    if frame[12:14] == b"\x86\xdd":
        covered = bytearray(frame[14:-4])
        covered[0] |= 0x0F
        for at in (1, 2, 3, 7, 46, 47, 52):  # traffic class, flow label, hop limit, UDP checksum, BTH's reserved byte
            covered[at] = 0xFF
        return zlib.crc32(b"\xff" * 8 + covered).to_bytes(4, "little") == frame[-4:]
    packet = Ether(frame)
    bth = packet[BTH]
    sent = bth.icrc
    bth.icrc = None
    rebuilt = bytes(packet)
    return rebuilt[-4:] == sent.to_bytes(4, "big") and rebuilt == frame[:len(rebuilt)]


def test_the_wire_is_rocev2(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    """tshark dissects every packet, scapy agrees with every ICRC, and the packets are those of the transfer."""
    from scapy.utils import wrpcap
    from scapy.layers.l2 import Ether

    frames: list[bytes] = []
    with Capture(nodes[0].namespace, nodes[0].uplink) as left, Capture(nodes[1].namespace, nodes[1].uplink) as right:
        for kind in ("ipv4", "ipv6"):
            pingpong(nodes, "ibv_rc_pingpong", "-g", str(GIDS[kind]), "-n", "20", "-s", "4096")
        pingpong(nodes, "ibv_ud_pingpong", "-g", str(GIDS["ipv4"]), "-n", "20", "-s", "512")
        left.settle()
        right.settle()
        frames = left.frames + right.frames
    capture = tmp_path / "roce.pcap"
    wrpcap(str(capture), [Ether(frame) for frame in frames])
    fields = ["frame.protocols", "infiniband.bth.opcode", "infiniband.bth.psn", "udp.dstport", "_ws.malformed"]
    said = run(["tshark", "-r", str(capture), "-T", "fields", *(f"-e{field}" for field in fields)], timeout=60)
    rows = [line.split("\t") for line in said.splitlines() if line.startswith("eth")]
    roce = [row for row in rows if "infiniband" in row[0]]
    assert not [row for row in rows if len(row) > 4 and row[4]], "malformed"
    opcodes = {int(row[1], 0) for row in roce}
    # SEND first, middle, last (4096 bytes in 1024), the acknowledgement, the datagram.
    assert {0x00, 0x01, 0x02, 0x11, 0x64} <= opcodes
    assert all(row[3] == "4791" for row in roce)
    others = [row[0] for row in rows if "infiniband" not in row[0]]
    assert all(re.search(r"arp|icmpv6", protocols) for protocols in others), others
    wrong = [frame for frame in frames if is_rocev2(frame) and not icrc_is_right(frame)]
    assert not wrong, f"{len(wrong)} of {len(roce)} ICRCs, the first: {wrong[0].hex()}"
    figure(f"RoCEv2 on the wire: {len(roce)} packets, opcodes {sorted(map(hex, opcodes))}, ICRC right in all")


def is_rocev2(frame: bytes) -> bool:
    if frame[12:14] == b"\x08\x00":
        return frame[23] == 17 and frame[36:38] == (4791).to_bytes(2, "big")
    return frame[12:14] == b"\x86\xdd" and frame[20] == 17 and frame[56:58] == (4791).to_bytes(2, "big")


def test_answers_arp_and_neighbour_solicitations_of_the_kernel(nodes: tuple[Node, Node]) -> None:
    """The kernel of the other host asks for the RoCE address, as a Linux rxe there would."""
    server, client = nodes
    client.namespace.run(["ip", "address", "add", "192.0.2.99/24", "dev", client.uplink])
    client.namespace.run(["ip", "address", "add", "2001:db8::99/64", "dev", client.uplink, "nodad"])
    background = server.start("ibv_asyncwatch", "-d", "mlx5_0")
    try:
        time.sleep(2)
        for target in ("192.0.2.1", "2001:db8::1"):
            client.namespace.run(["ping", "-c1", "-W1", target], check=False)
            said = client.namespace.run(["ip", "neighbour", "show", target])
            assert "lladdr" in said, f"{target}: {said}\n{background.output()}"
    finally:
        background.stop()


def test_an_idle_connection_costs_no_cpu(nodes: tuple[Node, Node]) -> None:
    """A server that waits for its client has its NIC up and its queue pair made."""
    background = nodes[0].start("ibv_rc_pingpong", "-g", "1")
    try:
        time.sleep(3)
        ticks = cpu_ticks(background.pid)
        time.sleep(3)
        share = (cpu_ticks(background.pid) - ticks) / os.sysconf("SC_CLK_TCK") / 3 * 100
        figure(f"idle RoCE process: {share:.1f} % of a CPU")
        assert share < 5
    finally:
        background.stop()


def cpu_ticks(pid: int) -> int:
    """Of the process behind `ip netns exec`, which replaces itself."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])
