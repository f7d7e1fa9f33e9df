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


def daemon() -> Path:
    """The wrapper that starts our ovs-vswitchd on the soft NIC."""
    return build_folder() / "ctrl" / "ovs-vswitchd"


def drnic() -> Path:
    return build_folder() / "tools" / "drnic" / "drnic"


def drgen() -> Path:
    return build_folder() / "tools" / "drgen" / "drgen"


def missing() -> list[str]:
    """What a lab on the soft NIC needs and the build folder does not have."""
    return [str(path) for path in (daemon(), drnic()) if not path.exists()]


def make(*targets: str) -> None:
    """Builds targets of the build folder, and configures it where that is not done yet."""
    folder = build_folder()
    if not (folder / "build.ninja").exists():
        subprocess.run(["meson", "setup", str(folder), str(SOURCE)], check=True, stdout=sys.stderr)
    subprocess.run(["ninja", "-C", str(folder), *targets], check=True, stdout=sys.stderr)


def make_lab() -> None:
    """Builds what a lab on the soft NIC needs, Open vSwitch too. Raises CalledProcessError."""
    script = 'program=build; source=$1; . "$source/tools/lib/setup"; setup_lab'
    subprocess.run(["bash", "-euo", "pipefail", "-c", script, "bash", str(SOURCE)], check=True, stdout=sys.stderr,
                   env={**os.environ, "OVSDR_BUILD": str(build_folder())})
