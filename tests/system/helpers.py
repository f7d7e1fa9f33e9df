"""What several system tests say in the same words."""

from __future__ import annotations

from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import Stream, ping

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


def assert_reaches(source: Guest, target: Guest, count: int = 3) -> None:
    result = ping(source.namespace, target.address, count=count)
    assert result.received == result.sent, f"{source.name} to {target.name}: {result}"


def assert_alive(lab: Lab) -> None:
    assert lab.switch.daemon is not None and lab.switch.daemon.running(), lab.switch.messages()
    lab.switch.appctl("version", timeout=5)
