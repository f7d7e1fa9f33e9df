"""What the soft NIC says (stats and limits, datapath/control/commands.hpp), as metrics."""

from __future__ import annotations

from typing import Any

from families import Families, Kind, counter, gauge

QUESTIONS = "stats", "limits"
VPORT = "device", "vport", "name"
OBJECTS = "device", "resource"
QUEUE = "device", "vport", "name", "port", "queue"

VPORT_COUNTERS = (
    ("received_packets", "receive_packets", "Packets that the eSwitch delivered to who is behind the vport."),
    ("received_bytes", "receive_bytes", "Bytes that the eSwitch delivered to who is behind the vport."),
    ("sent_packets", "transmit_packets", "Packets that came from who is behind the vport."),
    ("sent_bytes", "transmit_bytes", "Bytes that came from who is behind the vport."),
)
# Member of a vport's statistics, and what the label says.
VPORT_DROPS = (("receive_drops", "receive"), ("send_drops", "send"), ("oversize", "oversize"), ("down", "down"),
               ("overruns", "overrun"))

KINDS: dict[str, Kind] = {
    **{f"ovsdr_softnic_vport_{name}": counter(text, *VPORT) for _, name, text in VPORT_COUNTERS},
    "ovsdr_softnic_vport_dropped_packets": counter("Packets that were dropped at a vport.", *VPORT, "cause"),
    "ovsdr_softnic_dropped_packets": counter("Packets that were dropped in the eSwitch.", "device", "cause"),
    "ovsdr_softnic_flow_cache_hits": counter("Packets that a flow cache knew the way of.", "device"),
    "ovsdr_softnic_flow_cache_misses": counter("Packets that walked the tables.", "device"),
    "ovsdr_softnic_worker_seconds": counter("What a worker did with its time: busy with packets, polling (idle), or "
                                            "asleep.", "worker", "state"),
    "ovsdr_softnic_worker_sleeps": counter("How often a worker went to sleep.", "worker"),
    "ovsdr_softnic_queue_busy_seconds": counter("Time that a worker has spent on packets of a receive queue.", *QUEUE),
    "ovsdr_softnic_queue_worker": gauge("The worker that polls a receive queue.", *QUEUE),
    "ovsdr_softnic_buffers": gauge("Packet buffers of a pool.", "pool", "state"),
    "ovsdr_softnic_objects": gauge("Objects that a device has.", *OBJECTS),
    "ovsdr_softnic_objects_limit": gauge("Objects that a device has room for; absent without a limit.", *OBJECTS),
}


def _device(families: Families, device: dict[str, Any]) -> None:
    name = device["name"]
    for vport in device["vports"]:
        labels = name, vport["vport"], vport["name"]
        for member, metric, _ in VPORT_COUNTERS:
            families.put(f"ovsdr_softnic_vport_{metric}", vport[member], *labels)
        for member, cause in VPORT_DROPS:
            families.put("ovsdr_softnic_vport_dropped_packets", vport[member], *labels, cause)
    drops = dict(device["drops"])
    if "cotenant" in device:
        drops["cotenant_queue_full"] = device["cotenant"]["queue_full"]
    for cause, packets in drops.items():
        families.put("ovsdr_softnic_dropped_packets", packets, name, cause)
    families.put("ovsdr_softnic_flow_cache_hits", device["flow_cache"]["hits"], name)
    families.put("ovsdr_softnic_flow_cache_misses", device["flow_cache"]["misses"], name)


def put(families: Families, stats: dict[str, Any], limits: dict[str, Any]) -> None:
    """Of the answers to QUESTIONS."""
    for device in stats["devices"]:
        _device(families, device)
    for number, worker in enumerate(stats["workers"]):
        for state in ("busy", "idle", "asleep"):
            seconds = worker[f"{state}_cycles"] / stats["cycles_per_second"]
            families.put("ovsdr_softnic_worker_seconds", seconds, number, state)
        families.put("ovsdr_softnic_worker_sleeps", worker["sleeps"], number)
        for queue in worker["queues"]:
            labels = queue["device"], queue["vport"], queue["name"], queue.get("port", ""), queue["queue"]
            seconds = queue["busy_cycles"] / stats["cycles_per_second"]
            families.put("ovsdr_softnic_queue_busy_seconds", seconds, *labels)
            families.put("ovsdr_softnic_queue_worker", number, *labels)
    for name, pool in stats["memory"].items():
        families.put("ovsdr_softnic_buffers", pool["free"], name, "free")
        families.put("ovsdr_softnic_buffers", pool["buffers"] - pool["free"], name, "used")
    for device in limits["devices"]:
        for resource, row in device["limits"].items():
            families.put("ovsdr_softnic_objects", row["taken"], device["name"], resource)
            if row["most"] is not None:
                families.put("ovsdr_softnic_objects_limit", row["most"], device["name"], resource)
