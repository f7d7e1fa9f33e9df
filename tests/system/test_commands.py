"""OVS's own commands with dr ports and offloaded megaflows: each works, or says why not."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

import pytest
from helpers import assert_alive, assert_reaches, figure, is_offloaded, wait_counts, wait_offloaded
from lab import stats, traffic
from lab.command import CommandError, wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

DATAPATH = "netdev@ovs-netdev"
PREFIXES = ("dpctl/", "dpif/", "dpif-netdev/", "ofproto/trace")


@dataclass(frozen=True)
class Try:
    arguments: str = ""
    shows: str = ""     # a regular expression; "" where it says nothing
    refused: str = ""   # a part of the reason


# In this order. VM1 and VM2 stand for their datapath port numbers.
COMMANDS: dict[str, list[Try]] = {
    "dpif/show": [Try(shows=r"vm1 1/VM1: \(dr: device=mlx5_0, vport=1\)")],
    "dpif/dump-dps": [Try(shows=f"netdev@{BRIDGE}")],
    "dpif/dump-flows": [Try(BRIDGE, r"in_port\(VM1\).*packets:\d+.*actions:VM2")],
    "dpif/show-dp-features": [Try(BRIDGE, "Ufid: Yes")],
    "dpif/set-dp-features": [Try(BRIDGE, "CT state")],
    "dpif-netdev/bond-show": [Try()],
    "dpif-netdev/dpif-impl-get": [Try(shows="dpif_scalar")],
    "dpif-netdev/dpif-impl-set": [Try("dpif_scalar", "set to dpif_scalar"),
                                  Try("x", refused="Unknown DPIF implementation x"),
                                  Try("dpif_avx512", refused="DPIF implementation not available")],
    "dpif-netdev/miniflow-parser-get": [Try(shows="scalar")],
    "dpif-netdev/miniflow-parser-set": [Try("scalar", "set to scalar")],
    "dpif-netdev/pmd-perf-log-set": [Try("off")],
    # The ports are polled by the main thread: there is no PMD thread and no queue of one.
    "dpif-netdev/pmd-perf-show": [Try()],
    "dpif-netdev/pmd-rxq-rebalance": [Try(shows="requested")],
    "dpif-netdev/pmd-rxq-show": [Try(shows="last 60 seconds"), Try("-pmd 0")],
    "dpif-netdev/subtable-lookup-info-get": [Try(shows="generic")],
    "dpif-netdev/subtable-lookup-prio-set": [Try("generic 5", "Lookup priority change")],
    "dpctl/dump-dps": [Try(shows=DATAPATH)],
    "dpctl/add-dp": [Try("netdev@other", refused="not supported")],
    "dpctl/del-dp": [Try("netdev@other", refused="No such device")],
    "dpctl/set-if": [Try(f"{DATAPATH} vm1,n_txq=1", refused="unknown option n_txq (an interface of type=dr has device"),
                     Try(f"{DATAPATH} vm1,n_rxq=33", refused="not a number from 1 to 32"),
                     Try(f"{DATAPATH} vm1,vport=3", refused="vport 3 of mlx5_0 is taken by vm3"),
                     Try(f"{DATAPATH} vm1,type=tap", refused="can't change type from dr to tap")],
    "dpctl/cache-get-size": [Try(shows=DATAPATH)],
    "dpctl/cache-set-size": [Try(f"{DATAPATH} masks 4", refused="not supported")],
    "dpctl/ct-bkts": [Try(shows="Current Connections: 0")],
    "dpctl/ct-set-maxconns": [Try("1000", "successful")],
    "dpctl/ct-get-maxconns": [Try(shows="^1000$")],
    "dpctl/ct-get-nconns": [Try(shows="^0$")],
    "dpctl/ct-disable-tcp-seq-chk": [Try(shows="successful")],
    "dpctl/ct-get-tcp-seq-chk": [Try(shows="disabled")],
    "dpctl/ct-enable-tcp-seq-chk": [Try(shows="successful")],
    "dpctl/ct-set-limits": [Try("zone=1,limit=5")],
    "dpctl/ct-get-limits": [Try(shows="zone=1,limit=5,count=0")],
    "dpctl/ct-del-limits": [Try("zone=1")],
    "dpctl/ipf-set-disabled": [Try("v4", "successful")],
    "dpctl/ipf-set-enabled": [Try("v4", "successful")],
    "dpctl/ipf-set-min-frag": [Try("v4 1000", "successful")],
    "dpctl/ipf-set-max-nfrags": [Try("500", "successful")],
    "dpctl/ipf-get-status": [Try(shows=r"max num frags \(v4/v6\): 500")],
    "dpctl/list-commands": [Try(shows="dump-flows")],
    "dpctl/parse-actions": [Try("VM2,ct(zone=1)", r"VM2,ct\(zone=1\)")],
    "dpctl/normalize-actions": [Try("in_port(VM1),eth_type(0x0800),ipv4() VM2", "no mpls: VM2")],
    "ofproto/trace": [
        Try(f"{BRIDGE} in_port=vm1,icmp", "Datapath actions: VM2"),
        Try("in_port(VM1),eth(src=02:0d:00:00:00:01,dst=02:0d:00:00:00:02),eth_type(0x0800),"
            "ipv4(src=10.99.0.1,dst=10.99.0.2,proto=1,ttl=64,frag=no)", "Datapath actions: VM2"),
        Try(f"{BRIDGE} in_port=vm1,icmp -generate", "Datapath actions: VM2")],
    "ofproto/trace-packet-out": [Try(f"{BRIDGE} in_port=vm1,icmp output:2", "Datapath actions: VM2")],
}

# They have tests of their own below.
ELSEWHERE = {"dpctl/show", "dpctl/dump-flows", "dpctl/get-flow", "dpctl/add-flow", "dpctl/mod-flow", "dpctl/del-flow",
             "dpctl/add-flows", "dpctl/mod-flows", "dpctl/del-flows", "dpctl/add-if", "dpctl/del-if",
             "dpctl/offload-stats-show", "dpctl/dump-conntrack", "dpctl/ct-stats-show", "dpctl/flush-conntrack",
             "dpif-netdev/pmd-stats-show", "dpif-netdev/pmd-stats-clear"}


@pytest.fixture(scope="module")
def lab(built: None) -> Iterator[Lab]:
    """Two guests between whom everything is offloaded, and a third; one lab for all tests here."""
    with Workspace("test") as workspace:
        made = Lab(workspace)
        made.wire_all(vms=3, uplink=False)
        made.fix_neighbours()
        made.start(fail_mode="secure")
        made.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2", "in_port=2,actions=output:1"])
        yield made


def offloaded(lab: Lab) -> tuple[Guest, Guest]:
    first, second = lab.guests[:2]
    traffic.ping(first.namespace, second.address, count=10, interval=0.01)
    for guest in (first, second):
        wait_offloaded(lab, guest)
    return first, second


def sent_by_first(lab: Lab) -> int:
    """Packets of OpenFlow's rule for vm1; the revalidators have brought it up to date."""
    for _ in range(2):
        lab.switch.appctl("revalidator/wait")
    return stats.openflow_counts(lab.switch, BRIDGE, "in_port=1")[0]


