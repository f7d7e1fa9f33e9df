"""Asks a daemon by its control socket: ovs-vswitchd by OVS's unixctl (JSON-RPC), the soft NIC by a line of JSON.

Each question has a connection of its own, so that a daemon that was restarted is found again. The whole of it, from
connecting to the last byte, takes no longer than the given patience.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

SOFTNIC_FILE = "/etc/ovs-dr/softnic.json"
SOFTNIC_SOCKET = "/run/ovs-dr/softnic.sock"
DAEMON = "ovs-vswitchd"
MOST_BYTES = 64 << 20   # of an answer


class NoAnswer(Exception):
    """Nobody is there, or what came is no answer; the text is for people."""


class _Connection:
    def __init__(self, path: Path, patience: float) -> None:
        self._ends = time.monotonic() + patience
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._set_time()
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise NoAnswer(f"{path}: {error}") from error
        self._path = path

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _set_time(self) -> None:
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left)

    def ask(self, question: bytes) -> dict[str, Any]:
        """The first whole JSON object that comes back."""
        answer, decoder = bytearray(), json.JSONDecoder()
        try:
            self._set_time()
            self._socket.sendall(question)
            while len(answer) < MOST_BYTES:
                self._set_time()
                data = self._socket.recv(1 << 20)
                if not data:
                    break
                answer += data
                if not data.rstrip().endswith(b"}"):
                    continue
                try:
                    value, _ = decoder.raw_decode(answer.decode())
                except ValueError:
                    continue   # it goes on
                if isinstance(value, dict):
                    return value
                break
        except OSError as error:
            raise NoAnswer(f"{self._path}: {error}") from error
        raise NoAnswer(f"{self._path}: what came is no answer")


class Daemon:
    """ovs-vswitchd, whose pidfile and control socket are in `folder`."""

    def __init__(self, folder: Path, patience: float) -> None:
        self._folder = folder
        self._patience = patience

    def _socket(self) -> Path:
        pidfile = self._folder / f"{DAEMON}.pid"
        try:
            return self._folder / f"{DAEMON}.{int(pidfile.read_text())}.ctl"
        except (OSError, ValueError) as error:
            raise NoAnswer(f"{pidfile}: {error}") from error

    def ask(self, *commands: list[str]) -> list[Any]:
        """What each command prints, which is JSON."""
        answers = []
        with _Connection(self._socket(), self._patience) as connection:
            for command, *arguments in commands:
                answer = connection.ask(json.dumps({"id": 0, "method": command, "params": arguments}).encode())
                if answer.get("error") is not None or not isinstance(answer.get("result"), str):
                    raise NoAnswer(f"{DAEMON}: {command}: {answer.get('error')}")
                try:
                    answers.append(json.loads(answer["result"]))
                except ValueError as error:
                    raise NoAnswer(f"{DAEMON}: {command}: {error}") from error
        return answers


class SoftNic:
    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience

    def ask(self, *commands: str) -> list[dict[str, Any]]:
        answers = []
        with _Connection(self._path, self._patience) as connection:
            for command in commands:
                answer = connection.ask(json.dumps({"command": command}).encode() + b"\n")
                if answer.get("ok") is not True:
                    raise NoAnswer(f"the soft NIC: {command}: {answer.get('error')}")
                answers.append(answer)
        return answers


def default_folder() -> str:
    return os.environ.get("OVS_RUNDIR") or "/var/run/openvswitch"


def default_softnic() -> str:
    """As drnic has it: what the soft NIC's configuration names, or the built-in one."""
    try:
        configuration = json.loads(Path(os.environ.get("OVSDR_SOFTNIC") or SOFTNIC_FILE).read_text())
        path = configuration["control_socket"]
    except (OSError, ValueError, KeyError, TypeError):
        return SOFTNIC_SOCKET
    return path if isinstance(path, str) else SOFTNIC_SOCKET
