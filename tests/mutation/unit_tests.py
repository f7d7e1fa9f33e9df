"""The soft NIC's own tests and rdma-core's suite as a judge of breaks."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from areas import AREAS
from bench import Bench, Test
from operators import Break


@dataclass
class UnitTests:
    """Makes breaks on a bench and asks the tests that link the broken code, then rdma-core's suite."""

    bench: Bench
    with_conformance: bool
    objects: dict[Path, list[str]] = field(default_factory=dict)
    unbroken: dict[str, str] = field(default_factory=dict)           # digest of each test's programs
    conformance_seconds: dict[str, float] = field(default_factory=dict)
    caught: Counter[tuple[Path, str]] = field(default_factory=Counter)   # breaks of a file by a test

    def own_folder(self, file: Path) -> Path:
        """Where the tests of a file's folder are: programs of a whole area are declared in the folder above its
        rooms."""
        declared = {test.folder for test in self.bench.tests.values()}
        return file.parent if file.parent in declared else file.parent.parent

    def keep_near(self, areas: list[str]) -> None:
        """Forgets the tests that are neither an area's nearest nor in a folder of its sources."""
        folders = {self.own_folder(Path(pattern)) for area in areas for pattern in AREAS[area].sources}
        nearest = {AREAS[area].near[0] for area in areas}
        self.bench.tests = {name: test for name, test in self.bench.tests.items()
                            if name in nearest or (test.folder in folders and len(test.targets) == 1)}

    def prepare(self, areas: list[str]) -> None:
        """Builds everything unbroken and sees it pass. A program that passed in an earlier run is not asked again."""
        kept = self.bench.build / "unbroken.json"
        known = json.loads(kept.read_text()) if kept.exists() else {}
        if not self.bench.make([target for test in self.bench.tests.values() for target in test.targets]):
            sys.exit("mutation: does not build unbroken")
        self.objects = self.bench.objects_by_source()
        for test in self.bench.tests.values():
            digest = self.unbroken[test.name] = self.bench.digest_of_test(test)
            if digest in known:
                test.cases = known[digest]
            elif self.bench.time(test):
                known[digest] = test.cases
            else:
                sys.exit(f"mutation: fails unbroken: {test.name} ({shlex.join(test.argv)})")
            kept.write_text(json.dumps(known))
        for area in areas if self.with_conformance else []:
            begin = time.monotonic()
            if not self.bench.conforms(AREAS[area].conformance, 600):
                sys.exit(f"mutation: fails unbroken: rdma-core's {' '.join(AREAS[area].conformance)}")
            self.conformance_seconds[area] = time.monotonic() - begin

    def tests_for(self, area: str, file: Path) -> list[Test]:
        """Those of the file's own folder, then the area's, then the others; whoever has caught breaks of the file
        first, then the quickest."""
        own_folder = self.own_folder(file)

        def farness(test: Test) -> tuple[int, int, int, float]:
            near = AREAS[area].near
            own = test.folder == own_folder
            return (0 if own else 1,
                    near.index(test.name) if test.name in near and not own else len(near) if not own else 0,
                    -self.caught[file, test.name], test.seconds)
        return sorted(self.bench.tests.values(), key=farness)

    def catcher_of(self, area: str, item: Break) -> str | None:
        """Who noticed `item`: empty when nobody did, None when it is no break."""
        # A header's break shows in the programs: to compile all that includes it would take too long.
        objects = self.objects.get(item.file, []) if item.file.suffix == ".cpp" else []
        with self.bench.broken(item, objects) as is_break:
            return self.objection_to(area, item) if is_break else None

    def objection_to(self, area: str, item: Break) -> str | None:
        """The same of a break that is made already."""
        changed = False
        for test in self.tests_for(area, item.file):
            if not self.bench.make(test.targets, broken=True):
                return None
            if self.bench.digest_of_test(test) == self.unbroken[test.name]:
                continue
            changed = True
            if objection := self.bench.objection_of(test):
                self.caught[item.file, test.name] += 1
                return objection
        if changed and self.with_conformance:
            modules = AREAS[area].conformance
            if not self.bench.conforms(modules, 4 * self.conformance_seconds[area] + 20):
                return "rdma-core's " + " ".join(modules)
        return "" if changed else None
