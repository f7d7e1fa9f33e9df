"""A call of the NIC's that fails while a port opens: the port says which, nothing is left behind, the next try works."""

from __future__ import annotations

import errno

import pytest
from helpers import assert_alive, assert_reaches, figure, stream, wait_offloaded
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab

pytestmark = pytest.mark.dr_only

# In the order of a first port's way: device, domains, tables and what they lead to, the port's queue, its rules.
CALLS = ["mlx5dv_open_device", "ibv_query_device", "ibv_alloc_pd", "mlx5dv_query_port", "mlx5dv_devx_general_cmd",
         "mlx5dv_dr_domain_create", "mlx5dv_dr_table_create", "mlx5dv_dr_matcher_create", "mlx5dv_dr_rule_create",
         "mlx5dv_dr_action_create_default_miss", "mlx5dv_dr_action_create_modify_header",
         "mlx5dv_dr_action_create_dest_table", "mlx5dv_dr_action_create_flow_counter", "mlx5dv_devx_obj_create",
         "ibv_create_comp_channel", "ibv_create_cq", "ibv_create_cq_ex", "ibv_create_qp", "ibv_create_qp_ex",
         "ibv_modify_qp", "ibv_reg_mr", "mlx5dv_init_obj", "mlx5dv_dr_action_create_tag",
         "mlx5dv_dr_action_create_dest_ibv_qp", "mlx5dv_dr_action_create_dest_vport",
         "mlx5dv_devx_create_event_channel", "mlx5dv_devx_subscribe_devx_event"]

# Without these there is no port at all. The others are asked for by trial, later, or not on this way.
NEEDED = {"mlx5dv_open_device", "ibv_alloc_pd", "mlx5dv_dr_domain_create", "mlx5dv_dr_table_create",
          "mlx5dv_dr_matcher_create", "mlx5dv_dr_rule_create", "ibv_create_comp_channel", "ibv_modify_qp", "ibv_reg_mr",
          "mlx5dv_dr_action_create_tag", "mlx5dv_dr_action_create_dest_ibv_qp"}


def remove_ports(lab: Lab, guests: list[Guest]) -> None:
    for guest in guests:
        lab.switch.vsctl("del-port", BRIDGE, guest.port)


def open_port(lab: Lab, guest: Guest) -> str:
    """The port's error, empty when it works."""
    lab.switch.vsctl("add-port", BRIDGE, guest.port, "--", "set", "interface", guest.port,
                     *lab.interface_settings(guest), f"ofport_request={lab.ofport(guest)}", check=False)

    def outcome() -> bool:
        return lab.switch.interface(guest.port, "ofport") == lab.ofport(guest) or \
            bool(lab.switch.interface(guest.port, "error"))

    wait_until(outcome, 10, f"port {guest.port} works or says why not")
    return str(lab.switch.interface(guest.port, "error") or "")


def test_each_call_that_fails_while_a_port_opens(normal_lab: Lab) -> None:
    lab = normal_lab
    guests = lab.guests[:2]
    remove_ports(lab, lab.guests)
    shown = set()
    for call in CALLS:
        lab.nic.drnic("fault", call, str(errno.ENOMEM), "1")
        error = open_port(lab, guests[0])
        figure(f"{call}: {error or 'the port works all the same'}")
        if error:
            shown.add(call)
            assert call in error or "Cannot allocate memory" in error
        assert_alive(lab)
        remove_ports(lab, guests[:1])
        # What the port did not ask for is asked for by the next ones, or never.
        for guest in guests:
            if open_port(lab, guest):
                remove_ports(lab, [guest])
                assert open_port(lab, guest) == "", f"{call} failed once, and {guest.port} stays away"
        assert_reaches(*guests)
        remove_ports(lab, guests)
    assert NEEDED <= shown, f"no error of {sorted(NEEDED - shown)} reached the user"
    for guest in guests:
        assert open_port(lab, guest) == ""
    with stream(guests[0], guests[1], rate=500, limit=500) as sender:
        wait_offloaded(lab, guests[0])
        sender.join()
