"""Network namespaces and the veth pairs between them."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path
from typing import Iterator, Sequence

from .command import Background, run

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _setns(fd: int) -> None:
    if _libc.setns(fd, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Namespace:
    """A named network namespace. Loopback is up, IPv6 autoconfiguration off: no packet but those a test sends."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create(self) -> None:
        run(["ip", "netns", "add", self.name])
        self.run(["ip", "link", "set", "lo", "up"])
        self.run(["sysctl", "-qw", *(f"net.ipv6.conf.{scope}.{setting}" for scope in ("all", "default")
                                     for setting in ("accept_dad=0", "router_solicitations=0", "addr_gen_mode=1"))],
                 check=False)

    def delete(self) -> None:
        """Its veth ends go first: a namespace that dies with a veth end in it can hold the pair for a while."""
        if not Path("/run/netns", self.name).exists():
            return
        for line in self.run(["ip", "-o", "link", "show", "type", "veth"], check=False).splitlines():
            device = line.split(":")[1].strip().split("@")[0]
            self.run(["ip", "link", "del", device], check=False)
        run(["ip", "netns", "del", self.name], check=False)

    def command(self, argv: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self.name, *argv]

    def run(self, argv: Sequence[str], *, check: bool = True, timeout: float = 60,
            env: dict[str, str] | None = None) -> str:
        return run(self.command(argv), check=check, timeout=timeout, env=env)

    def start(self, argv: Sequence[str], log: Path, env: dict[str, str] | None = None) -> Background:
        return Background(self.command(argv), log, env)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread is inside for the length of the block: sockets made in it belong to the namespace."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        inside = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
        try:
            _setns(inside)
            try:
                yield
            finally:
                _setns(home)
        finally:
            os.close(inside)
            os.close(home)

    def counters(self, device: str) -> dict[str, int]:
        """rx and tx packets and bytes of a device, as the kernel counts them."""
        base = f"/sys/class/net/{device}/statistics"
        names = ("rx_packets", "rx_bytes", "tx_packets", "tx_bytes")
        values = self.run(["cat", *(f"{base}/{name}" for name in names)]).split()
        return dict(zip(names, map(int, values)))


def make_veth(inner: Namespace, inner_device: str, outer: Namespace, outer_device: str, *, mac: str,
              address: str | None = None, mtu: int = 1500, offloads: bool = False) -> None:
    """A pair with one end in `inner` (a guest's NIC: MAC, address) and the other in `outer` (the vport's port).

    Without `offloads` each end sends whole packets with their tags in them: what a test counts, and readers that do not
    know better get TCP that does not hang on checksums."""
    outer.run(["ip", "link", "add", outer_device, "mtu", str(mtu), "type", "veth", "peer", "name", inner_device,
               "address", mac, "mtu", str(mtu), "netns", inner.name])
    for namespace, device in () if offloads else ((inner, inner_device), (outer, outer_device)):
        namespace.run(["ethtool", "-K", device, *(word for feature in ("tx", "gro", "txvlan", "rxvlan")
                                                  for word in (feature, "off"))], check=False)
    if address:
        inner.run(["ip", "address", "add", address, "dev", inner_device])
    outer.run(["ip", "link", "set", outer_device, "up"])
    inner.run(["ip", "link", "set", inner_device, "up"])
