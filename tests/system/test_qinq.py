"""Q-in-Q: customers behind ports of vlan_mode dot1q-tunnel, a provider's tag around theirs on the uplink."""

from __future__ import annotations

import re
import struct
import time

import pytest
from helpers import figure, wait_offloaded
from lab import stats
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.traffic import Stream, send_frames, stream_number, udp_frame

PROVIDER = struct.pack("!HH", 0x88A8, 100)
CUSTOMERS = {"one": struct.pack("!HH", 0x8100, 0x6007), "none": b""}   # VID 7, priority 3
SLOW_PATH_LIMIT = 0.001
SIZE, LENGTH, RATE = 200, 5000, 1500


@pytest.fixture
def provider(lab: Lab) -> Lab:
    """vm1 is one customer's, vm3 another's."""
    for name, tag in (("vm1", 100), ("vm3", 200)):
        lab.switch.vsctl("set", "port", lab.guest(name).port, "vlan_mode=dot1q-tunnel", f"tag={tag}")
    lab.switch.add_flows(BRIDGE, ["actions=NORMAL"])
    return lab


def limit_vlans(lab: Lab, limit: int) -> None:
    lab.switch.vsctl("set", "Open_vSwitch", ".", f"other_config:vlan-limit={limit}")


def tagged_stream(source: Guest, target: Guest, tags: bytes, limit: int | None = None) -> Stream:
    """To an address that no kernel has: none answers."""
    return Stream(source.namespace, source.device, source_mac=source.mac, target_mac=target.mac, source="10.98.0.1",
                  target="10.98.0.2", rate=RATE, size=SIZE + len(tags), limit=limit, tags=tags)


def learn(lab: Lab, guests: dict[str, bytes]) -> None:
    """The switch learns where each guest is."""
    for name, tags in guests.items():
        guest = lab.guest(name)
        hello = udp_frame(guest.mac, "02:0d:00:00:0f:0f", guest.address, "10.99.0.99", b"hello" * 10)
        send_frames(guest.namespace, guest.device, [hello[:12] + tags + hello[12:]])
    wait_until(lambda: all(lab.guest(name).mac in lab.switch.appctl("fdb/show", BRIDGE) for name in guests), 2,
               "the switch knows all guests")


def exchange(lab: Lab, here: Guest, there: Guest, tags: dict[str, bytes], limit: int) -> None:
    """Numbered frames both ways at once."""
    with tagged_stream(here, there, tags[here.name], limit) as to_there:
        with tagged_stream(there, here, tags[there.name], limit) as to_here:
            to_here.join()
        to_there.join()


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("customer", CUSTOMERS)
def test_a_customers_frames_keep_their_tag_in_the_providers_network(provider: Lab, customer: str, limit: int) -> None:
    lab, inner = provider, CUSTOMERS[customer]
    limit_vlans(lab, limit)
    vm, stranger, uplink = lab.guest("vm1"), lab.guest("vm3"), lab.guest("uplink")
    tags = {"vm1": inner, "uplink": PROVIDER + inner}
    learn(lab, tags)
    exchange(lab, vm, uplink, tags, 20)
    for guest in (vm, uplink):
        wait_offloaded(lab, guest)
    before = stats.slow_path(lab.switch).received
    with vm.capture() as at_vm, uplink.capture() as at_uplink, stranger.capture() as at_stranger:
        exchange(lab, vm, uplink, tags, LENGTH)
        for capture in (at_vm, at_uplink, at_stranger):
            capture.settle()
    slow = stats.slow_path(lab.switch).received - before
    for capture, guest in ((at_vm, vm), (at_uplink, uplink)):
        frames = [frame for frame in capture.frames if stream_number(frame) is not None]
        assert sorted(map(stream_number, frames)) == list(range(LENGTH)), f"at {guest.name}"
        sizes_and_tags = {(len(frame), frame[12:12 + len(tags[guest.name]) + 2]) for frame in frames}
        assert sizes_and_tags == {(SIZE + len(tags[guest.name]), tags[guest.name] + b"\x08\x00")}, f"at {guest.name}"
    assert not [frame for frame in at_stranger.frames if stream_number(frame) is not None]
    figure(f"{2 * LENGTH} frames with {len(inner) // 4} and {1 + len(inner) // 4} tags: {slow} took the slow path")
    if lab.kind == "dr":
        assert slow <= SLOW_PATH_LIMIT * 2 * LENGTH


def ethertypes(lab: Lab, guest: Guest) -> set[str]:
    """What is behind the tags that OVS parses, of this guest's megaflows in the NIC."""
    return {re.findall(r"eth_type\((0x[0-9a-f]+)\)", flow.match)[-1] for flow in stats.megaflows(lab.switch)
            if flow.layer == "dr" and f"in_port({guest.port})" in flow.match}


@pytest.mark.dr_only
def test_another_limit_gives_megaflows_another_meaning(provider: Lab) -> None:
    """Behind one tag IP is no IP to OVS, behind two it is: OpenFlow must not be asked by the wrong match."""
    lab, vm, uplink = provider, provider.guest("vm1"), provider.guest("uplink")
    lab.switch.add_flows(BRIDGE, [f"priority=40000,in_port={lab.ofport(uplink)},ip,actions=drop"])
    tags = PROVIDER + CUSTOMERS["one"]
    learn(lab, {"vm1": CUSTOMERS["one"]})
    with vm.capture() as at_vm, tagged_stream(uplink, vm, tags):
        wait_until(lambda: ethertypes(lab, uplink) == {"0x8100"}, 3, "a megaflow for one tag is in the NIC")
        came = len(at_vm.frames)
        wait_until(lambda: len(at_vm.frames) > came + 100, 3, "frames come")
        limit_vlans(lab, 2)
        wait_until(lambda: ethertypes(lab, uplink) == {"0x0800"}, 3, "a megaflow for two tags is in the NIC")
        at_vm.settle(quiet=0.2)
        came = len(at_vm.frames)
        before = stats.slow_path(lab.switch).received
        wait_until(lambda: sum(flow.packets for flow in stats.megaflows(lab.switch, kind="offloaded")) > 1000, 5,
                   "a thousand frames are dropped")
        assert len(at_vm.frames) == came
        slow = stats.slow_path(lab.switch).received - before
        limit_vlans(lab, 1)
        wait_until(lambda: len(at_vm.frames) > came + 100, 3, "frames come again")
        # A packet that was there under the first limit too: whoever knew its megaflow then must have forgotten it.
        wait_until(lambda: ethertypes(lab, uplink) == {"0x8100"}, 3, "a megaflow for one tag is in the NIC again")
        before = stats.slow_path(lab.switch).received
        time.sleep(1)
        assert stats.slow_path(lab.switch).received - before < 20
    figure(f"dropped by the NIC behind two tags, {slow} of them in the slow path")
