"""What ovs-vswitchd says (dr/metrics, dr/ports -j, dr/copies -j and dr/mirror -j: ctrl/metrics.h, report.cpp,
copies.cpp, mirror_report.cpp), as metrics."""

from __future__ import annotations

from typing import Any

from families import Families, Kind, counter, gauge, histogram

QUESTIONS = ["dr/metrics"], ["dr/ports", "-j"], ["dr/copies", "-j"], ["dr/mirror", "-j"]
PORT = "port", "device", "vport"
LEVEL = "device", "domain", "level"
REASON = "device", "reason", "detail"

# Member of a port in dr/ports -j, metric, what it is.
PORT_COUNTERS = (
    ("rx_packets", "receive_packets", "Packets that came from the port, in the NIC and by the slow path."),
    ("rx_bytes", "receive_bytes", "Bytes that came from the port, in the NIC and by the slow path."),
    ("rx_errors", "receive_errors", "Packets from the port that were lost with an error."),
    ("tx_packets", "transmit_packets", "Packets that went to the port, in the NIC and by the slow path."),
    ("tx_bytes", "transmit_bytes", "Bytes that went to the port, in the NIC and by the slow path."),
    ("tx_errors", "transmit_errors", "Packets to the port that were lost with an error."),
    ("slow_path_rx", "slow_path_receive_packets", "Packets from the port that the slow path received."),
    ("slow_path_rx_errors", "slow_path_receive_errors", "Packets from the port that were lost in the queue."),
    ("slow_path_rx_missed", "slow_path_receive_missed_packets",
     "Packets from the port that found no buffer of the slow path."),
    ("slow_path_tx", "slow_path_transmit_packets", "Packets that the slow path sent to the port."),
    ("slow_path_tx_drops", "slow_path_transmit_dropped_packets",
     "Packets that the slow path had for the port and that found its ring full."),
    ("slow_path_tx_errors", "slow_path_transmit_errors", "Packets to the port that the slow path failed to send."),
    ("slow_path_restarts", "slow_path_restarts", "Queues of the slow path that failed and were replaced."),
)
METER_COUNTERS = (
    ("packets", "packets", "Packets that met the meter, in NIC and software."),
    ("bytes", "bytes", "Bytes that met the meter, in NIC and software."),
    ("dropped_packets", "dropped_packets", "Packets that the meter dropped, in NIC and software."),
    ("dropped_bytes", "dropped_bytes", "Bytes that the meter dropped, in NIC and software."),
)
# Member of a mirror in dr/mirror -j, metric, what it is.
MIRROR_COUNTERS = (
    ("frames", "frames", "Frames that the storage mirror took into its ring."),
    ("bytes", "bytes", "Bytes of the frames that the storage mirror took."),
    ("dropped", "dropped_frames", "Frames that found the storage mirror's ring full."),
    ("undelivered", "undelivered_frames", "Frames taken by a session that ended before its collector had them."),
)
# Of the session that goes on: another one begins at 0.
SESSION_COUNTERS = (
    ("acknowledged", "acknowledged_segments", "Segments that the collector has."),
    ("resent", "resent_segments", "Segments that were written again."),
    ("damaged", "damaged_frames", "Frames lost because the ring's memory changed."),
    ("connections", "connections", "Connections to the collector."),
)
SESSION = "mirror", "session"

