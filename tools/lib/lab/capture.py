"""An oracle beside each port: a raw socket in the guest's namespace that keeps every frame its device received."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter

from .namespace import Namespace

_SOL_PACKET = 263
_PACKET_AUXDATA = 8
_PACKET_IGNORE_OUTGOING = 23
_ETH_P_ALL = 0x0003
_TP_STATUS_VLAN_VALID = 1 << 4
_TP_STATUS_VLAN_TPID_VALID = 1 << 6
_SO_RCVBUFFORCE = 33


class Capture:
    """Frames as they were on the wire, VLAN tag included (the kernel hands the outer tag over beside the frame)."""

    def __init__(self, namespace: Namespace, device: str) -> None:
        self.frames: list[bytes] = []
        self.times: list[float] = []   # time.monotonic() of each
        self._end = threading.Event()
        with namespace.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        self._socket.bind((device, _ETH_P_ALL))
        self._socket.settimeout(0.1)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> "Capture":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        while not self._end.is_set():
            try:
                data, ancillary, _, _ = self._socket.recvmsg(65536, 256)
            except (TimeoutError, socket.timeout):
                continue
            except OSError:  # the device went down
                time.sleep(0.01)
                continue
            self.times.append(time.monotonic())
            self.frames.append(_with_tag(data, ancillary))

    def settle(self, quiet: float = 0.3, limit: float = 10) -> None:
        """Waits until no frame came for `quiet` seconds."""
        start = last_change = time.monotonic()
        length = len(self.frames)
        while time.monotonic() - last_change < quiet and time.monotonic() - start < limit:
            time.sleep(0.02)
            if len(self.frames) != length:
                length, last_change = len(self.frames), time.monotonic()

    def count(self) -> Counter[bytes]:
        return Counter(self.frames)

    def matching(self, part: bytes) -> list[bytes]:
        return [frame for frame in list(self.frames) if part in frame]


def _with_tag(data: bytes, ancillary: list[tuple[int, int, bytes]]) -> bytes:
    for level, kind, value in ancillary:
        if level == _SOL_PACKET and kind == _PACKET_AUXDATA:
            status, _, _, _, _, tci, tpid = struct.unpack("=IIIHHHH", value[:20])
            if status & _TP_STATUS_VLAN_VALID:
                tpid = tpid if status & _TP_STATUS_VLAN_TPID_VALID else 0x8100
                return data[:12] + struct.pack("!HH", tpid, tci) + data[12:]
    return data
