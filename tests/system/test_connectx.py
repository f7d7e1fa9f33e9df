"""The daemon on the system's own libibverbs and libmlx5, unmodified, over the emulated ConnectX: a thousand megaflows,
their counters, revalidation, ports that go and come, a restart. Nothing is left behind in the kernel or in the device's
memory, and nobody complains. And vports as Linux gives them: it lets the daemon read them and not change them, and need
not tell of a change.
"""

from __future__ import annotations

import re
import time
from typing import Iterator

import pytest
from helpers import figure
from lab import connectx, stats
from lab.command import wait_until
from lab.connectx import UPLINK, ConnectXSwitch
from lab.lab import BRIDGE
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

PORTS = {"vm1": 1, "vm2": 2, "uplink": UPLINK}   # by OpenFlow's numbers 1, 2, 3
MEGAFLOWS = 1000
IDLE_SECONDS, CPU_LIMIT = 5, 0.05
# In which a change that no event tells of is seen: the daemon looks every second, or every ten where it gets events.
UNTOLD = {0: 5, 1: 20}

# What becomes of a packet to 02:00:00:00:00:NN, as OpenFlow says it, and as a megaflow's actions in terms of ports.
FORMS = [
    ("output:2", "{vm2}"),
    ("output:3", "{uplink}"),
    ("output:2,output:3", "{vm2},{uplink}"),
    ("mod_vlan_vid:7,output:3", "push_vlan(vid=7,pcp=0),{uplink}"),
    ("output:2,mod_vlan_vid:8,output:3", "{vm2},push_vlan(vid=8,pcp=0),{uplink}"),
    ("drop", "drop"),
]
# What a megaflow matches besides addresses and port.
PROTOCOLS = ["eth_type(0x0800),ipv4(frag=no)", "eth_type(0x86dd),ipv6(frag=no)",
             "eth_type(0x0806),arp(op=0/0)", "eth_type(0x88b5)",
             "eth_type(0x0800),ipv4(proto=6,frag=no),tcp(src=1000,dst={port})",
             "eth_type(0x86dd),ipv6(proto=17,frag=no),udp(src={port},dst=0/0)"]


@pytest.fixture(params=["cx5", "cx6dx", "cx7"])
def switch(workspace: Workspace, request: pytest.FixtureRequest) -> Iterator[ConnectXSwitch]:
    made = start_switch(workspace, profile=request.param)
    for name in PORTS:
        add_port(made, name)
    yield made


def start_switch(workspace: Workspace, **options: str | int) -> ConnectXSwitch:
    """A bridge without ports."""
    if not connectx.built():
        pytest.skip("tests/connectx/libconnectx.so is not built")
    made = ConnectXSwitch(workspace, **options)
    made.start()
    made.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true", "other_config:max-idle=600000")
    made.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev", "fail_mode=secure",
               "other_config:disable-in-band=true")
    made.add_flows(BRIDGE, [flow_of(form) for form in range(len(FORMS))])
    return made


def add_port(switch: ConnectXSwitch, name: str, *, may_fail: bool = False) -> str | None:
    """Its error, which must be none if it may not fail."""
    number = list(PORTS).index(name) + 1
    switch.vsctl("add-port", BRIDGE, name, "--", "set", "interface", name, "type=dr",
                 f"options:device={connectx.DEVICE}", f"options:vport={PORTS[name]}", f"ofport_request={number}")
    wait_until(lambda: switch.interface(name, "ofport") in (number, -1), 10, f"port {name} is there")
    error = switch.interface(name, "error")
    assert may_fail or (error is None and switch.interface(name, "ofport") == number)
    return None if error is None else str(error)


def flow_of(form: int, actions: str | None = None) -> str:
    return f"in_port=1,dl_dst=02:00:00:00:00:{form:02x},actions={actions or FORMS[form][0]}"


def odp_ports(switch: ConnectXSwitch) -> dict[str, str]:
    return {name: number for number, name in re.findall(r"port (\d+): (\S+)", switch.appctl("dpctl/show"))}


