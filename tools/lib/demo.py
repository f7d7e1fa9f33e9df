"""The demo: a bridge whose flows run in the NIC, with traffic between its guests, and an account of who carried it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from demo_report import print_report  # noqa: E402
from demo_storage import StorageReport, print_storage, storage_job  # noqa: E402
from lab import build, stats, traffic  # noqa: E402
from lab.command import CommandError, wait_until  # noqa: E402
from lab.lab import BRIDGE, Guest, Lab  # noqa: E402
from lab.workspace import Workspace, end_like_interrupt, kept, remove  # noqa: E402

SLOW_PATH_LIMIT = 0.001   # share of iperf3's packets, but RSTs, that may come up from one second after its start
UDP_LOSS_LIMIT = 0.01
UDP_MEGABITS = 260        # offered; 200 must arrive


@dataclass
class Phase:
    """What one kind of traffic did. Packets are those that came into the switch from its vports."""

    name: str
    result: dict[str, object]
    packets: int
    slow_path_packets: int
    resets: int   # RSTs, of the slow path's: each comes up, and a receiver that closes early sends hundreds of them

    @property
    def slow_path_share(self) -> float:
        return self.slow_path_packets / self.packets if self.packets else 0.0


@dataclass
class Report:
    start_seconds: float = 0.0
    phases: list[Phase] = field(default_factory=list)
    vports: list[dict[str, object]] = field(default_factory=list)
    megaflows: list[dict[str, object]] = field(default_factory=list)
    reasons: str = ""
    problems: list[str] = field(default_factory=list)


class Meter:
    """Counts what came in and what came up between two moments."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.begin()

    def _now(self) -> tuple[int, int, int]:
        ports = [stats.port_counts(self.lab.switch, BRIDGE, guest.port) for guest in self.lab.guests]
        return (sum(port.received_packets for port in ports), stats.slow_path(self.lab.switch).received,
                traffic.resets(*(guest.namespace for guest in self.lab.guests)))

    def begin(self) -> None:
        self.start = self._now()

    def phase(self, name: str, result: dict[str, object]) -> Phase:
        return Phase(name, result, *(now - then for now, then in zip(self._now(), self.start)))


def progress(text: str) -> None:
    print(f"demo: {text}", flush=True)


def ping_all(lab: Lab, report: Report) -> None:
    """Every guest pings every other; not one may be lost."""
    meter = Meter(lab)
    sent = received = 0
    for source in lab.guests:
        for target in lab.guests:
            if source is not target:
                result = traffic.ping(source.namespace, target.address, count=3, interval=0.1)
                sent, received = sent + result.sent, received + result.received
    report.phases.append(meter.phase("ping, every guest to every other", {"sent": sent, "received": received}))
    if sent != received:
        report.problems.append(f"{sent - received} of {sent} pings were not answered")


def iperf_run(lab: Lab, report: Report, source: Guest, target: Guest, seconds: int, udp: int | None) -> None:
    meter = Meter(lab)
    name = f"iperf3 {'UDP' if udp else 'TCP'}, {source.name} to {target.name}"
    progress(f"{name}, {seconds} s")
    result = traffic.iperf(source.namespace, target.namespace, target.address, lab.workspace.folder, seconds=seconds,
                           udp_megabits=udp, after_first_second=meter.begin)
    phase = meter.phase(name, asdict(result))
    report.phases.append(phase)
    if phase.slow_path_packets - phase.resets > SLOW_PATH_LIMIT * phase.packets:
        report.problems.append(f"{name}: {phase.slow_path_share:.2%} of the packets took the slow path "
                               f"({phase.resets} RSTs are no part of the {SLOW_PATH_LIMIT:.1%} that may)")
    if udp and result.lost > UDP_LOSS_LIMIT * result.packets:
        report.problems.append(f"{name}: {result.lost} of {result.packets} datagrams were lost")
    if result.megabits_per_second < (200 if udp else 1):
        report.problems.append(f"{name}: only {result.megabits_per_second:.0f} Mb/s arrived")


