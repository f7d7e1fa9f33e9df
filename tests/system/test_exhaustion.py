"""A device that is full: of each resource in turn there is less than the megaflows need (drnic limits).

What does not fit stays in software and says which resource it is for; every packet arrives and is counted once; when
others go, those that wait go in by themselves; and nothing is left behind.
"""

from __future__ import annotations

import collections
import itertools
import json
import re
import time
from dataclasses import dataclass
from typing import Callable, Collection, Iterator

import pytest
from helpers import assert_alive, figure
from lab import stats
from lab.command import CommandError, wait_until
from lab.lab import BRIDGE, Guest
from lab.traffic import send_frames, udp_frame
from lab.workspace import Workspace
from test_tunnels import Tunnelled

pytestmark = pytest.mark.dr_only

OFCTL = ("-O", "OpenFlow13")
PAYLOAD = b"ovs-dr full"
FIRST_PORT = 9000
FRAME_SIZE = len(udp_frame("02:0d:00:00:00:01", "02:0d:00:00:00:02", "10.99.0.1", "10.99.0.2", PAYLOAD))

# Whoever reads a field has it in its megaflow's mask.
READS = ["move:NXM_OF_IP_SRC[]->NXM_NX_REG0[]", "move:NXM_OF_IP_TOS[]->NXM_NX_REG1[0..7]",
         "move:NXM_OF_UDP_DST[]->NXM_NX_REG2[0..15]", "move:NXM_OF_ETH_SRC[0..31]->NXM_NX_REG3[]",
         "move:NXM_NX_IP_TTL[]->NXM_NX_REG4[0..7]"]
OUTPUTS = [(2, *others) for length in (1, 2, 3) for others in itertools.combinations((3, 4, 5), length)]


def with_mask(number: int) -> str:
    return ",".join([read for bit, read in enumerate(READS) if number >> bit & 1] + ["output:2"])


@dataclass(frozen=True)
class Case:
    call: str                      # what dr/explain says could not be had
    flows: int
    actions: Callable[[int], str]  # of the flow with this number, to the second guest or into the tunnel
    room: int = 16                 # beside what there is before the first flow; for most of those that wait
    of_all: bool = False           # every megaflow needs it


CASES = {
    "rules": Case("mlx5dv_dr_rule_create", 30, lambda number: "output:2", of_all=True),
    # They come in bulks: of the one that is there 500 are free.
    "flow_counters": Case("ALLOC_FLOW_COUNTER", 700, lambda number: "output:2", room=0, of_all=True),
    "matchers": Case("mlx5dv_dr_matcher_create", 30, with_mask, of_all=True),
    "tables": Case("mlx5dv_dr_table_create", 20,
                   lambda number: f"set_field:{number}->reg0,debug_recirc,output:2", room=10),
    "modify_headers": Case("mlx5dv_dr_action_create_modify_header", 30,
                           lambda number: f"mod_nw_src:192.0.2.{number},output:2"),
    "reformats": Case("mlx5dv_dr_action_create_packet_reformat", 30,
                      lambda number: f"set_field:{number}->tun_id,output:TUNNEL"),
    "dest_arrays": Case("mlx5dv_dr_action_create_dest_array", len(OUTPUTS),
                        lambda number: ",".join(f"output:{port}" for port in OUTPUTS[number]), room=4),
    # Each point is work of its own for software, behind a sampler of its own.
    "samplers": Case("mlx5dv_dr_action_create_flow_sampler", 30,
                     lambda number: f"sample(probability={65535 // 5},collector_set_id=1,obs_point_id={number + 1}),"
                                    "output:2"),
}