def datapath_ports(lab: Lab) -> dict[str, str]:
    return dict(reversed(found) for found in re.findall(r"port (\d+): (\S+)", lab.switch.appctl("dpctl/show")))


def fault_of(lab: Lab, command: str, attempt: Try, numbers: dict[str, str]) -> str:
    """What is wrong with it; "" for nothing."""
    def filled(text: str) -> str:
        return text.replace("VM1", numbers["vm1"]).replace("VM2", numbers["vm2"])

    arguments = filled(attempt.arguments)
    words = arguments.split(" ") if arguments else []
    try:
        said = lab.switch.appctl(command, *words)
    except CommandError as error:
        good = attempt.refused and attempt.refused in error.output
        return "" if good else f"{command} {arguments}: {error.output}"
    if attempt.refused:
        return f"{command} {arguments}: not refused: {said}"
    good = re.search(filled(attempt.shows), said, re.MULTILINE) if attempt.shows else not said.strip()
    return "" if good else f"{command} {arguments}: {said!r}"


def test_each_command_works_or_says_why_not(lab: Lab) -> None:
    listed = {line.split()[0] for line in lab.switch.appctl("list-commands").splitlines() if line.startswith("  ")}
    assert {name for name in listed if name.startswith(PREFIXES)} == COMMANDS.keys() | ELSEWHERE
    first, second = offloaded(lab)
    numbers = datapath_ports(lab)
    faults = [fault for command, attempts in COMMANDS.items() for attempt in attempts
              if (fault := fault_of(lab, command, attempt, numbers))]
    assert not faults
    assert_alive(lab)
    offloaded(lab)
    assert_reaches(first, second)
    figure(f"{len(COMMANDS)} commands tried")