def collect(lab: Lab, report: Report) -> None:
    for guest in lab.guests:
        counts = stats.port_counts(lab.switch, BRIDGE, guest.port)
        report.vports.append({"guest": guest.name, "vport": guest.vport, **asdict(counts)})
    for flow in stats.megaflows(lab.switch, kind="offloaded"):
        # Before the rules it says what the line above says: that it is offloaded, and its counts.
        rules = lab.switch.appctl("dr/explain", f"ufid:{flow.ufid}", check=False).strip().split("\n", 2)[-1].strip()
        report.megaflows.append({"ufid": flow.ufid, "match": flow.match, "actions": flow.actions,
                                 "packets": flow.packets, "bytes": flow.bytes, "offloaded": flow.offloaded,
                                 "dp": flow.layer, "rules": rules})
    report.reasons = lab.switch.appctl("dr/explain", check=False).strip()
    if not report.megaflows:
        report.problems.append("no megaflow is offloaded")
    for flow in report.megaflows:
        if flow["offloaded"] != "yes" or flow["dp"] != "dr":
            report.problems.append(f"megaflow {flow['ufid']} is offloaded:{flow['offloaded']}, dp:{flow['dp']}")


def main_job(workspace: Workspace, seconds: int) -> tuple[Lab, Report]:
    report = Report()
    started = time.monotonic()
    progress("three guests and an uplink: namespaces, veth pairs, soft NIC, switch")
    lab = Lab(workspace)
    lab.wire_all(vms=3)
    lab.start(offload=False)
    progress("ovs-vsctl set Open_vSwitch . other_config:hw-offload=true")
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    wait_until(lambda: "Flow API Enabled" in lab.switch.log.read_text(), 10, "hardware offload is enabled")
    report.start_seconds = time.monotonic() - started
    progress(f"the bridge is up after {report.start_seconds:.1f} s; ping, every guest to every other")
    ping_all(lab, report)
    vm1, vm2, vm3, uplink = lab.guests
    iperf_run(lab, report, vm1, vm2, seconds, None)
    iperf_run(lab, report, vm3, uplink, seconds, None)
    iperf_run(lab, report, uplink, vm1, seconds, UDP_MEGABITS)
    iperf_run(lab, report, vm2, vm3, seconds, UDP_MEGABITS)
    collect(lab, report)
    return lab, report


def show_kept(lab: Lab) -> None:
    # As the user came here: a root shell may be on a machine without sudo.
    sudo = "sudo " if "SUDO_USER" in os.environ else ""
    print(f"""
The bridge stays up. The stock tools reach it with:
  export OVS_RUNDIR={lab.workspace.folder}
  ovs-vsctl show
  ovs-ofctl dump-flows {BRIDGE}
  ovs-appctl dr/show
A guest's shell, and the end of it all:
  {sudo}ip netns exec {lab.guests[0].namespace.name} bash
  {sudo}tools/demo --end {lab.workspace.name}""")


def write_json(path: str, report: Report | StorageReport) -> None:
    figures = asdict(report)
    for phase, shown in zip(getattr(report, "phases", []), figures.get("phases", [])):
        shown["slow_path_share"] = phase.slow_path_share
    Path(path).write_text(json.dumps(figures, indent=2) + "\n")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/demo", description="Sets everything up, builds, and shows a bridge "
                                     "whose flows run in the NIC. Run it as root.")
    parser.add_argument("--seconds", type=int, default=5, help="length of each iperf3 run (default 5)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    parser.add_argument("--storage", action="store_true", help="show mirrored storage instead: iSCSI between two "
                        "guests, collected, proved, and a fault found")
    parser.add_argument("--keep", action="store_true", help="leave the bridge up, and say how to talk to it")
    parser.add_argument("--end", metavar="NAME", help="end a bridge that was kept (or: all), and do nothing else")
    options = parser.parse_args(arguments)
    if options.seconds < 2:
        parser.error("--seconds: at least 2")
    return options


def end(name: str) -> int:
    names = kept()
    if name != "all" and name not in names:
        print(f"demo: nothing is kept under the name {name}; there is: {' '.join(names) or 'nothing'}",
              file=sys.stderr)
        return 1
    for ended in names if name == "all" else [name]:
        remove(ended)
        progress(f"{ended} is ended")
    return 0


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.end:
        return end(options.end)
    if missing := build.missing():
        print(f"demo: not built: {' '.join(missing)}", file=sys.stderr)
        return 1
    end_like_interrupt()
    try:
        with Workspace("demo") as workspace:
            if options.storage:
                lab, report = storage_job(workspace)
                print_storage(report)
            else:
                lab, report = main_job(workspace, options.seconds)
                print_report(report)
            if options.json:
                write_json(options.json, report)
            if options.keep:
                workspace.keep()
                show_kept(lab)
    except KeyboardInterrupt:
        progress("interrupted; everything is cleared away")
        return 130
    except (CommandError, TimeoutError, RuntimeError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
