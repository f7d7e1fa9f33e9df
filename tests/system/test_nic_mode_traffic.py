"""The traffic tests of switchdev mode on plain functions (docs/nic-mode.md): exact counts, policing, rewrites, and all
of that under load, with what NIC_RX and NIC_TX did for each packet."""

from __future__ import annotations

import json
import time
from typing import Iterator

import pytest
from copies import numbers
from helpers import assert_alive, figure, stream, wait_counts
from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE
from lab.traffic import send_frames, udp_frame
from lab.workspace import Workspace
from test_nic_mode import PARTIAL, PATIENCE, WHOLE, FunctionLab, done, kinds_of, wait_kind
from test_policing import police

pytestmark = pytest.mark.dr_only


@pytest.fixture
def three(workspace: Workspace) -> Iterator[FunctionLab]:
    lab = FunctionLab(workspace)
    lab.wire_all(vms=3, uplink=False)
    lab.fix_neighbours()
    lab.start(fail_mode="secure")
    yield lab
    assert_alive(lab)
    assert json.loads(lab.switch.appctl("dr/show", "--json"))["leaked_objects"] == 0


def test_a_stream_arrives_whole_and_is_counted_exactly(three: FunctionLab) -> None:
    """OVS counts what the NIC marked and what came without a mark; NIC_RX and NIC_TX count all of it."""
    first, second, _ = three.guests
    length, size = 4000, 256
    three.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output:2"])
    before, sent_before = done(three, first), done(three, second).sent
    with second.capture() as seen, stream(first, second, rate=1000, size=size, limit=length) as sender:
        wait_kind(three, first, PARTIAL)
        sender.join()
        seen.settle()
    assert numbers(seen.frames) == list(range(length))
    wait_counts(three, "in_port=1,udp", length, length * size)
    after, sent = done(three, first), done(three, second).sent - sent_before
    marked, came = after.marked - before.marked, after.sent_up - before.sent_up
    figure(f"{length} frames of {size} bytes: all arrived once, {length} counted; NIC_RX marked {marked} of {came} "
           f"that it sent up, NIC_TX sent {sent}")
    assert came >= length and sent >= length, "each packet goes through both domains"
    assert length * 0.5 < marked <= came and after.dropped == before.dropped


def test_counts_survive_changes_under_load(three: FunctionLab) -> None:
    """Two streams cross while the flow of one leads to another port each time; no packet is lost or comes twice."""
    first, second, third = three.guests
    three.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output:2", "in_port=2,udp,actions=output:1"])
    with first.capture() as at_first, second.capture() as at_second, third.capture() as at_third:
        with stream(first, second, rate=700) as changed, stream(second, first, rate=700) as steady:
            wait_kind(three, first, PARTIAL)
            for turn in range(6):
                time.sleep(0.4)
                three.switch.ofctl("mod-flows", BRIDGE, f"in_port=1,udp,actions=output:{2 + (turn + 1) % 2}")
            time.sleep(0.4)
        for capture in (at_first, at_second, at_third):
            capture.settle()
        # Each capture has what its guest sent, too.
        came = sorted(numbers(at_second.frames) + numbers(at_third.frames))
        back = numbers(at_first.frames)
    assert came == list(range(changed.sent)) and back == list(range(steady.sent))
    for port, sender in ((1, changed), (2, steady)):
        wait_counts(three, f"in_port={port},udp", sender.sent, sender.sent * 100)
    assert numbers(at_third.frames), "the flow led there"
    figure(f"{changed.sent} frames under 6 mod-flows beside {steady.sent} the other way: all arrived once, all counted")


def test_drops_that_come_and_go_under_load_are_counted_once(three: FunctionLab) -> None:
    """A megaflow is whole in NIC_RX while it drops and marked while it forwards; its flow counts each packet."""
    first, second, _ = three.guests
    three.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output:2"])
    before = done(three, first)
    with second.capture() as seen:
        with stream(first, second, rate=500) as sender:
            for _ in range(3):
                three.switch.ofctl("mod-flows", BRIDGE, "in_port=1,udp,actions=drop")
                wait_kind(three, first, WHOLE)
                dropped = done(three, first).dropped
                wait_until(lambda: done(three, first).dropped >= dropped + 50, PATIENCE, "NIC_RX drops")
                three.switch.ofctl("mod-flows", BRIDGE, "in_port=1,udp,actions=output:2")
                wait_kind(three, first, PARTIAL)
                marked = done(three, first).marked
                wait_until(lambda: done(three, first).marked >= marked + 50, PATIENCE, "NIC_RX marks")
        seen.settle()
        arrived = numbers(seen.frames)
    wait_counts(three, "in_port=1,udp", sender.sent, sender.sent * 100)
    dropped = done(three, first).dropped - before.dropped
    figure(f"{sender.sent} frames sent and counted: {len(arrived)} arrived, NIC_RX dropped {dropped}")
    assert len(set(arrived)) == len(arrived), "none comes twice"
    # Software drops what comes up between the change of the flow and of its megaflow.
    assert 150 <= dropped <= sender.sent - len(arrived)


