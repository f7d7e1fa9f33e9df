#!/usr/bin/python3
"""Lists what asks injected_fault() whether to fail.

These are the names that stand as literals in datapath/verbs and datapath/rdma.

    fault_points.py HEADER DEPFILE FOLDER...
"""

import re
import sys
from pathlib import Path

# A name alone in quotes: what is passed to injected_fault(), or to a helper that passes it on. A function, or a work
# request.
NAME = re.compile(r'"((?:ibv|mlx5dv|work_request)_[a-z0-9_]+)"')


def main(header: Path, depfile: Path, *folders: Path) -> int:
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in (".cpp", ".hpp"))
    names = sorted({name for path in files for name in NAME.findall(path.read_text())})
    if not names:
        print(f"{folders}: nothing asks for faults", file=sys.stderr)
        return 1
    header.write_text("".join(f'"{name}",\n' for name in names))
    # The folders too: a file that comes or goes changes them.
    watched = sorted({*folders, *(path.parent for path in files)})
    depfile.write_text(f"{header}: {' '.join(map(str, [*watched, *files]))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
