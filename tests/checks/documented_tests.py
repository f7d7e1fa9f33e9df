"""Whether the tests that docs/conformance/ names are there.

In a row's last cell stand files (in backquotes, below tests/ or by their name alone), names of test cases, whole or
begun ("ReportsTheFirstBadBlock…"), modules of rdma-core's suite, and short names that the page's head explains (in
backquotes).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator

SUITE = Path("/usr/share/doc/rdma-core/tests")
CASE = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)")


class KnownTests:
    def __init__(self, tests: Path) -> None:
        self.root = tests
        self.files = {path.name for path in tests.rglob("*") if path.suffix in (".cpp", ".py")}
        self.cases: set[str] = set()
        for path in tests.rglob("*.cpp"):
            for suite, case in CASE.findall(path.read_text()):
                self.cases |= {suite, case}
        # Without the package nothing can be said of the suite's modules.
        self.modules = {path.name.split(".")[0] for path in SUITE.iterdir()} if SUITE.is_dir() else None

    def has_file(self, name: str) -> bool:
        return name in self.files or ("/" in name and (self.root / name).exists())

    def has_case(self, name: str) -> bool:
        if name.endswith("…"):
            return any(case.startswith(name[:-1]) for case in self.cases)
        return name in self.cases

    def has_module(self, name: str) -> bool:
        return self.modules is None or name in self.modules or f"{name}.py" in self.files


def faults_of_cell(cell: str, head: str, known: KnownTests) -> Iterator[str]:
    if not cell:
        yield "names no test"
    for name in re.findall(r"`([^`]+)`", cell):
        if "/" in name or "." in name:
            if not known.has_file(name):
                yield f"there is no file {name}"
        elif f"`{name}`" not in head:
            yield f"the page's head does not explain `{name}`"
    words = re.sub(r"`[^`]+`|\([^)]*\)", " ", cell)
    for name in re.findall(r"\b[A-Z]\w{5,}…?", words):
        if not known.has_case(name):
            yield f"there is no test {name}"
    for name in re.findall(r"\b(?:test_\w+|\w+_test)\b", words):
        if not (known.has_module(name) if name.startswith("test_") else known.has_file(f"{name}.cpp")):
            yield f"there is no {name}"


def documented_tests(source: Path) -> Iterator[str]:
    known = KnownTests(source / "tests")
    for page in sorted((source / "docs" / "conformance").glob("*.md")):
        lines = page.read_text().splitlines()
        head = "\n".join(lines[:next(number for number, line in enumerate(lines) if line.startswith("|"))])
        for number, line in enumerate(lines, 1):
            cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
            if len(cells) < 3 or cells[0] in ("item", "---"):
                continue
            for fault in faults_of_cell(cells[-1], head, known):
                yield f"{page.relative_to(source)}:{number}: {cells[0]}: {fault}"
