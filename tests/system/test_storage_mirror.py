"""Mirrored traffic from a switch's sender to a collector, two processes with a soft NIC each, over RoCEv2 in two
namespaces: what the collector's file holds is what was sent, once and in order, whatever is killed or full meanwhile.

mirror_sender stands for the switch. Oracles: tshark reads the files; the numbers of the frames; `drcollect verify`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time

import pytest
from helpers import figure
from lab import build
from lab.collector import PORT, Collector
from lab.command import Background, run, wait_until
from lab.pki import Pki, drcollect_options
from lab.workspace import Workspace
from test_roce import Node, nodes  # noqa: F401
from test_rough_wire import rough_nodes  # noqa: F401

pytestmark = pytest.mark.dr_only


def sender_command(collector: Node, *arguments: str, tls: tuple[str, ...] = ("--plain",)) -> list[str]:
    program = build.build_folder() / "tests" / "system" / "mirror_sender" / "mirror_sender"
    return [str(program), collector.control_address, "--port", str(PORT), *tls, *arguments]


def last_words(background: Background) -> dict:
    return json.loads(background.output().strip().splitlines()[-1])


@pytest.fixture
def collector(nodes: tuple[Node, Node], workspace: Workspace):  # noqa: F811
    made = Collector(nodes[0], workspace.folder / "files")
    yield made
    if made.background is not None:
        made.background.stop()


# The others go the same way in tests/unit/tools/drcollect.
@pytest.mark.parametrize("signature, block", [("t10dif-crc", 512), ("crc64", 4048)])
def test_tshark_reads_every_frame(nodes: tuple[Node, Node], collector: Collector, signature: str,  # noqa: F811
                                  block: int) -> None:
    collector.start()
    said = nodes[1].run(*sender_command(nodes[0], "--signature", signature, "--block", str(block), "--frames",
                                        "20000"))
    told = json.loads(said.strip().splitlines()[-1])
    assert told["bad"] == told["dropped"] == 0 and told["connections"] == 1, told
    assert collector.numbers() == list(range(20000))
    verified = collector.verify()
    assert "sound" in verified and " 0 segments without fields" in verified
    session, = collector.sessions()
    assert session["finished"] and session["frames"] == 20000 and session["signature"] == f"{signature} {block}"
    collector.stop()
    figure(f"mirror {signature} {block}: {told['megabytes_per_second']:.0f} MB/s; {verified.split(': ', 1)[1].strip()}")


def test_tls_with_certificates_of_ovs(nodes: tuple[Node, Node], workspace: Workspace) -> None:  # noqa: F811
    """What ovs-pki makes for switches and controllers serves both ends; who has another CA, or none, gets nowhere."""
    pki = Pki(workspace.folder / "pki")
    # It has a controller's certificate where a switch's is asked for.
    stranger = (*pki.collector("stranger")[:2], pki.switch()[2])
    collector = Collector(nodes[0], workspace.folder / "files", tls=drcollect_options(pki.collector())).start()
    try:
        said = nodes[1].run(*sender_command(nodes[0], "--frames", "2000", tls=drcollect_options(pki.switch())))
        assert json.loads(said.strip().splitlines()[-1])["finished"], said
        assert collector.numbers() == list(range(2000)) and "sound" in collector.verify()
        for tls in (drcollect_options(stranger), ("--plain",)):
            said = nodes[1].namespace.run(["env", *(f"{key}={value}" for key, value in nodes[1].environment().items()),
                                           *sender_command(nodes[0], "--frames", "10", "--finish", "2", tls=tls)],
                                          check=False)
            told = json.loads(said.strip().splitlines()[-1])
            assert not told["finished"] and told["connections"] == 0, told
        assert len(collector.sessions()) == 1 and len(collector.files()) == 1
        stats = run([collector.program(), "stats", "--control", str(collector.control)])
        assert "handshakes refused; the last: " in stats, stats
        figure(f"TLS: {stats.strip().splitlines()[-1]}")
        collector.stop()
    finally:
        collector.background.stop()


@pytest.mark.parametrize("options, says", [
    ((), ("--private-key", "--certificate", "--ca-cert", "--plain")),
    (("--plain", "--certificate", "x.pem"), ("--plain: not with files for TLS",)),
    (("--private-key", "x.pem"), ("needed too: --certificate, --ca-cert",)),
    (("--private-key", "/x.pem", "--certificate", "/x.pem", "--ca-cert", "/x.pem"), ("private key /x.pem: ",)),
    (("--plain", "--memory", "100"), ("--memory 100: a ring of --largest-ring 256",)),
])
def test_options_that_say_nothing_clear_are_refused(options: tuple[str, ...], says: tuple[str, ...]) -> None:
    done = subprocess.run([Collector.program(), "run", "--listen", "127.0.0.1:0", *options], capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert all(word in done.stderr for word in says), done.stderr


@pytest.mark.parametrize("gid", [0, 2], ids=["link-local", "ipv6"])
def test_other_addresses(nodes: tuple[Node, Node], workspace: Workspace, gid: int) -> None:  # noqa: F811
    collector = Collector(nodes[0], workspace.folder / "files", "--gid-index", str(gid)).start()
    try:
        nodes[1].run(*sender_command(nodes[0], "--frames", "2000", "--gid-index", str(gid)))
        assert collector.numbers() == list(range(2000))
    finally:
        collector.background.stop()


def test_jumbo_frames_over_a_jumbo_wire(nodes: tuple[Node, Node], collector: Collector) -> None:  # noqa: F811
    for node in nodes:
        node.namespace.run(["ip", "link", "set", node.uplink, "mtu", "9000"])
    collector.start()
    nodes[1].run(*sender_command(nodes[0], "--frames", "2000", "--size", "9018", "--segment", "256"))
    assert collector.numbers() == list(range(2000))
    said = run(["capinfos", "-Mid", str(collector.files()[0])])
    assert "18036000" in said.replace(" ", ""), said
    collector.stop()


def test_a_collector_that_is_killed_loses_nothing_that_it_acknowledged(nodes: tuple[Node, Node],  # noqa: F811
                                                                       collector: Collector) -> None:
    """kill -9 while segments arrive, three times; a collector started anew goes on where the file ends."""
    collector.start()
    sender = nodes[1].start(*sender_command(nodes[0], "--frames", "30000", "--rate", "6000", "--slots", "128"))
    try:
        for _ in range(3):
            time.sleep(random.uniform(0.5, 1.5))
            collector.kill()
            collector.numbers()   # tshark opens what there is
            collector.start()
        assert sender.wait(90) == 0, sender.output()
    finally:
        sender.stop()
    told = last_words(sender)
    assert told["connections"] >= 2, told
    numbers = collector.numbers()
    assert numbers == sorted(set(numbers)), "each once, in order"
    assert len(numbers) + told["dropped"] == 30000, told
    assert "sound" in collector.verify()
    collector.stop()
    figure(f"collector killed 3 times: {told['connections']} connections, {told['dropped']} frames dropped in the "
           f"ring, {len(numbers)} of 30000 in the file, each once")


def test_a_switch_that_is_killed_leaves_a_file_that_opens(nodes: tuple[Node, Node],  # noqa: F811
                                                          collector: Collector) -> None:
    collector.start()
    sender = nodes[1].start(*sender_command(nodes[0], "--frames", "1000000", "--rate", "20000"))
    wait_until(lambda: bool(collector.sessions()) and collector.sessions()[0]["segments"] > 50, 30, "segments arrive")
    os.kill(sender.pid, signal.SIGKILL)
    sender.wait(10)
    wait_until(lambda: not collector.sessions()[0]["connected"], 20, "the collector notices")
    session, = collector.sessions()
    numbers = collector.numbers()
    assert numbers == list(range(session["frames"])) and numbers
    assert "sound" in collector.verify()
    # Another session begins another file.
    nodes[1].run(*sender_command(nodes[0], "--frames", "100"))
    assert len(collector.files()) == 2
    collector.stop()


def test_a_full_disk_is_waited_for(nodes: tuple[Node, Node], collector: Collector) -> None:  # noqa: F811
    run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(collector.folder)])
    try:
        collector.start()
        sender = nodes[1].start(*sender_command(nodes[0], "--frames", "10000"))
        try:
            wait_until(lambda: bool(collector.sessions()) and "No space" in collector.sessions()[0]["stalled"], 30,
                       "the disk is full")
            segments = collector.sessions()[0]["segments"]
            time.sleep(2)
            assert collector.sessions()[0]["segments"] <= segments + 3
            assert "sound" in collector.verify(), "what is there opens"
            run(["mount", "-o", "remount,size=64m", str(collector.folder)])
            assert sender.wait(60) == 0, sender.output()
        finally:
            sender.stop()
        assert last_words(sender)["dropped"] == 0
        assert collector.numbers() == list(range(10000))
        assert "sound" in collector.verify()
        assert collector.sessions()[0]["stalled"] == ""
        collector.stop()
    finally:
        collector.background.stop()
        run(["umount", "-l", str(collector.folder)])


def test_a_rough_wire_harms_nothing(rough_nodes, workspace: Workspace) -> None:  # noqa: F811
    """Packets lost, repeated and reordered: the transport's business. No block is bad."""
    server, client, wire = rough_nodes
    collector = Collector(server, workspace.folder / "files").start()
    try:
        said = client.run(*sender_command(server, "--frames", "20000", "--finish", "100"), timeout=150)
        told = json.loads(said.strip().splitlines()[-1])
        assert told["bad"] == 0 and told["finished"], told
        assert collector.numbers() == list(range(20000))
        wire.stop()
        figure(f"mirror over a rough wire: {told['megabytes_per_second']:.1f} MB/s; {wire.output().splitlines()[-1]}")
    finally:
        collector.background.stop()


