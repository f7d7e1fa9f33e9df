"""A guest with network controllers that QEMU emulates, and the soft NIC in it, which DPDK's drivers give them to.

What the soft NIC needs goes into the guest's memory: the library, drnic, and a process of Debian's (ibv_asyncwatch)
that opens the RDMA device and stays. Each controller is a tap in a namespace of this host.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from . import build
from .command import run
from .initramfs import add, append, libraries_of, program
from .machine import Guest, image
from .workspace import Workspace

LIBRARIES = "/opt/softnic"
CONTROL = "/run/softnic.sock"
MEMORY_MB = 1024
_HOST = "ibv_asyncwatch"


@dataclass(frozen=True)
class Controller:
    """An emulated controller: QEMU's model and its options. It is device SLOT of the guest's first bus, or the only one
    of `bus`, QEMU's name and the guest's number of another."""
    model: str
    slot: int
    options: str = ""
    queues: int = 1
    host_mtu: int = 1500
    bus: tuple[str, int] | None = None

    @property
    def address(self) -> str:
        return f"0000:{self.bus[1]:02x}:00.0" if self.bus else f"0000:00:{self.slot:02x}.0"

    @property
    def tap(self) -> str:
        return f"nic{self.slot}"

    @property
    def mac(self) -> str:
        return f"52:54:00:00:00:{self.slot:02x}"

    def argv(self) -> list[str]:
        tap = f"tap,id={self.tap},ifname={self.tap},script=no,downscript=no,vhost=off"
        place = f"bus={self.bus[0]}" if self.bus else f"addr={self.slot}"
        device = f"{self.model},netdev={self.tap},{place},mac={self.mac},romfile="
        if self.queues > 1:
            tap += f",queues={self.queues}"
        return ["-netdev", tap, "-device", device + (f",{self.options}" if self.options else "")]


def _make_initramfs(folder: Path) -> Path:
    """The guest's own, and the soft NIC behind it: the kernel unpacks one archive after the other."""
    tree = folder / "tree"
    (tree / "run").mkdir(parents=True)
    softnic = build.softnic_libraries() / "libibverbs.so.1"
    watch = program(_HOST)
    add(softnic, tree, f"{LIBRARIES}/libibverbs.so.1")
    run(["strip", "--strip-unneeded", str(tree / LIBRARIES.lstrip("/") / "libibverbs.so.1")])
    (tree / LIBRARIES.lstrip("/") / "libmlx5.so.1").symlink_to("libibverbs.so.1")
    for binary in (watch, build.drnic()):
        add(binary, tree, f"/bin/{binary.name}")
        run(["strip", str(tree / "bin" / binary.name)])
    for binary in (softnic, watch, build.drnic()):
        for library in libraries_of(binary, build.softnic_libraries()):
            if library.parent != build.softnic_libraries():
                add(library, tree, str(library))
    made = folder / "initramfs"
    shutil.copy(image() / "initramfs", made)
    os.truncate(made, -(-made.stat().st_size // 4) * 4)   # the kernel takes no archive that starts elsewhere
    append(tree, made)
    return made


class NicGuest:
    """The guest, its controllers, and the soft NIC in it, which may start several times."""

    def __init__(self, workspace: Workspace, controllers: list[Controller], *, iommu: bool = True,
                 more_argv: list[str] | None = None, command_line: str = "", memory_mb: int = MEMORY_MB) -> None:
        self.folder = workspace.folder
        self.controllers = controllers
        self.monitor = self.folder / "nics.monitor"
        argv = ["-machine", "q35", "-chardev", f"socket,id=monitor,path={self.monitor},server=on,wait=off",
                "-mon", "chardev=monitor,mode=control", *(more_argv or [])]
        if iommu:
            argv += ["-device", "intel-iommu,intremap=on,aw-bits=48"]
        for controller in controllers:
            argv += controller.argv()
        self.guest = Guest(workspace, "nics", argv, initramfs=_make_initramfs(self.folder), memory_mb=memory_mb,
                           command_line=f"intel_iommu={'on' if iommu else 'off'} {command_line}")
        self.outside = self.guest.namespace

    def boot(self) -> float:
        seconds = self.guest.boot()
        for controller in self.controllers:
            self.outside.run(["ip", "link", "set", controller.tap, "mtu", str(controller.host_mtu), "up"])
        return seconds

    def run(self, command: str, *, check: bool = True, timeout: float = 60) -> str:
        return self.guest.run(command, check=check, timeout=timeout)

    def bind(self, controller: Controller, driver: str) -> None:
        """Takes it from whichever driver has it. Its module is loaded."""
        folder = f"/sys/bus/pci/devices/{controller.address}"
        self.run(f"[ ! -e {folder}/driver ] || echo {controller.address} >{folder}/driver/unbind; "
                 f"echo {driver} >{folder}/driver_override; echo {controller.address} >/sys/bus/pci/drivers_probe; "
                 f"[ $(basename $(readlink {folder}/driver)) = {driver} ]")

    def start(self, ports: list[dict[str, object]], **options: object) -> None:
        """Starts the soft NIC; its co-tenant bridges all of the VFs among `ports`."""
        vports = [port["vport"] for port in ports if port["vport"] != 65535]
        configuration = {"memory_mb": 384, "control_socket": CONTROL,
                         "devices": [{"name": "mlx5_0", "ports": ports, "cotenant": {"vports": vports}}], **options}
        self.run(f"echo '{json.dumps(configuration)}' >/run/softnic.json")
        self.run(f"(OVSDR_SOFTNIC=/run/softnic.json LD_LIBRARY_PATH={LIBRARIES} {_HOST} -d mlx5_0 "
                 f">/run/softnic.log 2>&1; echo \"ended: $?\" >>/run/softnic.log) &")
        # On a busy machine hugepages are emptied slowly, and each round of this loop takes longer than its nap.
        self.run(f"for i in $(seq 300); do [ ! -S {CONTROL} ] || break; ! grep -q ended /run/softnic.log || break; "
                 f"usleep 100000; done; [ -S {CONTROL} ] || {{ cat /run/softnic.log; false; }}", timeout=180)

    def stop(self) -> None:
        self.run(f"kill $(pidof {_HOST}); "
                 f"for i in $(seq 100); do pidof {_HOST} >/dev/null || break; usleep 50000; done; "
                 f"! pidof {_HOST} && rm -f {CONTROL}")

    def drnic(self, *arguments: str, check: bool = True) -> str:
        return self.run(f"drnic --socket {CONTROL} {' '.join(arguments)}", check=check)

    def qmp(self, command: str, **arguments: object) -> None:
        """A command of QEMU's monitor."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self.monitor))
            lines = monitor.makefile("rw")
            for request in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                while True:
                    answer = json.loads(lines.readline())
                    if "return" in answer:
                        break
                    if "error" in answer:
                        raise RuntimeError(f"{command}: {answer['error']}")

    def set_link(self, controller: Controller, up: bool) -> None:
        self.qmp("set_link", name=controller.tap, up=up)


