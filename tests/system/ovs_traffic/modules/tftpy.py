"""What OVS's tests/test-l7.py asks of the Python module tftpy, which Debian 12 does not have: a server of files.

Octet mode, blocks of 512 bytes, no options; each transfer has a socket and a thread of its own. Only for these tests.
Source: RFC 1350.
"""

from __future__ import annotations

import socket
import struct
import threading
from pathlib import Path
from types import SimpleNamespace

TftpShared = SimpleNamespace(DEF_TFTP_PORT=69)

READ, DATA, ACK, ERROR = 1, 3, 4, 5
NOT_FOUND, ILLEGAL = 1, 4
BLOCK = 512
TRIES, PATIENCE = 5, 1.0   # seconds


class TftpServer:
    def __init__(self, tftproot: str) -> None:
        self.root = Path(tftproot).resolve()

    def listen(self, ip: str, port: int) -> None:
        """Serves for ever."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as requests:
            requests.bind((ip, port))
            while True:
                request, client = requests.recvfrom(65535)
                threading.Thread(target=self._answer, args=(request, client), daemon=True).start()

    def _answer(self, request: bytes, client: tuple[str, int]) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as transfer:
            transfer.connect(client)
            transfer.settimeout(PATIENCE)
            name, mode, *_ = *request[2:].split(b"\0"), b"", b""
            if request[:2] != struct.pack("!H", READ) or mode.lower() != b"octet":
                transfer.send(struct.pack("!HH", ERROR, ILLEGAL) + b"only reads in octet mode\0")
                return
            file = (self.root / name.decode(errors="replace").lstrip("/")).resolve()
            if not file.is_relative_to(self.root) or not file.is_file():
                transfer.send(struct.pack("!HH", ERROR, NOT_FOUND) + b"no such file\0")
                return
            self._send(file.read_bytes(), transfer)

    @staticmethod
    def _send(content: bytes, transfer: socket.socket) -> None:
        """The last block is a short one, and empty when the content fills all the others."""
        for block in range(1, len(content) // BLOCK + 2):
            number = struct.pack("!H", block & 0xffff)
            for _ in range(TRIES):
                transfer.send(struct.pack("!H", DATA) + number + content[(block - 1) * BLOCK:block * BLOCK])
                try:
                    while (answer := transfer.recv(BLOCK + 4))[:4] != struct.pack("!H", ACK) + number:
                        if answer[:2] == struct.pack("!H", ERROR):
                            return
                    break
                except OSError:   # no answer in time, or nobody there
                    continue
            else:
                return
