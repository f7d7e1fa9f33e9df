"""Interfaces of type=drmirror: what an OVS Mirror or a rule sends to one is in the collector's file, each frame once,
and the traffic goes its way whatever becomes of the collector.

The collector is drcollect in a namespace behind the uplink's wire, on a soft NIC of its own; its handshake has a veth
pair of the kernel's. Oracles: the numbers of the frames as tshark reads them out of the files, `drcollect verify`, and
captures behind the ports that forward.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import time

import pytest
from copies import numbers
from helpers import assert_alive, figure, is_offloaded, stream, wait_offloaded
from lab.collector import PORT
from lab.command import run, wait_until
from lab.lab import BRIDGE
from lab.mirror_lab import MirrorLab
from lab.softnic import UPLINK
from lab.traffic import send_frames, udp_frame
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

LENGTH, RATE, SIZE = 1000, 800, 200     # of a stream


@pytest.fixture
def mirrored(workspace: Workspace) -> MirrorLab:
    """The uplink is no port of the bridge; a collector listens, and no mirror is there yet."""
    made = MirrorLab(workspace)
    made.collector.start()
    return made


def send(mirrored: MirrorLab, length: int = LENGTH, rate: float = RATE) -> int:
    """From the first VM to the second, and all arrive there. Returns how many were forwarded by the NIC."""
    first, second = mirrored.first, mirrored.second
    with second.capture() as forwarded, stream(first, second, rate=rate, size=SIZE, limit=length) as sender:
        wait_offloaded(mirrored.lab, first)
        assert sender.join() == length
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(length))
    assert is_offloaded(mirrored.lab, first)
    return length


@pytest.mark.parametrize("uplink_in_bridge", [False, True], ids=["uplink outside", "uplink in the bridge"])
def test_each_frame_is_kept_once(workspace: Workspace, uplink_in_bridge: bool) -> None:
    """The first of a flow come by software, the others by the NIC; of the mirror's own packets there is none."""
    mirrored = MirrorLab(workspace, uplink_in_bridge)
    mirrored.collector.start()
    mirrored.add_port()
    mirrored.mirror_all()
    mirrored.wait_connected()
    send(mirrored, 10000, 2500)
    said = mirrored.wait_delivered(10000)
    kept = mirrored.kept()
    assert mirrored.numbers_of("vm1") == list(range(10000)), said
    assert {one.interface for one in kept if one.number is not None} == {"vm1"}
    assert not [one for one in kept if one.port == 4791], "the mirror's own"
    assert said["dropped"] == said["damaged"] == 0 and said["software"]["frames"] > 0
    assert mirrored.by_device("taken") > 9000, said
    assert "sound" in mirrored.collector.verify()
    statistics = mirrored.lab.switch.interface("stor0", "statistics")
    figure(f"10000 frames, {said['software']['frames']} by software, {mirrored.by_device('taken')} by the NIC: each "
           f"once in the file; {statistics}")
    assert_alive(mirrored.lab)


def test_frames_of_software_alone(mirrored: MirrorLab) -> None:
    """A packet-out to the mirror has come in by no port; and one with a port of its own."""
    mirrored.add_port()
    mirrored.wait_connected()
    ofport = mirrored.lab.switch.interface("stor0", "ofport")
    frame = udp_frame(mirrored.first.mac, mirrored.second.mac, "10.99.0.1", "10.99.0.2", b"x" * 60)
    for in_port in ("controller", "2"):
        mirrored.lab.switch.ofctl("packet-out", BRIDGE,
                                  f"in_port={in_port} packet={frame.hex()} actions=output:{ofport}")
    said = mirrored.wait_delivered(2)
    assert sorted((one.interface, one.length) for one in mirrored.kept()) == [("other", len(frame)),
                                                                              ("vm2", len(frame))]
    assert said["frames"] == said["software"]["frames"] == 2


