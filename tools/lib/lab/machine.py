"""Virtual machines: QEMU without KVM, a Debian kernel, a shell on the serial console."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

from . import build
from .command import Background, CommandError, run, wait_until
from .console import Console
from .workspace import Workspace

MEMORY_MB = 128
# Bits of virtio-net: a driver that has one of these leaves checksums or segments to its NIC, or takes packets of which
# that was left to a NIC. virtio 1.1, section 5.1.3.
UNFINISHED = {0: "CSUM", 1: "GUEST_CSUM", 7: "GUEST_TSO4", 8: "GUEST_TSO6", 9: "GUEST_ECN", 10: "GUEST_UFO",
              11: "HOST_TSO4", 12: "HOST_TSO6", 13: "HOST_ECN", 14: "HOST_UFO"}


def image() -> Path:
    """Folder of kernel and initramfs; made once for the build folder."""
    return Path(run([str(build.SOURCE / "tools" / "build-guest"), str(build.build_folder())],
                    timeout=300).splitlines()[-1])


class Guest:
    """A guest with a shell on its serial console, which may boot several times. `argv` is what QEMU is told beside the
    kernel, and `command_line` what the kernel is."""

    def __init__(self, workspace: Workspace, name: str, argv: list[str], *, initramfs: Path | None = None,
                 command_line: str = "", memory_mb: int = MEMORY_MB) -> None:
        self.name = name
        self.folder = workspace.folder
        self._serial_path = self.folder / f"{name}.serial"
        self._console: Console | None = None
        files = image()
        self.argv = [
            "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-nodefaults", "-display", "none", "-no-reboot",
            "-m", str(memory_mb), "-kernel", str(files / "vmlinuz"), "-initrd", str(initramfs or files / "initramfs"),
            # On a busy machine ticks come late: the kernel would take its timer for broken, and panic.
            "-append", f"console=ttyS0 quiet panic=-1 no_timer_check {command_line}",
            "-chardev", f"socket,id=serial,path={self._serial_path},server=on,wait=off", "-serial", "chardev:serial",
            *argv]
        self.process: Background | None = None
        self.namespace = workspace.namespace(f"{name}-qemu")   # where QEMU runs
        workspace.defer(self.stop)

    def boot(self, timeout: float = 90) -> float:
        """Starts it; returns the seconds until its shell answers."""
        begin = time.monotonic()
        self.launch()
        self.wait_ready(timeout)
        return time.monotonic() - begin

    def launch(self) -> None:
        self.process = self.namespace.start(self.argv, self.folder / f"{self.name}.qemu")
        wait_until(self._connect, 20, f"QEMU's console of {self.name}: {self.process.output()}")

    def wait_ready(self, timeout: float = 90) -> None:
        assert self._console is not None
        self._console.wait_ready(timeout)

    def _connect(self) -> bool:
        if self.process is not None and not self.process.running():
            raise CommandError(self.argv, -1, self.process.output())
        serial = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            serial.connect(str(self._serial_path))
        except OSError:
            serial.close()
            return False
        assert self.process is not None
        self._console = Console(serial, self.name, self.process.running, self.process.output)
        return True

    def run(self, command: str, *, check: bool = True, timeout: float = 60) -> str:
        """What a command of the guest's shell writes."""
        assert self._console is not None
        return self._console.run(command, check=check, timeout=timeout)

    def cpu_seconds(self) -> float:
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def stop(self) -> None:
        """Pulls the plug."""
        if self._console is not None:
            self._console.close()
            self._console = None
        if self.process is not None:
            self.process.stop(grace=2)
            self.process = None


class Machine(Guest):
    """A guest whose eth0 is on the vhost-user socket `path`. QEMU connects to it, again and again; with `serves` QEMU
    listens there."""

    def __init__(self, workspace: Workspace, name: str, path: Path, *, mac: str, address: str,
                 serves: bool = False) -> None:
        wire = f"socket,id=wire,path={path}" + (",server=on,wait=off" if serves else ",reconnect=1")
        # Without vectors=0 QEMU 7.2 crashes here when it has no KVM.
        super().__init__(workspace, name, [
            "-machine", "pc,memory-backend=memory",
            "-object", f"memory-backend-memfd,id=memory,size={MEMORY_MB}M,share=on",
            "-chardev", wire, "-netdev", "vhost-user,id=net,chardev=wire",
            "-device", f"virtio-net-pci,netdev=net,mac={mac},vectors=0,romfile="],
            command_line=f"ovsdr.address={address}/24")

    def ping(self, target: str, count: int = 3, interval: float = 0.2) -> int:
        """How many answers came."""
        output = self.run(f"ping -c {count} -i {interval} -W 2 {target}", check=False, timeout=count * 3 + 20)
        found = re.search(r"(\d+) packets received", output)
        if not found:
            raise CommandError(["ping", target], -1, output)
        return int(found.group(1))

    def set_neighbour(self, address: str, mac: str) -> None:
        self.run(f"arp -s {address} {mac}")

    def unfinished(self) -> set[str]:
        """What eth0 and the vport have agreed upon of UNFINISHED."""
        text = self.run("cat /sys/class/net/eth0/device/features").strip()
        assert len(text) == 64, text
        return {name for bit, name in UNFINISHED.items() if text[bit] == "1"}
