"""sFlow and IPFIX of packets that the NIC forwards, as a collector that is not ours reads them: tshark's dissectors."""

from __future__ import annotations

import errno
import json
import math
import re
import socket
import struct
from pathlib import Path

import pytest
from copies import copies, numbers, samplers, wait_done
from helpers import add_sflow, assert_alive, figure, is_offloaded, stream, wait_offloaded
from lab.command import wait_until
from lab.lab import BRIDGE, Guest, Lab
from lab.nic_capture import Tcpdump, fields, frames
from lab.workspace import Workspace
from test_tunnel_ports import (HERE, INTEGRATION, KINDS, PEER, add_tunnel, deliver, inner_frames, outside, send,
                               warm_up)
from test_tunnels import Tunnelled, make_tunnelled

LENGTH, RATE, SIZE = 12000, 4000, 300    # of the stream
ONE_OF = 10
DEVIATIONS = 4
SAMPLER = "mlx5dv_dr_action_create_flow_sampler"


def assert_rate(samples: int, of: int, one_of: int) -> None:
    """As many as chance allows."""
    expected, deviation = of / one_of, math.sqrt(of * (1 - 1 / one_of) / one_of)
    figure(f"{samples} samples of {of} packets, one of {one_of}: {(samples - expected) / deviation:+.1f} deviations")
    assert expected >= 1000, "too few to tell"
    assert abs(samples - expected) <= DEVIATIONS * deviation


class Collector:
    """What the switch sends to an address of its own. A socket is there, lest the kernel refuse the datagrams."""

    def __init__(self, lab: Lab, port: int, file: str) -> None:
        with lab.namespace.entered():
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", port))
        self.capture = Tcpdump(lab.namespace, "lo", lab.workspace.folder / file, "udp", "dst", "port", str(port))

    def stop(self) -> Path:
        assert self.capture.stop() == 0, "tcpdump lost something"
        self.socket.close()
        return self.capture.file


def send_offloaded(lab: Lab, source: Guest, target: Guest) -> None:
    """A stream whose packets are all in the NIC, but for the first ones."""
    with target.capture() as forwarded, stream(source, target, rate=RATE, size=SIZE, limit=LENGTH) as sender:
        wait_offloaded(lab, source)
        assert sender.join() == LENGTH
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(LENGTH)), "none is lost, none comes twice"
    if lab.kind == "dr":
        done = wait_done(lab)
        assert done.lost == 0
        assert done.copies >= LENGTH / ONE_OF / 2, "samples come from the NIC"
        assert [(row["one_of"], row["copies"]) for row in samplers(lab)] == [(ONE_OF, done.done)]


def ifindex(lab: Lab, port: str) -> object:
    wait_until(lambda: (lab.switch.interface(port, "ifindex") or 0) != 0, 10, "OVS shows an ifindex")
    return lab.switch.interface(port, "ifindex")


def test_sflow_of_offloaded_packets(lab: Lab) -> None:
    first, second = lab.guests[:2]
    collector = Collector(lab, 6343, "sflow.pcap")
    add_sflow(lab, BRIDGE, ONE_OF)
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2"])
    send_offloaded(lab, first, second)
    samples = [tuple(int(value, 0) for value in sample) for datagram in
               fields(collector.stop(), "sflow.flow_sample.sampling_rate", "sflow.flow_sample.input_interface",
                      "sflow.flow_sample.output_interface", "sflow_245.header.frame_length",
                      "sflow_245.header.sampled_header_length")
               for sample in zip(*(column.split(",") for column in datagram))]
    # Lengths of sFlow count the checksum of Ethernet.
    wanted = (ONE_OF, ifindex(lab, first.port), ifindex(lab, second.port), SIZE + 4, 128)
    from_first = [sample for sample in samples if sample[1] == wanted[1]]   # and not the second's complaints
    assert set(from_first) == {wanted}
    assert_rate(len(from_first), LENGTH, ONE_OF)
    headers = fields(collector.capture.file, "eth.src", "eth.dst", "ip.src", "ip.dst", "udp.dstport")
    for column, sampled in zip(zip(*headers), (first.mac, second.mac, first.address, second.address, "7001")):
        # The first of each datagram is the datagram's own.
        values = [value for text in column for value in text.split(",")[1:]]
        assert values.count(sampled) >= len(from_first)
    assert_alive(lab)


