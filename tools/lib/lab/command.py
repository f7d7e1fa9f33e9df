"""Run commands: with their error text when they fail, and in the background with their output in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Callable, Sequence


class CommandError(RuntimeError):
    """A command that failed; the message holds the command and what it said."""

    def __init__(self, argv: Sequence[str], code: int, output: str) -> None:
        super().__init__(f"`{' '.join(argv)}` failed with {code}: {output.strip()[-2000:]}")
        self.code = code
        self.output = output


def run(argv: Sequence[str], *, env: dict[str, str] | None = None, check: bool = True, timeout: float = 60,
        stdin: str | None = None) -> str:
    """Runs to the end and returns standard output. The child has a session of its own: Ctrl-C ends us, not it."""
    try:
        done = subprocess.run(argv, env={**os.environ, **(env or {})}, capture_output=True, text=True,
                              timeout=timeout, input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL,
                              start_new_session=True, check=False)
    except subprocess.TimeoutExpired as expired:
        said = b"".join(part for part in (expired.stdout, expired.stderr) if isinstance(part, bytes))
        raise CommandError(argv, -1, f"no end after {timeout} s; {said.decode(errors='replace')}") from expired
    if check and done.returncode != 0:
        raise CommandError(argv, done.returncode, done.stderr + done.stdout)
    return done.stdout


class Background:
    """A child that runs beside us; its output goes to a log file. `stdin` is a descriptor to give it."""

    def __init__(self, argv: Sequence[str], log: Path, env: dict[str, str] | None = None,
                 stdin: int = subprocess.DEVNULL) -> None:
        self.argv = list(argv)
        self.log = log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(argv, stdin=stdin, stdout=output, stderr=output,
                                            env={**os.environ, **(env or {})}, start_new_session=True)

    @property
    def pid(self) -> int:
        return self.process.pid

    def running(self) -> bool:
        return self.process.poll() is None

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def signal(self, number: int) -> None:
        if self.running():
            self.process.send_signal(number)

    def wait(self, timeout: float) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired as expired:
            raise CommandError(self.argv, -1, f"no end after {timeout:.0f} s; {self.output()}") from expired

    def stop(self, grace: float = 3) -> None:
        """Asks it to end, and ends it if it does not."""
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def wait_until(condition: Callable[[], bool], timeout: float, what: str | Callable[[], str],
               interval: float = 0.05) -> float:
    """Waits for the condition; returns the seconds it took. TimeoutError names `what`, asked for at that time.

    `timeout` is for a host that does nothing else: it may take OVSDR_PATIENCE times as long where that is set.
    """
    start = time.monotonic()
    timeout *= float(os.environ.get("OVSDR_PATIENCE", "1"))
    while not condition():
        if time.monotonic() - start > timeout:
            raise TimeoutError(f"{what if isinstance(what, str) else what()}: not within {timeout:g} s")
        time.sleep(interval)
    return time.monotonic() - start
