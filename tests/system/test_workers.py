"""Several workers on ports with several queues: which worker polls what, and queues that move while packets flow."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Iterator

import pytest
from helpers import assert_alive, assert_reaches, figure, wait_offloaded
from lab.capture import Capture
from lab.command import Background, CommandError, wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import Stream, iperf, send_frames, stream_number, udp_frame
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

QUEUES = 2
FLOWS = 8
OPTIONS = {"net_af_packet": f",qpairs={QUEUES}", "net_af_xdp": ""}
Place = tuple[int, int]   # vport, queue


class ManyQueues(Lab):
    """Two workers, and guests on ports with two queues each."""

    def __init__(self, workspace: Workspace, dpdk_port: str) -> None:
        super().__init__(workspace, dpdk_port=dpdk_port)
        self.nic.workers = {"count": 2, "rebalance": False}

    def dpdk_arguments(self, guest: Guest) -> str:
        return super().dpdk_arguments(guest) + OPTIONS[self.dpdk_port]

    def plug(self, guest: Guest, addressed: bool = True) -> Guest:
        super().plug(guest, addressed)
        for namespace, device in ((guest.namespace, guest.device), (self.namespace, guest.veth)):
            namespace.run(["ethtool", "-L", device, "rx", str(QUEUES), "tx", str(QUEUES)],
                          check=self.dpdk_port == "net_af_xdp")
        return guest

    def places(self) -> dict[Place, int]:
        """Which worker polls each queue."""
        workers = json.loads(self.nic.drnic("stats", "--json"))["workers"]
        return {(queue["vport"], queue["queue"]): number
                for number, worker in enumerate(workers) for queue in worker["queues"]}

    def loads(self) -> dict[Place, float]:
        workers = json.loads(self.nic.drnic("stats", "--json"))["workers"]
        return {(queue["vport"], queue["queue"]): queue["load"] for worker in workers for queue in worker["queues"]}


@pytest.fixture(params=list(OPTIONS))
def lab(workspace: Workspace, request: pytest.FixtureRequest) -> Iterator[ManyQueues]:
    made = ManyQueues(workspace, request.param)
    made.wire_all(vms=2, uplink=False)
    made.fix_neighbours()
    made.start(fail_mode="secure")
    made.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2", "in_port=2,actions=output:1"])
    yield made
    assert_alive(made)


def streams(source: Guest, target: Guest, *, rate: float, limit: int | None = None) -> list[Stream]:
    """One flow each, by their source addresses."""
    return [Stream(source.namespace, source.device, source_mac=source.mac, target_mac=target.mac,
                   source=f"10.99.1.{number}", target=target.address, rate=rate, size=100, limit=limit)
            for number in range(1, FLOWS + 1)]


def numbers_by_flow(capture: Capture) -> dict[bytes, list[int]]:
    flows: dict[bytes, list[int]] = defaultdict(list)
    for frame in capture.frames:
        number = stream_number(frame)
        if number is not None:
            flows[frame[26:30]].append(number)
    return flows


def test_two_workers_share_a_port(lab: ManyQueues) -> None:
    """Ping, TCP, and many flows: each worker has its part."""
    first, second = lab.guests
    places = lab.places()
    assert set(places) == {(vport, queue) for vport in (1, 2) for queue in range(QUEUES)}
    for vport in (1, 2):
        assert {places[vport, queue] for queue in range(QUEUES)} == {0, 1}, "queues of a port go to different workers"
    assert_reaches(first, second)
    wait_offloaded(lab, first)
    tcp = iperf(first.namespace, second.namespace, second.address, lab.workspace.folder, seconds=3)
    assert tcp.megabits_per_second > 10
    running = streams(first, second, rate=1000)
    for stream in running:
        stream.__enter__()
    wait_until(lambda: all(lab.loads()[1, queue] > 0 for queue in range(QUEUES)), 20, "a load on each queue")
    text = lab.nic.drnic("stats")
    for stream in running:
        stream.stop()
    assert "  mlx5_0 vport 1 (vm1) queue 0: " in text
    figure(f"{lab.dpdk_port}, two queues: TCP {tcp.megabits_per_second:.0f} Mb/s")


def test_a_move_under_traffic_loses_and_reorders_nothing(lab: ManyQueues) -> None:
    first, second = lab.guests
    frames = 3000
    assert_reaches(first, second)
    wait_offloaded(lab, first)
    with second.capture() as capture:
        running = streams(first, second, rate=500, limit=frames)
        for stream in running:
            stream.__enter__()
        moves = 0
        while any(stream.sent < frames for stream in running):
            lab.nic.drnic("move", "1", str(moves % QUEUES), str(moves // QUEUES % 2))
            moves += 1
        for stream in running:
            stream.join()
            stream.stop()
        wait_until(lambda: sum(map(len, numbers_by_flow(capture).values())) >= FLOWS * frames, 10, "all frames")
    flows = numbers_by_flow(capture)
    assert len(flows) == FLOWS
    for flow, numbers in flows.items():
        assert numbers == list(range(frames)), f"flow {flow.hex()}"
    figure(f"{lab.dpdk_port}: {moves} moves under {FLOWS} flows of {frames} frames: each came once, in its order")
    assert moves >= 20


def test_a_port_goes_and_comes_back_under_traffic(lab: ManyQueues) -> None:
    first, second = lab.guests
    assert_reaches(first, second)
    running = streams(first, second, rate=500)
    for stream in running:
        stream.__enter__()
    for _ in range(3):
        lab.nic.drnic("del", "2")
        assert {vport for vport, _ in lab.places()} == {1}
        lab.nic.drnic("add", "2", "--dpdk", lab.dpdk_arguments(second), "--name", "vm2", "--mac", second.mac)
        assert {lab.places()[2, queue] for queue in range(QUEUES)} == {0, 1}
    for stream in running:
        stream.stop()
    wait_until(lambda: lab.switch.interface(second.port, "error") is None, 10, "the interface works again")
    assert_reaches(first, second)


def test_a_move_that_is_not_possible_is_refused(lab: ManyQueues) -> None:
    for words, said in ((["7", "0", "0"], "vport: 7 is no vport"), (["0", "0", "0"], "has no port"),
                        (["1", "2", "0"], "queue: 2 is not a receive queue of the port: 0 to 1"),
                        (["1", "0", "2"], "worker: 2 is not a worker: 0 to 1")):
        with pytest.raises(CommandError, match=said):
            lab.nic.drnic("move", *words)


needs_testpmd = pytest.mark.skipif(shutil.which("dpdk-testpmd") is None, reason="no dpdk-testpmd")


class Reflector:
    """A guest, and another vport behind which testpmd sends everything back by the queue that it came by: with two it
    is reached by two workers."""

    def __init__(self, workspace: Workspace, dpdk: str) -> None:
        self.workspace = workspace
        self.lab = ManyQueues(workspace, "net_af_packet")
        self.lab.wire("vm1", 1)
        self.port = self.lab.wire_port("vm2", 2, dpdk)
        self.lab.fix_neighbours()
        self.lab.start(fail_mode="secure")
        self.lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2", "in_port=2,actions=output:1"])
        self.runs = 0

    def run(self, device: str, receive: int, send: int, *, tries: int = 1, socket: Path | None = None) -> None:
        """testpmd comes, with so many queues, and goes: each of 64 flows returns. It may die in all `tries` but one,
        and leaves its `socket` behind then, which would not let the next one listen."""
        for _ in range(tries):
            testpmd = self.start_testpmd(device, receive, send)
            if self.all_return(testpmd, receive, send):
                break
            if socket:
                socket.unlink(missing_ok=True)
        else:
            raise RuntimeError(f"testpmd has died, {tries} times of {tries}: {testpmd.output()[-1000:]}")
        testpmd.stop()
        wait_until(lambda: self.lab.switch.interface(self.port.port, "link_state") == "down", 20, "no link")

    def start_testpmd(self, device: str, receive: int, send: int) -> Background:
        self.runs += 1
        testpmd = self.lab.namespace.start(
            ["dpdk-testpmd", "-l", "0,1", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--no-shconf",
             f"--file-prefix={self.workspace.name}", f"--vdev={device}", "--", "--forward-mode=5tswap",
             f"--rxq={receive}", f"--txq={send}", "--auto-start", "--total-num-mbufs=4096", "--stats-period=1"],
            self.workspace.folder / f"testpmd{self.runs}.log")
        self.workspace.defer(testpmd.stop)
        return testpmd

    def all_return(self, testpmd: Background, receive: int, send: int) -> bool:
        """False: testpmd has died."""
        sender = self.lab.guests[0]
        queues = min(receive, send, 2)   # a worker sends by one

        def link_is_up() -> bool:
            return self.lab.switch.interface(self.port.port, "link_state") == "up"

        wait_until(lambda: link_is_up() or not testpmd.running(), 30, "the link")
        # Of each flow a packet that must come back: the first ones make megaflows.
        answers = [udp_frame(sender.mac, self.port.mac, sender.address, f"10.99.2.{number}", b"x" * 58)
                   for number in range(1, 65)]
        with sender.capture() as capture:
            def returned() -> int:
                return len({bytes(frame[26:30]) for frame in capture.frames
                            if frame[6:12] == bytes.fromhex(self.port.mac.replace(":", ""))})

            def done() -> bool:
                send_frames(sender.namespace, sender.device, answers)
                return returned() == len(answers) or not testpmd.running()

            wait_until(done, 20, f"answers to {len(answers)} flows by {receive} and {send} queues")

        def loaded() -> bool:
            send_frames(sender.namespace, sender.device, answers)
            return all(self.lab.loads()[2, queue] > 0 for queue in range(queues)) or not testpmd.running()

        wait_until(loaded, 20, f"a load on {queues} queues")
        return testpmd.running()


@needs_testpmd
def test_a_guest_on_vhost_gets_as_many_queues_as_it_uses(workspace: Workspace) -> None:
    path = workspace.folder / "vm2.vhost"
    reflector = Reflector(workspace, f"net_vhost,iface={path},queues=2")
    for queues in (2, 1):
        reflector.run(f"net_virtio_user0,path={path},queues={queues},queue_size=1024", queues, queues)
    assert_alive(reflector.lab)


@needs_testpmd
@pytest.mark.parametrize("role, theirs", [("server", "client"), ("client", "server")])
def test_a_memif_peer_gets_as_many_rings_as_it_has_queues(workspace: Workspace, role: str, theirs: str) -> None:
    """DPDK's own net_memif. As a server it refuses rings that it has no queues for, though it promised to take them;
    and it (22.11) listens before its port has queues, and may die of a client that comes then."""
    path = workspace.folder / "vm2.memif"
    reflector = Reflector(workspace, f"net_memif,socket={path},role={role},queues=4")
    counts = [(2, 2), (1, 2), (4, 4), (1, 1), (2, 2)]   # receive, send
    device = f"net_memif0,role={theirs},socket={path},socket-abstract=no"
    for receive, send in counts:
        if theirs == "server":
            reflector.run(device, receive, send, tries=5, socket=path)
        else:
            reflector.run(device, receive, send)
    figure(f"DPDK's memif as {theirs}, {counts} queues in turn, on a port with 4: each of 64 flows returned")
    assert_alive(reflector.lab)
