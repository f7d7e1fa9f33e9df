"""Vports that come and go while the daemon runs: what an operator sees of it in OVS, and what survives a restart."""

from __future__ import annotations

import errno
import json
import stat

import pytest

from helpers import assert_alive, assert_reaches, is_offloaded
from lab.command import CommandError, wait_until
from lab.lab import BRIDGE, Guest, Lab, Wire
from lab.traffic import ping
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only
PATIENCE = 20


def made(workspace: Workspace) -> tuple[Lab, Guest, Guest, Guest]:
    lab = Lab(workspace)
    guests = lab.wire("vm1", 1), lab.wire("vm2", 2), lab.wire("vm3", 3)
    lab.start()
    assert_reaches(guests[0], guests[1])
    return lab, *guests


def error_of(lab: Lab, guest: Wire) -> str:
    return str(lab.switch.interface(guest.port, "error") or "")


def add(lab: Lab, guest: Guest, *more: str) -> str:
    return lab.nic.drnic("add", str(guest.vport), "--dpdk", lab.dpdk_arguments(guest), "--name", guest.name,
                         "--mac", guest.mac, *more)


def test_a_removed_vport_is_an_error_of_its_interface_and_heals_when_it_is_back(workspace: Workspace) -> None:
    lab, gone, other, third = made(workspace)
    lab.nic.drnic("del", str(gone.vport))
    wait_until(lambda: error_of(lab, gone) != "", PATIENCE, "an error of the interface whose vport was removed")
    expected = "mlx5_0 has no vport 1: "
    assert expected in error_of(lab, gone) and "drnic list" in error_of(lab, gone)
    assert expected in lab.switch.vsctl("show")
    assert expected in lab.switch.messages(), "the daemon's log has it, too"
    assert lab.switch.interface(gone.port, "link_state") != "up"
    assert gone.port not in lab.switch.ofctl("show", BRIDGE), "it is no port of the bridge's any more"
    assert_reaches(third, other)

    add(lab, gone)
    wait_until(lambda: error_of(lab, gone) == "", PATIENCE, "the interface works again")
    wait_until(lambda: lab.switch.interface(gone.port, "link_state") == "up", PATIENCE, "its link")
    assert_reaches(gone, other)
    wait_until(lambda: is_offloaded(lab, gone), PATIENCE, "its megaflow is in the NIC again")
    assert_alive(lab)


def test_a_vport_that_is_removed_and_added_at_once_carries_on(workspace: Workspace) -> None:
    lab, replaced, other, _ = made(workspace)
    for _ in range(3):
        lab.nic.drnic("del", str(replaced.vport))
        add(lab, replaced)
    wait_until(lambda: error_of(lab, replaced) == "" and ping(replaced.namespace, other.address, count=1).received == 1,
               PATIENCE, "the ping goes through")
    assert_reaches(replaced, other)
    assert_alive(lab)


def test_an_interface_waits_for_a_vport_that_is_added_later(workspace: Workspace) -> None:
    """No other port keeps the device open, and no interface of the kernel's makes OVS look."""
    lab = Lab(workspace)
    late = lab.wire_port("late", 7, "net_null,no-rx=1")
    lab.nic.ports.clear()
    lab.nic.write()
    workspace.defer(lab.switch.stop)
    lab.switch.start()
    lab.switch.vsctl("add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev")
    lab.switch.vsctl("add-port", BRIDGE, late.port, "--", "set", "interface", late.port,
                     *lab.interface_settings(late), check=False)
    for _ in range(2):
        wait_until(lambda: "mlx5_0 has no vport 7" in error_of(lab, late), PATIENCE, "the error")
        lab.nic.drnic("add", "7", "--dpdk", "net_null,no-rx=1")
        wait_until(lambda: error_of(lab, late) == "", PATIENCE, "the interface works")
        wait_until(lambda: lab.switch.interface(late.port, "link_state") == "up", PATIENCE, "its link")
        lab.nic.drnic("del", "7")


def test_added_vports_are_there_after_a_restart_once_they_are_saved(workspace: Workspace) -> None:
    lab, removed, first, second = made(workspace)
    lab.nic.file.chmod(0o640)
    before = json.loads(lab.nic.file.read_text())
    lab.nic.drnic("del", str(removed.vport))
    lab.nic.drnic("del", str(second.vport))
    assert "saved in " + str(lab.nic.file) in add(lab, second, "--save")
    after = json.loads(lab.nic.file.read_text())
    assert [port["vport"] for port in after["devices"][0]["ports"]] == [first.vport, second.vport]
    assert {**after, "devices": None} == {**before, "devices": None}
    assert stat.S_IMODE(lab.nic.file.stat().st_mode) == 0o640

    assert "saved in" in add(lab, removed, "--save")
    lab.switch.stop()
    lab.switch.start_database_again()
    lab.switch.start_daemon()
    for guest in (removed, first, second):
        wait_until(lambda waiting=guest: lab.switch.interface(waiting.port, "link_state") == "up", PATIENCE,
                   f"{guest.name} after the restart")
    assert_reaches(removed, second)


def test_drnic_says_what_it_needs(workspace: Workspace) -> None:
    lab, *_ = made(workspace)
    assert "drnic add [OPTIONS] --dpdk ARGUMENTS" in lab.nic.drnic("add", "--help").splitlines()[1]
    lab.nic.file.unlink()
    with pytest.raises(CommandError, match=r"vport 3 is removed, but not saved: .*softnic\.json: No such file"):
        lab.nic.drnic("del", "3", "--save")


def test_a_vport_that_cannot_be_set_up_is_an_error_of_its_interface(workspace: Workspace) -> None:
    """Only where the device refuses: what the kernel keeps to itself is no error (test_connectx.py)."""
    lab, down, other, third = made(workspace)
    lab.switch.ofctl("mod-port", BRIDGE, down.port, "down")
    wait_until(lambda: lab.switch.interface(down.port, "admin_state") == "down", PATIENCE, "the vport is down")
    errors = set()
    for call in range(1, 12):
        lab.switch.vsctl("del-port", down.port)
        lab.nic.drnic("fault", "mlx5dv_devx_general_cmd", str(errno.EIO), str(call))
        lab.switch.vsctl(*lab._addition(down))
        wait_until(lambda: error_of(lab, down) or lab.switch.interface(down.port, "ofport"), PATIENCE, "an answer")
        errors.add(error_of(lab, down))
    refused = [error for error in errors if "the vport cannot be set up" in error]
    assert len(refused) == 1, errors
    assert "MODIFY_VPORT_STATE" in refused[0]
    assert_reaches(third, other)
