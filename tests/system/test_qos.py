"""A QoS of a dr port has no effect, which OVS keeps to itself and the interface must say."""

from __future__ import annotations

import pytest
from helpers import assert_alive, assert_reaches, wait_offloaded
from lab.command import wait_until
from lab.lab import BRIDGE, Lab

# Stock OVS gives the system's devices queues by tc, whose classifiers the kernel here does not have.
pytestmark = pytest.mark.dr_only

PROBLEM = ("qos type={} has no effect: a dr port has no queues to shape what leaves through it. Limit what comes in "
           "(ingress_policing_rate, ingress_policing_kpkts_rate) or clear the port's qos")


def expect_error(lab: Lab, port: str, expected: str | None) -> None:
    try:
        wait_until(lambda: lab.switch.interface(port, "error") == expected, 10, "error")
    except TimeoutError:
        assert lab.switch.interface(port, "error") == expected


def test_the_interface_says_that_a_qos_has_no_effect(lab: Lab) -> None:
    first, second = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2", "in_port=2,actions=output:1"])
    expect_error(lab, first.port, None)
    lab.switch.vsctl("set", "port", first.port, "qos=@qos", "--", "--id=@qos", "create", "qos", "type=linux-htb",
                     "other_config:max-rate=1000000", "queues:0=@queue", "--", "--id=@queue", "create", "queue",
                     "other_config:max-rate=1000000")
    expect_error(lab, first.port, PROBLEM.format("linux-htb"))
    assert PROBLEM.format("linux-htb") in lab.switch.vsctl("show")
    assert lab.switch.interface(second.port, "error") is None
    assert_reaches(first, second)
    wait_offloaded(lab, first)

    lab.switch.vsctl("set", "qos", lab.switch.vsctl("get", "port", first.port, "qos").strip(), "type=linux-hfsc")
    expect_error(lab, first.port, PROBLEM.format("linux-hfsc"))
    lab.switch.vsctl("clear", "port", first.port, "qos")
    expect_error(lab, first.port, None)
    assert_alive(lab)
