"""Metrics of a switch at work: what drexporter says equals what was sent and what other commands say, whatever becomes
of the daemon; and a real Prometheus runs each query of docs/dashboard.json over it."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import re
import shutil
import socket
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Iterator

import pytest
from helpers import add_sflow, figure, stream, wait_offloaded
from lab import build
from lab.command import CommandError, run, wait_until
from lab.lab import BRIDGE, Lab
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

EXPORTER, PROMETHEUS = 9981, 9090
OFCTL = ("-O", "OpenFlow13")
SIZE = 100   # bytes of a frame

PROMETHEUS_CONFIGURATION = f"""
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: ovs-dr
    static_configs:
      - targets: ["127.0.0.1:{EXPORTER}"]
"""


def exporter(lab: Lab, *arguments: str) -> list[str]:
    return [str(build.drexporter()), "--rundir", str(lab.switch.folder), "--socket", str(lab.nic.control), *arguments]


class Samples:
    """Metrics as the text has them; asked for by name and some of the labels, summed."""

    def __init__(self, text: str) -> None:
        self.rows: list[tuple[str, dict[str, str], float]] = []
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            head, value = line.rsplit(" ", 1)
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', head))
            self.rows.append((head.split("{")[0], labels, float(value)))

    def has(self, metric: str) -> bool:
        return any(row[0] == metric for row in self.rows)

    def ports(self, metric: str) -> dict[str, float]:
        return {labels["port"]: value for name, labels, value in self.rows if name == metric}

    def sum(self, metric: str, /, **labels: str) -> float:
        found = [value for name, has, value in self.rows if name == metric and labels.items() <= has.items()]
        assert found, f"no {metric} with {labels}"
        return sum(found)


def metrics(lab: Lab) -> Samples:
    return Samples(run(exporter(lab, "--once", "--timeout", "60"), timeout=200))


# All send to the uplink, whose answers go nowhere. The first guest is metered; the NIC does not do what the third asks.
FLOWS = ("in_port=1,actions=meter:1,output:4", "in_port=2,actions=output:4",
         "in_port=3,ip,actions=ct(commit),output:4")


def work(lab: Lab) -> None:
    lab.switch.ofctl(*OFCTL, "add-meter", BRIDGE, "meter=1,pktps,burst,bands=type=drop,rate=50,burst_size=10")
    for flow in FLOWS:
        lab.switch.ofctl(*OFCTL, "add-flow", BRIDGE, flow)


def test_metrics_equal_what_was_sent_and_what_commands_say(lab: Lab) -> None:
    work(lab)
    first, second, third, uplink = lab.guests
    with stream(first, uplink, rate=300, size=SIZE, limit=400) as metered, \
            stream(second, uplink, rate=300, size=SIZE, limit=200) as plain, \
            stream(third, uplink, rate=50, size=SIZE, limit=10) as slow:
        for sender in (metered, plain, slow):
            sender.join()

    def settled() -> bool:
        found = metrics(lab)
        return (found.sum("ovsdr_meter_packets_total", meter="0") == 400
                and found.sum("ovsdr_port_receive_packets_total", port="vm2") == 200
                and found.sum("ovsdr_port_receive_packets_total", port="vm3") == 10)
    wait_until(settled, 20, "all is counted")
    text = run(exporter(lab, "--once", "--timeout", "60"), timeout=200)
    found = Samples(text)
    if shutil.which("promtool"):
        assert run(["promtool", "check", "metrics"], stdin=text) == ""

    assert found.sum("ovsdr_port_receive_packets_total", port="vm1") == 400
    assert found.sum("ovsdr_port_receive_bytes_total", port="vm1") == 400 * SIZE
    dropped = int(re.findall(r"0: packet_count:(\d+)", lab.switch.ofctl(*OFCTL, "meter-stats", BRIDGE))[0])
    assert 0 < found.sum("ovsdr_meter_dropped_packets_total") == dropped
    assert found.sum("ovsdr_port_transmit_packets_total", port="uplink") == 400 - dropped + 200 + 10
    # What the NIC does not do is in the slow path, packet by packet, with its reason.
    assert found.sum("ovsdr_port_slow_path_receive_packets_total", port="vm3") == 10
    offloaded = found.sum("ovsdr_megaflows", state="offloaded")
    assert offloaded >= 2 and found.sum("ovsdr_megaflows", state="rejected") == 1
    assert found.sum("ovsdr_datapath_flows") == offloaded + 1
    assert found.sum("ovsdr_reason_megaflows", detail="ct") == 1
    assert found.sum("ovsdr_reason_occurrences_total") >= found.sum("ovsdr_reason_megaflows")
    installed = found.sum("ovsdr_insertion_duration_seconds_count", outcome="installed")
    assert installed >= 2 and found.sum("ovsdr_insertion_duration_seconds_count", outcome="rejected") >= 1
    seconds = found.sum("ovsdr_insertion_duration_seconds_sum", outcome="installed")
    assert 0 < seconds < 10 * installed
    assert found.sum("ovsdr_rules", domain="FDB") > found.sum("ovsdr_tables", domain="FDB")
    ports = {port["name"]: port for port in json.loads(lab.switch.appctl("dr/ports", "-j"))["ports"]}
    for name, port in ports.items():
        assert found.sum("ovsdr_port_slow_path_transmit_packets_total", port=name) == port["slow_path_tx"]

    nic = json.loads(lab.nic.drnic("stats", "--json"))
    device = nic["devices"][0]
    assert found.sum("ovsdr_softnic_vport_transmit_packets_total", name="vm2") == 200
    assert found.sum("ovsdr_softnic_flow_cache_hits_total") <= device["flow_cache"]["hits"]
    assert found.sum("ovsdr_softnic_flow_cache_misses_total") > 0
    looked_up = device["flow_cache"]["hits"] + device["flow_cache"]["misses"]
    assert looked_up >= 400 + 200 + 10, "each packet is looked up"
    assert found.sum("ovsdr_softnic_dropped_packets_total", cause="by_rule") == device["drops"]["by_rule"] > 0
    wall = found.sum("ovsdr_softnic_worker_seconds_total", worker="0")
    assert 0.5 < wall < 600
    assert 0 < found.sum("ovsdr_softnic_queue_busy_seconds_total", name="vm2", queue="0") < wall
    assert found.sum("ovsdr_softnic_queue_worker", name="vm2") == 0, "the only worker's number"
    figure(f"{len(found.rows)} samples; {installed:.0f} insertions, {1e6 * seconds / installed:.0f} us each")


def test_counters_that_a_device_does_not_tell_are_left_out(lab: Lab) -> None:
    """They do not become 0, which Prometheus would take for a restart."""
    work(lab)
    second, uplink = lab.guests[1], lab.guests[-1]
    names = {guest.port for guest in lab.guests}
    received = "ovsdr_port_receive_packets_total"
    with stream(second, uplink, rate=300, size=SIZE, limit=200) as sender:
        sender.join()
    wait_until(lambda: metrics(lab).ports(received)[second.port] == 200, 20, "all is counted")
    before = metrics(lab).ports(received)
    assert before.keys() == names
    # OVS asks for statistics, too, and may be the one whose question fails.
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:stats-update-interval=3600000")

    def refuse() -> None:
        lab.nic.drnic("faults", "--disarm")
        lab.nic.drnic("fault", "mlx5dv_devx_general_cmd", str(errno.ENOMEM), "1")

    def one_is_left_out() -> bool:
        refuse()
        found = metrics(lab)
        assert found.ports("ovsdr_port_up").keys() == names
        told = found.ports(received)
        assert all(packets >= before[port] for port, packets in told.items()), (before, told)
        return len(told) == len(names) - 1
    wait_until(one_is_left_out, 60, "a port's counters are left out")

    def text_says_so() -> bool:
        refuse()
        said = lab.switch.appctl("dr/ports")
        return said.count("  rx: -, tx: - (the device does not tell: Cannot allocate memory)") == 1 \
            and said.count("  rx: packets=") == len(names) - 1
    wait_until(text_says_so, 20, "dr/ports says so")
    lab.nic.drnic("faults", "--disarm")
    assert metrics(lab).ports(received).keys() == names
    assert all(port["stats_error"] == "" for port in json.loads(lab.switch.appctl("dr/ports", "-j"))["ports"])


def test_whatever_becomes_of_the_daemon_is_told(lab: Lab) -> None:
    """Without a bridge, without offload, killed, started again: never an error of the exporter's."""
    log = lab.workspace.folder / "drexporter.log"
    process = lab.namespace.start(exporter(lab, "--listen", f"127.0.0.1:{EXPORTER}"), log)
    lab.workspace.defer(process.stop)
    wait_until(lambda: reachable(lab, EXPORTER), 60, "the exporter listens")

    def found() -> Samples:
        return Samples(get(lab, EXPORTER, "/metrics"))

    def up(target: str) -> bool:
        return found().sum("ovsdr_up", target=target) == 1
    assert up("daemon") and up("softnic") and found().sum("ovsdr_offload_enabled") == 1
    lab.switch.kill_daemon()
    assert not up("daemon") and not up("softnic") and not found().has("ovsdr_port_up")
    lab.switch.vsctl("--no-wait", "remove", "Open_vSwitch", ".", "other_config", "hw-offload")
    lab.switch.start_daemon()
    wait_until(lambda: up("daemon"), 20, "the daemon that was started again is asked")
    # Once it has an interface of type dr, the soft NIC is there.
    wait_until(lambda: up("softnic"), 20, "and its soft NIC")
    wait_until(lambda: found().has("ovsdr_port_up"), 20, "and its ports")
    assert found().sum("ovsdr_offload_enabled") == 0
    lab.switch.vsctl("del-br", BRIDGE)
    wait_until(lambda: not found().has("ovsdr_port_up"), 20, "the ports are gone")
    assert up("daemon")
    assert process.running() and "Traceback" not in log.read_text()


