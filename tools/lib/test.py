"""Runs the parts of the test suite and sums them up.

Most parts wait, for daemons, guests and clocks: three of them run side by side. What computes (the unit tests) has the
processors in the meantime, with less weight. A few parts run alone.

Parts have sessions of their own, so that Ctrl-C reaches them through here only; they end with this program, however
that ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lab import build  # noqa: E402
from lab.workspace import end_like_interrupt  # noqa: E402

SOURCE = build.SOURCE
PYTHON = "/usr/bin/python3"
SIDE_BY_SIDE = 3   # parts that wait
# A session is a group of the kernel's scheduler, which has a weight of its own; without such groups nice's counts.
LESS_WEIGHT = ["sh", "-c", '{ echo 5 >/proc/self/autogroup; } 2>/dev/null; exec nice -n 5 "$@"', "sh"]
PATIENCE = 2 if len(os.sched_getaffinity(0)) == 1 else 1   # a part's timeout is for two cores: it tells what hangs
# Where a log tells of a failure: GoogleTest's assertions, pytest's, sanitizers, libFuzzer and what its targets check,
# our scripts, OVS's suites, meson.
TELLING = re.compile(r": Failure$|(ERROR|WARNING): \w+Sanitizer|ERROR: libFuzzer|: not so: |Base64: "
                     r"|runtime error: |terminate called|^E  +\S|FAILED \("
                     r"|^FAIL(ED)? |^(FAIL|ERROR|FAILED): |TIMEOUT|killed by signal")
TOLD_BEHIND = 9                      # lines behind each, for what belongs to it
TOLD_FIRST, TOLD_LAST = 45, 15       # lines of a part
CONNECTX_TESTS = Path("tests") / "system" / "test_connectx.py"


@dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    skips: list[str] = field(default_factory=list)   # each with what is missing
    note: str = ""                                   # why it failed, in a line
    told: list[str] = field(default_factory=list)    # what its log says of that
    seconds: float = 0.0


@dataclass(frozen=True)
class Part:
    name: str
    what: str
    argv: Callable[[argparse.Namespace], list[str]]
    read: Callable[[int, str], Outcome]
    build: str = "plain"
    timeout: int = 1200
    default: bool = True
    alone: bool = False   # it measures
    computes: bool = False   # on all cores: beside those that wait, with less weight
    group: str = ""       # of parts that are one to whoever asks for it


def read_summary(code: int, output: str) -> Outcome:
    """Our scripts: the last line is `N passed, N failed, N skipped`, a skip is a line `SKIP name: what is missing`."""
    lines = output.strip().splitlines()
    found = re.search(r"(\d+) passed, (\d+) failed, (\d+) skipped", lines[-1] if lines else "")
    if not found:
        return Outcome(failed=1, note=f"ended with {code} without a summary")
    outcome = Outcome(*map(int, found.groups()), skips=[line[5:] for line in lines if line.startswith("SKIP ")])
    if code != 0 and outcome.failed == 0:
        outcome.failed, outcome.note = 1, f"ended with {code}"
    return outcome


def read_code(code: int, output: str) -> Outcome:
    """A script that shows a figure as its last line: one test."""
    lines = output.strip().splitlines()
    return Outcome(passed=int(code == 0), failed=int(code != 0), note=lines[-1] if lines else "")


def read_pytest(code: int, output: str) -> Outcome:
    last = output.strip().splitlines()[-1] if output.strip() else ""

    def number(word: str) -> int:
        found = re.search(rf"(\d+) {word}", last)
        return int(found.group(1)) if found else 0

    outcome = Outcome(number("passed"), number("failed") + number("errors?"), number("skipped"),
                      [line.split("] ", 1)[-1] for line in output.splitlines() if line.startswith("SKIPPED [")])
    nothing_chosen = 5   # no test of these files has the word
    if code not in (0, nothing_chosen) and outcome.failed == 0:
        outcome.failed, outcome.note = 1, f"pytest ended with {code}: {last}"
    return outcome


def telling_lines(output: str) -> list[str]:
    """What a log tells of failures, and what stands behind each."""
    lines, told, end = output.splitlines(), [], 0
    for number, line in enumerate(lines):
        if TELLING.search(line):
            end = number + TOLD_BEHIND + 1
        if number < end:
            told.append(line[:240])
    return told if len(told) <= TOLD_FIRST + TOLD_LAST else [*told[:TOLD_FIRST], "[…]", *told[-TOLD_LAST:]]


def junit_file(folder: Path) -> Path:
    return folder / "meson-logs" / "testlog.junit.xml"


def junit_reader(folder: Path) -> Callable[[int, str], Outcome]:
    """meson's JUnit file has each test case of a GoogleTest program."""
    def read(code: int, _: str) -> Outcome:
        outcome = Outcome()
        try:
            cases = list(ElementTree.parse(junit_file(folder)).getroot().iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            return Outcome(failed=1, note=f"meson test ended with {code} and without its results: {error}")
        for case in cases:
            name = f"{case.get('classname', '')}.{case.get('name', '')}"
            if case.find("failure") is not None or case.find("error") is not None:
                outcome.failed += 1
                outcome.note = f"{outcome.note} {name}"
            elif (skip := case.find("skipped")) is not None:
                outcome.skipped += 1
                outcome.skips.append(f"{name}: {skip.get('message') or (skip.text or '').strip()}")
            else:
                outcome.passed += 1
        if code != 0 and outcome.failed == 0:
            outcome.failed, outcome.note = 1, f"meson test ended with {code}"
        return outcome
    return read


def meson_test(folder: Path, patience: int = 2,
               suite: str = "--no-suite") -> Callable[[argparse.Namespace], list[str]]:
    """All but what tests/connectx/check runs, or (--suite) that."""
    def argv(options: argparse.Namespace) -> list[str]:
        named = [options.keyword] if options.keyword else []
        junit_file(folder).unlink(missing_ok=True)   # of the run before
        return ["meson", "test", "-C", str(folder), "--no-rebuild", "--print-errorlogs", "--num-processes", "3",
                "--timeout-multiplier", str(patience), suite, "connectx", *named]
    return argv


def pytest(options: argparse.Namespace, *tests: str) -> list[str]:
    return [PYTHON, "-m", "pytest", "-q", "--durations=25", "-ra", "-s", "-p", "no:cacheprovider", *tests,
            *(["-k", options.keyword] if options.keyword else [])]


def system_lane(number: int) -> Callable[[argparse.Namespace], list[str]]:
    """Every SIDE_BY_SIDE-th file of the system tests: mostly they wait for something."""
    files = sorted(str(file) for file in (SOURCE / "tests" / "system").glob("test_*.py"))
    files.remove(str(SOURCE / CONNECTX_TESTS))
    return lambda options: pytest(options, *files[number::SIDE_BY_SIDE])


def pytest_of(folder: Path, *files: str) -> Callable[[argparse.Namespace], list[str]]:
    """Chosen files with the daemon and the soft NIC of another build."""
    tests = [str(SOURCE / "tests" / "system" / file) for file in files]
    return lambda options: ["env", f"OVSDR_BUILD={folder}", *pytest(options, *tests)]


def script(*words: str) -> Callable[[argparse.Namespace], list[str]]:
    return lambda _: [str(SOURCE / words[0]), *words[1:]]


def traffic_suite(options: argparse.Namespace) -> list[str]:
    return [str(SOURCE / "tests" / "system" / "ovs-system-traffic"), *(["--all"] if options.all else [])]


def connectx_check(options: argparse.Namespace) -> list[str]:
    return [str(SOURCE / "tests" / "connectx" / "check"), *(["-k", options.keyword] if options.keyword else [])]


def libmlx5_questions(options: argparse.Namespace) -> list[str]:
    return [str(SOURCE / "tests" / "conformance" / "libmlx5"), *(["--whole"] if options.all else [])]


def differential(options: argparse.Namespace) -> list[str]:
    return [str(SOURCE / "tests" / "differential" / "run"), *(["--seconds", "1200"] if options.all else [])]


def conformance_under_asan(folder: Path) -> Callable[[argparse.Namespace], list[str]]:
    """The interpreter is not built for AddressSanitizer and keeps what it likes: leaks are the unit tests' business."""
    def argv(options: argparse.Namespace) -> list[str]:
        # AddressSanitizer must find the C++ library's throw when it starts, and the interpreter does not load that.
        runtimes = [subprocess.run(["clang++", f"-print-file-name={name}"], check=True, capture_output=True,
                                   text=True).stdout.strip()
                    for name in ("libclang_rt.asan-x86_64.so", "libstdc++.so.6")]
        return ["env", "ASAN_OPTIONS=detect_leaks=0:abort_on_error=1", *script("tests/conformance/rdma-core")(options),
                "--library", str(folder / "datapath" / "verbs" / "lib"), "--preload", ":".join(runtimes)]
    return argv


def parts() -> list[Part]:
    folder = build.build_folder()
    return [
        Part("checks", "include rules, symbols of a NIC, lengths of files and lines", script("tests/checks/run"),
             read_summary, alone=True),
        Part("unit", "unit tests as gcc compiles them", meson_test(folder), junit_reader(folder), "unit", default=False,
             alone=True),
        Part("asan", "unit tests under AddressSanitizer and UBSan", meson_test(build.asan_folder(), 8),
             junit_reader(build.asan_folder()), "asan", timeout=2400, computes=True),
        Part("tsan", "unit tests under ThreadSanitizer", meson_test(folder / "tsan", 5), junit_reader(folder / "tsan"),
             "tsan", default=False, alone=True),
        Part("tsan-system", "the daemon under ThreadSanitizer",
             pytest_of(folder / "tsan", "test_counts.py", "test_lifecycle.py", "test_policing.py",
                       "test_receive_queues.py", "test_tunnel_ports.py", "test_under_load.py"), read_pytest,
             "tsan", default=False),
        # The longest first, then what runs beside it.
        *(Part(f"system-{lane + 1}", "the daemon, its ports and its traffic", system_lane(lane), read_pytest,
               timeout=2400, group="system") for lane in range(SIDE_BY_SIDE)),
        Part("connectx", "the real libmlx5 on an emulated ConnectX: the device, offload/, the daemon",
             connectx_check, read_summary),
        Part("conformance", "rdma-core's own tests on the soft NIC", script("tests/conformance/rdma-core"),
             read_summary),
        Part("differential", "random pipelines: the real libmlx5's entries, the soft NIC and OVS side by side",
             differential, read_code, timeout=2400),
        Part("mutation", "breaks of offload/ are made, and the differential proof finds them",
             script("tests/mutation/run", "--smoke"), read_code, default=False, timeout=2400),
        Part("asan-conformance", "the same under AddressSanitizer and UBSan",
             conformance_under_asan(build.asan_folder()), read_summary, "asan", timeout=2400),
        Part("libmlx5", "Debian's libmlx5 and the soft NIC are asked the same questions", libmlx5_questions, read_code,
             timeout=7200),
        Part("fuzz", "packets, match parameters, commands and edits at random, for a minute",
             script("tests/fuzz/run", "--seconds", "60"), read_code, "asan"),
        Part("ovs-dpif-netdev", "OVS's own tests of dpif-netdev", script("tests/system/ovs-dpif-netdev"),
             read_summary),
        Part("ovs-system-traffic", "OVS's own traffic tests, each port of type dr",
             traffic_suite, read_summary, timeout=2400),
        Part("idle", "how soon an idle switch answers", script("tests/bench/idle"), read_code, default=False,
             alone=True),
        Part("bench", "smoke run of the benchmarks", script("tests/bench/smoke"), read_summary),
    ]


def environment(options: argparse.Namespace) -> dict[str, str]:
    """Debian's own python3 and tools, whatever else is in front of them on the caller's PATH."""
    return {**os.environ, **({"OVSDR_ALL": "1"} if options.all else {}),
            "OVSDR_PATIENCE": "3",   # parts run side by side
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "OVSDR_BUILD": str(build.build_folder()),
            "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=1",
            "TSAN_OPTIONS": f"suppressions={SOURCE}/tests/tsan.supp:halt_on_error=1:second_deadlock_stack=1",
            "LSAN_OPTIONS": f"suppressions={SOURCE}/tests/lsan.supp:print_suppressions=0",
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}


class Running:
    """A part under way; its output goes to a log."""

    def __init__(self, part: Part, options: argparse.Namespace) -> None:
        self.part = part
        self.log = build.build_folder() / "logs" / f"test-{part.name}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        print(f"test: {part.name}: {part.what} (log: {self.log})", flush=True)
        self.start = self.shown = time.monotonic()
        with open(self.log, "wb") as output:
            argv = ["setpriv", "--pdeathsig", "TERM", *(LESS_WEIGHT if part.computes else []), *part.argv(options)]
            self.child = subprocess.Popen(argv, cwd=SOURCE, stdin=subprocess.DEVNULL, stdout=output,
                                          stderr=subprocess.STDOUT, env=environment(options), start_new_session=True)

    def outcome(self) -> Outcome | None:
        """None while it runs; says every 20 s how far it is, and ends what takes too long."""
        code = self.child.poll()
        now = time.monotonic()
        if code is None and now - self.start > self.part.timeout * PATIENCE:
            print(f"test:   {self.part.name}: no end after {self.part.timeout * PATIENCE} s", flush=True)
            code = self.end()
        if code is not None:
            return self._report(code, now - self.start)
        if now - self.shown >= 20:
            self.shown = now
            lines = self._output().splitlines()
            print(f"test:   {self.part.name}: {now - self.start:.0f} s; {lines[-1][:100] if lines else ''}", flush=True)
        return None

    def end(self) -> int:
        """SIGTERM lets the processes of a part clear away what they made; those that do not end in time are killed."""
        self.signal(signal.SIGTERM)
        latest = time.monotonic() + 30
        while self.signal(0) and time.monotonic() < latest:
            self.child.poll()
            time.sleep(0.05)
        self.signal(signal.SIGKILL)
        self.child.wait()
        return 124

    def signal(self, number: int) -> bool:
        """To all processes of the part but those with a session of their own; whether there are any."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, number)
            return True
        return False

    def _output(self) -> str:
        return self.log.read_text(errors="replace")

    def _report(self, code: int, seconds: float) -> Outcome:
        outcome = self.part.read(code, self._output())
        outcome.seconds = seconds
        print(f"test:   {self.part.name}: {outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped "
              f"in {seconds:.0f} s  {outcome.note}", flush=True)
        if outcome.failed:
            print("\n".join(self._output().splitlines()[-60:]), flush=True)
            outcome.told = telling_lines(self._output())
        return outcome


def run_parts(selected: list[Part], options: argparse.Namespace) -> dict[str, Outcome]:
    """In their order, SIDE_BY_SIDE at a time, one that computes beside them, and those alone that ask for it."""
    waiting, running = list(selected), []
    outcomes: dict[str, Outcome] = {}
    try:
        while waiting or running:
            while waiting and may_start(waiting[0], [one.part for one in running]):
                running.append(Running(waiting.pop(0), options))
            for one in list(running):
                if (outcome := one.outcome()) is not None:
                    outcomes[one.part.name] = outcome
                    running.remove(one)
            time.sleep(0.2)
    except BaseException:
        end_all(running)
        raise
    return {part.name: outcomes[part.name] for part in selected}


def end_all(running: list[Running]) -> None:
    """A second Ctrl-C must not leave some of them behind."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for one in running:
        one.signal(signal.SIGTERM)
    for one in running:
        one.end()


def may_start(part: Part, running: list[Part]) -> bool:
    if not running:
        return True
    if part.alone or any(one.alone for one in running):
        return False
    beside = [one for one in running if one.computes == part.computes]
    return len(beside) < (1 if part.computes else SIDE_BY_SIDE)


def parse(arguments: list[str]) -> argparse.Namespace:
    names = list(dict.fromkeys(part.group or part.name for part in parts()))
    parser = argparse.ArgumentParser(prog="tools/test", description="Sets everything up, builds, and runs the tests. "
                                     "Run it as root. Parts: " + ", ".join(names) + ".")
    parser.add_argument("--only", metavar="PART", action="append", choices=names, help="only this part (repeatable)")
    parser.add_argument("--asan", action="store_true", help="only the parts under AddressSanitizer and UBSan")
    parser.add_argument("--tsan", action="store_true", help="the parts under ThreadSanitizer as well")
    parser.add_argument("--all", action="store_true", help="what CI leaves out too, all of OVS's traffic tests "
                        "among it; hours")
    parser.add_argument("-k", dest="keyword", metavar="WORD", help="only tests whose name has it (unit, system)")
    parser.add_argument("--builds", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace) -> list[Part]:
    if options.only:
        return [part for part in parts() if (part.group or part.name) in options.only]
    if options.asan:
        return [part for part in parts() if part.build == "asan"]
    return [part for part in parts() if part.default or options.all or (options.tsan and part.build == "tsan")]


def set_up_seconds() -> dict[str, float]:
    """What tools/test did before this program: `name=seconds,…`."""
    steps = [step.split("=") for step in os.environ.get("OVSDR_SECONDS", "").split(",") if step]
    return {name: float(seconds) for name, seconds in steps}


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    selected = chosen(options)
    if options.builds:
        print(" ".join(dict.fromkeys(part.build for part in selected)))
        return 0
    end_like_interrupt()
    start = time.monotonic()
    try:
        outcomes = run_parts(selected, options)
    except KeyboardInterrupt:
        return 130
    steps = set_up_seconds()
    print(f"\ntest: summary after {sum(steps.values()) + time.monotonic() - start:.0f} s")
    for name, seconds in steps.items():
        print(f"  {name:20} {seconds:5.0f} s")
    for name, outcome in outcomes.items():
        print(f"  {name:20} {outcome.seconds:5.0f} s {outcome.passed:5} passed {outcome.failed:4} failed "
              f"{outcome.skipped:4} skipped  {outcome.note[:160]}")
    skips = [f"{name}: {skip}" for name, outcome in outcomes.items() for skip in outcome.skips]
    if skips:
        print("\ntest: skipped, and what is missing")
        print("\n".join(f"  {skip}" for skip in skips))
    for name, outcome in outcomes.items():
        if outcome.told:
            print(f"\ntest: {name}: what failed\n" + "\n".join(f"  {line}" for line in outcome.told))
    total = [sum(getattr(outcome, kind) for outcome in outcomes.values()) for kind in ("passed", "failed", "skipped")]
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
