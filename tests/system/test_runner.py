"""The runner of the suite and its workspaces: what ends when the runner does, and who may clear away what."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest
from lab import build, workspace
from lab.command import wait_until

# Two parts that wait for ever, each in a shell that waits for a child, which takes a moment to clear away: they run
# side by side, one of them as what computes. The log has the ids of both.
RUNNER = """
import importlib.util, os, sys
specification = importlib.util.spec_from_file_location("runner", sys.argv[1])
runner = sys.modules["runner"] = importlib.util.module_from_spec(specification)
specification.loader.exec_module(runner)
child = "trap 'sleep 0.3; touch cleared; exit' TERM; echo $BASHPID ready; while :; do sleep 0.1; done"
waits = ["bash", "-c", f"cd {os.environ['OVSDR_BUILD']}; echo $$; ({child}) & wait"]
parts = [runner.Part(name, "waits", lambda _: waits, runner.read_code, computes=name == "second")
         for name in ("first", "second")]
broken = runner.Part("broken", "cannot be started", lambda _: [missing], runner.read_code)
runner.parts = lambda: [parts[0], broken] if sys.argv[2] == "broken" else parts
sys.exit(runner.main([]))
"""


def runs(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Runner:
    def __init__(self, folder: Path, parts: str) -> None:
        self.logs = [folder / "logs" / f"test-{name}.log" for name in ("first", "second")]
        command = [sys.executable, "-c", RUNNER, str(build.SOURCE / "tools" / "lib" / "test.py"), parts]
        self.process = subprocess.Popen(command, env={**os.environ, "OVSDR_BUILD": str(folder)},
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                        preexec_fn=self._take_interrupts)

    @staticmethod
    def _take_interrupts() -> None:
        """What a shell starts in the background ignores them, and so do its children."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def children(self) -> list[int]:
        texts = [log.read_text() for log in self.logs if log.exists()]
        return [int(word) for text in texts if "ready" in text for word in text.split()[:2]]

    def has_cleared_away(self) -> bool:
        return (self.logs[0].parents[1] / "cleared").exists()


@pytest.fixture
def runner(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Runner]:
    made = Runner(tmp_path, request.param)
    yield made
    made.process.kill()
    made.process.wait()
    for pid in filter(runs, made.children()):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("runner", ["two"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_parts_end_with_the_runner(runner: Runner, number: signal.Signals) -> None:
    """A CI that has waited for long enough sends SIGTERM, a terminal that is closed SIGHUP; the parts have sessions of
    their own. Of a killed runner the parts themselves end: what they have started goes when they clear away."""
    wait_until(lambda: len(runner.children()) == 4, 20, "both parts run")
    shells, children = runner.children()[::2], runner.children()[1::2]
    runner.process.send_signal(number)
    wait_until(lambda: not any(map(runs, shells)), 60, "the parts have ended")
    if number != signal.SIGKILL:
        assert runner.process.wait(60) == 130
        assert not any(map(runs, children)) and runner.has_cleared_away()


@pytest.mark.parametrize("runner", ["broken"], indirect=True)
def test_a_part_that_cannot_be_started_leaves_none_behind(runner: Runner) -> None:
    assert runner.process.wait(60) != 0
    wait_until(lambda: not any(map(runs, runner.children())), 60, "the other part has ended")


def test_a_build_folder_whose_configuration_was_interrupted_is_configured(tmp_path: Path) -> None:
    """meson writes what makes it take a folder for configured before what ninja reads."""
    (tmp_path / "meson.build").write_text("project('nothing')\n")
    script = ('program=test source=$1 OVSDR_BUILD=$1/build; . "$2/tools/lib/setup"; ovs_dir=x; '
              'setup_build "$1/build/plain"')
    argv = ["bash", "-euo", "pipefail", "-c", script, "bash", str(tmp_path), str(build.SOURCE)]
    (tmp_path / "meson_options.txt").write_text("option('ovs', type: 'string')\n")
    (tmp_path / "tools" / "lib").mkdir(parents=True)
    (tmp_path / "tools" / "lib" / "ccache").touch()
    for _ in range(2):
        subprocess.run(argv, check=True, timeout=60, stdout=subprocess.DEVNULL)
        (tmp_path / "build" / "plain" / "build.ninja").unlink()


# tools/lib/setup with a package that is missing, and the path of a policy that nobody obeys.
INSTALL = """
program=test source=$1 OVSDR_BUILD=$2
. "$source/tools/lib/setup"
policy_file=$2/policy
missing_packages() { [[ -e $2/installed ]] || echo something; }
PATH=$2:$PATH
setup_packages
"""


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGKILL])
def test_services_may_start_again_when_packages_are_installed(tmp_path: Path, number: signal.Signals | None) -> None:
    """Until then the policy forbids it, and it must not stay when the installation is interrupted."""
    folder = tmp_path
    apt = folder / "apt-get"
    apt.write_text(f"#!/bin/sh\ntouch {folder}/begun\nwhile ! [ -e {folder}/go ]; do sleep 0.05; done\n"
                   f"touch {folder}/installed {folder}/done\n")
    apt.chmod(0o755)
    policy = folder / "policy"
    argv = ["bash", "-euo", "pipefail", "-c", INSTALL.replace("$2/installed", f"{folder}/installed"), "bash",
            str(build.SOURCE), str(folder)]
    with subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL) as setup:
        wait_until((folder / "begun").exists, 20, "apt-get runs")
        for service in ("openvswitch-switch", "ovn-central", "ovn-host"):
            assert subprocess.run([str(policy), service, "start"], check=False).returncode == 101
        if number == signal.SIGKILL:
            os.killpg(setup.pid, number)
        elif number is not None:
            setup.send_signal(number)
            setup.wait(20)
            assert policy.exists() and not (folder / "done").exists()
        (folder / "go").touch()
        if number is None:
            assert setup.wait(20) == 0
    if number == signal.SIGKILL:
        (folder / "installed").unlink(missing_ok=True)
        assert policy.exists()
        subprocess.run(argv, check=True, timeout=20, stdout=subprocess.DEVNULL)
    wait_until(lambda: not policy.exists(), 20, "the policy is gone")
    assert (folder / "done").exists()


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