@contextlib.contextmanager
def reached(lab: Lab) -> Iterator[None]:
    """Sockets of this thread are the lab's: exporter and Prometheus are on its loopback."""
    with lab.namespace.entered():
        yield


def reachable(lab: Lab, port: int) -> bool:
    with reached(lab):
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
        except OSError:
            return False
    return True


def get(lab: Lab, port: int, path: str) -> str:
    with reached(lab), urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return answer.read().decode()


class Prometheus:
    def __init__(self, lab: Lab) -> None:
        folder = lab.workspace.folder / "prometheus"
        folder.mkdir()
        (folder / "prometheus.yml").write_text(PROMETHEUS_CONFIGURATION)
        self.lab = lab
        self.process = lab.namespace.start(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{PROMETHEUS}"], folder / "prometheus.log")
        lab.workspace.defer(self.process.stop)

    def query(self, expression: str) -> list[float]:
        """Now, each number that is one."""
        answer = json.loads(get(self.lab, PROMETHEUS, "/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
        assert answer["status"] == "success", (expression, answer)
        values = [float(row["value"][1]) for row in answer["data"]["result"]]
        return [value for value in values if math.isfinite(value)]

    def scrapes(self) -> int:
        try:
            return int(sum(self.query("count_over_time(ovsdr_up{target=\"daemon\"}[10m])")))
        except OSError:
            return 0   # it does not listen yet


def panels() -> dict[str, list[str]]:
    """Queries by panel, with values for Grafana's variables."""
    dashboard = json.loads(Path(build.SOURCE, "docs", "dashboard.json").read_text())
    return {panel["title"]: [target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
                             for target in panel["targets"]] for panel in dashboard["panels"]}


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus (package prometheus)")
def test_each_panel_of_the_dashboard_has_data(lab: Lab) -> None:
    queries = panels()
    assert len(queries) > 20 and not any("$" in query for panel in queries.values() for query in panel)
    lab.workspace.defer(lab.namespace.start(exporter(lab, "--listen", f"127.0.0.1:{EXPORTER}"),
                                            lab.workspace.folder / "drexporter.log").stop)
    prometheus = Prometheus(lab)
    wait_until(lambda: prometheus.scrapes() >= 2, 60, "two scrapes")
    # What rate() sees is what comes between two scrapes.
    work(lab)
    add_sflow(lab, BRIDGE, 4)
    first, second, third, uplink = lab.guests
    begin = time.monotonic()
    with stream(first, uplink, rate=300), stream(second, uplink, rate=300), stream(third, uplink, rate=20):
        wait_offloaded(lab, first)
        wait_until(lambda: time.monotonic() - begin > 3, 30, "some traffic")
        seen = prometheus.scrapes()
        wait_until(lambda: prometheus.scrapes() >= seen + 3, 60, "three more scrapes")
        empty: list[str] = []

        def all_have_data() -> bool:
            empty[:] = [f"{title}: {query}" for title, asked in queries.items() for query in asked
                        if not prometheus.query(query)]
            return not empty
        with contextlib.suppress(TimeoutError):
            wait_until(all_have_data, 30, "data", interval=1)
        assert not empty
        share, = prometheus.query(queries["Slow-path share, now"][0])
        cache, = prometheus.query(queries["Flow cache hit rate, now"][0])
        busy, = prometheus.query(queries["Soft NIC: workers' busy share"][0])
    # The third guest's packets and the first ones of the others' came up. Metered ones walk the tables each time.
    assert 0 < share < 1 and 0 < cache < 1 and 0 < busy < 1
    figure(f"{sum(map(len, queries.values()))} queries in {len(queries)} panels; slow path {share:.1%}, flow cache "
           f"{cache:.1%}, worker busy {busy:.1%}")
