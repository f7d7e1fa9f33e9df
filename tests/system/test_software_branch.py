"""What the NIC cannot do is done to copies, while the NIC forwards: outputs to taps, truncated outputs, packets for a
controller."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from helpers import assert_alive, assert_reaches, figure, is_offloaded, stream, wait_offloaded
from lab.command import wait_until
from lab.lab import BRIDGE, Lab

pytestmark = pytest.mark.dr_only


def test_a_port_has_an_ifindex_and_its_offload_is_ours(lab: Lab) -> None:
    first, second = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2", "in_port=2,actions=output:1"])
    for guest in lab.guests:
        wait_until(lambda: (lab.switch.interface(guest.port, "ifindex") or 0) != 0, 10, "OVS shows an ifindex")
        index = lab.switch.interface(guest.port, "ifindex")
        assert isinstance(index, int) and 1 << 23 <= index < 1 << 24 and index & 0xFFFF == guest.vport, index
    with second.capture(), stream(first, second):
        wait_offloaded(lab, first)
    log = lab.switch.log.read_text()
    assert {api for port, api in re.findall(r"\|([^|\s]+): Assigned flow API '(\w+)'", log)
            if port in {guest.port for guest in lab.guests}} == {"dr"}
    assert "linux_tc" not in log
    assert_alive(lab)
