"""The runner of the suite and its workspaces: what ends when the runner does, and who may clear away what."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab import workspace


def test_a_folder_without_an_owner_is_its_makers(tmp_path: Path) -> None:
    """A workspace is made in steps, and another process may look for leftovers between any two of them."""
    with subprocess.Popen(["sleep", "1000"]) as maker:
        folder = workspace.ROOT / f"ovsdr-test-{maker.pid}-1"
        try:
            folder.mkdir(parents=True)
            assert folder.name not in workspace.leftovers()
            (folder / "owner").touch()
            assert folder.name not in workspace.leftovers()
            maker.kill()
            maker.wait()
            assert folder.name in workspace.leftovers()
        finally:
            maker.kill()
            workspace.remove(folder.name)
