"""DPDK's own mlx5 driver on the soft NIC takes rte_flow rules, and they act: the judge of what the device says that it
can do.

testpmd runs interactively: rules go in by a FIFO, one after the other, and what it says of each is looked at. Every
rule is in group 1, where the driver's tables are its own (group 0 leads there), and matches frames of its own, which a
source address tells apart. The oracle is what testpmd says of the packets that it got, its counters, and its dump of
the rules.
"""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from lab import build
from lab.command import wait_until
from lab.workspace import Workspace
from test_testpmd import ADDRESS, MISSING, Application

pytestmark = [pytest.mark.dr_only, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {' '.join(MISSING)}")]

PROMPT = "testpmd>"
UDP, ESP, GRE = 17, 50, 47


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def source_of(number: int) -> str:
    return f"02:00:00:00:01:{number:02x}"


def ethernet(number: int, behind: bytes, kind: int = 0x0800) -> bytes:
    return mac(ADDRESS) + mac(source_of(number)) + struct.pack("!H", kind) + behind


def ip(protocol: int, behind: bytes, last: int = 200, source: int = 1) -> bytes:
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(behind), 0, 0, 64, protocol, 0, bytes([10, 0, 0, source]),
                       bytes([10, 9, 0, last])) + behind


def udp(port: int, behind: bytes = b"", source: int = 1000) -> bytes:
    return struct.pack("!4H", source, port, 8 + len(behind), 0) + behind


def vxlan(vni: int, inner: bytes) -> bytes:
    return udp(4789, struct.pack("!II", 0x08000000, vni << 8) + inner)


def geneve(vni: int, inner: bytes) -> bytes:
    return udp(6081, struct.pack("!BBHI", 0, 0, 0x6558, vni << 8) + inner)


@dataclass
class Rule:
    """What to create, what to send, and how many frames each queue gets; None: some, but not all that were sent."""

    name: str
    pattern: str
    actions: str
    frames: list[bytes]
    queues: dict[int, int | None]
    said: str = ""  # of each frame that it got
    before: list[str] = field(default_factory=list)
    got_from: int | None = None  # the number in the frames' source address, if not the rule's own


def flows(number: int, count: int, build_one) -> list[bytes]:
    return [ethernet(number, build_one(each)) for each in range(count)]


def inner_of(number: int, each: int) -> bytes:
    return ethernet(number, ip(UDP, udp(53, bytes(30), 2000 + each), source=2 + each))


