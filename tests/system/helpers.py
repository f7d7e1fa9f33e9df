"""What several system tests say in the same words."""

from __future__ import annotations

import re

from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import Stream, ping, send_frames
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

WITHIN = 1.0   # seconds in which traffic must follow what OpenFlow says
ROUNDS = 1.2   # seconds in which the revalidators look twice at every flow


def figure(text: str) -> None:
    """Each test shows what it measured."""
    print(f"\nFIGURE {text}", flush=True)


def stream(source: Guest, target: Guest, *, rate: float = 500, size: int = 100, limit: int | None = None) -> Stream:
    return Stream(source.namespace, source.device, source_mac=source.mac, target_mac=target.mac,
                  source=source.address, target=target.address, rate=rate, size=size, limit=limit)


def is_offloaded(lab: Lab, source: Guest) -> bool:
    """A megaflow from this guest runs in the NIC."""
    return any(flow.offloaded == "yes" and flow.layer == "dr" and f"in_port({source.port})" in flow.match
               for flow in stats.megaflows(lab.switch))


def wait_offloaded(lab: Lab, source: Guest) -> float:
    if lab.kind != "dr":
        return 0.0
    return wait_until(lambda: is_offloaded(lab, source), WITHIN, f"a megaflow from {source.name} is offloaded")


def wait_counts(lab: Lab, match: str, packets: int, size: int) -> None:
    """OpenFlow's counts reach the number that was sent (the revalidator brings them up) and do not pass it."""
    expected = (packets, size)
    try:
        wait_until(lambda: stats.openflow_counts(lab.switch, BRIDGE, match) == expected, 8, "counts")
    except TimeoutError:
        pass
    assert stats.openflow_counts(lab.switch, BRIDGE, match) == expected


def add_sflow(lab: Lab, bridge: str, one_of: int) -> None:
    """To a collector on the lab's loopback."""
    lab.switch.vsctl("--", "--id=@s", "create", "sflow", "agent=lo", 'targets="127.0.0.1:6343"', "header=128",
                     f"sampling={one_of}", "polling=0", "--", "set", "bridge", bridge, "sflow=@s")


def assert_reaches(source: Guest, target: Guest, count: int = 3) -> None:
    result = ping(source.namespace, target.address, count=count)
    assert result.received == result.sent, f"{source.name} to {target.name}: {result}"


def assert_alive(lab: Lab) -> None:
    assert lab.switch.daemon is not None and lab.switch.daemon.running(), lab.switch.messages()
    lab.switch.appctl("version", timeout=5)


def received_by_threads(lab: Lab) -> list[int]:
    """Packets that each thread of the datapath has received, main thread's last."""
    text = lab.switch.appctl("dpif-netdev/pmd-stats-show")
    return [int(count) for count in re.findall(r"^\s+packets received: (\d+)", text, re.MULTILINE)]


def introduce_threads(lab: Lab, bridge: str, ofport: int, sender: Guest) -> None:
    """Lets each new PMD thread have its first upcall alone, by packets that the NIC spreads over the port's queues.

    Where two threads have theirs at the same instant OVS drops one's packets (datapath_drop_lock_error): a thread's
    part of the lock is made then, and not waited for.
    """
    unused = 253
    match = f"in_port={ofport},ip,nw_proto={unused}"
    lab.switch.add_flows(bridge, [f"priority=60000,{match},actions=LOCAL"])
    for host in range(1, 17):
        before = sum(received_by_threads(lab))
        frame = Ether(src=sender.mac, dst="02:00:00:00:00:fe") / IP(dst=f"192.0.2.{host}", proto=unused)
        send_frames(sender.namespace, sender.device, [bytes(frame).ljust(60, b"\0")])
        wait_until(lambda: sum(received_by_threads(lab)) > before, 5, "a thread has received the packet")
    lab.switch.ofctl("--strict", "del-flows", bridge, f"priority=60000,{match}")
    wait_until(lambda: f"proto={unused}" not in lab.switch.appctl("dpctl/dump-flows"), 30, "their megaflows are gone")


def tcp_sum(frame: bytes) -> int:
    """Ones' complement sum over pseudo header and segment: 0xFFFF when the checksum is right."""
    header_size = (frame[14] & 15) * 4
    total = int.from_bytes(frame[16:18], "big")
    segment = frame[14 + header_size:14 + total]
    data = frame[26:34] + b"\0\x06" + len(segment).to_bytes(2, "big") + segment
    data += b"\0" * (len(data) % 2)
    value = sum(int.from_bytes(data[at:at + 2], "big") for at in range(0, len(data), 2))
    while value >> 16:
        value = (value & 0xFFFF) + (value >> 16)
    return value
