"""RoCEv2 between two processes whose soft NICs have an uplink of two ports each, in LAG: which of two wires saw the
frames.

mlx5_ib gives the first queue pair of a context port 2, so that is the wire of ibv_rc_pingpong's, in both directions.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from helpers import figure
from lab.capture import Capture
from lab.namespace import make_veth
from lab.workspace import Workspace

from test_roce import GIDS, Node, await_listener, is_rocev2, join_controls, pingpong

pytestmark = pytest.mark.dr_only


class LagNode(Node):
    def port(self, number: int) -> str:
        return f"{self.uplink}p{number}"

    def configure(self, dpdk: str | list[str] | None = None) -> None:
        super().configure(dpdk or [f"net_af_packet,iface={self.port(number)}" for number in (1, 2)])


def lay_wire(nodes: tuple[LagNode, LagNode], number: int) -> None:
    one, two = nodes
    make_veth(one.namespace, one.port(number), two.namespace, two.port(number), mac=f"02:00:00:00:77:0{number}")


@pytest.fixture
def nodes(workspace: Workspace) -> tuple[LagNode, LagNode]:
    one, two = LagNode(workspace, 1), LagNode(workspace, 2)
    for number in (1, 2):
        lay_wire((one, two), number)
    join_controls(one, two)
    for node in (one, two):
        node.configure()
    return one, two


def roce_frames(capture: Capture) -> int:
    capture.settle()
    return sum(is_rocev2(frame) for frame in capture.frames)


def on_the_wires(nodes: tuple[LagNode, LagNode], numbers: tuple[int, ...]) -> dict[int, int]:
    """Runs the example; how many packets came to the server by each of these wires."""
    server = nodes[0]
    with ExitStack() as stack:
        captures = {number: stack.enter_context(Capture(server.namespace, server.port(number))) for number in numbers}
        pingpong(nodes, "ibv_rc_pingpong", "-g", str(GIDS["ipv4"]), "-n", "100")
        return {number: roce_frames(capture) for number, capture in captures.items()}


def test_a_connection_has_port_2_and_takes_port_1_where_there_is_no_other(nodes: tuple[LagNode, LagNode]) -> None:
    seen = on_the_wires(nodes, (1, 2))
    assert seen[1] == 0 and seen[2] >= 100
    nodes[0].namespace.run(["ip", "link", "del", nodes[0].port(2)])
    assert on_the_wires(nodes, (1,))[1] >= 100
    lay_wire(nodes, 2)
    seen = on_the_wires(nodes, (1, 2))
    assert seen[1] == 0 and seen[2] >= 100


def test_a_connection_outlives_its_wire(nodes: tuple[LagNode, LagNode]) -> None:
    """The wire goes and comes back: what was on its way is sent again, by the other one. The transfer would last for
    minutes."""
    server, client = nodes
    arguments = ["ibv_rc_pingpong", "-g", str(GIDS["ipv4"]), "-n", "10000000"]
    with Capture(client.namespace, client.port(1)) as first, Capture(client.namespace, client.port(2)) as second:
        ends = [server.start(*arguments)]
        try:
            await_listener(server, ends[0])
            ends.append(client.start(*arguments, server.control_address))
            # More than ARP: the connection stands.
            assert came(second, 20), "nothing on the second wire"
            client.namespace.run(["ip", "link", "set", client.port(2), "down"])
            assert came(first, 200), "the first wire did not take over"
            client.namespace.run(["ip", "link", "set", client.port(2), "up"])
            assert came(second, len(second.frames) + 200), "the second wire did not get its traffic back"
            for end in ends:
                assert end.running(), end.output()
        finally:
            for end in ends:
                end.stop()
        figure(f"packets to the client by wire 1: {roce_frames(first)}, by wire 2: {roce_frames(second)}")


def came(capture: Capture, count: int, patience: float = 20) -> bool:
    deadline = time.monotonic() + patience
    while len(capture.frames) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return len(capture.frames) >= count
