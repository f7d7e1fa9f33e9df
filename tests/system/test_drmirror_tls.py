"""The handshake of an interface of type=drmirror through TLS, with Open vSwitch's own SSL configuration (`ovs-vsctl
set-ssl`) and certificates by ovs-pki: who has the right one is served, and who has not hears nothing.

Oracles: the collector's own counters and files; what `ovs-vsctl show`, the status column and dr/mirror say.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from copies import numbers
from helpers import assert_alive, figure, stream
from lab.command import wait_until
from lab.mirror_lab import MirrorLab
from lab.pki import Pki
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

LENGTH, RATE, SIZE = 1000, 800, 200     # of a stream
TO_DO = "ovs-vsctl set-ssl PRIVATE-KEY CERTIFICATE CA-CERT"


@pytest.fixture
def pki(workspace: Workspace) -> Pki:
    return Pki(workspace.folder / "pki")


@pytest.fixture
def mirrored(workspace: Workspace, pki: Pki) -> MirrorLab:
    """A collector with TLS listens; the switch has no SSL configuration yet, and no mirror."""
    made = MirrorLab(workspace, pki=pki)
    made.collector.start()
    return made


def send(mirrored: MirrorLab) -> None:
    """From the first VM to the second, where all arrive."""
    with mirrored.second.capture() as forwarded, \
            stream(mirrored.first, mirrored.second, rate=RATE, size=SIZE, limit=LENGTH) as sender:
        assert sender.join() == LENGTH
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(LENGTH))


def problem(mirrored: MirrorLab) -> str:
    """The same at each place where an operator looks; empty: none."""
    switch = mirrored.lab.switch
    said = mirrored.said()["problem"]
    wait_until(lambda: (switch.interface("stor0", "error") or "") == said
               and switch.interface("stor0", "status").get("problem", "") == said, 10, "all places say the same")
    assert (said in switch.vsctl("show")) if said else ("error:" not in switch.vsctl("show"))
    return said


def wait_error(mirrored: MirrorLab, words: str) -> str:
    """What the status column says of the last attempt."""
    def last() -> str:
        return mirrored.lab.switch.interface("stor0", "status").get("last_error", "")
    wait_until(lambda: words in last(), 20, lambda: f"the status says: {words}; it is {last()}")
    return last()


def assert_heard_nothing(mirrored: MirrorLab) -> None:
    """The mirror never got through: the collector has no session and no file."""
    said = mirrored.said()
    assert not said["connected"] and said["connections"] == said["acknowledged"] == 0, said
    assert mirrored.collector.sessions() == [] and mirrored.collector.files() == []


def test_certificates_of_ovs_pki(mirrored: MirrorLab) -> None:
    mirrored.set_ssl()
    mirrored.add_port()
    mirrored.mirror_all()
    mirrored.wait_connected()
    assert problem(mirrored) == ""
    status = mirrored.lab.switch.interface("stor0", "status")
    assert (status["handshake"], status["connected"]) == ("TLS", "true"), status
    send(mirrored)
    said = mirrored.wait_delivered(LENGTH)
    assert mirrored.numbers_of("vm1") == list(range(LENGTH)) and said["dropped"] == 0
    assert "sound" in mirrored.collector.verify()
    figure(f"TLS with ovs-pki's certificates: {said['frames']} frames, {said['connections']} connection")


def test_without_a_configuration_nothing_is_plain(mirrored: MirrorLab) -> None:
    """The port works, and says what is to be done; the collector hears of nobody. Then set-ssl; and del-ssl, which a
    connection that is up outlives."""
    switch = mirrored.lab.switch
    mirrored.add_port()
    mirrored.mirror_all()
    wait_until(lambda: TO_DO in mirrored.said()["problem"], 10, "dr/mirror says what to do")
    assert TO_DO in problem(mirrored) and "options:plain=true" in problem(mirrored)
    assert TO_DO in switch.appctl("dr/mirror")
    assert switch.interface("stor0", "link_state") == "up"
    send(mirrored)
    assert_heard_nothing(mirrored)
    assert mirrored.collector.stats()["refused"] == 0, "nobody came"
    mirrored.set_ssl()
    mirrored.wait_connected()
    assert problem(mirrored) == ""
    mirrored.wait_delivered(LENGTH)
    assert mirrored.numbers_of("vm1") == list(range(LENGTH)), "what the ring had"

    switch.vsctl("del-ssl")
    with pytest.raises(TimeoutError):
        wait_until(lambda: not mirrored.said()["connected"], 3, "the connection ends")
    mirrored.collector.kill()
    mirrored.collector.start()
    wait_until(lambda: TO_DO in mirrored.said()["problem"], 20, "the next connection finds none")
    assert TO_DO in problem(mirrored) and not mirrored.said()["connected"]
    mirrored.set_ssl()
    mirrored.wait_connected()
    assert problem(mirrored) == ""


def test_a_ca_certificate_is_not_bootstrapped(mirrored: MirrorLab, workspace: Workspace) -> None:
    """set-ssl --bootstrap: whoever answers first would be trusted. Once the file is there it counts."""
    key, certificate, ca = mirrored.pki.switch()
    later = workspace.folder / "later.pem"
    mirrored.set_ssl((key, certificate, str(later)), "--bootstrap")
    mirrored.add_port()
    wait_until(lambda: "does not bootstrap" in mirrored.said()["problem"], 10, "dr/mirror says it")
    assert str(later) in problem(mirrored)
    assert_heard_nothing(mirrored)
    assert not later.exists()
    shutil.copy(ca, later)
    mirrored.wait_connected()
    assert problem(mirrored) == ""


@pytest.mark.parametrize("place", [0, 1, 2], ids=["private key", "certificate", "CA certificate"])
def test_a_file_that_cannot_be_read_is_named(mirrored: MirrorLab, place: int) -> None:
    files = list(mirrored.pki.switch())
    right = tuple(files)
    files[place] = "/nonexistent.pem"
    mirrored.set_ssl(tuple(files))
    mirrored.add_port()
    wait_until(lambda: "/nonexistent.pem" in mirrored.said()["problem"], 10, "dr/mirror says it")
    assert "/nonexistent.pem: " in problem(mirrored)
    assert_heard_nothing(mirrored)
    mirrored.set_ssl(right)
    mirrored.wait_connected()


def test_a_collector_of_another_ca_hears_no_hello(mirrored: MirrorLab, workspace: Workspace) -> None:
    strangers = Pki(workspace.folder / "strangers")
    mirrored.collector.stop()
    key, certificate, _ = strangers.collector()
    # It would take our switch.
    mirrored.collector.tls_files((key, certificate, mirrored.pki.collector()[2])).start()
    mirrored.set_ssl()
    mirrored.add_port()
    said = wait_error(mirrored, "certificate verify failed: the peer's certificate: ")
    assert said.startswith(mirrored.collector.address)
    wait_until(lambda: "unknown ca" in mirrored.collector.stats()["last_refused"], 10, "the collector knows why")
    assert_heard_nothing(mirrored)
    assert problem(mirrored) == "", "nothing is wrong here"
    figure(f"a collector of another CA: {said}")


def test_a_switch_of_another_ca_is_not_served(mirrored: MirrorLab, workspace: Workspace) -> None:
    strangers = Pki(workspace.folder / "strangers")
    key, certificate, _ = strangers.switch()
    mirrored.set_ssl((key, certificate, mirrored.pki.switch()[2]))
    mirrored.add_port()
    said = wait_error(mirrored, "unknown ca")
    wait_until(lambda: "certificate verify failed" in mirrored.collector.stats()["last_refused"], 10, "so it says")
    assert_heard_nothing(mirrored)
    figure(f"a switch of another CA: {said}; the collector: {mirrored.collector.stats()['last_refused']}")


def test_a_plain_switch_and_a_collector_with_tls(mirrored: MirrorLab) -> None:
    """And the option that mends it."""
    mirrored.set_ssl()
    mirrored.add_port(plain="true")
    said = wait_error(mirrored, "closed the connection at a plain Hello; it may ask for TLS")
    wait_until(lambda: "the peer's handshake is plain" in mirrored.collector.stats()["last_refused"], 10, "so it says")
    assert_heard_nothing(mirrored)
    assert mirrored.lab.switch.interface("stor0", "status")["handshake"] == "plain"
    mirrored.lab.switch.vsctl("remove", "interface", "stor0", "options", "plain")
    mirrored.wait_connected()
    figure(f"a plain switch at a collector with TLS: {said}")


def test_a_switch_with_tls_and_a_plain_collector(mirrored: MirrorLab) -> None:
    mirrored.collector.stop()
    mirrored.collector.tls_files(None).start()
    mirrored.set_ssl()
    mirrored.add_port()
    said = wait_error(mirrored, "TLS: the peer's handshake is plain")
    wait_until(lambda: "they are TLS's" in mirrored.collector.stats()["last_refused"], 10, "the collector says it")
    assert_heard_nothing(mirrored)
    figure(f"a switch with TLS at a plain collector: {said}")


def test_certificates_are_renewed_while_it_runs(mirrored: MirrorLab, workspace: Workspace) -> None:
    """Other certificates and CAs in the same files; a connection that is up stays, the next one has them. Then the
    switch's are other files, by set-ssl."""
    switch, pki = mirrored.lab.switch, mirrored.pki
    mirrored.set_ssl()
    mirrored.add_port()
    mirrored.mirror_all()
    mirrored.wait_connected()
    session = mirrored.said()["session"]
    renewed = Pki(workspace.folder / "renewed")
    renewed.switch()
    renewed.collector()
    with mirrored.second.capture() as forwarded, \
            stream(mirrored.first, mirrored.second, rate=RATE, size=SIZE, limit=4 * LENGTH) as sender:
        pki.replace(renewed, "switch")
        with pytest.raises(TimeoutError):
            wait_until(lambda: mirrored.said()["connections"] > 1, 2, "another connection")
        mirrored.collector.kill()
        mirrored.collector.start()
        # The collector's end is the old one, and its CA does not know the switch's new certificate.
        wait_error(mirrored, "certificate verify failed")
        pki.replace(renewed, "collector")
        wait_until(lambda: mirrored.said()["connected"], 20, "with both ends renewed it goes on")
        assert sender.join() == 4 * LENGTH
        forwarded.settle()
    assert numbers(forwarded.frames) == list(range(4 * LENGTH))
    wait_until(lambda: len(mirrored.kept()) == mirrored.said()["frames"], 40, "the files have what was taken", 0.5)
    said = mirrored.said()
    assert mirrored.numbers_of("vm1") == list(range(4 * LENGTH))
    assert said["session"] == session and said["connections"] == 2 and said["dropped"] == 0, said

    moved = [str(shutil.copy(file, workspace.folder / f"moved-{Path(file).name}")) for file in pki.switch()]
    mirrored.set_ssl(tuple(moved))
    for file in pki.switch()[:2]:
        Path(file).unlink()
    mirrored.collector.kill()
    mirrored.collector.start()
    wait_until(lambda: mirrored.said()["connections"] == 3, 20, "connected with the files that were moved")
    assert problem(mirrored) == ""
    assert "sound" in mirrored.collector.verify()
    assert_alive(mirrored.lab)
    assert switch.interface("stor0", "status")["connected"] == "true"