@pytest.mark.dr_only
def test_a_sampler_that_the_device_did_not_make_is_tried_again(lab: Lab) -> None:
    """Until then software samples, and forwards."""
    first, second = lab.guests[:2]
    collector = Collector(lab, 6343, "again.pcap")
    add_sflow(lab, BRIDGE, ONE_OF)
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2"])
    lab.nic.drnic("fault", SAMPLER, str(errno.ENOMEM), "1")
    with second.capture() as forwarded, stream(first, second, rate=500, size=SIZE) as sender:
        wait_until(lambda: is_offloaded(lab, first), 5, "the megaflow is in the NIC")
        wait_until(lambda: copies(lab).done >= 10, 10, "samples come from the NIC")
        sent = sender.stop()
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(sent))
    failed = [row["total"] for row in json.loads(lab.switch.appctl("dr/explain", "--json"))["reasons"]
              if row["reason"] == "device error" and SAMPLER in row["detail"]]
    assert failed == [1]
    assert len(fields(collector.stop(), "sflow.flow_sample.sampling_rate")) > 0


@pytest.mark.parametrize("points", [1, 2])
def test_ipfix_of_offloaded_packets(lab: Lab, points: int) -> None:
    """Where packets come in, or there and where they go out: two samples of one packet."""
    first, second = lab.guests[:2]
    # OVS 3.1 turns these two settings around.
    only_in = ["other_config:enable-output-sampling=true"] if points == 1 else []
    collector = Collector(lab, 4739, "ipfix.pcap")
    lab.switch.vsctl("--", "--id=@i", "create", "ipfix", 'targets="127.0.0.1:4739"', f"sampling={ONE_OF}",
                     "cache_max_flows=0", *only_in, "--", "set", "bridge", BRIDGE, "ipfix=@i")
    lab.switch.add_flows(BRIDGE, ["in_port=1,actions=output:2"])
    send_offloaded(lab, first, second)
    records = [record for datagram in
               fields(collector.stop(), "cflow.srcaddr", "cflow.dstaddr", "cflow.srcport", "cflow.dstport",
                      "cflow.packets", "cflow.octets", select="cflow.srcport")
               for record in zip(*(column.split(",") for column in datagram))]
    # A record stands for as many packets as were not sampled; lengths of IPFIX are the IP packet's.
    packet = (first.address, second.address, "7000", "7001", str(ONE_OF), str(ONE_OF * (SIZE - 14)))
    assert set(records) == {packet}
    assert_rate(len(records), points * LENGTH, ONE_OF)
    assert_alive(lab)


@pytest.fixture
def tunnelled(workspace: Workspace, lab_kind: str) -> Tunnelled:
    return make_tunnelled(workspace, lab_kind)


@pytest.mark.parametrize("name", ["vxlan", "gre"])
def test_sflow_of_what_comes_out_of_a_tunnel(tunnelled: Tunnelled, name: str) -> None:
    """A sample has the packet without its tunnel's headers, and beside it what they said."""
    lab, kind = tunnelled, KINDS[name]
    target = lab.guests[0]
    port = add_tunnel(lab, kind)
    deliver(lab, port)
    add_sflow(lab, INTEGRATION, 1)
    collector = Collector(lab, 6343, "tunnel.pcap")
    first, inner = inner_frames(target, [90])[0], inner_frames(target, [100] * 50)
    warm_up(lab, kind, first)
    before = wait_done(lab)
    with target.capture() as delivered:
        send(lab, [outside(lab, kind, frame) for frame in inner])
        delivered.settle()
    done = wait_done(lab) - before
    assert sorted(delivered.frames) == sorted(inner)
    if lab.kind == "dr":
        assert done.done == len(inner)
    # Protocol, source and destination of the outer headers.
    outer = struct.pack("!I4s4s", 17 if kind.udp_port else 47, socket.inet_aton(PEER), socket.inet_aton(HERE))
    samples = [first, *inner]

    def seen() -> bytes:
        return b"".join(frames(collector.capture.file))

    wait_until(lambda: seen().count(outer) == len(samples), 10, "each packet has been sampled")
    collector.stop()
    assert all(seen().count(frame[:60]) == 1 for frame in samples)
    assert seen().count(outer) == len(samples)
    # Behind them the UDP ports: the tunnel's own is the same for all, the sender's is known to OVS only, which tells of
    # the first packet. OVS 3.1 swaps their bytes.
    to_ports = re.findall(re.escape(outer) + rb".{4}(.{4})", seen(), re.DOTALL)
    assert set(to_ports) == {struct.pack("!I", socket.htons(kind.udp_port or 0))}