class Full:
    """One lab for all resources: starting a daemon for each would take most of the time."""

    def __init__(self, workspace: Workspace) -> None:
        self.lab = lab = Tunnelled(workspace)
        lab.switch.daemon_arguments.append("--enable-dummy")   # debug_recirc
        lab.wire_all(vms=5)
        lab.fix_neighbours()
        lab.start(offload=True, fail_mode="secure")
        self.tunnel = lab.add_tunnel("tunnel", "vxlan", key="flow")
        lab.switch.vsctl("--", "--id=@b", "get", "bridge", BRIDGE, "--", "--id=@i", "create", "ipfix",
                         'targets="127.0.0.1:4739"', "--", "create", "Flow_Sample_Collector_Set", "id=1", "bridge=@b",
                         "ipfix=@i")
        self.sent = 0

    @property
    def ends(self) -> list[Guest]:
        """Where packets arrive: the second guest, or behind the tunnel."""
        return [self.lab.guests[1], self.lab.uplink]

    def limits(self) -> dict[str, dict[str, int | None]]:
        return json.loads(self.lab.nic.drnic("limits", "--json"))["devices"][0]["limits"]

    def taken(self, resource: str) -> int:
        return int(self.limits()[resource]["taken"] or 0)

    def limit(self, resource: str, most: int | None) -> None:
        self.lab.nic.drnic("limits", f"{resource}={'none' if most is None else most}")

    def totals(self) -> dict[str, int]:
        return json.loads(self.lab.switch.appctl("dr/show", "--json"))["devices"][0]

    def explain(self, *arguments: str) -> dict[str, list]:
        return json.loads(self.lab.switch.appctl("dr/explain", "--json", *arguments))

    def max_idle(self, milliseconds: int) -> None:
        self.lab.switch.vsctl("set", "Open_vSwitch", ".", f"other_config:max-idle={milliseconds}")

    def add_flows(self, case: Case, numbers: Collection[int]) -> None:
        self.lab.switch.add_flows(BRIDGE, [
            f"in_port=1,udp,tp_src={FIRST_PORT + number},"
            f"actions={case.actions(number).replace('TUNNEL', str(self.tunnel))}" for number in numbers])

    def send(self, numbers: Collection[int]) -> None:
        """A packet of each flow, at a rate that the slow path bears."""
        first, second = self.lab.guests[:2]
        frames = [udp_frame(first.mac, second.mac, first.address, second.address, PAYLOAD, target_port=7001,
                            source_port=FIRST_PORT + number) for number in numbers]
        for at in range(0, len(frames), 20):
            send_frames(first.namespace, first.device, frames[at:at + 20])
            time.sleep(0.01)
        self.sent += len(frames)

    def megaflows(self) -> dict[int, stats.Megaflow]:
        """By the flow's number: what packets meet first."""
        found = {}
        for flow in stats.megaflows(self.lab.switch):
            port = re.search(r"udp\(src=(\d+)", flow.match)
            if port is not None and "recirc_id(0)" in flow.match:
                found[int(port.group(1)) - FIRST_PORT] = flow
        return found

    def waiting(self) -> list[int]:
        return [number for number, flow in self.megaflows().items() if flow.layer != "dr"]

    def counted(self) -> tuple[int, int]:
        """Packets and bytes of all flows: ovs-ofctl cannot read each one's debug_recirc."""
        text = self.lab.switch.ofctl("dump-aggregate", BRIDGE, "in_port=1,udp")
        found = re.search(r"packet_count=(\d+) byte_count=(\d+)", text)
        assert found is not None, text
        return int(found.group(1)), int(found.group(2))

    def reasons(self, flow: stats.Megaflow) -> str:
        try:
            return "; ".join(self.explain(f"ufid:{flow.ufid}")["reasons"])
        except CommandError:   # nothing until an offload thread has offered the megaflow
            return ""

    def clear(self, before: dict[str, dict[str, int | None]]) -> None:
        """Flows and limits go, and with them all that was taken but bulks of counters and meters."""
        for resource in (*CASES, "meters"):
            self.limit(resource, None)
        self.lab.switch.ofctl("del-flows", BRIDGE)
        self.max_idle(10000)
        self.sent = 0

        def left() -> dict[str, dict[str, int | None]]:
            self.lab.switch.appctl("revalidator/purge")
            return {name: row for name, row in self.limits().items()
                    if name not in ("flow_counters", "meters") and row["taken"] > before[name]["taken"]}

        wait_until(lambda: not left(), 10, "all that was taken is given back")
        assert self.totals()["offloaded"] + self.totals()["failed"] <= 2, "megaflows of no flow of ours"


@pytest.fixture(scope="module")
def full() -> Iterator[Full]:
    with Workspace("test") as workspace:
        yield Full(workspace)


def fill(full: Full, resource: str) -> list[int]:
    """As many megaflows as there is room for are in the NIC, and the others say why they are not; their numbers."""
    case = CASES[resource]
    full.limit(resource, full.taken(resource) + case.room)
    full.add_flows(case, range(case.flows))
    full.send(range(case.flows))

    def told() -> bool:
        """Each megaflow that packets meet first is in the NIC or names the resource: of many, the first ones do."""
        flows = full.megaflows()
        left = [flow for flow in flows.values() if flow.layer != "dr"]
        return len(flows) == case.flows and full.totals()["failed"] >= len(left) > 0 and \
            all(case.call in full.reasons(flow) for flow in left[:20])

    wait_until(told, 10, f"each megaflow is in the NIC, or says that there is no room: {case.call}", 0.2)
    waiting = full.waiting()
    assert waiting and len(waiting) < case.flows, f"{len(waiting)} of {case.flows} wait"
    assert full.taken(resource) <= full.limits()[resource]["most"]
    rows = [row for row in full.explain()["reasons"] if case.call in row["detail"] and row["megaflows"] > 0]
    assert rows and rows[0]["reason"] == "device error", full.explain()
    return waiting


