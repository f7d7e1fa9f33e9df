"""Where the things are that the build made, and how a script has them made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3]


def build_folder() -> Path:
    """The build folder: OVSDR_BUILD, or build/ beside the sources."""
    return Path(os.environ.get("OVSDR_BUILD", SOURCE / "build")).resolve()


def asan_folder() -> Path:
    """What is built under AddressSanitizer and UBSan, by clang."""
    return build_folder() / "asan-clang"


def daemon() -> Path:
    """The wrapper that starts our ovs-vswitchd on the soft NIC."""
    return build_folder() / "ctrl" / "ovs-vswitchd"


def drnic() -> Path:
    return build_folder() / "tools" / "drnic" / "drnic"


def softnic_libraries() -> Path:
    """The folder with the soft NIC's libibverbs.so.1 and libmlx5.so.1."""
    return build_folder() / "datapath" / "verbs" / "lib"


def drgen() -> Path:
    return build_folder() / "tools" / "drgen" / "drgen"


def drcompile() -> Path:
    return build_folder() / "tools" / "drcompile" / "drcompile"


def drexporter() -> Path:
    return build_folder() / "tools" / "drexporter" / "drexporter"


def missing() -> list[str]:
    """What a lab on the soft NIC needs and the build folder does not have."""
    return [str(path) for path in (daemon(), drnic()) if not path.exists()]


def make(*targets: str) -> None:
    """Builds targets of the build folder, and configures it where that is not done yet."""
    folder = build_folder()
    if not (folder / "build.ninja").exists():
        # Of a set-up that was interrupted: it would make meson say that all is done.
        (folder / "meson-private" / "coredata.dat").unlink(missing_ok=True)
        subprocess.run(["meson", "setup", str(folder), str(SOURCE)], check=True, stdout=sys.stderr)
    subprocess.run(["ninja", "-C", str(folder), *targets], check=True, stdout=sys.stderr)


def make_lab() -> None:
    """Builds what a lab on the soft NIC needs, Open vSwitch too. Raises CalledProcessError."""
    set_up("setup_lab")


def make_asan(*targets: str) -> None:
    """Builds targets of asan_folder(), Open vSwitch too. Raises CalledProcessError."""
    set_up("setup_ovs; setup_asan --", *targets)


def set_up(steps: str, *arguments: str) -> None:
    """Steps of tools/lib/setup; the arguments are the last one's."""
    script = f'program=build; source=$1; shift; . "$source/tools/lib/setup"; {steps} "$@"'
    subprocess.run(["bash", "-euo", "pipefail", "-c", script, "bash", str(SOURCE), *arguments], check=True,
                   stdout=sys.stderr, env={**os.environ, "OVSDR_BUILD": str(build_folder())})