def test_an_output_of_a_rule(mirrored: MirrorLab) -> None:
    mirrored.add_port()
    mirrored.wait_connected()
    mirrored.forward(f"output:{mirrored.lab.switch.interface('stor0', 'ofport')}")
    send(mirrored)
    mirrored.wait_delivered(LENGTH)
    assert mirrored.numbers_of("vm1") == list(range(LENGTH))


def test_a_filter_keeps_services_only(mirrored: MirrorLab) -> None:
    """In the NIC and in software; changed while traffic goes on, the session stays."""
    mirrored.add_port(filter="udp:7001")
    mirrored.mirror_all()
    mirrored.wait_connected()
    other = udp_frame(mirrored.first.mac, mirrored.second.mac, "10.99.0.1", "10.99.0.2", b"y" * 60, target_port=9)
    send_frames(mirrored.first.namespace, mirrored.first.device, [other] * 50)
    send(mirrored)
    said = mirrored.wait_delivered(LENGTH)
    assert mirrored.numbers_of("vm1") == list(range(LENGTH))
    assert {one.port for one in mirrored.kept()} == {7001}
    filtered = said["software"]["filtered"] + mirrored.by_device("filtered")
    assert filtered >= 50, said
    session = said["session"]
    mirrored.lab.switch.vsctl("set", "interface", "stor0", "options:filter=iscsi")
    wait_until(lambda: mirrored.said()["options"]["filter"] == "iscsi", 10, "the filter is another one")
    send(mirrored)
    said = mirrored.said()
    assert said["frames"] == LENGTH and said["session"] == session
    figure(f"filter: {LENGTH} frames kept; {said['software']['filtered']} filtered by software, "
           f"{mirrored.by_device('filtered')} by the NIC")


def test_one_packet_of_some(mirrored: MirrorLab) -> None:
    mirrored.add_port(sampling="4")
    mirrored.mirror_all()
    mirrored.wait_connected()
    length = 4000
    send(mirrored, length, 2000)
    time.sleep(1)
    said = mirrored.said()
    # Four standard deviations of 4,000 draws at 1 of 4.
    assert abs(said["frames"] - length / 4) < 4 * (length * 3 / 16) ** 0.5, said
    figure(f"sampling=4: {said['frames']} of {length} frames")


def test_a_collector_that_is_away_harms_no_traffic(mirrored: MirrorLab) -> None:
    """The ring fills; what finds no room is counted, and the file tells it; then all goes on."""
    mirrored.collector.kill()
    mirrored.add_port(segment="4096", ring="4")
    mirrored.mirror_all()
    wait_until(lambda: "refused" in str(mirrored.lab.switch.interface("stor0", "status")), 20, "the status says it")
    assert mirrored.lab.switch.interface("stor0", "link_state") == "up"
    send(mirrored)
    said = mirrored.said()
    given = said["software"]["frames"] + mirrored.by_device("taken")
    assert said["frames"] + said["dropped"] == given >= LENGTH and said["dropped"] > 0, said
    wait_until(lambda: mirrored.lab.switch.interface("stor0", "statistics")["tx_dropped"] == said["dropped"], 15,
               "the port's statistics have the drops")
    mirrored.collector.start()
    mirrored.wait_connected()
    wait_until(lambda: (session := mirrored.collector.sessions()) and
               session[0]["dropped"] >= said["dropped"], 20, "the file tells the drops")
    session, = mirrored.collector.sessions()
    said = mirrored.said()
    assert (session["frames"], session["dropped"]) == (said["frames"], said["dropped"])
    kept = mirrored.numbers_of("vm1")
    assert kept == list(range(len(kept))) and len(mirrored.kept()) == said["frames"]
    assert "sound" in mirrored.collector.verify()
    figure(f"collector away: {said['dropped']} of {LENGTH} frames dropped by the mirror, none by the switch")


