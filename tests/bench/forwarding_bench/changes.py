"""Megaflows that come and go at a constant rate while a row runs.

They go straight into the datapath (dpctl/add-flows) by one connection to the daemon, out of files that are written
ahead: no program starts, and the daemon computes no OpenFlow. A file is a batch of a twentieth of a second; half of its
lines add megaflows, the others delete those of the batch that is half a second older. So each megaflow is in the
datapath, and has been given to the NIC, before it goes. The daemon counts what it has done.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

from lab.switch import Switch
from traffics import changing

BATCH_SECONDS = 0.05
LIFE = 10            # batches


class Connection:
    """To the daemon's control socket. Threads: one at a time."""

    def __init__(self, switch: Switch) -> None:
        assert switch.daemon is not None
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(switch.folder / f"ovs-vswitchd.{switch.daemon.pid}.ctl"))
        self._asked = 0

    def ask(self, command: str, *arguments: str) -> str:
        """The command's answer. RuntimeError when it fails."""
        self._asked += 1
        self._socket.sendall(json.dumps({"id": self._asked, "method": command, "params": arguments}).encode())
        said = b""
        while True:
            if not (more := self._socket.recv(65536)):
                raise RuntimeError(f"{command}: the daemon has gone")
            said += more
            try:
                answer = json.loads(said)
                break
            except json.JSONDecodeError:   # not all of it yet
                continue
        if answer["error"]:
            raise RuntimeError(f"{command}: {answer['error']}")
        return str(answer["result"])

    def close(self) -> None:
        self._socket.close()


def changes_made(switch: Switch) -> int:
    """Megaflows that have come to the datapath or gone from it since the daemon's start, or were changed there."""
    return sum(int(switch.appctl("coverage/read-counter", name)) for name in ("dpif_flow_put", "dpif_flow_del"))


class Changes:
    """Use with `with`: from a second before the block to its end so many megaflows come or go in each second."""

    def __init__(self, switch: Switch, rate: int, actions: str) -> None:
        self._switch = switch
        self._connection = Connection(switch)
        self._ending = threading.Event()
        self._failed: list[Exception] = []
        self._asked = 0
        self._adds = round(rate * BATCH_SECONDS / 2)
        self._first, self._repeated = write_batches(switch.folder, self._adds, actions)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Changes":
        self._before = changes_made(self._switch)
        self._thread.start()
        time.sleep(2 * LIFE * BATCH_SECONDS)
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        done = changes_made(self._switch) - self._before
        self._connection.close()
        if self._failed and kind is None:
            raise self._failed[0]
        if done != self._asked and kind is None:
            raise RuntimeError(f"the daemon counts {done} changes of megaflows, where {self._asked} were asked for")

    def _run(self) -> None:
        try:
            due = time.monotonic()
            batch = 0
            while not self._ending.wait(max(0.0, due - time.monotonic())):
                if batch < LIFE:
                    self._change(self._first[batch], self._adds)
                else:
                    self._change(self._repeated[batch % len(self._repeated)], 2 * self._adds)
                batch += 1
                due += BATCH_SECONDS
        except (OSError, RuntimeError) as error:
            self._failed.append(error)

    def _change(self, file: Path, changes: int) -> None:
        if said := self._connection.ask("dpctl/add-flows", str(file)):
            raise RuntimeError(said)
        self._asked += changes


def write_batches(folder: Path, adds: int, actions: str) -> tuple[list[Path], list[Path]]:
    """Of LIFE batches that only add, and of those that repeat: batch N of both adds the same megaflows."""
    def add(batch: int) -> list[str]:
        return [f"add {changing(number)} {actions}" for number in range(batch * adds, (batch + 1) * adds)]

    def delete(batch: int) -> list[str]:
        return [f"delete {changing(number)}" for number in range(batch * adds, (batch + 1) * adds)]

    def write(name: str, lines: list[str]) -> Path:
        file = folder / name
        file.write_text("\n".join(lines) + "\n")
        return file

    batches = range(2 * LIFE)
    return ([write(f"first-{batch}", add(batch)) for batch in range(LIFE)],
            [write(f"batch-{batch}", delete((batch + LIFE) % len(batches)) + add(batch)) for batch in batches])