SPREAD: dict[int, int | None] = {0: None, 1: None}
ACCEPTED = [
    Rule("a flow", "ipv4 dst is 10.9.0.1 / udp", "count / queue index 1",
         flows(1, 3, lambda _: ip(UDP, udp(5, bytes(30)), 1)), {1: 3}),
    Rule("Geneve by VNI", "ipv4 / udp / geneve vni is 5", "count / queue index 1",
         flows(2, 3, lambda each: ip(UDP, geneve(5, inner_of(2, each)))), {1: 3}),
    Rule("RSS over what VXLAN carries", "ipv4 / udp / vxlan vni is 7 / eth / ipv4 / udp",
         "count / rss level 2 types ipv4-udp end queues 0 1 end",
         flows(3, 24, lambda each: ip(UDP, vxlan(7, inner_of(3, each)))), SPREAD),
    Rule("RSS over what Geneve carries", "ipv4 / udp / geneve vni is 6 / eth / ipv4",
         "rss level 2 types ipv4 end queues 0 1 end", flows(4, 24, lambda each: ip(UDP, geneve(6, inner_of(4, each)))),
         SPREAD),
    Rule("decapsulation to a queue", "ipv4 / udp / vxlan vni is 9", "vxlan_decap / count / queue index 1",
         flows(5, 3, lambda each: ip(UDP, vxlan(9, inner_of(55, each)))), {1: 3}, got_from=55),
    Rule("RSS over GRE's outer header", "ipv4 / gre / ipv4", "count / rss types ipv4 end queues 0 1 end",
         flows(6, 24, lambda each: ip(GRE, b"\0\0\x08\0" + ip(UDP, udp(7, bytes(20))), source=2 + each)), SPREAD),
    Rule("a mirror", "ipv4 dst is 10.9.0.7", "sample ratio 1 index 0 / queue index 0",
         flows(7, 5, lambda _: ip(UDP, udp(5, bytes(30)), 7)), {0: 5, 1: 5},
         before=["set sample_actions 0 queue index 1 / end"]),
    Rule("a sample", "ipv4 dst is 10.9.0.8", "sample ratio 2 index 0 / count / queue index 0",
         flows(8, 60, lambda _: ip(UDP, udp(5, bytes(30)), 8)), {0: 60, 1: None}),
    Rule("RSS by ESP's SPI", "ipv4 dst is 10.9.0.9 / esp", "count / rss types esp end queues 0 1 end",
         flows(9, 24, lambda each: ip(ESP, struct.pack("!II", 77 + 13 * each, 1) + bytes(30), 9)), SPREAD),
    Rule("shared RSS", "ipv4 dst is 10.9.0.11 / udp", "count / indirect 0",
         flows(11, 24, lambda each: ip(UDP, udp(5, bytes(30), 3000 + each), 11)), SPREAD,
         before=["flow indirect_action 0 create ingress action rss types ipv4-udp end queues 0 1 end / end"]),
    Rule("a mark", "ipv4 dst is 10.9.0.12 / udp", "mark id 85 / queue index 0",
         flows(12, 2, lambda _: ip(UDP, udp(5, bytes(30)), 12)), {0: 2}, said="FDIR matched ID=0x55"),
    Rule("an address set", "ipv4 dst is 10.9.0.17",
         "modify_field op set dst_type ipv4_dst src_type value src_value 0a090020 width 32 / queue index 0",
         flows(17, 2, lambda _: ip(UDP, udp(5, bytes(30)), 17)), {0: 2}),
    Rule("a metadata set", "ipv4 dst is 10.9.0.19 / udp", "set_meta data 5 mask 0xff / queue index 0",
         flows(19, 2, lambda _: ip(UDP, udp(5, bytes(30)), 19)), {0: 2}),
    Rule("an age", "ipv4 dst is 10.9.0.18 / udp", "age timeout 1 / queue index 0",
         flows(18, 2, lambda _: ip(UDP, udp(5, bytes(30)), 18)), {0: 2}),
]

# What is refused, in what words, and whose doing it is.
REFUSED = [
    ("integrity value mask 0x1 value spec 0x1 / eth", "queue index 0", "integrity_item not supported",
     "the soft NIC: no such bits"),
    ("eth / ecpri", "queue index 0", "cannot create eCPRI parser", "the soft NIC: no parse graphs"),
    ("eth / ipv4 / udp / gtp teid is 5", "queue index 0", "GTP support is not enabled",
     "the configuration: flex_parser_profile"),
    ("eth / ipv4", "queue index 0 / rss queues 0 1 end", "can't have 2 fate actions", "DPDK"),
]


class Interactive:
    """testpmd at its prompt."""

    def __init__(self, application: Application, workspace: Workspace) -> None:
        fifo = workspace.folder / "testpmd.in"
        os.mkfifo(fifo)
        self.input = os.open(fifo, os.O_RDWR)
        library = build.build_folder() / "datapath" / "verbs" / "lib"
        argv = ["sh", "-c", 'exec "$@" <"$0"', str(fifo), str(Path(__file__).parent / "with_subfunction"), "mlx5_0",
                "pf0", "stdbuf", "-oL", "dpdk-testpmd", "-l", "0,1", "--no-huge", "-m", "512", "--no-shconf",
                "--no-telemetry", "--no-pci", "-a", "auxiliary:mlx5_core.sf.1", "--", "--total-num-mbufs=4096", "-i",
                "--forward-mode=rxonly", "--rxq=2", "--txq=2"]
        self.running = application.namespace.start(argv, application.log,
                                                   env={"OVSDR_SOFTNIC": str(application.config),
                                                        "LD_LIBRARY_PATH": str(library)})
        self.wait_for(PROMPT)

    def wait_for(self, words: str, since: int = 0) -> str:
        wait_until(lambda: words in self.running.output()[since:] or not self.running.running(), 60,
                   f"testpmd says {words!r}")
        said = self.running.output()[since:]
        assert words in said, said[-2000:]
        return said

    def ask(self, command: str, answer: str) -> str:
        """All that testpmd says from the command until `answer` is there."""
        since = len(self.running.output())
        os.write(self.input, f"{command}\n".encode())
        return self.wait_for(answer, since)

    def stop(self) -> None:
        self.running.stop()
        os.close(self.input)


