"""The differential proof (tests/differential) as a judge of breaks, in a copy of the sources that has what it needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench import SOURCE, Bench
from operators import Break

sys.path.insert(0, str(SOURCE / "tools" / "lib"))

from lab import build  # noqa: E402

JUDGE = "tests/differential/judge/megaflows-judge"
DEVICE = "tests/connectx/libconnectx.so"
TARGETS = (JUDGE, DEVICE, "softnic_verbs")


def make_bench() -> Bench:
    """With Open vSwitch, which judges. Its options are those of the build folder, whose objects are in the compiler
    cache."""
    build.set_up('setup_ovs; setup_build "$build_dir" --', *TARGETS)
    command = ["meson", "introspect", "--buildoptions", str(build.build_folder())]
    options = json.loads(subprocess.run(command, check=True, text=True, capture_output=True).stdout)
    same = [f"-D{option['name']}={option['value']}" for option in options if option["name"] in ("ovs", "werror")]
    return Bench(build.build_folder() / "mutation-offload", *same)


@dataclass(frozen=True)
class Draw:
    """Of tests/differential/run; a break may send a judge in circles: `patience` seconds."""

    options: tuple[str, ...]
    patience: float


# What one draw does not find the next one is asked about. The last one is CI's.
DRAWS = (Draw(("--packets=20000", "--profile=cx6dx"), 300), Draw(("--packets=20000",), 900), Draw((), 3600))


class Proof:
    """Makes breaks on a bench and asks the proof, and no other test, whether it notices."""

    def __init__(self, bench: Bench, draws: int = len(DRAWS)) -> None:
        self.bench = bench
        self.draws = DRAWS[:draws]
        self.objects: dict[Path, list[str]] = {}
        self.folder = bench.sources / "verdicts"   # a judge that is stopped leaves them behind

    def prepare(self) -> None:
        """Builds everything unbroken and sees it pass."""
        if not self.bench.make(list(TARGETS)):
            sys.exit("mutation: does not build unbroken")
        self.objects = self.bench.objects_by_source()
        if finding := self._finding(self.draws[:2]):
            sys.exit(f"mutation: differs unbroken: {finding}")

    def catcher_of(self, _area: str, item: Break) -> str | None:
        """What the proof found of `item`: empty where it found nothing, None when it is no break."""
        with self.bench.broken(item, self.objects[item.file]) as is_break:
            if not is_break or not self.bench.make(list(TARGETS), broken=True):
                return None
            return self._finding(self.draws)

    def _finding(self, draws: tuple[Draw, ...]) -> str:
        for draw in draws:
            passed, output = self._ask(draw)
            if not passed:
                lines = output.strip().splitlines() or ["no verdict in time"]
                line = next((line for line in lines if line.startswith(("DIFFERENT", "FAILED"))), lines[-1])
                return re.sub(r"^FAILED: .* ended with", "a judge that ended with", line)[:100]
        return ""

    def _ask(self, draw: Draw) -> tuple[bool, str]:
        self.folder.mkdir(exist_ok=True)
        try:
            argv = [str(self.bench.sources / "tests" / "differential" / "run"), "--until-difference", *draw.options]
            environment = {"OVSDR_BUILD": str(self.bench.build), "TMPDIR": str(self.folder)}
            return self.bench.run(argv, environment, draw.patience)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
