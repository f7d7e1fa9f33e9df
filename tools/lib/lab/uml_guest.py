"""Guests under User Mode Linux (package user-mode-linux): a kernel as processes of this host, which need no KVM and
leave the processor what it is. Their system calls cost some microseconds more than a machine's, and they have one
processor; a kernel's own work, that of TCP for instance, runs as fast as anywhere.

A guest's NIC is virtio-net on a vhost-user socket, or a tap of the namespace that the guest runs in. In it are busybox,
iperf3 and ethtool, and a shell reads commands from the console.

Its memory is a file on a tmpfs that has no name. A guest is to end before its switch: its driver does not like to be
left alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from .command import Background, wait_until
from .console import Console
from .initramfs import add, add_program, append
from .namespace import Namespace
from .traffic import Iperf, iperf_result
from .vhost_relay import VhostRelay
from .workspace import Workspace

PACKAGE = "user-mode-linux"
KERNEL = Path("/usr/bin/linux.uml")
MEMORY_MB = 256
PATIENCE = 5   # seconds for an end
_MODULES = ("failover", "net_failover", "virtio_net")
_INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
for module in MODULES; do insmod /lib/$module.ko; done
for word in $(cat /proc/cmdline); do
    case $word in ovsdr.*) eval "${word#ovsdr.}" ;; esac
done
ip link set lo up
ip link set $nic address $mac && ip address add $address dev $nic && ip link set $nic up
stty -echo -onlcr
echo GUEST-READY
while read -r line; do
    eval "$line" 2>&1 </dev/null
    echo "GUEST-DONE $?"
done
"""


def missing() -> str:
    """What is not there for it; empty: it can run."""
    return "" if KERNEL.exists() else f"no {KERNEL}: package {PACKAGE} is not installed"


def make_initramfs(folder: Path) -> Path:
    """For any number of guests."""
    tree, made = folder / "uml-tree", folder / "uml-initramfs"
    for name in ("dev", "proc", "sys", "tmp", "run", "lib"):
        (tree / name).mkdir(parents=True)
    add(Path("/bin/busybox"), tree, "/bin/busybox")
    for name in ("iperf3", "ethtool"):
        add_program(name, tree)
    for module in _MODULES:
        found = next(Path("/usr/lib/uml/modules").rglob(f"{module}.ko"))
        add(found, tree, f"/lib/{module}.ko")
    init = tree / "init"
    init.write_text(_INIT.replace("MODULES", " ".join(_MODULES)))
    init.chmod(0o755)
    append(tree, made)
    return made


@dataclass(frozen=True)
class Nic:
    """How the guest calls it, and what its kernel is told of it."""

    device: str
    argument: str


def vhost_nic(relay: VhostRelay) -> Nic:
    return Nic("eth0", f"virtio_uml.device={relay.guest}:1")


def tap_nic(tap: str, *, offloads: bool) -> Nic:
    """`tap` is there, with virtio's header if there are to be offloads. UML has two drivers for it: one always leaves
    checksums and segments to the tap, and takes long packets (gro=1), and one sends and takes none but whole ones."""
    if offloads:
        return Nic("vec0", f"vec0:transport=tap,ifname={tap},gro=1")
    return Nic("eth0", f"eth0=tuntap,{tap}")


class UmlGuest:
    def __init__(self, workspace: Workspace, name: str, namespace: Namespace, nic: Nic, *, initramfs: Path, mac: str,
                 address: str, cpu: int | None = None) -> None:
        """It runs in `namespace`, on `cpu` if that is given, and has `address` (without a prefix length) in a network
        of 24 bits."""
        self.name = name
        self.nic = nic
        self.address = address
        self._log = workspace.folder / f"{name}.uml"
        self._namespace = namespace
        pinned = [] if cpu is None else ["taskset", "-c", str(cpu)]
        self._argv = [*pinned, str(KERNEL), f"mem={MEMORY_MB}M", f"initrd={initramfs}", "rdinit=/init", "quiet",
                      "con=null", "con0=fd:0", f"umid={name}", f"uml_dir={workspace.folder}", nic.argument,
                      f"ovsdr.nic={nic.device}", f"ovsdr.mac={mac}", f"ovsdr.address={address}/24"]
        self.process: Background | None = None
        self._console: Console | None = None
        workspace.defer(self.stop)

    def launch(self) -> None:
        ours, guests = socket.socketpair()
        with guests:
            self.process = Background(self._namespace.command(self._argv), self._log, {"TMPDIR": "/dev/shm"},
                                      stdin=guests.fileno())
        pid = self.process.pid
        self._console = Console(ours, self.name, lambda: not _has_ended(pid), self.process.output)

    def wait_ready(self, timeout: float = 60) -> None:
        assert self._console is not None
        self._console.wait_ready(timeout)

    def run(self, command: str, *, check: bool = True, timeout: float = 60) -> str:
        """What a command of the guest's shell writes."""
        assert self._console is not None
        return self._console.run(command, check=check, timeout=timeout)

    def set_neighbour(self, address: str, mac: str) -> None:
        self.run(f"arp -s {address} {mac}")

    def serve(self, port: int = 5201) -> None:
        """Starts an iperf3 server, which stays."""
        self.run(f"iperf3 -s -D -p {port} && sleep 0.2")

    def send_to(self, address: str, seconds: int, port: int = 5201) -> Iperf:
        """TCP to an iperf3 server."""
        command = f"iperf3 -c {address} -p {port} -t {seconds} -J --connect-timeout 5000"
        return iperf_result([self.name, command], self.run(command, check=False, timeout=seconds + 30), None)

    def stop(self) -> None:
        """Pulls the plug. Those of the guest's processes that its first one leaves behind are of its process group,
        whose number is taken for as long as nobody has waited for that one."""
        if self._console is not None:
            self._console.close()
            self._console = None
        if self.process is None:
            return
        process, self.process = self.process, None
        os.kill(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: _has_ended(process.pid), PATIENCE, "the guest ends")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)


def _has_ended(pid: int) -> bool:
    """Without waiting for it: its number stays taken."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


__all__ = ["PACKAGE", "Nic", "UmlGuest", "make_initramfs", "missing", "tap_nic", "vhost_nic"]