@pytest.mark.parametrize("resource", CASES)
def test_what_does_not_fit_waits_in_software_until_others_go(full: Full, resource: str) -> None:
    case, lab = CASES[resource], full.lab
    before = full.limits()
    try:
        with full.ends[0].capture() as here, full.ends[1].capture() as there:
            waiting = fill(full, resource)
            full.send(range(case.flows))
            if not case.of_all:
                others = range(1000, 1010)
                full.add_flows(Case("", 0, lambda number: "output:2"), others)
                full.send(others)
                wait_until(lambda: all(flow.layer == "dr" for number, flow in full.megaflows().items()
                                       if number in others), 3, "what needs none of it goes in meanwhile")
            # Those that are in the NIC get no packets any more and go; those that wait come in then.
            full.max_idle(600)
            began, waited = time.monotonic(), set(waiting)

            def all_in() -> bool:
                full.send(waited)
                waited.difference_update(number for number, flow in full.megaflows().items() if flow.layer == "dr")
                return not waited

            wait_until(all_in, 20, f"all {len(waiting)} that waited have been in the NIC", 0.1)
            took = time.monotonic() - began
            full.send(waiting)
            here.settle()
            there.settle(quiet=0.05)
            arrived = len(here.matching(PAYLOAD)) + len(there.matching(PAYLOAD))
        assert arrived == full.sent, f"{arrived} of {full.sent} packets arrived"
        counted = (full.sent, full.sent * FRAME_SIZE)
        wait_until(lambda: full.counted() == counted, 8, lambda: f"{counted} are counted, not {full.counted()}")
        assert_alive(lab)
    finally:
        full.clear(before)
    assert json.loads(lab.switch.appctl("dr/show", "--json"))["leaked_objects"] == 0
    figure(f"{resource}: {case.flows - len(waiting)} of {case.flows} megaflows in the NIC, {len(waiting)} waited and "
           f"said why; all had been in {took:.1f} s after the others had no more packets; {arrived} packets arrived, "
           "as many counted")


METERS, BULK, BURST = 100, 64, 10   # of OpenFlow; what a device takes at a time; packets of each


def send_to_meters(full: Full, numbers: Collection[int], each: int) -> None:
    """So many packets of each flow, flow after flow."""
    first, second = full.lab.guests[:2]
    for number in numbers:
        frame = udp_frame(first.mac, second.mac, first.address, second.address, PAYLOAD, target_port=7001,
                          source_port=FIRST_PORT + number)
        send_frames(first.namespace, first.device, [frame] * each)
        time.sleep(0.01)
    full.sent += each * len(numbers)


def source_ports(frames: Collection[bytes]) -> collections.Counter[int]:
    """How often each flow's packets came."""
    return collections.Counter(int.from_bytes(frame[34:36], "big") - FIRST_PORT for frame in list(frames)
                               if PAYLOAD in frame)


def assert_metered(full: Full, came: collections.Counter[int], inside: Collection[int], seconds: float) -> None:
    """By software only: one bucket. By both: a second bucket on top of that (docs/meters.md)."""
    for number in range(METERS):
        most = (2 if number in inside else 1) * (BURST + 1) + seconds + 1
        assert BURST <= came[number] <= most, f"flow {number}: {came[number]}, {most:.1f} at most"