def test_a_collector_that_is_killed_and_comes_back(mirrored: MirrorLab) -> None:
    mirrored.add_port()
    mirrored.mirror_all()
    mirrored.wait_connected()
    first, second = mirrored.first, mirrored.second
    with second.capture() as forwarded, stream(first, second, rate=RATE, size=SIZE, limit=4 * LENGTH) as sender:
        time.sleep(1)
        mirrored.collector.kill()
        time.sleep(1)
        mirrored.collector.start()
        assert sender.join() == 4 * LENGTH
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(4 * LENGTH))
    # What the collector counts began anew with it.
    wait_until(lambda: len(mirrored.kept()) == mirrored.said()["frames"], 40, "the files have what was taken", 0.5)
    said = mirrored.said()
    kept = mirrored.numbers_of("vm1")
    assert kept == list(range(4 * LENGTH)) and said["dropped"] == 0 and said["connections"] >= 2, said
    assert "sound" in mirrored.collector.verify()


def test_ports_come_and_go(mirrored: MirrorLab) -> None:
    """The mirror's own port while traffic flows; and a port that the session did not know."""
    mirrored.add_port()
    mirrored.mirror_all()
    mirrored.wait_connected()
    first, second = mirrored.first, mirrored.second
    with second.capture() as forwarded, stream(first, second, rate=RATE, size=SIZE, limit=4 * LENGTH) as sender:
        wait_offloaded(mirrored.lab, first)
        time.sleep(0.5)
        taken = mirrored.said()["frames"]
        mirrored.lab.switch.vsctl("del-port", BRIDGE, "stor0", "--", "clear", "bridge", BRIDGE, "mirrors")
        wait_until(lambda: sum(session["frames"] for session in mirrored.collector.sessions()) >= taken, 20,
                   "what was in the ring is delivered")
        mirrored.add_port()
        mirrored.mirror_all()
        mirrored.wait_connected()
        time.sleep(0.5)
        assert sender.join() == 4 * LENGTH
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(4 * LENGTH))
    assert len(mirrored.collector.sessions()) == 2 or len(mirrored.collector.files()) >= 2
    mirrored.wait_delivered(1)
    kept = mirrored.numbers_of("vm1")
    assert len(kept) == len(set(kept)) and 0 in kept and 4 * LENGTH - 1 in kept
    assert_alive(mirrored.lab)


def test_options_change_while_traffic_flows(mirrored: MirrorLab) -> None:
    """Another session begins, and no frame is lost in between. A wrong option takes the port away until it is right."""
    switch = mirrored.lab.switch
    mirrored.add_port()
    mirrored.mirror_all()
    mirrored.wait_connected()
    session = mirrored.said()["session"]
    first, second = mirrored.first, mirrored.second
    with second.capture() as forwarded, stream(first, second, rate=RATE, size=SIZE, limit=3 * LENGTH) as sender:
        wait_offloaded(mirrored.lab, first)
        time.sleep(0.5)
        switch.vsctl("set", "interface", "stor0", "options:signature=crc32c", "options:app-tag=7")
        wait_until(lambda: mirrored.said()["session"] != session, 10, "there is another session")
        assert sender.join() == 3 * LENGTH
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(3 * LENGTH))
    wait_until(lambda: len(mirrored.kept()) == mirrored.said()["frames"], 30, "the files have what was taken", 0.5)
    assert mirrored.numbers_of("vm1") == list(range(3 * LENGTH)) and mirrored.said()["dropped"] == 0
    sessions = {session["session"]: session for session in mirrored.collector.sessions()}
    assert len(sessions) == 2 and sessions[session]["finished"]
    assert sorted(one["signature"] for one in sessions.values()) == ["crc32c 512", "t10dif-crc 512"]
    switch.vsctl("set", "interface", "stor0", "options:ring=1", check=False)
    wait_until(lambda: "options:ring=1 is not a number of segments" in str(switch.interface("stor0", "error")), 10,
               "the error is shown")
    switch.vsctl("remove", "interface", "stor0", "options", "ring")
    wait_until(lambda: not switch.interface("stor0", "error"), 10, "no error is left")
    mirrored.wait_connected()


