"""Which calls of a NIC's provider offload/ and ctrl/ make, read from their sources and their objects.

Not those of offload/mirror: a connection that fails is made again, and its own tests are tests/unit/offload/mirror.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from lab import build

_CALL = re.compile(r"\b((?:ibv|mlx5dv)_[a-z0-9_]+)\(")
_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"', re.DOTALL)

# They return nothing, or what they cannot fail to have.
NEVER_FAIL = {"ibv_ack_cq_events", "ibv_cq_ex_to_cq", "ibv_end_poll", "ibv_free_device_list", "ibv_get_device_name",
              "ibv_next_poll", "ibv_wc_read_byte_len", "ibv_wc_read_flow_tag", "ibv_wc_status_str",
              "mlx5dv_devx_destroy_event_channel", "mlx5dv_devx_free_uar", "mlx5dv_set_ctrl_seg"}

# What inline functions of the headers fall back to, on a provider without the newer function.
_FALLBACKS = {"ibv_create_qp", "ibv_query_device"}


def _in_sources() -> set[str]:
    files = [path for folder in ("offload", "ctrl") for path in (build.SOURCE / folder).rglob("*")
             if path.suffix in (".c", ".h", ".cpp", ".hpp") and "mirror" not in path.parts]
    return {name for path in files for name in _CALL.findall(_NOT_CODE.sub("", path.read_text()))}


def _in_objects() -> set[str]:
    objects: list[Path] = [path for folder in ("offload", "ctrl")
                           for path in (build.build_folder() / folder).rglob("*.o")
                           if not path.name.startswith("mirror_")]
    symbols = subprocess.run(["nm", "--undefined-only", *map(str, objects)], capture_output=True, text=True,
                             check=True).stdout
    return {name.lstrip("_") for name in re.findall(r" U (_*(?:ibv|mlx5dv)_\w+)", symbols)}


def that_can_fail() -> set[str]:
    """Sources know inline functions, objects what macros hide; both must tell the same story."""
    sources = _in_sources()
    hidden = _in_objects() - sources - _FALLBACKS
    assert not hidden, f"objects call {sorted(hidden)}, and no source does"
    return sources - NEVER_FAIL