def test_verify_names_what_has_changed_in_a_file(nodes: tuple[Node, Node], collector: Collector) -> None:  # noqa: F811
    collector.start()
    nodes[1].run(*sender_command(nodes[0], "--frames", "1000"))
    collector.stop()
    file, = collector.files()
    content = bytearray(file.read_bytes())
    at = len(content) // 2
    content[at] ^= 1
    file.write_bytes(content)
    said = collector.node.namespace.run([collector.program(), "verify", str(file)], check=False)
    line = next(line for line in said.splitlines() if "segment" in line)
    found = int(line.split("byte ")[1].split()[0])
    assert "NOT SOUND" in said
    assert abs(found - at) <= 40000, f"{line}: changed was byte {at}"
    figure(f"verify after byte {at} was changed: {line}")


def test_metrics_and_files_that_follow_each_other(nodes: tuple[Node, Node], workspace: Workspace) -> None:  # noqa: F811
    from prometheus_client.parser import text_string_to_metric_families

    collector = Collector(nodes[0], workspace.folder / "files", "--rotate-size", "2", "--strip").start()
    try:
        nodes[1].run(*sender_command(nodes[0], "--frames", "10000"))
        text = run([collector.program(), "stats", "--prometheus", "--control", str(collector.control)])
        values = {sample.name: sample.value for family in text_string_to_metric_families(text)
                  for sample in family.samples}
        assert values["drcollect_frames_total"] == 10000 and values["drcollect_dropped_frames_total"] == 0
        assert len(collector.files()) >= 5
        assert collector.numbers() == list(range(10000))
        assert "sound" in collector.verify()
        assert "stor0" in run([collector.program(), "stats", "--control", str(collector.control)])
        collector.stop()
        assert not collector.control.exists()
    finally:
        collector.background.stop()
