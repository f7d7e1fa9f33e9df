"""Whether each line of code is within the columns that the house allows.

Code is C, C++, Python, what meson and autotest read, and scripts: whatever begins with "#!". Everything else is data
or prose, whose lines are as long as they are: tables, captured text, inputs of fuzz targets, Markdown. A column is a
character.
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, Iterator

COLUMNS_AT_MOST = 120
SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".in", ".py", ".build", ".at"}


def is_code(path: Path) -> bool:
    if path.suffix in SUFFIXES or path.name == "meson_options.txt":
        return True
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def long_lines(source: Path, folders: Iterable[str]) -> Iterator[str]:
    """`FILE:LINE: has N columns, …` for each such line of code in `source` itself and below its `folders`."""
    paths = [*source.iterdir(), *(path for folder in folders for path in (source / folder).rglob("*"))]
    for path in sorted(path for path in paths if path.is_file() and is_code(path)):
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            if len(line) > COLUMNS_AT_MOST:
                yield f"{path.relative_to(source)}:{number}: has {len(line)} columns, more than {COLUMNS_AT_MOST}"
