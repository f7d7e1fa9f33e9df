"""Stands between a vhost-user guest and its switch, where QEMU's device stands: offers the guest what QEMU would.

User Mode Linux connects the guest's driver straight to the switch. DPDK's library offers what it leaves to QEMU to do:
a queue of commands, on whose answers the driver would wait for ever. And when the driver takes a feature back (MTU),
UML 6.1 sends the features again, without vhost-user's own bit. The relay takes these from the offer, with all that
needs the queue, and packed rings, which QEMU offers on request only. All else passes as it is, descriptors too; the
relay sees no packet: rings are shared memory, and kicks and calls are descriptors that both sides have.

Both sides connect to sockets of the relay's.
Source: QEMU, docs/interop/vhost-user.rst; virtio 1.2, 5.1.3.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from pathlib import Path

from .workspace import Workspace

MTU, CONTROL_QUEUE, CONTROL_RX, CONTROL_VLAN, CONTROL_RX_MORE, ANNOUNCE, MULTIQUEUE, CONTROL_MAC, PACKED = (
    3, 17, 18, 19, 20, 21, 22, 23, 34)
WITHHELD = sum(1 << bit for bit in (MTU, CONTROL_QUEUE, CONTROL_RX, CONTROL_VLAN, CONTROL_RX_MORE, ANNOUNCE, MULTIQUEUE,
                                    CONTROL_MAC, PACKED))
PATIENCE = 5   # seconds for an end
_GET_FEATURES = 1
_HEADER = struct.Struct("=III")   # request, flags, bytes that follow
_MOST_DESCRIPTORS = 8


class VhostRelay:
    """For one guest, which comes once."""

    def __init__(self, workspace: Workspace, name: str) -> None:
        self.guest = workspace.folder / f"{name}.guest"
        self.switch = workspace.folder / f"{name}.vhost"
        self._listening = [_listen(self.guest), _listen(self.switch)]
        self._end, self._told = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        workspace.defer(self.stop)

    def stop(self) -> None:
        self._end.close()
        self._thread.join(PATIENCE)   # it may wait for the rest of a message

    def _run(self) -> None:
        connections: list[socket.socket] = []
        try:
            for listening in self._listening:
                if self._ended_before(listening):
                    return
                connections.append(listening.accept()[0])
            guest, switch = connections
            while not self._ended_before(*connections):
                ready, _, _ = select.select(connections, [], [], 0)
                for source in ready:
                    if not _pass_on(source, switch if source is guest else guest, from_switch=source is switch):
                        return
        except OSError:   # one has gone: the other learns of it below
            pass
        finally:
            for connection in [*connections, *self._listening, self._told]:
                connection.close()

    def _ended_before(self, *sockets: socket.socket) -> bool:
        ready, _, _ = select.select([*sockets, self._told], [], [])
        return self._told in ready


def _listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    return listening


def _receive(source: socket.socket, size: int, descriptors: list[int]) -> bytes:
    received = b""
    while len(received) < size:
        part, more, _, _ = socket.recv_fds(source, size - len(received), _MOST_DESCRIPTORS)
        descriptors += more
        if not part:
            raise ConnectionResetError
        received += part
    return received


def _pass_on(source: socket.socket, target: socket.socket, *, from_switch: bool) -> bool:
    """A message. False: `source` has gone."""
    descriptors: list[int] = []
    try:
        header = _receive(source, _HEADER.size, descriptors)
        request, _, size = _HEADER.unpack(header)
        body = _receive(source, size, descriptors)
        if from_switch and request == _GET_FEATURES:
            body = struct.pack("=Q", struct.unpack("=Q", body)[0] & ~WITHHELD)
        socket.send_fds(target, [header + body], descriptors)
        return True
    except ConnectionResetError:
        return False
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


__all__ = ["VhostRelay"]
