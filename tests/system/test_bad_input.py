"""Bad input gets a clear error or a counted drop; the daemon goes on, and good traffic with it."""

from __future__ import annotations

import pytest
from helpers import assert_alive, assert_reaches, figure
from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.softnic import DEVICE
from lab.traffic import send_frames, udp_frame
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

BAD_PORTS = {
    "no-such-device": (["options:device=mlx5_9", "options:vport=7"], "mlx5_9"),
    "vport-taken": ([f"options:device={DEVICE}", "options:vport=1"], "vport"),
    "no-such-vport": ([f"options:device={DEVICE}", "options:vport=77"], "77"),
    "vport-no-number": ([f"options:device={DEVICE}", "options:vport=first"], "first"),
    "vport-too-large": ([f"options:device={DEVICE}", "options:vport=70000"], "70000"),
    "vport-negative": ([f"options:device={DEVICE}", "options:vport=-1"], "-1"),
    "the-manager": ([f"options:device={DEVICE}", "options:vport=0"], "vport"),
    "vport-missing": ([f"options:device={DEVICE}"], "vport"),
    "device-missing": (["options:vport=7"], "device"),
    "unknown-option": ([f"options:device={DEVICE}", "options:vport=7", "options:colour=red"], "colour"),
}


@pytest.mark.parametrize("name", BAD_PORTS)
def test_a_bad_port_says_what_is_wrong(normal_lab: Lab, name: str) -> None:
    lab = normal_lab
    settings, word = BAD_PORTS[name]
    lab.switch.vsctl("add-port", BRIDGE, "bad", "--", "set", "interface", "bad", "type=dr", *settings, check=False)
    wait_until(lambda: bool(lab.switch.interface("bad", "error")), 5, "ovs-vsctl show has an error")
    error = str(lab.switch.interface("bad", "error"))
    figure(f"{name}: {error}")
    said = error + "\n".join(line for line in lab.switch.log.read_text().splitlines() if "bad" in line or "dr" in line)
    assert word in said
    assert_alive(lab)
    assert_reaches(lab.guests[0], lab.guests[1])
    lab.switch.vsctl("del-port", BRIDGE, "bad")


SHORT = {
    "only-a-header": b"",
    "ipv4-cut-in-its-header": udp_frame("02:00:00:00:00:01", "02:00:00:00:00:02", "10.99.0.1", "10.99.0.2", b"")[14:26],
    "udp-cut-in-its-header": udp_frame("02:00:00:00:00:01", "02:00:00:00:00:02", "10.99.0.1", "10.99.0.2", b"")[14:37],
}


@pytest.mark.parametrize("name", SHORT)
def test_frames_cut_short_do_no_harm(normal_lab: Lab, name: str) -> None:
    """They arrive or are dropped with a count: none vanishes, and none comes twice."""
    lab = normal_lab
    first, second = lab.guests[:2]
    assert_reaches(first, second)
    macs = bytes.fromhex((second.mac + first.mac).replace(":", ""))
    before = drops(lab)
    with second.capture() as seen:
        send_frames(first.namespace, first.device, [macs + b"\x08\x00" + SHORT[name]] * 20)
        seen.settle()
        arrived = [frame for frame in seen.frames if frame.startswith(macs + b"\x08\x00" + SHORT[name])]
    dropped = drops(lab) - before
    figure(f"{name}: of 20 frames {len(arrived)} arrived, {dropped} were counted as dropped")
    assert len(arrived) + dropped == 20
    assert_alive(lab)
    assert_reaches(first, second)


def drops(lab: Lab) -> int:
    return sum(stats.port_counts(lab.switch, BRIDGE, guest.port).dropped for guest in lab.guests)


def set_guest_mtu(lab: Lab, guest: Guest, mtu: int) -> None:
    guest.namespace.run(["ip", "link", "set", guest.device, "mtu", str(mtu)])
    lab.namespace.run(["ip", "link", "set", guest.veth, "mtu", str(mtu)])


def test_a_jumbo_frame_over_the_mtu_is_a_counted_drop(workspace: Workspace) -> None:
    lab = Lab(workspace)
    first = lab.wire("vm1", 1)
    second = lab.wire("vm2", 2)
    set_guest_mtu(lab, first, 9000)
    lab.fix_neighbours()
    lab.start()
    assert_reaches(first, second)
    before = drops(lab)
    with second.capture() as seen:
        jumbo = udp_frame(first.mac, second.mac, first.address, second.address, bytes(4000))
        send_frames(first.namespace, first.device, [jumbo] * 20)
        seen.settle()
    arrived = sum(1 for frame in seen.frames if len(frame) > 1518)
    figure(f"20 frames of {len(jumbo)} bytes to an MTU of 1500: {arrived} arrived, {drops(lab) - before} dropped")
    assert arrived == 0
    assert drops(lab) - before == 20
    assert_reaches(first, second)
