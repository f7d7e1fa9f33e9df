"""A wire that loses 1 % of the packets, repeats 1 % and reorders 1 %: what arrives is what was sent.

128 MB are a thousand packets of each kind of harm; OVSDR_ALL in the environment (`tools/test --all`) makes it a
gigabyte.

rough_wire carries the frames between the two hosts' uplinks; rdma_transfer.py moves the bytes by pyverbs and has
SHA-256 compare them. Both ways are harmed: requests and answers, data and acknowledgements, neighbour discovery too.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest
from helpers import figure
from lab import build
from lab.command import Background, wait_until
from lab.namespace import make_veth
from lab.workspace import Workspace
from test_roce import GIDS, Node, join_controls

pytestmark = pytest.mark.dr_only

TRANSFER = Path(__file__).with_name("rdma_transfer.py")
PER_CENT = 1.0
MEGABYTES = 1000 if os.environ.get("OVSDR_ALL") else 128
WITHIN = 120   # seconds


@pytest.fixture
def rough_nodes(workspace: Workspace) -> Iterator[tuple[Node, Node, Background]]:
    one, two = Node(workspace, 1), Node(workspace, 2)
    middle = workspace.namespace("middle")
    for node in (one, two):
        make_veth(node.namespace, node.uplink, middle, f"end{node.number}", mac=f"02:00:00:00:77:0{node.number}")
        node.configure()
    join_controls(one, two)
    program = build.build_folder() / "tests" / "system" / "rough_wire" / "rough_wire"
    harm = [word for kind in ("--lose", "--repeat", "--reorder") for word in (kind, f"{PER_CENT:g}")]
    wire = middle.start([str(program), "end1", "end2", *harm, "--seed", str(time.time_ns() % 1_000_000)],
                        workspace.folder / "rough_wire.log")
    try:
        wait_until(lambda: "ready" in wire.output() or not wire.running(), 30, "the wire is there")
        assert wire.running(), wire.output()
        yield one, two, wire
    finally:
        wire.stop()


@pytest.mark.parametrize("operation", ["write", "read", "both"])
def test_all_bytes_go_through_a_rough_wire(rough_nodes: tuple[Node, Node, Background], operation: str) -> None:
    """write: from the one that connects to the other; read: from the other; both: half of it each way at once."""
    server, client, wire = rough_nodes
    megabytes = MEGABYTES // 2 if operation == "both" else MEGABYTES
    arguments = [sys.executable, str(TRANSFER), "--gid", str(GIDS["ipv4"]), "--megabytes", str(megabytes), operation]
    background = server.start(*arguments)
    try:
        wait_until(lambda: bool(server.namespace.run(["ss", "-Hltn", "sport", "=", ":18600"])), 20,
                   "the server listens")
        said = client.run(*arguments, server.control_address, timeout=4 * WITHIN)
        assert background.wait(20) == 0, background.output()
    finally:
        background.stop()
    wire.stop()
    harm = wire.output().splitlines()[-1]
    figure(f"rough wire, {said.strip()}; {harm}")
    counts = {word: sum(map(int, re.findall(rf"(\d+) {word}", harm)))
              for word in ("carried", "lost", "repeated", "reordered", "refused")}
    for word in ("lost", "repeated", "reordered"):
        assert counts[word] > 0.8 * PER_CENT / 100 * counts["carried"], harm
    assert counts["refused"] == 0, "more was lost than was meant to be"
    assert counts["carried"] > megabytes * 1_000_000 / 1024
    seconds = float(re.search(r"in ([\d.]+) s", said).group(1))
    assert seconds < WITHIN