def test_shown_numbers_are_those_of_the_nic(lab: Lab) -> None:
    """Ports and megaflows have what the NIC counted; look-ups, and what a thread did, are the slow path's alone."""
    first, second = offloaded(lab)
    traffic.ping(first.namespace, second.address, count=1)
    slow, sent = stats.slow_path(lab.switch), sent_by_first(lab)
    lab.switch.appctl("dpif-netdev/pmd-stats-clear")
    assert stats.slow_path(lab.switch).received == 0

    def received(name: str) -> int:
        text = lab.switch.appctl("dpctl/show", "-s")
        found = re.search(rf"port \d+: {name} \(dr:.*?RX packets:(\d+)", text, re.DOTALL)
        return int(found.group(1)) if found else -1

    before = received(first.port)
    assert traffic.ping(first.namespace, second.address, count=50, interval=0.005).received == 50
    assert received(first.port) - before == 50
    wait_counts(lab, "in_port=1", sent + 50, 98 * (sent + 50))
    assert stats.slow_path(lab.switch).received == 0
    text = lab.switch.appctl("dpctl/show")
    assert "lookups: hit:0 missed:0 lost:0" in text and "flows: 2" in text
    inserted = re.search(r"Total +Inserted offloads: +(\d+)", lab.switch.appctl("dpctl/offload-stats-show"))
    assert inserted and int(inserted.group(1)) == 2
    figure(f"50 pings in dpctl/show -s and OpenFlow's counts, none in look-ups "
           f"(before: {slow.received} in the slow path)")


def test_dump_flows_selects(lab: Lab) -> None:
    offloaded(lab)
    number = datapath_ports(lab)["vm1"]
    for argument, length in {"type=offloaded": 2, "type=all": 2, "type=dpdk,offloaded": 2, "pmd=-1": 2, "type=ovs": 0,
                             "type=non-offloaded": 0, "type=partially-offloaded": 0, "type=tc": 0, "type=dpdk": 0,
                             "pmd=0": 0, "filter=in_port(vm1)": 1, f"filter=in_port={number}": 1, "filter=icmp": 2,
                             "filter=arp": 0}.items():
        text = lab.switch.appctl("dpctl/dump-flows", argument)
        assert len([line for line in text.splitlines() if "recirc_id" in line]) == length, (argument, text)
    assert "actions:vm2" in lab.switch.appctl("dpctl/dump-flows", "--names")
    flow = next(flow for flow in stats.megaflows(lab.switch) if "in_port(vm1)" in flow.match)
    assert "in_port(" + number in lab.switch.appctl("dpctl/get-flow", f"ufid:{flow.ufid}")
    with pytest.raises(CommandError, match="Failed to parse type"):
        lab.switch.appctl("dpctl/dump-flows", "type=dr")


def test_flows_by_hand_are_offloaded(lab: Lab, tmp_path: Path) -> None:
    offloaded(lab)
    numbers = datapath_ports(lab)
    match = (f"recirc_id(0),in_port({numbers['vm1']}),packet_type(ns=0,id=0),"
             "eth(src=02:0d:00:00:00:01,dst=02:0d:00:00:00:02),eth_type(0x1234)")

    def state() -> list[tuple[str, str]]:
        return [(flow.offloaded, flow.actions) for flow in stats.megaflows(lab.switch) if "0x1234" in flow.match]

    def wait_state(*expected: tuple[str, str]) -> None:
        wait_until(lambda: state() == list(expected), 5, lambda: f"{expected}, not {state()}")

    def file(*lines: str) -> str:
        path = tmp_path / "flows"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    lab.switch.appctl("dpctl/add-flow", match, numbers["vm2"])
    wait_state(("yes", "vm2"))
    lab.switch.appctl("dpctl/mod-flow", match, "drop")
    wait_until(lambda: state() in ([("yes", "drop")], [("yes", "vm2")]), 5,
               "modified; the revalidator may have put it right")
    lab.switch.appctl("dpctl/del-flow", match)
    wait_state()
    lab.switch.appctl("dpctl/add-flows", file(f"{match} {numbers['vm2']}"))
    wait_state(("yes", "vm2"))
    lab.switch.appctl("dpctl/mod-flows", file(f"{match} {numbers['vm2']}"))
    wait_state(("yes", "vm2"))
    lab.switch.appctl("dpctl/del-flows", file(match))
    wait_state()
    with pytest.raises(CommandError, match="updating flow table"):
        lab.switch.appctl("dpctl/mod-flow", match, "drop")


def test_del_flows_takes_them_out_of_the_nic(lab: Lab) -> None:
    """OVS's records of them stay for some seconds, as with stock OVS: until then packets take the slow path."""
    first, second = offloaded(lab)
    lab.switch.appctl("dpctl/del-flows")
    assert stats.megaflows(lab.switch) == []
    wait_until(lambda: "megaflows: 0 offloaded" in lab.switch.appctl("dr/show"), 5, "the NIC has no megaflow")
    assert_reaches(first, second)
    lab.switch.appctl("revalidator/purge")
    offloaded(lab)


