#!/usr/bin/python3
"""drexporter over daemons that a test plays: what it says of them, and what it bears.

    drexporter_test.py PROGRAM
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from typing import Callable, Iterator

SOURCE = Path(__file__).resolve().parents[3]
PROGRAM = ""
PID = 4711

METRICS = {
    "datapath": {"flows": 5, "hits": 70, "misses": 8, "lost": 1, "offload": True, "waiting_offloads": 3},
    "meters": [{"number": 2, "packets": 100, "bytes": 9000, "dropped_packets": 40, "dropped_bytes": 3600}],
    "insertion": {"bounds": [5000, 10000], "outcomes": {
        "installed": {"buckets": [4, 2, 1], "nanoseconds": 60000},
        "rejected": {"buckets": [0, 0, 0], "nanoseconds": 0}, "failed": {"buckets": [0, 0, 0], "nanoseconds": 0}}},
    "devices": [{
        "name": "mlx5_0", "megaflows": {"offloaded": 3, "rejected": 2, "failed": 0}, "packets": 1000, "bytes": 64000,
        "misses": 12, "kept_rules": 0,
        "reasons": [{"reason": "offloaded", "detail": "", "megaflows": 3, "total": 9},
                    {"reason": "unsupported action", "detail": 'ct("x")\n', "megaflows": 2, "total": 4}],
        "tables": [{"domain": "FDB", "level": 1, "tables": 1, "matchers": 3, "rules": 4}]}],
    "leaked_objects": 0,
}
PORTS = {"ports": [{
    "name": "vm1", "device": "mlx5_0", "vport": 1, "mtu": 1500, "admin_up": True, "link_up": False, "problem": "",
    "rx_packets": 10, "rx_bytes": 640, "rx_errors": 0, "tx_packets": 11, "tx_bytes": 704, "tx_errors": 0,
    "slow_path_rx": 2, "slow_path_rx_errors": 0, "slow_path_rx_missed": 1, "slow_path_tx": 3, "slow_path_tx_drops": 0,
    "slow_path_tx_errors": 0, "slow_path_restarts": 0}], "tunnel_ports": []}
COPIES = {"devices": [{"device": "mlx5_0", "queues": [
    {"queue": "host", "copies": 9, "done": 9, "lost": 0, "errors": 0, "without_work": 0, "restarts": 0},
    {"queue": "other", "copies": 100, "done": 60, "lost": 30, "errors": 6, "without_work": 4, "restarts": 1}],
    "samplers": [{"sampler": "sflow", "one_of": 400, "copies": 12}]}]}
MIRRORS = {"mirrors": [{
    "name": "stor0", "collector": "192.0.2.7:4180", "session": "00ff", "connected": True, "frames": 90, "bytes": 9000,
    "dropped": 7, "undelivered": 3, "acknowledged": 5, "resent": 1, "damaged": 2, "connections": 3,
    "bad": {"guard": 4, "sequence": 0},
    "software": {"frames": 20, "sampled_out": 3, "filtered": 5},
    "devices": [{"device": "mlx5_0", "error": "", "taken": 85, "lost": 6, "errors": 8, "filtered": 9,
                 "without_work": 0}, {"device": "mlx5_1", "error": "no queue"}]}]}
STATS = {
    "devices": [{
        "name": "mlx5_0",
        "vports": [{"vport": 1, "name": "vm1", "received_packets": 11, "received_bytes": 704, "sent_packets": 10,
                    "sent_bytes": 640, "receive_drops": 5, "send_drops": 0, "oversize": 0, "down": 0, "overruns": 0}],
        "drops": {"by_rule": 7, "no_vport": 0}, "cotenant": {"queue_full": 6},
        "flow_cache": {"hits": 90, "misses": 10}}],
    "workers": [{"busy_cycles": 1000, "idle_cycles": 3000, "asleep_cycles": 500, "sleeps": 2, "queues": []},
                {"busy_cycles": 10, "idle_cycles": 30, "asleep_cycles": 0, "sleeps": 0, "queues": [
                    {"device": "mlx5_0", "vport": 1, "name": "vm1", "queue": 0, "load": 0.5, "busy_cycles": 2500},
                    {"device": "mlx5_0", "vport": 65535, "name": "bond", "port": 2, "queue": 1, "load": 0,
                     "busy_cycles": 0}]}],
    "cycles_per_second": 1000,
    "memory": {"small": {"buffers": 100, "free": 60}},
}
LIMITS = {"devices": [{"name": "mlx5_0", "limits": {"rules": {"taken": 4, "most": 1000},
                                                    "tables": {"taken": 2, "most": None}}}]}


class Played:
    """Answers each whole line or JSON object that comes to a socket with what `answer` makes of it."""

    def __init__(self, path: Path, answer: Callable[[dict], list[bytes]]) -> None:
        self.answer = answer
        self.asked = 0
        self.at_once = self.most_at_once = 0
        self._socket = socket.socket(socket.AF_UNIX)
        path.unlink(missing_ok=True)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)   # accept() returns
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                self.asked += 1
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                time.sleep(0.02)
                self.at_once -= 1   # who has the answer may ask again
                for part in self.answer(json.loads(data)):
                    connection.sendall(part)
                    time.sleep(0.01)


def daemon_answer(request: dict, metrics: dict = METRICS, ports: dict = PORTS) -> list[bytes]:
    answers = {("dr/metrics",): metrics, ("dr/ports", "-j"): ports, ("dr/copies", "-j"): COPIES,
               ("dr/mirror", "-j"): MIRRORS}
    known = answers.get((request["method"], *request["params"]))
    if known is None:
        return [json.dumps({"id": request["id"], "result": None, "error": "not a valid command"}).encode()]
    text = json.dumps({"id": request["id"], "result": json.dumps(known), "error": None}).encode()
    # The first part ends with a brace, too.
    cut = text.index(b"}") + 1
    return [text[:cut], text[cut:]]


def softnic_answer(request: dict) -> list[bytes]:
    answers = {"stats": STATS, "limits": LIMITS}
    return [json.dumps({"ok": True, **answers[request["command"]]}).encode() + b"\n"]


def samples_of(text: str) -> dict[str, float]:
    """By name and labels, as they are written."""
    return {name: float(value) for name, value in
            (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))}


class ExporterTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.arguments = [PROGRAM, "--rundir", str(self.folder), "--socket", str(self.folder / "nic"), "--timeout",
                          "20"]

    def play_daemon(self, answer: Callable[[dict], list[bytes]] = daemon_answer, pid: int = PID) -> Played:
        (self.folder / "ovs-vswitchd.pid").write_text(f"{pid}\n")
        played = Played(self.folder / f"ovs-vswitchd.{pid}.ctl", answer)
        self.addCleanup(played.close)
        return played

    def play_softnic(self, answer: Callable[[dict], list[bytes]] = softnic_answer) -> Played:
        played = Played(self.folder / "nic", answer)
        self.addCleanup(played.close)
        return played

    def once(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.arguments, "--once", *arguments], capture_output=True, text=True, timeout=60,
                              check=False)

    @contextlib.contextmanager
    def served(self, *arguments: str) -> Iterator[str]:
        """Its address, once it listens."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with subprocess.Popen([*self.arguments, "--listen", f"127.0.0.1:{port}", *arguments],
                              stderr=subprocess.DEVNULL) as process:
            try:
                for _ in range(600):
                    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                        break
                    time.sleep(0.1)
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()


