#!/usr/bin/python3
"""Prints the targets of a plain build folder that the default parts of the test suite run: programs, libraries,
benchmarks, and of the unit tests those of suite `connectx`. The others are run in the sanitizers' build, and compiling
them takes as long as all the rest.

Usage: targets.py BUILD_FOLDER, which has been configured.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def targets(folder: Path) -> list[str]:
    def told(what: str) -> list[dict]:
        return json.loads((folder / "meson-info" / f"intro-{what}.json").read_text())
    needed = {target for test in told("tests") if "ovs-dr:connectx" in test["suite"] for target in test["depends"]}

    def is_wanted(target: dict) -> bool:
        is_unit_test = "/tests/unit/" in target["defined_in"]
        return target["id"] in needed or (target["build_by_default"] and not is_unit_test)
    return [os.path.relpath(file, folder) for target in told("targets") if is_wanted(target)
            for file in target["filename"]]


if __name__ == "__main__":
    print("\n".join(targets(Path(sys.argv[1]).resolve())))
