"""Our daemon in the place of Debian's: update-alternatives, then stock ovs-ctl as the unit files call it, and stock
tools.

All of it in a mount namespace of its own, in which /run, /var/log, /etc/openvswitch and the list of alternatives are
copies: the host's own Open vSwitch, running or not, notices nothing.
"""

from __future__ import annotations

import json
import time
from typing import Iterator

import pytest

from helpers import figure
from lab import build
from lab.command import Background, run, wait_until
from lab.lab import BRIDGE, Lab
from lab.softnic import DEVICE
from lab.traffic import ping
from lab.workspace import Workspace

pytestmark = pytest.mark.dr_only

OVS_CTL = "/usr/share/openvswitch/scripts/ovs-ctl"
# ovs-ctl as Debian's two unit files have it, start and stop of both daemons in one.
START = [OVS_CTL, "--no-monitor", "--system-id=random", "--no-record-hostname", "start"]
RESTART = [OVS_CTL, "--no-monitor", "--system-id=random", "--no-record-hostname", "restart"]
PRIVATE = """
set -e
for folder in /etc/alternatives /var/lib/dpkg/alternatives; do
    mkdir -p "$1$folder"; cp -a "$folder/." "$1$folder"; mount --bind "$1$folder" "$folder"
done
for folder in /etc/openvswitch /var/log/openvswitch /var/lib/openvswitch; do
    mkdir -p "$1$folder" "$folder"; mount --bind "$1$folder" "$folder"
done
mkdir -p "$1/run/openvswitch" /run/openvswitch; mount --bind "$1/run/openvswitch" /run/openvswitch
: > "$1/ready"
exec sleep infinity
"""


class Host:
    """The switch's network namespace with files of its own."""

    def __init__(self, workspace: Workspace, lab: Lab) -> None:
        self.lab = lab
        self.folder = workspace.folder / "host"
        self.folder.mkdir()
        keeper = Background(lab.namespace.command(["unshare", "--mount", "--propagation", "private",
                                                   "bash", "-c", PRIVATE, "private", str(self.folder)]),
                            workspace.folder / "host.out")
        workspace.defer(keeper.stop)
        wait_until((self.folder / "ready").exists, 10, f"a mount namespace ({keeper.log.read_text()})")
        self.keeper = keeper

    def run(self, *argv: str, check: bool = True) -> str:
        """Stock tools with their own ideas of where things are: no OVS_RUNDIR and the like."""
        return run(["nsenter", "-t", str(self.keeper.pid), "--mount", "--net", *argv],
                   env=self.lab.nic.environment(), check=check)


@pytest.fixture
def host(workspace: Workspace) -> Iterator[Host]:
    lab = Lab(workspace)
    lab.wire_all(vms=2, uplink=False)
    lab.fix_neighbours()
    lab.nic.write()
    made = Host(workspace, lab)
    made.run("update-alternatives", "--install", "/usr/sbin/ovs-vswitchd", "ovs-vswitchd", str(build.daemon()), "150")
    yield made
    made.run(OVS_CTL, "stop", check=False)


def offloaded(host: Host) -> int:
    flows = host.run("ovs-appctl", "dpctl/dump-flows", "-m", "type=offloaded")
    return sum("offloaded:yes, dp:dr" in line for line in flows.splitlines())


def assert_pings(host: Host) -> None:
    source, target = host.lab.guests
    wait_until(lambda: ping(source.namespace, target.address, count=1).received == 1, 10, "the first ping")
    assert ping(source.namespace, target.address, count=5).received == 5
    assert offloaded(host) >= 2


def test_stock_ovs_ctl_drives_our_daemon(host: Host) -> None:
    assert "Starting ovs-vswitchd" in host.run(*START)
    status = host.run(OVS_CTL, "status")
    assert "ovsdb-server is running" in status and "ovs-vswitchd is running" in status

    host.run("ovs-vsctl", "set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    host.run("ovs-vsctl", "add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev")
    for guest in host.lab.guests:
        host.run("ovs-vsctl", "add-port", BRIDGE, guest.port, "--", "set", "interface", guest.port, "type=dr",
                 f"options:device={DEVICE}", f"options:vport={guest.vport}")
    assert "error" not in host.run("ovs-vsctl", "show")
    assert_pings(host)
    ports = json.loads(host.run("ovs-appctl", "dr/ports", "-j"))
    assert ports

    # A restart as an upgrade of the package does it: bridge, ports, flows and traffic come back.
    host.run("ovs-ofctl", "add-flow", BRIDGE, "priority=7,ip,nw_dst=192.0.2.1,actions=drop")
    begin = time.monotonic()
    host.run(*RESTART)
    assert_pings(host)
    took = time.monotonic() - begin
    assert "nw_dst=192.0.2.1" in host.run("ovs-ofctl", "dump-flows", BRIDGE)

    host.run(OVS_CTL, "stop")
    assert "is not running" in host.run(OVS_CTL, "status", check=False)
    figure(f"ovs-ctl start, restart (traffic offloaded again after {took:.1f} s), status and stop drive our daemon")


def test_removing_the_alternative_brings_the_stock_daemon_back(host: Host) -> None:
    host.run("update-alternatives", "--remove", "ovs-vswitchd", str(build.daemon()))
    host.run(*START)
    host.run("ovs-vsctl", "add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev")
    assert "dr/ports" not in host.run("ovs-appctl", "list-commands")
    figure("without the alternative it is the stock daemon")
