"""Where the things are that the build made."""

from __future__ import annotations

import os
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