KINDS: dict[str, Kind] = {
    "ovsdr_offload_enabled": gauge("Whether other_config:hw-offload is on."),
    "ovsdr_datapath_flows": gauge("Flows of the datapath now, in the NIC or not."),
    "ovsdr_datapath_lookups": counter("Look-ups of packets in the slow path: hit a flow, missed (upcall), or lost (no "
                                      "upcall possible).", "result"),
    "ovsdr_waiting_offloads": gauge("Changes of megaflows that the offload threads have not come to."),
    "ovsdr_leaked_objects": gauge("Objects that devices would not destroy."),
    "ovsdr_insertion_duration_seconds": histogram("How long it took to offer a megaflow to the device, by what became "
                                                  "of it.", "outcome"),
    "ovsdr_megaflows": gauge("Megaflows that a device knows now.", "device", "state"),
    "ovsdr_offloaded_packets": counter("Packets that rules of megaflows counted in the NIC.", "device"),
    "ovsdr_offloaded_bytes": counter("Bytes that rules of megaflows counted in the NIC.", "device"),
    "ovsdr_missed_packets": counter("Packets that no rule took and that went up to the slow path.", "device"),
    "ovsdr_kept_rules": gauge("Rules of megaflows that are gone, which the device would not destroy.", "device"),
    "ovsdr_reason_megaflows": gauge("Megaflows now that stay in software, under each of their reasons.", *REASON),
    "ovsdr_reason_occurrences": counter("How often a megaflow stayed in software for this reason.", *REASON),
    "ovsdr_copies": counter("Copies of packets that the NIC led up for software to work on, by what became of them.",
                            "device", "queue", "result"),
    "ovsdr_copies_restarts": counter("Queues for copies that failed and were replaced.", "device", "queue"),
    "ovsdr_sampler_packets": counter("Packets of which the NIC's copy came up for a sampler that takes one of so many.",
                                     "device", "sampler", "one_of"),
    "ovsdr_mirror_connected": gauge("Whether the storage mirror's collector is connected.", "mirror", "collector"),
    "ovsdr_mirror_copies": counter("Copies that devices took for the storage mirror, by what became of them.", "mirror",
                                   "device", "result"),
    "ovsdr_mirror_software_frames": counter("Frames that software gave to the storage mirror, by what became of them.",
                                            "mirror", "result"),
    "ovsdr_mirror_bad_segments": counter("Segments that the collector called bad, by what was wrong.", *SESSION,
                                         "kind"),
    **{f"ovsdr_mirror_{name}": counter(text, "mirror") for _, name, text in MIRROR_COUNTERS},
    **{f"ovsdr_mirror_{name}": counter(text, *SESSION) for _, name, text in SESSION_COUNTERS},
    "ovsdr_tables": gauge("Tables of a level.", *LEVEL),
    "ovsdr_matchers": gauge("Matchers of a level's tables: what a packet costs.", *LEVEL),
    "ovsdr_rules": gauge("Rules of a level's tables.", *LEVEL),
    "ovsdr_port_up": gauge("Whether administrative state and link of the port are up.", *PORT),
    "ovsdr_port_mtu_bytes": gauge("The port's MTU.", *PORT),
    "ovsdr_port_problem": gauge("Whether the port has a problem, as ovs-vsctl show says it.", *PORT),
    **{f"ovsdr_port_{name}": counter(text, *PORT) for _, name, text in PORT_COUNTERS},
    **{f"ovsdr_meter_{name}": counter(text, "meter") for _, name, text in METER_COUNTERS},
}


def _datapath(families: Families, datapath: dict[str, Any]) -> None:
    families.put("ovsdr_offload_enabled", datapath["offload"])
    families.put("ovsdr_datapath_flows", datapath["flows"])
    families.put("ovsdr_waiting_offloads", datapath["waiting_offloads"])
    for result, member in (("hit", "hits"), ("missed", "misses"), ("lost", "lost")):
        families.put("ovsdr_datapath_lookups", datapath[member], result)


def _insertion(families: Families, insertion: dict[str, Any]) -> None:
    bounds = [bound / 1e9 for bound in insertion["bounds"]]
    for outcome, cells in insertion["outcomes"].items():
        families.put_histogram("ovsdr_insertion_duration_seconds", bounds, cells["buckets"],
                               cells["nanoseconds"] / 1e9, outcome)


