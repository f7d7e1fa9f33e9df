"""A workspace: a unique name, a folder, namespaces, and the undoing of everything that was made in them.

The name holds the process id. The folder /run/ovs-dr/NAME has the owner's id and start time in it, so that the next
workspace can tell a leftover (its owner is gone) from a neighbour (it runs) and from one that was kept on purpose.
Until they are written, the name tells.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Callable

from .command import CommandError, run
from .namespace import Namespace

ROOT = Path("/run/ovs-dr")
KEPT = "kept"
_numbers = itertools.count(1)


def _start_time(pid: int) -> str:
    """Start time of a process in clock ticks, or nothing: with it a process id that was used again is told apart."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return ""


def _owner_runs(folder: Path) -> bool:
    try:
        pid, start = (folder / "owner").read_text().split()
    except (OSError, ValueError):
        maker = folder.name.split("-")[-2:-1]
        return bool(maker) and maker[0].isdigit() and bool(_start_time(int(maker[0])))
    return bool(start) and _start_time(int(pid)) == start


def _namespaces_of(name: str) -> list[str]:
    listed = run(["ip", "netns", "list"], check=False).splitlines()
    return [line.split()[0] for line in listed if line.startswith(f"{name}-")]


def _processes_of(name: str) -> list[int]:
    found: list[int] = []
    for namespace in _namespaces_of(name):
        found += [int(pid) for pid in run(["ip", "netns", "pids", namespace], check=False).split()]
    return found


def remove(name: str) -> None:
    """Undoes what is left of the workspace `name`: its processes (those in its namespaces), namespaces, folder."""
    for number, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 2.0)):
        for pid in _processes_of(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        end = time.monotonic() + patience
        while _processes_of(name) and time.monotonic() < end:
            time.sleep(0.05)
    for namespace in _namespaces_of(name):
        Namespace(namespace).delete()
    shutil.rmtree(ROOT / name, ignore_errors=True)


def leftovers() -> list[str]:
    """Workspaces whose owner is gone and that nobody asked to keep."""
    if not ROOT.is_dir():
        return []
    return [folder.name for folder in sorted(ROOT.iterdir())
            if folder.is_dir() and not (folder / KEPT).exists() and not _owner_runs(folder)]


def kept() -> list[str]:
    return [folder.name for folder in sorted(ROOT.iterdir()) if (folder / KEPT).exists()] if ROOT.is_dir() else []


class Workspace:
    """Use with `with`: what defer() was given runs in reverse when the block ends, however it ends."""

    def __init__(self, purpose: str) -> None:
        self.name = f"ovsdr-{purpose}-{os.getpid()}-{next(_numbers)}"
        self.folder = ROOT / self.name
        self._undo = contextlib.ExitStack()
        self._kept = False

    def __enter__(self) -> "Workspace":
        for name in leftovers():
            remove(name)
        remove(self.name)
        self.folder.mkdir(parents=True)
        (self.folder / "owner").write_text(f"{os.getpid()} {_start_time(os.getpid())}\n")
        return self

    def __exit__(self, *_: object) -> None:
        if self._kept:
            self._undo.pop_all()
            return
        # A second Ctrl-C must not stop the clearing away.
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            try:
                self._undo.close()
            except Exception as error:  # one step that fails must not keep the namespaces alive
                print(f"clearing away: {error}", file=sys.stderr)
            remove(self.name)
        finally:
            signal.signal(signal.SIGINT, previous)

    def defer(self, undo: Callable[[], object]) -> None:
        self._undo.callback(undo)

    def keep(self) -> None:
        """Leaves everything in place when the block ends; remove(name) undoes it later."""
        (self.folder / KEPT).touch()
        self._kept = True

    def namespace(self, purpose: str) -> Namespace:
        namespace = Namespace(f"{self.name}-{purpose}")
        namespace.create()
        self.defer(namespace.delete)
        return namespace


def end_like_interrupt() -> None:
    """Makes SIGTERM and SIGHUP end the program the way Ctrl-C does: through the clearing away."""
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


__all__ = ["CommandError", "Workspace", "end_like_interrupt", "kept", "leftovers", "remove"]
