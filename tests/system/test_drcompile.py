"""drcompile says of a switch's megaflows what the switch itself says: dr/explain is the judge."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from helpers import figure
from lab import build, stats, traffic
from lab.command import CommandError, wait_until
from lab.lab import BRIDGE, Lab
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

# By the UDP port that is sent to: what is done with such packets.
ACTIONS = [
    "output:2", "output:2,output:3", "output:4,mod_vlan_vid:7,output:2", "dec_ttl,output:2",
    "dec_ttl,mod_dl_src:02:0d:00:00:0f:01,output:4,mod_nw_tos:184,output:3",
    "mod_nw_src:192.0.2.1,mod_tp_dst:99,output:2",
    "drop", "LOCAL", "output:2,LOCAL", "ct(commit),output:2", "ct(table=0)", "in_port", "output(port=2,max_len=64)",
    "meter:1,output:2", "sample(probability=100,collector_set_id=1),output:2",
    "dec_ttl,debug_recirc,output:2", "debug_recirc,dec_ttl,debug_recirc,mod_vlan_vid:9,output:2,output:3",
    "output:3,debug_recirc,ct(commit),output:2", "mod_vlan_vid:3,mod_vlan_pcp:2,output:4",
    "push_vlan:0x88a8,mod_vlan_vid:5,output:2", "push_mpls:0x8847,output:2",
]
FIRST_PORT = 10_000


@pytest.fixture(params=["connectx-5", "connectx-6dx", "connectx-7"])
def mixed(workspace: Workspace, request: pytest.FixtureRequest) -> Lab:
    """A bridge that does something else with each UDP port, for packets of vm1 and of the uplink."""
    if not build.drcompile().exists():
        pytest.skip(f"not built: {build.drcompile()}")
    lab = Lab(workspace, profile=request.param)
    lab.switch.daemon_arguments.append("--enable-dummy")   # debug_recirc
    lab.wire_all(vms=3)
    lab.fix_neighbours()
    lab.start(offload=True, fail_mode="secure")
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=100000")
    lab.switch.ofctl("-O", "OpenFlow13", "add-meter", BRIDGE, "meter=1,kbps,band=type=drop,rate=1000")
    flows = [f"udp,tp_dst={FIRST_PORT + i},actions={actions}" for i, actions in enumerate(ACTIONS)]
    (lab.switch.folder / "flows.txt").write_text("\n".join(flows) + "\n")
    lab.switch.ofctl("-O", "OpenFlow15", "add-flows", BRIDGE, str(lab.switch.folder / "flows.txt"))
    return lab


def compiled(lab: Lab, dump: str) -> dict[str, Any]:
    profile = lab.nic.profile.replace("connectx-", "cx")
    options = ["--profile", profile, "--meter=0"]
    options += [word for wire in lab.wires for word in ("--port", f"{wire.port}={wire.vport}")]
    done = subprocess.run([str(build.drcompile()), "-j", *options], input=dump, capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return {flow["ufid"]: flow for flow in json.loads(done.stdout)["megaflows"]}


def explained(lab: Lab, ufid: str) -> dict[str, Any] | None:
    """Nothing until an offload thread has offered the megaflow."""
    try:
        return json.loads(lab.switch.appctl("dr/explain", "--json", f"ufid:{ufid}"))
    except CommandError:
        return None


def program(explanation: dict[str, Any]) -> tuple[str, str]:
    """Match and actions, without the numbers of what the device has."""
    found = re.fullmatch(r"FDB table \d+ matcher #\d+ (\{.*?\}) actions: count#\d+\(.*?\), (.*)", explanation["text"])
    assert found, explanation
    return found[1], "count, " + found[2]


def nameless(actions: str) -> str:
    """What software does names ports by the datapath's numbers, which drcompile does not have."""
    return re.sub(r"copy to software.*?, from datapath port \d+", "copy to software", actions)


def test_it_says_what_the_switch_says(mixed: Lab) -> None:
    lab = mixed
    vm1, vm2, uplink = lab.guests[0], lab.guests[1], lab.guests[-1]
    for vlan in (None, 12):
        for source in (vm1, uplink):
            frames = [traffic.udp_frame(source.mac, vm2.mac, source.address, vm2.address, b"x" * 50, vlan=vlan,
                                        target_port=FIRST_PORT + i) for i in range(len(ACTIONS))]
            for _ in range(3):   # what is behind a recirculation has its turn
                traffic.send_frames(source.namespace, source.device, frames)

    def settled() -> bool:
        before = {flow.ufid for flow in stats.megaflows(lab.switch)}
        told = {ufid: explained(lab, ufid) for ufid in before}
        after = {flow.ufid for flow in stats.megaflows(lab.switch)}
        return all(told.values()) and len(before) >= len(ACTIONS) and before == after

    wait_until(settled, 20, "each megaflow has been offered")
    dump = lab.switch.appctl("dpctl/dump-flows", "-m")
    ours = compiled(lab, dump)
    offloaded, reasons = 0, set()
    for flow in stats.megaflows(lab.switch):
        theirs, mine = explained(lab, flow.ufid), ours[flow.ufid]
        assert theirs is not None
        assert mine["offloaded"] == theirs["offloaded"], (flow.text, mine, theirs)
        if mine["offloaded"]:
            assert (mine["match"], nameless(mine["actions"])) == tuple(map(nameless, program(theirs))), flow.text
            offloaded += 1
        else:
            assert mine["reasons"] == theirs["reasons"], flow.text
            reasons.update(mine["reasons"])
    assert offloaded >= 10 and len(reasons) >= 6
    figure(f"{lab.nic.profile}: {len(ours)} megaflows, {offloaded} offloaded, {len(reasons)} reasons: as dr/explain")