def _device(families: Families, device: dict[str, Any]) -> None:
    name = device["name"]
    for state, megaflows in device["megaflows"].items():
        families.put("ovsdr_megaflows", megaflows, name, state)
    families.put("ovsdr_offloaded_packets", device["packets"], name)
    families.put("ovsdr_offloaded_bytes", device["bytes"], name)
    families.put("ovsdr_missed_packets", device["misses"], name)
    families.put("ovsdr_kept_rules", device["kept_rules"], name)
    for row in device["reasons"]:
        if row["reason"] != "offloaded":   # that is ovsdr_megaflows
            labels = name, row["reason"], row["detail"]
            families.put("ovsdr_reason_megaflows", row["megaflows"], *labels)
            families.put("ovsdr_reason_occurrences", row["total"], *labels)
    for row in device["tables"]:
        for what in ("tables", "matchers", "rules"):
            families.put(f"ovsdr_{what}", row[what], name, row["domain"], row["level"])


def _port(families: Families, port: dict[str, Any]) -> None:
    labels = port["name"], port["device"], port["vport"]
    families.put("ovsdr_port_up", port["admin_up"] and port["link_up"], *labels)
    families.put("ovsdr_port_mtu_bytes", port["mtu"], *labels)
    families.put("ovsdr_port_problem", bool(port["problem"]), *labels)
    for member, name, _ in PORT_COUNTERS:
        if member in port:   # the device may not have told its counters
            families.put(f"ovsdr_port_{name}", port[member], *labels)


def _copies(families: Families, device: dict[str, Any]) -> None:
    for queue in device["queues"]:
        labels = device["device"], queue["queue"]
        for result, member in (("done", "done"), ("lost", "lost"), ("failed", "errors"),
                               ("without_work", "without_work")):
            families.put("ovsdr_copies", queue[member], *labels, result)
        families.put("ovsdr_copies_restarts", queue["restarts"], *labels)
    for row in device["samplers"]:
        families.put("ovsdr_sampler_packets", row["copies"], device["device"], row["sampler"], row["one_of"])


def _mirror(families: Families, mirror: dict[str, Any]) -> None:
    name, session = mirror["name"], (mirror["name"], mirror["session"])
    families.put("ovsdr_mirror_connected", mirror["connected"], name, mirror["collector"])
    for member, metric, _ in MIRROR_COUNTERS:
        families.put(f"ovsdr_mirror_{metric}", mirror[member], name)
    for member, metric, _ in SESSION_COUNTERS:
        families.put(f"ovsdr_mirror_{metric}", mirror[member], *session)
    for kind, segments in mirror["bad"].items():
        families.put("ovsdr_mirror_bad_segments", segments, *session, kind)
    software = mirror["software"]
    passed = software["frames"] - software["sampled_out"] - software["filtered"]
    for result, frames in (("passed", passed), ("sampled_out", software["sampled_out"]),
                           ("filtered", software["filtered"])):
        families.put("ovsdr_mirror_software_frames", frames, name, result)
    for device in mirror["devices"]:
        for result, member in (("taken", "taken"), ("lost", "lost"), ("failed", "errors"), ("filtered", "filtered"),
                               ("without_work", "without_work")):
            if member in device:   # a device may have no queue of it
                families.put("ovsdr_mirror_copies", device[member], name, device["device"], result)


def put(families: Families, metrics: dict[str, Any], ports: dict[str, Any], copies: dict[str, Any],
        mirrors: dict[str, Any]) -> None:
    """Of the answers to QUESTIONS. Without a datapath of type netdev there is nothing to say of one."""
    if metrics["datapath"] is not None:
        _datapath(families, metrics["datapath"])
    families.put("ovsdr_leaked_objects", metrics["leaked_objects"])
    _insertion(families, metrics["insertion"])
    for device in metrics["devices"]:
        _device(families, device)
    for port in ports["ports"]:
        _port(families, port)
    for device in copies["devices"]:
        _copies(families, device)
    for mirror in mirrors["mirrors"]:
        _mirror(families, mirror)
    for meter in metrics["meters"]:
        for member, name, _ in METER_COUNTERS:
            families.put(f"ovsdr_meter_{name}", meter[member], meter["number"])
