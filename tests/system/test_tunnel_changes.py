"""Tunnels' ports, devices and offload that come and go: megaflows follow, and no count is lost."""

from __future__ import annotations

import time

import pytest
from helpers import figure
from lab import stats
from lab.command import wait_until
from lab.workspace import Workspace
from test_tunnel_ports import (KINDS, Kind, Steady, add_tunnel, deliver, inner_frames, offloaded, outside,
                               send, sizes_of, tunnelled, wait_counts, wait_offloaded, warm_up)
from test_tunnels import INTEGRATION, PEER, UNDERLAY, Tunnelled, make_tunnelled

__all__ = ["tunnelled"]   # the fixture

OTHER_PEER = "172.31.0.3"


def test_a_tunnel_port_goes_and_another_gets_its_number(tunnelled: Tunnelled) -> None:
    lab = tunnelled
    target = lab.guests[0]
    deleted = 0
    for turn, name in enumerate(("vxlan", "geneve", "gre", "vxlan")):
        kind = KINDS[name]
        port = add_tunnel(lab, kind)
        deliver(lab, port)
        inner = inner_frames(target, [100 + turn] * 100)
        with target.capture() as seen:
            send(lab, [outside(lab, kind, inner[0])])
            wait_offloaded(lab)
            send(lab, [outside(lab, kind, frame) for frame in inner[1:]])
            seen.settle()
        assert [frame for frame in seen.frames if frame in set(inner)] == inner
        if lab.kind == "dr":
            # Fresh counts, which nobody has collected. Stock loses them.
            send(lab, [outside(lab, kind, frame) for frame in inner], pace=100)
            inner *= 2
        lab.switch.vsctl("del-port", "tun")
        wait_counts(lab, INTEGRATION, f"in_port={port}", sizes_of(inner))
        with target.capture() as seen:
            send(lab, [outside(lab, kind, frame) for frame in inner[:20]])
            seen.settle()
        assert not [frame for frame in seen.frames if frame in set(inner)], f"{name} is gone"
        if lab.kind == "dr":
            wait_until(lambda: not any("tunnel(" in flow.match for flow in stats.megaflows(lab.switch)), 5,
                       "no megaflow is left")
            assert "tunnel" not in lab.switch.appctl("dr/show", "-v")
        lab.switch.ofctl("del-flows", INTEGRATION)
        deleted += 1
    figure(f"{deleted} tunnel ports, one after the other: each counted all, and left nothing")


def test_two_remotes_share_a_port_of_the_datapath(tunnelled: Tunnelled) -> None:
    lab, kind = tunnelled, KINDS["vxlan"]
    first, second = lab.guests[:2]
    lab.switch.appctl("tnl/neigh/set", UNDERLAY, OTHER_PEER, lab.uplink.mac)
    ports = [add_tunnel(lab, kind, "tun1"), lab.add_tunnel("tun2", "vxlan", remote_ip=OTHER_PEER)]
    lab.switch.add_flows(INTEGRATION, [f"in_port={ports[0]},actions=output:1", f"in_port={ports[1]},actions=output:2"])
    here, there = inner_frames(first, [100] * 100), inner_frames(second, [100] * 100)
    packets = [packet for pair in zip((outside(lab, kind, frame) for frame in here),
                                      (outside(lab, kind, frame, source=OTHER_PEER) for frame in there))
               for packet in pair]
    with first.capture() as at_first, second.capture() as at_second:
        send(lab, packets[:2])
        wait_offloaded(lab, 2)
        send(lab, packets[2:])
        at_first.settle()
    assert [frame for frame in at_first.frames if frame in set(here)] == here
    assert [frame for frame in at_second.frames if frame in set(there)] == there
    for port, frames in zip(ports, (here, there)):
        wait_counts(lab, INTEGRATION, f"in_port={port}", sizes_of(frames))
    # The netdev that stands for the datapath's port is the first one's.
    def child_of(remote: str) -> str | None:
        return next((flow.ufid for flow in offloaded(lab) if f"tunnel(tun_id=0x5,src={remote}," in flow.match), None)

    before = child_of(OTHER_PEER)
    lab.switch.vsctl("del-port", "tun1")
    assert child_of(PEER) is None and child_of(OTHER_PEER) == before
    with first.capture() as at_first, second.capture() as at_second:
        send(lab, packets)
        at_second.settle()
    assert not [frame for frame in at_first.frames if frame in set(here)]
    assert [frame for frame in at_second.frames if frame in set(there)] == there
    wait_counts(lab, INTEGRATION, f"in_port={ports[1]}", sizes_of(there * 2))
    wait_counts(lab, INTEGRATION, f"in_port={ports[0]}", sizes_of(here))
    wait_offloaded(lab)


