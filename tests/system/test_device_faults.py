"""Each call of the NIC's that offload/ and ctrl/ make fails once, where it matters: the daemon goes on, what did not
work says why, traffic goes by software meanwhile, counts stay exact, and the NIC takes it all back.

The list of calls is read from the sources and objects; a call that is new has to get its place here.
"""

from __future__ import annotations

import errno
import itertools
import json
import re
import time
from typing import Callable, Iterator

import meter_calls
import provider_calls
import pytest
from helpers import ROUNDS, assert_alive, assert_reaches, figure, is_offloaded, stream, wait_counts, wait_offloaded
from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import ping, send_frames, udp_frame
from lab.workspace import Workspace
from scapy.layers.inet import IP
from scapy.layers.l2 import Dot1Q, Ether

pytestmark = pytest.mark.dr_only

FRAMES = 300
HEADERS = 42   # bytes of an untagged frame in front of UDP's payload

# Inline functions of the headers that pass on to another one as they are called here.
ASKS_AS = {"ibv_create_qp_ex": "ibv_create_qp"}

# While a first port opens, in order: device, domains, tables and what they lead to, the port's queue, its rules. What
# the port's error says of it: the call's name unless told here.
OPEN = {call: call for call in (
    "ibv_get_device_list", "mlx5dv_open_device", "ibv_alloc_pd", "mlx5dv_dr_domain_create", "mlx5dv_dr_table_create",
    "mlx5dv_dr_matcher_create", "mlx5dv_dr_rule_create", "mlx5dv_dr_action_create_default_miss",
    "mlx5dv_dr_action_create_modify_header", "mlx5dv_dr_action_create_dest_table",
    "mlx5dv_dr_action_create_dest_vport", "mlx5dv_dr_action_create_dest_array",
    "mlx5dv_dr_action_create_flow_counter", "ibv_create_comp_channel", "ibv_create_cq", "ibv_create_cq_ex",
    "ibv_create_qp_ex", "ibv_modify_qp", "ibv_reg_mr", "ibv_post_recv", "mlx5dv_init_obj", "ibv_query_device_ex",
    "mlx5dv_dr_action_create_tag", "mlx5dv_dr_action_create_dest_ibv_qp")}
OPEN |= {"mlx5dv_devx_general_cmd": "QUERY_HCA_CAP", "mlx5dv_devx_obj_create": "ALLOC_FLOW_COUNTER"}
# An IB port that does not answer is passed over: the vport was behind another one. The speed is unknown then.
OPEN_HARMLESS = {"mlx5dv_query_port", "ibv_query_port"}
# A device that tells of no event is looked at instead, and the log says so.
OPEN_LOGGED = {"mlx5dv_devx_create_event_channel", "mlx5dv_devx_subscribe_devx_event"}

# While a flow is installed, and the flow that makes it ask.
TWO = "output:2,output:4"
TAGGED = "output:2,push_vlan:0x8100,set_field:4196->vlan_vid,output:4"
INSTALL = {"mlx5dv_dr_matcher_create": "output:2", "mlx5dv_dr_rule_create": "output:2",
           "mlx5dv_dr_action_create_flow_counter": "output:2", "mlx5dv_dr_action_create_dest_array": TWO,
           "mlx5dv_dr_action_create_push_vlan": TAGGED, "mlx5dv_dr_table_create": TAGGED,
           "mlx5dv_dr_action_create_dest_table": TAGGED, "mlx5dv_dr_action_create_pop_vlan": "pop_vlan,output:2",
           "mlx5dv_dr_action_create_drop": "drop"}

# While a chain is installed, which takes several of most calls: each of them fails once.
CHAIN = "dec_ttl,output:3,mod_vlan_vid:{number},output:4,strip_vlan,debug_recirc,mod_nw_src:192.0.2.{number},output:2"
# Counters first: later ones have actions of megaflows that have gone.
CHAIN_CALLS = ("mlx5dv_dr_action_create_flow_counter", "mlx5dv_dr_table_create", "mlx5dv_dr_matcher_create",
               "mlx5dv_dr_rule_create", "mlx5dv_dr_action_create_dest_table", "mlx5dv_dr_action_create_modify_header",
               "mlx5dv_dr_action_create_push_vlan", "mlx5dv_dr_action_create_dest_array",
               "mlx5dv_dr_action_create_tag")