def test_marked_packets_are_rewritten(three: FunctionLab) -> None:
    """The NIC has looked at the headers; OVS writes them all the same."""
    first, second, third = three.guests
    three.switch.add_flows(BRIDGE, [
        "in_port=1,udp,actions=mod_dl_src:02:00:00:00:00:77,mod_nw_dst:10.9.8.7,mod_tp_dst:9,mod_vlan_vid:5,output:2,"
        "strip_vlan,mod_nw_dst:10.9.8.6,output:3"])
    payloads = [b"rewritten" + bytes([number]) * 40 for number in range(200)]
    sent = [udp_frame(first.mac, second.mac, first.address, second.address, payload) for payload in payloads]

    def rewritten(address: str, vlan: int | None) -> list[bytes]:
        return [udp_frame("02:00:00:00:00:77", second.mac, first.address, address, payload, target_port=9, vlan=vlan)
                for payload in payloads]

    # The megaflow may be there before its first packet has left, which is told from the others for that.
    opener = udp_frame(first.mac, second.mac, first.address, second.address, bytes(len(payloads[0])))
    send_frames(first.namespace, first.device, [opener])
    wait_kind(three, first, PARTIAL)
    before = done(three, first).marked
    with second.capture() as tagged, third.capture() as bare:
        send_frames(first.namespace, first.device, sent)
        for here in (tagged, bare):
            wait_until(lambda: sum(b"rewritten" in frame for frame in list(here.frames)) >= len(sent), 20,
                       "all have come")
            here.settle()
    assert [frame for frame in tagged.frames if b"rewritten" in frame] == rewritten("10.9.8.7", 5)
    assert [frame for frame in bare.frames if b"rewritten" in frame] == rewritten("10.9.8.6", None)
    marked = done(three, first).marked - before
    wait_counts(three, "in_port=1,udp", len(sent) + 1, sum(map(len, sent)) + len(opener))
    figure(f"{len(sent)} packets rewritten for two ports, {marked} of them marked by NIC_RX")
    assert marked >= len(sent)


def test_tracked_connections_are_marked_unless_they_may_be_translated(three: FunctionLab) -> None:
    """OVS hashes a packet as it came, a marked one not before it recirculates: as it is then."""
    first, second, _ = three.guests
    refused = "recirc behind a change of what OVS hashes"
    three.switch.add_flows(BRIDGE, ["table=0,in_port=1,udp,actions=ct(table=1)", "table=1,udp,actions=output:2"])
    before = done(three, first).marked
    with second.capture() as seen:
        with stream(first, second, rate=300) as sender:
            wait_kind(three, first, PARTIAL)
            wait_until(lambda: done(three, first).marked >= before + 100, PATIENCE, "100 packets are marked")
            assert refused not in three.switch.appctl("dr/explain")
            three.switch.ofctl("mod-flows", BRIDGE, "table=0,in_port=1,udp,actions=ct(nat,table=1)")
            wait_until(lambda: refused in three.switch.appctl("dr/explain"), PATIENCE, "the reason is told")
            wait_until(lambda: PARTIAL not in kinds_of(three, first), PATIENCE, "no megaflow is marked")
        seen.settle()
        arrived = numbers(seen.frames)
    assert arrived == list(range(sender.sent)), "each arrives once"


def test_what_the_policer_drops_is_counted(three: FunctionLab) -> None:
    """A megaflow that drops is marked on a policed port, not dropped in NIC_RX: the policer sees each packet."""
    first, second, _ = three.guests
    three.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2"])
    police(three, first, ["ingress_policing_rate=8", "ingress_policing_burst=80"])   # a frame a second, ten at once
    length, size = 500, 1000
    start = time.monotonic()
    with second.capture() as seen, stream(first, second, rate=2000, size=size, limit=length) as sender:
        sender.join()
        seen.settle()
        arrived = len(numbers(seen.frames))
    assert 10 <= arrived <= 11 + (time.monotonic() - start)

    def policed() -> object:
        statistics = three.switch.interface(first.port, "statistics")
        assert isinstance(statistics, dict)
        return statistics.get("slow_path_rx_policed")

    wait_until(lambda: policed() == length - arrived, PATIENCE, f"{length - arrived} drops are counted")
    wait_counts(three, "in_port=1", arrived, arrived * size)
    three.switch.ofctl("mod-flows", BRIDGE, "in_port=1,actions=drop")
    before = done(three, first)
    with stream(first, second, rate=500, size=size, limit=length) as sender:
        sender.join()
    assert done(three, first).dropped == before.dropped
    wait_until(lambda: policed() == stats_of_policer(three, length, arrived), PATIENCE, "the policer drops those, too")
    figure(f"{arrived} of {length} frames passed, {length - arrived} counted as policed; NIC_RX dropped none")


def stats_of_policer(lab: FunctionLab, length: int, arrived: int) -> int:
    """Of both streams, what the flow did not count."""
    packets, _ = stats.openflow_counts(lab.switch, BRIDGE, "in_port=1")
    return 2 * length - packets if packets >= arrived else -1