@pytest.mark.parametrize("end", ["exit", "exit --cleanup", "SIGTERM"])
def test_a_daemon_that_ends_delivers_what_it_has(mirrored: MirrorLab, end: str) -> None:
    mirrored.add_port(segment="1048576")
    mirrored.mirror_all()
    mirrored.wait_connected()
    send(mirrored)
    if end == "SIGTERM":
        os.kill(mirrored.lab.switch.daemon.pid, signal.SIGTERM)
    else:
        mirrored.lab.switch.appctl(*end.split())
    wait_until(lambda: mirrored.collector.sessions()[0]["finished"], 15, "the session has ended well")
    assert mirrored.numbers_of("vm1") == list(range(LENGTH))


@pytest.mark.parametrize("option, wrong, said", [
    ("signature", "crc16", "is not one of t10dif-crc"),
    ("collector", "192.0.2.7", "is not HOST:PORT"),
    ("device", "mlx5_9", "mlx5_0"),
    ("frobnicate", "1", "unknown option frobnicate"),
    ("plain", "yes", "is not true or false"),
    ("standby", "192.0.2.8", "is not HOST:PORT"),
])
def test_wrong_options_are_shown(mirrored: MirrorLab, option: str, wrong: str, said: str) -> None:
    given = {"collector": mirrored.collector.address, "plain": "true", option: wrong}
    mirrored.lab.switch.vsctl("add-port", BRIDGE, "stor0", "--", "set", "interface", "stor0", "type=drmirror",
                              *(f"options:{key}=\"{value}\"" for key, value in given.items()), check=False)
    wait_until(lambda: said in str(mirrored.lab.switch.interface("stor0", "error")), 10, "the error is shown")
    assert said in mirrored.lab.switch.vsctl("show")
    assert_alive(mirrored.lab)


def test_nine_mirrors_are_one_too_many(mirrored: MirrorLab) -> None:
    for number in range(8):
        mirrored.add_port(f"stor{number}")
    mirrored.lab.switch.vsctl("add-port", BRIDGE, "stor8", "--", "set", "interface", "stor8", "type=drmirror",
                              f"options:collector=\"{mirrored.collector.address}\"", "options:plain=true", check=False)
    wait_until(lambda: "there are 8 interfaces of type=drmirror" in str(
        mirrored.lab.switch.interface("stor8", "error")), 10, "the error is shown")


def warned(mirrored: MirrorLab) -> int:
    """Frames that the log says are lost."""
    said = mirrored.lab.switch.messages()
    return sum(int(found) for found in re.findall(r"stor0: (\d+) mirrored frames are lost", said))


def test_what_a_session_could_not_deliver_is_counted(mirrored: MirrorLab) -> None:
    """The collector is away, and another session begins: the ring's frames are lost, and the next file tells it. So
    does the log when the port goes."""
    switch = mirrored.lab.switch
    mirrored.collector.kill()
    mirrored.add_port(segment="4096", ring="4")
    mirrored.mirror_all()
    send(mirrored)
    before = mirrored.said()
    assert before["frames"] > 0
    switch.vsctl("set", "interface", "stor0", "options:snaplen=1000")
    wait_until(lambda: mirrored.said()["undelivered"] == before["frames"], 20, "the frames are counted as lost")
    lost = before["dropped"] + before["frames"]
    wait_until(lambda: switch.interface("stor0", "statistics")["tx_dropped"] == lost, 15,
               "and so they are in the port's statistics")
    wait_until(lambda: warned(mirrored) == before["frames"], 10, "the log says it")
    mirrored.collector.start()
    mirrored.wait_connected()
    wait_until(lambda: (session := mirrored.collector.sessions()) and
               session[0]["dropped"] >= before["frames"] + before["dropped"], 20, "the file tells the drops")
    mirrored.collector.kill()
    send(mirrored)
    more = mirrored.said()["frames"] - before["frames"]
    assert more > 0
    switch.vsctl("del-port", BRIDGE, "stor0", "--", "clear", "bridge", BRIDGE, "mirrors")
    wait_until(lambda: warned(mirrored) > before["frames"], 20, "the log says what the port that went has lost")
    of_port = warned(mirrored) - before["frames"]
    figure(f"{before['frames']} frames of a session and {of_port} of a port were lost and told")