# While packets take the slow path: a batch at most is lost, and counted.
RUNNING = {"ibv_post_send", "ibv_post_recv", "ibv_poll_cq", "ibv_start_poll", "ibv_req_notify_cq", "ibv_get_cq_event"}

# When a flow goes, and when the last port goes.
FLOW_GOES = {"mlx5dv_dr_domain_sync", "mlx5dv_devx_obj_query", "mlx5dv_dr_rule_destroy", "mlx5dv_dr_matcher_destroy"}
ALL_GO = {"mlx5dv_dr_rule_destroy", "mlx5dv_dr_matcher_destroy", "mlx5dv_dr_action_destroy",
          "mlx5dv_dr_table_destroy", "mlx5dv_dr_domain_destroy", "mlx5dv_devx_obj_destroy", "ibv_destroy_qp",
          "ibv_destroy_cq", "ibv_destroy_comp_channel", "ibv_dereg_mr", "ibv_dealloc_pd", "ibv_close_device"}

# While a port's MTU grows, which takes a new queue.
MTU_GROWS = {"ibv_reg_mr", "ibv_create_comp_channel", "ibv_create_cq_ex", "ibv_create_cq", "ibv_create_qp_ex",
             "ibv_modify_qp", "mlx5dv_init_obj", "ibv_post_recv", "ibv_query_device_ex", "mlx5dv_devx_general_cmd",
             "mlx5dv_dr_action_create_dest_ibv_qp", "mlx5dv_dr_rule_create",
             "mlx5dv_devx_obj_create", "mlx5dv_dr_action_create_flow_counter", "mlx5dv_devx_obj_query",
             "ibv_req_notify_cq", "mlx5dv_query_port", "mlx5dv_dr_domain_sync", "mlx5dv_dr_rule_destroy",
             "mlx5dv_dr_action_destroy", "ibv_destroy_qp"}
# While a flow into a tunnel is installed: test_tunnels.py.
TUNNELS = {"mlx5dv_dr_action_create_packet_reformat"}
# While a port gets several receive queues: test_receive_queues.py, and one by one SpreadPortTest.
SEVERAL_QUEUES = {"ibv_create_wq", "ibv_modify_wq", "ibv_post_wq_recv", "ibv_create_rwq_ind_table",
                  "ibv_destroy_rwq_ind_table", "ibv_destroy_wq"}
# Of meters: test_meter_faults.py.
METERS = meter_calls.INSTALL | meter_calls.HARMLESS | meter_calls.CHANGE | meter_calls.ALL_GO
# While a sampled flow is installed: test_sflow.py.
SAMPLERS = {"mlx5dv_dr_action_create_flow_sampler"}
# When the address of a storage mirror's queue pair is looked up, for rules that let its packets in: test_drmirror.py
# has one of the rules refused. A GID that cannot be read is the mirror's `not_let_in`.
MIRRORS = {"ibv_query_gid", "ibv_query_gid_ex", "ibv_resolve_eth_l2_from_gid"}
# When the device tells of a change.
EVENT = {"mlx5dv_devx_get_event"}


def test_each_call_of_the_provider_has_its_place() -> None:
    placed = set(OPEN) | OPEN_HARMLESS | OPEN_LOGGED | set(INSTALL) | RUNNING | FLOW_GOES | ALL_GO | MTU_GROWS | EVENT
    placed |= TUNNELS | SEVERAL_QUEUES | METERS | SAMPLERS | MIRRORS
    assert placed == provider_calls.that_can_fail()