def megaflow(number: int, ports: dict[str, str]) -> tuple[str, list[str]]:
    """Number n: form n mod forms, its own source address, one of the protocols."""
    form = number % len(FORMS)
    protocol = PROTOCOLS[number // len(FORMS) % len(PROTOCOLS)].format(port=1 + number)
    source = f"02:01:00:00:{number >> 8:02x}:{number & 255:02x}"
    match = (f"recirc_id(0),in_port({ports['vm1']}),packet_type(ns=0,id=0),eth(src={source},"
             f"dst=02:00:00:00:00:{form:02x}),{protocol}")
    return "dpctl/add-flow", [match, FORMS[form][1].format(**ports)]


def add_megaflows(switch: ConnectXSwitch, length: int = MEGAFLOWS) -> None:
    ports = odp_ports(switch)
    switch.unixctl(megaflow(number, ports) for number in range(length))
    wait_offloaded(switch, length)


def offloaded(switch: ConnectXSwitch) -> list[stats.Megaflow]:
    return [flow for flow in stats.megaflows(switch) if flow.offloaded == "yes" and flow.layer == "dr"]


def wait_offloaded(switch: ConnectXSwitch, number: int) -> None:
    wait_until(lambda: len(offloaded(switch)) == number, 30, f"{number} megaflows are offloaded")


def test_a_thousand_megaflows_on_the_real_libmlx5(switch: ConnectXSwitch) -> None:
    add_megaflows(switch)

    # Counters: each shows what the device counts, and OpenFlow gets the sum.
    switch.count(7, 700)
    wait_until(lambda: all(flow.packets == 7 for flow in offloaded(switch)), 10, "each megaflow shows 7 packets")
    wait_until(lambda: stats.openflow_counts(switch, BRIDGE)[0] == 7 * MEGAFLOWS, 10, "OpenFlow's counts are the sum")
    assert all(flow.bytes == 700 for flow in offloaded(switch))

    # Revalidation: another output for one form, which modifies its megaflows and keeps what they counted.
    of_form = len(range(0, MEGAFLOWS, len(FORMS)))
    ports = odp_ports(switch)
    switch.ofctl("mod-flows", BRIDGE, flow_of(0, "output:3"))

    def moved() -> int:
        return sum(1 for flow in offloaded(switch)
                   if "dst=02:00:00:00:00:00" in flow.match and flow.actions == "uplink")

    wait_until(lambda: moved() == of_form, 20, "the megaflows of a changed flow lead elsewhere")
    assert all(flow.packets == 7 for flow in offloaded(switch))
    assert len(offloaded(switch)) == MEGAFLOWS

    # A port goes: so do the megaflows that lead to it. It comes back.
    switch.vsctl("del-port", BRIDGE, "uplink")
    wait_until(lambda: not any("uplink" in flow.actions.split(",") or ports["uplink"] in flow.actions.split(",")
                               for flow in offloaded(switch)), 20, "nothing leads to a port that is gone")
    add_port(switch, "uplink")

    # Deletion, and all of it anew. First OpenFlow's flow as it was: revalidators must have nothing to modify then.
    switch.ofctl("mod-flows", BRIDGE, flow_of(0))
    wait_until(lambda: moved() == 0, 20, "the changed flow's megaflows are as they were")
    switch.appctl("revalidator/wait")
    switch.appctl("dpctl/del-flows")
    wait_until(lambda: not stats.megaflows(switch), 10, "no megaflow is left")
    add_megaflows(switch)
    finish(switch)
    figure(f"{MEGAFLOWS} megaflows installed twice, no complaint, nothing left behind")


def test_a_restart_leaves_nothing_and_finds_its_ports_again(switch: ConnectXSwitch) -> None:
    add_megaflows(switch)
    switch.appctl("exit", "--cleanup", timeout=15)
    assert switch.daemon is not None
    switch.daemon.wait(15)
    switch.start_daemon()
    for name in PORTS:
        wait_until(lambda name=name: switch.interface(name, "error") is None and switch.interface(name, "ofport"), 10,
                   f"{name} is there again")
    add_megaflows(switch)
    finish(switch)


def test_an_interface_that_waits_for_its_vport_keeps_no_device_when_the_daemon_ends(workspace: Workspace) -> None:
    switch = start_switch(workspace)
    switch.vsctl("add-port", BRIDGE, "later", "--", "set", "interface", "later", "type=dr",
                 f"options:device={connectx.DEVICE}", "options:vport=77")
    wait_until(lambda: switch.interface("later", "error"), 10, "the vport is missing")
    switch.stop()
    nothing_left(switch)


@pytest.mark.parametrize("call", [20, 90, 140, 240, 290, 310, 320, 330])
def test_a_call_to_the_kernel_that_fails_is_told_and_leaves_nothing(workspace: Workspace, call: int) -> None:
    """Counted from the daemon's start: while the device opens, a port is added, megaflows are installed."""
    switch = start_switch(workspace, fail=f"*@{call}")
    errors = {name: error for name in PORTS if (error := add_port(switch, name, may_fail=True))}
    for name in errors:
        switch.vsctl("del-port", BRIDGE, name)
        add_port(switch, name)
    add_megaflows(switch, 100)
    switch.stop()
    failed = [line for line in switch.log_of_calls.read_text().splitlines() if "a fault was asked for" in line]
    assert len(failed) == 1
    figure(f"call {call}, {failed[0].split(' ')[1]} ports say {errors or 'nothing'}")
    nothing_left(switch)


@pytest.mark.parametrize("events", [0, 1])
def test_a_vport_that_is_down_opens_and_follows_the_kernel(workspace: Workspace, events: int) -> None:
    """A card's vports are down until their representors are set up."""
    switch = start_switch(workspace, events=events)
    switch.configure_vport(1, up=False)
    for name in PORTS:
        add_port(switch, name)
    wait_until(lambda: switch.interface("vm1", "admin_state") == "down", 10, "the port of the vport shows down")
    assert switch.interface("vm1", "link_state") == "down"
    assert switch.interface("vm2", "admin_state") == switch.interface("vm2", "link_state") == "up"
    assert len(said(switch, "vm1: .*the vport is down: the kernel does not let the state of vport 1 of mlx5_0 be")) == 1
    assert len(said(switch, r"NIC_VPORT_CHANGE\): Invalid argument\): they are looked at every 1000 ms")) == 1 - events
    add_megaflows(switch, 100)

    switch.configure_vport(1, mtu=9000, mac="02:00:00:00:12:34")
    wait_until(lambda: switch.interface("vm1", "admin_state") == "up", UNTOLD[events], "the vport was set up")
    assert switch.interface("vm1", "link_state") == "up"
    assert switch.interface("vm1", "mtu") == 9000
    assert switch.interface("vm1", "mac_in_use") == "02:00:00:00:12:34"
    switch.configure_vport(1, up=False)
    wait_until(lambda: switch.interface("vm1", "link_state") == "down", UNTOLD[events], "the vport was set down")
    assert len(offloaded(switch)) == 100
    switch.stop()
    nothing_left(switch)


def test_what_the_kernel_sets_is_refused_once_and_the_bridge_goes_on(workspace: Workspace) -> None:
    switch = start_switch(workspace)
    for name in PORTS:
        add_port(switch, name)
    for mtu in (4000, 5000, 6000):
        switch.vsctl("set", "interface", "vm1", f"mtu_request={mtu}")
    switch.vsctl("set", "interface", "vm1", 'mac="02:00:00:00:00:99"')
    for _ in range(3):
        switch.ofctl("mod-port", BRIDGE, "vm1", "down")
    switch.vsctl("add-port", BRIDGE, "other", "--", "set", "interface", "other", "type=internal")
    wait_until(lambda: said(switch, "the state of vport 1"), 10, "the daemon says what it cannot do")
    assert len(said(switch, "vm1: the kernel does not let the MTU of vport 1 .*its owner sets it with ip link")) == 1
    assert len(said(switch, "vm1: the kernel does not let the state of vport 1 .*on the representor")) == 1
    assert not said(switch, "failed to set MTU")
    assert switch.interface("vm1", "mtu") == 1500
    assert switch.interface("vm1", "admin_state") == switch.interface("vm1", "link_state") == "up"
    assert switch.interface("vm1", "error") is None
    # A request for what there is already is none.
    switch.vsctl("set", "interface", "vm2", "mtu_request=1500")
    assert not said(switch, "vm2: the kernel")
    add_megaflows(switch, 100)
    # Opened anew, with the request in place, and told anew.
    switch.vsctl("del-port", BRIDGE, "vm1")
    switch.vsctl("add-port", BRIDGE, "vm1", "--", "set", "interface", "vm1", "type=dr", "mtu_request=4000",
                 f"options:device={connectx.DEVICE}", "options:vport=1", "ofport_request=1")
    wait_until(lambda: switch.interface("vm1", "ofport") == 1, 10, "the port is there again")
    assert len(said(switch, "vm1: the kernel does not let the MTU of vport 1")) == 2
    switch.stop()
    nothing_left(switch)


def test_looking_at_vports_takes_no_core(workspace: Workspace) -> None:
    switch = start_switch(workspace, events=0)
    for name in PORTS:
        add_port(switch, name)
    begin, cpu = time.monotonic(), switch.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    share = (switch.cpu_seconds() - cpu) / (time.monotonic() - begin)
    figure(f"idle without events of vports: {share:.1%} of a core")
    assert share <= CPU_LIMIT


def said(switch: ConnectXSwitch, pattern: str) -> list[str]:
    return [line for line in switch.log.read_text().splitlines() if re.search(pattern, line)]


def finish(switch: ConnectXSwitch) -> None:
    """The daemon ends; nobody has complained, and nothing was left behind."""
    switch.stop()
    assert switch.complaints() == []
    nothing_left(switch)


def nothing_left(switch: ConnectXSwitch) -> None:
    lines = switch.log_of_calls.read_text().splitlines()
    assert not [line for line in lines if "left behind" in line or "alive at the end" in line or "not emulated" in line]
    ends = [line for line in lines if " end: " in line]
    assert ends and all(line.endswith(" 0 bytes of ICM alive") for line in ends), ends
