"""What the NIC cannot do is done to copies, while the NIC forwards: outputs to taps, truncated outputs, packets for a
controller."""

from __future__ import annotations

import json
import re
import time

import pytest
from copies import copies, numbers, wait_done
from helpers import assert_alive, figure, is_offloaded, stream, wait_offloaded
from lab import stats
from lab.capture import Capture
from lab.command import Background, wait_until
from lab.lab import BRIDGE, Lab
from lab.traffic import send_frames, udp_frame
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

LENGTH, RATE, SIZE = 1000, 800, 200     # of a stream


def local(lab: Lab) -> Capture:
    """What the bridge's own port gets, a tap of the host's."""
    lab.namespace.run(["ip", "link", "set", BRIDGE, "up"])
    return Capture(lab.namespace, BRIDGE)


def received_in_slow_path(lab: Lab, port: str) -> int:
    return next(row["slow_path_rx"] for row in json.loads(lab.switch.appctl("dr/ports", "-j"))["ports"]
                if row["name"] == port)


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


BRANCHES = {
    # OpenFlow actions, and how long the frames are that come to LOCAL.
    "output to LOCAL": ("output:2,LOCAL", SIZE),
    "output to LOCAL first": ("LOCAL,output:2", SIZE),
    "in a changed packet": ("mod_vlan_vid:7,LOCAL,strip_vlan,output:2", SIZE + 4),
    "truncated": ("output(port=LOCAL,max_len=100),output:2", 100),
    # OVS cuts before it puts the tag in.
    "truncated and tagged": ("output:2,mod_vlan_vid:7,output(port=LOCAL,max_len=100)", 100 + 4),
}


def only_flow(lab: Lab, flow: str) -> None:
    """Nothing is left of the flow before, in the datapath neither."""
    lab.switch.ofctl("del-flows", BRIDGE)
    lab.switch.appctl("revalidator/purge")
    wait_until(lambda: not stats.megaflows(lab.switch), 10, "the datapath is empty")
    lab.switch.add_flows(BRIDGE, [flow])


def test_each_packet_is_forwarded_once_and_copied_once(lab: Lab) -> None:
    for branch, (actions, size) in BRANCHES.items():
        only_flow(lab, f"in_port=1,actions={actions}")
        assert_forwarded_and_copied(lab, branch, size)
    assert_alive(lab)


def assert_forwarded_and_copied(lab: Lab, branch: str, size: int) -> None:
    first, second = lab.guests[:2]
    before = wait_done(lab)
    with second.capture() as forwarded, local(lab) as copied, \
            stream(first, second, rate=RATE, size=SIZE, limit=LENGTH) as sender:
        wait_offloaded(lab, first)
        in_software = received_in_slow_path(lab, first.port)
        assert sender.join() == LENGTH
        in_software = received_in_slow_path(lab, first.port) - in_software
        done = wait_done(lab) - before
        copied.settle()
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(LENGTH))
    assert numbers(copied.frames) == list(range(LENGTH)), done
    assert {len(frame) for frame in forwarded.frames} == {SIZE}
    assert {len(frame) for frame in copied.frames} == {size}
    assert done.lost == done.errors == done.without_work == 0 and done.copies >= LENGTH / 2
    figure(f"{branch}: {LENGTH} frames forwarded, {LENGTH} at LOCAL; {done.copies} copies, {in_software} frames in the "
           f"slow path once it was offloaded")
    assert in_software == 0


class Monitor:
    """A controller that says what it gets."""

    def __init__(self, lab: Lab) -> None:
        self.process: Background = lab.namespace.start(
            ["ovs-ofctl", "monitor", BRIDGE, "65534", "-P", "nxt_packet_in"], lab.workspace.folder / "monitor.log",
            lab.switch.environment)
        lab.workspace.defer(self.process.stop)

    def packets(self) -> list[str]:
        """The first line of each, but for one that is being written."""
        return [line for line in self.process.output().split("\n")[:-1] if "PACKET_IN" in line]


