"""A test suite that autotest generated in OVS's build folder, and how to run parts of it.

A run goes in network, mount and process namespaces of its own, and in a folder of its own that is mounted over the one
that autotest uses: runs do not meet, whoever started them, and end with their namespaces, devices and daemons. Most of
a test's time is waiting, so several runs at once (jobs) take a fraction of the time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from lab.command import Background, run

ISOLATED = """
set -e
mkdir -p /run/netns
mount -t tmpfs none /run/netns
ip link set lo up
cd "$1"
suite=$2
path=$3
mkdir -p "tests/$(basename "$suite").dir"
mount --bind "$4" "tests/$(basename "$suite").dir"
shift 4
exec sh "$suite" -C tests AUTOTEST_PATH="$path" -d "$@"
"""
RESULT = re.compile(r"^\s*(\d+): (.+?)\s+(ok|FAILED|skipped|expected failure|unexpected success)(?: \((.*)\))?\s*$")


@dataclass(frozen=True)
class Result:
    """What became of a test; `word` is autotest's: "ok", "FAILED", "skipped", or "did not run"."""

    word: str = "did not run"
    where: str = ""        # FILE:LINE of what failed, or of the condition that skipped
    again: bool = False    # it failed at first, and this is what came of running it once more, alone

    @property
    def passed(self) -> bool:
        return self.word == "ok"

    def __str__(self) -> str:
        return self.word + (f" ({self.where})" if self.where else "") + (" when run again, alone" if self.again else "")


@dataclass(frozen=True)
class Suite:
    """What to run, and where.

    `folder` is where the tests' own folders go, one folder of theirs a job. In the values of `environment`, JOB becomes
    the job's number: what belongs to one daemon only is named with it.
    """

    ovs: Path                       # what tools/build-ovs made
    program: Path                   # the generated suite
    path: str                       # AUTOTEST_PATH: where the programs under test are
    folder: Path
    environment: dict[str, str]

    def titles(self) -> dict[int, str]:
        listing = run(["sh", str(self.program), "--list"])
        return {int(number): title.strip() for number, title
                in re.findall(r"^\s*(\d+): [\w-]+\.at:\d+\s+(.*)$", listing, re.MULTILINE)}

    def run(self, tests: list[int], jobs: int) -> dict[int, Result]:
        """Runs them, and once more, alone, what failed: a busy machine must not decide."""
        shutil.rmtree(self.folder, ignore_errors=True)
        results = self._run([tests[job::jobs] for job in range(min(jobs, len(tests)))])
        failed = [test for test in tests if results[test].word not in ("ok", "skipped")]
        if failed:
            print(f"  once more, alone: {', '.join(map(str, failed))}", flush=True)
            results.update((test, replace(result, again=True)) for test, result in self._run([failed]).items())
        return results

    def _run(self, parts: list[list[int]]) -> dict[int, Result]:
        """A job for each part."""
        runs: list[Background] = []
        try:
            for job, tests in enumerate(parts):
                folder = self.folder / str(job)
                folder.mkdir(parents=True, exist_ok=True)
                (log := self.folder / f"{job}.log").unlink(missing_ok=True)
                runs.append(Background(
                    ["unshare", "--fork", "--pid", "--mount-proc", "--net", "--mount", "--kill-child", "--propagation",
                     "private", "bash", "-c", ISOLATED, "suite", str(self.ovs / "build"), str(self.program), self.path,
                     str(folder), *map(str, tests)], log,
                    {name: value.replace("JOB", str(job)) for name, value in self.environment.items()}))
            return {test: Result() for tests in parts for test in tests} | self._follow(runs, max(map(len, parts)))
        finally:
            for child in runs:
                child.stop(1)

    def _follow(self, runs: list[Background], longest: int) -> dict[int, Result]:
        """Until all have ended. A test of a minute is a long one; one that hangs does not end by itself."""
        results: dict[int, Result] = {}
        end = time.monotonic() + 120 + 60 * longest
        while True:
            running = [child for child in runs if child.running()]
            for child in runs:
                for found in filter(None, map(RESULT.match, child.output().splitlines())):
                    if int(found.group(1)) not in results:
                        results[int(found.group(1))] = Result(found.group(3), found.group(4) or "")
                        print(f"  {found.group(0).strip()}", flush=True)
            if not running:
                return results
            if time.monotonic() > end:
                print("  no end; stopped", flush=True)
                return results
            try:
                running[0].process.wait(1)
            except subprocess.TimeoutExpired:
                pass

    def failure(self, test: int) -> str:
        """The end of the log of the test's last run, without the daemons' logs that autotest appends."""
        logs = sorted(self.folder.glob(f"*/{test:03}/*.log"), key=lambda path: path.stat().st_mtime)
        logs = [log for log in logs if log.stem == self.program.name] or logs
        text = logs[-1].read_text(errors="replace") if logs else "no log"
        return "\n".join([line for line in text.splitlines() if not line.startswith("> ")][-40:])
