#!/usr/bin/python3
"""Lists the functions that ask injected_fault() whether to fail: the names that stand as literals below datapath/verbs.

    fault_points.py FOLDER HEADER DEPFILE
"""

import re
import sys
from pathlib import Path

# A name alone in quotes: what is passed to injected_fault(), or to a helper that passes it on.
NAME = re.compile(r'"((?:ibv|mlx5dv)_[a-z0-9_]+)"')


def main(folder: Path, header: Path, depfile: Path) -> int:
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".cpp", ".hpp"))
    names = sorted({name for path in files for name in NAME.findall(path.read_text())})
    if not names:
        print(f"{folder}: nothing asks for faults", file=sys.stderr)
        return 1
    header.write_text("".join(f'"{name}",\n' for name in names))
    # The folders too: a file that comes or goes changes its own.
    folders = sorted({folder, *(path.parent for path in files)})
    depfile.write_text(f"{header}: {' '.join(map(str, [*folders, *files]))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
