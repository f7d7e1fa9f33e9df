#!/usr/bin/python3
"""tests/checks bites: lines that are too long are named by file, line and length, in code and nowhere else."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

CHECKS = Path(__file__).resolve().parents[2] / "checks"
sys.path.insert(0, str(CHECKS))

from line_lengths import COLUMNS_AT_MOST, long_lines  # noqa: E402

WHOLE, TOO_LONG = "x" * COLUMNS_AT_MOST, "x" * (COLUMNS_AT_MOST + 1)


class LineLengths(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = Path(folder.name)

    def write(self, name: str, *lines: str) -> None:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join((*lines, "")), encoding="utf-8")

    def faults(self) -> list[str]:
        return list(long_lines(self.source, ("datapath", "tests")))

    def test_names_file_line_and_length(self) -> None:
        self.write("datapath/steering/key.cpp", "", WHOLE, TOO_LONG + "yz")
        self.assertEqual(self.faults(), ["datapath/steering/key.cpp:3: has 123 columns, more than 120"])

    def test_a_whole_line_is_allowed(self) -> None:
        self.write("datapath/key.cpp", WHOLE, WHOLE)
        self.assertEqual(self.faults(), [])

    def test_counts_characters_and_not_bytes(self) -> None:
        self.write("datapath/key.cpp", "µ" * COLUMNS_AT_MOST)
        self.assertEqual(self.faults(), [])

    def test_looks_at_all_code(self) -> None:
        code = ["a.c", "a.h", "a.cpp", "a.hpp", "a.cpp.in", "a.py", "meson.build", "a.at"]
        for name in code:
            self.write(f"tests/{name}", TOO_LONG)
        self.write("tests/script", "#!/bin/sh", TOO_LONG)
        self.write("meson.build", TOO_LONG)
        self.write("meson_options.txt", TOO_LONG)
        lines = {"meson.build:1", "meson_options.txt:1", "tests/script:2", *(f"tests/{name}:1" for name in code)}
        self.assertEqual({fault.partition(": ")[0] for fault in self.faults()}, lines)

    def test_data_and_prose_have_lines_of_any_length(self) -> None:
        for name in ("a.csv", "a.md", "a.txt", "a.supp", "golden"):
            self.write(f"tests/{name}", TOO_LONG)
        (self.source / "tests" / "input").write_bytes(b"\xff\0" * COLUMNS_AT_MOST)
        self.assertEqual(self.faults(), [])

    def test_is_one_of_the_checks_of_the_house(self) -> None:
        self.write("ctrl/port.cpp", TOO_LONG)
        self.write("build/made.cpp", TOO_LONG)
        house = house_checks()
        house.SOURCE = self.source
        self.assertEqual([fault.partition(": ")[0] for fault in house.CHECKS["no line is too long"]()],
                         ["ctrl/port.cpp:1"])


def house_checks() -> ModuleType:
    loader = SourceFileLoader("house_checks", str(CHECKS / "run"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
