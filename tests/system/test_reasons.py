"""dr/explain: every megaflow is counted, and each that stays in software says all that keeps it there."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from helpers import figure, is_offloaded
from lab import stats
from lab.command import CommandError, wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import send_frames, udp_frame

pytestmark = pytest.mark.dr_only

VALUES = 2000


def explain(lab: Lab, *arguments: str) -> Any:
    return json.loads(lab.switch.appctl("dr/explain", "--json", *arguments))


def arp_request(sender: Guest, target: Guest) -> bytes:
    mac = bytes.fromhex(sender.mac.replace(":", ""))

    def address(text: str) -> bytes:
        return bytes(int(part) for part in text.split("."))

    body = (struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + address(sender.address)
            + bytes(6) + address(target.address))
    return (b"\xff" * 6 + mac + struct.pack("!H", 0x0806) + body).ljust(60, b"\0")


def test_a_megaflow_with_three_obstacles_names_all_three(lab: Lab) -> None:
    first, second = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["in_port=1,arp,arp_op=1,actions=output(port=2,max_len=100),LOCAL"])
    send_frames(first.namespace, first.device, [arp_request(first, second)])

    def arp_megaflow() -> stats.Megaflow | None:
        return next((flow for flow in stats.megaflows(lab.switch)
                     if "eth_type(0x0806)" in flow.match and f"in_port({first.port})" in flow.match), None)

    wait_until(lambda: arp_megaflow() is not None, 5, "the megaflow is there")
    flow = arp_megaflow()
    assert flow is not None
    wanted = ["unsupported match: arp_op", "unsupported action: trunc",
              f"output not offloaded: output to a port that is no dr port of this device: {BRIDGE}"]

    def said() -> set[str]:
        """Nothing until an offload thread has offered the megaflow."""
        try:
            return set(explain(lab, f"ufid:{flow.ufid}")["reasons"])
        except CommandError:
            return set()

    wait_until(lambda: set(wanted) <= said(), 5, f"dr/explain says {wanted}")
    text = lab.switch.appctl("dr/explain", f"ufid:{flow.ufid}")
    assert ": not offloaded\n" in text
    assert all(reason in text.splitlines() for reason in wanted), text
    told = explain(lab)
    rows = {f"{row['reason']}: {row['detail']}": row["megaflows"] for row in told["reasons"]}
    for reason in wanted:
        assert rows[reason.removesuffix(f": {BRIDGE}")] == 1, rows
    assert told["megaflows"]["rejected"] == 1, "one megaflow, in three rows"
    send_frames(first.namespace, first.device, [arp_request(first, second)] * 20)

    def packets() -> dict[str, int]:
        return {f"{row['reason']}: {row['detail']}": row["packets"] for row in explain(lab)["reasons"]}

    # The first packet made the megaflow, and is not counted by it.
    wait_until(lambda: all(packets()[reason.removesuffix(f": {BRIDGE}")] == 20 for reason in wanted), 5,
               lambda: f"the 20 packets are counted under each reason: {packets()}")
    assert explain(lab)["packets"]["software"] >= 20
    figure(f"one megaflow, {len(wanted)} obstacles: {'; '.join(wanted)}")


def test_packets_that_the_nic_carried_are_not_softwares(lab: Lab) -> None:
    """A megaflow that leaves the NIC keeps its count; what a reason costs begins there."""
    first, second = lab.guests[:2]
    frames = [udp_frame(first.mac, second.mac, first.address, second.address, b"carried")] * 30
    lab.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output:2"])
    send_frames(first.namespace, first.device, frames[:1])
    wait_until(lambda: is_offloaded(lab, first), 5, "the megaflow is in the NIC")
    send_frames(first.namespace, first.device, frames)
    lab.switch.add_flows(BRIDGE, ["in_port=1,udp,actions=output(port=2,max_len=100)"])

    def packets() -> int:
        return sum(row["packets"] for row in explain(lab)["reasons"] if row["detail"] == "trunc")

    wait_until(lambda: not is_offloaded(lab, first), 5, "the megaflow has left the NIC")
    wait_until(lambda: any(row["detail"] == "trunc" and row["megaflows"] == 1 for row in explain(lab)["reasons"]), 5,
               "its reason is known")
    assert packets() == 0
    send_frames(first.namespace, first.device, frames[:20])
    wait_until(lambda: packets() == 20, 5, lambda: f"20 packets of software's: {packets()}")
    total = explain(lab)["packets"]
    assert total["all"] - total["software"] >= len(frames), total
    figure("30 packets in the NIC, then 20 in software: 20 are the reason's")


def test_a_megaflow_from_local_is_counted_under_the_ports_name(lab: Lab) -> None:
    first = lab.guests[0]
    lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=100000")
    lab.switch.namespace.run(["ip", "link", "set", BRIDGE, "up"])
    lab.switch.add_flows(BRIDGE, ["in_port=LOCAL,udp,actions=output:1"])
    frame = udp_frame("02:00:00:00:00:77", first.mac, "10.9.9.9", first.address, b"from LOCAL")

    def counted() -> bool:
        send_frames(lab.switch.namespace, BRIDGE, [frame])
        return any(port["name"] == BRIDGE and port["megaflows"] >= 1 for port in explain(lab)["other_ports"])

    wait_until(counted, 5, "dr/explain counts the megaflow")
    told = explain(lab)
    seen = [flow for flow in stats.megaflows(lab.switch) if f"in_port({BRIDGE})" in flow.match]
    local = next(port["megaflows"] for port in told["other_ports"] if port["name"] == BRIDGE)
    assert local == told["megaflows"]["from_other_ports"]
    assert seen
    reason = f"in_port not offloaded: in_port is no dr port: {BRIDGE} (type "
    assert reason in lab.switch.appctl("dr/explain")
    assert reason in lab.switch.appctl("dr/explain", f"ufid:{seen[0].ufid}")
    figure(f"{local} megaflows from {BRIDGE}, {told['megaflows']['from_dr_ports']} from dr ports")


def test_two_thousand_values_of_a_field_are_one_row(lab: Lab, tmp_path: Path) -> None:
    """Revalidators delete what no OpenFlow rule made, some of it before an offload thread has seen it: more
    values, then."""
    port = lab.guests[0].port

    def row() -> list[dict[str, Any]]:
        return [reason for reason in explain(lab)["reasons"] if reason["reason"] == "recirculation"]

    values = 0
    while values < 20 * VALUES and (not row() or row()[0]["total"] < VALUES):
        file = tmp_path / "flows"
        file.write_text("".join(f"recirc_id({value:#x}),in_port({port}),eth(),eth_type(0x1234) drop\n"
                                for value in range(values + 1, values + VALUES + 1)))
        lab.switch.appctl("dpctl/add-flows", str(file), check=False)
        values += VALUES
    rows = row()
    assert [reason["detail"] for reason in rows] == ["recirc_id"]
    assert rows[0]["total"] >= VALUES
    assert not [reason for reason in explain(lab)["reasons"] if reason["detail"] == "other"]
    figure(f"{rows[0]['total']} megaflows with as many recirc_ids: one row")
