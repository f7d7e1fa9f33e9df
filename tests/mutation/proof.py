"""The unit tests of offload/ as a judge of breaks, and behind them the differential proof (tests/differential), in a
copy of the sources that has what they need."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from areas import PROVED
from bench import SOURCE, Bench
from operators import Break
from unit_tests import UnitTests

sys.path.insert(0, str(SOURCE / "tools" / "lib"))

from lab import build  # noqa: E402

JUDGE = "tests/differential/judge/megaflows-judge"
DEVICE = "tests/connectx/libconnectx.so"
TARGETS = (JUDGE, DEVICE, "softnic_verbs")
FORMATS = {"cx5": 0, "cx6dx": 1, "cx7": 2}
BY_PROOF = "proof: "   # begins what the proof found; a unit test's finding begins with its name


def make_bench() -> Bench:
    """With Open vSwitch, which judges. Its options are those of the build folder, whose objects are in the compiler
    cache."""
    build.set_up('setup_ovs; setup_build "$build_dir" --', *TARGETS)
    command = ["meson", "introspect", "--buildoptions", str(build.build_folder())]
    options = json.loads(subprocess.run(command, check=True, text=True, capture_output=True).stdout)
    same = [f"-D{option['name']}={option['value']}" for option in options if option["name"] in ("ovs", "werror")]
    return Bench(build.build_folder() / "mutation-offload", *same, tested="tests/unit/offload")


class Entries:
    """The steering entries' judge of one draw. OVS's verdict does not depend on what is broken: it is asked once."""

    def __init__(self, bench: Bench, folder: Path, megaflows: int, packets: int, patience: float) -> None:
        """Keeps its files in `folder`. A break may send a judge in circles: `patience` seconds."""
        self.bench, self.folder, self.patience = bench, folder, patience
        proof = bench.sources / "tests" / "differential"
        self.scenario = ["--seed=1", f"--megaflows={megaflows}", f"--packets={packets}",
                         f"--shapes={proof / 'ovn_megaflows.txt'}", f"--wanted={proof / 'judge' / 'wanted.csv'}",
                         f"--drawn={folder / 'packets'}"]
        self.ovs = folder / "ovs.verdict"
        folder.mkdir(exist_ok=True)
        if not self._run(self._judge("ovs", self.ovs))[0]:
            sys.exit("mutation: OVS's judge comes to no verdict")

    def finding(self, profile: str) -> str:
        """What tells the entries' verdict from OVS's: empty where they are equal."""
        verdict = self.folder / "entries.verdict"
        form = f"--format={FORMATS[profile]}"
        on_device = [self.bench.sources / "tests" / "connectx" / "run", "--library", self.bench.build / DEVICE,
                     "--profile", profile, "--vfs", 3]
        done, _ = self._run([*on_device, *self._judge("entries", form, verdict)])
        if not done:
            return "a judge that comes to no verdict"
        equal, output = self._run(self._judge("compare", verdict, "--ovs", self.ovs, form))
        lines = output.strip().splitlines() or ["no verdict"]
        return "" if equal else f"{profile}, entries: {lines[0][:100]}"

    def _judge(self, side: str, *words: object) -> list[object]:
        return [self.bench.build / JUDGE, side, *self.scenario, *words]

    def _run(self, words: list[object]) -> tuple[bool, str]:
        return self.bench.run([str(word) for word in words], {}, self.patience)


@dataclass(frozen=True)
class Draw:
    """Of tests/differential/run; a break may send a judge in circles: `patience` seconds."""

    options: tuple[str, ...]
    patience: float


# What the unit tests and the small draw of the entries' judge do not find these are asked about. The last one is CI's,
# which also wants enough megaflows of each match and action in the NIC.
DRAWS = (Draw(("--until-difference", "--packets=20000", "--profile=cx6dx"), 300),
         Draw(("--until-difference", "--packets=20000"), 900), Draw(("--built",), 3600))


class Proof:
    """Makes breaks on a bench and asks whether a unit test or the proof notices: the unit tests, for they take seconds,
    a small draw of the entries' judge, then all judges of the proof. Alone, the proof is asked and nobody else."""

    def __init__(self, bench: Bench, draws: int = len(DRAWS), alone: bool = False) -> None:
        self.bench = bench
        self.draws = DRAWS[:draws]
        self.alone = alone
        self.objects: dict[Path, list[str]] = {}
        self.unit_tests = UnitTests(bench, with_conformance=False)
        self.folder = bench.sources / "verdicts"   # a judge that is stopped leaves them behind
        self.entries: Entries

    def prepare(self) -> None:
        """Builds everything unbroken and sees it pass."""
        if not self.bench.make(list(TARGETS)):
            sys.exit("mutation: does not build unbroken")
        if not self.alone:
            self.unit_tests.prepare([PROVED])
        self.objects = self.bench.objects_by_source()
        self.entries = Entries(self.bench, self.bench.build / "small-draw", 2000, 10000, 300)
        if finding := self.entries.finding("cx6dx") or self._finding(self.draws):
            sys.exit(f"mutation: differs unbroken: {finding}")

    def catcher_of(self, area: str, item: Break) -> str | None:
        """Who noticed `item`: empty where nobody did, None when it is no break."""
        with self.bench.broken(item, self.objects[item.file]) as is_break:
            if not is_break:
                return None
            if not self.alone and (objection := self.unit_tests.objection_to(area, item)):
                return objection
            if not self.bench.make(list(TARGETS), broken=True):
                return None
            finding = self.entries.finding("cx6dx") or self._finding(self.draws)
            return BY_PROOF + finding if finding else ""

    def _finding(self, draws: tuple[Draw, ...]) -> str:
        for draw in draws:
            passed, output = self._ask(draw)
            if not passed:
                lines = output.strip().splitlines() or ["no verdict in time"]
                line = next((line for line in lines if re.search("DIFFERENT|^FAILED|: fewer than|: less than", line)),
                            lines[-1])
                return re.sub(r"^FAILED: .* ended with", "a judge that ended with", line)[:100]
        return ""

    def _ask(self, draw: Draw) -> tuple[bool, str]:
        self.folder.mkdir(exist_ok=True)
        try:
            argv = [str(self.bench.sources / "tests" / "differential" / "run"), *draw.options]
            environment = {"OVSDR_BUILD": str(self.bench.build), "TMPDIR": str(self.folder)}
            return self.bench.run(argv, environment, draw.patience)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