def test_a_controller_gets_a_copy_of_each_packet(lab: Lab) -> None:
    first, second = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["in_port=1,cookie=0x1234,actions=controller,output:2"])
    monitor = Monitor(lab)
    before = udp_frame(first.mac, second.mac, first.address, second.address, b"before")

    def sees_copies() -> bool:
        send_frames(first.namespace, first.device, [before])
        return bool(monitor.packets()) and copies(lab).done > 0

    wait_until(sees_copies, 10, "the controller is there, and the megaflow in the NIC", interval=0.2)
    start = wait_done(lab)
    with second.capture() as forwarded, stream(first, second, rate=RATE, size=SIZE, limit=LENGTH) as sender:
        assert sender.join() == LENGTH
        done = wait_done(lab) - start
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(LENGTH))
    assert done.lost == 0 and done.done == LENGTH

    def of_stream() -> list[str]:
        return [line for line in monitor.packets() if f"total_len={SIZE} " in line]

    wait_until(lambda: len(of_stream()) == LENGTH, 10, f"{LENGTH} packets for the controller")
    assert all("cookie=0x1234 " in line and "in_port=1 " in line for line in of_stream())


def test_a_meter_of_copies_drops_no_traffic(lab: Lab) -> None:
    first, second = lab.guests[:2]
    lab.switch.ofctl("-O", "OpenFlow13", "add-meter", BRIDGE,
                     "meter=5,pktps,burst,bands=type=drop,rate=10,burst_size=10")
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=controller(meter_id=5),output:2"])
    monitor = Monitor(lab)
    knock = udp_frame(first.mac, second.mac, first.address, second.address, b"before")

    def sees_copies() -> bool:
        send_frames(first.namespace, first.device, [knock])
        return metered(monitor) > 0

    wait_until(sees_copies, 10, "the controller is there", interval=0.2)
    before, seen_before = wait_done(lab), settled(monitor)
    missed = passed(lab) - seen_before
    with second.capture() as forwarded, stream(first, second, rate=RATE, size=SIZE, limit=LENGTH) as sender:
        wait_offloaded(lab, first)
        assert sender.join() == LENGTH
        taken = wait_done(lab) - before
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(LENGTH))
    seconds = forwarded.times[-1] - forwarded.times[0]
    seen = settled(monitor) - seen_before
    figure(f"{seen} of {LENGTH} packets reached the controller in {seconds:.1f} s, 10 a second; {taken.copies} copies "
           f"came up")
    assert 5 <= seen <= 10 + 10 * (seconds + 1)
    # The meter is the NIC's: what exceeds it does not come up. Each packet is counted once, in the NIC or in software.
    assert 5 <= taken.copies <= seen and taken.done == taken.copies
    assert passed(lab) == missed + seen_before + seen
    wait_until(lambda: meter_counts(lab)[0] == flow_packets(lab), 10, "the meter has met what its flow has")


def metered(monitor: Monitor) -> int:
    """What the controller has got of the flow: of other guests' packets that no flow takes it is told, too."""
    return sum("in_port=1 (via action)" in line for line in monitor.packets())


def settled(monitor: Monitor) -> int:
    """The same, once nothing more comes."""
    length = -1
    while length != (now := metered(monitor)):
        length = now
        time.sleep(0.5)
    return length


def passed(lab: Lab) -> int:
    met, dropped = meter_counts(lab)
    return met - dropped


def meter_counts(lab: Lab) -> tuple[int, int]:
    """Packets that meter 5 has met, and dropped of them."""
    text = lab.switch.ofctl("-O", "OpenFlow13", "meter-stats", BRIDGE, "meter=5")
    return tuple(int(re.search(pattern, text)[1]) for pattern in (r"packet_in_count:(\d+)", r"0: packet_count:(\d+)"))


def flow_packets(lab: Lab) -> int:
    [line] = [each for each in lab.switch.ofctl("dump-flows", BRIDGE).splitlines() if "in_port" in each]
    return int(re.search(r"n_packets=(\d+)", line)[1])


ONLY_SOFTWARE = {
    "controller": "unsupported action: userspace",
    "output(port=2,max_len=100)": "unsupported action: trunc",
    "LOCAL": "output not offloaded: output to a port that is no dr port of this device: br0",
}


