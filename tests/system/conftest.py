"""Fixtures of the system tests. OVSDR_LAB=stock runs the harness itself against Debian's own ovs-vswitchd."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Iterator

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "lib"))

from lab import build  # noqa: E402
from lab.lab import Lab  # noqa: E402
from lab.workspace import Workspace, end_like_interrupt  # noqa: E402

pytest.register_assert_rewrite("helpers")

KIND = os.environ.get("OVSDR_LAB", "dr")


def pytest_configure(config: pytest.Config) -> None:
    end_like_interrupt()
    config.addinivalue_line("markers", "dr_only: says nothing about a stock switch")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if KIND == "dr":
        return
    for item in items:
        if item.get_closest_marker("dr_only"):
            item.add_marker(pytest.mark.skip(reason="needs our daemon; OVSDR_LAB is not dr"))


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    if os.geteuid() != 0:
        pytest.exit("run it as root: it makes network namespaces", returncode=2)
    if KIND == "dr" and (missing := build.missing()):
        pytest.exit(f"not built: {' '.join(missing)}", returncode=2)


@pytest.fixture
def workspace(request: pytest.FixtureRequest) -> Iterator[Workspace]:
    with Workspace("test") as made:
        yield made
        # What the daemon said goes with a failure's report.
        failed = getattr(request.node, "failed", False)
        log = made.folder / "ovs-vswitchd.log"
        if failed and log.exists():
            lines = log.read_text(errors="replace").splitlines()
            print("\n--- ovs-vswitchd.log, warnings and errors, then its end")
            print("\n".join([line for line in lines if "|WARN|" in line or "|ERR|" in line][-30:]))
            print("\n".join(lines[-15:]))
            print((made.folder / "ovs-vswitchd.out").read_text(errors="replace")[-4000:])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    if outcome.get_result().failed:  # type: ignore[attr-defined]
        item.failed = True  # type: ignore[attr-defined]


@pytest.fixture
def lab(workspace: Workspace) -> Lab:
    """Three VMs and an uplink, offload on, fail_mode secure: no flow but those that a test adds."""
    made = Lab(workspace, kind=KIND)
    made.wire_all(vms=3)
    made.fix_neighbours()
    made.start(offload=True, fail_mode="secure")
    return made


@pytest.fixture
def normal_lab(lab: Lab) -> Lab:
    """The same with a learning switch's single flow."""
    lab.switch.add_flows("br0", ["actions=NORMAL"])
    return lab


@pytest.fixture(scope="session")
def lab_kind() -> str:
    return KIND
