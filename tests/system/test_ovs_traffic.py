"""What tests/system/ovs-system-traffic says before it runs anything, and its server for OVS's TFTP tests."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from pathlib import Path

import pytest

from lab.command import CommandError, run

pytestmark = pytest.mark.dr_only
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "ovs_traffic" / "modules"), str(HERE / "ovs_traffic")]

from report import Accounts  # noqa: E402


@pytest.mark.parametrize("tests, said", [
    ("1,171,300", "no test has the number 171, 300: there are 1 to 170, and --list names them"),
    ("7-5", "'7-5' is neither a number nor a range like 5-7"),
    ("", "'' is neither a number nor a range like 5-7"),
    ("5,x", "'x' is neither a number nor a range like 5-7")])
def test_numbers_that_no_test_has_are_an_error(tests: str, said: str) -> None:
    with pytest.raises(CommandError) as error:
        run([str(HERE / "ovs-system-traffic"), "--tests", tests], timeout=1200)
    assert said in error.value.output and error.value.code != 0


@pytest.mark.parametrize("test, reason, detail, allowed", [
    (1, "unsupported match", "arp_op", True),
    (52, "unsupported action", "ct", True),
    (1, "unsupported action", "ct", False),
    (9, "unsupported action", "set(ipv6) of addresses", True),
    (9, "unsupported action", "set(ipv4) of addresses", False),
    (30, "unsupported action", "clone", False),
    (11, "device limit", "tnl_pop of packets from another vport than the uplink", False),
    (54, "recirculation", "recirc_id", True),
    (43, "recirculation", "recirc_id", False),
    (54, "device error", "mlx5dv_dr_rule_create", False)])
def test_each_test_has_its_own_reasons_for_software(test: int, reason: str, detail: str, allowed: bool) -> None:
    told = [{"reason": "offloaded", "detail": "", "total": 1}, {"reason": reason, "detail": detail, "total": 3}]
    accounts = Accounts({test: {"reasons": told}})
    assert accounts.unexpected([test]) == ([] if allowed else [f"test {test}: 3 megaflows: {reason}: {detail}"])


def test_a_test_with_nothing_in_the_nic_is_told() -> None:
    rejected = {"reasons": [{"reason": "unsupported match", "detail": "arp_op", "total": 1}]}
    assert Accounts({1: rejected}).unexpected([1, 2, 164]) == [f"test {test}: no megaflow was in the NIC"
                                                              for test in (1, 2)]


@pytest.mark.parametrize("size", [0, 511, 512, 1300])
def test_the_tftp_server_sends_files_whole(tmp_path: Path, size: int) -> None:
    import tftpy   # ours, whatever is installed
    assert Path(tftpy.__file__).is_relative_to(HERE)
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = tftpy.TftpServer(tftproot=str(tmp_path))
    threading.Thread(target=server.listen, args=("127.0.0.1", port), daemon=True).start()
    assert fetch(port, b"file") == content
    with pytest.raises(FileNotFoundError):
        fetch(port, b"../" + tmp_path.name.encode() + b"x")


def fetch(port: int, name: bytes) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        received = b""
        for block in range(1, 100):
            packet, server = (request(client, port, name) if block == 1 else client.recvfrom(1024))
            kind, number = struct.unpack_from("!HH", packet)
            if kind == 5:
                raise FileNotFoundError(packet[4:])
            assert (kind, number) == (3, block)
            received += packet[4:]
            client.sendto(struct.pack("!HH", 4, block), server)
            if len(packet) < 516:
                return received
    raise AssertionError("no end")


def request(client: socket.socket, port: int, name: bytes) -> tuple[bytes, tuple[str, int]]:
    """Until the server, whose thread may not have its socket yet, answers."""
    client.settimeout(0.2)
    for _ in range(100):
        client.sendto(struct.pack("!H", 1) + name + b"\0octet\0", ("127.0.0.1", port))
        try:
            return client.recvfrom(1024)
        except (TimeoutError, ConnectionRefusedError):
            continue
        finally:
            client.settimeout(10)
    raise AssertionError("no answer")