def create(testpmd: Interactive, rule: Rule) -> int:
    """Returns the rule's number."""
    for command in rule.before:
        os.write(testpmd.input, f"{command}\n".encode())
    # Whatever comes of it, the answer to a command that does nothing comes behind it.
    said = testpmd.ask(f"flow create 0 ingress group 1 pattern eth / {rule.pattern} / end "
                       f"actions {rule.actions} / end\nshow fwd x", "Bad arguments")
    created = re.search(r"Flow rule #(\d+) created", said)
    assert created, f"{rule.name}: {said}"
    return int(created[1])


def received(said: str, number: int) -> list[tuple[int, str]]:
    """Queue and line of each frame with that number in its source address."""
    lines = [line for line in said.splitlines() if f"src={source_of(number).upper()}" in line]
    return [(int(re.search(r"Receive queue=0x(\w+)", line)[1], 16), line) for line in lines]  # type: ignore[index]


def check(testpmd: Interactive, application: Application, rule: Rule) -> None:
    number = rule.frames[0][11] if rule.got_from is None else rule.got_from

    def all_came() -> bool:
        frames = received(testpmd.running.output(), number)
        got = Counter(queue for queue, _ in frames)
        exact = {queue: count for queue, count in rule.queues.items() if count is not None}
        return (all(got[queue] >= count for queue, count in exact.items()) if exact
                else len(frames) >= len(rule.frames))

    application.send(rule.frames)
    wait_until(all_came, 10, f"{rule.name}: frames come")
    frames = received(testpmd.running.output(), number)
    got = Counter(queue for queue, _ in frames)
    for queue, count in rule.queues.items():
        if count is None:
            assert 0 < got[queue] < len(rule.frames), f"{rule.name}: {got}: {frames[:3]}"
        else:
            assert got[queue] == count, f"{rule.name}: {got}"
    assert all(rule.said in line for _, line in frames), f"{rule.name}: {frames}"


def test_dpdks_mlx5_driver_takes_rules_and_they_act(workspace: Workspace) -> None:
    application = Application(workspace)
    testpmd = Interactive(application, workspace)
    try:
        testpmd.ask("set verbose 1", "Change verbose level")
        testpmd.ask("flow create 0 ingress pattern eth / end actions jump group 1 / end", "Flow rule #0 created")
        numbers = {rule.name: create(testpmd, rule) for rule in ACCEPTED}
        testpmd.ask("start", "rxonly packet forwarding")
        for rule in ACCEPTED:
            check(testpmd, application, rule)
        for rule in ACCEPTED:
            if "count" in rule.actions:
                # The driver reads its counters once a second, by a dump to memory.
                wait_until(lambda rule=rule: f"hits: {len(rule.frames)}" in  # type: ignore[misc]
                           testpmd.ask(f"flow query 0 {numbers[rule.name]} count", "bytes:"), 10,
                           f"{rule.name} is counted", 0.3)
        wait_until(lambda: re.search(rf"^{numbers['an age']}\t",
                                     testpmd.ask("flow aged 0", "Port 0 total aged flows"), re.M) is not None
                   or str(numbers["an age"]) in testpmd.ask("flow aged 0", "Port 0 total aged flows"), 15,
                   "the idle flow ages", 0.5)
        dump = workspace.folder / "flows.dump"
        testpmd.ask(f"flow dump 0 all {dump}", "Flow dump finished")
        assert dump.stat().st_size > 0
        testpmd.ask("stop", "Telling cores to stop")
    finally:
        testpmd.stop()


def test_what_dpdks_mlx5_driver_refuses(workspace: Workspace) -> None:
    """The words are the driver's; the last column of the table says whose doing it is."""
    testpmd = Interactive(Application(workspace), workspace)
    try:
        for pattern, actions, words, whose in REFUSED:
            said = testpmd.ask(f"flow create 0 ingress group 1 pattern {pattern} / end "
                               f"actions {actions} / end\nshow fwd x", "Bad arguments")
            assert words in said and "created" not in said, f"{pattern} => {actions} ({whose}): {said}"
    finally:
        testpmd.stop()
