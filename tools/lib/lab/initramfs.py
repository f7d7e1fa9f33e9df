"""What a guest's kernel unpacks into its memory: programs with the libraries that they load, as an archive."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from .command import run


def program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"there is no {name}")
    return Path(found)


def libraries_of(binary: Path, search: Path | None = None) -> set[Path]:
    """Those that the loader would take, by the names that it looks for; in `search` first."""
    listed = run(["ldd", str(binary)], env={"LD_LIBRARY_PATH": str(search)} if search else None)
    return {Path(found) for found in re.findall(r"(?:=> |^\s*)(/\S+) \(0x", listed, re.MULTILINE)}


def add(source: Path, tree: Path, place: str) -> None:
    target = tree / place.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source.resolve(), target)
    target.chmod(0o755)


def add_program(name: str, tree: Path) -> None:
    """Into /bin, with its libraries where they are on this host."""
    binary = program(name)
    add(binary, tree, f"/bin/{name}")
    for library in libraries_of(binary):
        add(library, tree, str(library))


def append(tree: Path, archive: Path) -> None:
    """The tree goes to the end of the archive, and is gone then. The kernel unpacks one archive after the other."""
    run(["sh", "-c", f"cd '{tree}' && find . | /bin/busybox cpio -o -H newc 2>/dev/null >>'{archive}'"])
    shutil.rmtree(tree)
