"""A copy of the sources with a warm build folder of its own, where breaks are made and tests are run."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from operators import Break

SOURCE = Path(__file__).resolve().parents[2]
SOFT_NIC = "tests/unit/datapath"   # tests
# They measure how a NIC sleeps and wakes: slow, and no judge of what a packet or a request becomes.
FAR = "tests/unit/datapath/ports"
BROKEN = ("datapath/", "offload/")   # folders
# A break asks the cases of one stage together, the quick ones first: seconds.
STAGES = (0, 0.02, 0.2, 2, 1e9)


@dataclass
class Test:
    """A meson test that links what is broken."""

    name: str
    argv: list[str]
    environment: dict[str, str]
    targets: list[str]      # of ninja
    cases: dict[str, float] = field(default_factory=dict)   # seconds of each case, everything unbroken

    @property
    def seconds(self) -> float:
        return sum(self.cases.values())

    @property
    def folder(self) -> Path:
        program = next(target for target in self.targets if target.startswith("tests/unit"))
        return Path(program).parent.relative_to("tests/unit")


class Bench:
    """The warm folder. One process at a time: a second one is refused."""

    def __init__(self, folder: Path, *options: str, tested: str = SOFT_NIC) -> None:
        """`options`: of meson, when the folder is made. `tested`: the folder of the tests that are asked."""
        self.sources = folder
        self.build = folder / "build"
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"mutation: another run is in {folder}")
        self._copy_sources()
        if not (self.build / "build.ninja").exists():
            command = ["meson", "setup", str(self.build), str(folder), "-Dcpp_link_args=-Wl,--strip-debug", *options]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.make(["build.ninja"])
        self._outputs = self._read_outputs()
        self.tests = self._read_tests(tested)

    def _copy_sources(self) -> None:
        """Only what changed, with its time: the rest stays built."""
        names = subprocess.run(["git", "ls-files", "-z"], cwd=SOURCE, check=True, capture_output=True, text=True).stdout
        wanted = {name for name in names.split("\0") if name and (SOURCE / name).is_file()}
        for name in wanted:
            target = self.sources / name
            if target.is_file() and target.read_bytes() == (SOURCE / name).read_bytes():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, target)
        for folder in [path for path in self.sources.iterdir() if path.is_dir() and path != self.build]:
            for path in [path for path in folder.rglob("*") if path.is_file()]:
                if str(path.relative_to(self.sources)) not in wanted:
                    path.unlink()

    def _introspect(self, what: str) -> list[dict]:
        command = ["meson", "introspect", what, str(self.build)]
        return json.loads(subprocess.run(command, check=True, text=True, capture_output=True).stdout)

    def _read_tests(self, tested: str) -> dict[str, Test]:
        by_id = {target["id"]: target["filename"] for target in self._introspect("--targets")}
        tests = {}
        for test in self._introspect("--tests"):
            needed = [str(Path(name).relative_to(self.build))
                      for identity in test["depends"] for name in by_id.get(identity, [])]
            if any(name.startswith(tested) and not name.startswith(FAR) for name in needed):
                tests[test["name"]] = Test(test["name"], test["cmd"], test["env"], needed)
        return tests

    def make(self, targets: list[str], broken: bool = False) -> bool:
        """What is broken is compiled once: no place in a cache for it. Ninja takes no targets for all."""
        if not targets:
            return True
        environment = {**os.environ, "CCACHE_DISABLE": "1"} if broken else None
        return subprocess.run(["ninja", "-C", str(self.build), *targets], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, env=environment, check=False).returncode == 0

    @contextmanager
    def broken(self, item: Break, objects: list[str]) -> Iterator[bool]:
        """Has `item` in the sources for as long as the context lasts. False: it is no break, for it does not compile,
        or the compiler makes the same `objects` of it."""
        path = self.sources / item.file
        whole, modified = path.read_text(), path.stat().st_mtime_ns
        self.make(objects)
        original = self.digest_of_code(objects)
        lines = whole.splitlines()
        lines[item.line - 1] = item.after
        path.write_text("\n".join(lines) + "\n")
        try:
            yield not objects or (self.make(objects, broken=True) and self.digest_of_code(objects) != original)
        finally:
            self.undo(path, whole, modified)

    def undo(self, path: Path, text: str, modified: int) -> None:
        """Gives a source its text and time back and throws away what was made of the broken one: objects come from the
        cache."""
        broken = path.stat().st_mtime_ns
        path.write_text(text)
        os.utime(path, ns=(modified, modified))
        made = [name for name in self._outputs
                if (self.build / name).is_file() and (self.build / name).stat().st_mtime_ns >= broken]
        for name in made:
            (self.build / name).unlink()
        self.make([name for name in made if name.endswith(".o")])

    def _read_outputs(self) -> list[str]:
        listed = subprocess.run(["ninja", "-C", str(self.build), "-t", "targets", "all"], check=True, text=True,
                                capture_output=True).stdout
        return [name for name, _, rule in (line.partition(": ") for line in listed.splitlines())
                if rule not in ("phony", "REGENERATE_BUILD")]

    def objects_by_source(self) -> dict[Path, list[str]]:
        """What is compiled of each file of what is broken, by ninja's log of dependencies; tests' own objects left
        out."""
        found: dict[Path, list[str]] = {}
        target = ""
        log = subprocess.run(["ninja", "-C", str(self.build), "-t", "deps"], check=True, text=True,
                             capture_output=True).stdout
        for line in log.splitlines():
            if match := re.match(r"(\S+): #deps", line):
                target = match.group(1)
            elif target.startswith(BROKEN) and (match := re.match(rf"\s+\.\./(({'|'.join(BROKEN)})\S+)", line)):
                found.setdefault(Path(match.group(1)), []).append(target)
        return found

    def digest_of_code(self, objects: list[str]) -> bytes:
        """Of what `objects` do: debug information, which knows columns, left out."""
        digest = hashlib.sha256()
        stripped = self.build / "stripped.o"
        for name in objects:
            subprocess.run(["objcopy", "--strip-debug", str(self.build / name), str(stripped)], check=True)
            digest.update(stripped.read_bytes())
        return digest.digest()

    def digest_of_test(self, test: Test) -> str:
        digest = hashlib.sha256()
        for target in test.targets:
            path = self.build / target
            digest.update(path.read_bytes() if path.is_file() else b"")
        return digest.hexdigest()

    def run(self, argv: list[str], environment: dict[str, str], limit: float) -> tuple[bool, str]:
        """Whether it ended well within `limit` seconds, and what it printed."""
        process = subprocess.Popen(argv, cwd=self.build, env={**os.environ, **environment}, start_new_session=True,
                                   text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        try:
            output, _ = process.communicate(timeout=limit)
            return process.returncode == 0, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return False, process.communicate()[0]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def objection_of(self, test: Test) -> str:
        """The case of `test` that fails, and fails again alone (a disturbed run catches nothing); empty when all pass.
        Quick cases are asked first."""
        for least, most in itertools.pairwise(STAGES):
            names = [name for name, seconds in test.cases.items() if least <= seconds < most]
            limit = 20 + 5 * sum(test.cases[name] for name in names)
            passed, output = self._run_cases(test, names, limit) if names else (True, "")
            if passed:
                continue
            failed = re.findall(r"^\[  FAILED  \] ([\w/]+\.[\w/]+)", output, re.M)
            begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.M)
            suspects = (failed or begun[-1:])[:1] or names
            if not self._run_cases(test, suspects, limit)[0]:
                return f"{test.name}: {suspects[0]}"
        return ""

    def _run_cases(self, test: Test, names: list[str], limit: float) -> tuple[bool, str]:
        return self.run([*test.argv, "--gtest_fail_fast", "--gtest_filter=" + ":".join(names)], test.environment, limit)

    def time(self, test: Test) -> bool:
        """Runs it once, everything unbroken, and keeps how long each case took; false when one fails."""
        passed, output = self.run(test.argv, test.environment, 1800)
        spent = re.findall(r"^\[       OK \] (\S+?)(?:, where .*)? \((\d+) ms\)", output, re.M)
        test.cases = {name: int(milliseconds) / 1000 for name, milliseconds in spent}
        return passed

    def conforms(self, modules: list[str], limit: float) -> bool:
        argv = [str(self.sources / "tests/conformance/rdma-core"), *modules]
        return self.run(argv, {"OVSDR_BUILD": str(self.build)}, limit)[0]