def test_what_only_software_does_stays_there(lab: Lab) -> None:
    first, second = lab.guests[:2]

    def said() -> list[str]:
        return [line for flow in stats.megaflows(lab.switch) if f"in_port({first.port})" in flow.match
                for line in lab.switch.appctl("dr/explain", f"ufid:{flow.ufid}", check=False).splitlines()]

    for actions, reason in ONLY_SOFTWARE.items():
        only_flow(lab, f"in_port=1,actions={actions}")
        with local(lab), stream(first, second):
            wait_until(lambda: reason in said(), 5, f"dr/explain says {reason}")
            assert not is_offloaded(lab, first)
    assert copies(lab).copies == 0


def test_copies_go_on_when_their_queue_has_failed(lab: Lab) -> None:
    first, second = lab.guests[:2]
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2,LOCAL"])
    with second.capture() as forwarded, local(lab) as copied, stream(first, second, rate=RATE) as sender:
        wait_offloaded(lab, first)
        wait_until(lambda: copies(lab).done > 50, 10, "copies come")
        # The next frame that any queue receives: nothing but copies come up.
        lab.nic.drnic("fault", "work_request_receive", "EIO", "1")
        wait_until(lambda: copies(lab).restarts == 1, 10, "the queue has been replaced")
        after = copies(lab).done
        wait_until(lambda: copies(lab).done > after + 100, 10, "copies come again")
        sent = sender.stop()
        forwarded.settle()
        copied.settle()
    assert numbers(forwarded.frames) == list(range(sent))
    arrived = numbers(copied.frames)
    assert len(set(arrived)) == len(arrived)
    figure(f"a queue that failed: {sent} frames forwarded, {sent - len(arrived)} copies lost")
    assert_alive(lab)


def test_the_datapath_and_ports_go_while_copies_come(lab: Lab) -> None:
    first, second, third = lab.guests[:3]
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2,LOCAL"])
    with second.capture(), local(lab), stream(first, second, rate=2000):
        wait_offloaded(lab, first)
        wait_until(lambda: copies(lab).done > 100, 10, "copies come")
        lab.switch.vsctl("del-port", BRIDGE, first.port)
        lab.add_port(first)
        wait_offloaded(lab, first)
        before = copies(lab).done
        wait_until(lambda: copies(lab).done > before, 10, "copies come again")
        lab.switch.vsctl("del-br", BRIDGE)
        assert_alive(lab)
        lab.add_bridge(fail_mode="secure")
        lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2,LOCAL"])
        wait_offloaded(lab, first)
        wait_until(lambda: copies(lab).done > 100, 10, "copies come in the new bridge")
        lab.switch.appctl("exit", "--cleanup", timeout=15)
        assert lab.switch.daemon is not None
        assert lab.switch.daemon.wait(15) == 0


def test_copies_of_long_frames(workspace: Workspace) -> None:
    """The queue's buffers grow with the ports' MTU, while copies come."""
    lab = Lab(workspace, mtu=9000)
    lab.wire_all(vms=2, uplink=False)
    lab.fix_neighbours()
    lab.start(offload=True, fail_mode="secure")
    first, second = lab.guests
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2,LOCAL"])
    with stream(first, second, rate=RATE, size=SIZE) as short:
        wait_until(lambda: copies(lab).done > 100, 10, "copies come")
        for interface in (first.port, second.port, BRIDGE):
            lab.switch.vsctl("set", "interface", interface, "mtu_request=9000")
        wait_until(lambda: all(lab.switch.interface(port, "mtu") == 9000 for port in (first.port, second.port)), 10,
                   "the ports' MTU is 9,000")
        sent_short = short.stop()
    with second.capture() as forwarded, local(lab) as copied, \
            stream(first, second, rate=200, size=8000, limit=200) as sender:
        assert sender.join() == 200
        done = wait_done(lab)
        forwarded.settle()
        copied.settle()
    assert numbers(forwarded.frames) == numbers(copied.frames) == list(range(200))
    assert {len(frame) for frame in copied.frames if numbers([frame])} == {8000}
    assert done.lost == done.errors == done.restarts == 0 and done.done >= sent_short / 2 + 200