def scrape(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        return samples_of(answer.read().decode())


class Once(ExporterTest):
    def test_what_both_say_becomes_metrics(self) -> None:
        self.play_daemon()
        self.play_softnic()
        done = self.once()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = samples_of(done.stdout)
        port, reason = 'device="mlx5_0",port="vm1",vport="1"', 'detail="ct(\\"x\\")\\n",device="mlx5_0",reason="uns'
        vport = 'device="mlx5_0",name="vm1",vport="1"'
        for name, value in {
                'ovsdr_up{target="daemon"}': 1, 'ovsdr_up{target="softnic"}': 1, "ovsdr_offload_enabled": 1,
                "ovsdr_datapath_flows": 5, "ovsdr_waiting_offloads": 3,
                'ovsdr_datapath_lookups_total{result="hit"}': 70, 'ovsdr_datapath_lookups_total{result="lost"}': 1,
                'ovsdr_insertion_duration_seconds_bucket{le="5e-06",outcome="installed"}': 4,
                'ovsdr_insertion_duration_seconds_bucket{le="1e-05",outcome="installed"}': 6,
                'ovsdr_insertion_duration_seconds_bucket{le="+Inf",outcome="installed"}': 7,
                'ovsdr_insertion_duration_seconds_count{outcome="installed"}': 7,
                'ovsdr_insertion_duration_seconds_sum{outcome="installed"}': 60e-6,
                'ovsdr_megaflows{device="mlx5_0",state="rejected"}': 2,
                f'ovsdr_reason_megaflows{{{reason}upported action"}}': 2,
                f'ovsdr_reason_occurrences_total{{{reason}upported action"}}': 4,
                'ovsdr_matchers{device="mlx5_0",domain="FDB",level="1"}': 3,
                f"ovsdr_port_receive_packets_total{{{port}}}": 10, f"ovsdr_port_up{{{port}}}": 0,
                f"ovsdr_port_slow_path_receive_missed_packets_total{{{port}}}": 1,
                'ovsdr_copies_total{device="mlx5_0",queue="other",result="failed"}': 6,
                'ovsdr_copies_total{device="mlx5_0",queue="other",result="lost"}': 30,
                'ovsdr_copies_total{device="mlx5_0",queue="host",result="lost"}': 0,
                'ovsdr_copies_total{device="mlx5_0",queue="host",result="done"}': 9,
                'ovsdr_copies_restarts_total{device="mlx5_0",queue="other"}': 1,
                'ovsdr_sampler_packets_total{device="mlx5_0",one_of="400",sampler="sflow"}': 12,
                'ovsdr_mirror_connected{collector="192.0.2.7:4180",mirror="stor0"}': 1,
                'ovsdr_mirror_frames_total{mirror="stor0"}': 90,
                'ovsdr_mirror_dropped_frames_total{mirror="stor0"}': 7,
                'ovsdr_mirror_undelivered_frames_total{mirror="stor0"}': 3,
                'ovsdr_mirror_acknowledged_segments_total{mirror="stor0",session="00ff"}': 5,
                'ovsdr_mirror_bad_segments_total{kind="guard",mirror="stor0",session="00ff"}': 4,
                'ovsdr_mirror_software_frames_total{mirror="stor0",result="passed"}': 12,
                'ovsdr_mirror_copies_total{device="mlx5_0",mirror="stor0",result="lost"}': 6,
                'ovsdr_meter_dropped_packets_total{meter="2"}': 40,
                f'ovsdr_softnic_vport_dropped_packets_total{{cause="receive",{vport}}}': 5,
                'ovsdr_softnic_dropped_packets_total{cause="by_rule",device="mlx5_0"}': 7,
                'ovsdr_softnic_dropped_packets_total{cause="cotenant_queue_full",device="mlx5_0"}': 6,
                'ovsdr_softnic_flow_cache_hits_total{device="mlx5_0"}': 90,
                'ovsdr_softnic_worker_seconds_total{state="idle",worker="0"}': 3,
                f'ovsdr_softnic_queue_busy_seconds_total{{{vport},port="",queue="0"}}': 2.5,
                f'ovsdr_softnic_queue_worker{{{vport},port="",queue="0"}}': 1,
                'ovsdr_softnic_queue_worker{device="mlx5_0",vport="65535",name="bond",port="2",queue="1"}': 1,
                'ovsdr_softnic_buffers{pool="small",state="used"}': 40,
                'ovsdr_softnic_objects{device="mlx5_0",resource="tables"}': 2,
                'ovsdr_softnic_objects_limit{device="mlx5_0",resource="rules"}': 1000}.items():
            by_label = {tuple(sorted(re.findall(r'\w+="(?:[^"\\]|\\.)*"', key))) + (key.split("{")[0],): number
                        for key, number in found.items()}
            key = tuple(sorted(re.findall(r'\w+="(?:[^"\\]|\\.)*"', name))) + (name.split("{")[0],)
            self.assertAlmostEqual(by_label.get(key, -1), value, msg=name)
        self.assertNotIn("offloaded", {label for name in found if "reason" in name
                                       for label in re.findall(r'reason="([^"]*)"', name)})
        self.assertFalse(any("limit" in name and "tables" in name for name in found))

    @unittest.skipUnless(shutil.which("promtool"), "promtool (package prometheus)")
    def test_promtool_has_nothing_to_say(self) -> None:
        self.play_daemon()
        self.play_softnic()
        checked = subprocess.run(["promtool", "check", "metrics"], input=self.once().stdout, capture_output=True,
                                 text=True, timeout=60, check=False)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))

    def test_every_metric_is_in_the_documentation_and_no_other(self) -> None:
        self.play_daemon()
        self.play_softnic()
        types = set(re.findall(r"^# TYPE (\S+) ", self.once().stdout, re.MULTILINE))
        text = (SOURCE / "docs" / "metrics.md").read_text(encoding="utf-8")
        rows = "\n".join(line for line in text.splitlines() if line.startswith("|"))
        self.assertEqual(types, set(re.findall(r"`(ovsdr_\w+)", rows)))

    def test_without_a_soft_nic_it_is_not_asked(self) -> None:
        self.play_daemon()
        done = self.once("--socket", "")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("softnic", done.stdout)

    def test_without_a_datapath_there_are_its_other_metrics(self) -> None:
        self.play_daemon(lambda request: daemon_answer(request, {**METRICS, "datapath": None, "devices": []}))
        done = self.once("--socket", "")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("ovsdr_datapath_flows", done.stdout)
        self.assertIn("ovsdr_leaked_objects 0", done.stdout)

    def test_a_port_without_counters_has_its_other_metrics(self) -> None:
        port, = PORTS["ports"]
        counters = {name for name in port if name.startswith(("rx_", "tx_", "slow_path_"))}
        bare = {name: value for name, value in port.items() if name not in counters}
        ports = {"ports": [{**bare, "stats_error": "Cannot allocate memory"}, {**port, "name": "vm2"}]}
        self.play_daemon(lambda request: daemon_answer(request, ports=ports))
        done = self.once("--socket", "")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        names = {of: {name.split("{")[0] for name in samples_of(done.stdout) if f'port="{of}"' in name}
                 for of in ("vm1", "vm2")}
        self.assertEqual(names["vm1"], {"ovsdr_port_up", "ovsdr_port_mtu_bytes", "ovsdr_port_problem"})
        self.assertEqual(len(names["vm2"]), len(names["vm1"]) + len(counters))

    def test_one_that_does_not_answer_leaves_the_other(self) -> None:
        self.play_softnic()
        done = self.once()
        self.assertEqual(done.returncode, 1)
        self.assertIn('ovsdr_up{target="daemon"} 0.0', done.stdout)
        self.assertIn('ovsdr_up{target="softnic"} 1.0', done.stdout)
        self.assertIn("ovs-vswitchd.pid: ", done.stderr)

    def test_whatever_goes_wrong_is_said_in_a_line(self) -> None:
        for what, answer, said in (
                ("a stock daemon", lambda request: [b'{"id":0,"result":null,"error":"not a valid command"}'],
                 "dr/metrics"),
                ("it hangs up", lambda request: [b'{"id":0,"resu'], "is no answer"),
                ("no JSON inside", lambda request: [b'{"id":0,"result":"text","error":null}'], "dr/metrics"),
                ("another version", lambda request: [b'{"id":0,"result":"{\\"ports\\":[]}","error":null}'],
                 "not understood: KeyError"),
                ("no answer at all", lambda request: [], "no answer in time|timed out")):
            with self.subTest(what):
                hangs_up = what == "it hangs up"
                played = self.play_daemon()
                played.answer = (lambda request: self.fail_after(answer(request))) if hangs_up else answer
                done = self.once("--socket", "", "--timeout", "1")
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, f"^drexporter: .*({said}).*\n$")
                played.close()

    @staticmethod
    def fail_after(parts: list[bytes]) -> Iterator[bytes]:
        yield from parts
        raise OSError("the test hangs up")

    def test_an_answer_that_trickles_ends_in_time(self) -> None:
        """Each piece comes soon, the whole of it never."""
        self.play_daemon(lambda request: (b" " for _ in iter(int, 1)))
        begin = time.monotonic()
        done = self.once("--socket", "", "--timeout", "1")
        self.assertEqual(done.returncode, 1)
        self.assertLess(time.monotonic() - begin, 45)

    def test_wrong_options_are_refused(self) -> None:
        for arguments in (["--listen", "9981"], ["--listen", "::1:9981"], ["--listen", "127.0.0.1:99999"],
                          ["--timeout", "0"], ["--timeout", "soon"], ["--nonsense"], ["argument"]):
            done = self.once(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertNotEqual(done.stderr, "", arguments)


class Dashboard(ExporterTest):
    def setUp(self) -> None:
        super().setUp()
        self.dashboard = json.loads((SOURCE / "docs" / "dashboard.json").read_text(encoding="utf-8"))
        self.panels = self.dashboard["panels"]

    def test_its_queries_ask_for_metrics_that_there_are(self) -> None:
        self.play_daemon()
        self.play_softnic()
        known = {name.split("{")[0] for name in samples_of(self.once().stdout)}
        for panel in self.panels:
            for target in panel["targets"]:
                asked = set(re.findall(r"ovsdr_\w+", target["expr"]))
                self.assertTrue(asked and asked <= known, f"{panel['title']}: {asked - known}")

    def test_its_panels_are_side_by_side(self) -> None:
        self.assertEqual(len({panel["id"] for panel in self.panels}), len(self.panels))
        taken: dict[tuple[int, int], str] = {}
        for panel in self.panels:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24)
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    self.assertNotIn((x, y), taken, panel["title"])
                    taken[x, y] = panel["title"]

    def test_its_variables_are_those_that_queries_use(self) -> None:
        names = {variable["name"] for variable in self.dashboard["templating"]["list"]}
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(self.panels))) - {"__rate_interval"}
        self.assertEqual(used, names)


