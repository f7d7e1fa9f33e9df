"""A shell on a guest's console, over a socket: commands go in, and what they write comes back.

The guest's /init says GUEST-READY once, and GUEST-DONE with the exit code after each line that it has run.
"""

from __future__ import annotations

import re
import socket
import time
from typing import Callable

from .command import CommandError


class Console:
    def __init__(self, connection: socket.socket, name: str, runs: Callable[[], bool], said: Callable[[], str]) -> None:
        """`runs`: whether the guest's process does. `said`: what that process wrote, for messages."""
        connection.settimeout(0.2)
        self._connection = connection
        self._name = name
        self._runs = runs
        self._said = said
        self._text = ""

    def wait_ready(self, timeout: float) -> None:
        self._read_until(r"GUEST-READY\r?\n", timeout)

    def run(self, command: str, *, check: bool = True, timeout: float = 60) -> str:
        """What a command of the guest's shell writes."""
        self._text = ""
        self._connection.sendall(command.encode() + b"\n")
        done = self._read_until(r"GUEST-DONE (\d+)\r?\n", timeout, f" of {command[:80]!r}")
        output = self._text[:done.start()].replace("\r", "")
        if check and done.group(1) != "0":
            raise CommandError([command], int(done.group(1)), output)
        return output

    def close(self) -> None:
        self._connection.close()

    def _read_until(self, pattern: str, timeout: float, which: str = "") -> re.Match[str]:
        end = time.monotonic() + timeout
        while not (found := re.search(pattern, self._text)):
            if time.monotonic() > end or not self._runs():
                raise TimeoutError(f"{self._name}: no {pattern!r}{which} within {timeout} s: {self._text[-2000:]} "
                                   f"{self._said()[-500:]}")
            try:
                part = self._connection.recv(65536)
            except (TimeoutError, socket.timeout):
                continue
            if not part:
                raise ConnectionResetError(f"{self._name} has closed its console: {self._text[-2000:]} "
                                           f"{self._said()[-500:]}")
            self._text += part.decode(errors="replace")
        return found