def test_meters_that_do_not_fit_are_softwares(full: Full) -> None:
    """Megaflows whose meters find no room go on in software, metered, and go in when meters are deleted."""
    lab = full.lab
    before = full.limits()
    full.limit("meters", full.taken("meters") + BULK)
    try:
        for number in range(METERS):
            lab.switch.ofctl(*OFCTL, "add-meter", BRIDGE,
                             f"meter={number + 1},pktps,burst,bands=type=drop,rate=1,burst_size={BURST}")
        flows = lab.workspace.folder / "metered.txt"
        flows.write_text("".join(f"in_port=1,udp,tp_src={FIRST_PORT + number},actions=meter:{number + 1},output:2\n"
                                 for number in range(METERS)))
        lab.switch.ofctl(*OFCTL, "add-flows", BRIDGE, str(flows))
        began = time.monotonic()
        with full.ends[0].capture() as here:
            send_to_meters(full, range(METERS), 1)

            def told() -> bool:
                megaflows = full.megaflows()
                left = [flow for flow in megaflows.values() if flow.layer != "dr"]
                return len(megaflows) == METERS and len(left) == METERS - BULK and \
                    all("FLOW_METER_ASO" in full.reasons(flow) for flow in left)

            wait_until(told, 20, "each megaflow is in the NIC, or says that there is no room for its meter", 0.2)
            waiting = full.waiting()
            inside = set(range(METERS)) - set(waiting)
            assert full.taken("meters") == full.limits()["meters"]["most"]
            send_to_meters(full, range(METERS), 4 * BURST)
            here.settle()
            took = time.monotonic() - began
            assert_metered(full, source_ports(here.frames), inside, took)
        # With a meter go its flows; ten that waited have its room.
        for number in sorted(inside)[:10]:
            lab.switch.ofctl(*OFCTL, "del-meter", BRIDGE, f"meter={number + 1}")
        wait_until(lambda: len(set(full.waiting())) == len(waiting) - 10, 20, "ten more are in the NIC", 0.2)
        full.limit("meters", None)
        wait_until(lambda: not full.waiting(), 20, "all are in the NIC", 0.2)
        lab.switch.ofctl(*OFCTL, "del-meters", BRIDGE)
        assert_alive(lab)
    finally:
        full.limit("meters", None)
        full.clear(before)
    shown = json.loads(lab.switch.appctl("dr/show", "--json"))
    assert shown["leaked_objects"] == 0 and "meter " not in str(shown["devices"][0].get("meters", ""))
    # What they had is free again: as many meters fit as before, without another object.
    taken = full.taken("meters")
    figure(f"{METERS} meters, {len(inside)} in the NIC, {len(waiting)} waited in software, metered there; ten deleted "
           f"let ten in, the limit the others; {taken} meters are the device's for good")


def test_a_larger_limit_lets_in_what_waits(full: Full) -> None:
    """And a deleted flow, whose megaflow becomes another one, gives back what it needs no more."""
    before = full.limits()
    try:
        waiting = fill(full, "modify_headers")
        inside = sorted(set(range(CASES["modify_headers"].flows)) - set(waiting))
        lab = full.lab
        for number in inside[:2]:
            lab.switch.ofctl("del-flows", BRIDGE, f"in_port=1,udp,tp_src={FIRST_PORT + number}")
        wait_until(lambda: len(set(full.waiting()).intersection(waiting)) == len(waiting) - 2, 5,
                   "two more are in the NIC")
        full.limit("modify_headers", None)
        wait_until(lambda: not set(full.waiting()).intersection(waiting), 5, "all are in the NIC")
    finally:
        full.clear(before)
    figure(f"{len(waiting)} megaflows waited; two went in when two flows were deleted, the others with the limit")


def test_limits_are_the_configurations(workspace: Workspace) -> None:
    """A card that is too small for a first port: the port says so."""
    lab = Tunnelled(workspace)
    lab.nic.limits = {"tables": 3, "rules": 1000}
    lab.wire_all(vms=1)
    lab.nic.write()
    lab.workspace.defer(lab.switch.stop)
    lab.switch.start()
    lab.switch.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev", "--", "add-port", BRIDGE,
                     "vm1", "--", "set", "interface", "vm1", *lab.interface_settings(lab.guests[0]))
    wait_until(lambda: bool(lab.switch.interface("vm1", "error")), 10, "the port has an error")
    error = str(lab.switch.interface("vm1", "error"))
    assert "mlx5dv_dr_table_create" in error and "Cannot allocate memory" in error, error
    rows = json.loads(lab.nic.drnic("limits", "--json"))["devices"][0]["limits"]
    assert rows["rules"] == {"taken": 0, "most": 1000} and rows["tables"] == {"taken": 0, "most": 3}, rows
    lab.nic.drnic("limits", "tables=none")
    lab.switch.vsctl("del-port", BRIDGE, "vm1", "--", "add-port", BRIDGE, "vm1", "--", "set", "interface", "vm1",
                     *lab.interface_settings(lab.guests[0]))
    wait_until(lambda: not lab.switch.interface("vm1", "error"), 10, "the port works when there is room")