class Faults:
    """One lab for many faults: starting a daemon for each would take most of the time."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._number = 0

    def arm(self, call: str, nth: int = 1) -> None:
        self.lab.nic.drnic("faults", "--disarm")
        self.lab.nic.drnic("fault", ASKS_AS.get(call, call), str(errno.ENOMEM), str(nth))

    def happened(self) -> bool:
        return not json.loads(self.lab.nic.drnic("faults", "--json"))["armed"]

    def open_port(self, guest: Guest) -> str:
        """The port's error, empty when it works."""
        self.lab.switch.vsctl("add-port", BRIDGE, guest.port, "--", "set", "interface", guest.port,
                              *self.lab.interface_settings(guest), f"ofport_request={self.lab.ofport(guest)}",
                              check=False)

        def outcome() -> bool:
            return self.lab.switch.interface(guest.port, "ofport") == self.lab.ofport(guest) or \
                bool(self.lab.switch.interface(guest.port, "error"))

        wait_until(outcome, 10, f"port {guest.port} works or says why not")
        return str(self.lab.switch.interface(guest.port, "error") or "")

    def open_ports(self) -> None:
        for guest in self.lab.guests:
            assert self.open_port(guest) == ""

    def remove_ports(self) -> None:
        for guest in self.lab.guests:
            self.lab.switch.vsctl("--if-exists", "del-port", BRIDGE, guest.port)

    def leaked(self) -> int:
        return json.loads(self.lab.switch.appctl("dr/show", "--json"))["leaked_objects"]

    def new_flow(self, actions: str) -> str:
        """A flow whose megaflow has not been there before; its match."""
        self._number += 1
        tag = f"dl_vlan={self._number}," if "pop_vlan" in actions else "vlan_tci=0x0000/0x1fff,"
        match = f"in_port=1,{tag}udp,tp_src={9000 + self._number}"
        actions = actions.replace("{number}", str(self._number))
        self.lab.switch.ofctl("add-flow", "-OOpenFlow13", BRIDGE, f"{match},actions={actions}")
        time.sleep(0.1)
        return match

    def send(self, count: int, *, tagged: bool = False, size: int = 0) -> None:
        """Frames of the newest flow, from the first guest to the second, at a rate that the slow path bears. `size`:
        bytes, if there is one."""
        first, second = self.lab.guests[:2]
        payload = b"ovs-dr fault".ljust(size - HEADERS, b"\0")
        frame = udp_frame(first.mac, second.mac, first.address, second.address, payload, target_port=7001,
                          source_port=9000 + self._number, vlan=self._number if tagged else None)
        for _ in range(0, count, 10):
            send_frames(first.namespace, first.device, [frame] * 10)
            time.sleep(0.005)


@pytest.fixture
def faults(lab: Lab) -> Iterator[Faults]:
    made = Faults(lab)
    yield made
    assert_alive(lab)
    assert made.leaked() == 0


def test_each_call_that_fails_while_a_port_opens(faults: Faults) -> None:
    lab = faults.lab
    lab.switch.add_flows(BRIDGE, ["actions=NORMAL"])
    faults.remove_ports()
    for call in [*OPEN, *sorted(OPEN_HARMLESS), *sorted(OPEN_LOGGED)]:
        faults.arm(call)
        error = faults.open_port(lab.guests[0])
        figure(f"{call}: {error or 'the port works all the same'}")
        assert faults.happened(), f"{call} was not asked for"
        assert (OPEN[call] in error) if call in OPEN else not error
        assert call not in OPEN_LOGGED or call in lab.switch.messages()
        assert_alive(lab)
        faults.remove_ports()
        for guest in lab.guests[:2]:
            assert faults.open_port(guest) == "", f"{call} failed once, and {guest.port} stays away"
        assert_reaches(*lab.guests[:2], count=1)
        faults.remove_ports()
    faults.open_ports()
    with stream(lab.guests[0], lab.guests[1], rate=500, limit=500) as sender:
        wait_offloaded(lab, lab.guests[0])
        sender.join()


def failures(lab: Lab, call: str) -> int:
    """Megaflows that dr/explain says could not be installed because of this call, since the device was opened."""
    rows = json.loads(lab.switch.appctl("dr/explain", "--json"))["reasons"]
    return sum(row["total"] for row in rows if row["reason"] == "device error" and call in row["detail"])


@pytest.mark.parametrize("call", INSTALL)
def test_a_call_that_fails_while_a_flow_is_installed(faults: Faults, call: str) -> None:
    lab, actions = faults.lab, INSTALL[call]
    first, second = lab.guests[:2]
    tagged = "pop_vlan" in actions
    match = faults.new_flow(actions)
    faults.arm(call)
    with second.capture() as seen:
        faults.send(FRAMES, tagged=tagged)
        assert faults.happened(), f"{call} was not asked for"
        assert failures(lab, call) == 1, lab.switch.appctl("dr/explain")
        began = time.monotonic()
        wait_until(lambda: is_offloaded(lab, first), 3, "the megaflow is tried again")
        again = time.monotonic() - began
        faults.send(FRAMES, tagged=tagged)
        seen.settle()
        arrived = len(seen.matching(b"ovs-dr fault"))
    assert arrived == (0 if actions == "drop" else 2 * FRAMES)
    size = len(udp_frame(first.mac, second.mac, first.address, second.address, b"ovs-dr fault")) + 4 * tagged
    wait_counts(lab, match, 2 * FRAMES, 2 * FRAMES * size)
    figure(f"{call}: the flow stayed in software and said so, and was in the NIC {again:.1f} s later; {arrived} of "
           f"{2 * FRAMES} frames arrived, {2 * FRAMES} counted")