def test_statistics_go_on_when_the_last_port_of_a_device_goes(mirrored: MirrorLab) -> None:
    switch = mirrored.lab.switch
    mirrored.add_port(device="mlx5_0")
    mirrored.mirror_all()
    mirrored.wait_connected()
    send(mirrored)
    copies = mirrored.by_device("copies")
    assert copies > 0
    wait_until(lambda: switch.interface("stor0", "statistics").get("mirror_copies") == copies, 15, "copies are counted")
    for name in ("vm1", "vm2"):
        switch.vsctl("del-port", BRIDGE, name)
    wait_until(lambda: not mirrored.said()["devices"], 20, "the device has gone")
    time.sleep(6)   # longer than OVS takes to ask for statistics
    assert switch.interface("stor0", "statistics")["mirror_copies"] == copies
    figure(f"{copies} copies are counted behind the device's end")


def test_a_refused_address_is_asked_for_again(mirrored: MirrorLab) -> None:
    """The uplink becomes a port of the bridge, and the device refuses the rules that let the mirror's RoCE in."""
    switch, nic = mirrored.lab.switch, mirrored.lab.nic
    mirrored.add_port()
    mirrored.wait_connected()
    # Nothing else makes such an action while a port is opened.
    nic.drnic("fault", "mlx5dv_dr_action_create_dest_array", str(errno.ENOMEM), "1")
    switch.vsctl("add-port", BRIDGE, "uplink-p", "--", "set", "interface", "uplink-p", "type=dr",
                 "options:device=mlx5_0", f"options:vport={UPLINK}")
    wait_until(lambda: not json.loads(nic.drnic("faults", "--json"))["armed"], 20, "the device has refused")
    wait_until(lambda: not mirrored.said()["not_let_in"], 20, "it is asked again")
    mirrored.collector.kill()
    mirrored.collector.start()
    connections = mirrored.said()["connections"]
    mirrored.mirror_all()
    send(mirrored)
    mirrored.wait_connected()
    wait_until(lambda: mirrored.said()["connections"] > connections and mirrored.said()["connected"], 60,
               "it is connected anew")
    mirrored.wait_delivered(LENGTH)


def test_its_own_handshake_is_not_mirrored(workspace: Workspace) -> None:
    """The bridge carries the handshake, and everything is mirrored: nothing comes of nothing."""
    mirrored = MirrorLab(workspace)
    switch, namespace = mirrored.lab.switch, mirrored.lab.namespace
    mirrored.collector.start()
    namespace.run(["ip", "address", "flush", "dev", "ctl1"])
    namespace.run(["ip", "link", "set", "ctl1", "up"])
    switch.vsctl("add-port", BRIDGE, "ctl1")
    namespace.run(["ip", "address", "add", "10.77.0.1/24", "dev", BRIDGE])
    namespace.run(["ip", "link", "set", BRIDGE, "up"])
    ofport = switch.interface("ctl1", "ofport")
    switch.add_flows(BRIDGE, [f"in_port=LOCAL,actions=output:{ofport}", f"in_port={ofport},actions=LOCAL"])
    mirrored.add_port()
    mirrored.mirror_all()
    mirrored.wait_connected()
    send(mirrored)
    mirrored.wait_delivered(LENGTH)
    assert mirrored.said()["own"] > 0
    time.sleep(2)
    before = mirrored.said()
    time.sleep(5)
    after = mirrored.said()
    more = after["sealed"] - before["sealed"]
    assert more < 10, "ARP at most"
    assert not any(run(["tshark", "-r", str(file), "-Y", f"tcp.port == {PORT}"]) for file in mirrored.collector.files())
    figure(f"{after['own']} frames of the handshake were left out; {more} segments in five quiet seconds")
