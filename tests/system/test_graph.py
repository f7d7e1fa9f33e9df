"""dr/graph: the live pipeline as Graphviz reads it, and tools/graph, which draws it with rates."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import figure, stream
from lab import build, stats
from lab.command import CommandError, wait_until
from lab.lab import BRIDGE, Lab
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

EDGE = re.compile(r'^ *"mlx5_0 (?P<start>[^"]+)"(:m\d+:e)? -> "mlx5_0 (?P<end>[^"]+)"\S* '
                  r'\[id="[^"]*", label="(?P<label>[^"]*)"'
                  r'(, rules=(?P<rules>\d+), packets=(?P<packets>\d+))?', re.MULTILINE)
ENTRY = "recirc_id 0x0"
RATE = 1000


@pytest.fixture
def chain(workspace: Workspace) -> Lab:
    """A pipeline of two tables with a copy, a branch and a drop."""
    made = Lab(workspace)
    made.switch.daemon_arguments.append("--enable-dummy")   # debug_recirc
    made.wire_all(vms=3)
    made.fix_neighbours()
    made.start(offload=True, fail_mode="secure")
    made.switch.add_flows(BRIDGE, ["table=0,in_port=1,udp,actions=dec_ttl,output:3,debug_recirc,resubmit(,1)",
                                   "table=1,udp,actions=mod_vlan_vid:7,output:4,strip_vlan,output:2",
                                   "table=0,in_port=2,udp,actions=drop"])
    return made


def edges(dot: str) -> dict[tuple[str, str], int | None]:
    """Packets on them; None where nobody counts."""
    return {(found["start"], found["end"]): int(found["packets"]) if found["packets"] else None
            for found in EDGE.finditer(dot)}


def canonical(dot: str) -> str:
    if shutil.which("dot") is None:
        pytest.skip("no dot: package graphviz")
    done = subprocess.run(["dot", "-Tcanon"], input=dot, capture_output=True, text=True, check=True, timeout=20)
    assert not done.stderr, done.stderr
    return done.stdout


def misses(lab: Lab) -> int:
    (device,) = json.loads(lab.switch.appctl("dr/show", "-j"))["devices"]
    return int(device["misses"])


def draw(lab: Lab, *arguments: str, appctl: str = "ovs-appctl -t ovs-vswitchd") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(build.SOURCE / "tools" / "graph"), "--appctl", appctl, *arguments],
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **lab.switch.environment}, capture_output=True,
                          text=True, check=False, timeout=60)


def settled(lab: Lab, count: int) -> None:
    wait_until(lambda: sum(flow.layer == "dr" for flow in stats.megaflows(lab.switch)) >= count, 5,
               f"{count} megaflows are offloaded")


def test_it_shows_the_pipeline_that_packets_take(chain: Lab) -> None:
    lab = chain
    first, second = lab.guests[:2]
    with stream(first, second, rate=RATE, limit=RATE) as there, stream(second, first, rate=RATE, limit=RATE) as back:
        settled(lab, 3)
        there.join()
        back.join()
    time.sleep(0.5)   # the last are under way
    before, dot, after = misses(lab), lab.switch.appctl("dr/graph"), misses(lab)
    canonical(dot)
    found = edges(dot)
    (behind,) = {end for _, end in found if end.startswith("recirc_id 0x") and end != ENTRY and "+" not in end}
    flows = {("drop" if flow.actions == "drop" else "there" if "recirc_id(0)" in flow.match else "behind"):
             json.loads(lab.switch.appctl("dr/explain", "-j", f"ufid:{flow.ufid}"))["packets"]
             for flow in stats.megaflows(lab.switch) if flow.layer == "dr" and "proto=17" in flow.match}
    assert found[ENTRY, "vport 3"] == flows["there"]
    assert found[ENTRY, behind] == flows["there"]
    # The guests' kernels say something now and then, which is dropped too.
    assert flows["drop"] <= found[ENTRY, "drop"] <= flows["drop"] + 100
    assert found[behind, "vport 2"] == flows["behind"]
    assert found[behind, f"{behind} +1"] == found[f"{behind} +1", "vport 65535"] == flows["behind"]
    assert min(flows.values()) > RATE / 2
    assert found["root", ENTRY] is None and ("up 2", "slow path") in found
    assert before <= (found["miss", "up 0"] or 0) <= after   # guests say a word now and then
    assert found.keys() == edges(lab.switch.appctl("dr/graph", "mlx5_0")).keys()
    figure(f"{len(found)} edges; {flows} packets are on those of their megaflows")


def test_the_drawing_has_rates(chain: Lab, tmp_path: Path) -> None:
    lab = chain
    first, second = lab.guests[:2]
    if shutil.which("dot") is None:
        pytest.skip("no dot: package graphviz")
    with stream(first, second, rate=RATE):
        settled(lab, 2)
        time.sleep(0.5)
        svg, dot = tmp_path / "dr.svg", tmp_path / "dr.dot"
        done = draw(lab, "mlx5_0", "--seconds", "3", "-o", str(svg))
        assert done.returncode == 0, done.stderr
        assert draw(lab, "--seconds", "3", "-o", str(dot)).returncode == 0
    assert svg.read_text().rstrip().endswith("</svg>") and "pkt/s" in svg.read_text()
    labels = {(found["start"], found["end"]): found["label"] for found in EDGE.finditer(dot.read_text())}
    rate = re.search(r"([\d.e+]+) (k?)pkt/s", labels[ENTRY, "vport 3"])
    assert rate, labels
    measured = float(rate[1]) * (1000 if rate[2] else 1)
    assert 0.3 * RATE < measured < 2 * RATE
    canonical(dot.read_text())
    assert draw(lab, "--seconds", "0", "--edges", "2", "-o", str(dot)).returncode == 0
    few = {(found["start"], found["end"]) for found in EDGE.finditer(dot.read_text()) if found["packets"]}
    assert len(few) == 2 and ("miss", "up 0") in few, "the slow path's share is always shown"
    assert "ways with fewer packets" in canonical(dot.read_text())
    once = draw(lab, "--seconds", "0", "-o", "-")
    assert once.returncode == 0 and "<svg" in once.stdout and "pkt/s" not in once.stdout
    figure(f"{RATE} packets a second are drawn as {measured:.0f}")


def test_what_cannot_be_drawn_is_said(lab: Lab, tmp_path: Path) -> None:
    for arguments, reason in [(["mlx5_9"], "no device mlx5_9 is open; there is mlx5_0"),
                              (["-j"], "dr/graph: unknown argument -j"),
                              (["mlx5_0", "mlx5_1"], '"dr/graph" command takes at most 1 arguments')]:
        with pytest.raises(CommandError) as refused:
            lab.switch.appctl("dr/graph", *arguments)
        assert reason in refused.value.output
    file = tmp_path / "dr.svg"
    for tried, reason in [(draw(lab, "mlx5_9", "-o", str(file)), "graph: no device mlx5_9 is open; there is mlx5_0"),
                          (draw(lab, "-o", str(tmp_path / "dr.jpeg")), "its name ends in none of .svg"),
                          (draw(lab, "--seconds", "-1", "-o", str(file)), "a number of seconds, 0 or more"),
                          (draw(lab, "--edges", "0", "-o", str(file)), "--edges: at least 1"),
                          (draw(lab, "-o", str(file), appctl="no-such-appctl"), "no-such-appctl is not there"),
                          (draw(lab, "-o", str(file), appctl="ovs-appctl -t nobody"), "graph: ")]:
        assert tried.returncode != 0 and reason in tried.stderr, tried
    assert not file.exists()
    for guest in lab.guests:
        lab.switch.vsctl("del-port", BRIDGE, guest.port)
    with pytest.raises(CommandError) as refused:
        lab.switch.appctl("dr/graph")
    assert "no device is open: add an interface of type=dr" in refused.value.output