def chain_is_offloaded(lab: Lab, match: str) -> bool:
    """The megaflow and the one behind its recirculation."""
    flows = [flow for flow in stats.megaflows(lab.switch) if flow.layer == "dr"]
    parents = [flow for flow in flows if f"udp(src={match.rsplit('=', 1)[1]}," in flow.match]
    led_to = {recirc for flow in parents for recirc in re.findall(r"recirc\((0x[0-9a-f]+)\)", flow.actions)}
    return bool(led_to) and all(any(f"recirc_id({recirc})" in flow.match for flow in flows) for recirc in led_to)


@pytest.fixture
def chain_faults(workspace: Workspace) -> Iterator[Faults]:
    lab = Lab(workspace)
    lab.switch.daemon_arguments.append("--enable-dummy")   # debug_recirc
    lab.wire_all(vms=3)
    lab.fix_neighbours()
    lab.start(offload=True, fail_mode="secure")
    made = Faults(lab)
    yield made
    assert_alive(lab)
    assert made.leaked() == 0


def test_each_call_of_a_chain_fails_once(chain_faults: Faults) -> None:
    """Parts of the chain are in software for a moment, and each packet arrives changed as it should be."""
    lab, count = chain_faults.lab, 30
    _, second, third, uplink = lab.guests
    asked: dict[str, int] = {}
    for call in CHAIN_CALLS:
        for nth in itertools.count(1):
            match = chain_faults.new_flow(CHAIN)
            told = failures(lab, call)
            chain_faults.arm(call, nth)
            with second.capture() as at_end, third.capture() as at_copy, uplink.capture() as tagged:
                chain_faults.send(count)
                wait_until(lambda: chain_is_offloaded(lab, match), 5, f"a chain is in the NIC: {call} {nth}")
                happened = chain_faults.happened()
                chain_faults.send(count)
                at_end.settle()
                at_copy.settle(quiet=0.05)
                tagged.settle(quiet=0.05)
            number = int(match.rsplit("=", 1)[1]) - 9000
            for seen, source, vlan in ((at_end, f"192.0.2.{number}", None), (at_copy, lab.guests[0].address, None),
                                       (tagged, lab.guests[0].address, number)):
                packets = [Ether(frame) for frame in seen.matching(b"ovs-dr fault")]
                assert len(packets) == 2 * count, f"{call} {nth}: {len(packets)} of {2 * count}"
                assert {(packet[IP].src, packet[IP].ttl, packet[Dot1Q].vlan if Dot1Q in packet else None)
                        for packet in packets} == {(source, 63, vlan)}, f"{call} {nth}"
            if not happened:
                break
            assert failures(lab, call) > told, lab.switch.appctl("dr/explain")
            asked[call] = nth
    assert asked.keys() == set(CHAIN_CALLS), asked
    figure(f"{sum(asked.values())} calls of a chain failed once each: all packets arrived, changed as they should be; "
           + ", ".join(f"{call} {nth}" for call, nth in asked.items()))


def test_calls_that_fail_while_packets_take_the_slow_path(faults: Faults) -> None:
    lab = faults.lab
    first, second = lab.guests[:2]
    # Not in the vocabulary of the NIC: each of these takes the slow path both ways.
    lab.switch.add_flows(BRIDGE, ["in_port=1,ip,actions=output(port=2,max_len=9000)",
                                  "in_port=2,ip,actions=output(port=1,max_len=9000)"])
    ping(first.namespace, second.address, count=2)
    for call in sorted(RUNNING):
        faults.arm(call)
        sent = lost = 0
        # Send completions are asked for when the ring is full once: after a thousand packets.
        while not faults.happened() and sent < 3000:
            time.sleep(0.05)   # only an idle queue asks to be woken
            result = ping(first.namespace, second.address, count=150, interval=0.002)
            sent, lost = sent + result.sent, lost + result.sent - result.received
        assert faults.happened(), f"{call} was not asked for"
        assert lost <= 32, f"{call}: {lost} of {sent} lost"
        after = ping(first.namespace, second.address, count=20, interval=0.01)
        assert after.received == 20, f"{call}: the slow path does not work any more"
        figure(f"{call}: {lost} of {sent} pings lost, none after")


