"""perftest, unmodified and without rdma_cm, between two processes with a soft NIC each in two namespaces.

Each program checks its own completions; both sides must end well, with a figure that is not nothing.
"""

from __future__ import annotations

import time

import pytest
from helpers import figure
from test_roce import GIDS, Node, nodes, pingpong  # noqa: F401  (nodes is a fixture)

pytestmark = pytest.mark.dr_only

RUNS = [("ib_write_bw", "-n 1000"), ("ib_write_bw", "-n 500 -c UC"), ("ib_write_bw", "-n 300 -q 4 -b"),
        ("ib_read_bw", "-n 500"), ("ib_read_bw", "-n 100 -s 1048576 -o 1"),
        ("ib_send_bw", "-n 1000"), ("ib_send_bw", "-n 500 -c UC"), ("ib_send_bw", "-n 1000 -c UD -s 1024"),
        ("ib_send_bw", "-n 300 -r 8 -b"), ("ib_write_lat", "-n 200"), ("ib_send_lat", "-n 200 -c UD -s 64"),
        ("ib_atomic_bw", "-n 1000"), ("ib_atomic_bw", "-n 500 -A CMP_AND_SWAP"), ("ib_read_lat", "-n 200")]


def last_row(said: str) -> list[float]:
    """The figures under the program's last heading."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("-")]
    headings = [number for number, line in enumerate(lines) if line.strip().startswith("#bytes")]
    assert headings and len(lines) > headings[-1] + 1, said
    return [float(word) for word in lines[headings[-1] + 1].split()]


def measure(nodes: tuple[Node, Node], program: str, arguments: str) -> str:  # noqa: F811
    """What the client said. UC and UD repeat nothing: when a busy machine has lost a message perftest waits for it for
    ever, and is tried again."""
    tries = 3 if "-c U" in arguments else 1
    while True:
        tries -= 1
        try:
            return pingpong(nodes, program, "-d", "mlx5_0", "-x", str(GIDS["ipv4"]), "-F", *arguments.split())
        except AssertionError as error:
            if tries == 0 or "no end after" not in str(error):
                raise


@pytest.mark.parametrize("program, arguments", RUNS, ids=[" ".join(run) for run in RUNS])
def test_perftest_runs_between_two_namespaces(  # noqa: F811
        nodes: tuple[Node, Node], program: str, arguments: str) -> None:
    said = measure(nodes, program, arguments)
    row = last_row(said)
    assert row[3] > 0, said
    if program.endswith("_lat"):
        figure(f"{program} {arguments}: {row[4]:.1f} us typical")
    else:
        figure(f"{program} {arguments}: {row[3]:.1f} MB/s")


def test_raw_ethernet_bw_runs_between_two_namespaces(nodes: tuple[Node, Node]) -> None:  # noqa: F811
    """The uplink is IB port 2. The two do not speak to each other: the server counts, and ends with its count."""
    server, client = nodes
    macs = {node: f"02:00:00:00:79:0{node.number}" for node in nodes}
    common = ["raw_ethernet_bw", "-d", "mlx5_0", "-i", "2", "-F", "-s", "1000"]
    background = server.start(*common, "--server", "-B", macs[server], "-E", macs[client], "-n", "1000")
    try:
        time.sleep(3)  # its flow rule is in place then, and nothing tells
        said = client.run(*common, "--client", "-B", macs[client], "-E", macs[server], "-n", "20000")
        assert background.wait(20) == 0, background.output()
        figure(f"raw_ethernet_bw: {last_row(said)[3]:.1f} MB/s sent, "
               f"{last_row(background.output())[3]:.1f} MB/s received")
    finally:
        background.stop()
