"""Megaflows that dpif-netdev takes for one: key & mask are the same, the masks are not. Each has a rule, a counter and
an end of its own."""

from __future__ import annotations

import json
import re

import pytest
from helpers import figure, wait_counts
from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import send_frames, udp_frame
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

SIZE = 100
TOS = 0x10
# What dpctl/add-flow is to match of the type of service, and dpctl/dump-flows shows of it. A packet with TOS set goes
# by the second one alone.
WITHOUT_TOS, ANY_TOS = "tos=0/0xfc", f"tos={TOS:#x}/0"


def frame(source: Guest, target: Guest, tos: int) -> bytes:
    plain = udp_frame(source.mac, target.mac, source.address, target.address, bytes(SIZE - 42))
    # The checksum is a sum of words: what is added to one is taken from it.
    checksum = (int.from_bytes(plain[24:26], "big") - tos - 1) % 0xFFFF + 1
    return plain[:15] + bytes([tos]) + plain[16:24] + checksum.to_bytes(2, "big") + plain[26:]


def datapath_port(lab: Lab, guest: Guest) -> str:
    found = re.search(rf"port (\d+): {guest.port} ", lab.switch.appctl("dpctl/show"))
    assert found is not None
    return found.group(1)


def put(lab: Lab, tos: str) -> None:
    first, second = lab.guests[:2]
    match = (f"recirc_id(0),in_port({first.port}),packet_type(ns=0,id=0),eth(),eth_type(0x0800),"
             f"ipv4(src={first.address},dst={second.address},{tos},frag=no)")
    lab.switch.appctl("dpctl/add-flow", match, datapath_port(lab, second))


def megaflow(lab: Lab, tos: str) -> stats.Megaflow | None:
    """The one of the two that does or does not match the type of service."""
    flows = [flow for flow in stats.megaflows(lab.switch) if f"in_port({lab.guests[0].port})" in flow.match]
    return next((flow for flow in flows if ("tos=0/0xfc" in flow.match) == (tos == WITHOUT_TOS)), None)


def present(lab: Lab, tos: str) -> stats.Megaflow:
    found = megaflow(lab, tos)
    assert found is not None, stats.megaflows(lab.switch)
    return found


def wait_offloaded(lab: Lab, tos: str) -> None:
    wait_until(lambda: "offloaded:yes, dp:dr" in present(lab, tos).text, 5, f"{tos} is offloaded")


def send(lab: Lab, tos: int, count: int) -> None:
    first, second = lab.guests[:2]
    with second.capture() as seen:
        send_frames(first.namespace, first.device, [frame(first, second, tos)] * count)
        wait_until(lambda: len(seen.matching(bytes(SIZE - 42))) == count, 5, f"{count} frames arrived")


def wait_packets(lab: Lab, kinds: tuple[str, ...], count: int) -> None:
    """The NIC's counters are read now and then: the sum reaches the number, and does not pass it."""
    def counted() -> int:
        return sum(present(lab, tos).packets for tos in kinds)

    wait_until(lambda: counted() >= count, 5, f"{count} packets are counted")
    assert (counted(), sum(present(lab, tos).bytes for tos in kinds)) == (count, count * SIZE)


def packets_in_the_nic(lab: Lab, flow: stats.Megaflow) -> int:
    return int(json.loads(lab.switch.appctl("dr/explain", f"ufid:{flow.ufid}", "-j"))["packets"])


def megaflows_in_the_nic(lab: Lab) -> int:
    found = re.search(r"megaflows: (\d+) offloaded", lab.switch.appctl("dr/show"))
    assert found is not None
    return int(found.group(1))


@pytest.mark.parametrize("first_to_go", [WITHOUT_TOS, ANY_TOS])
def test_megaflows_with_the_same_key_and_other_masks_are_two(lab: Lab, first_to_go: str) -> None:
    stays = ANY_TOS if first_to_go == WITHOUT_TOS else WITHOUT_TOS
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000")
    lab.switch.add_flows(BRIDGE, ["in_port=1,ip,actions=output:2"])
    for tos in (WITHOUT_TOS, ANY_TOS):
        put(lab, tos)
        wait_offloaded(lab, tos)

    # Packets without TOS may take either rule, as they may either megaflow in software.
    send(lab, TOS, 30)
    wait_packets(lab, (WITHOUT_TOS, ANY_TOS), 30)
    assert present(lab, WITHOUT_TOS).packets == 0
    send(lab, 0, 20)
    wait_packets(lab, (WITHOUT_TOS, ANY_TOS), 50)
    before = present(lab, stays).packets

    # By ufid alone it is the offload thread that takes the rule out, when its turn comes: until then packets meet it.
    in_the_nic = megaflows_in_the_nic(lab)
    lab.switch.appctl("dpctl/del-flow", f"ufid:{present(lab, first_to_go).ufid}")
    assert megaflow(lab, first_to_go) is None
    wait_until(lambda: megaflows_in_the_nic(lab) == in_the_nic - 1, 20, "the rule is out of the NIC")
    assert present(lab, stays).offloaded == "yes"
    send(lab, TOS if stays == ANY_TOS else 0, 40)
    wait_packets(lab, (stays,), before + 40)
    assert packets_in_the_nic(lab, present(lab, stays)) == before + 40
    figure(f"{first_to_go} deleted first: 50 packets of both, 40 of the other, each counted once, none by software")


def test_openflow_counts_megaflows_with_the_same_key_and_other_masks(lab: Lab) -> None:
    lab.switch.add_flows(BRIDGE, ["in_port=1,ip,actions=output:2"])
    for tos in (WITHOUT_TOS, ANY_TOS):
        put(lab, tos)
        wait_offloaded(lab, tos)
    send(lab, TOS, 30)
    send(lab, 0, 20)

    def gone() -> bool:
        lab.switch.appctl("revalidator/purge")   # of what the revalidators know: they have to see dpctl's flows first
        return not stats.megaflows(lab.switch)

    wait_until(gone, 10, "both are deleted")
    wait_counts(lab, "in_port=1,ip", 50, 50 * SIZE)
    figure("50 packets of two megaflows with the same key & mask: 50 counted")


def test_a_megaflow_has_a_rule_for_each_thread(workspace: Workspace) -> None:
    """So that each thread's flow is counted by itself, and takes nothing of another's with it (test_receive_queues.py).
    dpctl puts a flow on every thread that polls, here the main thread and that of a port of OVS's own."""
    lab = Lab(workspace)
    lab.wire_all(vms=2, uplink=False)
    lab.switch.daemon_arguments += ["--enable-dummy"]
    lab.start(fail_mode="secure")
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=600000", "other_config:pmd-maxsleep=10000")
    lab.switch.vsctl("add-port", BRIDGE, "polled", "--", "set", "interface", "polled", "type=dummy-pmd")
    lab.switch.add_flows(BRIDGE, ["in_port=1,ip,actions=output:2"])
    lab.switch.appctl("vlog/set", "dpif_netdev:file:dbg")
    put(lab, WITHOUT_TOS)
    wait_offloaded(lab, WITHOUT_TOS)
    named = re.findall(r"flow_add: ufid:\S+ mega_ufid:(\S+) .*tos=0/0xfc", lab.switch.log.read_text())
    assert len(named) == 2 and len(set(named)) == 2, named
    wait_until(lambda: "megaflows: 2 offloaded, 0 rejected, 0 failed" in lab.switch.appctl("dr/show"), 5, "two rules")
    figure("one megaflow of two threads: two ufids, two rules")