def test_calls_that_fail_while_a_flow_goes(faults: Faults) -> None:
    lab = faults.lab
    for call in sorted(FLOW_GOES):
        match = faults.new_flow("output:2")
        faults.send(FRAMES)
        wait_until(lambda: is_offloaded(lab, lab.guests[0]), 3, "the megaflow is in the NIC")
        faults.send(FRAMES)
        faults.arm(call)
        lab.switch.ofctl("mod-flows", BRIDGE, f"{match},actions=output:3")
        time.sleep(ROUNDS)
        lab.switch.vsctl("del-port", BRIDGE, lab.guests[0].port)
        assert faults.happened(), f"{call} was not asked for"
        time.sleep(ROUNDS)
        assert stats.openflow_counts(lab.switch, BRIDGE, match)[0] == 2 * FRAMES, call
        assert faults.leaked() == 0
        assert faults.open_port(lab.guests[0]) == ""
        figure(f"{call}: {2 * FRAMES} frames, {2 * FRAMES} counted, nothing left behind")


def test_calls_that_fail_while_everything_goes(faults: Faults) -> None:
    lab = faults.lab
    lab.switch.add_flows(BRIDGE, ["actions=NORMAL"])
    for call in sorted(ALL_GO):
        assert_reaches(*lab.guests[:2], count=3)
        faults.arm(call)
        faults.remove_ports()
        wait_until(faults.happened, 3, f"{call} is asked for")
        assert_alive(lab)
        assert faults.leaked() == 0, f"{call} failed once, and something stays for ever"
        faults.open_ports()
    assert_reaches(*lab.guests[:2], count=3)
    figure(f"{len(ALL_GO)} calls that destroy failed once each: nothing left behind, all ports came again")


def mtu_in_force(lab: Lab, guest: Guest) -> bool:
    return lab.switch.interface(guest.port, "mtu") == 8000


@pytest.fixture
def jumbo_faults(workspace: Workspace) -> Iterator[Faults]:
    """Guests of MTU 9000, vports of 1500."""
    lab = Lab(workspace, mtu=9000)
    lab.wire_all(vms=2, uplink=False)
    lab.fix_neighbours()
    lab.start()
    made = Faults(lab)
    yield made
    assert_alive(lab)
    assert made.leaked() == 0


def test_calls_that_fail_while_a_port_grows(jumbo_faults: Faults) -> None:
    lab = jumbo_faults.lab
    first, second = lab.guests
    jumbo = udp_frame(first.mac, second.mac, first.address, second.address, b"ovs-dr fault" + bytes(7000))
    for call in sorted(MTU_GROWS):
        jumbo_faults.remove_ports()
        for guest in lab.guests:
            lab.nic.drnic("set", str(guest.vport), "--mtu", "1500")
        jumbo_faults.open_ports()
        assert_reaches(first, second, count=1)
        jumbo_faults.arm(call)
        grow: Callable[[Guest], str] = lambda guest: lab.switch.vsctl(
            "set", "interface", guest.port, "mtu_request=8000")
        for guest in lab.guests:
            grow(guest)
        wait_until(jumbo_faults.happened, 3, f"{call} is asked for")
        assert_alive(lab)
        for guest in lab.guests:
            lab.switch.vsctl("set", "interface", guest.port, "other_config:again=yes")
            wait_until(lambda: mtu_in_force(lab, guest), 5, f"{call} failed once, and {guest.port} does not grow")
        problems = [port["problem"] for port in json.loads(lab.switch.appctl("dr/ports", "--json"))["ports"]]
        assert not any(problems), problems
        with second.capture() as seen:
            send_frames(first.namespace, first.device, [jumbo] * 20)
            seen.settle()
            arrived = len(seen.matching(b"ovs-dr fault"))
        assert arrived == 20, f"{call} failed once, and {20 - arrived} of 20 long frames do not arrive"
    figure(f"{len(MTU_GROWS)} calls failed once each while a port grew: each grew at last, and long frames arrive")


def test_an_event_that_cannot_be_fetched_is_fetched_later(faults: Faults) -> None:
    lab = faults.lab
    guest = lab.guests[0]
    faults.arm("mlx5dv_devx_get_event")
    lab.nic.drnic("set", str(guest.vport), "--mac", "02:0d:00:00:00:77")
    wait_until(lambda: lab.switch.interface(guest.port, "mac_in_use") == "02:0d:00:00:00:77", 5, "the new MAC shows")
    assert faults.happened()