class Served(ExporterTest):
    def test_a_daemon_that_comes_goes_and_comes_again_is_followed(self) -> None:
        with self.served("--socket", "") as url:
            up = 'ovsdr_up{target="daemon"}'
            self.assertEqual(scrape(url)[up], 0)
            first = self.play_daemon()
            self.assertEqual(scrape(url)[up], 1)
            first.close()
            found = scrape(url)
            self.assertEqual(found[up], 0)
            self.assertFalse(any(name.startswith("ovsdr_port") for name in found), "nothing of before is left")
            self.play_daemon(pid=PID + 1)
            self.assertEqual(scrape(url)[up], 1)

    def test_the_daemon_is_asked_by_one_scrape_at_a_time(self) -> None:
        played = self.play_daemon()
        with self.served("--socket", "") as url:
            threads = [threading.Thread(target=scrape, args=(url,)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual((played.asked, played.most_at_once), (4 * 8, 1))

    def test_other_paths_lead_nowhere_and_do_not_ask(self) -> None:
        played = self.play_daemon()
        with self.served("--socket", "") as url:
            with self.assertRaises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(url, timeout=60)
            self.assertEqual(refused.exception.code, 404)
            refused.exception.close()
        self.assertEqual(played.asked, 0)

    def test_an_address_that_is_taken_is_said(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            done = subprocess.run([*self.arguments, "--listen", address], capture_output=True, text=True, timeout=60,
                                  check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(address, done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