def test_a_datapath_port_by_hand(lab: Lab) -> None:
    """The bridge does not want what is not in its database, and keeps what it has; as with stock OVS."""
    first, second = offloaded(lab)
    lab.nic.drnic("add", "9", "--dpdk", "net_null,no-rx=1", "--name", "extra")
    with pytest.raises(CommandError):   # OVS keeps this command's reasons for its log
        lab.switch.appctl("dpctl/add-if", DATAPATH, "extra,type=dr,device=mlx5_0,vport=8")
    assert "vport 8" in lab.switch.log.read_text()
    lab.switch.appctl("dpctl/add-if", DATAPATH, "extra,type=dr,device=mlx5_0,vport=9")
    wait_until(lambda: "extra" not in datapath_ports(lab), 5, "the bridge takes it away")
    lab.nic.drnic("del", "9")
    lab.switch.appctl("dpctl/del-if", DATAPATH, first.port)
    assert first.port not in datapath_ports(lab)
    assert not is_offloaded(lab, first)
    assert_alive(lab)
    lab.switch.vsctl("del-port", BRIDGE, first.port)
    lab.add_port(first)
    offloaded(lab)


def test_connections_are_shown_and_flushed(lab: Lab) -> None:
    first, _, third = lab.guests
    flows = ["priority=40000,in_port=1,ip,nw_dst=10.99.0.3,actions=ct(commit),output:3",
             "in_port=3,ip,actions=output:1"]
    lab.switch.add_flows(BRIDGE, flows)
    assert_reaches(first, third)
    assert "src=10.99.0.1,dst=10.99.0.3" in lab.switch.appctl("dpctl/dump-conntrack")
    assert "Total: 1" in lab.switch.appctl("dpctl/ct-stats-show")
    lab.switch.appctl("dpctl/flush-conntrack")
    assert lab.switch.appctl("dpctl/dump-conntrack").strip() == ""
    lab.switch.ofctl("del-flows", BRIDGE, "ip,in_port=3")
    lab.switch.ofctl("del-flows", BRIDGE, "ip,in_port=1")


def test_ovs_tcpdump_sees_both_directions_and_leaves_nothing(lab: Lab) -> None:
    """Its mirror has a port that is not in the NIC, which gets copies; the traffic stays in the NIC, and then all is as
    before."""
    first, second = offloaded(lab)
    before = sent_by_first(lab)
    log = lab.workspace.folder / "ovs-tcpdump.log"
    tcpdump = lab.namespace.start(["ovs-tcpdump", "--db-sock", f"unix:{lab.workspace.folder}/db.sock", "-i", first.port,
                                   "-n", "-l", "-c", "40", "icmp"], log, lab.switch.environment)
    wait_until(lambda: "listening on" in tcpdump.output(), 20, "ovs-tcpdump listens")
    wait_until(lambda: all("mi" in flow.actions for flow in stats.megaflows(lab.switch, kind="offloaded")), 10,
               "the port's megaflows are mirrored")
    assert traffic.ping(first.namespace, second.address, count=20, interval=0.05).received == 20
    tcpdump.wait(30)
    text = tcpdump.output()
    assert len(re.findall("ICMP echo request", text)) == len(re.findall("ICMP echo reply", text)) == 20
    now = {row["detail"] for row in json.loads(lab.switch.appctl("dr/explain", "-j"))["reasons"] if row["megaflows"]}
    assert "output to a port that is no dr port of this device" not in now
    wait_until(lambda: not re.search(r"^_uuid", lab.switch.vsctl("list", "mirror"), re.MULTILINE), 10,
               "the mirror is gone")
    offloaded(lab)
    wait_counts(lab, "in_port=1", before + 30, 98 * (before + 30))
    assert not [port for port in datapath_ports(lab) if port.startswith("mi")]
    figure("ovs-tcpdump: 20 requests and 20 replies; offloaded before and after")


def test_ovs_tcpdump_of_no_port_says_so(lab: Lab) -> None:
    done = subprocess.run(lab.namespace.command(["ovs-tcpdump", "--db-sock", f"unix:{lab.workspace.folder}/db.sock",
                                                 "-i", "vm9"]),
                          env={**os.environ, **lab.switch.environment}, capture_output=True, text=True, timeout=30,
                          check=False)
    assert done.returncode != 0 and "vm9" in done.stdout + done.stderr
