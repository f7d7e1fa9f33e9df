"""What the switch counted, out of the text of the stock tools."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .switch import Switch


@dataclass(frozen=True)
class SlowPath:
    """dpif-netdev's own counts, summed over its threads. `received` are packets that came up from a port."""

    received: int
    recirculated: int
    hits: int
    upcalls: int


def slow_path(switch: Switch) -> SlowPath:
    """Counts since the daemon started (dpif-netdev/pmd-stats-show)."""
    text = switch.appctl("dpif-netdev/pmd-stats-show")

    def total(label: str) -> int:
        return sum(map(int, re.findall(rf"^\s*{re.escape(label)}:\s+(\d+)", text, re.MULTILINE)))

    hits = sum(total(label) for label in ("phwol hits", "mfex opt hits", "simple match hits", "emc hits", "smc hits",
                                          "megaflow hits"))
    return SlowPath(total("packets received"), total("packet recirculations"), hits,
                    total("miss with success upcall") + total("miss with failed upcall"))


@dataclass(frozen=True)
class Megaflow:
    """One line of dpctl/dump-flows -m."""

    ufid: str
    match: str
    actions: str
    packets: int
    bytes: int
    offloaded: str  # "yes", "no", "partial"
    layer: str      # dp:
    text: str = field(repr=False)


def megaflows(switch: Switch, *, kind: str | None = None) -> list[Megaflow]:
    """Megaflows of the datapath; kind is "offloaded", "ovs", ... as dpctl's type= takes it."""
    arguments = ["dpctl/dump-flows", "-m", *([f"type={kind}"] if kind else [])]
    return [parsed for line in switch.appctl(*arguments).splitlines() if (parsed := _megaflow(line))]


def _megaflow(line: str) -> Megaflow | None:
    ufid = re.search(r"ufid:([0-9a-f-]+)", line)
    counts = re.search(r"packets:(\d+), bytes:(\d+)", line)
    if not ufid or not counts:
        return None
    match = line[ufid.end():counts.start()].strip(", ")
    actions = re.split(r", dp-extra-info:", line.rsplit("actions:", 1)[-1])[0]
    offloaded = re.search(r"offloaded:(\w+)", line)
    layer = re.search(r"\bdp:(\S+?)(,|$)", line)
    return Megaflow(ufid.group(1), match, actions, int(counts.group(1)), int(counts.group(2)),
                    offloaded.group(1) if offloaded else "no", layer.group(1) if layer else "", line)


def openflow_counts(switch: Switch, bridge: str, match: str = "") -> tuple[int, int]:
    """Packets and bytes of the OpenFlow flows that `match` selects, summed."""
    text = switch.ofctl("dump-flows", "--no-names", bridge, *([match] if match else []))
    packets = sum(map(int, re.findall(r"n_packets=(\d+)", text)))
    return packets, sum(map(int, re.findall(r"n_bytes=(\d+)", text)))


@dataclass(frozen=True)
class PortCounts:
    """The switch's view of a port: received came from the guest, sent went to it."""

    received_packets: int
    received_bytes: int
    sent_packets: int
    sent_bytes: int
    dropped: int   # and erroneous, both ways


def port_counts(switch: Switch, bridge: str, port: str) -> PortCounts:
    """From OpenFlow's port statistics, which are read when asked for (the database's copy is some seconds old)."""
    text = switch.ofctl("dump-ports", bridge, port)

    def number(side: str, label: str) -> int:
        found = re.search(rf"\b{side} [^\n]*?\b{label}=(\d+)", text)
        return int(found.group(1)) if found else 0

    return PortCounts(number("rx", "pkts"), number("rx", "bytes"), number("tx", "pkts"), number("tx", "bytes"),
                      sum(number(side, kind) for side in ("rx", "tx") for kind in ("drop", "errs")))
