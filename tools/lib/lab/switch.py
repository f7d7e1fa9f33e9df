"""A private Open vSwitch: its own ovsdb-server, database and sockets, and a vswitchd in a namespace of its own.

The taps that a netdev datapath makes (br0, ovs-netdev) are born in that namespace and die with it, so several
switches, and the host's own, do not meet. The database and control sockets are files: the stock tools reach them from
anywhere when OVS_RUNDIR names their folder.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Sequence

from .command import Background, CommandError, run, wait_until
from .namespace import Namespace

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
STOCK_DAEMON = "/usr/lib/openvswitch-switch/ovs-vswitchd"
STOCK_DPDK_DAEMON = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"

# ovs-ctl's default for both daemons. Without it a switch that wakes up waits for whoever computes to use up a time
# slice.
PRIORITY = ["nice", "-n", "-10"]


def stock_dpdk_daemon(folder: Path) -> str:
    """Its pidfile and control socket are named after argv[0]: the tools look for ovs-vswitchd."""
    daemon = folder / "ovs-vswitchd"
    daemon.symlink_to(STOCK_DPDK_DAEMON)
    return str(daemon)


class Switch:
    """ovsdb-server and vswitchd in `namespace`, with their files in `folder`."""

    def __init__(self, namespace: Namespace, folder: Path, daemon: str, *, environment: dict[str, str] | None = None,
                 daemon_arguments: Sequence[str] = ()) -> None:
        self.namespace = namespace
        self.folder = folder
        self.daemon_path = daemon
        self.daemon_arguments = list(daemon_arguments)
        self.environment = {"OVS_RUNDIR": str(folder), "OVS_LOGDIR": str(folder), "OVS_DBDIR": str(folder),
                            "OVS_SYSCONFDIR": str(folder)}
        self.daemon_environment = {**self.environment, **(environment or {})}
        self.database: Background | None = None
        self.daemon: Background | None = None

    @property
    def log(self) -> Path:
        return self.folder / "ovs-vswitchd.log"

    def start_database(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        run(["ovsdb-tool", "create", str(self.folder / "conf.db"), SCHEMA])
        self.start_database_again()

    def start_database_again(self) -> None:
        """With what it held when it was stopped."""
        self.database = self.namespace.start(
            [*PRIORITY, "ovsdb-server", str(self.folder / "conf.db"), f"--remote=punix:{self.folder}/db.sock",
             "--pidfile", f"--log-file={self.folder}/ovsdb-server.log", "-vconsole:off"],
            self.folder / "ovsdb-server.out", self.environment)
        wait_until((self.folder / "db.sock").exists, 10, "the database server's socket")
        self.vsctl("--no-wait", "init")

    def start_daemon(self, timeout: float = 60) -> float:
        """Starts vswitchd; returns the seconds until it answers."""
        self.daemon = self.namespace.start(
            [*PRIORITY, self.daemon_path, f"unix:{self.folder}/db.sock", "--pidfile", f"--log-file={self.log}",
             "-vconsole:off", *self.daemon_arguments],
            self.folder / "ovs-vswitchd.out", self.daemon_environment)

        def answers() -> bool:
            if self.daemon is not None and not self.daemon.running():
                raise RuntimeError(f"{self.daemon_path} ended at start: {self.messages()}")
            # The pidfile of a daemon that was killed is still there: the id in it must be the one we started.
            pidfile = self.folder / "ovs-vswitchd.pid"
            try:
                if self.daemon is None or int(pidfile.read_text()) != self.daemon.pid:
                    return False
                self.appctl("version", timeout=5)
                return True
            except (OSError, ValueError, CommandError):
                return False

        return wait_until(answers, timeout, f"{self.daemon_path} answers")

    def start(self) -> "Switch":
        self.start_database()
        self.start_daemon()
        return self

    def stop(self) -> None:
        """Ends both, the daemon with --cleanup so that its taps go."""
        if self.daemon is not None and self.daemon.running():
            try:
                self.appctl("exit", "--cleanup", timeout=60)
                self.daemon.wait(60)
            except CommandError:
                self.daemon.stop()
        if self.database is not None:
            self.database.stop()

    def kill_daemon(self) -> None:
        assert self.daemon is not None
        self.daemon.signal(signal.SIGKILL)
        self.daemon.wait(10)

    def vsctl(self, *arguments: str, timeout: float = 30, check: bool = True) -> str:
        return run(["ovs-vsctl", f"--timeout={int(timeout)}", *arguments], env=self.environment, timeout=timeout + 5,
                   check=check)

    def ofctl(self, *arguments: str, check: bool = True) -> str:
        return run(["ovs-ofctl", *arguments], env=self.environment, check=check)

    def appctl(self, *arguments: str, timeout: float = 30, check: bool = True) -> str:
        return run(["ovs-appctl", "-t", "ovs-vswitchd", *arguments], env=self.environment, timeout=timeout,
                   check=check)

    def add_flows(self, bridge: str, flows: Sequence[str]) -> None:
        """All flows in one bundle-free transaction, as ovs-ofctl reads them from a file."""
        listing = self.folder / "flows.txt"
        listing.write_text("\n".join(flows) + "\n")
        self.ofctl("add-flows", bridge, str(listing))

    def interface(self, name: str, column: str) -> object:
        """A column of the Interface table as JSON gives it; maps become dictionaries, an empty set is None."""
        table = json.loads(self.vsctl("--format=json", "--columns", column, "list", "Interface", name))
        return _plain(table["data"][0][0])

    def messages(self) -> str:
        """Warnings and errors of the daemon's log, and what it wrote to its console."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        notable = [line for line in lines if "|WARN|" in line or "|ERR|" in line or "|EMER|" in line]
        console = (self.folder / "ovs-vswitchd.out")
        said = console.read_text(errors="replace") if console.exists() else ""
        return "\n".join([*notable[-20:], said[-2000:]]).strip()

    def cpu_seconds(self) -> float:
        """CPU time of the daemon, user and system, all threads."""
        assert self.daemon is not None
        fields = Path(f"/proc/{self.daemon.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _plain(value: object) -> object:
    if isinstance(value, list) and len(value) == 2 and value[0] == "map":
        return {str(key): _plain(item) for key, item in value[1]}
    if isinstance(value, list) and len(value) == 2 and value[0] == "set":
        return [_plain(item) for item in value[1]] or None
    if isinstance(value, list) and len(value) == 2 and value[0] == "uuid":
        return value[1]
    return value