def test_a_tunnel_port_moves_to_another_udp_port(tunnelled: Tunnelled) -> None:
    lab = tunnelled
    target = lab.guests[0]
    port = add_tunnel(lab, KINDS["vxlan"])
    deliver(lab, port)
    inner = inner_frames(target, [100] * 40)

    default, other = KINDS["vxlan"], KINDS["vxlan on another port"]
    counted: list[bytes] = []
    for kind, wrong in ((default, other), (other, default), (default, other)):
        lab.switch.vsctl("set", "interface", "tun", f"options:dst_port={kind.udp_port}")
        wait_until(lambda: f"vxlan_sys_{kind.udp_port}" in lab.switch.appctl("dpctl/show"), 5, "the port is there")
        # What made no tunnel's packets of this UDP port is gone: after a whole round, and this one may have begun.
        for _ in range(2):
            lab.switch.appctl("revalidator/wait")
        if lab.kind == "dr":
            wait_counts(lab, INTEGRATION, f"in_port={port}", sizes_of(counted))
        with target.capture() as seen:
            # The first one alone: those that follow it at once could overtake it while it is in the slow path.
            warm_up(lab, kind, inner[0])
            send(lab, [outside(lab, kind, frame) for frame in inner[1:]])
            seen.settle()
        assert [frame for frame in seen.frames if frame in set(inner)] == inner
        with target.capture() as seen:
            send(lab, [outside(lab, wrong, frame) for frame in inner])
            seen.settle()
        assert not set(inner) & set(seen.frames), f"a packet to UDP port {wrong.udp_port} came out of the tunnel"
        counted += inner
        if kind.offloaded:
            # Fresh counts, which nobody has collected when the datapath's port goes. Stock loses them.
            send(lab, [outside(lab, kind, frame) for frame in inner], pace=100)
            counted += inner


@pytest.mark.dr_only
def test_the_last_bridge_takes_its_tunnels_along_at_once(tunnelled: Tunnelled) -> None:
    """No revalidator is left then that would delete their flows."""
    lab, kind = tunnelled, KINDS["vxlan"]
    port = add_tunnel(lab, kind)
    deliver(lab, port)
    warm_up(lab, kind, inner_frames(lab.guests[0], [100])[0])
    lab.switch.vsctl("del-br", INTEGRATION, "--", "del-br", UNDERLAY)
    wait_until(lambda: "vxlan_sys" not in lab.switch.appctl("dpctl/show", check=False), 5, "the tunnel's port is gone")
    assert "goes before its flows" not in lab.switch.log.read_text()


@pytest.mark.dr_only
def test_traffic_is_offloaded_when_offload_is_turned_on(workspace: Workspace) -> None:
    lab, kind = make_tunnelled(workspace, "dr", offload=False), KINDS["vxlan"]
    port = add_tunnel(lab, kind)
    deliver(lab, port)
    frame = inner_frames(lab.guests[0], [100])[0]
    with Steady(lab, outside(lab, kind, frame), rate=500) as traffic_in:
        time.sleep(0.5)
        lab.switch.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
        wait_offloaded(lab)
        time.sleep(0.5)
    sent = traffic_in.sent
    wait_counts(lab, INTEGRATION, f"in_port={port}", (sent, sent * len(frame)))


@pytest.mark.dr_only
def test_the_device_goes_and_comes_while_the_tunnel_stays(tunnelled: Tunnelled) -> None:
    """All dr ports of the device go, and their flows' counts are kept; with the ports the offload comes again."""
    lab, kind = tunnelled, KINDS["vxlan"]
    target = lab.guests[0]
    port = add_tunnel(lab, kind)
    deliver(lab, port)
    inner = inner_frames(target, [100] * 200)
    warm_up(lab, kind, inner[0])
    send(lab, [outside(lab, kind, frame) for frame in inner[1:]], pace=100)
    lab.switch.vsctl(*(word for guest in lab.guests for word in ("--", "del-port", guest.port)))
    wait_counts(lab, INTEGRATION, f"in_port={port}", sizes_of(inner))
    lab.switch.ofctl("del-flows", UNDERLAY)
    lab.switch.ofctl("del-flows", INTEGRATION)
    for guest in lab.guests:
        bridge = UNDERLAY if guest is lab.uplink else INTEGRATION
        lab.switch.vsctl(*lab._addition_to(bridge, guest))
        lab._wait_for(guest)
    lab.switch.add_flows(UNDERLAY, ["actions=NORMAL"])
    lab.switch.appctl("tnl/neigh/set", UNDERLAY, PEER, lab.uplink.mac)
    deliver(lab, port)
    with target.capture() as seen:
        send(lab, [outside(lab, kind, inner[0])])
        wait_offloaded(lab)
        send(lab, [outside(lab, kind, frame) for frame in inner[1:]])
        seen.settle()
    assert [frame for frame in seen.frames if frame in set(inner)] == inner
    wait_counts(lab, INTEGRATION, f"in_port={port}", sizes_of(inner))


@pytest.mark.dr_only
def test_a_device_that_goes_takes_no_counts_with_it(tunnelled: Tunnelled) -> None:
    """The uplink is its last port; as long as it lets packets in, each is counted outside of the tunnel and inside."""
    lab, kind = tunnelled, KINDS["vxlan"]
    port = add_tunnel(lab, kind)
    deliver(lab, port)
    lab.switch.add_flows(INTEGRATION, [f"in_port={port},actions=drop"])
    for guest in lab.guests[:2]:
        lab.switch.vsctl("del-port", guest.port)
    frame = inner_frames(lab.guests[0], [100])[0]
    warm_up(lab, kind, frame)
    with Steady(lab, outside(lab, kind, frame)):
        time.sleep(1)
        lab.switch.vsctl("del-port", lab.uplink.port)
    # A megaflow that stayed would have lost what the device had counted of it.
    assert not any("tunnel(" in flow.match for flow in stats.megaflows(lab.switch))
    assert "vport" not in lab.switch.appctl("dr/ports")

    def counts() -> tuple[int, int]:
        return (stats.openflow_counts(lab.switch, UNDERLAY, "ip")[0],
                stats.openflow_counts(lab.switch, INTEGRATION, f"in_port={port}")[0])

    wait_until(lambda: len(set(counts())) == 1, 5, f"as many inside as outside: {counts()}")
    assert counts()[0] > 1000
